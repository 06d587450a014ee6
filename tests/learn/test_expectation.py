"""The mean of every gradient estimator is the gradient that it claims, and baselines lower its variance.

The mean of N independent gradients is compared with the exact one, coordinate by coordinate. The false-alarm
rate of a test is 1e-3 over its coordinates (Bonferroni); seeds are fixed. The standard errors must also be
small beside the gradient, so that a test has power.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Bernoulli, Categorical, Gamma, Normal, Poisson
from quick import evaluate
from scipy.stats import norm

from energax import programs
from energax.errors import BadInput, Unsuitable
from energax.learn import (
    GumbelSoftmax,
    LearnedBaseline,
    LeaveOneOut,
    OptimalBaseline,
    Reparameterised,
    ScoreFunction,
    StraightThrough,
)

LOGITS = np.array([[0.3, -0.8, 1.0], [0.0, 0.5, -0.4]], np.float32)
COST = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32) + 2
N = 8

normal = lambda p: Normal(p[:2], jnp.exp(p[2:])).to_event(1)
cube = lambda z: (z[0] - 1) ** 2 * z[1] + z[1] ** 2
normal_at = np.array([0.4, 1.2, -0.3, 0.2], np.float32)
pair = lambda p: Categorical(logits=p).to_event(1)
price = lambda z: jnp.asarray(COST)[z[0], z[1]]
one_hot_price = lambda s: s[0] @ jnp.asarray(COST) @ s[1]


@programs.jit
def _gradients(surrogate, at, keys):
    return jax.vmap(lambda key: jax.grad(surrogate)(at, key))(keys)


def gradients(estimator, f, q, at, n=4000, seed=0):
    """(n, parameters): gradients of n independent surrogates of N draws each."""
    surrogate = lambda at, key: estimator.surrogate(f, q(at), key, N)
    found = _gradients(surrogate, jnp.asarray(at), jax.random.split(jax.random.key(seed), n))
    return np.asarray(found, float).reshape(n, -1)


def assert_mean(draws, exact, rate=1e-3, power=0.1):
    stderr = draws.std(0, ddof=1) / np.sqrt(len(draws))
    limit = norm.isf(rate / 2 / stderr.size)
    assert (np.abs(draws.mean(0) - exact) < limit * stderr + 1e-5).all()
    assert np.linalg.norm(stderr) < power * np.linalg.norm(exact), "too noisy to tell"


@functools.cache
def normal_gradient():
    """Of E[(z₀ − 1)² z₁ + z₁²] = ((m₀ − 1)² + s₀²) m₁ + m₁² + s₁²."""
    expected = lambda p: ((p[0] - 1) ** 2 + jnp.exp(2 * p[2])) * p[1] + p[1] ** 2 + jnp.exp(2 * p[3])
    return np.asarray(jax.grad(expected)(jnp.asarray(normal_at)))


@functools.cache
def pair_gradient():
    """Of Σ_ij p_i p'_j cost_ij, by enumeration."""
    expected = lambda p: jnp.einsum("i,j,ij->", *jax.nn.softmax(p), jnp.asarray(COST))
    return np.asarray(jax.grad(expected)(jnp.asarray(LOGITS))).ravel()


BASELINES = {"none": False, "constant": 2.0, "others": True, "optimal": OptimalBaseline()}


@pytest.mark.parametrize("baseline", [*BASELINES, "learned"])
def test_the_score_function_of_normal_and_of_categorical_draws(baseline):
    given = BASELINES.get(baseline, LearnedBaseline(jnp.array(1.5)))
    assert_mean(gradients(ScoreFunction(given), cube, normal, normal_at), normal_gradient())
    assert_mean(gradients(ScoreFunction(given), price, pair, LOGITS), pair_gradient())


def test_reparameterised_draws():
    assert_mean(gradients(Reparameterised(), cube, normal, normal_at), normal_gradient())
    # Gamma draws have implicit gradients: E[z²] = a (a + 1).
    draws = gradients(Reparameterised(), lambda z: z**2, lambda a: Gamma(a, 1.0), np.float32(1.7), 2000)
    assert_mean(draws, 2 * 1.7 + 1)


