"""Closed forms at other temperatures, against sums over the energy divided by T."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpyro import distributions as d
from quick import evaluate

from energax import Energy, log_prob, sample
from energax.energies import RBM, GaussianRBM
from energax.missing import Masked
from energax.samplers import knows_conditional
from energax.spaces import Binary, Real
from energax.tempering import Tempered


class Bare(Energy):
    """An energy without closed forms."""

    energy: Energy
    share: float = eqx.field(static=True)

    @property
    def spaces(self):
        return self.energy.spaces

    def __call__(self, **variables):
        return self.energy(**variables) * self.share


def machine(seed: int) -> RBM:
    rng = np.random.default_rng(seed)
    return RBM(*(jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((4, 3), (4,), (3,))))


@pytest.mark.parametrize("temperature", [0.5, 3.0])
def test_a_machine_at_another_temperature(temperature):
    rbm = machine(0)
    hot, truth = rbm / temperature, Bare(rbm, 1 / temperature)
    x, z = jnp.array([1.0, 0, 1, 1]), jnp.array([0.0, 1, 1])
    for query in (
        lambda e: e(x=x, z=z),
        lambda e: e.free_energy(x=x),
        lambda e: e.free_energy(z=z),
        lambda e: e.log_partition(),
        lambda e: e.conditional("z", x=x).mean,
    ):
        ask = lambda e, query=query: evaluate(lambda: query(e))
        assert_allclose(ask(hot), ask(truth), rtol=1e-5)
    hole = np.array([[1.0, 0.0, np.nan, np.nan]])
    assert_allclose(log_prob(hot, {"x": hole}).value, log_prob(truth, {"x": hole}).value, rtol=1e-4)
    assert "x" in hot.marginalises and "x" not in (truth / 2.0).marginalises


def test_a_gaussian_machine_at_another_temperature():
    rbm = machine(1)
    wide = GaussianRBM(rbm.weight, rbm.bias, rbm.hidden_bias, 0.7) / 2.5
    x, z = jnp.array([0.3, -1.0, 2.0, 0.1]), jnp.array([0.0, 1, 1])
    assert_allclose(
        evaluate(lambda: wide(x=x, z=z)), evaluate(lambda: wide.energy(x=x, z=z) / 2.5), rtol=1e-5
    )
    cold = Bare(wide.energy, 1 / 2.5)
    assert_allclose(
        evaluate(lambda: wide.free_energy(x=x)), evaluate(lambda: cold.free_energy(x=x)), rtol=1e-5
    )
    at = jnp.asarray(np.linspace(-3.0, 3.0, 5)[:, None] * np.ones(4), jnp.float32)
    density = evaluate(lambda: wide.conditional("x", z=z).log_prob(at))
    log_p = evaluate(lambda: -jax.vmap(lambda x: wide(x=x, z=z))(at))
    assert_allclose(np.diff(density), np.diff(log_p), rtol=1e-4)


class Pair(Energy):
    """A real and a binary variable, with `conditional` and no other closed form."""

    @property
    def spaces(self):
        return {"x": Real(2), "z": Binary(20)}

    def __call__(self, *, x, z):
        return 0.5 * jnp.sum((x - z[:2]) ** 2) - z.sum()

    def conditional(self, name, **given):
        if name == "x":
            return d.Normal(given["z"][:2], 1.0).to_event(1)
        pull = jnp.zeros(20).at[:2].set(given["x"] - 0.5)
        return d.Bernoulli(logits=1.0 + pull).to_event(1)


def test_conditionals_are_kept_at_other_temperatures():
    hot = Pair() / 4.0
    assert isinstance(hot, Tempered) and not hot.knows("free_energy")
    assert knows_conditional(hot, "x", {"z": jnp.zeros(20)})
    assert not hot.knows("conditional", frozenset())  # p(x) with z summed out is not a power of it
    drawn = sample(hot, 4000, key=0, n_chains=200, warmup=50)
    # z_i of the last 18 is a coin of logit 1/4, x − z of the first two a normal of variance 4.
    assert abs(drawn["z"][..., 2:].mean() - 1 / (1 + np.exp(-0.25))) < 0.01
    spread = np.asarray(drawn["x"] - drawn["z"][..., :2])
    assert abs(spread.var() - 4.0) < 5 * 4.0 * np.sqrt(2 / 8000)


def test_missing_values_are_not_summed_out_at_the_wrong_temperature():
    rbm = machine(2)
    partly = Masked(jnp.array([1.0, 0, 1, 1]), jnp.array([True, True, False, False]))
    hot, truth = rbm / 2.0, Bare(rbm, 0.5)
    found, expected = (evaluate(lambda e=e: e.free_energy(x=partly)) for e in (hot, truth))
    assert_allclose(found, expected, rtol=1e-5)
