"""EM: the constrained and the minibatch M-step against closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import Energy, Intractable, Mixture, Unsuitable, fit, log_prob
from energax.energies import Bernoullis, Centroids, Full, Gaussians
from energax.learn import EM
from energax.spaces import Categorical, Real


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
    """A unit Gaussian with an M-step that knows nothing of freezing."""

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
    """All of one batch again and again: whatever the step sizes, the answer is the batch's own."""
    result = fit(one(start), {"x": rows}, EM(decay=0.6, tol=-1.0), key=0, epochs=8)
    np.testing.assert_allclose(result.energy.components.means[0], rows.mean(0), rtol=1e-8)
    np.testing.assert_allclose(
        result.energy.components.covariance.matrix[0], np.cov(rows.T, ddof=0), rtol=1e-7
    )


def test_minibatches_weigh_a_prior_against_all_rows_seen():
    """A pseudocount is worth so many rows, not so many batches: 100 ones and 1 + 1 imagined."""
    coins = Mixture(Bernoullis(jnp.full((1, 3), 0.5), 1.0))
    result = fit(coins, {"x": np.ones((100, 3))}, EM(decay=0.9, tol=-1.0), key=0, epochs=1)
    np.testing.assert_allclose(result.energy.components.probs, 101 / 102, rtol=1e-3)


def test_a_batch_of_padding_changes_nothing(rows):
    """20 batches of 10 rows; all rows of the first batches weigh nothing."""
    weights = np.zeros(len(rows))
    weights[:3] = 1.0
    result = fit(
        one(3.0), {"x": rows}, EM(decay=0.8, tol=-1.0), key=0, epochs=2, batch_size=4, weights=weights
    )
    assert result.status == "budget spent"
    assert np.isfinite(result.history["objective"]).all()


def test_distances_are_no_density(rows):
    """exp(−‖x − c‖²) does not integrate to one, and a mixture of such does not claim it does."""
    mixture = Mixture(Centroids(jnp.zeros((2, 2))))
    assert not mixture.knows("log_partition")
    with pytest.raises(Intractable):
        mixture.log_partition()
    assert log_prob(mixture, {"x": rows[:2]}, key=0).kind == "estimate"
