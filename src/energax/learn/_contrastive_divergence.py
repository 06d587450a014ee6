"""Contrastive divergence: the negative phase is drawn by short or persistent chains."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FLAG, NONE, WHOLE, check_arguments, instance
from .._util.arrays import asarray
from ..energy import checked_energy, free_energy
from ..errors import BadInput, Unsuitable
from ..missing import is_masked
from ..samplers import Sampler, default_sampler
from ._objective import Objective, stop_gradient
from ._requirements import check_free_energy, check_inputs


class Chains(NamedTuple):
    """Persistent chains of a sampler with a memory, such as the hot replicas of parallel tempering."""

    states: dict[str, Any]
    memory: Any


class ContrastiveDivergence(Objective):
    """The contrastive divergence mean F(x⁺) − mean F(x⁻), with x⁻ from k sweeps of a chain started at x⁺.

    The gradient is that of the negative log-likelihood with the model's expectation replaced
    by that of the chains. Missing coordinates of the data x⁺ are drawn by the same sampler, with
    the observed ones fixed. Chains of an energy with inputs stay at the inputs of their row. Where the
    energy has `free_energy_bound` in place of F, as deep Boltzmann machines do, the positive phase is that
    bound, and the negative phase the energy of whole chains (Salakhutdinov and Hinton, 2009).

    Args:
        k: sweeps of the sampler per update.
        persistent: whether the chains, with all their variables, continue from update to update
            instead of starting at the data.
        n_chains: the number of persistent chains, by default one per row of the batch.
        sampler: None is `Gibbs()` if every variable is finite or has a known conditional, else
            `Langevin()`. Its step of 0.1 in ℝⁿ suits standardised data; for other scales pass
            `Langevin(step_size)`. Persistent chains of an RBM take one matrix product less with
            `Gibbs(("x", "z"))`: x is then drawn from hidden units that were drawn before the last
            update, which costs accuracy only if the steps are large.

    Where persistent chains stay in one mode, `sampler=ParallelTempering(Gibbs())` keeps hot replicas of each
    from update to update; `check_phases` tells.

    Hinton (2002), Training products of experts by minimizing contrastive divergence; Tieleman (2008),
    Training restricted Boltzmann machines using approximations to the likelihood gradient; Desjardins et al.
    (2010), Tempered Markov chain Monte Carlo for training of restricted Boltzmann machines.

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
        sampler = instance(Sampler, "a sampler of energax.samplers", "Try Gibbs().") | NONE
        check_arguments(self, k=WHOLE, n_chains=WHOLE | NONE, persistent=FLAG, sampler=sampler)
        if self.n_chains is not None and not self.persistent:
            raise BadInput(
                "n_chains",
                f"{self.n_chains} without persistent=True",
                "None: without persistence there is one chain per row",
                "Pass persistent=True, or leave n_chains out.",
            )

    def check(self, energy, data):
        if not any(n in data for n in energy.spaces):
            raise Unsuitable("ContrastiveDivergence needs at least one observed variable.")
        check_inputs(self, energy, data)
        if self.persistent and energy.inputs:
            raise Unsuitable(
                "Persistent chains draw all variables, but "
                f"{type(energy).__name__} does not model {sorted(energy.inputs)}, its inputs. Use "
                "persistent=False, whose chains stay at the inputs of their rows, CrossEntropy or "
                "NegativeLogLikelihood."
            )
        if not _has_bound(energy, data):
            check_free_energy(self, energy, data)
        sampler = self._sampler(energy, data)
        free = (
            energy.given(**{n: _zeros(energy.spaces[n]) for n in energy.inputs}) if energy.inputs else energy
        )
        sampler.check(free)
        first = sampler.first_overwritten(energy, data)
        if not self.persistent and first is not None:
            raise Unsuitable(
                f"Chains started at the data must draw the hidden variables first, but {sampler!r} draws "
                f"{first!r} first, which overwrites the data. Leave sampler out, or pass persistent=True."
            )

    def _sampler(self, energy, observed):
        if self.sampler is not None:
            return self.sampler
        if energy.inputs:
            energy = energy.given(**{n: _zeros(energy.spaces[n]) for n in energy.inputs})
        return default_sampler(energy, [n for n in observed if n in energy.spaces], in_learning=True)

    def init(self, energy, batch, key):
        if not self.persistent:
            return None
        n = self.n_chains or batch.n
        row_key, start_key = jax.random.split(key)
        observed = {k: v.value if is_masked(v) else v for k, v in batch.data.items()}
        # Rows of weight 0 are padding and start no chain.
        rows = jax.random.categorical(row_key, jnp.where(batch.weight > 0, 0.0, -jnp.inf), shape=(n,))
        observed = jax.tree.map(lambda a: asarray(a)[rows], observed)
        sampler = self._sampler(energy, observed)
        states = sampler.start_rows(energy, observed, start_key)
        if not sampler.keeps_memory:
            return states
        return Chains(states, jax.vmap(lambda s: sampler.init_memory(energy, s))(states))

    def states(self, carry):
        """The states of persistent chains in a carry, by name."""
        return carry.states if isinstance(carry, Chains) else carry

    def __call__(self, energy, batch, carry, key):
        fixed, positive = stop_gradient(energy), batch.data
        if any(map(is_masked, positive.values())):
            missing_key, key = jax.random.split(key)
            positive = self._complete(fixed, batch, missing_key)
        moved = jax.lax.stop_gradient(self._advance(fixed, carry if self.persistent else positive, key))
        chains = self.states(moved)
        if _has_bound(energy, positive):
            # The chains have all variables, and the energy has the same mean gradient as F.
            observed = jax.vmap(lambda row: energy.free_energy_bound(**row))(positive)
            negative = jax.vmap(lambda row: checked_energy(energy, row))(chains)
        else:
            observed, negative = _free_energies(energy, positive, chains, batch.shards)
        # Chains started at the data have the weights of their rows.
        negative_phase = negative.mean() if self.persistent else batch.mean(negative)
        terms = {"positive phase": batch.mean(observed), "negative phase": -negative_phase}
        return terms, (moved if self.persistent else None)

    def _advance(self, energy, rows, key):
        """The chains after k sweeps; those of an energy with inputs stay at the inputs of their rows."""
        sampler = self._sampler(energy, self.states(rows))
        if isinstance(rows, Chains):

            def chain(state, memory, key):
                memory = sampler.renew_memory(energy, state, memory)
                move = lambda i, c: sampler.move(energy, *c, jax.random.fold_in(key, i))[:2]
                return jax.lax.fori_loop(0, self.k, move, (state, memory))

            n = jax.tree.leaves(rows.states)[0].shape[0]
            return Chains(*jax.vmap(chain)(rows.states, rows.memory, jax.random.split(key, n)))
        if not energy.inputs:
            return sampler.advance(energy, rows, self.k, key)

        def one(row, key):
            inputs = {n: row[n] for n in energy.inputs}
            rest = {n: v[None] for n, v in row.items() if n not in inputs}
            moved = sampler.advance(energy.given(**inputs), rest, self.k, key)
            return {**inputs, **{n: v[0] for n, v in moved.items()}}

        n = jax.tree.leaves(rows)[0].shape[0]
        return jax.vmap(one)(rows, jax.random.split(key, n))

    def _complete(self, energy, batch, key):
        """The data with missing values drawn given the observed ones."""
        return self._sampler(energy, batch.data).complete(energy, batch.data, max(self.k, 5), key)


def _free_energies(energy, positive, chains, shards):
    """Return F of the data and of the chains, in one call for both: half as many products of matrices."""
    negative = {name: chains[name] for name in positive}
    free_energies = jax.vmap(lambda row: free_energy(energy, row))
    if shards > 1:  # joined rows would have to move between devices
        return free_energies(positive), free_energies(negative)
    both = free_energies(jax.tree.map(lambda a, b: jnp.concatenate([a, b]), positive, negative))
    n = jax.tree.leaves(positive)[0].shape[0]
    return both[:n], both[n:]


def _has_bound(energy, data):
    """Whether F of the data is bounded in place of computed."""
    return energy.knows("free_energy_bound", frozenset(data))


def _zeros(space):
    return jnp.zeros(space.shape, space.jax_dtype)
