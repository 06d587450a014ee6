"""The three ways to pass messages along a chain: scaled, in logarithms, and by an associative scan.

All three return messages with the same meaning, so that what is made of them is written once: steps first,
states last, and between them lanes, which are sequences side by side, or none at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .observations import StepLikelihoods, finite_max, row

#: Up to this many states the product of one message with the transitions is written as multiply and
#: reduce, which fuses with what surrounds it; beyond, and for many lanes, it is a matrix product.
FUSED_STATES = 32
#: Steps whose messages are held at a time where only their sums are asked: few enough for a cache.
_BLOCK = 1024


class Messages(NamedTuple):
    """What both passes leave behind: of every step (steps, *lanes, k), each up to a factor of its own.

    ahead: ∝ p(x_1 … x_t, z_t). total: log p(x), (*lanes). onward: ∝ p(x_t … x_T | z_t), and after:
    A onward at the step to come, ∝ p(x_{t+1} … x_T | z_t); both None where only `ahead` was asked.
    """

    ahead: Any
    total: Any
    onward: Any = None
    after: Any = None


def over_states(matrix: Any, like: Any) -> Any:
    """A (k, k) matrix with an axis of one for every lane."""
    return matrix.reshape(*matrix.shape, *(1,) * (like.ndim - 1))


def product(message: Any, matrix: Any) -> Any:
    """Σ_i m_i A_ij, message (*lanes, k)."""
    if matrix.shape[0] > FUSED_STATES or message.ndim > 1:
        return jnp.matmul(message, matrix, precision="highest")
    return jnp.sum(message[:, None] * matrix, 0)


def in_place(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    """x[t + 1] ← step(x[t], x[t + 1]) for every t in turn.

    One buffer, a window of two rows and a 32-bit counter: XLA then makes one native loop of it
    while a row is small (about 1 kB is touched in a step), at some 30 ns a step. A scan with
    inputs, outputs and a 64-bit counter is called op by op, several times as slow.
    """
    last, zero = x.shape[0] - 1, jnp.zeros((), jnp.int32)
    if not last:
        return x
    rest = (zero,) * (x.ndim - 1)

    def body(state):
        t, x = state
        window = lax.dynamic_slice(x, (t, *rest), (2, *x.shape[1:]))
        return t + 1, lax.dynamic_update_slice(x, step(*window)[None], (t + 1, *rest))

    return lax.while_loop(lambda state: state[0] < last, body, (zero, x))[1]


def normalised(log_values: Any) -> tuple[Any, Any]:
    """(values that sum to one over the states, log of their sum), from logarithms (k, *lanes)."""
    top = finite_max(log_values, 0)
    values = jnp.exp(log_values - top)
    total = values.sum(0)
    return values / total, jnp.log(total) + top


# -- scaled: probabilities, at every step divided by what the one before summed to ---------------------


def scaled(log_initial: Any, log_transition: Any, seen: StepLikelihoods, both: bool) -> Messages:
    """The forward pass, and the backward one if `both`, by sums of products.

    Rabiner (1989), A tutorial on hidden Markov models, section V.A.
    """
    transition, weight = jnp.exp(log_transition), seen.weight()
    if both and len(seen.shape) > 2:
        before, after = _carried_both_ways(transition, seen, jnp.exp(log_initial))
    else:
        before = _scaled_messages(transition, seen, jnp.exp(log_initial))
        after = (
            _scaled_messages(transition.T, seen, jnp.ones_like(log_initial), backward=True) if both else None
        )
    ahead, total = before * weight, _evidence(before, seen)
    return Messages(ahead, total, after * weight / sums(after), after) if both else Messages(ahead, total)


def scaled_evidence(log_initial: Any, log_transition: Any, seen: StepLikelihoods) -> tuple[Any, Any]:
    """(log p(x), whether it is surely exact): the forward pass, of which only sums are read."""
    last, zero = seen.shape[0] - 1, jnp.zeros((), jnp.int32)
    some, transition = min(last, _BLOCK), jnp.exp(log_transition)

    def block(state):
        t, message, total = state
        ahead = jnp.minimum(last - t, some)
        later = seen._replace(shape=(some + 1, *seen.shape[1:]), at=lambda i: seen.at(t + i))
        before = _scaled_messages(transition, later, message, until=ahead)
        used = _divisors(before)[:-1]
        used = jnp.where((jnp.arange(some) < ahead).reshape(-1, *(1,) * (used.ndim - 1)), used, 1)
        return t + ahead, row(before, ahead), total + _log_product(used)

    start = jnp.broadcast_to(jnp.exp(log_initial), seen.shape[1:])
    state = lax.while_loop(lambda s: s[0] < last, block, (zero, start, seen.top().sum(0)))
    total = state[2] + jnp.log((state[1] * seen.at(zero + last)).sum(-1))
    return total, surely_exact(log_transition, Messages((start * seen.at(zero))[None], total))


def _scaled_messages(
    matrix: Any, seen: StepLikelihoods, start: Any, *, backward: bool = False, until: Any = None
) -> Any:
    """m_{t+1} = (m_t ∘ b_t) A / Σ m_t of every step, from m_1 = start; or the same from the end to the start.

    As far as step `until`, if that is said.

    The message is kept as it comes, without the likelihood of its step, and divided by the sum of the step
    before: neither product nor sum then waits for the other, and a step takes 20 ns instead of 35. One
    buffer to write, one to read and a 32-bit counter: of these XLA makes a native loop while a row
    is small (about 1 kB is touched in a step); a scan with its 64-bit counter is called op by op.
    """
    last, zero = seen.shape[0] - 1, jnp.zeros((), jnp.int32)
    rest = (zero,) * (len(seen.shape) - 1)
    begin, way = (last, -1) if backward else (0, 1)

    def body(state):
        t, messages = state
        new = _next(row(messages, t), seen.at(t), matrix)
        return t + way, lax.dynamic_update_slice(messages, new[None], (t + way, *rest))

    room = _room(seen).at[begin].set(start)
    end = last - begin if until is None else until
    return lax.while_loop(lambda state: state[0] != end, body, (zero + begin, room))[1]


def _room(seen: StepLikelihoods) -> Any:
    """A buffer for messages, filled at once: what is set in it later would else be chosen place by place."""
    return lax.optimization_barrier(jnp.ones(seen.shape, seen.top().dtype))


def _carried_both_ways(transition: Any, seen: StepLikelihoods, start: Any) -> tuple[Any, Any]:
    """Both of them in one loop, which with many lanes costs what it calls, and calls half as much."""
    last, zero = seen.shape[0] - 1, jnp.zeros((), jnp.int32)
    matrices, rest = jnp.stack([transition, transition.T]), (zero,) * (len(seen.shape) - 1)

    def body(state):
        t, before, after = state
        back = last - t
        messages = jnp.stack([row(before, t), row(after, back)])
        new = _next(messages, jnp.stack([seen.at(t), seen.at(back)]), matrices)
        before = lax.dynamic_update_slice(before, new[:1], (t + 1, *rest))
        return t + 1, before, lax.dynamic_update_slice(after, new[1:], (back - 1, *rest))

    room = _room(seen).at[0].set(start), _room(seen)
    return lax.while_loop(lambda state: state[0] != last, body, (zero, *room))[1:]


def _next(message: Any, weight: Any, matrix: Any) -> Any:
    if message.ndim == 1:
        return product(message * weight, matrix) / message.sum()
    return product(message * weight / message.sum(-1, keepdims=True), matrix)


def sums(messages: Any) -> Any:
    """Σ over states beside every state, (steps, *lanes, k): rows are so thin that a product is quicker."""
    k = messages.shape[-1]
    if k > FUSED_STATES:
        return messages.sum(-1, keepdims=True)
    return jnp.matmul(messages, jnp.ones((k, k), messages.dtype), precision="highest")


def _evidence(before: Any, seen: StepLikelihoods) -> Any:
    """log p(x) of messages from `_scaled_messages`: what they were divided by, and what is left at the end."""
    last = before[-1] * seen.at(jnp.array(seen.shape[0] - 1, jnp.int32))
    return _log_product(_divisors(before)[:-1]) + jnp.log(last.sum(-1)) + seen.top().sum(0)


def _divisors(before: Any) -> Any:
    """Σ over states, (steps, *lanes)."""
    return jnp.matmul(before, jnp.ones(before.shape[-1], before.dtype), precision="highest")


def _log_product(factors: Any) -> Any:
    """Σ log of (steps, *lanes), several to a logarithm, which costs more than they do.

    Where `mixes` each is at least (tiny / ε)^¼; elsewhere −∞ may tell that they were too small.
    """
    several = 4 if factors.dtype == jnp.float64 else 2
    whole = len(factors) // several * several
    together = jnp.prod(factors[:whole].reshape(several, whole // several, *factors.shape[1:]), 0)
    return jnp.log(together).sum(0) + jnp.log(factors[whole:]).sum(0)


def surely_exact(log_transition: Any, messages: Messages) -> Any:
    """Whether nothing that was needed can have fallen to zero, told by transitions and the first step."""
    kind = jnp.finfo(messages.ahead.dtype)
    begins = (messages.ahead[0].sum(-1) >= (kind.tiny / kind.eps) ** 0.5).all()
    return mixes(log_transition) & begins & jnp.isfinite(messages.total).all()


def mixes(log_transition: Any) -> Any:
    """Whether every state leads to every other so readily that scaled messages are exact.

    A state that is dropped at one step takes with it paths that any other state could have
    stood in for, at the price of two transitions; and a message that is divided by the sum of the step
    before may be as small as two more. So if all transitions are above (tiny / ε)^¼ what was lost is
    below rounding.
    """
    kind = jnp.finfo(log_transition.dtype)
    return jnp.min(log_transition) >= 0.25 * (jnp.log(kind.tiny) - jnp.log(kind.eps))


def no_underflow(log_initial: Any, log_transition: Any, log_likelihood: Any, messages: Messages) -> Any:
    """The same told by every message: one that is zero must be so because no path leads there.

    log_likelihood: (steps, *lanes, k).
    """
    begins, possible, seen = (a > -jnp.inf for a in (log_initial, log_transition, log_likelihood))
    good = _reached(begins, possible, seen, messages.ahead) & jnp.isfinite(messages.total).all()
    if messages.onward is None:
        return good
    # As small as it ever was, before it was divided.
    onward = messages.onward * sums(messages.after)
    return good & _reached(jnp.ones_like(begins), possible.T, seen[::-1], onward[::-1])


def recompute_if_inexact(good: Any, found: Any, careful: Callable[[Any], Any]) -> Any:
    """`found` if it is good, else `careful(found)`: a branch, as a loop that runs at most once.

    Unlike `cond` it copies nothing, and under `vmap` the careful way is gone only if one needs it.
    """
    done = jnp.array(True)
    return lax.while_loop(lambda s: ~s[0], lambda s: (done, careful(s[1])), (good, found))[1]


def _reached(begins: Any, possible: Any, seen: Any, messages: Any) -> Any:
    """Whether every message that some path leads to has kept its digits."""
    kind = jnp.finfo(messages.dtype)
    alive = (messages[:-1] > 0).astype(messages.dtype)
    led = jnp.matmul(alive, possible.astype(messages.dtype)) > 0
    led = jnp.concatenate([jnp.broadcast_to(begins, (1, *messages.shape[1:])), led])
    return jnp.all((messages >= kind.tiny / kind.eps) | ~(led & seen))


# -- logarithms: slower, and right where probabilities would underflow -----------------------------


def in_logs(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Messages:
    """The forward pass by log-sum-exp, each target state with a maximum of its own."""
    ahead, top, _ = log_messages(log_initial, log_transition, log_likelihood, both=False)
    filtered, log_sums = jax.vmap(normalised)(ahead)
    # Past the first step that is impossible all are.
    return Messages(jnp.moveaxis(filtered, 1, -1), top.sum(0) + log_sums[-1])


def log_messages(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool = True) -> Any:
    """log p(x_1 … x_t, z_t) less its maximum, that maximum by steps, and log p(x_t … x_T | z_t) likewise.

    Only differences between states are kept, so that a long chain costs no digits.
    """
    first = over_states(log_initial, log_likelihood[0]) + log_likelihood[0]
    ahead, top = _log_pass(log_transition, log_likelihood.at[0].set(first))
    onward = _log_pass(log_transition.T, log_likelihood[::-1])[0][::-1] if both else None
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


def associative(log_initial: Any, log_transition: Any, seen: StepLikelihoods, both: bool) -> Messages:
    """The same by products of matrices A diag(b_t), any neighbours first: T k² numbers are held.

    Särkkä and García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
    """
    transition, weight = jnp.exp(log_transition), seen.weight()
    first = jnp.exp(log_initial - finite_max(log_initial, 0)) * weight[0]
    steps = transition * weight[..., None, :]
    steps = steps.at[0].set(jnp.broadcast_to(first[..., None, :], steps.shape[1:]))
    size = steps.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    ahead, log_size = lax.associative_scan(_joined, (steps / size[..., None, None], jnp.log(size)))
    filtered = ahead[..., 0, :]
    share = filtered.sum(-1)
    total = jnp.log(share[-1]) + log_size[-1] + finite_max(log_initial, 0) + seen.top().sum(0)
    filtered = filtered / share[..., None]
    if not both:
        return Messages(filtered, total)
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
    onward = onward / onward.sum(-1, keepdims=True)
    after = jnp.matmul(onward[1:], transition.T, precision="highest")
    return Messages(filtered, total, onward, jnp.concatenate([after, jnp.ones_like(onward[:1])]))


def _joined(left: Any, right: Any) -> tuple[Any, Any]:
    (a, log_a), (b, log_b) = left, right
    both = a @ b
    size = both.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    return both / size[..., None, None], log_a + log_b + jnp.log(size)
