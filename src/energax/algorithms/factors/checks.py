"""Factor tables at the door of inference: shapes and precision checked, evidence made, states fixed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
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
    """One log-vector a variable, (card,) or for all variables (rows, card), and whether there are rows."""
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
        raise BadInput("log_evidence", f"{sorted(n_rows)} rows", "as many for every variable")
    for v, (vector, card) in enumerate(zip(found, cards, strict=True)):
        if vector.ndim not in (1, 2) or vector.shape[-1] != card:
            shape = f"({card},) or (rows, {card})"
            raise BadInput("log_evidence", f"shape {vector.shape} for variable {v}", shape)
    if not n_rows:
        return found, False
    (n,) = n_rows
    wide = lambda e: (np if isinstance(e, np.ndarray) else jnp).broadcast_to(e, (n, e.shape[-1]))
    return tuple(e if e.ndim == 2 else wide(e) for e in found), True


def checked(
    cards: Sequence[int], scopes: Sequence[Sequence[int]], log_tables: Sequence[Any], log_evidence: Any
) -> tuple[Any, Any, Any, Any]:
    """(cards, scopes, tables, evidence) of a model with one row of evidence; several are refused."""
    scopes = tuple(tuple(int(v) for v in scope) for scope in scopes)
    tables = as_tables(cards, scopes, log_tables)
    evidence, rows = as_evidence(cards, log_evidence, tables)
    if rows:
        raise BadInput("log_evidence", "rows", "one log-vector a variable", "Use jax.vmap for rows.")
    return tuple(map(int, cards)), scopes, tables, evidence


def _precision(arrays: Sequence[Any]) -> Any:
    """That of the JAX arrays among them, or else the default one."""
    found = {a.dtype for a in arrays if isinstance(a, jax.Array)}
    if len(found) == 1 and jnp.issubdtype(next(iter(found)), jnp.floating):
        return next(iter(found))
    return jnp.result_type(float, *found)


def _array(value: Any, dtype: Any) -> Any:
    """NumPy's stay NumPy's: hundreds of small transfers would take longer than the inference."""
    if isinstance(value, jax.Array):
        return value if value.dtype == dtype else value.astype(dtype)
    return np.asarray(value, dtype)


def joined(evidence: tuple[Any, ...]) -> tuple[Any, ...]:
    """NumPy vectors of all variables end to end: one array to hand over instead of hundreds."""
    if all(isinstance(vector, np.ndarray) for vector in evidence):
        return (np.concatenate(evidence, axis=-1),)
    return evidence


def split(flat: Any, cards: Sequence[int]) -> tuple[Any, ...]:
    """(…, all states) as one array a variable."""
    ends = list(itertools.accumulate(cards))
    return tuple(flat[..., end - card : end] for end, card in zip(ends, cards, strict=True))


def to_numpy_unless_traced(answer: Any) -> Any:
    """NumPy's, unless it is being traced: views cost nothing there, and hundreds of slices would be slow."""
    return answer if isinstance(answer, jax.core.Tracer) else np.asarray(answer)


def hard_evidence(cards: Sequence[int], observed: Mapping[int, Any]) -> tuple[np.ndarray, ...]:
    """Log-vectors of observations {variable: state}: 0 at the state, −inf elsewhere, zeros if unseen.

    A state may be an array of n states, one for each row; −1 is a row in which it was not seen.

    >>> hard_evidence((2, 3), {1: 2})
    (array([0., 0.]), array([-inf, -inf,   0.]))
    """
    found = []
    for v, card in enumerate(cards):
        state = np.asarray(observed.get(v, -1))
        if state.size and (state.max() >= card or state.min() < -1):
            raise BadInput("observed", f"state {state.max()} of variable {v}", f"states from 0 to {card - 1}")
        match = state[..., None] == np.arange(card)
        found.append(np.where(match | (state[..., None] < 0), 0.0, -np.inf))
    return tuple(found)


def observe(
    scopes: Sequence[tuple[int, ...]], log_tables: Sequence[Any], observed: Mapping[int, Any]
) -> tuple[tuple[tuple[int, ...], ...], tuple[Any, ...]]:
    """The model of the other variables: observed ones are taken out of every scope and table.

    What `hard_evidence` does to the numbers this does to the structure: the graph falls apart where it
    is observed, and a tree of the rest may fit where the whole does not. Observed variables remain
    variables, without factors. A state may be a traced whole number.

    >>> scopes, tables = observe([(0, 1)], [jnp.array([[1.0, 2.0], [3.0, 4.0]])], {0: 1})
    >>> scopes, tables[0].tolist()
    (((1,),), [3.0, 4.0])
    """
    left = tuple(tuple(v for v in scope if v not in observed) for scope in scopes)
    tables = tuple(
        jnp.asarray(table)[tuple(observed.get(v, slice(None)) for v in scope)]
        for scope, table in zip(scopes, log_tables, strict=True)
    )
    return left, tables
