"""argmin, posterior, log_prob, log_partition and sample equal brute force on random small energies."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as draws_of
from hypothesis import settings
from hypothesis import strategies as st
from scipy import stats

from energax import argmin, log_partition, log_prob, posterior, sample
from energax._util import sizes
from energax.errors import Unsuitable
from energax.infer import Enumeration, _map_rows
from energax.missing import Masked

cases = draws_of(structure=st.sampled_from([0, 1]), seed=st.integers(0, 10_000))


def queries(oracle, energy, rng):
    """Queries: nothing given; rows of x; rows of x with missing values; these and rows of z."""
    x = oracle.random_given(energy, ["x"], rng, 5)["x"]
    holes = oracle.masked(x, rng)
    z = oracle.random_given(energy, ["z"], rng, 5)["z"]
    return [{}, {"x": x}, {"x": holes}, {"x": holes, "z": z}]


def row_of(given, i):
    pick = lambda v: Masked(v.value[i], v.observed[i]) if isinstance(v, Masked) else v[i]
    return {k: pick(v) for k, v in given.items()}


@cases
@settings(max_examples=8)
def test_log_prob_and_partition(oracle, structure, seed):
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    total = oracle.restricted(energy, {}).sum()
    z = log_partition(energy)
    assert z.kind == "exact" and z.method == "enumeration"
    np.testing.assert_allclose(z.value, np.log(total), rtol=1e-5)
    for given in queries(oracle, energy, rng)[1:]:
        got = log_prob(energy, given)
        truth = [np.log(oracle.restricted(energy, row_of(given, i)).sum() / total) for i in range(5)]
        np.testing.assert_allclose(got.value, truth, rtol=1e-4, atol=2e-5)
        one = log_prob(energy, row_of(given, 2))
        assert one.value.shape == () and abs(float(one) - truth[2]) < 1e-4
    x, y = given["x"], oracle.random_given(energy, ["z"], rng, 5)["z"]
    conditional = log_prob(energy, {"z": y}, given={"x": x})
    for i in range(5):
        both, part = (oracle.restricted(energy, row_of(g, i)).sum() for g in ({"x": x, "z": y}, {"x": x}))
        assert conditional.value[i] == pytest.approx(np.log(both / part), abs=2e-5)


@cases
@settings(max_examples=8)
def test_posterior(oracle, structure, seed):
    """Coordinate marginals, means, joint tables and log p(given)."""
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    names, total = list(energy.spaces), oracle.restricted(energy, {}).sum()
    for given in queries(oracle, energy, rng):
        post = posterior(energy, given)
        assert post.kind == "exact"
        n = 5 if given else 1
        for i in range(n):
            at = (lambda a, i=i: a[i]) if given else (lambda a: a)
            weights = oracle.restricted(energy, row_of(given, i) if given else {})
            p = weights / weights.sum()
            for name in post.spaces:
                space = energy.spaces[name]
                own = p.sum(tuple(a for a in range(p.ndim) if names[a] != name))
                every = oracle.values(space)
                hot = every[..., None] == np.arange(space.values_per_coordinate)
                np.testing.assert_allclose(at(post.marginals[name]), np.tensordot(own, hot, 1), atol=1e-5)
                np.testing.assert_allclose(at(post.joint(name)), own, atol=1e-5)
                if name in post.mean:
                    np.testing.assert_allclose(at(post.mean[name]), np.tensordot(own, every, 1), atol=1e-5)
            pair = [v for v in ("x", "z") if v in post.spaces]
            joint = p.sum(tuple(a for a in range(p.ndim) if names[a] not in pair))
            if len(pair) == 2:
                np.testing.assert_allclose(at(post.joint("x", "z")), joint, atol=1e-5)
                np.testing.assert_allclose(at(post.joint("z", "x")), joint.T, atol=1e-5)
            if given:
                assert at(post.log_evidence.value) == pytest.approx(np.log(weights.sum() / total), abs=2e-4)


@cases
@settings(max_examples=8)
def test_argmin(oracle, structure, seed):
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    for given in queries(oracle, energy, rng):
        best = argmin(energy, given)
        assert best.method == "enumeration"
        for i in range(5 if given else 1):
            weights = oracle.restricted(energy, row_of(given, i) if given else {})
            index = np.unravel_index(weights.argmax(), weights.shape)
            for axis, (name, space) in enumerate(energy.variables):
                if name in best:
                    value = best[name][i] if given else best[name]
                    np.testing.assert_array_equal(value, oracle.values(space)[index[axis]])
            lowest = best.energy[i] if given else best.energy
            assert lowest == pytest.approx(-np.log(weights.max()), abs=1e-5)


def test_small_chunks_change_nothing(oracle, monkeypatch):
    """Chunks of joint values and of rows that do not divide their numbers."""
    energy, rng = oracle.random_table(0, 11), np.random.default_rng(3)
    given = {"x": oracle.masked(oracle.random_given(energy, ["x"], rng, 11)["x"], rng)}

    def everything():
        post = posterior(energy, given)
        best = argmin(energy, given)
        return log_prob(energy, given).value, post.marginals, post.joint("x", "z"), best["x"], best.energy

    whole = everything()
    monkeypatch.setattr(sizes, "JOINT_VALUES", sizes.Limit(5, 5))
    monkeypatch.setattr(_map_rows, "QUERY_NUMBERS", sizes.Limit(100, 100))
    for a, b in zip(whole, everything(), strict=True):
        if isinstance(a, dict):
            a, b = np.concatenate([a[k].ravel() for k in a]), np.concatenate([b[k].ravel() for k in a])
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_few_missing_of_many_coordinates(oracle):
    """Three missing of thirty binary coordinates are eight joint values, not 2^30."""
    from energax.energies import RBM
    from energax.infer import plan

    rng = np.random.default_rng(0)
    rbm = RBM(jnp.asarray(rng.normal(size=(30, 2)), jnp.float32), jnp.zeros(30), jnp.zeros(2))
    x = rng.integers(0, 2, 30).astype(float)
    x[[3, 7, 20]] = np.nan
    post = posterior(rbm, {"x": x})
    assert plan("posterior", rbm, {"x": x}).cost.joint_values == 32
    observed = ~np.isnan(x)
    np.testing.assert_allclose(post.mean["x"][observed], x[observed], atol=1e-6)
    z = oracle.values(rbm.spaces["z"])
    field = z @ np.asarray(rbm.weight, float).T
    log_w = field[:, observed] @ x[observed] + np.logaddexp(0, field[:, ~observed]).sum(1)
    w = np.exp(log_w - log_w.max())
    on = 1 / (1 + np.exp(-field[:, ~observed]))
    np.testing.assert_allclose(post.mean["x"][~observed], w @ on / w.sum(), atol=1e-5)


def test_sample_frequencies(oracle):
    """Exact draws given rows with missing values follow p(hidden | row): χ² at 1e-3 per row."""
    energy, rng = oracle.random_table(0, 5, 1.0), np.random.default_rng(1)
    x = oracle.masked(oracle.random_given(energy, ["x"], rng, 3)["x"], rng)
    drawn = sample(energy, 3000, {"x": x}, key=0)
    assert drawn["x"].shape == (3000, 3, 3) and drawn.exact and drawn.trusted
    for i in range(3):
        weights = oracle.restricted(energy, row_of({"x": x}, i)).reshape(-1)
        index = (drawn["x"][:, i] @ [4, 2, 1]).astype(int) * 3 + drawn["z"][:, i].astype(int)
        observed, expected = np.bincount(index, minlength=24), 3000 * weights / weights.sum()
        assert (observed[expected == 0] == 0).all()
        assert stats.chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_enumeration_keeps_its_limit(oracle):
    energy = oracle.random_table(1, 0)
    with pytest.raises(
        Unsuitable, match="Enumeration would have to visit 72 joint values, more than its limit of 50"
    ):
        posterior(energy, {}, Enumeration(limit=50))
    assert posterior(energy, {}, Enumeration(limit=72)).kind == "exact"
