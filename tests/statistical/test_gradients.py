"""The mean of every stochastic gradient estimator is the exact gradient.

Each test compares the mean of N independent gradients with the exact one, coordinate by
coordinate, in float64. The false-alarm rate of a test is 1e-3 over all its coordinates
(Bonferroni); seeds are fixed. To have power, the standard error of the mean must be a small
part of the gradient, and that is asserted too.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from quick import evaluate
from scipy.stats import norm

from energax import Mixture, fit
from energax.batch import Batch
from energax.energies import RBM, Decoder, Gaussian, Gaussians, NeuralEnergy
from energax.energy import Energy
from energax.learn import (
    ELBO,
    EM,
    Adversarial,
    ContrastiveDivergence,
    Denoising,
    GumbelSoftmax,
    NegativeLogLikelihood,
    NoiseContrastive,
    Reparameterised,
    ScoreFunction,
    ScoreMatching,
    Sliced,
)
from energax.nn import BernoulliEncoder, CategoricalEncoder, Encoder
from energax.spaces import Binary, Categorical, Real

pytestmark = pytest.mark.slow
X4 = np.array([[1.0, 0, 1, 0], [0, 1, 1, 1], [1, 1, 0, 0]])
WEIGHT = np.array([1.0, 2.0, 0.5])


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def with_partner(objective, partner):
    return eqx.tree_at(lambda o: o.partner, objective, partner, is_leaf=lambda x: x is None)


def gradients(objective, energy, batch, n, carry=None, seed=0):
    """(n, parameters) gradients of energy and partner together, each from its own key."""
    arrays, static = eqx.partition((energy, objective.partner), eqx.is_inexact_array)

    def loss(arrays, key):
        energy, partner = eqx.combine(arrays, static)
        terms, _ = with_partner(objective, partner)(energy, batch, carry, key)
        return sum(terms.values()) if isinstance(terms, dict) else terms

    return many(lambda key: ravel_pytree(jax.grad(loss)(arrays, key))[0], n, seed)


def many(one, n, seed=0):
    """one(key) for n keys, as one program."""
    draw = lambda key: jax.lax.map(one, jax.random.split(key, n), batch_size=500)
    key = jax.random.key(seed)
    return np.asarray(evaluate(lambda: draw(key)) if n == 1 else jax.jit(draw)(key))


def exact_gradient(function, energy, partner=None):
    arrays, static = eqx.partition((energy, partner), eqx.is_inexact_array)
    slope = jax.grad(lambda arrays: function(*eqx.combine(arrays, static)))
    return np.asarray(evaluate(lambda: ravel_pytree(slope(arrays))[0]))


def assert_unbiased(draws, exact, rate=1e-3, power=0.15):
    stderr = draws.std(0, ddof=1) / np.sqrt(len(draws))
    off = np.abs(draws.mean(0) - exact)
    moves = stderr > 1e-12
    assert (off[~moves] < 1e-9).all()
    z = off[moves] / stderr[moves]
    limit = norm.isf(rate / 2 / max(moves.sum(), 1))
    assert z.max() < limit, f"a coordinate is {z.max():.1f} standard errors off (limit {limit:.1f})"
    assert np.linalg.norm(stderr) < power * np.linalg.norm(exact), "too noisy to tell"


def small_rbm(h=3):
    def build():
        k = jax.random.split(jax.random.key(1), 3)
        return RBM(
            0.7 * jax.random.normal(k[0], (4, h)),
            0.5 * jax.random.normal(k[1], (4,)),
            0.5 * jax.random.normal(k[2], (h,)),
        )

    return evaluate(build)


def enumerated_bound(energy, encoder, samples):
    """Σ over all tuples of hidden values of q(z₁)…q(z_S) log mean w, less log Z; as a loss."""
    space = energy.spaces["z"]
    values = space.values()
    tuples = jnp.stack(jnp.meshgrid(*[jnp.arange(space.n_values)] * samples, indexing="ij"), -1)
    tuples = tuples.reshape(-1, samples)

    def row(x):
        q = encoder(x=x)
        log_q = jax.vmap(q.log_prob)(values)
        log_w = -jax.vmap(lambda z: energy(x=x, z=z))(values) - log_q
        bound = jax.nn.logsumexp(log_w[tuples], axis=1) - jnp.log(samples)
        return jnp.exp(log_q[tuples].sum(1)) @ bound

    return energy.log_partition() - jnp.average(jax.vmap(row)(jnp.asarray(X4)), weights=jnp.asarray(WEIGHT))


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("baseline", [False, True])
def test_score_function(samples, baseline):
    energy, encoder = small_rbm(), BernoulliEncoder.random(4, 3, key=2, depth=0)
    objective = ELBO(encoder, samples, ScoreFunction(baseline))
    draws = gradients(objective, energy, Batch({"x": X4}, WEIGHT), 10_000)
    exact = exact_gradient(lambda e, q: enumerated_bound(e, q, samples), energy, encoder)
    assert_unbiased(draws, exact)


def test_baselines_lower_the_variance():
    energy, encoder = small_rbm(), BernoulliEncoder.random(4, 3, key=2, depth=0)
    batch = Batch({"x": (np.random.default_rng(0).random((40, 4)) < 0.5) * 1.0}, np.ones(40))
    spread = lambda s, b: gradients(ELBO(encoder, s, ScoreFunction(b)), energy, batch, 2000).var(0).sum()
    assert spread(1, True) < 0.8 * spread(1, False)
    assert spread(4, True) < 0.8 * spread(4, False)


def test_score_function_with_categorical_hidden_variables():
    from energax.energies import UniformChoices

    energy = Decoder.random(4, UniformChoices(3, 2), key=3, depth=0)
    encoder = CategoricalEncoder.random(4, 3, 2, key=2, depth=0)
    draws = gradients(ELBO(encoder, 1, ScoreFunction()), energy, Batch({"x": X4}, WEIGHT), 10_000, seed=1)
    exact = exact_gradient(lambda e, q: enumerated_bound(e, q, 1), energy, encoder)
    assert_unbiased(draws, exact)


def linear_gaussian():
    """A decoder and an encoder that are both linear, with one hidden variable."""
    decoder = Decoder.random(4, 1, Gaussian(jnp.array(0.8)), key=5, depth=0)
    return decoder, Encoder.random(4, 1, key=6, depth=0)


def quadrature_bound(energy, encoder, samples):
    """The same bound for one real hidden variable, by Gauss–Hermite quadrature in the noise."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[np.arange(40)] * samples, indexing="ij"), -1).reshape(-1, samples)

    def row(x):
        q = encoder(x=x)
        z = q.mean + jnp.sqrt(q.variance) * jnp.asarray(nodes)[:, None]
        log_w = -jax.vmap(lambda z: energy(x=x, z=z))(z) - jax.vmap(q.log_prob)(z)
        bound = jax.nn.logsumexp(log_w[grid], axis=1) - jnp.log(samples)
        return jnp.asarray(weights[grid].prod(1)) @ bound

    return -jnp.average(jax.vmap(row)(jnp.asarray(X4)), weights=jnp.asarray(WEIGHT))


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("estimator", [Reparameterised(), ScoreFunction()], ids=["paths", "scores"])
def test_bounds_with_a_real_hidden_variable(samples, estimator):
    energy, encoder = linear_gaussian()
    draws = gradients(ELBO(encoder, samples, estimator), energy, Batch({"x": X4}, WEIGHT), 10_000)
    exact = exact_gradient(lambda e, q: quadrature_bound(e, q, samples), energy, encoder)
    assert_unbiased(draws, exact)


