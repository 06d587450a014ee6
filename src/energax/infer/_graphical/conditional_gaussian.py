"""Networks of finite and of linear-Gaussian variables: exact answers, a Gaussian for each joint choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.factors.tables import Tables
from ...algorithms.gaussian.linear_system import GaussianBlock, LinearSystem
from ...algorithms.junction.tree import JunctionTree
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked, known, mask_of
from ...samplers import Draws
from .._method import Cost, Method, Minimum
from .._posterior import Labelled, Posterior
from .._query import Question, map_rows
from .message_passing import MessagePassing


class Mixed(eqx.Module):
    """Tables over finite variables, linear equations with noise over real ones, and constants."""

    tables: Tables
    system: LinearSystem
    constants: dict[str, Any]

    def known_names(self, given: Mapping[str, Any]) -> frozenset[str]:
        """The variables that every row knows."""
        return frozenset({k for k, v in given.items() if not is_masked(v)} | set(self.constants))

    def blocks(self, row: Mapping[str, Any], temperature: Any = 1.0) -> tuple[GaussianBlock, ...]:
        """The Gaussians of the real variables given a row, those apart that do not touch."""
        finite = {k: v for k, v in row.items() if k in self.tables.names}
        chosen = {k: v for k, v in finite.items() if not is_masked(v)}
        values = {**{k: v for k, v in row.items() if k not in finite}, **self.constants}
        layouts = self.system.layouts(self.known_names(row))
        return tuple(self.system.block(layout, values, chosen, temperature) for layout in layouts)

    def joined(self, logs: Any, factors: Any, blocks: Any, row: Mapping[str, Any]) -> tuple[Tables, Any]:
        """The finite problem: the tables, and for each block what its real variables say of the choices."""
        tables = Tables(self.tables.names, self.tables.cards, self.tables.scopes, tuple(logs))
        rest, evidence = tables.given({k: v for k, v in row.items() if k in tables.names})
        scopes = tuple(tuple(rest.names.index(n) for n in block.over) for block in blocks)
        set_aside = tuple(self._as_set(name, value, row) for name, value in self.constants.items())
        scopes = (*rest.scopes, *scopes, *(() for _ in set_aside))
        return Tables(rest.names, rest.cards, scopes, (*rest.logs, *factors, *set_aside)), evidence

    def _as_set(self, name: str, value: Any, row: Mapping[str, Any]) -> Any:
        """0 where a row agrees with a constant, in single precision, or says nothing of it; else −∞."""
        if name not in row:
            return jnp.zeros((), value.dtype)
        same = jnp.asarray(known(row[name])).astype(jnp.float32) == value.astype(jnp.float32)
        return jnp.where(same | ~mask_of(row[name]), 0, -jnp.inf).astype(value.dtype)

    def shapes_given(self, certain: Collection[str]) -> tuple[Any, Any, int]:
        """(cards, scopes) of the finite problem and how many numbers its Gaussians hold; nothing computed."""
        cards, scopes = self.tables.shapes_given(certain)
        left = [n for n in self.tables.names if n not in certain]
        layouts = self.system.layouts(frozenset(certain) | set(self.constants))
        factors = tuple(tuple(left.index(n) for n in layout.over) for layout in layouts)
        return cards, (*scopes, *factors), sum(layout.numbers for layout in layouts)


class Read(eqx.Module):
    """What a row says: log p of it, and the probabilities of all that is finite."""

    log_evidence: Any
    entries: tuple[Any, ...]  # of every table, in its shape
    shares: tuple[Any, ...]  # p(over | row) of every block, flat
    marginals: dict[str, Any]
    blocks: tuple[GaussianBlock, ...]


def read(mixed: Mixed, row: Mapping[str, Any], temperature: Any = 1.0) -> Read:
    """Sum over the choices, integrate over the reals; at a temperature T of densities to the power 1/T."""
    blocks = mixed.blocks(row, temperature)
    logs = tuple(jnp.asarray(log) / temperature for log in mixed.tables.logs)
    factors = tuple(block.log_density for block in blocks)
    rest, evidence = mixed.joined(logs, factors, blocks, row)

    def total(logs, factors, evidence):
        return mixed.joined(logs, factors, blocks, row)[0].log_partition(evidence)

    # The gradient of log Z in the logs of a factor is the marginal of its variables.
    value, gradient = jax.value_and_grad(total, argnums=(0, 1, 2))(logs, factors, evidence)
    shares = tuple(share.reshape(-1) for share in gradient[1])
    marginals = dict(zip(rest.names, gradient[2], strict=True))
    return Read(temperature * value, gradient[0], shares, marginals, blocks)


def log_evidence(mixed: Mixed, row: Mapping[str, Any]) -> Any:
    """log p(row)."""
    rest, evidence = _posed(mixed, row, mixed.blocks(row))
    return rest.log_partition(evidence)


def best(mixed: Mixed, row: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[GaussianBlock, ...], Any]:
    """The choices at the peak of the joint density, the Gaussians, and the log of that density."""
    blocks = mixed.blocks(row)
    rest, evidence = mixed.joined(mixed.tables.logs, [b.log_peak for b in blocks], blocks, row)
    states, value = rest.maximise(evidence)
    return states, blocks, value


def _posed(mixed: Mixed, row: Mapping[str, Any], blocks: tuple[GaussianBlock, ...]) -> tuple[Tables, Any]:
    return mixed.joined(mixed.tables.logs, [b.log_density for b in blocks], blocks, row)


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

    def unsuitable(self, task, question):
        if not hasattr(question.energy, "mixed"):
            return f"needs tables and linear-Gaussian nodes, which {type(question.energy).__name__} has not"
        return None

    def why(self, task, question):
        return (
            "given their finite parents the real variables are one Gaussian, and the rest is a junction tree"
        )

    def cost(self, task, question):
        tree, numbers = _size(question)
        item = jnp.zeros(()).dtype.itemsize
        n_bytes = 3 * numbers * item + (0 if tree is None else tree.bytes)
        return Cost(n_bytes=n_bytes, operations=2 * numbers + (0 if tree is None else tree.operations))

    def log_partition(self, question, key):
        return Estimate(np.asarray(question.energy.log_partition()), kind="exact", method=self.label)

    def log_prob(self, question, key):
        return Estimate(_each(_evidence, question), kind="exact", method=self.label)

    def posterior(self, question, key):
        _size(question)  # what will not fit is said now, not when the answer is looked at
        _refuse_impossible(question)
        return MixedPosterior(question, key)

    def argmin(self, question, key):
        _refuse_impossible(question)
        values, energy = _each(_most_probable, question)
        return Minimum(question.answer(values), energy=question.answer(energy), method=self.label)

    def sample(self, question, n, key):
        _refuse_impossible(question)
        return MixedPosterior(question)._sample(n, key)


class MixedPosterior(Posterior):
    """p(hidden | given): `marginals` of finite variables, `mean`, `variance` and `std` of real ones.

    What was given is among them, as a certainty.
    """

    method = "conditional Gaussian"
    kind = "exact"

    @property
    def variance(self) -> dict[str, np.ndarray]:
        """Var[variable | given] by name, of the real variables: within and between the choices."""
        return self._question.answer(self._once("answers", self._answers)["variance"])

    @property
    def std(self) -> dict[str, np.ndarray]:
        """The square root of `variance`."""
        return {name: np.sqrt(value) for name, value in self.variance.items()}

    def _answers(self):
        return _each(_answers, self._question)

    def _marginals(self):
        found, given = self._once("answers", self._answers)["marginals"], self._question.given
        out = {}
        for name, space in self._question.spaces.items():
            if space.is_finite:  # what is given is certain
                sure = np.eye(space.n_values)[given[name]] if name not in found else found[name]
                out[name] = Labelled.of(sure, space.labels)
        return out

    def _mean(self):
        return self._once("answers", self._answers)["mean"]

    def _mode(self):
        return _each(_most_probable, self._question)[0]

    def _joint(self, names):
        return _each(_joint, self._question, names)

    def _sample(self, n, key):
        drawn = _each(draws, self._question, n, key=key)
        values = {k: np.swapaxes(v, 0, 1)[None] if self._question.many else v for k, v in drawn.items()}
        return Draws(values, method=self.method, exact=True)

    def _log_evidence(self):
        if not self._question.given:
            return Estimate(0.0, method=self.method)
        value = self._once("answers", self._answers)["log evidence"]
        return Estimate(self._question.answer(value), kind="exact", method=self.method)


def _mixed(question: Question) -> Mixed:
    energy: Any = question.energy
    return energy.mixed()


def _size(question: Question) -> tuple[JunctionTree | None, int]:
    mixed = _mixed(question)
    cards, scopes, numbers = mixed.shapes_given(mixed.known_names(question.given))
    return (JunctionTree.build(cards, scopes) if cards else None), numbers


def _each(function: Any, question: Question, *arguments: Any, key: Any = None) -> Any:
    tree, numbers = _size(question)
    entries = 3 * numbers + (0 if tree is None else tree.bytes // 8)
    rows, n = question.given, question.n
    return map_rows(function, rows, n, question.energy, *arguments, key=key, numbers_per_row=max(1, entries))


def _refuse_impossible(question: Question) -> None:
    """No real value is impossible, but choices may be, and another value of what was set."""
    mixed = _mixed(question)
    energy: Any = question.energy
    one = question.given if question.many else jax.tree.map(lambda a: a[0], question.given)
    for name, value in mixed.constants.items():
        if name in one:
            seen, value = np.asarray(known(one[name]), np.float32), np.float32(value)
            wrong = np.asarray(mask_of(one[name])) & (seen != value)
            if wrong.any():
                found = f"evidence of probability zero: {name} = {seen[wrong].ravel()[0]:g}"
                raise BadInput("given", found, f"{value:g}, to which it was set")
    chosen = {k: v for k, v in one.items() if k in mixed.tables.names}
    doubtful = any(np.isneginf(np.asarray(log)).any() for log in mixed.tables.logs)
    if chosen and doubtful and np.isneginf(_each(_evidence, question)).any():
        MessagePassing().argmin(Question(energy.finite_part(), chosen), None)  # says which entries conflict


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
    return _sought(found, row), -value


def _sought(found, row):
    return {k: v for k, v in found.items() if k not in row or is_masked(row[k])}


def _joint(row, key, energy, names):
    mixed = energy.mixed()
    rest, evidence = _posed(mixed, row, mixed.blocks(row))
    tree = JunctionTree.build(rest.cards, rest.scopes)
    return jnp.exp(tree.joint(tuple(rest.names.index(n) for n in names), rest.logs, evidence))


def draws(row, key, energy, n):
    """n draws of all that is hidden: the choices by the junction tree, then the real variables given them."""
    mixed = energy.mixed()
    blocks = mixed.blocks(row)
    rest, evidence = _posed(mixed, row, blocks)
    first, *others = jax.random.split(key, 1 + len(blocks))
    found = {name: jnp.broadcast_to(value, (n,)) for name, value in mixed.constants.items()}
    if rest.cards:
        found.update(rest.draw(first, n, evidence))
    for block, sub in zip(blocks, others, strict=True):
        index = jnp.broadcast_to(block.index(found), (n,))
        drawn = jax.vmap(block.draw)(jax.random.split(sub, n), index)
        found.update({name: drawn[:, k] for k, name in enumerate(block.names)})
    return _sought(found, row)
