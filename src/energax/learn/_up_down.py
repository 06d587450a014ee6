"""The up-down algorithm: wake and sleep phases, with contrastive divergence at the undirected top."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FLAG, WHOLE, check_arguments
from ..energy import free_energy
from ..errors import Unsuitable
from ..samplers import default_sampler
from ._objective import Objective, stop_gradient
from ._requirements import check_no_missing, check_variables


class UpDown(Objective):
    """Contrastive wake-sleep learning of a directed model with an undirected top.

    Wake: z is drawn from the recognition distribution q(z | x), and the generative weights lower F(x, z).
    The negative phase of the top is its state after k sweeps from z, or a persistent chain. Sleep: x and z
    are drawn from there downwards, and the recognition weights raise log q(z | x) of these dreams.

    Args:
        k: sweeps at the top per update.
        persistent: whether the chains at the top continue from update to update, one per row of the first
            batch.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    >>> from energax import fit
    >>> from energax.energies import DeepBeliefNetwork
    >>> from energax.learn import Descent
    >>> network, rows = DeepBeliefNetwork.random((4, 3, 2), key=0), {"x": [[0, 1, 0, 1], [1, 0, 1, 0]]}
    >>> sorted(fit(network, rows, Descent(UpDown()), key=0, epochs=1).history)
    ['objective', 'sleep', 'top', 'wake']
    """

    k: int = eqx.field(static=True, default=1)
    persistent: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_arguments(self, k=WHOLE, persistent=FLAG)

    def check(self, energy, data):
        needed = ("propose", "log_proposal", "undirected")
        absent = [name for name in needed if not energy.knows(name)]
        if absent:
            raise Unsuitable(
                f"UpDown needs recognition weights and an undirected top, but {type(energy).__name__} does "
                f"not have {', '.join(absent)}. Use ContrastiveDivergence, or ELBO with an encoder."
            )
        check_variables(self, data, "x")
        if not energy.knows("propose", frozenset(data)):
            known = sorted(set(data) - {"x"})
            raise Unsuitable(f"UpDown learns from x alone, and the data has {known} too. Leave them out.")
        check_no_missing(self, data, "x", instead="an RBM")

    def init(self, energy, batch, key):
        if not self.persistent:
            return None
        top, names = energy.undirected()
        draw_key, start_key = jax.random.split(key)
        drawn = batch.map_with_keys(lambda k, **row: energy.propose(k, **row)[0], draw_key)
        rows = {n: drawn[here] for n, here in names.items() if here in drawn}
        return default_sampler(top, rows, in_learning=True).start_rows(top, rows, start_key)

    def __call__(self, energy, batch, carry, key):
        up_key, top_key, down_key = jax.random.split(key, 3)
        fixed = stop_gradient(energy)
        drawn = batch.map_with_keys(lambda k, **row: fixed.propose(k, **row)[0], up_key)
        top, names = energy.undirected()
        here = {n: drawn[name] for n, name in names.items() if name in drawn}
        start = carry if self.persistent else here
        fixed_top = stop_gradient(top)
        sampler = default_sampler(fixed_top, here, in_learning=True)
        chains = jax.lax.stop_gradient(sampler.advance(fixed_top, start, self.k, top_key))
        negative = jax.vmap(lambda row: free_energy(top, row))({n: chains[n] for n in here})
        wake = jax.vmap(lambda row: free_energy(energy, row))({**batch.data, **drawn})
        rows = {name: chains[n] for n, name in names.items()}
        dream = jax.vmap(lambda k, row: {**row, **fixed.draw(k, **row)})(
            jax.random.split(down_key, len(negative)), rows
        )
        asleep = jax.vmap(lambda row: -energy.log_proposal(**row))(dream)
        # Chains started at the data have the weights of their rows; persistent ones may be another number.
        mean = jnp.mean if self.persistent else batch.mean
        terms = {"wake": batch.mean(wake), "top": -mean(negative), "sleep": mean(asleep)}
        return terms, (chains if self.persistent else None)
