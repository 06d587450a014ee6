"""MNIST for the runs of `benchmarks.mnist`, and the scores of models on it."""

from __future__ import annotations

import dataclasses
import gzip
import os
import pathlib
from typing import Any

import jax
import numpy as np
import optax

from energax import fit, log_prob
from energax.energies import RBM
from energax.infer import AnnealedImportance, Importance
from energax.learn import ContrastiveDivergence, Descent

#: Rows of every table of a tiny run, which shows that a run works and says nothing else.
TINY_ROWS = 120
DRAWS = 5000


@dataclasses.dataclass(frozen=True)
class Size:
    """The size of a run: as it is reported, or tiny."""

    tiny: bool = False

    def __call__(self, full: int, tiny: int = 1) -> int:
        """Return a number of epochs, units, chains or draws: `tiny` in a tiny run."""
        return tiny if self.tiny else full

    def rows(self, *tables: np.ndarray) -> tuple[np.ndarray, ...]:
        return tuple(t[: TINY_ROWS if self.tiny else None] for t in tables)


def data_folder() -> pathlib.Path:
    """Return the folder with `mnist` and `binarized-mnist-larochelle`: ENERGAX_DATA, or ../shared/data."""
    here = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    return pathlib.Path(os.environ.get("ENERGAX_DATA", here))


def fixed_binary(size: Size) -> tuple[np.ndarray, ...]:
    """Return 50,000 training, 10,000 validation and 10,000 test rows of the fixed binarisation."""
    from scipy.io import loadmat

    folder = data_folder() / "binarized-mnist-larochelle"
    parts = [loadmat(folder / f"binarized_mnist_{part}.mat")["X"] for part in ("train", "valid", "test")]
    return size.rows(*(np.ascontiguousarray(part, np.float32) for part in parts))


def grey(size: Size) -> tuple[np.ndarray, ...]:
    """Return 60,000 training rows of grey values 0 to 255, their labels, and 10,000 test rows with theirs."""
    found = []
    for part in ("train", "t10k"):
        images = _read_idx(f"{part}-images-idx3-ubyte.gz")
        found += [images.reshape(len(images), -1).astype(np.float32)]
        found += [_read_idx(f"{part}-labels-idx1-ubyte.gz").astype(np.int32)]
    return size.rows(*found)


def _read_idx(name: str) -> np.ndarray:
    with gzip.open(data_folder() / "mnist" / name) as file:
        raw = file.read()
    n_axes = raw[3]
    shape = np.frombuffer(raw, ">i4", n_axes, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


def steps(rows: np.ndarray, epochs: int, batch_size: int) -> int:
    """Return the number of updates of a fit."""
    return epochs * -(-len(rows) // batch_size)


def persistent(k: int, rate: float, n_steps: int, decay: float = 0.0, chains: int = 200) -> Descent:
    """Return persistent contrastive divergence with k sweeps, and Adam with a step that falls to 0."""
    objective = ContrastiveDivergence(k, persistent=True, n_chains=chains)
    schedule = optax.cosine_decay_schedule(rate, n_steps)
    return Descent(objective, optax.adamw(schedule, weight_decay=decay))


def learn(energy: Any, x: np.ndarray, learner: Descent, epochs: int, **options: Any) -> Any:
    """Return the fit of an energy to rows x, in batches of 100."""
    return fit(energy, {"x": x}, learner, key=0, epochs=epochs, batch_size=min(100, len(x)), **options)


def rbm_scores(rbm: RBM, test: np.ndarray, size: Size) -> tuple[Any, Any]:
    """Return the mean of log p of test rows by annealing forward (from above), and back (from below)."""
    free = float(np.mean(jax.jit(jax.vmap(lambda x: rbm.free_energy(x=x)))(test)))
    annealing = AnnealedImportance(n_chains=size(400, 20), n_steps=size(20_000, 200))
    lower, upper = annealing.bracket(rbm, key=0)
    return -free - lower, -free - upper


def importance_score(model: Any, encoder: Any, test: np.ndarray, size: Size) -> Any:
    """Return the mean lower bound of log p of test rows by `DRAWS` draws of the encoder for each."""
    method = Importance(encoder=encoder, n_samples=size(DRAWS, 50))
    return log_prob(model, {"x": test}, method, key=0).mean()


def clustering_accuracy(labels: np.ndarray, truth: np.ndarray) -> float:
    """Return the share of rows in the class of their cluster, under the best assignment of clusters."""
    from scipy.optimize import linear_sum_assignment

    counts = np.zeros((10, 10))
    np.add.at(counts, (labels, truth), 1)
    return float(counts[linear_sum_assignment(-counts)].sum() / len(truth))
