"""A unit Gaussian as a user's energy, for tests of files and checkpoints."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from energax import Energy
from energax.spaces import Real


class Bowl(Energy):
    """½‖x − centre‖² + log 2π."""

    centre: jax.Array
    note: Any = eqx.field(static=True, default=None)

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return 0.5 * jnp.sum((x - self.centre) ** 2) + jnp.log(2 * jnp.pi)

    def log_partition(self):
        return jnp.zeros(())
