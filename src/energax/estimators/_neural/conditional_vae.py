"""`ConditionalVAE`: rows given their class, and the class of a row by Bayes' rule."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..._util.arrays import asarray
from ..._util.sizes import QUERY_NUMBERS, QUERY_ROWS, call_rows, map_chunks, pad_size
from ...energies import Bernoulli, ConditionalDecoder, Gaussian
from ...errors import BadInput
from ...learn import ELBO
from ...nn import ConditionalEncoder
from ...programs import jit
from ...spaces import Categorical
from .._common.layers import ACTIVATION, LAYER_SIZES, n_network_numbers
from .._common.scaling import StandardisingEstimator
from .._common.settings import COMMON, DTYPE, FINITE_NOT_NEGATIVE, LEARNING_RATE, WHOLE, Setting, one_of
from .._common.sklearn_errors import translate_sklearn_errors
from .._common.table import (
    check_binary,
    check_no_empty_column,
    drop_zero_weight,
    is_binary,
    mask_missing,
)
from .._supervised.base import Classifier, check_labels
from .vae_networks import make_vae_networks


class ConditionalVAE(ClassifierMixin, StandardisingEstimator):
    """Conditional variational autoencoder: draws rows of a given class, and predicts the class of a row.

    The model is p(z) = N(0, I) and p(x | z, y) with a decoder network that gets the class y, fitted together
    with an encoder q(z | x, y). The class of a row follows from p(y | x) ∝ p(y) p(x | y), where p(x | y) is
    the importance-weighted bound. NaN marks a missing value. Real columns are standardised first.

    Args:
        n_components: the number of latent dimensions.
        hidden_layer_sizes, activation: of the decoder and, in reverse order, of the encoder.
        likelihood: "bernoulli" for zeros and ones, "gaussian" for real columns, "auto" to choose by X.
        beta: the weight of the divergence from the prior; the bound has 1.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        max_iter: the number of epochs.
        n_importance: draws of z per row and class for `predict_proba`.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner of energax.learn that trains a `ConditionalEncoder`: `Descent(ELBO(encoder))`.

    Attributes:
        classes_: the labels, (k,).
        class_prior_: the frequencies of the classes, (k,).
        mean_, scale_: mean and standard deviation of every column; 0 and 1 for binary columns.
        energy_: the fitted decoder, over standardised columns.
        encoder_: the fitted encoder.
        history_: the objective of every epoch, its terms, and the "active units".
        fit_: details of the fit.

    Sohn, Lee and Yan (2015), Learning structured output representation using deep conditional generative
    models.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(100) % 2
    >>> X = rng.normal(size=(100, 2)) + 6 * y[:, None]
    >>> model = ConditionalVAE(1, (8,), max_iter=60, learning_rate=0.02, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95, model.sample([0, 1]).round().shape
    (True, (2, 2))
    """

    _allow_nan = True
    _sparse = True
    _settings: ClassVar[dict[str, Setting]] = {
        **COMMON,
        "n_components": WHOLE,
        "hidden_layer_sizes": LAYER_SIZES,
        "activation": ACTIVATION,
        "likelihood": one_of("auto", "bernoulli", "gaussian"),
        "beta": FINITE_NOT_NEGATIVE,
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "max_iter": WHOLE,
        "n_importance": WHOLE,
        "dtype": DTYPE,
    }

    classes_: np.ndarray

    _check_has_labels: Any = Classifier._check_has_labels
    _check_two_classes: Any = Classifier._check_two_classes
    score: Any = Classifier.score

    def __init__(
        self,
        n_components: int = 8,
        hidden_layer_sizes: Any = (256,),
        *,
        activation: Any = "tanh",
        likelihood: str = "auto",
        beta: float = 1.0,
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        n_importance: int = 100,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.likelihood = likelihood
        self.beta = beta
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.n_importance = n_importance
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # p(x | y) is a Monte Carlo estimate
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit decoder and encoder.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,).
        """
        self._check_has_labels(y)
        X, y = self._check_X(X, reset=True, y=y)
        weight = self._check_weight(sample_weight, X)
        check_labels("y", y)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        self._check_two_classes()
        X, index, weight = drop_zero_weight(X, index.astype(np.int32), weight=weight)
        counts = np.bincount(index, weight, minlength=len(self.classes_))
        self.class_prior_ = counts / counts.sum()
        with self._precision():
            data, energy, encoder = self._start(X, weight)
            learner = self._make_learner(lambda: ELBO(encoder, beta=float(self.beta)), self._adam)
            options: dict[str, Any] = {
                "epochs": self.max_iter,
                "batch_size": self.batch_size,
                "validated": True,
            }
            self._learn(energy, data | {"y": index}, learner, weights=weight, **options)
        self.encoder_ = self.fit_.partner
        if not callable(self.encoder_):
            raise BadInput("learner", "one without an encoder", "Descent(ELBO(encoder))")
        return self

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k, rows = int(self.n_components), min(int(self.batch_size), n)
        weights, units = n_network_numbers(k, self.hidden_layer_sizes, d)
        return {
            "n_components": (k * (d + rows), "the latent variables"),
            "hidden_layer_sizes": (2 * weights + rows * units, "weights and units of the networks"),
        }

    def _start(self, X: np.ndarray, weight: Any) -> tuple[dict[str, Any], Any, Any]:
        d, k, labels = X.shape[1], int(self.n_components), Categorical(len(self.classes_))
        binary = self.likelihood == "bernoulli" or (self.likelihood == "auto" and is_binary(X).all())
        likelihood: Any = Bernoulli() if binary else Gaussian(jnp.ones(d))
        if binary:
            check_binary(X, remedy="Binarise X first, or use likelihood='gaussian'.")
            self.mean_, self.scale_ = np.zeros(d), np.ones(d)
        else:
            self._fit_scaling(X, weight)
        U = self._standardise(X)
        decoder, encoder = make_vae_networks(
            U,
            weight,
            likelihood,
            n_latent=k,
            hidden=self.hidden_layer_sizes,
            activation=self.activation,
            keys=(self._key(5), self._key(6)),
            dtype=self.dtype_,
            n_given=labels.k,
        )
        data = {"x": check_no_empty_column(mask_missing(U))}
        energy = ConditionalDecoder(decoder, k, labels, likelihood)
        return data, energy, ConditionalEncoder(encoder, labels, sees_mask=True)

    # -- predictions and draws -----------------------------------------------------------------

    def log_likelihoods(self, X: Any) -> np.ndarray:
        """Return a lower bound of log p(x | y) of every row and class in nats, (n_samples, k)."""
        X = self._check_new_X(X)
        self._check_settings("n_importance", "hidden_layer_sizes")
        if isinstance(self.energy_.likelihood, Bernoulli):
            check_binary(X, remedy="Binarise X first, or use likelihood='gaussian'.")
        # The numbers that one draw holds for a row: inputs and units of the decoder, for every class.
        numbers = sum(n_network_numbers(1, self.hidden_layer_sizes, X.shape[1])[1:]) * len(self.classes_)
        size = call_rows(len(X), min(QUERY_ROWS.value, QUERY_NUMBERS.rows(numbers)))
        with self._precision():
            keys = jax.random.split(self._key(1), int(self.n_importance))
            bounds = lambda x: _bounds(self.energy_, self.encoder_, x, keys)
            found = map_chunks(bounds, mask_missing(self._standardise(X)), size)
        return found - np.asarray(self._log_scale_sum(X))[:, None]

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, (n_samples, k)."""
        joint = self.log_likelihoods(X)
        with np.errstate(divide="ignore"):  # a class of weight 0
            joint = joint + np.log(self.class_prior_)
        joint = (joint - joint.max(1, keepdims=True)).astype(self.dtype_)
        return joint - np.log(np.exp(joint).sum(1, keepdims=True))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return p(y | x) of every row and class, (n_samples, k)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of every row."""
        best = self.predict_log_proba(X).argmax(1)
        return self.classes_[best]

    def sample(self, y: Any) -> np.ndarray:
        """Draw one row of every label in y, (n, n_features)."""
        self._check_fitted()
        y = np.asarray(check_labels("y", y))
        unknown = ~np.isin(y, self.classes_)
        if unknown.any() or not len(y):
            found = f"the label {y[unknown].tolist()[0]!r}" if len(y) else "no labels"
            raise BadInput("y", found, f"some of {self.classes_.tolist()[:20]}")
        index = np.searchsorted(self.classes_, y).astype(np.int32)
        padded = np.resize(index, pad_size(len(index)))
        with self._precision():
            keys = jax.random.split(self._key(2), len(padded))
            drawn = np.asarray(_draw(self.energy_, keys, padded))[: len(y)]
        return self._unstandardise(drawn)


@jit
def _bounds(energy: Any, encoder: Any, x: Any, keys: Any) -> Any:
    """log (1/S) Σ_s p(x, z_s | y) / q(z_s | x, y) of every row and class, (n, k); the same noise for all."""

    def bound(x, y):
        q = encoder(x=x, y=y)

        def log_weight(key):
            z = q.sample(key)
            return -energy(x=x, z=z, y=y) - q.log_prob(z)

        return jax.nn.logsumexp(jax.lax.map(log_weight, keys)) - jnp.log(asarray(float(len(keys))))

    classes = jnp.arange(energy.given_space.k)
    return jax.vmap(lambda x: jax.vmap(lambda y: bound(x, y))(classes))(jax.tree.map(asarray, x))


@jit
def _draw(energy: Any, keys: Any, y: Any) -> Any:
    return jax.vmap(lambda key, y: energy.draw(key, y=y)["x"])(keys, asarray(y))
