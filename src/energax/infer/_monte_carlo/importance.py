"""Importance sampling: weighted draws from a proposal, for posteriors, expectations, log p(x) and log Z."""

from __future__ import annotations

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ... import finite
from ..._util import sizes
from ..._util.arguments import FUNCTION, NONE, check_arguments
from ...energy import supports_call
from ...errors import BadInput, ConvergenceWarning, check_whole_number
from ...estimate import Estimate
from .._exact.closed_form import Exact
from .._exact.conditional import free_energies
from .._exact.enumeration import Enumeration
from .._exact.free_energy import has_closed_form, n_joint_values
from .._expectation import argument_names
from .._map_rows import map_rows
from .._method import Cost, Method
from .._query import Query
from .adaptive import AdaptiveMixture
from .proposals import check_proposal, fit_pilot, log_weight, propose, unconstrained_target
from .weighing import Source, Wanted, draw_rest, is_fitted, log_mean_of_draws, weighted_draws, weighted_values
from .weighted_posterior import WeightedDraws, WeightedPosterior
from .weights import GOOD_PARETO_K, least_effective_draws, pareto_k, warn_low_ess

_MAX_FITTED_SIZE = 256
_BOUND_DRAWS, _POSTERIOR_DRAWS, _LOG_Z_DRAWS = 1000, 4000, 2**16
_REMEDY = "Use a better proposal= or more n_samples."


