"""Graphical models over finite variables: factors, factor graphs and Markov random fields."""

from __future__ import annotations

import functools
import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import NAME, NONE, check_each, instance
from ..._util.arrays import asarray
from ...algorithms.factors.tables import Tables
from ...algorithms.junction.tree import JunctionTree
from ...energy import Energy
from ...errors import BadInput, describe
from ...finite import Assignments, table
from ...graph import TableModel
from ...missing import is_masked
from ...parameters import with_energy_precision
from ...spaces import Categorical, Space, is_concrete

if TYPE_CHECKING:
    import networkx as nx

_MAX_ENTRIES = 2**20  # of the table of a factor that is given as an energy


class Factor(Energy):
    """e(x) = −log φ(x) with φ ≥ 0 a table over a few named variables, one axis each.

    >>> agree = Factor(("a", "b"), [[2.0, 1.0], [1.0, 2.0]])
    >>> agree(a=0, b=0)                                       # −log 2
    Array(-0.69314718, dtype=float64)
    """

    log_table: jax.Array
    names: tuple[str, ...] = eqx.field(static=True)
    states: tuple[tuple[str, ...] | None, ...] = eqx.field(static=True)

    def __init__(
        self,
        names: Iterable[str],
        values: Any = None,
        *,
        log_table: Any = None,
        states: Iterable[Any] | None = None,
    ):
        listed = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else names
        self.names = check_each("names", [names] if isinstance(names, str) else listed, NAME, "names")
        if (values is None) == (log_table is None):
            raise BadInput("values", "both or neither of values and log_table", "one of them")
        if log_table is None:
            log_table = _log_values(values, f"the table over ({', '.join(self.names)})")
        self.log_table = as_array(log_table)
        shape = self.log_table.shape
        if len(shape) != len(self.names) or len(set(self.names)) != len(self.names):
            found = f"shape {shape} for ({', '.join(self.names)})"
            raise BadInput("values", found, "one axis per name, all names different")
        self.states = read_states(states, self.names)

    @property
    def spaces(self):
        each = zip(self.names, self.log_table.shape, self.states, strict=True)
        return {name: Categorical(k, labels=labels) for name, k, labels in each}

    @with_energy_precision
    def __call__(self, **values):
        return -self.log_table[tuple(values[name] for name in self.names)]


def read_states(states: Any, names: Sequence[str]) -> tuple[tuple[str, ...] | None, ...]:
    """Return the names of the states of every variable; raise unless they are one list per variable."""
    if states is None:
        return (None,) * len(names)
    kind = instance((list, tuple, range, np.ndarray), "names of states") | NONE
    found = check_each("states", states, kind, "the names of the states of every variable")
    if len(found) != len(names):
        raise BadInput("states", f"{len(found)} lists", f"{len(names)}, one per variable")
    return tuple(map(as_labels, found))


def read_states_by_name(states: Any) -> Mapping[str, Any]:
    """Return the names of states by variable; raise unless they are a dict."""
    if states is not None and not isinstance(states, Mapping):
        raise BadInput("states", describe(states), "names of states by variable, a dict")
    return states or {}


def as_labels(states: Any) -> tuple[str, ...] | None:
    """The names of states as strings; None if there are none."""
    return None if states is None else tuple(map(str, states))


def as_array(values: Any) -> jax.Array:
    """A JAX array of the same precision: float64 stays float64, whether or not JAX has 64 bits enabled."""
    if isinstance(values, jax.Array):
        return values
    array = _numeric_array(values)
    if array.dtype != np.float64:
        return asarray(array)
    with jax.enable_x64(True):
        return asarray(array)


