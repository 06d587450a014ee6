"""Which sampler suits an energy, where nobody named one."""

from __future__ import annotations

from ..energy import Energy
from ..errors import EnergaxError, Unsuitable
from ._gibbs import Gibbs
from ._langevin import Langevin
from ._sampler import Sampler


def suited(energy: Energy) -> Sampler:
    """`Gibbs` where every variable is finite or has a known conditional, else `Langevin`.

    >>> from energax.energies import RBM, NeuralEnergy
    >>> suited(RBM.random(3, 2, key=0)).label, suited(NeuralEnergy.random(2, key=0)).label
    ('Gibbs', 'Langevin (MALA)')
    """
    for sampler in (Gibbs(), Langevin()):
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
