"""The public functions: `argmin`, `posterior`, `log_prob`, `log_partition`, `sample` and `plan`."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from .._util.keys import as_key
from ..energy import Energy
from ..errors import (
    BadInput,
    ConvergenceWarning,
    Intractable,
    check_instance,
    check_memory,
    check_whole_number,
    describe,
)
from ..estimate import Estimate
from ..parameters import with_energy_precision
from ..samplers import Draws
from ..spaces import as_columns
from ._choose import as_method, check_key, choose, choose_approximation
from ._exact.conditional import ConditionalQuery
from ._expectation import argument_names
from ._method import TASKS, Minimum, Plan
from ._monte_carlo.mcmc import MCMC
from ._posterior import Posterior
from ._query import Query


@with_energy_precision
def argmin(
    energy: Energy, given: Mapping[str, Any] | None = None, method: Any = None, *, key: Any = None
) -> Minimum:
    """Return the values of lowest energy of hidden variables and missing coordinates.

    argmin_hidden e(given, hidden).

    Args:
        energy: the energy.
        given: values by name; one example, or rows with one more leading axis. NaN and `Masked` values
            are missing.
        method: a method such as `Enumeration()`, or its name, "enumeration"; None chooses one.
        key: an int or a JAX key, for the starts of `LBFGS`; None is a constant.

    Returns:
        arrays by name, with `energy`, `method` and `converged` as attributes. A method that is not exact
        finds a local minimum.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((2, 2)), jnp.array([1.0, -1.0]), jnp.array([-2.0, 3.0]))
    >>> argmin(rbm, {"x": [[0, 1], [1, 1]]})["z"]
    array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    query = Query(energy, given)
    query.check_targets("argmin")
    query.check_inputs("argmin")
    chosen = choose("argmin", query, method)
    found = chosen.argmin(query, None if key is None else as_key(key))
    found.update(query.name_states(found))
    return found


@with_energy_precision
def posterior(
    energy: Energy, given: Mapping[str, Any] | None = None, method: Any = None, *, key: Any = None
) -> Posterior:
    """Return the distribution of hidden variables and missing coordinates given the observed ones.

    p(hidden | given) = exp(−e(given, hidden)) / Σ_hidden' exp(−e(given, hidden')).

    Args:
        energy: the energy.
        given: values by name; one example, or rows with one more leading axis. NaN and `Masked` values
            are missing.
        method: a method such as `Enumeration()`, a sampler such as `Gibbs()`, or its name, "gibbs"; None
            chooses one.
        key: an int or a JAX key, needed if the method is random.

    Returns:
        a `Posterior` with `marginals`, `mean`, `mode`, `joint`, `sample` and `log_evidence`.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.array([jnp.log(3.0)]))
    >>> posterior(rbm, {"x": [0, 1]}).marginals["z"].round(3)
    array([[0.25, 0.75]], dtype=float32)
    """
    query = Query(energy, given)
    query.check_targets("posterior")
    query.check_inputs("posterior")
    chosen = choose("posterior", query, method)
    found = chosen.posterior(query, check_key(key, chosen, "posterior", query))
    _warn_of_problem(found)
    return found


@with_energy_precision
def expectation(
    energy: Energy,
    function: Callable[..., Any],
    given: Mapping[str, Any] | None = None,
    method: Any = None,
    *,
    key: Any = None,
) -> Estimate:
    """Return E[f(variables) | given] with its Monte Carlo standard error.

    By the `expectation` of the posterior, for every method of `posterior`. `Importance` draws where |f| p is
    large if its proposal is an `AdaptiveMixture`, or is chosen so; this finds probabilities of rare events.

    Args:
        energy: the energy.
        function: f of one example. Its arguments are names of variables; it returns a number, a bool or an
            array. For an event f(x) ≥ t that is rare, `Exceeds(f, t)`.
        given: values by name; one example, or rows with one more leading axis.
        method: a method of `posterior`, or its name; None chooses one.
        key: an int or a JAX key; needed also if the posterior is exact, since E[f] is a mean over its draws.

    Returns:
        an `Estimate` of the shape of f, with one more leading axis for rows.

    >>> from energax.energies import NeuralEnergy
    >>> bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)              # N(0, 1)
    >>> expectation(bowl, lambda x: x[0] ** 2, method="importance", key=0)
    1.0... ± 0.00... (estimate)
    """
    query = Query(energy, given)
    query.check_targets("expectation")
    query.check_inputs("expectation")
    argument_names(function, query.spaces)
    chosen = choose("posterior", query, method)
    return chosen.expectation(query, function, check_key(key, chosen, "posterior", query))


