"""Adaptive proposals: mixtures of Student t or normal distributions that are moved to weighted draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util import sizes
from ..._util.arguments import FRACTION, check_arguments
from ...errors import BadInput, check_whole_number
from .proposals import Student, draw_student, student_log_density

_LEAST_EFFECTIVE = 0.2  # of the draws with positive weights; weights are tempered until so many are
_LEAST_SHARE = 0.02  # of the components together, so that none dies out


class AdaptiveMixture(eqx.Module):
    """A proposal for `Importance` that is moved to its target in rounds, by the cross-entropy method.

    q is a mixture of Student t or normal distributions in unconstrained coordinates u. It starts at the
    mode, or at draws, as the fitted proposal of `Importance` does. Every round takes draws u_k of q with
    weights w_k = exp(−E(u_k)) |f| / q(u_k), and one step of EM on the weighted draws, which lowers the cross
    entropy −Σ w_k log q(u_k). A single normal takes their mean and covariance. f is the function of
    `expectation`, else 1. For `Exceeds` of a score, a round moves to draws whose score is at least the
    (1 − elite) quantile or the threshold, whichever is lower. Draws of the rounds are not used again, so that
    estimates from the final q stay unbiased.

    Weights are raised to a power ≤ 1 at which a fifth of the draws is effective; it rises to 1 as q comes
    near.

    Args:
        n_components: distributions in the mixture.
        n_rounds: rounds.
        n_draws: draws of a round; None is 1000, or 100 for each coordinate if that is more.
        df: degrees of freedom of the Student t; None is a normal distribution.
        elite: the part of the draws that a round moves to, for `Exceeds`.

    Rubinstein and Kroese (2004), The cross-entropy method; Cappé, Douc, Guillin, Marin and Robert (2008),
    Adaptive importance sampling in general mixture classes.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import AdaptiveMixture, Exceeds, Importance, expectation
    >>> bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)                        # N(0, 1)
    >>> method = Importance(AdaptiveMixture(), n_samples=10_000)
    >>> tail = expectation(bowl, Exceeds(lambda x: x[0], 5.0), method=method, key=0)
    >>> bool(abs(tail.value / 2.8665e-7 - 1) < 0.1)                                            # P(x ≥ 5)
    True
    """

    n_components: int = eqx.field(static=True, default=1)
    n_rounds: int = eqx.field(static=True, default=10)
    n_draws: int | None = eqx.field(static=True, default=None)
    df: int | None = eqx.field(static=True, default=5)
    elite: float = eqx.field(static=True, default=0.1)

    def __check_init__(self):
        for name in ("n_components", "n_rounds"):
            check_whole_number(name, getattr(self, name))
        if self.n_draws is not None:
            check_whole_number("n_draws", self.n_draws, 10)
        if self.df is not None:
            check_whole_number("df", self.df)
        check_arguments(self, elite=FRACTION)
        if self.n_draws is not None and self.n_draws < 1 / self.elite:
            raise BadInput("elite", f"{self.elite} of {self.n_draws} draws", "at least one draw")

    def draws_per_round(self, d: int) -> int:
        """Return the draws of a round in d dimensions."""
        return max(1000, 100 * d) if self.n_draws is None else self.n_draws


class Components(NamedTuple):
    """A mixture in ℝᵈ: log shares (c,), means (c, d) and lower triangular factors (c, d, d)."""

    log_shares: Any
    means: Any
    factors: Any

    def propose(self, key: Any, df: int | None) -> tuple[Any, Any]:
        """Return one draw u and log q(u)."""
        pick_key, draw_key = jax.random.split(key)
        c, d = self.means.shape
        white = draw_student(draw_key, d, self.means.dtype, df)
        i = jax.random.categorical(pick_key, self.log_shares) if c > 1 else 0
        u = self.means[i] + self.factors[i] @ white
        if c == 1:
            return u, student_log_density(white, df) - self.log_det()[0]
        return u, jax.nn.logsumexp(self.log_joint(self.white(u[None]), df))

    def white(self, u: Any) -> Any:
        """Return the factors' solutions for u − mean, (c, n, d), of vectors u (n, d)."""
        solve = lambda factor, v: jax.scipy.linalg.solve_triangular(factor, v.T, lower=True).T
        return jax.vmap(solve)(self.factors, u - self.means[:, None])

    def log_joint(self, white: Any, df: int | None) -> Any:
        """Return log share + log density of every component, (c, n), at solutions of `white`."""
        log_q = jax.vmap(jax.vmap(lambda v: student_log_density(v, df)))(white)
        return log_q + (self.log_shares - self.log_det())[:, None]

    def log_det(self) -> Any:
        return jnp.log(jnp.diagonal(self.factors, axis1=1, axis2=2)).sum(1)


