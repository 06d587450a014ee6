"""Importance sampling: draws from a proposal, weighed by how much the energy prefers them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from ... import finite
from ...energy import Energy, free_energy, supports_call
from ...errors import BadInput, ConvergenceWarning
from ...estimate import Estimate
from ...samplers import Draws, Langevin, run_chains
from .._exact.closed_form import Exact
from .._exact.conditional import free_energy_rows
from .._exact.enumeration import Enumeration
from .._exact.marginals import has_closed_form, size_to_visit
from .._method import Cost, Method
from .._optimise.lbfgs import start_in
from .._query import Query, map_rows

_LAPLACE_LIMIT = 256
_MORE = "Use a better proposal= or more n_samples."
_AT_ONCE = 512  # draws of one row whose energies are computed side by side


class Importance(Method):
    """log p(x) ≥ E log (1/K) Σ p(x, z_k) / q(z_k | x), and log Z ≈ log (1/K) Σ exp(−e(x_k)) / q(x_k).

    The first, for a model whose log Z is known, is a lower bound that rises to log p(x) with K;
    the second, for an energy over real variables, an estimate, whose standard error comes from
    the spread of the weights; of one draw that is infinite. Where a few weights carry the whole
    sum both are poor, and a warning says so.

    Args:
        proposal: what to draw from. For log p(x) an encoder, `encoder(x=row)` → a distribution
            over the hidden variable (or a dict of them by name); for log Z a distribution over
            the variable, or an `Energy` that can draw and knows its own log Z, such as a fitted
            `Mixture`. None fits one: for log p(x) the Laplace approximation at every row, for
            log Z a normal one to a short run of Langevin chains; both with the tails of a
            Student t.
        n_samples: K; None is 1000 a row for log p(x) and 65536 for log Z.
        encoder: the same as `proposal`, by its name in the variational literature.

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

    def __init__(self, proposal: Any = None, n_samples: int | None = None, *, encoder: Any = None):
        if proposal is not None and encoder is not None:
            raise BadInput("encoder", "both proposal= and encoder=", "one of them")
        if n_samples is not None and (not isinstance(n_samples, (int, np.integer)) or n_samples < 1):
            raise BadInput("n_samples", repr(n_samples), "a whole number >= 1")
        self.proposal = encoder if proposal is None else proposal
        self.n_samples = n_samples

    # -- when it makes sense --------------------------------------------------------------------

    def unsupported_reason(self, task, query):
        if task == "log_prob":
            if _log_z_method(query) is not None:
                return self._unsuitable_proposal(query)
            return unsummable(query) or self._unsuitable_proposal(Query(query.energy, {}))
        return self._unsuitable_proposal(query)

    def _unsuitable_proposal(self, query: Query) -> str | None:
        energy = query.energy
        if any(name not in energy.marginalises for name in query.partially_observed):
            return f"cannot sum out the missing coordinates of {list(query.partially_observed)}"
        if self.proposal is not None:
            if supports_call(_one_weight, query.row(), jax.random.key(0), energy, self.proposal):
                return None
            return f"cannot use the proposal {type(self.proposal).__name__} for {list(query.hidden)}"
        real = {k: v for k, v in query.hidden.items() if v.is_real}
        size = sum(s.size for s in real.values())
        if not real:
            return f"needs a proposal= over {list(query.hidden)}: it can fit one to real variables only"
        if size > _LAPLACE_LIMIT:
            return f"needs a proposal=: it fits one to {_LAPLACE_LIMIT} dimensions at most, not {size}"
        if not supports_call(_free_energy_at_anything, query.row(), energy, tuple(real)):
            return f"needs the free energy of {list(real)}"
        return None

    def why(self, task, query):
        if task == "log_prob" and _log_z_method(query) is not None:
            return "the model is normalised and its hidden variables can be proposed"
        return "the integral of exp(−e) has no closed form"

    def kind(self, task, query):
        if task == "log_prob" and (query is None or _log_z_method(query) is not None):
            return "lower bound"
        return "estimate"

    def cost(self, task, query):
        k = self._k(task == "log_prob" and _log_z_method(query) is not None)
        n = query.n if task == "log_prob" else 1
        return Cost(evaluations=n * k, n_bytes=4 * k)

    def _k(self, bound: bool) -> int:
        return self.n_samples or (1000 if bound else 2**16)

    # -- the tasks ----------------------------------------------------------------------------------

    def log_prob(self, query, key):
        log_z = _log_z_method(query)
        if log_z is None:
            return log_prob_less_log_z(self, query, key)
        value, error, effective = self._log_mean_weight(query, key, self._k(True))
        warn_if_poor("Importance", effective, self._k(True), "log p(x)", _MORE)
        bound = Estimate(value, error, "lower bound", self.label)
        z = log_z.log_partition(query, key)
        return Estimate(bound.value - z.value, bound.stderr, "lower bound", self.label)

    def log_partition(self, query, key):
        k = self._k(False)
        value, error, effective = self._log_mean_weight(query, key, k)
        warn_if_poor("Importance", effective, k, "log Z", _MORE)
        return Estimate(value[0], error[0], "estimate", self.label)

    def _log_mean_weight(self, query: Query, key: Any, k: int):
        fit_key, draw_key = jax.random.split(key)
        size = sum(max(1, s.size) for s in query.spaces.values())
        arguments: tuple[Any, ...] = (query.energy, self.proposal, k)
        rows = query.given
        function: Callable[..., Any] = _weigh
        if self.proposal is None:
            real = tuple(n for n, s in query.hidden.items() if s.is_real)
            if query.given:
                function, arguments = _weigh_laplace, (query.energy, real, k)
            else:
                pilot = _pilot(query.energy, real, fit_key)
                function, arguments = _weigh_student, (query.energy, real, pilot, k)
        width = min(k, _AT_ONCE) * 8 * size + k
        return map_rows(function, rows, query.n, *arguments, key=draw_key, numbers_per_row=width)


