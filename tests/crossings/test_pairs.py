"""Every pair of features that a part supports, against the same computation by hand.

A part has parameters, rows and the joint probabilities of its rows with all values of its hidden variables,
written in NumPy. From these, EM and descent are computed step by step, with weights as multiplicities,
batches as sets of rows, restarts as single fits and missing values as sums. `fit` runs the same problem with
several features at once; a block of features meets all pairs of its members.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from energax import Mixture, fit
from energax._util.keys import as_key
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
from energax.fitting._batching import shuffle_batches
from energax.fitting._epochs import restart_keys, subkey
from energax.learn import EM, CrossEntropy, Descent, NegativeLogLikelihood
from energax.missing import Masked
from energax.programs import jit
from energax.spaces import Interval, Positive, Simplex

N, EPOCHS, BATCH, RATE, KEY = 25, 2, 13, 0.1, 3
RNG = np.random.default_rng(8)
PRIOR, FLOOR = 0.5, 0.2


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


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
        """A missing value has the mean and the variance of its component."""
        seen, count = ~np.isnan(X)[:, None], posterior.sum(0)[:, None]
        x = np.where(seen, np.where(seen, X[:, None], 0), theta["means"])
        count = np.where(count > 0, count, 1)
        means = theta["means"] + np.einsum("nk,nkd->kd", posterior, x - theta["means"]) / count
        means = theta["means"] if "means" in frozen else means
        squares = (x - means) ** 2 + np.where(seen, 0, theta["variance"])
        variance = np.einsum("nk,nkd->kd", posterior, squares) / count + FLOOR
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


# -- the features ---------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Problem:
    part: Part
    block: frozenset[str]

    @property
    def frozen(self) -> tuple[str, ...]:
        return self.part.frozen if "freezing" in self.block else ()

    @property
    def by_descent(self) -> bool:
        return "constrained" in self.block or not self.part.is_em

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """X and the weights of its rows. The first row has no weight, and is far away if X is real."""
        X, rng, weights = self.part.X.copy(), np.random.default_rng(2), np.ones(N)
        if "nan" in self.block:
            missing = rng.random(X[:, self.part.columns].shape) < 0.25
            missing[:, 0] &= not isinstance(self.part, Chain)  # a sequence has at least one step
            X[:, self.part.columns][missing] = np.nan
        if "ragged" in self.block:
            X[np.arange(STEPS) >= rng.integers(1, STEPS + 1, N)[:, None]] = np.nan
        if "weights" in self.block:
            weights = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0], N)
            weights[0] = 0.0
            X[0] = 1e4 if self.part.X is CLOUDS else X[0]
        return X, weights

    def data(self, X: np.ndarray) -> dict[str, Any]:
        data = self.part.to_data(X, self.dtype)
        if "masks" not in self.block:
            return data
        fillers = {name: np.where(np.isnan(v), 1, v).astype(v.dtype) for name, v in data.items()}
        masked = {name: Masked(fillers[name], ~np.isnan(v)) for name, v in data.items()}
        return {
            name: data[name] if self.part.objective is CrossEntropy and name == "x" else v
            for name, v in masked.items()
        }

    @property
    def dtype(self) -> Any:
        return np.float32 if "float32" in self.block else np.float64

    def energy(self) -> Any:
        return self.part.build({name: jnp.asarray(v, self.dtype) for name, v in self.part.theta.items()})

    # -- by the library ----------------------------------------------------------------------------

    def fit(self) -> tuple[dict[str, np.ndarray], float]:
        part, (X, weights), energy = self.part, self.rows(), self.energy()
        hidden = "padding" in self.block and part.pads
        k = next(iter(part.theta.values())).shape[0]
        learner = EM(tol=-1.0, hard="hard" in self.block)
        if self.by_descent:
            learner = Descent(part.objective(), optax.sgd(RATE))
        mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
        done = fit(
            energy.pad(4) if hidden else energy,
            self.data(X),
            learner,
            key=KEY,
            epochs=EPOCHS,
            weights=weights if "weights" in self.block else None,
            batch_size=BATCH if "minibatch" in self.block else None,
            freeze=[part.paths[name] for name in self.frozen] or None,
            n_init=3 if "restarts" in self.block else 1,
            mesh=mesh if "mesh" in self.block else None,
        )
        return part.read(done.energy.crop(k) if hidden else done.energy), done.objective

    # -- by hand -----------------------------------------------------------------------------------

    def starts(self, X: np.ndarray, weights: np.ndarray) -> list[dict[str, np.ndarray]]:
        theta = {name: v.astype(self.dtype).astype(float) for name, v in self.part.theta.items()}
        if "restarts" not in self.block:
            return [theta]
        energy, weights = self.energy(), jnp.asarray(weights, self.dtype)
        data = {name: energy.spaces[name].check(v) for name, v in self.data(X).items()}
        data = jax.tree.map(jnp.asarray, data)
        starts = []
        initialise = jit(lambda key: energy.initialise(jax.random.split(key)[0], data, weights))
        for key in restart_keys(as_key(KEY), 3):
            start = self.part.read(initialise(subkey(key, "start")))
            starts.append({**start, **{name: theta[name] for name in self.frozen}})
        return starts

    def by_hand(self) -> list[tuple[dict[str, np.ndarray], float]]:
        """The parameters and the objective of every restart, the best first."""
        X, weights = self.rows()
        if self.part.objective is CrossEntropy:
            weights = np.where(np.isnan(X[:, 2]), 0, weights)
        runs = [self._run(start, X, weights) for start in self.starts(X, weights)]
        return sorted(runs, key=lambda run: run[1])

    def _run(self, theta, X, weights):
        step = self._descent(X) if self.by_descent else self._em
        objective = np.inf
        for epoch in range(EPOCHS):
            batches = [np.arange(N)]
            if "minibatch" in self.block:
                batches = [b[b < N] for b in shuffle_batches(as_key(KEY), epoch, N, 2, BATCH)]
            losses, totals = [], []
            for batch in batches:
                weight = np.where(np.isin(np.arange(N), batch), weights, 0)
                theta, loss = step(theta, X, weight)
                losses.append(loss)
                totals.append(weight.sum())
            objective = np.average(losses, weights=totals)
        return theta, objective

    def _em(self, theta, X, weight):
        joint = self.part.log_joint(np, theta, X)
        if "hard" in self.block:
            posterior, log_p = np.eye(joint.shape[1])[joint.argmax(1)], joint.max(1)
        else:
            log_p = logsumexp(np, joint)
            posterior, log_p = np.exp(joint - log_p[:, None]), log_p - self.part.copies(X)
        new = self.part.maximise(theta, X, posterior * weight[:, None], self.frozen)
        return {**new, **{n: theta[n] for n in self.frozen}}, -np.average(log_p, weights=weight)

    def _descent(self, X):
        part = self.part
        bijections = {n: s.bijection for n, s in part.spaces.items()}
        identity = lambda a: a

        def loss(free, weight):
            theta = {n: bijections.get(n, identity)(u) for n, u in free.items()}
            log_p = logsumexp(jnp, part.log_joint(jnp, theta, X)) - part.copies(X)
            return -jnp.sum(weight * log_p) / jnp.sum(weight)

        @jit
        def step(theta, weight):
            free = {n: bijections[n].inv(v) if n in bijections else v for n, v in theta.items()}
            value, slope = jax.value_and_grad(loss)(free, weight)
            new = {n: u - RATE * slope[n] for n, u in free.items()}
            return {n: bijections.get(n, identity)(u) for n, u in new.items()}, value

        def one(theta, _, weight):
            new, value = step({n: jnp.asarray(v) for n, v in theta.items()}, jnp.asarray(weight))
            new = {n: np.asarray(v) for n, v in new.items()}
            return {**new, **{n: theta[n] for n in self.frozen}}, float(value)

        return one


# -- the blocks -----------------------------------------------------------------------------------------


def pairs_of(block) -> set[frozenset[str]]:
    return {frozenset(pair) for pair in itertools.combinations(block, 2)}


def cover(pairs: list[frozenset[str]], features: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    """Blocks of at most `size` features that together have these pairs."""
    blocks = []
    while pairs:
        block, gain = set(pairs[0]), 1
        while len(block) < size:
            fits = [f for f in features if f not in block and not pairs_of({*block, f}) & EXCLUSIVE]
            gains = {f: sum(pair in pairs for pair in pairs_of({*block, f})) for f in fits}
            best = max(gains, key=gains.__getitem__, default="")
            if gains.get(best, 0) <= gain:
                break
            block.add(best)
            gain = gains[best]
        pairs = [pair for pair in pairs if pair not in pairs_of(block)]
        blocks.append(tuple(f for f in features if f in block))
    return blocks


def blocks_of(features: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Blocks with every pair of features. A fit on a mesh is compiled, so few large blocks have one."""
    pairs = sorted(pairs_of(features) - EXCLUSIVE, key=lambda pair: ("constrained" in pair, sorted(pair)))
    small = cover([pair for pair in pairs if "mesh" not in pair], features[:-1], 5)
    return small + cover([pair for pair in pairs if "mesh" in pair], features, len(features))


