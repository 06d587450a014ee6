"""The padded number of components, so that fits with different numbers of them share programs."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ..._util.sizes import component_size, pad_size
from ...missing import value_of

#: (energy, padded energy) of estimators that have been asked.
_PADDED: weakref.WeakKeyDictionary[Any, tuple[Any, Any]] = weakref.WeakKeyDictionary()
_FEW_ROWS = 4096


def padded_components(k: int, data: dict[str, Any], learner: Any, before: Any = None) -> int | None:
    """Return the number of components to learn k components with; None to learn exactly k.

    Args:
        k: the number of components.
        data: the validated rows.
        learner: the argument of the estimator; only the default, EM, ignores components of weight 0.
        before: the previous fit, if its statistics are continued: they have a number of components.
    """
    if learner is not None:
        return None
    reference = getattr(getattr(before, "state", None), "reference", None)
    if reference is not None:
        return reference.spaces["z"].k
    if before is not None:
        return None
    n, d = np.shape(value_of(data["x"]))
    return component_size(k, pad_size(n) * d)


def padded_energy(estimator: Any, X: np.ndarray) -> Any:
    """Return the fitted model for queries about X: padded if X is small, else the model itself."""
    energy, (n, d) = estimator.energy_, X.shape
    if n > _FEW_ROWS:
        return energy
    before = _PADDED.get(estimator)
    if before is None or before[0] is not energy:
        before = energy, energy.pad(component_size(energy.n_components, 2**10 * d))
        _PADDED[estimator] = before
    return before[1]
