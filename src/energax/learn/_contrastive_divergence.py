"""Contrastive divergence: the negative phase comes from a short, or a persistent, chain."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import free_energy
from ..errors import BadInput, Unsuitable
from ..missing import is_masked
from ..samplers import default_sampler
from ._objective import Objective, check_variables, stop_gradient
from ._requirements import check_free_energy, check_joint


class ContrastiveDivergence(Objective):
    """mean F(x⁺) − mean F(x⁻), with x⁻ from k sweeps of a chain begun at the data.

    The gradient is that of the negative log-likelihood with the model's expectation replaced
    by the chain's. `persistent=True` lets the chains go on from update to update, with all their
    variables, instead of beginning anew at the data (`n_chains` of them, by default one a row of
    the batch). Missing coordinates of x⁺ are drawn by the same chain, with what is known held fixed.

    `sampler=None` takes one that suits the energy: `Gibbs()` where every variable is finite or has
    a known conditional, else `Langevin()`. The latter moves by a step of 0.1 in ℝⁿ, which suits
    standardised data; for other scales name it: `sampler=Langevin(step_size)`. Persistent chains of
    an RBM cost one product of matrices less with `sampler=Gibbs(("x", "z"))`: then x follows from
    hidden units drawn before the last update, which is no loss unless the steps are large.

    Hinton (2002), Training products of experts by minimizing contrastive divergence;
    Tieleman (2008), Training restricted Boltzmann machines using approximations to the
    likelihood gradient.

    >>> from energax import Batch
    >>> from energax.energies import RBM
    >>> batch = Batch({"x": jnp.ones((4, 3))}, jnp.ones(4))
    >>> terms, _ = ContrastiveDivergence(k=1)(RBM.random(3, 2, key=0), batch, None, jax.random.key(1))
    >>> sorted(terms)
    ['negative phase', 'positive phase']
    """

    k: int = eqx.field(static=True, default=1)
    persistent: bool = eqx.field(static=True, default=False)
    n_chains: int | None = eqx.field(static=True, default=None)
    sampler: Any = None

    def __check_init__(self):
        for name in ("k", "n_chains"):
            value = getattr(self, name)
            if not (isinstance(value, int) and value >= 1) and not (name == "n_chains" and value is None):
                raise BadInput(name, repr(value), "a whole number >= 1")
        if self.n_chains is not None and not self.persistent:
            raise BadInput(
                "n_chains",
                f"{self.n_chains} without persistent=True",
                "none: chains begun at the data are one a row",
                "Set persistent=True, or leave n_chains out.",
            )

    def check(self, energy, data):
        check_variables(self, energy, data, *[n for n in energy.spaces if n in data])
        if not any(n in data for n in energy.spaces):
            raise Unsuitable("ContrastiveDivergence needs at least one observed variable.")
        check_joint(self, energy)
        check_free_energy(self, energy, data)
        sampler = self._sampler(energy, data)
        sampler.check(energy)
        first = sampler.first_overwritten(energy, data)
        if not self.persistent and first is not None:
            raise Unsuitable(
                f"Chains begun at the data draw what is hidden first, but {sampler!r} begins with {first!r}, "
                "and would forget the data. Leave the sampler out, or set persistent=True."
            )

    def _sampler(self, energy, seen):
        return default_sampler(energy, seen) if self.sampler is None else self.sampler

    def init(self, energy, batch, key):
        if not self.persistent:
            return None
        n = self.n_chains or batch.n
        pick_key, start_key = jax.random.split(key)
        seen = {k: v.value if is_masked(v) else v for k, v in batch.data.items()}
        # Padding is no place to begin at.
        pick = jax.random.categorical(pick_key, jnp.where(batch.weight > 0, 0.0, -jnp.inf), shape=(n,))
        seen = jax.tree.map(lambda a: jnp.asarray(a)[pick], seen)
        return self._sampler(energy, seen).begin(energy, seen, start_key)

    def __call__(self, energy, batch, carry, key):
        fixed, positive = stop_gradient(energy), batch.data
        if any(map(is_masked, positive.values())):
            clamp_key, key = jax.random.split(key)
            positive = self._completed(fixed, batch, clamp_key)
        start = carry if self.persistent else positive
        chains = jax.lax.stop_gradient(self._sampler(fixed, positive).advance(fixed, start, self.k, key))
        free = jax.vmap(lambda row: free_energy(energy, row))
        below = free({name: chains[name] for name in positive})
        # Chains begun at the data carry the weights of their rows.
        negative_phase = below.mean() if self.persistent else batch.mean(below)
        terms = {"positive phase": batch.mean(free(positive)), "negative phase": -negative_phase}
        return terms, (chains if self.persistent else None)

    def _completed(self, energy, batch, key):
        return self._sampler(energy, batch.data).complete(energy, batch.data, max(self.k, 5), key)
