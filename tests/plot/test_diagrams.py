"""Plots of graphs: all edges are drawn, bars are proportional to probabilities, boxes do not overlap."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import matplotlib
import networkx as nx
import numpy as np
import pytest
from hypothesis import given

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from energax import graph as structure
from energax.errors import BadInput
from energax.plot import junction_tree, network, transitions
from energax.plot._force_layout import force_layout
from energax.plot._layered_layout import _crossings, layered_layout

ALARM = nx.DiGraph(
    [("burglary", "alarm"), ("earthquake", "alarm"), ("alarm", "JohnCalls"), ("alarm", "MaryCalls")]
)


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@st.composite
def boxed_dags(draw, most: int = 14):
    n = draw(st.integers(1, most))
    pairs = list(itertools.combinations(draw(st.permutations(range(n))), 2))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    if pairs:
        graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=2 * n, unique=True)))
    sizes = {v: (draw(st.floats(0.4, 2.0)), draw(st.floats(0.3, 1.5))) for v in range(n)}
    return graph, sizes


def touching(plan, sizes, gap: float = 0.0) -> list:
    return [
        (a, b)
        for a, b in itertools.combinations(plan.centres, 2)
        if all(
            abs(plan.centres[a][i] - plan.centres[b][i]) < (sizes[a][i] + sizes[b][i]) / 2 + gap
            for i in (0, 1)
        )
    ]


@given(boxed_dags())
def test_layered_layout_keeps_boxes_apart_and_arrows_beside_them(problem):
    graph, sizes = problem
    plan = layered_layout(graph, sizes)
    assert not touching(plan, sizes, gap=0.1)
    assert set(plan.routes) == set(graph.edges)
    for node, (x, y) in plan.centres.items():
        w, h = sizes[node]
        assert w / 2 <= x <= plan.width - w / 2 and h / 2 <= y <= plan.height - h / 2
    for (u, v), points in plan.routes.items():
        assert all(a[1] >= b[1] - 1e-9 for a, b in itertools.pairwise(points))  # downwards all the way
        (x0, y0), (x1, y1) = points[0], points[-1]
        assert y0 == pytest.approx(plan.centres[u][1] - sizes[u][1] / 2)  # from rim to rim
        assert y1 == pytest.approx(plan.centres[v][1] + sizes[v][1] / 2)
        assert abs(x0 - plan.centres[u][0]) < sizes[u][0] / 2
        assert abs(x1 - plan.centres[v][0]) < sizes[v][0] / 2
        for (x, top), (further, low) in itertools.pairwise(points):
            for node, (cx, cy) in plan.centres.items():
                passes = cy - sizes[node][1] / 2 < top - 1e-6 and cy + sizes[node][1] / 2 > low + 1e-6
                if passes and node not in (u, v):
                    assert x == further  # bends lie between the layers
                    assert abs(x - cx) > sizes[node][0] / 2 + 0.1


@given(boxed_dags(10))
def test_force_layout_keeps_boxes_apart(problem):
    graph, sizes = problem[0].to_undirected(), problem[1]
    plan = force_layout(graph, sizes)
    assert not touching(plan, sizes, gap=0.05)
    assert {frozenset(e) for e in plan.routes} == {frozenset(e) for e in graph.edges}
    for node, (x, y) in plan.centres.items():
        w, h = sizes[node]
        assert w / 2 <= x <= plan.width - w / 2 + 1e-9 and h / 2 <= y <= plan.height - h / 2 + 1e-9


def test_trees_are_drawn_without_crossings():
    for seed in range(5):
        tree = nx.bfs_tree(nx.random_labeled_tree(25, seed=seed), 0)
        shuffled = nx.DiGraph()
        shuffled.add_nodes_from(np.random.default_rng(seed).permutation(25).tolist())
        shuffled.add_edges_from(tree.edges)
        plan = layered_layout(shuffled, dict.fromkeys(tree, (1.0, 0.5)))
        rows: dict = {}
        for node, (x, y) in plan.centres.items():
            rows.setdefault(-round(y, 6), []).append((x, node))
        ordered = [[node for _, node in sorted(rows[y])] for y in sorted(rows)]
        down = {node: list(tree.successors(node)) for node in tree}
        assert sum(_crossings(a, b, down) for a, b in itertools.pairwise(ordered)) == 0


def test_a_grid_comes_out_as_a_grid():
    grid = nx.grid_2d_graph(3, 4)
    plan = force_layout(grid, dict.fromkeys(grid, (1.2, 0.6)))
    assert {len({round(p[i], 6) for p in plan.centres.values()}) for i in (0, 1)} == {3, 4}


def gids(ax, kind=object) -> dict:
    return {patch.get_gid(): patch for patch in ax.patches if patch.get_gid() and isinstance(patch, kind)}


def inside(ax, name: str) -> list[str]:
    """The texts that are entirely within a box."""
    renderer = ax.figure.canvas.get_renderer()
    box = gids(ax)[name].get_window_extent(renderer).padded(1)
    found = []
    for text in ax.texts:
        extent = text.get_window_extent(renderer)
        if box.contains(extent.x0, extent.y0) and box.contains(extent.x1, extent.y1):
            found.append(text.get_text())
    return found


def test_a_network_shows_its_marginals():
    marginals = {
        "burglary": {"no": 0.716, "yes": 0.284},
        "earthquake": np.array([0.9987, 0.0013]),
        "alarm": [0.25, 0.75],
    }
    evidence = {"JohnCalls": "yes", "MaryCalls": 1}
    states = {"JohnCalls": ["no", "yes"], "MaryCalls": ["no", "yes"], "alarm": ["off", "on"]}
    ax = network(ALARM, marginals, evidence, states=states)
    bars = gids(ax, Rectangle)
    expected = {
        "burglary = no": 0.716,
        "burglary = yes": 0.284,
        "earthquake = 0": 0.9987,
        "earthquake = 1": 0.0013,
        "alarm = off": 0.25,
        "alarm = on": 0.75,
        "JohnCalls = no": 0.0,
        "JohnCalls = yes": 1.0,
        "MaryCalls = no": 0.0,
        "MaryCalls = yes": 1.0,
    }
    assert set(bars) == set(expected)
    wholes = {p.get_xy(): p.get_width() for p in ax.patches if isinstance(p, Rectangle) and not p.get_gid()}
    for gid, p in expected.items():
        assert bars[gid].get_width() == pytest.approx(p * wholes[bars[gid].get_xy()])
    assert set(gids(ax, FancyArrowPatch)) == {f"{u} → {v}" for u, v in ALARM.edges}
    for arrow in gids(ax, FancyArrowPatch).values():
        _, head = arrow._get_path_in_displaycoord()[0]
        assert min(head.get_extents().size) > 3  # pixels
    assert inside(ax, "burglary") == ["burglary", "no", "72%", "yes", "28%"]
    assert inside(ax, "earthquake") == ["earthquake", "0", ">99%", "1", "<1%"]
    # Evidence is marked by line width and not by colour alone.
    assert gids(ax)["JohnCalls"].get_linewidth() > gids(ax)["alarm"].get_linewidth()


def test_every_text_of_a_large_network_stays_in_its_box():
    rng = np.random.default_rng(0)
    graph = nx.DiGraph((u, v) for u, v in nx.gnp_random_graph(40, 0.06, seed=1, directed=True).edges if u < v)
    graph.add_nodes_from(range(40))
    graph = nx.relabel_nodes(graph, {i: f"Variable {'X' * (i % 9)}{i}" for i in graph})
    marginals = {node: {f"state {i}": p for i, p in enumerate(rng.dirichlet(np.ones(3)))} for node in graph}
    ax = network(graph, marginals)
    assert max(ax.figure.get_size_inches()) <= 18.001
    for node in graph:
        assert len(inside(ax, node)) == 7


def test_rare_states_share_a_bar():
    p = np.arange(1, 13) / 78
    ax = network(nx.empty_graph(["die"], create_using=nx.DiGraph), {"die": p}, most_states=4)
    bars = gids(ax, Rectangle)
    assert list(bars) == ["die = 9", "die = 10", "die = 11", "die = 9 others"]
    widths = np.array([bar.get_width() for bar in bars.values()])
    assert widths / widths.sum() == pytest.approx([10 / 78, 11 / 78, 12 / 78, 45 / 78])


def test_undirected_edges_have_no_heads_and_given_axes_are_used():
    figure, axes = plt.subplots(1, 2)
    ring = nx.cycle_graph(5)
    assert network(ring, ax=axes[0]) is axes[0]
    arrows = gids(axes[0], FancyArrowPatch)
    assert len(arrows) == 5 and all("–" in gid for gid in arrows)
    assert all(type(arrow.get_arrowstyle()).__name__ == "Curve" for arrow in arrows.values())
    network(ALARM, evidence={"alarm": "on"}, ax=axes[1])
    assert "alarm = on" in [text.get_text() for text in axes[1].texts]
    assert plt.get_fignums() == [figure.number]
    assert inside(axes[1], "alarm") == ["alarm = on"]  # smaller axes, smaller letters


class Model:
    names = tuple(ALARM)
    states = (("no", "yes"),) * 5

    def graph(self):
        return ALARM


class Answer:
    marginals = {"alarm": [0.5, 0.5]}


def test_models_and_posteriors_are_accepted():
    ax = network(Model(), Answer(), {"JohnCalls": 1})
    assert {"alarm = no", "alarm = yes"} <= set(gids(ax))
    assert inside(ax, "JohnCalls") == ["JohnCalls = yes", "no", "yes"]
    assert len(gids(network(nx.MultiDiGraph([(0, 1), (0, 1)])), FancyArrowPatch)) == 1
    assert network(nx.DiGraph([("cost in $", "a$b")])).texts[0].get_text() == "cost in $"


def test_a_junction_tree_shows_cliques_and_separators():
    moral = structure.moralise(nx.DiGraph([("a", "c"), ("b", "c"), ("c", "d"), ("c", "e"), ("f", "g")]))
    tree = structure.junction_tree(structure.triangulate(moral).cliques)
    ax = junction_tree(tree)
    boxes = {gid: patch for gid, patch in gids(ax).items() if "–" not in gid}
    assert set(boxes) == {f"clique {i}" for i in range(len(tree.cliques))} | {
        f"separator {i}" for i in range(len(tree.separators))
    }
    for i, clique in enumerate(tree.cliques):
        assert inside(ax, f"clique {i}") == [", ".join(clique)]
    for i, separator in enumerate(tree.separators):
        assert inside(ax, f"separator {i}") == [", ".join(separator)]
    ends = {frozenset(gid.split(" – ")) for gid in gids(ax, FancyArrowPatch)}
    for i, pair in enumerate(tree.edges):
        assert {frozenset((f"clique {v}", f"separator {i}")) for v in pair} <= ends
    assert len(ends) == 2 * len(tree.edges)


def test_a_junction_tree_of_numbers_takes_names_and_wraps_lines():
    tree = structure.junction_tree([(0, 1), (1, 2)])
    names = ["a long name of a variable", "another one", "third"]
    ax = junction_tree(tree, names, wrap=1.0)
    assert ax.texts[0].get_text() == "a long name of a variable,\nanother one"
    chain = structure.triangulate(nx.path_graph(4))
    assert sorted(text.get_text() for text in junction_tree(chain).texts) == sorted(
        ["0, 1", "1, 2", "2, 3", "1", "2"]
    )
    with pytest.raises(BadInput, match="none for the variable 2"):
        junction_tree(tree, names[:2])


def test_transitions_have_an_arrow_as_wide_as_they_are_likely():
    p = np.array([[0.7, 0.295, 0.005], [0.0, 0.5, 0.5], [0.2, 0.0, 0.8]])
    names = ["sun", "cloud", "rain"]
    ax = transitions(p, names)
    arrows = gids(ax, FancyArrowPatch)
    drawn = {(i, j): p[i, j] for i, j in np.ndindex(3, 3) if p[i, j] >= 0.01}
    assert set(arrows) == {f"{names[i]} → {names[j]}" for i, j in drawn}
    widths = np.array([arrows[f"{names[i]} → {names[j]}"].get_linewidth() for i, j in drawn])
    assert np.allclose(np.diff(widths[np.argsort(list(drawn.values()))]) >= -1e-9, True)
    assert np.corrcoef(widths, list(drawn.values()))[0, 1] > 0.999999
    texts = [text.get_text() for text in ax.texts]
    assert sorted(texts) == sorted([*names, "0.7", "0.29", "0.5", "0.5", "0.2", "0.8"])
    for i, name in enumerate(names):
        circle = gids(ax)[name]
        for j, other in enumerate(names):
            if (i, j) in drawn:  # from the rim of one to the rim of the other
                curve = arrows[f"{name} → {other}"]._path_original.vertices
                assert np.hypot(*(curve[0] - circle.center)) == pytest.approx(circle.radius, abs=0.04)
                end = gids(ax)[other]
                assert np.hypot(*(curve[-1] - end.center)) == pytest.approx(end.radius, abs=0.06)
    assert "sun → rain" in gids(transitions(p, names, least=0.001))


@pytest.mark.parametrize("k", [1, 2, 4, 5])
def test_labels_of_transitions_do_not_cover_each_other(k):
    p = np.random.default_rng(k).dirichlet(np.ones(k), k) * 0.7 + 0.3 / k
    ax = transitions(p)
    renderer = ax.figure.canvas.get_renderer()
    whole = ax.figure.bbox
    boxes = [text.get_window_extent(renderer) for text in ax.texts]
    assert len(boxes) == k * k + k
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(whole.contains(b.x0, b.y0) and whole.contains(b.x1, b.y1) for b in boxes)


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        (lambda: network("alarm"), "a networkx graph"),
        (lambda: network(nx.DiGraph()), "at least one node"),
        (lambda: network(nx.DiGraph([(0, 1), (1, 0)])), "the cycle 0 → 1 → 0"),
        (lambda: network(ALARM, {"fire": [0.5, 0.5]}), "marginals: found 'fire'"),
        (lambda: network(ALARM, {"alarm": [0.5, 0.9]}), "the sum 1.4 for alarm"),
        (lambda: network(ALARM, {"alarm": [[0.5, 0.5]]}), "for one row"),
        (lambda: network(ALARM, {"alarm": [0.5, 0.5]}, states={"alarm": ["a"]}), "1 probabilities"),
        (lambda: network(ALARM, None, {"fire": 1}), "evidence: found 'fire'"),
        (lambda: network(ALARM, {"alarm": {"on": 1.0}}, {"alarm": "of"}), "one of its states"),
        (lambda: network(ALARM, most_states=1), "most_states"),
        (lambda: junction_tree([("a", "b")]), "without cliques"),
        (lambda: junction_tree(structure.CliqueTree((), (), ())), "at least one"),
        (lambda: transitions([[0.5, 0.5]]), "square"),
        (lambda: transitions([[0.5, 0.5], [0.5, 0.6]]), "row 1 with the sum 1.1"),
        (lambda: transitions(np.eye(2), ["a"]), "2 different names"),
        (lambda: transitions([[np.nan]]), "row 0"),
    ],
)
def test_bad_input_raises_before_a_figure_is_opened(plot, message):
    with pytest.raises(BadInput, match=message):
        plot()
    assert plt.get_fignums() == []
