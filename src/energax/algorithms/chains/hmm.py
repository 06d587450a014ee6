"""Sums over all paths of a hidden Markov chain: likelihoods, filtering, smoothing.

No model is known here. Every function takes log π (k,), log A (k, k) and log p(x_t | z_t): (steps, k) of one
sequence or (n, steps, k) of many, or `CodedLikelihoods`. Results have the same leading axes. A missing
observation is a row of zeros. `lengths` (n,) are the true lengths of sequences that are padded at their
end; steps past an end are rows of zeros too.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._util.arrays import asarray
from ..._util.sizes import SCAN_NUMBERS
from ...batch import multiply_weight
from ...errors import BadInput
from ...programs import interpreted
from .hmm_kernels import (
    Messages,
    associative_pass,
    expand_lanes,
    is_surely_exact,
    log_forward_pass,
    log_messages,
    no_underflow,
    recompute_if_inexact,
    scaled_evidence,
    scaled_pass,
    state_sums,
)
from .observations import (
    CodedLikelihoods,
    StepLikelihoods,
    finite_max,
    to_batch_major,
    to_time_major,
)

Kind = Literal["scaled", "log", "associative"]
_KINDS = ("scaled", "log", "associative")
_PARALLEL_STATES = 32  # with more states k³ operations per step outweigh the parallelism


class StatePosterior(NamedTuple):
    """log p(x), p(z_1 | x) (k,), Σ_t p(z_t, z_{t+1} | x) (k, k) and p(z_t | x) (steps, k)."""

    log_likelihood: Any
    first: Any
    pairs: Any
    states: Any


def kind_for(k: int, steps: int, lanes: int = 1, backend: str | None = None) -> Kind:
    """The fastest recursion: products of matrices in parallel are slower only if XLA compiles for a CPU.

    >>> kind_for(8, 10_000, backend="cpu"), kind_for(8, 10_000, backend="gpu")
    ('scaled', 'associative')
    """
    backend = jax.default_backend() if backend is None else backend
    parallel = backend != "cpu" or interpreted()
    small = k <= _PARALLEL_STATES and lanes * steps * k * k <= SCAN_NUMBERS.value
    return "associative" if parallel and small else "scaled"


def check_kind(kind: Kind | None, k: int, steps: int, lanes: int) -> Kind:
    """Return `kind`, by default the fastest; raise if it is unknown."""
    if kind is None:
        return kind_for(k, steps, lanes)
    if kind not in _KINDS:
        raise BadInput("kind", repr(kind), f"one of {', '.join(map(repr, _KINDS))}")
    return kind


def _kind_of_sums(kind: Kind | None, likelihoods: StepLikelihoods) -> Kind:
    steps, *lanes, k = likelihoods.shape
    return check_kind(kind, k, steps, math.prod(lanes))


def _from_messages(
    log_initial, log_transition, likelihoods: StepLikelihoods, kind: Kind | None, both: bool, compute, in_logs
) -> Any:
    """`compute(messages)` of the given kind, or `in_logs()` if those messages have lost digits."""
    kind = _kind_of_sums(kind, likelihoods)
    if kind == "log":
        return in_logs()
    run = scaled_pass if kind == "scaled" else associative_pass
    messages = run(log_initial, log_transition, likelihoods, both)

    def recompute(result):
        log_likelihood = jnp.moveaxis(likelihoods.log(), 1, -1)
        exact = no_underflow(log_initial, log_transition, log_likelihood, messages)
        return lax.cond(exact, lambda: result, in_logs)

    return recompute_if_inexact(is_surely_exact(log_transition, messages), compute(messages), recompute)


def hmm_filter(
    log_initial: Any, log_transition: Any, log_likelihood: Any, *, kind: Any = None
) -> tuple[Any, Any]:
    """(log p(x), p(z_t | x_1 … x_t) of every step).

    >>> coin = jnp.log(jnp.array([0.5, 0.5])), jnp.log(jnp.array([[0.7, 0.3], [0.3, 0.7]]))
    >>> umbrella = jnp.log(jnp.array([[0.9, 0.2], [0.9, 0.2]]))
    >>> hmm_filter(*coin, umbrella)[1][:, 0].tolist()
    [0.8181..., 0.8833...]
    """
    likelihoods, many = to_time_major(log_likelihood)
    total, states = _filter_time_major(log_initial, log_transition, likelihoods, kind)
    return to_batch_major(total, log_likelihood, many, 0), to_batch_major(states, log_likelihood, many, 1)


def _filter_time_major(log_initial, log_transition, likelihoods: StepLikelihoods, kind) -> tuple[Any, Any]:
    compute = lambda messages: (messages.total, messages.ahead / state_sums(messages.ahead))
    in_logs = lambda: compute(log_forward_pass(log_initial, log_transition, likelihoods.log()))
    return _from_messages(log_initial, log_transition, likelihoods, kind, False, compute, in_logs)


@jax.custom_vjp
def log_evidence(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Any:
    """log p(x), one number per sequence. Its gradients are the expected counts, exact and never NaN.

    Steps past an end that are rows of zeros change nothing, since transitions sum to one.
    """
    likelihoods, many = to_time_major(log_likelihood)
    if _kind_of_sums(None, likelihoods) != "scaled":
        return hmm_filter(log_initial, log_transition, log_likelihood)[0]
    total, exact = scaled_evidence(log_initial, log_transition, likelihoods)
    recompute = lambda _: _filter_time_major(log_initial, log_transition, likelihoods, "scaled")[0]
    return to_batch_major(recompute_if_inexact(exact, total, recompute), log_likelihood, many, 0)


def _evidence_forward(log_initial, log_transition, log_likelihood):
    found = hmm_smoother(log_initial, log_transition, log_likelihood)
    coded = log_likelihood if isinstance(log_likelihood, CodedLikelihoods) else None
    return found.log_likelihood, (found, coded)


def _evidence_backward(saved, slope):
    found, coded = saved
    many = found.states.ndim == 3
    weigh = lambda a: (slope.reshape(*slope.shape, *(1,) * (a.ndim - slope.ndim)) * a) if many else slope * a
    first, pairs, states = map(weigh, (found.first, found.pairs, found.states))
    if coded is not None:
        states = CodedLikelihoods(jnp.zeros_like(coded.table).at[coded.codes].add(states), None)
    return (first.sum(0), pairs.sum(0), states) if many else (first, pairs, states)


log_evidence.defvjp(_evidence_forward, _evidence_backward)


def hmm_smoother(
    log_initial: Any,
    log_transition: Any,
    log_likelihood: Any,
    *,
    lengths: Any = None,
    weight: Any = None,
    kind: Any = None,
) -> StatePosterior:
    """p(z_t | x) and the expected transitions, by the forward and the backward pass.

    With a `weight` (n,) of every sequence, states and transitions are multiplied by it, and transitions are
    summed over sequences, (1, k, k), by one matrix product.

    Memory is O(steps · k), since pairs are summed over steps on the way. The scaled recursion is
    used where it is exact, and the one in logarithms elsewhere.

    Baum, Petrie, Soules and Weiss (1970), A maximization technique occurring in the statistical
    analysis of probabilistic functions of Markov chains.
    """
    likelihoods, many = to_time_major(log_likelihood)
    weights, pooled = _step_weights(likelihoods, lengths, weight, many), many and weight is not None
    in_logs = lambda: _posterior_in_logs(log_initial, log_transition, likelihoods.log(), weights, pooled)
    compute = lambda messages: _posterior_of_messages(log_transition, messages, weights, pooled)
    found = _from_messages(log_initial, log_transition, likelihoods, kind, True, compute, in_logs)
    lane_axes = StatePosterior(0, 0, 0, 1)
    return StatePosterior(
        *(to_batch_major(a, log_likelihood, many, axis) for a, axis in zip(found, lane_axes, strict=True))
    )


def _step_weights(likelihoods: StepLikelihoods, lengths: Any, weight: Any, many: bool) -> Any:
    """The weight of every step, 0 past an end, (steps,) or (steps, n); None if all weights are one."""
    if lengths is None and weight is None:
        return None
    steps = likelihoods.shape[0]
    weights = jnp.ones((steps, 1), bool)
    if lengths is not None:
        weights = jnp.arange(steps)[:, None] < asarray(lengths).reshape(-1)
    if weight is not None:
        weights = jnp.where(weights, asarray(weight).reshape(-1), 0)
    return weights if many else weights[:, 0]


def _posterior_of_messages(log_transition, messages: Messages, weights, pooled: bool) -> StatePosterior:
    """The posterior from messages: p(z_t, z_{t+1} | x) ∝ α_t A v_{t+1}, v being the onward message."""
    ahead = messages.ahead
    states = ahead * messages.after
    weights = jnp.ones((), ahead.dtype) if weights is None else weights[..., None].astype(ahead.dtype)
    total, onward = state_sums(states), messages.onward[1:]
    left = ahead[:-1] * ((weights[1:] if weights.ndim else weights) / total[:-1])
    states = states * (weights / total)
    if pooled:
        left, onward = (a.reshape(-1, a.shape[-1]) for a in (left, onward))
    outer = jnp.einsum("t...i,t...j->...ij", left, onward, precision="highest")
    outer = outer[None] if pooled else outer
    return StatePosterior(messages.total, states[0], jnp.exp(log_transition) * outer, states)


def _posterior_in_logs(log_initial, log_transition, x, weights, pooled: bool) -> StatePosterior:
    ahead, top, onward = log_messages(log_initial, log_transition, x)
    transition = expand_lanes(log_transition, x[0])
    weights = jnp.ones((x.shape[0], *x.shape[2:]), x.dtype) if weights is None else weights
    # Past an end log-likelihoods are 0 and transitions sum to one, so the sum at the last step is log p(x).
    total = top.sum(0) + jax.nn.logsumexp(ahead[-1], axis=0)

    def pairs_of_step(here, after, weight):
        terms = here[:, None] + transition + after[None]
        terms = jnp.exp(terms - finite_max(terms.reshape(-1, *terms.shape[2:]), 0))
        sums = terms.sum((0, 1))
        terms = terms / jnp.where(sums > 0, sums, 1)
        return multiply_weight(weight, terms), jnp.moveaxis(terms.sum(1), 0, -1)

    def add_pairs(totals, args):
        pairs, before = pairs_of_step(*args)
        return totals + pairs, before

    messages = ahead[:-1], onward[1:], weights[1:]
    if interpreted():
        pairs, before = jax.vmap(pairs_of_step)(*messages)
        pairs = pairs.sum(0)
    else:
        zeros = jnp.zeros((x.shape[1], *x.shape[1:]), x.dtype)
        pairs, before = lax.scan(add_pairs, zeros, messages)
    last = jnp.moveaxis(jax.nn.softmax(ahead[-1:], axis=1), 1, -1)
    states = multiply_weight(weights[..., None], jnp.concatenate([before, last]))
    pairs = jnp.moveaxis(pairs.sum(2, keepdims=True) if pooled else pairs, (0, 1), (-2, -1))
    return StatePosterior(total, states[0], pairs, states)


def pair_posteriors(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Any:
    """p(z_t, z_{t+1} | x) of every step, (steps − 1, k, k); `hmm_smoother` gives only their sum."""

    def one(likelihood):
        ahead, _, onward = log_messages(log_initial, log_transition, likelihood)
        terms = ahead[:-1, :, None] + log_transition + onward[1:, None, :]
        return jnp.exp(terms - jax.nn.logsumexp(terms, axis=(1, 2), keepdims=True))

    return jax.vmap(one)(log_likelihood) if log_likelihood.ndim == 3 else one(log_likelihood)
