"""What a field of a module says of its arrays: parameters in a space, or fixed data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax


def parameter(space: Any, **kwargs: Any) -> Any:
    """A field of an energy whose values lie in `space`: `scale: Array = parameter(Positive())`.

    Descent and samplers move the parameter through the bijection of its space; EM sets it
    directly. Leading axes are free: a `Positive()` parameter may be an array of any shape.
    """
    return eqx.field(metadata={"space": space}, **kwargs)


def is_concrete(value: Any) -> bool:
    """Whether this is a value that can be looked at, not a stand-in in code being traced."""
    return not isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)


def fixed(**kwargs: Any) -> Any:
    """A field whose arrays are data, not parameters: no learner and no weight decay moves them."""
    return eqx.field(metadata={"fixed": True}, **kwargs)


def declared(module: Any, name: str) -> Mapping[str, Any]:
    """What `parameter` or `fixed` said of a field."""
    for field in dataclasses.fields(module):
        if field.name == name:
            return field.metadata
    return {}
