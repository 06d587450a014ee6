"""Mixture emissions: a mixture for every state of a hidden Markov model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import check_arguments, instance, is_real, read_array
from ...algorithms.optimise.kmeans import column_moments, initial_centers, nearest_center
from ...batch import safe_divide, update_counted
from ...energy import Energy
from ...errors import BadInput
from ...parameters import m_step, recenter
from ...spaces import Categorical, PositiveDefinite, Simplex, fixed, is_concrete, parameter
from .base import Emission, normalise
from .covariance import Covariance
from .covariance_terms import check_shape, half_log_two_pi, inverse_factor, regularise_matrix


class Mixtures(Emission):
    """A mixture of m components for each of k states: e(x, z) = −log Σ_c w_zc p(x | z m + c).

    Args:
        components: an emission over k · m components, those of state 0 first.
        weights: w, (k, m), rows that sum to one.
        prior: pseudo-counts that `maximise` adds to the counts of the weights.

    Rabiner (1989), A tutorial on hidden Markov models and selected applications in speech recognition.

    >>> from energax.energies import Gaussians
    >>> four = Gaussians([[-1.0], [1.0], [5.0], [6.0]], jnp.ones((4, 1, 1)))
    >>> Mixtures(four, [[0.5, 0.5], [0.9, 0.1]]).energies(x=jnp.array([0.0])).tolist()
    [1.4189..., 13.523...]
    """

    components: Any
    weights: jax.Array = parameter(Simplex())
    prior: Any = fixed(default=0.0)

    def __init__(self, components: Any, weights: Any, prior: Any = 0.0):
        weights = read_array("weights", weights)
        check_arguments(locals(), components=instance(Energy, "an emission of energax.energies"))
        n = components.spaces["z"].k
        if weights.ndim != 2 or weights.size != n:
            raise BadInput("weights", f"shape {weights.shape}", f"(states, components), {n} numbers in all")
        if is_concrete(weights):
            Simplex(weights.shape[1]).check(np.asarray(weights), "weights", missing=False)
        self.components, self.weights = components, weights
        self.prior = prior if is_real(prior) else read_array("prior", prior)

    @property
    def spaces(self):
        return {"x": self.components.spaces["x"], "z": Categorical(self.weights.shape[0])}

    def _joint(self, x: Any) -> Any:
        """log w_zc p(x | z m + c) of n rows, (n, k, m)."""
        energies = self.components.row_energies(x=x)
        return jnp.log(self.weights) - energies.reshape(-1, *self.weights.shape)

    def row_energies(self, *, x):
        return -jax.nn.logsumexp(self._joint(x), axis=2)

    def emit(self, key, z):
        choose, emit = jax.random.split(key)
        c = jax.random.categorical(choose, jnp.log(self.weights[z]))
        return self.components.draw(emit, z=z * self.weights.shape[1] + c)["x"]

    # -- EM ------------------------------------------------------------------------------

    def _responsibilities(self, x: Any, posterior: Any) -> Any:
        """p(z, c | x) from the posterior p(z | x) (n, k), (n, k, m)."""
        return jax.nn.softmax(self._joint(x), axis=2) * posterior[:, :, None]

    def statistics(self, data, posterior):
        """The weight of every component, (k, m), and the statistics of the components."""
        joint = self._responsibilities(data["x"], posterior)
        flat = joint.reshape(len(posterior), -1)
        return {"weight": joint.sum(0), "parts": self.components.statistics(data, flat)}

    def maximise(self, statistics, trainable=None):
        of_components = None if trainable is None else trainable.components
        components = m_step(self.components, statistics["parts"], of_components)
        weights = normalise(statistics["weight"] + self.prior, self.weights)
        if trainable is not None and not trainable.weights:
            weights = self.weights
        return Mixtures(components, weights, self.prior)

    def recenter(self, statistics, reference):
        parts = recenter(self.components, statistics["parts"], reference.components)
        return {"weight": statistics["weight"], "parts": parts}

    def initialise(self, key, data, weight):
        """Components from clusters within clusters: first one per state, then one per component of it."""
        components = self.components.initialise(key, data, weight)
        if components.knows("fit_nearest"):
            k, m = self.weights.shape
            middle, _ = column_moments(data["x"], weight)
            centers = initial_centers("kmeans", key, data["x"], weight, k)
            state = nearest_center(data["x"], centers, middle)
            within = lambda i: initial_centers("k-means++", key, data["x"], weight * (state == i), m)
            means = jnp.concatenate([within(i) for i in range(k)]).astype(components.means.dtype)
            components = eqx.tree_at(lambda c: c.means, components, means).fit_nearest(data, weight)
        return Mixtures(components, self.weights, self.prior)

    def impute_given(self, data, posterior):
        joint = self._responsibilities(data["x"], posterior)
        return self.components.impute_given(data, joint.reshape(len(posterior), -1))


class TiedWithin(Covariance):
    """One covariance matrix for the m components of each state, of k · m Gaussians in all.

    Args:
        matrix: Σ, (k, d, d), positive definite.
        floor: added to the variances that `maximise` returns.
        n_each: m, the number of components per state.

    >>> TiedWithin(jnp.array([[[1.0]], [[4.0]]]), n_each=2).dense(4, 1).ravel()
    Array([1., 1., 4., 4.], dtype=float32)
    """

    matrix: jax.Array = parameter(PositiveDefinite())
    floor: float = eqx.field(static=True, default=1e-6)
    n_each: int = eqx.field(static=True, default=1)

    @classmethod
    def unit(cls, k, d, dtype=None, floor=1e-6):
        return cls(jnp.broadcast_to(jnp.eye(d, dtype=dtype), (k, d, d)), floor)

    def check(self, k, d):
        check_shape("covariance.matrix", self.matrix.shape, (k // self.n_each, d, d))

    def n_parameters(self, k, d):
        return self.matrix.shape[0] * d * (d + 1) // 2

    def row_energies(self, x, means):
        inverse, log_det = inverse_factor(self.matrix)
        middle, d = means.mean(0), means.shape[1]
        projected = jnp.einsum("kij,nj->kni", inverse, x - middle)
        offset = jnp.einsum("kij,kmj->kmi", inverse, (means - middle).reshape(-1, self.n_each, d))
        # Columns last, for the same reason as in `Tied`.
        squared = jnp.square(projected[:, None] - offset[:, :, None]).sum(3)  # (k, m, n)
        energies = 0.5 * squared + (log_det + half_log_two_pi(d, x.dtype))[:, None, None]
        return energies.reshape(len(means), -1).T

    def scatter(self, x, means, posterior):
        centred = (x.T - means[:, :, None]) * jnp.sqrt(posterior).T[:, None, :]
        return self.reduce(jnp.einsum("kin,kjn->kij", centred, centred))

    def reduce(self, dense):
        return self._within(dense)

    def recenter_scatter(self, scatter, count, first, shift):
        cross = first[:, :, None] * shift[:, None, :]
        outer = count[:, None, None] * shift[:, :, None] * shift[:, None, :]
        return scatter + self._within(cross + jnp.swapaxes(cross, 1, 2) + outer)

    def maximise(self, scatter, count, scale):
        total = self._within(count)
        scale = safe_divide(self._within(count[:, None] * scale), total[:, None], 0.0)
        regularise = lambda matrix: regularise_matrix(matrix, scale, self.floor)
        matrix = update_counted(scatter, total[:, None, None], self.matrix, regularise)
        return TiedWithin(matrix, self.floor, self.n_each)

    def dense(self, k, d):
        return jnp.repeat(self.matrix, self.n_each, axis=0)

    def factor(self, z, d):
        return jnp.linalg.cholesky(self.matrix[z // self.n_each])

    def _within(self, values: Any) -> Any:
        """Sums over the components of each state, (k · m, …) → (k, …)."""
        return values.reshape(-1, self.n_each, *values.shape[1:]).sum(1)
