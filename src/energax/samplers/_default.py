"""The sampler of an energy where none is named."""

from __future__ import annotations

import functools
from collections.abc import Collection

from .._util.arguments import FLAG, check_arguments
from ..catalog import of_kind
from ..energy import Energy
from ..errors import BadInput, EnergaxError, Unsuitable, check_instance, describe
from ._sampler import Sampler


def automatic_samplers(in_learning: bool = False) -> tuple[Sampler, ...]:
    """Return the automatic samplers of the catalog, of inference or of learners, by priority.

    >>> [sampler.label for sampler in automatic_samplers()]
    ['Gibbs', 'NUTS', 'compound']
    """
    check_arguments(locals(), in_learning=FLAG)
    return _automatic_samplers(bool(in_learning))


@functools.cache
def _automatic_samplers(in_learning: bool) -> tuple[Sampler, ...]:
    flag = "automatic_in_learning" if in_learning else "automatic"
    classes = [row.load() for row in of_kind("sampler")]
    return tuple(c() for c in sorted((c for c in classes if getattr(c, flag)), key=lambda c: c.priority))


def default_sampler(energy: Energy, observed: Collection[str] = (), in_learning: bool = False) -> Sampler:
    """Return the first automatic sampler that supports the energy.

    `Gibbs` if every variable is finite or has a `conditional`, else `NUTS` for real variables, else
    `Compound`. For learners, which have no warm-up, `Langevin` takes the place of the last two. Chains that
    start at rows of the variables `observed` draw the other variables first.

    >>> from energax.energies import RBM, NeuralEnergy
    >>> default_sampler(RBM.random(3, 2, key=0)).label, default_sampler(NeuralEnergy.random(2, key=0)).label
    ('Gibbs', 'NUTS')
    """
    check_instance("energy", energy, Energy, "an energy")
    is_list = isinstance(observed, list | tuple | set | frozenset | dict)
    if not is_list or not all(isinstance(name, str) for name in observed):
        raise BadInput("observed", describe(observed), "names of variables")
    for sampler in automatic_samplers(in_learning):
        sampler = sampler.draw_hidden_first(energy, observed)
        try:
            sampler.check(energy)
        except EnergaxError:
            continue
        return sampler
    spaces = ", ".join(f"{name!r} in {space!r}" for name, space in energy.spaces.items())
    raise Unsuitable(
        f"No sampler supports {type(energy).__name__} over {spaces}: Gibbs needs finite variables or the "
        "energy's `conditional`, NUTS a gradient in real ones. Give the energy `conditional`."
    )
