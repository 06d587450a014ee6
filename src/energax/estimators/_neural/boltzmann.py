"""`BoltzmannMachine`: binary columns with connections between all of them, and hidden units."""

from __future__ import annotations

from typing import Any

from ... import energies
from ...learn import PseudoLikelihood
from .._common.settings import FLAG, whole
from .boltzmann_base import BoltzmannEstimator


class BoltzmannMachine(BoltzmannEstimator):
    """Boltzmann machine of binary columns: pairwise couplings of columns, and hidden units if wanted.

    Without hidden units (an Ising model) it is learned by pseudo-likelihood, without sampling; with hidden
    units by contrastive divergence with persistent chains. log p(x) is exact up to 20 columns, or 20 units in
    all if hidden ones are connected; else log Z is estimated by annealed importance sampling.

    Args:
        n_components: the number of hidden units.
        hidden_lateral: whether hidden units are connected with each other.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        n_iter: the number of epochs.
        k: Gibbs sweeps in a step.
        binarize: values above this threshold are 1, others 0; None takes only zeros and ones.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        learner: a learner of energax.learn, or an objective, minimised by Adam.

    Attributes:
        energy_: the fitted model, for functions such as `energax.posterior`.
        history_: the objective of every epoch.
        fit_: details of the fit.

    Ackley, Hinton and Sejnowski (1985), A learning algorithm for Boltzmann machines.

    >>> import numpy as np
    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> machine = BoltzmannMachine(learning_rate=0.1, n_iter=100, random_state=0).fit(X)
    >>> round(machine.score(X), 1)                                # the maximum: −log 2
    -0.7
    """

    _settings = {**BoltzmannEstimator._settings, "n_components": whole(0), "hidden_lateral": FLAG}

    def __init__(
        self,
        n_components: int = 0,
        *,
        hidden_lateral: bool = False,
        learning_rate: float = 0.01,
        batch_size: int = 100,
        n_iter: int = 50,
        k: int = 5,
        binarize: float | None = None,
        verbose: int | bool = 0,
        random_state: Any = None,
        learner: Any = None,
    ):
        self.n_components = n_components
        self.hidden_lateral = hidden_lateral
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.k = k
        self.binarize = binarize
        self.verbose = verbose
        self.random_state = random_state
        self.learner = learner

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        h, rows = int(self.n_components), min(int(self.batch_size), n)
        return {"n_components": ((d + h) ** 2 + rows * (d + h), "weights and units")}

    def _random(self, n_features: int) -> Any:
        n, lateral = int(self.n_components), bool(self.hidden_lateral)
        return energies.BoltzmannMachine.random(n_features, n, key=self._key(5), hidden_lateral=lateral)

    def _learner(self) -> Any:
        if int(self.n_components):
            return super()._learner()
        return self._make_learner(PseudoLikelihood, self._adam)
