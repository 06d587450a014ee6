"""`AutoencoderBase`: learning, codes and reconstructions of all autoencoders."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_array

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...energies import Autoencoder as AutoencoderEnergy
from ...energies import Bernoulli, Gaussian
from ...errors import BadInput
from ...learn import Reconstruction
from ...nn import EncoderDecoder, TiedLayers
from ...programs import jit
from .._base import Transformer
from .._common.early_stopping import early_stopping_options
from .._common.layers import (
    ACTIVATION,
    LAYER_SIZES,
    activation_function,
    layer_sizes,
    make_network,
    n_network_numbers,
)
from .._common.scaling import StandardisingEstimator
from .._common.settings import (
    COMMON,
    DTYPE,
    EARLY_STOPPING,
    FLAG,
    LEARNING_RATE,
    WHOLE,
    Setting,
    one_of,
)
from .._common.sklearn_errors import translate_sklearn_errors
from .._common.table import check_binary, is_binary


class AutoencoderBase(Transformer, StandardisingEstimator):
    """The part that all autoencoders share; a subclass defines the objective in `_objective`."""

    _sparse = True
    _settings: ClassVar[dict[str, Setting]] = {
        **COMMON,
        **EARLY_STOPPING,
        "n_components": WHOLE,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "code_activation": ACTIVATION,
        "tied_weights": FLAG,
        "likelihood": one_of("auto", "bernoulli", "gaussian"),
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "max_iter": WHOLE,
        "dtype": DTYPE,
    }

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the encoder and the decoder.

        Args:
            X: a table (n_samples, n_features).
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        options: dict[str, Any] = {"epochs": self.max_iter, "batch_size": self.batch_size}
        options |= early_stopping_options(self, len(X))
        with self._precision():
            energy = self._start(X, weight)
            data = {"x": self._standardise(X)}
            self._learn(energy, data, self._learner(), weights=weight, validated=True, **options)
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows; the first call sets `mean_` and `scale_`."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            energy = self._start(X, weight) if first else self.energy_
            data = {"x": self._rows(X)}
            self._learn_more(energy, data, self._continue(self._learner()), weights=weight)
        return self

    def _objective(self) -> Reconstruction:
        """Return the default objective."""
        raise NotImplementedError

    def _learner(self) -> Any:
        return self._make_learner(self._objective, self._adam)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k, rows = int(self.n_components), min(int(self.batch_size), n)
        weights, units = n_network_numbers(k, self.hidden_layer_sizes, d)
        return {
            "n_components": (k * (d + rows), "the codes"),
            "hidden_layer_sizes": (2 * weights + rows * units, "weights and units of the networks"),
        }

    def _start(self, X: np.ndarray, weight: Any) -> AutoencoderEnergy:
        """Return the initial model; set `mean_` and `scale_`."""
        d = X.shape[1]
        binary = self.likelihood == "bernoulli" or (self.likelihood == "auto" and is_binary(X).all())
        if binary:
            check_binary(X, remedy="Binarise X first, or use likelihood='gaussian'.")
            self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        else:
            self._fit_scaling(X, weight)
        likelihood = Bernoulli() if binary else Gaussian(1.0)
        return AutoencoderEnergy(self._make_network(d), d, likelihood)

    def _make_network(self, d: int) -> Any:
        k, hidden = int(self.n_components), layer_sizes(self.hidden_layer_sizes)
        function, code = activation_function(self.activation), activation_function(self.code_activation)
        if self.tied_weights:
            return TiedLayers.random(
                [d, *hidden, k], key=self._key(5), activation=function, code_activation=code
            )
        last = (eqx.nn.Lambda(code),)
        encoder = make_network(d, hidden, k, self.activation, key=self._key(5), after=last)
        decoder = make_network(k, hidden[::-1], d, self.activation, key=self._key(6))
        return EncoderDecoder(encoder, decoder)

    # -- rows ----------------------------------------------------------------------------------

    @property
    def _n_features_out(self) -> int:
        return self.energy_.n_code

    def _rows(self, X: np.ndarray) -> np.ndarray:
        if isinstance(getattr(getattr(self, "energy_", None), "likelihood", None), Bernoulli):
            check_binary(X, remedy="Binarise X first, or use likelihood='gaussian'.")
        return self._standardise(X)

    def transform(self, X: Any) -> np.ndarray:
        """Return the code of every row, (n_samples, n_components)."""
        X = self._check_new_X(X)
        with self._precision():
            return map_table(lambda x: _codes(self.energy_, x), self._rows(X))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return the rows (n_samples, n_features) that the decoder makes of codes (n_samples, n_components).

        These are probabilities if the columns are binary.
        """
        self._check_fitted()
        k = self._n_features_out
        with translate_sklearn_errors("X", f"finite numbers of shape (n_samples, {k})"):
            X = check_array(X, dtype=self.dtype_)
        if X.shape[1] != k:
            raise BadInput("X", f"shape {X.shape}", f"(n_samples, {k}), n_samples >= 1")
        with self._precision():
            return self._unstandardise(map_table(lambda z: _decoded(self.energy_, z), X))

    def reconstruct(self, X: Any) -> np.ndarray:
        """Return the reconstruction of every row, (n_samples, n_features)."""
        X = self._check_new_X(X)
        with self._precision():
            found = map_table(lambda x: _reconstructed(self.energy_, x), self._rows(X))
        return self._unstandardise(found)

    def reconstruction_error(self, X: Any) -> np.ndarray:
        """Return the loss of reconstruction of every row, (n_samples,): large for rows unlike those of `fit`.

        For real columns it is half the squared error of standardised columns, for binary ones the
        cross-entropy in nats.
        """
        X = self._check_new_X(X)
        with self._precision():
            return map_table(lambda x: _errors(self.energy_, x), self._rows(X))

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the mean error of reconstruction."""
        return -float(np.mean(self.reconstruction_error(X)))


@jit
def _codes(energy: AutoencoderEnergy, X: Any) -> Any:
    return jax.vmap(energy.encode)(asarray(X))


@jit
def _decoded(energy: AutoencoderEnergy, Z: Any) -> Any:
    return jax.vmap(lambda z: energy.likelihood.mean(energy.network.decode(z)))(asarray(Z))


@jit
def _reconstructed(energy: AutoencoderEnergy, X: Any) -> Any:
    return jax.vmap(energy.reconstruct)(asarray(X))


@jit
def _errors(energy: AutoencoderEnergy, X: Any) -> Any:
    is_gaussian = isinstance(energy.likelihood, Gaussian)
    constant = 0.5 * jnp.log(2 * jnp.pi) * energy.n_features * is_gaussian
    return jax.vmap(lambda x: energy(x=x))(asarray(X)) - constant
