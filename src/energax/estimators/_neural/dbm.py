"""`DeepBoltzmannMachine`: layers of binary units learned together, for binary data."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ... import energies
from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...programs import jit
from .boltzmann_base import DeepEstimator


class DeepBoltzmannMachine(DeepEstimator):
    """Deep Boltzmann machine: layers of binary units, each connected with its neighbours in both directions.

    Layers are first learned one by one as RBMs, then together: the positive phase by mean field, the negative
    phase by persistent Gibbs chains. `log_prob` is a lower bound of log p(x), by draws from the mean-field
    distribution; log Z is exact if the even or the odd layers have at most 20 units together, else it is
    bounded by annealed chains. Warns if chains do not follow the data, or weights explode.

    Args:
        hidden_layer_sizes: units of the hidden layers, from the bottom.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        n_iter_pretrain: epochs of every RBM.
        n_iter: epochs of all layers together.
        k: Gibbs sweeps in a step.
        n_importance: draws per row for `log_prob` and `score_samples`.
        binarize: values above this threshold are 1, others 0; None takes only zeros and ones.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        learner: a learner of energax.learn for all layers together, or an objective, minimised by Adam.

    Attributes:
        energy_: the fitted model, for functions such as `energax.sample`.
        history_: the objective of every epoch.
        fit_: details of the fit.

    Salakhutdinov and Hinton (2009), Deep Boltzmann machines.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> machine = DeepBoltzmannMachine((4, 2), n_iter=2, n_iter_pretrain=2, random_state=0).fit(X)
    >>> machine.transform(X).shape, machine.log_prob(X[:2]).kind
    ((100, 2), 'lower bound')
    """

    def __init__(
        self,
        hidden_layer_sizes: Any = (100, 50),
        *,
        learning_rate: float = 0.005,
        batch_size: int = 100,
        n_iter_pretrain: int = 20,
        n_iter: int = 100,
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
        return energies.DeepBoltzmannMachine.random(self._layers(n_features), key=self._key(5))

    def _start(self, data, weight):
        rbms = self._pretrain(data, weight, doubled=True)
        return energies.DeepBoltzmannMachine.from_rbms(rbms), False

    def transform(self, X: Any) -> np.ndarray:
        """Return the mean-field rates of the last layer given every row, (n_samples, n_units)."""
        data = self._to_data(self._check_new_X(X))
        with self._precision():
            return map_table(lambda x: _top_rates(self.energy_, x), data["x"])


@jit
def _top_rates(energy: Any, x: Any) -> Any:
    return jax.vmap(lambda row: energy.mean_field(x=row)[energy.names[-1]])(asarray(x))
