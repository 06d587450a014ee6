"""Restricted Boltzmann machines against enumeration and quadrature."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from quick import evaluate

from energax.energies import RBM, GaussianRBM
from energax.energy import Energy, enumerated_free_energy, free_energy
from energax.missing import Masked
from energax.parameters import parameter_spaces
from energax.programs import jit
from energax.spaces import Binary, Positive

seeds = st.integers(0, 10_000)


def random_rbm(seed, d=3, h=2):
    k = jax.random.split(jax.random.key(seed), 3)
    normal = jax.random.normal
    return RBM(normal(k[0], (d, h)), normal(k[1], (d,)), normal(k[2], (h,)))


def random_gaussian(seed, d=2, h=2):
    rbm, scale = random_rbm(seed, d, h), jax.random.uniform(jax.random.key(seed), (d,), minval=0.5, maxval=2)
    return GaussianRBM(rbm.weight, rbm.bias, rbm.hidden_bias, scale)


@jit
def rbm_pairs(seed):
    """(closed form, brute force) of all closed forms of an RBM."""
    rbm = random_rbm(seed)
    x, z = Binary(3).values()[seed % 8], Binary(2).values()[seed % 4]
    joint = jnp.array([-rbm(x=a, z=b) for a in Binary(3).values() for b in Binary(2).values()])
    partly = Masked(x, jnp.array([True, False, False]))
    completions = [-rbm.free_energy(x=x.at[1].set(a).at[2].set(b)) for a in (0.0, 1.0) for b in (0.0, 1.0)]
    return [
        (rbm.free_energy(x=x), enumerated_free_energy(rbm, {"x": x})),
        (rbm.free_energy(z=z), enumerated_free_energy(rbm, {"z": z})),
        (rbm.log_partition(), jax.nn.logsumexp(joint)),
        (rbm.free_energy(x=partly), -jax.nn.logsumexp(jnp.array(completions))),
    ]


@jit
def gaussian_pairs(seed):
    rbm = random_gaussian(seed)
    x, z = jnp.array([0.3, -0.8]), Binary(2).values()
    log_weight = -jax.vmap(lambda z: rbm.free_energy(z=z))(z) - rbm.log_partition()
    log_normal = jax.vmap(lambda z: rbm.conditional("x", z=z).log_prob(x))(z)
    posterior = jax.vmap(rbm.conditional("z", x=x).log_prob)(z)
    return [
        (-rbm.free_energy(x=x) - rbm.log_partition(), jax.nn.logsumexp(log_weight + log_normal)),
        (jax.nn.logsumexp(log_weight), 0.0),
        (rbm.free_energy(x=x), enumerated_free_energy(rbm, {"x": x})),
        (posterior, Energy.conditional(rbm, "z", x=x).log_probs),
    ]


@given(seeds)
def test_rbm_knowledge_equals_enumeration(seed):
    for found, expected in rbm_pairs(jnp.asarray(seed)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@given(seeds)
def test_gaussian_rbm_is_a_mixture_of_gaussians(seed):
    """log p(x) = log Σ_z p(z) N(x; b + σWz, σ²), with p(z) from the marginal over z."""
    for found, expected in gaussian_pairs(jnp.asarray(seed)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_gaussian_rbm_integrates_missing_coordinates_out():
    rbm, x = evaluate(lambda: random_gaussian(3)), jnp.array([0.3, 9.9])
    partly = Masked(x, jnp.array([True, False]))
    grid = np.linspace(-40, 40, 40001)
    rows = jnp.asarray(np.stack([np.full(grid.size, 0.3), grid], 1), jnp.float32)
    energies = evaluate(lambda: jax.vmap(lambda row: rbm.free_energy(x=row))(rows))
    integral = np.log(np.trapezoid(np.exp(-np.asarray(energies, np.float64)), grid))
    for found in (lambda: rbm.free_energy(x=partly), lambda: free_energy(rbm, {"x": partly})):
        np.testing.assert_allclose(evaluate(found), -integral, rtol=1e-4)


def test_gaussian_rbm_draws_have_its_moments():
    """Means of 4000 ancestral draws, within 4.5 standard errors of Σ_z p(z) (b + σWz)."""
    rbm, z = evaluate(lambda: random_gaussian(5)), Binary(2).values()
    draws = evaluate(lambda: jax.vmap(rbm.draw)(jax.random.split(jax.random.key(0), 4000)))
    p = evaluate(lambda: jax.nn.softmax(-jax.vmap(lambda z: rbm.free_energy(z=z))(z)))
    means = evaluate(lambda: jax.vmap(lambda z: rbm.conditional("x", z=z).mean)(z))
    p, z = np.asarray(p), np.asarray(z)
    mean = p @ np.asarray(means)
    x = np.asarray(draws["x"])
    assert (np.abs(x.mean(0) - mean) < 4.5 * x.std(0) / np.sqrt(4000)).all()
    assert (np.abs(np.asarray(draws["z"]).mean(0) - p @ z) < 4.5 * 0.5 / np.sqrt(4000)).all()


def test_the_scale_is_positive_or_fixed():
    learned = GaussianRBM.random(3, 2, key=0)
    assert dict(parameter_spaces(learned))["scale"] == Positive()
    fixed = GaussianRBM.random(3, 2, key=0, scale=1.0)
    assert "scale" not in dict(parameter_spaces(fixed))


def test_initialise_matches_the_data():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(500, 3)) * [0.1, 1.0, 5.0] + [1.0, 2.0, 3.0]).astype(np.float32)
    x[::7, 0] = np.nan
    data = {"x": Masked.from_nan(x)}
    machine, key = GaussianRBM.random(3, 2, key=0), jax.random.key(0)
    start = evaluate(lambda: machine.initialise(key, data, jnp.ones(500)))
    np.testing.assert_allclose(start.bias, np.nanmean(x, 0), rtol=1e-4)
    np.testing.assert_allclose(start.scale, np.nanstd(x, 0), rtol=1e-4)
    coins = {"x": (rng.random((400, 2)) < [0.2, 0.9]).astype(np.float32)}
    rbm = RBM.random(2, 3, key=0)
    start = evaluate(lambda: rbm.initialise(key, coins, jnp.ones(400)))
    on = 1 / (1 + np.exp(-np.asarray(start.bias)))
    np.testing.assert_allclose(on, coins["x"].mean(0), atol=5e-3)
