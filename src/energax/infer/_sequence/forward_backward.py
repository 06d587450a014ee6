"""Exact inference in hidden Markov chains: the forward-backward and the Viterbi algorithm."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.keys import split_key
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked, value_of
from ...samplers import Draws
from .._map_rows import map_batches, map_rows
from .._method import Cost, Method, Minimum
from .._monte_carlo.finite_first import draw_by_value
from .._posterior import Posterior, check_single_variable
from .._query import Query
from . import hmm_queries as queries


class ForwardBackward(Method):
    """Exact inference in a hidden Markov chain, with time and memory linear in its length.

    For energies that implement `protocols.HiddenMarkov`, such as `HiddenChain`. The observations, complete
    or in part, or the states are given. The recursion (scaled, in logarithms or parallel) is chosen by size
    and device.

    Rabiner (1989), A tutorial on hidden Markov models.

    >>> from energax.energies._sequence.hmm import HiddenChain
    >>> from energax.energies._emissions.categorical import Categoricals
    >>> from energax.infer import posterior
    >>> chain = HiddenChain([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Categoricals([[0.9, 0.1], [0.2, 0.8]]), 2)
    >>> posterior(chain, {"x": [0, 0]}).marginals["z"].round(3)
    array([[0.883, 0.117],
           [0.883, 0.117]], dtype=float32)
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "sample"})
    priority = 0

    @property
    def label(self):
        return "forward-backward"

    def unsupported_reason(self, task, query):
        energy = query.energy
        if not (energy.knows("logs") and energy.knows("log_likelihoods")):
            return f"is for hidden Markov chains, and {type(energy).__name__} is none"
        x, z = energy.observed_name, energy.state_name
        if task == "log_prob":
            if not energy.knows("log_partition"):
                return f"needs an emission that is normalised in {x} for every {z}"
            return None if query.given else f"needs {x} or {z}"
        if task == "sample" and not query.given and _draws_by_state(energy):
            return None
        if x not in query.given:
            return f"needs {x}, complete or in part; the chain itself draws it"
        if task == "argmin" and x in query.partially_observed:
            return f"finds the best states, not the missing coordinates of {x}"
        if z not in query.targets:
            return "finds states, and all of them are given"
        return None

    def why(self, task, query):
        return "messages along the chain sum over all paths"

    def cost(self, task, query):
        item = query.energy.transition.dtype.itemsize
        return Cost(n_bytes=query.n * _numbers_per_row(query) * item)

    def log_prob(self, query, key):
        value = _map_query(queries.log_evidence, query)
        return Estimate(value, kind="exact", method=self.label)

    def argmin(self, query, key):
        check_possible(query)
        paths, log_p = _map_query(queries.decode, query)
        return Minimum(
            query.unbatch(_as_states(query, paths)), energy=query.unbatch(-log_p), method=self.label
        )

    def posterior(self, query, key):
        check_possible(query)
        return ChainPosterior(query, key)

    def kind(self, task, query):
        return "exact" if query.given or task != "sample" else "estimate"

    def sample(self, query, n, key):
        if not query.given:
            return self._draw_by_state(query, n, key)
        check_possible(query)
        return ChainPosterior(query)._draw(n, key)

    def _draw_by_state(self, query: Query, n: int, key: Any) -> Draws:
        """Draw paths of states from the chain, then each observation by Markov chains given its state."""
        energy: Any = query.energy
        path_key, chain_key = split_key(key, 2)
        paths = map_rows(_draw_states, {}, n, energy, key=path_key)
        states = {"z": np.arange(energy.n_states, dtype=paths.dtype)}
        drawn, chains = draw_by_value(energy.emission, states, paths.reshape(-1), chain_key)
        x = drawn["x"].reshape(*paths.shape, *drawn["x"].shape[1:])
        values = {energy.observed_name: x[None], energy.state_name: paths[None]}
        return Draws(values, method=self.label, chains_checked=chains)


