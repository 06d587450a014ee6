"""`GaussianMixture`."""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...energies import Diagonal, Full, Gaussians, Spherical, Tied
from ...errors import BadInput
from ...mixture import Mixture
from ...programs import jit
from ...spaces import PositiveDefinite
from .._common.settings import ARRAY, FINITE_NOT_NEGATIVE, NONE, one_of, whole
from .base import MixtureEstimator

_COVARIANCES = {"full": Full, "tied": Tied, "diag": Diagonal, "spherical": Spherical}
_STARTS = ("kmeans", "k-means++", "random", "random_from_data")


class GaussianMixture(MixtureEstimator):
    """Gaussian mixture model, fitted by EM.

    The density of a row is p(x) = Σ_z π_z N(x; μ_z, Σ_z). Arguments, methods and attributes have the names of
    scikit-learn's `GaussianMixture`. Beyond it, missing values (NaN), sample weights, `partial_fit` and
    `impute` are supported.

    Args:
        n_components: the number of components.
        covariance_type: "full" (one matrix per component), "tied" (one matrix for all), "diag" (one variance
            per component and column) or "spherical" (one variance per component).
        tol: EM stops when the mean log-likelihood rises by no more than this.
        reg_covar: added to every variance.
        max_iter: the most iterations of EM.
        n_init: the number of starts; the best fit is kept.
        init_params: the kind of start: "kmeans", "k-means++", "random" or "random_from_data".
        weights_init, means_init, precisions_init: start from these parameters, shaped as `weights_`, `means_`
            and `precisions_`.
        random_state: a seed or a `RandomState`.
        warm_start: start `fit` from the previous fit.
        verbose: whether to show a progress bar.
        verbose_interval: ignored.
        learner: a learner or objective of energax.learn, instead of EM.

    Attributes:
        weights_: the probabilities of the components, (n_components,).
        means_: the means, (n_components, n_features).
        covariances_, precisions_, precisions_cholesky_: covariances, their inverses, and Cholesky factors of
            the inverses; their shape depends on `covariance_type`.
        converged_, n_iter_: whether EM converged, and after how many iterations it stopped.
        lower_bound_, lower_bounds_: the mean log-likelihood at the end, and before every iteration.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    >>> X = np.concatenate([np.zeros((50, 1)), np.ones((50, 1))]) + np.linspace(-0.1, 0.1, 100)[:, None]
    >>> gm = GaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(gm.means_.ravel()).round(2).tolist()
    [-0.05, 1.05]
    >>> gm.impute([[np.nan]]).round(2).tolist()               # the mean of the mixture
    [[0.5]]
    """

    _settings = {
        **MixtureEstimator._settings,
        "covariance_type": one_of(*_COVARIANCES),
        "reg_covar": FINITE_NOT_NEGATIVE,
        "init_params": one_of(*_STARTS),
        "means_init": ARRAY | NONE,
        "precisions_init": ARRAY | NONE,
        "verbose_interval": whole(0),
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        learner: Any = None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.learner = learner

    # -- the start ---------------------------------------------------------------------------

    def _start(self, X: np.ndarray, data: Any, weight: Any) -> tuple[Any, bool, int]:
        k, d, dtype = self.n_components, X.shape[1], self.dtype_
        if self.warm_start and hasattr(self, "energy_"):
            return self._warm_start(d), False, 1
        weights = self._initial_weights(k)
        covariance = _COVARIANCES[self.covariance_type].unit(k, d, dtype, float(self.reg_covar))
        energy = Mixture(Gaussians(np.zeros((k, d), dtype), covariance, self.init_params), weights)
        if self.means_init is None and self.precisions_init is None:
            return energy, True, self.n_init
        means = None if self.means_init is None else self._initial_means(k, d)
        if self.precisions_init is not None:
            covariance = self._initial_covariance(covariance, d)
        if means is None or self.precisions_init is None:
            rows = jax.tree.map(asarray, data)
            weight = jnp.ones(len(X), dtype) if weight is None else asarray(weight)
            start = _initialise_components(energy.components, means, rows, weight, self._key())
            means = start.means if means is None else means
            covariance = start.covariance if self.precisions_init is None else covariance
        return Mixture(Gaussians(means, covariance, self.init_params), weights), False, 1

    def _warm_start(self, d: int) -> Any:
        """Return the model of the previous fit, with the present `reg_covar`."""
        kind = type(self.energy_.components.covariance)
        model = self._previous_model(d, covariance_type=kind is _COVARIANCES[self.covariance_type])
        covariance = dataclasses.replace(model.components.covariance, floor=float(self.reg_covar))
        return eqx.tree_at(lambda e: e.components.covariance, model, covariance)

    def _initial_means(self, k: int, d: int) -> Any:
        means = np.asarray(self.means_init, self.dtype_)
        if means.shape != (k, d) or not np.isfinite(means).all():
            raise BadInput("means_init", f"shape {means.shape}", f"finite numbers of shape ({k}, {d})")
        return asarray(means)

    def _initial_covariance(self, covariance: Any, d: int) -> Any:
        """Return the covariance object whose inverse is `precisions_init`."""
        precisions = np.asarray(self.precisions_init, self.dtype_)
        name = "matrix" if hasattr(covariance, "matrix") else "variance"
        shape = getattr(covariance, name).shape
        if precisions.shape != shape:
            expected = f"{shape} for covariance_type={self.covariance_type!r}"
            raise BadInput("precisions_init", f"shape {precisions.shape}", expected)
        if name == "matrix":
            if not PositiveDefinite(d)._is_valid(precisions).all():
                raise BadInput(
                    "precisions_init",
                    "a matrix that is not symmetric, or not positive definite",
                    "symmetric positive definite matrices",
                )
            inverse = np.linalg.inv(precisions)
        else:
            if not (np.isfinite(precisions) & (precisions > 0)).all():
                found = f"{precisions.min():g} to {precisions.max():g}"
                raise BadInput("precisions_init", found, "finite numbers > 0")
            inverse = 1 / precisions
        return eqx.tree_at(lambda c: getattr(c, name), covariance, asarray(inverse.astype(self.dtype_)))

    # -- attributes ----------------------------------------------------------------------------

    def _n_parameters(self) -> int:
        k, d = self.means_.shape
        return k - 1 + k * d + self.energy_.components.covariance.n_parameters(k, d)

    @property
    def means_(self) -> np.ndarray:
        """The means of the components, (n_components, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.components.means)

    @property
    def covariances_(self) -> np.ndarray:
        """The covariances: (k, d, d), (d, d), (k, d) or (k,) by `covariance_type`."""
        self._check_fitted()
        covariance = self.energy_.components.covariance
        return np.asarray(covariance.matrix if hasattr(covariance, "matrix") else covariance.variance)

    @property
    def precisions_cholesky_(self) -> np.ndarray:
        """Upper triangular U with U Uᵀ = Σ⁻¹; 1/σ where Σ is diagonal."""
        covariances = self.covariances_
        if self.covariance_type in ("diag", "spherical"):
            return 1 / np.sqrt(covariances)
        return np.swapaxes(np.linalg.inv(np.linalg.cholesky(covariances)), -1, -2)

    @property
    def precisions_(self) -> np.ndarray:
        """The inverse covariances, shaped as `covariances_`."""
        factor = self.precisions_cholesky_
        if self.covariance_type in ("diag", "spherical"):
            return factor**2
        return factor @ np.swapaxes(factor, -1, -2)


@jit
def _initialise_components(components: Any, means: Any, rows: Any, weight: Any, key: Any) -> Gaussians:
    """Return the start by `init_params`; with given means, the covariances of the rows nearest to each."""
    start = components.initialise(key, rows, weight)
    if means is None:
        return start
    return eqx.tree_at(lambda g: g.means, start, means).fit_nearest(rows, weight)
