"""Priors and inputs of decoders, β and refined encoders, against closed forms of linear models."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.distributions import MultivariateNormal, Normal
from quick import evaluate

from energax import Batch, Categorical, Mixture, Real, fit, log_prob
from energax.energies import (
    RBM,
    ConditionalDecoder,
    Decoder,
    Diagonal,
    EnergyPrior,
    Gaussian,
    Gaussians,
    NeuralEnergy,
    PseudoInputs,
)
from energax.errors import BadInput, Intractable, Unsuitable
from energax.infer import Importance, RefinedEncoder, bound_gap
from energax.learn import ELBO, Descent, ScoreFunction
from energax.nn import BernoulliEncoder, ConditionalEncoder, Encoder

WEIGHT = jnp.array([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.0]])
SIGMA = 0.6
ROWS = jnp.array([[0.3, -1.0, 0.5], [1.2, 0.1, 0.0], [-0.7, 0.4, 2.0]])
COVARIANCE = np.asarray(WEIGHT) @ np.asarray(WEIGHT).T + SIGMA**2 * np.eye(3)


def _linear(z):
    return WEIGHT @ z


def clusters():
    means = jnp.array([[2.0, 0.0], [-1.0, 1.0]])
    return Mixture(Gaussians(means, Diagonal(jnp.array([[0.5, 1.0], [1.5, 0.3]]))), jnp.array([0.3, 0.7]))


def _prior(x):
    return Normal(jnp.zeros(2), jnp.ones(2)).to_event(1)


def test_a_mixture_prior_has_the_evidence_of_a_mixture():
    """With a linear decoder, log p(x) is that of a mixture with means Wμ_k and covariances WΣ_kWᵀ + σ²I."""
    from scipy.stats import multivariate_normal as normal

    prior = EnergyPrior(clusters())
    decoder = Decoder(_linear, prior, Gaussian(SIGMA))
    W = np.asarray(WEIGHT)
    parts = [
        0.3 * normal(W @ [2, 0], W @ np.diag([0.5, 1.0]) @ W.T + SIGMA**2 * np.eye(3)).pdf(ROWS),
        0.7 * normal(W @ [-1, 1], W @ np.diag([1.5, 0.3]) @ W.T + SIGMA**2 * np.eye(3)).pdf(ROWS),
    ]
    wide = lambda x: Normal(jnp.zeros(2), 2.0 * jnp.ones(2)).to_event(1)
    found = log_prob(decoder, {"x": ROWS}, Importance(wide, 20_000), key=0)
    assert (np.abs(found.value - np.log(sum(parts))) < 4.5 * found.stderr + 1e-3).all()


def test_pseudo_inputs_are_the_mean_of_the_encoder_and_are_learned_with_it():
    encoder = Encoder.random(3, 2, key=0, width=5)
    unbound = Decoder(_linear, PseudoInputs(ROWS, 2), Gaussian(SIGMA))
    with pytest.raises(BadInput, match="with_encoder"):
        unbound(x=ROWS[0], z=jnp.zeros(2))
    bound = unbound.with_encoder(encoder)
    z = jnp.array([0.3, -0.2])
    each = evaluate(lambda: jax.vmap(lambda u: encoder(x=u).log_prob(z))(ROWS))
    np.testing.assert_allclose(bound.free_energy(z=z), -np.log(np.mean(np.exp(each))), rtol=1e-5)
    done = fit(unbound, {"x": ROWS}, Descent(ELBO(encoder), optax.adam(0.01)), epochs=3, key=0)
    assert not np.allclose(done.energy.latent.inputs, ROWS)  # they have a gradient
    fitted = done.energy.with_encoder(done.partner)
    assert np.isfinite(log_prob(fitted, {"x": ROWS}, Importance(done.partner, 2000), key=0).value).all()


def test_an_energy_without_log_z_is_no_prior():
    with pytest.raises(BadInput, match="log Z is not known"):
        EnergyPrior(NeuralEnergy.random(2, key=0))
    with pytest.raises(BadInput, match="Real"):
        EnergyPrior(RBM.random(3, 2, key=0))


# -- β ---------------------------------------------------------------------------------------------


def loss_terms(objective, energy, rows=ROWS, key=0, carry=None):
    batch = Batch({"x": rows}, jnp.ones(len(rows)))
    return evaluate(lambda: objective(energy, batch, carry, jax.random.key(key)))


def test_beta_multiplies_the_divergence_from_the_prior():
    """q does not depend on x here, so that KL(q ‖ p) has a closed form: ½ Σ (s² + m² − 1 − log s²)."""
    q = lambda x: Normal(jnp.array([0.5, -1.0]), jnp.array([0.3, 1.2])).to_event(1)
    scale, mean = np.array([0.3, 1.2]), np.array([0.5, -1.0])
    kl = 0.5 * (scale**2 + mean**2 - 1 - np.log(scale**2)).sum()
    energy, many = Decoder(_linear, 2, Gaussian(SIGMA)), jnp.tile(ROWS, (2000, 1))
    plain, _ = loss_terms(ELBO(q), energy, many)
    terms, _ = loss_terms(ELBO(q, beta=3.0), energy, many)
    draws_deviation = 2 * np.sqrt(0.5 * ((scale**2 - 1) ** 2).sum() + (scale**2 * mean**2).sum())
    assert abs(float(terms["beta"]) - 2 * kl) < 4.5 * draws_deviation / np.sqrt(6000)
    np.testing.assert_allclose(terms["energy"], plain["energy"], rtol=1e-5)  # the bound is still seen
    none, _ = loss_terms(ELBO(q, beta=0.0), energy, many)
    reconstruction = none["energy"] + none["negative entropy"] + none["beta"]
    conditional = lambda z: energy.conditional("x", z=z)
    z = mean + scale * np.random.default_rng(0).normal(size=(4000, 2))
    log_p = evaluate(lambda: jax.vmap(lambda z: jax.vmap(conditional(z).log_prob)(ROWS).mean())(z))
    assert abs(float(reconstruction) + log_p.mean()) < 6 * log_p.std() / np.sqrt(4000)


def test_a_schedule_of_beta_counts_steps_and_validates_with_one():
    energy = Decoder(_linear, 2, Gaussian(SIGMA))
    objective = ELBO(_prior, beta=optax.linear_schedule(0.0, 1.0, 4))
    batch = Batch({"x": ROWS}, jnp.ones(3))
    carry = objective.init(energy, batch, None)
    excess = []
    for _ in range(6):
        terms, carry = loss_terms(objective, energy, carry=carry)
        excess.append(float(terms["beta"]))
    assert int(carry) == 6
    # q is the prior: its divergence is 0, and so is every term of β.
    np.testing.assert_allclose(excess, 0, atol=1e-6)
    shifted = ELBO(lambda x: Normal(jnp.ones(2), jnp.ones(2)).to_event(1), beta=objective.beta)
    found = [float(loss_terms(shifted, energy, carry=jnp.array(i))[0]["beta"]) for i in (0, 2, 4)]
    np.testing.assert_allclose(found, [found[0], found[0] / 2, 0], atol=1e-5)
    terms = evaluate(lambda: shifted.validate(energy, batch, None, jax.random.key(0)))
    assert "beta" not in terms


def test_beta_is_refused_where_it_has_no_meaning():
    with pytest.raises(BadInput, match="several samples"):
        ELBO(_prior, 5, beta=2.0)
    with pytest.raises(BadInput, match="beta"):
        ELBO(_prior, beta=-1.0)
    objective = ELBO(BernoulliEncoder.random(4, 3, key=0), 1, ScoreFunction(), beta=2.0)
    with pytest.raises(Unsuitable, match=r"log p\(z\)"):
        objective.check(TWO_LAYERS, {"x": np.zeros((2, 4))})


class _NoFreeEnergyOfZ(RBM):
    def knows(self, what, names=None):
        return False if what == "free_energy" else super().knows(what, names)


TWO_LAYERS = _NoFreeEnergyOfZ(jnp.zeros((4, 3)), jnp.zeros(4), jnp.zeros(3))


# -- inputs ------------------------------------------------------------------------------------------


def conditional_linear():
    """x = Wz + c_y + noise: given y it is normal, with mean c_y."""
    centre = jnp.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]])
    return ConditionalDecoder(
        lambda zy: WEIGHT @ zy[:2] + zy[2:] @ centre, 2, Categorical(2), Gaussian(SIGMA)
    )


def test_the_bound_given_a_class_is_that_of_log_p_of_x_given_y():
    energy, y = conditional_linear(), jnp.array([0, 1, 1])
    centre = np.array([[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]])[np.asarray(y)]
    exact = evaluate(lambda: MultivariateNormal(jnp.zeros(3), COVARIANCE).log_prob(ROWS - centre))
    precision = jnp.eye(2) + WEIGHT.T @ WEIGHT / SIGMA**2

    def posterior(x, y):
        mean = jnp.linalg.solve(precision, WEIGHT.T @ (x - jnp.array(centre_of)[y])) / SIGMA**2
        return MultivariateNormal(mean, precision_matrix=precision)

    centre_of = [[0.0, 1.0, 2.0], [3.0, -1.0, 0.0]]
    objective = ELBO(posterior)
    batch = Batch({"x": ROWS, "y": y}, jnp.ones(3))
    objective.check(energy, batch.data)
    terms = evaluate(lambda: objective(energy, batch, None, jax.random.key(0))[0])
    assert abs(-float(sum(terms.values())) - exact.mean()) < 1e-4
    drawn = evaluate(
        lambda: jax.vmap(lambda k: energy.draw(k, y=jnp.array(1))["x"])(
            jax.random.split(jax.random.key(0), 3000)
        )
    )
    error = np.sqrt(np.diag(COVARIANCE) / 3000)
    assert (np.abs(drawn.mean(0) - np.array(centre_of[1])) < 4.5 * error).all()


def test_a_real_input_and_what_a_conditional_decoder_does_not_know():
    energy = ConditionalDecoder.random(3, 2, Real(2), key=0, width=5)
    encoder = ConditionalEncoder.random(3, 2, Real(2), key=1, width=5)
    X, y = np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32)
    done = fit(energy, {"x": X, "y": y}, Descent(ELBO(encoder)), epochs=2, key=0)
    assert np.isfinite(done.history["objective"]).all()
    with pytest.raises(Intractable, match="importance"):
        energy.conditional("z", x=jnp.ones(3), y=jnp.zeros(2))
    with pytest.raises(BadInput, match="input"):
        energy.draw(jax.random.key(0))
    with pytest.raises(Unsuitable, match="'y'"):
        ELBO(encoder).check(energy, {"x": X})
    with pytest.raises(BadInput, match="given"):
        ConditionalDecoder(lambda z: z, 2, 3)


# -- refined encoders and the gap ------------------------------------------------------------------------


def test_the_gap_is_the_divergence_from_the_posterior_and_refining_closes_it():
    energy = Decoder(_linear, 2, Gaussian(SIGMA))
    exact = evaluate(lambda: MultivariateNormal(jnp.zeros(3), COVARIANCE).log_prob(ROWS))
    precision = np.eye(2) + np.asarray(WEIGHT).T @ np.asarray(WEIGHT) / SIGMA**2
    means = np.linalg.solve(precision, np.asarray(WEIGHT).T @ np.asarray(ROWS).T / SIGMA**2).T
    # KL(N(0, I) ‖ N(m, Λ⁻¹)) = ½ (tr Λ + mᵀΛm − 2 − log |Λ|).
    quadratic = np.einsum("ni,ij,nj->n", means, precision, means)
    kl = 0.5 * (np.trace(precision) + quadratic - 2 - np.linalg.slogdet(precision)[1])
    found = bound_gap(energy, {"x": ROWS}, _prior, key=0, n_samples=20_000)
    assert (np.abs(found.value - kl) < 5 * found.stderr + 0.02).all() and (found.value >= 0).all()
    refined = RefinedEncoder(_prior, energy, n_steps=300, n_draws=64)
    # The best q with independent coordinates has variances 1 / Λ_ii: its gap is ½ log(Π Λ_ii / |Λ|).
    least = 0.5 * (np.log(np.diag(precision)).sum() - np.linalg.slogdet(precision)[1])
    closer = bound_gap(energy, {"x": ROWS}, refined, key=0, n_samples=2000)
    assert (closer.value < least + 0.05).all() and (closer.value > least - 5 * closer.stderr).all()
    bound = log_prob(energy, {"x": ROWS}, Importance(refined, 200), key=0)
    assert (np.abs(bound.value - exact) < 4.5 * bound.stderr + 0.01).all()


def test_refining_needs_a_real_hidden_variable_and_a_normal_encoder():
    with pytest.raises(Unsuitable, match="one real hidden variable"):
        RefinedEncoder(_prior, RBM.random(3, 2, key=0))(x=jnp.ones(3))
    wrong = lambda x: MultivariateNormal(jnp.zeros(2), jnp.eye(2))
    with pytest.raises(Unsuitable, match="independent normal"):
        RefinedEncoder(wrong, Decoder(_linear, 2, Gaussian(SIGMA)))(x=jnp.ones(3))
