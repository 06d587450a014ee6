"""`GenerativeClassifier`: classifiers by Bayes' rule, from p(x | y) and p(y)."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets

from ..._util.arrays import asarray
from ..._util.keys import as_key
from ..._util.sizes import pad_size, sum_table
from ...errors import BadInput
from ...infer import sample
from ...infer._exact import components
from ...programs import jit
from .._base import EnergyEstimator
from .._common.settings import ARRAY, NONE, RANDOM_STATE, Setting
from .._common.sklearn_errors import translate_sklearn_errors
from .._common.table import drop_zero_weight, mask_missing
from .base import Classifier, check_labels


class GenerativeClassifier(ClassifierMixin, EnergyEstimator):
    """The base of classifiers that model p(x, y): p(y | x) ∝ p(y) p(x | y).

    The model, `energy_`, is a `Mixture` over x and z, whose component z is the class. Missing values of x
    are integrated out.
    """

    _allow_nan = True
    _settings: ClassVar[dict[str, Setting]] = {"priors": ARRAY | NONE}
    classes_: np.ndarray

    # As in classifiers without p(x).
    _check_has_labels: Any = Classifier._check_has_labels
    _check_two_classes: Any = Classifier._check_two_classes
    _class_index: Any = Classifier._class_index
    score: Any = Classifier.score

    def _seed(self) -> int:
        return 0  # learning is not random

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        """Return a validated table as values of the model's variables."""
        return {"x": mask_missing(X)}

    # -- before learning ---------------------------------------------------------------------

    def _check_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any = None, **options: Any) -> Any:
        """Return (X, class index, weights) without rows of weight 0, and set `classes_`.

        Args:
            X, y, sample_weight: the arguments of `fit`.
            classes: the argument of `partial_fit`; None for the labels in y.
            options: `reset` and `partial`: whether this is a first call, and one of `partial_fit`.
        """
        self._check_has_labels(y)
        reset, partial = options["reset"], options.get("partial", False)
        X, y = self._check_X(X, reset=reset, y=y)
        weight = self._check_weight(sample_weight, X)
        check_labels("y", y)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        if partial:
            self._check_classes(classes, reset)
            index = self._class_index(y)
        else:
            self.classes_, index = np.unique(y, return_inverse=True)
            self._check_two_classes()
        X, index, weight = drop_zero_weight(X, index.astype(np.int32), weight=weight)
        return X, index, np.ones(len(X), self.dtype_) if weight is None else weight

    def _check_classes(self, classes: Any, first: bool) -> None:
        """Set `classes_` in the first call of `partial_fit`; raise if they differ in a later one."""
        if first:
            if classes is None:
                raise BadInput("classes", "None", "all labels, in the first call of partial_fit")
            self.classes_ = np.unique(check_labels("classes", classes))
            self._check_two_classes()
        elif classes is not None:
            found = np.unique(check_labels("classes", classes))
            if not np.array_equal(found, self.classes_):
                raise BadInput("classes", f"{found}", f"those of the first call, {self.classes_}")

    def _given_priors(self) -> np.ndarray | None:
        """Return the argument `priors` as an array; None if it is None."""
        if self.priors is None:
            return None
        k = len(self.classes_)
        priors = np.asarray(self.priors, np.float64)
        expected = f"{k} numbers >= 0 that sum to 1, one for each class"
        if priors.shape != (k,) or not np.isfinite(priors).all() or (priors < 0).any():
            found = f"{np.array2string(priors, threshold=5)} of shape {priors.shape}"
            raise BadInput("priors", found, expected)
        if abs(priors.sum() - 1) > 1e-5:
            raise BadInput("priors", f"a sum of {priors.sum():g}", expected, "Divide them by their sum.")
        return priors / priors.sum()

    # -- predictions ---------------------------------------------------------------------------

    def _scores(self, X: Any) -> np.ndarray:
        """Return log p(x, y) of every row and class, up to a constant of the row, (n, k)."""
        X = self._check_new_X(X)
        with self._precision():
            return components.log_joint(self.energy_, self._to_data(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the scores (n, k); for two classes that of the second minus that of the first, (n,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of every row, (n,)."""
        scores = self._scores(X)
        return self.classes_[scores.argmax(1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class for every row, (n, k)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, (n, k)."""
        scores = self._scores(X)
        scores = scores - scores.max(1, keepdims=True)
        return scores - np.log(np.exp(scores).sum(1, keepdims=True))

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of every row, over its observed values, (n,)."""
        X = self._check_new_X(X)
        with self._precision():
            return components.log_evidence(self.energy_, self._to_data(X))

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the model; return them and their labels.

        Args:
            n_samples: the number of rows.
            random_state: a seed or a `RandomState`.
        """
        n = self._check_n_samples(n_samples)
        RANDOM_STATE.check("random_state", random_state)
        key = as_key(check_random_state(random_state).randint(2**31 - 1))
        with self._precision():
            draws = sample(self.energy_, pad_size(n), key=key)
        return np.asarray(draws["x"])[:n].astype(self.dtype_), self.classes_[np.asarray(draws["z"])[:n]]


def labelled_statistics(energy: Any, rows: dict[str, Any], weight: np.ndarray) -> Any:
    """Return the statistics of a mixture, summed over rows whose component z is given.

    With z known the posterior of EM is 1 for it, whatever the parameters: one M-step is the maximum.
    """
    return sum_table(lambda chunk, w: _labelled_statistics(energy, chunk, w), rows, weight)


@jit
def _labelled_statistics(energy: Any, rows: dict[str, Any], weight: Any) -> Any:
    rows = jax.tree.map(asarray, rows)
    return energy.labelled_statistics({"x": rows["x"]}, rows["z"], asarray(weight))


@jit
def maximise(energy: Any, statistics: Any) -> Any:
    """Return the energy with the parameters that maximise the likelihood, from summed statistics."""
    return energy.maximise(jax.tree.map(asarray, statistics))
