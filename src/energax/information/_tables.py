"""Tables of probabilities: exact sums, in NumPy or, for arrays of JAX, in JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..errors import BadInput, describe


def as_table(p: Any, argument: str, axis: Any = None) -> Any:
    """The table as an array; raises unless it holds probabilities. Values under `jit` cannot be checked."""
    if isinstance(p, jax.core.Tracer):
        return p
    try:
        table = np.asarray(p)
        table = table if table.dtype.kind == "f" else table.astype(float)
    except (TypeError, ValueError):
        raise BadInput(argument, describe(p), _EXPECTED) from None
    if not table.ndim or not table.size:
        raise BadInput(argument, f"shape {table.shape}", _EXPECTED)
    if not (table >= 0).all():  # NaN is not either
        found = "NaN" if np.isnan(table).any() else f"the number {table.min():g}"
        raise BadInput(argument, found, _EXPECTED, _REMEDY)
    totals = table.sum(_as_axis(axis, table.ndim))
    off = float(np.abs(totals - 1).max())
    if not off <= (1e-6 if table.dtype.itemsize >= 8 else 1e-3):
        worst = float(np.ravel(totals)[np.abs(np.ravel(totals) - 1).argmax()])
        raise BadInput(argument, f"numbers whose sum is {worst:g}", "probabilities with sum 1", _REMEDY)
    return p if isinstance(p, jax.Array) else table


_EXPECTED = "a table of probabilities, a NumPyro distribution or Samples"
_REMEDY = "Divide a table of counts by its sum; for rows of data use information.Samples."


def _as_axis(axis: Any, ndim: int) -> Any:
    if axis is None:
        return None
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool) or not -ndim <= axis < ndim:
        raise BadInput("axis", describe(axis), f"None or a number from {-ndim} to {ndim - 1}")
    return int(axis)


def _special(*tables: Any) -> Any:
    """`scipy.special`, of JAX if a table is one of its arrays."""
    if any(isinstance(t, jax.Array) for t in tables):
        return jax.scipy.special
    import scipy.special

    return scipy.special


def _check_shapes(p: Any, q: Any, axis: Any) -> None:
    if p.shape == q.shape:
        return
    try:
        fits = axis is not None and np.broadcast_shapes(p.shape, q.shape)
    except ValueError:
        fits = False
    if not fits:
        raise BadInput("q", f"shape {q.shape}", f"a table like p, of shape {p.shape}")


def entropy(p: Any, axis: Any) -> Any:
    return _special(p).entr(p).sum(axis)


def cross_entropy(p: Any, q: Any, axis: Any) -> Any:
    _check_shapes(p, q, axis)
    with np.errstate(divide="ignore"):
        return -_special(p, q).xlogy(p, q).sum(axis)


def kl(p: Any, q: Any, axis: Any) -> Any:
    _check_shapes(p, q, axis)
    return _special(p, q).rel_entr(p, q).sum(axis)


def jensen_shannon(p: Any, q: Any, axis: Any) -> Any:
    _check_shapes(p, q, axis)
    middle = (p + q) / 2
    return (kl(p + 0 * q, middle, axis) + kl(q + 0 * p, middle, axis)) / 2


def split_marginals(joint: Any, split: Any) -> tuple[Any, Any]:
    """(p(x), p(y)) of a joint table whose first `split` axes are x."""
    if joint.ndim < 2:
        raise BadInput("p", f"a table of shape {joint.shape}", "a joint table, with one axis per variable")
    check_split(split, joint.ndim, "axes of the table")
    axes = tuple(range(joint.ndim))
    return joint.sum(axes[split:]), joint.sum(axes[:split])


def check_split(split: Any, n: int, what: str) -> None:
    """Raise unless 0 < split < n."""
    if not isinstance(split, int | np.integer) or isinstance(split, bool) or not 0 < split < n:
        raise BadInput("split", describe(split), f"how many of the {n} {what} are x, from 1 to {n - 1}")
