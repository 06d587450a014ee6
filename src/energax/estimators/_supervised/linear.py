"""`LinearClassifier`: logistic regression, support vector machine and perceptron."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
import optax

from ..._util.arrays import asarray
from ...energies import Linear
from ...errors import BadInput
from ...learn import CrossEntropy, Descent, Newton
from .._common.settings import FLAG, LEARNING_RATE
from .base import Classifier, IncrementalClassifier, Problem
from .preconditioner import center_columns, precondition

#: The most numbers (classes − 1) × (columns + 1) for Newton's method, which computes the products of all
#: columns for every pair of classes. Digits, 9 × 65: 0.39 s, by L-BFGS 0.32.
_NEWTON_NUMBERS = 256


def is_for_newton(n_classes: int, n_features: int) -> bool:
    """Return whether Newton's method is faster than L-BFGS for so many classes and columns."""
    return (n_classes - 1) * (n_features + 1) <= _NEWTON_NUMBERS


class LinearScores(Classifier):
    """The base of classifiers whose scores are Wx + b."""

    fit_intercept: Any
    #: The part of the penalty that is L1.
    _l1: float = 0.0

    def _start(self, X, weight):
        k, d = len(self.classes_), X.shape[1]
        self._has_intercept = bool(self.fit_intercept)
        return Linear(asarray(np.zeros((k, d), self.dtype_)), asarray(np.zeros(k, self.dtype_)))

    def _uncenter(self, result, centre):
        """Return a fit to centred columns as one to the columns themselves: the scores are the same.

        Weights and biases that all classes share have no effect, and rounding decides them where they have no
        penalty; they are set to 0. An L1 penalty decides those of the weights.
        """
        centred: Any = result.energy
        dtype = centred.weight.dtype
        weight, bias = np.asarray(centred.weight, np.float64), np.asarray(centred.bias, np.float64)
        if not self._l1:
            weight = weight - weight.mean(0)
        bias = bias - bias.mean() - weight @ centre
        with jax.enable_x64(dtype == np.float64):
            energy = Linear(asarray(weight.astype(dtype)), asarray(bias.astype(dtype)))
        return dataclasses.replace(result, energy=energy)

    def _frozen(self):
        return None if self.fit_intercept else "bias"

    @property
    def coef_(self) -> np.ndarray:
        """W, (n_classes, n_features); for two classes that of `decision_function`, (1, n_features)."""
        self._check_fitted()
        return as_differences(np.asarray(self.energy_.weight))

    @property
    def intercept_(self) -> np.ndarray:
        """b, (n_classes,); for two classes that of `decision_function`, (1,)."""
        self._check_fitted()
        return as_differences(np.asarray(self.energy_.bias))


class LinearClassifier(LinearScores, IncrementalClassifier):
    """Linear classifier: multinomial logistic regression, support vector machine or perceptron.

    The score of class y is (Wx + b)_y.

    Args:
        loss: "cross-entropy" (logistic regression), "margin" (the support vector machine of Crammer and
            Singer), "perceptron", or an objective of energax.learn.
        alpha: the strength of the penalty ½ α ‖W‖² (an objective given as `loss` has its own).
        fit_intercept: whether b is learned; else it is 0.
        class_weight: the weights of the classes, times `sample_weight`: a dict from labels to numbers, or
            "balanced" for the same total weight each.
        learning_rate: the step size of Adam.
        batch_size: rows in a step of Adam; None for all. With None, cross-entropy is minimised by Newton's
            method, or with many classes and columns by L-BFGS, preconditioned so that columns may have
            any offset and scale; everything else by Adam, for which the columns should be standardised.
        max_iter: the most epochs.
        tol: stop when the objective changes by less; Newton and L-BFGS use a ten-thousandth of it, since
            they may be slow where the classes are nearly separable. None runs all epochs.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        learner: a learner of energax.learn, instead of the above.

    Attributes:
        classes_: the labels, sorted.
        coef_: W, (n_classes, n_features); for two classes, as in scikit-learn, the row of the second class
            minus that of the first, (1, n_features).
        intercept_: b, (n_classes,); for two classes (1,).
        converged_, n_iter_: whether the fit converged, and after how many epochs it stopped.
        history_: the objective and its terms after every epoch.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LinearClassifier().fit(X, y).score(X, y) > 0.95
    True
    """

    _settings = {**IncrementalClassifier._settings, "fit_intercept": FLAG, "learning_rate": LEARNING_RATE}

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

    def _problem(self, X, weight):
        if self.learner is not None or not self._is_smooth:
            return super()._problem(X, weight)
        objective = self._objective()
        centre, table = center_columns(X, weight) if self.fit_intercept else (np.zeros(X.shape[1]), X)
        if is_for_newton(len(self.classes_), X.shape[1]):
            learner: Any = Newton(objective, **self._descent_options())
            return Problem(self._start(X, weight), table, learner, centre)
        # The curvature of the loss is that of the columns times β / k at W = 0, and about a tenth of it at
        # the optimum, where most rows have a confident prediction. That of the penalty is constant.
        ridge = float(objective.l2) * len(self.classes_) / (0.1 * float(objective.beta))
        optimizer = precondition(optax.lbfgs(), table, weight, ridge)
        learner = Descent(objective, optimizer, **self._descent_options())
        return Problem(self._start(X, weight), table, learner, centre)

    def _learner(self, partial: bool = False):
        lbfgs = self._is_smooth and not partial
        return self._make_learner(self._objective, lambda: optax.lbfgs() if lbfgs else self._adam())

    @property
    def _is_smooth(self) -> bool:
        """Whether the objective is smooth and over all rows."""
        smooth = self.loss == "cross-entropy" or isinstance(self.loss, CrossEntropy)
        return smooth and self.batch_size is None

    def _descent_options(self):
        tol = super()._descent_options()["tol"]
        return {"tol": 1e-4 * tol if tol and self._is_smooth else tol}

    def _fit_options(self, n_rows):
        return {
            "epochs": self.max_iter,
            "batch_size": self.batch_size,
            "tolerance": self.tol is not None,
            "freeze": self._frozen(),
        }

    def _check_same_model(self):
        if bool(self.fit_intercept) != self._has_intercept:
            raise BadInput(
                "fit_intercept",
                f"{self.fit_intercept!r}, but {self._has_intercept} in the first call",
                "the same value in all calls of partial_fit",
                "Call fit to start again.",
            )


def as_differences(by_class: np.ndarray) -> np.ndarray:
    """The parameters of every class; for two classes those of the second minus those of the first."""
    return by_class[1:] - by_class[:1] if len(by_class) == 2 else by_class
