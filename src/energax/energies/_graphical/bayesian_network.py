"""Bayesian networks: tables and linear-Gaussian nodes, each of a variable given its parents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import check_each, instance
from ...algorithms.factors.model import find_cycle
from ...algorithms.factors.tables import Tables
from ...algorithms.gaussian.conditional import ConditionalGaussianModel, draw, log_evidence
from ...algorithms.gaussian.linear_system import LinearSystem
from ...errors import BadInput, Unsuitable, check_number
from ...graph import Structure, TableModel
from ...parameters import with_energy_precision
from ...spaces import fixed
from .conditional_table import ConditionalTable
from .factor_graph import Network, read_states_by_name, to_table_model
from .from_data import as_graph, count_states, learn_network
from .linear_gaussian import Constant, LinearGaussian
from .statistics import expected_statistics, reference_means

if TYPE_CHECKING:
    import networkx as nx


class BayesianNetwork(Network):
    """p(x) = Π_v p(x_v | x_parents(v)), with log Z = 0.

    Build it from tables (`{"wet": (("rain",), table)}`, or `{"rain": table}` without parents), from a
    directed graph (`from_graph`) or from a file (`energax.data.read_bif`). `EM` learns it in one step from
    complete data, and from expected counts if entries are missing.

    A node may be a `LinearGaussian` instead of a table: a real variable with finite and real parents.
    Tables have finite parents only. Inference is exact either way (`ConditionalGaussian`).

    Args:
        tables: by variable, p(v | parents) with the variable on the last axis, or a `LinearGaussian`.
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
    >>> posterior(net.do(wet="yes")).marginals["rain"]["yes"].round(3)          # "wet" does not cause "rain"
    np.float64(0.2)
    """

    is_normalised = True

    nodes: tuple[Any, ...]  # ConditionalTable, LinearGaussian or Constant
    prior: Any = fixed(default=0.0)

    def __init__(self, tables: Any, states: Mapping[str, Iterable[str]] | None = None, *, prior: float = 0.0):
        states = read_states_by_name(states)
        if isinstance(tables, Mapping):
            tables = [_as_node(name, value, states) for name, value in tables.items()]
        if not eqx.is_array(prior):  # an array may be traced
            check_number("prior", prior)
        node = instance((ConditionalTable, LinearGaussian, Constant), "a table or a LinearGaussian")
        self.nodes, self.prior = (
            check_each("tables", tables, node, "tables by name, or a list of them"),
            prior,
        )
        self._check()

    def _check(self) -> None:
        names = [node.child for node in self.nodes]
        if not names or len(set(names)) != len(names):
            raise BadInput("tables", f"the variables {names}", "one table per variable")
        real = {node.child for node in self.nodes if not isinstance(node, ConditionalTable)}
        for node in self.nodes:
            unknown = [p for p in node.names[:-1] if p not in names]
            if unknown:
                raise BadInput(f"the parents of {node.child}", f"{unknown}", f"some of {names}")
            _check_parents(node, real)
        self._check_shapes()
        cycle = find_cycle([tuple(names.index(p) for p in node.names[:-1]) for node in self.nodes])
        if cycle:
            path = " → ".join(names[v] for v in [*cycle, cycle[0]])
            raise BadInput("tables", f"the cycle {path}", "a directed graph without cycles")
        _ = self.spaces  # raises if two nodes disagree on a variable

    def _check_shapes(self) -> None:
        """Raise if a table has another number of states of a parent than the parent's own table."""
        own = {node.child: node.table.shape[-1] for node in self.nodes if isinstance(node, ConditionalTable)}
        for node in self.nodes:
            if not isinstance(node, ConditionalTable):
                continue
            for axis, parent in enumerate(node.names[:-1]):
                n, expected = node.table.shape[axis], own.get(parent)
                if expected is not None and n != expected:
                    found = f"{n} states of the parent {parent} on axis {axis}"
                    raise BadInput(f"the table of {node.child}", found, f"{expected}, as its own table has")

    @classmethod
    def from_graph(
        cls, graph: nx.DiGraph, cards: Any = 2, states: Mapping[str, Iterable[str]] | None = None
    ) -> BayesianNetwork:
        """Uniform tables on a directed graph, or on the `Structure` that `hill_climb` returns.

        `cards` is the number of states, for all or by name; or data, a frame whose columns are the variables.
        """
        graph = as_graph(graph)
        count, named = count_states(graph, cards, states)
        nodes = []
        for v in graph:
            parents = list(graph.predecessors(v))
            shape = [count[u] for u in (*parents, v)]
            labels = [named.get(str(u)) for u in (*parents, v)]
            nodes.append(ConditionalTable(v, parents, np.full(shape, 1 / shape[-1], np.float32), labels))
        return cls(nodes)

    @classmethod
    def from_data(
        cls,
        data: Any,
        graph: nx.DiGraph | Structure | None = None,
        *,
        score: str = "bic",
        prior: float = 1.0,
        weights: Any = None,
    ) -> BayesianNetwork:
        """Learn a network from data: the graph by `hill_climb` if none is given, and the tables.

        Args:
            data: a data frame or a mapping of columns by name, of states as names or as numbers 0, 1, …
                Missing entries need a graph; the tables are then learned by EM.
            graph: the graph of the variables.
            score: the score of `hill_climb`.
            prior: pseudo-counts of every entry of a table.
            weights: the weights of the rows, (n,).

        >>> import pandas as pd
        >>> rain = ["no", "no", "yes", "yes"] * 50
        >>> wet = ["no", "no", "yes", "yes"] * 45 + ["no", "yes"] * 10
        >>> net = BayesianNetwork.from_data(pd.DataFrame({"rain": rain, "wet": wet}))
        >>> net.graph().size(), net["wet"].table.shape
        (1, (2, 2))
        """
        return learn_network(cls, data, graph, score, prior, weights)

    @classmethod
    def from_tables(cls, model: TableModel) -> BayesianNetwork:
        """The network of a `TableModel`, such as the content of a file."""
        if model.kind != "bayes":
            raise BadInput("model", "an undirected model", "p(child | parents) tables", "Use MarkovField.")
        nodes = []
        for child, (scope, table) in enumerate(zip(model.scopes, model.tables, strict=True)):
            parents = [model.names[v] for v in scope[:-1]]
            labels = [model.states[v] for v in scope]
            nodes.append(ConditionalTable(model.names[child], parents, table, labels))
        return cls(nodes)

    def to_tables(self) -> TableModel:
        """The network as a `TableModel`, for files."""
        return to_table_model("bayes", self)

    @property
    def parts(self):
        return self.nodes

    @property
    def spaces(self):
        spaces = super().spaces
        return {node.child: spaces[node.child] for node in self.nodes}

    @property
    def has_real_nodes(self) -> bool:
        """Whether any variable is real."""
        return not all(isinstance(node, ConditionalTable) for node in self.nodes)

    def finite_part(self) -> BayesianNetwork | None:
        """The network of the finite variables, none of which has a real parent; None if there are none."""
        tables = [node for node in self.nodes if isinstance(node, ConditionalTable)]
        return BayesianNetwork(tables, prior=self.prior) if tables else None

    def tables(self) -> Tables:
        if self.has_real_nodes:
            real = [node.child for node in self.nodes if not isinstance(node, ConditionalTable)]
            raise Unsuitable(
                f"Tables are over finite variables, but {', '.join(real)} are real. "
                "Use ConditionalGaussian(), or the network of the finite variables: net.finite_part()."
            )
        return super().tables()

    def conditional_gaussian(self) -> ConditionalGaussianModel:
        """The tables and the linear-Gaussian equations, in topological order."""
        finite = self.finite_part()
        nodes = [n for n in map(self.__getitem__, self.topological_order()) if isinstance(n, LinearGaussian)]
        system = LinearSystem(
            tuple(node.child for node in nodes),
            tuple(node.parents for node in nodes),
            tuple(node.finite_parents for node in nodes),
            *(tuple(getattr(node, field) for node in nodes) for field in ("weights", "bias", "variance")),
        )
        tables = Tables((), (), (), ()) if finite is None else finite.tables()
        constants = {n.child: n.value for n in self.nodes if isinstance(n, Constant)}
        return ConditionalGaussianModel(tables, system, constants)

    def inference(self, task):
        return "ConditionalGaussian" if self.has_real_nodes else super().inference(task)

    @with_energy_precision
    def free_energy(self, **given):
        if self.has_real_nodes:
            return -log_evidence(self.conditional_gaussian(), given)
        return super().free_energy(**given)

    def __getitem__(self, name: str) -> Any:
        """The node p(name | parents)."""
        found = [node for node in self.nodes if node.child == name]
        if not found:
            raise BadInput("name", repr(name), f"one of {[n.child for n in self.nodes]}")
        return found[0]

    def graph(self) -> nx.DiGraph:
        """The directed graph with edges from parents to children."""
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
        """One draw of the other variables; without given ones an ancestral draw."""
        if given and self.has_real_nodes:
            return {
                name: value[0] for name, value in draw(self.conditional_gaussian(), given, key, 1).items()
            }
        if given:
            return super().draw(key, **given)
        return self.ancestral_draw(key, {})[0]

    @with_energy_precision
    def ancestral_draw(self, key: Any, given: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """One draw from parents to children with some variables fixed, and Σ log p(given | parents)."""
        values: dict[str, Any] = {}
        log_weight: Any = 0.0
        nodes = {node.child: node for node in self.nodes}
        for name, sub in zip(self.topological_order(), jax.random.split(key, len(nodes)), strict=True):
            node = nodes[name]
            if name in given:
                values[name] = given[name]
                log_weight = log_weight - node(**{k: values[k] for k in node.names})
            else:
                values[name] = node.draw_child(sub, values)
        return {name: values[name] for name in nodes}, log_weight

    def topological_order(self) -> list[str]:
        """The names of the variables, parents before children."""
        import networkx as nx

        return list(nx.topological_sort(self.graph()))

    # -- interventions -----------------------------------------------------------------------------

    @with_energy_precision
    def do(self, **values: Any) -> BayesianNetwork:
        """The network after an intervention: these variables are set, independently of their parents.

        A finite variable gets a table with probability one for its state, a real one becomes a `Constant`.
        """
        spaces, nodes = self.spaces, []
        for name in values:
            if name not in spaces:
                raise BadInput("do", repr(name), f"some of {list(spaces)}")
        for node in self.nodes:
            if node.child in values and not isinstance(node, ConditionalTable):
                value = spaces[node.child].check(values[node.child], node.child, missing=False)
                if np.ndim(value):
                    raise BadInput(node.child, f"shape {np.shape(value)}", "one number")
                dtype = jax.tree.leaves(node)[0].dtype
                node = Constant(node.child, np.asarray(value, dtype))
            elif node.child in values:
                state = spaces[node.child].check(values[node.child], node.child, missing=False)
                if np.ndim(state):
                    raise BadInput(node.child, f"shape {np.shape(state)}", "one state")
                at = int(state)
                point = jnp.zeros_like(node.table, shape=(node.table.shape[-1],)).at[at].set(1)
                node = ConditionalTable(node.child, (), point, (node.states[-1],))
            nodes.append(node)
        return BayesianNetwork(nodes, prior=self.prior)

    def effect(self, effect: str, *, by: Iterable[str] | str | None = None, **cause: Any) -> Any:
        """p(effect | do(cause = value)) from observational probabilities alone; see `adjustment.py`."""
        from .adjustment import adjusted_effect

        real = [n for n in (effect, *cause) if n in self.spaces and not self.spaces[n].is_finite]
        if real:
            raise Unsuitable(f"Adjustment needs finite variables, but {', '.join(real)} are real. Use do().")
        return adjusted_effect(self, effect, cause, by)

    # -- learning ------------------------------------------------------------------------------------

    def expectations(self, data, temperature):
        """The expected statistics of each node for every row, and log p(observed entries)."""
        return expected_statistics(self, data, temperature)

    def statistics(self, data, posterior):
        """Counts of the entries of each table; of a real node, sums of products (`least_squares`)."""
        return tuple(p.sum(0) for p in posterior)

    def maximise(self, statistics, trainable=None):
        means, nodes = reference_means(self), []
        for i, (node, sums) in enumerate(zip(self.nodes, statistics, strict=True)):
            free = None if trainable is None else trainable.nodes[i]
            if isinstance(node, LinearGaussian):
                node = node.least_squares(sums, means, free)
            elif isinstance(node, ConditionalTable) and (free is None or free.table):
                node = self._maximise_table(node, sums)
            nodes.append(node)
        return BayesianNetwork(nodes, prior=self.prior)

    def _maximise_table(self, node: ConditionalTable, counts: Any) -> ConditionalTable:
        counts = counts + self.prior
        total = counts.sum(-1, keepdims=True)
        # A row whose parent values never occur keeps its probabilities.
        table = jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), node.table)
        return node.with_table(table.astype(node.table.dtype))

    def recenter(self, statistics, reference):
        """Sums of products about the means of `reference`, converted to sums about these means."""
        old, new = reference_means(reference), reference_means(self)
        each = zip(self.nodes, statistics, strict=True)
        return tuple(n.recenter(s, old, new) if isinstance(n, LinearGaussian) else s for n, s in each)

    @with_energy_precision
    def initialise(self, key, data, weight):
        """The network with random parameters: rows of tables uniform on the simplex, random real nodes."""
        nodes = []
        for node, sub in zip(self.nodes, jax.random.split(key, len(self.nodes)), strict=True):
            if isinstance(node, LinearGaussian):
                node = node.random_start(sub, data, weight)
            elif isinstance(node, ConditionalTable):
                rows = jax.random.exponential(sub, node.table.shape, node.table.dtype)
                node = node.with_table(rows / rows.sum(-1, keepdims=True))
            nodes.append(node)
        return BayesianNetwork(nodes, prior=self.prior)


