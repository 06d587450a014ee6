"""`NetworkEstimator`: what classifiers and regressors with a multilayer perceptron share."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from ...errors import BadInput
from ...learn import Dropout, InputNoise, Objective
from .._common.early_stopping import early_stopping_options, n_validation_rows
from .._common.layers import ACTIVATION, LAYER_SIZES, make_network, n_network_numbers
from .._common.scaling import StandardisingEstimator
from .._common.settings import (
    DTYPE,
    EARLY_STOPPING,
    FINITE_NOT_NEGATIVE,
    FLAG,
    LEARNING_RATE,
    NONE,
    WHOLE,
    Setting,
    number,
    one_of,
)

_AUTO_BATCH_ROWS = 200


class NetworkEstimator(StandardisingEstimator):
    """The base of estimators with a multilayer perceptron of standardised columns, `energy_.network`.

    It has scikit-learn's names for layers, batches, early stopping, warm starts and the loss of every epoch,
    and the regularisers `dropout` and `input_noise`.
    """

    _network_settings: ClassVar[dict[str, Setting]] = {
        **EARLY_STOPPING,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "batch_size": Setting(
            (WHOLE | one_of("auto") | NONE).is_valid, "a whole number >= 1, 'auto', or None for all rows"
        ),
        "learning_rate_init": LEARNING_RATE,
        "dropout": number(lambda value: 0 <= value < 1, "a number from 0 to below 1", "Try 0.2."),
        "input_noise": FINITE_NOT_NEGATIVE,
        "warm_start": FLAG,
        "dtype": DTYPE,
    }

    # -- learning ----------------------------------------------------------------------------

    def _network(self, X: np.ndarray, weight: np.ndarray | None, n_out: Any) -> eqx.nn.Sequential:
        """Return the first network: random, or that of the previous fit in a warm start."""
        warm = self._is_warm_start()
        if not warm:
            self._fit_scaling(X, weight)
        sizes = (X.shape[1], self.hidden_layer_sizes, n_out, self.activation)
        network = make_network(*sizes, key=self._key(5), dropout=self.dropout)
        return self._copy_learned_layers(network) if warm else network

    def _regularise(self, objective: Objective) -> Objective:
        """Return the objective with dropout and noise on the inputs, if asked for."""
        has_hidden_layers = np.size(self.hidden_layer_sizes) > 0
        if self.dropout and has_hidden_layers:
            objective = Dropout(objective)
        return InputNoise(objective, float(self.input_noise)) if self.input_noise else objective

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
        return self._intercepts(self.coefs_[0])

    def _intercepts(self, first_weight: np.ndarray) -> list[np.ndarray]:
        self._check_fitted()
        first, *others = (np.asarray(b.bias, np.float64) for b in _linear_layers(self.energy_.network))
        return [first - self.mean_ @ first_weight, *others]

    @property
    def n_layers_(self) -> int:
        """The number of layers: inputs, hidden layers and outputs."""
        return len(self.coefs_) + 1


def _linear_layers(network: eqx.nn.Sequential) -> list[eqx.nn.Linear]:
    return [layer for layer in network.layers if isinstance(layer, eqx.nn.Linear)]
