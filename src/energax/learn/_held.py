"""A module whose arrays receive no gradient."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax


def held(module: Any) -> Any:
    """The same module, its real arrays constant to differentiation; functions in it stay as they are."""
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)
