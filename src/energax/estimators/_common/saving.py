"""Saving and pickling of estimators."""

from __future__ import annotations

import os
from typing import Any, Self

from sklearn.base import BaseEstimator

from ...errors import BadFile


class SaveLoadMixin(BaseEstimator):
    """The methods `save` and `load`, and pickling."""

    def save(self, path: str | os.PathLike) -> None:
        """Write this estimator, fitted or not, to a file (safetensors and JSON), atomically."""
        from ...saving import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike, classes: Any = ()) -> Self:
        """Return the estimator that `save` wrote.

        No code from the file is run, and a file that names an unknown class is rejected.

        Args:
            path: the file.
            classes: further classes, not of energax, that the file may contain.
        """
        from ...saving import load

        others = tuple(classes) if isinstance(classes, tuple | list) else (classes,)
        loaded = load(path, classes=(cls, *others))
        if not isinstance(loaded, cls):
            raise BadFile(
                f"{path}: holds {type(loaded).__name__}, not {cls.__name__}. Use energax.load(path)."
            )
        return loaded

    def __getstate__(self):
        from ...saving import pack_state

        return pack_state(super().__getstate__())

    def __setstate__(self, state):
        from ...saving import unpack_state

        super().__setstate__(unpack_state(state))