def test_relaxed_gradients_are_those_of_the_relaxed_expectation():
    """For one bit, by quadrature over the logistic noise: z = σ((a + noise) / temperature)."""
    temperature, at, f = 0.6, 0.7, lambda z: (z - 0.2) ** 3
    u = (np.arange(20_000) + 0.5) / 20_000
    noise = np.log(u) - np.log1p(-u)
    s = 1 / (1 + np.exp(-(at + noise) / temperature))
    exact = (3 * (s - 0.2) ** 2 * s * (1 - s) / temperature).mean()
    coin = lambda a: Bernoulli(logits=a)
    assert_mean(gradients(GumbelSoftmax(temperature), f, coin, np.float32(at)), exact)
    # Straight through, the derivative of f is that at 0 and 1, of which p = σ(a) are 1.
    p = 1 / (1 + np.exp(-at))
    biased = p * (1 - p) * 3 * (p * 0.8**2 + (1 - p) * 0.2**2)
    assert_mean(gradients(StraightThrough(), f, coin, np.float32(at)), biased)
    slope = s * (1 - s) / temperature * 3 * np.where(at + noise > 0, 0.8**2, 0.2**2)
    assert_mean(gradients(StraightThrough(temperature), f, coin, np.float32(at)), slope.mean())
    assert abs(biased / (p * (1 - p) * (0.8**3 + 0.2**3)) - 1) > 0.5  # not the gradient of E[f]


def test_relaxed_gradients_tend_to_the_discrete_one():
    """Straight-through is exact where f is linear; Gumbel-softmax is near it at a low temperature."""
    linear = lambda s: (s * jnp.asarray(COST[:2])).sum()
    expected = lambda p: (jax.nn.softmax(p) * jnp.asarray(COST[:2])).sum()
    exact = np.asarray(jax.grad(expected)(jnp.asarray(LOGITS))).ravel()
    draws = gradients(StraightThrough(), linear, pair, LOGITS, 50)
    np.testing.assert_allclose(draws, np.tile(exact, (50, 1)), atol=1e-6)
    cold = gradients(GumbelSoftmax(0.1), one_hot_price, pair, LOGITS, 20_000).mean(0)
    warm = gradients(GumbelSoftmax(2.0), one_hot_price, pair, LOGITS).mean(0)
    off = lambda g: np.linalg.norm(g - pair_gradient())
    assert off(cold) < 0.1 * np.linalg.norm(pair_gradient()) < off(warm)


def test_the_value_is_the_mean_of_f_and_draws_are_of_q():
    """Straight-through and score-function draws have the frequencies of q: χ² with 8 degrees of freedom."""
    keys = jax.random.split(jax.random.key(1), 2000)
    values = jax.vmap(lambda k: StraightThrough().sample(pair(jnp.asarray(LOGITS)), k, N)[0])(keys)
    counts = np.asarray(values, float).reshape(-1, 2, 3)
    table = np.einsum("ni,nj->ij", counts[:, 0], counts[:, 1])
    p = np.asarray(jax.nn.softmax(LOGITS))
    expected = len(counts) * np.outer(p[0], p[1])
    assert ((table - expected) ** 2 / expected).sum() < 26.1  # the 0.999 quantile
    q, key = normal(jnp.asarray(normal_at)), jax.random.key(0)
    z, _ = ScoreFunction().sample(q, key, N)
    assert float(ScoreFunction().surrogate(cube, q, key, N)) == pytest.approx(
        float(jax.vmap(cube)(z).mean()), rel=1e-6
    )


def test_baselines_lower_the_variance_and_the_optimal_one_most():
    """For f = z², z ~ N(m, 1) and the score s = z − m, moments of ε give the variance of one draw.

    Var[(f − b) s] = E[f² s²] − 2 b E[f s²] + b² − (2m)², least at b = E[f s²] = m² + 3.
    """
    m = 3.0
    q, f, at = (lambda p: Normal(p, jnp.ones(()))), jnp.square, np.float32(m)
    variance = lambda b: N * gradients(ScoreFunction(b), f, q, at, 20_000).var()
    exact = lambda b: m**4 + 18 * m**2 + 15 - 2 * b * (m**2 + 3) + b**2 - 4 * m**2
    # The relative standard error of a variance of 20000 numbers with a kurtosis below 9 is below 0.02.
    assert variance(False) == pytest.approx(exact(0), rel=0.08)
    assert variance(m**2 + 1) == pytest.approx(exact(m**2 + 1), rel=0.08)
    assert variance(m**2 + 3) == pytest.approx(exact(m**2 + 3), rel=0.08)
    assert exact(m**2 + 3) < exact(m**2 + 1) < exact(0)
    # Estimated from the 7 other draws, baselines cost about b's own variance / 7 more.
    assert variance(True) < 0.7 * variance(False)
    assert variance(OptimalBaseline()) < 0.7 * variance(False)


