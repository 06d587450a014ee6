"""Variable elimination along the contraction path that opt_einsum finds."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import opt_einsum

from ...errors import BadInput, Intractable
from ...programs import jit
from ..junction.tree import APPROXIMATE, MAX_BYTES
from .checks import check_model


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
    range of logarithms is safe, and the product of a pair is never stored. This is cheaper than a
    junction tree for one query of few variables; for all marginals, or many rows, the tree is cheaper.
    Use `jax.vmap` for rows of evidence.

    >>> import jax.numpy as jnp
    >>> agree = jnp.log(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    >>> joint = eliminate((2, 2, 2), ((0, 1), (1, 2)), (agree, agree), keep=(2, 0))
    >>> [round(float(p), 4) for p in jnp.exp(joint).ravel()]
    [0.82, 0.18, 0.18, 0.82]

    References: Zhang and Poole, J. Artif. Intell. Res. 5, 1996; Dechter, Artif. Intell. 113, 1999;
    Smith and Gray, opt_einsum, J. Open Source Softw. 3, 2018.
    """
    cards = tuple(int(c) for c in cards)
    keep = tuple(int(v) for v in keep)
    if len(set(keep)) != len(keep) or any(not 0 <= v < len(cards) for v in keep):
        raise BadInput("keep", f"{keep}", f"different variables from 0 to {len(cards) - 1}")
    cards, scopes, tables, evidence = check_model(cards, scopes, log_tables, log_evidence)
    path, largest = elimination_path(cards, scopes, keep)
    size = largest * tables[0].dtype.itemsize if tables else 0
    if size > max_bytes:
        text = f"a table of {largest:.3g} entries ({size / 2**30:.3g} GiB)"
        raise Intractable("variable elimination", text, f"{max_bytes / 2**30:.3g} GiB", APPROXIMATE)
    return _contract(cards, scopes, keep, path, tables, evidence)


@functools.lru_cache(maxsize=64)
def elimination_path(
    cards: tuple[int, ...], scopes: tuple[tuple[int, ...], ...], keep: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], int]:
    """The factors to multiply in turn, and the entries of the largest product that is stored."""
    symbol = [opt_einsum.get_symbol(v) for v in range(len(cards))]
    # The evidence of a variable is one more factor, after all others.
    terms = [*scopes, *((v,) for v in range(len(cards)))]
    equation = ",".join("".join(symbol[v] for v in scope) for scope in terms)
    shapes = [tuple(cards[v] for v in scope) for scope in terms]
    equation += "->" + "".join(symbol[v] for v in keep)
    path, info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return tuple(tuple(step) for step in path), int(info.largest_intermediate)


@jit
def _contract(cards: Any, scopes: Any, keep: Any, path: Any, tables: Any, evidence: Any) -> Any:
    """Multiply the factors along the path; the log-table over `keep`."""
    left = [*zip(scopes, tables, strict=True), *(((v,), e) for v, e in enumerate(evidence))]
    for step in path:
        taken = [left[i] for i in step]
        left = [factor for i, factor in enumerate(left) if i not in step]
        needed = set(keep).union(*(scope for scope, _ in left))
        left.append(_multiply(cards, taken, needed))
    ((scope, table),) = left
    return jnp.transpose(table, [scope.index(v) for v in keep])


def _multiply(
    cards: tuple[int, ...], taken: Sequence[tuple[tuple[int, ...], Any]], needed: set[int]
) -> tuple[tuple[int, ...], Any]:
    """The product of some factors, summed over the variables that no other factor needs."""
    union = sorted(set().union(*(scope for scope, _ in taken)))
    # Variables that are summed out go last, and as one axis: the compiler then needs few nested loops.
    kept, summed = [v for v in union if v in needed], [v for v in union if v not in needed]
    order = [*kept, *summed]
    total: Any = 0.0
    for scope, table in taken:
        inside = [v for v in order if v in scope]
        shape = [cards[v] if v in scope else 1 for v in order]
        total = total + jnp.transpose(table, [scope.index(v) for v in inside]).reshape(shape)
    total = jnp.broadcast_to(total, [cards[v] for v in order])
    if summed:
        flat = total.reshape(*(cards[v] for v in kept), math.prod(cards[v] for v in summed))
        total = jax.nn.logsumexp(flat, axis=-1)
    return tuple(kept), total
