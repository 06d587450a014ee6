"""Input validation of factor tables and evidence: shapes and precision."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...errors import BadInput


def as_tables(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], log_tables: Sequence[Any]
) -> tuple[Any, ...]:
    """The tables as arrays of one floating precision, each with the shape of its scope."""
    if len(log_tables) != len(scopes):
        raise BadInput("log_tables", f"{len(log_tables)} tables", f"one for each of {len(scopes)} scopes")
    dtype = _precision(log_tables)
    tables = tuple(_array(table, dtype) for table in log_tables)
    for scope, table in zip(scopes, tables, strict=True):
        shape = tuple(cards[v] for v in scope)
        if table.shape != shape:
            raise BadInput("log_tables", f"shape {table.shape} over the variables {scope}", f"shape {shape}")
    return tables


def as_evidence(
    cards: Sequence[int], log_evidence: Sequence[Any] | None, tables: Sequence[Any]
) -> tuple[tuple[Any, ...], bool]:
    """One log-vector per variable, (card,) or for all variables (rows, card), and whether there are rows."""
    dtype = tables[0].dtype if tables else _precision(())
    if log_evidence is None:
        return tuple(np.zeros(card, dtype) for card in cards), False
    if len(log_evidence) != len(cards):
        raise BadInput(
            "log_evidence", f"{len(log_evidence)} vectors", f"one for each of {len(cards)} variables"
        )
    found = tuple(_array(vector, dtype) for vector in log_evidence)
    n_rows = {vector.shape[0] for vector in found if vector.ndim == 2}
    if len(n_rows) > 1:
        raise BadInput("log_evidence", f"{sorted(n_rows)} rows", "the same number for every variable")
    for v, (vector, card) in enumerate(zip(found, cards, strict=True)):
        if vector.ndim not in (1, 2) or vector.shape[-1] != card:
            shape = f"({card},) or (rows, {card})"
            raise BadInput("log_evidence", f"shape {vector.shape} for variable {v}", shape)
    if not n_rows:
        return found, False
    (n,) = n_rows
    wide = lambda e: (np if isinstance(e, np.ndarray) else jnp).broadcast_to(e, (n, e.shape[-1]))
    return tuple(e if e.ndim == 2 else wide(e) for e in found), True


def check_model(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], log_tables: Sequence[Any], log_evidence: Any
) -> tuple[Any, Any, Any, Any]:
    """(cards, scopes, tables, evidence) of a model with one row of evidence; raises if there are several."""
    scopes = tuple(tuple(int(v) for v in scope) for scope in scopes)
    tables = as_tables(cards, scopes, log_tables)
    evidence, rows = as_evidence(cards, log_evidence, tables)
    if rows:
        raise BadInput("log_evidence", "rows", "one log-vector per variable", "Use jax.vmap for rows.")
    return tuple(map(int, cards)), scopes, tables, evidence


def _precision(arrays: Sequence[Any]) -> Any:
    """The precision of the JAX arrays among them, or else the default one."""
    found = {a.dtype for a in arrays if isinstance(a, jax.Array)}
    if len(found) == 1 and jnp.issubdtype(next(iter(found)), jnp.floating):
        return next(iter(found))
    return jnp.result_type(float, *found)


def _array(value: Any, dtype: Any) -> Any:
    """An array of a precision; NumPy stays NumPy, since hundreds of small transfers take long."""
    if isinstance(value, jax.Array):
        return value if value.dtype == dtype else value.astype(dtype)
    return np.asarray(value, dtype)


def concatenate_evidence(evidence: tuple[Any, ...]) -> tuple[Any, ...]:
    """NumPy vectors of all variables end to end, to transfer one array instead of hundreds."""
    if all(isinstance(vector, np.ndarray) for vector in evidence):
        return (np.concatenate(evidence, axis=-1),)
    return evidence


def split_by_variable(flat: Any, cards: Sequence[int]) -> tuple[Any, ...]:
    """(…, all states) as one array per variable."""
    ends = list(itertools.accumulate(cards))
    return tuple(flat[..., end - card : end] for end, card in zip(ends, cards, strict=True))


def to_numpy_unless_traced(array: Any) -> Any:
    """A NumPy array unless it is traced: hundreds of slices are cheap views in NumPy and slow in JAX."""
    return array if isinstance(array, jax.core.Tracer) else np.asarray(array)
