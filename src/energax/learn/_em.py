"""Expectation maximisation: on the pair `statistics` / `maximise`, or by descent where there is none."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ..batch import weighted
from ..energy import is_static_value, log_posterior_table
from ..errors import BadInput, Unsuitable, check_whole_number
from ..finite import ENUMERATION_LIMIT, Assignments
from ..fitting import Learner, check_setting
from ..parameters import constrained, constrained_maximum, has_m_step, recentred, unconstrained
from ._requirements import by_encoder, check_joint, check_marginals, has_log_partition


class EMState(eqx.Module):
    """Means of statistics, the energy they are centred at, and of how many batches and rows they are."""

    statistics: Any
    reference: Any
    count: jax.Array
    seen: jax.Array  # the weight of all rows so far
    optimizer: Any = None  # moments of the M-step by descent


class EM(Learner):
    """θ ← argmax_θ' E_{p(z | x, θ)} [−e(x, z; θ')].

    The E-step needs a finite hidden variable (its posterior is exact: knowledge, or
    enumeration); the M-step is the energy's own: `statistics(data, posterior)` are sums over
    rows, `maximise(statistics)` makes the new θ of them. Since statistics add, the full
    batch, chunks, minibatches, weights and devices are all this one piece of code.

    An energy without `maximise` (or any, if an `optimizer` is named) has its M-step by descent:
    `m_steps` steps on E_{p(z | x, θ)}[e(x, z; θ')] + log Z(θ'), the posterior held, through the
    bijections of the parameters. This is generalised EM: an M-step that lowers that expectation
    lowers the negative log-likelihood at least as much. The line search of the default optimizer
    sees to it; a step of a fixed size does so if it is small enough.

    Args:
        temperature: posterior ∝ exp(−e / temperature): 1 is EM, above it deterministic
            annealing, and 0 is hard EM (the best z takes the whole row, as in k-means).
        tol: stop when the mean objective (or the parameters, by their summed squared change)
            moves by no more than this.
        decay: for minibatches, the exponent κ in (½, 1] of the step size (t + 2)^−κ with which
            new statistics replace old ones (a batch that is larger or smaller than usual counts by its
            rows); None uses only the batch at hand.
        chunk: rows whose posterior is held at one time.
        optimizer: any Optax optimizer for an M-step by descent. It keeps its state from M-step to
            M-step; the default, L-BFGS, begins each anew, since its curvature is that of one
            posterior.
        m_steps: how many of its steps an M-step takes.
        keep_statistics: leave the means of the last statistics in the state, for minibatches to go on from.

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
    optimizer: optax.GradientTransformation | None = None
    m_steps: int = eqx.field(static=True, default=5)
    keep_statistics: bool = eqx.field(static=True, default=False)

    def __init__(
        self,
        *,
        temperature: Any = 1.0,
        hard: bool = False,
        tol: Any = 1e-3,
        criterion: Literal["objective", "parameters"] = "objective",
        decay: float | None = None,
        chunk: int = 1024,
        optimizer: optax.GradientTransformation | None = None,
        m_steps: int = 5,
        keep_statistics: bool = False,
    ):
        check_setting("decay", decay, lambda decay: 0.5 < decay <= 1, "an exponent in (0.5, 1], or None")
        check_setting("temperature", temperature, lambda t: 0 <= t < np.inf, "a number >= 0")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        if criterion not in ("objective", "parameters"):
            raise BadInput("criterion", repr(criterion), "'objective' or 'parameters'")
        check_whole_number("chunk", chunk)
        if optimizer is not None and decay is not None:
            raise BadInput("decay", "both decay= and optimizer=", "one: decay blends what `maximise` takes")
        if not isinstance(m_steps, int) or m_steps < 1:
            raise BadInput("m_steps", repr(m_steps), "a whole number >= 1")
        if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
            found = type(optimizer).__name__
            raise BadInput("optimizer", found, "an Optax optimizer, or None", "Try optax.adam(1e-2).")
        self.optimizer, self.m_steps, self.keep_statistics = optimizer, m_steps, keep_statistics
        self.temperature = 0.0 if hard else temperature
        self.tol, self.criterion, self.decay, self.chunk = tol, criterion, decay, chunk

    def check(self, energy, data):
        name = type(energy).__name__
        if hasattr(energy, "expectations"):
            self._check_structure(energy, data)
            return
        hidden = {k: v for k, v in energy.spaces.items() if k not in data}
        endless = [f"{k!r} in {v!r}" for k, v in hidden.items() if not v.is_finite]
        if endless:
            raise Unsuitable(
                f"EM needs finite hidden variables, but {name} has {', '.join(endless)}. "
                f"{by_encoder(energy, hidden)}"
            )
        check_marginals(self, energy, data)
        if not self._descends(energy):
            return
        check_joint(self, energy)
        if self.decay is not None:
            raise Unsuitable(
                f"EM(decay=) blends sums over rows, but {name} has no `statistics` and `maximise` to make "
                "and use them. Leave decay out: every batch then is an M-step by descent."
            )
        if not has_log_partition(energy):
            if has_m_step(energy):
                raise Unsuitable(
                    f"EM by descent needs log Z of {name}. Leave optimizer out: it has `maximise`."
                )
            raise Unsuitable(
                f"EM needs an M-step, but {name} has no `statistics` and `maximise`, and for one by descent "
                "no log Z. Give it either; the class of a mixture's components says `normalised = True` if "
                "exp(−e(x, z)) is a density of x for every z."
            )

    def _check_structure(self, energy, data):
        """An M-step by descent lists the hidden values, which a structure has too many of."""
        hidden = {k: v for k, v in energy.spaces.items() if k not in data}
        listed = all(s.is_finite for s in hidden.values()) and Assignments(hidden).n <= ENUMERATION_LIMIT
        if self._descends(energy) and not listed:
            raise Unsuitable(
                f"EM needs the M-step of every part of {type(energy).__name__}, and one has no `statistics` "
                "and `maximise`. Give it both, or learn by Descent(NegativeLogLikelihood(), optimizer)."
            )

    def _descends(self, energy):
        return self.optimizer is not None or not has_m_step(energy)

    def init(self, energy, batch, key, trainable):
        none = jnp.zeros((), jnp.int32), jnp.zeros((), batch.weight.dtype)
        if self.optimizer is not None:
            free = eqx.filter(unconstrained(energy), trainable)
            return EMState(None, None, *none, self.optimizer.init(free))
        if self.decay is None and not self.keep_statistics:
            return EMState(None, None, *none)
        shapes = eqx.filter_eval_shape(lambda e, b: self._expect(e, b)[0], energy, batch)
        statistics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return EMState(statistics, energy, *none)

    def _expect(self, energy, batch):
        """Σ over rows of the expected statistics, and of the objective.

        An energy that has such sums without a posterior of every row says so: `expected_statistics`.
        """
        at_once = getattr(energy, "expected_statistics", lambda *_: None)

        def chunk(rows, weight):
            found = at_once(rows, weight, self.temperature)
            if found is not None:
                statistics, objective = found
                return statistics, -objective
            posterior, objective = expectations(energy, rows, self.temperature)
            kept = jnp.where(weight > 0, objective, 0)
            by_rows = lambda p: weighted(weight.reshape(-1, *(1,) * (p.ndim - 1)), p)
            posterior = jax.tree.map(by_rows, posterior)
            return energy.statistics(rows, posterior), -jnp.sum(weight * kept)

        return batch.sum_chunks(chunk, self.chunk)

    def _by_descent(self, energy, state, batch, trainable):
        """`m_steps` steps down the expected energy under the posterior of θ as it was."""
        moving, still = eqx.partition(unconstrained(energy), trainable)
        share = _or_one(batch.weight.sum())

        def expected(moving):
            new = constrained(eqx.combine(moving, still))

            @jax.checkpoint
            def chunk(rows, weight):
                posterior, _ = tempered_posterior(log_posterior_rows(energy, rows), self.temperature)
                # A row that counts for nothing, or a z that is impossible, may have any energy.
                counts = (weight[:, None] > 0) & (posterior > 0)
                energies = jnp.where(counts, -log_posterior_rows(new, rows), 0)
                return jnp.sum(weight * jnp.sum(energies * jnp.where(counts, posterior, 0), axis=1))

            return batch.sum_chunks(chunk, self.chunk) / share + new.log_partition()

        optimizer = optax.with_extra_args_support(optax.lbfgs() if self.optimizer is None else self.optimizer)
        start = optimizer.init(moving) if self.optimizer is None else state.optimizer

        def down(_, carry):
            moving, memory = carry
            value, slope = jax.value_and_grad(expected)(moving)
            updates, memory = optimizer.update(
                slope, memory, moving, value=value, grad=slope, value_fn=expected
            )
            return optax.apply_updates(moving, updates), memory

        moving, memory = jax.lax.fori_loop(0, self.m_steps, down, (moving, start))
        if self.optimizer is not None:
            state = EMState(None, None, state.count, state.seen, memory)
        return constrained(eqx.combine(moving, still)), state

    def _loss(self, energy, batch):
        """The mean objective alone."""

        def chunk(rows, weight):
            _, objective = tempered_posterior(log_posterior_rows(energy, rows), self.temperature)
            return -jnp.sum(weight * jnp.where(weight > 0, objective, 0))

        loss = batch.sum_chunks(chunk, self.chunk) / _or_one(batch.weight.sum())
        return {"negative log-likelihood": loss + energy.log_partition()}

    def step(self, energy, state, batch, key, trainable):
        if self._descends(energy):
            new, moved = self._by_descent(energy, state, batch, trainable)
            keep = lambda a, b: jnp.where(batch.weight.sum() > 0, b, a) if eqx.is_array(a) else a
            terms = self._loss(energy, batch)
            return (*jax.tree.map(keep, (energy, state), (new, moved)), terms)
        statistics, loss = self._expect(energy, batch)
        share = batch.weight.sum()
        terms = {"negative log-likelihood": loss / _or_one(share)}
        if self.decay is not None:
            state, statistics = self._blended(energy, state, statistics, share)
        elif self.keep_statistics:
            seen = share.astype(state.seen.dtype)
            state = EMState(_means(statistics, share), energy, jnp.ones_like(state.count), seen)
        new = constrained_maximum(energy, statistics, trainable)
        # A batch of nothing but padding says nothing.
        keep = lambda a, b: jnp.where(share > 0, b, a) if eqx.is_array(a) else a
        return jax.tree.map(keep, energy, new), state, terms

    def _blended(self, energy, state, statistics, share):
        """Old statistics and new ones, as means a row; and their sum over all the rows seen."""
        fresh = _means(statistics, share)
        # A batch counts by its rows: one of half the usual size forgets half as much.
        usual = state.seen / _or_one(state.count)
        forgets = (1 - (state.count + 2.0) ** -self.decay) ** (share / _or_one(usual))
        rate = jnp.where(share > 0, jnp.where(state.count == 0, 1.0, 1 - forgets), 0.0)
        # Statistics that are centred at the old θ must be carried over to the new one.
        old = recentred(energy, state.statistics, state.reference)
        blend = lambda a, b: (1 - rate).astype(a.dtype) * a + rate.astype(a.dtype) * b
        mixed = jax.tree.map(blend, old, fresh)
        seen = state.seen + share.astype(state.seen.dtype)
        count = state.count + (share > 0).astype(state.count.dtype)
        whole = jax.tree.map(lambda s: s * seen.astype(s.dtype), mixed)
        return EMState(mixed, energy, count, seen), whole

    def evaluate(self, energy, state, batch, key):
        if self._descends(energy):
            return self._loss(energy, batch)
        _, loss = self._expect(energy, batch)
        return {"negative log-likelihood": loss / _or_one(batch.weight.sum())}

    def converged(self, before, after, old, new):
        if self.criterion == "objective":
            return jnp.abs(before - after) <= self.tol
        leaves = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        moved = [jnp.sum((a - b) ** 2) for a, b in leaves if eqx.is_inexact_array(a)]
        return sum(moved) <= self.tol


def _means(statistics: Any, share: Any) -> Any:
    return jax.tree.map(lambda s: s / _or_one(share).astype(s.dtype), statistics)


def _or_one(weight: Any) -> Any:
    return jnp.where(weight > 0, weight, 1)


def expectations(energy, rows, temperature) -> tuple[Any, Any]:
    """What is expected of the hidden, rows first, and every row's objective.

    For most energies the posterior of one finite variable, (n, k). One whose hidden part is a whole
    structure (a chain, a network) answers by its own `expectations`, with the marginals that its
    `statistics` needs.
    """
    if hasattr(energy, "expectations"):
        return energy.expectations(rows, temperature)
    return tempered_posterior(log_posterior_rows(energy, rows), temperature)


def log_posterior_rows(energy, rows) -> Any:
    """log p(x, z) of every row and every joint value of the hidden variables, (n, k)."""
    if hasattr(energy, "log_posterior"):
        return energy.log_posterior(rows)
    hidden = Assignments({k: v for k, v in energy.spaces.items() if k not in rows})
    hidden.check_size("The E-step", "Use a variational or a sampled posterior instead: ELBO.")
    return jax.vmap(lambda row: log_posterior_table(energy, row, hidden))(rows)


def tempered_posterior(joint: Any, temperature: Any) -> tuple[Any, Any]:
    """(n, k) posteriors at a temperature, and each row's objective: T log Σ exp(joint / T)."""
    if is_static_value(0, temperature):
        best = jnp.argmax(joint, axis=1)
        return jax.nn.one_hot(best, joint.shape[1], dtype=joint.dtype), joint.max(1)
    scaled = joint / temperature
    evidence = jax.nn.logsumexp(scaled, axis=1)
    return jnp.exp(scaled - evidence[:, None]), temperature * evidence
