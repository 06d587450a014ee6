"""Likelihood weighting: what is not known is drawn from its causes, what is known weighs the draw."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.labelled import Labelled
from ...energy import checked_energy
from ...errors import BadInput
from ...estimate import Estimate
from ...missing import is_masked
from .._method import Cost, Method
from .._posterior import Posterior
from .._query import Query


class LikelihoodWeighting(Method):
    """Draws of a Bayesian network, causes first, each weighted by p(what is seen | its parents).

    p(x | e) ≈ Σ w_s [x_s = x] / Σ w_s and p(e) ≈ mean w, with their standard errors. Cheap at any width;
    poor where the evidence is improbable, which `effective_draws` tells.

    Fung and Chang (1990), Weighing and integrating evidence for stochastic simulation in Bayesian networks.

    >>> from energax import posterior
    >>> from energax.energies import BayesianNetwork
    >>> net = BayesianNetwork({"rain": [0.8, 0.2], "wet": ("rain", [[0.9, 0.1], [0.2, 0.8]])})
    >>> found = posterior(net, {"wet": 1}, LikelihoodWeighting(20_000), key=0)
    >>> bool(abs(found.marginals["rain"][1] - 2 / 3) < 0.02)
    True
    """

    tasks = frozenset({"posterior", "log_prob"})

    n_draws: int = eqx.field(static=True, default=10_000)

    def __check_init__(self):
        if not isinstance(self.n_draws, int) or self.n_draws < 2:
            raise BadInput("n_draws", repr(self.n_draws), "a whole number >= 2")

    @property
    def label(self):
        return "likelihood weighting"

    def unsupported_reason(self, task, query):
        if not hasattr(query.energy, "nodes"):
            return f"needs a Bayesian network, which {type(query.energy).__name__} is not"
        if any(not s.is_finite for s in query.spaces.values()):
            return "is for finite variables"
        if query.partially_observed:
            return (
                f"needs the same variables known in every row, and some lack {list(query.partially_observed)}"
            )
        return None

    def why(self, task, query):
        return "draws cost the same at any width"

    def kind(self, task, query):
        return "estimate"

    def cost(self, task, query):
        return Cost(evaluations=self.n_draws * query.n)

    def rows(self, query: Query, key: Any) -> list[tuple[dict[str, Any], Any]]:
        """(draws, log weights) of every row."""
        out = []
        for i, sub in enumerate(jax.random.split(key, query.n)):
            row = {k: jnp.asarray(v[i]) for k, v in query.given.items() if not is_masked(v)}
            out.append(jax.tree.map(np.asarray, _weighted(query.energy, row, sub, self.n_draws)))
        return out

    def posterior(self, query, key):
        found = WeightedPosterior(query, key, self)
        for i, (_, log_weight) in enumerate(found.weighted()):
            if np.isneginf(log_weight).all():
                where = f" of row {i}" if query.many else ""
                raise BadInput(
                    "given",
                    f"evidence{where} that none of {self.n_draws:,} draws allows",
                    "more draws, or evidence of some probability",
                    "MessagePassing() says whether it is impossible.",
                )
        return found

    def log_prob(self, query, key):
        return _evidence(self.rows(query, key), self.label)


@eqx.filter_jit
def _weighted(energy: Any, row: dict[str, Any], key: Any, n: int) -> tuple[dict[str, Any], Any]:
    def one(key):
        values, log_weight = {}, 0.0
        nodes = {node.child: node for node in energy.nodes}
        for name, sub in zip(energy.causes_first(), jax.random.split(key, len(nodes)), strict=True):
            if name in row:
                values[name] = row[name]
                log_weight = log_weight - nodes[name](**{k: values[k] for k in nodes[name].names})
            else:
                values[name] = nodes[name].drawn(sub, values)
        return {k: v for k, v in values.items() if k not in row}, log_weight

    return jax.vmap(one)(jax.random.split(key, n))


def _evidence(rows: list[tuple[dict[str, Any], Any]], label: str) -> Estimate:
    """log mean w, and its standard error by the delta method."""
    logs = np.stack([log_weight for _, log_weight in rows]).astype(float)
    top = np.max(logs, axis=1, keepdims=True)
    weight = np.exp(logs - np.where(np.isfinite(top), top, 0))
    mean = weight.mean(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(mean) + np.where(np.isfinite(top), top, 0)[:, 0]
        error = weight.std(1, ddof=1) / np.sqrt(weight.shape[1]) / mean
    return Estimate(value, np.where(mean > 0, error, np.inf), kind="estimate", method=label)


class WeightedPosterior(Posterior):
    """p(hidden | given) as weighted draws."""

    kind = "estimate"
    method = "likelihood weighting"

    def __init__(self, query: Query, key: Any, by: LikelihoodWeighting):
        super().__init__(query, key)
        self._by = by

    def weighted(self) -> Any:
        return self._once("weighted", lambda: self._by.rows(self._query, self._key))

    def _shares(self) -> list[Any]:
        each = [np.exp(w - w.max()) for _, w in self.weighted()]
        return [w / w.sum() for w in each]

    @property
    def effective_draws(self) -> Any:
        """1 / Σ w², of normalised weights: how many plain draws these are worth."""
        return self._query.answer(np.array([1 / np.sum(w**2) for w in self._shares()]))

    def _marginals(self):
        spaces, out = self._query.spaces, {}
        for name in self.spaces:
            k = spaces[name].n_values
            each = zip(self.weighted(), self._shares(), strict=True)
            table = np.stack([np.bincount(d[name], w, minlength=k) for (d, _), w in each])
            out[name] = Labelled.of(table, spaces[name].labels)
        return out

    def _mean(self):
        return {}

    def _mode(self):
        best = [int(np.argmax(self._log_joint(draws, i))) for i, (draws, _) in enumerate(self.weighted())]
        each = zip(self.weighted(), best, strict=True)
        chosen = [{k: v[i] for k, v in draws.items()} for (draws, _), i in each]
        return {k: np.stack([c[k] for c in chosen]) for k in self.spaces}

    def _log_joint(self, draws: dict[str, Any], row: int) -> Any:
        query = self._query
        n = len(next(iter(draws.values())))
        given = {k: np.broadcast_to(v[row], n) for k, v in query.given.items()}
        return -jax.vmap(lambda row: checked_energy(query.energy, row))({**draws, **given})

    def _joint(self, names):
        spaces = self._query.spaces
        shape = tuple(spaces[n].n_values for n in names)
        out = []
        for (draws, _), share in zip(self.weighted(), self._shares(), strict=True):
            flat = np.ravel_multi_index([draws[n] for n in names], shape)
            out.append(np.bincount(flat, share, minlength=int(np.prod(shape))))
        return np.stack(out)

    def _sample(self, n, key):
        from ...samplers import Draws

        picked = []
        for (draws, log_weight), sub in zip(
            self.weighted(), jax.random.split(key, self._query.n), strict=True
        ):
            index = np.asarray(jax.random.categorical(sub, jnp.asarray(log_weight), shape=(n,)))
            picked.append({k: v[index] for k, v in draws.items()})
        values = {k: np.stack([p[k] for p in picked], axis=1)[None] for k in self.spaces}
        values = values if self._query.many else {k: v[:, :, 0] for k, v in values.items()}
        return Draws(values, method=self.method)

    def _log_evidence(self):
        estimate = _evidence(self.weighted(), self.method)
        return estimate if self._query.many else estimate[0]