@with_energy_precision
def log_prob(
    energy: Energy,
    data: Mapping[str, Any],
    method: Any = None,
    *,
    given: Mapping[str, Any] | None = None,
    key: Any = None,
) -> Estimate:
    """Return log p(data), one number per row; with `given`, log p(data | given).

    log p(data) = −F(data) − log Z, where F(data) = −log Σ_hidden exp(−e(data, hidden)). Variables that are
    not in `data` and missing coordinates are summed out.

    Args:
        energy: the energy.
        data: values by name; one example, or rows with one more leading axis. NaN and `Masked` values
            are missing.
        method: a method such as `Importance()`, or its name, "importance"; None chooses one.
        given: values of other variables, to condition on.
        key: an int or a JAX key, needed if the method is random.

    Returns:
        an `Estimate` of shape (), or (n,) for rows; its `kind` is "exact", "lower bound" or "estimate".

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> log_prob(coins, {"x": [[0, 1], [0, float("nan")]]}).value.round(3)     # log ¼, log ½
    array([-1.386, -0.693], dtype=float32)
    """
    query = Query(energy, data, "data")
    if not query.given:
        raise BadInput("data", "no variables", f"values of some of {list(query.spaces)}")
    data, given = (as_columns(query.spaces, values) for values in (data, given))
    data, given = _separate_inputs(energy, data, given)
    if given is not None:
        conditional = ConditionalQuery(energy, data, given, None if method is None else as_method(method))
        query = conditional.joint
        estimate = conditional.log_prob(check_key(key, conditional.method, "log_prob", query))
    else:
        query.check_inputs("log_prob")
        chosen = choose("log_prob", query, method)
        estimate = chosen.log_prob(query, check_key(key, chosen, "log_prob", query))
    return estimate if query.batched else estimate[0]


@with_energy_precision
def log_partition(energy: Energy, method: Any = None, *, key: Any = None) -> Estimate:
    """Return log Z = log Σ exp(−e), summed or integrated over all variables.

    Args:
        energy: the energy.
        method: a method such as `AnnealedImportance()`, or its name, "annealedimportance"; None chooses one.
        key: an int or a JAX key, needed if the method is random.

    Returns:
        an `Estimate` of shape (); its `kind` is "exact", "lower bound" or "estimate".

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> log_partition(RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1)))        # 3 log 2
    2.079 (exact)
    """
    query = Query(energy, {})
    query.check_inputs("log_partition")
    chosen = choose("log_partition", query, method)
    return chosen.log_partition(query, check_key(key, chosen, "log_partition", query))


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
    progress: bool | None = None,
    path: Any = None,
) -> Draws:
    """Return `n` draws from p(hidden | given), for every row if rows are given.

    Args:
        energy: the energy.
        n: the number of draws.
        given: values by name; one example, or rows with one more leading axis. NaN and `Masked` values
            are missing, and drawn too.
        method: a sampler such as `Gibbs()`, a method such as `Ancestral()`, or its name; None chooses one.
        key: an int or a JAX key.
        n_chains: Markov chains that run in parallel; None is the default of `MCMC`, as for the next four.
        warmup: moves of each chain that are discarded.
        thin: moves for every draw that is kept.
        progress: whether a bar shows how far the chains are.
        path: a new folder to write the draws to; `samplers.read_draws` reads them again.

    Returns:
        `Draws`: arrays (n, …) by name, (n, rows, …) for rows, and a `verdict` on their convergence.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> draws = sample(coins, 100, key=0)
    >>> draws["x"].shape, draws.verdict
    ((100, 2), '100 exact, independent draws (enumeration)')
    """
    check_whole_number("n", n)
    query = Query(energy, given)
    query.check_targets("sample")
    query.check_inputs("sample")
    if path is None:
        check_memory("n", n, n * query.n * query.width, "the draws", 4)
    chosen = choose("sample", query, method)
    chain_settings = {
        "n_chains": n_chains,
        "warmup": warmup,
        "thin": thin,
        "progress": progress,
        "path": path,
    }
    settings: dict[str, Any] = {k: v for k, v in chain_settings.items() if v is not None}
    if settings and isinstance(chosen, MCMC):
        chosen = choose("sample", query, dataclasses.replace(chosen, **settings))
    elif settings and method is not None:
        found = f"settings of Markov chains for {chosen.label}"
        raise BadInput(", ".join(settings), found, "a sampler as method")
    draws = query.name_draws(chosen.sample(query, int(n), as_key(key)))
    _warn_of_problem(draws)
    return draws


