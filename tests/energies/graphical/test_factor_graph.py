"""Random networks against enumeration: every query, learning, interventions, files."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import energax
from energax import Energy, argmin, fit, log_partition, log_prob, plan, posterior, sample
from energax.data import read_bif, read_uai, write_bif, write_uai
from energax.energies import RBM, BayesianNetwork, Factor, FactorGraph, MarkovField
from energax.errors import BadInput, Intractable
from energax.learn import EM, Descent, NegativeLogLikelihood, PseudoLikelihood
from energax.spaces import Categorical

NAMES = "abcdef"


def random_network(seed: int, zeros: bool = False) -> BayesianNetwork:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    cards = rng.integers(2, 4, n)
    tables = {}
    for i in range(n):
        parents = [j for j in range(i) if rng.random() < 0.5][:3]
        table = rng.random([cards[j] for j in (*parents, i)]) + 0.01
        if zeros and len(parents):
            table[rng.random(table.shape) < 0.2] = 0
            table[..., 0] += 0.05
        tables[NAMES[i]] = (tuple(NAMES[j] for j in parents), table / table.sum(-1, keepdims=True))
    return BayesianNetwork(tables)


def random_field(seed: int) -> MarkovField:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    cards = rng.integers(2, 4, n)
    over = [c for c in itertools.combinations(range(n), 2) if rng.random() < 0.7] + [(i,) for i in range(n)]
    return MarkovField({tuple(NAMES[i] for i in s): rng.random(cards[list(s)]) + 0.1 for s in over})


def joint_table(network) -> np.ndarray:
    """Π of all tables, by brute force over NumPy axes."""
    model = network.to_tables()
    out = np.ones(model.cards)
    for scope, values in zip(model.scopes, model.tables, strict=True):
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        shape = [model.cards[v] if v in scope else 1 for v in range(len(model.cards))]
        out = out * np.transpose(values, order).reshape(shape)
    return out


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["bayes", "zeros", "field"]), st.integers(0, 3))
def test_every_query_equals_enumeration(seed, kind, evidence):
    network = random_field(seed) if kind == "field" else random_network(seed, kind == "zeros")
    names, table = list(network.spaces), joint_table(network)
    rng = np.random.default_rng(seed)
    at = np.unravel_index(rng.choice(table.size, p=table.ravel() / table.sum()), table.shape)
    seen = {n: int(i) for n, i in list(zip(names, at, strict=True))[: min(evidence, len(names) - 1)]}
    cut = table[tuple(seen.get(n, slice(None)) for n in names)]
    hidden = [n for n in names if n not in seen]
    log_z = log_partition(network)
    assert log_z.kind == "exact"
    np.testing.assert_allclose(log_z.value, np.log(table.sum()), atol=1e-10)
    found = posterior(network, seen)
    for axis, name in enumerate(hidden):
        others = tuple(i for i in range(len(hidden)) if i != axis)
        np.testing.assert_allclose(found.marginals[name], cut.sum(others) / cut.sum(), atol=1e-10)
    np.testing.assert_allclose(found.joint(*hidden), cut / cut.sum(), atol=1e-10)
    if seen:
        np.testing.assert_allclose(found.log_evidence.value, np.log(cut.sum() / table.sum()), atol=1e-10)
        np.testing.assert_allclose(log_prob(network, seen).value, np.log(cut.sum() / table.sum()), atol=1e-10)
    best = argmin(network, seen)
    np.testing.assert_allclose(np.exp(-best.energy), cut.max(), rtol=1e-9)
    assert cut[tuple(int(best[n]) for n in hidden)] == pytest.approx(cut.max())


def test_draws_follow_the_posterior():
    """Chi-square over all joint states, error rate 1e-4, seed fixed."""
    from scipy.stats import chisquare

    network = random_network(3)
    names, table = list(network.spaces), joint_table(random_network(3))
    for seen in ({}, {names[-1]: 1}):
        cut = table[tuple(seen.get(n, slice(None)) for n in names)]
        hidden = [n for n in names if n not in seen]
        draws = sample(network, 20_000, seen, key=0)
        flat = np.ravel_multi_index([np.asarray(draws[n]).ravel() for n in hidden], cut.shape)
        counts = np.bincount(flat, minlength=cut.size)
        assert chisquare(counts, 20_000 * cut.ravel() / cut.sum()).pvalue > 1e-4


ASIA_LIKE = BayesianNetwork(
    {
        "smoke": [0.5, 0.5],
        "lung": ("smoke", [[0.99, 0.01], [0.9, 0.1]]),
        "tub": [0.99, 0.01],
        "either": (("lung", "tub"), [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]),
        "xray": ("either", [[0.95, 0.05], [0.02, 0.98]]),
    },
    states=dict.fromkeys(("smoke", "lung", "tub", "either", "xray"), ("no", "yes")),
)


def test_states_by_name_rows_missing_entries_and_soft_evidence():
    one = posterior(ASIA_LIKE, {"xray": "yes"})
    assert one.marginals["lung"]["yes"] == one.marginals["lung"][1]
    assert repr(one.log_evidence).startswith("-")
    rows = posterior(ASIA_LIKE, {"xray": ["yes", "no", None], "smoke": ["yes", None, "no"]})
    assert rows.marginals["lung"].shape == (3, 2)
    again = posterior(ASIA_LIKE, {"xray": "yes", "smoke": "yes"})
    np.testing.assert_allclose(rows.marginals["lung"][0], again.marginals["lung"], atol=1e-12)
    np.testing.assert_allclose(
        rows.marginals["lung"][1], posterior(ASIA_LIKE, {"xray": "no"}).marginals["lung"], atol=1e-12
    )
    # p(seen | xray) = (0.2, 0.8): Bayes by hand
    soft = ASIA_LIKE.soft_evidence(xray={"no": 0.2, "yes": 0.8})
    p = posterior(ASIA_LIKE).marginals["xray"]
    assert log_partition(soft).value == pytest.approx(np.log(0.2 * p["no"] + 0.8 * p["yes"]), abs=1e-12)


def test_one_structure_works_in_both_precisions():
    """Caches of a network or its tree are separate for each precision."""
    at, both = {"d": [0, 1, 2]}, {}
    for dtype in (np.float64, np.float32):
        rng = np.random.default_rng(0)
        row = lambda *shape: rng.dirichlet(np.ones(shape[-1]), shape[:-1]).astype(dtype)  # noqa: B023
        tables = {"a": row(2), "b": ("a", row(2, 3)), "c": ("b", row(3, 2)), "d": ("c", row(2, 3))}
        network = BayesianNetwork(tables)
        found = posterior(network, at)
        both[dtype] = [found.marginals["b"], found.joint("a", "c")]
        assert found.marginals["b"].dtype == dtype
        with jax.enable_x64(True):
            wide = posterior(network, at)
            assert wide.marginals["b"].dtype == np.float64
            np.testing.assert_allclose(wide.marginals["b"], found.marginals["b"], atol=1e-6)
        assert posterior(network, at).marginals["b"].dtype == dtype
    for one, other in zip(*both.values(), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_evidence_as_vectors_equals_evidence_removed_from_the_tables(monkeypatch):
    at = {"xray": ["yes", "no", None], "smoke": ["yes", "no", "no"]}
    vectors = [posterior(ASIA_LIKE, g) for g in (at, {"tub": "no", "lung": "yes"})]
    monkeypatch.setattr("energax.algorithms.factors.solver._MAX_SHARED_ENTRIES", 0)
    tables = [posterior(ASIA_LIKE, g) for g in (at, {"tub": "no", "lung": "yes"})]
    for one, other in zip(vectors, tables, strict=True):
        assert list(one.marginals) == list(other.marginals) == list(ASIA_LIKE.spaces)
        for name, p in one.marginals.items():
            np.testing.assert_allclose(p, other.marginals[name], atol=1e-12)
            assert p["yes"].shape == p.shape[:-1] == other.marginals[name]["yes"].shape


def test_impossible_evidence_raises_with_the_conflicting_values():
    given_ = {"lung": "yes", "either": "no", "xray": "yes", "smoke": "no"}
    with pytest.raises(BadInput, match=r"probability zero.*lung = yes and either = no") as error:
        posterior(ASIA_LIKE, given_)
    assert "xray" not in str(error.value) and "smoke" not in str(error.value)
    assert log_prob(ASIA_LIKE, given_).value == -np.inf
    with pytest.raises(BadInput, match="row 1"):
        argmin(ASIA_LIKE, {"lung": ["yes", "yes"], "either": ["yes", "no"]})


def test_bad_input_raises():
    with pytest.raises(BadInput, match=r"sum 0\.9"):
        BayesianNetwork({"a": [0.4, 0.5]})
    with pytest.raises(BadInput, match="cycle"):
        BayesianNetwork({"a": ("b", np.full((2, 2), 0.5)), "b": ("a", np.full((2, 2), 0.5))})
    with pytest.raises(BadInput, match="parents of a"):
        BayesianNetwork({"a": ("ghost", np.full((2, 2), 0.5))})
    with pytest.raises(BadInput, match="one of 'no', 'yes'"):
        posterior(ASIA_LIKE, {"xray": "maybe"})
    with pytest.raises(BadInput, match="unknown"):
        posterior(ASIA_LIKE, {"unknown": 1})
    with pytest.raises(BadInput, match="rows of different lengths"):
        BayesianNetwork({"a": [[0.5, 0.5], [1.0]]})
    with pytest.raises(BadInput, match="one of \\('0', '1'\\)"):
        _ = posterior(BayesianNetwork({"a": [0.4, 0.6]})).marginals["a"]["yes"]
    with pytest.raises(BadInput, match="negative"):
        Factor(("a",), [1.0, -1.0])
    with pytest.raises(BadInput, match="one space per variable"):
        FactorGraph([Factor("a", [1.0, 1.0]), Factor("a", [1.0, 1.0, 1.0])])
    with pytest.raises(BadInput, match="a name of its own"):
        FactorGraph([RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))])


def test_a_width_that_does_not_fit_raises_before_any_work():
    grid = nx.grid_2d_graph(40, 40)
    field = MarkovField.from_graph(nx.relabel_nodes(grid, {v: f"{v[0]}_{v[1]}" for v in grid}))
    with pytest.raises(Intractable, match=r"(?i)loopy"):
        log_partition(field)


def test_the_plan_reports_width_memory_and_operations():
    text = str(plan(posterior, ASIA_LIKE, {"xray": "yes"}))
    assert "junction tree of width" in text and "operations" in text and "memory" in text


class Ising(Energy):
    strength: jax.Array

    @property
    def spaces(self):
        return {"a": Categorical(2), "b": Categorical(2)}

    def __call__(self, *, a, b):
        return -self.strength * (2 * a - 1) * (2 * b - 1)


def test_a_users_energy_is_a_factor_and_is_learned_through_it():
    graph = FactorGraph([Ising(jnp.array(0.3)), Factor(("b", "c"), jnp.array([[2.0, 1.0], [1.0, 3.0]]))])
    exact = np.einsum(
        "ab,bc->abc", np.exp(0.3 * np.array([[1, -1], [-1, 1]])), np.array([[2.0, 1.0], [1.0, 3.0]])
    )
    assert float(log_partition(graph).value) == pytest.approx(np.log(exact.sum()), abs=1e-5)
    rng = np.random.default_rng(0)
    flat = rng.choice(8, 4000, p=np.array([3, 1, 1, 2, 1, 1, 2, 3]) / 14)
    a, b, c = np.unravel_index(flat, (2, 2, 2))
    learned = fit(
        graph, {"a": a, "b": b, "c": c}, Descent(NegativeLogLikelihood(), optax.adam(0.05)), key=0, steps=400
    ).energy
    # An exponential family at its maximum: expected and observed agreement are equal.
    agree = np.mean(a == b)
    joint = posterior(learned).joint("a", "b")
    assert joint[0, 0] + joint[1, 1] == pytest.approx(agree, abs=2e-3)


# -- learning ----------------------------------------------------------------------------------------


def rows_from(network, n, seed=0):
    return {k: np.asarray(v).ravel() for k, v in sample(network, n, key=seed).items()}


def test_complete_data_are_counted_with_weights_and_a_prior():
    network = random_network(5)
    data = rows_from(network, 300)
    weights = np.random.default_rng(0).random(300)
    learned = fit(network, data, EM(), key=0, epochs=3, weights=weights).energy
    node = next(n for n in learned.nodes if n.parents)
    counts = np.zeros(node.table.shape)
    np.add.at(counts, tuple(data[n] for n in node.names), weights)
    total = counts.sum(-1, keepdims=True)
    before = np.asarray(network[node.child].table)
    expected = np.where(total > 0, counts / np.where(total > 0, total, 1), before)
    np.testing.assert_allclose(node.table, expected, atol=1e-10)
    smoothed = BayesianNetwork(network.nodes, prior=1.0)
    learned = fit(smoothed, data, EM(), key=0, epochs=2).energy
    counts = np.zeros(node.table.shape)
    np.add.at(counts, tuple(data[n] for n in node.names), 1.0)
    counts += 1
    np.testing.assert_allclose(learned[node.child].table, counts / counts.sum(-1, keepdims=True), atol=1e-10)


def test_missing_entries_are_learned_by_em_as_by_brute_force():
    network = random_network(7, zeros=True)
    names = list(network.spaces)
    data = rows_from(network, 40, seed=1)
    rng = np.random.default_rng(1)
    holes = {k: np.where(rng.random(40) < 0.3, np.nan, v.astype(float)) for k, v in data.items()}
    start = network.initialise(jax.random.key(3), None, None)
    table = joint_table(start)
    # One step by enumeration: expected counts of every family.
    expected = {n.child: np.zeros(n.table.shape) for n in start.nodes}
    for i in range(40):
        mask = np.ones(table.shape, bool)
        for axis, name in enumerate(names):
            if not np.isnan(holes[name][i]):
                keep = np.arange(table.shape[axis]) == int(holes[name][i])
                mask &= keep.reshape([-1 if a == axis else 1 for a in range(table.ndim)])
        p = np.where(mask, table, 0) / table[mask].sum()
        for node in start.nodes:
            axes = [names.index(n) for n in node.names]
            rest = tuple(a for a in range(table.ndim) if a not in axes)
            marginal = p.sum(rest)
            order = np.argsort(np.argsort(axes))
            expected[node.child] += np.transpose(marginal, order)
    once = fit(start, holes, EM(tol=0.0), key=0, epochs=1).energy
    for node in once.nodes:
        counts = expected[node.child]
        total = counts.sum(-1, keepdims=True)
        old = np.asarray(start[node.child].table)
        want = np.where(total > 1e-12, counts / np.where(total > 0, total, 1), old)
        np.testing.assert_allclose(node.table, want, atol=1e-9)
    history = fit(start, holes, EM(tol=0.0), key=0, epochs=15).history["objective"]
    assert (np.diff(history) <= 1e-10).all()


def test_a_hidden_variable_restarts_and_frozen_tables():
    truth = BayesianNetwork(
        {"z": [0.3, 0.7], **{n: ("z", [[0.9, 0.1], [0.2, 0.8]]) for n in ("a", "b", "c")}}
    )
    data = {k: v for k, v in rows_from(truth, 2000).items() if k != "z"}
    found = fit(truth, data, EM(tol=1e-7), key=0, epochs=300, n_init=4)
    assert len(found.restarts) == 4
    reached = log_prob(found.energy, data).value.mean()
    assert reached >= log_prob(truth, data).value.mean() - 1e-3
    held = fit(truth, data, EM(), key=0, epochs=3, freeze=["nodes.0.table"]).energy
    np.testing.assert_array_equal(held["z"].table, truth["z"].table)
    assert not np.array_equal(held["a"].table, truth["a"].table)


def test_markov_fields_by_exact_gradient_and_by_pseudo_likelihood():
    """At the maximum of an exponential family the model's marginals are those of the data."""
    truth = random_field(2)
    data = rows_from(truth, 4000)
    with jax.enable_x64(True):
        start = MarkovField.from_graph(truth.graph(), {n: s.n_values for n, s in truth.spaces.items()})
        exact = fit(start, data, Descent(NegativeLogLikelihood(), optax.adam(0.1)), key=0, steps=300).energy
        pseudo = fit(start, data, Descent(PseudoLikelihood(), optax.adam(0.1)), key=0, steps=300).energy
    (a, b), *_ = [f.names for f in truth.factors if len(f.names) == 2]
    shape = (truth.spaces[a].n_values, truth.spaces[b].n_values)
    counts = np.bincount(np.ravel_multi_index([data[a], data[b]], shape), minlength=np.prod(shape)) / 4000
    np.testing.assert_allclose(posterior(exact).joint(a, b).ravel(), counts, atol=2e-3)
    np.testing.assert_allclose(
        posterior(pseudo).joint(a, b).ravel(), posterior(truth).joint(a, b).ravel(), atol=0.05
    )


