"""What the transition matrix of a finite Markov chain says: classes, periods, equilibrium, mixing, hitting.

Plain functions of P, (k, k), where P[i, j] is the probability of going from i to j. Structure (who can
reach whom) is that of the entries > 0; numbers are in 64 bits.

Levin and Peres (2017), Markov Chains and Mixing Times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BadInput

if TYPE_CHECKING:
    import networkx as nx

_MOST_DOUBLINGS = 60


@dataclasses.dataclass(frozen=True)
class CommunicatingClass:
    """States that can all reach one another.

    `period` is the greatest common divisor of the lengths of all ways from a state back to it, 0
    for a state that never comes back. A finite class is `recurrent` if nothing leaves it.
    """

    states: tuple[Any, ...]
    period: int
    recurrent: bool


def check_transition(transition: Any, name: str = "transition") -> np.ndarray:
    """A square matrix of probabilities whose rows sum to one, in 64 bits, or a `BadInput`."""
    try:
        matrix = np.asarray(transition, np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, f"{transition!r:.40}", "a square matrix of probabilities") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise BadInput(name, f"shape {matrix.shape}", "(k, k): a row for every state to leave")
    return check_probabilities(matrix, name)


def check_probabilities(rows: Any, name: str) -> np.ndarray:
    """Rows that are >= 0 and sum to one within 1e-4, then made to sum to it in 64 bits."""
    rows = np.asarray(rows, np.float64)
    if not np.isfinite(rows).all() or (rows < 0).any():
        where = np.argwhere(~(np.isfinite(rows) & (rows >= 0)))[0]
        at = ", ".join(str(int(i)) for i in where)
        raise BadInput(f"{name}[{at}]", f"{rows[tuple(where)]:g}", "a probability >= 0")
    total = rows.sum(-1, keepdims=True)
    off = np.abs(total - 1)[..., 0] >= 1e-4
    if off.any():
        where = np.argwhere(off)[0]
        at = f"{name}[{', '.join(str(int(i)) for i in where)}]" if len(where) else name
        raise BadInput(at, f"a sum of {float(total[tuple(where)][0]):.6g}", "probabilities that sum to one")
    return rows / total


def transition_graph(transition: Any) -> nx.DiGraph:
    """An edge for every step that is possible, with its probability as `weight`."""
    matrix = check_transition(transition)
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(matrix)))
    sources, ends = np.nonzero(matrix)
    steps = zip(sources.tolist(), ends.tolist(), matrix[sources, ends].tolist(), strict=True)
    graph.add_weighted_edges_from(steps)
    return graph


# -- structure ------------------------------------------------------------------------------------


def communicating_classes(transition: Any) -> list[CommunicatingClass]:
    """The classes of states that reach one another, by their first states.

    >>> for c in communicating_classes([[0.5, 0.5, 0], [0, 0, 1], [0, 1, 0]]): print(c)
    CommunicatingClass(states=(0,), period=1, recurrent=False)
    CommunicatingClass(states=(1, 2), period=2, recurrent=True)
    """
    graph = transition_graph(transition)
    found = []
    import networkx as nx

    for states in nx.strongly_connected_components(graph):
        closed = all(j in states for i in states for j in graph.successors(i))
        found.append(CommunicatingClass(tuple(sorted(states)), _period(graph, states), closed))
    return sorted(found, key=lambda c: c.states)


def _period(graph: nx.DiGraph, states: set[int]) -> int:
    """gcd of depth(i) + 1 − depth(j) over the edges i → j inside, depths by any search of the class."""
    inside = graph.subgraph(states)
    import networkx as nx

    depth = nx.single_source_shortest_path_length(inside, next(iter(states)))
    return math.gcd(*(depth[i] + 1 - depth[j] for i, j in inside.edges))


def unreachable_states(transition: Any, initial: Any) -> tuple[int, ...]:
    """States that a chain begun in `initial`, (k,), never gets to."""
    graph = transition_graph(transition)
    start = _distribution(initial, len(graph), "initial")
    return tuple(np.flatnonzero(~_reached(graph, np.flatnonzero(start > 0))).tolist())


def _distribution(values: Any, k: int, name: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.shape != (k,):
        raise BadInput(name, f"shape {values.shape}", f"({k},): a probability for every state")
    return check_probabilities(values, name)


# -- equilibrium ----------------------------------------------------------------------------------


def stationary_distributions(transition: Any) -> np.ndarray:
    """π = π P, one row for each recurrent class, in the order of `communicating_classes`.

    Every stationary distribution is a mixture of these. Each is found by eliminating states one
    after another without a single subtraction, so that even tiny probabilities come out to full
    relative precision.

    Grassmann, Taksar and Heyman (1985), Regenerative analysis and steady state distributions for
    Markov chains.

    >>> stationary_distributions([[0.9, 0.1], [0.3, 0.7]])
    array([[0.75, 0.25]])
    """
    matrix = check_transition(transition)
    return np.stack([_stationary(matrix, c) for c in communicating_classes(matrix) if c.recurrent])


def _stationary(matrix: np.ndarray, closed: CommunicatingClass) -> np.ndarray:
    states, out = list(closed.states), np.zeros(len(matrix))
    out[states] = _eliminated(matrix[np.ix_(states, states)])
    return out


def _eliminated(matrix: np.ndarray) -> np.ndarray:
    work, k = matrix.copy(), len(matrix)
    for last in range(k - 1, 0, -1):
        # The chain watched only while it is among the states before `last`.
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    pi = np.ones(k)
    for i in range(1, k):
        pi[i] = pi[:i] @ work[:i, i]
    return pi / pi.sum()


def stationary_distribution(transition: Any) -> np.ndarray:
    """The one π = π P, or a `BadInput` if there are several."""
    found = stationary_distributions(transition)
    if len(found) > 1:
        closed = [c.states for c in communicating_classes(transition) if c.recurrent]
        raise BadInput(
            "transition",
            f"{len(found)} closed classes of states: {', '.join(map(str, closed[:4]))}",
            "one, for a stationary distribution that is unique",
            "stationary_distributions gives one for each.",
        )
    return found[0]


def imbalance(transition: Any) -> float:
    """max |π_i P_ij − π_j P_ji|, over all stationary π: 0 where the chain is reversible."""
    matrix = check_transition(transition)
    flows = stationary_distributions(matrix)[:, :, None] * matrix
    return float(np.abs(flows - flows.transpose(0, 2, 1)).max())


def is_reversible(transition: Any, tolerance: float = 1e-9) -> bool:
    """Whether detailed balance holds, π_i P_ij = π_j P_ji, each side relative to the larger one."""
    matrix = check_transition(transition)
    flows = stationary_distributions(matrix)[:, :, None] * matrix
    back = flows.transpose(0, 2, 1)
    return bool((np.abs(flows - back) <= tolerance * np.maximum(flows, back)).all())


# -- mixing -----------------------------------------------------------------------------------------


def distances(transition: Any, n_steps: int, start: Any = None) -> np.ndarray:
    """½ Σ_j |p_t(j) − π_j| for t = 0, …, n_steps, (n_steps + 1,): from `start`, or from the worst state."""
    matrix = check_transition(transition)
    if not isinstance(n_steps, (int, np.integer)) or isinstance(n_steps, bool) or n_steps < 0:
        raise BadInput("n_steps", repr(n_steps), "a whole number >= 0")
    pi, k = stationary_distribution(matrix), len(matrix)
    now = np.eye(k) if start is None else _distribution(start, k, "start")[None]
    out = np.empty(n_steps + 1)
    for t in range(n_steps + 1):
        out[t] = _farthest(now, pi)
        now = now @ matrix
    return out


def _farthest(rows: np.ndarray, pi: np.ndarray) -> float:
    return float(0.5 * np.abs(rows - pi).sum(1).max())


def mixing_time(transition: Any, eps: float = 0.25) -> int | float:
    """The first t at which, from whatever state, the distance to stationarity is at most `eps`.

    Infinite if that never comes: with several closed classes, or a period above 1. The distance
    never grows, so t is found by doubling and halving, slow chains too.

    >>> mixing_time([[0.9, 0.1], [0.3, 0.7]], 0.01)          # ¾ · 0.6ᵗ ≤ 0.01
    9
    """
    if not 0 < eps < 1:
        raise BadInput("eps", repr(eps), "a number strictly between 0 and 1")
    matrix = check_transition(transition)
    closed = [c for c in communicating_classes(matrix) if c.recurrent]
    if len(closed) > 1 or closed[0].period != 1:
        return math.inf
    pi = _stationary(matrix, closed[0])
    if _farthest(np.eye(len(matrix)), pi) <= eps:
        return 0
    powers = [matrix]  # P^(2^i)
    while _farthest(powers[-1], pi) > eps:
        if len(powers) > _MOST_DOUBLINGS:
            return math.inf
        squared = powers[-1] @ powers[-1]
        powers.append(squared / squared.sum(1, keepdims=True))
    # The largest t that is still too far, bit by bit.
    time, here = 0, np.eye(len(matrix))
    for i in range(len(powers) - 2, -1, -1):
        further = here @ powers[i]
        if _farthest(further, pi) > eps:
            time, here = time + 2**i, further
    return time + 1


# -- hitting and absorption -----------------------------------------------------------------------


def hitting_probabilities(transition: Any, targets: int | Iterable[int]) -> np.ndarray:
    """The probability of ever reaching one of the target states, from every state, (k,)."""
    matrix, there, can, _ = _ways(transition, targets)
    out = there.astype(np.float64)
    rest = np.flatnonzero(can & ~there)
    leave = np.eye(len(rest)) - matrix[np.ix_(rest, rest)]
    out[rest] = np.linalg.solve(leave, matrix[np.ix_(rest, np.flatnonzero(there))].sum(1))
    return np.clip(out, 0, 1)


def hitting_times(transition: Any, targets: int | Iterable[int]) -> np.ndarray:
    """The expected number of steps until one of the target states, (k,); inf where that is not certain.

    >>> hitting_times([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], 2)
    array([4., 2., 0.])
    """
    matrix, there, _, sure = _ways(transition, targets)
    out = np.where(there, 0.0, np.inf)
    rest = np.flatnonzero(sure & ~there)
    leave = np.eye(len(rest)) - matrix[np.ix_(rest, rest)]
    out[rest] = np.linalg.solve(leave, np.ones(len(rest)))
    return out


def _ways(transition, targets):
    """(P, is a target, can reach one, is sure to), the last three (k,)."""
    matrix = check_transition(transition)
    k = len(matrix)
    wanted = [targets] if isinstance(targets, (int, np.integer)) else list(targets)
    whole = all(isinstance(t, (int, np.integer)) and 0 <= t < k for t in wanted)
    if not wanted or not whole:
        raise BadInput("targets", f"{targets!r:.40}", f"states from 0 to {k - 1}, at least one")
    there = np.isin(np.arange(k), wanted)
    # A target once reached is the end of the way.
    back = transition_graph(np.where(there[:, None], np.eye(k), matrix)).reverse(copy=False)
    can = _reached(back, np.flatnonzero(there))
    return matrix, there, can, ~_reached(back, np.flatnonzero(~can))


def _reached(graph: nx.DiGraph, sources: np.ndarray) -> np.ndarray:
    out = np.zeros(len(graph), bool)
    import networkx as nx

    for layer in nx.bfs_layers(graph, sources.tolist()):
        out[layer] = True
    return out


def absorption_probabilities(transition: Any) -> np.ndarray:
    """The probability of ending in each recurrent class, (k, classes), from every state.

    Columns are in the order of `communicating_classes`. Kemeny and Snell (1960), Finite Markov Chains.
    """
    closed = [c.states for c in communicating_classes(transition) if c.recurrent]
    return np.stack([hitting_probabilities(transition, states) for states in closed], axis=1)