@with_energy_precision
def plan(
    task: str | Callable[..., Any],
    energy: Energy,
    given: Mapping[str, Any] | None = None,
    method: Any = None,
    *,
    data: Mapping[str, Any] | None = None,
) -> Plan:
    """Return the method that a task would use, why, and its cost, without running it.

    Where only an approximation is possible, which the task does not choose by itself, the plan is for that.

    Args:
        task: `argmin`, `posterior`, `log_prob`, `log_partition` or `sample`, or its name.
        energy: the energy.
        given: the `given` of the task; for `log_prob` its `data`, unless `data` is passed.
        method: as for the task.
        data: only for `log_prob` with `given`: `plan(log_prob, energy, data={"y": y}, given={"x": x})`.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> print(plan(log_partition, RBM(jnp.zeros((9, 4)), jnp.zeros(9), jnp.zeros(4))))
    log_partition by enumeration (exact), because all 16 joint values can be summed. Cost: 16 joint
    values per row, about 16 evaluations of the energy, about 64 B of memory.
    """
    if any(task is known for known in (argmin, posterior, log_prob, log_partition, sample)):
        task = task.__name__  # type: ignore[union-attr]
    if not isinstance(task, str) or task not in TASKS:
        raise BadInput("task", describe(task), f"one of {', '.join(TASKS)}")
    if data is not None and task != "log_prob":
        raise BadInput("data", f"data for {task}", "none: only log_prob takes data", "Pass it as given.")
    if task == "log_prob":
        # Without `data`, the third argument is the data, as in log_prob itself.
        data, given = (data, given) if data is not None else ({} if given is None else given, None)
        data, given = (as_columns(energy.spaces, values) for values in (data, given))
        if not isinstance(data, Mapping):
            raise BadInput("data", type(data).__name__, "a dict from variable names to values")
        data, given = _separate_inputs(energy, data, given)
        if given is not None:
            return ConditionalQuery(energy, data, given, None if method is None else as_method(method)).plan()
        given = data
    query = Query(energy, given)
    query.check_inputs(task)
    try:
        chosen = choose(task, query, method)
        why = chosen.why(task, query)
    except Intractable:
        found = choose_approximation(task, query)
        if found is None:
            raise
        chosen, name = found, type(found).__name__
        why = f"no exact method supports the query, so that the call needs method={name}() and key=0"
    return Plan(task, chosen, why, chosen.kind(task, query), chosen.cost(task, query))


def _warn_of_problem(found: Posterior | Draws) -> None:
    """Warn if a result cannot be trusted."""
    if found.problem:
        message = f"Results by {found.method} cannot be trusted: {found.problem}."
        warnings.warn(message, ConvergenceWarning, stacklevel=4)


def _separate_inputs(energy: Energy, data: Mapping[str, Any], given: Mapping[str, Any] | None) -> Any:
    """Return (data, given) with inputs of the energy, such as a classifier's x, moved from data to given."""
    check_instance("data", data, Mapping, "a dict from variable names to values")  # type: ignore[type-abstract]
    if given is None and energy.inputs & set(data):
        given = {k: v for k, v in data.items() if k in energy.inputs}
        data = {k: v for k, v in data.items() if k not in energy.inputs}
    return data, given
