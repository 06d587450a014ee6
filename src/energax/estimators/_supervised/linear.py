"""Classifiers: an energy for every answer, and the lowest one wins."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ...energies import Linear
from ...energy import Energy
from ...errors import BadInput, check_number
from ...fitting import Fit, Learner
from ...learn import CrossEntropy, Descent, Margin, Objective, Perceptron
from .._base import EnergyEstimator, translate_sklearn_errors
from .._common.class_weight import check_not_balanced, class_weights
from .._common.table import bucketed, drop_zero_weight
from .preconditioner import centred, conditioned

_LOSSES = {"cross-entropy": CrossEntropy, "margin": Margin, "perceptron": Perceptron}


def _gives_probabilities(self: Any) -> bool:
    if self.learner is None and (
        self.loss in ("margin", "perceptron") or isinstance(self.loss, Margin | Perceptron)
    ):
        raise AttributeError(
            f"predict_proba: loss={self.loss!r} learns who is first, not how probable. Use 'cross-entropy'."
        )
    return True


class Problem(NamedTuple):
    """What `fit` is handed: where to begin, the columns, how to learn, and what the columns are about."""

    energy: Energy
    columns: np.ndarray
    learner: Learner
    centre: np.ndarray | None = None


class Classifier(ClassifierMixin, EnergyEstimator):
    """What the two classifiers share: labels, the four readings of the scores, `partial_fit`."""

    _sparse = True
    #: What `batch_size` may be, in words.
    _batch_sizes: ClassVar[str] = "a whole number >= 1, or None for all rows"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X (n, d) and their labels y (n,), of any type."""
        self._check_settings()
        if y is None:
            raise BadInput(
                "y",
                "None",
                f"labels: {type(self).__name__} requires y to be passed, but the target y is None",
            )
        goes_on = self._goes_on()
        X, y = self._check_X(X, reset=not goes_on, y=y)
        weight = self._check_weight(sample_weight, X)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        if goes_on:
            index = self._index(y)
        else:
            self.classes_, index = np.unique(y, return_inverse=True)
            self._check_two_classes()
        X, index, weight = drop_zero_weight(X, index, weight=self._weight_by_class(index, weight))
        options = self._fit_options(len(X))
        with self._precision():
            problem = self._problem(X, weight)
            data = {"x": problem.columns, "y": index.astype(np.int32)}
            result = self._learn(problem.energy, data, problem.learner, weights=weight, **options)
        if problem.centre is not None:
            self.fit_ = _about_zero(result, problem.centre)
            self.energy_ = self.fit_.energy
        self.n_batches_seen_ = 0
        self._note_passes(goes_on, len(X))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows; `classes` lists all labels there will be, at the first call."""
        first = not hasattr(self, "energy_")
        self._check_settings()
        check_not_balanced(self.class_weight)
        X, y = self._check_X(X, reset=first, y=y)
        weight = self._check_weight(sample_weight, X)
        if first:
            if classes is None:
                raise BadInput("classes", "None", "all labels, at the first call of partial_fit")
            self.classes_ = np.unique(classes)
            self._check_two_classes()
        else:
            self._check_same_model()
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise BadInput("classes", f"{np.unique(classes)}", f"those of the first call, {self.classes_}")
        index = self._index(y)
        X, index, weight = drop_zero_weight(X, index, weight=self._weight_by_class(index, weight))
        with self._precision():
            # A whole fit may have used another optimizer, whose state means nothing to this one.
            learner = self._learner(passes=True)
            learner = self._continue(learner) if getattr(self, "n_batches_seen_", 0) else learner
            energy = self._start(X, weight) if first else self.energy_
            data = {"x": self._columns(X), "y": index}
            self._learn_more(energy, data, learner, weights=weight, freeze=self._frozen())
        self._note_passes(not first, len(X))
        return self

    def _problem(self, X: np.ndarray, weight: np.ndarray | None) -> Problem:
        return Problem(self._start(X, weight), self._columns(X), self._learner())

    def _check_same_model(self) -> None:
        """Refuse a pass with settings of another model than the one that is passed on."""

    def _goes_on(self) -> bool:
        """Whether `fit` begins where the one before ended."""
        return False

    def _note_passes(self, goes_on: bool, n_rows: int) -> None:
        """After learning: `goes_on` says that what was noted before still holds."""

    def _frozen(self) -> Any:
        """The parameters that are not learned, as `fit` takes them."""
        return None

    def _check_two_classes(self) -> None:
        if len(self.classes_) < 2:
            raise BadInput(
                "y", f"only one class, {self.classes_.tolist()[0]!r}", "labels of at least 2 classes"
            )

    def _index(self, y: Any) -> np.ndarray:
        """Labels as numbers, or a `BadInput` that names one never seen."""
        strange = ~np.isin(y, self.classes_)
        if strange.any():
            raise BadInput(
                "y", f"the label {y[strange].tolist()[0]!r}", f"one of {self.classes_.tolist()[:20]}"
            )
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _weight_by_class(self, index: np.ndarray, weight: np.ndarray | None) -> np.ndarray | None:
        """The weights of rows, times those of their classes."""
        if self.class_weight is None:
            return weight
        by_row = class_weights(self.class_weight, self.classes_, index, weight)[index]
        by_row = (by_row if weight is None else weight * by_row).astype(self.dtype_)
        if not by_row.any():
            raise BadInput("class_weight", "0 for every row", "at least one class of y that counts")
        return by_row

    def _columns(self, X: np.ndarray) -> np.ndarray:
        """What the energy is given of X."""
        return X

    # -- reading ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> np.ndarray:
        """−e(x, y) of every row and class, (n, k)."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            return np.asarray(_row_scores(self.energy_, bucketed(self._columns(X))))[: len(X)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores (n, k); for two classes, by how much the second leads, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The label of the lowest energy."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """p(y | x) = softmax of the scores, (n, k)."""
        return np.exp(self.predict_log_proba(X))

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        scores = self._scores(X)
        scores = scores - scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows (by weight) whose label is predicted."""
        predicted = self.predict(X)
        with translate_sklearn_errors("y", "a label for each row"):
            y = column_or_1d(y)
            check_consistent_length(predicted, y)
            if _are_words(y) != _are_words(predicted):
                raise ValueError("labels of another kind than those of fit")
        weight = self._check_weight(sample_weight, predicted)
        return float(np.average(y == predicted, weights=weight))

    # -- settings --------------------------------------------------------------------------

    def _check_settings(self) -> None:
        self._check_counts("max_iter")
        rows = self._batch_rows()
        whole = isinstance(rows, (int, np.integer)) and not isinstance(rows, bool)
        if rows is not None and not (whole and rows >= 1):
            raise BadInput("batch_size", repr(rows), self._batch_sizes)
        check_number("alpha", self.alpha, lambda alpha: 0 <= alpha < np.inf)
        if self.tol is not None:
            check_number("tol", self.tol, lambda tol: 0 <= tol < np.inf, "a number >= 0, or None")

    def _objective(self) -> Objective:
        if isinstance(self.loss, Objective):
            return self.loss
        if self.loss not in _LOSSES:
            raise BadInput("loss", repr(self.loss), f"an objective, or one of {', '.join(_LOSSES)}")
        # An array: another strength is no other program.
        return _LOSSES[self.loss](l2=jnp.asarray(float(self.alpha)) if self.alpha else 0.0)

    def _descent_options(self):
        return {"tol": self.tol}


def _are_words(labels: Any) -> bool:
    labels = np.asarray(labels)
    return labels.dtype.kind in "UST" or (
        labels.dtype.kind == "O" and all(isinstance(v, str) for v in labels)
    )


class LinearClassifier(Classifier):
    """e(x, y) = −(Wx + b)_y, learned by cross-entropy, margin or the perceptron rule.

    Args:
        loss: "cross-entropy" (logistic regression), "margin" (support vectors, Crammer and
            Singer), "perceptron", or an objective of energax.learn.
        alpha: strength of ½ α ‖W‖² (an objective given as `loss` brings its own).
        fit_intercept: whether b is learned; else it is 0.
        class_weight: how much a class counts, times `sample_weight`: a dict from labels to numbers,
            or "balanced" for the same share each.
        learning_rate, batch_size: with `batch_size=None` cross-entropy is minimised by L-BFGS
            over all rows, in units of its own, so that columns may lie far from 0 and differ in
            scale; everything else by Adam, for which they should be standardised.
        max_iter, tol: passes over the data, and the change of the objective that ends them; for L-BFGS a
            ten-thousandth of it, since it may creep where the classes are nearly separable.
        learner: any energax learner, instead of all that.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LinearClassifier().fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        loss: Any = "cross-entropy",
        *,
        alpha: float = 1e-4,
        fit_intercept: bool = True,
        class_weight: Any = None,
        learning_rate: float = 0.02,
        batch_size: int | None = None,
        max_iter: int = 1000,
        tol: float = 1e-6,
        verbose: int | bool = 0,
        random_state: Any = None,
        learner: Any = None,
    ):
        self.loss = loss
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.learner = learner

    def _start(self, X, weight):
        k, d = len(self.classes_), X.shape[1]
        self._has_intercept = bool(self.fit_intercept)
        return Linear(jnp.zeros((k, d)), jnp.zeros(k))

    def _problem(self, X, weight):
        if self.learner is not None or not self._is_smooth_and_whole:
            return super()._problem(X, weight)
        objective = self._objective()
        centre, table = centred(X, weight) if self.fit_intercept else (None, X)
        # The curvature of the loss is that of the columns times β / k at W = 0, and some tenth of it
        # where the fit ends, most rows being sure of their answer. The penalty's is the same all the way.
        ridge = float(objective.l2) * len(self.classes_) / (0.1 * float(objective.beta))
        optimizer = conditioned(optax.lbfgs(), table, weight, ridge)
        learner = Descent(objective, optimizer, **self._descent_options())
        return Problem(self._start(X, weight), table, learner, centre)

    def _learner(self, passes: bool = False):
        whole = self._is_smooth_and_whole and not passes
        return self._chosen_learner(self._objective, lambda: optax.lbfgs() if whole else self._adam())

    @property
    def _is_smooth_and_whole(self) -> bool:
        smooth = self.loss == "cross-entropy" or isinstance(self.loss, CrossEntropy)
        return smooth and self.batch_size is None

    def _descent_options(self):
        return {"tol": 1e-4 * self.tol if self.tol and self._is_smooth_and_whole else self.tol}

    def _fit_options(self, n_rows):
        return {
            "epochs": self.max_iter,
            "batch_size": self.batch_size,
            "tolerance": self.tol is not None,
            "freeze": self._frozen(),
        }

    def _frozen(self):
        return None if self.fit_intercept else "bias"

    def _check_same_model(self):
        if bool(self.fit_intercept) != self._has_intercept:
            raise BadInput(
                "fit_intercept",
                f"{self.fit_intercept!r}, and a model that began with {self._has_intercept}",
                "the same in all passes",
                "Call fit to begin anew.",
            )

    @property
    def coef_(self) -> np.ndarray:
        """W, (k, d): one row a class, for two classes too."""
        self._check_fitted()
        return np.asarray(self.energy_.weight)

    @property
    def intercept_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.bias)


@eqx.filter_jit
def _row_scores(energy: Any, X: Any) -> Any:
    return jax.vmap(energy.scores)(jnp.asarray(X))


def _about_zero(found: Fit, centre: np.ndarray) -> Fit:
    """A fit to columns about their centre, as one to the columns themselves: the same scores."""
    about: Any = found.energy
    weight = about.weight
    bias = np.asarray(about.bias, np.float64) - np.asarray(weight, np.float64) @ centre
    with jax.enable_x64(weight.dtype == np.float64):
        energy = Linear(weight, jnp.asarray(bias.astype(weight.dtype)))
    return dataclasses.replace(found, energy=energy)
