"""Classifiers: an energy for every answer, and the lowest one wins."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ..energies import Linear, Scorer
from ..errors import BadInput
from ..learn import CrossEntropy, Margin, Objective, Perceptron
from ._base import Recipe, at_the_door
from ._network import network
from ._standardise import Standardised
from ._table import bucketed

_LOSSES = {"cross-entropy": CrossEntropy, "margin": Margin, "perceptron": Perceptron}


def _gives_probabilities(self: Any) -> bool:
    if self.learner is None and (
        self.loss in ("margin", "perceptron") or isinstance(self.loss, Margin | Perceptron)
    ):
        raise AttributeError(
            f"predict_proba: loss={self.loss!r} learns who is first, not how probable. Use 'cross-entropy'."
        )
    return True


class _Classifier(ClassifierMixin, Recipe):
    """What the two classifiers share: labels, the four readings of the scores, `partial_fit`."""

    _sparse = True

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows X (n, d) and their labels y (n,), of any type."""
        self._check_settings()
        if y is None:
            raise BadInput(
                "y",
                "None",
                f"labels: {type(self).__name__} requires y to be passed, but the target y is None",
            )
        X, y = self._check_X(X, reset=True, y=y)
        weight = self._check_weight(sample_weight, X)
        with at_the_door("y", "class labels"):
            check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        self._need_two_classes()
        with self._precision():
            energy = self._start(X, weight)
            self._learn(
                energy,
                {"x": self._columns(X), "y": index.astype(np.int32)},
                self._learner(),
                weights=weight,
                **self._fit_options(),
            )
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows; `classes` lists all labels there will be, at the first call."""
        first = not hasattr(self, "energy_")
        self._check_settings()
        X, y = self._check_X(X, reset=first, y=y)
        weight = self._check_weight(sample_weight, X)
        if first:
            if classes is None:
                raise BadInput("classes", "None", "all labels, at the first call of partial_fit")
            self.classes_ = np.unique(classes)
            self._need_two_classes()
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise BadInput("classes", f"{np.unique(classes)}", f"those of the first call, {self.classes_}")
        index = self._index(y)
        with self._precision():
            # A whole fit may have used another optimizer, whose state means nothing to this one.
            learner = self._learner(passes=True)
            learner = self._continue(learner) if getattr(self, "n_batches_seen_", 0) else learner
            energy = self._start(X, weight) if first else self.energy_
            self._learn_more(energy, {"x": self._columns(X), "y": index}, learner, weights=weight)
        return self

    def _need_two_classes(self) -> None:
        if len(self.classes_) < 2:
            raise BadInput("y", f"only one class, {self.classes_[0]!r}", "labels of at least 2 classes")

    def _index(self, y: Any) -> np.ndarray:
        """Labels as numbers, or a `BadInput` that names one never seen."""
        strange = ~np.isin(y, self.classes_)
        if strange.any():
            raise BadInput("y", f"the label {y[strange][0]!r}", f"one of {self.classes_.tolist()[:20]}")
        return np.searchsorted(self.classes_, y).astype(np.int32)

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
        with at_the_door("y", "a label for each row"):
            y = column_or_1d(y)
            check_consistent_length(predicted, y)
            if _are_words(y) != _are_words(predicted):
                raise ValueError("labels of another kind than those of fit")
        weight = self._check_weight(sample_weight, predicted)
        return float(np.average(y == predicted, weights=weight))

    # -- settings --------------------------------------------------------------------------

    def _check_settings(self) -> None:
        self._check_counts("max_iter", *(["batch_size"] if self.batch_size is not None else []))
        for name, may_be_none in (("alpha", False), ("tol", True)):
            value = getattr(self, name)
            number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not (value is None and may_be_none) and not (number and 0 <= value < np.inf):
                raise BadInput(name, repr(value), "a number >= 0" + (", or None" if may_be_none else ""))

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


class LinearClassifier(_Classifier):
    """e(x, y) = −(Wx + b)_y, learned by cross-entropy, margin or the perceptron rule.

    Args:
        loss: "cross-entropy" (logistic regression), "margin" (support vectors, Crammer and
            Singer), "perceptron", or an objective of energax.learn.
        alpha: strength of ½ α ‖W‖² (an objective given as `loss` brings its own).
        learning_rate, batch_size: with `batch_size=None` cross-entropy is minimised by L-BFGS
            over all rows; everything else by Adam.
        max_iter, tol: passes over the data, and the change of the objective that ends them; for L-BFGS a
            ten-thousandth of it, since it creeps where columns lie far from 0 or differ in scale.
            Standardise such columns.
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
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.learner = learner

    def _start(self, X, weight):
        k, d = len(self.classes_), X.shape[1]
        return Linear(jnp.zeros((k, d)), jnp.zeros(k))

    def _learner(self, passes: bool = False):
        whole = self._is_smooth_and_whole and not passes
        return self._chosen_learner(self._objective, lambda: optax.lbfgs() if whole else self._adam())

    @property
    def _is_smooth_and_whole(self) -> bool:
        smooth = self.loss == "cross-entropy" or isinstance(self.loss, CrossEntropy)
        return smooth and self.batch_size is None

    def _descent_options(self):
        return {"tol": 1e-4 * self.tol if self.tol and self._is_smooth_and_whole else self.tol}

    def _fit_options(self):
        return {"epochs": self.max_iter, "batch_size": self.batch_size, "tolerance": self.tol is not None}

    @property
    def coef_(self) -> np.ndarray:
        """W, (k, d): one row a class, for two classes too."""
        self._check_fitted()
        return np.asarray(self.energy_.weight)

    @property
    def intercept_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.bias)


class MLPClassifier(Standardised, _Classifier):
    """e(x, y) = −f(x)_y with a multilayer perceptron f, in float32 by default.

    The names are scikit-learn's. The columns of X are standardised first (`mean_`, `scale_`), and
    `energy_` is over what comes out. With `early_stopping`, a part of the rows is held out, and the
    network that did best on them is kept.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier((16,), learning_rate_init=0.02, tol=None, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: Any = "relu",
        *,
        loss: Any = "cross-entropy",
        alpha: float = 1e-4,
        batch_size: int | None = 200,
        learning_rate_init: float = 1e-3,
        max_iter: int = 200,
        tol: float | None = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.loss = loss
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def _start(self, X, weight):
        k, d = len(self.classes_), X.shape[1]
        self._settle_units(X, weight)
        built = network(d, self.hidden_layer_sizes, k, self.activation, key=self._key(5))
        return Scorer(built, d, k)

    def _columns(self, X):
        return self._standardised(X)

    def _learner(self, passes: bool = False):
        return self._chosen_learner(self._objective, lambda: self._adam("learning_rate_init"))

    def _fit_options(self):
        held_out = {}
        if self.early_stopping:
            held_out = {"validation": float(self.validation_fraction), "patience": self.n_iter_no_change}
        tolerance = self.tol is not None
        return {"epochs": self.max_iter, "batch_size": self.batch_size, "tolerance": tolerance, **held_out}


@eqx.filter_jit
def _row_scores(energy: Any, X: Any) -> Any:
    return jax.vmap(energy.scores)(jnp.asarray(X))
