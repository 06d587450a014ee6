"""The Gumbel-max trick for energies: exact draws of finite variables without log Z."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from ..._util import sizes
from ...energy import checked_energy
from ...finite import ENUMERATION_LIMIT, Assignments
from ...samplers import Draws
from .._map_rows import map_rows
from .._method import Cost, Method

_MAX_NUMBERS = 2**20  # noise that is in memory at once


class GumbelMax(Method):
    """Independent exact draws of finite variables as argmin_v (e(v) − g_v) with Gumbel noise g_v.

    The argmin over all joint values v is a draw from p ∝ exp(−e), without the sum Z. Values are visited in
    chunks, so that memory does not grow with their number. Time grows with values × draws: `Enumeration`,
    which keeps a table of all values, is faster for many draws.

    Gumbel (1954), Statistical theory of extreme values and some practical applications; Maddison, Tarlow and
    Minka (2014), A* sampling.

    >>> from energax.energies import RBM
    >>> from energax.infer import sample
    >>> coins = RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1))
    >>> sample(coins, 5, method=GumbelMax(), key=0)["x"].shape
    (5, 2)
    """

    tasks = frozenset({"sample"})
    priority = 40

    @property
    def label(self):
        return "Gumbel-max"

    def unsupported_reason(self, task, query):
        if query.partially_observed:
            return f"cannot draw the missing coordinates of {list(query.partially_observed)}"
        infinite = [f"{k!r} in {v!r}" for k, v in query.targets.items() if not v.is_finite]
        if infinite:
            return f"needs finite variables, not {', '.join(infinite)}"
        size = Assignments(query.targets).n
        if size > ENUMERATION_LIMIT:
            return f"would have to visit {size:.3g} joint values, more than {ENUMERATION_LIMIT:,}"
        return None

    def why(self, task, query):
        return f"the {Assignments(query.targets).n:,} joint values can be visited"

    def cost(self, task, query):
        size = Assignments(query.targets).n
        return Cost(evaluations=query.n * size, joint_values=size)

    def sample(self, query, n, key):
        names = tuple(query.targets)
        values = map_rows(
            _draw, query.given, query.n, query.energy, names, n, key=key, numbers_per_row=_MAX_NUMBERS
        )
        if query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        return Draws(values, method=self.label, exact=True)


def _draw(row, key, energy, names, n):
    """Return n draws of one row: the running argmax over chunks of joint values."""
    choices = Assignments({name: energy.spaces[name] for name in names})
    size = max(1, min(choices.n, sizes.JOINT_VALUES.value, _MAX_NUMBERS // n))
    log_weight = lambda i: -checked_energy(energy, {**row, **choices.at(i)})

    def visit(step, best):
        score, index = best
        indices = step * size + jnp.arange(size)
        weights = jax.vmap(log_weight)(jnp.minimum(indices, choices.n - 1))
        weights = jnp.where(indices < choices.n, weights, -jnp.inf)
        noisy = weights + jax.random.gumbel(jax.random.fold_in(key, step), (n, size), weights.dtype)
        own = jnp.argmax(noisy, axis=1)
        highest = jnp.take_along_axis(noisy, own[:, None], axis=1)[:, 0]
        return jnp.maximum(score, highest), jnp.where(highest > score, indices[own], index)

    dtype = jax.eval_shape(log_weight, 0).dtype
    start = jnp.full(n, -jnp.inf, dtype), jnp.zeros(n, jnp.arange(1).dtype)
    _, index = jax.lax.fori_loop(0, -(-choices.n // size), visit, start)
    return jax.vmap(choices.at)(index)
