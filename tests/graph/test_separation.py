"""Separation: results agree with NetworkX, and the paths listed are active or blocked as claimed."""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from energax.errors import BadInput
from energax.graph import d_separated, markov_blanket, moralise, separated


@st.composite
def dags(draw, most: int = 8) -> nx.DiGraph:
    n = draw(st.integers(2, most))
    order = draw(st.permutations(range(n)))
    pairs = list(itertools.combinations(order, 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=2 * n, unique=True))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(n))
    graph.add_edges_from(edges)
    return graph


@st.composite
def queries(draw, directed: bool = True):
    graph = draw(dags())
    roles = [draw(st.sampled_from("abgg--")) for _ in graph]
    a, b, z = ({v for v in graph if roles[v] == role} for role in "abg")
    free = [v for v in graph if v not in a | b | z]
    if not a:
        a = {free.pop() if free else next(iter(z or b))}
    b, z = b - a, z - a
    if not b:
        rest = [v for v in graph if v not in a]
        if not rest:
            a = {0}
            rest = [v for v in graph if v != 0]
        b = {rest[0]}
    return (graph if directed else graph.to_undirected()), a, b, z - a - b


def is_active(graph: nx.DiGraph, nodes, observed: set) -> bool:
    """The definition: no inner node blocks."""
    for before, node, after in zip(nodes, nodes[1:], nodes[2:], strict=False):
        if graph.has_edge(before, node) and graph.has_edge(after, node):
            if not ({node} | nx.descendants(graph, node)) & observed:
                return False
        elif node in observed:
            return False
    return True


@settings(max_examples=250)
@given(queries())
def test_d_separation_is_that_of_networkx_and_its_reasons_hold(query):
    graph, a, b, z = query
    found = d_separated(graph, a, b, z)
    assert bool(found) == nx.is_d_separator(graph, a, b, z)
    assert not (found.active and found.blocked)
    skeleton = graph.to_undirected()
    for path in found.active + found.blocked:
        assert path.nodes[0] in a and path.nodes[-1] in b and len(set(path.nodes)) == len(path.nodes)
        assert nx.is_path(skeleton, path.nodes)
        assert is_active(graph, path.nodes, z) == (not found)
        for (u, v), arrow in zip(itertools.pairwise(path.nodes), path.arrows, strict=True):
            assert graph.has_edge(u, v) if arrow == "→" else graph.has_edge(v, u)
    if not found:
        every = (path for s in a for t in b for path in nx.all_simple_paths(skeleton, s, t))
        shortest = min(len(path) for path in every if is_active(graph, path, z))
        assert len(found.active[0].nodes) == shortest
    else:
        assert bool(found.blocked) == any(nx.has_path(skeleton, s, t) for s in a for t in b)
    assert str(found)


@settings(max_examples=100)
@given(queries(directed=False))
def test_undirected_separation_is_removal(query):
    graph, a, b, z = query
    rest = graph.subgraph(set(graph) - z)
    found = separated(graph, a, b, z)
    assert bool(found) == (not any(nx.has_path(rest, s, t) for s in a for t in b))
    for path in found.active:
        assert nx.is_path(rest, path.nodes)
    for path in found.blocked:
        assert nx.is_path(graph, path.nodes) and set(path.nodes) & z


@given(dags())
def test_the_blanket_separates_and_none_smaller_does(graph):
    for node in graph:
        blanket = markov_blanket(graph, node)
        rest = set(graph) - blanket - {node}
        assert not rest or d_separated(graph, node, rest, blanket)
        for left in blanket:
            assert not d_separated(graph, node, left, blanket - {left})
    moral = moralise(graph)
    assert nx.utils.graphs_equal(moral, nx.moral_graph(graph))
    assert all(markov_blanket(graph, node) == set(moral[node]) for node in graph)


def test_a_separation_is_an_independence():
    """In random tables, d-separated variables are independent, and others are not."""
    rng = np.random.default_rng(0)
    graph = nx.DiGraph([(0, 2), (1, 2), (2, 3), (0, 4), (4, 3)])
    joint = np.ones((2,) * 5)
    for node in graph:
        family = [*graph.predecessors(node), node]
        table = rng.dirichlet((1.0, 1.0), size=(2,) * (len(family) - 1))
        joint = joint * np.einsum(table, family, np.ones((2,) * 5), range(5), range(5))
    for a, b in itertools.combinations(range(5), 2):
        for size in range(4):
            for z in itertools.combinations(set(range(5)) - {a, b}, size):
                p = np.einsum(joint, range(5), [*z, a, b])
                pa, pb, pz = (
                    p.sum(-1, keepdims=True),
                    p.sum(-2, keepdims=True),
                    p.sum((-1, -2), keepdims=True),
                )
                gap = np.abs(p * pz - pa * pb).max()
                assert (gap < 1e-12) == bool(d_separated(graph, a, b, z))


def test_explanations_read_well():
    graph = nx.DiGraph([("a", "c"), ("b", "c"), ("c", "d"), ("b", "e")])
    assert [str(p) for p in d_separated(graph, "a", "b", "c").active] == ["a → c ← b (c is observed)"]
    assert str(d_separated(graph, "a", "e", "d")).endswith(
        "a → c ← b → e (d, a descendant of c, is observed)"
    )
    both = d_separated(graph, "a", "e", ["b", "c"])
    assert str(both).endswith("a → c ← b → e (blocked at b, which is observed)")
    graph.add_node("f")
    assert str(d_separated(graph, "a", "f")).endswith("no path connects them")


def test_large_graphs_are_fast():
    """A lattice has more shortest paths than can be listed; five are."""
    lattice = nx.DiGraph()
    for i, j in itertools.product(range(40), repeat=2):
        lattice.add_edges_from([((i, j), (i + 1, j)), ((i, j), (i, j + 1))])
    found = d_separated(lattice, (0, 0), (39, 40))
    assert len(found.active) == 5 and {len(p.nodes) for p in found.active} == {80}


def test_long_and_many_paths_do_not_change_the_verdict():
    chain = nx.path_graph(6000, create_using=nx.DiGraph)
    assert not d_separated(chain, 0, 5999) and d_separated(chain, 0, 5999, 3000)
    for seed in range(3):
        graph = nx.gnp_random_graph(150, 0.03, seed=seed, directed=True)
        graph = nx.DiGraph((u, v) for u, v in graph.edges if u < v)
        nodes = sorted(graph)
        a, b, z = {nodes[0]}, {nodes[-1]}, set(nodes[10:-10:3])
        assert bool(d_separated(graph, a, b)) == nx.is_d_separator(graph, a, b, set())
        assert bool(d_separated(graph, a, b, z)) == nx.is_d_separator(graph, a, b, z)


def test_bad_input():
    graph = nx.DiGraph([("smoke", "lung"), ("lung", "xray")])
    with pytest.raises(BadInput, match="Did you mean smoke"):
        d_separated(graph, "smok", "lung")
    with pytest.raises(BadInput, match="in both a and given"):
        d_separated(graph, "smoke", "lung", "smoke")
    with pytest.raises(BadInput, match="undirected"):
        d_separated(graph.to_undirected(), "smoke", "lung")
    with pytest.raises(BadInput, match="directed graph"):
        separated(graph, "smoke", "lung")
    graph.add_edge("xray", "smoke")
    with pytest.raises(BadInput, match="cycle smoke → lung → xray → smoke"):
        d_separated(graph, "smoke", "lung")
