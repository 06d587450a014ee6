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
from .._posterior import Posterior, only_one
from .._query import Question, map_batches, map_rows


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

    def unsuitable(self, task, question):
        energy = question.energy
        if not (hasattr(energy, "logs") and hasattr(energy, "log_likelihoods")):
            return f"is for hidden Markov chains, and {type(energy).__name__} is none"
        if task == "log_prob":
            if not energy.knows("log_partition"):
                return "needs an emission that is normalised in x for every z"
            return None if question.given else "needs x or z"
        if "x" not in question.given:
            return "needs x, whole or in part; it is drawn by the chain itself"
        if task == "argmin" and "x" in question.partly:
            return "finds the best states, not the missing coordinates of x"
        if "z" not in question.sought:
            return "finds states, and all of them are given"
        return None

    def why(self, task, question):
        return "messages along the chain sum over all paths"

    def cost(self, task, question):
        k = question.energy.n_states
        steps = np.shape(known(next(iter(question.given.values()))))[1]
        item = question.energy.transition.dtype.itemsize
        return Cost(n_bytes=4 * question.n * steps * k * item)

    def log_prob(self, question, key):
        value = _each(_evidence, question)
        return Estimate(value, kind="exact", method=self.label)

    def argmin(self, question, key):
        refuse_impossible(question)
        values, energy = _each(_best, question)
        return Minimum(question.answer(values), energy=question.answer(energy), method=self.label)

    def posterior(self, question, key):
        refuse_impossible(question)
        return ChainPosterior(question, key)

    def sample(self, question, n, key):
        refuse_impossible(question)
        return ChainPosterior(question)._sample(n, key)


class ChainPosterior(Posterior):
    """p(z | x) of a hidden Markov chain: `marginals["z"]` (steps, k), `pairs`, `mode`, draws."""

    method = "forward-backward"
    kind = "exact"

    def _marginals(self):
        return {"z": _each(_states, self._question)}

    @property
    def pairs(self) -> np.ndarray:
        """p(z_t, z_{t+1} | given), (steps − 1, k, k); rows first."""
        return self._question.answer(self._once("pairs", lambda: _each(_pairs, self._question)))

    def _mean(self):
        if "x" not in self._question.partly or not hasattr(self._question.energy.emission, "impute"):
            return {}
        return _each(_imputed, self._question)

    def _mode(self):
        return _each(_best, self._question)[0]

    def _joint(self, names):
        only_one(names, "z")
        q = self._question
        return map_rows(_listed, q.given, q.n, q.energy, q.spaces["z"].n_values)

    def _sample(self, n, key):
        q = self._question
        drawn = map_rows(_draws, q.given, q.n, q.energy, n, key=key, numbers_per_row=n * _width(q))
        values = {k: np.swapaxes(v, 0, 1)[None] if q.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)

    def _log_evidence(self):
        estimate = ForwardBackward().log_prob(self._question, None)
        return estimate if self._question.many else estimate[0]


def refuse_impossible(question: Question) -> None:
    """A sequence of probability zero has no states: say which, and from which step on."""
    bad = np.isneginf(_each(_evidence, question))
    if not bad.any():
        return
    row = int(np.argmax(bad))
    one = jax.tree.map(lambda a: a[row : row + 1], question.given)
    scales = np.asarray(map_batches(_filtered_sums, one, 1, question.energy))[0]
    step = int(np.argmin(scales)) if not scales.all() else len(scales) - 1
    where = f" in row {row}" if question.many else ""
    raise BadInput(
        "given",
        f"a sequence of probability zero{where}: no state that can be reached explains step {step}",
        "observations that can occur together",
    )


def _width(question: Question) -> int:
    chain: Any = question.energy
    steps = np.shape(known(question.given["x" if "x" in question.given else "z"]))[1]
    return 4 * int(steps) * chain.n_states


def _each(function: Any, question: Question) -> Any:
    rows, n = question.given, question.n
    return map_batches(function, rows, n, question.energy, numbers_per_row=_width(question))


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
