"""The Ising model on a square torus as an energy over its two sublattices, and its exact free energy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Bernoulli

from energax import Binary, Energy
from energax.spaces import fixed

#: The inverse temperature K = J / T of the phase transition of the infinite lattice. Onsager (1944).
CRITICAL = 0.5 * np.log1p(np.sqrt(2.0))


class Ising(Energy):
    """e(s) = −K Σ s_i s_j over neighbours, with s = 2 x − 1; the colours of a chessboard are two variables.

    Rows of `black` and `white` are the L / 2 sites of that colour in a row of the L × L torus, L even. The
    neighbours of a site have the other colour, so that p(black | white) is a product.
    """

    coupling: jax.Array
    side: int = fixed()

    @property
    def spaces(self):
        return {name: Binary(self.side, self.side // 2) for name in ("black", "white")}

    def __call__(self, *, black, white):
        return -jnp.sum((2 * black - 1) * self._field("black", white))

    def conditional(self, name, *, black=None, white=None):
        other = white if name == "black" else black
        return Bernoulli(logits=2 * self._field(name, other)).to_event(2)

    def _field(self, name: str, other: Any) -> Any:
        """Return K times the sum of the four neighbours of every site, which are in `other`."""
        spins = 2 * other - 1
        is_left = (np.arange(self.side) % 2 == 0)[:, None] == (name == "black")
        beside = jnp.where(is_left, jnp.roll(spins, 1, 1), jnp.roll(spins, -1, 1))
        return self.coupling * (jnp.roll(spins, 1, 0) + jnp.roll(spins, -1, 0) + spins + beside)


def log_partition(coupling: Any, side: int) -> Any:
    """log Z of an L × L torus. Kaufman (1949), Crystal statistics II."""
    k = np.arange(1, 2 * side)
    cosh = jnp.cosh(2 * coupling) ** 2 / jnp.sinh(2 * coupling) - jnp.cos(jnp.pi * k / side)
    half = side * jnp.arccosh(cosh) / 2
    # The term of k = 0 is negative above the critical temperature, and is kept with its sign.
    zeroth = side * (2 * coupling + jnp.log(jnp.tanh(coupling))) / 2
    log_cosh, log_sinh = jnp.logaddexp(half, -half), half + jnp.log1p(-jnp.exp(-2 * half))
    odd, even = k % 2 == 1, k % 2 == 0
    logs = jnp.stack([log_cosh[odd].sum(), log_sinh[odd].sum(), log_cosh[even].sum(), log_sinh[even].sum()])
    factors = jnp.stack([1.0, 1.0, 2 * jnp.cosh(zeroth), 2 * jnp.sinh(zeroth)])
    largest = jax.lax.stop_gradient(logs.max())
    total = largest + jnp.log(jnp.sum(factors * jnp.exp(logs - largest)))
    return total - jnp.log(2.0) + side**2 / 2 * jnp.log(2 * jnp.sinh(2 * coupling))


def exact_moments(coupling: float, side: int) -> tuple[float, float]:
    """Return the mean and the variance of −Σ s_i s_j, the first two derivatives of log Z."""
    with jax.enable_x64(True):
        slope = jax.grad(log_partition)
        return -float(slope(coupling, side)), float(jax.grad(slope)(coupling, side))
