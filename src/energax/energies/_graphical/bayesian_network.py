"""Bayesian networks: every variable given its parents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.factors.model import find_cycle, wrong_row
from ...algorithms.factors.tables import Tables
from ...algorithms.gaussian.conditional import Mixed, draw, log_evidence
from ...algorithms.gaussian.linear_system import LinearSystem
from ...energy import Energy
from ...errors import BadInput, Unsuitable
from ...graph import TableModel
from ...parameters import with_energy_precision
from ...spaces import Categorical, Simplex, fixed, is_concrete, parameter
from .factor_graph import Network, as_array, as_labels, plain_tables
from .linear_gaussian import Constant, LinearGaussian
from .statistics import centres, expected_families

if TYPE_CHECKING:
    import networkx as nx


class ConditionalTable(Energy):
    """e = −log p(child | parents): a table with one axis a parent, and the child on the last.

    >>> wet = ConditionalTable("wet", ("rain",), [[0.9, 0.1], [0.2, 0.8]])
    >>> round(float(jnp.exp(-wet(rain=1, wet=1))), 6)
    0.8
    """

    table: jax.Array = parameter(Simplex())
    child: str = eqx.field(static=True)
    parents: tuple[str, ...] = eqx.field(static=True)
    states: tuple[tuple[str, ...] | None, ...] = eqx.field(static=True)

    def __init__(self, child: str, parents: Iterable[str], table: Any, states: Iterable[Any] | None = None):
        self.child, self.parents = str(child), tuple(map(str, parents))
        self.table = as_array(table)
        over = (*self.parents, self.child)
        self.states = (None,) * len(over) if states is None else tuple(map(as_labels, states))
        shape = self.table.shape
        if len(shape) != len(over) or len(set(over)) != len(over) or 0 in shape:
            found = f"shape {shape} for p({self.child} | {', '.join(self.parents)})"
            raise BadInput("table", found, "one axis for each parent, and the child on the last")
        if is_concrete(self.table):
            each = zip(self.parents, self.states, shape[:-1], strict=False)
            family = [(p, s or tuple(map(str, range(k)))) for p, s, k in each]
            array = np.asarray(self.table)
            if not np.isfinite(array).all() or (array < 0).any():
                raise BadInput(f"the table of {self.child}", "an entry that is negative or not finite", "≥ 0")
            complaint = wrong_row(array, self.child, family)
            if complaint:
                raise BadInput(f"the table of {self.child}", *complaint)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.parents, self.child)

    @property
    @with_energy_precision
    def log_table(self):
        return jnp.log(self.table)

    @property
    def spaces(self):
        each = zip(self.names, self.table.shape, self.states, strict=True)
        return {name: Categorical(k, labels=labels) for name, k, labels in each}

    @with_energy_precision
    def __call__(self, **values):
        return -jnp.log(self.table[tuple(values[name] for name in self.names)])

    def drawn(self, key: Any, values: Mapping[str, Any]) -> Any:
        """The child given its parents."""
        row = self.log_table[tuple(values[name] for name in self.parents)]
        return jax.random.categorical(key, row).astype(jnp.int32)

    def with_table(self, table: Any) -> ConditionalTable:
        return ConditionalTable(self.child, self.parents, table, self.states)


class BayesianNetwork(Network):
    """p(x) = Π_v p(x_v | x_parents(v)): log Z = 0.

    Built from tables (`{"wet": (("rain",), table)}`, or `{"rain": table}` without parents), from a
    directed graph (`from_graph`) or from a file (`energax.data.read_bif`). Learned by `EM`, in one step
    where every entry is known, and with missing entries by their expected counts.

    A `LinearGaussian` in the place of a table is a real variable, which may have finite and real
    parents; a table may have finite parents only. All answers stay exact (`ConditionalGaussian`).

    Args:
        tables: by variable, p(v | parents), the variable on the last axis; or a `LinearGaussian`.
        states: names of the states, by variable.
        prior: pseudo-counts that learning adds to every entry, the mode under a Dirichlet(1 + prior).

    Pearl (1988), Probabilistic reasoning in intelligent systems.

    >>> from energax import log_prob, posterior
    >>> net = BayesianNetwork(
    ...     {"rain": [0.8, 0.2], "wet": (("rain",), [[0.9, 0.1], [0.2, 0.8]])},
    ...     states={"rain": ("no", "yes"), "wet": ("no", "yes")},
    ... )
    >>> posterior(net, {"wet": "yes"}).marginals["rain"]["yes"].round(3)
    np.float64(0.667)
    >>> posterior(net.do(wet="yes")).marginals["rain"]["yes"].round(3)          # wetting makes no rain
    np.float64(0.2)
    """

    knows_log_partition = True

    nodes: tuple[Any, ...]  # ConditionalTable, LinearGaussian or Constant
    prior: Any = fixed(default=0.0)

    def __init__(self, tables: Any, states: Mapping[str, Iterable[str]] | None = None, *, prior: float = 0.0):
        if isinstance(tables, Mapping):
            tables = [_node(name, said, states or {}) for name, said in tables.items()]
        self.nodes, self.prior = tuple(tables), prior
        self._check()

    def _check(self) -> None:
        names = [node.child for node in self.nodes]
        if not names or len(set(names)) != len(names):
            raise BadInput("tables", f"the variables {names}", "one table for each variable")
        real = {node.child for node in self.nodes if not isinstance(node, ConditionalTable)}
        for node in self.nodes:
            stray = [p for p in node.names[:-1] if p not in names]
            if stray:
                raise BadInput(f"the parents of {node.child}", f"{stray}", f"some of {names}")
            _check_kinds(node, real)
        cycle = find_cycle([tuple(names.index(p) for p in node.names[:-1]) for node in self.nodes])
        if cycle:
            walk = " → ".join(names[v] for v in [*cycle, cycle[0]])
            raise BadInput("tables", f"the cycle {walk}", "a directed graph without cycles")
        _ = self.spaces

    @classmethod
    def from_graph(
        cls, graph: nx.DiGraph, cards: Any = 2, states: Mapping[str, Iterable[str]] | None = None
    ) -> BayesianNetwork:
        """Even tables on a directed graph, to be learned; `cards` states a variable, a number or by name."""
        if not graph.is_directed():
            raise BadInput("graph", "an undirected graph", "a directed one")
        named = {str(k): tuple(v) for k, v in (states or {}).items()}

        def count(node):
            if str(node) in named:
                return len(named[str(node)])
            return int(cards[node]) if isinstance(cards, Mapping) else int(cards)

        nodes = []
        for v in graph:
            parents = list(graph.predecessors(v))
            shape = [count(u) for u in (*parents, v)]
            labels = [named.get(str(u)) for u in (*parents, v)]
            nodes.append(ConditionalTable(v, parents, np.full(shape, 1 / shape[-1], np.float32), labels))
        return cls(nodes)

    @classmethod
    def from_tables(cls, model: TableModel) -> BayesianNetwork:
        """The network of a file, or of any plain tables."""
        if model.kind != "bayes":
            raise BadInput("model", "an undirected model", "p(child | parents) tables", "Use MarkovField.")
        nodes = []
        for child, (scope, table) in enumerate(zip(model.scopes, model.tables, strict=True)):
            parents = [model.names[v] for v in scope[:-1]]
            labels = [model.states[v] for v in scope]
            nodes.append(ConditionalTable(model.names[child], parents, table, labels))
        return cls(nodes)

    def to_tables(self) -> TableModel:
        """The network as plain tables, for files."""
        return plain_tables("bayes", self)

    @property
    def parts(self):
        return self.nodes

    @property
    def spaces(self):
        together = super().spaces
        return {node.child: together[node.child] for node in self.nodes}

    @property
    def has_reals(self) -> bool:
        """Whether some node is real."""
        return not all(isinstance(node, ConditionalTable) for node in self.nodes)

    def finite_part(self) -> BayesianNetwork | None:
        """The tables alone, of which no real variable is a parent; None if there are none."""
        tables = [node for node in self.nodes if isinstance(node, ConditionalTable)]
        return BayesianNetwork(tables, prior=self.prior) if tables else None

    def tables(self) -> Tables:
        if self.has_reals:
            real = [node.child for node in self.nodes if not isinstance(node, ConditionalTable)]
            raise Unsuitable(
                f"Tables are over finite variables, but {', '.join(real)} are real. Ask for what "
                "ConditionalGaussian() answers, or take the tables alone: net.finite_part()."
            )
        return super().tables()

    def mixed(self) -> Mixed:
        """The tables and the linear equations, causes first: what `ConditionalGaussian` reads."""
        finite = self.finite_part()
        lines = [n for n in map(self.__getitem__, self.causes_first()) if isinstance(n, LinearGaussian)]
        system = LinearSystem(
            tuple(node.child for node in lines),
            tuple(node.parents for node in lines),
            tuple(node.finite_parents for node in lines),
            *(tuple(getattr(node, what) for node in lines) for what in ("weights", "bias", "variance")),
        )
        tables = Tables((), (), (), ()) if finite is None else finite.tables()
        return Mixed(tables, system, {n.child: n.value for n in self.nodes if isinstance(n, Constant)})

    def inference(self, task):
        return "ConditionalGaussian" if self.has_reals else super().inference(task)

    @with_energy_precision
    def free_energy(self, **given):
        return -log_evidence(self.mixed(), given) if self.has_reals else super().free_energy(**given)

    def __getitem__(self, name: str) -> Any:
        """p(name | parents)."""
        found = [node for node in self.nodes if node.child == name]
        if not found:
            raise BadInput("name", repr(name), f"one of {[n.child for n in self.nodes]}")
        return found[0]

    def graph(self) -> nx.DiGraph:
        """From parents to children."""
        import networkx as nx

        graph = nx.DiGraph()
        graph.add_nodes_from(node.child for node in self.nodes)
        graph.add_edges_from((parent, node.child) for node in self.nodes for parent in node.names[:-1])
        return graph

    @with_energy_precision
    def log_partition(self):
        return jnp.zeros((), jnp.result_type(*jax.tree.leaves(self.nodes)))

    @with_energy_precision
    def draw(self, key, **given):
        """Ancestral where nothing is given: causes first."""
        if given and self.has_reals:
            return {name: value[0] for name, value in draw(self.mixed(), given, key, 1).items()}
        if given:
            return super().draw(key, **given)
        drawn: dict[str, Any] = {}
        order = {node.child: node for node in self.nodes}
        for name, sub in zip(self.causes_first(), jax.random.split(key, len(order)), strict=True):
            drawn[name] = order[name].drawn(sub, drawn)
        return {name: drawn[name] for name in order}

    def causes_first(self) -> list[str]:
        """The names, parents before children."""
        import networkx as nx

        return list(nx.topological_sort(self.graph()))

    # -- causes ------------------------------------------------------------------------------------

    @with_energy_precision
    def do(self, **values: Any) -> BayesianNetwork:
        """The network after an intervention: these variables are set, whatever their parents say.

        A finite one gets a table that is sure of its state, a real one becomes a `Constant`.
        """
        spaces, nodes = self.spaces, []
        for name in values:
            if name not in spaces:
                raise BadInput("do", repr(name), f"some of {list(spaces)}")
        for node in self.nodes:
            if node.child in values and not isinstance(node, ConditionalTable):
                value = spaces[node.child].check(values[node.child], node.child, missing=False)
                if np.ndim(value):
                    raise BadInput(node.child, f"shape {np.shape(value)}", "one number to set it to")
                dtype = jax.tree.leaves(node)[0].dtype
                node = Constant(node.child, np.asarray(value, dtype))
            elif node.child in values:
                at = int(spaces[node.child].check(values[node.child], node.child, missing=False))
                point = jnp.zeros_like(node.table, shape=(node.table.shape[-1],)).at[at].set(1)
                node = ConditionalTable(node.child, (), point, (node.states[-1],))
            nodes.append(node)
        return BayesianNetwork(nodes, prior=self.prior)

    def effect(self, effect: str, *, by: Iterable[str] | str | None = None, **cause: Any) -> Any:
        """p(effect | do(cause = value)) from what can be observed alone; see `adjustment`."""
        from .adjustment import adjusted

        real = [n for n in (effect, *cause) if n in self.spaces and not self.spaces[n].is_finite]
        if real:
            raise Unsuitable(f"Adjustment sums over tables, but {', '.join(real)} are real. Use do().")
        return adjusted(self, effect, cause, by)

    # -- learning ------------------------------------------------------------------------------------

    def expectations(self, rows, temperature):
        """For every row what is expected of each family, and log p(what is seen of it)."""
        return expected_families(self, rows, temperature)

    def statistics(self, data, posterior):
        """How often each entry of each table was met; of a real node, sums of products, `maximum`."""
        return tuple(p.sum(0) for p in posterior)

    def maximise(self, statistics, trainable=None):
        nodes, about = [], centres(self, self.causes_first())
        for i, (node, counts) in enumerate(zip(self.nodes, statistics, strict=True)):
            if not isinstance(node, ConditionalTable):
                moves = None if trainable is None else trainable.nodes[i]
                line = isinstance(node, LinearGaussian)
                nodes.append(node.maximum(counts, about, moves) if line else node)
                continue
            if trainable is not None and not trainable.nodes[i].table:
                nodes.append(node)
                continue
            counts = counts + self.prior
            total = counts.sum(-1, keepdims=True)
            # Parents that nobody met together keep the row they had.
            table = jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), node.table)
            nodes.append(node.with_table(table.astype(node.table.dtype)))
        return BayesianNetwork(nodes, prior=self.prior)

    def recentred(self, statistics, reference):
        """Sums of products that were taken about the centres of `reference`, about these instead."""
        order = self.causes_first()
        old, new = centres(reference, order), centres(self, order)
        each = zip(self.nodes, statistics, strict=True)
        return tuple(n.recentred(s, old, new) if isinstance(n, LinearGaussian) else s for n, s in each)

    @with_energy_precision
    def initialise(self, key, data, weight):
        """Every row of every table drawn evenly from the simplex, so that restarts differ."""
        nodes = []
        for node, sub in zip(self.nodes, jax.random.split(key, len(self.nodes)), strict=True):
            if not isinstance(node, ConditionalTable):
                nodes.append(node.restarted(sub, data, weight) if isinstance(node, LinearGaussian) else node)
                continue
            rows = jax.random.exponential(sub, node.table.shape, node.table.dtype)
            nodes.append(node.with_table(rows / rows.sum(-1, keepdims=True)))
        return BayesianNetwork(nodes, prior=self.prior)


def _check_kinds(node: Any, real: set[str]) -> None:
    """Refuse real parents of a finite variable, and parents in the wrong place of a real one."""
    child = f"the parents of {node.child}"
    if isinstance(node, ConditionalTable):
        wrong = [p for p in node.parents if p in real]
        if wrong:
            remedy = "Turn the arrow around: a real variable may have finite parents."
            raise BadInput(child, f"{wrong}, which are real", "finite variables", remedy)
    elif isinstance(node, LinearGaussian):
        finite, wrong = [p for p in node.parents if p not in real], sorted(real & set(node.finite_parents))
        if finite:
            raise BadInput(child, f"{finite}, which are finite", "real ones", "Name them in given=.")
        if wrong:
            raise BadInput(child, f"given={wrong}, which are real", "finite ones", "Name them in parents=.")
    elif not isinstance(node, Constant):
        raise BadInput("tables", type(node).__name__, "tables and LinearGaussian nodes")


def _node(name: str, said: Any, states: Mapping[str, Any]) -> Any:
    """A table, or (parents, table), or a node as it is."""
    if isinstance(said, (LinearGaussian, Constant, ConditionalTable)):
        if said.child != name:
            raise BadInput(f"the node of {name}", f"one of {said.child!r}", f"one whose child is {name!r}")
        return said
    parents: tuple[str, ...] = ()
    table = said
    if isinstance(said, tuple) and len(said) == 2:
        first = (said[0],) if isinstance(said[0], str) else said[0]
        if not np.isscalar(first) and all(isinstance(p, str) for p in first):
            parents, table = tuple(first), said[1]
    return ConditionalTable(name, parents, table, [states.get(n) for n in (*parents, name)])
