"""EM on networks with real nodes against enumeration and least squares, with missing and frozen values."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gaussian_networks import Joint, line_network, observed_in, random_network, rows_with_holes
from scipy.integrate import quad
from scipy.special import logsumexp

from energax import argmin, fit, log_prob, sample
from energax.energies import BayesianNetwork, LinearGaussian
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.parameters import m_step, trainable_leaves


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    return random_network(11, 2, 3)


@pytest.fixture(scope="module")
def holes(net) -> dict:
    return rows_with_holes(net)


def step_by_hand(net: BayesianNetwork, holes: dict, weights: np.ndarray) -> dict:
    """One EM step by enumeration: expected counts, and weighted least squares for real nodes."""
    joint, out = Joint(net), {}
    rows = [joint.given(observed_in(holes, i))[:3] for i in range(len(weights))]
    for node in net.nodes:
        if node.child in joint.finite:
            counts = np.zeros(node.table.shape)
            for (logs, _, _), w in zip(rows, weights, strict=True):
                for d, q in zip(joint.states, np.exp(logs - logsumexp(logs)), strict=True):
                    counts[tuple(d[n] for n in node.names)] += w * q
            out[node.child] = counts / counts.sum(-1, keepdims=True)
            continue
        at = [joint.real.index(n) for n in (*node.parents, node.child)]
        sums = np.zeros((*node.bias.shape, len(at) + 1, len(at) + 1))
        for (logs, means, covariances), w in zip(rows, weights, strict=True):
            for d, q, m, c in zip(
                joint.states, np.exp(logs - logsumexp(logs)), means, covariances, strict=True
            ):
                u = np.concatenate([[1.0], m[at]])
                second = np.outer(u, u)
                second[1:, 1:] += c[np.ix_(at, at)]
                sums[tuple(d[n] for n in node.finite_parents)] += w * q * second
        line = np.linalg.solve(sums[..., :-1, :-1], sums[..., :-1, -1:])[..., 0]
        variance = (sums[..., -1, -1] - (line * sums[..., :-1, -1]).sum(-1)) / sums[..., 0, 0]
        out[node.child] = (line[..., 1:], line[..., 0], variance)
    return out


def test_a_step_of_em_equals_enumeration_and_never_lowers_the_likelihood(net, holes):
    weights = np.random.default_rng(3).uniform(0.2, 2.0, 30)
    start = net.initialise(
        jax.random.key(3), {k: net.spaces[k].check(v, k) for k, v in holes.items()}, jnp.ones(30)
    )
    want = step_by_hand(start, holes, weights)
    once = fit(start, holes, EM(tol=0.0), key=0, epochs=1, weights=weights).energy
    for node in once.nodes:
        if isinstance(node, LinearGaussian):
            for found, wanted in zip((node.weights, node.bias, node.variance), want[node.child], strict=True):
                np.testing.assert_allclose(found, wanted, atol=1e-8)
        else:
            np.testing.assert_allclose(node.table, want[node.child], atol=1e-9)
    fitted = fit(start, holes, EM(tol=0.0), key=0, epochs=15, weights=weights)
    history = fitted.history["objective"]
    assert (np.diff(history) <= 1e-10).all()
    score = lambda energy: np.average(log_prob(energy, holes).value, weights=weights)
    np.testing.assert_allclose(history[0], -score(start), atol=1e-9)
    assert score(fitted.energy) > score(start) + 0.1


@jax.jit
def sums_of(net, data):
    return net.statistics(data, net.expectations(data, 1.0)[0])


@pytest.fixture(scope="module")
def complete() -> tuple:
    """A network, draws of it, and their sufficient statistics."""
    truth = line_network()
    data = dict(sample(truth, 400, key=0))
    with jax.enable_x64(True):
        return truth, data, sums_of(truth, data)


def test_complete_rows_give_least_squares_for_every_state(complete):
    truth, data, _ = complete
    learned = fit(truth, data, EM(), key=0, epochs=2).energy
    for z in (0, 1):
        x, y = data["x"][data["z"] == z], data["y"][data["z"] == z]
        slope, intercept = np.polyfit(x, y, 1)
        left = np.mean((y - intercept - slope * x) ** 2)
        np.testing.assert_allclose(learned["y"].weights[z, 0], slope, atol=1e-9)
        np.testing.assert_allclose(learned["y"].bias[z], intercept, atol=1e-9)
        np.testing.assert_allclose(learned["y"].variance[z], left, atol=1e-9)
        np.testing.assert_allclose(learned["x"].variance[z], x.var(), atol=1e-9)


@pytest.mark.parametrize("held", ["weights", "bias", "variance"])
def test_frozen_parameters_stay_and_the_others_are_optimal(complete, held):
    truth, data, sums = complete
    with jax.enable_x64(True):
        kept = m_step(truth, sums, trainable_leaves(truth, f"nodes.2.{held}"))["y"]
    for name in ("weights", "bias", "variance"):
        assert np.array_equal(getattr(kept, name), getattr(truth["y"], name)) == (name == held)
    x, y = data["x"][data["z"] == 1], data["y"][data["z"] == 1]
    w, b = np.asarray(kept.weights)[1, 0], np.asarray(kept.bias)[1]
    if held == "weights":
        assert b == pytest.approx(np.mean(y - w * x), abs=1e-9)
    elif held == "bias":
        assert w == pytest.approx(np.sum(x * (y - b)) / np.sum(x * x), abs=1e-9)
    if held != "variance":
        assert np.asarray(kept.variance)[1] == pytest.approx(np.mean((y - b - w * x) ** 2), abs=1e-9)


def test_sums_about_other_means_give_the_same_parameters(complete):
    net, _, sums = complete
    with jax.enable_x64(True):
        other = eqx.tree_at(lambda n: n.nodes[1].bias, net, jnp.array([3.0, 5.0]))
        moved = other.recenter(sums, net)
        assert not np.allclose(moved[1], sums[1]) and not np.allclose(moved[2], sums[2])
        one, two = net.maximise(sums), other.maximise(moved)
        for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-9)


def test_an_exact_fit_stops_at_the_floor_and_collinear_parents_are_solved():
    x = np.random.default_rng(0).normal(size=50)
    net = BayesianNetwork(
        {
            "x": LinearGaussian("x"),
            "same": LinearGaussian("same", "x", [0.0]),
            "y": LinearGaussian("y", ("x", "same"), floor=1e-4),
        }
    )
    learned = fit(net, {"x": x, "same": x, "y": 3 * x + 1}, EM(), key=0, epochs=3).energy["y"]
    assert np.asarray(learned.variance) == 1e-4
    assert np.asarray(learned.weights).sum() == pytest.approx(3, abs=1e-6)


def test_a_hidden_state_is_learned_by_em_with_restarts_and_by_descent():
    truth = line_network(np.float32)
    data = {k: v for k, v in sample(truth, 300, key=0).items() if k != "z"}
    data["y"] = np.where(np.random.default_rng(0).random(300) < 0.2, np.nan, data["y"])
    score = lambda energy: float(log_prob(energy, data).value.mean())
    by_em = fit(truth, data, EM(tol=1e-5), key=0, epochs=60, n_init=2).energy
    assert score(by_em) >= score(truth) - 2e-3
    worse = eqx.tree_at(lambda n: n.nodes[2].bias, truth, jnp.array([1.5, 0.5], jnp.float32))
    by_descent = fit(worse, data, Descent(NegativeLogLikelihood(), optax.adam(0.05)), key=0, steps=150).energy
    assert score(by_descent) == pytest.approx(score(by_em), abs=0.02) and score(worse) < score(by_em) - 0.2


def test_annealed_and_hard_expectations_by_quadrature_and_argmin():
    net, seen = line_network(), np.array([0.4, -1.0])
    with jax.enable_x64(True):
        _, warm = jax.jit(lambda rows: net.expectations(rows, 2.0))({"y": seen})
        hard, value = jax.jit(lambda rows: net.expectations(rows, 0))({"y": seen})
        power = jax.jit(lambda x, z, y: jnp.exp(-0.5 * net(z=z, x=x, y=y)))
        for i, y in enumerate(seen):
            total = sum(quad(power, -15, 15, args=(z, y), points=[0.0])[0] for z in (0, 1))
            assert float(warm[i]) == pytest.approx(2 * np.log(total), abs=1e-7)
    best = argmin(net, {"y": seen})
    np.testing.assert_allclose(value, -best.energy, atol=1e-12)
    np.testing.assert_array_equal(np.argmax(hard[0], 1), best["z"])
    hard_fit = fit(net, {"y": np.linspace(-3, 5, 40)}, EM(hard=True), key=0, epochs=6)
    assert (np.diff(hard_fit.history["objective"]) < 1e-9).all()
