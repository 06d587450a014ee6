"""Variable elimination: sums pushed into the product, in the order opt_einsum finds."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import opt_einsum

from ...errors import BadInput, Intractable
from ..junction.tree import APPROXIMATE, MAX_BYTES
from .checks import as_evidence, as_tables


def eliminate(
    cards: Sequence[int],
    scopes: Sequence[Sequence[int]],
    log_tables: Sequence[Any],
    log_evidence: Sequence[Any] | None = None,
    keep: Sequence[int] = (),
    *,
    max_bytes: int = MAX_BYTES,
) -> Any:
    """log Σ Π factors · evidence over all variables but `keep`: log Z, or an unnormalised log joint.

    Factors are multiplied in pairs along a path that opt_einsum searches, and a variable is summed out
    with the last factor that has it. Every sum is taken relative to its own largest term, so that any
    range of logarithms is safe, and the product of a pair is never stored. Cheaper than a junction
    tree for one question about few variables; for all marginals, or many rows, the tree is. Rows of
    evidence go by `jax.vmap`.

    >>> import jax.numpy as jnp
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> joint = eliminate((2, 2, 2), ((0, 1), (1, 2)), (agree, agree), keep=(2, 0))
    >>> [round(float(p), 4) for p in jnp.exp(joint).ravel()]
    [0.82, 0.18, 0.18, 0.82]

    References: Zhang and Poole, J. Artif. Intell. Res. 5, 1996; Dechter, Artif. Intell. 113, 1999;
    Smith and Gray, opt_einsum, J. Open Source Softw. 3, 2018.
    """
    cards = tuple(int(c) for c in cards)
    groups = tuple(tuple(int(v) for v in scope) for scope in scopes)
    asked = tuple(int(v) for v in keep)
    if len(set(asked)) != len(asked) or any(not 0 <= v < len(cards) for v in asked):
        raise BadInput("keep", f"{asked}", f"different variables from 0 to {len(cards) - 1}")
    tables = as_tables(cards, groups, log_tables)
    evidence, rows = as_evidence(cards, log_evidence, tables)
    if rows:
        raise BadInput("log_evidence", "rows", "one log-vector a variable", "Use jax.vmap for rows.")
    path, largest = elimination_path(cards, groups, asked)
    size = largest * tables[0].dtype.itemsize if tables else 0
    if size > max_bytes:
        text = f"a table of {largest:.3g} entries ({size / 2**30:.3g} GiB)"
        raise Intractable("variable elimination", text, f"{max_bytes / 2**30:.3g} GiB", APPROXIMATE)
    return _eliminated(cards, groups, asked, path, tables, evidence)


@functools.lru_cache(maxsize=64)
def elimination_path(
    cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], keep: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Which factors to multiply in turn, and the entries of the largest product that is stored."""
    symbol = [opt_einsum.get_symbol(v) for v in range(len(cards))]
    # The evidence of a variable is one more factor, after all others.
    terms = [*scopes, *((v,) for v in range(len(cards)))]
    spelled = ",".join("".join(symbol[v] for v in scope) for scope in terms)
    shapes = [tuple(cards[v] for v in scope) for scope in terms]
    spelled += "->" + "".join(symbol[v] for v in keep)
    path, told = opt_einsum.contract_path(spelled, *shapes, shapes=True, optimize="auto")
    return tuple(tuple(step) for step in path), int(told.largest_intermediate)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _eliminated(cards: Any, scopes: Any, keep: Any, path: Any, tables: Any, evidence: Any) -> Any:
    left = [*zip(scopes, tables, strict=True), *(((v,), e) for v, e in enumerate(evidence))]
    for step in path:
        taken = [left[i] for i in step]
        left = [factor for i, factor in enumerate(left) if i not in step]
        needed = set(keep).union(*(scope for scope, _ in left))
        left.append(_multiplied(cards, taken, needed))
    ((scope, table),) = left
    return jnp.transpose(table, [scope.index(v) for v in keep])


def _multiplied(
    cards: tuple[int, ...], taken: Sequence[tuple[tuple[int, ...], Any]], needed: set[int]
) -> tuple[tuple[int, ...], Any]:
    """The product of some factors, summed over what nothing else needs."""
    union = sorted(set().union(*(scope for scope, _ in taken)))
    # What is summed out goes last, and as one axis: the compiler then needs few nested loops.
    kept, gone = [v for v in union if v in needed], [v for v in union if v not in needed]
    order = [*kept, *gone]
    total: Any = 0.0
    for scope, table in taken:
        inside = [v for v in order if v in scope]
        shape = [cards[v] if v in scope else 1 for v in order]
        total = total + jnp.transpose(table, [scope.index(v) for v in inside]).reshape(shape)
    total = jnp.broadcast_to(total, [cards[v] for v in order])
    if gone:
        flat = total.reshape(*(cards[v] for v in kept), math.prod(cards[v] for v in gone))
        total = jax.nn.logsumexp(flat, axis=-1)
    return tuple(kept), total
