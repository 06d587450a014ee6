"""The marginal time of one update of an RBM and of a VAE, and of the same updates in PyTorch.

`python -m benchmarks.mnist_speed` prints the rows of energax alone; on a GPU `report` runs it once more with
loops as CUDA graphs, which XLA decides when a process starts.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from energax import fit
from energax.energies import RBM, Decoder
from energax.learn import ELBO, ContrastiveDivergence, Descent
from energax.nn import Encoder
from energax.programs import use_engine
from energax.samplers import Gibbs

from .torch_peers import HIDDEN, LATENT, VISIBLE, WIDTH, has_torch, rbm_update, vae_update

ROWS, BATCH, REPEATS = 5000, 100, 5
#: XLA runs loops as CUDA graphs: it need not ask the host after every step whether the loop goes on.
GRAPHS = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION"
    " --xla_gpu_graph_min_graph_size=1"
)


def binary_rows() -> np.ndarray:
    """Return rows of overlapping random strokes, zeros and ones."""
    rng = np.random.default_rng(0)
    strokes = rng.random((40, VISIBLE)) < 0.08
    used = (rng.random((ROWS, 40)) < 0.1).astype(np.float32)
    return ((used @ strokes > 0) ^ (rng.random((ROWS, VISIBLE)) < 0.02)).astype(np.float32)


def rbm_fit(sampler: Any = None, persistent: bool = True) -> tuple[Any, Descent]:
    objective = ContrastiveDivergence(1, persistent=persistent, sampler=sampler)
    return RBM.random(VISIBLE, HIDDEN, key=0), Descent(objective, optax.sgd(0.05))


def vae_fit() -> tuple[Any, Descent]:
    shape: dict[str, Any] = {"width": WIDTH, "depth": 2}
    encoder = Encoder.random(VISIBLE, LATENT, key=1, **shape)
    return Decoder.random(VISIBLE, LATENT, key=0, **shape), Descent(ELBO(encoder), optax.adam(1e-3))


def report(size: Any) -> str:
    """Return the lines of all updates, in microseconds."""
    epochs, x = size(40, 2), binary_rows()
    lines = _own_lines(x, epochs)
    if jax.default_backend() == "gpu":
        lines += ["loops as CUDA graphs:", *_with_graphs()]
    if has_torch():
        lines += _lines(_torch_times(x, epochs))
    else:
        lines += ["PyTorch is not installed: its rows are left out."]
    return "\n  ".join([f"one update, batch of {BATCH}", *lines, ""])


def _own_lines(x: np.ndarray, epochs: int) -> list[str]:
    updates = {
        "RBM 784 × 500, PCD-1": rbm_fit(),
        "RBM, PCD-1 with hidden units kept": rbm_fit(Gibbs(("x", "z"))),
        "RBM, CD-1": rbm_fit(persistent=False),
        "VAE 784-200-200-50": vae_fit(),
    }
    return _lines({name: _fit_time(start, x, epochs) for name, start in updates.items()})


def _lines(found: dict[str, float]) -> list[str]:
    return [f"{name}: {seconds * 1e6:.0f} µs" for name, seconds in found.items()]


def _with_graphs() -> list[str]:
    """Return the rows of a second process, which shares the memory of the GPU with this one."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} {GRAPHS}".strip()
    environment = os.environ | {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-m", "benchmarks.mnist_speed"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return run.stdout.splitlines() if run.returncode == 0 else [f"failed: {run.stderr[-300:]}"]


def _fit_time(start: tuple[Any, Descent], x: np.ndarray, epochs: int) -> float:
    energy, learner = start
    options: dict[str, Any] = {"batch_size": BATCH, "key": 0}

    def run(epochs: int) -> None:
        done = fit(energy, {"x": x}, learner, epochs=epochs, **options)
        jax.block_until_ready(jax.tree.leaves(done.energy))

    with use_engine("xla"):
        return _marginal(run, 1, 1 + epochs) / (len(x) // BATCH)


def _marginal(run: Callable[[int], None], few: int, many: int) -> float:
    """Return the seconds of one unit of work: the median difference of runs with many and with few."""
    run(many)
    found = []
    for _ in range(REPEATS):
        times = []
        for n in (few, many):
            began = time.perf_counter()
            run(n)
            times.append(time.perf_counter() - began)
        found.append((times[1] - times[0]) / (many - few))
    return statistics.median(found)


def _torch_times(x: np.ndarray, epochs: int) -> dict[str, float]:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = torch.as_tensor(x, device=device)
    builds = {
        "RBM": lambda: rbm_update(BATCH, device),
        "VAE": lambda: vae_update(device, capturable=device == "cuda"),
    }
    found = {}
    for name, build in builds.items():
        ways: dict[str, Callable[[Any], Any]] = {"eager": lambda update: update}
        if device == "cuda":
            ways |= {"torch.compile": torch.compile, "CUDA graph": _graphed}
        for way, wrap in ways.items():
            found[f"PyTorch {torch.__version__}, {name}, {way}"] = _torch_time(wrap(build()), rows, epochs)
    return found


def _torch_time(update: Callable[[Any], Any], rows: Any, epochs: int) -> float:
    import torch

    def run(epochs: int) -> None:
        for _ in range(epochs):
            for indices in torch.randperm(len(rows), device=rows.device).split(BATCH):
                update(rows[indices])
        if rows.is_cuda:
            torch.cuda.synchronize()

    return _marginal(run, 1, 1 + epochs) / (len(rows) // BATCH)


def _graphed(update: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return an update that replays a captured CUDA graph on a buffer of rows."""
    import torch

    buffer = torch.zeros(BATCH, VISIBLE, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            update(buffer)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update(buffer)

    def replay(x: Any) -> None:
        buffer.copy_(x)
        graph.replay()

    return replay


if __name__ == "__main__":
    print("\n".join(_own_lines(binary_rows(), 40)))
