"""Message passing along a chain: forward and backward, and Viterbi, for many rows at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.chains import hmm as recursions
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked, known
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Posterior, check_single_variable
from .._query import Query, map_batches, map_rows


class ForwardBackward(Method):
    """Exact answers of a hidden Markov chain, in time and memory linear in its length.

    The energy has `logs()` (log π, log A) and `log_likelihoods(x, z)`; x is given, whole or in
    part, or z is. The scaled recursion, the one in logarithms or the parallel one is chosen by size
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
    knowledge = True

    @property
    def label(self):
        return "forward-backward"

    def unsupported_reason(self, task, query):
        energy = query.energy
        if not (hasattr(energy, "logs") and hasattr(energy, "log_likelihoods")):
            return f"is for hidden Markov chains, and {type(energy).__name__} is none"
        if task == "log_prob":
            if not energy.knows("log_partition"):
                return "needs an emission that is normalised in x for every z"
            return None if query.given else "needs x or z"
        if "x" not in query.given:
            return "needs x, whole or in part; it is drawn by the chain itself"
        if task == "argmin" and "x" in query.partially_observed:
            return "finds the best states, not the missing coordinates of x"
        if "z" not in query.targets:
            return "finds states, and all of them are given"
        return None

    def why(self, task, query):
        return "messages along the chain sum over all paths"

    def cost(self, task, query):
        k = query.energy.n_states
        steps = np.shape(known(next(iter(query.given.values()))))[1]
        item = query.energy.transition.dtype.itemsize
        return Cost(n_bytes=4 * query.n * steps * k * item)

    def log_prob(self, query, key):
        value = _each(_evidence, query)
        return Estimate(value, kind="exact", method=self.label)

    def argmin(self, query, key):
        check_possible(query)
        values, energy = _each(_best, query)
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def posterior(self, query, key):
        check_possible(query)
        return ChainPosterior(query, key)

    def sample(self, query, n, key):
        check_possible(query)
        return ChainPosterior(query)._sample(n, key)


class ChainPosterior(Posterior):
    """p(z | x) of a hidden Markov chain: `marginals["z"]` (steps, k), `pairs`, `mode`, draws."""

    method = "forward-backward"
    kind = "exact"

    def _marginals(self):
        return {"z": _each(_states, self._query)}

    @property
    def pairs(self) -> np.ndarray:
        """p(z_t, z_{t+1} | given), (steps − 1, k, k); rows first."""
        return self._query.answer(self._once("pairs", lambda: _each(_pairs, self._query)))

    def _mean(self):
        if "x" not in self._query.partially_observed or not hasattr(self._query.energy.emission, "impute"):
            return {}
        return _each(_imputed, self._query)

    def _mode(self):
        return _each(_best, self._query)[0]

    def _joint(self, names):
        check_single_variable(names, "z")
        q = self._query
        return map_rows(_listed, q.given, q.n, q.energy, q.spaces["z"].n_values)

    def _sample(self, n, key):
        q = self._query
        drawn = map_rows(_draws, q.given, q.n, q.energy, n, key=key, numbers_per_row=n * _width(q))
        values = {k: np.swapaxes(v, 0, 1)[None] if q.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)

    def _log_evidence(self):
        estimate = ForwardBackward().log_prob(self._query, None)
        return estimate if self._query.many else estimate[0]


def check_possible(query: Query) -> None:
    """A sequence of probability zero has no states: say which, and from which step on."""
    bad = np.isneginf(_each(_evidence, query))
    if not bad.any():
        return
    row = int(np.argmax(bad))
    one = jax.tree.map(lambda a: a[row : row + 1], query.given)
    scales = np.asarray(map_batches(_filtered_sums, one, 1, query.energy))[0]
    step = int(np.argmin(scales)) if not scales.all() else len(scales) - 1
    where = f" in row {row}" if query.many else ""
    raise BadInput(
        "given",
        f"a sequence of probability zero{where}: no state that can be reached explains step {step}",
        "observations that can occur together",
    )


def _width(query: Query) -> int:
    chain: Any = query.energy
    steps = np.shape(known(query.given["x" if "x" in query.given else "z"]))[1]
    return 4 * int(steps) * chain.n_states


def _each(function: Any, query: Query) -> Any:
    rows, n = query.given, query.n
    return map_batches(function, rows, n, query.energy, numbers_per_row=_width(query))


# -- functions of many rows ---------------------------------------------------------------------


def _parts(rows, energy):
    return (*energy.logs(), energy.log_likelihoods(**jax.tree.map(jnp.asarray, rows)))


def _evidence(rows, energy):
    return recursions.log_evidence(*energy.logs(), energy.seen(**jax.tree.map(jnp.asarray, rows)))


def _filtered_sums(rows, energy):
    """Whether anything was still possible at every step: 1 or 0."""
    states = recursions.filtered(*_parts(rows, energy), kind="log")[1]
    return (jnp.nan_to_num(states).sum(-1) > 0).astype(states.dtype)


def _states(rows, energy):
    return recursions.smoothed(*energy.logs(), energy.seen(**jax.tree.map(jnp.asarray, rows))).states


def _pairs(rows, energy):
    return recursions.pairwise(*_parts(rows, energy))


def _best(rows, energy):
    path, value = recursions.viterbi(*_parts(rows, energy))
    return {"z": path.astype(energy.spaces["z"].jax_dtype)}, -value


def _imputed(rows, energy):
    states = _states(rows, energy)
    x = rows["x"]
    flat = jax.tree.map(lambda a: jnp.asarray(a).reshape(-1, *a.shape[2:]), x)
    filled = energy.emission.impute({"x": flat}, states.reshape(-1, states.shape[-1]))["x"]
    return {"x": filled.reshape(x.shape)}


# -- functions of one row -----------------------------------------------------------------------


def _draws(row, key, energy, n):
    keys = jax.random.split(key, n)
    return jax.vmap(lambda key: energy.draw(key, **row))(keys)


def _listed(row, key, energy, n_values):
    given = {k: v for k, v in row.items() if k == "x" or is_masked(v)}
    paths = energy.conditional("z", **given)
    steps, k = paths.log_likelihood.shape
    digits = jnp.arange(n_values)[:, None] // jnp.array([k ** (steps - 1 - t) for t in range(steps)]) % k
    return jnp.exp(jax.vmap(paths.log_prob)(digits))