class TwoCoins(Energy):
    """Four coins, all of one of two biases: a categorical hidden variable without `relaxed_energy`."""

    logits: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(4), "z": Categorical(2)}

    def __call__(self, *, x, z):
        logit = self.logits[z]
        return jnp.log(2.0) - jnp.sum(x * logit - jax.nn.softplus(logit))

    def log_partition(self):
        return jnp.zeros(())


@pytest.mark.parametrize("kind", ["binary", "categorical"])
def test_gumbel_softmax_in_its_relaxed_objective(kind):
    """With two values the relaxed choice is a function of one logistic number: integrated exactly."""
    temperature = 0.7
    u, weights = np.polynomial.legendre.leggauss(200)
    u, weights = (u + 1) / 2, weights / 2
    logistic = jnp.asarray(np.log(u) - np.log1p(-u))
    if kind == "binary":
        energy, encoder = small_rbm(1), BernoulliEncoder.random(4, 1, key=2, depth=0)
    else:
        energy, encoder = TwoCoins(jnp.array([-1.0, 0.7])), CategoricalEncoder.random(4, 2, key=2, depth=0)

    def relaxed(energy, encoder):
        def row(x):
            logits = encoder.network(x)
            logit = logits[0] if kind == "binary" else logits[1] - logits[0]
            s = jax.nn.sigmoid((logit + logistic) / temperature)
            log_q = s * jax.nn.log_sigmoid(logit) + (1 - s) * jax.nn.log_sigmoid(-logit)
            if kind == "binary":
                energies = jax.vmap(lambda s: energy(x=x, z=s[None]))(s)
            else:
                energies = s * energy(x=x, z=1) + (1 - s) * energy(x=x, z=0)
            return jnp.asarray(weights) @ (energies + log_q)

        rows = jax.vmap(row)(jnp.asarray(X4))
        return energy.log_partition() + jnp.average(rows, weights=jnp.asarray(WEIGHT))

    objective = ELBO(encoder, 1, GumbelSoftmax(temperature))
    draws = gradients(objective, energy, Batch({"x": X4}, WEIGHT), 10_000)
    assert_unbiased(draws, exact_gradient(relaxed, energy, encoder))


