"""Pseudo-likelihood: every coordinate given all the others; log Z drops out."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..energy import free_energy
from ..errors import Unsuitable
from ._objective import Objective, check_variables
from ._requirements import check_complete, check_free_energy, check_joint


class PseudoLikelihood(Objective):
    """−mean Σ_i log p(x_i | x_¬i), over the coordinates of all observed finite variables.

    Each term needs only the energies of the values that x_i could have instead, so that no log Z is
    ever computed; where the model is right it finds the same θ as the likelihood, with more noise.

    Besag (1975), Statistical analysis of non-lattice data.

    >>> from energax import Batch
    >>> from energax.energies import MarkovField
    >>> field = MarkovField({("a", "b"): jnp.ones((2, 2))})
    >>> batch = Batch({"a": jnp.array([0, 1]), "b": jnp.array([0, 1])}, jnp.ones(2))
    >>> PseudoLikelihood()(field, batch, None, jax.random.key(0))[0]              # 2 log 2
    Array(1.3862944, dtype=float32)
    """

    def check(self, energy, data):
        check_joint(self, energy)
        observed = [n for n in energy.spaces if n in data]
        check_variables(self, energy, data, *observed)
        endless = {n: energy.spaces[n] for n in observed if not energy.spaces[n].is_finite}
        if endless or not observed:
            raise Unsuitable(
                f"PseudoLikelihood needs finite observed variables, but found {endless or 'none'}. "
                "Use ScoreMatching, its like for real ones."
            )
        check_complete(self, energy, data, *observed, instead="EM or NegativeLogLikelihood")
        check_free_energy(self, energy, data)

    def __call__(self, energy, batch, carry, key):
        return batch.mean(batch.map(lambda **row: _surprise(energy, row))), carry


def _surprise(energy: Any, row: dict[str, Any]) -> Any:
    """−Σ_i log p(x_i | x_¬i) of one row."""
    at = free_energy(energy, row)
    total = jnp.zeros_like(at)
    for name, value in row.items():
        space = energy.spaces[name]
        choices = jnp.arange(space.values_per_coordinate).astype(value.dtype)
        flat = jnp.reshape(value, (-1,))

        def instead(i, choice, name=name, flat=flat, space=space):
            changed = flat.at[i].set(choice).reshape(space.shape)
            return free_energy(energy, {**row, name: changed})

        each = jax.vmap(jax.vmap(instead, (None, 0)), (0, None))(jnp.arange(space.size), choices)
        total = total + jnp.sum(at + jax.nn.logsumexp(-each, axis=1))
    return total
