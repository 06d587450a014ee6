"""Hidden Markov chains as arrays: forward, backward, smoothing, best paths, sampled paths.

Nothing here knows a model. Every function takes log π (k,), log A (k, k) and log p(x_t | z_t):
(steps, k) of one sequence, or (n, steps, k) of many; answers have the same leading axes. A
missing observation is a row of zeros. `lengths` (n,) says where sequences that are padded at their end
really end; steps past an end should be rows of zeros too.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..errors import BadInput
from ._recursion_kernels import (
    FUSED_STATES,
    Messages,
    associative,
    finite_max,
    in_logs,
    in_place,
    log_messages,
    lost_nothing,
    over_states,
    rescued,
    scaled,
    scaled_evidence,
    surely_exact,
)

Kind = Literal["scaled", "log", "associative"]
_KINDS = ("scaled", "log", "associative")
_PARALLEL_STATES = 32  # above it k³ a step outweighs what many processors gain
_PARALLEL_NUMBERS = 2**28  # that the k × k matrices of all steps may hold


class Smoothed(NamedTuple):
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


# -- layout: sequences become lanes of time-major arrays ----------------------------------------------


def _lanes(log_likelihood: Any, ragged: bool = False) -> tuple[Any, bool]:
    """(steps, k) as it is, and many rows (or one that ends early, if `ragged`) as (steps, k, n)."""
    many = log_likelihood.ndim == 3 and (log_likelihood.shape[0] > 1 or ragged)
    if many:
        # Turned once and for all: fused into all that reads it, it would be turned in each of them.
        return lax.optimization_barrier(jnp.transpose(log_likelihood, (1, 2, 0))), True
    return log_likelihood.reshape(log_likelihood.shape[-2:]), False


def _rows(values: Any, like: Any, many: bool) -> Any:
    """The inverse, for values with lanes last."""
    if many:
        return jnp.moveaxis(values, -1, 0)
    return values[None] if like.ndim == 3 else values


def _weights_of_steps(steps: int, lengths: Any, many: bool, dtype: Any) -> Any:
    """1 for steps of a sequence, 0 past its end: (steps,) or (steps, n); None if all count."""
    if lengths is None:
        return None
    lengths = jnp.asarray(lengths).reshape(-1)
    counts = jnp.arange(steps)[:, None] < lengths
    return (counts if many else counts[:, 0]).astype(dtype)


def _checked_kind(kind: Kind | None, x: Any) -> Kind:
    if kind is None:
        return kind_for(x.shape[1], x.shape[0], x[0, 0].size)
    if kind not in _KINDS:
        raise BadInput("kind", repr(kind), f"one of {', '.join(map(repr, _KINDS))}")
    return kind


def _answered(log_initial, log_transition, x, kind: Kind | None, both: bool, answer, in_logarithms) -> Any:
    """answer(messages) of the chosen kind, and what the logarithms say wherever that would be inexact."""
    kind = _checked_kind(kind, x)
    if kind == "log":
        return in_logarithms()
    messages = (scaled if kind == "scaled" else associative)(log_initial, log_transition, x, both)

    def careful(found):
        good = lost_nothing(log_transition, x, messages, both)
        return lax.cond(good, lambda: found, in_logarithms)

    return rescued(surely_exact(log_transition, messages), answer(messages), careful)


# -- sums over paths -------------------------------------------------------------------------------


def filtered(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, lengths: Any = None, kind: Any = None
) -> tuple[Any, Any]:
    """(log p(x), p(z_t | x_1 … x_t) of every step).

    >>> coin = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> filtered(*coin, jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2]])))[1][:, 0].tolist()    # the umbrella
    [0.8181..., 0.8833...]
    """
    x, many = _lanes(log_likelihood)
    counts = _weights_of_steps(x.shape[0], lengths, many, x.dtype)

    total, states = _filtered(log_initial, log_transition, x, counts, kind)
    return _rows(total, log_likelihood, many), _rows(states, log_likelihood, many)


def _filtered(log_initial, log_transition, x, counts, kind) -> tuple[Any, Any]:
    def answer(messages):
        terms = messages.log_scale if counts is None else jnp.where(counts > 0, messages.log_scale, 0)
        return terms.sum(0), messages.filtered

    by_logs = lambda: answer(in_logs(log_initial, log_transition, x, False))
    return _answered(log_initial, log_transition, x, kind, False, answer, by_logs)


@jax.custom_vjp
def log_evidence(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Any:
    """log p(x), one number a sequence. Its gradients are expected counts, exact and never NaN.

    Steps past an end that are rows of zeros change nothing, since transitions sum to one.
    """
    x, many = _lanes(log_likelihood)
    if _checked_kind(None, x) != "scaled":
        return filtered(log_initial, log_transition, log_likelihood)[0]
    total, good = scaled_evidence(log_initial, log_transition, x)
    whole = lambda _: _filtered(log_initial, log_transition, x, None, "scaled")[0]
    return _rows(rescued(good, total, whole), log_likelihood, many)


def _evidence_forward(log_initial, log_transition, log_likelihood):
    found = smoothed(log_initial, log_transition, log_likelihood)
    return found.log_likelihood, found


def _evidence_backward(found, slope):
    many = found.states.ndim == 3
    weigh = lambda a: (slope.reshape(*slope.shape, *(1,) * (a.ndim - slope.ndim)) * a) if many else slope * a
    first, pairs, states = map(weigh, (found.first, found.pairs, found.states))
    return (first.sum(0), pairs.sum(0), states) if many else (first, pairs, states)


log_evidence.defvjp(_evidence_forward, _evidence_backward)


def smoothed(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, lengths: Any = None, kind: Any = None
) -> Smoothed:
    """Forward and backward: what Baum-Welch and posterior decoding are made of.

    Memory is O(steps · k): pairs are summed over steps as they come. The scaled recursion is
    used where it loses nothing, and the one in logarithms elsewhere.

    Baum, Petrie, Soules and Weiss (1970), A maximization technique occurring in the statistical
    analysis of probabilistic functions of Markov chains.
    """
    x, many = _lanes(log_likelihood)
    counts = _weights_of_steps(x.shape[0], lengths, many, x.dtype)
    by_logs = lambda: _summed_in_logs(log_initial, log_transition, x, counts)
    answer = lambda messages: _summed(log_transition, x, messages, counts)
    found = _answered(log_initial, log_transition, x, kind, True, answer, by_logs)
    return Smoothed(*(_rows(part, log_likelihood, many) for part in found))


def _summed(log_transition, x, messages: Messages, counts) -> Smoothed:
    """γ and Σ ξ of messages: with v_t the onward one, p(z_t, z_{t+1} | x) ∝ α_t A v_{t+1}."""
    ahead, onward = messages.filtered, messages.onward
    transition = jnp.exp(log_transition)
    after = _stepped_back(transition, onward[1:])
    back = jnp.concatenate([after, jnp.ones_like(onward[:1])])
    states = ahead * back
    total = states.sum(1)
    states = states / total[:, None]
    terms = messages.log_scale
    share = ahead[:-1] / total[:-1, None]
    if counts is not None:
        terms = jnp.where(counts > 0, terms, 0)
        states, share = states * counts[:, None], share * counts[1:, None]
    pairs = over_states(transition, x[0]) * jnp.einsum("ti...,tj...->ij...", share, onward[1:])
    return Smoothed(terms.sum(0), states[0], pairs, states)


def _stepped_back(transition: Any, onward: Any) -> Any:
    """Σ_j A_ij v_tj of every step; for lanes written out, which is quicker than so thin a product."""
    if onward.ndim == 2 or len(transition) > FUSED_STATES:
        return jnp.einsum("ij,tj...->ti...", transition, onward)
    terms = [column[:, None] * onward[:, j, None] for j, column in enumerate(transition.T)]
    return sum(terms[1:], terms[0])


def _summed_in_logs(log_initial, log_transition, x, counts) -> Smoothed:
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
        return totals + terms * counted, terms.sum(1)

    none = jnp.zeros((x.shape[1], *x.shape[1:]), x.dtype)
    pairs, before = lax.scan(pairs_at, none, (ahead[:-1], onward[1:], weight[1:]))
    states = jnp.concatenate([before, jax.nn.softmax(ahead[-1:], axis=1)])
    return Smoothed(total, states[0] * weight[0], pairs, states * weight[:, None])


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
    x, many = _lanes(log_likelihood, lengths is not None)
    best = _max_pass(log_initial, log_transition, x, lengths, _checked_kind(kind, x))
    parallel = _checked_kind(kind, x) == "associative"
    states, value = _traced_back(log_transition, best, lengths if many else None, x, parallel)
    return _rows(states, log_likelihood, many), _rows(value, log_likelihood, many)


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