def test_noise_contrastive():
    """Against the expectation over all 16 values that the noise may take."""
    from numpyro.distributions import Bernoulli

    energy = small_rbm()
    noise = Bernoulli(probs=jnp.array([0.3, 0.6, 0.5, 0.4])).to_event(1)
    objective = NoiseContrastive(noise, k=3, partner=jnp.array(2.0))
    draws = gradients(objective, energy, Batch({"x": X4}, WEIGHT), 10_000)

    def expected(energy, log_z):
        values = Binary(4).values()

        def log_odds(x):
            return -energy.free_energy(x=x) - log_z - noise.log_prob(x) - jnp.log(3.0)

        of_data = jnp.average(
            jax.nn.softplus(-jax.vmap(log_odds)(jnp.asarray(X4))), weights=jnp.asarray(WEIGHT)
        )
        of_noise = jnp.exp(noise.log_prob(values)) @ jax.nn.softplus(jax.vmap(log_odds)(values))
        return of_data + 3 * of_noise

    assert_unbiased(draws, exact_gradient(expected, energy, jnp.array(2.0)))


def real_rows():
    x = np.random.default_rng(0).normal(size=(3, 2))
    return NeuralEnergy.random(2, key=0, width=4, depth=1, confinement=jnp.array(0.5)), x


def test_sliced_score_matching():
    energy, x = real_rows()
    batch = Batch({"x": x}, WEIGHT)
    draws = gradients(ScoreMatching(Sliced(1)), energy, batch, 10_000)
    exact = gradients(ScoreMatching(), energy, batch, 1)[0]
    assert_unbiased(draws, exact)


def test_denoising_score_matching():
    """Against Gauss–Hermite quadrature over the two coordinates of the noise."""
    energy, x = real_rows()
    sigma = 0.4
    draws = gradients(ScoreMatching(Denoising(sigma)), energy, Batch({"x": x}, WEIGHT), 10_000)
    nodes, weights = np.polynomial.hermite_e.hermegauss(30)
    noise = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), -1).reshape(-1, 2)
    share = np.outer(weights, weights).ravel() / weights.sum() ** 2

    def expected(energy, _):
        one = lambda x, e: 0.5 * jnp.sum((sigma * energy.score("x", x=x + sigma * e) + e) ** 2)
        rows = jax.vmap(lambda x: share @ jax.vmap(lambda e: one(x, e))(jnp.asarray(noise)))(jnp.asarray(x))
        return jnp.average(rows, weights=jnp.asarray(WEIGHT))

    assert_unbiased(draws, exact_gradient(expected, energy))


def test_contrastive_divergence_tends_to_the_likelihood():
    """After 30 sweeps the chain of this small RBM does not depend on its start."""
    energy, batch = small_rbm(), Batch({"x": X4}, WEIGHT)
    draws = gradients(ContrastiveDivergence(30), energy, batch, 10_000)
    exact = gradients(NegativeLogLikelihood(), energy, batch, 1)[0]
    assert_unbiased(draws, exact)


