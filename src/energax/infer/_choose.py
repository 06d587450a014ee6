"""The choice of a method for a query: the one named by the caller, else the first that supports it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._util.keys import as_key
from ..catalog import Row, of_kind
from ..energy import Energy
from ..errors import BadInput, Intractable, Unsuitable
from ..finite import ENUMERATION_LIMIT
from ..parameters import cache_on
from ..samplers import Sampler, automatic_samplers
from ..spaces import Sequence
from ._exact.free_energy import describe_size, missing_value_hint
from ._method import Method
from ._monte_carlo.mcmc import MCMC

if TYPE_CHECKING:
    from ._query import Query


def choose(task: str, query: Query, method: Any = None) -> Method:
    """Return the method for a task: `method` if given, else the first candidate that supports the query.

    Raises:
        Unsuitable: `method` does not support the query; the message suggests one that does.
        Intractable: no candidate supports it; the message has the reason of each.
    """
    if method is not None:
        method = as_method(method)
        reason = _unsupported_reason(method, task, query)
        if reason is None:
            return method
        raise Unsuitable(f"{task}: {_name(method)} {reason}. {_suggestion(task, query)}")
    reasons = []
    for candidate in candidates(task, query.energy):
        reason = candidate.unsupported_reason(task, query)
        if reason is None:
            return candidate
        reasons.append(f"{_name(candidate)} {reason}")
    raise Intractable(
        f"{task} of {type(query.energy).__name__}",
        describe_size(task, query),
        f"{ENUMERATION_LIMIT:,}",
        f"{'; '.join(reasons)}. {_hint(task, query)}",
    )


def choose_approximation(task: str, query: Query) -> Method | None:
    """Return the first method that supports the query, automatic or not; None if there is none."""
    return next((as_method(name) for name in _supported_names(task, query)), None)


def candidates(task: str, energy: Energy) -> tuple[Method, ...]:
    """Return the methods that are tried where none is named, by priority.

    These are the automatic methods of the catalog and the method that the energy names for its own family
    in `inference(task)`, if it has one.
    """
    # Uncached, a query of a network of 5 nodes takes 1.6 times as long.
    return cache_on(energy, f"candidates for {task}", lambda e: _find_candidates(task, e))


def _find_candidates(task: str, energy: Any) -> tuple[Method, ...]:
    name = energy.inference(task) if energy.knows("inference") else None
    own = [] if name is None else [as_method(name)]
    methods = [m for m in (*own, *_automatic_methods(task)) if task in m.tasks]
    return tuple(sorted(methods, key=lambda m: m.priority))


@functools.cache
def _automatic_methods(task: str) -> tuple[Method, ...]:
    """Return the methods of the catalog that are automatic for a task, and MCMC with automatic samplers."""
    classes = [row.load() for row in of_kind("inference")]
    return (*[c() for c in classes if c.is_automatic(task)], *[MCMC(s) for s in automatic_samplers()])


# -- methods by name -----------------------------------------------------------------------------


def _rows_by_name() -> dict[str, Row]:
    """Return the inferences and samplers of the catalog by lower-case name.

    Parts that need arguments have no name here; MCMC is named by its sampler.
    """
    rows = (*of_kind("inference"), *of_kind("sampler"))
    return {row.name.lower(): row for row in rows if _has_defaults(row.load())}


@functools.cache
def _has_defaults(part: type) -> bool:
    """Return whether a part can be made without arguments."""
    parameters = inspect.signature(part).parameters.values()
    return all(p.default is not p.empty for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)


def as_method(method: Any) -> Method:
    """Return a method as it is, a sampler as MCMC, and either by its name in the catalog, such as "gibbs"."""
    if isinstance(method, str):
        rows = _rows_by_name()
        if method.lower() not in rows:
            raise BadInput("method", repr(method), f"one of {', '.join(rows)}, or a method or sampler")
        method = rows[method.lower()].load()()
    if isinstance(method, Sampler):
        return MCMC(method)
    if not isinstance(method, Method):
        expected = "a method of energax.infer or a sampler of energax.samplers"
        raise BadInput("method", type(method).__name__, expected)
    return method


def _name(method: Method) -> str:
    return type(method.sampler).__name__ if isinstance(method, MCMC) else type(method).__name__


# -- error messages ------------------------------------------------------------------------------

_HINTS = {
    "argmin": "Give the energy `argmin`",
    "posterior": "Give the energy `conditional`, or make the hidden variables finite or real.",
    "log_prob": "For p(y | x) of a model of y alone, use log_prob(energy, {'y': y}, given={'x': x}).",
    "log_partition": "Give the energy `log_partition`, or compare models by another score.",
    "sample": "Give the energy `draw` or `conditional`.",
}


def _unsupported_reason(method: Method, task: str, query: Query) -> str | None:
    if task not in method.tasks:
        return f"does not implement {task}, only {', '.join(sorted(method.tasks))}"
    return method.unsupported_reason(task, query)


def _suggestion(task: str, query: Query) -> str:
    """Return the advice to use the first candidate that supports the query, else a hint."""
    for candidate in candidates(task, query.energy):
        if candidate.unsupported_reason(task, query) is None:
            return f"Use {_name(candidate)}(): {candidate.why(task, query)}."
    return _hint(task, query)


def _hint(task: str, query: Query) -> str:
    """Return advice for a query that no candidate supports."""
    if task == "argmin":
        chains = (m for m in candidates("posterior", query.energy) if isinstance(m, MCMC))
        for method in chains:
            if method.unsupported_reason("posterior", query) is None:
                best = f"posterior(energy, given, {_name(method)}(), key=0).mode"
                return f"{_HINTS[task]}, or take the best draw: {best}."
        return f"{_HINTS[task]}."
    if task == "log_prob" and (hint := missing_value_hint(query)):
        return hint
    endless = [k for k, v in query.hidden.items() if isinstance(v, Sequence) and v.length is None]
    if endless:
        return f"Sequences of {', '.join(endless)} have no length: make the chain with length=, or give one."
    for name in _supported_names(task, query):
        return f"Use an approximation: method={name}(), key=0."
    return _HINTS[task]


def _supported_names(task: str, query: Query) -> Iterator[str]:
    """Generate the names of the methods in the catalog that support the query, automatic or not."""
    for row in _rows_by_name().values():
        if _unsupported_reason(as_method(row.name), task, query) is None:
            yield row.name


# -- keys ----------------------------------------------------------------------------------------


def check_key(key: Any, method: Method, task: str, query: Query) -> Any:
    """Return the key as a JAX key; None stays None if the result does not depend on it, else it raises."""
    if key is not None:
        return as_key(key)
    if method.kind(task, query) == "exact" or method.deterministic:
        return None
    remedy = f"Results by {method.label} are random; pass key=0."
    raise BadInput("key", "none", "an int or a JAX key", remedy)
