"""EM: the constrained and the minibatch M-step against closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from energax import BadInput, Energy, Intractable, Mixture, Unsuitable, fit, log_prob
from energax.energies import Bernoullis, Centroids, Diagonal, Full, Gaussians
from energax.learn import EM
from energax.spaces import Binary, Categorical, Positive, Real, parameter


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal(3.0, 1.0, (200, 2))


def one(mean: float = 0.0) -> Mixture:
    return Mixture(Gaussians(jnp.full((1, 2), mean), Full.unit(1, 2, float, floor=0.0)))


def test_what_is_frozen_is_held_in_the_m_step(rows):
    """With the mean held at 0 the best covariance is the second moment, not the variance."""
    result = fit(one(), {"x": rows}, EM(tol=-1.0), key=0, epochs=3, freeze="components.means")
    assert (np.asarray(result.energy.components.means) == 0).all()
    second = rows.T @ rows / len(rows)
    np.testing.assert_allclose(result.energy.components.covariance.matrix[0], second, rtol=1e-9)


def test_frozen_weights_leave_the_components_free(rows):
    start = Mixture(
        Gaussians(jnp.array([[2.0, 2.0], [4.0, 4.0]]), Full.unit(2, 2, float)), jnp.array([0.9, 0.1])
    )
    result = fit(start, {"x": rows}, EM(tol=-1.0), key=0, epochs=3, freeze="weights")
    np.testing.assert_array_equal(result.energy.weights, start.weights)
    assert (np.asarray(result.energy.components.means) != np.asarray(start.components.means)).all()


class OneMean(Energy):
    """A unit Gaussian whose `maximise` takes no `trainable`."""

    mean: jax.Array
    other: jax.Array

    @property
    def spaces(self):
        return {"x": Real(2), "z": Categorical(1)}

    def __call__(self, *, x, z):
        return 0.5 * jnp.sum((x - self.mean) ** 2)

    def statistics(self, data, posterior):
        return posterior.sum(), posterior[:, 0] @ data["x"]

    def maximise(self, statistics):
        return OneMean(statistics[1] / statistics[0], self.other)


def test_an_m_step_that_cannot_hold_anything_says_so(rows):
    start = OneMean(jnp.zeros(2), jnp.zeros(2))
    free = fit(start, {"x": rows}, EM(), key=0, epochs=2).energy
    np.testing.assert_allclose(free.mean, rows.mean(0))
    with pytest.raises(Unsuitable, match="takes no `trainable`"):
        fit(start, {"x": rows}, EM(), key=0, epochs=2, freeze="other")


@pytest.mark.parametrize("start", [0.0, -50.0])
def test_minibatches_come_to_the_closed_form_from_far_away(rows, start):
    """With the same batch at every step the result is that of the batch, whatever the step sizes."""
    result = fit(one(start), {"x": rows}, EM(decay=0.6, tol=-1.0), key=0, epochs=8)
    np.testing.assert_allclose(result.energy.components.means[0], rows.mean(0), rtol=1e-8)
    np.testing.assert_allclose(
        result.energy.components.covariance.matrix[0], np.cov(rows.T, ddof=0), rtol=1e-7
    )


def test_minibatches_weigh_a_prior_against_all_rows_seen():
    """A pseudocount counts as rows, not as batches: 100 ones and 1 + 1 pseudo-observations."""
    coins = Mixture(Bernoullis(jnp.full((1, 3), 0.5), 1.0))
    result = fit(coins, {"x": np.ones((100, 3))}, EM(decay=0.9, tol=-1.0), key=0, epochs=1)
    np.testing.assert_allclose(result.energy.components.probs, 101 / 102, rtol=1e-3)


def test_a_batch_of_padding_changes_nothing(rows):
    """20 batches of 10 rows; all rows of the first batches have weight 0."""
    weights = np.zeros(len(rows))
    weights[:3] = 1.0
    result = fit(
        one(3.0), {"x": rows}, EM(decay=0.8, tol=-1.0), key=0, epochs=2, batch_size=4, weights=weights
    )
    assert result.status == "reached max_iter"
    assert np.isfinite(result.history["objective"]).all()


def test_distances_are_no_density(rows):
    """exp(−‖x − c‖²) does not integrate to one, so a mixture of such components has no log Z."""
    mixture = Mixture(Centroids(jnp.zeros((2, 2))))
    assert not mixture.knows("log_partition")
    with pytest.raises(Intractable):
        mixture.log_partition()
    assert log_prob(mixture, {"x": rows[:2]}, key=0).kind == "estimate"


class Bells(Energy):
    """Normal densities with their own scales, without `statistics` and `maximise`."""

    means: jax.Array
    scale: jax.Array = parameter(Positive())

    normalised = True

    @property
    def spaces(self):
        return {"x": Real(2), "z": Categorical(self.means.shape[0])}

    def __call__(self, *, x, z):
        u = (x - self.means[z]) / self.scale[z]
        return jnp.sum(0.5 * u**2 + jnp.log(self.scale[z]) + 0.5 * jnp.log(2 * jnp.pi))


@pytest.fixture(scope="module")
def clusters() -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.concatenate([rng.normal(-1.5, 1.0, (80, 2)), rng.normal(1.5, 0.6, (120, 2))])


def bells() -> Mixture:
    return Mixture(Bells(jnp.array([[-1.0, 0.0], [1.0, 0.5]]), jnp.ones((2, 2))))


@pytest.mark.parametrize(
    ("settings", "close"),
    [({}, 1e-9), ({"chunk": 64, "epochs": 40}, 1e-5), ({"optimizer": optax.sgd(0.1)}, 1e-5)],
    ids=["default", "in chunks", "small steps"],
)
def test_an_energy_without_maximise_comes_to_the_closed_form(clusters, settings, close):
    """Generalised EM: the same optimum as EM in closed form, with a monotone objective.

    Every M-step lowers the expected energy (by a line search, or by steps that are small enough),
    so that the negative log-likelihood never rises, up to the last digits of float64.
    """
    settings = dict(settings)
    epochs = settings.pop("epochs", 120)
    start = bells()
    closed = Mixture(Gaussians(start.components.means, Diagonal(jnp.ones((2, 2)), floor=0.0)))
    best = fit(closed, {"x": clusters}, EM(tol=-1.0), key=0, epochs=120).energy
    done = fit(start, {"x": clusters}, EM(tol=-1.0, **settings), key=0, epochs=epochs)
    np.testing.assert_allclose(done.energy.weights, best.weights, atol=close)
    np.testing.assert_allclose(done.energy.components.means, best.components.means, atol=close)
    np.testing.assert_allclose(
        done.energy.components.scale**2, best.components.covariance.variance, atol=close
    )
    losses = np.asarray(done.history["objective"])
    assert np.diff(losses).max() < 1e-12 and losses[0] - losses[-1] > 0.1
    assert losses[-1] == pytest.approx(-float(log_prob(done.energy, {"x": clusters}).mean()), abs=1e-9)


def test_descent_heeds_weights_and_what_is_frozen(clusters):
    """A row of weight 2 counts as two rows, and frozen scales are unchanged."""
    twice = np.concatenate([clusters, clusters[:50]])
    weights = np.where(np.arange(len(clusters)) < 50, 2.0, 1.0)
    frozen = {"freeze": "components.scale", "key": 0, "epochs": 5}
    a = fit(bells(), {"x": clusters}, EM(tol=-1.0), weights=weights, **frozen).energy
    b = fit(bells(), {"x": twice}, EM(tol=-1.0), **frozen).energy
    np.testing.assert_allclose(a.components.means, b.components.means, rtol=1e-9)
    assert (np.asarray(a.components.scale) == 1).all()
    assert np.abs(np.asarray(a.components.means) - np.asarray(bells().components.means)).max() > 0.1


def test_an_unnormalised_finite_energy_has_its_log_z_in_the_m_step():
    """e(x, z) = −θx with binary x and an independent z: at the maximum σ(θ) is the mean of x."""

    class Coin(Energy):
        logit: jax.Array

        @property
        def spaces(self):
            return {"x": Binary(), "z": Binary()}

        def __call__(self, *, x, z):
            return -self.logit * x

    x = np.array([1.0, 1.0, 1.0, 0.0])
    done = fit(Coin(jnp.array(0.0)), {"x": x}, EM(tol=1e-12), key=0, epochs=20)
    assert done.status == "converged" and float(done.energy.logit) == pytest.approx(np.log(3.0), abs=1e-6)


def test_without_any_m_step_it_says_what_to_give(rows):
    class Unsaid(Bells):
        normalised = False

    components = bells().components
    with pytest.raises(Unsuitable, match=r"no `statistics` and `maximise`.*normalised = True"):
        fit(Mixture(Unsaid(components.means, components.scale)), {"x": rows}, EM(), key=0)
    with pytest.raises(Unsuitable, match="Leave decay out"):
        fit(bells(), {"x": rows}, EM(decay=0.7), key=0)
    with pytest.raises(Unsuitable, match="Leave optimizer out"):
        fit(Mixture(Centroids(jnp.zeros((2, 2)))), {"x": rows}, EM(optimizer=optax.sgd(0.1)), key=0)
    with pytest.raises(BadInput, match="n_init=1"):
        fit(bells(), {"x": rows}, EM(), key=0, n_init=2)
    with pytest.raises(BadInput, match="m_steps"):
        EM(m_steps=0)
    with pytest.raises(BadInput, match="both"):
        EM(decay=0.7, optimizer=optax.sgd(0.1))
    with pytest.raises(BadInput, match="Optax"):
        EM(optimizer="adam")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"criterion": "foo"}, "'objective' or 'parameters'"),
        ({"tol": float("nan")}, "tol: found nan"),
        ({"tol": "x"}, "tol: found 'x'"),
        ({"chunk": -5}, "chunk: found -5"),
        ({"temperature": "hot"}, "temperature: found 'hot'"),
        ({"decay": "a"}, "decay: found 'a'"),
    ],
)
def test_settings_that_make_no_sense(settings, said):
    with pytest.raises(BadInput, match=said):
        EM(**settings)


def test_labels_that_are_known_are_kept():
    """With all labels EM is the closed form of each class; unlabelled rows have responsibilities."""
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1], 50)
    x = rng.normal(size=(100, 1)) + np.array([0.0, 1.0])[z][:, None]  # the classes overlap
    start = Mixture(Gaussians(jnp.array([[1.0], [0.0]]), jnp.ones((2, 1, 1))))
    done = fit(start, {"x": x, "z": z}, EM(tol=-1.0), key=0, epochs=2)
    means = [x[z == c].mean() for c in (0, 1)]
    np.testing.assert_allclose(done.energy.components.means[:, 0], means, rtol=1e-5)
    np.testing.assert_allclose(done.energy.weights, [0.5, 0.5], rtol=1e-5)
    own = np.concatenate([stats.norm(r.mean(), r.std()).logpdf(r) for r in (x[z == 0], x[z == 1])])
    np.testing.assert_allclose(done.history["objective"][-1], np.log(2) - own.mean(), rtol=1e-4)
    some = np.ma.masked_array(z, np.arange(100) % 2 == 1)
    half = fit(start, {"x": x, "z": some}, EM(tol=-1.0), key=0, epochs=50).energy
    order = half.components.means[0, 0] < half.components.means[1, 0]
    assert bool(order)  # the labels determine the order, although the start has the opposite one


def test_labels_that_are_known_are_kept_by_centres():
    """With all labels given, the centres are the means of the classes, not of the nearest rows."""
    x, z = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    done = fit(Centroids(jnp.zeros((2, 2)) + 9), {"x": x, "z": z}, EM(hard=True, tol=-1.0), key=0, epochs=2)
    np.testing.assert_allclose(done.energy.centers, [x[z == 0].mean(0), x[z == 1].mean(0)], rtol=1e-5)
