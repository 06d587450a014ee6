"""Plot of a graph with the marginals of its nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.arguments import NONE, check_arguments, instance, whole
from ..errors import BadInput, describe
from ._arrows import draw_route
from ._force_layout import force_layout
from ._layered_layout import Point, layered_layout
from ._style import Theme, canvas, keep_proportions, text_size, theme_of, write

if TYPE_CHECKING:
    import networkx as nx
    from matplotlib.axes import Axes

_NAME, _STATE = 9.0, 7.5  # points
_ROW, _HEAD, _FOOT, _PAD = 0.155, 0.26, 0.09, 0.10  # inches
_BAR, _NUMBER, _GAP = 0.62, 0.36, 0.07


@dataclasses.dataclass(frozen=True)
class _Card:
    """The content of one box: its name, and for each row a state and its probability."""

    name: str
    rows: tuple[tuple[str, float], ...]
    given: str | None  # the observed state

    @property
    def title(self) -> str:
        return self.name if self.given is None else f"{self.name} = {self.given}"

    @property
    def labels(self) -> float:
        """The width of the column of state names."""
        return max((text_size(state, _STATE, "bold")[0] for state, _ in self.rows), default=0.0)

    @property
    def size(self) -> tuple[float, float]:
        title = text_size(self.title, _NAME, "bold")[0] + 2 * _PAD
        if not self.rows:
            return max(title + 0.08, 0.62), 0.34
        body = self.labels + _BAR + _NUMBER + 2 * _PAD + 2 * _GAP
        return max(title, body), _HEAD + _ROW * len(self.rows) + _FOOT


def network(
    graph: nx.Graph | Any,
    marginals: Mapping[Any, Any] | Any = None,
    evidence: Mapping[Any, Any] | None = None,
    *,
    states: Mapping[Any, Sequence[str]] | None = None,
    most_states: int = 8,
    ax: Axes | None = None,
) -> Axes:
    """Plot a directed or undirected graph, each node a box with its name and a bar chart of its marginal.

    Directed graphs are laid out in layers with arrows pointing down; undirected graphs so that distances on
    the page follow those in the graph.

    Args:
        graph: a NetworkX graph, or a model that has a `graph`.
        marginals: the probabilities of nodes, by state ({"yes": 0.3, …}) or in order; or a posterior.
        evidence: the states of observed nodes, which are highlighted and have no probabilities; by default
            those of a posterior.
        states: the names of states, by node; by default those of `marginals` or of the model, or numbers.
        most_states: with more states than this the least probable ones share a bar.
        ax: the axes to draw on; by default those of a new figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> import networkx as nx
    >>> alarm = nx.DiGraph([("burglary", "alarm"), ("earthquake", "alarm")])
    >>> ax = network(alarm, {"burglary": {"no": 0.62, "yes": 0.38}}, {"alarm": "yes"})
    >>> sorted(patch.get_gid() for patch in ax.patches if "→" in (patch.get_gid() or ""))
    ['burglary → alarm', 'earthquake → alarm']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    named = instance(Mapping, "a dict by node") | NONE
    check_arguments(locals(), evidence=named, states=named, most_states=whole(2))
    names = {**_states(graph), **(states or {})}
    graph = _as_graph(graph)
    evidence = _evidence(marginals) if evidence is None else dict(evidence)
    cards = _cards(graph, marginals, evidence, names, most_states)
    sizes = {node: card.size for node, card in cards.items()}
    layout = layered_layout(graph, sizes) if graph.is_directed() else force_layout(graph, sizes)
    ax, scale = canvas(ax, layout.width, layout.height)
    theme, directed, sign = theme_of(ax), graph.is_directed(), "→" if graph.is_directed() else "–"
    for (u, v), points in layout.routes.items():
        label = f"{u} {sign} {v}"
        draw_route(ax, points, scale, head=directed, straight=not directed, colour=theme.line, label=label)
    for node, card in cards.items():
        _draw(ax, card, layout.centres[node], sizes[node], scale, theme)
    keep_proportions(ax, scale)
    return ax


