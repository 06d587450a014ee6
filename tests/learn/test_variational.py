"""Every bound lies below log p(x), tightens with more samples, and is tight at the posterior."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Categorical, MultivariateNormal, Normal
from quick import evaluate

from energax import fit
from energax.batch import Batch
from energax.energies import RBM, Decoder, Gaussian, NeuralEnergy, UniformChoices
from energax.energy import free_energy
from energax.errors import BadInput, Unsuitable
from energax.learn import (
    ELBO,
    Descent,
    GumbelSoftmax,
    OptimalBaseline,
    Reparameterised,
    ScoreFunction,
    StraightThrough,
)
from energax.learn._variational import _bound_without_each, count_active
from energax.missing import Masked
from energax.nn import BernoulliEncoder, CategoricalEncoder, Encoder

WEIGHT = jnp.array([[1.0, 0.3], [-0.5, 0.8], [0.2, 0.0]])
SIGMA = 0.6
ROWS = jnp.array([[0.3, -1.0, 0.5], [1.2, 0.1, 0.0], [-0.7, 0.4, 2.0]])


def decoder():
    return Decoder(lambda z: WEIGHT @ z, 2, Gaussian(SIGMA))


def evidence(rows):
    """log N(x; 0, WWᵀ + σ²I): the exact log p(x) of the linear decoder."""
    covariance = np.asarray(WEIGHT) @ np.asarray(WEIGHT).T + SIGMA**2 * np.eye(3)
    return evaluate(lambda: MultivariateNormal(jnp.zeros(3), covariance).log_prob(rows))


def posterior(x):
    """The exact p(z | x), as an encoder."""
    precision = jnp.eye(2) + WEIGHT.T @ WEIGHT / SIGMA**2
    return MultivariateNormal(
        jnp.linalg.solve(precision, WEIGHT.T @ x) / SIGMA**2, precision_matrix=precision
    )


def bounds(encoder, samples, n, energy=None, rows=ROWS, estimator=None):
    """(mean bound, standard error) over n independent keys."""
    energy = decoder() if energy is None else energy
    batch = Batch({"x": rows}, jnp.ones(len(rows)))
    objective = ELBO(encoder, samples, estimator)
    one = lambda key: -sum(objective(energy, batch, None, key)[0].values())
    draw = lambda: jax.lax.map(one, jax.random.split(jax.random.key(0), n), batch_size=200)
    draws = np.asarray(evaluate(draw) if n < 100 else jax.jit(draw)())
    return draws.mean(), draws.std() / np.sqrt(n)


def test_elbo_below_iwae_below_the_evidence():
    """Strictly, by 4 standard errors each, for an encoder that is not the posterior."""
    prior = lambda x: Normal(jnp.zeros(2), jnp.ones(2)).to_event(1)
    exact = float(evidence(ROWS).mean())
    one, few, many = (bounds(prior, s, 2000) for s in (1, 5, 50))
    assert one[0] + 4 * np.hypot(one[1], few[1]) < few[0]
    assert few[0] + 4 * np.hypot(few[1], many[1]) < many[0]
    assert many[0] < exact - 4 * many[1]
    assert exact - many[0] < 0.3


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("estimator", [Reparameterised(), ScoreFunction()], ids=["paths", "scores"])
def test_at_the_posterior_the_bound_is_the_evidence_without_noise(samples, estimator):
    mean, stderr = bounds(posterior, samples, 20, estimator=estimator)
    assert abs(mean - evidence(ROWS).mean()) < 1e-4 and stderr < 1e-5


def test_a_discrete_bound_below_the_enumerated_evidence():
    energy = RBM.random(4, 3, key=0, scale=1.0)
    rows = jnp.array([[1.0, 0, 1, 0], [0, 1, 1, 1]])
    mean_log_p = lambda: -jax.vmap(lambda x: energy.free_energy(x=x))(rows).mean() - energy.log_partition()
    exact = float(evaluate(mean_log_p))
    encoder = BernoulliEncoder.random(4, 3, key=1)
    one, many = (bounds(encoder, s, 2000, energy, rows, ScoreFunction()) for s in (1, 20))
    assert one[0] + 4 * one[1] < many[0] < exact + 4 * many[1]
    assert one[0] < exact - 4 * one[1]


def test_gumbel_softmax_tends_to_the_elbo():
    """At temperature 0.01 the relaxed bound is the ELBO of the discrete variables, within its noise."""
    rows = jnp.array([[1.0, 0, 1, 0], [0, 1, 1, 1]])
    cases = [
        (RBM.random(4, 3, key=0, scale=1.0), BernoulliEncoder.random(4, 3, key=1)),
        (Decoder.random(4, UniformChoices(3, 2), key=0), CategoricalEncoder.random(4, 3, 2, key=1)),
    ]
    for energy, encoder in cases:
        hard = bounds(encoder, 1, 4000, energy, rows, ScoreFunction())
        soft = bounds(encoder, 1, 4000, energy, rows, GumbelSoftmax(0.01))
        assert abs(hard[0] - soft[0]) < 4 * np.hypot(hard[1], soft[1]) + 0.01


def test_missing_coordinates_are_bounded_by_what_is_seen():
    """With missing coordinates the bound is on log p of the observed ones."""
    seen = jnp.array([True, True, False])
    rows = Masked(ROWS, jnp.tile(seen, (3, 1)))
    covariance = (np.asarray(WEIGHT) @ np.asarray(WEIGHT).T + SIGMA**2 * np.eye(3))[:2, :2]
    exact = evaluate(lambda: MultivariateNormal(jnp.zeros(2), covariance).log_prob(ROWS[:, :2]).mean())
    prior = lambda x: Normal(jnp.zeros(2), jnp.ones(2)).to_event(1)
    batch = Batch({"x": rows}, jnp.ones(3))
    one = lambda i: ELBO(prior, 2000)(decoder(), batch, None, jax.random.key(i))[0]
    losses = [evaluate(lambda i=i: one(i)) for i in range(5)]
    found = -np.mean([float(sum(terms.values())) for terms in losses])
    assert abs(found - exact) < 0.05


def test_an_encoder_may_see_the_mask():
    encoder = Encoder.random(3, 2, key=0, sees_mask=True)
    x = jnp.array([1.0, 0.0, 2.0])
    full, partly = encoder(x=x), encoder(x=Masked(x, jnp.array([True, False, True])))
    assert not np.allclose(full.mean, partly.mean)
    blind = Encoder.random(3, 2, key=0)
    hidden = Masked(jnp.array([1.0, 7.0, 2.0]), jnp.array([True, False, True]))
    np.testing.assert_allclose(blind(x=hidden).mean, blind(x=x).mean)


def test_terms_are_named_and_weights_count():
    batch = Batch({"x": ROWS}, jnp.array([1.0, 0.0, 0.0]))
    terms, _ = evaluate(lambda: ELBO(posterior)(decoder(), batch, None, jax.random.key(0)))
    assert set(terms) == {"energy", "negative entropy", "log partition"}
    assert np.isclose(-sum(terms.values()), evidence(ROWS)[0], rtol=1e-4)


def test_refusals():
    encoder, x = Encoder.random(4, 2, key=0), {"x": np.zeros((2, 4))}
    with pytest.raises(Unsuitable, match="GumbelSoftmax"):
        ELBO(encoder).check(RBM.random(4, 3, key=0), x)
    with pytest.raises(Unsuitable, match=r"one hidden variable.*ScoreMatching"):
        ELBO(encoder).check(NeuralEnergy.random(4, key=0), x)
    with pytest.raises(Unsuitable, match="Reparameterised"):
        ELBO(encoder, 1, GumbelSoftmax()).check(Decoder.random(4, 2, key=0), x)
    with pytest.raises(Unsuitable, match="encoder"):
        ELBO(None).check(Decoder.random(4, 2, key=0), x)
    with pytest.raises(Unsuitable, match="log Z"):
        ELBO(encoder, 1, ScoreFunction()).check(RBM.random(40, 40, key=0), {"x": np.zeros((2, 40))})
    with pytest.raises(Unsuitable, match="OptimalBaseline"):
        ELBO(encoder, 1, ScoreFunction(OptimalBaseline())).check(Decoder.random(4, 2, key=0), x)
    with pytest.raises(BadInput, match="samples"):
        ELBO(encoder, 0)
    with pytest.raises(BadInput, match="temperature"):
        GumbelSoftmax(0.0)


@pytest.mark.parametrize(
    "estimator",
    [GumbelSoftmax(), ScoreFunction(), ScoreFunction(-1.5), StraightThrough(0.5)],
    ids=["gumbel", "scores", "constant", "through"],
)
def test_a_discrete_cause_is_found(estimator):
    """Two patterns, one hidden bit: the exact log-likelihood is close to −log 2, the negative entropy."""
    import optax

    X = np.tile([[1.0, 1, 0, 0], [0, 0, 1, 1]], (32, 1)).astype(np.float32)
    energy = Decoder.random(4, UniformChoices(2), key=0)
    learner = Descent(ELBO(CategoricalEncoder.random(4, 2, key=1), 1, estimator), optax.adam(0.02))
    done = fit(energy, {"x": X}, learner, key=2, epochs=300)
    log_p = -evaluate(lambda: jax.vmap(lambda x: free_energy(done.energy, {"x": x}))(X).mean())
    assert log_p > -np.log(2) - 0.1


class _Forgetful(eqx.Module):
    """An encoder whose hidden coordinates are a batch, not an event."""

    def __call__(self, *, x):
        from numpyro.distributions import Normal

        return Normal(x[:2], 1.0)


@pytest.mark.parametrize("estimator", [None, ScoreFunction()])
def test_an_encoder_answers_by_one_distribution_over_all_that_is_hidden(estimator):
    batch = Batch({"x": jnp.ones((3, 4))}, jnp.ones(3))
    objective = ELBO(_Forgetful(), estimator=estimator)
    with pytest.raises(BadInput, match=r"encoder: .*batch shape \(2,\).*Try .to_event\(1\)"):
        objective(Decoder.random(4, 2, key=0), batch, None, jax.random.key(0))


def test_the_baseline_of_several_samples_replaces_each_by_the_others():
    """Mnih and Rezende (2016), equation 10: by their geometric mean, of the same row."""
    log_w = np.random.default_rng(0).normal(size=(2, 3))
    found = evaluate(lambda: _bound_without_each(jnp.asarray(log_w)))
    for row, baselines in zip(log_w, found, strict=True):
        for s, baseline in enumerate(baselines):
            others = np.delete(row, s)
            replaced = np.append(others, others.mean())
            np.testing.assert_allclose(baseline, np.log(np.exp(replaced).mean()), atol=1e-6)


def test_units_are_active_if_their_means_vary_over_rows_with_weight():
    """The third row alone differs in the second unit: without its weight only the first unit varies."""
    means = jnp.array([[0.0, 1.0], [0.3, 1.0], [0.3, 0.0], [0.0, 1.0]])
    count = lambda weight: float(evaluate(lambda: count_active(means, jnp.asarray(weight))))
    assert count([1.0, 1.0, 1.0, 1.0]) == 2 and count([1.0, 2.0, 0.0, 3.0]) == 1
    assert count([0.0, 2.0, 0.0, 0.0]) == 0


@pytest.mark.parametrize("encoder", [Encoder.random(5, 2, key=0), lambda x, y: None], ids=["size", "names"])
def test_an_encoder_that_does_not_take_the_rows_is_named(encoder):
    with pytest.raises(BadInput, match=r"encoder.*fails for x of shape \(3,\)"):
        ELBO(encoder).check(decoder(), {"x": ROWS})


def test_a_beta_of_one_of_any_kind_is_the_bound():
    assert ELBO(posterior, 3, beta=np.float32(1)).samples == 3


class Guess(eqx.Module):
    """q(z | x), the same for all x."""

    logits: jax.Array

    def __call__(self, *, x):
        return Categorical(logits=self.logits)


@pytest.mark.parametrize(
    ("samples", "baseline", "beta"), [(1, False, 3.0), (1, True, 3.0), (1, 1.5, 1.0), (3, True, 1.0)]
)
def test_scores_have_the_gradient_of_the_sum_over_all_draws(samples, baseline, beta):
    """E of the gradient of few rows, one of weight 0, is that of the bound by enumeration."""
    table = jnp.array([[0.2, 1.5, -1.0], [1.0, 0.0, 2.0]])
    energy = Decoder(lambda z: table @ z, UniformChoices(3))
    x, start = jnp.array([1.0, 0.0]), Guess(jnp.array([0.5, -0.3, 0.1]))
    objective = lambda q: ELBO(q, samples, ScoreFunction(baseline), beta=beta)

    def exact(q):
        log_q, z = jax.nn.log_softmax(q.logits), jnp.arange(3)
        log_w = -jax.vmap(lambda z: energy(x=x, z=z))(z) - log_q - (beta - 1) * (log_q + jnp.log(3.0))
        draws = jnp.stack(jnp.meshgrid(*[z] * samples)).reshape(samples, -1)
        loss = jnp.log(samples) - jax.nn.logsumexp(log_w[draws], axis=0)
        return jnp.exp(log_q[draws].sum(0)) @ loss

    batch = Batch({"x": jnp.tile(x, (3, 1))}, jnp.array([1.0, 2.0, 0.0]))
    loss = lambda q, key: sum(objective(q)(energy, batch, None, key)[0].values())
    one = lambda key: jax.grad(loss)(start, key).logits
    keys = jax.random.split(jax.random.key(0), 60_000)
    gradients = np.asarray(jax.jit(lambda: jax.lax.map(one, keys, batch_size=5000))())
    error = gradients.std(0, ddof=1) / np.sqrt(len(gradients))
    assert (np.abs(gradients.mean(0) - evaluate(lambda: jax.grad(exact)(start)).logits) < 4.5 * error).all()


def test_validation_rows_have_the_number_beta():
    batch, key = Batch({"x": ROWS}, jnp.ones(3)), jax.random.key(0)
    objective = ELBO(posterior, beta=3.0)
    found, same = evaluate(
        lambda: (objective.validate(decoder(), batch, None, key), objective(decoder(), batch, None, key)[0])
    )
    assert found == same and float(found["beta"]) != 0


def test_units_are_active_by_the_weighted_variance_of_their_means():
    means = jnp.array([[0.0, 1.0], [0.0, -1.0], [9.0, 0.0]])
    assert count_active(means, jnp.array([1.0, 1.0, 0.0])) == 1
    assert count_active(means, jnp.array([2.0, 1.0, 1e-3])) == 2
