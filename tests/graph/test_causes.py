"""Adjustment sets: textbook examples, and the criteria by brute force over all subsets and all paths."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from energax.errors import BadInput
from energax.graph import backdoor_sets, do, frontdoor_sets, is_backdoor, is_frontdoor


@st.composite
def problems(draw, most: int = 7):
    n = draw(st.integers(2, most))
    order = draw(st.permutations(range(n)))
    pairs = list(itertools.combinations(order, 2))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(draw(st.lists(st.sampled_from(pairs), max_size=2 * n, unique=True)))
    x, y = draw(st.permutations(range(n)))[:2]
    hidden = draw(st.sets(st.sampled_from(range(n)), max_size=2)) - {x, y}
    return graph, x, y, hidden


def open_paths(graph, a, b, given):
    """Every active path from a to b, by the definition."""
    skeleton = graph.to_undirected()
    for path in nx.all_simple_paths(skeleton, a, b):
        for before, node, after in zip(path, path[1:], path[2:], strict=False):
            if graph.has_edge(before, node) and graph.has_edge(after, node):
                if not ({node} | nx.descendants(graph, node)) & given:
                    break
            elif node in given:
                break
        else:
            yield path


def backdoor(graph, x, y, z) -> bool:
    """Definition 3.3.1 of Pearl."""
    into = (path for path in open_paths(graph, x, y, z) if graph.has_edge(path[1], x))
    return not z & nx.descendants(graph, x) and next(into, None) is None


def frontdoor(graph, x, y, m) -> bool:
    """Definition 3.3.3 of Pearl, for sets: paths between their members are cut as by the intervention."""
    if any(not set(path) & m for path in nx.all_simple_paths(graph, x, y)):
        return False
    into = lambda a, b, z: any(graph.has_edge(p[1], a) for p in open_paths(graph, a, b, z))
    if any(into(x, node, set()) for node in m):
        return False
    cut = graph.copy()
    cut.remove_edges_from(list(graph.out_edges(m)))
    return not m or nx.is_d_separator(cut, m, {y}, {x})


def minimal(graph, x, y, hidden, criterion):
    free = [v for v in graph if v not in {x, y} | hidden]
    good = []
    for size in range(len(free) + 1):
        for group in map(frozenset, itertools.combinations(free, size)):
            if not any(small <= group for small in good) and criterion(graph, x, y, set(group)):
                good.append(group)
    return set(good)


@settings(max_examples=150)
@given(problems())
def test_backdoor_by_brute_force(problem):
    graph, x, y, hidden = problem
    found = backdoor_sets(graph, x, y, hidden)
    assert len(set(found)) == len(found) and [len(s) for s in found] == sorted(len(s) for s in found)
    assert set(found) == minimal(graph, x, y, hidden, backdoor)
    others = [v for v in graph if v not in (x, y)]
    for size in range(len(others) + 1):
        for group in itertools.combinations(others, size):
            verdict = is_backdoor(graph, x, y, group)
            assert bool(verdict) == backdoor(graph, x, y, set(group))
            assert bool(verdict.reasons) == (not verdict)


@settings(max_examples=80)
@given(problems(6))
def test_frontdoor_by_brute_force(problem):
    graph, x, y, hidden = problem
    found = frontdoor_sets(graph, x, y, hidden, largest=6)
    assert set(found) == minimal(graph, x, y, hidden, frontdoor)
    others = [v for v in graph if v not in (x, y)]
    for size in range(len(others) + 1):
        for group in itertools.combinations(others, size):
            assert bool(is_frontdoor(graph, x, y, group)) == frontdoor(graph, x, y, set(group))
    limited = frontdoor_sets(graph, x, y, hidden, largest=1)
    assert bool(limited) == bool(found), "one is found whenever there is one"
    assert all(frontdoor(graph, x, y, set(group)) for group in limited)


@settings(max_examples=20)
@given(problems(5), st.integers(0, 10_000))
def test_adjusting_is_intervening(problem, seed):
    """In random tables, both adjustment formulas equal the intervention on the model."""
    graph, x, y, hidden = problem
    n, rng = len(graph), np.random.default_rng(seed)
    full = lambda table, axes: np.einsum(table, list(axes), np.ones((2,) * n), list(range(n)), list(range(n)))
    factors = {}
    for node in graph:
        family = [*graph.predecessors(node), node]
        factors[node] = full(rng.dirichlet((2.0, 2.0), size=(2,) * (len(family) - 1)), family)
    joint = np.prod(list(factors.values()), axis=0)
    cut = np.prod([factors[v] if v != x else np.ones((2,) * n) for v in graph], axis=0)
    truth = np.einsum(cut, range(n), [x, y])  # p(y | do(x)): rows x
    p = lambda *axes: np.einsum(joint, range(n), list(axes))
    for group in map(sorted, backdoor_sets(graph, x, y, hidden)):
        given_z = p(x, *group, y) / p(x, *group)[..., None]
        estimate = np.einsum(given_z, [x, *group, y], p(*group), group, [x, y])
        np.testing.assert_allclose(estimate, truth, atol=1e-12)
    for group in map(sorted, frontdoor_sets(graph, x, y, hidden)):
        inner = np.einsum(p(x, *group, y) / p(x, *group)[..., None], [x, *group, y], p(x), [x], [*group, y])
        through = p(x, *group) / p(x).reshape(2, *([1] * len(group)))
        estimate = np.einsum(through, [x, *group], inner, [*group, y], [x, y])
        np.testing.assert_allclose(estimate, truth, atol=1e-12)


def test_the_three_shapes():
    fork, chain = nx.DiGraph([("z", "x"), ("z", "y"), ("x", "y")]), nx.DiGraph([("x", "z"), ("z", "y")])
    collider = nx.DiGraph([("x", "z"), ("y", "z"), ("x", "y")])
    assert backdoor_sets(fork, "x", "y") == [frozenset("z")]
    assert backdoor_sets(fork, "x", "y", hidden="z") == []
    assert backdoor_sets(chain, "x", "y") == backdoor_sets(collider, "x", "y") == [frozenset()]
    assert str(is_backdoor(chain, "x", "y", "z")) == "fails: z is a descendant of x"
    assert not is_backdoor(collider, "x", "y", "z")
    assert backdoor_sets(nx.DiGraph([("y", "x")]), "x", "y") == []


def test_the_m_graph_needs_nothing_and_z_alone_harms():
    graph = nx.DiGraph([("u", "x"), ("u", "z"), ("v", "z"), ("v", "y"), ("x", "y")])
    assert backdoor_sets(graph, "x", "y") == [frozenset()]
    assert "x ← u → z ← v → y" in str(is_backdoor(graph, "x", "y", "z"))
    assert is_backdoor(graph, "x", "y", ["z", "u"])


def test_pearls_figure_3_4():
    edges = ["x1 x3", "x1 x4", "x2 x4", "x2 x5", "x3 xi", "x4 xi", "x4 xj", "x5 xj", "xi x6", "x6 xj"]
    graph = nx.DiGraph([tuple(edge.split()) for edge in edges])
    assert is_backdoor(graph, "xi", "xj", ["x3", "x4"]) and is_backdoor(graph, "xi", "xj", ["x4", "x5"])
    assert not is_backdoor(graph, "xi", "xj", "x4")
    found = backdoor_sets(graph, "xi", "xj")
    assert found == [frozenset({"x4", other}) for other in ("x1", "x3", "x2", "x5")]
    assert frontdoor_sets(graph, "xi", "xj", hidden=["x1", "x2", "x3", "x4", "x5"]) == [frozenset({"x6"})]


def test_surgery_cuts_only_what_points_at_the_nodes():
    graph = nx.DiGraph([("a", "b"), ("b", "c"), ("a", "c")])
    assert list(do(graph, ["b", "c"]).edges) == []
    assert set(do(graph, "c").edges) == {("a", "b")} and len(graph.edges) == 3
    assert set(do(graph, "b").edges) == {("b", "c"), ("a", "c")}


def test_large_graphs():
    """Sixty layers of two nodes have 2^60 separators, of which only some are listed."""
    graph = nx.DiGraph()
    for i in range(60):
        graph.add_edges_from([((i, k), (i + 1, k)) for k in range(2)])
    graph.add_edges_from([((60, 0), "y"), ((60, 1), "y"), ("root", (0, 0)), ("root", (0, 1)), ("root", "x")])
    found = backdoor_sets(graph, "x", "y", most=20)
    assert len(found) == 20 and frozenset({"root"}) in found
    assert all(is_backdoor(graph, "x", "y", group) for group in found)


def test_bad_input():
    graph = nx.DiGraph([("x", "y")])
    with pytest.raises(BadInput, match="the cause itself"):
        backdoor_sets(graph, "x", "x")
    with pytest.raises(BadInput, match="in both adjust and effect"):
        is_backdoor(graph, "x", "y", "y")
    with pytest.raises(BadInput, match="a node of the graph"):
        do(graph, "w")
