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
from models_by_hand import CLOUDS, EXCLUSIVE, PARTS, STEPS, Chain, N, Part, logsumexp

from energax import fit
from energax._util.keys import as_key
from energax.fitting._batching import shuffle_batches
from energax.fitting._epochs import restart_keys, subkey
from energax.learn import EM, CrossEntropy, Descent
from energax.missing import Masked
from energax.programs import jit

EPOCHS, BATCH, RATE, KEY = 2, 13, 0.1, 3


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


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