# -- interventions --------------------------------------------------------------------------------------


def test_do_removes_the_association_by_a_common_cause():
    confounded = BayesianNetwork(
        {
            "u": [0.5, 0.5],
            "x": ("u", [[0.9, 0.1], [0.2, 0.8]]),
            "y": ("u", [[0.8, 0.2], [0.3, 0.7]]),
        }
    )
    low, high = (posterior(confounded, {"x": v}).marginals["y"][1] for v in (0, 1))
    done = [posterior(confounded.do(x=v)).marginals["y"][1] for v in (0, 1)]
    assert high - low > 0.2 and done[0] == pytest.approx(done[1], abs=1e-12)
    by_do = posterior(confounded.do(x=1)).marginals["y"]
    np.testing.assert_allclose(confounded.effect("y", x=1), by_do, atol=1e-12)


def test_front_door_adjustment_equals_do():
    net = BayesianNetwork(
        {
            "u": [0.4, 0.6],
            "x": ("u", [[0.9, 0.1], [0.2, 0.8]]),
            "m": ("x", [[0.7, 0.3], [0.1, 0.9]]),
            "y": (("m", "u"), [[[0.8, 0.2], [0.5, 0.5]], [[0.6, 0.4], [0.1, 0.9]]]),
        }
    )
    done = posterior(net.do(x=1)).marginals["y"]
    for by in ("back-door", "front-door", ["m"], ["u"]):
        np.testing.assert_allclose(net.effect("y", x=1, by=by), done, atol=1e-12)
    with pytest.raises(BadInput, match="back-door or a front-door"):
        net.effect("y", x=1, by=["m", "u"])


