"""Arrays whose last axis has named states."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput


class Labelled(np.ndarray):
    """Probabilities whose last axis may be indexed by the name of a state: `p["yes"]`.

    >>> p = Labelled.of(np.array([0.25, 0.75]), ("no", "yes"))
    >>> float(p["yes"]), float(p[0])
    (0.75, 0.25)
    """

    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: Any, labels: tuple[str, ...] | None) -> Any:
        """The values with these labels; without labels, states are named by their numbers."""
        out = np.asarray(values).view(cls)
        out.labels = tuple(map(str, range(out.shape[-1]))) if labels is None else labels
        return out

    def __array_finalize__(self, other: Any) -> None:
        # Labels are kept only if the last axis still has one entry per label.
        if isinstance(other, Labelled) and other.labels is not None:
            same = self.ndim > 0 and self.shape[-1] == len(other.labels)
            self.labels = other.labels if same else None

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, str):
            return super().__getitem__(index)
        if self.labels is None or index not in self.labels:
            raise BadInput("state", repr(index), f"one of {self.labels}")
        return np.asarray(self)[..., self.labels.index(index)]

    def __repr__(self) -> str:
        return repr(np.asarray(self))
