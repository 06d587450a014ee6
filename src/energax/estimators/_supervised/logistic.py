"""`LogisticRegression`: maximum likelihood with an L2, L1 or elastic-net penalty, and Wald intervals."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import optax
from scipy.special import softmax
from scipy.stats import norm

from ..._util.arrays import asarray
from ..._util.blas import limit_blas
from ...algorithms.optimise.logistic import (
    MOST_INEQUALITIES,
    contrast_covariance,
    information,
    is_separable,
)
from ...energies import Linear
from ...errors import BadInput, check_number
from ...learn import CrossEntropy, Descent, Newton, Proximal
from .._common.settings import CLASS_WEIGHT, FINITE_NOT_NEGATIVE, FLAG, VERBOSE, WHOLE, number, one_of
from .._common.sklearn_errors import warn_user
from .base import Problem
from .linear import LinearScores, is_for_newton
from .preconditioner import center_columns, precondition

#: The C of a fit whose maximum of the likelihood does not exist.
_SEPARABLE_C = 1.0
#: The most weights whose covariance is computed.
_MOST_ERRORS = 1000
#: Proximal gradient steps in an iteration.
_STEPS = 100
#: Scores beyond which the classes may be separable: a probability below 1e-6.
_EXTREME_SCORE = 14.0


class LogisticRegression(LinearScores):
    """Logistic regression, binary and multinomial: p(y | x) = softmax(Wx + b)_y.

    Minimises C Σ −w log p(y | x) + (1 − l1_ratio) ½ ‖W‖² + l1_ratio ‖W‖₁, with scikit-learn's arguments; the
    intercept has no penalty. For two classes W is one row, that of the second class.

    Args:
        C: the inverse strength of the penalty; `np.inf` for none.
        l1_ratio: 0 for the L2 penalty, 1 for L1, between them for the elastic net.
        tol: the tolerance of the gradient. The fit stops when an iteration changes the mean objective over
            rows by less than tol², or by rounding error.
        fit_intercept: whether b is learned; else it is 0.
        class_weight: the weights of the classes, times `sample_weight`: a dict from labels to numbers, or
            "balanced" for the same total weight each.
        solver: "newton" (iteratively reweighted least squares; with L1 its proximal form), "lbfgs" (L2 only),
            "proximal" (accelerated proximal gradient), or "auto": Newton where classes and columns are few,
            (n_classes − 1) (n_features + 1) <= 256, and else L-BFGS for L2 and proximal steps for L1.
        max_iter: the most iterations (of the proximal solver: of a hundred steps each).
        verbose: whether to show a progress bar.
        warm_start: start `fit` from the weights of the previous fit.

    Attributes:
        classes_: the labels, sorted.
        coef_: W, (n_classes, n_features); for two classes (1, n_features).
        intercept_: b, (n_classes,); for two classes (1,).
        C_: the C of the fit. It differs from `C` if there is no penalty and the classes are separable: the
            likelihood then has no maximum, and the fit has C_ = 1, with a warning.
        standard_errors_, intercept_standard_errors_: of `coef_` and `intercept_`.
        converged_, n_iter_: whether the fit converged, and after how many iterations it stopped.
        history_: the mean objective and its terms after every iteration.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    McCullagh and Nelder (1989), Generalized linear models.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LogisticRegression().fit(X, y)
    >>> model.score(X, y) > 0.95, model.confidence_intervals().shape
    (True, (3, 4, 2))
    """

    _settings: ClassVar = {
        "C": number(lambda value: value > 0, "a number > 0, or np.inf for no penalty"),
        "l1_ratio": number(lambda value: 0 <= value <= 1, "a number from 0 (L2) to 1 (L1)"),
        "tol": FINITE_NOT_NEGATIVE,
        "fit_intercept": FLAG,
        "class_weight": CLASS_WEIGHT,
        "solver": one_of("auto", "newton", "lbfgs", "proximal"),
        "max_iter": WHOLE,
        "verbose": VERBOSE,
        "warm_start": FLAG,
    }
    # What the base of classifiers reads, and what is not an argument here.
    loss: ClassVar = "cross-entropy"
    learner: ClassVar = None
    random_state: ClassVar = 0

    C_: float

    def __init__(
        self,
        *,
        C: float = 1.0,
        l1_ratio: float = 0.0,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        solver: str = "auto",
        max_iter: int = 100,
        verbose: int | bool = 0,
        warm_start: bool = False,
    ):
        self.C = C
        self.l1_ratio = l1_ratio
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.verbose = verbose
        self.warm_start = warm_start

    # -- learning ----------------------------------------------------------------------------

    # The threads of OpenBLAS wait in a loop after a Cholesky factor, on the cores that XLA needs: on a9a a
    # step takes 9 ms beside its Hessian, and 14 without the limit.
    @limit_blas()
    def _fit_rows(self, X, index, weight, continues):
        self._check_solver()
        self.C_ = float(self.C)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            super()._fit_rows(X, index, weight, continues)
        if np.isinf(self.C_) and self._is_separable(X, index):
            warn_user(
                "LogisticRegression: the classes are separable, so the likelihood without a penalty has no "
                f"maximum. The fit has the penalty of C={_SEPARABLE_C:g} instead (see C_). Set C to choose "
                "another."
            )
            self.C_ = _SEPARABLE_C
            super()._fit_rows(X, index, weight, continues)
        else:
            for warning in raised:
                warn_user(warning.message, warning.category)
        self._covariance = self._weight_covariance(X, weight)

    def _check_solver(self) -> None:
        if self.solver == "lbfgs" and self._l1 > 0:
            found = f"'lbfgs' with l1_ratio={self.l1_ratio!r}"
            raise BadInput("solver", found, "'newton', 'proximal' or 'auto' for an L1 penalty")

    def _is_warm_start(self):
        return bool(self.warm_start) and hasattr(self, "energy_")

    @property
    def _l1(self) -> float:  # type: ignore[override]
        return float(self.l1_ratio) if np.isfinite(self.C) else 0.0

    def _problem(self, X, weight):
        total = len(X) if weight is None else float(np.sum(weight, dtype=np.float64))
        strength = 1 / (self.C_ * total)
        # Two classes have weights ±w/2, the squares of which sum to half of w².
        l2 = strength * (1 - self.l1_ratio) * (2 if len(self.classes_) == 2 else 1)
        l1 = strength * self._l1
        # Arrays, so that another C needs no compilation.
        objective = CrossEntropy(l2=asarray(np.float64(l2)) if l2 else 0.0)
        centre, table = center_columns(X, weight) if self.fit_intercept else (np.zeros(X.shape[1]), X)
        start = self._centred_start(X, weight, centre)
        tol, solver = float(self.tol) ** 2, self._choose_solver(X.shape[1])
        penalty = asarray(np.float64(l1)) if l1 else None
        learner: Any
        if solver == "newton":
            learner = Newton(objective, l1=penalty, tol=tol)
        elif solver == "proximal":
            penalty = 0.0 if penalty is None else penalty
            learner = Proximal(objective, penalty, tol=float(self.tol), n_steps=_STEPS)
        else:
            optimizer = precondition(optax.lbfgs(), table, weight, 10 * l2 * len(self.classes_))
            learner = Descent(objective, optimizer, tol=tol)
        return Problem(start, table, learner, centre)

    def _choose_solver(self, d: int) -> str:
        if self.solver != "auto":
            return self.solver
        if is_for_newton(len(self.classes_), d):
            return "newton"
        return "proximal" if self._l1 > 0 else "lbfgs"

    def _centred_start(self, X: np.ndarray, weight: Any, centre: np.ndarray) -> Linear:
        """The first model, over centred columns."""
        if not self._is_warm_start():
            return self._start(X, weight)
        before = self.energy_
        bias = np.asarray(before.bias, np.float64) + np.asarray(before.weight, np.float64) @ centre
        bias = bias * bool(self.fit_intercept)
        return Linear(before.weight, asarray(bias.astype(self.dtype_)))

    def _fit_options(self, n_rows):
        return {"epochs": self.max_iter, "tolerance": True, "freeze": self._frozen()}

    def _divergence_hint(self, result):
        return "Scale the columns of X, or lower C."

    def _convergence_hint(self, result):
        return f"Raise max_iter (now {self.max_iter}) or tol, or scale the columns of X."

    # -- separable classes -------------------------------------------------------------------

    def _is_separable(self, X: np.ndarray, index: np.ndarray) -> bool:
        """Whether the likelihood has no maximum; asked where the fitted scores are extreme."""
        scores = self._scores_of_rows(X).astype(np.float64)
        own = np.take_along_axis(scores, index[:, None].astype(np.int64), 1)
        margins = np.where(np.arange(scores.shape[1]) == index[:, None], np.inf, own - scores)
        if margins.min() > 0:
            return True
        if self.converged_ and np.abs(margins[np.isfinite(margins)]).max() < _EXTREME_SCORE:
            return False
        rows = self._with_ones(X)
        if rows.size * scores.shape[1] ** 2 > MOST_INEQUALITIES:
            return not self.converged_
        return is_separable(rows, index, scores.shape[1])

    def _with_ones(self, X: np.ndarray) -> np.ndarray:
        return np.c_[X, np.ones(len(X), X.dtype)] if self.fit_intercept else X

    # -- standard errors ---------------------------------------------------------------------

    def _weight_covariance(self, X: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """The covariance of the weights of every class, (k, d, k, d) with the intercept last; or None."""
        k, n_columns = len(self.classes_), X.shape[1] + bool(self.fit_intercept)
        if self._l1 > 0 or k * n_columns > _MOST_ERRORS:
            return None
        # About the mean of the columns, where weights and intercept are nearly independent.
        mean = X.mean(0, dtype=np.float64) if self.fit_intercept else None
        found = information(X, softmax(self._scores_of_rows(X), axis=1), weight, mean)
        if np.isfinite(self.C_):
            columns = np.arange(X.shape[1])
            for a in range(k):
                found[a, columns, a, columns] += (2 if k == 2 else 1) / self.C_
        covariance = contrast_covariance(found)
        if mean is None:
            return covariance
        move = np.eye(n_columns)
        move[-1, :-1] = -mean
        return np.einsum("li,aibj,mj->albm", move, covariance, move, optimize=True)

    def _errors(self) -> np.ndarray:
        """The standard errors of `coef_` and, in the last column, `intercept_`."""
        self._check_fitted()
        if self._covariance is None:
            reason = (
                "with an L1 penalty some weights are 0 and have no normal distribution. Set l1_ratio=0."
                if self._l1 > 0
                else f"the covariance of more than {_MOST_ERRORS} weights is not computed."
            )
            raise AttributeError(f"LogisticRegression has no standard errors: {reason}")
        k, d = self._covariance.shape[:2]
        if k > 2:
            return np.sqrt(np.diagonal(self._covariance.reshape(k * d, k * d))).reshape(k, d)
        difference = np.array([-1.0, 1.0])
        variance = np.einsum("a,aibj,b->ij", difference, self._covariance, difference)
        return np.sqrt(np.diagonal(variance))[None]

    @property
    def standard_errors_(self) -> np.ndarray:
        """The standard errors of `coef_`, of the same shape.

        Square roots of the diagonal of the inverse of the observed information Σ w ∂²(−log p) / ∂W², plus
        that of an L2 penalty, which is the information of a normal prior. For three classes or more, among
        weights that sum to 0 over the classes. NaN where the data do not determine the weights.
        """
        return self._errors()[:, : self.n_features_in_]

    @property
    def intercept_standard_errors_(self) -> np.ndarray:
        """The standard errors of `intercept_`; 0 without one."""
        errors = self._errors()
        return errors[:, -1] if self.fit_intercept else np.zeros(len(errors))

    def confidence_intervals(self, level: float = 0.95) -> np.ndarray:
        """Return Wald intervals of `coef_`, coef ± z · standard error, (rows of coef_, n_features, 2)."""
        check_number("level", level, lambda level: 0 < level < 1, "a number strictly between 0 and 1")
        half = norm.ppf((1 + level) / 2) * self.standard_errors_
        return np.stack([self.coef_ - half, self.coef_ + half], axis=-1)
