"""`EnergyModel`: a density estimator with a neural network."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import IMPUTED_ROWS, map_table, pad_rows, slices
from ...energies import NeuralEnergy
from ...estimate import Estimate
from ...infer import MCMC, Importance, log_partition, posterior
from ...learn import NoiseContrastive
from ...programs import jit
from ...samplers import Langevin
from .._base import Density
from .._common.layers import (
    ACTIVATION,
    LAYER_SIZES,
    NetworkPlusGaussian,
    Squeeze,
    make_network,
    n_network_numbers,
)
from .._common.scaling import StandardisingEstimator
from .._common.settings import COMMON, DTYPE, LEARNING_RATE, WHOLE
from .._common.sklearn_errors import reword_warnings
from .._common.table import mask_missing

_WARMUP = 500  # steps of the Langevin chains


class EnergyModel(StandardisingEstimator, Density):
    """Density estimator for real columns: a Gaussian, corrected by a neural network.

    p(x) ∝ exp(−f(u) − ½ uᵀC⁻¹u), with a network f, the standardised columns u and their correlations C. By
    default f is fitted by noise-contrastive estimation with the Gaussian of the data as noise, so that
    training starts from that Gaussian. The normalising constant is estimated by importance sampling.

    Args:
        hidden_layer_sizes, activation: of the network; use a smooth activation.
        n_noise: draws of noise per row.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        max_iter: the number of epochs.
        n_importance: draws for the normalising constant.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner or objective of energax.learn: `ScoreMatching()`, `Descent(ScoreMatching())`.

    Attributes:
        mean_, scale_: mean and standard deviation of every column, (n_features,).
        log_partition_: log Z in units of u, with its standard error.
        noise_scale_: the Cholesky factor of the correlations, (n_features, n_features).
        history_: the objective of every epoch.
        energy_: the fitted model, over u.
        fit_: details of the fit.

    Gutmann and Hyvärinen (2012), Noise-contrastive estimation of unnormalized statistical models.

    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 500)
    >>> ring = 2 * np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(500, 2))
    >>> model = EnergyModel((32, 32), max_iter=30, learning_rate=0.02, random_state=0).fit(ring)
    >>> model.log_prob(ring).kind, bool(model.score([[0.0, 0.0]]) < model.score([[2.0, 0.0]]))
    ('estimate', True)
    """

    _settings = {
        **COMMON,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "n_noise": WHOLE,
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "max_iter": WHOLE,
        "n_importance": WHOLE,
        "dtype": DTYPE,
    }

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
        """Fit the model.

        Args:
            X: a table (n_samples, n_features).
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            self._fit_scaling(X, weight)
            U = self._standardise(X)
            self._learn(
                self._start(U, weight),
                {"x": U},
                self._learner(),
                weights=weight,
                validated=True,
                epochs=self.max_iter,
                batch_size=self.batch_size,
            )
            self._estimate_log_partition()
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows; the first call sets `mean_` and `scale_`."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            if first:
                self._fit_scaling(X, weight)
            U = self._standardise(X)
            energy = self._start(U, weight) if first else self.energy_
            self._learn_more(energy, {"x": U}, self._continue(self._learner()), weights=weight)
            self._estimate_log_partition()
        return self

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        rows, weights, units = min(int(self.batch_size), n), *n_network_numbers(d, self.hidden_layer_sizes, 1)
        return {
            "hidden_layer_sizes": (weights + rows * units, "weights and units of the network"),
            "n_noise": (int(self.n_noise) * rows * d, "the draws of noise"),
            "n_importance": (int(self.n_importance), "the weights of the draws for log Z"),
        }

    def _start(self, U: np.ndarray, weight: Any) -> NeuralEnergy:
        """Return the initial model."""
        d = U.shape[1]
        self.noise_scale_ = correlation_cholesky(U, weight).astype(self.dtype_)
        network = make_network(
            d, self.hidden_layer_sizes, 1, self.activation, key=self._key(5), after=(Squeeze(),)
        )
        inverse = np.linalg.inv(self.noise_scale_.astype(float))
        total = NetworkPlusGaussian(network, asarray(inverse.astype(self.dtype_)))
        return NeuralEnergy(total, d, confinement=0.0)

    def _noise(self) -> Any:
        """The Gaussian of the standardised data."""
        from numpyro.distributions import MultivariateNormal

        root = asarray(self.noise_scale_)
        return MultivariateNormal(jnp.zeros(len(root), root.dtype), scale_tril=root)

    def _learner(self) -> Any:
        return self._make_learner(lambda: NoiseContrastive(self._noise(), self.n_noise), self._adam)

    def _estimate_log_partition(self) -> None:
        method = Importance(self._noise(), int(self.n_importance))
        with reword_warnings(self._draws_hint()):
            self.log_partition_ = log_partition(self.energy_, method, key=self._key(6))

    # -- densities and draws -----------------------------------------------------------------

    def log_prob(self, X: Any) -> Estimate:
        """Return log p(x) of every row in nats; its standard error is that of log Z, shared by all rows."""
        X = self._check_new_X(X)
        with self._precision():
            energy = map_table(lambda u: _energies(self.energy_, u), self._standardise(X))
        log_z = self.log_partition_
        shared = float(log_z.stderr)
        return Estimate(
            -energy - log_z.value - self._log_scale_sum(X), shared, "estimate", log_z.method, shared
        )

    def _draws_hint(self) -> str:
        return f"Raise n_importance (now {self.n_importance}), or train longer (max_iter)."

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows from the model by Langevin chains, one chain per row."""
        return self._unstandardise(super().sample(n_samples))

    def _sample_method(self, n: int) -> Any:
        return MCMC(Langevin(), n_chains=n, warmup=_WARMUP)

    def impute(self, X: Any) -> np.ndarray:
        """Return X with each missing value replaced by its mean given the observed values of its row.

        The means are averages over Langevin chains.
        """
        X = self._check_new_X(X, allow_nan=True)
        rows = np.flatnonzero(np.isnan(X).any(1))
        out = X.copy()
        method = MCMC(Langevin(), n_draws=400, warmup=_WARMUP)
        with self._precision():
            for chunk in slices(len(rows), IMPUTED_ROWS.value):
                some = X[rows[chunk]]
                data = pad_rows({"x": mask_missing(self._standardise(some))})
                found = posterior(self.energy_, data, method, key=self._key(4, chunk.start))
                mean = self._unstandardise(found.mean["x"][: len(some)])
                out[rows[chunk]] = np.where(np.isnan(some), mean, some)
        return out


def correlation_cholesky(U: np.ndarray, weight: Any) -> np.ndarray:
    """Return the Cholesky factor of the correlations of standardised columns, regularised."""
    w = np.ones(len(U)) if weight is None else np.asarray(weight, float)
    C = (U * w[:, None]).T.astype(float) @ U / w.sum()
    d = len(C)
    # A single row or a constant column has no variance; it is set to 1.
    C[np.diag_indices(d)] = np.where(np.diag(C) > 1e-6, np.diag(C), 1.0)
    return np.linalg.cholesky(C + 1e-3 * np.eye(d))


@jit
def _energies(energy: NeuralEnergy, U: Any) -> Any:
    return jax.vmap(lambda u: energy(x=u))(asarray(U))
