"""Expectation maximisation, with the energy's own M-step (`statistics`, `maximise`) or one by descent."""

from __future__ import annotations

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from .._util.arguments import FLAG, check_arguments, one_of
from .._util.sizes import EM_ROWS
from ..batch import multiply_weight
from ..energy import is_static_value, log_posterior_table
from ..errors import BadInput, Unsuitable, check_whole_number
from ..finite import ENUMERATION_LIMIT, Assignments
from ..fitting import Learner, check_setting
from ..parameters import constrain, m_step, recenter, unconstrain
from ._requirements import check_joint, check_missing, has_log_partition, suggest_encoder


class EMState(eqx.Module):
    """The mean statistics per row, the energy they are centred at, and the number of batches and rows."""

    statistics: Any
    reference: Any
    count: jax.Array  # batches so far
    seen: jax.Array  # the total weight of rows so far
    optimizer: Any = None  # state of the optimizer, for an M-step by descent


class EM(Learner):
    """Expectation maximisation: θ ← argmax_θ' E_{p(z | x, θ)} [−e(x, z; θ')].

    The E-step computes the exact posterior of finite hidden variables, in closed form or by
    enumeration. The M-step is the energy's own: `statistics(data, posterior)` are sums over rows,
    and `maximise(statistics)` returns the energy with the new θ. Since statistics add up, full
    batches, chunks, minibatches, weights and several devices share the same code.

    For an energy without `maximise`, or if an `optimizer` is given, the M-step is descent:
    `m_steps` steps on E_{p(z | x, θ)}[e(x, z; θ')] + log Z(θ') with the posterior fixed, in
    unconstrained parameters. This is generalised EM: an M-step that lowers that expectation
    lowers the negative log-likelihood at least as much. The line search of the default optimizer
    ensures it; a fixed step size does if it is small enough.

    Args:
        temperature: posterior ∝ exp(−e / temperature): 1 is EM, above it deterministic
            annealing, and 0 is hard EM, where the best z gets the whole row, as in k-means.
        hard: the same as temperature=0.
        tol: converged when the criterion changes by at most this; None never converges.
        criterion: "objective", the mean objective, or "parameters", their summed squared change.
        decay: for minibatches, the exponent κ in (½, 1] of the step size (t + 2)^−κ with which
            new statistics replace old ones (adjusted to the rows of the batch if they are more or
            fewer than usual); None uses only the current batch.
        chunk: rows whose posterior is in memory at one time; None chooses by device.
        optimizer: any Optax optimizer for an M-step by descent. It keeps its state from M-step to
            M-step; the default, L-BFGS, starts each M-step anew, since its curvature is that of one
            posterior.
        m_steps: steps of the optimizer per M-step.
        keep_statistics: keep the mean statistics in the state, for minibatches to continue from.

    Dempster, Laird and Rubin (1977), Maximum likelihood from incomplete data via the EM algorithm;
    for minibatches Cappé and Moulines (2009), On-line expectation-maximization algorithm for latent
    data models.

    >>> from energax import Mixture, fit
    >>> from energax.energies import Bernoullis
    >>> X = jnp.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, 1.0]])
    >>> start = Mixture(Bernoullis(jnp.array([[0.4, 0.4], [0.6, 0.6]])))
    >>> fit(start, {"x": X}, EM(), key=0).energy.components.probs.round(2)
    Array([[0., 0.],
           [1., 1.]], dtype=float32)
    """

    monotone = True
    matmul_precision = "highest"

    temperature: Any
    tol: Any = 1e-3
    criterion: Literal["objective", "parameters"] = eqx.field(static=True, default="objective")
    decay: float | None = None
    chunk: int | None = eqx.field(static=True, default=None)
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
        chunk: int | None = None,
        optimizer: optax.GradientTransformation | None = None,
        m_steps: int = 5,
        keep_statistics: bool = False,
    ):
        check_setting("decay", decay, lambda decay: 0.5 < decay <= 1, "an exponent in (0.5, 1], or None")
        check_setting("temperature", temperature, lambda t: 0 <= t < np.inf, "a number >= 0")
        check_setting("tol", tol, lambda tol: tol == tol, "a number, or None")
        criteria = one_of("objective", "parameters")
        check_arguments(locals(), criterion=criteria, hard=FLAG, keep_statistics=FLAG)
        if chunk is not None:
            check_whole_number("chunk", chunk)
        if optimizer is not None and decay is not None:
            expected = "one of them: decay blends statistics, which descent does not use"
            raise BadInput("decay", "both decay= and optimizer=", expected)
        check_whole_number("m_steps", m_steps)
        if optimizer is not None and not isinstance(optimizer, optax.GradientTransformation):
            found = type(optimizer).__name__
            raise BadInput("optimizer", found, "an Optax optimizer, or None", "Try optax.adam(1e-2).")
        self.optimizer, self.m_steps, self.keep_statistics = optimizer, m_steps, keep_statistics
        self.temperature = 0.0 if hard else temperature
        self.tol, self.criterion, self.decay, self.chunk = tol, criterion, decay, chunk

    def check(self, energy, data):
        name = type(energy).__name__
        if energy.knows("expectations"):
            self._check_structure(energy, data)
            return
        hidden = {k: v for k, v in energy.spaces.items() if k not in data}
        infinite = [f"{k!r} in {v!r}" for k, v in hidden.items() if not v.is_finite]
        if infinite:
            raise Unsuitable(
                f"EM needs finite hidden variables, but {name} has {', '.join(infinite)}. "
                f"{suggest_encoder(energy, hidden)}"
            )
        check_missing(self, energy, data)
        if not self._uses_descent(energy):
            return
        check_joint(self, energy)
        self._check_decay(energy)
        if not has_log_partition(energy):
            if energy.has_m_step:
                raise Unsuitable(
                    f"An M-step by descent needs log Z of {name}. Leave optimizer out: {name} has `maximise`."
                )
            raise Unsuitable(
                f"EM needs an M-step, but {name} has no `statistics` and `maximise`, and no log Z for one by "
                "descent. Implement one of them; the components of a mixture have log Z if their class sets "
                "`normalised = True`, which says that exp(−e(x, z)) is a density of x for every z."
            )

    def _check_structure(self, energy, data):
        """Raise if an M-step by descent is needed, and the expected energy is unknown or has no log Z."""
        if not self._uses_descent(energy):
            return
        self._check_decay(energy)
        hidden = {k: v for k, v in energy.spaces.items() if k not in data}
        enumerable = all(s.is_finite for s in hidden.values()) and Assignments(hidden).n <= ENUMERATION_LIMIT
        if not (energy.knows("expected_energy") or enumerable) or not has_log_partition(energy):
            raise Unsuitable(
                f"EM needs the M-step of every part of {type(energy).__name__}, and one has no `statistics` "
                "and `maximise`, and no log Z for one by descent. Implement both; set `normalised = True` in "
                "its class if exp(−e(x, z)) is a density of x; or use Descent(NegativeLogLikelihood(), …)."
            )

    def _check_decay(self, energy):
        if self.decay is not None:
            name = type(energy).__name__
            raise Unsuitable(
                f"EM(decay=) blends statistics, but {name} has no `statistics` and `maximise`. "
                "Leave decay out: every batch is then an M-step by descent."
            )

    def _uses_descent(self, energy):
        return self.optimizer is not None or not energy.has_m_step

    def init(self, energy, batch, key, trainable):
        counts = jnp.zeros((), jnp.int32), jnp.zeros((), batch.weight.dtype)
        if self.optimizer is not None:
            parameters = eqx.filter(unconstrain(energy), trainable)
            return EMState(None, None, *counts, self.optimizer.init(parameters))
        if self.decay is None and not self.keep_statistics:
            return EMState(None, None, *counts)
        shapes = eqx.filter_eval_shape(lambda e, b: self._e_step(e, b)[0], energy, batch)
        statistics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return EMState(statistics, energy, *counts)

    @property
    def _chunk_rows(self) -> int:
        return EM_ROWS.value if self.chunk is None else self.chunk

    def _e_step(self, energy, batch):
        """The sums over rows of the expected statistics and of the objective.

        An energy with `expected_statistics` computes these sums without a posterior of every row.
        """
        at_once = energy.knows("expected_statistics")

        def chunk(rows, weight):
            found = energy.expected_statistics(rows, weight, self.temperature) if at_once else None
            if found is not None:
                statistics, objective = found
                return statistics, -objective
            posterior, objective = self._weighted_expectations(energy, rows, weight)
            return energy.statistics(rows, posterior), -objective

        return batch.sum_chunks(chunk, self._chunk_rows)

    def _weighted_expectations(self, energy, rows, weight):
        """(`expectations` of every row, multiplied by its weight, the weighted sum of the objectives)."""
        posterior, objective = expectations(energy, rows, self.temperature)
        weigh = lambda p: multiply_weight(weight.reshape(-1, *(1,) * (p.ndim - 1)), p)
        return jax.tree.map(weigh, posterior), jnp.sum(multiply_weight(weight, objective))

    def _descent_m_step(self, energy, state, batch, trainable):
        """`m_steps` steps of the optimizer on the expected energy under the posterior of the old θ."""
        parameters, frozen = eqx.partition(unconstrain(energy), trainable)
        total_weight = _or_one(batch.weight.sum())

        def expected_energy(parameters):
            new = constrain(eqx.combine(parameters, frozen))

            @jax.checkpoint
            def chunk(rows, weight):
                if energy.knows("expected_energy"):
                    return new.expected_energy(rows, self._weighted_expectations(energy, rows, weight)[0])
                posterior, _ = tempered_posterior(log_posterior_rows(energy, rows), self.temperature)
                # Rows of weight 0 and values z of probability 0 may have any energy, also infinity.
                counts = (weight[:, None] > 0) & (posterior > 0)
                energies = jnp.where(counts, -log_posterior_rows(new, rows), 0)
                return jnp.sum(weight * jnp.sum(energies * jnp.where(counts, posterior, 0), axis=1))

            return batch.sum_chunks(chunk, self._chunk_rows) / total_weight + new.log_partition()

        optimizer = optax.with_extra_args_support(optax.lbfgs() if self.optimizer is None else self.optimizer)
        start = optimizer.init(parameters) if self.optimizer is None else state.optimizer

        def update(_, carry):
            parameters, memory = carry
            value, gradient = jax.value_and_grad(expected_energy)(parameters)
            updates, memory = optimizer.update(
                gradient, memory, parameters, value=value, grad=gradient, value_fn=expected_energy
            )
            return optax.apply_updates(parameters, updates), memory

        parameters, memory = jax.lax.fori_loop(0, self.m_steps, update, (parameters, start))
        if self.optimizer is not None:
            state = EMState(None, None, state.count, state.seen, memory)
        return constrain(eqx.combine(parameters, frozen)), state

    def _loss(self, energy, batch):
        """The mean objective, without statistics."""

        def chunk(rows, weight):
            return -self._weighted_expectations(energy, rows, weight)[1]

        loss = batch.sum_chunks(chunk, self._chunk_rows) / _or_one(batch.weight.sum())
        return {"negative log-likelihood": loss + energy.log_partition()}

    def step(self, energy, state, batch, key, trainable):
        total_weight = batch.weight.sum()
        # A batch of weight 0 leaves everything as it was.
        keep = lambda old, new: jnp.where(total_weight > 0, new, old) if eqx.is_array(old) else old
        if self._uses_descent(energy):
            new = self._descent_m_step(energy, state, batch, trainable)
            terms = self._loss(energy, batch)
            return (*jax.tree.map(keep, (energy, state), new), terms)
        statistics, loss = self._e_step(energy, batch)
        terms = {"negative log-likelihood": loss / _or_one(total_weight)}
        if self.decay is not None:
            state, statistics = self._blend(energy, state, statistics, total_weight)
        elif self.keep_statistics:
            seen = total_weight.astype(state.seen.dtype)
            state = EMState(_means(statistics, total_weight), energy, jnp.ones_like(state.count), seen)
        new = m_step(energy, statistics, trainable)
        return jax.tree.map(keep, energy, new), state, terms

    def _blend(self, energy, state, statistics, total_weight):
        """(state with old and new mean statistics blended, these times the weight of all rows so far)."""
        fresh = _means(statistics, total_weight)
        # The step size depends on the rows of a batch: one of half the usual size forgets half as much.
        usual = state.seen / _or_one(state.count)
        kept = (1 - (state.count + 2.0) ** -self.decay) ** (total_weight / _or_one(usual))
        rate = jnp.where(total_weight > 0, jnp.where(state.count == 0, 1.0, 1 - kept), 0.0)
        # The old statistics are centred at the old θ and have to be moved to the new one.
        old = recenter(energy, state.statistics, state.reference)
        blend = lambda a, b: (1 - rate).astype(a.dtype) * a + rate.astype(a.dtype) * b
        means = jax.tree.map(blend, old, fresh)
        seen = state.seen + total_weight.astype(state.seen.dtype)
        count = state.count + (total_weight > 0).astype(state.count.dtype)
        sums = jax.tree.map(lambda s: s * seen.astype(s.dtype), means)
        return EMState(means, energy, count, seen), sums

    def term_names(self, energy, state, batch, key, trainable):
        return ("negative log-likelihood",)

    def evaluate(self, energy, state, batch, key):
        if self._uses_descent(energy):
            return self._loss(energy, batch)
        _, loss = self._e_step(energy, batch)
        return {"negative log-likelihood": loss / _or_one(batch.weight.sum())}

    def converged(self, before, after, old, new):
        if self.tol is None:
            return False
        if self.criterion == "objective":
            return jnp.abs(before - after) <= self.tol
        leaves = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
        changes = [jnp.sum((a - b) ** 2) for a, b in leaves if eqx.is_inexact_array(a)]
        return sum(changes) <= self.tol


