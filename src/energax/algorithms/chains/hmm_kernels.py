"""Three ways to pass messages along a hidden Markov chain: scaled, in logarithms, by an associative scan.

All return `Messages` with the same meaning, in the layout (steps, *lanes, k). Lanes are sequences side by
side; one sequence has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from ..._util.sizes import SEQUENCE_STEPS
from ...programs import interpreted
from .observations import StepLikelihoods, finite_max, row

#: Up to this many states a message is multiplied with the transitions by an elementwise product and a sum,
#: which XLA fuses with its surroundings; for more states, or with lanes, by a matrix product.
FUSED_STATES = 32


class Messages(NamedTuple):
    """The messages of both passes, (steps, *lanes, k), each step up to a factor of its own.

    ahead: ∝ p(x_1 … x_t, z_t). total: log p(x), (*lanes). onward: ∝ p(x_t … x_T | z_t). after: A onward of
    the next step, ∝ p(x_{t+1} … x_T | z_t). The last two are None after a forward pass alone.
    """

    ahead: Any
    total: Any
    onward: Any = None
    after: Any = None


def expand_lanes(array: Any, like: Any) -> Any:
    """An array over states with an axis of size one for every lane axis of `like` (k, *lanes)."""
    return array.reshape(*array.shape, *(1,) * (like.ndim - 1))


def multiply_message(message: Any, matrix: Any) -> Any:
    """Σ_i m_i A_ij for a message (*lanes, k)."""
    if matrix.shape[0] > FUSED_STATES or message.ndim > 1:
        return jnp.matmul(message, matrix, precision="highest")
    return jnp.sum(message[:, None] * matrix, 0)


def scan_in_place(x: Any, step: Callable[[Any, Any], Any]) -> Any:
    """x[t + 1] ← step(x[t], x[t + 1]) for every t in turn.

    XLA compiles one buffer, a window of two rows and a 32-bit counter to one native loop of about 30 ns per
    step, as long as a step touches less than about 1 kB. `lax.scan`, with its 64-bit counter, dispatches
    every operation and is several times slower.
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


def state_sums(messages: Any) -> Any:
    """Σ over states, repeated for every state, (steps, *lanes, k).

    Rows are short, so a product with a matrix of ones is faster than a reduction.
    """
    k = messages.shape[-1]
    if k > FUSED_STATES:
        return messages.sum(-1, keepdims=True)
    return jnp.matmul(messages, jnp.ones((k, k), messages.dtype), precision="highest")


# -- scaled: probabilities, divided at every step by the sum of the step before ------------------------


def scaled_pass(log_initial: Any, log_transition: Any, likelihoods: StepLikelihoods, both: bool) -> Messages:
    """The forward pass, and if `both` the backward pass, as sums of scaled products.

    Rabiner (1989), A tutorial on hidden Markov models, section V.A.
    """
    transition, weight = jnp.exp(log_transition), likelihoods.weight()
    start, end = jnp.exp(log_initial), jnp.ones_like(log_initial)
    if both and len(likelihoods.shape) > 2:
        before, after = _scaled_recursions(transition, likelihoods, start)
    else:
        before = _scaled_recursion(transition, likelihoods, start)
        after = _scaled_recursion(transition.T, likelihoods, end, backward=True) if both else None
    ahead, total = before * weight, _scaled_log_evidence(before, likelihoods)
    if not both:
        return Messages(ahead, total)
    return Messages(ahead, total, after * weight / state_sums(after), after)


def scaled_evidence(log_initial: Any, log_transition: Any, likelihoods: StepLikelihoods) -> tuple[Any, Any]:
    """(log p(x), whether it is surely exact), by a forward pass that holds one block of messages."""
    last, zero = likelihoods.shape[0] - 1, jnp.zeros((), jnp.int32)
    size, transition = min(last, SEQUENCE_STEPS.value), jnp.exp(log_transition)

    def block(state):
        t, message, total = state
        n = jnp.minimum(last - t, size)
        shape = (size + 1, *likelihoods.shape[1:])
        later = likelihoods._replace(shape=shape, at=lambda i: likelihoods.at(t + i))
        before = _scaled_recursion(transition, later, message, until=n)
        used = _divisors(before)[:-1]
        used = jnp.where((jnp.arange(size) < n).reshape(-1, *(1,) * (used.ndim - 1)), used, 1)
        return t + n, row(before, n), total + jnp.log(used).sum(0)

    start = jnp.broadcast_to(jnp.exp(log_initial), likelihoods.shape[1:])
    state = lax.while_loop(lambda s: s[0] < last, block, (zero, start, likelihoods.top().sum(0)))
    total = state[2] + jnp.log((state[1] * likelihoods.at(zero + last)).sum(-1))
    return total, is_surely_exact(log_transition, Messages((start * likelihoods.at(zero))[None], total))


