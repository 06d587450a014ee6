"""Penalties on weights: arrays of two axes or more, but not biases."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import Energy


def squared_weights(energy: Energy) -> Any:
    """Σ w² over the arrays of two axes or more: weights, but not biases."""
    arrays = jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array))
    return sum(jnp.sum(a**2) for a in arrays if a.ndim >= 2)
