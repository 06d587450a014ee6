"""θ as a tree: which leaves are parameters, which of them move, and through which bijection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax

from .errors import BadInput
from .spaces import Space, field_space


def parameter_spaces(module: Any) -> list[tuple[str, Space | None]]:
    """(dotted path, declared space) of every array leaf, in the tree's own order."""
    out = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        if not eqx.is_array(leaf):
            continue
        node, space, names = module, None, []
        for entry in path:
            name = _entry_name(entry)
            names.append(str(name))
            if isinstance(node, eqx.Module):
                space = field_space(node, str(name)) or space
            node = _child(node, entry)
        out.append((".".join(names), space))
    return out


def _entry_name(entry: Any) -> Any:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return str(entry)


def _child(node: Any, entry: Any) -> Any:
    name = _entry_name(entry)
    return getattr(node, name) if hasattr(entry, "name") else node[name]


Freeze = None | str | Iterable[str] | Callable[[Any], Any]


def trainable(energy: Any, freeze: Freeze = None) -> Any:
    """A tree of bools: True for every real-valued array leaf that may move.

    `freeze` names what stays: dotted paths (`"weight"`, `"decoder.layers"`), or a function
    from the energy to the leaves that stay, as `eqx.tree_at` takes it.
    """
    spec = jax.tree.map(eqx.is_inexact_array, energy)
    if freeze is None:
        return spec
    if callable(freeze):
        return eqx.tree_at(freeze, spec, replace_fn=lambda node: jax.tree.map(lambda _: False, node))
    paths = (freeze,) if isinstance(freeze, str) else tuple(freeze)
    known = [path for path, _ in parameter_spaces(energy)]
    for wanted in paths:
        if not any(_under(path, wanted) for path in known):
            raise BadInput("freeze", repr(wanted), f"a parameter among {', '.join(known)}")
    leaves, treedef = jax.tree_util.tree_flatten_with_path(energy)
    flags = []
    for path, leaf in leaves:
        dotted = ".".join(str(_entry_name(entry)) for entry in path)
        flags.append(eqx.is_inexact_array(leaf) and not any(_under(dotted, p) for p in paths))
    return jax.tree.unflatten(treedef, flags)


def _under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + ".")


def _map_constrained(module: Any, move: Callable[[Any, Any], Any]) -> Any:
    """Apply `move(bijection, leaf)` to every leaf whose declared space is not ℝ."""
    spaces = iter(parameter_spaces(module))

    def one(leaf):
        if not eqx.is_array(leaf):
            return leaf
        _, space = next(spaces)
        if space is None or type(space).__name__ == "Real" or not eqx.is_inexact_array(leaf):
            return leaf
        return move(space.bijection, leaf)

    return jax.tree.map(one, module)


def unconstrained(module: Any) -> Any:
    """The same tree with every constrained parameter carried to ℝⁿ."""
    return _map_constrained(module, lambda bijection, leaf: bijection.inv(leaf))


def constrained(module: Any) -> Any:
    """The inverse of `unconstrained`."""
    return _map_constrained(module, lambda bijection, leaf: bijection(leaf))


def log_det_jacobian(module: Any) -> Any:
    """log |∂θ/∂u| of the map from the unconstrained tree `module` (for densities over θ)."""
    total = 0.0

    def add(bijection, leaf):
        nonlocal total
        total = total + bijection.log_abs_det_jacobian(leaf, bijection(leaf)).sum()
        return leaf

    _map_constrained(module, add)
    return total


def all_finite(tree: Any) -> Any:
    """Whether every number in the tree is finite."""
    import jax.numpy as jnp

    flags = [jnp.isfinite(a).all() for a in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]
    return jnp.stack(flags).all() if flags else jnp.array(True)
