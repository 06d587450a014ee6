"""Noise-contrastive estimation: stationary at the true parameters, for any noise."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpyro.distributions import Bernoulli, Normal
from quick import evaluate

from energax import Energy, fit
from energax.batch import Batch
from energax.energies import RBM, Gaussians, Linear, NeuralEnergy
from energax.errors import BadInput, Unsuitable
from energax.learn import ContrastiveDivergence, Descent, NoiseContrastive, ScoreMatching
from energax.missing import Masked
from energax.mixture import Mixture
from energax.spaces import Binary, Interval, Positive, Simplex, Space, parameter


def test_the_gradient_vanishes_at_the_model_with_its_log_partition():
    """Data in the proportions of the model, noise enumerated: a stationary point, in θ and in log Z."""
    with jax.enable_x64(True):
        rbm = RBM.random(4, 3, key=0, scale=1.0)
        values = Binary(4).values()
        noise = Bernoulli(probs=jnp.array([0.3, 0.6, 0.5, 0.4])).to_event(1)
        p = evaluate(lambda: jax.nn.softmax(-jax.vmap(lambda x: rbm.free_energy(x=x))(values)))
        pn = evaluate(lambda: jnp.exp(noise.log_prob(values)))

        def expected(energy, log_z, k=5):
            odds = lambda x: -energy.free_energy(x=x) - log_z - noise.log_prob(x) - jnp.log(k)
            g = jax.vmap(odds)(values)
            return p @ jax.nn.softplus(-g) + k * pn @ jax.nn.softplus(g)

        slope = jax.grad(expected, argnums=(0, 1))
        slopes = jax.tree.leaves(evaluate(lambda: slope(rbm, rbm.log_partition())))
        assert max(float(np.abs(s).max()) for s in slopes) < 1e-12
        off = evaluate(lambda: slope(rbm, rbm.log_partition() + 0.1)[1])
        assert off > 1e-3


def test_log_partition_is_learned_for_a_gaussian():
    """e(x) = λx²/2: both λ = 1/variance and log Z = ½ log 2π/λ, from a poor start."""
    x = (2.0 * np.random.default_rng(0).normal(size=(4000, 1))).astype(np.float32)
    energy = NeuralEnergy(lambda x: 0.0, 1, confinement=jnp.array(1.0))
    objective = NoiseContrastive(Normal(jnp.zeros(1), 3.0).to_event(1), k=10, partner=jnp.array(0.0))
    schedule = optax.cosine_decay_schedule(0.03, 1200)
    done = fit(energy, {"x": x}, Descent(objective, optax.adam(schedule)), key=0, epochs=60, batch_size=200)
    precision = float(done.energy.confinement)
    assert abs(precision * x.var() - 1) < 0.06  # about 3 standard errors of the estimate
    assert abs(float(done.partner) - 0.5 * np.log(2 * np.pi / precision)) < 0.06


def test_log_partition_starts_at_an_importance_estimate():
    rbm = RBM.random(6, 3, key=0, scale=0.3)
    X = (np.random.default_rng(0).random((50, 6)) < 0.5).astype(np.float32)
    objective = NoiseContrastive.matched(rbm, {"x": X})
    batch = Batch({"x": X}, jnp.ones(50))
    start = evaluate(lambda: objective.init_partner(rbm, batch, jax.random.key(0)))
    assert abs(float(start) - float(evaluate(rbm.log_partition))) < 0.2


def test_an_energy_may_be_the_noise():
    mixture = Mixture(Gaussians(jnp.array([[-1.0], [2.0]]), covariance=jnp.ones((2, 1, 1))))
    noise = NoiseContrastive(mixture, k=2).noise
    draws = np.asarray(evaluate(lambda: noise.sample(jax.random.key(0), (2000, 2))))
    assert draws.shape == (2000, 2, 1) and abs(draws.mean() - 0.5) < 4 * np.sqrt((1 + 2.25) / 4000)
    grid = np.linspace(-12, 12, 2001, dtype=np.float32)
    density = np.exp(evaluate(lambda: noise.log_prob(jnp.asarray(grid[:, None]))))
    assert abs(np.trapezoid(density, grid) - 1) < 1e-3


def test_matched_noise_has_the_moments_of_the_data():
    rng = np.random.default_rng(0)
    x = rng.multivariate_normal([1.0, -2.0], [[2.0, 0.8], [0.8, 1.0]], size=500)
    noise = NoiseContrastive.matched(NeuralEnergy.random(2, key=0), {"x": x}).noise
    np.testing.assert_allclose(noise.mean, x.mean(0), rtol=1e-4)
    np.testing.assert_allclose(noise.covariance_matrix, np.cov(x.T, bias=True), atol=5e-3)
    coins = (rng.random((300, 3)) < [0.1, 0.5, 1.0]).astype(np.float32)
    noise = NoiseContrastive.matched(RBM.random(3, 2, key=0), {"x": coins}).noise
    np.testing.assert_allclose(noise.mean, (coins.sum(0) + 0.5) / 301, rtol=1e-4)  # never 0 or 1
    constant = NoiseContrastive.matched(NeuralEnergy.random(2, key=0), {"x": np.ones((5, 2))}).noise
    assert np.isfinite(constant.log_prob(jnp.ones(2)))


class Anywhere(Energy):
    """An energy over one variable in a given space."""

    space: Space = eqx.field(static=True)

    @property
    def spaces(self):
        return {"x": self.space}

    def __call__(self, *, x):
        return 0.0 * jnp.sum(x)


@pytest.mark.parametrize("space", [Positive(), Positive(2), Interval(-1, 3, 2)], ids=repr)
def test_matched_noise_in_other_spaces_is_a_density_near_the_data(space):
    """Matched in ℝⁿ: there the noise has the moments of the data; in its space it integrates to one."""
    rng = np.random.default_rng(0)
    normal = rng.normal(0.3, 0.7, (500, *space.shape))
    x = np.asarray(evaluate(lambda: space.bijection(normal)))
    noise = NoiseContrastive.matched(Anywhere(space), {"x": x}).noise
    assert noise.event_shape == space.shape
    draws = np.asarray(evaluate(lambda: noise.sample(jax.random.key(0), (4000,))))
    space.check(draws)
    back, there = (np.asarray(evaluate(lambda v=v: space.bijection.inv(jnp.asarray(v)))) for v in (draws, x))
    np.testing.assert_allclose(back.mean(0), there.mean(0), atol=4 * 0.7 / np.sqrt(4000))
    np.testing.assert_allclose(back.std(0), there.std(0), rtol=0.08)
    low, high = (1e-4, 12.0) if isinstance(space, Positive) else (-1 + 1e-4, 3 - 1e-4)
    axis = np.linspace(low, high, 301, dtype=np.float32)
    grid = np.stack(np.meshgrid(*[axis] * (space.size or 1), indexing="ij"), -1).reshape(-1, *space.shape)
    density = np.exp(evaluate(lambda: noise.log_prob(jnp.asarray(grid))))
    total = density.sum() * (axis[1] - axis[0]) ** space.size
    assert abs(total - 1) < 0.01


def test_matched_noise_on_a_simplex():
    x = np.random.default_rng(0).dirichlet([3.0, 2.0, 4.0], 2000).astype(np.float32)
    objective = NoiseContrastive.matched(Anywhere(Simplex(3)), {"x": x})
    draws = np.asarray(evaluate(lambda: objective.noise.sample(jax.random.key(0), (4000,))))
    Simplex(3).check(draws)
    # A normal in ℝⁿ is not a Dirichlet, so the means are only close.
    np.testing.assert_allclose(draws.mean(0), x.mean(0), atol=0.03)
    # A density over the first two coordinates; the third is one minus their sum.
    axis = (np.arange(300, dtype=np.float32) + 0.5) / 300
    first, second = (a.ravel() for a in np.meshgrid(axis, axis))
    inside = first + second < 1 - 1e-6
    grid = np.stack([first, second, 1 - first - second], 1)[inside]
    density = np.exp(evaluate(lambda: objective.noise.log_prob(jnp.asarray(grid))))
    assert abs(density.sum() / 300**2 - 1) < 0.01
    edge = np.concatenate([x, [[0.0, 0.5, 0.5]]])
    with pytest.raises(BadInput, match="edge"):
        NoiseContrastive.matched(Anywhere(Simplex(3)), {"x": edge})


class Exponential(Energy):
    """e(x) = λx on (0, ∞), with log Z = −log λ."""

    rate: jax.Array = parameter(Positive())

    @property
    def spaces(self):
        return {"x": Positive(1)}

    def __call__(self, *, x):
        return self.rate * x[0]


def test_matched_noise_teaches_on_the_half_line():
    """λ → 1 / mean and c → −log λ. Over five keys the errors were at most 0.006 and 0.002."""
    x = np.random.default_rng(0).exponential(2.0, (1000, 1)).astype(np.float32)
    start = Exponential(jnp.array(2.0))
    steps = optax.adam(optax.cosine_decay_schedule(0.05, 400))
    learner = Descent(NoiseContrastive.matched(start, {"x": x}), steps)
    done = fit(start, {"x": x}, learner, key=0, epochs=40, batch_size=100)
    rate = float(done.energy.rate)
    assert abs(rate * x.mean() - 1) < 0.03 and abs(float(done.partner) + np.log(rate)) < 0.01


def test_what_score_matching_recommends_for_positive_data_accepts_it():
    x = {"x": np.random.default_rng(0).exponential(1.0, (50, 2))}
    energy = Anywhere(Positive(2))
    with pytest.raises(Unsuitable, match=r"ContrastiveDivergence\(\) or NoiseContrastive\.matched"):
        ScoreMatching().check(energy, x)
    ContrastiveDivergence().check(energy, x)
    NoiseContrastive.matched(energy, x).check(energy, x)


def test_refusals():
    rbm, X = RBM.random(3, 2, key=0), np.zeros((4, 3), np.float32)
    objective = NoiseContrastive.matched(rbm, {"x": X})
    with pytest.raises(Unsuitable, match="ContrastiveDivergence"):
        objective.check(rbm, {"x": Masked(X, X == 0).__class__(X, X > 0)})
    with pytest.raises(Unsuitable, match="shape"):
        NoiseContrastive(Normal(0.0, 1.0)).check(NeuralEnergy.random(2, key=0), {"x": np.zeros((2, 2))})
    with pytest.raises(Unsuitable, match="CrossEntropy"):
        objective.check(rbm, {"x": X, "z": X[:, :2]})
    with pytest.raises(BadInput, match="matched"):
        NoiseContrastive("noise")
    with pytest.raises(BadInput, match="k"):
        NoiseContrastive(Normal(0.0, 1.0), k=0)


def test_inputs_are_rejected():
    line = Linear(jnp.zeros((2, 3)), jnp.zeros(2))
    with pytest.raises(Unsuitable, match=r"Linear does not model \['x'\]"):
        NoiseContrastive(Normal(jnp.zeros(3), 1.0).to_event(1)).check(line, {"x": np.zeros((4, 3))})
