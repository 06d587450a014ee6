"""Draws on disk while chains run, and a bar that shows how far they are."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadInput, describe
from ._draws import Draws

_DOCUMENT, _DRAWS, _INFO = "draws.json", "draws", "info"


class DrawsWriter:
    """Writes the draws of chains to a folder, block by block, one `.npy` file per variable.

    Args:
        path: a new or empty folder.
        n_chains: the number of chains.
        n_draws: draws per chain.
        n: all draws that were asked for.
        method: the name of the sampler.
        caveat: a known bias of the draws.
    """

    def __init__(self, path: Any, n_chains: int, n_draws: int, n: int, method: str, caveat: str):
        self.path = _new_folder(path)
        self.n_chains, self.n_draws, self.n = n_chains, n_draws, n
        self.method, self.caveat = method, caveat
        self._files: dict[tuple[str, str], np.ndarray] = {}
        self._done = 0

    def add(self, block: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Write a block of (draws, info), arrays (1, n_chains, block, …) by name."""
        end = self._done
        for kind, arrays in zip((_DRAWS, _INFO), block, strict=True):
            for name, value in arrays.items():
                value = value[0, :, : self.n_draws - self._done]
                end = self._done + value.shape[1]
                self._file(kind, name, value)[:, self._done : end] = value
        self._done = end

    def _file(self, kind: str, name: str, value: np.ndarray) -> np.ndarray:
        if (kind, name) not in self._files:
            number = sum(k == kind for k, _ in self._files)
            shape = (self.n_chains, self.n_draws, *value.shape[2:])
            file = self.path / f"{kind}_{number}.npy"
            self._files[kind, name] = np.lib.format.open_memmap(file, "w+", value.dtype, shape)
        return self._files[kind, name]

    def finish(self, fixed: dict[str, Any]) -> Draws:
        """Write the names of the files, and return the draws, read from disk."""
        names = {kind: [n for k, n in self._files if k == kind] for kind in (_DRAWS, _INFO)}
        for file in self._files.values():
            file.flush()  # type: ignore[attr-defined]
        document = {"n": self.n, "method": self.method, "caveat": self.caveat, **names}
        (self.path / _DOCUMENT).write_text(json.dumps(document))
        return read_draws(self.path, fixed)


def read_draws(path: Any, fixed: dict[str, Any] | None = None) -> Draws:
    """Return the draws that `sample(..., path=...)` wrote to a folder; they stay on disk until they are read.

    >>> read_draws("no such folder")
    Traceback (most recent call last):
    energax.errors.BadInput: path: found 'no such folder' without draws.json; expected a folder of draws. ...
    """
    try:
        folder = Path(path)
    except (TypeError, ValueError):
        raise BadInput("path", describe(path), "a folder of draws") from None
    if not (folder / _DOCUMENT).is_file():
        found = f"{str(path)!r} without {_DOCUMENT}"
        raise BadInput(
            "path", found, "a folder of draws", "It is written at the end of sample(..., path=...)."
        )
    try:
        document = json.loads((folder / _DOCUMENT).read_text())
        read = lambda kind: {
            name: np.load(folder / f"{kind}_{i}.npy", mmap_mode="r", allow_pickle=False)
            for i, name in enumerate(document[kind])
        }
        chains, info = read(_DRAWS), read(_INFO)
        n, method, caveat = int(document["n"]), str(document["method"]), str(document["caveat"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput("path", f"a damaged folder ({error})", "a folder that sample wrote") from error
    return Draws(chains, method=method, caveat=caveat, info=info, fixed=fixed, n=n)


def _new_folder(path: Any) -> Path:
    """Return the folder, made if needed; raise if it has files."""
    try:
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        has_files = any(folder.iterdir())
    except (TypeError, ValueError, OSError) as error:
        raise BadInput("path", f"{path!r:.80} ({error})", "a folder that can be written") from error
    if has_files:
        raise BadInput("path", f"{str(path)!r} with files in it", "a new or an empty folder")
    return folder


@contextlib.contextmanager
def show_progress(label: str, total: int, visible: bool) -> Iterator[Callable[[int], None]]:
    """Give a function that shows how many of the draws are done, as a bar if it is visible."""
    if not visible:
        yield lambda done: None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn()) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
