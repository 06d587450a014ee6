"""A neural energy on ℝᵈ as a recipe."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...energies import NeuralEnergy
from ...estimate import Estimate
from ...infer import MCMC, Importance, log_partition, posterior
from ...learn import NoiseContrastive
from ...samplers import Langevin
from .._base import Density
from .._common.layers import Scalar, Tilted, network
from .._common.scaling import Standardised
from .._common.table import bucketed, with_mask

_WARMUP = 500
_ROWS_AT_ONCE = 128


class EnergyModel(Standardised, Density):
    """e(x) = f(u) + ½ uᵀC⁻¹u, u the standardised columns and C their correlations: a tilted Gaussian.

    By default f is learned by noise-contrastive estimation, with the Gaussian of the data as
    noise, so that learning starts at a model that is right to second order. `energy_` is over
    u; `score_samples` is in the units of X. log Z is estimated by importance sampling
    (`log_partition_`, with its standard error), and `sample` runs Langevin chains.

    Args:
        hidden_layer_sizes, activation: of f; keep the activation smooth.
        n_noise: draws of noise for every row.
        learning_rate, batch_size, max_iter: of Adam; passes over the data.
        n_importance: draws for log Z.
        learner: any energax learner or objective: `ScoreMatching()`, `Descent(ScoreMatching())`.

    Gutmann and Hyvärinen (2012), Noise-contrastive estimation of unnormalized statistical models.

    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 500)
    >>> ring = 2 * np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(500, 2))
    >>> model = EnergyModel((32, 32), max_iter=30, learning_rate=0.02, random_state=0).fit(ring)
    >>> model.log_prob(ring).kind, bool(model.score([[0.0, 0.0]]) < model.score([[2.0, 0.0]]))
    ('estimate', True)
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (64, 64),
        *,
        activation: Any = "silu",
        n_noise: int = 10,
        learning_rate: float = 2e-3,
        batch_size: int = 200,
        max_iter: int = 100,
        n_importance: int = 2**16,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.n_noise = n_noise
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_importance = n_importance
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows X (n, d)."""
        self._check_counts("n_noise", "batch_size", "max_iter", "n_importance")
        X = self._check_X(X, reset=True)
        X, weight = self._counted(X, sample_weight)
        with self._precision():
            self._settle_units(X, weight)
            U = self._standardised(X)
            self._learn(
                self._start(U, weight),
                {"x": U},
                self._learner(),
                weights=weight,
                epochs=self.max_iter,
                batch_size=self.batch_size,
            )
            self._normalise()
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows; the first call settles the units of the columns."""
        first = not hasattr(self, "energy_")
        self._check_counts("n_noise", "batch_size", "n_importance")
        X = self._check_X(X, reset=first)
        X, weight = self._counted(X, sample_weight)
        with self._precision():
            if first:
                self._settle_units(X, weight)
            U = self._standardised(X)
            energy = self._start(U, weight) if first else self.energy_
            self._learn_more(energy, {"x": U}, self._continue(self._learner()), weights=weight)
            self._normalise()
        return self

    def _start(self, U: np.ndarray, weight: Any) -> NeuralEnergy:
        d = U.shape[1]
        self.noise_scale_ = correlation_root(U, weight).astype(self.dtype_)
        built = network(d, self.hidden_layer_sizes, 1, self.activation, key=self._key(5), after=(Scalar(),))
        inverse = np.linalg.inv(self.noise_scale_.astype(float))
        return NeuralEnergy(Tilted(built, jnp.asarray(inverse.astype(self.dtype_))), d, confinement=0.0)

    def _noise(self) -> Any:
        """The Gaussian of the standardised data."""
        from numpyro.distributions import MultivariateNormal

        root = jnp.asarray(self.noise_scale_)
        return MultivariateNormal(jnp.zeros(len(root), root.dtype), scale_tril=root)

    def _learner(self) -> Any:
        return self._chosen_learner(lambda: NoiseContrastive(self._noise(), self.n_noise), self._adam)

    def _normalise(self) -> None:
        method = Importance(self._noise(), int(self.n_importance))
        self.log_partition_ = log_partition(self.energy_, method, key=self._key(6))

    # -- reading -----------------------------------------------------------------------------

    def log_prob(self, X: Any) -> Estimate:
        """log p(x) = −e(u) − log Z − Σ log scale; the standard error is that of log Z, shared by all rows."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            e = np.asarray(_energies(self.energy_, bucketed(self._standardised(X))))[: len(X)]
        log_z = self.log_partition_
        shared = float(log_z.stderr)
        return Estimate(-e - log_z.value - self._log_units(X), shared, "estimate", log_z.method, shared)

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Rows drawn by Langevin chains, one chain a row."""
        return self._in_units_of_X(super().sample(n_samples))

    def _sampler(self, n: int) -> Any:
        return MCMC(Langevin(), n_chains=n, warmup=_WARMUP)

    def impute(self, X: Any) -> np.ndarray:
        """X with each missing value at its mean given what is known of its row, by Langevin chains."""
        self._check_fitted()
        X = self._check_X(X, reset=False, allow_nan=True)
        rows = np.flatnonzero(np.isnan(X).any(1))
        out = X.copy()
        with self._precision():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                some = rows[start : start + _ROWS_AT_ONCE]
                given = bucketed({"x": with_mask(self._standardised(X[some]))})
                method = MCMC(Langevin(), n_draws=400, warmup=_WARMUP)
                found = posterior(self.energy_, given, method, key=self._key(4, start)).mean["x"][: len(some)]
                out[some] = np.where(np.isnan(X[some]), self._in_units_of_X(found), X[some])
        return out


def correlation_root(U: np.ndarray, weight: Any) -> np.ndarray:
    """The Cholesky factor of the correlations, held away from singular."""
    w = np.ones(len(U)) if weight is None else np.asarray(weight, float)
    C = (U * w[:, None]).T.astype(float) @ U / w.sum()
    d = len(C)
    # One row, or a constant column, has no spread: it gets that of one unit.
    C[np.diag_indices(d)] = np.where(np.diag(C) > 1e-6, np.diag(C), 1.0)
    return np.linalg.cholesky(C + 1e-3 * np.eye(d))


@eqx.filter_jit
def _energies(energy: NeuralEnergy, U: Any) -> Any:
    return jax.vmap(lambda u: energy(x=u))(jnp.asarray(U))
