"""Declarations of fields of a module: parameters in a space, or fixed data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax


def parameter(space: Any, **kwargs: Any) -> Any:
    """A field of an energy whose values are in `space`: `scale: Array = parameter(Positive())`.

    Descent changes the parameter through the bijection of its space; EM sets it directly. The parameter may
    have any leading axes: a `Positive()` parameter may be an array of any shape.
    """
    return eqx.field(metadata={"space": space}, **kwargs)


def is_concrete(value: Any) -> bool:
    """Whether the value is a concrete array, not one that is being traced."""
    return not isinstance(value, jax.core.Tracer | jax.ShapeDtypeStruct)


def fixed(**kwargs: Any) -> Any:
    """A field whose arrays are data, not parameters: neither learners nor weight decay change them."""
    return eqx.field(metadata={"fixed": True}, **kwargs)


def running(**kwargs: Any) -> Any:
    """A field whose arrays follow what is learned, such as moving averages.

    They are `fixed` to learners, and `Objective.after_update` may change them.
    """
    return eqx.field(metadata={"fixed": True, "running": True}, **kwargs)


def field_metadata(module: Any, name: str) -> Mapping[str, Any]:
    """The metadata of a field, as declared by `parameter` or `fixed`; empty for any other."""
    for field in dataclasses.fields(module):
        if field.name == name:
            return field.metadata
    return {}