def _means(statistics: Any, total_weight: Any) -> Any:
    """Statistics divided by the total weight of their rows."""
    return jax.tree.map(lambda s: s / _or_one(total_weight).astype(s.dtype), statistics)


def _or_one(weight: Any) -> Any:
    """The weight, or 1 where it is 0, to divide by."""
    return jnp.where(weight > 0, weight, 1)


def expectations(energy, rows, temperature) -> tuple[Any, Any]:
    """(posterior, objective of every row (n,)), where the posterior is as `energy.statistics` takes it.

    For most energies this is the posterior of the hidden variables, (n, k). Structured energies
    (chains, networks) have a method `expectations` that returns the marginals they need.
    """
    if energy.knows("expectations"):
        return energy.expectations(rows, temperature)
    return tempered_posterior(log_posterior_rows(energy, rows), temperature)


def log_posterior_rows(energy, rows) -> Any:
    """log p(x, z), up to log Z, of every row and every joint value of the hidden variables, (n, k)."""
    if energy.knows("log_posterior"):
        return energy.log_posterior(rows)
    hidden = Assignments({k: v for k, v in energy.spaces.items() if k not in rows})
    hidden.check_size("The E-step", "Use a variational posterior: Descent(ELBO(encoder)).")
    return jax.vmap(lambda row: log_posterior_table(energy, row, hidden))(rows)


def tempered_posterior(joint: Any, temperature: Any) -> tuple[Any, Any]:
    """(posterior at a temperature (n, k), objective T log Σ exp(joint / T) of every row (n,))."""
    if is_static_value(0, temperature):
        best = jnp.argmax(joint, axis=1)
        return jax.nn.one_hot(best, joint.shape[1], dtype=joint.dtype), joint.max(1)
    scaled = joint / temperature
    most = jax.lax.stop_gradient(scaled.max(1, keepdims=True))
    most = jnp.where(jnp.isfinite(most), most, 0)
    terms = jnp.exp(scaled - most)  # once, for the posterior and for the sum
    total = terms.sum(1, keepdims=True)
    return terms / total, temperature * (jnp.log(total) + most)[:, 0]
