"""Causal effects from observational probabilities, by back-door and front-door adjustment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._util.labelled import Labelled
from ...errors import BadInput, Unsuitable
from ...graph import backdoor_sets, frontdoor_sets, is_backdoor, is_frontdoor
from ...parameters import precision_of

if TYPE_CHECKING:
    from .bayesian_network import BayesianNetwork


def adjusted_effect(
    net: BayesianNetwork, effect: str, cause: Mapping[str, Any], by: Iterable[str] | str | None = None
) -> Any:
    """p(effect | do(cause = value)) by adjustment, without the tables of an intervention.

    Back door, for a set S that blocks every back-door path from the cause: Σ_s p(y | x, s) p(s).
    Front door, for a set M that carries the whole effect: Σ_m p(m | x) Σ_x′ p(y | m, x′) p(x′).

    Args:
        by: the adjustment set; or "back-door" or "front-door" for the smallest one; None tries both.

    Pearl (2009), Causality, theorems 3.3.2 and 3.3.4.

    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({
    ...     "age": [0.5, 0.5],
    ...     "drug": ("age", [[0.9, 0.1], [0.1, 0.9]]),
    ...     "well": (("age", "drug"), [[[0.2, 0.8], [0.2, 0.8]], [[0.7, 0.3], [0.7, 0.3]]]),
    ... })
    >>> adjusted_effect(net, "well", {"drug": 1}).round(3)         # the same without the drug: no effect
    array([0.45, 0.55])
    """
    if len(cause) != 1:
        raise BadInput("cause", f"{list(cause)}", "one variable and its value")
    (name, value), spaces = next(iter(cause.items())), net.spaces
    for variable in (name, effect):
        if variable not in spaces:
            raise BadInput("effect", repr(variable), f"two of {list(spaces)}")
    state = spaces[name].check(value, name, missing=False)
    if np.ndim(state):
        raise BadInput(name, f"shape {np.shape(state)}", "one state")
    x = int(state)
    kind, adjustment_set = _adjustment_set(net, name, effect, by)
    adjust = _back_door if kind == "back-door" else _front_door
    return Labelled.of(adjust(net, effect, name, x, adjustment_set), spaces[effect].labels)


def _adjustment_set(net: Any, cause: str, effect: str, by: Any) -> tuple[str, tuple[str, ...]]:
    """The kind of adjustment, "back-door" or "front-door", and its set of variables."""
    graph = net.graph()
    sets: Any
    for kind, sets in (("back-door", backdoor_sets), ("front-door", frontdoor_sets)):
        if by is None or by == kind:
            found: list[Any] = list(sets(graph, cause, effect))
            if found:
                smallest: Any = min(found, key=len)
                return kind, tuple(sorted(map(str, smallest)))
    if by is None or isinstance(by, str):
        raise Unsuitable(
            f"No {by or 'back-door or front-door'} set exists for the effect of {cause} on {effect}. "
            "Use net.do(...), which needs the whole network."
        )
    by = tuple(by)
    back = is_backdoor(graph, cause, effect, by)
    if back:
        return "back-door", by
    if is_frontdoor(graph, cause, effect, by):
        return "front-door", by
    raise BadInput("by", f"{list(by)}", "a back-door or a front-door set", f"{'; '.join(back.reasons)}.")


def _joint(net: Any, names: tuple[str, ...]) -> np.ndarray:
    """p(names), one axis each. Real variables have no finite children, so the finite part suffices."""
    finite = net.finite_part()
    with precision_of(finite):
        tables, evidence = finite.tables().given({})
        return np.exp(np.asarray(tables.joint(names, evidence)))


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, and 0 where b is 0."""
    return np.divide(a, b, out=np.zeros_like(a), where=np.broadcast_to(b, a.shape) > 0)


def _back_door(net: Any, effect: str, cause: str, x: int, others: tuple[str, ...]) -> np.ndarray:
    joint = np.moveaxis(_joint(net, (effect, cause, *others)), (0, 1), (-1, -2))  # (others…, x, y)
    p_xy = joint[..., x, :]
    p_x = p_xy.sum(-1, keepdims=True)
    p_others = joint.sum((-1, -2))[..., None]
    if np.any((p_others > 0) & (p_x == 0)):
        raise Unsuitable(
            f"{cause} is never {x} for some values of {list(others)}, so adjustment cannot estimate its "
            "effect there. Use net.do(...)."
        )
    p_y = _ratio(p_xy, p_x) * p_others
    return p_y.reshape(-1, p_y.shape[-1]).sum(0)


def _front_door(net: Any, effect: str, cause: str, x: int, mediators: tuple[str, ...]) -> np.ndarray:
    joint = _joint(net, (cause, effect, *mediators))
    joint = joint.reshape(joint.shape[0], joint.shape[1], -1)  # (x, y, m)
    p_x = joint.sum((1, 2))
    p_m = joint[x].sum(0) / joint[x].sum()
    p_y = _ratio(joint, joint.sum(1, keepdims=True))  # p(y | x, m)
    return np.einsum("m,xym,x->y", p_m, p_y, p_x)
