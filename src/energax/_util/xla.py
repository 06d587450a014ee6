"""Workarounds for XLA: prevent fusion, and a faster softplus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..programs import interpreted


def prevent_fusion(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """function(first, *others), computed once; NaN if the first entry of `first` is NaN.

    XLA fuses cheap arithmetic into every operation that reads its result, and so repeats it, which is slow
    for a hundred thousand look-ups. It does not fuse across a branch, so the function is put into one.

    >>> prevent_fusion(jnp.log, jnp.array([1.0, jnp.e]))
    Array([0., 1.], dtype=float32)
    """
    if interpreted():
        return function(first, *others)
    like = jax.eval_shape(function, first, *others)
    all_nan = lambda *_: jnp.full(like.shape, jnp.nan, like.dtype)
    return jax.lax.cond(jnp.isnan(jnp.ravel(first)[:1]).any(), all_nan, function, first, *others)


@jax.custom_jvp
def softplus(x: Any) -> Any:
    """log(1 + eˣ) = max(x, 0) + log1p(e^−|x|); its derivative is the logistic function.

    `jax.nn.softplus` is `logaddexp`, which also tests every number for NaN: three times as slow on a CPU.

    >>> softplus(jnp.array([-jnp.inf, 0.0, 100.0]))
    Array([  0.       ,   0.6931472, 100.       ], dtype=float32)
    """
    return jnp.maximum(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def _softplus_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (tangent,) = primals, tangents
    return softplus(x), jax.nn.sigmoid(x) * tangent
