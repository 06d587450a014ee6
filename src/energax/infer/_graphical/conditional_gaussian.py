"""Exact inference in networks of finite and linear-Gaussian variables."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.labelled import Labelled
from ...algorithms.gaussian import conditional
from ...algorithms.junction.tree import JunctionTree
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import mask_of, value_of
from ...parameters import cache_on
from ...samplers import Draws
from .._map_rows import map_rows
from .._method import Cost, Method, Minimum
from .._posterior import Posterior
from .._query import Query
from .message_passing import MessagePassing


class ConditionalGaussian(Method):
    """Exact inference with linear-Gaussian variables: one Gaussian for each value of their finite parents.

    Given the finite parents d, the real variables are jointly Gaussian. The density of the observed ones,
    N(observed | d), is one more table of the finite network, which is solved by message passing; then
    p(real | observed) = Σ_d p(d | observed) N(real | observed, d). Real variables that are independent
    given the observed ones have separate tables, so that only dependent ones multiply in cost.

    Lauritzen (1992), Propagation of probabilities, means, and variances in mixed graphical association
    models; Shachter and Kenley (1989), Gaussian influence diagrams.

    >>> from energax import posterior
    >>> from energax.energies import BayesianNetwork, LinearGaussian
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
    priority = 0

    @property
    def label(self):
        return "conditional Gaussian"

    def unsupported_reason(self, task, query):
        if not query.energy.knows("conditional_gaussian"):
            name = type(query.energy).__name__
            return f"needs tables and linear-Gaussian nodes, and {name} provides none"
        return None

    def why(self, task, query):
        return "given their finite parents the real variables are Gaussian, and the rest is a junction tree"

    def cost(self, task, query):
        tree, entries = _size(query)
        itemsize = jnp.zeros(()).dtype.itemsize
        n_bytes = 3 * entries * itemsize + (0 if tree is None else tree.bytes)
        return Cost(n_bytes=n_bytes, operations=2 * entries + (0 if tree is None else tree.operations))

    def log_partition(self, query, key):
        return Estimate(np.asarray(query.energy.log_partition()), kind="exact", method=self.label)

    def log_prob(self, query, key):
        return Estimate(_map_rows(_log_evidence, query), kind="exact", method=self.label)

    def posterior(self, query, key):
        _size(query)  # raises now, not at the first property, if the model is too large
        _check_possible(query)
        return ConditionalGaussianPosterior(query, key)

    def argmin(self, query, key):
        _check_possible(query)
        values, log_p = _map_rows(_maximise, query)
        return Minimum(query.unbatch(values), energy=query.unbatch(-log_p), method=self.label)

    def sample(self, query, n, key):
        _check_possible(query)
        return ConditionalGaussianPosterior(query)._draw(n, key)


class ConditionalGaussianPosterior(Posterior):
    """p(hidden | given): `marginals` of finite variables, `mean`, `variance` and `std` of real ones.

    Given variables are included, with probability one or variance zero.
    """

    method = "conditional Gaussian"
    kind = "exact"

    def _moments(self) -> dict[str, Any]:
        return self._cached("moments", lambda: _map_rows(_posterior_moments, self._query))

    @property
    def variance(self) -> dict[str, np.ndarray]:
        """Var[variable | given] of the real variables by name, over all values of their finite parents."""
        return self._query.unbatch(self._moments()["variance"])

    @property
    def std(self) -> dict[str, np.ndarray]:
        """The square root of `variance`."""
        return {name: np.sqrt(value) for name, value in self.variance.items()}

    def _compute_marginals(self):
        found, given = self._moments()["marginals"], self._query.given
        marginals = {}
        for name, space in self._query.spaces.items():
            if space.is_finite:
                p = found[name] if name in found else np.eye(space.n_values)[given[name]]
                marginals[name] = Labelled.of(p, space.labels)
        return marginals

    def _compute_mean(self):
        return self._moments()["mean"]

    def _compute_mode(self):
        return _map_rows(_maximise, self._query)[0]

    def _compute_joint(self, names):
        return _map_rows(_joint, self._query, names)

    def _draw(self, n, key):
        found = _map_rows(_draw, self._query, n, key=key)
        values = {k: np.swapaxes(v, 0, 1)[None] if self._query.batched else v for k, v in found.items()}
        return Draws(values, method=self.method, exact=True)

    def _compute_log_evidence(self):
        if not self._query.given:
            return Estimate(0.0, method=self.method)
        value = self._moments()["log_evidence"]
        return Estimate(self._query.unbatch(value), kind="exact", method=self.method)


def _model(query: Query) -> conditional.ConditionalGaussianModel:
    """The tables and equations of the energy, built once per energy."""
    return cache_on(query.energy, "conditional Gaussian", lambda energy: energy.conditional_gaussian())


def _size(query: Query) -> tuple[JunctionTree | None, int]:
    """The junction tree of the finite variables, None if none is hidden, and the entries of the Gaussians."""
    model = _model(query)
    cards, scopes, entries = model.shapes_given(model.observed_names(query.given))
    return (JunctionTree.build(cards, scopes) if cards else None), entries


def _map_rows(function: Any, query: Query, *arguments: Any, key: Any = None) -> Any:
    tree, entries = _size(query)
    numbers = max(1, 3 * entries + (0 if tree is None else tree.bytes // 8))
    model, rows, n = _model(query), query.given, query.n
    return map_rows(function, rows, n, model, *arguments, key=key, numbers_per_row=numbers)


def _check_possible(query: Query) -> None:
    """Raise if evidence has probability zero: finite values that conflict, or another value of a constant."""
    model = _model(query)
    energy: Any = query.energy
    given = query.given if query.batched else jax.tree.map(lambda a: a[0], query.given)
    for name, constant in model.constants.items():
        if name in given:
            value, constant = np.asarray(value_of(given[name]), np.float32), np.float32(constant)
            differs = np.asarray(mask_of(given[name])) & (value != constant)
            if differs.any():
                found = f"evidence of probability zero: {name} = {value[differs].ravel()[0]:g}"
                raise BadInput("given", found, f"{constant:g}, to which it was set")
    finite = {k: v for k, v in given.items() if k in model.tables.names}
    has_zeros = any(np.isneginf(np.asarray(log)).any() for log in model.tables.logs)
    if finite and has_zeros and np.isneginf(_map_rows(_log_evidence, query)).any():
        MessagePassing().argmin(Query(energy.finite_part(), finite), None)  # names the values that conflict


# -- functions of one row, compiled once per shape and set of given names ----------------------------


def _log_evidence(row, key, model):
    return conditional.log_evidence(model, row)


def _posterior_moments(row, key, model):
    return conditional.posterior_moments(model, row)


def _maximise(row, key, model):
    return conditional.maximise(model, row)


def _joint(row, key, model, names):
    return conditional.joint(model, row, names)


def _draw(row, key, model, n):
    return conditional.draw(model, row, key, n)
