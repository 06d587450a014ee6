"""`DeepBeliefNetwork`: greedy layers of RBMs, tuned by the up-down algorithm, for binary data."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ... import energies
from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...infer import MCMC, TopDown
from ...learn import UpDown
from ...programs import jit
from ...samplers import Gibbs
from .boltzmann_base import _MOST_BITS, SWEEPS, DeepEstimator


class DeepBeliefNetwork(DeepEstimator):
    """Deep belief network: an RBM over the last two layers, and directed layers from it down to the data.

    Every layer is learned as an RBM of the hidden units below it; then all are tuned by the up-down
    algorithm. `log_prob` is a lower bound of log p(x), by draws from the recognition weights; log Z of the
    top is exact if one of its layers has at most 20 units, else it is bounded by annealed chains. Rows are
    drawn by Gibbs chains at the top and from there downwards.

    Args:
        hidden_layer_sizes: units of the hidden layers, from the bottom; the last two are the RBM.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        n_iter_pretrain: epochs of every RBM.
        n_iter: epochs of the up-down algorithm.
        k: Gibbs sweeps at the top in a step.
        n_importance: draws per row for `log_prob` and `score_samples`.
        binarize: values above this threshold are 1, others 0; None takes only zeros and ones.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        learner: a learner of energax.learn for the tuning, or an objective, minimised by Adam.

    Attributes:
        energy_: the fitted model, for functions such as `energax.sample`.
        history_: the objective of every epoch of the tuning.
        fit_: details of the tuning.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> network = DeepBeliefNetwork((4, 2), n_iter=2, n_iter_pretrain=2, random_state=0).fit(X)
    >>> network.transform(X).shape, network.sample(3).shape
    ((100, 2), (3, 4))
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (100, 50),
        *,
        learning_rate: float = 0.005,
        batch_size: int = 100,
        n_iter_pretrain: int = 50,
        n_iter: int = 50,
        k: int = 5,
        n_importance: int = 100,
        binarize: float | None = None,
        verbose: int | bool = 0,
        random_state: Any = None,
        learner: Any = None,
    ):
        self.hidden_layer_sizes = hidden_layer_sizes
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter_pretrain = n_iter_pretrain
        self.n_iter = n_iter
        self.k = k
        self.n_importance = n_importance
        self.binarize = binarize
        self.verbose = verbose
        self.random_state = random_state
        self.learner = learner

    def _random(self, n_features: int) -> Any:
        return energies.DeepBeliefNetwork.random(self._layers(n_features), key=self._key(5))

    def _start(self, data, weight):
        rbms = self._pretrain(data, weight, doubled=False)
        return energies.DeepBeliefNetwork.from_rbms(rbms), False

    def _learner(self) -> Any:
        return self._make_learner(lambda: UpDown(int(self.k)), self._adam)

    def _sample_method(self, n: int) -> Any:
        bits = sum(space.size for space in self.energy_.top.spaces.values())
        return TopDown(None if bits <= _MOST_BITS else MCMC(Gibbs(), n_chains=n, warmup=SWEEPS))

    def transform(self, X: Any) -> np.ndarray:
        """Return rates of the last layer, by the rates of all layers below from the bottom up."""
        data = self._to_data(self._check_new_X(X))
        with self._precision():
            return map_table(lambda x: _top_rates(self.energy_, x), data["x"])


@jit
def _top_rates(energy: Any, x: Any) -> Any:
    def rates(row):
        for i in range(len(energy.layers)):
            row = energy.recognise(i, row).mean
        return energy.top.conditional("z", x=row).mean

    return jax.vmap(rates)(asarray(x))
