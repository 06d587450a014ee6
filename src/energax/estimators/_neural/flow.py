"""`Flow`: a density estimator by a normalising flow."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import optax

from ... import energies
from ...estimate import Estimate
from ...learn import NegativeLogLikelihood
from ...nn import AffineTransform, SplineTransform
from .._base import Density
from .._common.early_stopping import early_stopping_options, n_validation_rows
from .._common.layers import ACTIVATION, activation_function
from .._common.scaling import StandardisingEstimator
from .._common.settings import (
    COMMON,
    DTYPE,
    EARLY_STOPPING,
    FINITE_NOT_NEGATIVE,
    LEARNING_RATE,
    WHOLE,
    one_of,
)

_TRANSFORMS = {"affine": 2, "spline": 23}  # the parameters of each coordinate


class Flow(StandardisingEstimator, Density):
    """Normalising flow: a density of real columns with exact log-likelihoods and exact draws.

    p(x) = N(f(u); 0, I) |det ∂f/∂u| / Π scale, with an invertible network f of the standardised columns u,
    learned by maximum likelihood: Adam with a cosine decay of its step size.

    Args:
        n_layers: the number of blocks: a linear layer, a permutation and a layer with a network.
        layer: "coupling", fast both ways, or "autoregressive", more flexible, but with draws that take as
            many passes as there are columns.
        elementwise: the increasing function of every column whose parameters a network computes: "spline", a
            rational-quadratic spline, or "affine".
        width, depth: units per hidden layer and number of hidden layers of every network.
        activation: of the hidden layers.
        learning_rate: the step size of Adam at the start.
        weight_decay: shrinks all parameters in every step, as in AdamW.
        batch_size: rows in a step.
        max_iter: the most epochs.
        early_stopping, validation_fraction, n_iter_no_change: hold out a fraction of the rows, stop when
            their likelihood has not improved for `n_iter_no_change` epochs, and keep the best flow.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner or objective of energax.learn.

    Attributes:
        mean_, scale_: mean and standard deviation of every column, (n_features,).
        energy_: the fitted flow, over u.
        history_: the objective of every epoch.
        fit_: details of the fit.

    Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows; Papamakarios, Pavlakou and Murray
    (2017), Masked autoregressive flow for density estimation.

    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 500)
    >>> ring = 2 * np.c_[np.cos(angle), np.sin(angle)] + 0.1 * rng.normal(size=(500, 2))
    >>> flow = Flow(n_layers=2, width=16, max_iter=40, learning_rate=0.02, random_state=0).fit(ring)
    >>> flow.log_prob(ring).kind, flow.sample(3).shape, bool(flow.score([[0, 0]]) < flow.score([[2, 0]]))
    ('exact', (3, 2), True)
    """

    _settings = {
        **COMMON,
        **EARLY_STOPPING,
        "n_layers": WHOLE,
        "layer": one_of("coupling", "autoregressive"),
        "elementwise": one_of(*_TRANSFORMS),
        "width": WHOLE,
        "depth": WHOLE,
        "activation": ACTIVATION,
        "learning_rate": LEARNING_RATE,
        "weight_decay": FINITE_NOT_NEGATIVE,
        "batch_size": WHOLE,
        "max_iter": WHOLE,
        "dtype": DTYPE,
    }

    def __init__(
        self,
        n_layers: int = 4,
        *,
        layer: str = "coupling",
        elementwise: str = "spline",
        width: int = 64,
        depth: int = 2,
        activation: Any = "silu",
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        batch_size: int = 200,
        max_iter: int = 100,
        early_stopping: bool = True,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_layers = n_layers
        self.layer = layer
        self.elementwise = elementwise
        self.width = width
        self.depth = depth
        self.activation = activation
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the flow.

        Args:
            X: a table (n_samples, n_features) of finite numbers.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        options: dict[str, Any] = {"epochs": self.max_iter, "batch_size": self.batch_size}
        n_train = len(X)
        if self.early_stopping and n_train > 1:  # a single row cannot be held out
            options |= early_stopping_options(self, len(X))
            n_train -= n_validation_rows(self.validation_fraction, len(X))
        with self._precision():
            self._fit_scaling(X, weight)
            learner = self._make_learner(NegativeLogLikelihood, lambda: self._optimizer(n_train))
            data = self._to_data(X)
            start = self._start(X.shape[1])
            self._learn(start, data, learner, weights=weight, validated=True, **options)
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, at a constant step size; the first call sets the scaling."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            if first:
                self._fit_scaling(X, weight)
            data = self._to_data(X)
            energy = self._start(X.shape[1]) if first else self.energy_
            learner = self._make_learner(NegativeLogLikelihood, lambda: self._optimizer(None))
            self._learn_more(energy, data, self._continue(learner), weights=weight)
        return self

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        width, rows = int(self.width), min(int(self.batch_size), n)
        out = d * _TRANSFORMS[self.elementwise]
        weights = d * width + (int(self.depth) - 1) * width**2 + width * out
        units = int(self.depth) * width + out
        return {
            "width": (weights + rows * units, "weights and units of a network"),
            "n_layers": (
                int(self.n_layers) * (weights + d**2 + rows * units),
                "weights and units of the layers",
            ),
        }

    def _start(self, d: int) -> energies.Flow:
        """Return the initial flow."""
        transform = SplineTransform() if self.elementwise == "spline" else AffineTransform()
        return energies.Flow.random(
            d,
            key=self._key(5),
            n_layers=int(self.n_layers),
            layer=self.layer,
            transform=transform,
            width=int(self.width),
            depth=int(self.depth),
            activation=activation_function(self.activation),
        )

    def _optimizer(self, n_rows: int | None) -> optax.GradientTransformation:
        """Return Adam; with a number of rows, its step size goes to 0 over the epochs."""
        size = float(self.learning_rate)
        steps = 0 if n_rows is None else -(-n_rows // min(int(self.batch_size), n_rows)) * int(self.max_iter)
        # A schedule in both cases, so that partial_fit continues from the state of fit.
        schedule = optax.cosine_decay_schedule(size, steps) if steps else optax.constant_schedule(size)
        return optax.chain(
            optax.clip_by_global_norm(5.0), optax.adamw(schedule, weight_decay=float(self.weight_decay))
        )

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        return {"x": self._standardise(X)}

    def log_prob(self, X: Any) -> Estimate:
        """Return log p(x) of every row in nats; it is exact."""
        X = self._check_new_X(X)
        return self._log_prob(X) - self._log_scale_sum(X)

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows from the model; warn if the inverse of the flow loses digits."""
        return self._unstandardise(super().sample(n_samples))
