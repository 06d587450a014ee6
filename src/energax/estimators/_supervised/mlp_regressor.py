"""`MLPRegressor`: a neural network regressor."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...energies import Gaussian, NeuralRegressor
from ...errors import BadInput
from ...learn import NegativeLogLikelihood
from .._common.scaling import mean_and_scale
from .._common.settings import COMMON, FINITE_NOT_NEGATIVE, FLAG, NONE, WHOLE, number, one_of
from .network import NetworkEstimator
from .regressor import Regressor, predict_rows


class MLPRegressor(NetworkEstimator, Regressor):
    """Neural network regressor: y ~ N(f(x), σ²), f a multilayer perceptron, in float32 by default.

    Arguments, methods and attributes have the names of scikit-learn's `MLPRegressor`. The columns of X and y
    are standardised first. f is learned by least squares, the maximum likelihood for every σ.

    Args:
        hidden_layer_sizes: the number of units of each hidden layer.
        activation: "identity", "logistic", "tanh", "relu", "silu", "softplus", "gelu", or a function of JAX
            arrays.
        alpha: the strength of the penalty ½ α ‖W‖², added to the mean loss over rows of the standardised y
            (scikit-learn divides it by the number of rows).
        noise: σ in the units of y, or "learn": the maximum likelihood given f, the root of the mean squared
            residual of the training rows.
        dropout: the probability that a hidden unit is 0 in a step of learning.
        input_noise: the standard deviation of noise on the inputs in a step of learning, in standard
            deviations of the columns.
        batch_size: rows in a step of Adam; "auto" for 200, None for all. At most the number of rows.
        learning_rate_init: the step size of Adam.
        max_iter: the most epochs.
        tol: stop when the objective changes by less in an epoch; None runs all epochs.
        early_stopping, validation_fraction, n_iter_no_change: hold out a fraction of the rows, stop when
            their loss has not improved for `n_iter_no_change` epochs, and keep the network with the lowest
            one. `history_["validation"]` has this loss for every epoch.
        warm_start: start `fit` from the network of the previous fit, with its scaling of X and y.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner or objective of energax.learn, instead of Adam on the squared error.

    Attributes:
        mean_, scale_: mean and standard deviation of every column, (n_features,).
        y_mean_, y_scale_: mean and standard deviation of y.
        noise_: σ, in the units of y. With several targets all three are arrays (n_targets,).
        coefs_, intercepts_: weights and biases of every layer. They apply to X and give y in their own units.
        loss_curve_: the objective of every epoch, −log p of the standardised y with σ = 1 and the penalty.
        loss_, best_loss_: the last and the least of `loss_curve_` (`best_loss_` is None with early stopping).
        t_: the number of rows used, over all epochs.
        n_iter_, history_: the number of epochs and their objectives, of the last call.
        energy_: the fitted model, of standardised columns and y.
        fit_: details of the fit.

    >>> X = np.linspace(-2, 2, 100)[:, None]
    >>> y = np.sin(3 * X[:, 0])
    >>> model = MLPRegressor((32,), learning_rate_init=0.02, tol=None, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    _several_targets = True
    _settings = {
        **COMMON,
        **NetworkEstimator._network_settings,
        "alpha": FINITE_NOT_NEGATIVE,
        "noise": number(lambda value: 0 < value < np.inf, "a number > 0") | one_of("learn"),
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE | NONE,
    }

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: Any = "relu",
        *,
        alpha: float = 1e-4,
        noise: float | str = "learn",
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
        self.alpha = alpha
        self.noise = noise
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the network.

        Args:
            X: a table (n_samples, n_features).
            y: the targets, (n_samples,) or (n_samples, n_targets).
            sample_weight: the weights of the rows, (n_samples,).
        """
        continues = self._is_warm_start()
        X, y, weight = self._check_rows(X, y, sample_weight, reset=not continues)
        options = self._fit_options(len(X))
        with self._precision():
            start, data = self._start(X, y, weight, fresh=not continues)
            learner = self._make_learner(self._objective, lambda: self._adam("learning_rate_init"))
            self._learn(start, data, learner, weights=weight, validated=True, **options)
            self._set_noise(data, weight)
        self.n_batches_seen_ = 0
        self._record_epochs(continues, len(X))
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, continuing from earlier calls.

        The first call sets the scaling of X and y. `noise_` is that of the rows of the last call.

        Args:
            X, y: rows and targets, as in `fit`.
            sample_weight: the weights of the rows.
        """
        first = not hasattr(self, "energy_")
        X, y, weight = self._check_rows(X, y, sample_weight, reset=first)
        with self._precision():
            learner = self._make_learner(self._objective, lambda: self._adam("learning_rate_init"))
            learner = self._continue(learner) if getattr(self, "n_batches_seen_", 0) else learner
            start, data = self._start(X, y, weight, fresh=first)
            self._learn_more(start if first else self._unit_noise(), data, learner, weights=weight)
            self._set_noise(data, weight)
        self._record_epochs(not first, len(X))
        return self

    def _start(self, X, y, weight, fresh):
        """(the first model, the standardised rows)."""
        n_targets = None if y.ndim == 1 else y.shape[1]
        if not fresh and n_targets != self.energy_.n_outputs:
            found, before = ((t or 1) for t in (n_targets, self.energy_.n_outputs))
            raise BadInput("y", f"targets: {found}", f"as many as in the first fit, {before}")
        shape = "scalar" if n_targets is None else n_targets
        network = self._network(X, weight, shape) if fresh or self.warm_start else None
        if fresh:
            mean, scale = mean_and_scale(y.reshape(len(y), -1), weight)
            several = n_targets is not None
            self.y_mean_, self.y_scale_ = (mean, scale) if several else (float(mean[0]), float(scale[0]))
        data = {"x": self._standardise(X), "y": ((y - self.y_mean_) / self.y_scale_).astype(self.dtype_)}
        return None if network is None else NeuralRegressor(network, X.shape[1], n_targets), data

    def _unit_noise(self) -> NeuralRegressor:
        """The fitted model with σ = 1, as it is learned."""
        return NeuralRegressor(self.energy_.network, self.energy_.n_features, self.energy_.n_outputs)

    def _objective(self):
        penalty = asarray(np.float64(self.alpha)) if self.alpha else 0.0
        return self._regularise(NegativeLogLikelihood(l2=penalty))

    def _set_noise(self, data: dict[str, np.ndarray], weight: np.ndarray | None) -> None:
        """Set σ, in the model and as an attribute; a network without residuals has the least float."""
        predicted = map_table(lambda rows: predict_rows(self.energy_, rows), data["x"])
        residual = (data["y"].astype(np.float64) - predicted) ** 2
        found = np.maximum(np.sqrt(np.average(residual, axis=0, weights=weight)), np.finfo(self.dtype_).eps)
        sigma = found if self.noise == "learn" else float(self.noise) / self.y_scale_
        likelihood = Gaussian(asarray(np.asarray(sigma, self.dtype_)))
        self.energy_ = eqx.tree_at(lambda e: e.likelihood, self._unit_noise(), likelihood)
        noise = sigma * self.y_scale_
        self.noise_ = noise if np.ndim(noise) else float(noise)

    def _descent_options(self):
        return {"tol": None if self.tol is None else float(self.tol)}

    def _check_target_range(self, y: np.ndarray) -> np.ndarray:
        return super()._check_target_range(y, np.dtype(np.float64))  # y is standardised before it is rounded

    # -- predictions -------------------------------------------------------------------------

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Return f(x) of every row, (n,) or (n, n_targets); with `return_std` also σ, of the same shape."""
        FLAG.check("return_std", return_std)
        X = self._check_new_X(X)
        with self._precision():
            units = map_table(lambda rows: predict_rows(self.energy_, rows), self._standardise(X))
        found = (units.astype(np.float64) * self.y_scale_ + self.y_mean_).astype(self.dtype_)
        return (found, np.full(found.shape, self.noise_, self.dtype_)) if return_std else found

    # -- attributes --------------------------------------------------------------------------

    @property
    def coefs_(self) -> list[np.ndarray]:
        """The weights of every layer in float64, (inputs, outputs) each, for X and y as they are given."""
        *others, last = super().coefs_
        return [*others, last * self.y_scale_]

    @property
    def intercepts_(self) -> list[np.ndarray]:
        """The biases of every layer in float64, for X and y as they are given."""
        *others, last = self._intercepts(super().coefs_[0])
        return [*others, last * self.y_scale_ + self.y_mean_]

    @property
    def n_outputs_(self) -> int:
        """The number of outputs, one for each target."""
        self._check_fitted()
        return self.energy_.n_outputs or 1

    @property
    def out_activation_(self) -> str:
        """The function of the output: "identity"."""
        self._check_fitted()
        return "identity"