def warn_if_poor(method: str, effective: np.ndarray, k: int, what: str, remedy: str) -> None:
    """Say so where a few of `k` weights carry the whole sum."""
    # One draw says nothing of its own error, so that fewer than two are always too few.
    poor = effective < max(2, min(30, 0.1 * k))
    if poor.any():
        warnings.warn(
            f"{method}: {what} rests on {effective.min():.1f} effective draws of {k} "
            f"in {int(poor.sum())} of {poor.size} rows, so its standard error cannot be trusted. {remedy}",
            ConvergenceWarning,
            stacklevel=4,
        )


# -- log Z and F, where they are exact -----------------------------------------------------------------


def _log_z_method(query: Query) -> Method | None:
    for method in (Exact(), Enumeration()):
        if method.unsupported_reason("log_partition", query) is None:
            return method
    return None


def unsummable(query: Query) -> str | None:
    """Why F(given) is not exact, where only log Z may be estimated; None if it is."""
    size = size_to_visit("log_prob", query)
    if has_closed_form(query) or (size is not None and size <= finite.ENUMERATION_LIMIT):
        return None
    return "would need both a sum over what is hidden and log Z, and neither is tractable"


def log_prob_less_log_z(method: Method, query: Query, key: Any) -> Estimate:
    """−F(given) − log Z, the first exact and the second by this method: one error, shared by all rows."""
    log_z = method.log_partition(Query(query.energy, {}), key)
    return Estimate(-free_energy_rows(query), method=method.label) - log_z


# -- weights, for one row ---------------------------------------------------------------------------


def log_mean(log_weights: Any) -> tuple[Any, Any, Any]:
    """log mean w, its standard error by the delta method, and (Σw)² / Σw², the effective number."""
    k = log_weights.shape[0]
    log_sum = jax.nn.logsumexp(log_weights)
    log_squares = jax.nn.logsumexp(2 * log_weights)
    effective = jnp.exp(2 * log_sum - log_squares)
    # Σ(w − w̄)² / ((k − 1) k w̄²); from a single draw no spread is seen, and the error may be anything.
    relative = (
        jnp.maximum(1 / effective - 1 / k, 0) * k / (k - 1) if k > 1 else jnp.full_like(log_sum, jnp.inf)
    )
    return log_sum - jnp.log(jnp.asarray(k, log_sum.dtype)), jnp.sqrt(relative), effective


def _over_draws(one: Any, key: Any, k: int) -> Any:
    return log_mean(jax.lax.map(one, jax.random.split(key, k), batch_size=min(k, _AT_ONCE)))


def _weigh(row, key, energy, proposal, k):
    return _over_draws(lambda sub: _one_weight(row, sub, energy, proposal), key, k)


def _one_weight(row, key, energy, proposal):
    """log p̃(given, drawn) − log q(drawn), of one draw."""
    drawn, log_q = _propose(row, key, energy, proposal)
    return -free_energy(energy, {**row, **drawn}) - log_q


def _propose(row, key, energy, proposal):
    if isinstance(proposal, Energy):
        target = proposal.given(**row) if row and set(row) & set(proposal.spaces) else proposal
        names = [n for n in energy.spaces if n in target.spaces and n not in row]
        drawn = {n: v for n, v in target.draw(key).items() if n in names}
        return drawn, -free_energy(target, drawn) - target.log_partition()
    distribution = proposal(**row) if callable(proposal) and not hasattr(proposal, "log_prob") else proposal
    if not isinstance(distribution, dict):
        hidden = [n for n in energy.spaces if n not in row]
        if len(hidden) > 1:
            shape = jnp.shape(distribution.sample(key))
            hidden = [n for n in hidden if energy.spaces[n].shape == shape and not energy.spaces[n].is_finite]
        (name,) = hidden
        distribution = {name: distribution}
    drawn, log_q = {}, 0.0
    for (name, each), sub in zip(distribution.items(), jax.random.split(key, len(distribution)), strict=True):
        value = each.sample(sub)
        _check_proposal(name, energy.spaces[name], each, value)
        log_q = log_q + jnp.sum(each.log_prob(value))
        drawn[name] = value.astype(energy.spaces[name].jax_dtype)
    return drawn, log_q


