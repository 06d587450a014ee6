"""Plot of a junction tree: cliques and separators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .._util.arguments import POSITIVE_NUMBER, check_arguments, read_names
from ..errors import BadInput
from ..graph import junction_tree as join_cliques
from ..graph import triangulate_scopes
from ._arrows import draw_route
from ._layered_layout import layered_layout
from ._style import Theme, canvas, keep_proportions, text_size, theme_of, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CLIQUE, _SEPARATOR = 9.0, 7.5  # points
_LINE = 1.32  # line spacing, relative to the font size


def junction_tree(
    tree: Any, names: Sequence[str] | Any = None, *, wrap: float = 1.5, ax: Axes | None = None
) -> Axes:
    """Plot cliques as boxes with their variables, and on every edge the separator of its two cliques.

    Args:
        tree: a model, whose junction tree is drawn with the names of its variables; or a
            `graph.CliqueTree`, or what has its `cliques`, `edges` and `separators`. If it has only `cliques`
            (a triangulation, a tree for inference), they are joined by the largest separators.
        names: the names of variables that are numbers, or the model that has them.
        wrap: lines longer than this, in inches, are broken.
        ax: the axes to draw on; by default those of a new figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> from energax import graph
    >>> ax = junction_tree(graph.junction_tree([("a", "b"), ("b", "c"), ("c", "d")]))
    >>> [text.get_text() for text in ax.texts]
    ['a, b', 'b, c', 'c, d', 'b', 'c']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    check_arguments(locals(), wrap=POSITIVE_NUMBER)
    import networkx as nx

    if not hasattr(tree, "cliques"):
        names = tree if names is None else names
        tree = _tree_of(tree)
    names = None if names is None else _variables(names, tree)
    if not tree.cliques:
        raise BadInput("tree", "no cliques", "at least one")
    if not hasattr(tree, "edges"):
        tree = join_cliques(tree.cliques)
    graph, texts = nx.DiGraph(), {}
    for i, clique in enumerate(tree.cliques):
        texts["clique", i] = _lines([_name(v, names) for v in clique], _CLIQUE, wrap)
    for i, separator in enumerate(tree.separators):
        texts["separator", i] = _lines([_name(v, names) for v in separator], _SEPARATOR, wrap)
    for a, i, b in _center_rooted(tree):
        nx.add_path(graph, [("clique", a), ("separator", i), ("clique", b)])
    graph.add_nodes_from(texts)
    sizes = {node: _size(node[0], lines) for node, lines in texts.items()}
    layout = layered_layout(graph, sizes, between=0.2)
    ax, scale = canvas(ax, layout.width, layout.height)
    theme = theme_of(ax)
    for ends, points in layout.routes.items():
        label = " – ".join(f"{kind} {i}" for kind, i in ends)
        draw_route(ax, points, scale, head=False, colour=theme.line, label=label)
    for node, lines in texts.items():
        _draw(ax, node, lines, layout.centres[node], sizes[node], scale, theme)
    keep_proportions(ax, scale)
    return ax


def _tree_of(model: Any) -> Any:
    """The junction tree of a model that can make one, or whose tables have scopes."""
    if callable(getattr(model, "junction_tree", None)):
        return model.junction_tree()
    if hasattr(model, "scopes") and hasattr(model, "cards"):
        return join_cliques(triangulate_scopes(model.cards, model.scopes).cliques)
    expected = "a graph.CliqueTree, or a model that has a junction tree"
    raise BadInput("tree", f"{type(model).__name__} without cliques", expected)


def _variables(names: Any, tree: Any) -> list[str]:
    """The names of variables, in the order of their numbers: the given ones, or those of a model."""
    spaces = getattr(names, "spaces", None)
    found = read_names("names", getattr(names, "names", names) if spaces is None else list(spaces))
    count = len(getattr(tree, "cards", found))
    if len(found) != count:  # a tree in which observed variables are left out has other numbers
        hint = "Leave out the names of observed variables."
        raise BadInput("names", f"{len(found)} names", f"{count}, one for each variable of the tree", hint)
    return found


def _center_rooted(tree: Any) -> Iterator[tuple[int, int, int]]:
    """(clique, edge, child clique) of the tree rooted at its centre, which minimises its height."""
    import networkx as nx

    graph = nx.Graph((a, b, {"edge": i}) for i, (a, b) in enumerate(tree.edges))
    for part in list(nx.connected_components(graph)):
        for a, b in nx.bfs_edges(graph, nx.center(graph.subgraph(part))[0]):
            yield a, graph.edges[a, b]["edge"], b


def _name(variable: Any, names: list[str] | None) -> str:
    if names is None:
        return str(variable)
    if not isinstance(variable, int) or not 0 <= variable < len(names):
        raise BadInput("names", f"none for the variable {variable!r}", "one name per variable of the tree")
    return str(names[variable])


def _points(kind: str) -> float:
    return _CLIQUE if kind == "clique" else _SEPARATOR


def _lines(words: list[str], points: float, wrap: float) -> list[str]:
    lines: list[str] = []
    for i, word in enumerate(words):
        word += "," if i + 1 < len(words) else ""
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_size(longer, points)[0] <= wrap:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or ["∅"]


def _size(kind: str, lines: list[str]) -> tuple[float, float]:
    points = _points(kind)
    pad = 0.14 if kind == "clique" else 0.09
    width = max(text_size(line, points)[0] for line in lines)
    return width + 2 * pad, len(lines) * points * _LINE / 72 + 1.1 * pad


def _draw(ax: Axes, node: Any, lines: list[str], centre: Any, size: Any, scale: float, theme: Theme) -> None:
    from matplotlib.patches import FancyBboxPatch

    kind, index = node
    clique = kind == "clique"
    box = FancyBboxPatch(
        (centre[0] - size[0] / 2, centre[1] - size[1] / 2),
        *size,
        boxstyle=f"round,pad=0,rounding_size={0.12 if clique else 0.01}",
        facecolor=theme.panel if clique else theme.track,
        edgecolor=theme.accent if clique else theme.line,
        linewidth=(1.2 if clique else 0.6) * scale,
        zorder=2,
    )
    box.set_gid(f"{kind} {index}")
    ax.add_patch(box)
    colour, points = (theme.ink if clique else theme.soft), _points(kind) * scale
    write(ax, centre, "\n".join(lines), points, color=colour, linespacing=_LINE, zorder=4)