def _numeric_array(values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise BadInput("table", "rows of different lengths", "an array of numbers") from None
    if array.dtype.kind not in "biuf":
        raise BadInput("table", f"dtype {array.dtype}", "an array of numbers")
    return array


def _log_values(values: Any, argument: str) -> Any:
    """log φ of a table of numbers >= 0, −∞ for zeros."""
    if not is_concrete(values):
        return jnp.log(values)
    array = _numeric_array(values)
    if not np.all(array >= 0) or not np.isfinite(array).all():
        raise BadInput(argument, "an entry that is negative or not finite", "finite numbers >= 0")
    if not (array > 0).any():
        raise BadInput(argument, "only zeros", "at least one entry > 0")
    with np.errstate(divide="ignore"):
        return np.log(array.astype(array.dtype if array.dtype.kind == "f" else float))


class Network(Energy):
    """e(x) = Σ_f e_f(x_f): base of energies that are sums of small energies over finite variables.

    Free energies, log Z and draws are exact, by message passing on a junction tree
    (`algorithms/junction/tree.py`).
    """

    @property
    @abstractmethod
    def parts(self) -> tuple[Energy, ...]:
        """The terms of the sum."""

    #: Whether log Z = 0 by construction.
    is_normalised: ClassVar[bool] = False

    @property
    def marginalises(self):  # type: ignore[override]
        return frozenset(self.spaces)

    @property
    def spaces(self):
        out: dict[str, Space] = {}
        for part in self.parts:
            for name, space in part.spaces.items():
                before = out.setdefault(name, space)
                if before != space and _labels(before) is None and before == _without_labels(space):
                    out[name] = space  # states that are named in one part are named in all
                elif space not in (before, _without_labels(before)) and before != _without_labels(space):
                    raise BadInput(name, f"both {before!r} and {space!r}", "one space per variable")
        return out

    @with_energy_precision
    def __call__(self, **values):
        if any(map(is_masked, values.values())):
            return self.free_energy(**values)
        each = (part(**{name: values[name] for name in part.spaces}) for part in self.parts)
        return functools.reduce(jnp.add, each)

    @with_energy_precision
    def tables(self) -> Tables:
        """The energy as log-tables, one per part."""
        spaces = self.spaces
        names = tuple(spaces)
        scopes = tuple(tuple(names.index(n) for n in part.spaces) for part in self.parts)
        cards = tuple(spaces[n].n_values for n in names)
        return Tables(names, cards, scopes, tuple(map(_log_table, self.parts)))

    def inference(self, task):
        return "MessagePassing"

    @with_energy_precision
    def free_energy(self, **given):
        rest, evidence = self.tables().given(given)
        return -rest.log_partition(evidence)

    @with_energy_precision
    def log_partition(self):
        tables, evidence = self.tables().given({})
        return tables.log_partition(evidence)

    @with_energy_precision
    def draw(self, key, **given):
        rest, evidence = self.tables().given(given)
        return {name: values[0] for name, values in rest.draw(key, 1, evidence).items()}

    def graph(self) -> nx.Graph:
        """The undirected graph with an edge between variables that share a part."""
        import networkx as nx

        graph = nx.Graph()
        graph.add_nodes_from(self.spaces)
        for part in self.parts:
            graph.add_edges_from(itertools.combinations(part.spaces, 2))
        return graph

    def junction_tree(self, *given: str) -> JunctionTree:
        """The junction tree of the other variables if these are given: its width, memory and operations."""
        return JunctionTree.build(*self.tables().shapes_given(given))

    def observe(self, **values: Any) -> MarkovField:
        """The model with some variables observed: tables restricted to the values, log Z = log p̃(values)."""
        spaces, tables = self.spaces, self.tables()
        for name in values:
            if name not in spaces:
                raise BadInput("observe", repr(name), f"some of {list(spaces)}")
        observed = {n: int(spaces[n].check(v, n, missing=False)) for n, v in values.items()}
        factors = []
        for scope, log_table in zip(tables.scopes, tables.logs, strict=True):
            names = [tables.names[v] for v in scope]
            hidden = [n for n in names if n not in observed]
            at = tuple(observed.get(n, slice(None)) for n in names)
            states = [_labels(spaces[n]) for n in hidden]
            factors.append(Factor(hidden, log_table=_to_numpy_if_concrete(log_table)[at], states=states))
        for name, state in observed.items():
            certain = np.where(np.arange(spaces[name].n_values) == state, 0.0, -np.inf)
            factors.append(Factor((name,), log_table=certain, states=(_labels(spaces[name]),)))
        return MarkovField(factors)

    def soft_evidence(self, **likelihoods: Any) -> FactorGraph:
        """The model with uncertain observations: p(observation | state) of variables, in order or by state.

        log Z of the result minus log Z of this model is log p(observations).
        """
        spaces, extra = self.spaces, []
        for name, vector in likelihoods.items():
            if name not in spaces:
                raise BadInput("soft_evidence", repr(name), f"one of {list(spaces)}")
            labels = _labels(spaces[name])
            extra.append(Factor((name,), _likelihood(vector, name, spaces[name]), states=(labels,)))
        return FactorGraph((*self.parts, *extra))


def _to_numpy_if_concrete(values: Any) -> np.ndarray | Any:
    return np.asarray(values) if is_concrete(values) else values


def _likelihood(vector: Any, name: str, space: Any) -> np.ndarray:
    """One number per state, from a vector or a dict by state."""
    if isinstance(vector, Mapping):
        labels = _labels(space) or tuple(map(str, range(space.k)))
        if set(map(str, vector)) != set(labels):
            raise BadInput(name, f"the states {list(vector)}", f"one number for each of {list(labels)}")
        by_name = {str(k): v for k, v in vector.items()}
        vector = [by_name[label] for label in labels]
    out = np.asarray(vector, float)
    if out.shape != (space.k,):
        raise BadInput(name, f"shape {out.shape}", f"({space.k},), one number per state")
    return out


def _labels(space: Any) -> tuple[str, ...] | None:
    return getattr(space, "labels", None)


def _without_labels(space: Any) -> Any:
    return Categorical(space.k) if isinstance(space, Categorical) else space


def _log_table(part: Energy) -> Any:
    """log φ of one part, one axis per variable."""
    if hasattr(part, "log_table"):
        return part.log_table
    spaces = part.spaces
    if any(not s.is_finite for s in spaces.values()):
        raise BadInput(type(part).__name__, f"variables {spaces}", "finite variables")
    every = Assignments(spaces)
    if every.n > _MAX_ENTRIES:
        raise BadInput(type(part).__name__, f"{every.n:,} joint values", f"at most {_MAX_ENTRIES:,}")
    values = table(lambda i: -part(**every.at(i)), every.n)
    return values.reshape(tuple(s.n_values for s in spaces.values()))


class FactorGraph(Network):
    """p(x) ∝ Π_f exp(−e_f(x_f)): factors are tables, or any energies over finite variables.

    Kschischang, Frey and Loeliger (2001), Factor graphs and the sum-product algorithm.

    >>> from energax import log_partition
    >>> chain = FactorGraph([Factor(("a", "b"), [[2.0, 1.0], [1.0, 2.0]]), Factor("b", [1.0, 3.0])])
    >>> log_partition(chain)                                  # log(3 · 1 + 3 · 3)
    2.485 (exact)
    """

    factors: tuple[Energy, ...]

    def __init__(self, factors: Iterable[Energy]):
        if not isinstance(factors, Iterable) or isinstance(factors, str | bytes):
            raise BadInput("factors", describe(factors), "energies over finite variables")
        self.factors = tuple(factors)
        wrong = [type(f).__name__ for f in self.factors if not isinstance(f, Energy)]
        if wrong or not self.factors:
            raise BadInput("factors", f"{wrong or 'none'}", "energies over finite variables")
        infinite = {n: s for f in self.factors for n, s in f.spaces.items() if not s.is_finite}
        if infinite:
            raise BadInput("factors", f"variables {infinite}", "finite variables")
        wide = {n: s for n, s in self.spaces.items() if s.shape}
        if wide:
            remedy = "Give every coordinate a name of its own."
            raise BadInput("factors", f"variables {wide}", "variables with a single coordinate", remedy)

    @property
    def parts(self):
        return self.factors


class MarkovField(FactorGraph):
    """p(x) ∝ Π_c φ_c(x_c): an undirected model whose parameters are the logs of its tables.

    Build it from tables by the names of their variables, `MarkovField({("a", "b"): [[2, 1], [1, 2]]})`, or
    from an undirected graph (`from_graph`), with one table per edge and one per variable.

    Besag (1974), Spatial interaction and the statistical analysis of lattice systems.

    >>> from energax import posterior
    >>> field = MarkovField({("a", "b"): [[2.0, 1.0], [1.0, 2.0]]})
    >>> posterior(field, {"a": 0}).marginals["b"].round(3)
    array([0.667, 0.333])
    """

    def __init__(self, tables: Any, states: Mapping[str, Iterable[str]] | None = None):
        if isinstance(tables, Mapping):
            states = read_states_by_name(states)
            tables = [_factor(names, values, states) for names, values in tables.items()]
        super().__init__(tables)

    @classmethod
    def from_graph(cls, graph: nx.Graph, cards: Any = 2) -> MarkovField:
        """A uniform field on an undirected graph; `cards` is the number of states, for all or by name."""
        count = lambda node: int(cards[node]) if isinstance(cards, Mapping) else int(cards)
        if graph.is_directed():
            raise BadInput("graph", "a directed graph", "an undirected graph", "Use graph.moralise(…).")
        over = [(node,) for node in graph] + [tuple(edge) for edge in graph.edges]
        return cls([Factor(map(str, n), np.ones([count(v) for v in n], np.float32)) for n in over])

    @classmethod
    def from_tables(cls, model: TableModel) -> MarkovField:
        """The field of a `TableModel`, such as the content of a file."""
        each = zip(model.scopes, model.tables, strict=True)
        factors = [
            Factor([model.names[v] for v in scope], table, states=[model.states[v] for v in scope])
            for scope, table in each
        ]
        touched = {v for scope in model.scopes for v in scope}
        isolated = [v for v in range(len(model.names)) if v not in touched]
        factors += [
            Factor((model.names[v],), np.ones(model.cards[v]), states=(model.states[v],)) for v in isolated
        ]
        return cls(factors)

    def to_tables(self) -> TableModel:
        """The model as a `TableModel`, for files."""
        return to_table_model("markov", self)


def _factor(names: Any, values: Any, states: Mapping[str, Any]) -> Factor:
    names = (names,) if isinstance(names, str) else tuple(names)
    return Factor(names, values, states=[states.get(n) for n in names])


def to_table_model(kind: Any, network: Network) -> TableModel:
    """The tables of a network as plain arrays, with the names of variables and states."""
    tables = network.tables()
    spaces = network.spaces
    states = [_labels(spaces[n]) or tuple(map(str, range(spaces[n].n_values))) for n in tables.names]
    values = [np.exp(np.asarray(log, np.float64)) for log in tables.logs]
    return TableModel(kind, tables.names, tuple(states), tables.scopes, tuple(values))
