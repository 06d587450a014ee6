"""The methods that `Energy` derives from `spaces` and `__call__` equal brute force."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as draws_of
from hypothesis import strategies as st
from quick import evaluate
from scipy import stats

from energax import argmin, finite, log_partition, log_prob, posterior, sample
from energax._util import sizes
from energax.energies import RBM
from energax.energy import Energy, free_energy, log_partition_cost, log_posterior_table, supports_call
from energax.errors import BadInput, Intractable, Unsuitable
from energax.finite import Assignments
from energax.missing import Masked
from energax.programs import jit
from energax.samplers import Gibbs
from energax.spaces import Binary, Real

cases = draws_of(structure=st.sampled_from([0, 1]), seed=st.integers(0, 10_000))
_free = jit(lambda e, g: free_energy(e, g))
_conditional = jit(lambda e, name, g: e.conditional(name, **g))
_log_z = jit(lambda e: e.log_partition())
_moments = jit(lambda e, g: e.moments(**g))
# Of a conditional distribution: probabilities, mean, mode and log-probabilities of some values.
_summary = jit(lambda p, every: (p.probs, p.mean, p.mode, p.log_prob(every)))


def subsets(names):
    return itertools.chain.from_iterable(itertools.combinations(names, r) for r in range(len(names)))


@cases
def test_free_energy_and_log_partition(oracle, structure, seed):
    """F(given) = −log Σ exp(−e), for every set of given variables; log Z = −F()."""
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    for names in subsets(energy.spaces):
        given = oracle.random_given(energy, names, rng)
        truth = -np.log(oracle.restricted(energy, given).sum())
        np.testing.assert_allclose(_free(energy, given), truth, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(_log_z(energy), np.log(oracle.restricted(energy, {}).sum()), rtol=1e-5)


@cases
def test_conditional(oracle, structure, seed):
    """p(name | given) with the rest summed out, and the methods of the distribution."""
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    for axis, name in enumerate(energy.spaces):
        others = [n for n in energy.spaces if n != name]
        for names in [(), tuple(others)]:
            given = oracle.random_given(energy, names, rng)
            weights = oracle.restricted(energy, given)
            truth = weights.sum(tuple(a for a in range(weights.ndim) if a != axis))
            truth = truth / truth.sum()
            p = _conditional(energy, name, given)
            every = oracle.values(energy.spaces[name])
            probs, mean, mode, log_probs = _summary(p, jnp.asarray(every))
            np.testing.assert_allclose(probs, truth, atol=1e-6)
            np.testing.assert_allclose(mean, np.tensordot(truth, every, 1), atol=1e-5)
            np.testing.assert_array_equal(mode, every[truth.argmax()])
            np.testing.assert_allclose(log_probs, np.log(truth), atol=1e-4)


@cases
def test_moments(oracle, structure, seed):
    """Mean and variance of the energy under p(hidden | given)."""
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    given = oracle.random_given(energy, ["x"], rng)
    weights = oracle.restricted(energy, given)
    p, e = weights / weights.sum(), np.asarray(energy.table, float)
    mean = (p * e).sum()
    np.testing.assert_allclose(
        _moments(energy, given), [mean, (p * (e - mean) ** 2).sum()], rtol=1e-4, atol=1e-5
    )


@cases
def test_missing_coordinates_are_hidden(oracle, structure, seed):
    """A coordinate that is missing is summed over, in Binary and in Categorical variables alike."""
    energy, rng = oracle.random_table(structure, seed), np.random.default_rng(seed)
    x = oracle.masked(oracle.random_given(energy, ["x"], rng)["x"], rng)
    z = oracle.random_given(energy, ["z"], rng)["z"]
    for given in ({"x": x}, {"x": x, "z": z}):
        weights = oracle.restricted(energy, given)
        np.testing.assert_allclose(_free(energy, given), -np.log(weights.sum()), rtol=1e-5, atol=1e-5)
    p = weights / weights.sum()
    e = np.asarray(energy.table, float)
    mean, _ = _moments(energy, given)
    np.testing.assert_allclose(mean, (p * e).sum(), rtol=1e-4, atol=1e-5)
    weights = oracle.restricted(energy, {"x": x})
    of_z = weights.sum(tuple(range(weights.ndim - 1)))
    probs = evaluate(lambda: energy.conditional("z", x=x).probs)
    np.testing.assert_allclose(probs, of_z / of_z.sum(), atol=1e-6)
    if structure == 0:
        hidden = Assignments({"z": energy.spaces["z"]})
        joint = evaluate(lambda: log_posterior_table(energy, {"x": x}, hidden))
        np.testing.assert_allclose(joint, np.log(of_z), rtol=1e-5, atol=1e-5)


def test_draw_frequencies(oracle):
    """Draws follow p(hidden | given), missing coordinates too: χ² at false-alarm rate 1e-3 each."""
    energy = oracle.random_table(0, 7, 1.0)
    x = Masked(np.array([1.0, 0.0, 0.0], np.float32), np.array([True, False, False]))
    for given in ({}, {"z": np.array(1)}, {"x": x}):
        drawn = jax.jit(jax.vmap(lambda k, g=given: energy.draw(k, **g)))(
            jax.random.split(jax.random.key(1), 4000)
        )
        weights = oracle.restricted(energy, given)
        complete = {
            **{k: np.broadcast_to(v, (4000, *np.shape(v))) for k, v in given.items() if k != "x"},
            **drawn,
        }
        index = (np.asarray(complete["x"]) @ [4, 2, 1]).astype(int) * 3 + np.asarray(complete["z"]).astype(
            int
        )
        seen = np.bincount(index, minlength=24)
        expected = 4000 * weights.reshape(-1) / weights.sum()
        assert (seen[expected == 0] == 0).all()
        keep = expected > 0
        assert stats.chisquare(seen[keep], expected[keep]).pvalue > 1e-3


def test_sums_in_chunks(oracle, monkeypatch):
    """A chunk smaller than the sum, that does not divide it, changes neither values nor gradients."""
    energy = oracle.random_table(0, 3)

    def everything(table):
        e = oracle.Table(table, energy.variables)
        slope = jax.grad(lambda t: oracle.Table(t, energy.variables).log_partition())(table)
        return e.log_partition(), e.moments(), e.conditional("x").log_probs, slope

    whole = jax.jit(everything)(energy.table)
    monkeypatch.setattr(sizes, "JOINT_VALUES", sizes.Limit(5, 5))
    assert Assignments(energy.spaces).n % 5
    chunked = jax.jit(lambda table: everything(table))(energy.table)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), whole, chunked)
    p = oracle.restricted(energy, {})
    np.testing.assert_allclose(chunked[-1], -p / p.sum(), atol=1e-6)


class Well(Energy):
    depth: jax.Array

    @property
    def spaces(self):
        return {"x": Real(2), "z": Binary()}

    def __call__(self, *, x, z):
        return 0.5 * self.depth * jnp.sum((x - z) ** 2)


def test_score():
    """∇ log p(x | z), and ∇ log p(x) with z summed out, against the closed form."""
    well, x = Well(jnp.array(2.0)), jnp.array([0.3, -1.0])
    value = np.asarray(x)
    of_both = evaluate(lambda: well.score("x", x=x, z=jnp.array(1.0)))
    np.testing.assert_allclose(of_both, -2 * (value - 1), rtol=1e-6)
    r = 1 / (1 + np.exp(-np.sum(value**2) + np.sum((value - 1) ** 2)))  # p(z = 1 | x)
    np.testing.assert_allclose(evaluate(lambda: well.score("x", x=x)), -2 * (value - r), rtol=1e-5)
    with pytest.raises(Unsuitable, match="Gibbs"):
        well.score("z", x=x, z=jnp.array(1.0))


def test_sums_that_are_too_large_raise():
    class Large(Energy):
        @property
        def spaces(self):
            return {"x": Binary(40)}

        def __call__(self, *, x):
            return x.sum()

    for query in (Large().log_partition, lambda: Large().draw(jax.random.key(0)), Large().moments):
        with pytest.raises(Intractable, match=r"1,099,511,627,776 joint values.*1,048,576"):
            query()
    with pytest.raises(Intractable, match="integral over 'x' in Real"):
        Well(jnp.array(1.0)).log_partition()
    with finite.enumeration_limit(4), pytest.raises(Intractable, match="limit of 4"):
        RBM(jnp.zeros((3, 3)), jnp.zeros(3), jnp.zeros(3)).log_partition()


def test_what_an_energy_knows():
    rbm = RBM(jnp.zeros((5, 3)), jnp.zeros(5), jnp.zeros(3))
    assert rbm.knows("free_energy", {"x"}) and rbm.knows("free_energy", {"z"})
    assert not rbm.knows("free_energy", {"y"}) and not rbm.knows("log_partition")
    assert not Well(jnp.array(1.0)).knows("conditional")
    assert log_partition_cost(rbm) == (("z",), 8)
    assert supports_call(rbm.conditional, "z", x=jnp.zeros(5)) and not supports_call(
        rbm.conditional, "z", y=jnp.zeros(5)
    )


def test_an_unknown_method_name_raises():
    """Also for composed energies, which look into the energy inside."""
    rbm = RBM.random(3, 2, key=0)
    for energy in (rbm, rbm / 2.0, rbm.given(x=jnp.zeros(3)), rbm.over("z"), rbm + rbm):
        with pytest.raises(BadInput, match=r"'free_enery'.*Did you mean 'free_energy'"):
            energy.knows("free_enery")
        assert not energy.knows("tables")


class Terms(Energy):
    """An easy mistake: one number per coordinate, without the sum."""

    space: Any = eqx.field(static=True)

    @property
    def spaces(self):
        return {"x": self.space, "z": Binary(2)}

    def __call__(self, *, x, z):
        return (x - z) ** 2


@pytest.mark.parametrize(
    "query",
    [
        lambda e: log_prob(e, {"x": np.ones((3, 2))}),
        lambda e: log_partition(e),
        lambda e: posterior(e, {"x": np.ones((3, 2))}).mean,
        lambda e: argmin(e, {"x": np.ones((3, 2))}),
        lambda e: sample(e, 3, key=0),
        lambda e: sample(e, 3, method=Gibbs(), key=0),
        lambda e: e.free_energy(x=jnp.ones(2)),
        lambda e: e.moments(x=jnp.ones(2)),
        lambda e: e.draw(jax.random.key(0), x=jnp.ones(2)),
    ],
)
def test_an_energy_that_is_not_a_scalar_is_rejected_by_every_query(query):
    with pytest.raises(BadInput, match=r"Terms returns shape \(2,\); expected one number"):
        query(Terms(Binary(2)))


def test_an_energy_that_is_not_a_scalar_is_rejected_for_real_variables():
    given = {"z": np.ones(2)}
    for query in (lambda e: argmin(e, given), lambda e: sample(e, 2, given=given, key=0)):
        with pytest.raises(BadInput, match=r"Terms returns shape \(2,\); expected one number"):
            query(Terms(Real(2)))
