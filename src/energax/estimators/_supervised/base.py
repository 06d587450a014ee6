"""`Classifier`: labels, class weights and predictions of all classifiers."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple, Self

import jax
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...energy import Energy
from ...errors import BadInput, describe
from ...fitting import Fit, Learner
from ...learn import CrossEntropy, Margin, Objective, Perceptron
from ...programs import jit
from .._base import EnergyEstimator
from .._common.class_weight import check_not_balanced, class_weights
from .._common.settings import (
    CLASS_WEIGHT,
    COMMON,
    FINITE_NOT_NEGATIVE,
    NONE,
    WHOLE,
    Setting,
    instance,
    one_of,
)
from .._common.sklearn_errors import translate_sklearn_errors
from .._common.table import drop_zero_weight

_ALL_ROWS = Setting(lambda value: value is None, "None for all rows")
_LOSSES = {"cross-entropy": CrossEntropy, "margin": Margin, "perceptron": Perceptron}


def _has_probabilities(self: Any) -> bool:
    named = isinstance(self.loss, str) and self.loss in ("margin", "perceptron")
    if self.learner is None and (named or isinstance(self.loss, Margin | Perceptron)):
        raise AttributeError(
            f"predict_proba: loss={self.loss!r} does not estimate probabilities. Use 'cross-entropy'."
        )
    return True


class Problem(NamedTuple):
    """The arguments of `fit`: the initial model, the columns, and the learner."""

    energy: Energy
    columns: np.ndarray
    learner: Learner
    #: The means that were subtracted from the columns, or None.
    centre: np.ndarray | None = None


class Classifier(ClassifierMixin, EnergyEstimator):
    """The base of classifiers: a score for every class, the largest of which is predicted.

    A subclass builds the model in `_start` and its learner in `_learner`.
    """

    _sparse = True
    _settings: ClassVar[dict[str, Setting]] = {
        **COMMON,
        "loss": instance(Objective, "an objective") | one_of(*_LOSSES),
        "alpha": FINITE_NOT_NEGATIVE,
        "class_weight": CLASS_WEIGHT,
        "batch_size": WHOLE | _ALL_ROWS,
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE | NONE,
    }

    classes_: np.ndarray

    # -- learning --------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier.

        Args:
            X: a table (n_samples, n_features).
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,).
        """
        self._check_has_labels(y)
        continues = self._is_warm_start()
        X, y = self._check_X(X, reset=not continues, y=y)
        weight = self._check_weight(sample_weight, X)
        check_labels("y", y)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        if continues:
            index = self._class_index(y)
        else:
            self.classes_, index = np.unique(y, return_inverse=True)
            self._check_two_classes()
        X, index, weight = drop_zero_weight(X, index, weight=self._weight_by_class(index, weight))
        self._fit_rows(X, index.astype(np.int32), weight, continues)
        return self

    def _fit_rows(self, X: np.ndarray, index: np.ndarray, weight: np.ndarray | None, continues: bool) -> None:
        """Fit to validated rows of positive weight; `index` is the class of each."""
        options = self._fit_options(len(X))
        with self._precision():
            problem = self._problem(X, weight)
            data = {"x": problem.columns, "y": index}
            result = self._learn(
                problem.energy, data, problem.learner, weights=weight, validated=True, **options
            )
        if problem.centre is not None:
            self.fit_ = self._uncenter(result, problem.centre)
            self.energy_ = self.fit_.energy
        self.n_batches_seen_ = 0
        self._record_epochs(continues, len(X))

    # -- overridden by subclasses ------------------------------------------------------------

    def _start(self, X: np.ndarray, weight: np.ndarray | None) -> Energy:
        """Return the initial model."""
        raise NotImplementedError

    def _learner(self, partial: bool = False) -> Learner:
        """Return the learner of `fit`, or that of `partial_fit`."""
        raise NotImplementedError

    def _fit_options(self, n_rows: int) -> dict[str, Any]:
        """Return the options of `_learn`, for this number of rows of positive weight."""
        raise NotImplementedError

    def _problem(self, X: np.ndarray, weight: np.ndarray | None) -> Problem:
        return Problem(self._start(X, weight), self._columns(X), self._learner())

    def _uncenter(self, result: Fit, centre: np.ndarray) -> Fit:
        """Return a fit to columns minus `centre` as a fit to the columns themselves."""
        raise NotImplementedError

    def _columns(self, X: np.ndarray) -> np.ndarray:
        """Return X as the model takes it."""
        return X

    def _is_warm_start(self) -> bool:
        """Return whether `fit` starts from the previous fit."""
        return False

    def _record_epochs(self, continues: bool, n_rows: int) -> None:
        """Set attributes after learning; `continues` if earlier epochs still count."""

    def _frozen(self) -> Any:
        """The parameters that are not learned, as in the argument `freeze` of `fit`."""
        return None

    # -- labels and weights --------------------------------------------------------------------

    def _check_has_labels(self, y: Any) -> None:
        if y is None:
            expected = f"labels: {type(self).__name__} requires y to be passed, but the target y is None"
            raise BadInput("y", "None", expected)

    def _check_two_classes(self) -> None:
        if len(self.classes_) < 2:
            raise BadInput(
                "y", f"only one class, {self.classes_.tolist()[0]!r}", "labels of at least 2 classes"
            )

    def _class_index(self, y: Any) -> np.ndarray:
        """Return labels as indices into `classes_`; raise if one is unknown."""
        unknown = ~np.isin(y, self.classes_)
        if unknown.any():
            raise BadInput(
                "y", f"the label {y[unknown].tolist()[0]!r}", f"one of {self.classes_.tolist()[:20]}"
            )
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _weight_by_class(self, index: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """Return the weights of the rows times those of their classes."""
        if self.class_weight is None:
            return weight
        by_row = class_weights(self.class_weight, self.classes_, index, weight)[index]
        by_row = (by_row if weight is None else weight * by_row).astype(self.dtype_)
        if not by_row.any():
            raise BadInput("class_weight", "0 for every row", "a weight > 0 for some class of y")
        return by_row

    # -- predictions ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> np.ndarray:
        """Return the score of every row and class, (n, k)."""
        return self._scores_of_rows(self._check_new_X(X))

    def _scores_of_rows(self, X: np.ndarray) -> np.ndarray:
        """Return the score of every class for rows that are validated already, (n, k)."""
        with self._precision():
            return map_table(lambda rows: _score_rows(self.energy_, rows), self._columns(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores (n, k); for two classes that of the second minus that of the first, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the label with the largest score for every row."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class for every row, (n, k): the softmax of the scores."""
        return np.exp(self.predict_log_proba(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, (n, k)."""
        scores = self._scores(X)
        scores = scores - scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy: the (weighted) fraction of rows whose label is predicted."""
        predicted = self.predict(X)
        with translate_sklearn_errors("y", "one label for each row"):
            y = column_or_1d(y)
            check_labels("y", y)
            check_consistent_length(predicted, y)
            if _are_strings(y) != _are_strings(predicted):
                raise ValueError("labels of another type than those of fit")
        weight = self._check_weight(sample_weight, predicted)
        return float(np.average(y == predicted, weights=weight))

    def _objective(self) -> Objective:
        """Return the objective that `loss` is or names."""
        if isinstance(self.loss, Objective):
            return self.loss
        return _LOSSES[self.loss](l2=self._penalty())

    def _penalty(self) -> Any:
        """`alpha` as an array, so that another penalty needs no compilation; 0.0 for none."""
        return asarray(np.float64(self.alpha)) if self.alpha else 0.0

    def _descent_options(self):
        return {"tol": None if self.tol is None else float(self.tol)}


class IncrementalClassifier(Classifier):
    """A classifier that also learns from some rows at a time."""

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, continuing from earlier calls.

        Args:
            X, y: rows and labels, as in `fit`.
            classes: all labels that will occur; required in the first call.
            sample_weight: the weights of the rows.
        """
        first = not hasattr(self, "energy_")
        check_not_balanced(self.class_weight)
        self._check_has_labels(y)
        X, y = self._check_X(X, reset=first, y=y)
        check_labels("y", y)
        weight = self._check_weight(sample_weight, X)
        self._check_classes(classes, first)
        index = self._class_index(y)
        X, index, weight = drop_zero_weight(X, index, weight=self._weight_by_class(index, weight))
        with self._precision():
            # A previous `fit` may have used another optimizer, whose state this one cannot use.
            learner = self._learner(partial=True)
            learner = self._continue(learner) if getattr(self, "n_batches_seen_", 0) else learner
            energy = self._start(X, weight) if first else self.energy_
            data = {"x": self._columns(X), "y": index}
            self._learn_more(energy, data, learner, weights=weight, freeze=self._frozen())
        self._record_epochs(not first, len(X))
        return self

    def _check_classes(self, classes: Any, first: bool) -> None:
        """Set `classes_` in the first call of `partial_fit`; raise if they differ in a later one."""
        if first:
            if classes is None:
                raise BadInput("classes", "None", "all labels, in the first call of partial_fit")
            self.classes_ = np.unique(check_labels("classes", classes))
            self._check_two_classes()
            return
        self._check_same_model()
        if classes is not None:
            found = np.unique(check_labels("classes", classes))
            if not np.array_equal(found, self.classes_):
                raise BadInput("classes", f"{found}", f"those of the first call, {self.classes_}")

    def _check_same_model(self) -> None:
        """Raise in `partial_fit` if arguments that define the model have changed."""


def check_labels(name: str, labels: Any) -> np.ndarray:
    """Return labels as an array; raise if one is missing, or if they are of types that cannot be sorted."""
    try:
        array = np.asarray(labels)
    except ValueError:
        array = np.zeros((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "biufUSTO":
        raise BadInput(name, describe(labels), "class labels: a list of numbers or strings")
    if array.dtype.kind == "f" and np.isnan(array).any():
        _reject_missing(name, int(np.argmax(np.isnan(array))), "NaN")
    if array.dtype.kind == "O":
        for i, label in enumerate(array.tolist()):
            if label is None or label != label or str(label) == "<NA>":
                _reject_missing(name, i, describe(label))
        kinds = sorted({"str" if isinstance(v, str) else "number" for v in array.tolist()})
        unusual = [v for v in array.tolist() if not isinstance(v, str | Real | np.bool_)]
        if len(kinds) > 1 or unusual:
            found = describe(unusual[0]) if unusual else f"both {' and '.join(kinds)}"
            raise BadInput(name, f"labels of different types ({found})", "all numbers, or all strings")
    return array


def _reject_missing(name: str, i: int, value: str) -> None:
    found, remedy = f"{value} in row {i}", "Leave out the rows without a label."
    raise BadInput(name, found, "labels without missing values", remedy)


def _are_strings(labels: Any) -> bool:
    labels = np.asarray(labels)
    return labels.dtype.kind in "UST" or (
        labels.dtype.kind == "O" and all(isinstance(v, str) for v in labels)
    )


@jit
def _score_rows(energy: Any, X: Any) -> Any:
    return jax.vmap(energy.scores)(asarray(X))
