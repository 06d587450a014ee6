"""Networks of finite and of linear-Gaussian variables: exact answers, a Gaussian for each joint choice."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.gaussian.conditional import Mixed, best, log_evidence, read, targets
from ...algorithms.junction.tree import JunctionTree
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import known, mask_of
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Posterior
from .._query import Query, map_rows
from .message_passing import MessagePassing


class ConditionalGaussian(Method):
    """Exact inference with linear-Gaussian variables: one Gaussian for each joint choice of their parents.

    Given the finite parents d of the real variables these are jointly Gaussian: what is seen of them
    has a density N(seen | d), which is one more table of the finite network, answered by message passing;
    then p(real | seen) = Σ_d p(d | seen) N(real | seen, d). Real variables that do not touch, given what
    every row knows, have tables of their own, so that only those that do count together.

    Lauritzen (1992), Propagation of probabilities, means, and variances in mixed graphical association
    models; Shachter and Kenley (1989), Gaussian influence diagrams.

    >>> from energax import posterior
    >>> from energax.energies._graphical.bayesian_network import BayesianNetwork
    >>> from energax.energies._graphical.linear_gaussian import LinearGaussian
    >>> net = BayesianNetwork({
    ...     "adult": [0.5, 0.5],
    ...     "height": LinearGaussian("height", given=("adult",), bias=[1.2, 1.7], variance=[0.04, 0.01]),
    ... })
    >>> posterior(net, {"height": 1.6}).marginals["adult"].round(3)
    array([0.1, 0.9])
    >>> both = posterior(net)
    >>> both.mean["height"].round(3), both.std["height"].round(3)
    (np.float64(1.45), np.float64(0.296))
    """

    tasks = frozenset({"argmin", "posterior", "log_prob", "log_partition", "sample"})
    knowledge = True

    @property
    def label(self):
        return "conditional Gaussian"

    def unsupported_reason(self, task, query):
        if not hasattr(query.energy, "mixed"):
            return f"needs tables and linear-Gaussian nodes, which {type(query.energy).__name__} has not"
        return None

    def why(self, task, query):
        return (
            "given their finite parents the real variables are one Gaussian, and the rest is a junction tree"
        )

    def cost(self, task, query):
        tree, numbers = _size(query)
        item = jnp.zeros(()).dtype.itemsize
        n_bytes = 3 * numbers * item + (0 if tree is None else tree.bytes)
        return Cost(n_bytes=n_bytes, operations=2 * numbers + (0 if tree is None else tree.operations))

    def log_partition(self, query, key):
        return Estimate(np.asarray(query.energy.log_partition()), kind="exact", method=self.label)

    def log_prob(self, query, key):
        return Estimate(_each(_evidence, query), kind="exact", method=self.label)

    def posterior(self, query, key):
        _size(query)  # what will not fit is said now, not when the answer is looked at
        _check_possible(query)
        return MixedPosterior(query, key)

    def argmin(self, query, key):
        _check_possible(query)
        values, energy = _each(_most_probable, query)
        return Minimum(query.answer(values), energy=query.answer(energy), method=self.label)

    def sample(self, query, n, key):
        _check_possible(query)
        return MixedPosterior(query)._sample(n, key)


class MixedPosterior(Posterior):
    """p(hidden | given): `marginals` of finite variables, `mean`, `variance` and `std` of real ones.

    What was given is among them, as a certainty.
    """

    method = "conditional Gaussian"
    kind = "exact"

    @property
    def variance(self) -> dict[str, np.ndarray]:
        """Var[variable | given] by name, of the real variables: within and between the choices."""
        return self._query.answer(self._once("answers", self._answers)["variance"])

    @property
    def std(self) -> dict[str, np.ndarray]:
        """The square root of `variance`."""
        return {name: np.sqrt(value) for name, value in self.variance.items()}

    def _answers(self):
        return _each(_answers, self._query)

    def _marginals(self):
        found, given = self._once("answers", self._answers)["marginals"], self._query.given
        out = {}
        for name, space in self._query.spaces.items():
            if space.is_finite:  # what is given is certain
                sure = np.eye(space.n_values)[given[name]] if name not in found else found[name]
                out[name] = Labelled.of(sure, space.labels)
        return out

    def _mean(self):
        return self._once("answers", self._answers)["mean"]

    def _mode(self):
        return _each(_most_probable, self._query)[0]

    def _joint(self, names):
        return _each(_joint, self._query, names)

    def _sample(self, n, key):
        drawn = _each(_draw, self._query, n, key=key)
        values = {k: np.swapaxes(v, 0, 1)[None] if self._query.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)

    def _log_evidence(self):
        if not self._query.given:
            return Estimate(0.0, method=self.method)
        value = self._once("answers", self._answers)["log evidence"]
        return Estimate(self._query.answer(value), kind="exact", method=self.method)


def _mixed(query: Query) -> Mixed:
    energy: Any = query.energy
    return energy.mixed()


def _size(query: Query) -> tuple[JunctionTree | None, int]:
    mixed = _mixed(query)
    cards, scopes, numbers = mixed.shapes_given(mixed.known_names(query.given))
    return (JunctionTree.build(cards, scopes) if cards else None), numbers


def _each(function: Any, query: Query, *arguments: Any, key: Any = None) -> Any:
    tree, numbers = _size(query)
    entries = 3 * numbers + (0 if tree is None else tree.bytes // 8)
    rows, n = query.given, query.n
    return map_rows(function, rows, n, query.energy, *arguments, key=key, numbers_per_row=max(1, entries))


def _check_possible(query: Query) -> None:
    """No real value is impossible, but choices may be, and another value of what was set."""
    mixed = _mixed(query)
    energy: Any = query.energy
    one = query.given if query.many else jax.tree.map(lambda a: a[0], query.given)
    for name, value in mixed.constants.items():
        if name in one:
            seen, value = np.asarray(known(one[name]), np.float32), np.float32(value)
            wrong = np.asarray(mask_of(one[name])) & (seen != value)
            if wrong.any():
                found = f"evidence of probability zero: {name} = {seen[wrong].ravel()[0]:g}"
                raise BadInput("given", found, f"{value:g}, to which it was set")
    chosen = {k: v for k, v in one.items() if k in mixed.tables.names}
    doubtful = any(np.isneginf(np.asarray(log)).any() for log in mixed.tables.logs)
    if chosen and doubtful and np.isneginf(_each(_evidence, query)).any():
        MessagePassing().argmin(Query(energy.finite_part(), chosen), None)  # says which entries conflict


# -- functions of one row, compiled once a shape and a set of given names ---------------------------


def _evidence(row, key, energy):
    return log_evidence(energy.mixed(), row)


def _answers(row, key, energy):
    mixed = energy.mixed()
    answer = read(mixed, row)
    means, variances = {}, {}
    for block, share in zip(answer.blocks, answer.shares, strict=True):
        inside, spread = block.expected(), jnp.diagonal(block.covariance(), axis1=1, axis2=2)
        mean = share @ inside
        variance = share @ (jnp.maximum(spread, 0) + (inside - mean) ** 2)
        for k, name in enumerate(block.names):
            means[name], variances[name] = mean[k], variance[k]
    for name, value in mixed.constants.items():
        means[name], variances[name] = value, jnp.zeros_like(value)
    found = {"marginals": answer.marginals, "log evidence": answer.log_evidence}
    return {**found, "mean": means, "variance": variances}


def _most_probable(row, key, energy):
    mixed = energy.mixed()
    states, blocks, value = best(mixed, row)
    found = {**states, **mixed.constants}
    for block in blocks:
        at = block.expected()[block.index(states)]
        found.update({name: at[k] for k, name in enumerate(block.names)})
    return targets(found, row), -value


def _joint(row, key, energy, names):
    mixed = energy.mixed()
    rest, evidence = _posed(mixed, row, mixed.blocks(row))
    tree = JunctionTree.build(rest.cards, rest.scopes)
    return jnp.exp(tree.joint(tuple(rest.names.index(n) for n in names), rest.logs, evidence))
