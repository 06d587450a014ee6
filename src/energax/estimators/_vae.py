"""The variational autoencoder as a recipe: a decoder, and the encoder it was learned with."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..energies import Bernoulli, Decoder, Gaussian
from ..errors import BadInput
from ..fitting import Learner
from ..infer import Importance
from ..learn import ELBO, Descent
from ..missing import is_masked
from ..nn import Encoder
from ._base import Density, Transformer
from ._network import ColumnGaussian, Rescale, SeenStandardised, moments, network
from ._table import are_binary, bucketed, with_mask, zeros_and_ones

_DRAWS = 100  # of z, for the mean of a missing value


class VAE(Transformer, Density):
    """e(x, z) = −log N(z; 0, I) − log p(x | f(z)), learned with an encoder q(z | x).

    `score_samples` is the importance-weighted lower bound on log p(x) with `n_importance` draws.
    NaN marks a value that is not known: it drops its term, and `impute` fills it.

    Args:
        n_components: hidden dimensions.
        hidden_layer_sizes, activation: of the decoder and (in reverse) of the encoder.
        likelihood: "bernoulli" for zeros and ones, "gaussian" for real columns (with one
            learned scale a column), "auto" to look, or an object of energax.energies.
        samples: draws of z a row in learning; more than one is the importance-weighted bound.
        learning_rate, batch_size, max_iter: of Adam; passes over the data.
        early_stopping, validation_fraction, n_iter_no_change: hold out a share of the rows,
            stop when they get no better, keep the best.
        learner: any energax learner with an encoder partner: `Descent(ELBO(encoder))`.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> X = np.tile(np.eye(4), (25, 1))
    >>> vae = VAE(2, (16,), max_iter=30, random_state=0).fit(X)
    >>> vae.transform(X).shape, vae.log_prob(X).kind
    ((100, 2), 'lower bound')
    """

    _allow_nan = True
    _sparse = True

    def __init__(
        self,
        n_components: int = 8,
        hidden_layer_sizes: Any = (256,),
        *,
        activation: Any = "tanh",
        likelihood: Any = "auto",
        samples: int = 1,
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        n_importance: int = 500,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
        self.samples = samples
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_importance = n_importance
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # score_samples draws
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn decoder and encoder from rows X (n, d)."""
        self._check_settings()
        X = self._check_X(X, reset=True)
        weight = self._check_weight(sample_weight, X)
        options: dict[str, Any] = {"epochs": self.max_iter, "batch_size": self.batch_size}
        if self.early_stopping:
            options |= {"validation": float(self.validation_fraction), "patience": self.n_iter_no_change}
        with self._precision():
            energy, encoder = self._start(X, weight)
            data, learner = self._rows(X, energy.likelihood), self._learner(encoder)
            self._learn(energy, data, learner, weights=weight, **options)
        self._keep_encoder()
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows, going on from where the last one ended."""
        first = not hasattr(self, "energy_")
        self._check_settings()
        X = self._check_X(X, reset=first)
        weight = self._check_weight(sample_weight, X)
        with self._precision():
            energy, encoder = self._start(X, weight) if first else (self.energy_, self.encoder_)
            data, learner = self._rows(X, energy.likelihood), self._continue(self._learner(encoder))
            self._learn_more(energy, data, learner, weights=weight)
        self._keep_encoder()
        return self

    def _keep_encoder(self) -> None:
        self.encoder_ = self.fit_.partner

    def _start(self, X: np.ndarray, weight: Any) -> tuple[Decoder, Encoder]:
        """Decoder and encoder before learning."""
        d, k = X.shape[1], self.n_components
        likelihood = self._likelihood(X)
        shift, scale = moments(X, weight)
        real = not isinstance(likelihood, Bernoulli)
        if not real:  # a pixel that is seldom on must not shout when it is
            scale = jnp.full_like(scale, 0.5)
        if isinstance(likelihood, Gaussian) and isinstance(self.likelihood, str):
            likelihood = ColumnGaussian(jnp.ones_like(scale), scale)
        hidden = self.hidden_layer_sizes
        hidden = (hidden,) if isinstance(hidden, (int, np.integer)) else tuple(hidden)
        some_missing = bool(np.isnan(X).any())
        decoder = network(
            k, hidden, d, self.activation, key=self._key(5), after=(Rescale(shift, scale),) if real else ()
        )
        encoder = network(
            d * (1 + some_missing),
            hidden[::-1],
            2 * k,
            self.activation,
            key=self._key(6),
            before=(SeenStandardised(shift, scale, some_missing),),
        )
        return Decoder(decoder, k, likelihood), Encoder(encoder, sees_mask=True)

    def _learner(self, encoder: Encoder) -> Any:
        learner = self._chosen_learner(lambda: ELBO(encoder, self.samples), self._adam)
        objective = learner.objective if isinstance(learner, Descent) else learner
        trains = callable(objective.partner) and type(objective).partner is not Learner.partner
        if not trains:
            raise BadInput(
                "learner",
                f"{type(objective).__name__}, which trains no encoder",
                "one with an encoder beside the energy",
                "Try Descent(ELBO(encoder), optax.adam(1e-3)).",
            )
        return learner

    def _likelihood(self, X: np.ndarray) -> Any:
        chosen = self.likelihood
        if chosen == "auto":
            chosen = "bernoulli" if are_binary(X).all() else "gaussian"
        if chosen == "bernoulli":
            return Bernoulli()
        if chosen == "gaussian":
            return Gaussian()
        if isinstance(chosen, str) or not hasattr(chosen, "log_prob"):
            raise BadInput(
                "likelihood", repr(chosen), "'auto', 'bernoulli', 'gaussian' or a likelihood object"
            )
        return chosen

    def _check_settings(self) -> None:
        self._check_counts("n_components", "samples", "batch_size", "max_iter", "n_importance")

    def _given(self, X: np.ndarray) -> dict[str, Any]:
        return self._rows(X, self.energy_.likelihood)

    def _rows(self, X: np.ndarray, likelihood: Any) -> dict[str, Any]:
        if isinstance(likelihood, Bernoulli):
            X = zeros_and_ones(X, remedy="Binarise X first, or use likelihood='gaussian'.")
        return {"x": with_mask(X)}

    def _method(self):
        return Importance(encoder=self.encoder_, n_samples=int(self.n_importance))

    # -- between rows and hidden dimensions --------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """The mean of q(z | x), (n, n_components)."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            return np.asarray(_encode(self.encoder_, bucketed(self._given(X))["x"]))[: len(X)]

    def inverse_transform(self, Z: Any) -> np.ndarray:
        """E[x | z], (n, d): probabilities where x is binary."""
        self._check_fitted()
        Z = np.asarray(Z, self.dtype_)
        if Z.ndim != 2 or Z.shape[1] != self.n_components or not len(Z):
            raise BadInput("Z", f"shape {Z.shape}", f"(n, {self.n_components}), n >= 1")
        if not np.isfinite(Z).all():
            raise BadInput("Z", "NaN or infinity", "finite numbers")
        with self._precision():
            return np.asarray(_decode(self.energy_, bucketed(Z)))[: len(Z)]

    def impute(self, X: Any) -> np.ndarray:
        """X with each missing value replaced by its mean given what is known of its row.

        The mean is over draws of z from the encoder, weighed by p(known, z) / q(z | known).
        """
        self._check_fitted()
        X = self._check_X(X, reset=False)
        hidden = np.isnan(X)
        if not hidden.any():
            return X.copy()
        with self._precision():
            rows = bucketed(self._given(X))["x"]
            keys = jax.random.split(self._key(4), len(rows.value))
            means = np.asarray(_means(self.energy_, self.encoder_, rows, keys))[: len(X)]
        return np.where(hidden, means, X)


@eqx.filter_jit
def _encode(encoder: Any, x: Any) -> Any:
    x = x if is_masked(x) else jnp.asarray(x)
    return jax.vmap(lambda row: encoder(x=row).mean)(x)


@eqx.filter_jit
def _decode(energy: Decoder, z: Any) -> Any:
    return jax.vmap(lambda row: energy.conditional("x", z=row).mean)(jnp.asarray(z))


@eqx.filter_jit
def _means(energy: Decoder, encoder: Any, x: Any, keys: Any) -> Any:
    def row(row, key):
        q = encoder(x=row)
        z = q.sample(key, (_DRAWS,))
        weight = jax.nn.softmax(-jax.vmap(lambda z: energy(x=row, z=z))(z) - q.log_prob(z))
        return weight @ jax.vmap(lambda z: energy.conditional("x", z=z).mean)(z)

    return jax.vmap(row)(jax.tree.map(jnp.asarray, x), keys)
