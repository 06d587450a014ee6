"""Structure from data: compared with all trees and all graphs; scores compared with their integrals."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest

from energax.errors import BadInput, ConvergenceWarning
from energax.graph._chow_liu import chow_liu, mutual_information
from energax.graph._equivalence import cpdag, equivalent, skeleton, v_structures
from energax.graph._hill_climbing import hill_climb
from energax.graph._scores import SCORES, family_score, structure_score
from energax.missing import Masked

NAMES = tuple("abcd")


def all_dags(names=NAMES) -> list[nx.DiGraph]:
    graphs = []
    pairs = list(itertools.combinations(names, 2))
    for choice in itertools.product((None, 0, 1), repeat=len(pairs)):
        graph = nx.DiGraph()
        graph.add_nodes_from(names)
        graph.add_edges_from(
            p if c == 0 else p[::-1] for p, c in zip(pairs, choice, strict=True) if c is not None
        )
        if nx.is_directed_acyclic_graph(graph):
            graphs.append(graph)
    return graphs


DAGS = all_dags()


def random_rows(seed: int, cards, n: int = 400) -> np.ndarray:
    """Rows of a random network with every arrow from left to right."""
    rng = np.random.default_rng(seed)
    rows = np.zeros((n, len(cards)), int)
    for v, card in enumerate(cards):
        parents = np.flatnonzero(rng.random(v) < 0.6)
        table = rng.dirichlet(np.full(card, 0.7), size=tuple(cards[p] for p in parents))
        p = np.broadcast_to(table[tuple(rows[:, q] for q in parents)], (n, card))
        rows[:, v] = (np.cumsum(p, 1)[:, :-1] < rng.random((n, 1))).sum(1)
    return rows


def test_there_are_543_graphs_on_four_nodes():
    assert len(DAGS) == 543  # Robinson 1973


# Trees


@pytest.mark.parametrize("seed", range(4))
def test_no_spanning_tree_is_likelier(seed):
    cards = (2, 3, 2, 4, 2)
    rows = random_rows(seed, cards, 200)
    weights = np.random.default_rng(seed).uniform(0, 2, 200)
    names = tuple("abcde")
    score = lambda g: structure_score(rows, cards, g, names=names, weights=weights, score="likelihood")
    best = -np.inf
    for edges in itertools.combinations(itertools.combinations(names, 2), 4):
        tree = nx.Graph(edges)
        if len(tree) == 5 and nx.is_connected(tree):
            directed = nx.DiGraph(nx.bfs_tree(tree, "a"))
            best = max(best, score(directed))
    found = chow_liu(rows, cards, weights, root="c", names=names)
    assert nx.is_arborescence(found) and found.in_degree("c") == 0
    assert score(found) == pytest.approx(best, rel=1e-12)


def test_the_likelihood_of_a_tree_is_its_informations_less_its_entropies():
    cards = (2, 3, 2, 4)
    rows = random_rows(7, cards)
    tree = chow_liu(rows, cards, names=NAMES)
    table = mutual_information(rows, cards)
    informations = sum(value for *_, value in tree.edges(data="information"))
    expected = len(rows) * (informations - np.trace(table))
    assert structure_score(rows, cards, tree, names=NAMES, score="likelihood") == pytest.approx(expected)
    for v in range(4):
        p = np.bincount(rows[:, v]) / len(rows)
        assert table[v, v] == pytest.approx(-(p[p > 0] * np.log(p[p > 0])).sum())


def test_a_known_tree_comes_back():
    rng = np.random.default_rng(3)
    truth = nx.random_labeled_tree(30, seed=1)
    rows = np.zeros((4000, 30), int)
    rows[:, 0] = rng.integers(0, 2, 4000)
    for u, v in nx.bfs_edges(truth, 0):
        rows[:, v] = rows[:, u] ^ (rng.random(4000) < 0.15)
    found = chow_liu(rows, names=range(30))
    assert {frozenset(e) for e in found.edges} == {frozenset(e) for e in truth.edges}


def test_pairs_are_counted_where_both_are_observed():
    rows = random_rows(5, (2, 3, 2, 2), 300)
    holes = np.random.default_rng(0).random(rows.shape) < 0.2
    with_nan = np.where(holes, np.nan, rows)
    table = mutual_information(with_nan, (2, 3, 2, 2))
    for u, v in itertools.combinations(range(4), 2):
        both = ~holes[:, u] & ~holes[:, v]
        alone = mutual_information(rows[both][:, [u, v]])
        assert table[u, v] == pytest.approx(alone[0, 1], rel=1e-10)
    for other in (
        np.ma.array(rows, mask=holes),
        Masked(rows, ~holes),
        {f"x{i}": with_nan[:, i] for i in range(4)},
    ):
        assert np.array_equal(mutual_information(other, (2, 3, 2, 2)), table)
    assert np.array_equal(mutual_information(rows, (2, 3, 2, 2), observed=~holes), table)
    yes = rows[:, [0, 2]] == 1
    assert np.array_equal(mutual_information(yes), mutual_information(yes.astype(int)))
    assert nx.is_arborescence(chow_liu(with_nan))


def test_one_column_is_a_tree():
    assert list(chow_liu([[0], [1]]).nodes) == ["x0"]


# Scores


def test_scores_by_hand():
    rows = np.array([[0, 0], [0, 0], [0, 1], [1, 1], [1, 1]])
    score = lambda name, **more: family_score(rows, (2, 2), "x1", ["x0"], score=name, **more)
    likelihood = 2 * math.log(2 / 3) + math.log(1 / 3)
    assert score("likelihood") == pytest.approx(likelihood)
    assert score("bic") == pytest.approx(likelihood - math.log(5) / 2 * 2)
    assert score("aic") == pytest.approx(likelihood - 2)
    # ∫ θ²(1 − θ) dθ = 1/12 and ∫ θ² dθ = 1/3
    assert score("k2") == pytest.approx(math.log(1 / 12 * 1 / 3))
    # Dirichlet(2, 2): E θ²(1 − θ) = (2·3·2)/(4·5·6), E θ² = (2·3)/(4·5)
    assert score("bdeu", equivalent_sample_size=8.0) == pytest.approx(math.log(12 / 120 * 6 / 20))


@pytest.mark.parametrize("name", SCORES)
def test_a_weight_counts_a_row_as_often(name):
    rows = random_rows(1, (2, 3, 2, 2), 60)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    family = {"child": "x3", "parents": ["x0", "x1"], "score": name}
    once = family_score(rows, (2, 3, 2, 2), weights=weights, **family)
    assert once == pytest.approx(family_score(np.repeat(rows, weights, 0), (2, 3, 2, 2), **family))


@pytest.mark.parametrize("name", SCORES)
def test_families_with_more_combinations_than_rows_are_counted_all_the_same(name):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 9, (50, 24))  # 9^23 combinations of the parents: every row has its own
    parents = [f"x{i}" for i in range(23)]
    found = family_score(rows, [9] * 24, "x23", parents, score="likelihood")
    assert found == pytest.approx(0.0, abs=1e-9)
    few = family_score(rows, [9] * 24, "x23", parents[:5], score=name)
    groups: dict = {}
    for row in rows:
        groups.setdefault(tuple(row[:5]), np.zeros(9))[row[23]] += 1
    assert few == pytest.approx(SCORES[name](np.array(list(groups.values())), 9**5, 50.0, 1.0))


@pytest.mark.parametrize("name", ["likelihood", "bic", "aic", "bdeu"])
def test_equivalent_graphs_have_equal_scores(name):
    rows = random_rows(2, (2, 3, 2, 2), 200)
    classes: dict = {}
    for graph in DAGS[::3]:
        key = frozenset(cpdag(graph).edges)
        classes.setdefault(key, []).append(structure_score(rows, None, graph, names=NAMES, score=name))
    assert max(np.ptp(values) for values in classes.values()) < 1e-8
    assert np.ptp([values[0] for values in classes.values()]) > 1


def test_cpdags_are_the_classes():
    assert len({frozenset(cpdag(g).edges) for g in DAGS}) == 185  # Gillispie and Perlman 2001
    rng = np.random.default_rng(0)
    for i, j in rng.integers(0, len(DAGS), (400, 2)):
        g, h = DAGS[i], DAGS[j]
        same = {frozenset(e) for e in g.edges} == {frozenset(e) for e in h.edges} and {
            (c, frozenset((a, b))) for a, c, b in v_structures(g)
        } == {(c, frozenset((a, b))) for a, c, b in v_structures(h)}
        assert equivalent(g, h) == same == (set(cpdag(g).edges) == set(cpdag(h).edges))


def test_a_cpdag_has_the_arrows_on_which_its_class_agrees():
    classes: dict = {}
    for graph in DAGS:
        classes.setdefault(frozenset(cpdag(graph).edges), []).append(set(graph.edges))
    for edges, members in classes.items():
        assert edges == set().union(*members)  # open edges both ways, compelled ones one way


def test_d_separation_agrees_within_a_class():
    g, h = nx.DiGraph([("a", "b"), ("b", "c"), ("b", "d")]), nx.DiGraph([("b", "a"), ("b", "d"), ("c", "b")])
    assert equivalent(g, h) and set(skeleton(g).edges) == {("a", "b"), ("b", "c"), ("b", "d")}


# Climbing


@pytest.mark.parametrize("score", ["bic", "bdeu", "k2"])
def test_climbing_reaches_the_best_of_all_graphs_and_never_passes_it(score):
    cards = (2, 3, 2, 2)
    hits = plain = 0
    for seed in range(8):
        rows = random_rows(seed, cards, 150)
        total = lambda g: structure_score(rows, cards, g, names=NAMES, score=score)  # noqa: B023
        table = {}
        for v in NAMES:
            for size in range(4):
                for group in itertools.combinations([u for u in NAMES if u != v], size):
                    table[v, frozenset(group)] = family_score(rows, cards, v, group, names=NAMES, score=score)
        best = max(sum(table[v, frozenset(g.predecessors(v))] for v in NAMES) for g in DAGS)
        for tabu in (0, 100):
            found = hill_climb(rows, cards, names=NAMES, score=score, tabu=tabu)
            assert found.score == pytest.approx(total(found.graph), abs=1e-7)
            assert found.score <= best + 1e-7
            assert nx.is_directed_acyclic_graph(found.graph) and found.converged
            hits += tabu > 0 and found.score > best - 1e-6
            plain += tabu == 0 and found.score > best - 1e-6
    assert hits == 8 and plain >= 4


def test_the_history_leads_from_the_start_to_the_graph():
    rows = random_rows(4, (2, 2, 3, 2))
    start = nx.DiGraph([("d", "a"), ("c", "a")])
    found = hill_climb(rows, names=NAMES, start=start)
    graph = nx.DiGraph(start)
    graph.add_nodes_from(NAMES)
    for move in found.history:
        if move.kind != "add":
            graph.remove_edge(move.source, move.target)
        if move.kind != "remove":
            edge = (move.source, move.target)
            graph.add_edge(*(edge if move.kind == "add" else edge[::-1]))
        assert structure_score(rows, None, graph, names=NAMES) == pytest.approx(move.score)
    assert set(graph.edges) == set(found.graph.edges) and found.history[-1].score == found.score
    assert {move.kind for move in found.history} >= {"add", "remove"}


@pytest.mark.parametrize("seed", range(6))
def test_rules_are_kept_on_every_move(seed):
    rng = np.random.default_rng(seed)
    cards = (2, 3, 2, 2, 3, 2)
    names = tuple("abcdef")
    rows = random_rows(seed, cards, 300)
    edges = list(itertools.permutations(names, 2))
    order = {name: i for i, name in enumerate(rng.permutation(names))}
    picked = [edges[i] for i in rng.permutation(len(edges))]
    required = [e for e in picked if order[e[0]] < order[e[1]]][:2]
    forbidden = [e for e in picked if e not in required][:12]
    found = hill_climb(
        rows,
        cards,
        names=names,
        required=required,
        forbidden=forbidden,
        max_parents=2,
        restarts=3,
        seed=seed,
    )
    assert set(required) <= set(found.graph.edges)
    assert not set(forbidden) & set(found.graph.edges)
    assert max(dict(found.graph.in_degree).values()) <= 2
    assert nx.is_directed_acyclic_graph(found.graph)
    again = hill_climb(
        rows,
        cards,
        names=names,
        required=required,
        forbidden=forbidden,
        max_parents=2,
        restarts=3,
        seed=seed,
    )
    assert list(again.graph.edges) == list(found.graph.edges) and again.history == found.history


def test_the_order_of_columns_does_not_decide_the_class():
    rows = random_rows(11, (2, 3, 2, 2), 2000)
    one = hill_climb(rows, names=NAMES)
    other = hill_climb(rows[:, ::-1], names=NAMES[::-1])
    assert equivalent(one.graph, other.graph) and one.score == pytest.approx(other.score)


def test_reaching_max_moves_warns():
    with pytest.warns(ConvergenceWarning, match="raise max_moves"):
        found = hill_climb(random_rows(2, (2, 3, 2, 2)), max_moves=1)
    assert not found.converged and "1 moves" in found.status


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"required": [("a", "b"), ("b", "c"), ("c", "a")]}, "required: found the cycle a → b → c → a"),
        ({"required": [("a", "b")], "forbidden": [("a", "b")]}, "a → b, which is forbidden too"),
        ({"required": [("a", "bb")]}, "Did you mean b"),
        ({"forbidden": [("a", "zz")]}, "forbidden: found 'zz'"),
        ({"required": ["ab"]}, "pairs"),
        ({"required": [("a", "a")]}, "different columns"),
        ({"required": [("a", "c"), ("b", "c")], "max_parents": 1}, "2 parents of c"),
        ({"start": nx.DiGraph([("a", "b")]), "forbidden": [("a", "b")]}, "the forbidden a → b"),
        ({"start": nx.DiGraph([("a", "b")]), "required": [("b", "a")]}, "start: found the cycle"),
        ({"start": nx.DiGraph([("a", "q")])}, "start: found 'q'"),
        ({"score": "mdl"}, "one of likelihood, bic"),
        ({"equivalent_sample_size": 0.0}, "above 0"),
        ({"cards": (2, 2)}, "4 numbers of states"),
        ({"cards": {"a": 2}}, "no entry for 'b'"),
        ({"cards": (1, 1, 1, 1)}, "a whole number from 0 to 0"),
        ({"names": ("a", "a", "b", "c")}, "4 different names"),
        ({"weights": [1.0]}, "one weight per row"),
        ({"weights": -np.ones(400)}, "weights >= 0"),
        ({"weights": np.full(400, 1 / 400)}, "how often each row counts"),
        ({"max_parents": -1}, "max_parents"),
        ({"tabu": -1}, "tabu"),
    ],
)
def test_bad_arguments_raise(change, message):
    arguments = {"cards": None, "names": NAMES, **change}
    with pytest.raises(BadInput, match=message):
        hill_climb(random_rows(0, (2, 2, 2, 2)), **arguments)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([0, 1, 0], "rows and columns"),
        (np.zeros((0, 3)), "at least one row"),
        ([["yes", "no"]], "Number the states"),
        ([[0, 1], [0.5, 1]], "0.5 for x0 in row 1"),
        ([[0, -1]], "-1 for x1 in row 0"),
        ([[0, np.inf]], "infinite"),
        ({"a": [0, 1], "b": [0]}, "one length"),
        ([[0, np.nan], [1, 1]], "1 missing entries"),
    ],
)
def test_bad_data_raise(data, message):
    with pytest.raises(BadInput, match=message):
        hill_climb(data)


def test_an_empty_column_and_bad_graphs_raise():
    with pytest.raises(BadInput, match="no observed entry of x1"):
        chow_liu([[0, np.nan], [1, np.nan]])
    with pytest.raises(BadInput, match="root: found 'x9'"):
        chow_liu([[0, 1], [1, 1]], root="x9")
    with pytest.raises(BadInput, match="no node 'x1'"):
        structure_score([[0, 1], [1, 1]], None, nx.DiGraph([("x0", "x2")]))
    with pytest.raises(BadInput, match="the child itself"):
        family_score([[0, 1]], None, "x0", ["x0"])
    with pytest.raises(BadInput, match="bool of shape"):
        chow_liu([[0, 1]], observed=[[1, 1]])