def _check_proposal(name: str, space: Any, distribution: Any, value: Any) -> None:
    """Another shape would broadcast, and another kind of values never meet those of the space."""
    discrete = getattr(getattr(distribution, "support", None), "is_discrete", None)
    if jnp.shape(value) != space.shape or (discrete is not None and discrete is space.is_real):
        kind = f"{type(distribution).__name__}, which draws shape {jnp.shape(value)}"
        raise BadInput("proposal", kind, f"one over {name!r} in {space!r}", "Mind .to_event(1).")


# -- fitted proposals: a Student t in ℝⁿ --------------------------------------------------------------------

_DEGREES = 5


def _in_rn(row, energy, real):
    """F(given, u) − log |dx/du| as a function of a flat u, and a place to begin."""
    spaces = energy.spaces
    start, unravel = ravel_pytree({n: start_in(spaces[n], None) for n in real})

    def target(flat):
        u, x, log_det = unravel(flat), {}, 0.0
        for name in real:
            bijection = spaces[name].bijection
            x[name] = bijection(u[name])
            log_det = log_det + jnp.sum(bijection.log_abs_det_jacobian(u[name], x[name]))
        return free_energy(energy, {**row, **x}) - log_det

    return target, start


def _free_energy_at_anything(row, energy, real):
    target, start = _in_rn(row, energy, real)
    return target(start)


def _weigh_laplace(row, key, energy, real, k):
    """Draws about the mode of one row's posterior, as wide as the curvature there says."""
    target, start = _in_rn(row, energy, real)
    mode = _newton(target, start)
    eigenvalues, vectors = jnp.linalg.eigh(jax.hessian(target)(mode))
    # Directions that are flat or bend down at the mode get a wide but finite spread.
    spread = 1 / jnp.sqrt(jnp.maximum(jnp.abs(eigenvalues), 1e-2))
    return _over_draws(lambda sub: _student_weight(sub, target, mode, vectors * spread, spread), key, k)


def _newton(target, start, n_steps=30):
    """Damped Newton steps towards a mode: the Hessian is needed there anyway."""

    def step(_, carry):
        x, value, damping = carry
        eigenvalues, vectors = jnp.linalg.eigh(jax.hessian(target)(x))
        slope = vectors.T @ jax.grad(target)(x)
        proposed = x - vectors @ (slope / (jnp.abs(eigenvalues) + damping))
        new = target(proposed)
        better = new < value
        x, value = jnp.where(better, proposed, x), jnp.where(better, new, value)
        return x, value, jnp.clip(jnp.where(better, damping / 4, damping * 8), 1e-6, 1e6)

    damping = jnp.asarray(1e-2, start.dtype)
    return jax.lax.fori_loop(0, n_steps, step, (start, target(start), damping))[0]


def _weigh_student(row, key, energy, real, pilot, k):
    target, _ = _in_rn(row, energy, real)
    mean, factor, spread = pilot
    return _over_draws(lambda sub: _student_weight(sub, target, mean, factor, spread), key, k)


def _student_weight(key, target, mean, factor, spread):
    d = mean.shape[0]
    half = jnp.asarray(_DEGREES / 2, mean.dtype)
    # A χ² of whole degrees is so many squared normals: drawn and compiled faster than a gamma.
    normals = jax.random.normal(key, (d + _DEGREES,), mean.dtype)
    white = normals[:d] * jnp.sqrt(_DEGREES / jnp.sum(normals[d:] ** 2))
    lgamma = jax.scipy.special.gammaln
    log_q = lgamma(half + d / 2) - lgamma(half) - 0.5 * d * jnp.log(_DEGREES * jnp.pi)
    log_q = log_q - (half + d / 2) * jnp.log1p(white @ white / _DEGREES) - jnp.log(spread).sum()
    return -target(mean + factor @ white) - log_q


def _pilot(energy: Energy, real: tuple[str, ...], key: Any) -> tuple[Any, ...]:
    """Mean and spread, in ℝⁿ, of a short run of many Langevin chains."""
    bare = (
        energy
        if len(real) == len(energy.spaces)
        else energy.over(*[n for n in energy.spaces if n not in real])
    )
    draws: Draws = run_chains(Langevin(), bare, 2048, key=key, n_chains=32, warmup=500, thin=4)
    u = [np.asarray(energy.spaces[n].bijection.inv(draws[n])).reshape(draws.n, -1) for n in sorted(real)]
    flat = np.concatenate(u, axis=1)
    flat = flat[np.isfinite(flat).all(1)]
    covariance = np.atleast_2d(np.cov(flat.T)) + 1e-6 * np.eye(flat.shape[1])
    eigenvalues, vectors = np.linalg.eigh(covariance)
    # A little wider than what was seen: weights are bounded only under tails that are wide enough.
    spread = 1.2 * np.sqrt(np.maximum(eigenvalues, 1e-12))
    return tuple(jnp.asarray(a, jnp.zeros(()).dtype) for a in (flat.mean(0), vectors * spread, spread))
