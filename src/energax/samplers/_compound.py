"""`Compound`: a sampler for each group of variables, in turn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from ..energy import Energy
from ..errors import BadInput, Unsuitable
from ._gibbs import Gibbs, knows_conditional
from ._hamiltonian import NUTS
from ._metropolis import RandomWalk
from ._sampler import Sampler


def _as_parts(parts: Any) -> Any:
    """Return the samplers by tuples of names, one tuple of pairs."""
    if parts is None or isinstance(parts, tuple):
        return parts
    if not isinstance(parts, Mapping):
        raise BadInput("parts", type(parts).__name__, "a dict from variable names to samplers")
    return tuple(((k,) if isinstance(k, str) else tuple(k), v) for k, v in parts.items())


class Compound(Sampler):
    """Each group of variables in turn, moved by its own sampler given all others.

    Every sampler leaves p(its variables | all others) invariant, so that a move of all of them leaves the
    joint distribution invariant. It is Gibbs sampling with any kernel for each block.

    Args:
        parts: a dict from a name, or a tuple of names, to a sampler. Every variable is in one group. None
            chooses: `Gibbs` for finite variables and those with a `conditional`, one `NUTS` for all other
            real ones, `RandomWalk` for counts.

    Geman and Geman (1984), Stochastic relaxation, Gibbs distributions, and the Bayesian restoration of
    images; Tierney (1994), Markov chains for exploring posterior distributions.

    >>> from energax.energies import RBM
    >>> from energax import sample
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.full(2, jnp.log(3.0)))
    >>> both = Compound({"x": Gibbs(), "z": RandomWalk()})
    >>> bool(abs(sample(rbm, 8000, method=both, key=0)["z"].mean() - 0.75) < 0.04)
    True
    """

    parts: Any

    automatic = True
    priority = 20
    is_compiled = True
    varies_in_length = True

    # Without an `__init__` Equinox flattens the arguments, and JAX cannot sort names beside tuples of names.
    def __init__(self, parts: Any = None):
        self.parts = _as_parts(parts)

    def __check_init__(self):
        for names, sampler in self.parts or ():
            if not all(isinstance(name, str) for name in names):
                raise BadInput("parts", f"the names {names!r:.80}", "names of variables")
            if not isinstance(sampler, Sampler):
                raise BadInput("parts", f"{type(sampler).__name__} for {names}", "a sampler")
        named = [n for names, _ in self.parts or () for n in names]
        if len(set(named)) < len(named):
            raise BadInput("parts", f"the names {named}", "every name once")

    @property
    def label(self):
        if self.parts is None:
            return "compound"
        return " + ".join(f"{sampler.label} of {', '.join(names)}" for names, sampler in self.parts)

    def _groups(self, energy: Energy) -> tuple[tuple[tuple[str, ...], Sampler], ...]:
        return self.parts if self.parts is not None else _default_parts(energy)

    def check(self, energy: Energy) -> None:
        groups, spaces = self._groups(energy), energy.spaces
        named = [n for names, _ in groups for n in names]
        if set(named) != set(spaces):
            raise BadInput("parts", f"the names {named}", f"every variable once: {list(spaces)}")
        if len(groups) < 2 and self.parts is None:
            raise Unsuitable(f"Compound needs several kinds of variables. Use {groups[0][1].label}.")
        state = self.start(energy, {}, jax.random.key(0))
        for names, sampler in groups:
            if sampler.keeps_memory:
                raise Unsuitable(
                    f"Compound cannot hold {sampler.label}, whose replicas belong to fixed values of the "
                    "other variables. Use ParallelTempering(Compound(…))."
                )
            sampler.check(_condition(energy, state, names))

    def unmoved(self, spaces):
        groups = self.parts or ()
        return [n for names, s in groups for n in s.unmoved({k: spaces[k] for k in names if k in spaces})]

    def for_energy(self, energy):
        if self.parts is not None:
            return self
        return Compound(_default_parts(energy))

    def init_memory(self, energy, state, clamped=None):
        return tuple(
            sampler.init_memory(_condition(energy, state, names), _pick(state, names), clamped)
            for names, sampler in self._groups(energy)
        )

    def is_valid_start(self, memory):
        valid = [s.is_valid_start(m) for (_, s), m in zip(self.parts, memory, strict=True)]
        return jnp.stack(valid).all()

    def start_energy(self, memory):
        found = [s.start_energy(m) for (_, s), m in zip(self.parts, memory, strict=True)]
        return jnp.stack(found).max()  # parts know the energy of all variables, or 0

    def step(self, energy, state, key, clamped=None):
        for i, (names, sampler) in enumerate(self._groups(energy)):
            target, part = _condition(energy, state, names), _pick(state, names)
            state = {**state, **sampler.step(target, part, jax.random.fold_in(key, i), clamped)}
        return state

    def move(self, energy, state, memory, key, clamped=None):
        info: dict[str, Any] = {}
        memories = []
        for i, (names, sampler) in enumerate(self._groups(energy)):
            target, part = _condition(energy, state, names), _pick(state, names)
            # The other variables have changed, and with them most of what the sampler remembers.
            start = sampler.renew_memory(target, part, memory[i], clamped)
            part, last, found = sampler.move(target, part, start, jax.random.fold_in(key, i), clamped)
            state = {**state, **part}
            memories.append(last)
            info.update({f"{k} of {', '.join(names)}": v for k, v in found.items()})
        divergent = [v for k, v in info.items() if k.startswith("divergent")]
        if divergent:
            info["divergent"] = jnp.stack(divergent).any()
        return state, tuple(memories), info

    # -- warm-up -------------------------------------------------------------------------------------

    def init_tuning(self, energy, state, memory):
        groups = zip(self._groups(energy), memory, strict=True)
        return tuple(
            s.init_tuning(_condition(energy, state, names), _pick(state, names), m)
            for (names, s), m in groups
        )

    def with_tuning(self, tuning):
        groups = zip(self.parts, tuning, strict=True)
        return Compound(tuple((names, s.with_tuning(t)) for (names, s), t in groups))

    def adapt(self, tuning, i, n, state, memory, info):
        found = []
        for (names, sampler), t, m in zip(self.parts, tuning, memory, strict=True):
            own = f" of {', '.join(names)}"
            part_info = {k.removesuffix(own): v for k, v in info.items() if k.endswith(own)}
            found.append(sampler.adapt(t, i, n, _pick(state, names), m, part_info))
        return tuple(found)


def _condition(energy: Energy, state: dict[str, Any], names: tuple[str, ...]) -> Energy:
    """Return the energy of these variables given the values of all others."""
    others = {k: v for k, v in state.items() if k not in names}
    return energy.given(**others) if others else energy


def _pick(state: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {k: state[k] for k in names}


def _default_parts(energy: Energy) -> tuple[tuple[tuple[str, ...], Sampler], ...]:
    """Return a group of variables for every kind of kernel, and the kernel."""
    spaces = energy.spaces
    by_kernel: dict[str, list[str]] = {"gibbs": [], "gradient": [], "walk": []}
    for name, space in spaces.items():
        others = {k: jax.ShapeDtypeStruct(v.shape, v.jax_dtype) for k, v in spaces.items() if k != name}
        if space.is_finite or knows_conditional(energy, name, others):
            by_kernel["gibbs"].append(name)
        else:
            by_kernel["gradient" if space.is_real else "walk"].append(name)
    kernels = {"gibbs": Gibbs(), "gradient": NUTS(), "walk": RandomWalk()}
    return tuple((tuple(names), kernels[k]) for k, names in by_kernel.items() if names)
