"""`MLPClassifier`: a neural network classifier."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import numpy as np

from ...energies import Scorer
from ...errors import BadInput
from .._common.early_stopping import early_stopping_options, n_validation_rows
from .._common.layers import ACTIVATION, LAYER_SIZES, make_network, n_network_numbers
from .._common.scaling import StandardisingEstimator
from .._common.settings import DTYPE, EARLY_STOPPING, FLAG, LEARNING_RATE, NONE, WHOLE, Setting, one_of
from .base import IncrementalClassifier

_AUTO_BATCH_ROWS = 200


class MLPClassifier(StandardisingEstimator, IncrementalClassifier):
    """Neural network classifier: a multilayer perceptron with one output per class, in float32 by default.

    Arguments, methods and attributes have the names of scikit-learn's `MLPClassifier`. The columns of X are
    standardised first.

    Args:
        hidden_layer_sizes: the number of units of each hidden layer.
        activation: "identity", "logistic", "tanh", "relu", "silu", "softplus", "gelu", or a function of JAX
            arrays.
        loss: as in `LinearClassifier`.
        alpha: the strength of the penalty ½ α ‖W‖², added to the mean loss over rows (scikit-learn divides
            it by the number of rows).
        class_weight: the weights of the classes, times `sample_weight`: a dict from labels to numbers, or
            "balanced" for the same total weight each.
        batch_size: rows in a step of Adam; "auto" for 200, None for all. At most the number of rows.
        learning_rate_init: the step size of Adam.
        max_iter: the most epochs.
        tol: stop when the objective changes by less in an epoch; None runs all epochs.
        early_stopping, validation_fraction, n_iter_no_change: hold out a fraction of the rows, stop when
            their loss has not improved for `n_iter_no_change` epochs, and keep the network with the lowest
            one. `history_["validation"]` has this loss for every epoch; accuracies (`validation_scores_`) are
            not computed.
        warm_start: start `fit` from the network of the previous fit, with its `mean_` and `scale_`.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner of energax.learn, instead of Adam on the loss.

    Attributes:
        classes_: the labels, sorted.
        mean_, scale_: mean and standard deviation of every column, (n_features,).
        coefs_, intercepts_: weights and biases of every layer. They apply to X before standardisation:
            act(X @ coefs_[0] + intercepts_[0]) and so on.
        n_outputs_: the number of classes, also for two, where scikit-learn has one output;
            `decision_function` is then the difference of the two.
        loss_curve_: the objective of every epoch, over all calls of `partial_fit` and warm starts.
        loss_, best_loss_: the last and the least of `loss_curve_` (`best_loss_` is None with early stopping).
        t_: the number of rows used, over all epochs.
        n_iter_, history_: the number of epochs and their objectives, of the last call.
        energy_: the fitted model, over standardised columns.
        fit_: details of the fit.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> MLPClassifier((16,), learning_rate_init=0.02, tol=None, random_state=0).fit(X, y).score(X, y) > 0.95
    True
    """

    _settings = {
        **IncrementalClassifier._settings,
        **EARLY_STOPPING,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "batch_size": Setting(
            (WHOLE | one_of("auto") | NONE).is_valid, "a whole number >= 1, 'auto', or None for all rows"
        ),
        "learning_rate_init": LEARNING_RATE,
        "warm_start": FLAG,
        "dtype": DTYPE,
    }

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
        warm = self._is_warm_start()
        if not warm:
            self._fit_scaling(X, weight)
        network = make_network(d, self.hidden_layer_sizes, k, self.activation, key=self._key(5))
        return Scorer(self._copy_learned_layers(network) if warm else network, d, k)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        rows = n if self._batch_rows() is None else min(n, int(self._batch_rows()))
        weights, units = n_network_numbers(d, self.hidden_layer_sizes, 1)
        return {"hidden_layer_sizes": (weights + rows * units, "weights and units of the network")}

    def _copy_learned_layers(self, network: eqx.nn.Sequential) -> eqx.nn.Sequential:
        """Return the network with the linear layers of the previous fit."""
        learned = _linear_layers(self.energy_.network)
        before, now = (tuple(b.out_features for b in bs[:-1]) for bs in (learned, _linear_layers(network)))
        if before != now:
            raise BadInput(
                "hidden_layer_sizes",
                f"{now} in a warm start from a network of {before}",
                "the same sizes",
                "Set warm_start=False to start again.",
            )
        layers = iter(learned)
        return eqx.nn.Sequential(
            [next(layers) if isinstance(b, eqx.nn.Linear) else b for b in network.layers]
        )

    def _is_warm_start(self):
        return bool(self.warm_start) and hasattr(self, "energy_")

    def _columns(self, X):
        return self._standardise(X)

    def _learner(self, partial: bool = False):
        return self._make_learner(self._objective, lambda: self._adam("learning_rate_init"))

    def _batch_rows(self):
        auto = isinstance(self.batch_size, str) and self.batch_size == "auto"
        return _AUTO_BATCH_ROWS if auto else self.batch_size

    def _fit_options(self, n_rows):
        return {
            "epochs": self.max_iter,
            "batch_size": self._batch_rows(),
            "tolerance": self.tol is not None,
            **early_stopping_options(self, n_rows),
        }

    def _record_epochs(self, continues, n_rows):
        losses = self.history_["objective"].tolist()
        held_out = n_validation_rows(self.validation_fraction, n_rows) if "validation" in self.history_ else 0
        continues = continues and hasattr(self, "loss_curve_")
        self.loss_curve_ = [*(self.loss_curve_ if continues else ()), *losses]
        self.t_ = (self.t_ if continues else 0) + len(losses) * (n_rows - held_out)
        self.loss_ = self.loss_curve_[-1]
        # As in scikit-learn: with early stopping, the validation loss decides which epoch was best.
        self.best_loss_ = None if held_out else min(self.loss_curve_)

    # -- attributes --------------------------------------------------------------------------

    @property
    def coefs_(self) -> list[np.ndarray]:
        """The weights of every layer in float64, (inputs, outputs) each, the first for X as it is given."""
        self._check_fitted()
        first, *others = (np.asarray(b.weight, np.float64).T for b in _linear_layers(self.energy_.network))
        return [first / self.scale_[:, None], *others]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """The biases of every layer in float64, the first for X as it is given."""
        self._check_fitted()
        first, *others = (np.asarray(b.bias, np.float64) for b in _linear_layers(self.energy_.network))
        return [first - self.mean_ @ self.coefs_[0], *others]

    @property
    def n_layers_(self) -> int:
        """The number of layers: inputs, hidden layers and outputs."""
        return len(self.coefs_) + 1

    @property
    def n_outputs_(self) -> int:
        """The number of outputs: one per class, also for two classes."""
        self._check_fitted()
        return self.energy_.n_classes

    @property
    def out_activation_(self) -> str:
        """The function of the outputs: "softmax", or "identity" if there are no probabilities."""
        self._check_fitted()
        return "softmax" if hasattr(self, "predict_proba") else "identity"


def _linear_layers(network: eqx.nn.Sequential) -> list[eqx.nn.Linear]:
    return [layer for layer in network.layers if isinstance(layer, eqx.nn.Linear)]
