"""Decoders: normalisation, ancestral draws and missing values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import fit, log_prob, plan
from energax.energies import (
    Bernoulli,
    ConditionalDecoder,
    Decoder,
    Gaussian,
    PseudoInputs,
    StandardNormal,
    UniformChoices,
)
from energax.energy import Energy, free_energy
from energax.errors import BadInput, Intractable, Unsuitable
from energax.infer import Importance
from energax.learn import ELBO, Descent
from energax.missing import Masked
from energax.nn import ConditionalEncoder, Encoder
from energax.spaces import Binary, Categorical, Real


def test_the_density_integrates_to_one():
    """∫ Σ_x exp(−e) = 1 by quadrature over z and enumeration of x."""
    decoder = Decoder.random(3, 1, key=0, width=4)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    values = Binary(3).values()
    of_z = lambda z: jnp.exp(-jax.vmap(lambda x: decoder(x=x, z=z))(values)).sum()
    density = evaluate(lambda: jax.vmap(of_z)(nodes[:, None]))
    # Gauss–Hermite already contains exp(−z²/2).
    total = np.sum(weights * np.asarray(density) * np.exp(nodes**2 / 2))
    assert abs(total - 1) < 1e-4 and decoder.log_partition() == 0


@pytest.mark.parametrize("likelihood", [Bernoulli(), Gaussian(0.7)], ids=["bernoulli", "gaussian"])
def test_energy_and_conditional_agree(likelihood):
    decoder = Decoder.random(4, 2, likelihood, key=0, width=5)
    z, x = jnp.array([0.5, -1.0]), jnp.array([1.0, 0.0, 0.0, 1.0])
    found = evaluate(lambda: decoder(x=x, z=z) - decoder.free_energy(z=z))
    log_p = evaluate(lambda: decoder.conditional("x", z=z).log_prob(x))
    np.testing.assert_allclose(found, -log_p, rtol=1e-5)


def test_missing_coordinates_of_x_drop_their_terms():
    decoder = Decoder.random(3, 2, key=0, width=5)
    z, x = jnp.array([0.5, -1.0]), jnp.array([1.0, 0.0, 1.0])
    partly = Masked(x, jnp.array([True, False, True]))
    each = evaluate(lambda: jnp.stack([-decoder(x=x.at[1].set(v), z=z) for v in (0.0, 1.0)]))
    found = evaluate(lambda: decoder(x=partly, z=z))
    np.testing.assert_allclose(found, -np.logaddexp.reduce(np.asarray(each)), rtol=1e-6)


@pytest.mark.parametrize("sees_mask", [False, True])
def test_encoders_read_zeros_for_missing_coordinates_and_the_mask_beside_them(sees_mask):
    encoder = Encoder.random(3, 2, key=0, sees_mask=sees_mask, width=4)
    holes = Masked(jnp.array([1.0, 7.0, -2.0]), jnp.array([True, False, True]))
    given = jnp.array([1.0, 0.0, -2.0, 1.0, 0.0, 1.0]) if sees_mask else jnp.array([1.0, 0.0, -2.0])
    mean, expected = evaluate(lambda: (encoder(x=holes).mean, encoder.network(given)[:2]))
    np.testing.assert_allclose(mean, expected, rtol=1e-6)


def test_discrete_latents_are_enumerated_and_relax_to_the_same_energy():
    decoder = Decoder.random(3, UniformChoices(3, 2), key=0, width=5)
    assert decoder.spaces == {"x": Binary(3), "z": Categorical(3, 2)}
    x, z = jnp.array([1.0, 0.0, 1.0]), jnp.array([2, 0])
    relaxed = evaluate(lambda: decoder.relaxed_energy(x=x, z=jax.nn.one_hot(z, 3)))
    np.testing.assert_allclose(relaxed, evaluate(lambda: decoder(x=x, z=z)), rtol=1e-6)
    of_x = jax.vmap(lambda x: free_energy(decoder, {"x": x}))
    total = evaluate(lambda: jax.nn.logsumexp(-of_x(Binary(3).values())))
    assert abs(float(total)) < 1e-5
    one = Decoder.random(2, UniformChoices(4), key=0)
    assert one.spaces["z"] == Categorical(4)
    assert abs(float(evaluate(lambda: Energy.log_partition(one)))) < 1e-5


def test_ancestral_draws_have_the_moments_of_the_model():
    """x = Wz + b + noise has mean b and covariance WWᵀ + σ²I (each within 4.5 standard errors)."""
    weight, n = jnp.array([[1.0, 0.5], [0.0, 2.0]]), 4000
    decoder = Decoder(lambda z: weight @ z + 1.0, 2, Gaussian(0.5))
    draws = evaluate(lambda: jax.vmap(decoder.draw)(jax.random.split(jax.random.key(0), n)))
    dense = np.asarray(weight)
    x, covariance = np.asarray(draws["x"]), dense @ dense.T + 0.25 * np.eye(2)
    assert draws["z"].shape == (n, 2)
    deviation = np.sqrt(np.diag(covariance))
    assert (np.abs(x.mean(0) - 1) < 4.5 * deviation / np.sqrt(n)).all()
    spread = np.sqrt((np.outer(deviation, deviation) ** 2 + covariance**2) / n)
    assert (np.abs(np.cov(x.T) - covariance) < 4.5 * spread).all()


def test_it_says_what_it_does_not_know():
    decoder = Decoder.random(3, 2, key=0)
    assert decoder.knows("conditional", {"z"}) and not decoder.knows("conditional", {"x"})
    assert not decoder.knows("free_energy", {"x"})
    with pytest.raises(Intractable, match="importance"):
        decoder.conditional("z", x=jnp.ones(3))
    with pytest.raises(Intractable):
        decoder.draw(jax.random.key(0), x=jnp.ones(3))
    with pytest.raises(BadInput, match="one number per feature"):
        Decoder(lambda z: z.sum(), 2)
    with pytest.raises(BadInput, match="> 0"):
        Gaussian(0.0)


def test_scales_are_learned_if_they_are_arrays():
    fixed, learned = Gaussian(0.5), Gaussian(jnp.array(0.5))
    assert not jax.tree.leaves(Decoder(lambda z: z, 2, fixed).likelihood)[0:0]
    assert isinstance(jax.tree.leaves(learned)[0], jax.Array) and jax.tree.leaves(fixed) == [0.5]
    assert Decoder(lambda z: z, StandardNormal(2), learned).spaces["x"] == Real(2)


@pytest.mark.parametrize("given", [Categorical(3), Real(2)], ids=repr)
def test_the_bound_of_a_conditional_decoder_sums_to_one(given):
    """Σ_x exp of the bound of log p(x | y), which is tight with many draws; y is among the data, or given."""
    decoder = ConditionalDecoder.random(3, 1, given, key=0, width=4)
    encoder = ConditionalEncoder.random(3, 1, given, key=1, width=4)
    x = np.asarray(Binary(3).values())
    y = np.ones(8, int) if given.is_finite else np.tile([0.5, -1.0], (8, 1))
    method = Importance(encoder=encoder, n_samples=1000)
    found = log_prob(decoder, {"x": x, "y": y}, method, key=0)
    p = np.exp(found.value)
    assert found.kind == "lower bound" and abs(p.sum() - 1) < 4.5 * np.sqrt(((p * found.stderr) ** 2).sum())
    same = log_prob(decoder, {"x": x}, method, given={"y": y}, key=0)
    np.testing.assert_array_equal(same.value, found.value)
    assert plan(log_prob, decoder, {"y": y}, method, data={"x": x}).kind == "lower bound"
    with pytest.raises(BadInput, match="key"):
        log_prob(decoder, {"x": x, "y": y}, method)


def test_a_conditional_decoder_says_which_parts_do_not_fit():
    given = Categorical(3)
    with pytest.raises(BadInput, match=r"latent.*PseudoInputs"):
        ConditionalDecoder.random(3, PseudoInputs(jnp.ones((2, 3)), 2), given, key=0)
    decoder, encoder = (c.random(3, 2, given, key=0) for c in (ConditionalDecoder, ConditionalEncoder))
    rows = {"x": np.ones((3, 3)), "y": np.array([0, 1, np.nan])}
    with pytest.raises(Unsuitable, match="missing values of 'y'"):
        fit(decoder, rows, Descent(ELBO(encoder)), key=0, epochs=1)
