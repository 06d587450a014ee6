"""Baselines of the score-function gradient: they lower its variance and leave its mean as it is."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import distributions
from .._util.arguments import ARRAYS, FUNCTION, NUMBER_SCALAR, check_arguments
from ..batch import multiply_weight
from ..errors import BadInput

_stop = jax.lax.stop_gradient


class Baseline(eqx.Module):
    """The base of baselines b of the score-function gradient E[(f(z) − b) ∇ log q(z)].

    A baseline b_i of draw i may depend on anything but that draw, so that E[b_i ∇ log q(z_i)] = 0. A subclass
    implements `values`, or `score_term` if its baseline differs between parameters or is trained.

    >>> class Half(Baseline):
    ...     def values(self, values, context=None):
    ...         return jnp.full_like(values, 0.5)
    >>> Half().values(jnp.array([1.0, 2.0]))
    Array([0.5, 0.5], dtype=float32)
    """

    def values(self, values: Any, context: Any = None) -> Any:
        """Return the baselines (n,) of draws with the given values of f (n,)."""
        raise NotImplementedError

    def score_term(self, values: Any, distribution: Any, z: Any, log_q: Any, context: Any = None) -> Any:
        """Return a number 0 whose gradient is the mean of (f(z_i) − b_i) ∇ log q(z_i) over n draws."""
        return zero_with_scores(values - self.values(values, context), log_q) / len(values)


class ConstantBaseline(Baseline):
    """A baseline that is one number, the same for all draws.

    >>> ConstantBaseline(2.0).values(jnp.array([1.0, 5.0]))
    Array([2., 2.], dtype=float32)
    """

    value: Any = 0.0

    def __check_init__(self):
        check_arguments(self, value=NUMBER_SCALAR)

    def values(self, values, context=None):
        return jnp.full_like(values, self.value)


class LeaveOneOut(Baseline):
    """The mean of the other draws: b_i = Σ_{j ≠ i} f(z_j) / (n − 1).

    Kool, van Hoof and Welling (2019), Buy 4 REINFORCE samples, get a baseline for free!

    >>> LeaveOneOut().values(jnp.array([1.0, 2.0, 6.0]))
    Array([4. , 3.5, 1.5], dtype=float32)
    """

    def values(self, values, context=None):
        _check_others("LeaveOneOut", values)
        return mean_of_others(values, jnp.ones_like(values))


class OptimalBaseline(Baseline):
    """The baseline of least variance for each parameter φ_c of q: b_c = E[f s_c²] / E[s_c²].

    s_c = ∂ log q / ∂φ_c is the score. The means are over the other draws, so that the gradient has no bias.
    Their noise adds to the variance: with tens of draws `LeaveOneOut` is often better, with hundreds this
    one. The parameters are the arrays of the distribution, such as the location and the scale of a `Normal`.

    Greensmith, Bartlett and Baxter (2004), Variance reduction techniques for gradient estimates in
    reinforcement learning.

    >>> from numpyro.distributions import Normal
    >>> q, z = Normal(jnp.array(1.0), jnp.array(1.0)), jnp.array([0.0, 2.0, 3.0])
    >>> OptimalBaseline().score_term(z**2, q, z, q.log_prob(z))
    Array(0., dtype=float32)
    """

    def score_term(self, values, distribution, z, log_q, context=None):
        _check_others("OptimalBaseline", values)
        parameters, rest = eqx.partition(distribution, eqx.is_inexact_array)
        log_prob = lambda parameters, z: distributions.log_prob(eqx.combine(parameters, rest), z)
        scores = jax.vmap(jax.grad(log_prob), (None, 0))(_stop(parameters), _stop(z))
        terms = jax.tree.map(
            lambda p, s: jnp.sum(_stop(_optimal_slope(values, s)) * (p - _stop(p))), parameters, scores
        )
        return sum(jax.tree.leaves(terms), jnp.zeros((), values.dtype))


class LearnedBaseline(Baseline):
    """A baseline that is trained together with q: b = value, or value(context) if it is a function.

    The gradient of the surrogate in the parameters of `value` is that of the mean of (f(z_i) − b)² / 2, so
    that one step of descent moves q and the baseline.

    Args:
        value: an array, or a module called with the context, such as a value function of states.

    Mnih and Gregor (2014), Neural variational inference and learning in belief networks.

    >>> baseline = LearnedBaseline(jnp.array(1.0))
    >>> f = jnp.array([3.0, 5.0])
    >>> float(jax.grad(lambda b: b.score_term(f, None, None, jnp.zeros(2)))(baseline).value)    # 1 − mean f
    -3.0
    """

    value: Any

    def __check_init__(self):
        check_arguments(self, value=ARRAYS | FUNCTION)

    def values(self, values, context=None):
        found = self.value(context) if callable(self.value) else self.value
        if jnp.shape(found) != ():
            raise BadInput("baseline", f"a value of shape {jnp.shape(found)}", "one number, shape ()")
        return jnp.broadcast_to(found, values.shape).astype(values.dtype)

    def score_term(self, values, distribution, z, log_q, context=None):
        baselines = self.values(values, context)
        error = 0.5 * jnp.mean((_stop(values) - baselines) ** 2)
        return zero_with_scores(values - baselines, log_q) / len(values) + (error - _stop(error))


def as_baseline(baseline: Any) -> Baseline | None:
    """Return a baseline: True is `LeaveOneOut()`, False and None are none, a number is a constant."""
    if baseline is None or baseline is False:
        return None
    if baseline is True:
        return LeaveOneOut()
    if isinstance(baseline, Baseline):
        return baseline
    if isinstance(baseline, int | float) or (eqx.is_array_like(baseline) and jnp.shape(baseline) == ()):
        return ConstantBaseline(baseline)
    expected = "True, False, a number, or a baseline such as LeaveOneOut()"
    raise BadInput("baseline", type(baseline).__name__, expected)


def zero_with_scores(advantage: Any, log_q: Any) -> Any:
    """Return 0 with the gradient Σ_i advantage_i ∇ log q(z_i), summed over the last axis."""
    surrogate = jnp.sum(_stop(advantage) * log_q, axis=-1)
    return surrogate - _stop(surrogate)


def mean_of_others(values: Any, weight: Any) -> Any:
    """Return for every row the weighted mean of all other rows, which is independent of its own draw."""
    terms = multiply_weight(weight, values)
    others = weight.sum() - weight
    return jnp.where(others > 0, (terms.sum() - terms) / jnp.where(others > 0, others, 1), 0)


def _optimal_slope(values: Any, scores: Any) -> Any:
    """Return the mean of (f_i − b_i) s_i for one array of parameters; `scores` is (n, *its shape)."""
    f = values.reshape(-1, *[1] * (scores.ndim - 1))
    squares = scores**2
    others = squares.sum(0) - squares
    # A difference of rounded sums may be a tiny number where all other scores are 0.
    known = others > 10 * jnp.finfo(squares.dtype).eps * squares.sum(0)
    baseline = ((f * squares).sum(0) - f * squares) / jnp.where(known, others, 1)
    return jnp.mean((f - jnp.where(known, baseline, 0)) * scores, axis=0)


def _check_others(name: str, values: Any) -> None:
    if len(values) < 2:
        remedy = f"{name} is computed from the other draws. Use baseline=False for one draw."
        raise BadInput("n", "1", "at least 2 draws", remedy)
