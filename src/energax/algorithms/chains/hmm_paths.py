"""Paths of a hidden Markov chain: the most probable one, the k most probable ones, sampled ones.

The arguments are those of `hmm`, with log p(x_t | z_t) as an array.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .hmm import check_kind
from .hmm_kernels import FUSED_STATES, expand_lanes, scan_in_place
from .observations import to_batch_major, to_lanes_last


def viterbi(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, lengths: Any = None, kind: Any = None
) -> tuple[Any, Any]:
    """(the most probable states (steps,), log p(x, those states)); a tie goes to the lowest state number.

    Viterbi (1967), Error bounds for convolutional codes and an asymptotically optimum decoding algorithm.

    >>> coin = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> viterbi(*coin, jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2], [0.1, 0.8]])))[0]
    Array([0, 0, 1], dtype=int32)
    """
    x, many = to_lanes_last(log_likelihood, lengths is not None)
    kind = check_kind(kind, x.shape[1], x.shape[0], x[0, 0].size)
    scores = _max_pass(log_initial, log_transition, x, lengths, kind)
    states = _trace_back(log_transition, scores, lengths if many else None, kind == "associative")
    value = scores[-1].max(0)
    return to_batch_major(states, log_likelihood, many, 1), to_batch_major(value, log_likelihood, many, 0)


def _max_pass(log_initial, log_transition, x, lengths, kind) -> Any:
    """max log p(x_1 … x_t, z_1 … z_t) over paths that end in each state, (steps, k, *lanes)."""
    first = expand_lanes(log_initial, x[0]) + x[0]
    if kind == "associative" and lengths is None:
        return _associative_max_pass(first, log_transition, x)
    transition = expand_lanes(log_transition, x[0])
    step = lambda before, here: jnp.max(before[:, None] + transition, 0) + here
    if lengths is None or x.ndim == 2:
        return scan_in_place(x.at[0].set(first), step)

    def step_until_end(before, args):
        t, here = args
        new = jnp.where(t < lengths, step(before, here), before)
        return new, new

    _, rest = lax.scan(step_until_end, first, (jnp.arange(1, x.shape[0]), x[1:]))
    return jnp.concatenate([first[None], rest])


def _associative_max_pass(first, log_transition, x) -> Any:
    """The same by an associative scan over max-plus products of k × k matrices."""
    steps = log_transition + jnp.moveaxis(x, 1, -1)[..., None, :]
    start = jnp.broadcast_to(jnp.moveaxis(first, 0, -1)[..., None, :], steps.shape[1:])
    max_product = lambda a, b: jnp.max(a[..., :, :, None] + b[..., None, :, :], -2)
    scores = lax.associative_scan(max_product, steps.at[0].set(start))
    return jnp.moveaxis(scores[..., 0, :], -1, 1)


def _trace_back(log_transition, scores, lengths, parallel: bool) -> Any:
    """The most probable states, (steps, *lanes), from the scores of `_max_pass` (steps, k, *lanes)."""
    last = _first_argmax(scores[-1])
    if scores.shape[1] > FUSED_STATES:
        path = _search_back(log_transition, scores, lengths, last)
    else:
        pointers = _back_pointers(log_transition, scores, lengths)
        path = _compose_pointers(pointers, last) if parallel else _follow_pointers(pointers, last)
    return jnp.concatenate([path, last[None]])


def _back_pointers(log_transition, scores, lengths) -> Any:
    """The best predecessor of every state at every step but the first, (steps − 1, k, *lanes).

    All steps at once, by comparisons of whole rows, so that only look-ups are left for the loop over steps.
    """
    k, transition = scores.shape[1], expand_lanes(log_transition, scores[0])
    best = scores[:-1, 0][:, None] + transition[0]
    pointers = jnp.zeros(best.shape, jnp.int32)
    for i in range(1, k):
        other = scores[:-1, i][:, None] + transition[i]
        pointers, best = jnp.where(other > best, i, pointers), jnp.maximum(best, other)
    if lengths is None:
        return pointers
    past = jnp.arange(1, scores.shape[0])[:, None, None] >= lengths
    return jnp.where(past, jnp.arange(k, dtype=jnp.int32)[:, None], pointers)


def _follow_pointers(pointers, last) -> Any:
    """States of all steps but the last, one look-up after the other."""
    look_up = (lambda row, state: row[state]) if pointers.ndim == 2 else _look_up_lanes
    _, path = lax.scan(lambda state, row: (look_up(row, state),) * 2, last, pointers, reverse=True)
    return path


def _look_up_lanes(row: Any, state: Any) -> Any:
    return jnp.take_along_axis(row, state[None], 0)[0]


def _compose_pointers(pointers, last) -> Any:
    """The same by an associative scan: pointers of neighbouring steps are composed."""
    compose = lambda later, earlier: jnp.take_along_axis(earlier, later, axis=1)
    composed = lax.associative_scan(compose, pointers, reverse=True)
    return jnp.take_along_axis(composed, jnp.broadcast_to(last, (1, 1, *last.shape)), axis=1)[:, 0]


def _search_back(log_transition, scores, lengths, last) -> Any:
    """States of all steps but the last, by searching the predecessors of the chosen state alone.

    For many states: pointers of all states would take k² operations per step again.
    """
    transposed, one = log_transition.T, scores.ndim == 2

    def step(after, args):
        t, here = args
        candidates = here + (transposed[after] if one else transposed[after].T)
        state = _first_argmax(candidates)
        state = state if lengths is None else jnp.where(t >= lengths, after, state)
        return state, state

    _, path = lax.scan(step, last, (jnp.arange(1, scores.shape[0]), scores[:-1]), reverse=True)
    return path


def _first_argmax(scores: Any) -> Any:
    """The first index of the maximum of (k, *lanes); `argmax` is slow inside a loop."""
    k = scores.shape[0]
    numbers = jnp.arange(k, dtype=jnp.int32).reshape(k, *(1,) * (scores.ndim - 1))
    return jnp.minimum(jnp.where(scores == scores.max(0), numbers, k).min(0), k - 1).astype(jnp.int32)


def k_best(log_initial: Any, log_transition: Any, log_likelihood: Any, n_best: int) -> tuple[Any, Any]:
    """The `n_best` most probable paths of one sequence, (n_best, steps), best first, and their log p.

    If there are fewer paths, the rest have log p = −∞.

    Seshadri and Sundberg (1994), List Viterbi decoding algorithms with applications.
    """
    x, k = log_likelihood, log_likelihood.shape[-1]
    impossible = jnp.full((k, n_best), -jnp.inf, x.dtype)
    start = impossible.at[:, 0].set(log_initial + x[0])

    def step(scores, here):
        candidates = scores[:, None, :] + log_transition[:, :, None]  # (from, to, rank)
        best, where = lax.top_k(jnp.swapaxes(candidates, 0, 1).reshape(k, k * n_best), n_best)
        return best + here[:, None], where.astype(jnp.int32)

    ends, pointers = lax.scan(step, start, x[1:])
    value, slot = lax.top_k(ends.reshape(-1), n_best)

    def back(slot, pointer):
        before = pointer.reshape(-1)[slot]
        # A slot is state · n_best + rank.
        return before, slot // n_best

    first, rest = lax.scan(back, slot.astype(jnp.int32), pointers, reverse=True)
    paths = jnp.concatenate([(first // n_best)[None], rest])
    return paths.T, value


def sample_path(key: Any, filtered_states: Any, log_transition: Any) -> Any:
    """A draw from p(z | x), (steps,): the last state, then every state given the one after it.

    `filtered_states` (steps, k) are those of `hmm_filter`.

    Scott (2002), Bayesian methods for hidden Markov models.
    """
    logits = jnp.log(filtered_states)
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    last = _first_argmax(logits[-1] + noise[-1])
    transposed = log_transition.T

    def back(after, args):
        here, noise = args
        state = _first_argmax(here + transposed[after] + noise)
        return state, state

    _, path = lax.scan(back, last, (logits[:-1], noise[:-1]), reverse=True)
    return jnp.concatenate([path, last[None]])


def count_best_paths(
    log_initial: Any, log_transition: Any, log_likelihood: Any, lengths: Any = None
) -> tuple[dict[str, Any], Any]:
    """({first, pairs, states} of the most probable path of every sequence as counts, its log probability).

    Steps past the length of a sequence count nothing.
    """
    path, value = viterbi(log_initial, log_transition, log_likelihood, lengths=lengths)
    dtype = log_likelihood.dtype
    states = jax.nn.one_hot(path, log_likelihood.shape[-1], dtype=dtype)
    if lengths is not None:
        counts = jnp.arange(path.shape[1]) < lengths[:, None]
        states = states * counts[..., None].astype(dtype)
    pairs = jnp.einsum("nti,ntj->nij", states[:, :-1], states[:, 1:])
    return {"first": states[:, 0], "pairs": pairs, "states": states}, value
