"""How much a class counts: scikit-learn's `class_weight`, as weights of rows."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ...errors import BadInput


def class_weights(
    class_weight: Any, classes: np.ndarray, index: np.ndarray, weight: np.ndarray | None
) -> np.ndarray:
    """What each class counts, (k,): "balanced" gives all the same share of the rows (by their weight).

    >>> class_weights("balanced", np.array(["a", "b"]), np.array([0, 0, 0, 1]), None)
    array([0.66666667, 2.        ])
    >>> class_weights({"b": 5}, np.array(["a", "b"]), np.array([0, 1]), None)
    array([1., 5.])
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        share = np.bincount(index, weight, minlength=len(classes))
        # A class that has no weight has no rows to give more to.
        return np.where(share > 0, share.sum() / (len(classes) * np.where(share > 0, share, 1)), 0.0)
    if not isinstance(class_weight, dict):
        raise BadInput(
            "class_weight", repr(class_weight), "None, 'balanced', or a dict from labels to numbers >= 0"
        )
    labels = {label: i for i, label in enumerate(classes.tolist())}
    found = np.ones(len(classes))
    for label, value in class_weight.items():
        if label not in labels:
            known = f"labels of y, {list(labels)[:20]}"
            raise BadInput("class_weight", f"the label {label!r}", known, "Labels that are left out count 1.")
        real = isinstance(value, Real) and not isinstance(value, bool)
        if not real or not 0 <= value < np.inf:
            raise BadInput("class_weight", f"{value!r} for the label {label!r}", "a finite number >= 0")
        found[labels[label]] = value
    return found


def check_not_balanced(class_weight: Any) -> None:
    """A pass sees some rows, and what is balanced is known of all."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise BadInput(
            "class_weight",
            "'balanced' in partial_fit, which sees only some of the rows",
            "a dict from labels to numbers",
            "Make it from all labels: sklearn.utils.class_weight.compute_class_weight('balanced', …).",
        )
