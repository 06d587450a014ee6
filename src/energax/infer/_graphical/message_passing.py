"""Message passing: exact inference in finite models on a junction tree."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.factors.solver import TableSolver
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked, value_of
from ...parameters import cache_on
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Posterior
from .._query import Query


class MessagePassing(Method):
    """Sum-product and max-product on a junction tree: exact, at the cost of its largest clique.

    `plan` reports the width and the memory of the tree before anything is computed. Rows of evidence
    share compiled calls.

    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical structures.

    >>> from energax import log_partition, posterior
    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({"rain": [0.8, 0.2], "wet": (("rain",), [[0.9, 0.1], [0.2, 0.8]])})
    >>> posterior(net, {"wet": 1}).marginals["rain"].round(3)
    array([0.333, 0.667])
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})
    priority = 0

    @property
    def label(self):
        return "message passing"

    def unsupported_reason(self, task, query):
        return unsupported_without_tables(query)

    def why(self, task, query):
        tree = solver_of(query).tree_given(query.given, query.n)
        return f"a junction tree of width {tree.width} is small enough" if tree else "all variables are given"

    def cost(self, task, query):
        tree = solver_of(query).tree_given(query.given, query.n)
        return Cost(n_bytes=tree.bytes, operations=tree.operations) if tree else Cost()

    def log_partition(self, query, key):
        if query.energy.is_normalised:
            return Estimate(np.asarray(query.energy.log_partition()), kind="exact", method=self.label)
        return Estimate(_log_evidence(query)[0], kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(Query(query.energy, {}), key).value
        return Estimate(_log_evidence(query) - log_z, kind="exact", method=self.label)

    def posterior(self, query, key):
        posterior = NetworkPosterior(query, key)
        posterior.check_possible()
        return posterior

    def argmin(self, query, key):
        check_possible(query, _log_evidence(query))
        states, log_p = solver_of(query).maximise(query.given, query.n)
        values = {k: v for k, v in states.items() if k in query.targets}
        return Minimum(query.unbatch(values), energy=query.unbatch(-log_p), method=self.label)

    def sample(self, query, n, key):
        check_possible(query, _log_evidence(query))
        return NetworkPosterior(query)._draw(n, key)


class NetworkPosterior(Posterior):
    """p(hidden | given) of a finite model, from its junction tree.

    `marginals["lung"]["yes"]` is the probability of a state by its name, where states have names. Given
    variables are included, with probability one for their value.
    """

    method = "message passing"
    kind = "exact"

    def _calibrate(self) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
        """log p̃(given) of every row, the names of variables, and their marginals end to end."""
        query = self._query
        return self._cached("calibrated", lambda: solver_of(query).marginals(query.given, query.n))

    def check_possible(self) -> None:
        check_possible(self._query, self._calibrate()[0])

    @property
    def marginals(self):
        """Probabilities of all states, by the name of the variable; rows first."""
        return self._cached("marginals", self._compute_marginals)

    def _compute_marginals(self):
        query = self._query
        labels = cache_on(query.energy, "state labels", lambda _: _state_labels(query.spaces))
        _, names, states = self._calibrate()
        states = query.unbatch(states)  # before the split: one array instead of many
        found, end = {}, 0
        for name in names:
            start, end = end, end + len(labels[name])
            found[name] = Labelled.of(states[..., start:end], labels[name])
        for name in labels.keys() - found.keys():  # observed variables that are not in the tree
            certain = np.eye(len(labels[name]), dtype=states.dtype)[query.given[name]]
            found[name] = Labelled.of(query.unbatch(certain), labels[name])
        return found if len(names) == len(labels) else {name: found[name] for name in labels}

    def _compute_mean(self):
        return {}

    def _compute_mode(self):
        states, _ = solver_of(self._query).maximise(self._query.given, self._query.n)
        return {k: v for k, v in states.items() if k in self.spaces}

    def _compute_joint(self, names):
        return solver_of(self._query).joint(names, self._query.given, self._query.n)

    def _draw(self, n, key):
        query = self._query
        states = solver_of(query).draw(n, query.given, query.n, key)
        states = {k: v for k, v in states.items() if k in self.spaces}
        values = {k: np.swapaxes(v, 0, 1)[None] if query.batched else v for k, v in states.items()}
        return Draws(values, method=self.method, exact=True)

    def _compute_log_evidence(self):
        if not self._query.given:
            return Estimate(0.0, method=self.method)
        log_z = MessagePassing().log_partition(Query(self._query.energy, {}), None).value
        estimate = Estimate(self._calibrate()[0] - log_z, kind="exact", method=self.method)
        return estimate if self._query.batched else estimate[0]


def solver_of(query: Query) -> TableSolver:
    """The solver of the energy's tables, built once per energy."""
    return cache_on(query.energy, "table solver", _make_solver)


def _make_solver(energy: Any) -> TableSolver:
    return TableSolver(energy.tables())


def unsupported_without_tables(query: Query) -> str | None:
    """The reason why a method for tables does not support the energy, or None."""
    if not query.energy.knows("tables"):
        return f"needs tables over finite variables, and {type(query.energy).__name__} provides none"
    return None


def _state_labels(spaces: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """The names of all states by variable; states without names are called by their numbers."""
    numbers = lambda space: tuple(map(str, range(space.n_values)))
    return {name: getattr(s, "labels", None) or numbers(s) for name, s in spaces.items()}


def _log_evidence(query: Query) -> np.ndarray:
    return solver_of(query).log_partition(query.given, query.n)


def check_possible(query: Query, log_p: np.ndarray) -> None:
    """Raise if a row has probability zero, and name a minimal set of its values that conflict."""
    impossible = np.asarray(log_p) == -np.inf
    if not impossible.any():
        return
    if not query.given:
        raise BadInput("energy", "probability zero for all states", "a model with a possible state")
    row = int(np.argmax(impossible))
    conflict = {k: jax.tree.map(lambda a: a[row], v) for k, v in query.given.items()}
    conflict = {k: v for k, v in conflict.items() if not is_masked(v) or bool(v.observed)}
    for name in list(conflict):  # drop every value without which the rest is still impossible
        fewer = {k: v for k, v in conflict.items() if k != name}
        if fewer and np.isneginf(_log_evidence(Query(query.energy, fewer)))[0]:
            conflict = fewer
    spaces = query.spaces
    values = " and ".join(f"{k} = {_state_name(spaces[k], value_of(v))}" for k, v in conflict.items())
    where = f" in row {row}" if query.batched else ""
    raise BadInput(
        "given", f"evidence of probability zero{where}: {values}", "values that can occur together"
    )


def _state_name(space: Any, value: Any) -> str:
    labels = getattr(space, "labels", None)
    return str(int(value)) if labels is None else labels[int(value)]
