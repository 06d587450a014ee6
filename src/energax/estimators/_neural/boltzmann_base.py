"""The base of the estimators of Boltzmann machines and deep belief networks of binary columns."""

from __future__ import annotations

import itertools
from typing import Any, Self

import jax
import numpy as np

from ...energies import RBM, pretrain_rbms
from ...errors import BadInput
from ...infer import MCMC, VariationalBound
from ...learn import ContrastiveDivergence, Descent, check_phases
from ...samplers import Gibbs
from .._base import Density, Transformer
from .._common.layers import LAYER_SIZES, layer_sizes
from .._common.settings import ANY_NUMBER, COMMON, LEARNING_RATE, NONE, WHOLE, Setting, is_whole
from .._common.sklearn_errors import reword_warnings
from .._common.table import binarize

#: Numbers of repetitions; larger ones would not end, or not fit into 32 bits.
COUNT = Setting(lambda value: is_whole(value) and 1 <= value <= 10**6, "a whole number from 1 to a million")
#: Sweeps of the chains that draw rows.
SWEEPS = 200
#: Bits of all variables up to which draws are exact, from the table of all values.
_MOST_BITS = 14


class BoltzmannEstimator(Density):
    """The base of estimators that learn by contrastive divergence with persistent chains.

    A subclass builds the model before learning in `_start`.
    """

    _sparse = True
    _settings = {
        **COMMON,
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "n_iter": WHOLE,
        "k": COUNT,
        "binarize": ANY_NUMBER | NONE,
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True  # log Z, and bounds of large models, are Monte Carlo estimates
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: zeros and ones, (n_samples, n_features).
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision(), reword_warnings():
            data, learner = self._to_data(X), self._learner()
            start, initialise = self._start(data, weight)
            options: dict[str, Any] = {"epochs": self.n_iter, "batch_size": self.batch_size}
            options |= {"initialise": initialise, "validated": True}
            self._learn(start, data, learner, weights=weight, **options)
            check_phases(self.fit_, data, learner, weights=weight)
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, continuing from earlier calls, without layer-wise learning."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        with self._precision():
            start = self._random(X.shape[1]) if first else self.energy_
            learner = self._continue(self._learner())
            self._learn_more(start, self._to_data(X), learner, weights=weight, initialise=first)
        return self

    def _random(self, n_features: int) -> Any:
        """Return a model with small random weights."""
        raise NotImplementedError

    def _start(self, data: dict[str, Any], weight: Any) -> tuple[Any, bool]:
        """Return the model from which all layers are learned together, and whether to initialise it."""
        return self._random(data["x"].shape[1]), True

    def _learner(self) -> Any:
        objective = lambda: ContrastiveDivergence(int(self.k), persistent=True)
        return self._make_learner(objective, self._adam)

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        self._check_settings("binarize")  # it may have been set after `fit`
        return {"x": binarize(X, self.binarize)}

    def _sample_method(self, n: int) -> Any:
        bits = sum(space.size for space in self.energy_.spaces.values())
        return None if bits <= _MOST_BITS else MCMC(Gibbs(), n_chains=n, warmup=SWEEPS)


class DeepEstimator(Transformer, BoltzmannEstimator):
    """The base of estimators with several layers of hidden units."""

    _settings = {
        **BoltzmannEstimator._settings,
        "hidden_layer_sizes": LAYER_SIZES,
        "n_iter_pretrain": WHOLE,
        "n_importance": COUNT,
    }

    def _layers(self, n_features: int) -> tuple[int, ...]:
        sizes = layer_sizes(self.hidden_layer_sizes)
        if len(sizes) < 2:
            remedy = "Use BernoulliRBM for one hidden layer."
            raise BadInput("hidden_layer_sizes", repr(sizes), "two or more layers", remedy)
        return (n_features, *sizes)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        sizes = self._layers(d)
        weights = sum(a * b for a, b in itertools.pairwise(sizes))
        rows = min(int(self.batch_size), n)
        return {"hidden_layer_sizes": (weights + rows * sum(sizes), "weights and hidden units")}

    def _pretrain(self, data: dict[str, Any], weight: Any, doubled: bool) -> list[RBM]:
        """Return RBMs for all layers, learned one after another by contrastive divergence with one sweep."""
        sizes = self._layers(data["x"].shape[1])
        keys = jax.random.split(self._key(5), len(sizes))
        pairs = zip(sizes[:-1], sizes[1:], keys[1:], strict=True)
        stack = [RBM.random(n, m, key=key) for n, m, key in pairs]
        learner = Descent(ContrastiveDivergence(1), self._adam())
        size = min(int(self.batch_size), len(data["x"]))
        options: dict[str, Any] = {"epochs": self.n_iter_pretrain, "batch_size": size, "weights": weight}
        return pretrain_rbms(stack, data, learner, key=keys[0], doubled=doubled, **options)

    def _log_prob_method(self) -> Any:
        self._check_settings("n_importance")  # it may have been set after `fit`
        return VariationalBound(int(self.n_importance))

    def _draws_hint(self) -> str:
        return f"Raise n_importance (now {self.n_importance}), or train longer (n_iter)."

    @property
    def _n_features_out(self) -> int:
        return self.energy_.spaces[self.energy_.names[-1]].size
