"""The exact negative log-likelihood, with an optional prior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp

from .._util.arguments import (
    FUNCTION,
    NONE,
    POSITIVE_SCALAR,
    WEIGHT_SCALAR,
    check_arguments,
)
from ..batch import Batch
from ..energy import Energy, free_energy, row_free_energies
from ..errors import Unsuitable, check_instance
from ..spaces import Real
from ._objective import Objective
from ._penalty import squared_weights
from ._requirements import check_free_energy, check_log_partition, check_missing, check_variables


class NegativeLogLikelihood(Objective):
    """The negative log-likelihood: mean F(x) + log Z, plus prior(θ) / n_rows.

    An energy with `inputs`, such as a classifier, has one log Z per row, −F(inputs): the
    likelihood is that of the other variables given the inputs. Hidden variables and missing
    values are summed out.

    Args:
        prior: −log p(θ) up to a constant, as a function of the energy; it makes the estimate MAP.
        n_rows: the number of rows in the whole data set, by which the prior is divided.
        l2: adds l2 / 2 times the squared weights (arrays of two axes or more, not biases).

    >>> import jax.numpy as jnp
    >>> from energax import Batch
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> terms, _ = NegativeLogLikelihood()(coins, Batch({"x": jnp.ones((1, 2))}, jnp.ones(1)), None, None)
    >>> sum(terms.values())                                  # 2 log 2
    Array(1.3862944, dtype=float32)
    """

    prior: Callable[[Any], Any] | None = None
    n_rows: float | None = None
    l2: float = eqx.field(default=0.0, kw_only=True)

    def __check_init__(self):
        check_arguments(self, prior=FUNCTION | NONE, n_rows=POSITIVE_SCALAR | NONE, l2=WEIGHT_SCALAR)

    def check(self, energy, data):
        if self.prior is not None and not self.n_rows:
            raise Unsuitable("NegativeLogLikelihood(prior=) needs n_rows=, the size of the data set.")
        check_missing(self, energy, data)
        check_free_energy(self, energy, data)
        if energy.inputs:
            check_variables(self, data, *energy.inputs)
        else:
            in_rn = all(isinstance(energy.spaces[n], Real) for n in data)
            others = ", NoiseContrastive or ScoreMatching" if in_rn else " or NoiseContrastive"
            check_log_partition(self, energy, f"Use ContrastiveDivergence{others}.")

    def __call__(self, energy, batch, carry, key):
        terms = {
            "free energy": batch.mean(row_free_energies(energy, batch.data)),
            "log partition": self._log_partition(energy, batch),
        }
        if self.prior is not None:
            terms["prior"] = self.prior(energy) / self.n_rows
        if not (isinstance(self.l2, int | float) and self.l2 == 0):  # an array may be a tracer
            terms["penalty"] = 0.5 * self.l2 * squared_weights(energy)
        return terms, carry

    def _log_partition(self, energy, batch):
        log_z = _row_log_partitions(energy, batch)
        return log_z if not log_z.ndim else batch.mean(log_z)


def row_losses(energy: Energy, batch: Batch) -> Any:
    """−log p of every row, F(row) + log Z, (n,): of the other variables given the inputs, if there are any.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> row_losses(coins, Batch({"x": jnp.ones((1, 2))}, jnp.ones(1)))              # 2 log 2
    Array([1.3862944], dtype=float32)
    """
    check_instance("energy", energy, Energy, "an energy")
    check_instance("batch", batch, Batch, "a Batch of rows", "Try Batch(data, weight).")
    return row_free_energies(energy, batch.data) + _row_log_partitions(energy, batch)


def _row_log_partitions(energy: Energy, batch: Batch) -> Any:
    """log Z, one number; for an energy with inputs, log Z of every row given its inputs."""
    if not energy.inputs:
        return jnp.asarray(energy.log_partition())
    return -batch.map(lambda **row: free_energy(energy, {k: row[k] for k in energy.inputs}))