def adapt(
    settings: AdaptiveMixture,
    start: Student,
    log_target: Callable[[Any, Any], tuple[Any, Any]],
    threshold: Any,
    key: Any,
) -> Components:
    """Return the mixture after all rounds.

    Args:
        settings: the settings.
        start: the Student t at which all components begin.
        log_target: (u, key) → log of the density to move to, up to a constant, and a score.
        threshold: of the score; None if there is no event.
        key: a JAX key.
    """
    start_key, key = jax.random.split(key)
    # Draws above a level have less spread than the target. Were q as narrow, the next level would be close;
    # so q draws wider, and keeps its covariance until the threshold is reached.
    width = 1.0 if threshold is None else 1 + 1 / math.sqrt(start.mean.shape[0])
    n = settings.draws_per_round(start.mean.shape[0])

    def one(components, key):
        propose_key, target_key = jax.random.split(key)
        wide = components._replace(factors=width * components.factors)
        u, log_q = wide.propose(propose_key, settings.df)
        return u, log_q, *log_target(u, target_key)

    def improve(components, key):
        draw = lambda k: one(components, k)
        batch = min(n, sizes.DRAWS.value)
        u, log_q, log_p, score = jax.lax.map(draw, jax.random.split(key, n), batch_size=batch)
        reached = True
        if threshold is not None:
            level = jnp.minimum(jnp.quantile(score, 1 - settings.elite), threshold)
            reached = level >= threshold
            log_p = jnp.where(score >= level, log_p, -jnp.inf)
        ratios = log_p - log_q
        ratios = jnp.where(jnp.isnan(ratios) | ~jnp.isfinite(u).all(1), -jnp.inf, ratios)
        new = _move(components, u, _tempered_weights(ratios), settings.df)
        new = new._replace(factors=jnp.where(reached, new.factors, components.factors))
        usable = jnp.isfinite(ratios).any() & jnp.isfinite(new.factors).all() & jnp.isfinite(new.means).all()
        return jax.tree.map(lambda a, b: jnp.where(usable, a, b), new, components), None

    first = _start(settings, start, start_key)
    final = jax.lax.scan(improve, first, jax.random.split(key, settings.n_rounds))[0]
    return final


def _start(settings: AdaptiveMixture, start: Student, key: Any) -> Components:
    """Return components with the covariance of the start, the first at its mean, the others at its draws."""
    c, (d,) = settings.n_components, start.mean.shape
    white = jax.vmap(lambda k: draw_student(k, d, start.mean.dtype))(jax.random.split(key, c))
    means = start.mean + white.at[0].set(0.0) @ start.factor.T
    factor = _cholesky(start.factor @ start.factor.T)
    log_shares = jnp.full(c, -math.log(c), means.dtype)
    return Components(log_shares, means, jnp.broadcast_to(factor, (c, d, d)))


def _cholesky(covariance: Any) -> Any:
    d = covariance.shape[0]
    small = 1e-6 * jnp.trace(covariance) / d + jnp.finfo(covariance.dtype).tiny
    return jnp.linalg.cholesky(covariance + small * jnp.eye(d, dtype=covariance.dtype))


def _tempered_weights(ratios: Any) -> Any:
    """Return normalised weights ∝ exp(β ratios), with the largest β ≤ 1 at which enough are effective."""
    positive = jnp.isfinite(ratios)
    least = _LEAST_EFFECTIVE * positive.sum()
    logs = jnp.where(positive, ratios - jnp.max(ratios), -jnp.inf)

    def effective(beta):
        w = jax.nn.softmax(jnp.where(positive, beta * logs, -jnp.inf))
        return w, 1 / jnp.sum(w**2)

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        enough = effective(middle)[1] >= least
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    one = jnp.ones((), ratios.dtype)
    low, _ = jax.lax.fori_loop(0, 20, halve, (jnp.zeros_like(one), one))
    return effective(jnp.where(effective(one)[1] >= least, one, low))[0]


def _move(old: Components, u: Any, weights: Any, df: int | None) -> Components:
    """Return the mixture after one step of EM on weighted draws u (n, d).

    Covariances are shrunk to the old ones as if those came from d + 1 draws.
    """
    d = u.shape[1]
    white = old.white(u)
    responsibilities = jax.nn.softmax(old.log_joint(white, df), axis=0)  # (c, n)
    scale = 1.0 if df is None else (df + d) / (df + (white**2).sum(-1))  # of the normals within a Student t
    shares = weights * responsibilities
    total = shares.sum(1)
    guarded = jnp.where(total > 0, total, 1)
    pull = shares * scale
    means = (pull @ u) / jnp.where(total > 0, pull.sum(1), 1)[:, None]
    means = jnp.where((total > 0)[:, None], means, old.means)
    effective = total**2 / jnp.where(total > 0, (shares**2).sum(1), 1)

    def covariance(pull, mean, total, effective, factor):
        away = u - mean
        found = (away * pull[:, None]).T @ away / total
        return (effective * found + (d + 1) * factor @ factor.T) / (effective + d + 1)

    covariances = jax.vmap(covariance)(pull, means, guarded, effective, old.factors)
    least = _LEAST_SHARE / total.shape[0]
    return Components(jnp.log(jnp.maximum(total, least)), means, jax.vmap(_cholesky)(covariances))
