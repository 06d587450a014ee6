"""The three ways to pass messages along a chain: scaled, in logarithms, and by an associative scan.

Arrays are time-major, (steps, k, *lanes): lanes are sequences side by side, or none at all. All
three return messages with the same meaning, so that what is made of them is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

#: Up to this many states the product of one message with the transitions is written as multiply and
#: reduce, which fuses with what surrounds it; beyond, and for many lanes, it is a matrix product.
FUSED_STATES = 32


class Messages(NamedTuple):
    """What both passes leave behind, of every step.

    filtered: p(z_t | x_1 … x_t), normalised. log_scale: log p(x_t | x_1 … x_{t−1}).
    onward: ∝ p(x_t … x_T | z_t), normalised over states.
    """

    filtered: Any
    log_scale: Any
    onward: Any


def over_states(matrix: Any, like: Any) -> Any:
    """A (k, k) matrix with an axis of one for every lane."""
    return matrix.reshape(*matrix.shape, *(1,) * (like.ndim - 1))


def product(message: Any, matrix: Any) -> Any:
    """Σ_i m_i A_ij, message (k, *lanes)."""
    if matrix.shape[0] > FUSED_STATES or message.ndim > 1:
        return jnp.tensordot(matrix, message, axes=(0, 0))
    return jnp.sum(message[:, None] * over_states(matrix, message), 0)


def in_place(x: Any, step: Callable[[Any, Any], Any], *, backward: bool = False) -> Any:
    """x[t + 1] ← step(x[t], x[t + 1]) for every t in turn; from the end x[t] ← step(x[t + 1], x[t]).

    One buffer, a window of two rows and a 32-bit counter: XLA then makes one native loop of it
    while a row is small (about 1 kB is touched in a step), at some 30 ns a step. A scan with
    inputs, outputs and a 64-bit counter is called op by op, several times as slow.
    """
    last, zero = x.shape[0] - 1, jnp.zeros((), jnp.int32)
    if not last:
        return x
    rest = (zero,) * (x.ndim - 1)

    here, there = (1, 0) if backward else (0, 1)  # in the window of two

    def body(state):
        t, x = state
        window = lax.dynamic_slice(x, (t - here, *rest), (2, *x.shape[1:]))
        new, to = step(window[here], window[there]), t + there - here
        return to, lax.dynamic_update_slice(x, new[None], (to, *rest))

    goes_on = (lambda state: state[0] > 0) if backward else (lambda state: state[0] < last)
    return lax.while_loop(goes_on, body, (zero + last * here, x))[1]


def normalised(log_values: Any) -> tuple[Any, Any]:
    """(values that sum to one over the states, log of their sum), from logarithms (k, *lanes)."""
    top = finite_max(log_values, 0)
    values = jnp.exp(log_values - top)
    total = values.sum(0)
    return values / total, jnp.log(total) + top


def finite_max(log_values: Any, axis: int) -> Any:
    """The maximum, or 0 where all are −∞: what may be subtracted."""
    top = jnp.max(log_values, axis)
    return jnp.where(jnp.isfinite(top), top, 0)


# -- scaled: probabilities that are made to sum to one after every step -----------------------------


def _weights(log_transition: Any, log_likelihood: Any) -> tuple[Any, Any, Any]:
    """A, the likelihoods of every step relative to their largest, and the logarithm of that one."""
    top = finite_max(log_likelihood, 1)
    return jnp.exp(log_transition), jnp.exp(log_likelihood - top[:, None]), top


def scaled(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool) -> Messages:
    """The forward pass, and the backward one if `both`, by sums of products.

    Rabiner (1989), A tutorial on hidden Markov models, section V.A.
    """
    transition, weight, top = _weights(log_transition, log_likelihood)
    first, log_first = normalised(over_states(log_initial, log_likelihood[0]) + log_likelihood[0])
    filtered, scale = _scaled_pass(transition, weight.at[0].set(first))
    log_scale = (jnp.log(scale) + top).at[0].set(log_first)
    onward = _backward(transition, weight) if both else filtered
    return Messages(filtered, log_scale, onward)


def scaled_evidence(log_initial: Any, log_transition: Any, log_likelihood: Any) -> tuple[Any, Any]:
    """(log p(x), whether it is surely exact): the forward pass with nothing kept but its sums."""
    transition, weight, top = _weights(log_transition, log_likelihood)
    first, log_first = normalised(over_states(log_initial, log_likelihood[0]) + log_likelihood[0])
    steps, zero = weight.shape[0], jnp.zeros((), jnp.int32)
    rest = (zero,) * (weight.ndim - 1)

    def body(state):
        t, message, sums = state
        here = lax.dynamic_slice(weight, (t, *rest), (1, *weight.shape[1:]))[0]
        total = message.sum(0)
        # Divided by the sum of the step before, which need not wait for this one.
        message = product(message, transition) * (here / total)
        return t + 1, message, lax.dynamic_update_slice(sums, total[None], (t, *rest[1:]))

    start = zero + 1, first, jnp.ones((steps, *weight.shape[2:]), weight.dtype)
    _, message, sums = lax.while_loop(lambda state: state[0] < steps, body, start)
    total = log_first + jnp.log(sums).sum(0) + jnp.log(message.sum(0)) + top[1:].sum(0)
    return total, mixes(log_transition) & jnp.isfinite(total).all()


def _scaled_pass(transition: Any, x: Any) -> tuple[Any, Any]:
    """Filtered states in the place of likelihoods, and the sum that each step was divided by."""
    last, zero = x.shape[0] - 1, jnp.zeros((), jnp.int32)
    scale = jnp.ones((x.shape[0], *x.shape[2:]), x.dtype)
    if not last:
        return x, scale
    rest = (zero,) * (x.ndim - 1)

    def body(state):
        t, x, scale = state
        window = lax.dynamic_slice(x, (t, *rest), (2, *x.shape[1:]))
        new = product(window[0], transition) * window[1]
        total = new.sum(0)
        x = lax.dynamic_update_slice(x, (new / total)[None], (t + 1, *rest))
        return t + 1, x, lax.dynamic_update_slice(scale, total[None], (t + 1, *rest[1:]))

    return lax.while_loop(lambda state: state[0] < last, body, (zero, x, scale))[1:]


def _backward(transition: Any, weight: Any) -> Any:
    """∝ p(x_t … x_T | z_t) of every step: the same pass from the other end, with Aᵀ."""
    turned = transition.T

    def step(after, here):
        new = product(after, turned) * here
        return new * (1 / new.sum(0))

    ends_with = weight[-1] / weight[-1].sum(0)
    return in_place(weight.at[-1].set(ends_with), step, backward=True)


def surely_exact(log_transition: Any, messages: Messages) -> Any:
    """Whether nothing that was needed can have fallen to zero, told by the transitions alone."""
    return mixes(log_transition) & jnp.isfinite(messages.log_scale).all()


def mixes(log_transition: Any) -> Any:
    """Whether every state leads to every other so readily that scaled messages are exact.

    A state that is dropped at one step takes with it paths that any other state could have
    stood in for, at the price of two transitions. So if all transitions are above √(tiny / ε) what was
    lost is below rounding.
    """
    kind = jnp.finfo(log_transition.dtype)
    return jnp.min(log_transition) >= 0.5 * (jnp.log(kind.tiny) - jnp.log(kind.eps))


def lost_nothing(log_transition: Any, log_likelihood: Any, messages: Messages, both: bool) -> Any:
    """The same told by every message: one that is zero must be so because no path leads there."""
    dtype = messages.filtered.dtype
    least = jnp.finfo(dtype).tiny / jnp.finfo(dtype).eps
    possible, seen = (log_transition > -jnp.inf).astype(dtype), log_likelihood > -jnp.inf
    good = _reached(possible, seen, messages.filtered, least) & jnp.isfinite(messages.log_scale).all()
    return good & _reached(possible.T, seen[::-1], messages.onward[::-1], least) if both else good


def rescued(good: Any, found: Any, careful: Callable[[Any], Any]) -> Any:
    """`found` if it is good, else `careful(found)`: a branch, as a loop that runs at most once.

    Unlike `cond` it copies nothing, and under `vmap` the careful way is gone only if one needs it.
    """
    done = jnp.array(True)
    return lax.while_loop(lambda s: ~s[0], lambda s: (done, careful(s[1])), (good, found))[1]


def _reached(possible: Any, seen: Any, messages: Any, least: Any) -> Any:
    alive = (messages > 0).astype(messages.dtype)
    leads_here = jnp.einsum("ij,ti...->tj...", possible, alive[:-1]) > 0
    return jnp.all((messages[1:] >= least) | ~(leads_here & seen[1:]))


# -- logarithms: slower, and right where probabilities would underflow -----------------------------


def in_logs(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool) -> Messages:
    """The same by log-sum-exp, each target state with a maximum of its own."""
    ahead, top, onward = log_messages(log_initial, log_transition, log_likelihood, both)
    filtered, log_sums = jax.vmap(normalised)(ahead)
    log_scale = top + jnp.diff(log_sums, axis=0, prepend=jnp.zeros_like(log_sums[:1]))
    # Past the first step that is impossible all are: the sum is −∞, not NaN.
    log_scale = jnp.where(jnp.isfinite(log_sums), log_scale, -jnp.inf)
    return Messages(filtered, log_scale, jax.vmap(normalised)(onward)[0] if both else filtered)


def log_messages(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool = True) -> Any:
    """log p(x_1 … x_t, z_t) less its maximum, that maximum by steps, and log p(x_t … x_T | z_t) likewise.

    Only differences between states are kept, so that a long chain costs no digits.
    """
    first = over_states(log_initial, log_likelihood[0]) + log_likelihood[0]
    ahead, top = _log_pass(log_transition, log_likelihood.at[0].set(first))
    onward = _log_pass(log_transition.T, log_likelihood[::-1])[0][::-1] if both else ahead
    return ahead, top, onward


def _log_pass(log_transition: Any, x: Any) -> tuple[Any, Any]:
    def step(before, here):
        terms = before[:, None] + over_states(log_transition, before)
        top = finite_max(terms, 0)
        new = jnp.log(jnp.sum(jnp.exp(terms - top), 0)) + top + here
        lowered = finite_max(new, 0)
        return new - lowered, (new - lowered, lowered)

    start = finite_max(x[0], 0)
    _, (rest, tops) = lax.scan(step, x[0] - start, x[1:])
    first = (x[0] - start)[None], start[None]
    return jnp.concatenate([first[0], rest]), jnp.concatenate([first[1], tops])


# -- associative: log T rounds of products of k × k matrices, for accelerators ---------------------


def associative(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool) -> Messages:
    """The same by products of matrices A diag(b_t), any neighbours first: T k² numbers are held.

    Särkkä and García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
    """
    transition, top = jnp.exp(log_transition), finite_max(log_likelihood, 1)
    weight = jnp.exp(log_likelihood - top[:, None])
    weight = jnp.moveaxis(weight, 1, -1)  # (T, *lanes, k)
    first = jnp.exp(log_initial - finite_max(log_initial, 0)) * weight[0]
    steps = transition * weight[..., None, :]
    steps = steps.at[0].set(jnp.broadcast_to(first[..., None, :], steps.shape[1:]))
    size = steps.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    ahead, log_size = lax.associative_scan(_joined, (steps / size[..., None, None], jnp.log(size)))
    filtered = ahead[..., 0, :]
    total = filtered.sum(-1)
    log_sums = jnp.log(total) + log_size + finite_max(log_initial, 0)
    log_sums = log_sums + jnp.cumsum(top, 0)
    log_scale = jnp.diff(log_sums, axis=0, prepend=jnp.zeros_like(log_sums[:1]))
    filtered = jnp.moveaxis(filtered / total[..., None], -1, 1)
    if not both:
        return Messages(filtered, log_scale, filtered)
    # From the other end: diag(b_t) A diag(b_{t+1}) … 1, the last factor first.
    back = weight[..., :, None] * jnp.concatenate(
        [
            jnp.broadcast_to(transition, steps[1:].shape),
            jnp.broadcast_to(jnp.eye(transition.shape[0], dtype=transition.dtype), steps[:1].shape),
        ]
    )
    size = back.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    turned = lambda a, b: _joined(b, a)
    back, _ = lax.associative_scan(turned, (back / size[..., None, None], jnp.log(size)), reverse=True)
    onward = back.sum(-1)
    return Messages(filtered, log_scale, jnp.moveaxis(onward / onward.sum(-1, keepdims=True), -1, 1))


def _joined(left: Any, right: Any) -> tuple[Any, Any]:
    (a, log_a), (b, log_b) = left, right
    both = a @ b
    size = both.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    return both / size[..., None, None], log_a + log_b + jnp.log(size)