def _scaled_recursion(
    matrix: Any, likelihoods: StepLikelihoods, start: Any, *, backward: bool = False, until: Any = None
) -> Any:
    """m_{t+1} = (m_t ∘ b_t) A / Σ m_t of every step, from m_1 = start; or the same from the last step back.

    With `until`, up to that step.

    A message is stored without the likelihood of its step and divided by the sum of the step before. Product
    and sum then do not wait for each other: a step takes 20 ns instead of 35. See `scan_in_place` for
    why this is not a `lax.scan`.
    """
    last, zero = likelihoods.shape[0] - 1, jnp.zeros((), jnp.int32)
    rest = (zero,) * (len(likelihoods.shape) - 1)
    begin, way = (last, -1) if backward else (0, 1)

    def body(state):
        t, messages = state
        new = _next_message(row(messages, t), likelihoods.at(t), matrix)
        return t + way, lax.dynamic_update_slice(messages, new[None], (t + way, *rest))

    buffer = _message_buffer(likelihoods).at[begin].set(start)
    end = last - begin if until is None else until
    return lax.while_loop(lambda state: state[0] != end, body, (zero + begin, buffer))[1]


def _scaled_recursions(transition: Any, likelihoods: StepLikelihoods, start: Any) -> tuple[Any, Any]:
    """Both recursions in one loop, which halves the dispatched operations where there are lanes."""
    last, zero = likelihoods.shape[0] - 1, jnp.zeros((), jnp.int32)
    matrices, rest = jnp.stack([transition, transition.T]), (zero,) * (len(likelihoods.shape) - 1)

    def body(state):
        t, before, after = state
        back = last - t
        messages = jnp.stack([row(before, t), row(after, back)])
        new = _next_message(messages, jnp.stack([likelihoods.at(t), likelihoods.at(back)]), matrices)
        before = lax.dynamic_update_slice(before, new[:1], (t + 1, *rest))
        return t + 1, before, lax.dynamic_update_slice(after, new[1:], (back - 1, *rest))

    buffers = _message_buffer(likelihoods).at[0].set(start), _message_buffer(likelihoods)
    return lax.while_loop(lambda state: state[0] != last, body, (zero, *buffers))[1:]


def _message_buffer(likelihoods: StepLikelihoods) -> Any:
    """Ones for all messages. The barrier keeps XLA from turning later writes into a select per entry."""
    return lax.optimization_barrier(jnp.ones(likelihoods.shape, likelihoods.top().dtype))


def _next_message(message: Any, weight: Any, matrix: Any) -> Any:
    if message.ndim == 1:
        return multiply_message(message * weight, matrix) / message.sum()
    return multiply_message(message * weight / message.sum(-1, keepdims=True), matrix)


def _scaled_log_evidence(before: Any, likelihoods: StepLikelihoods) -> Any:
    """log p(x) from the messages of `_scaled_recursion`: the logs of all divisors and of the last sum."""
    last = before[-1] * likelihoods.at(jnp.array(likelihoods.shape[0] - 1, jnp.int32))
    return jnp.log(_divisors(before)[:-1]).sum(0) + jnp.log(last.sum(-1)) + likelihoods.top().sum(0)


def _divisors(before: Any) -> Any:
    """Σ over states, (steps, *lanes)."""
    return jnp.matmul(before, jnp.ones(before.shape[-1], before.dtype), precision="highest")


# -- where scaled messages lose digits -----------------------------------------------------------------


def is_surely_exact(log_transition: Any, messages: Messages) -> Any:
    """Whether no needed message can have underflowed, judged by the transitions and the first step."""
    kind = jnp.finfo(messages.ahead.dtype)
    start = (messages.ahead[0].sum(-1) >= (kind.tiny / kind.eps) ** 0.5).all()
    return has_large_transitions(log_transition) & start & jnp.isfinite(messages.total).all()


def has_large_transitions(log_transition: Any) -> Any:
    """Whether all transitions are above (tiny / ε)^¼, so that scaled messages are exact to rounding.

    A state that underflows at one step loses paths that any other state replaces at the cost of two
    transitions; and a message that is divided by the sum of the step before may be as small as two more.
    """
    kind = jnp.finfo(log_transition.dtype)
    return jnp.min(log_transition) >= 0.25 * (jnp.log(kind.tiny) - jnp.log(kind.eps))


