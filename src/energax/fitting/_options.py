"""Checkpoints, devices, progress and callbacks for all fits in a context, such as those of an estimator."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .._util.files import check_path
from ..errors import BadInput
from ._checkpoint import Checkpoint


@dataclasses.dataclass
class _Options:
    """The options of a context, and how many of its fits have begun."""

    checkpoints: Path | None
    every: int
    mesh: Any
    progress: Any
    callbacks: tuple[Callable[[dict[str, Any]], Any], ...]
    n_fits: int = 0

    def next_checkpoint(self) -> Checkpoint | None:
        """Return the file of the next fit."""
        if self.checkpoints is None:
            return None
        number, self.n_fits = self.n_fits, self.n_fits + 1
        return Checkpoint(self.checkpoints / f"fit-{number}.safetensors", self.every)


_CURRENT: contextvars.ContextVar[_Options | None] = contextvars.ContextVar("fit_options", default=None)


@contextlib.contextmanager
def fit_options(
    *,
    checkpoints: str | os.PathLike | None = None,
    every: int = 1,
    mesh: Any = None,
    progress: bool = False,
    callbacks: Iterable[Callable[[dict[str, Any]], Any]] = (),
) -> Iterator[None]:
    """Give these arguments to all calls of `fit` within the context, also to those inside of estimators.

    Args:
        checkpoints: a folder. The fits in the context have the files fit-0, fit-1, … there, in the order in
            which they begin. The same code, run again after it was stopped, continues where it was: fits
            that had ended are read, and the last one resumes, bit for bit. Estimators need an int as
            `random_state` for it.
        every: epochs between two checkpoints.
        mesh, progress, callbacks: as those of `fit`. An argument of a call of `fit` itself has priority;
            callbacks are called in addition.

    >>> import tempfile
    >>> import numpy as np
    >>> from energax.estimators import BernoulliRBM
    >>> X, seen = np.eye(4)[[0, 1, 2, 3] * 5], []
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fit_options(checkpoints=folder, callbacks=[lambda info: seen.append(info["epoch"])]):
    ...         rbm = BernoulliRBM(2, n_iter=3, random_state=0).fit(X)
    ...     sorted(os.listdir(folder)), seen
    (['fit-0.safetensors'], [1, 2, 3])
    """
    if checkpoints is not None:
        check_path(checkpoints, "checkpoints")
        if Path(checkpoints).is_file():
            raise BadInput(
                "checkpoints", f"the file {str(checkpoints)!r}", "a folder, which may not exist yet"
            )
    if not isinstance(every, int) or isinstance(every, bool) or every < 1:
        raise BadInput("every", repr(every), "a whole number >= 1")
    folder = None if checkpoints is None else Path(checkpoints)
    token = _CURRENT.set(_Options(folder, every, mesh, progress, tuple(callbacks)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def with_fit_options(checkpoint: Any, mesh: Any, progress: Any, callbacks: Any) -> tuple[Any, Any, Any, Any]:
    """Return these arguments of `fit`, those of the context where a call has none."""
    options = _CURRENT.get()
    if options is None:
        return checkpoint, mesh, progress, callbacks
    checkpoint = options.next_checkpoint() if checkpoint is None else checkpoint
    mesh = options.mesh if mesh is None else mesh
    if options.callbacks and isinstance(callbacks, Iterable):
        callbacks = (*callbacks, *options.callbacks)
    return checkpoint, mesh, progress or options.progress, callbacks
