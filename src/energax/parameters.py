"""The parameters of an energy as a tree: which leaves are trainable, and their bijections to ℝⁿ."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .errors import BadInput, Unsuitable
from .spaces import Space, field_metadata, is_concrete


class _Leaf(NamedTuple):
    path: str  # dotted: "decoder.layers.0.weight"
    value: Any
    space: Space | None  # of `parameter(space)`
    fixed: bool  # declared by `fixed()` or `running()`
    running: bool  # declared by `running()`, in no field that is `fixed()`


def _leaves(module: Any) -> list[_Leaf]:
    """Every leaf of the tree, in the order of `jax.tree.leaves`."""
    out = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        node, space, fixed, running, names = module, None, False, False, []
        for entry in path:
            name = _entry_name(entry)
            names.append(str(name))
            if isinstance(node, eqx.Module):
                metadata = field_metadata(node, str(name))
                space = metadata.get("space", space)
                if not fixed:
                    fixed, running = metadata.get("fixed", False), metadata.get("running", False)
            node = _child(node, entry)
        out.append(_Leaf(".".join(names), leaf, space, fixed, running))
    return out


def parameter_spaces(module: Any) -> list[tuple[str, Space | None]]:
    """(dotted path, declared space) of every array leaf, in the order of `jax.tree.leaves`."""
    return [(leaf.path, leaf.space) for leaf in _leaves(module) if eqx.is_array(leaf.value)]


def _entry_name(entry: Any) -> Any:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return str(entry)


def _child(node: Any, entry: Any) -> Any:
    name = _entry_name(entry)
    if hasattr(entry, "name"):
        return getattr(node, name)
    # Other trees, such as distributions of NumPyro, number their leaves and have no items.
    return node[name] if hasattr(node, "__getitem__") else None


# -- trainable and frozen leaves -----------------------------------------------------------------------

Freeze = None | str | Iterable[str] | Callable[[Any], Any]


def trainable_leaves(energy: Any, freeze: Freeze = None, *, running: bool = False) -> Any:
    """A tree of bools: True for every real-valued array leaf that is neither `fixed` nor frozen.

    `freeze` selects frozen leaves: dotted paths (`"weight"`, `"decoder.layers"`), or a function from the
    energy to leaves, as `eqx.tree_at` takes it. `running`: whether `running` fields are True too.
    """
    leaves, treedef = _leaves(energy), jax.tree.structure(energy)
    flags = [
        eqx.is_inexact_array(leaf.value) and (not leaf.fixed or (running and leaf.running)) for leaf in leaves
    ]
    trainable = jax.tree.unflatten(treedef, flags)
    if freeze is None:
        return trainable
    if callable(freeze):
        return eqx.tree_at(freeze, trainable, replace_fn=lambda node: jax.tree.map(lambda _: False, node))
    prefixes = (freeze,) if isinstance(freeze, str) else freeze
    if not isinstance(prefixes, list | tuple | set | frozenset) or not all(
        isinstance(prefix, str) for prefix in prefixes
    ):
        raise BadInput("freeze", repr(freeze), "names of parameters, or a function from the energy to leaves")
    paths = [leaf.path for leaf in leaves if eqx.is_array(leaf.value)]
    for prefix in prefixes:
        if not any(_is_under(path, prefix) for path in paths):
            raise BadInput("freeze", repr(prefix), f"a parameter among {', '.join(paths)}")
    frozen = [any(_is_under(leaf.path, prefix) for prefix in prefixes) for leaf in leaves]
    return jax.tree.unflatten(treedef, [t and not f for t, f in zip(flags, frozen, strict=True)])


def _is_under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + ".")


def all_trainable(energy: Any, trainable: Any) -> bool:
    """Whether no real array is frozen."""
    pairs = zip(jax.tree.leaves(energy), jax.tree.leaves(trainable), strict=True)
    return all(flag for leaf, flag in pairs if eqx.is_inexact_array(leaf))


def check_parameters(energy: Any, trainable: Any, others: bool) -> None:
    """Raise if a parameter is not finite or outside its space, or if nothing is trainable.

    `others`: whether something beside the energy is learned, such as an encoder.
    """
    leaves = _leaves(energy)
    for path, leaf, space, *_ in leaves:
        if not eqx.is_inexact_array(leaf) or not is_concrete(leaf):
            continue
        value = np.asarray(leaf)
        if not np.isfinite(value).all():
            raise BadInput(path, "a parameter that is not finite", "finite numbers to start from")
        if space is not None and not np.all(space._is_valid(value)):
            raise BadInput(path, f"{value.ravel()[:3]}…", f"{space.description()} ({space!r})")
    if others or any(jax.tree.leaves(trainable)):
        return
    numbers = [leaf.path for leaf in leaves if isinstance(leaf.value, bool | int | float)]
    numbers += [
        leaf.path for leaf in leaves if eqx.is_array(leaf.value) and not eqx.is_inexact_array(leaf.value)
    ]
    found = f"{', '.join(numbers)}: not real arrays" if numbers else "all parameters frozen"
    raise BadInput(
        "energy", f"nothing to learn ({found})", "a real array among its fields", "Try asarray(1.0)."
    )


def check_no_nan(energy: Any) -> None:
    """Raise if any parameter is NaN."""
    for path, leaf, *_ in _leaves(energy):
        if eqx.is_inexact_array(leaf) and is_concrete(leaf) and np.isnan(np.asarray(leaf)).any():
            raise BadInput(
                path, "a parameter that is NaN", "numbers", "Fit it again, or restore a checkpoint."
            )


def all_finite(tree: Any) -> Any:
    """Whether every number in the tree is finite."""
    # 0 · ∞ and 0 · NaN are NaN: one sum in one pass takes a fifth of the time of `isfinite` of every number.
    flags = [jnp.sum(a * 0) == 0 for a in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]
    return jnp.stack(flags).all() if flags else jnp.array(True)


# -- bijections ----------------------------------------------------------------------------------------


def _map_bijections(module: Any, function: Callable[[Any, Any], Any]) -> Any:
    """Apply `function(bijection, leaf)` to every leaf whose declared space is not ℝ."""
    spaces = iter(parameter_spaces(module))

    def one(leaf):
        if not eqx.is_array(leaf):
            return leaf
        _, space = next(spaces)
        if space is None or space.is_unconstrained or not eqx.is_inexact_array(leaf):
            return leaf
        return function(space.bijection, leaf)

    return jax.tree.map(one, module)


def unconstrain(module: Any) -> Any:
    """The same tree with every constrained parameter mapped to ℝⁿ."""
    return _map_bijections(module, lambda bijection, leaf: bijection.inv(leaf))


def constrain(module: Any) -> Any:
    """The inverse of `unconstrain`."""
    return _map_bijections(module, lambda bijection, leaf: bijection(leaf))


# -- the M-step ----------------------------------------------------------------------------------------


def m_step(energy: Any, statistics: Any, trainable: Any = None) -> Any:
    """`energy.maximise(statistics)`, given the frozen parameters; `trainable` is a tree of bools, or None.

    The optimum of the others depends on the frozen parameters (of a covariance, on the mean), so `maximise`
    must take `trainable` if anything is frozen.
    """
    if trainable is None or all_trainable(energy, trainable):
        return energy.maximise(statistics)
    if "trainable" not in inspect.signature(energy.maximise).parameters:
        raise Unsuitable(
            f"EM cannot freeze part of {type(energy).__name__}: its `maximise` takes no `trainable`. "
            "Freeze nothing in it, or learn it by Descent(NegativeLogLikelihood(), optimizer)."
        )
    return energy.maximise(statistics, trainable=trainable)


def recenter(energy: Any, statistics: Any, reference: Any) -> Any:
    """Statistics taken about the parameters of `reference`, as if taken about those of `energy`."""
    return energy.recenter(statistics, reference) if energy.knows("recenter") else statistics


# -- per energy: cached values, precision --------------------------------------------------------------

_CACHE: dict[int, tuple[Any, dict[str, Any]]] = {}


def cache_on(energy: Any, name: str, compute: Callable[[Any], Any]) -> Any:
    """`compute(energy)`, once per object: energies are immutable. The cache is dropped with the object."""
    number = id(energy)
    if number not in _CACHE:
        drop = lambda _: _CACHE.pop(number, None)
        _CACHE[number] = (weakref.ref(energy, drop), {})
    values = _CACHE[number][1]
    if name not in values:
        values[name] = compute(energy)
    return values[name]


def precision_of(energy: Any) -> Any:
    """A context that enables 64 bits if the parameters have them; else one that changes nothing."""
    if isinstance(energy, eqx.Module) and cache_on(energy, "is double", _is_double):
        return jax.enable_x64(True)
    return contextlib.nullcontext()


def _is_double(energy: Any) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(energy) if eqx.is_inexact_array(leaf)]
    return any(leaf.dtype in (np.float64, np.complex128) for leaf in leaves)


def with_energy_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `function` to run in the precision of the first energy among its arguments."""

    @functools.wraps(function)
    def scoped(*arguments: Any, **keywords: Any) -> Any:
        # `spaces` is looked up on the class: evaluating the property takes as long as some queries.
        is_energy = lambda a: isinstance(a, eqx.Module) and hasattr(type(a), "spaces")
        first = next(filter(is_energy, (*arguments, *keywords.values())), None)
        with precision_of(first):
            return function(*arguments, **keywords)

    return scoped