def _as_graph(graph: Any) -> nx.Graph:
    """The NetworkX graph of a model, or the graph itself, without parallel edges; raises on cycles."""
    import networkx as nx

    found = getattr(graph, "graph", None)
    if not isinstance(graph, nx.Graph) and found is not None:
        graph = found() if callable(found) else found
    if not isinstance(graph, nx.Graph):
        raise BadInput("graph", type(graph).__name__, "a networkx graph, or a model that has one")
    if graph.is_multigraph():
        graph = nx.DiGraph(graph) if graph.is_directed() else nx.Graph(graph)
    if len(graph) == 0:
        raise BadInput("graph", "no nodes", "at least one node")
    if graph.is_directed() and not nx.is_directed_acyclic_graph(graph):
        cycle = [edge[0] for edge in nx.find_cycle(graph)]
        path = " → ".join(map(str, [*cycle, cycle[0]]))
        raise BadInput("graph", f"the cycle {path}", "a directed graph without cycles")
    return graph


def _states(model: Any) -> dict[Any, Sequence[Any]]:
    """The names of a model's states: of its finite spaces, or of a `TableModel`."""
    spaces = getattr(model, "spaces", None)
    if isinstance(spaces, Mapping):
        finite = {name: space for name, space in spaces.items() if getattr(space, "is_finite", False)}
        return {name: getattr(s, "labels", None) or range(s.n_values) for name, s in finite.items()}
    if hasattr(model, "names") and hasattr(model, "states"):
        return dict(zip(model.names, model.states, strict=True))
    return {}


def _evidence(posterior: Any) -> dict[Any, Any]:
    """The observed nodes of a posterior: those with a marginal that are not hidden variables."""
    hidden, marginals = getattr(posterior, "spaces", None), getattr(posterior, "marginals", None)
    if not isinstance(hidden, Mapping) or not isinstance(marginals, Mapping):
        return {}
    observed = {name: np.asarray(p) for name, p in marginals.items() if name not in hidden}
    return {name: int(p.argmax()) for name, p in observed.items() if p.ndim == 1}


def _cards(graph: nx.Graph, marginals: Any, evidence: dict, states: dict, most: int) -> dict[Any, _Card]:
    marginals = getattr(marginals, "marginals", marginals)
    if marginals is not None and not isinstance(marginals, Mapping):
        raise BadInput("marginals", describe(marginals), "a dict by node, or a posterior")
    marginals = {} if marginals is None else dict(marginals.items())
    for argument, names in (("marginals", marginals), ("evidence", evidence), ("states", states)):
        for name in names:
            if name not in graph:
                raise BadInput(argument, repr(name), f"nodes of the graph ({_some(graph)})")
    result = {}
    for node in graph:
        labels, p = _probabilities(node, marginals.get(node), states.get(node))
        given = None
        if node in evidence:
            given = _state(node, evidence[node], labels)
            p = np.array([label == given for label in labels], float) if labels else None
        rows = () if p is None else _rows(labels, p, most)
        result[node] = _Card(str(node), rows, given)
    return result


def _some(graph: nx.Graph) -> str:
    return ", ".join(str(node) for node in list(graph)[:6]) + (", …" if len(graph) > 6 else "")


def _probabilities(node: Any, marginal: Any, states: Any) -> tuple[list[str], np.ndarray | None]:
    labels = [str(state) for state in states] if states is not None else []
    if marginal is None:
        return labels, None
    if isinstance(marginal, Mapping):
        labels, values = [str(state) for state in marginal], list(marginal.values())
    else:
        labels = labels or [str(state) for state in getattr(marginal, "labels", None) or ()]
        values = marginal
    p = np.asarray(values, float)
    if p.ndim != 1 or p.size == 0 or (labels and len(labels) != p.size):
        expected = f"{len(labels)} probabilities" if labels else "one probability per state, for one row"
        raise BadInput("marginals", f"shape {p.shape} for {node}", expected)
    if not np.all(np.isfinite(p)) or p.min() < -1e-6 or abs(p.sum() - 1) > 1e-3:
        raise BadInput("marginals", f"the sum {p.sum():.4g} for {node}", "probabilities that sum to one")
    return labels or [str(i) for i in range(p.size)], p


