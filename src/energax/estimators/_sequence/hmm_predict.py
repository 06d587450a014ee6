"""What a hidden Markov chain is asked, compiled; and what it answers with."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.chains import hmm as recursions
from ...algorithms.chains.observations import mask_after_end


@dataclasses.dataclass
class Monitor:
    """How a fit went: the log-likelihood before every step, and whether it converged.

    hmmlearn's `monitor_`; but `converged` is True only if the gain fell to `tol`.
    """

    tol: float
    n_iter: int
    history: list[float]
    converged: bool

    @property
    def iter(self) -> int:
        return len(self.history)


class Forecast(NamedTuple):
    """What comes next: `states` (…, steps, k), and the expected observations `mean` (…, steps, d)."""

    states: np.ndarray
    mean: np.ndarray


def _parts(chain: Any, read: Any, x: Any, ends: Any) -> tuple[Any, Any, Any]:
    """log π, log A and what `read` makes of x; steps past an end say nothing."""
    likelihood = read(jax.tree.map(jnp.asarray, x))
    return (*chain.logs(), likelihood if ends is None else mask_after_end(ends, likelihood))


class Question:
    """A function of (chain, x, ends), compiled.

    A chain is taken apart once: to flatten a module anew costs more than a short sequence does.
    """

    def __init__(self, function: Any):
        whole = lambda shape, leaves, x, ends: function(jax.tree.unflatten(shape, leaves), x, ends)
        self.call = jax.jit(whole, static_argnums=0)

    def __call__(self, parts: tuple[Any, Any], x: Any, ends: Any) -> Any:
        return self.call(*parts, x, ends)


def flatten_chain(chain: Any) -> tuple[Any, Any]:
    """(structure, arrays) of a chain, for `Question`."""
    leaves, shape = jax.tree.flatten(chain)
    return shape, tuple(jnp.asarray(leaf) for leaf in leaves)


@Question
def evidence(chain, x, ends):
    """log p(x) of every row."""
    return recursions.log_evidence(*_parts(chain, chain.seen, x, ends))


@Question
def smoothed(chain, x, ends):
    """The same, and p(z_t | x)."""
    found = recursions.smoothed(*_parts(chain, chain.seen, x, ends), lengths=ends)
    return found.log_likelihood, found.states


@Question
def best(chain, x, ends):
    """The most probable paths, and log p(x, path)."""
    path, value = recursions.viterbi(*_parts(chain, chain.log_likelihoods, x, ends), lengths=ends)
    return path, value


@partial(jax.jit, static_argnums=2)
def best_paths(chain, x, n_best):
    """The `n_best` most probable paths of one row."""
    initial, transition, likelihood = _parts(chain, chain.log_likelihoods, x, None)
    return recursions.k_best(initial, transition, likelihood[0], n_best)


@partial(jax.jit, static_argnums=3)
def drawn(chain, first, key, n_steps):
    """Observations and states of one sequence whose first state is drawn from `first`."""
    one, two = jax.random.split(key)
    noise = jax.random.gumbel(one, (n_steps, chain.n_states), chain.transition.dtype)
    log_transition = jnp.log(chain.transition)

    def step(state, noise):
        new = jnp.argmax(log_transition[state] + noise)
        return new, new

    start = jnp.argmax(jnp.log(first) + noise[0])
    _, rest = jax.lax.scan(step, start, noise[1:])
    z = jnp.concatenate([start[None], rest])
    keys = jax.random.split(two, n_steps)
    return jax.vmap(lambda key, state: chain.emission.draw(key, z=state)["x"])(keys, z), z
