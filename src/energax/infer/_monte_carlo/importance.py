"""Importance sampling: weighted draws from a proposal, for log p(x) and log Z."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ... import finite
from ..._util import sizes
from ..._util.arrays import asarray
from ...energy import supports_call
from ...errors import BadInput, check_whole_number
from ...estimate import Estimate
from .._exact.closed_form import Exact
from .._exact.conditional import free_energies
from .._exact.enumeration import Enumeration
from .._exact.free_energy import has_closed_form, n_joint_values
from .._map_rows import map_rows
from .._method import Cost, Method
from .._query import Query
from .proposals import fit_laplace, fit_pilot, log_weight, student_log_weight, unconstrained_target
from .weights import warn_low_ess

_MAX_FITTED_SIZE = 256
_REMEDY = "Use a better proposal= or more n_samples."


class Importance(Method):
    """Importance sampling of log p(x) and log Z.

    log p(x) ≥ E log (1/K) Σ_k p(x, z_k) / q(z_k | x) for a model with known log Z: a lower bound that rises
    to log p(x) with K. log Z ≈ log (1/K) Σ_k exp(−e(x_k)) / q(x_k) for an energy over real variables: an
    estimate. Standard errors come from the spread of the weights; that of a single draw is infinite. If a
    few weights dominate the sum, a warning says so.

    Args:
        proposal: the distribution q. For log p(x) an encoder, `encoder(x=row)` → a distribution over the
            hidden variable, or a dict of distributions by name. For log Z a distribution over the variable,
            or an `Energy` with its own `draw` and `log_partition`, such as a fitted `Mixture`. None fits a
            Student t: for log p(x) at the mode of every row (Laplace's approximation), for log Z to a short
            run of Langevin chains.
        n_samples: K; None is 1000 per row for log p(x) and 65536 for log Z.
        encoder: another name of `proposal`.

    Burda, Grosse and Salakhutdinov (2016), Importance weighted autoencoders.

    >>> from energax.energies import Decoder
    >>> from energax.infer import log_prob
    >>> coins = Decoder(lambda z: 0 * z, 2)
    >>> log_prob(coins, {"x": [0, 1]}, Importance(n_samples=2000), key=0)     # 2 log ½
    -1.38... ± 0.0... (lower bound)
    """

    proposal: Any = None
    n_samples: int | None = eqx.field(static=True, default=None)

    tasks = frozenset({"log_prob", "log_partition"})
    automatic = True
    priority = 50

    def __init__(self, proposal: Any = None, n_samples: int | None = None, *, encoder: Any = None):
        if proposal is not None and encoder is not None:
            raise BadInput("encoder", "both proposal= and encoder=", "one of them")
        if n_samples is not None:
            check_whole_number("n_samples", n_samples)
        self.proposal = encoder if proposal is None else proposal
        self.n_samples = n_samples

    # -- which queries it supports ---------------------------------------------------------------

    def unsupported_reason(self, task, query):
        if task == "log_prob" and _log_z_method(query) is None:
            return intractable_reason(query) or self._no_proposal_reason(Query(query.energy, {}))
        return self._no_proposal_reason(query)

    def _no_proposal_reason(self, query: Query) -> str | None:
        energy = query.energy
        if any(name not in energy.marginalises for name in query.partially_observed):
            return f"cannot sum out the missing coordinates of {list(query.partially_observed)}"
        if self.proposal is not None:
            if supports_call(log_weight, query.row, jax.random.key(0), energy, self.proposal):
                return None
            return f"cannot use the proposal {type(self.proposal).__name__} for {list(query.hidden)}"
        real = {k: v for k, v in query.hidden.items() if v.is_real}
        size = sum(s.size for s in real.values())
        if not real:
            return f"needs a proposal= over {list(query.hidden)}: it can fit one to real variables only"
        if size > _MAX_FITTED_SIZE:
            return f"needs a proposal=: it fits one to {_MAX_FITTED_SIZE} dimensions at most, not {size}"
        if not query.supports(f"free energy of {list(real)}", lambda row: _at_start(row, energy, real)):
            return f"needs the free energy of {list(real)}"
        return None

    def why(self, task, query):
        if task == "log_prob" and _log_z_method(query) is not None:
            return "the model is normalised, and its hidden variables have a proposal"
        return "the integral of exp(−e) has no closed form"

    def kind(self, task, query):
        if task == "log_prob" and _log_z_method(query) is not None:
            return "lower bound"
        return "estimate"

    def cost(self, task, query):
        if task == "log_prob" and _log_z_method(query) is not None:
            k = self._k(bound=True)
            return Cost(evaluations=query.n * k, n_bytes=4 * k)
        k = self._k(bound=False)  # log Z once, and F of every row
        return Cost(evaluations=k + (query.n if task == "log_prob" else 0), n_bytes=4 * k)

    def _k(self, *, bound: bool) -> int:
        return self.n_samples or (1000 if bound else 2**16)

    # -- the tasks -------------------------------------------------------------------------------

    def log_prob(self, query, key):
        log_z = _log_z_method(query)
        if log_z is None:
            return log_prob_by_estimated_log_z(self, query, key)
        k = self._k(bound=True)
        value, error, ess = self._log_mean_weights(query, key, k)
        warn_low_ess("Importance", ess, k, "log p(x)", _REMEDY)
        return Estimate(value - log_z.log_partition(query, key).value, error, "lower bound", self.label)

    def log_partition(self, query, key):
        k = self._k(bound=False)
        value, error, ess = self._log_mean_weights(query, key, k)
        warn_low_ess("Importance", ess, k, "log Z", _REMEDY)
        return Estimate(value[0], error[0], "estimate", self.label)

    def _log_mean_weights(self, query: Query, key: Any, k: int) -> tuple[Any, Any, Any]:
        """Return `log_mean` of the weights of every row."""
        fit_key, draw_key = jax.random.split(key)
        energy, real = query.energy, tuple(n for n, s in query.hidden.items() if s.is_real)
        if self.proposal is not None:
            function: Callable[..., Any] = _weigh
            arguments: tuple[Any, ...] = (energy, self.proposal, k)
        elif query.given:
            function, arguments = _weigh_by_laplace, (energy, real, k)
        else:
            function, arguments = _weigh_by_pilot, (energy, real, fit_pilot(energy, real, fit_key), k)
        width = min(k, sizes.DRAWS.value) * 8 * query.width + k
        return map_rows(function, query.given, query.n, *arguments, key=draw_key, numbers_per_row=width)


# -- exact parts ---------------------------------------------------------------------------------


def _log_z_method(query: Query) -> Method | None:
    """Return an exact method for log Z, or None."""
    for method in (Exact(), Enumeration()):
        if method.unsupported_reason("log_partition", query) is None:
            return method
    return None


def intractable_reason(query: Query) -> str | None:
    """Return why F(given) is not exact, for methods that estimate only log Z; None if it is exact."""
    size = n_joint_values("log_prob", query)
    if has_closed_form(query) or (size is not None and size <= finite.ENUMERATION_LIMIT):
        return None
    return "would need both a sum over hidden variables and log Z, and neither is tractable"


def log_prob_by_estimated_log_z(method: Method, query: Query, key: Any) -> Estimate:
    """Return −F(given) − log Z with an exact F and log Z by `method`; all rows share its error."""
    log_z = method.log_partition(Query(query.energy, {}), key)
    return Estimate(-free_energies(query), method=method.label) - log_z


# -- functions of one row ------------------------------------------------------------------------


def log_mean(log_weights: Any) -> tuple[Any, Any, Any]:
    """Return log mean w, its standard error (delta method), and the effective sample size (Σw)² / Σw²."""
    k = log_weights.shape[0]
    log_sum = jax.nn.logsumexp(log_weights)
    log_squares = jax.nn.logsumexp(2 * log_weights)
    ess = jnp.exp(2 * log_sum - log_squares)
    # The variance relative to w̄² is Σ(w − w̄)² / ((k − 1) k w̄²); a single draw has no spread.
    variance = jnp.maximum(1 / ess - 1 / k, 0) * k / (k - 1) if k > 1 else jnp.full_like(log_sum, jnp.inf)
    return log_sum - jnp.log(asarray(k, log_sum.dtype)), jnp.sqrt(variance), ess


def _log_mean_of_draws(function: Any, key: Any, k: int) -> tuple[Any, Any, Any]:
    keys = jax.random.split(key, k)
    return log_mean(jax.lax.map(function, keys, batch_size=min(k, sizes.DRAWS.value)))


def _weigh(row, key, energy, proposal, k):
    return _log_mean_of_draws(lambda sub: log_weight(row, sub, energy, proposal), key, k)


def _weigh_by_laplace(row, key, energy, real, k):
    target, start = unconstrained_target(row, energy, real)
    student = fit_laplace(target, start)
    return _log_mean_of_draws(lambda sub: student_log_weight(sub, target, student), key, k)


def _weigh_by_pilot(row, key, energy, real, student, k):
    target, _ = unconstrained_target(row, energy, real)
    return _log_mean_of_draws(lambda sub: student_log_weight(sub, target, student), key, k)


def _at_start(row, energy, real):
    target, start = unconstrained_target(row, energy, tuple(real))
    return target(start)
