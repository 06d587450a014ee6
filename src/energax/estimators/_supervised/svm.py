"""`SVC`: support vector machines for classes."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, ClassVar, Self

import jax
import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from ..._util.arrays import asarray
from ..._util.sizes import SMO_WORKING_SET, map_table, svm_rows
from ...energies import SupportVectorClassifier
from ...energies._supervised.svm import pairs_of
from ...errors import BadInput
from ...programs import jit
from .._common.settings import CLASS_WEIGHT, FLAG, RANDOM_STATE, number, one_of
from .._common.sklearn_errors import translate_sklearn_errors
from .base import Classifier, check_labels
from .platt import platt_scale
from .svm_base import SupportVectorMachine

#: Folds of the cross-validation for probabilities.
_FOLDS = 5
#: Numbers in the variables of all pairs, below which they are solved in one program.
_MOST_TOGETHER = 2**22


def _has_probabilities(self: Any) -> bool:
    if not (FLAG.is_valid(self.probability) and self.probability):
        raise AttributeError("predict_proba: needs probability=True, which fits them in cross-validation.")
    return True


class SVC(SupportVectorMachine, Classifier):
    """Support vector classifier: the widest margin between two classes in the space of a kernel.

    min ½ wᵀw + C Σ_i weight_i max(0, 1 − y_i (wᵀφ(x_i) + b)), solved in its dual by sequential minimal
    optimisation, with a certificate. Several classes are one problem for every pair. Everything is computed
    in float64; predictions have the dtype of X.

    Args:
        C: the price of a row inside the margin; np.inf for a hard margin, which raises an error if the
            classes are not separable.
        kernel: "rbf", exp(−γ‖x − y‖²); "linear"; "poly", (γ xᵀy + coef0)^degree; "sigmoid",
            tanh(γ xᵀy + coef0); a kernel of energax.kernels; a function that maps (n, d), (m, d) to (n, m);
            or "precomputed", X is then the kernel matrix, (n, n) in `fit` and (n_new, n) in `predict`.
        degree: of "poly".
        gamma: γ; "scale" is 1 / (n_features · X.var()), without weights, "auto" is 1 / n_features.
        coef0: of "poly" and "sigmoid".
        probability: whether to fit probabilities too, by Platt scaling in five-fold cross-validation; several
            classes are coupled. They may disagree with `predict`, which follows the margin.
        tol: the largest violation of the optimality conditions to stop at.
        cache_size: megabytes for rows of the kernel matrix.
        class_weight: the weights of the classes, times `sample_weight`: a dict from labels to numbers, or
            "balanced" for the same total weight each.
        verbose: whether to show a progress bar.
        max_iter: the most steps, each on a pair of rows; -1 for no limit.
        decision_function_shape: "ovr", one score per class, or "ovo", one per pair; two classes have one.
        break_ties: whether `predict` decides ties of votes by the scores, else for the first class.
        random_state: a seed or a `RandomState`, for the folds of `probability`.

    Attributes:
        classes_: the labels, sorted.
        support_, support_vectors_: the indices of the support vectors, class by class, and their rows.
        n_support_: their number in each class.
        dual_coef_: y_i a_i of the support vectors, (n_classes − 1, n_support), as in scikit-learn.
        intercept_: b, one for every pair of classes.
        coef_: w, for a linear kernel.
        dual_objective_, duality_gap_, kkt_violation_, n_at_bound_: the certificate: ½ aᵀQa − Σ a, the
            objective of the primal minus that of the dual, the largest violation of the optimality
            conditions, and the number of support vectors with a_i = C; arrays, one number for every pair,
            if there are more than two classes.
        n_iter_: the steps of every pair; converged_: whether all reached `tol`.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    Cortes and Vapnik (1995), Support-vector networks; Fan, Chen and Lin (2005), Working set selection using
    second order information; Lin, Lin and Weng (2007), A note on Platt's probabilistic outputs.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SVC(C=10.0).fit(X, y)
    >>> model.score(X, y) > 0.95, bool((model.duality_gap_ < 0.1).all())
    (True, True)
    """

    _settings: ClassVar = {
        "C": number(lambda value: value > 0, "a number > 0, or np.inf for a hard margin"),
        **SupportVectorMachine._settings,
        "probability": FLAG,
        "class_weight": CLASS_WEIGHT,
        "decision_function_shape": one_of("ovr", "ovo"),
        "break_ties": FLAG,
        "random_state": RANDOM_STATE,
    }
    # What the base of classifiers reads, and what is not an argument here.
    loss: ClassVar = "margin"
    learner: ClassVar = None

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: Any = "rbf",
        degree: int = 3,
        gamma: Any = "scale",
        coef0: float = 0.0,
        probability: bool = False,
        tol: float = 1e-3,
        cache_size: float = 1000,
        class_weight: Any = None,
        verbose: int | bool = False,
        max_iter: int = -1,
        decision_function_shape: str = "ovr",
        break_ties: bool = False,
        random_state: Any = None,
    ):
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.probability = probability
        self.tol = tol
        self.cache_size = cache_size
        self.class_weight = class_weight
        self.verbose = verbose
        self.max_iter = max_iter
        self.decision_function_shape = decision_function_shape
        self.break_ties = break_ties
        self.random_state = random_state

    # -- learning ----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier.

        Args:
            X: a table (n_samples, n_features), or the kernel matrix if kernel="precomputed".
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, which multiply C, (n_samples,).
        """
        self._check_has_labels(y)
        X, y = self._check_X(X, reset=True, y=y)
        weight = self._check_weight(sample_weight, X)
        check_labels("y", y)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        self._check_two_classes()
        weight = self._weight_by_class(index, weight)
        weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        X = X.astype(np.float64)
        if self._is_precomputed:
            self._check_gram(X)
        self._set_kernel(X)
        with self._precision():
            self._fit_pairs(X, index, weight)
        return self

    def _fit_pairs(self, X: np.ndarray, index: np.ndarray, weight: np.ndarray) -> None:
        """Solve the problem of every pair of classes, and set the fitted attributes."""
        rows, totals = self._model_rows(X), np.bincount(index, weight)
        if not totals.all():
            found = f"0 for all rows of class {self.classes_[totals.argmin()]!r}"
            raise BadInput("sample_weight", found, "weights > 0 in each class")
        calibration = self._calibrate(rows, index, weight) if self.probability else None
        coefficients, intercepts, certificate = self._solve_pairs(rows, index, weight)
        self._set_support(X, index, coefficients, intercepts)
        self._record(certificate)
        self.energy_ = SupportVectorClassifier(
            self.kernel_,
            None if self.kernel_ is None else asarray(self.support_vectors_),
            asarray(coefficients[:, self.support_]),
            asarray(intercepts),
            calibration,
        )

    def _solve_pairs(self, rows: np.ndarray, index: np.ndarray, weight: np.ndarray) -> Any:
        """Return coefficients (pairs, n), intercepts (pairs,) and the certificate of all pairs."""
        first, second = pairs_of(len(self.classes_))
        per_class = np.bincount(index, weight > 0)
        largest = int((per_class[first] + per_class[second]).max())
        if len(first) > 1 and largest <= SMO_WORKING_SET and len(first) * len(rows) <= _MOST_TOGETHER:
            return self._solve(self._start(len(self.classes_)), rows, index, weight, svm_rows(largest))
        coefficients, each = np.zeros((len(first), len(rows))), []
        for p, (i, j) in enumerate(zip(first, second, strict=True)):
            members = np.flatnonzero(((index == i) | (index == j)) & (weight > 0))
            own = rows[members] if self.kernel_ is not None else rows[np.ix_(members, members)]
            labels = (index[members] == j).astype(np.int32)
            found, *parts = self._solve(self._start(2), own, labels, weight[members])
            coefficients[p, members] = found[0]
            each.append(parts)
        intercepts, certificates = zip(*each, strict=True)
        join = lambda *values: np.stack(values)
        return coefficients, np.concatenate(intercepts), jax.tree.map(join, *certificates)

    def _start(self, k: int) -> Any:
        """Return a function from padded rows to the first model of k classes."""
        pairs = k * (k - 1) // 2

        def start(padded):
            support = None if self.kernel_ is None else asarray(padded)
            zeros = asarray(np.zeros((pairs, len(padded))))
            return SupportVectorClassifier(self.kernel_, support, zeros, asarray(np.zeros(pairs)))

        return start

    def _calibrate(self, rows: np.ndarray, index: np.ndarray, weight: np.ndarray) -> Any:
        """Return (A, B) of every pair, from f of every row by a fit to the rows of other folds."""
        counted = weight > 0
        fold = self._folds(np.where(counted, index, -1))
        first, second = pairs_of(len(self.classes_))
        outputs = np.zeros((len(rows), len(first)))
        for f in range(fold.max() + 1):
            is_out = fold == f
            coefficients, intercepts, _ = self._solve_pairs(rows, index, np.where(is_out, 0, weight))
            used = np.flatnonzero((coefficients != 0).any(0))
            if self.kernel_ is None:
                values = rows[np.ix_(is_out, used)] @ coefficients[:, used].T
                outputs[is_out] = values + intercepts
                continue
            parts = asarray(rows[used]), asarray(coefficients[:, used]), asarray(intercepts)
            outputs[is_out] = self._row_outputs(SupportVectorClassifier(self.kernel_, *parts), rows[is_out])
        found = []
        for p, (i, j) in enumerate(zip(first, second, strict=True)):
            members = counted & ((index == i) | (index == j))
            found.append(platt_scale(outputs[members, p], index[members] == j))
        return asarray(np.array(found))

    def _folds(self, index: np.ndarray) -> np.ndarray:
        """Return the fold of every row, (n,): equal shares of every class, the same for all pairs."""
        counted = index >= 0
        sizes = np.bincount(index[counted])
        if sizes.min() < 2:
            found = f"True, and a class with {sizes.min()} row"
            raise BadInput("probability", found, "at least 2 rows in each class")
        fold = np.full(len(index), -1)
        splits = StratifiedKFold(min(_FOLDS, sizes.max()), shuffle=True, random_state=self._seed())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a class of fewer rows than folds is in all of their fits
            for f, (_, members) in enumerate(splits.split(index[counted], index[counted])):
                fold[np.flatnonzero(counted)[members]] = f
        return fold

    def _set_support(self, X, index, coefficients, intercepts):
        k, used = len(self.classes_), (coefficients != 0).any(0)
        by_class = [np.flatnonzero(used & (index == i)) for i in range(k)]
        self.support_ = np.concatenate(by_class).astype(np.int32)
        self.n_support_ = np.array([len(some) for some in by_class], np.int32)
        self.support_vectors_ = X[self.support_] if not self._is_precomputed else np.zeros((0, 0))
        # As libsvm: pairs are positive for their first class, but two classes for the second.
        signed = coefficients if k == 2 else -coefficients
        self.dual_coef_ = np.zeros((k - 1, len(self.support_)))
        of_class = index[self.support_]
        for p, (i, j) in enumerate(zip(*pairs_of(k), strict=True)):
            values = signed[p, self.support_]
            self.dual_coef_[j - 1, of_class == i] = values[of_class == i]
            self.dual_coef_[i, of_class == j] = values[of_class == j]
        self.intercept_ = intercepts if k == 2 else -intercepts

    @property
    def coef_(self) -> np.ndarray:
        """w of every pair, for a linear kernel: (n_pairs, n_features)."""
        if not (isinstance(self.kernel, str) and self.kernel == "linear"):
            raise AttributeError("coef_ exists only for kernel='linear'.")
        self._check_fitted()
        weight = np.asarray(self.energy_.coefficients) @ self.support_vectors_
        return weight if len(self.classes_) == 2 else -weight

    # -- predictions ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> np.ndarray:
        """Return the score of every row and class, (n, k), without calibration."""
        outputs = self._outputs(X)
        uncalibrated = dataclasses.replace(self.energy_, calibration=None)
        with self._precision():
            return map_table(lambda rows: _class_scores(uncalibrated, rows), outputs).astype(self.dtype_)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return f of two classes, (n,); else the scores (n, k), or with "ovo" those of all pairs."""
        self._check_fitted()
        self._check_settings("decision_function_shape")
        if len(self.classes_) == 2 or self.decision_function_shape == "ovo":
            outputs = self._outputs(X)
            return outputs[:, 0] if len(self.classes_) == 2 else -outputs
        return self._scores(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the label that wins most pairs, for every row."""
        self._check_fitted()
        self._check_settings("break_ties", "decision_function_shape")
        if self.break_ties and len(self.classes_) > 2:
            if self.decision_function_shape == "ovo":
                raise BadInput("break_ties", "True, and decision_function_shape='ovo'", "'ovr'")
            return self.classes_[self._scores(X).argmax(1)]
        outputs = self._outputs(X)
        with self._precision():
            votes = map_table(lambda rows: _votes(self.energy_, rows), outputs)
        return self.classes_[votes.argmax(1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class for every row, (n, k), by Platt scaling."""
        return np.exp(self.predict_log_proba(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, (n, k)."""
        outputs = self._outputs(X)
        if self.energy_.calibration is None:
            raise BadInput("probability", "False in fit", "True", "Call fit again.")
        with self._precision():
            scores = map_table(lambda rows: _class_scores(self.energy_, rows), outputs).astype(self.dtype_)
        scores = scores - scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))


@jit
def _class_scores(energy: Any, outputs: Any) -> Any:
    return jax.vmap(energy.scores_of)(asarray(outputs))


@jit
def _votes(energy: Any, outputs: Any) -> Any:
    return jax.vmap(energy.votes)(asarray(outputs))
