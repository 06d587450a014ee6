"""Functions of a tree as functions of one vector, with their derivatives as programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import BadInput, describe
from ..parameters import trainable_leaves
from ..programs import jit_to_numpy

#: What JAX raises when a function needs numbers where there are only shapes.
_NOT_TRACEABLE = (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The structure and the shapes of a tree of arrays, to take a vector apart. It is hashable."""

    structure: Any
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        return sum(map(math.prod, self.shapes))

    def unflatten(self, vector: Any) -> Any:
        """The tree whose leaves, one after the other, are the vector."""
        leaves, start = [], 0
        for shape in self.shapes:
            leaves.append(vector[start : start + math.prod(shape)].reshape(shape))
            start += math.prod(shape)
        return jax.tree.unflatten(self.structure, leaves)

    def name(self, index: int) -> str:
        """The path of one number of the vector: "[2]", "['a'][0, 1]"."""
        paths = [p for p, _ in jax.tree_util.tree_leaves_with_path(self.unflatten(np.zeros(self.size)))]
        for path, shape in zip(paths, self.shapes, strict=True):
            if index < math.prod(shape):
                inside = ", ".join(str(int(i)) for i in np.unravel_index(index, shape)) if shape else ""
                return jax.tree_util.keystr(path) + (f"[{inside}]" if inside else "")
            index -= math.prod(shape)
        raise IndexError(index)


@dataclasses.dataclass(frozen=True)
class Point:
    """A tree as a vector: the numbers that vary, their layout, and all that stays (`rest`)."""

    vector: np.ndarray
    layout: Layout
    rest: Any

    def tree(self, vector: Any) -> Any:
        return eqx.combine(self.layout.unflatten(vector), self.rest)


def as_point(x: Any, argument: str = "x") -> Point:
    """A tree of numbers as a `Point`. Of a module, such as an energy, the trainable arrays vary."""
    if isinstance(x, list | tuple) and all(isinstance(item, bool | int | float | np.number) for item in x):
        x = np.asarray(x, float)  # as SciPy reads it, rather than as a tree of scalars
    is_module = lambda node: isinstance(node, eqx.Module)
    if any(map(is_module, jax.tree.leaves(x, is_leaf=is_module))):
        varying, rest = eqx.partition(x, trainable_leaves(x))
    else:
        varying, rest = jax.tree.map(lambda leaf: _as_float(leaf, argument), x), None
        rest = jax.tree.map(lambda leaf: None, varying)
    leaves, structure = jax.tree.flatten(varying)
    vector = np.concatenate([np.ravel(np.asarray(leaf)) for leaf in leaves]) if leaves else np.zeros(0)
    if not vector.size:
        raise BadInput(argument, "no real numbers", "an array, a tree of arrays or an energy")
    if vector.dtype.kind != "f":
        raise BadInput(argument, f"numbers of type {vector.dtype}", "real numbers")
    if not np.isfinite(vector).all():
        raise BadInput(argument, "NaN or infinity", "finite numbers")
    return Point(vector, Layout(structure, tuple(np.shape(leaf) for leaf in leaves)), rest)


def _as_float(leaf: Any, argument: str) -> Any:
    try:
        value = np.asarray(leaf)
    except Exception:
        raise BadInput(argument, describe(leaf), "numbers") from None
    if value.dtype.kind in "biu":
        return value.astype(float)
    if value.dtype.kind != "f":
        raise BadInput(argument, describe(leaf), "real numbers")
    return value


def hashable(function: Any, argument: str) -> Any:
    """The function in a form that can be a constant of a program; raises if it cannot be called."""
    if not callable(function) or isinstance(function, type):
        raise BadInput(argument, describe(function), "a function of x that JAX can differentiate")
    if isinstance(function, eqx.Module):
        return function
    try:
        hash(function)
    except TypeError:
        return lambda x: function(x)
    return function


def output_layout(function: Callable[..., Any], point: Point, argument: str) -> Layout:
    """The structure and the shapes of `function(x)`; raises in words if JAX cannot trace it."""
    try:
        out = jax.eval_shape(function, point.tree(jnp.asarray(point.vector)))
    except _NOT_TRACEABLE as error:
        raise BadInput(
            argument,
            f"a function that JAX cannot trace ({type(error).__name__})",
            "operations of jax.numpy",
            "Replace numpy by jax.numpy, and `if` on values by jnp.where.",
        ) from error
    leaves, structure = jax.tree.flatten(out)
    if not leaves or any(not hasattr(leaf, "dtype") or leaf.dtype.kind not in "fiub" for leaf in leaves):
        raise BadInput(argument, f"a function that returns {describe(out)}", "one that returns real numbers")
    return Layout(structure, tuple(leaf.shape for leaf in leaves))


def check_scalar(function: Callable[..., Any], point: Point, argument: str = "f") -> None:
    """Raise unless `function(x)` is one number."""
    layout = output_layout(function, point, argument)
    if layout.shapes != ((),):
        found = f"a function that returns shape {layout.shapes[0]}" if len(layout.shapes) == 1 else "a tree"
        raise BadInput(argument, found, "one that returns one number", "Sum or average it.")


def _scalar(f, rest, layout):
    return lambda v: jnp.asarray(f(eqx.combine(layout.unflatten(v), rest)), v.dtype)


def _values(h, rest, layout):
    def values(v):
        leaves = jax.tree.leaves(h(eqx.combine(layout.unflatten(v), rest)))
        return jnp.concatenate([jnp.ravel(leaf).astype(v.dtype) for leaf in leaves])

    return values


@jit_to_numpy
def value_and_gradient(f, vector, rest, layout):
    return jax.value_and_grad(_scalar(f, rest, layout))(vector)


@jit_to_numpy
def hessian_product(f, vector, direction, rest, layout):
    return jax.jvp(jax.grad(_scalar(f, rest, layout)), (vector,), (direction,))[1]


@jit_to_numpy
def hessian(f, vector, rest, layout):
    gradient = jax.grad(_scalar(f, rest, layout))
    product = lambda direction: jax.jvp(gradient, (vector,), (direction,))[1]
    return jax.vmap(product)(jnp.eye(vector.size, dtype=vector.dtype))


@jit_to_numpy
def values_and_jacobian(h, vector, rest, layout):
    values = _values(h, rest, layout)
    n_values = jax.eval_shape(values, vector).size
    jacobian = jax.jacrev if n_values < vector.size else jax.jacfwd
    return values(vector), jacobian(values)(vector)


@jit_to_numpy
def weighted_hessian(h, vector, weights, rest, layout):
    """Σ_j weights_j ∇²h_j."""
    gradient = jax.grad(lambda v: weights @ _values(h, rest, layout)(v))
    return jax.vmap(lambda d: jax.jvp(gradient, (vector,), (d,))[1])(jnp.eye(vector.size, dtype=vector.dtype))


@jit_to_numpy
def weighted_hessian_product(h, vector, weights, direction, rest, layout):
    gradient = jax.grad(lambda v: weights @ _values(h, rest, layout)(v))
    return jax.jvp(gradient, (vector,), (direction,))[1]
