"""Networks with real nodes against the whole joint: every choice enumerated, every Gaussian by hand."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import chisquare, kstest, multivariate_normal, norm

import energax
from energax import argmin, fit, log_partition, log_prob, plan, posterior, sample
from energax.energies import BayesianNetwork
from energax.energies._linear_gaussian import LinearGaussian
from energax.errors import BadInput, Intractable, Unsuitable
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.parameters import constrained_maximum, trainable


def random_network(seed: int, n_finite: int, n_real: int) -> BayesianNetwork:
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 4, n_finite)
    nodes = {}
    for i in range(n_finite):
        parents = [j for j in range(i) if rng.random() < 0.6]
        table = rng.random([cards[j] for j in (*parents, i)]) + 0.1
        nodes[f"d{i}"] = (tuple(f"d{j}" for j in parents), table / table.sum(-1, keepdims=True))
    for i in range(n_real):
        parents = [f"x{j}" for j in range(i) if rng.random() < 0.6]
        given = [j for j in rng.permutation(n_finite) if rng.random() < 0.5]
        shape = tuple(cards[given])
        nodes[f"x{i}"] = LinearGaussian(
            f"x{i}",
            parents,
            rng.normal(size=(*shape, len(parents))),
            rng.normal(size=shape) * 2,
            rng.uniform(0.3, 2.0, shape),
            given=[f"d{j}" for j in given],
        )
    order = rng.permutation(list(nodes))  # the order of a dict says nothing of causes
    return BayesianNetwork({str(name): nodes[str(name)] for name in order})


class Joint:
    """p(d) and N(x | d) of every joint configuration d, from x = (1 − A)⁻¹ (b + ε)."""

    def __init__(self, net: BayesianNetwork):
        spaces = net.spaces
        self.finite = [n for n, s in spaces.items() if s.is_finite]
        self.real = [n for n, s in spaces.items() if not s.is_finite]
        self.cards = [spaces[n].n_values for n in self.finite]
        self.states = [
            dict(zip(self.finite, c, strict=True)) for c in itertools.product(*map(range, self.cards))
        ]
        self.log_p, self.means, self.covariances = [], [], []
        for d in self.states:
            log_p, A = 0.0, np.zeros((len(self.real), len(self.real)))
            b, v = np.zeros(len(self.real)), np.zeros(len(self.real))
            for node in net.nodes:
                if node.child in self.finite:
                    log_p += np.log(np.asarray(node.table)[tuple(d[n] for n in node.names)])
                    continue
                i, at = self.real.index(node.child), tuple(d[n] for n in node.finite_parents)
                b[i], v[i] = node.bias[at], node.variance[at]
                for j, parent in enumerate(node.parents):
                    A[i, self.real.index(parent)] = node.weights[(*at, j)]
            inverse = np.linalg.inv(np.eye(len(b)) - A)
            self.log_p.append(log_p)
            self.means.append(inverse @ b)
            self.covariances.append(inverse @ np.diag(v) @ inverse.T)

    def given(self, seen: dict) -> tuple:
        """(log p(d, seen), E[x | d, seen], Cov[x | d, seen]) for every d, log of the peak over hidden x."""
        logs, means, covariances, peaks = [], [], [], []
        at = [i for i, n in enumerate(self.real) if n in seen]
        rest = [i for i, n in enumerate(self.real) if n not in seen]
        value = np.array([seen[self.real[i]] for i in at])
        for d, log_p, mean, cov in zip(self.states, self.log_p, self.means, self.covariances, strict=True):
            agrees = all(d[n] == seen[n] for n in self.finite if n in seen)
            full, spread = mean.copy(), np.zeros_like(cov)
            density = peak = 0.0
            if at:
                density = multivariate_normal(mean[at], cov[np.ix_(at, at)]).logpdf(value)
                gain = cov[np.ix_(rest, at)] @ np.linalg.inv(cov[np.ix_(at, at)])
                full[rest] = mean[rest] + gain @ (value - mean[at])
                full[at] = value
                spread[np.ix_(rest, rest)] = cov[np.ix_(rest, rest)] - gain @ cov[np.ix_(at, rest)]
            else:
                spread = cov
            if self.real:
                peak = multivariate_normal(mean, cov).logpdf(full)
            logs.append(log_p + density if agrees else -np.inf)
            peaks.append(log_p + peak if agrees else -np.inf)
            means.append(full)
            covariances.append(spread)
        return np.array(logs), np.array(means), np.array(covariances), np.array(peaks)

    def answers(self, seen: dict) -> dict:
        logs, means, covariances, peaks = self.given(seen)
        log_evidence = logsumexp(logs)
        q = np.exp(logs - log_evidence)
        mean = q @ means
        variance = q @ (np.diagonal(covariances, axis1=1, axis2=2) + (means - mean) ** 2)
        best = int(np.argmax(peaks))
        return {
            "log evidence": log_evidence,
            "joint": q.reshape(self.cards),
            "mean": dict(zip(self.real, mean, strict=True)),
            "variance": dict(zip(self.real, variance, strict=True)),
            "mode": {**self.states[best], **dict(zip(self.real, means[best], strict=True))},
            "energy": -peaks[best],
        }


def some_evidence(net: BayesianNetwork, seed: int, share: float = 0.5) -> dict:
    rng = np.random.default_rng(seed)
    drawn = sample(net, 1, key=seed).values
    names = [n for n in drawn if rng.random() < share][: len(drawn) - 1]
    return {n: drawn[n][0] for n in names}


@pytest.mark.parametrize(
    ("seed", "n_finite", "n_real", "share"),
    [(0, 0, 6, 0.5), (2, 2, 4, 0.5), (3, 3, 3, 0.5), (4, 2, 3, 0.0), (6, 1, 1, 0.6)],
)
def test_every_answer_equals_the_joint(seed, n_finite, n_real, share):
    net = random_network(seed, n_finite, n_real)
    joint, seen = Joint(net), some_evidence(net, seed, share)
    want = joint.answers(seen)
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


@pytest.fixture(scope="module")
def net() -> BayesianNetwork:
    return random_network(11, 2, 3)


@pytest.fixture(scope="module")
def holes(net) -> dict:
    """Rows of the network with a third of their entries missing."""
    rng = np.random.default_rng(0)
    drawn = sample(net, 30, key=4).values
    return {k: np.where(rng.random(30) < 0.35, np.nan, v.astype(float)) for k, v in drawn.items()}


def seen_in(holes: dict, row: int) -> dict:
    return {k: v[row] for k, v in holes.items() if not np.isnan(v[row])}


def test_rows_with_missing_entries_are_each_answered_by_what_they_show(net, holes):
    joint = Joint(net)
    found, scores, best = posterior(net, holes), log_prob(net, holes), argmin(net, holes)
    for row in range(30):
        want = joint.answers(seen_in(holes, row))
        assert scores.value[row] == pytest.approx(want["log evidence"], abs=1e-9)
        assert best.energy[row] == pytest.approx(want["energy"], abs=1e-9)
        for name in joint.real:
            assert found.mean[name][row] == pytest.approx(want["mean"][name], abs=1e-9)
            assert found.variance[name][row] == pytest.approx(want["variance"][name], abs=1e-9)
        for axis, name in enumerate(joint.finite):
            np.testing.assert_allclose(found.marginals[name][row], want["joint"].sum(1 - axis), atol=1e-10)
        for name, value in seen_in(holes, row).items():
            assert best[name][row] == value


def mixture_cdf(q, means, scales):
    return lambda x: sum(p * norm.cdf(x, m, s) for p, m, s in zip(q, means, scales, strict=True))


def test_draws_follow_the_posterior(net):
    """Choices by chi-square, real ones by Kolmogorov and Smirnov; error rate 1e-4 each, seed fixed."""
    joint = Joint(net)
    for seen in ({}, {joint.real[-1]: 0.7, joint.finite[0]: 1}):
        draws = sample(net, 4000, seen, key=1)
        logs, means, covariances, _ = joint.given(seen)
        q = np.exp(logs - logsumexp(logs))
        states = [draws[n] if n in draws.values else np.full(4000, seen[n]) for n in joint.finite]
        counts = np.bincount(np.ravel_multi_index(states, joint.cards), minlength=len(q))
        assert counts[q == 0].sum() == 0
        assert chisquare(counts[q > 0], 4000 * q[q > 0]).pvalue > 1e-4
        for i, name in enumerate(joint.real):
            if name in seen:
                continue
            scale = np.sqrt(covariances[:, i, i])
            assert kstest(draws[name], mixture_cdf(q, means[:, i], scale)).pvalue > 1e-4
        # The sum looks at the covariances too.
        total = sum(draws[n] if n in draws.values else np.full(4000, seen[n]) for n in joint.real)
        scale = np.sqrt(covariances.sum((1, 2)))
        assert kstest(total, mixture_cdf(q, means.sum(1), scale)).pvalue > 1e-4
    one = net.draw(jax.random.key(0), **{joint.real[0]: jnp.asarray(0.3)})
    assert set(one) == set(net.spaces) - {joint.real[0]}


# -- learning ----------------------------------------------------------------------------------------


def step_by_hand(net: BayesianNetwork, holes: dict, weights: np.ndarray) -> dict:
    """One step of EM: expected counts, and for real nodes weighted least squares, by enumeration."""
    joint, out = Joint(net), {}
    rows = [joint.given(seen_in(holes, i))[:3] for i in range(len(weights))]
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
    start = net.initialise(jax.random.key(3), holes_as_data(net, holes), jnp.ones(30))
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


def holes_as_data(net, holes):
    spaces = net.spaces
    return {k: spaces[k].check(v, k) for k, v in holes.items()}


def line_network(dtype=np.float64) -> BayesianNetwork:
    """A finite z, x given z, y linear in x with a slope for each z."""
    z = np.array([0.4, 0.6], dtype)
    x = LinearGaussian(
        "x", bias=np.array([-1.0, 2.0], dtype), variance=np.array([1.0, 0.5], dtype), given="z"
    )
    lines = {"weights": np.array([[2.0], [-1.0]], dtype), "bias": np.array([0.5, 1.0], dtype)}
    y = LinearGaussian("y", "x", **lines, variance=np.array([0.2, 0.3], dtype), given="z")
    return BayesianNetwork({"z": z, "x": x, "y": y})


@jax.jit
def sums_of(net, data):
    return net.statistics(data, net.expectations(data, 1.0)[0])


@pytest.fixture(scope="module")
def complete() -> tuple:
    """A network, rows of it, and their sums."""
    truth = line_network()
    data = sample(truth, 400, key=0).values
    with jax.enable_x64(True):
        return truth, data, sums_of(truth, data)


def test_complete_rows_are_least_squares_for_every_choice(complete):
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
def test_what_is_frozen_stays_and_the_rest_is_best_beside_it(complete, held):
    truth, data, sums = complete
    with jax.enable_x64(True):
        kept = constrained_maximum(truth, sums, trainable(truth, f"nodes.2.{held}"))["y"]
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


def test_sums_about_other_centres_give_the_same_lines(complete):
    net, _, sums = complete
    with jax.enable_x64(True):
        other = eqx.tree_at(lambda n: n.nodes[1].bias, net, jnp.array([3.0, 5.0]))
        moved = other.recentred(sums, net)
        assert not np.allclose(moved[1], sums[1]) and not np.allclose(moved[2], sums[2])
        one, two = net.maximise(sums), other.maximise(moved)
        for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-9)


def test_an_exact_line_stops_at_the_floor_and_a_parent_said_twice_does_no_harm():
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


def test_a_hidden_choice_is_learned_from_restarts_and_by_descent_as_well():
    truth = line_network(np.float32)
    data = {k: v for k, v in sample(truth, 600, key=0).values.items() if k != "z"}
    data["y"] = np.where(np.random.default_rng(0).random(600) < 0.2, np.nan, data["y"])
    score = lambda energy: float(log_prob(energy, data).value.mean())
    by_em = fit(truth, data, EM(tol=1e-5), key=0, epochs=100, n_init=3).energy
    assert score(by_em) >= score(truth) - 2e-3
    worse = eqx.tree_at(lambda n: n.nodes[2].bias, truth, jnp.array([1.5, 0.5], jnp.float32))
    by_descent = fit(worse, data, Descent(NegativeLogLikelihood(), optax.adam(0.05)), key=0, steps=300).energy
    assert score(by_descent) == pytest.approx(score(by_em), abs=0.02) and score(worse) < score(by_em) - 0.2


def test_annealed_and_hard_expectations_by_quadrature_and_by_search():
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


# -- causes --------------------------------------------------------------------------------------------


def test_surgery_on_a_real_node_moves_its_effects_and_not_its_causes():
    net = line_network()
    done = net.do(x=1.5)
    found = posterior(done)
    np.testing.assert_allclose(found.marginals["z"], [0.4, 0.6], atol=1e-12)  # seeing x = 1.5 would tell
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
    assert posterior(net.do(z=1)).mean["x"] == pytest.approx(2.0)
    # A constant is learned by nobody, and its children are.
    rows = sample(done, 50, key=1).values
    learned = fit(done, rows, EM(), key=0, epochs=2).energy
    assert float(learned["x"].value) == 1.5 and not np.array_equal(learned["y"].bias, net["y"].bias)


# -- at the door ------------------------------------------------------------------------------------------


def test_what_makes_no_sense_meets_a_sentence():
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


def test_a_block_that_is_too_large_is_refused_and_one_that_falls_apart_is_not():
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
    data = {f"x{i}": 0.3 * i for i in range(n)}  # with all of them seen, each has a table of its own
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
    # A spread of one at ten thousand: squares about zero would have lost it.
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


def test_saved_and_loaded_and_answering_the_same(tmp_path):
    net = line_network().do(x=0.5)
    energax.save(net, tmp_path / "net.safetensors")
    loaded = energax.load(tmp_path / "net.safetensors")
    assert posterior(loaded, {"y": 0.1}).marginals["z"][0] == posterior(net, {"y": 0.1}).marginals["z"][0]
