"""Which method answers: exact knowledge, else enumeration, else the standard approximation."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import finite
from .._util.keys import as_key
from ..catalog import Row, of_kind
from ..energy import Energy
from ..errors import BadInput, Intractable, Unsuitable
from ..estimate import Estimate
from ..parameters import cached_on, with_energy_precision
from ..samplers import Draws, Gibbs, Langevin, Sampler
from ._exact.closed_form import Exact
from ._exact.conditional import Conditional
from ._exact.enumeration import Enumeration
from ._exact.marginals import joint_values_needed, missing_value_hint
from ._method import TASKS, Method, Minimum, Plan
from ._monte_carlo.ancestral import Ancestral
from ._monte_carlo.annealed import AnnealedImportance
from ._monte_carlo.importance import Importance
from ._monte_carlo.mcmc import MCMC
from ._optimise.lbfgs import LBFGS
from ._posterior import Posterior
from ._query import Query, check_inputs

_STANDARD: dict[str, tuple[Method, ...]] = {
    "argmin": (Exact(), Enumeration(), LBFGS()),
    "posterior": (Exact(), Enumeration(), MCMC(Gibbs()), MCMC(Langevin())),
    "log_prob": (Exact(), Enumeration(), Importance()),
    "log_partition": (Exact(), Enumeration(), Importance()),
    "sample": (Ancestral(), Exact(), Enumeration(), MCMC(Gibbs()), MCMC(Langevin())),
}


def candidates(task: str, energy: Energy) -> tuple[Method, ...]:
    """The methods tried without a `method=`, best first; a family may add its own.

    An energy with `inference(task)` names its family's standard method there. One that is exact comes
    first, an approximation after enumeration.
    """
    standard = _STANDARD[task]
    family = cached_on(energy, f"inference of {task}", lambda e: _own_method(e, task))
    if family is None:
        return standard
    if family.knowledge:
        return (family, *standard)
    after_exact = 1 + max(i for i, m in enumerate(standard) if isinstance(m, Enumeration))
    return (*standard[:after_exact], family, *standard[after_exact:])


def _own_method(energy: Energy, task: str) -> Method | None:
    named = energy.inference(task) if hasattr(energy, "inference") else None
    method = None if named is None else _as_method(named)
    return method if method is None or task in method.tasks else None


def choose(task: str, query: Query, method: Any = None) -> Method:
    """The method asked for, if it makes sense; else the first standard one that does."""
    energy = query.energy
    check_inputs(task, query)
    if method is not None:
        method = _as_method(method)
        reason = _reason(method, task, query)
        if reason is None:
            return method
        raise Unsuitable(f"{task}: {_name(method)} {reason}. {_instead(task, query)}")
    refusals = []
    for candidate in candidates(task, query.energy):
        reason = candidate.unsupported_reason(task, query)
        if reason is None:
            return candidate
        refusals.append(f"{_name(candidate)} {reason}")
    raise Intractable(
        f"{task} of {type(energy).__name__}",
        joint_values_needed(task, query),
        f"{finite.ENUMERATION_LIMIT:,}",
        f"{'; '.join(refusals)}. {_hint(task, query)}",
    )


_HINTS = {
    "argmin": "Give the energy `argmin`",
    "posterior": "Give the energy `conditional`, or make what is hidden finite or real.",
    "log_prob": "For p(y | x) of a model of y alone, ask log_prob(energy, {'y': y}, given={'x': x}).",
    "log_partition": "Give the energy `log_partition`, or compare models by another score.",
    "sample": "Give the energy `draw` or `conditional`.",
}


def _hint(task: str, query: Query) -> str:
    """What to do where no method will: only what would work for this question."""
    if task == "argmin":
        drawn = next(
            (m for m in _STANDARD["posterior"][2:] if m.unsupported_reason("posterior", query) is None), None
        )
        if drawn is None:
            return f"{_HINTS[task]}."
        best = f"posterior(energy, given, {_name(drawn)}(), key=0).mode"
        return f"{_HINTS[task]}, or take the best draw: {best}."
    holes = missing_value_hint(query) if task == "log_prob" else ""
    if not holes and task.startswith("log_") and AnnealedImportance().unsupported_reason(task, query) is None:
        return "Estimate it by chains: method=AnnealedImportance(), key=0."
    return holes or _HINTS[task]


@functools.cache
def _methods_by_name() -> dict[str, Row]:
    """The inferences and samplers of the catalog by name in lower case; `MCMC` goes by its sampler's."""
    rows = (*of_kind("inference"), *of_kind("sampler"))
    return {row.name.lower(): row for row in rows if row.needs != "a sampler"}


