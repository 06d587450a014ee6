"""Undirected graphs: boxes as far apart on the page as in the graph, and never on each other.

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

    Connected parts stand side by side. Each is turned so that it needs least paper, and stretched until
    no two boxes touch.

    >>> import networkx as nx
    >>> found = force_layout(nx.path_graph(3), dict.fromkeys(range(3), (1.0, 0.5)))
    >>> round(found.width, 2), round(found.height, 2)
    (3.94, 0.74)
    """
    import networkx as nx

    centres: dict[Any, Point] = {}
    left, tall = margin, 0.0
    parts = sorted(nx.connected_components(graph), key=len, reverse=True)
    placed = []
    for part in parts:
        nodes = [node for node in graph if node in part]
        where, extent = _part(graph.subgraph(nodes), nodes, np.array([sizes[node] for node in nodes]))
        placed.append((nodes, where, left, extent))
        left += extent[0] + _SPACE[0]
        tall = max(tall, extent[1])
    for nodes, where, start, extent in placed:
        for node, (x, y) in zip(nodes, where, strict=True):
            centres[node] = (float(x + start), float(y + margin + (tall - extent[1]) / 2))
    routes = {
        (u, v): [_rim(centres[u], centres[v], sizes[u]), _rim(centres[v], centres[u], sizes[v])]
        for u, v in graph.edges
        if u != v
    }
    return Layout(centres, routes, float(left - _SPACE[0] + margin), float(tall + 2 * margin))


def _part(graph: nx.Graph, nodes: list[Any], sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places from the lower left corner, and the extent."""
    import networkx as nx

    start = nx.circular_layout(graph)
    at = nx.kamada_kawai_layout(graph, pos=start) if len(nodes) > 2 else start
    points = np.array([at[node] for node in nodes])
    best, least = sizes / 2, math.inf
    for turn in np.linspace(0, math.pi, 60, endpoint=False):
        turned = points @ np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        turned = turned * _stretch(turned, sizes)
        turned = _aligned(turned, sizes)
        width, height = (turned + sizes / 2).max(0) - (turned - sizes / 2).min(0)
        paper = width * height * (1 + 0.25 * max(0.0, math.log(max(height / width, 1e-9))))
        if paper < least * (1 - 1e-9):
            best, least = turned, paper
    corner = (best - sizes / 2).min(0)
    return best - corner, (best + sizes / 2).max(0) - corner


def _stretch(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Factors for the two directions that free every pair of boxes: small ones, wider rather than higher."""
    pairs = np.array(list(itertools.combinations(range(len(points)), 2)), int).reshape(-1, 2)
    if not len(pairs):
        return np.ones(2)
    apart = np.abs(points[pairs[:, 0]] - points[pairs[:, 1]]) + 1e-9
    need = (sizes[pairs[:, 0]] + sizes[pairs[:, 1]]) / 2 + _SPACE
    spread = np.ptp(points, 0) + 1e-9
    best, least = np.ones(2), math.inf
    for ratio in (0.6, 0.8, 1.0, 1.3, 1.7, 2.2):  # how much more in width than in height
        factor = np.array([ratio, 1.0])
        scale = (need / (apart * factor)).min(1).max()
        cost = float(np.prod(spread * factor * scale + sizes.max(0))) * (1 + 0.15 * abs(math.log(ratio)))
        if cost < least:
            best, least = factor * scale, cost
    return best


def _aligned(points: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Boxes that are almost in one row or column, put in it, unless they then touch."""
    result = points.copy()
    for axis in (0, 1):
        order = np.argsort(points[:, axis], kind="stable")
        along = points[order, axis]
        breaks = np.flatnonzero(np.diff(along) > 0.3 * sizes[:, axis].min()) + 1
        for group in np.split(order, breaks):
            if np.ptp(points[group, axis]) < sizes[:, axis].min():
                result[group, axis] = points[group, axis].mean()
    return points if _touch(result, sizes) else result


def _touch(points: np.ndarray, sizes: np.ndarray) -> bool:
    apart = np.abs(points[:, None] - points[None]) - (sizes[:, None] + sizes[None]) / 2
    return bool((np.triu((apart < 0.4 * _SPACE).all(-1), 1)).any())


def _rim(centre: Point, other: Point, size: Point) -> Point:
    """Where the line to another box leaves this one."""
    dx, dy = other[0] - centre[0], other[1] - centre[1]
    share = min(size[0] / 2 / abs(dx) if dx else math.inf, size[1] / 2 / abs(dy) if dy else math.inf, 1.0)
    return (centre[0] + share * dx, centre[1] + share * dy)
