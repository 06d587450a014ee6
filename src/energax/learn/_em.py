"""Expectation maximisation on the pair `statistics` / `maximise`."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import log_posterior_table
from ..errors import BadInput, Unsuitable
from ..finite import Assignments
from ..fitting import Learner
from ..parameters import constrained_maximum, recentred


class EMState(eqx.Module):
    """For minibatches: running means of statistics, the energy they are centred at, and their number."""

    statistics: Any
    reference: Any
    count: jax.Array
    seen: jax.Array  # the weight of all rows so far


class EM(Learner):
    """θ ← argmax_θ' E_{p(z | x, θ)} [−e(x, z; θ')].

    The E-step needs a finite hidden variable (its posterior is exact: knowledge, or
    enumeration); the M-step is the energy's own: `statistics(data, posterior)` are sums over
    rows, `maximise(statistics)` makes the new θ of them. Since statistics add, the full
    batch, chunks, minibatches, weights and devices are all this one piece of code.

    Args:
        temperature: posterior ∝ exp(−e / temperature): 1 is EM, above it deterministic
            annealing, and 0 is hard EM (the best z takes the whole row, as in k-means).
        tol: stop when the mean objective (or the parameters, by their summed squared change)
            moves by no more than this.
        decay: for minibatches, the exponent κ in (½, 1] of the step size (t + 2)^−κ with which
            new statistics replace old ones; None uses only the batch at hand.
        chunk: rows whose posterior is held at one time.

    Dempster, Laird and Rubin (1977); for minibatches Cappé and Moulines (2009), On-line
    expectation-maximization algorithm for latent data models.
    """

    monotone = True
    matmul_precision = "highest"

    temperature: Any
    tol: Any = 1e-3
    criterion: Literal["objective", "parameters"] = eqx.field(static=True, default="objective")
    decay: float | None = None
    chunk: int = eqx.field(static=True, default=1024)

    def __init__(
        self,
        *,
        temperature: Any = 1.0,
        hard: bool = False,
        tol: Any = 1e-3,
        criterion: Literal["objective", "parameters"] = "objective",
        decay: float | None = None,
        chunk: int = 1024,
    ):
        if decay is not None and not 0.5 < decay <= 1:
            raise BadInput("decay", repr(decay), "an exponent in (0.5, 1]")
        if isinstance(temperature, (int, float)) and temperature < 0:
            raise BadInput("temperature", repr(temperature), "a number >= 0")
        self.temperature = 0.0 if hard else temperature
        self.tol, self.criterion, self.decay, self.chunk = tol, criterion, decay, chunk

    def check(self, energy, data):
        lacking = [m for m in ("statistics", "maximise") if not hasattr(energy, m)]
        if lacking:
            raise Unsuitable(
                f"EM needs an M-step, but {type(energy).__name__} has no {' and no '.join(lacking)}. "
                "Learn it by descent: Descent(NegativeLogLikelihood(), optimizer)."
            )

    def init(self, energy, batch, key, trainable):
        if self.decay is None:
            return EMState(None, None, jnp.zeros((), jnp.int32), jnp.zeros((), batch.weight.dtype))
        shapes = eqx.filter_eval_shape(lambda e, b: self._expect(e, b)[0], energy, batch)
        statistics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return EMState(statistics, energy, jnp.zeros((), jnp.int32), jnp.zeros((), batch.weight.dtype))

    def _expect(self, energy, batch):
        """Σ over rows of the expected statistics, and of the objective."""

        cold = isinstance(self.temperature, (int, float)) and self.temperature == 0

        def chunk(rows, weight):
            if cold and hasattr(energy, "hard_statistics"):
                statistics, objective = energy.hard_statistics(rows, weight)
                return statistics, -objective
            joint = log_posterior_rows(energy, rows)
            posterior, objective = tempered_posterior(joint, self.temperature)
            kept = jnp.where(weight > 0, objective, 0)
            posterior = posterior * weight[:, None].astype(posterior.dtype)
            return energy.statistics(rows, posterior), -jnp.sum(weight * kept)

        return batch.sum_chunks(chunk, self.chunk)

    def step(self, energy, state, batch, key, trainable):
        statistics, loss = self._expect(energy, batch)
        share = batch.weight.sum()
        terms = {"negative log-likelihood": loss / _or_one(share)}
        if self.decay is not None:
            state, statistics = self._blended(energy, state, statistics, share)
        new = constrained_maximum(energy, statistics, trainable)
        # A batch of nothing but padding says nothing.
        keep = lambda a, b: jnp.where(share > 0, b, a) if eqx.is_array(a) else a
        return jax.tree.map(keep, energy, new), state, terms

    def _blended(self, energy, state, statistics, share):
        """Old statistics and new ones, as means a row; and their sum over all the rows seen."""
        fresh = jax.tree.map(lambda s: s / _or_one(share).astype(s.dtype), statistics)
        rate = jnp.where(state.count == 0, 1.0, (state.count + 2.0) ** -self.decay)
        rate = jnp.where(share > 0, rate, 0.0)
        # Statistics that are centred at the old θ must be carried over to the new one.
        old = recentred(energy, state.statistics, state.reference)
        blend = lambda a, b: (1 - rate).astype(a.dtype) * a + rate.astype(a.dtype) * b
        mixed = jax.tree.map(blend, old, fresh)
        seen = state.seen + share.astype(state.seen.dtype)
        count = state.count + (share > 0).astype(state.count.dtype)
        whole = jax.tree.map(lambda s: s * seen.astype(s.dtype), mixed)
        return EMState(mixed, energy, count, seen), whole

    def evaluate(self, energy, state, batch, key):
        _, loss = self._expect(energy, batch)
        return {"negative log-likelihood": loss / _or_one(batch.weight.sum())}

    def converged(self, before, after, old, new):
        if self.criterion == "objective":
            return jnp.abs(before - after) <= self.tol
        leaves = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        moved = [jnp.sum((a - b) ** 2) for a, b in leaves if eqx.is_inexact_array(a)]
        return sum(moved) <= self.tol


def _or_one(weight: Any) -> Any:
    return jnp.where(weight > 0, weight, 1)


def log_posterior_rows(energy, rows) -> Any:
    """log p(x, z) of every row and every joint value of the hidden variables, (n, k)."""
    if hasattr(energy, "log_posterior"):
        return energy.log_posterior(rows)
    hidden = Assignments({k: v for k, v in energy.spaces.items() if k not in rows})
    hidden.require("The E-step", "Use a variational or a sampled posterior instead: ELBO.")
    return jax.vmap(lambda row: log_posterior_table(energy, row, hidden))(rows)


def tempered_posterior(joint: Any, temperature: Any) -> tuple[Any, Any]:
    """(n, k) posteriors at a temperature, and each row's objective: T log Σ exp(joint / T)."""
    if isinstance(temperature, (int, float)) and temperature == 0:
        best = jnp.argmax(joint, axis=1)
        return jax.nn.one_hot(best, joint.shape[1], dtype=joint.dtype), joint.max(1)
    scaled = joint / temperature
    evidence = jax.nn.logsumexp(scaled, axis=1)
    return jnp.exp(scaled - evidence[:, None]), temperature * evidence
