"""Bayesian networks: all marginals given evidence, for one row and many, and in a fresh process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
from typing import Any

import numpy as np

from .case import Case

N_OBSERVED, N_ROWS, N_LARGE = 6, 1000, 400

_FIRST = """
    import sys, time
    import energax
    from energax.data import read_bif
    energax.posterior, energax.energies  # loaded, not timed
    began = time.perf_counter()
    energax.posterior(read_bif(sys.argv[1]), {"v0": 0, "v100": 1}).marginals
    print(time.perf_counter() - began)
"""


def random_network(n: int, seed: int = 0, window: int = 6) -> Any:
    """n variables of 2 to 4 states, each with up to three parents among the few before it."""
    from energax.graph import TableModel

    rng = np.random.default_rng(seed)
    cards = rng.integers(2, 5, n)
    scopes, tables = [], []
    for v in range(n):
        near = np.arange(max(0, v - window), v)
        parents = rng.permutation(near)[: rng.integers(0, 4)].tolist()
        scopes.append((*parents, v))
        tables.append(rng.dirichlet(np.ones(cards[v]), [cards[p] for p in parents]))
    names = tuple(f"v{v}" for v in range(n))
    states = tuple(tuple(f"s{k}" for k in range(card)) for card in cards)
    return TableModel("bayes", names, states, tuple(scopes), tuple(tables))


def alarm() -> tuple[str, Any, pathlib.Path | None]:
    """The alarm network if the shared data are available, else a random network of its size."""
    from energax.data._model_files import load_tables

    here = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"
    path = pathlib.Path(os.environ.get("ENERGAX_DATA", here)) / "bayesnets-bif" / "alarm.bif.gz"
    if path.exists():
        return "alarm network", load_tables(path), path
    return "random network of 37 nodes", random_network(37), None


def observations(model: Any, n_rows: int) -> dict[int, np.ndarray]:
    """States of the last few variables, in rows drawn from the network, so that none is impossible."""
    rng = np.random.default_rng(1)
    rows = np.zeros((n_rows, len(model.cards)), int)
    done: set[int] = set()
    while len(done) < len(model.cards):
        for v, scope in enumerate(model.scopes):
            if v not in done and done.issuperset(scope[:-1]):
                p = model.tables[v][tuple(rows[:, u] for u in scope[:-1])]
                p = np.broadcast_to(p, (n_rows, model.cards[v]))
                rows[:, v] = (p.cumsum(1) < rng.random((n_rows, 1))).sum(1).clip(max=model.cards[v] - 1)
                done.add(v)
    return {v: rows[:, v] for v in range(len(model.cards) - N_OBSERVED, len(model.cards))}


def _pgmpy(path: pathlib.Path, model: Any, observed: dict[int, np.ndarray]) -> Any:
    """A query of pgmpy for the marginals of all other variables, or None if it is not installed."""
    import gzip
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            from pgmpy.inference import VariableElimination
            from pgmpy.readwrite import BIFReader
        except ImportError:
            return None
        text = gzip.decompress(path.read_bytes()).decode()
        engine = VariableElimination(BIFReader(string=text).get_model())
    seen = {model.names[v]: model.states[v][int(rows[0])] for v, rows in observed.items()}
    others = [name for name in model.names if name not in seen]
    ask = lambda name: engine.query([name], evidence=seen, show_progress=False)
    return lambda: {name: ask(name) for name in others}


def _agree(model: Any) -> Any:
    def quality(ours: Any, theirs: Any) -> str:
        if theirs is None:
            return ""
        gaps = []
        for name, factor in theirs.items():
            v = model.names.index(name)
            order = [factor.state_names[name].index(state) for state in model.states[v]]
            gaps.append(np.abs(np.asarray(ours[name]) - factor.values[order]).max())
        return f"largest difference of a marginal {max(gaps):.1e}"

    return quality


def _in_a_fresh_process(path: pathlib.Path) -> float:
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_FIRST), str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return float(out.stdout)


def cases() -> list[Case]:
    from energax import posterior
    from energax.data._model_files import save_tables
    from energax.energies import BayesianNetwork

    name, model, path = alarm()
    net, observed = BayesianNetwork.from_tables(model), observations(model, N_ROWS)
    many = {model.names[v]: rows for v, rows in observed.items()}
    one = {key: int(rows[0]) for key, rows in many.items()}
    peer = _pgmpy(path, model, observed) if path else None
    large = pathlib.Path(tempfile.mkdtemp()) / "large.bif.gz"
    save_tables(random_network(N_LARGE), large)
    return [
        Case(
            f"{name}, evidence on {N_OBSERVED} nodes, all marginals, float64",
            lambda: posterior(net, one).marginals,
            peer,
            peer="pgmpy",
            target=1 / 20 if peer else 0.001,
            quality=_agree(model),
            repeats=25,
        ),
        Case(
            f"{name}, {N_ROWS} rows of such evidence, all marginals in one call, float64",
            lambda: posterior(net, many).marginals,
            target=0.020,
            repeats=25,
        ),
        Case(
            f"random network of {N_LARGE} nodes, file read, compiled and asked, fresh process without cache",
            lambda: _in_a_fresh_process(large),
            target=20.0,
            reported=True,
            repeats=3,
        ),
    ]