def no_underflow(log_initial: Any, log_transition: Any, log_likelihood: Any, messages: Messages) -> Any:
    """Whether all messages of reachable states kept their digits; log_likelihood is (steps, *lanes, k)."""
    initial, transition, likelihood = (a > -jnp.inf for a in (log_initial, log_transition, log_likelihood))
    exact = _reachable_are_exact(initial, transition, likelihood, messages.ahead)
    exact = exact & jnp.isfinite(messages.total).all()
    if messages.onward is None:
        return exact
    # The smallest value that the message had, before it was divided.
    onward = messages.onward * state_sums(messages.after)
    backward = _reachable_are_exact(jnp.ones_like(initial), transition.T, likelihood[::-1], onward[::-1])
    return exact & backward


def _reachable_are_exact(initial: Any, transition: Any, likelihood: Any, messages: Any) -> Any:
    """Whether all messages are large enough where a path of possible transitions leads."""
    kind = jnp.finfo(messages.dtype)
    alive = (messages[:-1] > 0).astype(messages.dtype)
    reachable = jnp.matmul(alive, transition.astype(messages.dtype)) > 0
    reachable = jnp.concatenate([jnp.broadcast_to(initial, (1, *messages.shape[1:])), reachable])
    return jnp.all((messages >= kind.tiny / kind.eps) | ~(reachable & likelihood))


def recompute_if_inexact(exact: Any, result: Any, recompute: Callable[[Any], Any]) -> Any:
    """`result` if it is exact, else `recompute(result)`: a branch, as a loop that runs at most once.

    Unlike `lax.cond` it copies nothing, and under `vmap` it recomputes only if some element needs it.
    """
    done = jnp.array(True)
    return lax.while_loop(lambda s: ~s[0], lambda s: (done, recompute(s[1])), (exact, result))[1]


# -- logarithms: slower, exact where probabilities would underflow -------------------------------------


def log_forward_pass(log_initial: Any, log_transition: Any, log_likelihood: Any) -> Messages:
    """The forward pass by log-sum-exp, for log_likelihood (steps, k, *lanes)."""
    ahead, top, _ = log_messages(log_initial, log_transition, log_likelihood, both=False)
    filtered, log_sums = jax.vmap(_normalise_logs)(ahead)
    # After a step of probability zero all later sums are −∞ too, so the last one is enough.
    return Messages(jnp.moveaxis(filtered, 1, -1), top.sum(0) + log_sums[-1])


def _normalise_logs(log_values: Any) -> tuple[Any, Any]:
    """(values that sum to one over the states, the log of their sum), from logarithms (k, *lanes)."""
    top = finite_max(log_values, 0)
    values = jnp.exp(log_values - top)
    total = values.sum(0)
    return values / total, jnp.log(total) + top


def log_messages(log_initial: Any, log_transition: Any, log_likelihood: Any, both: bool = True) -> Any:
    """log p(x_1 … x_t, z_t) less its maximum, that maximum by steps, and log p(x_t … x_T | z_t) likewise.

    Subtracting the maximum at every step keeps the digits of differences between states in long chains.
    """
    first = expand_lanes(log_initial, log_likelihood[0]) + log_likelihood[0]
    ahead, top = _log_recursion(log_transition, log_likelihood.at[0].set(first))
    onward = _log_recursion(log_transition.T, log_likelihood[::-1])[0][::-1] if both else None
    return ahead, top, onward


def _log_recursion(log_transition: Any, x: Any) -> tuple[Any, Any]:
    if interpreted():
        return _log_products(log_transition, x)

    def step(before, here):
        terms = before[:, None] + expand_lanes(log_transition, before)
        top = finite_max(terms, 0)
        new = jnp.log(jnp.sum(jnp.exp(terms - top), 0)) + top + here
        lowered = finite_max(new, 0)
        return new - lowered, (new - lowered, lowered)

    start = finite_max(x[0], 0)
    _, (rest, tops) = lax.scan(step, x[0] - start, x[1:])
    first = (x[0] - start)[None], start[None]
    return jnp.concatenate([first[0], rest]), jnp.concatenate([first[1], tops])