def _as_method(method: Any) -> Method:
    """A method, a sampler, or the name of either with its defaults: `"gibbs"`."""
    if isinstance(method, str):
        rows = _methods_by_name()
        if method.lower() not in rows:
            raise BadInput("method", repr(method), f"one of {', '.join(rows)}, or a method or sampler")
        method = rows[method.lower()].load()()
    if isinstance(method, Sampler):
        return MCMC(method)
    if not isinstance(method, Method):
        raise BadInput(
            "method", f"{type(method).__name__}", "a method of energax.infer or a sampler of energax.samplers"
        )
    return method


def _name(method: Method) -> str:
    return type(method.sampler).__name__ if isinstance(method, MCMC) else type(method).__name__


def _reason(method: Method, task: str, query: Query) -> str | None:
    if task not in method.tasks:
        return f"does not do {task}; it does {', '.join(sorted(method.tasks))}"
    return method.unsupported_reason(task, query)


def _instead(task: str, query: Query) -> str:
    for candidate in candidates(task, query.energy):
        if candidate.unsupported_reason(task, query) is None:
            name = _name(candidate)
            return f"Use {name}(): {candidate.why(task, query)}."
    return _hint(task, query)


def _check_hidden(query: Query, task: str) -> None:
    if not query.targets:
        raise BadInput("given", f"values of all of {list(query.spaces)}", f"something left to find by {task}")


def draws_at_random(method: Method, task: str, query: Query) -> bool:
    """Whether the answer depends on a key."""
    return method.kind(task, query) != "exact" and not method.deterministic


def _key(key: Any, method: Method, task: str, query: Query) -> Any:
    """A key is asked for only where the answer depends on it."""
    if key is not None:
        return as_key(key)
    if not draws_at_random(method, task, query):
        return None
    raise BadInput("key", "none", "an int or a JAX key", f"{method.label} draws at random: try key=0.")