def test_with_many_draws_the_optimal_baseline_is_at_least_as_good_as_the_mean():
    """Of each parameter of a normal distribution; 256 draws estimate b well."""
    at = jnp.asarray(normal_at)

    def spread(baseline):
        one = lambda at, key: ScoreFunction(baseline).surrogate(cube, normal(at), key, 256)
        keys = jax.random.split(jax.random.key(3), 3000)
        return np.asarray(_gradients(one, at, keys)).var(0)

    mean, optimal, none = spread(LeaveOneOut()), spread(OptimalBaseline()), spread(False)
    assert (optimal < 1.1 * mean).all() and (mean < none).all()
    # f and s² are correlated, so that the best baseline is not the mean of f. A ratio of variances of
    # 3000 gradients from the same draws has a relative error of about 0.02.
    assert (optimal < 0.92 * mean).any()


def test_a_learned_baseline_learns_the_mean_of_f():
    """Its gradient is that of the squared error, in an array and in a function of the context."""

    def loss(baseline, context):
        q = normal(jnp.asarray(normal_at))
        return ScoreFunction(baseline).surrogate(cube, q, jax.random.key(0), N, context=context)

    z, _ = ScoreFunction().sample(normal(jnp.asarray(normal_at)), jax.random.key(0), N)
    mean = float(jax.vmap(cube)(z).mean())
    slope = jax.grad(loss)(LearnedBaseline(jnp.array(0.5)), None)
    assert float(slope.value) == pytest.approx(0.5 - mean, rel=1e-5)
    line = eqx.nn.Linear(2, "scalar", key=jax.random.key(1))
    context = jnp.array([1.0, -2.0])
    slope = eqx.filter_grad(loss)(LearnedBaseline(line), context)
    error = float(line(context)) - mean
    np.testing.assert_allclose(slope.value.weight, error * context[None], rtol=1e-4)


@pytest.mark.parametrize(
    ("ask", "error", "sentence"),
    [
        (lambda f, k: Reparameterised().surrogate(f, Bernoulli(0.3), k), Unsuitable, "Use ScoreFunction"),
        (lambda f, k: GumbelSoftmax().surrogate(f, Normal(0.0, 1.0), k), Unsuitable, "Use Reparameterised"),
        (lambda f, k: StraightThrough().surrogate(f, Poisson(2.0), k), Unsuitable, "Use ScoreFunction"),
        (lambda f, k: ScoreFunction().surrogate(f, Normal(0.0, 1.0), k), BadInput, "baseline=False"),
        (lambda f, k: ScoreFunction(False).surrogate(f, Normal(jnp.zeros(2), 1.0), k), BadInput, "to_event"),
        (
            lambda f, k: ScoreFunction(False).surrogate(lambda z: z[None], Normal(0.0, 1.0), k),
            BadInput,
            "scalar",
        ),
        (lambda f, k: ScoreFunction("mean"), BadInput, "LeaveOneOut"),
        (lambda f, k: StraightThrough(0.0), BadInput, "temperature"),
        (lambda f, k: ScoreFunction(False).surrogate(f, Normal(0.0, 1.0), k, 0), BadInput, "n: found 0"),
    ],
)
def test_refusals(ask, error, sentence):
    with pytest.raises(error, match=sentence):
        ask(lambda z: z, jax.random.key(0))


@pytest.mark.parametrize("baseline", [False, True, OptimalBaseline()], ids=["none", "others", "optimal"])
def test_scores_of_coins_start_well_at_logits_of_exactly_zero(baseline):
    """∂ E[f(z)] / ∂ logit = p (1 − p) (f(1) − f(0)), in spite of the kink of NumPyro's formula there."""
    f = lambda z: 4.0 * z[0] - 3.0
    loss = lambda logits: ScoreFunction(baseline).surrogate(
        f, Bernoulli(logits=logits).to_event(1), jax.random.key(0), 40_000
    )
    np.testing.assert_allclose(evaluate(lambda: jax.grad(loss)(jnp.zeros(2))), [1.0, 0.0], atol=0.05)