CASES = [(name, block) for name, part in PARTS.items() for block in blocks_of(part.features)]


@pytest.mark.parametrize("name", PARTS)
def test_every_pair_of_features_is_in_a_block(name):
    met = set().union(*(pairs_of(block) for part, block in CASES if part == name))
    assert met == pairs_of(PARTS[name].features) - EXCLUSIVE


@pytest.mark.parametrize(("name", "block"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_a_block_of_features_is_what_it_is_by_hand(name, block):
    problem = Problem(PARTS[name], frozenset(block))
    found, objective = problem.fit()
    close = {"rtol": 2e-4, "atol": 2e-5} if "float32" in block else {"rtol": 1e-7, "atol": 1e-8}
    runs = problem.by_hand()
    # Of restarts with the same objective, such as those that differ by the order of components, any is best.
    best = [theta for theta, loss in runs if np.isclose(loss, runs[0][1], **close)]
    distance = lambda theta: sum(np.abs(found[leaf] - theta[leaf]).sum() for leaf in theta)
    expected = min(best, key=distance)
    for leaf in expected:
        np.testing.assert_allclose(found[leaf], expected[leaf], err_msg=leaf, **close)
    if not (name == "Classes" and {"nan", "minibatch"} <= set(block)):  # see test_weights_and_rows.py
        np.testing.assert_allclose(objective, runs[0][1], err_msg="objective", **close)
