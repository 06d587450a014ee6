"""The sampler of an energy where none is named."""

from __future__ import annotations

import functools
from collections.abc import Collection

from ..catalog import of_kind
from ..energy import Energy
from ..errors import EnergaxError, Unsuitable
from ._sampler import Sampler


@functools.cache
def automatic_samplers() -> tuple[Sampler, ...]:
    """Return the automatic samplers of the catalog, by priority.

    >>> [sampler.label for sampler in automatic_samplers()]
    ['Gibbs', 'Langevin (MALA)']
    """
    classes = [row.load() for row in of_kind("sampler")]
    return tuple(c() for c in sorted((c for c in classes if c.automatic), key=lambda c: c.priority))


def default_sampler(energy: Energy, observed: Collection[str] = ()) -> Sampler:
    """Return the first automatic sampler that supports the energy.

    `Gibbs` if every variable is finite or has a `conditional`, else `Langevin`. Chains that start at rows of
    the variables `observed` draw the other variables first.

    >>> from energax.energies import RBM, NeuralEnergy
    >>> default_sampler(RBM.random(3, 2, key=0)).label, default_sampler(NeuralEnergy.random(2, key=0)).label
    ('Gibbs', 'Langevin (MALA)')
    """
    for sampler in automatic_samplers():
        sampler = sampler.draw_hidden_first(energy, observed)
        try:
            sampler.check(energy)
        except EnergaxError:
            continue
        return sampler
    spaces = ", ".join(f"{name!r} in {space!r}" for name, space in energy.spaces.items())
    raise Unsuitable(
        f"No sampler supports {type(energy).__name__} over {spaces}: Gibbs needs finite variables or the "
        "energy's `conditional`, Langevin a gradient in real ones. Give the energy `conditional`."
    )
