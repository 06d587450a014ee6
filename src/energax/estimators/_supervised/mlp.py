"""`MLPClassifier`: a neural network classifier."""

from __future__ import annotations

from typing import Any

from ...energies import Scorer
from ...errors import BadInput
from ...learn import CrossEntropy, Objective
from .._common.settings import number
from .base import IncrementalClassifier
from .network import NetworkEstimator


class MLPClassifier(NetworkEstimator, IncrementalClassifier):
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
        label_smoothing: the probability ε that the label of a row is any class, in the cross-entropy.
        dropout: the probability that a hidden unit is 0 in a step of learning.
        input_noise: the standard deviation of noise on the inputs in a step of learning, in standard
            deviations of the columns.
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
        **NetworkEstimator._network_settings,
        "label_smoothing": number(lambda value: 0 <= value < 1, "a number from 0 to below 1", "Try 0.1."),
    }

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: Any = "relu",
        *,
        loss: Any = "cross-entropy",
        alpha: float = 1e-4,
        class_weight: Any = None,
        label_smoothing: float = 0.0,
        dropout: float = 0.0,
        input_noise: float = 0.0,
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
        self.label_smoothing = label_smoothing
        self.dropout = dropout
        self.input_noise = input_noise
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
        return Scorer(self._network(X, weight, k), d, k)

    def _objective(self):
        if isinstance(self.loss, Objective) or not self.label_smoothing:
            return self._regularise(super()._objective())
        if self.loss != "cross-entropy":
            found = f"{self.label_smoothing!r} with loss={self.loss!r}"
            raise BadInput("label_smoothing", found, "0, or the loss 'cross-entropy'")
        objective = CrossEntropy(l2=self._penalty(), label_smoothing=float(self.label_smoothing))
        return self._regularise(objective)

    def _learner(self, partial: bool = False):
        return self._make_learner(self._objective, lambda: self._adam("learning_rate_init"))

    # -- attributes --------------------------------------------------------------------------

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
