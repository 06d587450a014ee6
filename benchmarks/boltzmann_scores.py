"""Test scores of Boltzmann machines on public data, with both ends of the bracket of log Z.

Run `python -m benchmarks.boltzmann_scores`: about five minutes on two cores. ENERGAX_DATA is the folder that
has `binary-uci/dna.npz` and `binary-uci/mushrooms.npz`.
"""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import jax
import numpy as np
import optax
from sklearn.datasets import load_digits

from energax import fit
from energax.energies import RBM
from energax.infer import AnnealedImportance
from energax.learn import ContrastiveDivergence, Descent

#: (data, hidden units, sweeps, chains, step of Adam, weight decay, epochs, score to beat)
RUNS = (
    ("dna", 50, 5, 200, 0.01, 0.1, 60, -96.74),
    ("mushrooms", 200, 10, 400, 0.003, 0.002, 400, -15.15),
    ("digits", 200, 10, 200, 0.02, 0.04, 300, -16.8),
)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return training and test rows."""
    if name == "digits":
        X = (load_digits().data / 16 > 0.5).astype(np.float32)
        return X[:1400], X[1400:]
    data = np.load(pathlib.Path(os.environ["ENERGAX_DATA"]) / "binary-uci" / f"{name}.npz")
    return data["train_data"].astype(np.float32), data["test_data"].astype(np.float32)


def score(rbm: RBM, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
    """Return the mean of log p by the forward chains of annealing, and by the reverse chains.

    The chains start at the rates of the training rows: from those of a pilot run the two ends of the bracket
    of mushrooms have errors of 0.5 and 1.7 nats.
    """
    free = float(np.mean(jax.jit(jax.vmap(lambda x: rbm.free_energy(x=x)))(test)))
    annealing = AnnealedImportance(n_chains=400, n_steps=10_000, data={"x": train})
    lower, upper = annealing.bracket(rbm, key=0)
    return -free - lower, -free - upper


def main() -> None:
    """Print one line per run."""
    for name, h, k, chains, step, decay, epochs, goal in RUNS:
        begin = time.perf_counter()
        X, test = load(name)
        schedule = optax.cosine_decay_schedule(step, epochs * -(-len(X) // 100))
        objective = ContrastiveDivergence(k, persistent=True, n_chains=chains)
        learner = Descent(objective, optax.adamw(schedule, weight_decay=decay))
        start = RBM.random(X.shape[1], h, key=0)
        options: dict[str, Any] = {"epochs": epochs, "batch_size": 100, "initialise": True}
        done = fit(start, {"x": X}, learner, key=1, **options)
        seconds = time.perf_counter() - begin
        above, below = score(done.energy, X, test)
        print(
            f"{name:<10} {h} units: {above}; {below}; to beat {goal}; fitted in {seconds:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
