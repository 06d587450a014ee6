"""Layered layout of directed graphs: arrows point down, have few crossings, and avoid the boxes.

Reference: Sugiyama, Tagawa and Toda, IEEE Trans. Syst. Man Cybern. 11, 1981. Coordinates are least
squares under the order of each layer, by isotonic regression (Barlow et al. 1972).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import networkx as nx

Node = Any  # any hashable, as in NetworkX
Point = tuple[float, float]
_SIDE, _BETWEEN, _DUMMY = 0.22, 0.5, 0.10  # inches: between boxes, between layers, width of an arrow
_SWEEPS = 12


@dataclasses.dataclass(frozen=True)
class Layout:
    """Centres of the boxes, the points of each arrow, and the extent, in inches."""

    centres: dict[Node, Point]
    routes: dict[tuple[Node, Node], list[Point]]
    width: float
    height: float


@dataclasses.dataclass(frozen=True)
class _Dummy:
    """The crossing of an arrow with a layer between its ends: a dummy node."""

    edge: tuple[Node, Node]
    layer: int


def layered_layout(
    graph: nx.DiGraph, sizes: Mapping[Any, Point], between: float = _BETWEEN, margin: float = 0.12
) -> Layout:
    """Lay out a directed graph without cycles whose nodes are boxes of (width, height) inches.

    >>> import networkx as nx
    >>> found = layered_layout(nx.DiGraph([("a", "b"), ("a", "c")]), dict.fromkeys("abc", (1.0, 0.5)))
    >>> (b, y), (c, _) = found.centres["b"], found.centres["c"]
    >>> abs(found.centres["a"][0] - (b + c) / 2) < 1e-6 and found.centres["a"][1] > y and abs(b - c) > 1
    True
    """
    depth = _depths(graph)
    layers, chains, up, down = _with_dummies(graph, depth)
    layers = _order_layers(layers, up, down)
    widths = {node: sizes[node][0] if node in graph else _DUMMY for layer in layers for node in layer}
    x = _horizontal_positions(layers, up, down, widths)
    left = min((x[node] - widths[node] / 2 for node in widths), default=0.0) - margin
    right = max((x[node] + widths[node] / 2 for node in widths), default=0.0) + margin
    heights = [max((sizes[node][1] for node in layer if node in graph), default=0.0) for layer in layers]
    height = sum(heights) + between * max(len(layers) - 1, 0) + 2 * margin
    tops = [height - margin - sum(heights[:i]) - between * i for i in range(len(layers))]
    bottoms = [top - h for top, h in zip(tops, heights, strict=True)]
    middles = [top - h / 2 for top, h in zip(tops, heights, strict=True)]
    centres = {node: (x[node] - left, middles[depth[node]]) for node in graph}
    routes = {}
    ports = _ports(chains, x, sizes)
    for edge, chain in chains.items():
        (u, v), (leave, arrive) = edge, ports[edge]
        # Arrows bend between the layers only, so that they do not cross higher boxes of the same layer.
        begin, end = centres[u][0] + leave, centres[v][0] + arrive
        points = [(begin, centres[u][1] - sizes[u][1] / 2), (begin, bottoms[depth[u]])]
        for dummy in chain[1:-1]:
            at = x[dummy] - left
            points += [(at, tops[dummy.layer]), (at, bottoms[dummy.layer])]
        routes[edge] = [*points, (end, tops[depth[v]]), (end, centres[v][1] + sizes[v][1] / 2)]
    return Layout(centres, routes, right - left, height)


def _with_dummies(graph: nx.DiGraph, depth: Mapping[Node, int]) -> tuple[Any, Any, Any, Any]:
    """The nodes of each layer, with a dummy wherever an arrow crosses it.

    Also the chain of nodes and dummies of each arrow, and the neighbours in the layers above and below.
    """
    layers: list[list[Node]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    up: dict[Node, list[Node]] = {node: [] for node in graph}
    down: dict[Node, list[Node]] = {node: [] for node in graph}
    chains = {}
    for node in graph:
        layers[depth[node]].append(node)
    for u, v in graph.edges:
        chain: list[Node] = [u, *(_Dummy((u, v), i) for i in range(depth[u] + 1, depth[v])), v]
        for dummy in chain[1:-1]:
            layers[dummy.layer].append(dummy)
            up[dummy], down[dummy] = [], []
        for a, b in itertools.pairwise(chain):
            down[a].append(b)
            up[b].append(a)
        chains[u, v] = chain
    return layers, chains, up, down


def _depths(graph: nx.DiGraph) -> dict[Node, int]:
    """The layer of each node: its generation; nodes with more children than parents move down to them."""
    import networkx as nx

    depth = {node: i for i, row in enumerate(nx.topological_generations(graph)) for node in row}
    for node in reversed(list(nx.topological_sort(graph))):
        if graph.out_degree(node) > graph.in_degree(node):
            depth[node] = min(depth[child] for child in graph.successors(node)) - 1
    isolated = [node for node in graph if graph.degree(node) == 0]
    count = max(depth.values(), default=-1) + 1
    used = [sum(1 for n, i in depth.items() if i == layer and n not in isolated) for layer in range(count)]
    if isolated:
        used += [0] * max(0, math.isqrt(len(isolated)) - count)
        for node in isolated:  # into the layer with the fewest nodes
            depth[node] = used.index(min(used))
            used[depth[node]] += 1
    return depth


def _crossings(above: list[Node], below: list[Node], down: Mapping[Node, list[Node]]) -> int:
    place = {node: i for i, node in enumerate(below)}
    ends = [place[b] for a in above for b in sorted(down[a], key=place.__getitem__)]
    return sum(int(np.count_nonzero(np.array(ends[:i]) > end)) for i, end in enumerate(ends))


def _order_layers(rows: list[list[Node]], up: Mapping, down: Mapping) -> list[list[Node]]:
    """Sort each layer by the mean place of its neighbours, in sweeps down and up; the best order is kept."""
    total = lambda rs: sum(_crossings(a, b, down) for a, b in itertools.pairwise(rs))
    rows = [list(row) for row in rows]
    best, least = rows, total(rows)
    for sweep in range(2 * _SWEEPS):
        if least == 0:
            break
        near, fixed = (up, -1) if sweep % 2 == 0 else (down, 1)
        order = range(1, len(rows)) if fixed == -1 else range(len(rows) - 2, -1, -1)
        rows = [list(row) for row in rows]
        for i in order:
            place = {node: j / max(len(rows[i + fixed]) - 1, 1) for j, node in enumerate(rows[i + fixed])}
            mine = {node: j / max(len(rows[i]) - 1, 1) for j, node in enumerate(rows[i])}
            mean = lambda node: (
                float(np.mean([place[other] for other in near[node]])) if near[node] else mine[node]  # noqa: B023
            )
            rows[i].sort(key=mean)
        _swap(rows, up, down)
        found = total(rows)
        if found < least:
            best, least = rows, found
    return best


def _swap(rows: list[list[Node]], up: Mapping, down: Mapping) -> None:
    """Exchange neighbours in a layer while that removes crossings."""
    for i, row in enumerate(rows):
        sides = [(rows[i - 1], up)] if i else []
        sides += [(rows[i + 1], down)] if i + 1 < len(rows) else []
        places = [({node: j for j, node in enumerate(other)}, near) for other, near in sides]
        better = True
        while better:
            better = False
            for j in range(len(row) - 1):
                a, b = row[j], row[j + 1]
                gain = 0
                for place, near in places:
                    x, y = [place[n] for n in near[a]], [place[n] for n in near[b]]
                    gain += sum((p > q) - (p < q) for p in x for q in y)
                if gain > 0:
                    row[j], row[j + 1] = b, a
                    better = True


def _horizontal_positions(
    rows: list[list[Node]], up: Mapping, down: Mapping, widths: Mapping[Node, float]
) -> dict[Node, float]:
    """Horizontal positions close to those of the neighbours, in the order of each layer, without overlap."""
    x: dict[Node, float] = {}
    offsets = []
    for row in rows:
        gaps = [(widths[a] + widths[b]) / 2 + _SIDE for a, b in itertools.pairwise(row)]
        offset = np.concatenate([[0.0], np.cumsum(gaps)]) if row else np.zeros(0)
        offsets.append(offset)
        x.update(zip(row, offset - (offset[-1] / 2 if row else 0.0), strict=True))
    for sweep in range(60):
        order = range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1)
        for i in order:
            target, weight = [], []
            for node in rows[i]:
                pulls = [(x[other], _pull(node, other)) for other in (*up[node], *down[node])]
                total = sum(w for _, w in pulls)
                target.append(sum(p * w for p, w in pulls) / total if total else x[node])
                weight.append(total or 0.1)
            fitted = _isotonic(np.array(target) - offsets[i], np.array(weight)) + offsets[i]
            x.update(zip(rows[i], fitted.tolist(), strict=True))
    _straighten(rows, widths, x)
    return x


def _straighten(rows: list[list[Node]], widths: Mapping[Node, float], x: dict[Node, float]) -> None:
    """Make long arrows vertical through as many layers as there is room for."""
    beside: dict[_Dummy, tuple[Any, Any]] = {}
    chains: dict[tuple[Node, Node], list[_Dummy]] = {}
    for row in rows:
        for i, node in enumerate(row):
            if isinstance(node, _Dummy):
                beside[node] = (row[i - 1] if i else None, row[i + 1] if i + 1 < len(row) else None)
                chains.setdefault(node.edge, []).append(node)

    def room(dummy: _Dummy) -> Point:
        left, right = beside[dummy]
        low = -math.inf if left is None else x[left] + (widths[left] + _DUMMY) / 2 + _SIDE
        high = math.inf if right is None else x[right] - (widths[right] + _DUMMY) / 2 - _SIDE
        return min(low, x[dummy]), max(high, x[dummy])

    for chain in chains.values():
        first = 0
        while first < len(chain):
            low, high = -math.inf, math.inf
            last = first
            while last < len(chain):
                least, most = room(chain[last])
                if max(low, least) > min(high, most):
                    break
                low, high, last = max(low, least), min(high, most), last + 1
            run = chain[first:last]
            x.update(dict.fromkeys(run, float(np.clip(np.mean([x[dummy] for dummy in run]), low, high))))
            first = last


def _pull(a: Node, b: Node) -> float:
    """The weight of an edge: long arrows have priority in being straight."""
    return (2.0 if isinstance(a, _Dummy) else 1.0) * (2.0 if isinstance(b, _Dummy) else 1.0)


def _isotonic(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted isotonic regression: the closest increasing sequence, by pooling adjacent violators."""
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((float(value), float(weight), 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, v, m), (b, w, n) = pools[-2:]
            pools[-2:] = [((a * v + b * w) / (v + w), v + w, m + n)]
    return np.repeat([p[0] for p in pools], [p[2] for p in pools]) if pools else values


def _ports(
    chains: Mapping[tuple[Node, Node], list[Node]], across: Mapping[Node, float], sizes: Mapping[Any, Point]
) -> dict[tuple[Node, Node], Point]:
    """Horizontal offsets from the centre of the box at which arrows leave and arrive.

    An arrow starts in the direction of its end, so that it is vertical between boxes that overlap
    horizontally; the arrows of one box are side by side, in the order of their other ends.
    """
    found: dict[tuple[Node, Node], list[float]] = {edge: [0.0, 0.0] for edge in chains}
    for end in (0, 1):
        groups: dict[Node, list[tuple[float, tuple[Node, Node]]]] = {}
        for edge, chain in chains.items():
            node, other = (chain[0], chain[1]) if end == 0 else (chain[-1], chain[-2])
            fraction = 1.0 if isinstance(other, _Dummy) else 0.5  # two boxes meet half way
            groups.setdefault(node, []).append((fraction * (across[other] - across[node]), edge))
        for node, group in groups.items():
            group.sort(key=lambda item: item[0])
            most = 0.34 * sizes[node][0]
            step = min(0.16, 2 * most / max(len(group) - 1, 1))
            offsets = step * np.arange(len(group))
            targets = np.array([t if abs(t) <= most or len(group) > 1 else 0.0 for t, _ in group])
            places = _isotonic(targets - offsets, np.ones(len(group)))
            places = np.clip(places, -most, most - offsets[-1]) + offsets
            for (_, edge), place in zip(group, places, strict=True):
                found[edge][end] = float(place)
    return {edge: (a, b) for edge, (a, b) in found.items()}
