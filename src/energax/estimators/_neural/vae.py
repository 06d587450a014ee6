"""`VAE`: a variational autoencoder."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.utils import check_array

from ..._util.sizes import map_table
from ...energies import Bernoulli, Decoder, Gaussian, PseudoInputs, StandardNormal
from ...errors import BadInput
from ...estimate import Estimate
from ...fitting import Learner
from ...infer import Importance, RefinedEncoder, bound_gap
from ...learn import ELBO, Descent
from ...nn import Encoder
from .._base import Density, Transformer
from .._common.early_stopping import early_stopping_options
from .._common.layers import (
    ACTIVATION,
    LAYER_SIZES,
    n_network_numbers,
)
from .._common.scaling import StandardisingEstimator
from .._common.settings import (
    COMMON,
    DTYPE,
    EARLY_STOPPING,
    FINITE_NOT_NEGATIVE,
    LEARNING_RATE,
    WHOLE,
    Setting,
    one_of,
    whole,
)
from .._common.sklearn_errors import translate_sklearn_errors, warn_user
from .._common.table import check_binary, check_no_empty_column, is_binary, mask_missing
from .latent_rows import decode_rows, encode_rows, posterior_means
from .vae_networks import make_vae_networks

_LIKELIHOOD = Setting(
    lambda value: hasattr(value, "log_prob") and not isinstance(value, type),
    "a likelihood of energax.energies",
)
_PRIOR = Setting(
    lambda value: all(hasattr(value, name) for name in ("space", "width", "log_prob", "sample", "embed")),
    "a prior of energax.energies",
)
_PSEUDO_INPUTS = 50
_ACTIVITY_ROWS = 10_000


class VAE(Transformer, StandardisingEstimator, Density):
    """Variational autoencoder: a latent variable model of binary or real columns.

    The model is p(z), N(0, I) by default, and p(x | z) with a decoder network, fitted together with an
    encoder network q(z | x). `score_samples` is a lower bound on log p(x), the importance-weighted bound. NaN
    marks a missing value. Real columns are standardised first.

    Args:
        n_components: the number of latent dimensions.
        hidden_layer_sizes, activation: of the decoder and, in reverse order, of the encoder.
        likelihood: "bernoulli" for zeros and ones, "gaussian" for real columns (with one fitted standard
            deviation per column), "auto" to choose by the values of X, or a likelihood of
            energax.energies, for columns that are not standardised.
        samples: draws of z per row in training; more than one is the importance-weighted bound.
        prior: "normal"; "pseudo-inputs", the mean of the encoder over 50 learned inputs; or a prior of
            energax.energies, such as `EnergyPrior(mixture)`.
        beta: the weight of the divergence from the prior; the bound has 1.
        beta_warmup: the number of epochs in which this weight rises from 0 to `beta`, which prevents hidden
            variables from collapsing to the prior.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        max_iter: the most epochs.
        early_stopping, validation_fraction, n_iter_no_change: hold out a fraction of the rows, stop when
            their bound has not improved for `n_iter_no_change` epochs, and keep the best networks.
        n_importance: draws of z per row for `log_prob` and `score_samples`.
        n_refine: gradient steps that improve q(z | x) of every row before these draws, for a tighter bound.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner of energax.learn that trains an encoder: `Descent(ELBO(encoder))`.

    Attributes:
        mean_, scale_: mean and standard deviation of every column, (n_features,); 0 and 1 for columns that
            are not standardised.
        energy_: the fitted decoder, over standardised columns.
        encoder_: the fitted encoder, over standardised columns.
        active_units_: the number of latent dimensions that depend on x: those whose mean has a variance
            above 0.01. A warning says if there is none (posterior collapse).
        history_: the objective of every epoch, its terms, and the "active units".
        fit_: details of the fit.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> X = np.tile(np.eye(4), (25, 1))
    >>> vae = VAE(2, (16,), max_iter=30, random_state=0).fit(X)
    >>> vae.transform(X).shape, vae.log_prob(X).kind
    ((100, 2), 'lower bound')
    """

    _allow_nan = True
    _sparse = True
    _settings = {
        **COMMON,
        **EARLY_STOPPING,
        "n_components": WHOLE,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "likelihood": one_of("auto", "bernoulli", "gaussian") | _LIKELIHOOD,
        "samples": WHOLE,
        "prior": one_of("normal", "pseudo-inputs") | _PRIOR,
        "beta": FINITE_NOT_NEGATIVE,
        "beta_warmup": whole(0),
        "n_refine": whole(0),
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "max_iter": WHOLE,
        "n_importance": WHOLE,
        "dtype": DTYPE,
    }

    def __init__(
        self,
        n_components: int = 8,
        hidden_layer_sizes: Any = (256,),
        *,
        activation: Any = "tanh",
        likelihood: Any = "auto",
        samples: int = 1,
        prior: Any = "normal",
        beta: float = 1.0,
        beta_warmup: int = 0,
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        n_importance: int = 500,
        n_refine: int = 0,
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
        self.prior = prior
        self.beta = beta
        self.beta_warmup = beta_warmup
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_importance = n_importance
        self.n_refine = n_refine
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # score_samples is a Monte Carlo estimate
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit decoder and encoder.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        options: dict[str, Any] = {"epochs": self.max_iter, "batch_size": self.batch_size}
        options |= early_stopping_options(self, len(X))
        with self._precision():
            data, energy, encoder = self._start(X, weight)
            learner = self._learner(encoder, len(X))
            self._learn(energy, data, learner, weights=weight, validated=True, **options)
            self._finish(data)
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, continuing from earlier calls."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            start = self._start(X, weight) if first else (self._to_data(X), self.fit_.energy, self.encoder_)
            data, energy, encoder = start
            learner = self._continue(self._learner(encoder))
            self._learn_more(energy, data, learner, weights=weight)
            self._finish(data)
        return self

    def _finish(self, data: dict[str, Any]) -> None:
        """Set `encoder_` and `active_units_`, give the encoder to the prior, and warn of a collapse."""
        self.encoder_ = self.fit_.partner
        decoder: Any = self.fit_.energy
        self.energy_ = decoder.with_encoder(self.encoder_)
        rows = jax.tree.map(lambda a: a[:_ACTIVITY_ROWS], data["x"])
        means = map_table(lambda x: encode_rows(self.encoder_, x), rows)
        spread = means.reshape(len(means), -1).var(0)
        self.active_units_ = int((spread > 0.01).sum())
        if self.active_units_ == 0 and len(means) > 1:
            message = (
                f"{type(self).__name__}: the posterior has collapsed: none of the {len(spread)} hidden "
                "variables depends on x, as if the columns were independent. Lower beta, set beta_warmup, or "
                "train longer (max_iter)."
            )
            warn_user(message)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k, rows = int(self.n_components), min(int(self.batch_size), n) * int(self.samples)
        weights, units = n_network_numbers(k, self.hidden_layer_sizes, d)
        return {
            "n_components": (k * (d + rows), "the latent variables"),
            "hidden_layer_sizes": (2 * weights + rows * units, "weights and units of the networks"),
            "samples": (rows * (k + units), "the draws of a step"),
        }

    def _numbers_per_draw(self) -> int:
        self._check_settings("hidden_layer_sizes")  # it may have been set after `fit`
        return sum(n_network_numbers(1, self.hidden_layer_sizes, self.n_features_in_)[1:])

    def _start(self, X: np.ndarray, weight: Any) -> tuple[dict[str, Any], Decoder, Encoder]:
        """Return the data, and decoder and encoder before training."""
        d, k = X.shape[1], self.n_components
        likelihood = self._make_likelihood(X)
        self._check_values(X, likelihood)
        if isinstance(self.likelihood, str) and isinstance(likelihood, Gaussian):
            self._fit_scaling(X, weight)
            likelihood = Gaussian(jnp.ones(d))
        else:  # binary columns, and those of a given likelihood, are not standardised
            self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        U = self._standardise(X)
        prior = self._make_prior(U)
        decoder, encoder = make_vae_networks(
            U,
            weight,
            likelihood,
            n_latent=k,
            hidden=self.hidden_layer_sizes,
            activation=self.activation,
            keys=(self._key(5), self._key(6)),
            dtype=self.dtype_,
            n_embedded=prior.width,
        )
        energy = Decoder(decoder, prior, likelihood)
        data = {"x": check_no_empty_column(self._check_space(U, energy))}
        return data, energy, Encoder(encoder, sees_mask=True)

    def _make_prior(self, U: np.ndarray) -> Any:
        """Return the prior object that the argument `prior` is or names."""
        k = int(self.n_components)
        if self.prior == "pseudo-inputs":
            complete = np.where(np.isnan(U), 0, U)  # 0 is the mean of standardised columns
            rows = self._generator().choice(len(U), min(_PSEUDO_INPUTS, len(U)), replace=False)
            return PseudoInputs(jnp.asarray(complete[rows]), k)
        if isinstance(self.prior, str):
            return StandardNormal(k)
        if self.prior.space.shape != (k,) or not self.prior.space.is_real:
            raise BadInput("prior", f"one over {self.prior.space!r}", f"one over Real({k}): n_components={k}")
        return self.prior

    def _learner(self, encoder: Encoder, n_rows: int | None = None) -> Any:
        """Return the learner; with the number of rows, for a whole fit, in which beta may rise."""
        beta: Any = float(self.beta)
        if self.beta_warmup:
            if int(self.samples) > 1 and self.learner is None:
                expected = "0: with several samples the bound has no KL term"
                raise BadInput("beta_warmup", f"{self.beta_warmup} with samples={self.samples}", expected)
            # partial_fit, where it is constant, counts steps too, to continue from the state of fit.
            n_steps = int(self.beta_warmup) * -(-(n_rows or 0) // int(self.batch_size))
            beta = optax.linear_schedule(0.0 if n_steps else beta, beta, max(1, n_steps))
        learner = self._make_learner(lambda: ELBO(encoder, self.samples, beta=beta), self._adam)
        objective = learner.objective if isinstance(learner, Descent) else learner
        trains_encoder = callable(objective.partner) and type(objective).partner is not Learner.partner
        if not trains_encoder:
            raise BadInput(
                "learner",
                f"{type(objective).__name__}, which trains no encoder",
                "a learner that trains an encoder",
                "Try Descent(ELBO(encoder), optax.adam(1e-3)).",
            )
        return learner

    def _make_likelihood(self, X: np.ndarray) -> Any:
        """Return the likelihood object that the argument `likelihood` is or names."""
        chosen = self.likelihood
        if isinstance(chosen, str) and chosen == "auto":
            chosen = "bernoulli" if is_binary(X).all() else "gaussian"
        if chosen == "bernoulli":
            return Bernoulli()
        if chosen == "gaussian":
            return Gaussian()
        return chosen

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        self._check_values(X, self.energy_.likelihood)
        return {"x": self._check_space(self._standardise(X), self.energy_)}

    def _check_space(self, U: np.ndarray, energy: Decoder) -> Any:
        """Return the rows, masked where values are missing; raise if a given likelihood excludes a value."""
        return mask_missing(U) if isinstance(self.likelihood, str) else energy.spaces["x"].check(U, "X")

    def _check_values(self, X: np.ndarray, likelihood: Any) -> None:
        if isinstance(likelihood, Bernoulli):
            check_binary(X, remedy="Binarise X first, or use likelihood='gaussian'.")

    def _log_prob_method(self):
        self._check_settings("n_importance")  # it may have been set after `fit`
        return Importance(encoder=self._refined_encoder(), n_samples=int(self.n_importance))

    def _refined_encoder(self) -> Any:
        self._check_settings("n_refine")
        steps = int(self.n_refine)
        return RefinedEncoder(self.encoder_, self.energy_, steps) if steps else self.encoder_

    # -- rows --------------------------------------------------------------------------------

    def log_prob(self, X: Any) -> Estimate:
        """Return a lower bound on log p(x) of every row in nats, with its standard error."""
        X = self._check_new_X(X)
        return self._log_prob(X) - self._log_scale_sum(X)

    def bound_gap(self, X: Any) -> Estimate:
        """Return log p(x) minus the evidence lower bound of every row in nats: KL(q(z | x) ‖ p(z | x)).

        log p(x) is estimated by `n_importance` draws from the encoder, so this is a lower bound of the gap.
        """
        self._check_settings("n_importance")
        X = self._check_new_X(X)
        n = max(2, int(self.n_importance))
        with self._precision():
            data, encoder = self._to_data(X), self._refined_encoder()
            return bound_gap(self.energy_, data, encoder, n_samples=n, key=self._key(8))

    def _draws_hint(self) -> str:
        return f"Raise n_importance (now {self.n_importance}), or train longer (max_iter)."

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows from the model."""
        return self._unstandardise(super().sample(n_samples))

    # -- latent dimensions -------------------------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """Return the mean of q(z | x) of every row, (n_samples, n_components)."""
        X = self._check_new_X(X)
        with self._precision():
            return map_table(lambda x: encode_rows(self.encoder_, x), self._to_data(X)["x"])

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Return E[x | z], (n_samples, n_features), of latent rows X (n_samples, n_components).

        These are probabilities if x is binary.
        """
        self._check_fitted()
        k = self._n_features_out
        with translate_sklearn_errors("X", f"numbers of shape (n_samples, {k})"):
            X = check_array(X, dtype=self.dtype_, ensure_all_finite=False, ensure_min_samples=0)
        if X.ndim != 2 or X.shape[1] != k or not len(X):
            raise BadInput("X", f"shape {X.shape}", f"(n_samples, {k}), n_samples >= 1")
        if not np.isfinite(X).all():
            raise BadInput("X", "NaN or infinity", "finite numbers")
        with self._precision():
            return self._unstandardise(map_table(lambda z: decode_rows(self.energy_, z), X))

    def impute(self, X: Any) -> np.ndarray:
        """Return X with each missing value replaced by its mean given the observed values of its row.

        The mean is over draws of z from the encoder, weighted by p(observed, z) / q(z | observed).
        """
        X = self._check_new_X(X)
        missing = np.isnan(X)
        if not missing.any():
            return X.copy()
        with self._precision():
            rows, numbers = self._to_data(X)["x"], self._numbers_per_draw()
            means = posterior_means(self.energy_, self.encoder_, rows, self._key(4), numbers)
        return np.where(missing, self._unstandardise(means), X).astype(X.dtype)
