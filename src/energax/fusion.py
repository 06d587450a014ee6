"""What the compiler is to compute once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def apart(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """function(first, *others), computed once and for all that read it; NaN if `first` begins with one.

    XLA repeats cheap arithmetic in whatever reads its result, and what is cheap for one reader is not
    for a hundred thousand look-ups. Nothing is fused across a branch.

    >>> apart(jnp.log, jnp.array([1.0, jnp.e]))
    Array([0., 1.], dtype=float32)
    """
    like = jax.eval_shape(function, first, *others)
    nothing = lambda *_: jnp.full(like.shape, jnp.nan, like.dtype)
    return jax.lax.cond(jnp.isnan(jnp.ravel(first)[:1]).any(), nothing, function, first, *others)
