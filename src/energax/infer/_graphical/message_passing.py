"""Message passing on networks of finite variables: exact answers by a tree of cliques."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import jax
import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.factors.tables import PackedTables
from ...algorithms.junction.tree import JunctionTree
from ...errors import BadInput, Intractable
from ...estimate import Estimate
from ...missing import is_masked, known
from ...parameters import cached_on
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Posterior
from .._query import Query

_FEW_ROWS = 16
_MOST_SHARED = 2**18  # entries of a tree that is not worth making smaller for every set of known variables
_MOST_NUMBERS = 2**24  # in the tables of all rows that are answered in one call


class MessagePassing(Method):
    """Sum-product and max-product on a junction tree: exact, and as dear as its largest clique.

    The tree is built for what is given (known values leave their tables), its width and bytes are
    told by `plan` before anything runs, and every row of evidence goes through one compiled call.

    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical structures.

    >>> from energax import log_partition, posterior
    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({"rain": [0.8, 0.2], "wet": (("rain",), [[0.9, 0.1], [0.2, 0.8]])})
    >>> posterior(net, {"wet": 1}).marginals["rain"].round(3)
    array([0.333, 0.667])
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})
    knowledge = True

    @property
    def label(self):
        return "message passing"

    def unsupported_reason(self, task, query):
        if not hasattr(type(query.energy), "tables"):
            return f"needs tables over finite variables, which {type(query.energy).__name__} has not"
        return None

    def why(self, task, query):
        tree = tree_of(query)
        return f"a junction tree of width {tree.width} answers exactly" if tree else "everything is known"

    def cost(self, task, query):
        tree = tree_of(query)
        return Cost(n_bytes=tree.bytes, operations=tree.operations) if tree else Cost()

    def log_partition(self, query, key):
        if query.energy.knows_log_partition:
            return Estimate(np.asarray(query.energy.log_partition()), kind="exact", method=self.label)
        return Estimate(_log_evidence(query)[0], kind="exact", method=self.label)

    def log_prob(self, query, key):
        log_z = self.log_partition(Query(query.energy, {}), key).value
        return Estimate(_log_evidence(query) - log_z, kind="exact", method=self.label)

    def posterior(self, query, key):
        found = NetworkPosterior(query, key)
        found.check_possible()
        return found

    def argmin(self, query, key):
        check_possible(query, _log_evidence(query))
        values, energy = solve(_most_probable, query)
        values = {k: v for k, v in values.items() if k in query.targets}
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def sample(self, query, n, key):
        check_possible(query, _log_evidence(query))
        return NetworkPosterior(query)._sample(n, key)


class NetworkPosterior(Posterior):
    """p(hidden | given) of a network, by calibrated cliques.

    `marginals["lung"]["yes"]` reads by the name of a state where states have names; what was given is
    there too, as a certainty.
    """

    method = "message passing"
    kind = "exact"

    def _calibrated(self):
        """log Z of every row's evidence, and all marginals end to end, under the names that they are of."""
        return self._once("calibrated", lambda: solve(_marginals, self._query))

    def check_possible(self):
        check_possible(self._query, self._calibrated()[0])

    @property
    def marginals(self):
        """Probabilities of all states, by the name of the variable; rows first."""
        return self._once("marginals", self._marginals)

    def _marginals(self):
        query, labels = self._query, cached_on(self._query.energy, "labels", _all_labels)
        ((names, states),) = self._calibrated()[1].items()
        states = query.answer(states)  # the one row, before it is many arrays
        found, end = {}, 0
        for name in names:
            start, end = end, end + len(labels[name])
            found[name] = Labelled.of(states[..., start:end], labels[name])
        for name in labels.keys() - found.keys():  # what was read out of the tables is certain
            certain = np.eye(len(labels[name]), dtype=states.dtype)[query.given[name]]
            found[name] = Labelled.of(query.answer(certain), labels[name])
        return found if len(names) == len(labels) else {name: found[name] for name in labels}

    def _mean(self):
        return {}

    def _mode(self):
        states = solve(_most_probable, self._query)[0]
        return {k: v for k, v in states.items() if k in self.spaces}

    def _joint(self, names):
        return solve(functools.partial(_joint, names=names), self._query)

    def _sample(self, n, key):
        drawn = solve(functools.partial(_draws, n=n), self._query, key)
        drawn = {k: v for k, v in drawn.items() if k in self.spaces}
        values = {k: np.swapaxes(v, 0, 1)[None] if self._query.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)

    def _log_evidence(self):
        if not self._query.given:
            return Estimate(0.0, method=self.method)
        log_z = MessagePassing().log_partition(Query(self._query.energy, {}), None).value
        estimate = Estimate(self._calibrated()[0] - log_z, kind="exact", method=self.method)
        return estimate if self._query.many else estimate[0]


def tree_of(query: Query) -> JunctionTree | None:
    """The junction tree that a question is answered on; None if everything is known."""
    whole = cached_on(query.energy, "tree", _whole_tree)
    if whole is not None and _shared(whole, query.n):
        return whole
    certain = [k for k, v in query.given.items() if not is_masked(v)]
    cards, scopes = cached_on(query.energy, "tables", on_host).shapes_given(certain)
    return JunctionTree.build(cards, scopes) if cards else None


def _whole_tree(energy: Any) -> JunctionTree | None:
    tables = cached_on(energy, "tables", on_host)
    with contextlib.suppress(Intractable):
        return JunctionTree.build(tables.cards, tables.scopes)
    return None


