"""θ as a tree: which leaves are parameters, which of them move, and through which bijection."""

from __future__ import annotations

import contextlib
import functools
import inspect
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .errors import BadInput, Unsuitable
from .spaces import Space, declared, is_concrete


def _leaves(module: Any) -> list[tuple[str, Any, Space | None, bool]]:
    """(dotted path, leaf, declared space, whether it is fixed) of every leaf, in the tree's own order."""
    out = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(module):
        node, space, still, names = module, None, False, []
        for entry in path:
            name = _entry_name(entry)
            names.append(str(name))
            if isinstance(node, eqx.Module):
                said = declared(node, str(name))
                space, still = said.get("space", space), said.get("fixed", still)
            node = _child(node, entry)
        out.append((".".join(names), leaf, space, still))
    return out


def parameter_spaces(module: Any) -> list[tuple[str, Space | None]]:
    """(dotted path, declared space) of every array leaf, in the tree's own order."""
    return [(path, space) for path, leaf, space, _ in _leaves(module) if eqx.is_array(leaf)]


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
    """A tree of bools: True for every real-valued array leaf that may move, none of them `fixed`.

    `freeze` names what stays: dotted paths (`"weight"`, `"decoder.layers"`), or a function
    from the energy to the leaves that stay, as `eqx.tree_at` takes it.
    """
    leaves, treedef = _leaves(energy), jax.tree.structure(energy)
    moves = [eqx.is_inexact_array(leaf) and not still for _, leaf, _, still in leaves]
    spec = jax.tree.unflatten(treedef, moves)
    if freeze is None:
        return spec
    if callable(freeze):
        return eqx.tree_at(freeze, spec, replace_fn=lambda node: jax.tree.map(lambda _: False, node))
    paths = (freeze,) if isinstance(freeze, str) else freeze
    if not isinstance(paths, Collection) or not all(isinstance(path, str) for path in paths):
        raise BadInput("freeze", repr(freeze), "names of parameters, or a function from the energy to leaves")
    known = [path for path, leaf, _, _ in leaves if eqx.is_array(leaf)]
    for wanted in paths:
        if not any(_under(path, wanted) for path in known):
            raise BadInput("freeze", repr(wanted), f"a parameter among {', '.join(known)}")
    stays = [any(_under(path, p) for p in paths) for path, _, _, _ in leaves]
    flags = [m and not s for m, s in zip(moves, stays, strict=True)]
    return jax.tree.unflatten(treedef, flags)


def check_parameters(energy: Any, moves: Any, others: bool) -> None:
    """Refuse, before any work, a start that is not finite or outside its space, and nothing to learn.

    `others` says that something beside the energy is learned, such as an encoder.
    """
    for path, leaf, space, _ in _leaves(energy):
        if not eqx.is_inexact_array(leaf) or not is_concrete(leaf):
            continue
        value = np.asarray(leaf)
        if not np.isfinite(value).all():
            raise BadInput(path, "a parameter that is not finite", "finite numbers to begin with")
        if space is not None and not np.all(space._is_valid(value)):
            raise BadInput(path, f"{value.ravel()[:3]}…", f"{space.description()}, as {space!r} has it")
    if others or any(jax.tree.leaves(moves)):
        return
    numbers = [path for path, leaf, _, _ in _leaves(energy) if isinstance(leaf, bool | int | float)]
    whole = [p for p, leaf, _, _ in _leaves(energy) if eqx.is_array(leaf) and not eqx.is_inexact_array(leaf)]
    found = f"{', '.join(numbers + whole)}: not real arrays" if numbers or whole else "all parameters frozen"
    raise BadInput(
        "energy", f"nothing to learn ({found})", "a real array among its fields", "Try jnp.asarray(1.0)."
    )


