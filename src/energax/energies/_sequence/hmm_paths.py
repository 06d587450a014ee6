"""The distribution of the hidden path of one sequence."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ...algorithms.chains import hmm, hmm_paths


class Paths(eqx.Module):
    """p(z | x), a distribution over paths of states, with the method names of NumPyro."""

    log_initial: Any
    log_transition: Any
    log_likelihood: Any  # (steps, k)

    def _parts(self) -> tuple[Any, Any, Any]:
        return self.log_initial, self.log_transition, self.log_likelihood

    @property
    def probs(self) -> Any:
        """p(z_t | x), (steps, k)."""
        return hmm.hmm_smoother(*self._parts()).states

    @property
    def pairs(self) -> Any:
        """p(z_t, z_{t+1} | x), (steps − 1, k, k)."""
        return hmm.pair_posteriors(*self._parts())

    @property
    def mode(self) -> Any:
        """The most probable path, (steps,)."""
        return hmm_paths.viterbi(*self._parts())[0]

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw paths, (*sample_shape, steps)."""
        states = hmm.hmm_filter(*self._parts())[1]
        draw = lambda key: hmm_paths.sample_path(key, states, self.log_transition)
        if not sample_shape:
            return draw(key)
        keys = jax.random.split(key, int(np.prod(sample_shape)))
        return jax.vmap(draw)(keys).reshape(*sample_shape, -1)

    def log_prob(self, value: Any) -> Any:
        """log p(path | x)."""
        z = asarray(value).astype(jnp.int32)
        here = jnp.take_along_axis(self.log_likelihood, z[:, None], 1).sum()
        joint = self.log_initial[z[0]] + self.log_transition[z[:-1], z[1:]].sum() + here
        return joint - hmm.log_evidence(*self._parts())
