"""Random networks with real nodes, and their joint distribution by enumeration of the finite variables."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from energax import sample
from energax.energies import BayesianNetwork, LinearGaussian


def random_network(seed: int, n_finite: int, n_real: int) -> BayesianNetwork:
    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 4, n_finite)
    nodes = {}
    for i in range(n_finite):
        parents = [j for j in range(i) if rng.random() < 0.6]
        table = rng.random([cards[j] for j in (*parents, i)]) + 0.1
        nodes[f"d{i}"] = (tuple(f"d{j}" for j in parents), table / table.sum(-1, keepdims=True))
    for i in range(n_real):
        parents = [f"x{j}" for j in range(i) if rng.random() < 0.6]
        given = [j for j in rng.permutation(n_finite) if rng.random() < 0.5]
        shape = tuple(cards[given])
        nodes[f"x{i}"] = LinearGaussian(
            f"x{i}",
            parents,
            rng.normal(size=(*shape, len(parents))),
            rng.normal(size=shape) * 2,
            rng.uniform(0.3, 2.0, shape),
            given=[f"d{j}" for j in given],
        )
    order = rng.permutation(list(nodes))  # nodes need not be in topological order
    return BayesianNetwork({str(name): nodes[str(name)] for name in order})


class Joint:
    """p(d) and N(x | d) of every joint configuration d, from x = (1 − A)⁻¹ (b + ε)."""

    def __init__(self, net: BayesianNetwork):
        spaces = net.spaces
        self.finite = [n for n, s in spaces.items() if s.is_finite]
        self.real = [n for n, s in spaces.items() if not s.is_finite]
        self.cards = [spaces[n].n_values for n in self.finite]
        self.states = [
            dict(zip(self.finite, c, strict=True)) for c in itertools.product(*map(range, self.cards))
        ]
        self.log_p, self.means, self.covariances = [], [], []
        for d in self.states:
            log_p, A = 0.0, np.zeros((len(self.real), len(self.real)))
            b, v = np.zeros(len(self.real)), np.zeros(len(self.real))
            for node in net.nodes:
                if node.child in self.finite:
                    log_p += np.log(np.asarray(node.table)[tuple(d[n] for n in node.names)])
                    continue
                i, at = self.real.index(node.child), tuple(d[n] for n in node.finite_parents)
                b[i], v[i] = node.bias[at], node.variance[at]
                for j, parent in enumerate(node.parents):
                    A[i, self.real.index(parent)] = node.weights[(*at, j)]
            inverse = np.linalg.inv(np.eye(len(b)) - A)
            self.log_p.append(log_p)
            self.means.append(inverse @ b)
            self.covariances.append(inverse @ np.diag(v) @ inverse.T)

    def given(self, observed: dict) -> tuple:
        """log p(d, observed), E[x | d, observed], Cov[x | d, observed], max over hidden x: for every d."""
        logs, means, covariances, peaks = [], [], [], []
        at = [i for i, n in enumerate(self.real) if n in observed]
        rest = [i for i, n in enumerate(self.real) if n not in observed]
        value = np.array([observed[self.real[i]] for i in at])
        for d, log_p, mean, cov in zip(self.states, self.log_p, self.means, self.covariances, strict=True):
            agrees = all(d[n] == observed[n] for n in self.finite if n in observed)
            full, spread = mean.copy(), np.zeros_like(cov)
            density = peak = 0.0
            if at:
                density = multivariate_normal(mean[at], cov[np.ix_(at, at)]).logpdf(value)
                gain = cov[np.ix_(rest, at)] @ np.linalg.inv(cov[np.ix_(at, at)])
                full[rest] = mean[rest] + gain @ (value - mean[at])
                full[at] = value
                spread[np.ix_(rest, rest)] = cov[np.ix_(rest, rest)] - gain @ cov[np.ix_(at, rest)]
            else:
                spread = cov
            if self.real:
                peak = multivariate_normal(mean, cov).logpdf(full)
            logs.append(log_p + density if agrees else -np.inf)
            peaks.append(log_p + peak if agrees else -np.inf)
            means.append(full)
            covariances.append(spread)
        return np.array(logs), np.array(means), np.array(covariances), np.array(peaks)

    def posterior(self, observed: dict) -> dict:
        """Exact results of all queries given observed values."""
        logs, means, covariances, peaks = self.given(observed)
        log_evidence = logsumexp(logs)
        q = np.exp(logs - log_evidence)
        mean = q @ means
        variance = q @ (np.diagonal(covariances, axis1=1, axis2=2) + (means - mean) ** 2)
        best = int(np.argmax(peaks))
        return {
            "log evidence": log_evidence,
            "joint": q.reshape(self.cards),
            "mean": dict(zip(self.real, mean, strict=True)),
            "variance": dict(zip(self.real, variance, strict=True)),
            "mode": {**self.states[best], **dict(zip(self.real, means[best], strict=True))},
            "energy": -peaks[best],
        }


def line_network(dtype=np.float64) -> BayesianNetwork:
    """z is finite, x depends on z, and y is linear in x with a slope for each z."""
    z = np.array([0.4, 0.6], dtype)
    x = LinearGaussian(
        "x", bias=np.array([-1.0, 2.0], dtype), variance=np.array([1.0, 0.5], dtype), given="z"
    )
    lines = {"weights": np.array([[2.0], [-1.0]], dtype), "bias": np.array([0.5, 1.0], dtype)}
    y = LinearGaussian("y", "x", **lines, variance=np.array([0.2, 0.3], dtype), given="z")
    return BayesianNetwork({"z": z, "x": x, "y": y})


def rows_with_holes(net: BayesianNetwork) -> dict:
    """Draws of the network with a third of their entries missing."""
    rng = np.random.default_rng(0)
    draws = dict(sample(net, 30, key=4))
    return {k: np.where(rng.random(30) < 0.35, np.nan, v.astype(float)) for k, v in draws.items()}


def observed_in(holes: dict, row: int) -> dict:
    """The entries of a row that are not missing."""
    return {k: v[row] for k, v in holes.items() if not np.isnan(v[row])}
