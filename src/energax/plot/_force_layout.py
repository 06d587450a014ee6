"""Layout of undirected graphs: distances on the page follow those in the graph, and boxes do not overlap.

Reference: Kamada and Kawai, An algorithm for drawing general undirected graphs, Inf. Process. Lett. 31, 1989.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ._layered_layout import Layout, Point

if TYPE_CHECKING:
    import networkx as nx

_SPACE = np.array([0.35, 0.35])  # inches between boxes


def force_layout(graph: nx.Graph, sizes: Mapping[Any, Point], margin: float = 0.12) -> Layout:
    """Lay out an undirected graph whose nodes are boxes of (width, height) inches.

    Connected components are placed side by side. Each is rotated to the smallest area, and stretched until
    no two boxes touch.

    >>> import networkx as nx
    >>> found = force_layout(nx.path_graph(3), dict.fromkeys(range(3), (1.0, 0.5)))
    >>> round(found.width, 2), round(found.height, 2)
    (3.94, 0.74)
    """
    import networkx as nx

    centres: dict[Any, Point] = {}
    left, height = margin, 0.0
    components = sorted(nx.connected_components(graph), key=len, reverse=True)
    layouts = []
    for component in components:
        nodes = [node for node in graph if node in component]
        points, extent = _layout_component(
            graph.subgraph(nodes), nodes, np.array([sizes[node] for node in nodes])
        )
        layouts.append((nodes, points, left, extent))
        left += extent[0] + _SPACE[0]
        height = max(height, extent[1])
    for nodes, points, start, extent in layouts:
        for node, (x, y) in zip(nodes, points, strict=True):
            centres[node] = (float(x + start), float(y + margin + (height - extent[1]) / 2))
    routes = {
        (u, v): [_border(centres[u], centres[v], sizes[u]), _border(centres[v], centres[u], sizes[v])]
        for u, v in graph.edges
        if u != v
    }
    return Layout(centres, routes, float(left - _SPACE[0] + margin), float(height + 2 * margin))


def _layout_component(graph: nx.Graph, nodes: list[Any], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the boxes relative to the lower left corner, and the extent."""
    import networkx as nx

    start = nx.circular_layout(graph)
    at = nx.kamada_kawai_layout(graph, pos=start) if len(nodes) > 2 else start
    points = np.array([at[node] for node in nodes])
    best, least = sizes / 2, math.inf
    for angle in np.linspace(0, math.pi, 60, endpoint=False):
        rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        rotated = points @ rotation
        rotated = _align(rotated * _stretch(rotated, sizes), sizes)
        width, height = (rotated + sizes / 2).max(0) - (rotated - sizes / 2).min(0)
        cost = width * height * (1 + 0.25 * max(0.0, math.log(max(height / width, 1e-9))))
        if cost < least * (1 - 1e-9):
            best, least = rotated, cost
    corner = (best - sizes / 2).min(0)
    return best - corner, (best + sizes / 2).max(0) - corner


def _stretch(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Small factors for both directions that separate all boxes, rather wider than higher."""
    pairs = np.array(list(itertools.combinations(range(len(points)), 2)), int).reshape(-1, 2)
    if not len(pairs):
        return np.ones(2)
    distance = np.abs(points[pairs[:, 0]] - points[pairs[:, 1]]) + 1e-9
    required = (sizes[pairs[:, 0]] + sizes[pairs[:, 1]]) / 2 + _SPACE
    spread = np.ptp(points, 0) + 1e-9
    best, least = np.ones(2), math.inf
    for ratio in (0.6, 0.8, 1.0, 1.3, 1.7, 2.2):  # of the factor in width to that in height
        factor = np.array([ratio, 1.0])
        scale = (required / (distance * factor)).min(1).max()
        cost = float(np.prod(spread * factor * scale + sizes.max(0))) * (1 + 0.15 * abs(math.log(ratio)))
        if cost < least:
            best, least = factor * scale, cost
    return best


def _align(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Move boxes that are almost in one row or column onto it, unless they then touch."""
    result = points.copy()
    for axis in (0, 1):
        order = np.argsort(points[:, axis], kind="stable")
        along = points[order, axis]
        breaks = np.flatnonzero(np.diff(along) > 0.3 * sizes[:, axis].min()) + 1
        for group in np.split(order, breaks):
            if np.ptp(points[group, axis]) < sizes[:, axis].min():
                result[group, axis] = points[group, axis].mean()
    return points if _any_touch(result, sizes) else result


def _any_touch(points: np.ndarray, sizes: np.ndarray) -> bool:
    gap = np.abs(points[:, None] - points[None]) - (sizes[:, None] + sizes[None]) / 2
    return bool((np.triu((gap < 0.4 * _SPACE).all(-1), 1)).any())


def _border(centre: Point, other: Point, size: Point) -> Point:
    """The point on the border of a box on the line to the centre of another box."""
    dx, dy = other[0] - centre[0], other[1] - centre[1]
    fraction = min(size[0] / 2 / abs(dx) if dx else math.inf, size[1] / 2 / abs(dy) if dy else math.inf, 1.0)
    return (centre[0] + fraction * dx, centre[1] + fraction * dy)