class Importance(Method):
    """Importance sampling: draws x_k of a proposal q with weights w_k = exp(−e(x_k)) / q(x_k).

    - `posterior`, `sample`: the draws with self-normalised weights w_k / Σ w, or draws chosen by them. Finite
      variables that q does not draw are summed out of the weights and then drawn given the others.
    - `log_prob`: log p(x) ≥ E log (1/K) Σ_k p(x, z_k) / q(z_k | x) for a model with known log Z, a lower
      bound that rises to log p(x) with K.
    - `log_partition`: log Z ≈ log (1/K) Σ_k w_k for an energy over real variables.
    - `expectation`: E[f] ≈ (1/K) Σ_k f(x_k) w_k / Z, which is unbiased, if Z is known. Its variance is 0 for
      q ∝ f p, f ≥ 0. If Z is not known, Σ f w / Σ w, or for an adaptive proposal a ratio of two integrals,
      each with its own.

    Standard errors come from the spread of the weights; that of a single draw is infinite. If few draws are
    effective, or the Pareto k̂ of the weights is above 0.7, a warning says so.

    Args:
        proposal: the distribution q. For log p(x) and posteriors an encoder, `encoder(x=row)` → a
            distribution over the hidden variable, or a dict of distributions by name. Without given values a
            distribution over the variable, or an `Energy` with its own `draw` and `log_partition`, such as a
            fitted `Mixture`. `AdaptiveMixture()` is moved to the target. None fits a Student t: given values,
            at the mode of every row (Laplace's approximation), else to exact draws or a short run of Langevin
            chains.
        n_samples: K; None is 1000 per row for log p(x), 4000 per row for posteriors, at least four times the
            draws of `sample`, and 65536 for log Z and for `expectation` of one example.
        encoder: another name of `proposal`.

    Kahn and Marshall (1953), Methods of reducing sample size in Monte Carlo computations; Burda, Grosse and
    Salakhutdinov (2016), Importance weighted autoencoders; Owen (2013), Monte Carlo theory, methods and
    examples.

    >>> from energax.energies import Decoder
    >>> from energax.infer import log_prob, posterior
    >>> coins = Decoder(lambda z: 0 * z, 2)
    >>> log_prob(coins, {"x": [0, 1]}, Importance(n_samples=2000), key=0)     # 2 log ½
    -1.38... ± 0.0... (lower bound)
    >>> posterior(coins, {"x": [0, 1]}, Importance(), key=0).verdict[:29]
    'no problem found (importance)'
    """

    proposal: Any = None
    n_samples: int | None = eqx.field(static=True, default=None)

    tasks = frozenset({"posterior", "sample", "log_prob", "log_partition"})
    automatic = frozenset({"log_prob", "log_partition"})
    priority = 50

    def __init__(self, proposal: Any = None, n_samples: int | None = None, *, encoder: Any = None):
        if proposal is not None and encoder is not None:
            raise BadInput("encoder", "both proposal= and encoder=", "one of them")
        if n_samples is not None:
            check_whole_number("n_samples", n_samples)
        check_arguments(locals(), encoder=FUNCTION | NONE)
        check_proposal(proposal)
        self.proposal = encoder if proposal is None else proposal
        self.n_samples = n_samples

    # -- which queries it supports ---------------------------------------------------------------

    def unsupported_reason(self, task, query):
        if task in ("posterior", "sample"):
            return self._no_proposal_reason(query) or self._not_drawn_reason(query)
        if task == "log_prob" and _log_z_method(query) is None:
            return intractable_reason(query) or self._no_proposal_reason(Query(query.energy, {}))
        return self._no_proposal_reason(query)

    def _no_proposal_reason(self, query: Query) -> str | None:
        energy = query.energy
        if any(name not in energy.marginalises for name in query.partially_observed):
            return f"cannot sum out the missing coordinates of {list(query.partially_observed)}"
        if not is_fitted(self.proposal):
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

    def _not_drawn_reason(self, query: Query) -> str | None:
        """Return why the targets that the proposal does not draw cannot be drawn given the others."""
        energy, key, targets = query.energy, jax.random.key(0), tuple(query.targets)
        real = tuple(n for n, s in query.hidden.items() if s.is_real)

        def proposed(row):
            if is_fitted(self.proposal):
                return unconstrained_target(row, energy, real)[2](_start_of(row, energy, real))
            return propose(row, key, energy, self.proposal)[0]

        names = eqx.filter_eval_shape(proposed, query.row)
        if supports_call(lambda row: draw_rest(row, proposed(row), energy, targets, key), query.row):
            return None
        rest = [n for n in targets if n not in names]
        return f"cannot draw {rest} given {[*query.given, *names]}; the proposal draws only {list(names)}"

    def why(self, task, query):
        if task in ("posterior", "sample"):
            return "the hidden variables have a proposal, and weights correct for it"
        if task == "log_prob" and _log_z_method(query) is not None:
            return "the model is normalised, and its hidden variables have a proposal"
        return "the integral of exp(−e) has no closed form"

    def kind(self, task, query):
        if task == "log_prob" and _log_z_method(query) is not None:
            return "lower bound"
        return "estimate"

    def cost(self, task, query):
        adaptive = isinstance(self.proposal, AdaptiveMixture)
        size = sum(s.size for s in query.hidden.values() if s.is_real)
        fit = self.proposal.n_rounds * self.proposal.draws_per_round(size) if adaptive else 0
        if task in ("posterior", "sample"):
            k = self.n_samples or _POSTERIOR_DRAWS
            return Cost(evaluations=query.n * (k + fit), n_bytes=4 * k * query.n * (query.width + 1))
        if task == "log_prob" and _log_z_method(query) is not None:
            k = self.n_samples or _BOUND_DRAWS
            return Cost(evaluations=query.n * (k + fit), n_bytes=4 * k)
        k = self.n_samples or _LOG_Z_DRAWS  # log Z once, and F of every row
        return Cost(evaluations=k + fit + (query.n if task == "log_prob" else 0), n_bytes=4 * k)

    # -- the tasks -------------------------------------------------------------------------------

    def posterior(self, query, key):
        return self._posterior(query, key, self.n_samples or _POSTERIOR_DRAWS)

    def _posterior(self, query: Query, key: Any, k: int) -> WeightedPosterior:
        method = _log_z_method(query) if query.given else None
        log_z = None if method is None else method.log_partition(query, None).value
        draws = self._weighted_draws(query, key, k)
        return WeightedPosterior(query, draws, key, log_z, "lower bound")

    def sample(self, query, n, key):
        draw_key, choose_key = jax.random.split(key)
        k = self.n_samples or max(_POSTERIOR_DRAWS, 4 * n)
        return WeightedPosterior(query, self._weighted_draws(query, draw_key, k))._draw(n, choose_key)

    def log_prob(self, query, key):
        log_z = _log_z_method(query)
        if log_z is None:
            return log_prob_by_estimated_log_z(self, query, key)
        return self.log_integrals(query, key) - log_z.log_partition(query, key).value

    def log_integrals(self, query, key):
        """Return log ∫ exp(−e(given, hidden)) of every row from below."""
        value, error = self._log_mean_weights(query, key, self.n_samples or _BOUND_DRAWS, "log p(x)")
        return Estimate(value, error, "lower bound", self.label)

    def log_partition(self, query, key):
        value, error = self._log_mean_weights(query, key, self.n_samples or _LOG_Z_DRAWS, "log Z")
        return Estimate(value[0], error[0], "estimate", self.label)

    def expectation(self, query, function, key):
        log_z = _log_normaliser(query)
        k = self.n_samples or max(_POSTERIOR_DRAWS, _LOG_Z_DRAWS // query.n)
        if log_z is None and not isinstance(self.proposal, AdaptiveMixture):
            return self._posterior(query, key, k).expectation(function)
        value_key, z_key = jax.random.split(key)
        log_z_error: Any = 0.0
        if log_z is None:
            log_z, log_z_error = self._log_mean_weights(query, z_key, k, "log Z")
        wanted = Wanted(function, argument_names(function, query.spaces), tuple(query.targets))
        arguments = (query.energy, self._source(query, value_key), wanted, k)
        values, log_weights = self._map(weighted_values, query, value_key, *arguments)
        value, error = _mean_of_products(values, log_weights, np.asarray(log_z, float), log_z_error)
        value, error = query.unbatch((value, error))
        return Estimate(value, error, "estimate", self.label)

    # -- weighted draws --------------------------------------------------------------------------

    def _weighted_draws(self, query: Query, key: Any, k: int) -> WeightedDraws:
        arguments = (query.energy, self._source(query, key), tuple(query.targets), k)
        values, log_weights = self._map(weighted_draws, query, key, *arguments)
        remedy = "use a better proposal= or more n_samples"
        if self.proposal is None:
            remedy = "use Importance(AdaptiveMixture()) or a sampler"
        return WeightedDraws(values, log_weights, method=self.label, batched=query.batched, remedy=remedy)

    def _log_mean_weights(self, query: Query, key: Any, k: int, quantity: str) -> tuple[Any, Any]:
        """Return log mean w of every row and its standard error; warn if few draws are effective."""
        arguments = (query.energy, self._source(query, key), k)
        value, error, ess = self._map(log_mean_of_draws, query, key, *arguments)
        warn_low_ess("Importance", ess, k, quantity, _REMEDY)
        return value, error

    def _source(self, query: Query, key: Any) -> Source:
        if not is_fitted(self.proposal):
            return Source(self.proposal)
        real = tuple(n for n, s in query.hidden.items() if s.is_real)
        pilot = None if query.given else fit_pilot(query.energy, real, jax.random.split(key)[0])
        return Source(self.proposal, real, pilot)

    def _map(self, function: Any, query: Query, key: Any, *arguments: Any) -> Any:
        """Return `function(row, key, *arguments)` of every row; the last argument is the number of draws."""
        k = arguments[-1]
        kept = k if function is log_mean_of_draws else k * (query.width + 1)
        width = min(k, sizes.DRAWS.value) * 8 * query.width + kept
        draw_key = jax.random.split(key)[1]
        return map_rows(function, query.given, query.n, *arguments, key=draw_key, numbers_per_row=width)


def _mean_of_products(
    values: np.ndarray, log_weights: np.ndarray, log_z: np.ndarray, log_z_error: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean f w / Z of every row (n, *shape) and its standard error, in float64; warn if few count.

    Args:
        values: f, (n, k, *shape).
        log_weights: (n, k).
        log_z: log Z, (n,).
        log_z_error: its standard error, (n,) or 0.
    """
    n, k = log_weights.shape
    flat = values.astype(float).reshape(n, k, -1)
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(flat)) + log_weights[..., None].astype(float)  # of |f| w
    top = logs.max(1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    terms = np.sign(flat) * np.exp(logs - top)
    scale = np.exp(top[:, 0] - np.reshape(log_z, (-1, 1)))
    mean = terms.mean(1)
    error = terms.std(1, ddof=1) / np.sqrt(k) if k > 1 else np.full_like(mean, np.inf)
    error = np.hypot(error, np.abs(mean) * np.reshape(log_z_error, (-1, 1))) * scale
    # Without a draw at which f is not 0 nothing is known about the error.
    unseen = np.isneginf(logs).all(1)
    error = np.where(unseen & (k > 1), np.inf, error)
    _warn_of_products(logs, unseen)
    shape = (n, *values.shape[2:])
    return (mean * scale).reshape(shape), error.reshape(shape)


def _warn_of_products(logs: np.ndarray, unseen: np.ndarray) -> None:
    k = logs.shape[1]
    if unseen.any():
        problem = f"the function is 0 at all {k} draws. Use a proposal= where it is not, or Exceeds(score, t)"
        problem += " with Importance(AdaptiveMixture())"
    else:
        columns = np.moveaxis(logs, 2, 1).reshape(-1, k)
        value = np.exp(columns - columns.max(1, keepdims=True))
        ess = value.sum(1) ** 2 / (value**2).sum(1)
        tail = pareto_k(columns).max()
        if (ess < least_effective_draws(k)).any():
            problem = f"it rests on {ess.min():.1f} effective draws of {k}. {_REMEDY[:-1]}"
        elif tail > GOOD_PARETO_K:
            problem = f"Pareto k-hat of its weights is {tail:.2f}, above {GOOD_PARETO_K}. {_REMEDY[:-1]}"
        else:
            return
    message = f"Importance: an expectation cannot be trusted: {problem}."
    warnings.warn(message, ConvergenceWarning, stacklevel=6)


# -- exact parts ---------------------------------------------------------------------------------


def _log_z_method(query: Query) -> Method | None:
    """Return an exact method for log Z, or None."""
    for method in (Exact(), Enumeration()):
        if method.unsupported_reason("log_partition", query) is None:
            return method
    return None


def _log_normaliser(query: Query) -> np.ndarray | None:
    """Return log ∫ exp(−e(given, hidden)) of every row if it is exact, else None."""
    if query.given:
        return None if intractable_reason(query) else -free_energies(query)
    method = _log_z_method(query)
    return None if method is None else np.atleast_1d(method.log_partition(query, None).value)


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


def _start_of(row: Any, energy: Any, real: tuple[str, ...]) -> Any:
    return unconstrained_target(row, energy, real)[1]


def _at_start(row, energy, real):
    target, start, _ = unconstrained_target(row, energy, tuple(real))
    return target(start)
