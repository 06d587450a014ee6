"""`BernoulliMixture`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...energies import Bernoullis
from ...errors import BadInput
from ...estimate import Estimate
from ...infer._exact import components
from ...mixture import Mixture
from .._common.settings import ANY_NUMBER, ARRAY, FINITE_NOT_NEGATIVE, NONE
from .._common.table import binarize, mask_missing
from .base import MixtureEstimator


class BernoulliMixture(MixtureEstimator):
    """Mixture model for binary data (latent class analysis), fitted by EM.

    The probability of a row is p(x) = Σ_z π_z Π_j p_zj^x_j (1 − p_zj)^(1 − x_j). NaN marks a missing value.

    Args:
        n_components: the number of components.
        alpha: ones and zeros added to the counts of every component and column (1 is Laplace's rule, 0 is
            maximum likelihood).
        tol: EM stops when the mean log-likelihood rises by no more than this.
        max_iter: the most iterations of EM.
        n_init: the number of starts; the best fit is kept.
        weights_init, probs_init: start from these parameters, shaped as `weights_` and `probs_`.
        binarize: values above this threshold are 1, others 0; None requires zeros and ones.
        random_state: a seed or a `RandomState`.
        warm_start: start `fit` from the previous fit.
        verbose: whether to show a progress bar.
        learner: a learner or objective of energax.learn, instead of EM.

    Attributes:
        weights_: the probabilities of the components, (n_components,).
        probs_: the probability of a one for every component and column, (n_components, n_features).
        converged_, n_iter_: whether EM converged, and after how many iterations it stopped.
        lower_bound_, lower_bounds_: the mean log-likelihood at the end, and before every iteration.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> bm = BernoulliMixture(2, alpha=0.0, random_state=0).fit(X)
    >>> round(bm.score(X), 2)                                 # the maximum: −log 2
    -0.69
    """

    _sparse = True
    _settings = {
        **MixtureEstimator._settings,
        "alpha": FINITE_NOT_NEGATIVE,
        "probs_init": ARRAY | NONE,
        "binarize": ANY_NUMBER | NONE,
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        alpha: float = 1.0,
        tol: float = 1e-3,
        max_iter: int = 100,
        n_init: int = 1,
        weights_init: Any = None,
        probs_init: Any = None,
        binarize: float | None = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        learner: Any = None,
    ):
        self.n_components = n_components
        self.alpha = alpha
        self.tol = tol
        self.max_iter = max_iter
        self.n_init = n_init
        self.weights_init = weights_init
        self.probs_init = probs_init
        self.binarize = binarize
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.learner = learner

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        self._check_settings("binarize")  # it may have been set after `fit`
        return {"x": mask_missing(binarize(X, self.binarize))}

    def _start(self, X: np.ndarray, data: Any, weight: Any) -> tuple[Any, bool, int]:
        k, d = self.n_components, X.shape[1]
        if self.warm_start and hasattr(self, "energy_"):
            return self._warm_start(d), False, 1
        weights, probs = self._initial_weights(k), jnp.full((k, d), 0.5, self.dtype_)
        if self.probs_init is not None:
            given = np.asarray(self.probs_init, self.dtype_)
            if given.shape != (k, d) or not ((given > 0) & (given < 1)).all():
                raise BadInput("probs_init", f"shape {given.shape}", f"numbers in (0, 1) of shape ({k}, {d})")
            probs = asarray(given)
        random = self.probs_init is None
        return Mixture(Bernoullis(probs, float(self.alpha)), weights), random, self.n_init if random else 1

    def _warm_start(self, d: int) -> Any:
        """Return the model of the previous fit, with the present `alpha`."""
        model = self._previous_model(d)
        return Mixture(Bernoullis(model.components.probs, float(self.alpha)), model.weights)

    # -- densities -----------------------------------------------------------------------------

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of every row, over its observed values; −inf if it is impossible."""
        X = self._check_new_X(X)
        return np.where(self._is_impossible(X), -np.inf, self._query(components.log_evidence, X))

    def _log_prob(self, X: np.ndarray) -> Estimate:
        found = super()._log_prob(X)
        value = np.where(self._is_impossible(X), -np.inf, found.value)
        return Estimate(value, found.stderr, found.kind, found.method)

    def _is_impossible(self, X: np.ndarray) -> np.ndarray:
        """Whether every component excludes the row, (n,): only maximum likelihood, alpha=0, excludes values.

        Learning keeps probabilities a rounding error away from 0 and 1, where they could not be learned.
        """
        if self.energy_.components.pseudocount:
            return np.zeros(len(X), bool)
        X, probs = binarize(X, self.binarize), self.probs_
        eps = np.finfo(probs.dtype).eps
        never_on, never_off = (probs <= eps).astype(X.dtype), (probs >= 1 - eps).astype(X.dtype)
        excluded = (X == 1) @ never_on.T + (X == 0) @ never_off.T
        return ((excluded > 0) | (self.weights_ == 0)).all(1)

    # -- attributes ----------------------------------------------------------------------------

    def _n_parameters(self) -> int:
        k, d = self.probs_.shape
        return k - 1 + k * d

    @property
    def probs_(self) -> np.ndarray:
        """p(x_j = 1 | z), (n_components, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.components.probs)