@with_energy_precision
def argmin(
    energy: Energy, given: Mapping[str, Any] | None = None, method: Any = None, *, key: Any = None
) -> Minimum:
    """The hidden variables, and the missing coordinates of given ones, at the lowest energy.

    Args:
        energy: the energy e(given, hidden).
        given: values by name; one example, or rows with one more leading axis.
        method: `Exact()`, `Enumeration()`, `LBFGS()`, …, or its name, "lbfgs"; None chooses.

    Returns:
        a dict by name, with `energy`, `method` and `converged` beside.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((2, 2)), jnp.array([1.0, -1.0]), jnp.array([-2.0, 3.0]))
    >>> argmin(rbm, {"x": [[0, 1], [1, 1]]})["z"]
    array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    query = Query(energy, given)
    _check_hidden(query, "argmin")
    chosen = choose("argmin", query, method)
    return chosen.argmin(query, None if key is None else as_key(key))


@with_energy_precision
def posterior(
    energy: Energy, given: Mapping[str, Any] | None = None, method: Any = None, *, key: Any = None
) -> Posterior:
    """p(hidden | given): marginals, mean, joint tables, draws, and log p(given).

    Missing coordinates (NaN, or `Masked`) of given variables are hidden too.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.array([jnp.log(3.0)]))
    >>> posterior(rbm, {"x": [0, 1]}).marginals["z"].round(3)
    array([[0.25, 0.75]], dtype=float32)
    """
    query = Query(energy, given)
    _check_hidden(query, "posterior")
    chosen = choose("posterior", query, method)
    return chosen.posterior(query, _key(key, chosen, "posterior", query))


@with_energy_precision
def log_prob(
    energy: Energy,
    data: Mapping[str, Any],
    method: Any = None,
    *,
    given: Mapping[str, Any] | None = None,
    key: Any = None,
) -> Estimate:
    """log p(data) = −F(data) − log Z, one number a row; with `given`, log p(data | given).

    Variables not in `data` are summed out, missing coordinates too. The kind says whether the
    numbers are exact, lower bounds or estimates.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> log_prob(coins, {"x": [[0, 1], [0, float("nan")]]}).value.round(3)     # log ¼, log ½
    array([-1.386, -0.693], dtype=float32)
    """
    query = Query(energy, data, "data")
    if not query.given:
        raise BadInput("data", "no variables", f"values of some of {list(query.spaces)}")
    data, given = _without_inputs(energy, data, given)
    if given is not None:
        asked = Conditional(energy, data, given, None if method is None else _as_method(method))
        return _scalar(asked.whole, asked.log_prob())
    chosen = choose("log_prob", query, method)
    return _scalar(query, chosen.log_prob(query, _key(key, chosen, "log_prob", query)))


def _without_inputs(energy: Energy, data, given):
    """What an energy says nothing of, such as a classifier of x, is given and not data."""
    if given is None and energy.inputs & set(data):
        given = {k: v for k, v in data.items() if k in energy.inputs}
        data = {k: v for k, v in data.items() if k not in energy.inputs}
    return data, given


@with_energy_precision
def log_partition(energy: Energy, method: Any = None, *, key: Any = None) -> Estimate:
    """log Z = log Σ exp(−e) over all variables.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> log_partition(RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1)))        # 3 log 2
    2.079 (exact)
    """
    query = Query(energy, {})
    chosen = choose("log_partition", query, method)
    return chosen.log_partition(query, _key(key, chosen, "log_partition", query))


@with_energy_precision
def sample(
    energy: Energy,
    n: int,
    given: Mapping[str, Any] | None = None,
    method: Any = None,
    *,
    key: Any,
    n_chains: int | None = None,
    warmup: int | None = None,
    thin: int | None = None,
) -> Draws:
    """`n` draws of what is hidden given the rest; of every row, if rows are given.

    `n_chains`, `warmup` and `thin` set the chains of a sampler; exact draws need none.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> draws = sample(coins, 100, key=0)
    >>> draws["x"].shape, draws.verdict
    ((100, 2), '100 exact, independent draws (enumeration)')
    """
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise BadInput("n", repr(n), "a number of draws >= 1")
    query = Query(energy, given)
    _check_hidden(query, "sample")
    chosen = choose("sample", query, method)
    settings = {"n_chains": n_chains, "warmup": warmup, "thin": thin}
    settings = {k: v for k, v in settings.items() if v is not None}
    if settings and not isinstance(chosen, MCMC):
        if method is not None:
            found = f"settings of chains with {chosen.label}"
            raise BadInput(", ".join(settings), found, "a sampler as method")
        settings = {}
    if settings:
        chosen = dataclasses.replace(chosen, **settings)
    return chosen.sample(query, int(n), as_key(key))


@with_energy_precision
def plan(
    task: str | Callable[..., Any],
    energy: Energy,
    given: Mapping[str, Any] | None = None,
    method: Any = None,
    *,
    data: Mapping[str, Any] | None = None,
) -> Plan:
    """What a task would do, why, and what it would cost, without doing it.

    The task is one of these functions or its name, and the arguments are those of the task:
    `plan(log_prob, energy, data)` or `plan("log_prob", energy, data)`, and for a conditional one
    `plan(log_prob, energy, data={"y": y}, given={"x": x})`.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> print(plan(log_partition, RBM(jnp.zeros((9, 4)), jnp.zeros(9), jnp.zeros(4))))
    log_partition by enumeration (exact), because all 16 joint values can be summed. Cost: 16 joint
    values a row, about 16 evaluations of the energy, about 64 B of memory.
    """
    if task in (argmin, posterior, log_prob, log_partition, sample):
        task = task.__name__  # type: ignore[union-attr]
    if not isinstance(task, str) or task not in TASKS:
        raise BadInput("task", repr(task), f"one of {', '.join(TASKS)}")
    if data is not None and task != "log_prob":
        raise BadInput("data", f"data for {task}", "none: only log_prob takes data", "Pass it as given.")
    if task == "log_prob":
        # Without `data` the values in their place are the data, as in log_prob itself.
        data, given = (data, given) if data is not None else (given or {}, None)
        if not isinstance(data, Mapping):
            raise BadInput("data", type(data).__name__, "a dict from variable names to values")
        data, given = _without_inputs(energy, data, given)
        if given is not None:
            return Conditional(energy, data, given, None if method is None else _as_method(method)).plan()
        given = data
    query = Query(energy, given)
    chosen = choose(task, query, method)
    return Plan(task, chosen, chosen.why(task, query), chosen.kind(task, query), chosen.cost(task, query))


def _scalar(query: Query, estimate: Estimate) -> Estimate:
    return estimate if query.many else estimate[0]