def _log_products(log_transition: Any, x: Any) -> tuple[Any, Any]:
    """The same as products of matrices of logarithms, all steps at once."""
    x = jnp.moveaxis(x, 1, -1)
    steps = (log_transition + x[..., None, :]).at[0].set(x[0][..., None, :])
    products, log_size = _running_products(_multiply_logs, (steps, jnp.zeros(x.shape[:-1], x.dtype)))
    messages = jnp.moveaxis(products[..., 0, :], -1, 1)
    lowered = finite_max(messages, 1)
    tops = jnp.diff(lowered + log_size, axis=0, prepend=0)
    return messages - lowered[:, None], tops


def _multiply_logs(left: Any, right: Any) -> tuple[Any, Any]:
    """log (e^A e^B) less its maximum, and that maximum added to those before."""
    (a, log_a), (b, log_b) = left, right
    terms = a[..., :, :, None] + b[..., None, :, :]
    top = finite_max(terms, -2)
    product = jnp.log(jnp.sum(jnp.exp(terms - top[..., None, :]), -2)) + top
    lowered = finite_max(product.reshape(*product.shape[:-2], -1), -1)
    return product - lowered[..., None, None], log_a + log_b + lowered


# -- associative: log T rounds of products of k × k matrices, for accelerators -------------------------


def associative_pass(
    log_initial: Any, log_transition: Any, likelihoods: StepLikelihoods, both: bool
) -> Messages:
    """The same by an associative scan over the matrices A diag(b_t), which holds T k² numbers.

    Särkkä and García-Fernández (2021), Temporal parallelization of Bayesian smoothers.
    """
    transition, weight = jnp.exp(log_transition), likelihoods.weight()
    first = jnp.exp(log_initial - finite_max(log_initial, 0)) * weight[0]
    steps = transition * weight[..., None, :]
    steps = steps.at[0].set(jnp.broadcast_to(first[..., None, :], steps.shape[1:]))
    ahead, log_size = _running_products(_multiply_scaled, _scale_matrices(steps))
    filtered = ahead[..., 0, :]
    sums = filtered.sum(-1)
    total = jnp.log(sums[-1]) + log_size[-1] + finite_max(log_initial, 0) + likelihoods.top().sum(0)
    filtered = filtered / sums[..., None]
    if not both:
        return Messages(filtered, total)
    # From the last step back: diag(b_t) A diag(b_{t+1}) … 1.
    back = weight[..., :, None] * jnp.concatenate(
        [
            jnp.broadcast_to(transition, steps[1:].shape),
            jnp.broadcast_to(jnp.eye(transition.shape[0], dtype=transition.dtype), steps[:1].shape),
        ]
    )
    swapped = lambda a, b: _multiply_scaled(b, a)
    back, _ = _running_products(swapped, _scale_matrices(back), reverse=True)
    onward = back.sum(-1)
    onward = onward / onward.sum(-1, keepdims=True)
    after = jnp.matmul(onward[1:], transition.T, precision="highest")
    return Messages(filtered, total, onward, jnp.concatenate([after, jnp.ones_like(onward[:1])]))


def _running_products(multiply: Callable[[Any, Any], Any], elements: Any, reverse: bool = False) -> Any:
    """x_1 · … · x_t for every t, or from the last back: products of 2, 4, 8, … elements for all t at once.

    `lax.associative_scan` multiplies half as much, but writes out every round: 370 equations for 600 steps.

    Hillis and Steele (1986), Data parallel algorithms.
    """
    if not interpreted():
        return lax.associative_scan(multiply, elements, reverse=reverse)
    flip = lambda tree: jax.tree.map(lambda a: a[::-1], tree) if reverse else tree
    first = flip(elements)
    t = jnp.arange(first[0].shape[0])

    def double(i, products):
        distance = 1 << i
        earlier = jax.tree.map(lambda a: a[jnp.maximum(t - distance, 0)], products)
        longer = multiply(earlier, products)
        choose = lambda new, old: jnp.where(expand_lanes(t >= distance, old), new, old)
        return jax.tree.map(choose, longer, products)

    return flip(lax.fori_loop(0, (len(t) - 1).bit_length(), double, first))


def _scale_matrices(matrices: Any) -> tuple[Any, Any]:
    """(matrices divided by the sum of their entries, the logs of these sums)."""
    size = matrices.sum((-2, -1))
    size = jnp.where(size > 0, size, 1)
    return matrices / size[..., None, None], jnp.log(size)


def _multiply_scaled(left: Any, right: Any) -> tuple[Any, Any]:
    (a, log_a), (b, log_b) = left, right
    product, log_size = _scale_matrices(a @ b)
    return product, log_a + log_b + log_size
