"""Mean-field equations of binary units: the rates of the best distribution of independent units."""

from __future__ import annotations

from typing import Any

import jax

#: Sweeps over all units; each one lowers the bound, and few are needed at the weights of learned machines.
SWEEPS = 25


def settle(coupling: Any, field: Any, sweeps: int = SWEEPS) -> Any:
    """Return the rates μ_i = σ(field_i + Σ_j J_ij μ_j), (n,), by updates of one unit after another.

    coupling: J, symmetric with a zero diagonal, (n, n). Every update minimises the free energy in its
    coordinate, so that the bound never rises.

    >>> import jax.numpy as jnp
    >>> settle(jnp.zeros((2, 2)), jnp.zeros(2))
    Array([0.5, 0.5], dtype=float32)
    """
    n = field.shape[0]

    def visit(t, rates):
        i = t % n
        return rates.at[i].set(jax.nn.sigmoid(field[i] + coupling[i] @ rates))

    return jax.lax.fori_loop(0, sweeps * n, visit, jax.nn.sigmoid(field))


def binary_entropy(rates: Any) -> Any:
    """Return the entropy of independent binary units with these rates, in nats.

    >>> import jax.numpy as jnp
    >>> binary_entropy(jnp.array([0.5, 1.0]))                            # log 2
    Array(0.693147..., dtype=float32)
    """
    return (-jax.scipy.special.xlogy(rates, rates) - jax.scipy.special.xlog1py(1 - rates, -rates)).sum()