def _shared(whole: JunctionTree, n: int) -> bool:
    return whole.cost.entries <= _MOST_SHARED or n > _FEW_ROWS


def solve(ask: Any, query: Query, key: Any = None, *, together: bool = True) -> Any:
    """`ask(tables, evidence, key)` of every row of evidence; answers with a leading axis of rows.

    A tree of moderate size is that of the whole network, compiled once for whatever is given, with
    evidence as vectors and many rows in one call. A large one is made for what is left when known
    values are read out of their tables, which makes it smaller, and rows are answered one by one.
    """
    energy, given, n = query.energy, query.given, query.n
    if n > 1 and key is None:  # rows of finite values repeat themselves: each is answered once
        given, n, places = _distinct(given)
        answers = _answers(ask, energy, given, n, None, together)
        return jax.tree.map(lambda a: a[places], answers)
    return _answers(ask, energy, given, n, key, together)


def _distinct(given: dict[str, Any]) -> tuple[dict[str, Any], int, np.ndarray]:
    """Every row that occurs, how many those are, and which of them each row is."""
    code = lambda v: np.where(v.observed, v.value, -1) if is_masked(v) else np.asarray(v)
    codes = np.stack([code(v) for v in given.values()], axis=1)
    _, first, places = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return jax.tree.map(lambda a: np.asarray(a)[first], given), len(first), places.reshape(-1)


def _answers(ask: Any, energy: Any, given: dict[str, Any], n: int, key: Any, together: bool) -> Any:
    tree = cached_on(energy, "tree", _whole_tree) if together else None
    if tree is None or not _shared(tree, n):
        tables = cached_on(energy, "tables", on_host)
        keys = [None] * n if key is None else jax.random.split(key, n)
        rows = [jax.tree.map(lambda a, i=i: a[i], given) for i in range(n)]
        each = [ask(*tables.given(row), k) for row, k in zip(rows, keys, strict=True)]
        return jax.tree.map(lambda *parts: np.stack(parts), *each)
    itemsize = jax.dtypes.canonicalize_dtype(float).itemsize
    tables = cached_on(energy, f"ready tables of {itemsize} bytes", _ready)
    evidence = tables.evidence(given, n)
    if n == 1:
        answer = ask(tables, (evidence[0],), key)
        return jax.tree.map(lambda a: np.asarray(a)[None], answer)
    # Another number of rows is seldom another compilation: calls are filled up to a power of two.
    most = max(1, _MOST_NUMBERS // max(1, tree.cost.entries))
    size = min(1 << (most.bit_length() - 1), 1 << (n - 1).bit_length())
    answers = []
    for start in range(0, n, size):
        some = evidence[np.minimum(np.arange(start, start + size), n - 1)]
        sub = None if key is None else jax.random.fold_in(key, start)
        answer = ask(tables, (some,), sub)
        answers.append(jax.tree.map(lambda a: np.asarray(a)[: n - start], answer))  # noqa: B023
    return jax.tree.map(lambda *parts: np.concatenate(parts), *answers)


def on_host(energy: Any) -> Any:
    return energy.tables().on_host()


def _ready(energy: Any) -> PackedTables:
    return PackedTables(cached_on(energy, "tables", on_host), cached_on(energy, "tree", _whole_tree))


def _all_labels(energy: Any) -> dict[str, tuple[str, ...]]:
    """The names of all states of all variables; those without are called by their numbers."""
    numbers = lambda space: tuple(map(str, range(space.n_values)))
    return {name: getattr(s, "labels", None) or numbers(s) for name, s in energy.spaces.items()}


def _log_evidence(query: Query) -> np.ndarray:
    return np.asarray(solve(_log_z, query))


def check_possible(query: Query, log_p: np.ndarray) -> None:
    """Evidence of probability zero has no posterior: say which entries cannot go together."""
    impossible = np.asarray(log_p) == -np.inf
    if not impossible.any():
        return
    if not query.given:
        raise BadInput("energy", "no state of any probability", "a model that allows something")
    row = int(np.argmax(impossible))
    clash = {k: jax.tree.map(lambda a: a[row], v) for k, v in query.given.items()}
    clash = {k: v for k, v in clash.items() if not is_masked(v) or bool(v.observed)}
    for name in list(clash):  # what can be dropped with the rest still impossible is not to blame
        fewer = {k: v for k, v in clash.items() if k != name}
        if fewer and np.isneginf(_log_evidence(Query(query.energy, fewer)))[0]:
            clash = fewer
    spaces = query.spaces
    words = " and ".join(f"{k} = {_state(spaces[k], known(v))}" for k, v in clash.items())
    where = f" in row {row}" if query.many else ""
    raise BadInput("given", f"evidence of probability zero{where}: {words}", "values that can occur together")


def _state(space: Any, value: Any) -> str:
    labels = getattr(space, "labels", None)
    return str(int(value)) if labels is None else labels[int(value)]


# -- what is asked of tables, for one row of evidence or for many at once --------------------------


def _log_z(tables, evidence, key):
    return tables.log_partition(evidence)


def _marginals(tables, evidence, key):
    log_z, states = tables.marginals(evidence)
    return log_z, {tables.names: states}


def _most_probable(tables, evidence, key):
    states, value = tables.maximise(evidence)
    return states, -value


def _joint(tables, evidence, key, names):
    return np.exp(tables.joint(names, evidence))


def _draws(tables, evidence, key, n):
    return tables.draw(key, n, evidence)