def _state(node: Any, value: Any, labels: list[str]) -> str:
    """The name of a state, given by name or by number."""
    if not labels and isinstance(value, (float, np.floating)):
        return f"{value:.6g}"
    if not labels or str(value) in labels:
        return str(value)
    if isinstance(value, (int, np.integer)) and 0 <= value < len(labels):
        return labels[int(value)]
    raise BadInput("evidence", f"{value!r} for {node}", f"one of its states ({', '.join(labels)})")


def _rows(labels: list[str], p: np.ndarray, most: int) -> tuple[tuple[str, float], ...]:
    if len(p) <= most:
        return tuple(zip(labels, p.tolist(), strict=True))
    kept = np.sort(np.argsort(-p, kind="stable")[: most - 1])
    rest = (f"{len(p) - len(kept)} others", float(p.sum() - p[kept].sum()))
    return (*((labels[i], float(p[i])) for i in kept), rest)


def _draw(ax: Axes, card: _Card, centre: Point, size: Point, scale: float, theme: Theme) -> None:
    from matplotlib.patches import FancyBboxPatch

    (x, y), (width, height) = centre, size
    left, top, marked = x - width / 2, y + height / 2, card.given is not None
    box = FancyBboxPatch(
        (left, y - height / 2),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.06",
        facecolor=theme.mark_panel if marked else theme.panel,
        edgecolor=theme.mark if marked else theme.line,
        linewidth=(1.6 if marked else 0.9) * scale,
        zorder=2,
    )
    box.set_gid(card.name)
    ax.add_patch(box)
    style: dict = {"zorder": 4, "color": theme.ink}
    if not card.rows:
        write(ax, (x, y), card.title, _NAME * scale, weight="bold" if marked else "normal", **style)
        return
    write(ax, (x, top - 0.145), card.title, _NAME * scale, weight="bold", **style)
    for i, row in enumerate(card.rows):
        _draw_row(ax, card, row, (left, top - _HEAD - _ROW * (i + 0.5), width), scale, theme)


def _draw_row(
    ax: Axes,
    card: _Card,
    row: tuple[str, float],
    place: tuple[float, float, float],
    scale: float,
    theme: Theme,
) -> None:
    """Draw a state, its bar and its probability, which observed nodes do not have: their state is given."""
    from matplotlib.patches import Rectangle

    (state, p), (left, y, width), marked = row, place, card.given is not None
    right, observed = left + width - _PAD, state == card.given
    start = left + _PAD + card.labels + _GAP
    end = right if marked else right - _NUMBER - _GAP
    style: dict = {"ha": "right", "zorder": 4, "color": theme.ink if observed else theme.soft}
    write(ax, (start - _GAP, y), state, _STATE * scale, weight="bold" if observed else "normal", **style)
    low, tall = y - 0.32 * _ROW, 0.64 * _ROW
    track = theme.panel if marked else theme.track
    ax.add_patch(Rectangle((start, low), end - start, tall, facecolor=track, linewidth=0, zorder=3))
    bar = Rectangle((start, low), (end - start) * p, tall, linewidth=0, zorder=4)
    bar.set_facecolor(theme.mark if marked else theme.accent)
    bar.set_gid(f"{card.name} = {state}")
    ax.add_patch(bar)
    if not marked:
        write(ax, (right, y), _percent(p), _STATE * scale, **style)


def _percent(p: float) -> str:
    """Whole per cent; small probabilities are not shown as 0%, nor large ones as 100%."""
    if 0 < p < 0.005:
        return "<1%"
    if 0.995 < p < 1:
        return ">99%"
    return f"{100 * p:.0f}%"