def test_contrastive_divergence_stands_still_at_the_model():
    """For rows with the probabilities of the model the chain is stationary, and the mean gradient is 0."""
    energy = small_rbm()
    values = Binary(4).values()
    p = evaluate(lambda: jax.nn.softmax(-jax.vmap(lambda x: energy.free_energy(x=x))(values)))
    draws = gradients(ContrastiveDivergence(1), energy, Batch({"x": values}, p), 10_000)
    stderr = draws.std(0, ddof=1) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0)) < norm.isf(1e-3 / 2 / stderr.size) * stderr).all()
    away = gradients(ContrastiveDivergence(1), energy, Batch({"x": values}, jnp.ones(16)), 10_000)
    assert (np.abs(away.mean(0)) > 10 * stderr).any()  # the test has power elsewhere


def test_persistent_chains_at_the_model():
    """Chains distributed as the model give the exact likelihood gradient."""
    energy, batch = small_rbm(), Batch({"x": X4}, WEIGHT)
    exact = gradients(NegativeLogLikelihood(), energy, batch, 1)[0]
    values = Binary(4).values()
    log_p = evaluate(lambda: -jax.vmap(lambda x: energy.free_energy(x=x))(values))
    objective = ContrastiveDivergence(1, persistent=True)

    def one(key):
        start, chain = jax.random.split(key)
        carry = {"x": values[jax.random.categorical(start, log_p, shape=(8,))]}
        loss = lambda e: sum(objective(e, batch, carry, chain)[0].values())
        return ravel_pytree(jax.grad(loss)(energy))[0]

    assert_unbiased(many(one, 10_000), exact)


class Quadratic(Energy):
    """½ λ‖x‖² + w·x: every mean over normal draws has a closed form."""

    stiffness: jax.Array
    slope: jax.Array

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return 0.5 * self.stiffness * x @ x + self.slope @ x


class NormalDraws(eqx.Module):
    """A generator that draws N(mean, scale² I)."""

    mean: jax.Array
    scale: jax.Array

    def draw(self, key):
        return self.mean + self.scale * jax.random.normal(key, self.mean.shape, self.mean.dtype)


def test_adversarial():
    """Both players, each with the other fixed; without the discrepancy, whose mean has no closed form."""
    energy = Quadratic(jnp.array(0.7), jnp.array([0.4, -0.9]))
    generator = NormalDraws(jnp.array([1.0, 0.5]), jnp.array(0.6))
    x = np.random.default_rng(0).normal(size=(3, 2))
    objective = Adversarial(generator, diversity=0.0, smoothness=2.0)
    draws = gradients(objective, energy, Batch({"x": x}, WEIGHT), 10_000)
    fixed = jax.lax.stop_gradient

    def of_data(e):
        free = jax.vmap(lambda x: e(x=x))(jnp.asarray(x))
        steep = ((e.stiffness * jnp.asarray(x) + e.slope) ** 2).sum(1)
        return (jnp.average(v, weights=jnp.asarray(WEIGHT)) for v in (free, steep))

    def of_draws(e, g):
        free = e(x=g.mean) + e.stiffness * g.scale**2  # ½ λ times the trace of 2-by-2 scale²
        steep = ((e.stiffness * g.mean + e.slope) ** 2).sum() + 2 * (e.stiffness * g.scale) ** 2
        return free, steep

    def expected(e, g):
        free, steep = of_data(e)
        made, made_steep = of_draws(e, fixed(g))
        return free - made + 0.5 * 2.0 * 0.5 * (steep + made_steep) + of_draws(fixed(e), g)[0]

    assert_unbiased(draws, exact_gradient(expected, energy, generator))


@pytest.mark.parametrize(("batch_size", "within"), [(None, 1e-9), (50, 0.05)])
def test_minibatch_em_of_one_gaussian_comes_to_its_moments(batch_size, within):
    """From a start 100 standard deviations away: statistics are centred at θ, and recentred as θ moves.

    One component makes every posterior 1, so that the answer is the mean and covariance of the
    rows: exactly, if every batch holds all of them, else within the noise of a decaying average.
    """
    x = np.random.default_rng(0).normal(size=(200, 2)) @ np.array([[1.0, 0.4], [0.0, 0.7]]) + 3.0
    far = Mixture(Gaussians(jnp.full((1, 2), -100.0), jnp.eye(2)[None]))
    done = fit(far, {"x": x}, EM(decay=0.9), epochs=40, batch_size=batch_size, key=0)
    found = done.energy.components
    np.testing.assert_allclose(found.means[0], x.mean(0), rtol=0, atol=within)
    covariance = found.covariance.dense(1, 2)[0]
    np.testing.assert_allclose(covariance, np.cov(x.T, bias=True), rtol=0, atol=2 * within + 1e-5)
