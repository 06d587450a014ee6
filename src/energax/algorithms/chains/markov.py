"""Properties of a finite Markov chain: classes, periods, stationary distributions, mixing, hitting times.

Functions of the transition matrix P, (k, k), where P[i, j] is the probability of going from i to j. Entries
> 0 decide which states can reach which; all numbers are computed in 64 bits.

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

    `period` is the greatest common divisor of the lengths of all paths from a state back to itself, 0
    if there is none. A finite class is `recurrent` if no transition leaves it.
    """

    states: tuple[Any, ...]
    period: int
    recurrent: bool


def check_transition(transition: Any, name: str = "transition") -> np.ndarray:
    """Return P in 64 bits; raise unless it is square and its rows are probabilities that sum to one."""
    try:
        matrix = np.asarray(transition, np.float64)
    except (TypeError, ValueError):
        raise BadInput(name, f"{transition!r:.40}", "a square matrix of probabilities") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise BadInput(name, f"shape {matrix.shape}", "(k, k), one row per state")
    return check_probabilities(matrix, name)


def check_probabilities(rows: Any, name: str) -> np.ndarray:
    """Return rows normalised in 64 bits; raise unless they are >= 0 and sum to one within 1e-4."""
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
    """The directed graph of possible transitions, with their probabilities as `weight`."""
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
    """The classes of states that can reach one another, sorted by their first states.

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
    """gcd of depth(i) + 1 − depth(j) over the edges i → j of the class, depths by breadth-first search."""
    inside = graph.subgraph(states)
    import networkx as nx

    depth = nx.single_source_shortest_path_length(inside, next(iter(states)))
    return math.gcd(*(depth[i] + 1 - depth[j] for i, j in inside.edges))


def unreachable_states(transition: Any, initial: Any) -> tuple[int, ...]:
    """States that cannot be reached from the distribution `initial`, (k,)."""
    graph = transition_graph(transition)
    start = _check_distribution(initial, len(graph), "initial")
    return tuple(np.flatnonzero(~_reachable(graph, np.flatnonzero(start > 0))).tolist())


def _check_distribution(values: Any, k: int, name: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.shape != (k,):
        raise BadInput(name, f"shape {values.shape}", f"({k},), one probability per state")
    return check_probabilities(values, name)


# -- stationary distributions -----------------------------------------------------------------------


def stationary_distributions(transition: Any) -> np.ndarray:
    """π = π P, one row per recurrent class, in the order of `communicating_classes`.

    Every stationary distribution is a mixture of these. States are eliminated one after another without any
    subtraction, so that even tiny probabilities have full relative precision.

    Grassmann, Taksar and Heyman (1985), Regenerative analysis and steady state distributions for
    Markov chains.

    >>> stationary_distributions([[0.9, 0.1], [0.3, 0.7]])
    array([[0.75, 0.25]])
    """
    matrix = check_transition(transition)
    return np.stack([_stationary(matrix, c) for c in communicating_classes(matrix) if c.recurrent])


def _stationary(matrix: np.ndarray, closed: CommunicatingClass) -> np.ndarray:
    states, out = list(closed.states), np.zeros(len(matrix))
    out[states] = _eliminate_states(matrix[np.ix_(states, states)])
    return out


def _eliminate_states(matrix: np.ndarray) -> np.ndarray:
    """The stationary distribution of an irreducible matrix."""
    work, k = matrix.copy(), len(matrix)
    for last in range(k - 1, 0, -1):
        # The transitions of the chain observed only while it is in the states before `last`.
        work[:last, last] /= work[last, :last].sum()
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    pi = np.ones(k)
    for i in range(1, k):
        pi[i] = pi[:i] @ work[:i, i]
    return pi / pi.sum()


def stationary_distribution(transition: Any) -> np.ndarray:
    """The distribution π = π P; raises if there are several."""
    found = stationary_distributions(transition)
    if len(found) > 1:
        closed = [c.states for c in communicating_classes(transition) if c.recurrent]
        raise BadInput(
            "transition",
            f"{len(found)} closed classes of states: {', '.join(map(str, closed[:4]))}",
            "one, so that the stationary distribution is unique",
            "Use stationary_distributions, which gives one for each.",
        )
    return found[0]


def imbalance(transition: Any) -> float:
    """max |π_i P_ij − π_j P_ji| over all stationary π; 0 for a reversible chain."""
    matrix = check_transition(transition)
    flows = stationary_distributions(matrix)[:, :, None] * matrix
    return float(np.abs(flows - flows.transpose(0, 2, 1)).max())


def is_reversible(transition: Any, tolerance: float = 1e-9) -> bool:
    """Whether π_i P_ij = π_j P_ji (detailed balance) within a tolerance relative to the larger side."""
    matrix = check_transition(transition)
    flows = stationary_distributions(matrix)[:, :, None] * matrix
    back = flows.transpose(0, 2, 1)
    return bool((np.abs(flows - back) <= tolerance * np.maximum(flows, back)).all())


# -- mixing -----------------------------------------------------------------------------------------


def distances(transition: Any, n_steps: int, start: Any = None) -> np.ndarray:
    """½ Σ_j |p_t(j) − π_j| for t = 0, …, n_steps, (n_steps + 1,), from `start` or from the worst state."""
    matrix = check_transition(transition)
    if not isinstance(n_steps, (int, np.integer)) or isinstance(n_steps, bool) or n_steps < 0:
        raise BadInput("n_steps", repr(n_steps), "a whole number >= 0")
    pi, k = stationary_distribution(matrix), len(matrix)
    now = np.eye(k) if start is None else _check_distribution(start, k, "start")[None]
    out = np.empty(n_steps + 1)
    for t in range(n_steps + 1):
        out[t] = _max_distance(now, pi)
        now = now @ matrix
    return out


def _max_distance(rows: np.ndarray, pi: np.ndarray) -> float:
    return float(0.5 * np.abs(rows - pi).sum(1).max())


def mixing_time(transition: Any, eps: float = 0.25) -> int | float:
    """The first t at which the distance to stationarity is at most `eps` from every state.

    Infinite if there is none: with several closed classes or a period above 1. The distance never grows, so
    t is found by doubling and bisection.

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
    if _max_distance(np.eye(len(matrix)), pi) <= eps:
        return 0
    powers = [matrix]  # P^(2^i)
    while _max_distance(powers[-1], pi) > eps:
        if len(powers) > _MOST_DOUBLINGS:
            return math.inf
        squared = powers[-1] @ powers[-1]
        powers.append(squared / squared.sum(1, keepdims=True))
    # The largest t whose distance is still above eps, bit by bit.
    time, here = 0, np.eye(len(matrix))
    for i in range(len(powers) - 2, -1, -1):
        further = here @ powers[i]
        if _max_distance(further, pi) > eps:
            time, here = time + 2**i, further
    return time + 1


