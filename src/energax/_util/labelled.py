"""Arrays of probabilities of named states, and of the states themselves."""

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


class States(np.ndarray):
    """Numbers of states that have names: `z == "yes"`, `z.names`. It computes as an array of integers.

    >>> z = States.of(np.array([0, 1, 1]), ("no", "yes"))
    >>> z, z == "yes", z.names.tolist()
    (States(['no', 'yes', 'yes']), array([False,  True,  True]), ['no', 'yes', 'yes'])
    """

    labels: tuple[str, ...] | None = None

    @classmethod
    def of(cls, values: Any, labels: tuple[str, ...] | None) -> Any:
        """The values with these names of states; without names, the values as they are."""
        if labels is None:
            return values
        out = np.asarray(values).view(cls)
        out.labels = labels
        return out

    def __array_finalize__(self, other: Any) -> None:
        self.labels = getattr(other, "labels", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Results of arithmetic are plain arrays; comparisons take names."""
        plain = [self._number(a) if isinstance(a, str) else a for a in inputs]
        plain = [np.asarray(a) if isinstance(a, States) else a for a in plain]
        return getattr(ufunc, method)(*plain, **keywords)

    def __eq__(self, other: Any) -> Any:
        return np.asarray(self) == (self._number(other) if isinstance(other, str) else np.asarray(other))

    def __ne__(self, other: Any) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def _number(self, label: str) -> int:
        if self.labels is None or label not in self.labels:
            raise BadInput("state", repr(label), f"one of {self.labels}")
        return self.labels.index(label)

    @property
    def names(self) -> Any:
        """The names of the states, an array of the same shape; of one state, its name."""
        if self.labels is None:
            raise BadInput("names", "numbers without names", "states of a variable with labels")
        found = np.array(self.labels, object)[np.asarray(self)]
        return found if self.ndim else str(found)

    def __repr__(self) -> str:
        if self.labels is None:
            return repr(np.asarray(self))
        return f"States({self.names.tolist()!r})" if self.ndim else f"States({self.names!r})"

    __str__ = __repr__