def _check_parents(node: Any, real: set[str]) -> None:
    """Raise for real parents of a finite variable, and for parents in the wrong argument of a real one."""
    argument = f"the parents of {node.child}"
    if isinstance(node, ConditionalTable):
        wrong = [p for p in node.parents if p in real]
        if wrong:
            remedy = "Turn the arrow around: a real variable may have finite parents."
            raise BadInput(argument, f"{wrong}, which are real", "finite variables", remedy)
    elif isinstance(node, LinearGaussian):
        finite, wrong = [p for p in node.parents if p not in real], sorted(real & set(node.finite_parents))
        if finite:
            raise BadInput(argument, f"{finite}, which are finite", "real ones", "Name them in given=.")
        if wrong:
            raise BadInput(
                argument, f"given={wrong}, which are real", "finite ones", "Name them in parents=."
            )
    elif not isinstance(node, Constant):
        raise BadInput("tables", type(node).__name__, "tables and LinearGaussian nodes")


def _as_node(name: str, value: Any, states: Mapping[str, Any]) -> Any:
    """The node of a variable, from a table, (parents, table) or a node."""
    if isinstance(value, (LinearGaussian, Constant, ConditionalTable)):
        if value.child != name:
            raise BadInput(f"the node of {name}", f"one of {value.child!r}", f"one whose child is {name!r}")
        return value
    parents: tuple[str, ...] = ()
    table = value
    if isinstance(value, tuple) and len(value) == 2:
        first = (value[0],) if isinstance(value[0], str) else value[0]
        if not np.isscalar(first) and all(isinstance(p, str) for p in first):
            parents, table = tuple(first), value[1]
    return ConditionalTable(name, parents, table, [states.get(n) for n in (*parents, name)])
