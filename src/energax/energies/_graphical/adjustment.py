"""What an intervention would do, from what can be observed alone."""

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


def adjusted(
    net: BayesianNetwork, effect: str, cause: Mapping[str, Any], by: Iterable[str] | str | None = None
) -> Any:
    """p(effect | do(cause = value)) by adjustment: no table of an intervention is used.

    Back door, for a set S that blocks every back way from the cause: Σ_s p(y | x, s) p(s).
    Front door, for a set M that carries the whole effect: Σ_m p(m | x) Σ_x′ p(y | m, x′) p(x′).

    Args:
        by: the set; or "back-door" or "front-door" to have the smallest one found; None tries both.

    Pearl (2009), Causality, theorems 3.3.2 and 3.3.4.

    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({
    ...     "age": [0.5, 0.5],
    ...     "drug": ("age", [[0.9, 0.1], [0.1, 0.9]]),
    ...     "well": (("age", "drug"), [[[0.2, 0.8], [0.2, 0.8]], [[0.7, 0.3], [0.7, 0.3]]]),
    ... })
    >>> adjusted(net, "well", {"drug": 1}).round(3)                # as without the drug: it does nothing
    array([0.45, 0.55])
    """
    if len(cause) != 1:
        raise BadInput("cause", f"{list(cause)}", "one variable and its value")
    (name, value), spaces = next(iter(cause.items())), net.spaces
    for wanted in (name, effect):
        if wanted not in spaces:
            raise BadInput("effect", repr(wanted), f"two of {list(spaces)}")
    x = int(spaces[name].check(value, name, missing=False))
    kind, chosen = _chosen(net, name, effect, by)
    if kind == "back-door":
        answer = _back(net, effect, name, x, chosen)
    else:
        answer = _front(net, effect, name, x, chosen)
    return Labelled.of(answer, spaces[effect].labels)


def _chosen(net: Any, cause: str, effect: str, by: Any) -> tuple[str, tuple[str, ...]]:
    graph = net.graph()
    if by is None or by == "back-door":
        found: list[Any] = list(backdoor_sets(graph, cause, effect))
        if found:
            return "back-door", tuple(sorted(map(str, _smallest(found))))
    if by is None or by == "front-door":
        found = list(frontdoor_sets(graph, cause, effect))
        if found:
            return "front-door", tuple(sorted(map(str, _smallest(found))))
    if by is None or isinstance(by, str):
        raise Unsuitable(
            f"No {by or 'back-door or front-door'} set answers for the effect of {cause} on {effect}. "
            "Use net.do(...), which needs the whole network."
        )
    by = tuple(by)
    back = is_backdoor(graph, cause, effect, by)
    if back:
        return "back-door", by
    if is_frontdoor(graph, cause, effect, by):
        return "front-door", by
    raise BadInput("by", f"{list(by)}", "a back-door or a front-door set", f"{'; '.join(back.reasons)}.")


def _smallest(sets: list[Any]) -> Any:
    return min(sets, key=len)


def _table(net: Any, names: tuple[str, ...]) -> np.ndarray:
    """p(names), an axis each. Real variables have no finite children, so the tables alone decide."""
    finite = net.finite_part()
    with precision_of(finite):
        tables, evidence = finite.tables().given({})
        return np.exp(np.asarray(tables.joint(names, evidence)))


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, and 0 where nothing ever happens."""
    return np.divide(a, b, out=np.zeros_like(a), where=np.broadcast_to(b, a.shape) > 0)


def _back(net: Any, effect: str, cause: str, x: int, others: tuple[str, ...]) -> np.ndarray:
    joint = np.moveaxis(_table(net, (effect, cause, *others)), (0, 1), (-1, -2))  # (others…, x, y)
    given = joint[..., x, :]
    seen = given.sum(-1, keepdims=True)
    share = joint.sum((-1, -2))[..., None]
    if np.any((share > 0) & (seen == 0)):
        raise Unsuitable(
            f"{cause} is never {x} for some values of {list(others)}, so nothing can be learned of its "
            "effect there by adjustment. Use net.do(...)."
        )
    answer = _ratio(given, seen) * share
    return answer.reshape(-1, answer.shape[-1]).sum(0)


def _front(net: Any, effect: str, cause: str, x: int, through: tuple[str, ...]) -> np.ndarray:
    joint = _table(net, (cause, effect, *through))
    joint = joint.reshape(joint.shape[0], joint.shape[1], -1)  # (x, y, m)
    p_x = joint.sum((1, 2))
    p_m = joint[x].sum(0) / joint[x].sum()
    p_y = _ratio(joint, joint.sum(1, keepdims=True))  # p(y | x, m)
    return np.einsum("m,xym,x->y", p_m, p_y, p_x)
