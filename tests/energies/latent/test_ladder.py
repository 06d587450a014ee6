"""Ladders of hidden layers, against the normal distribution that linear networks give."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.distributions import MultivariateNormal
from quick import evaluate
from scipy.stats import multivariate_normal

import energax
from energax import Batch, fit, log_prob
from energax.energies import Decoder, Gaussian, LadderPrior
from energax.errors import BadInput
from energax.infer import Importance, bound_gap
from energax.learn import ELBO, Descent
from energax.nn import Encoder, LadderEncoder, gaussian_of

MIX = jnp.array([[1.5], [-0.7]])  # of z₂ in z₁
LOAD = jnp.array([[1.0, 0.4], [-0.5, 0.9], [0.3, 0.0]])  # of z₁ in x
SCALE, SIGMA = np.log1p(np.exp(-1)) + 1e-4, 0.5  # of z₁ given z₂, where s = −1, and of x given z₁


def _above(z):
    return jnp.concatenate([MIX @ z, -jnp.ones(2)])


def _decode(z):
    return LOAD @ z


def model():
    """x ← z₁ ← z₂, linear with normal noise."""
    return Decoder(_decode, LadderPrior((_above,), (2, 1)), Gaussian(SIGMA))


def covariance():
    """The covariance of (z₁, z₂, x)."""
    top, load = np.asarray(MIX), np.asarray(LOAD)
    of_first = top @ top.T + SCALE**2 * np.eye(2)
    z = np.block([[of_first, top], [top.T, np.ones((1, 1))]])
    across = np.vstack([of_first @ load.T, top.T @ load.T])
    return np.block([[z, across], [across.T, load @ of_first @ load.T + SIGMA**2 * np.eye(3)]])


def test_the_prior_is_the_normal_distribution_of_linear_layers():
    energy, full = model(), covariance()
    z, x = jnp.array([0.3, -1.0, 0.8]), jnp.array([1.0, 0.2, -0.4])
    expected = multivariate_normal(np.zeros(3), full[:3, :3]).logpdf(z)
    np.testing.assert_allclose(evaluate(lambda: energy.latent.log_prob(z)), expected, rtol=1e-5)
    joint = multivariate_normal(np.zeros(6), full).logpdf(np.r_[z, x])
    np.testing.assert_allclose(-evaluate(lambda: energy(x=x, z=z)), joint, rtol=1e-5)
    draws = energax.sample(energy, 4000, key=0)
    found = np.cov(np.c_[draws["z"], draws["x"]].T)
    # The standard error of a covariance is at most √2 · the larger variance / √n.
    assert np.abs(found - full).max() < 4.5 * np.sqrt(2 / 4000) * full.max()


def test_the_encoder_states_the_density_of_its_draws():
    """q is a density: E_q[p / q] = 1 for any density p; here the prior (4.5 standard errors)."""
    q = evaluate(lambda: LadderEncoder.random(3, (2, 1), key=1, width=8)(x=jnp.array([0.3, 1.0, -0.5])))
    wide = MultivariateNormal(q.mean, 0.25 * jnp.eye(3))

    def ratios():
        z, log_q = q.sample_and_log_prob(jax.random.key(0), (20_000,))
        return jnp.exp(wide.log_prob(z) - log_q), log_q, q.log_prob(z[:5])

    found, log_q, again = evaluate(ratios)
    assert abs(found.mean() - 1) < 4.5 * found.std() / np.sqrt(len(found)) < 0.1
    np.testing.assert_allclose(again, log_q[:5], rtol=1e-4, atol=1e-5)


def test_both_paths_are_multiplied():
    """By hand: precisions add, and means are weighted by them (Sønderby et al. 2016, equations 17 and 18)."""
    encoder = LadderEncoder.random(3, (2, 1), key=1, width=8)

    def walk():
        q = encoder(x=jnp.ones(3))
        z = q.sample(jax.random.key(0))
        return q.from_below, gaussian_of(encoder.down[0](z[2:])), z, q.log_prob(z)

    ((m, v), (top_m, top_v)), (down_m, down_v), z, log_q = evaluate(walk)
    precision = v**-2.0 + down_v**-2.0
    mean = (m / v**2 + down_m / down_v**2) / precision
    expected = multivariate_normal(mean, np.diag(1 / precision)).logpdf(z[:2])
    expected += multivariate_normal(top_m, np.diag(top_v**2)).logpdf(z[2:])
    np.testing.assert_allclose(log_q, expected, rtol=1e-4)


def test_a_ladder_finds_the_posterior_that_independent_normals_cannot():
    """Layers depend on each other given x: independent normals have a gap of ½ log(Π Λ_ii / |Λ|)."""
    energy, full = model(), covariance()
    precision = np.linalg.inv(full)[:3, :3]
    least = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    rows = np.asarray(energax.sample(energy, 1000, key=0)["x"])
    truth = multivariate_normal(np.zeros(3), full[3:, 3:]).logpdf(rows).mean()
    gaps = {}
    encoders = {
        "ladder": LadderEncoder.random(3, (2, 1), key=2, width=8, depth=0),
        "normal": Encoder.random(3, 3, key=2, depth=0),
    }
    for name, encoder in encoders.items():
        rate = optax.cosine_decay_schedule(0.02, 1000)
        rule = Descent(ELBO(encoder), optax.adam(rate))
        done = fit(energy, {"x": rows}, rule, steps=1000, batch_size=100, key=0)
        assert done.history["active units"][-1] >= 2
        bound = ELBO(done.partner)
        batch = Batch({"x": jnp.asarray(np.tile(rows, (20, 1)))}, jnp.ones(20_000))
        terms = evaluate(lambda b=bound, n=batch: b(energy, n, None, jax.random.key(0))[0])
        gaps[name] = truth + float(sum(terms.values()))
        if name == "ladder":
            found = log_prob(energy, {"x": rows}, Importance(done.partner, 200), key=0)
            assert abs(found.value.mean() - truth) < 0.02
    assert least > 0.5 and abs(gaps["normal"] - least) < 0.05 and -0.01 < gaps["ladder"] < 0.05, gaps


def test_missing_coordinates_and_files(tmp_path):
    encoder = LadderEncoder.random(4, (3, 2, 2), key=0, width=8, sees_mask=True)
    prior = LadderPrior.random((3, 2, 2), key=1, width=8)
    energy = Decoder.random(4, prior, Gaussian(jnp.ones(4)), key=2, width=8)
    rows = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    rows[::3, 1] = np.nan
    done = fit(energy, {"x": rows}, Descent(ELBO(encoder)), epochs=2, key=0)
    assert np.isfinite(done.history["objective"]).all() and prior.space.size == 7
    energax.save((done.energy, done.partner), tmp_path / "both")
    values = [
        bound_gap(e, {"x": rows[:3]}, q, key=0, n_samples=10).value
        for e, q in ((done.energy, done.partner), energax.load(tmp_path / "both"))
    ]
    np.testing.assert_array_equal(*values)


def test_bad_layers():
    with pytest.raises(BadInput, match="StandardNormal"):
        LadderPrior.random((3,), key=0)
    with pytest.raises(BadInput, match="one per layer but the top"):
        LadderPrior((_above, _above), (2, 1))
    with pytest.raises(BadInput, match=r"networks\[0\].*\(4,\)"):
        LadderPrior((_decode,), (2, 2))
