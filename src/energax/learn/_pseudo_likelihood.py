"""Pseudo-likelihood: the probability of every coordinate given all others, which needs no log Z."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..energy import free_energy
from ..errors import Unsuitable
from ._objective import Objective
from ._requirements import check_free_energy, check_no_missing, check_variables


class PseudoLikelihood(Objective):
    """The negative log pseudo-likelihood: −mean Σ_i log p(x_i | x_¬i).

    i runs over the coordinates of all observed variables, which must be finite, except inputs of the energy,
    which stay at their values. Each term compares the energies of all values of x_i with the others fixed,
    so that log Z cancels. If the model is correct the estimate is consistent like maximum likelihood, with a
    larger variance.

    Besag (1975), Statistical analysis of non-lattice data.

    >>> from energax import Batch
    >>> from energax.energies import MarkovField
    >>> field = MarkovField({("a", "b"): jnp.ones((2, 2))})
    >>> batch = Batch({"a": jnp.array([0, 1]), "b": jnp.array([0, 1])}, jnp.ones(2))
    >>> PseudoLikelihood()(field, batch, None, jax.random.key(0))[0]              # 2 log 2
    Array(1.3862944, dtype=float32)
    """

    def check(self, energy, data):
        check_variables(self, data, *energy.inputs)
        observed = [n for n in energy.spaces if n in data and n not in energy.inputs]
        infinite = {n: energy.spaces[n] for n in observed if not energy.spaces[n].is_finite}
        if infinite or not observed:
            raise Unsuitable(
                f"PseudoLikelihood needs finite observed variables; got {infinite or 'none'}. "
                "Use ScoreMatching, its counterpart for real variables."
            )
        check_no_missing(self, data, *observed, *energy.inputs, instead="EM or NegativeLogLikelihood")
        check_free_energy(self, energy, data)

    def __call__(self, energy, batch, carry, key):
        return batch.mean(batch.map(lambda **row: _row_loss(energy, row))), carry


def _row_loss(energy: Any, row: dict[str, Any]) -> Any:
    """−Σ_i log p(x_i | x_¬i) of one row."""
    row_energy = free_energy(energy, row)
    total = jnp.zeros_like(row_energy)
    for name, value in row.items():
        if name in energy.inputs:
            continue
        space = energy.spaces[name]
        values = jnp.arange(space.values_per_coordinate).astype(value.dtype)
        flat = jnp.reshape(value, (-1,))

        def energy_with(i, value, name=name, flat=flat, space=space):
            changed = flat.at[i].set(value).reshape(space.shape)
            return free_energy(energy, {**row, name: changed})

        energies = jax.vmap(jax.vmap(energy_with, (None, 0)), (0, None))(jnp.arange(space.size), values)
        total = total + jnp.sum(row_energy + jax.nn.logsumexp(-energies, axis=1))
    return total
