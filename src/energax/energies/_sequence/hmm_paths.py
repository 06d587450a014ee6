"""The hidden path of one sequence, as a distribution: asked, drawn from, and its best."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.chains import hmm as recursions


class Paths(eqx.Module):
    """p(z | x) over paths of states: a Markov chain whose transitions change from step to step."""

    log_initial: Any
    log_transition: Any
    log_likelihood: Any  # (steps, k)

    def _parts(self) -> tuple[Any, Any, Any]:
        return self.log_initial, self.log_transition, self.log_likelihood

    @property
    def probs(self) -> Any:
        """p(z_t | x), (steps, k)."""
        return recursions.smoothed(*self._parts()).states

    @property
    def pairs(self) -> Any:
        """p(z_t, z_{t+1} | x), (steps − 1, k, k)."""
        return recursions.pairwise(*self._parts())

    @property
    def mode(self) -> Any:
        return recursions.viterbi(*self._parts())[0]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        states = recursions.filtered(*self._parts())[1]
        draw = lambda key: recursions.sampled(key, states, self.log_transition)
        if not sample_shape:
            return draw(key)
        keys = jax.random.split(key, int(np.prod(sample_shape)))
        return jax.vmap(draw)(keys).reshape(*sample_shape, -1)

    def log_prob(self, value: Any) -> Any:
        z = jnp.asarray(value).astype(jnp.int32)
        here = jnp.take_along_axis(self.log_likelihood, z[:, None], 1).sum()
        joint = self.log_initial[z[0]] + self.log_transition[z[:-1], z[1:]].sum() + here
        return joint - recursions.log_evidence(*self._parts())
