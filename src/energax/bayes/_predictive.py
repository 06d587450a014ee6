"""The posterior predictive: a model averaged over draws of its parameters, and checks by replicated data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from .._util.keys import as_key
from .._util.sizes import number_of_rows
from ..batch import Batch
from ..energy import supports_call
from ..errors import BadInput, Unsuitable, check_instance, check_whole_number
from ..estimate import Estimate
from ..finite import Assignments
from ..fitting import check_rows
from ..infer import Posterior
from ..learn import row_losses
from ..missing import is_masked
from ..parameters import with_energy_precision
from ..programs import jit
from ..samplers import Draws
from ._parameter_energy import ParameterEnergy

#: Draws of θ that are evaluated together.
_AT_ONCE = 16

#: Draws that are taken of a posterior.
_POSTERIOR_DRAWS = 2000


@dataclasses.dataclass(frozen=True)
class PredictiveCheck:
    """A statistic of the data, and of data replicated by the model.

    Attributes:
        observed: the statistic of the data.
        replicated: the statistic of every replicated data set, (n, …).
        p_value: the share of replicated statistics above the observed one, ties counted half. Values near 0
            or 1 say that the model does not produce what the statistic measures.
    """

    observed: np.ndarray
    replicated: np.ndarray
    p_value: np.ndarray

    def __repr__(self) -> str:
        n = len(self.replicated)
        return (
            f"PredictiveCheck(observed {self.observed}, p-value {self.p_value}, of {n} replicated data sets)"
        )


class Predictive:
    """p(new | data) = E[p(new | θ)] over draws of θ: a model averaged over its posterior.

    Args:
        energy: the energy over θ, of `Bayes`.
        draws: arrays (n, …) of every parameter by name, such as `Draws` of a sampler, of `deep_ensemble` or
            of `bagging`; or a `Posterior` of any method, of which 2000 draws are taken.

    >>> from numpyro.distributions import Normal
    >>> from energax import Bayes, posterior
    >>> from energax.energies import Gaussian, LinearModel
    >>> line = LinearModel(jnp.zeros(1), jnp.zeros(()), Gaussian(1.0))
    >>> rows = {"x": np.array([[-1.0], [0.0], [1.0]]), "y": np.array([-2.0, 0.0, 2.0])}
    >>> over_theta = Bayes(Normal(0.0, 1.0))(line, rows)
    >>> found = posterior(over_theta, {}, "laplace")
    >>> mean, variance = Predictive(over_theta, found).moments("y", {"x": [[3.0]]})
    >>> mean.round(0), variance.round(0)            # 3 · 4/3, and 1 + 3²/3 + 1/4
    (array([4.], dtype=float32), array([4.], dtype=float32))
    """

    def __init__(self, energy: ParameterEnergy, draws: Mapping[str, Any] | Posterior):
        check_instance("energy", energy, ParameterEnergy, "the energy of Bayes(prior)(model, data)")
        if isinstance(draws, Posterior):
            draws = draws.sample(_POSTERIOR_DRAWS, key=0)
        absent = [name for name in energy.names if not isinstance(draws, Mapping) or name not in draws]
        if absent:
            raise BadInput("draws", f"no draws of {absent}", "arrays (n, …) of every parameter, by name")
        self.energy = energy
        self.theta = {name: np.asarray(draws[name]) for name in energy.names}
        wrong = [k for k, v in self.theta.items() if v.shape[1:] != energy.spaces[k].shape]
        if wrong:
            name = wrong[0]
            raise BadInput(
                "draws", f"{name!r} of shape {self.theta[name].shape}", f"(n, *{energy.spaces[name].shape})"
            )
        not_finite = [k for k, v in self.theta.items() if not np.isfinite(v).all()]
        if not_finite:
            remedy = "Draws that are not finite diverged: use a smaller step, or another method."
            raise BadInput("draws", f"values of {not_finite} that are not finite", "finite numbers", remedy)
        self.n = len(next(iter(self.theta.values())))
        ess: Any = draws.ess if isinstance(draws, Draws) and not draws.exact else []
        #: The number of independent draws that are worth as much.
        self.n_effective = float(np.nanmin([self.n, *ess]))

    def __repr__(self) -> str:
        return f"Predictive({type(self.energy.model).__name__}, {self.n} draws of {', '.join(self.theta)})"

    def log_prob(self, data: Any, *, given: Any = None) -> Estimate:
        """Return log E[p(row | θ)] of every row; with `given`, log E[p(row | given, θ)].

        The standard error is that of the mean over draws; few draws bias the logarithm downwards.
        """
        return _log_prob(self.energy, self, data, given)

    def probabilities(self, name: str, given: Any) -> np.ndarray:
        """Return E[p(name = v | given, θ)] of a finite variable, (rows, values)."""
        space = self._space(name)
        if not space.is_finite:
            remedy = f"Use moments({name!r}, given)."
            raise BadInput("name", f"{name!r} in {space!r}", "a finite variable", remedy)
        Assignments({name: space}).check_size("probabilities", "Use moments, or draws of replicate.")
        return _average(self.energy, self, _probabilities, name, given)[0]

    def moments(self, name: str, given: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of a variable given others, (rows, …) each.

        The variance is the mean over draws of that given θ, plus the variance of the mean given θ.
        """
        self._space(name)
        means, variances = _average(self.energy, self, _moments, name, given)
        return means, variances

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Return `function(model)` for the model at every draw of θ: arrays (n, …).

        Such are draws of what is identified where the parameters are not: the values of a network, whose
        hidden units can be exchanged, or sorted means of a mixture. The draws are in the order of
        `draws[name]`, one chain after another.

        Args:
            function: of an energy, with operations of JAX, such as
                `lambda model: jax.vmap(lambda x: model.predict(x=x))(grid)`.
        """
        return _apply(self.energy, self, function)

    def replicate(self, *, key: Any, n: int | None = None) -> dict[str, np.ndarray]:
        """Return `n` data sets like the data, each of the model at one draw of θ: (n, rows, …) by name.

        Inputs are those of the data, and values that are missing in the data are NaN.
        """
        n = self.n if n is None else n
        check_whole_number("n", n)
        return _replicate(self.energy, self, n, as_key(key))

    def check(
        self, statistic: Callable[[dict[str, np.ndarray]], Any], *, key: Any, n: int | None = None
    ) -> PredictiveCheck:
        """Return a posterior predictive check.

        Args:
            statistic: a function of a dict of arrays (rows, …), NaN where missing, such as
                `lambda data: np.nanmax(data["y"])`.
            key: an int or a JAX key.
            n: replicated data sets; None for one of every draw of θ.

        Rubin (1984), Bayesianly justifiable and relevant frequency calculations; Gelman, Meng and Stern
        (1996), Posterior predictive assessment of model fitness via realized discrepancies.
        """
        drawn = self.replicate(key=key, n=n)
        number = len(next(iter(drawn.values())))
        data = {k: v.to_nan() if is_masked(v) else np.asarray(v) for k, v in self.energy.data.items()}
        observed = np.asarray(statistic(data))
        replicated = np.stack(
            [np.asarray(statistic({k: v[i] for k, v in drawn.items()})) for i in range(number)]
        )
        p_value = ((replicated > observed) + 0.5 * (replicated == observed)).mean(0)
        return PredictiveCheck(observed, replicated, p_value)

    def _space(self, name: str) -> Any:
        spaces = self.energy.model.spaces
        if name not in spaces:
            raise BadInput("name", repr(name), f"a variable of the model, one of {list(spaces)}")
        return spaces[name]


def predictive(energy: ParameterEnergy, draws: Mapping[str, Any] | Posterior) -> Predictive:
    """Return the model of a Bayes energy averaged over draws of its parameters.

    Args:
        energy: the energy over θ, of `Bayes`.
        draws: arrays (n, …) of every parameter by name, such as `Draws`, or a `Posterior`.
    """
    return Predictive(energy, draws)


# -- over draws of θ -----------------------------------------------------------------------------------


def _rows(energy: ParameterEnergy, data: Any, argument: str) -> dict[str, Any]:
    """Return validated rows in the dtype of the energy."""
    rows, _ = check_rows(energy.model, data, None, argument)
    dtype = energy.weight.dtype
    cast = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a
    return jax.tree.map(lambda a: cast(asarray(a)), rows)


@jit
def _over_draws(energy, function, theta, *arguments):
    one = lambda theta: function(energy.at(theta), *arguments)
    return jax.lax.map(one, theta, batch_size=_AT_ONCE)


def _theta(predicted: Predictive) -> dict[str, Any]:
    return {k: asarray(v) for k, v in predicted.theta.items()}


@with_energy_precision
def _apply(energy: ParameterEnergy, predicted: Predictive, function: Any) -> Any:
    return jax.tree.map(np.asarray, _over_draws(energy, function, _theta(predicted)))


@with_energy_precision
def _log_prob(energy: ParameterEnergy, predicted: Predictive, data: Any, given: Any) -> Estimate:
    joint = _rows(energy, {**data, **(given or {})}, "data")
    condition = {k: v for k, v in joint.items() if k in (given or {})}
    if set(condition) <= energy.model.inputs:
        condition = {}
    logs = np.asarray(_over_draws(energy, _row_log_probs, _theta(predicted), joint, condition))
    highest = logs.max(0)
    weights = np.exp(logs - highest)
    mean = weights.mean(0)
    # The delta method: the relative error of the mean of p is the absolute error of its logarithm.
    error = weights.std(0) / mean / np.sqrt(max(predicted.n_effective - 1, 1))
    return Estimate(highest + np.log(mean), error, "estimate", "posterior predictive")


def _row_log_probs(model, joint, condition):
    ones = lambda rows: jnp.ones(number_of_rows(rows))
    found = -row_losses(model, Batch(joint, ones(joint)))
    return found + row_losses(model, Batch(condition, ones(condition))) if condition else found


@with_energy_precision
def _average(energy: ParameterEnergy, predicted: Predictive, function: Any, name: str, given: Any) -> Any:
    """Return the mean over draws of what `function` returns, and of its variance if it has one."""
    rows = _rows(energy, given, "given")
    row = jax.tree.map(lambda a: a[0], rows)
    if not supports_call(lambda: function(energy.model, rows, name)):
        known = sorted(set(energy.model.spaces) - {name})
        raise Unsuitable(
            f"Predictive: {type(energy.model).__name__} has no distribution of {name!r} given {sorted(row)} "
            f"in closed form. Give values of others among {known}, or use replicate."
        )
    found = _over_draws(energy, function, _theta(predicted), rows, name)
    first = np.asarray(found[0])
    mean = first.mean(0)
    return mean, None if found[1] is None else np.asarray(found[1]).mean(0) + first.var(0)


def _probabilities(model, rows, name):
    space = model.spaces[name]

    def one(row):
        found = model.conditional(name, **row)
        return jax.vmap(lambda i: jnp.sum(found.log_prob(space.at(i))))(jnp.arange(space.n_values))

    return jnp.exp(jax.vmap(one)(rows)), None


def _moments(model, rows, name):
    def one(row):
        found = model.conditional(name, **row)
        return found.mean, found.variance

    return jax.vmap(one)(rows)


@with_energy_precision
def _replicate(energy: ParameterEnergy, predicted: Predictive, n: int, key: Any) -> dict[str, np.ndarray]:
    inputs = {k: v for k, v in energy.data.items() if k in energy.model.inputs}
    row = jax.tree.map(lambda a: a[0], inputs)
    if not supports_call(lambda: energy.model.draw(jax.random.key(0), **row)):
        raise Unsuitable(
            f"Predictive.replicate needs exact draws, and {type(energy.model).__name__} has neither `draw` "
            "nor few enough values to enumerate. Draw with sample(energy.at(theta), …) instead."
        )
    choose_key, key = jax.random.split(key)
    # Every draw of θ about equally often.
    order = np.asarray(jax.random.permutation(choose_key, predicted.n))
    theta = {k: asarray(v[np.resize(order, n)]) for k, v in predicted.theta.items()}
    keys = jax.random.split(key, n)
    drawn = _draw_sets(energy, theta, keys, inputs)
    out = {}
    for name, value in energy.data.items():
        many = (
            np.asarray(drawn[name])
            if name in drawn
            else np.broadcast_to(np.asarray(value), (n, *value.shape))
        )
        if is_masked(value):
            many = np.where(np.asarray(value.observed), many.astype(np.result_type(many, np.float32)), np.nan)
        out[name] = many
    return out


@jit
def _draw_sets(energy, theta, keys, inputs):
    def one(pair):
        theta, key = pair
        model = energy.at(theta)
        row_keys = jax.random.split(key, energy.n_rows)
        drawn = jax.vmap(lambda k, row: model.draw(k, **row))(row_keys, inputs)
        return {k: v for k, v in drawn.items() if k in energy.data and k not in inputs}

    return jax.lax.map(one, (theta, keys), batch_size=_AT_ONCE)
