"""Hidden Markov chains as arrays: forward, backward, smoothing, best paths, sampled paths.

Nothing here knows a model. Every function takes log π (k,), log A (k, k) and log p(x_t | z_t):
(steps, k) of one sequence, or (n, steps, k) of many, where sums are asked also `Coded`; answers have
the same leading axes. A missing observation is a row of zeros. `lengths` (n,) says where sequences that
are padded at their end really end; steps past an end are rows of zeros too.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ...batch import weighted
from ...errors import BadInput
from .hmm_kernels import (
    FUSED_STATES,
    Messages,
    associative,
    in_logs,
    in_place,
    log_messages,
    no_underflow,
    over_states,
    recompute_if_inexact,
    scaled,
    scaled_evidence,
    sums,
    surely_exact,
)
from .observations import Coded, StepLikelihoods, as_rows, finite_max, in_lanes, to_time_major

Kind = Literal["scaled", "log", "associative"]
_KINDS = ("scaled", "log", "associative")
_PARALLEL_STATES = 32  # above it k³ a step outweighs what many processors gain
_PARALLEL_NUMBERS = 2**28  # that the k × k matrices of all steps may hold


class StatePosterior(NamedTuple):
    """log p(x), p(z_1 | x) (k,), Σ_t p(z_t, z_{t+1} | x) (k, k) and p(z_t | x) (steps, k)."""

    log_likelihood: Any
    first: Any
    pairs: Any
    states: Any


def kind_for(k: int, steps: int, lanes: int = 1, backend: str | None = None) -> Kind:
    """Which recursion is quickest: products of matrices in parallel pay only on accelerators.

    >>> kind_for(8, 10_000, backend="cpu"), kind_for(8, 10_000, backend="gpu")
    ('scaled', 'associative')
    """
    backend = jax.default_backend() if backend is None else backend
    parallel = backend != "cpu" and k <= _PARALLEL_STATES and lanes * steps * k * k <= _PARALLEL_NUMBERS
    return "associative" if parallel else "scaled"


def _weights_of_steps(seen: StepLikelihoods, lengths: Any, weight: Any, many: bool) -> Any:
    """How much each step counts, 0 past an end: (steps,) or (steps, n); None if all count as one."""
    if lengths is None and weight is None:
        return None
    steps = seen.shape[0]
    counts = jnp.ones((steps, 1), bool)
    if lengths is not None:
        counts = jnp.arange(steps)[:, None] < jnp.asarray(lengths).reshape(-1)
    if weight is not None:
        counts = jnp.where(counts, jnp.asarray(weight).reshape(-1), 0)
    return counts if many else counts[:, 0]


def _checked_kind(kind: Kind | None, k: int, steps: int, lanes: int) -> Kind:
    if kind is None:
        return kind_for(k, steps, lanes)
    if kind not in _KINDS:
        raise BadInput("kind", repr(kind), f"one of {', '.join(map(repr, _KINDS))}")
    return kind


def _kind_of_sums(kind: Kind | None, seen: StepLikelihoods) -> Kind:
    steps, *lanes, k = seen.shape
    return _checked_kind(kind, k, steps, math.prod(lanes))


def _answered(
    log_initial, log_transition, seen: StepLikelihoods, kind: Kind | None, both: bool, answer, by_logs
) -> Any:
    """answer(messages) of the chosen kind, and what the logarithms say wherever that would be inexact."""
    kind = _kind_of_sums(kind, seen)
    if kind == "log":
        return by_logs()
    messages = (scaled if kind == "scaled" else associative)(log_initial, log_transition, seen, both)

    def careful(found):
        spelled_out = jnp.moveaxis(seen.log(), 1, -1)
        good = no_underflow(log_initial, log_transition, spelled_out, messages)
        return lax.cond(good, lambda: found, by_logs)

    return recompute_if_inexact(surely_exact(log_transition, messages), answer(messages), careful)


# -- sums over paths -------------------------------------------------------------------------------


def filtered(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, kind: Any = None
) -> tuple[Any, Any]:
    """(log p(x), p(z_t | x_1 … x_t) of every step).

    >>> coin = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> filtered(*coin, jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2]])))[1][:, 0].tolist()    # the umbrella
    [0.8181..., 0.8833...]
    """
    seen, many = to_time_major(log_likelihood)
    total, states = _filtered(log_initial, log_transition, seen, kind)
    return as_rows(total, log_likelihood, many, 0), as_rows(states, log_likelihood, many, 1)


def _filtered(log_initial, log_transition, seen: StepLikelihoods, kind) -> tuple[Any, Any]:
    answer = lambda messages: (messages.total, messages.ahead / sums(messages.ahead))
    by_logs = lambda: answer(in_logs(log_initial, log_transition, seen.log()))
    return _answered(log_initial, log_transition, seen, kind, False, answer, by_logs)


@jax.custom_vjp
def log_evidence(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Any:
    """log p(x), one number a sequence. Its gradients are expected counts, exact and never NaN.

    Steps past an end that are rows of zeros change nothing, since transitions sum to one.
    """
    seen, many = to_time_major(log_likelihood)
    if _kind_of_sums(None, seen) != "scaled":
        return filtered(log_initial, log_transition, log_likelihood)[0]
    total, good = scaled_evidence(log_initial, log_transition, seen)
    whole = lambda _: _filtered(log_initial, log_transition, seen, "scaled")[0]
    return as_rows(recompute_if_inexact(good, total, whole), log_likelihood, many, 0)


def _evidence_forward(log_initial, log_transition, log_likelihood):
    found = smoothed(log_initial, log_transition, log_likelihood)
    return found.log_likelihood, (found, log_likelihood if isinstance(log_likelihood, Coded) else None)


def _evidence_backward(kept, slope):
    found, coded = kept
    many = found.states.ndim == 3
    weigh = lambda a: (slope.reshape(*slope.shape, *(1,) * (a.ndim - slope.ndim)) * a) if many else slope * a
    first, pairs, states = map(weigh, (found.first, found.pairs, found.states))
    if coded is not None:
        states = Coded(jnp.zeros_like(coded.table).at[coded.codes].add(states), None)
    return (first.sum(0), pairs.sum(0), states) if many else (first, pairs, states)


log_evidence.defvjp(_evidence_forward, _evidence_backward)


def smoothed(
    log_initial: Any,
    log_transition: Any,
    log_likelihood: Any,
    *,
    lengths: Any = None,
    weight: Any = None,
    kind: Any = None,
) -> StatePosterior:
    """Forward and backward: what Baum-Welch and posterior decoding are made of.

    With a `weight` (n,) for every sequence its states and transitions count so much, and transitions are
    summed over sequences too, (1, k, k), which one product does.

    Memory is O(steps · k): pairs are summed over steps as they come. The scaled recursion is
    used where it loses nothing, and the one in logarithms elsewhere.

    Baum, Petrie, Soules and Weiss (1970), A maximization technique occurring in the statistical
    analysis of probabilistic functions of Markov chains.
    """
    seen, many = to_time_major(log_likelihood)
    counts, pooled = _weights_of_steps(seen, lengths, weight, many), many and weight is not None
    by_logs = lambda: _summed_in_logs(log_initial, log_transition, seen.log(), counts, pooled)
    answer = lambda messages: _summed(log_transition, messages, counts, pooled)
    found = _answered(log_initial, log_transition, seen, kind, True, answer, by_logs)
    places = StatePosterior(0, 0, 0, 1)
    return StatePosterior(
        *(as_rows(a, log_likelihood, many, at) for a, at in zip(found, places, strict=True))
    )


def _summed(log_transition, messages: Messages, counts, pooled: bool) -> StatePosterior:
    """γ and Σ ξ of messages: with v_t the onward one, p(z_t, z_{t+1} | x) ∝ α_t A v_{t+1}."""
    ahead = messages.ahead
    states = ahead * messages.after
    counts = jnp.ones((), ahead.dtype) if counts is None else counts[..., None].astype(ahead.dtype)
    total, onward = sums(states), messages.onward[1:]
    share = ahead[:-1] * ((counts[1:] if counts.ndim else counts) / total[:-1])
    states = states * (counts / total)
    if pooled:
        share, onward = (a.reshape(-1, a.shape[-1]) for a in (share, onward))
    joined = jnp.einsum("t...i,t...j->...ij", share, onward, precision="highest")
    joined = joined[None] if pooled else joined
    return StatePosterior(messages.total, states[0], jnp.exp(log_transition) * joined, states)


def _summed_in_logs(log_initial, log_transition, x, counts, pooled: bool) -> StatePosterior:
    ahead, top, onward = log_messages(log_initial, log_transition, x)
    across = over_states(log_transition, x[0])
    weight = jnp.ones((x.shape[0], *x.shape[2:]), x.dtype) if counts is None else counts
    # Steps past an end are rows of zeros, and their transitions sum to one: the end may be read anywhere.
    total = top.sum(0) + jax.nn.logsumexp(ahead[-1], axis=0)

    def pairs_at(totals, args):
        here, after, counted = args
        terms = here[:, None] + across + after[None]
        terms = jnp.exp(terms - finite_max(terms.reshape(-1, *terms.shape[2:]), 0))
        sums = terms.sum((0, 1))
        terms = terms / jnp.where(sums > 0, sums, 1)
        return totals + weighted(counted, terms), jnp.moveaxis(terms.sum(1), 0, -1)

    none = jnp.zeros((x.shape[1], *x.shape[1:]), x.dtype)
    pairs, before = lax.scan(pairs_at, none, (ahead[:-1], onward[1:], weight[1:]))
    last = jnp.moveaxis(jax.nn.softmax(ahead[-1:], axis=1), 1, -1)
    states = weighted(weight[..., None], jnp.concatenate([before, last]))
    pairs = jnp.moveaxis(pairs.sum(2, keepdims=True) if pooled else pairs, (0, 1), (-2, -1))
    return StatePosterior(total, states[0], pairs, states)


def pairwise(log_initial: Any, log_transition: Any, log_likelihood: Any, *, kind: Any = None) -> Any:
    """p(z_t, z_{t+1} | x) of every step, (steps − 1, k, k): for a look; `smoothed` sums them."""

    def one(likelihood):
        ahead, _, onward = log_messages(log_initial, log_transition, likelihood)
        terms = ahead[:-1, :, None] + log_transition + onward[1:, None, :]
        return jnp.exp(terms - jax.nn.logsumexp(terms, axis=(1, 2), keepdims=True))

    return jax.vmap(one)(log_likelihood) if log_likelihood.ndim == 3 else one(log_likelihood)


# -- best paths ------------------------------------------------------------------------------------


def viterbi(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, lengths: Any = None, kind: Any = None
) -> tuple[Any, Any]:
    """(the most probable states (steps,), log p(x, those states)); the lowest number wins a tie.

    Viterbi (1967), Error bounds for convolutional codes and an asymptotically optimum decoding algorithm.

    >>> coin = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> viterbi(*coin, jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8]])))[0]
    Array([0, 0, 1], dtype=int32)
    """
    x, many = in_lanes(log_likelihood, lengths is not None)
    kind = _checked_kind(kind, x.shape[1], x.shape[0], x[0, 0].size)
    best, parallel = _max_pass(log_initial, log_transition, x, lengths, kind), kind == "associative"
    states, value = _traced_back(log_transition, best, lengths if many else None, x, parallel)
    return as_rows(states, log_likelihood, many, 1), as_rows(value, log_likelihood, many, 0)


def _max_pass(log_initial, log_transition, x, lengths, kind) -> Any:
    """The best log p(x_1 … x_t, z_1 … z_t) that ends in each state, of every step."""
    first = over_states(log_initial, x[0]) + x[0]
    if kind == "associative" and lengths is None:
        steps = log_transition + jnp.moveaxis(x, 1, -1)[..., None, :]
        start = jnp.broadcast_to(jnp.moveaxis(first, 0, -1)[..., None, :], steps.shape[1:])
        joined = lambda a, b: jnp.max(a[..., :, :, None] + b[..., None, :, :], -2)
        ahead = lax.associative_scan(joined, steps.at[0].set(start))
        return jnp.moveaxis(ahead[..., 0, :], -1, 1)
    across = over_states(log_transition, x[0])
    step = lambda before, here: jnp.max(before[:, None] + across, 0) + here
    if lengths is None or x.ndim == 2:
        return in_place(x.at[0].set(first), step)

    def until_the_end(before, args):
        t, here = args
        new = jnp.where(t < lengths, step(before, here), before)
        return new, new

    _, rest = lax.scan(until_the_end, first, (jnp.arange(1, x.shape[0]), x[1:]))
    return jnp.concatenate([first[None], rest])


def _traced_back(log_transition, best, lengths, x, parallel: bool) -> tuple[Any, Any]:
    k = x.shape[1]
    last = _first_best(best[-1])
    value = best[-1].max(0)
    if k <= FUSED_STATES:
        # All pointers at once, as comparisons of whole rows; then only a look-up is left a step.
        come = best[:-1, 0][:, None] + over_states(log_transition, x[0])[0]
        pointer = jnp.zeros(come.shape, jnp.int32)
        for i in range(1, k):
            other = best[:-1, i][:, None] + over_states(log_transition, x[0])[i]
            pointer, come = jnp.where(other > come, i, pointer), jnp.maximum(come, other)
        if lengths is not None:
            past = jnp.arange(1, x.shape[0])[:, None, None] >= lengths
            pointer = jnp.where(past, jnp.arange(k, dtype=jnp.int32)[:, None], pointer)
        if parallel:
            joined = lambda later, earlier: jnp.take_along_axis(earlier, later, axis=1)
            traced = lax.associative_scan(joined, pointer, reverse=True)
            path = jnp.take_along_axis(traced, jnp.broadcast_to(last, (1, 1, *last.shape)), axis=1)[:, 0]
            return jnp.concatenate([path, last[None]]), value
        look = (lambda row, s: row[s]) if x.ndim == 2 else _picked
        _, path = lax.scan(lambda s, row: (look(row, s),) * 2, last, pointer, reverse=True)
        return jnp.concatenate([path, last[None]]), value

    turned = log_transition.T

    def back(after, args):
        t, here = args
        come = here + (turned[after] if x.ndim == 2 else turned[after].T)
        state = _first_best(come)
        state = state if lengths is None else jnp.where(t >= lengths, after, state)
        return state, state

    _, path = lax.scan(back, last, (jnp.arange(1, x.shape[0]), best[:-1]), reverse=True)
    return jnp.concatenate([path, last[None]]), value


def _picked(row: Any, state: Any) -> Any:
    return jnp.take_along_axis(row, state[None], 0)[0]


def _first_best(scores: Any) -> Any:
    """The number of the largest of (k, *lanes); not by argmax, which is slow in a loop."""
    k = scores.shape[0]
    numbers = jnp.arange(k, dtype=jnp.int32).reshape(k, *(1,) * (scores.ndim - 1))
    return jnp.minimum(jnp.where(scores == scores.max(0), numbers, k).min(0), k - 1).astype(jnp.int32)


def k_best(log_initial: Any, log_transition: Any, log_likelihood: Any, n_best: int) -> tuple[Any, Any]:
    """The `n_best` most probable paths of one sequence, (n_best, steps), best first, and their log p.

    Where there are fewer paths than that, the rest have log p = −∞.

    Seshadri and Sundberg (1994), List Viterbi decoding algorithms with applications.
    """
    x, k = log_likelihood, log_likelihood.shape[-1]
    nothing = jnp.full((k, n_best), -jnp.inf, x.dtype)
    start = nothing.at[:, 0].set(log_initial + x[0])

    def step(scores, here):
        come = scores[:, None, :] + log_transition[:, :, None]  # (from, to, rank)
        best, where = lax.top_k(jnp.swapaxes(come, 0, 1).reshape(k, k * n_best), n_best)
        return best + here[:, None], where.astype(jnp.int32)

    ends, pointers = lax.scan(step, start, x[1:])
    value, slot = lax.top_k(ends.reshape(-1), n_best)

    def back(slot, pointer):
        before = pointer.reshape(-1)[slot]
        # A pointer is a state and a rank at the step before, as `slot` is at this one.
        return before, slot // n_best

    first, rest = lax.scan(back, slot.astype(jnp.int32), pointers, reverse=True)
    paths = jnp.concatenate([(first // n_best)[None], rest])
    return paths.T, value


# -- drawn paths -----------------------------------------------------------------------------------


def sampled(key: Any, filtered_states: Any, log_transition: Any) -> Any:
    """A path from p(z | x), by drawing backwards: the last state, then each given the one after it.

    `filtered_states` (steps, k) are those of `filtered`.

    Scott (2002), Bayesian methods for hidden Markov models.
    """
    logits = jnp.log(filtered_states)
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    last = _first_best(logits[-1] + noise[-1])
    turned = log_transition.T

    def back(after, args):
        here, noise = args
        state = _first_best(here + turned[after] + noise)
        return state, state

    _, path = lax.scan(back, last, (logits[:-1], noise[:-1]), reverse=True)
    return jnp.concatenate([path, last[None]])
