"""Networks with real nodes against their joint distribution: posteriors, modes, draws, do, errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gaussian_networks import Joint, line_network, observed_in, random_network, rows_with_holes
from quick import evaluate
from scipy.special import logsumexp
from scipy.stats import chisquare, kstest, norm

import energax
from energax import argmin, fit, log_partition, log_prob, plan, posterior, sample
from energax.energies import BayesianNetwork, LinearGaussian
from energax.errors import BadInput, Intractable, Unsuitable
from energax.learn import EM


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    return random_network(11, 2, 3)


@pytest.fixture(scope="module")
def holes(net) -> dict:
    return rows_with_holes(net)


def some_evidence(net: BayesianNetwork, seed: int, share: float = 0.5) -> dict:
    rng = np.random.default_rng(seed)
    drawn = dict(sample(net, 1, key=seed))
    names = [n for n in drawn if rng.random() < share][: len(drawn) - 1]
    return {n: drawn[n][0] for n in names}


@pytest.mark.parametrize(
    ("seed", "n_finite", "n_real", "share"),
    [(0, 0, 6, 0.5), (2, 2, 4, 0.5), (3, 3, 3, 0.5), (4, 2, 3, 0.0), (6, 1, 1, 0.6)],
)
def test_every_query_equals_the_joint(seed, n_finite, n_real, share):
    net = random_network(seed, n_finite, n_real)
    joint, seen = Joint(net), some_evidence(net, seed, share)
    want = joint.posterior(seen)
    found = posterior(net, seen)
    assert found.kind == "exact" and found.method == "conditional Gaussian"
    for axis, name in enumerate(joint.finite):
        others = tuple(a for a in range(len(joint.cards)) if a != axis)
        np.testing.assert_allclose(found.marginals[name], want["joint"].sum(others), atol=1e-10)
    for name in joint.real:
        np.testing.assert_allclose(found.mean[name], want["mean"][name], atol=1e-9)
        np.testing.assert_allclose(found.variance[name], want["variance"][name], atol=1e-9)
        assert found.std[name] == pytest.approx(np.sqrt(found.variance[name]))
    hidden = [n for n in joint.finite if n not in seen]
    if hidden:
        axes = tuple(a for a, n in enumerate(joint.finite) if n in seen)
        np.testing.assert_allclose(found.joint(*hidden), want["joint"].sum(axes), atol=1e-10)
    if seen:
        np.testing.assert_allclose(found.log_evidence.value, want["log evidence"], atol=1e-9)
        np.testing.assert_allclose(log_prob(net, seen).value, want["log evidence"], atol=1e-9)
    best = argmin(net, seen)
    assert set(best) == set(net.spaces) - set(seen)
    np.testing.assert_allclose(best.energy, want["energy"], atol=1e-9)
    for name, value in best.items():
        np.testing.assert_allclose(value, want["mode"][name], atol=1e-8)
    whole = {**{k: float(v) for k, v in want["mode"].items()}, **{k: float(v) for k, v in seen.items()}}
    whole = {k: int(v) if k in joint.finite else v for k, v in whole.items()}
    np.testing.assert_allclose(net(**whole), want["energy"], atol=1e-9)
    assert log_partition(net).value == 0 and log_partition(net).kind == "exact"


def test_rows_with_missing_entries_use_their_observed_entries(net, holes):
    joint = Joint(net)
    found, scores, best = posterior(net, holes), log_prob(net, holes), argmin(net, holes)
    for row in range(30):
        want = joint.posterior(observed_in(holes, row))
        assert scores.value[row] == pytest.approx(want["log evidence"], abs=1e-9)
        assert best.energy[row] == pytest.approx(want["energy"], abs=1e-9)
        for name in joint.real:
            assert found.mean[name][row] == pytest.approx(want["mean"][name], abs=1e-9)
            assert found.variance[name][row] == pytest.approx(want["variance"][name], abs=1e-9)
        for axis, name in enumerate(joint.finite):
            np.testing.assert_allclose(found.marginals[name][row], want["joint"].sum(1 - axis), atol=1e-10)
        for name, value in observed_in(holes, row).items():
            assert best[name][row] == value


def mixture_cdf(q, means, scales):
    return lambda x: sum(p * norm.cdf(x, m, s) for p, m, s in zip(q, means, scales, strict=True))


def test_draws_follow_the_posterior(net):
    """Finite variables by chi-square, real ones by Kolmogorov-Smirnov; error rate 1e-4 each, seed fixed."""
    joint = Joint(net)
    for seen in ({}, {joint.real[-1]: 0.7, joint.finite[0]: 1}):
        draws = sample(net, 4000, seen, key=1)
        logs, means, covariances, _ = joint.given(seen)
        q = np.exp(logs - logsumexp(logs))
        states = [draws[n] if n in draws else np.full(4000, seen[n]) for n in joint.finite]
        counts = np.bincount(np.ravel_multi_index(states, joint.cards), minlength=len(q))
        assert counts[q == 0].sum() == 0
        assert chisquare(counts[q > 0], 4000 * q[q > 0]).pvalue > 1e-4
        for i, name in enumerate(joint.real):
            if name in seen:
                continue
            scale = np.sqrt(covariances[:, i, i])
            assert kstest(draws[name], mixture_cdf(q, means[:, i], scale)).pvalue > 1e-4
        # The sum of the real variables depends on their covariances too.
        total = sum(draws[n] if n in draws else np.full(4000, seen[n]) for n in joint.real)
        scale = np.sqrt(covariances.sum((1, 2)))
        assert kstest(total, mixture_cdf(q, means.sum(1), scale)).pvalue > 1e-4
    one = evaluate(lambda: net.draw(jax.random.key(0), **{joint.real[0]: jnp.asarray(0.3)}))
    assert set(one) == set(net.spaces) - {joint.real[0]}


# -- interventions --------------------------------------------------------------------------------------


def test_do_on_a_real_node_changes_its_effects_and_not_its_causes():
    net = line_network()
    done = net.do(x=1.5)
    found = posterior(done)
    np.testing.assert_allclose(
        found.marginals["z"], [0.4, 0.6], atol=1e-12
    )  # observing x = 1.5 would change p(z)
    assert posterior(net, {"x": 1.5}).marginals["z"][1] > 0.9
    assert found.mean["x"] == 1.5 and found.variance["x"] == 0
    lines = np.array([0.5 + 2 * 1.5, 1.0 - 1.5])
    mean = np.dot([0.4, 0.6], lines)
    assert found.mean["y"] == pytest.approx(mean, abs=1e-12)
    assert found.variance["y"] == pytest.approx(
        np.dot([0.4, 0.6], [0.2, 0.3] + (lines - mean) ** 2), abs=1e-12
    )
    alone = log_prob(done, {"y": 1.0}).value
    assert log_prob(done, {"x": 1.5, "y": 1.0}).value == pytest.approx(float(alone), abs=1e-12)
    assert log_prob(done, {"x": 1.0}).value == -np.inf
    with pytest.raises(BadInput, match=r"probability zero: x = 1; expected 1.5, to which it was set"):
        posterior(done, {"x": 1.0})
    assert (sample(done, 5, key=0)["x"] == 1.5).all() and argmin(done)["x"] == 1.5
    assert np.asarray(done.draw(jax.random.key(0))["x"]) == 1.5
    assert posterior(net.do(z=1)).mean["x"] == pytest.approx(2.0)
    # A constant is not learned; its children are.
    rows = dict(sample(done, 50, key=1))
    learned = fit(done, rows, EM(), key=0, epochs=2).energy
    assert float(learned["x"].value) == 1.5 and not np.array_equal(learned["y"].bias, net["y"].bias)


# -- errors ---------------------------------------------------------------------------------------------


def test_bad_input_raises():
    coin, real = [0.5, 0.5], LinearGaussian("x")
    with pytest.raises(
        BadInput, match=r"parents of a: found .*'x'.*real; expected finite.*Turn the arrow around"
    ):
        BayesianNetwork({"x": real, "a": ("x", [coin, coin])})
    with pytest.raises(BadInput, match=r"which are finite; expected real ones\. Name them in given="):
        BayesianNetwork({"a": coin, "x": LinearGaussian("x", "a", [1.0])})
    with pytest.raises(BadInput, match="Name them in parents="):
        BayesianNetwork({"x": real, "y": LinearGaussian("y", given="x", bias=[0.0, 1.0])})
    with pytest.raises(BadInput, match="cycle"):
        BayesianNetwork({"x": LinearGaussian("x", "y", [1.0]), "y": LinearGaussian("y", "x", [1.0])})
    with pytest.raises(BadInput, match="ghost"):
        BayesianNetwork({"x": LinearGaussian("x", "ghost", [1.0])})
    with pytest.raises(BadInput, match="whose child is 'y'"):
        BayesianNetwork({"y": real})
    with pytest.raises(BadInput, match="Categorical"):
        BayesianNetwork({"a": coin, "x": LinearGaussian("x", given="a", bias=[0.0, 1.0, 2.0])})
    with pytest.raises(BadInput, match="one axis for each of the finite parents"):
        LinearGaussian("x", given="a", bias=0.0)
    with pytest.raises(BadInput, match="Name the finite parents in given="):
        LinearGaussian("x", bias=[0.0, 1.0])
    with pytest.raises(BadInput, match="1 real parents"):
        LinearGaussian("x", "y", [1.0, 2.0])
    with pytest.raises(BadInput, match="variance of x: found 0; expected numbers > 0"):
        LinearGaussian("x", variance=0.0)
    with pytest.raises(BadInput, match="not finite"):
        LinearGaussian("x", bias=np.nan)
    net = line_network()
    with pytest.raises(BadInput, match="finite real numbers"):
        posterior(net, {"x": np.inf})
    with pytest.raises(BadInput, match="finite hidden variables"):
        posterior(net).joint("x")
    with pytest.raises(Unsuitable, match="x, y are real"):
        net.to_tables()
    with pytest.raises(Unsuitable, match="Use do"):
        net.effect("y", x=1.5)
    sure = BayesianNetwork(
        {"a": coin, "b": ("a", np.eye(2)), "x": LinearGaussian("x", given="b", bias=[0.0, 1.0])}
    )
    with pytest.raises(BadInput, match="row 1: a = 0 and b = 1"):
        posterior(sure, {"a": [0, 0], "b": [0, 1]})


def test_a_block_that_is_too_large_raises_and_independent_blocks_do_not():
    n = 26
    nodes = {f"d{i}": [0.5, 0.5] for i in range(n)}
    chain = {
        f"x{i}": LinearGaussian(
            f"x{i}", f"x{i - 1}" if i else (), np.ones((2, min(i, 1))), [-1.0, 1.0], given=f"d{i}"
        )
        for i in range(n)
    }
    net = BayesianNetwork({**nodes, **chain})
    with pytest.raises(Intractable, match=r"67,108,864 joint values of d0, .*cuts the network"):
        posterior(net)
    data = {f"x{i}": 0.3 * i for i in range(n)}  # with all of them observed, each is a block of its own
    found = posterior(net, data)
    steps = np.diff([0.0, *data.values()])
    want = 1 / (1 + np.exp(-2 * steps))  # log-odds of N(step; 1, 1) against N(step; −1, 1)
    np.testing.assert_allclose([found.marginals[f"d{i}"][1] for i in range(n)], want, atol=1e-12)
    assert "junction tree" in str(plan(posterior, net, data))


def test_single_precision_and_values_far_from_zero():
    net = line_network(np.float32)
    found, exact = posterior(net, {"y": 0.3}), posterior(line_network(), {"y": 0.3})
    assert found.mean["x"].dtype == np.float32
    assert found.mean["x"] == pytest.approx(float(exact.mean["x"]), abs=1e-5)
    assert found.variance["x"] == pytest.approx(float(exact.variance["x"]), abs=1e-5)
    # A standard deviation of one at ten thousand: squares about zero would lose it to rounding.
    rng = np.random.default_rng(0)
    x = (10_000 + rng.normal(size=500)).astype(np.float32)
    y = (2 * (x - 10_000) + 5_000 + 0.5 * rng.normal(size=500)).astype(np.float32)
    pair = BayesianNetwork(
        {
            "x": LinearGaussian("x", bias=np.float32(0)),
            "y": LinearGaussian("y", "x", np.zeros(1, np.float32), np.float32(0)),
        }
    )
    learned = fit(pair, {"x": x, "y": y}, EM(tol=0.0), key=0, epochs=5).energy
    assert float(learned["x"].variance) == pytest.approx(float(x.astype(float).var()), rel=2e-3)
    assert float(learned["y"].weights[0]) == pytest.approx(
        np.polyfit(x.astype(float), y.astype(float), 1)[0], rel=5e-3
    )
    assert learned["y"].weights.dtype == jnp.float32


def test_a_loaded_network_gives_the_same_posterior(tmp_path):
    net = line_network().do(x=0.5)
    energax.save(net, tmp_path / "net.safetensors")
    loaded = energax.load(tmp_path / "net.safetensors")
    assert posterior(loaded, {"y": 0.1}).marginals["z"][0] == posterior(net, {"y": 0.1}).marginals["z"][0]
