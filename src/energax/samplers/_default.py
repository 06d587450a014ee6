"""Which sampler suits an energy, where nobody named one."""

from __future__ import annotations

from collections.abc import Collection

from ..energy import Energy
from ..errors import EnergaxError, Unsuitable
from ._gibbs import Gibbs
from ._langevin import Langevin
from ._sampler import Sampler


def default_sampler(energy: Energy, seen: Collection[str] = ()) -> Sampler:
    """`Gibbs` where every variable is finite or has a known conditional, else `Langevin`.

    Chains that begin at rows of the variables `seen` draw the others first.

    >>> from energax.energies import RBM, NeuralEnergy
    >>> default_sampler(RBM.random(3, 2, key=0)).label, default_sampler(NeuralEnergy.random(2, key=0)).label
    ('Gibbs', 'Langevin (MALA)')
    """
    gibbs = Gibbs()
    if gibbs.first_overwritten(energy, seen):
        hidden = [name for name in energy.spaces if name not in seen]
        gibbs = Gibbs((*hidden, *[name for name in energy.spaces if name in seen]))
    for sampler in (gibbs, Langevin()):
        try:
            sampler.check(energy)
        except EnergaxError:
            continue
        return sampler
    spaces = ", ".join(f"{name!r} in {space!r}" for name, space in energy.spaces.items())
    raise Unsuitable(
        f"No sampler suits {type(energy).__name__} over {spaces}: Gibbs needs finite variables or the "
        "energy's `conditional`, Langevin a gradient in real ones. Give the energy `conditional`."
    )
