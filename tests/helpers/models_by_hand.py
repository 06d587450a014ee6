"""Seven models with EM and gradients in plain NumPy: parameters, rows, joint probabilities, M-steps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from energax import Mixture
from energax.energies import (
    RBM,
    BayesianNetwork,
    Bernoullis,
    Categoricals,
    Centroids,
    Diagonal,
    Gaussians,
    HiddenChain,
    Linear,
)
from energax.learn import CrossEntropy, NegativeLogLikelihood
from energax.spaces import Interval, Positive, Simplex

N = 25
RNG = np.random.default_rng(8)
PRIOR, FLOOR = 0.5, 0.2


def normalise(counts):
    return counts / counts.sum(-1, keepdims=True)


def component_weights(posterior):
    """A component without rows keeps a weight above 0."""
    return normalise(posterior.sum(0) + 10 * np.finfo(float).eps * posterior.sum(0).mean())


def logsumexp(xp, a):
    most = a.max(1, keepdims=True)
    return xp.log(xp.exp(a - most).sum(1)) + most[:, 0]


# -- the parts: parameters, rows, joint probabilities, M-step ------------------------------------------


class Part:
    """A model with `theta` (arrays by name), `X` (n, d), and the same model in NumPy or jax.numpy (`xp`)."""

    theta: dict[str, np.ndarray]
    X: np.ndarray
    spaces: dict[str, Any] = {}  # of the constrained parameters
    paths: dict[str, str]  # where the energy has each parameter
    frozen: tuple[str, ...] = ()
    columns: Any = slice(None)  # that may have missing values
    features = ("weights", "nan", "masks", "minibatch", "float32", "restarts")
    objective: Any = NegativeLogLikelihood
    is_em = True
    pads = False

    def build(self, theta) -> Any:
        raise NotImplementedError

    def read(self, energy) -> dict[str, np.ndarray]:
        return {name: np.asarray(_at(energy, path), np.float64) for name, path in self.paths.items()}

    def log_joint(self, xp, theta, X) -> Any:
        """log p(observed values of the row, hidden value) of every row and hidden value, (n, m)."""
        raise NotImplementedError

    def copies(self, X) -> Any:
        """The logarithm of how often `log_joint` has each hidden value of a row."""
        return np.zeros(len(X))

    def maximise(self, theta, X, posterior, frozen) -> dict[str, np.ndarray]:
        raise NotImplementedError

    def to_data(self, X, dtype) -> dict[str, Any]:
        return {"x": X.astype(dtype)}


def _at(energy, path):
    for name in path.split("."):
        energy = energy[int(name)] if name.isdigit() else getattr(energy, name)
    return energy


CLOUDS = RNG.normal(size=(N, 2)) + np.where(np.arange(N) % 2, 2.0, -2.0)[:, None]
BITS = (RNG.random((N, 3)) < 0.5).astype(float)


class GaussianMixture(Part):
    theta = {
        "weights": np.array([0.4, 0.6]),
        "means": np.array([[-2.0, -1.5], [1.8, 2.2]]),
        "variance": np.array([[1.0, 1.5], [0.8, 1.1]]),
    }
    X = CLOUDS
    spaces = {"weights": Simplex(2), "variance": Positive(2, 2)}
    paths = {"weights": "weights", "means": "components.means", "variance": "components.covariance.variance"}
    frozen = ("means",)
    features = (*Part.features, "padding", "freezing", "hard", "constrained", "mesh")
    pads = True

    def build(self, theta):
        return Mixture(Gaussians(theta["means"], Diagonal(theta["variance"], FLOOR)), theta["weights"])

    def log_joint(self, xp, theta, X):
        seen = ~np.isnan(X)
        x, mean, variance = np.where(seen, X, 0)[:, None], theta["means"], theta["variance"]
        terms = -0.5 * ((x - mean) ** 2 / variance + xp.log(2 * np.pi * variance))
        return xp.log(theta["weights"]) + xp.where(seen[:, None], terms, 0).sum(2)

    def maximise(self, theta, X, posterior, frozen):
        """A missing value of a column, independent of the others given the component, adds nothing."""
        seen = ~np.isnan(X)[:, None]
        x = np.where(seen, np.where(seen, X[:, None], 0), theta["means"])
        count = np.einsum("nk,nkd->kd", posterior, np.broadcast_to(seen, x.shape))
        divide = lambda sums, otherwise: np.where(count > 0, sums / np.where(count > 0, count, 1), otherwise)
        means = theta["means"] + divide(np.einsum("nk,nkd->kd", posterior, x - theta["means"]), 0)
        means = theta["means"] if "means" in frozen else means
        squares = np.where(seen, (x - means) ** 2, 0)
        variance = divide(np.einsum("nk,nkd->kd", posterior, squares), theta["variance"]) + FLOOR
        return {"weights": component_weights(posterior), "means": means, "variance": variance}


class BernoulliMixture(Part):
    theta = {"weights": np.array([0.4, 0.6]), "probs": np.array([[0.2, 0.7, 0.4], [0.8, 0.5, 0.3]])}
    X = BITS
    spaces = {"weights": Simplex(2), "probs": Interval(0, 1, 2, 3)}
    paths = {"weights": "weights", "probs": "components.probs"}
    frozen = ("weights",)
    features = GaussianMixture.features
    pads = True

    def build(self, theta):
        return Mixture(Bernoullis(theta["probs"], PRIOR), theta["weights"])

    def log_joint(self, xp, theta, X):
        seen = ~np.isnan(X)
        x, p = np.where(seen, X, 0)[:, None], theta["probs"]
        terms = x * xp.log(p) + (1 - x) * xp.log(1 - p)
        return xp.log(theta["weights"]) + xp.where(seen[:, None], terms, 0).sum(2)

    def maximise(self, theta, X, posterior, frozen):
        seen = ~np.isnan(X)
        on, count = posterior.T @ np.where(seen, X, 0), posterior.T @ seen
        return {"weights": component_weights(posterior), "probs": (on + PRIOR) / (count + 2 * PRIOR)}


class Centres(Part):
    theta = {"centers": np.array([[-1.0, -0.5], [0.8, 1.2], [0.0, -2.0]])}
    X = CLOUDS
    paths = {"centers": "centers"}
    features = (*Part.features, "padding", "hard", "mesh")
    pads = True

    def build(self, theta):
        return Centroids(theta["centers"])

    def log_joint(self, xp, theta, X):
        return -np.nansum((X[:, None] - theta["centers"]) ** 2, 2)

    def maximise(self, theta, X, posterior, frozen):
        seen = ~np.isnan(X)
        total, count = posterior.T @ np.where(seen, X, 0), posterior.T @ seen
        return {"centers": np.where(count > 0, total / np.where(count > 0, count, 1), theta["centers"])}


STEPS = 4
WALKS = np.array(list(itertools.product(range(2), repeat=STEPS)))


class Chain(Part):
    theta = {
        "initial": np.array([0.6, 0.4]),
        "transition": np.array([[0.7, 0.3], [0.45, 0.55]]),
        "probs": np.array([[0.5, 0.3, 0.2], [0.15, 0.25, 0.6]]),
    }
    X = RNG.integers(0, 3, (N, STEPS)).astype(float)
    spaces = {"initial": Simplex(2), "transition": Simplex(2), "probs": Simplex(3)}
    paths = {"initial": "initial", "transition": "transition", "probs": "emission.probs"}
    frozen = ("transition",)
    features = ("ragged", *GaussianMixture.features)
    pads = True

    def build(self, theta):
        emission = Categoricals(theta["probs"], PRIOR)
        return HiddenChain(theta["initial"], theta["transition"], emission, prior=PRIOR, initial_prior=PRIOR)

    def _inside(self, X):
        """Which steps are not after the last observed one, (n, steps)."""
        return np.cumsum(~np.isnan(X)[:, ::-1], 1)[:, ::-1] > 0

    def log_joint(self, xp, theta, X):
        x, inside = np.where(np.isnan(X), 0, X).astype(int), self._inside(X)
        first = xp.log(theta["initial"])[WALKS[:, 0]]
        moves = xp.log(theta["transition"])[WALKS[:, :-1], WALKS[:, 1:]]
        emitted = xp.log(theta["probs"])[WALKS[None], x[:, None]]
        emitted = xp.where(~np.isnan(X)[:, None], emitted, 0).sum(2)
        return first + xp.where(inside[:, None, 1:], moves, 0).sum(2) + emitted

    def copies(self, X):
        return (~self._inside(X)).sum(1) * np.log(2)

    def maximise(self, theta, X, posterior, frozen):
        inside, first, pairs, probs = self._inside(X), np.zeros(2), np.zeros((2, 2)), np.zeros((2, 3))
        for (i, j), p in np.ndenumerate(posterior):
            walk = WALKS[j]
            first[walk[0]] += p
            for t in range(STEPS):
                if t and inside[i, t]:
                    pairs[walk[t - 1], walk[t]] += p
                if not np.isnan(X[i, t]):
                    probs[walk[t], int(X[i, t])] += p
        counts = {"initial": first, "transition": pairs, "probs": probs}
        return {name: normalise(c + PRIOR) for name, c in counts.items()}

    def to_data(self, X, dtype):
        return {"x": X}


class Machine(Part):
    """An RBM of three visible and two hidden units, by descent on the exact likelihood."""

    theta = {"weight": RNG.normal(size=(3, 2)), "bias": RNG.normal(size=3), "hidden_bias": RNG.normal(size=2)}
    X = BITS
    paths = {name: name for name in ("weight", "bias", "hidden_bias")}
    frozen = ("bias",)
    features = (*Part.features, "freezing", "mesh")
    is_em = False
    states = np.array(list(itertools.product(range(2), repeat=5)), float)

    def build(self, theta):
        return RBM(**theta)

    def log_joint(self, xp, theta, X):
        x, z = self.states[:, :3], self.states[:, 3:]
        energy = -((x @ theta["weight"]) * z).sum(1) - x @ theta["bias"] - z @ theta["hidden_bias"]
        log_p = -energy - logsumexp(xp, -energy[None])
        agrees = (np.isnan(X)[:, None] | (X[:, None] == x)).all(2)
        return xp.where(agrees, log_p, -1e30)


class Classes(Part):
    """A linear classifier; the last column of X is y, and rows without it do not count."""

    theta = {"weight": RNG.normal(size=(3, 2)), "bias": RNG.normal(size=3)}
    X = np.column_stack([CLOUDS, RNG.integers(0, 3, N)])
    columns = slice(2, 3)
    paths = {"weight": "weight", "bias": "bias"}
    frozen = ("bias",)
    features = Machine.features
    objective = CrossEntropy
    is_em = False

    def build(self, theta):
        return Linear(**theta)

    def log_joint(self, xp, theta, X):
        scores = X[:, :2] @ theta["weight"].T + theta["bias"]
        is_class = np.where(np.isnan(X), 0, X)[:, 2:] == np.arange(3)
        return (xp.where(is_class, scores, 0).sum(1) - logsumexp(xp, scores))[:, None]

    def to_data(self, X, dtype):
        return {"x": X[:, :2].astype(dtype), "y": X[:, 2]}


class Network(Part):
    """a → b, and a and b → c, with 2, 3 and 2 states."""

    theta = {
        "a": np.array([0.3, 0.7]),
        "b": normalise(RNG.random((2, 3)) + 0.2),
        "c": normalise(RNG.random((2, 3, 2)) + 0.2),
    }
    X = np.column_stack([RNG.integers(0, m, N) for m in (2, 3, 2)]).astype(float)
    spaces = {"a": Simplex(2), "b": Simplex(3), "c": Simplex(2)}
    paths = {name: f"nodes.{i}.table" for i, name in enumerate("abc")}
    frozen = ("b",)
    features = (*Part.features, "freezing", "hard", "constrained", "mesh")
    states = np.array(list(itertools.product(range(2), range(3), range(2))))

    def build(self, theta):
        return BayesianNetwork(
            {"a": theta["a"], "b": ("a", theta["b"]), "c": (("a", "b"), theta["c"])}, prior=PRIOR
        )

    def log_joint(self, xp, theta, X):
        a, b, c = self.states.T
        log_p = xp.log(theta["a"])[a] + xp.log(theta["b"])[a, b] + xp.log(theta["c"])[a, b, c]
        agrees = (np.isnan(X)[:, None] | (X[:, None] == self.states)).all(2)
        return xp.where(agrees, log_p, -1e30)

    def maximise(self, theta, X, posterior, frozen):
        counts = {name: np.full(theta[name].shape, PRIOR) for name in "abc"}
        for (a, b, c), p in zip(self.states, posterior.sum(0), strict=True):
            counts["a"][a] += p
            counts["b"][a, b] += p
            counts["c"][a, b, c] += p
        return {name: normalise(c) for name, c in counts.items()}

    def to_data(self, X, dtype):
        return dict(zip("abc", X.T, strict=True))


PARTS = {
    part.__name__: part()
    for part in (GaussianMixture, BernoulliMixture, Centres, Chain, Machine, Classes, Network)
}
#: Descent has no temperature, and moves components of weight 0.
EXCLUSIVE = {frozenset({"hard", "constrained"}), frozenset({"padding", "constrained"})}
