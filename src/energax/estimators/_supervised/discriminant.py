"""Class-conditional Gaussians: linear and quadratic discriminant analysis."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ..._util.arrays import asarray
from ...algorithms.gaussian.discriminant import (
    ClassMoments,
    Directions,
    between_directions,
    class_moments,
    general_directions,
    ledoit_wolf,
    linear_scores,
    shrink,
    widen_null_directions,
)
from ...energies import Covariance, Full, Gaussians, Tied
from ...errors import BadInput
from ...infer._exact import components
from ...learn import EM
from ...missing import any_nan
from ...mixture import Mixture
from .._base import Transformer
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, NONE, WHOLE, Setting, number, one_of
from .._common.sklearn_errors import warn_user
from .._common.table import check_no_empty_column, mask_missing
from .generative import GenerativeClassifier

_PART = number(lambda value: 0 <= value <= 1, "a number from 0 to 1")


class Discriminant(GenerativeClassifier):
    """The base of classifiers with one Gaussian per class: p(x | y) = N(x; μ_y, Σ_y)."""

    _settings: ClassVar[dict[str, Setting]] = {
        **GenerativeClassifier._settings,
        "shrinkage": _PART | one_of("auto") | NONE,
        "store_covariance": FLAG,
        "tol": FINITE_NOT_NEGATIVE,
        "max_iter": WHOLE,
    }
    #: The class of the covariances.
    _covariance: ClassVar[type[Covariance]]

    means_: np.ndarray
    priors_: np.ndarray

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit a Gaussian to the rows of every class, in closed form; by EM if values are missing.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,).
        """
        self._check_solver()
        X, index, weight = self._check_rows(X, y, sample_weight, reset=True)
        self._check_class_sizes(index, X.shape[1])
        check_no_empty_column(mask_missing(X))
        self.n_iter_, self.converged_ = 1, True
        if any_nan(X):
            moments = self._moments_by_em(X, index, weight)
        else:
            moments = class_moments(X, index, weight, len(self.classes_))
        given = self._given_priors()
        priors = moments.weight / moments.weight.sum() if given is None else given
        covariances = self._regularise(moments, X, index, weight, priors)
        self.means_, self.priors_ = moments.means.astype(self.dtype_), priors.astype(self.dtype_)
        with self._precision():
            covariance: Any = self._covariance(asarray(covariances.astype(self.dtype_)), 0.0)  # type: ignore[call-arg]
            gaussians = Gaussians(asarray(self.means_), covariance)
            self._set_energy(Mixture(gaussians, asarray(self.priors_)))
        return self

    # -- overridden by subclasses ------------------------------------------------------------

    def _check_solver(self) -> None:
        """Raise if arguments exclude one another."""

    def _check_class_sizes(self, index: np.ndarray, d: int) -> None:
        """Raise if a class has too few rows."""
        counts = np.bincount(index, minlength=len(self.classes_))
        if not counts.all():
            label = self.classes_.tolist()[int(counts.argmin())]
            found = f"weight 0 for all rows of class {label!r}"
            raise BadInput("sample_weight", found, "a row of weight > 0 in every class")

    def _regularise(
        self, moments: ClassMoments, X: np.ndarray, index: np.ndarray, weight: np.ndarray, priors: np.ndarray
    ) -> np.ndarray:
        """Return the covariance of the model, after shrinkage."""
        raise NotImplementedError

    # -- shared ------------------------------------------------------------------------------

    def _moments_by_em(self, X: np.ndarray, index: np.ndarray, weight: np.ndarray) -> ClassMoments:
        """Return the moments of the classes by EM over the missing values."""
        if isinstance(self.shrinkage, str):
            expected = "a number, or None: Ledoit and Wolf's shrinkage is that of complete rows"
            raise BadInput("shrinkage", "'auto' for rows with missing values", expected)
        x, k = mask_missing(X), len(self.classes_)
        observed = x.observed * weight[:, None]
        middle = (observed * x.value).sum(0) / observed.sum(0)
        spread = (observed * (x.value - middle) ** 2).sum(0) / observed.sum(0)
        spread = np.diag(np.where(spread > 0, spread, 1.0)).astype(self.dtype_)
        dense = spread if self._covariance is Tied else np.tile(spread, (k, 1, 1))
        with self._precision():
            means = asarray(np.tile(middle, (k, 1)).astype(self.dtype_))
            start = Mixture(Gaussians(means, self._covariance(asarray(dense), 0.0)))  # type: ignore[call-arg]
            learner = EM(tol=max(1e-10, 10 * float(np.finfo(self.dtype_).eps)))
            options = {"epochs": self.max_iter, "tolerance": True, "validated": True}
            self._learn(start, {"x": x, "z": index}, learner, weights=weight, **options)
            found: Any = self.energy_.components
            covariances = found.covariance.dense(k, X.shape[1])
            total = np.bincount(index, weight, minlength=k)
            return ClassMoments(total, *(np.asarray(a, np.float64) for a in (found.means, covariances)))

    def _shrunk(self, covariance: np.ndarray, X: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Return a covariance after shrinkage; X are the rows it is of."""
        if isinstance(self.shrinkage, str):
            return ledoit_wolf(X.astype(np.float64), weight.astype(np.float64))
        return covariance if self.shrinkage is None else shrink(covariance, float(self.shrinkage))

    def _shrunk_classes(self, moments: ClassMoments, X: Any, index: Any, weight: Any) -> np.ndarray:
        """Return the covariance of every class after shrinkage, (k, d, d)."""
        rows = (index == z for z in range(len(self.classes_)))
        return np.stack(
            [self._shrunk(c, X[r], weight[r]) for c, r in zip(moments.covariances, rows, strict=True)]
        )


class LinearDiscriminantAnalysis(Transformer, Discriminant):
    """Linear discriminant analysis: one Gaussian per class, with the same covariance: N(x; μ_y, Σ).

    log p(y | x) is linear in x. The covariance is that of maximum likelihood. NaN marks a missing value: EM
    learns from the observed values, predictions integrate the others out, and `transform` takes their means
    given the observed ones.

    Args:
        solver: "svd" (no shrinkage; a covariance of all rows about the means of their classes), "lsqr"
            (no `transform`) or "eigen": the covariances of the classes, weighted by `priors`.
        shrinkage: None, a number from 0 to 1 (1 leaves only the mean of the variances), or "auto" for Ledoit
            and Wolf's. For "lsqr" and "eigen".
        priors: the probabilities of the classes, in the order of `classes_`; None for their frequencies.
        n_components: the number of columns of `transform`; None for min(n_classes − 1, n_features).
        store_covariance: whether "svd" sets `covariance_`; the others always do.
        tol: a direction whose variance within classes is less than tol² of that of its columns is left out,
            with a warning.
        max_iter: the most iterations of EM, for missing values.

    Attributes:
        classes_, priors_: the labels, sorted, and their probabilities.
        means_: the means of the classes, (n_classes, n_features).
        covariance_: the covariance within classes, weighted by `priors_`.
        coef_, intercept_: W and b of `decision_function`; for two classes the second minus the first.
        scalings_, xbar_, explained_variance_ratio_: the directions of `transform`, its origin, and the parts
            of the variance between classes that they have.
        energy_: the fitted model over x and z, the class, for functions such as `energax.posterior`.

    Results are those of scikit-learn, the signs of directions excepted. Fisher (1936), The use of multiple
    measurements in taxonomic problems.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = LinearDiscriminantAnalysis().fit(X, y)
    >>> round(model.score(X, y), 2), model.transform(X).shape
    (0.98, (150, 2))
    """

    _covariance = Tied
    _settings = {
        **Discriminant._settings,
        "solver": one_of("svd", "lsqr", "eigen"),
        "n_components": WHOLE | NONE,
    }

    def __init__(
        self,
        solver: str = "svd",
        shrinkage: Any = None,
        priors: Any = None,
        n_components: int | None = None,
        store_covariance: bool = False,
        tol: float = 1e-4,
        *,
        max_iter: int = 1000,
    ):
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.n_components = n_components
        self.store_covariance = store_covariance
        self.tol = tol
        self.max_iter = max_iter

    def _check_solver(self) -> None:
        if self.solver == "svd" and self.shrinkage is not None:
            found = f"{self.shrinkage!r} with solver='svd'"
            raise BadInput("shrinkage", found, "None", "Set solver='lsqr' or 'eigen'.")

    def _check_class_sizes(self, index: np.ndarray, d: int) -> None:
        super()._check_class_sizes(index, d)
        k = len(self.classes_)
        if len(index) <= k:
            raise BadInput("X", f"n_samples={len(index)} with {k} classes", "more rows than classes")
        most = min(k - 1, d)
        if self.n_components is not None and self.n_components > most:
            expected = f"at most {most}, the smaller of n_features and n_classes - 1"
            raise BadInput("n_components", str(self.n_components), expected)

    def _regularise(self, moments, X, index, weight, priors):
        classes = self._shrunk_classes(moments, X, index, weight)
        by_prior = np.tensordot(priors, classes, axes=1)
        within = moments.pooled if self.solver == "svd" else by_prior
        within, singular = widen_null_directions(within, float(self.tol))
        if singular:
            warn_user(
                "LinearDiscriminantAnalysis: the covariance within classes is singular, since columns are "
                "constant, or sums of others, or the rows are fewer than the columns. Drop columns, or set "
                "solver='eigen' and shrinkage='auto'."
            )
        self.xbar_ = priors @ moments.means
        found = self._directions(within, moments, X, weight, priors)
        most = self.n_components or min(len(priors) - 1, X.shape[1])
        self.scalings_, self.explained_variance_ratio_ = found.scalings, found.ratio[:most]
        if self.store_covariance or self.solver != "svd":
            self.covariance_ = by_prior
        origin = self.xbar_ if self.solver == "svd" else np.zeros_like(self.xbar_)
        self._weight, self._bias = linear_scores(within, moments.means, priors, origin)
        return within

    def _directions(self, within, moments, X, weight, priors) -> Directions:
        if self.solver != "eigen" or any_nan(X):
            return between_directions(within, moments.means, priors, float(self.tol))
        total = class_moments(X, np.zeros(len(X), int), weight, 1).pooled
        return general_directions(within, self._shrunk(total, X, weight))

    def _scores(self, X: Any) -> np.ndarray:
        X = self._check_new_X(X)
        if not any_nan(X):
            return (X @ self._weight.T + self._bias).astype(self.dtype_)
        with self._precision():
            return components.log_joint(self.energy_, self._to_data(X))

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows in the directions that separate the classes best, (n, n_components)."""
        if self.solver == "lsqr":
            raise BadInput("solver", "'lsqr', which has no transform", "'svd' or 'eigen'")
        X = self._check_new_X(X)
        if any_nan(X):
            with self._precision():
                X = np.where(np.isnan(X), components.impute(self.energy_, self._to_data(X))["x"], X)
        X = X - self.xbar_ if self.solver == "svd" else X
        return (X @ self.scalings_[:, : self._n_features_out]).astype(self.dtype_)

    @property
    def _n_features_out(self) -> int:
        return len(self.explained_variance_ratio_)

    @property
    def coef_(self) -> np.ndarray:
        """W, (n_classes, n_features); for two classes that of `decision_function`, (1, n_features)."""
        self._check_fitted()
        return _second_minus_first(self._weight).astype(self.dtype_)

    @property
    def intercept_(self) -> np.ndarray:
        """b, (n_classes,); for two classes that of `decision_function`, (1,)."""
        self._check_fitted()
        return _second_minus_first(self._bias).astype(self.dtype_)


class QuadraticDiscriminantAnalysis(Discriminant):
    """Quadratic discriminant analysis: one Gaussian per class, each with its own covariance: N(x; μ_y, Σ_y).

    The covariances are those of maximum likelihood. NaN marks a missing value: EM learns from the observed
    values, and predictions integrate the others out.

    Args:
        solver: "svd", with `reg_param`, or "eigen", with `shrinkage`.
        shrinkage: None, a number from 0 to 1 (1 leaves only the mean of the variances), or "auto" for Ledoit
            and Wolf's. For "eigen".
        priors: the probabilities of the classes, in the order of `classes_`; None for their frequencies.
        reg_param: r of the covariances (1 − r) Σ + r I. For "svd".
        store_covariance: whether to set `covariance_`.
        tol: a direction whose variance in a class is less than tol² of that of its columns is an error.
        max_iter: the most iterations of EM, for missing values.

    Attributes:
        classes_, priors_: the labels, sorted, and their probabilities.
        means_: the means of the classes, (n_classes, n_features).
        covariance_: the covariances of the classes, a list of (n_features, n_features).
        energy_: the fitted model over x and z, the class, for functions such as `energax.posterior`.

    Results are those of scikit-learn. Friedman (1989), Regularized discriminant analysis.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(QuadraticDiscriminantAnalysis().fit(X, y).score(X, y), 2)
    0.98
    """

    _covariance = Full
    _settings = {**Discriminant._settings, "solver": one_of("svd", "eigen"), "reg_param": _PART}

    def __init__(
        self,
        *,
        solver: str = "svd",
        shrinkage: Any = None,
        priors: Any = None,
        reg_param: float = 0.0,
        store_covariance: bool = False,
        tol: float = 1e-4,
        max_iter: int = 1000,
    ):
        self.solver = solver
        self.shrinkage = shrinkage
        self.priors = priors
        self.reg_param = reg_param
        self.store_covariance = store_covariance
        self.tol = tol
        self.max_iter = max_iter

    def _check_solver(self) -> None:
        if self.solver == "svd" and self.shrinkage is not None:
            found = f"{self.shrinkage!r} with solver='svd'"
            raise BadInput("shrinkage", found, "None", "Set solver='eigen', or use reg_param.")

    def _regularise(self, moments, X, index, weight, priors):
        covariances = self._shrunk_classes(moments, X, index, weight)
        if self.solver == "svd":
            r = float(self.reg_param)
            covariances = (1 - r) * covariances + r * np.eye(X.shape[1])
        for label, rows, covariance in zip(
            self.classes_.tolist(), np.bincount(index, minlength=len(priors)), covariances, strict=True
        ):
            if widen_null_directions(covariance, float(self.tol))[1]:
                why = "columns are constant or sums of others"
                why = (
                    f"{rows} row{'s' * int(rows > 1)} for {X.shape[1]} columns" if rows <= X.shape[1] else why
                )
                remedy = "Set solver='eigen' and shrinkage='auto', or reg_param=0.1."
                raise BadInput(
                    "X", f"a singular covariance of class {label!r} ({why})", "one with an inverse", remedy
                )
        if self.store_covariance:
            self.covariance_ = [c.astype(self.dtype_) for c in covariances]
        return covariances

    def _scores(self, X: Any) -> np.ndarray:
        """Return the scores of scikit-learn: log p(x, y) without the constant of the normal density."""
        X = self._check_new_X(X)
        with self._precision():
            scores = components.log_joint(self.energy_, self._to_data(X))
        observed = np.full(len(X), X.shape[1]) if not any_nan(X) else (~np.isnan(X)).sum(1)
        return scores + self.dtype_.type(0.5 * np.log(2 * np.pi)) * observed[:, None].astype(self.dtype_)


def _second_minus_first(by_class: np.ndarray) -> np.ndarray:
    """The parameters of every class; for two classes those of the second minus those of the first."""
    return by_class[1:] - by_class[:1] if len(by_class) == 2 else by_class