def check_no_nan(energy: Any) -> None:
    """A question to an energy with a parameter that is NaN has no answer, and gets a sentence instead."""
    for path, leaf, _, _ in _leaves(energy):
        if eqx.is_inexact_array(leaf) and is_concrete(leaf) and np.isnan(np.asarray(leaf)).any():
            raise BadInput(
                path, "a parameter that is NaN", "numbers", "Fit it again, or restore a checkpoint."
            )


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

    # 0 · ∞ and 0 · NaN are NaN: one sum in one pass, five times as quick as asking every number.
    flags = [jnp.sum(a * 0) == 0 for a in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]
    return jnp.stack(flags).all() if flags else jnp.array(True)


# -- the M-step, with what is frozen held ----------------------------------------------------


def has_m_step(energy: Any) -> bool:
    """Whether the energy, and what it is made of, has the M-step in closed form.

    One that is made of others says so by a property `has_m_step` of its own.
    """
    own = hasattr(energy, "statistics") and hasattr(energy, "maximise")
    return own and getattr(energy, "has_m_step", True)


def constrained_maximum(energy: Any, statistics: Any, trainable: Any = None) -> Any:
    """`energy.maximise(statistics)` with what is frozen held: `trainable` is a tree of bools, or None.

    The best of the rest depends on what is held (a covariance on its mean), so an energy says
    that it heeds this by taking `trainable`.
    """
    if trainable is None or all_move(energy, trainable):
        return energy.maximise(statistics)
    if "trainable" not in inspect.signature(energy.maximise).parameters:
        raise Unsuitable(
            f"EM cannot hold part of {type(energy).__name__} fixed: its `maximise` takes no `trainable`. "
            "Freeze nothing in it, or learn it by Descent(NegativeLogLikelihood(), optimizer)."
        )
    return energy.maximise(statistics, trainable=trainable)


def all_move(energy: Any, trainable: Any) -> bool:
    """Whether nothing that is a real array is frozen."""
    pairs = zip(jax.tree.leaves(energy), jax.tree.leaves(trainable), strict=True)
    return all(moves for leaf, moves in pairs if eqx.is_inexact_array(leaf))


def recentred(energy: Any, statistics: Any, reference: Any) -> Any:
    """Statistics taken at another θ, as if taken at this one: the same, unless the energy centres them."""
    if hasattr(energy, "recentred"):
        return energy.recentred(statistics, reference)
    return statistics


_REMEMBERED: dict[int, tuple[Any, dict[str, Any]]] = {}


def cached_on(energy: Any, name: str, compute: Callable[[Any], Any]) -> Any:
    """`compute(energy)`, once for every object: energies never change, and are asked often."""
    number = id(energy)
    if number not in _REMEMBERED:
        forget = lambda _: _REMEMBERED.pop(number, None)
        _REMEMBERED[number] = (weakref.ref(energy, forget), {})
    about = _REMEMBERED[number][1]
    if name not in about:
        about[name] = compute(energy)
    return about[name]


def precision_of(energy: Any) -> Any:
    """The scope that an energy is asked in: 64 bits if its parameters have them, else as it is outside."""
    if isinstance(energy, eqx.Module) and cached_on(energy, "is double", _is_double):
        return jax.enable_x64(True)
    return contextlib.nullcontext()


def _is_double(energy: Any) -> bool:
    leaves = [leaf for leaf in jax.tree.leaves(energy) if eqx.is_inexact_array(leaf)]
    return any(leaf.dtype in (np.float64, np.complex128) for leaf in leaves)


def with_energy_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, run in the precision of the first energy among its arguments."""

    @functools.wraps(function)
    def scoped(*arguments: Any, **keywords: Any) -> Any:
        # Of the class: to ask an object for its spaces takes as long as some questions.
        is_energy = lambda a: isinstance(a, eqx.Module) and hasattr(type(a), "spaces")
        first = next(filter(is_energy, (*arguments, *keywords.values())), None)
        with precision_of(first):
            return function(*arguments, **keywords)

    return scoped