# -- files and saving ----------------------------------------------------------------------------------


def test_networks_are_written_and_read_back_and_saved(tmp_path):
    write_bif(ASIA_LIKE, tmp_path / "net.bif.gz")
    again = read_bif(tmp_path / "net.bif.gz")
    assert again.spaces == ASIA_LIKE.spaces
    np.testing.assert_allclose(joint_table(again), joint_table(ASIA_LIKE), atol=1e-15)
    field = random_field(4)
    write_uai(field, tmp_path / "field.uai")
    assert log_partition(read_uai(tmp_path / "field.uai")).value == pytest.approx(
        float(log_partition(field).value), abs=1e-9
    )
    energax.save(ASIA_LIKE, tmp_path / "net.safetensors")
    loaded = energax.load(tmp_path / "net.safetensors")
    assert loaded["lung"].table.dtype == np.float64
    np.testing.assert_array_equal(loaded["lung"].table, ASIA_LIKE["lung"].table)


def test_asia_by_its_public_names(shared_data):
    net = read_bif(shared_data / "bayesnets-bif" / "asia.bif.gz")
    found = posterior(net, {"xray": "yes", "dysp": "yes"})
    assert found.marginals["lung"]["yes"] == pytest.approx(0.621253, abs=1e-6)
    assert found.marginals["bronc"]["yes"] == pytest.approx(0.681869, abs=1e-6)
    assert found.log_evidence.value == pytest.approx(-2.64973265, abs=1e-8)
