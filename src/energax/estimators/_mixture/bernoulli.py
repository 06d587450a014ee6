"""The Bernoulli mixture as a recipe."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...energies import Bernoullis
from ...errors import BadInput
from ...mixture import Mixture
from .._common.table import with_mask, zeros_and_ones
from .gaussian import MixtureRecipe


class BernoulliMixture(MixtureRecipe):
    """p(x) = Σ_z π_z Π_j p_zj^x_j (1 − p_zj)^(1 − x_j) for binary rows, by EM.

    Args:
        alpha: ones and zeros each component is taken to have seen in every column beforehand
            (Laplace's rule is 1; 0 is maximum likelihood).
        binarize: values above it count as 1, the others as 0; None takes only zeros and ones.

    The other arguments are those of `GaussianMixture`.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> bm = BernoulliMixture(2, alpha=0.0, random_state=0).fit(X)
    >>> round(bm.score(X), 2)                                 # the best there is: −log 2
    -0.69
    """

    _sparse = True
    _not_negative = ("alpha",)

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

    def _given(self, X: np.ndarray) -> dict[str, Any]:
        return {"x": with_mask(zeros_and_ones(X, self.binarize))}

    def _start(self, X: np.ndarray, data: Any, weight: Any) -> tuple[Any, bool, int]:
        k, d = self.n_components, X.shape[1]
        if self.warm_start and hasattr(self, "energy_"):
            return self._warm(d), False, 1
        weights, probs = self._checked_weights(k), jnp.full((k, d), 0.5, self.dtype_)
        if self.probs_init is not None:
            given = np.asarray(self.probs_init, self.dtype_)
            if given.shape != (k, d) or not ((given > 0) & (given < 1)).all():
                raise BadInput("probs_init", f"shape {given.shape}", f"numbers in (0, 1) of shape ({k}, {d})")
            probs = jnp.asarray(given)
        random = self.probs_init is None
        return Mixture(Bernoullis(probs, float(self.alpha)), weights), random, self.n_init if random else 1

    def _warm(self, d: int) -> Any:
        """The fit before, with the prior asked for now."""
        before = self._before(d)
        return Mixture(Bernoullis(before.components.probs, float(self.alpha)), before.weights)

    def _n_parameters(self) -> int:
        k, d = self.probs_.shape
        return k - 1 + k * d

    @property
    def probs_(self) -> np.ndarray:
        """p(x_j = 1 | z), (n_components, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.components.probs)
