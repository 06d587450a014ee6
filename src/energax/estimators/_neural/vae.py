"""The variational autoencoder as a recipe: a decoder, and the encoder it was learned with."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.utils import check_array

from ...energies import Bernoulli, Decoder, Gaussian
from ...errors import BadInput
from ...estimate import Estimate
from ...fitting import Learner
from ...infer import Importance
from ...learn import ELBO, Descent
from ...missing import is_masked
from ...nn import Encoder
from .._base import Density, Transformer, translate_sklearn_errors
from .._common.layers import Rescale, SeenStandardised, early_stopping_options, network
from .._common.scaling import Standardised, moments
from .._common.table import are_binary, bucketed, check_no_empty_column, with_mask, zeros_and_ones

_DRAWS = 100  # of z, for the mean of a missing value


class VAE(Transformer, Standardised, Density):
    """e(x, z) = −log N(z; 0, I) − log p(x | f(z)), learned with an encoder q(z | x).

    `score_samples` is the importance-weighted lower bound on log p(x) with `n_importance` draws.
    NaN marks a value that is not known: it drops its term, and `impute` fills it. Real columns
    are standardised first (`mean_`, `scale_`): `energy_` and `encoder_` are over what comes out,
    everything else is in the units of X.

    Args:
        n_components: hidden dimensions.
        hidden_layer_sizes, activation: of the decoder and (in reverse) of the encoder.
        likelihood: "bernoulli" for zeros and ones, "gaussian" for real columns (with one
            learned scale a column), "auto" to look, or an object of energax.energies, which is
            given the columns as they are.
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
        X, weight = self._counted(X, sample_weight)
        options: dict[str, Any] = {"epochs": self.max_iter, "batch_size": self.batch_size}
        options |= early_stopping_options(self, len(X))
        with self._precision():
            data, energy, encoder = self._start(X, weight)
            learner = self._learner(encoder)
            self._learn(energy, data, learner, weights=weight, **options)
        self._keep_encoder()
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows, going on from where the last one ended."""
        first = not hasattr(self, "energy_")
        self._check_settings()
        X = self._check_X(X, reset=first)
        X, weight = self._counted(X, sample_weight)
        with self._precision():
            start = self._start(X, weight) if first else (self._given(X), self.energy_, self.encoder_)
            data, energy, encoder = start
            learner = self._continue(self._learner(encoder))
            self._learn_more(energy, data, learner, weights=weight)
        self._keep_encoder()
        return self

    def _keep_encoder(self) -> None:
        self.encoder_ = self.fit_.partner

    def _start(self, X: np.ndarray, weight: Any) -> tuple[dict[str, Any], Decoder, Encoder]:
        """The rows in the units to learn in, and decoder and encoder before learning."""
        d, k = X.shape[1], self.n_components
        likelihood = self._likelihood(X)
        self._check_values(X, likelihood)
        if isinstance(self.likelihood, str) and isinstance(likelihood, Gaussian):
            self._settle_units(X, weight)
            likelihood = Gaussian(jnp.ones(d))
        else:  # zeros and ones, and what a given likelihood speaks of, stay as they are
            self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        U = self._standardised(X)
        shift, scale = (jnp.asarray(m.astype(self.dtype_)) for m in moments(U, weight))
        real = not isinstance(likelihood, Bernoulli)
        if not real:  # a pixel that is seldom on must not shout when it is
            scale = jnp.full_like(scale, 0.5)
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
        data = {"x": check_no_empty_column(with_mask(U))}
        return data, Decoder(decoder, k, likelihood), Encoder(encoder, sees_mask=True)

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
        self._check_values(X, self.energy_.likelihood)
        return {"x": with_mask(self._standardised(X))}

    def _check_values(self, X: np.ndarray, likelihood: Any) -> None:
        if isinstance(likelihood, Bernoulli):
            zeros_and_ones(X, remedy="Binarise X first, or use likelihood='gaussian'.")

    def _method(self):
        return Importance(encoder=self.encoder_, n_samples=int(self.n_importance))

    # -- rows --------------------------------------------------------------------------------

    def log_prob(self, X: Any) -> Estimate:
        """log p(x) of every row in nats: the importance-weighted lower bound, in the units of X."""
        found = super().log_prob(X)
        return found - self._log_units(self._check_X(X, reset=False))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Rows drawn from the model."""
        return self._in_units_of_X(super().sample(n_samples))

    # -- between rows and hidden dimensions --------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """The mean of q(z | x), (n, n_components)."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            return np.asarray(_encode(self.encoder_, bucketed(self._given(X))["x"]))[: len(X)]

    def inverse_transform(self, X: Any) -> np.ndarray:
        """E[x | z] of hidden rows X (n, n_components), (n, d): probabilities where x is binary."""
        self._check_fitted()
        with translate_sklearn_errors("X", f"numbers, (n, {self.n_components})"):
            X = check_array(X, dtype=self.dtype_, ensure_all_finite=False, ensure_min_samples=0)
        if X.ndim != 2 or X.shape[1] != self.n_components or not len(X):
            raise BadInput("X", f"shape {X.shape}", f"(n, {self.n_components}), n >= 1")
        if not np.isfinite(X).all():
            raise BadInput("X", "NaN or infinity", "finite numbers")
        with self._precision():
            return self._in_units_of_X(_decode(self.energy_, bucketed(X)))[: len(X)]

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
            means = self._in_units_of_X(_means(self.energy_, self.encoder_, rows, keys))[: len(X)]
        return np.where(hidden, means, X).astype(X.dtype)


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