# -- hitting and absorption -----------------------------------------------------------------------


def hitting_probabilities(transition: Any, targets: int | Iterable[int]) -> np.ndarray:
    """The probability of ever reaching one of the target states, from every state, (k,)."""
    matrix, there, can, _ = _reach_targets(transition, targets)
    out = there.astype(np.float64)
    rest = np.flatnonzero(can & ~there)
    leave = np.eye(len(rest)) - matrix[np.ix_(rest, rest)]
    out[rest] = np.linalg.solve(leave, matrix[np.ix_(rest, np.flatnonzero(there))].sum(1))
    return np.clip(out, 0, 1)


def hitting_times(transition: Any, targets: int | Iterable[int]) -> np.ndarray:
    """The expected number of steps to the first target state, (k,); inf where it may never be reached.

    >>> hitting_times([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]], 2)
    array([4., 2., 0.])
    """
    matrix, there, _, sure = _reach_targets(transition, targets)
    out = np.where(there, 0.0, np.inf)
    rest = np.flatnonzero(sure & ~there)
    leave = np.eye(len(rest)) - matrix[np.ix_(rest, rest)]
    out[rest] = np.linalg.solve(leave, np.ones(len(rest)))
    return out


def _reach_targets(transition, targets):
    """(P; whether each state is a target, can reach one, is certain to reach one, (k,) each)."""
    matrix = check_transition(transition)
    k = len(matrix)
    wanted = [targets] if isinstance(targets, (int, np.integer)) else list(targets)
    valid = all(isinstance(t, (int, np.integer)) and 0 <= t < k for t in wanted)
    if not wanted or not valid:
        raise BadInput("targets", f"{targets!r:.40}", f"states from 0 to {k - 1}, at least one")
    there = np.isin(np.arange(k), wanted)
    # Targets are made absorbing.
    back = transition_graph(np.where(there[:, None], np.eye(k), matrix)).reverse(copy=False)
    can = _reachable(back, np.flatnonzero(there))
    return matrix, there, can, ~_reachable(back, np.flatnonzero(~can))


def _reachable(graph: nx.DiGraph, sources: np.ndarray) -> np.ndarray:
    """Whether each state can be reached from one of the sources, (k,)."""
    out = np.zeros(len(graph), bool)
    import networkx as nx

    for layer in nx.bfs_layers(graph, sources.tolist()):
        out[layer] = True
    return out


def absorption_probabilities(transition: Any) -> np.ndarray:
    """The probability of ending in each recurrent class, from every state, (k, classes).

    Columns are in the order of `communicating_classes`. Kemeny and Snell (1960), Finite Markov Chains.
    """
    closed = [c.states for c in communicating_classes(transition) if c.recurrent]
    return np.stack([hitting_probabilities(transition, states) for states in closed], axis=1)