class ChainPosterior(Posterior):
    """p(z | x) of a hidden Markov chain: `marginals` of the states (steps, k), `pairs`, `mode`, draws."""

    method = "forward-backward"
    kind = "exact"

    @property
    def _chain(self) -> Any:
        return self._query.energy

    def _compute_marginals(self):
        return {self._chain.state_name: _map_query(queries.smooth, self._query)[1]}

    @property
    def pairs(self) -> np.ndarray:
        """p(z_t, z_{t+1} | given), (steps − 1, k, k), with a leading axis for rows."""
        compute = lambda: _map_query(queries.pair_posteriors, self._query)
        return self._query.unbatch(self._cached("pairs", compute))

    def _compute_mean(self):
        chain = self._chain
        if chain.observed_name not in self._query.partially_observed or not chain.knows("impute_given"):
            return {}
        return _map_query(queries.impute, self._query)

    def _compute_mode(self):
        return _as_states(self._query, _map_query(queries.decode, self._query)[0])

    def _compute_joint(self, names):
        q, z = self._query, self._chain.state_name
        check_single_variable(names, z)
        return map_rows(_all_paths, q.given, q.n, q.energy, q.spaces[z].n_values)

    def _draw(self, n, key):
        q = self._query
        draws = map_rows(
            _draw_row, q.given, q.n, q.energy, n, key=key, numbers_per_row=n * _numbers_per_row(q)
        )
        values = {k: np.swapaxes(v, 0, 1)[None] if q.batched else v for k, v in draws.items()}
        return Draws(values, method=self.method, exact=True)

    def _compute_log_evidence(self):
        estimate = ForwardBackward().log_prob(self._query, None)
        return estimate if self._query.batched else estimate[0]


def _draws_by_state(energy: Any) -> bool:
    """Whether the states can be drawn first, and the emission has no draws of its own."""
    emission = getattr(energy, "emission", None)
    can_draw = energy.knows("draw_states") and getattr(energy, "length", None) is not None
    return can_draw and emission is not None and emission.normalised and not emission.knows("draw")


def check_possible(query: Query) -> None:
    """Raise if a sequence has probability zero, naming the first step that no reachable state explains."""
    impossible = np.isneginf(_map_query(queries.log_evidence, query))
    if not impossible.any():
        return
    row = int(np.argmax(impossible))
    one = jax.tree.map(lambda a: a[row : row + 1], query.given)
    possible = np.asarray(map_batches(queries.possible_steps, one, 1, query.energy))[0]
    step = int(np.argmin(possible)) if not possible.all() else len(possible) - 1
    where = f" in row {row}" if query.batched else ""
    raise BadInput(
        "given",
        f"a sequence of probability zero{where}: no reachable state explains step {step}",
        "observations that can occur together",
    )


def _numbers_per_row(query: Query) -> int:
    chain: Any = query.energy
    given = next(iter(query.given.values()), None)
    steps = chain.length if given is None else np.shape(value_of(given))[1]
    return 4 * int(steps) * chain.n_states


def _map_query(function: Any, query: Query) -> Any:
    return map_batches(function, query.given, query.n, query.energy, numbers_per_row=_numbers_per_row(query))


def _as_states(query: Query, paths: np.ndarray) -> dict[str, np.ndarray]:
    """Paths by name, in the dtype of the states' space."""
    name = query.energy.state_name  # type: ignore[attr-defined]
    return {name: paths.astype(query.spaces[name].jax_dtype)}


# -- functions of one row -----------------------------------------------------------------------


def _draw_states(row, key, energy):
    return energy.draw_states(key)


def _draw_row(row, key, energy, n):
    keys = jax.random.split(key, n)
    return jax.vmap(lambda key: energy.draw(key, **row))(keys)


def _all_paths(row, key, energy, n_values):
    """The probabilities of all k^steps paths, in the order of the states' space."""
    given = {k: v for k, v in row.items() if k == energy.observed_name or is_masked(v)}
    paths = energy.conditional(energy.state_name, **given)
    steps, k = paths.log_likelihood.shape
    digits = jnp.arange(n_values)[:, None] // jnp.array([k ** (steps - 1 - t) for t in range(steps)]) % k
    return jnp.exp(jax.vmap(paths.log_prob)(digits))
