"""A network that classifies, under scikit-learn's names."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from ...energies import Scorer
from ...errors import BadInput
from .._common.layers import early_stopping_options, held_out_rows, network
from .._common.scaling import Standardised
from .linear import Classifier

_ROWS_IN_AUTO = 200


class MLPClassifier(Standardised, Classifier):
    """e(x, y) = −f(x)_y with a multilayer perceptron f, in float32 by default.

    The names are scikit-learn's. The columns of X are standardised first (`mean_`, `scale_`), and
    `energy_` is over what comes out.

    Args:
        hidden_layer_sizes: units of each hidden layer.
        activation: "identity", "logistic", "tanh", "relu", "silu", "softplus", "gelu", or a function
            of JAX arrays.
        loss: as in `LinearClassifier`.
        alpha: strength of ½ α ‖W‖² beside the mean over rows; scikit-learn divides it by the rows.
        class_weight: how much a class counts, times `sample_weight`: a dict from labels to numbers,
            or "balanced" for the same share each.
        batch_size: rows in a step of Adam; "auto" for 200, None for all. There are never more than rows.
        max_iter, tol: passes over the data, and the change of the objective that ends them.
        early_stopping, validation_fraction, n_iter_no_change: hold out a share of the rows, stop when
            their loss gets no better, keep the network that did best on them. That loss, of every pass,
            is `history_["validation"]`; accuracies (`validation_scores_`) are not kept.
        warm_start: begin `fit` with the network of the fit before, and its units of X.
        learner: any energax learner, instead of Adam on the loss.

    Fitted, `coefs_` and `intercepts_` are over X as it is given: act(X @ coefs_[0] + intercepts_[0]) and so
    on. There is an output for every class, `n_outputs_`, also for two, where scikit-learn has one:
    `decision_function` is then the second less the first. `loss_curve_` has the objective of every pass
    and grows with passes and warm starts, `t_` the rows seen; `n_iter_` and `history_` are of the last call.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier((16,), learning_rate_init=0.02, tol=None, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _batch_sizes = "a whole number >= 1, 'auto', or None for all rows"

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: Any = "relu",
        *,
        loss: Any = "cross-entropy",
        alpha: float = 1e-4,
        class_weight: Any = None,
        batch_size: int | str | None = "auto",
        learning_rate_init: float = 1e-3,
        max_iter: int = 200,
        tol: float | None = 1e-4,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.loss = loss
        self.alpha = alpha
        self.class_weight = class_weight
        self.batch_size = batch_size
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    # -- learning ----------------------------------------------------------------------------

    def _start(self, X, weight):
        k, d = len(self.classes_), X.shape[1]
        goes_on = self._goes_on()
        if not goes_on:
            self._settle_units(X, weight)
        built = network(d, self.hidden_layer_sizes, k, self.activation, key=self._key(5))
        return Scorer(self._with_what_was_learned(built) if goes_on else built, d, k)

    def _with_what_was_learned(self, built: eqx.nn.Sequential) -> eqx.nn.Sequential:
        learned = _linear_layers(self.energy_.network)
        found, asked = (tuple(b.out_features for b in bs[:-1]) for bs in (learned, _linear_layers(built)))
        if found != asked:
            raise BadInput(
                "hidden_layer_sizes",
                f"{asked} in a warm start from a network of {found}",
                "the same sizes",
                "Set warm_start=False to begin anew.",
            )
        layers = iter(learned)
        return eqx.nn.Sequential([next(layers) if isinstance(b, eqx.nn.Linear) else b for b in built.layers])

    def _goes_on(self):
        return bool(self.warm_start) and hasattr(self, "energy_")

    def _columns(self, X):
        return self._standardised(X)

    def _learner(self, passes: bool = False):
        return self._chosen_learner(self._objective, lambda: self._adam("learning_rate_init"))

    def _batch_rows(self):
        auto = isinstance(self.batch_size, str) and self.batch_size == "auto"
        return _ROWS_IN_AUTO if auto else self.batch_size

    def _fit_options(self, n_rows):
        return {
            "epochs": self.max_iter,
            "batch_size": self._batch_rows(),
            "tolerance": self.tol is not None,
            **early_stopping_options(self, n_rows),
        }

    def _note_passes(self, goes_on, n_rows):
        """What scikit-learn tells of a fit; with passes and warm starts it goes on where it was."""
        passes = self.history_["objective"].tolist()
        held = held_out_rows(self.validation_fraction, n_rows) if "validation" in self.history_ else 0
        before = goes_on and hasattr(self, "loss_curve_")
        self.loss_curve_ = [*(self.loss_curve_ if before else ()), *passes]
        self.t_ = (self.t_ if before else 0) + len(passes) * (n_rows - held)
        self.loss_ = self.loss_curve_[-1]
        # As in scikit-learn: rows that were held out then say which pass was best, not those learned from.
        self.best_loss_ = None if held else min(self.loss_curve_)

    # -- what was learned --------------------------------------------------------------------

    @property
    def coefs_(self) -> list[np.ndarray]:
        """The weights of every layer in float64, (inputs, outputs) each, the first over X as it is given."""
        self._check_fitted()
        first, *others = (np.asarray(b.weight, np.float64).T for b in _linear_layers(self.energy_.network))
        return [first / self.scale_[:, None], *others]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """The biases of every layer in float64, the first beside X as it is given."""
        self._check_fitted()
        first, *others = (np.asarray(b.bias, np.float64) for b in _linear_layers(self.energy_.network))
        return [first - self.mean_ @ self.coefs_[0], *others]

    @property
    def n_layers_(self) -> int:
        """Layers of units: inputs, hidden ones, outputs."""
        return len(self.coefs_) + 1

    @property
    def n_outputs_(self) -> int:
        """One a class, for two classes too."""
        self._check_fitted()
        return self.energy_.n_classes

    @property
    def out_activation_(self) -> str:
        """What makes answers of the outputs: "softmax", or "identity" where there are no probabilities."""
        self._check_fitted()
        return "softmax" if hasattr(self, "predict_proba") else "identity"


def _linear_layers(built: eqx.nn.Sequential) -> list[eqx.nn.Linear]:
    return [layer for layer in built.layers if isinstance(layer, eqx.nn.Linear)]
