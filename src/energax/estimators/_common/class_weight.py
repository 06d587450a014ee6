"""scikit-learn's `class_weight` as weights of classes."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from ...errors import BadInput


def class_weights(
    class_weight: Any, classes: np.ndarray, index: np.ndarray, weight: np.ndarray | None
) -> np.ndarray:
    """Return the weight of each class, (k,).

    Args:
        class_weight: "balanced", for the same total weight in each class, or a dict from labels to weights.
        classes: the labels, (k,).
        index: the class of every row, as an index into `classes`.
        weight: the weights of the rows; None is 1 each.

    >>> class_weights("balanced", np.array(["a", "b"]), np.array([0, 0, 0, 1]), None)
    array([0.66666667, 2.        ])
    >>> class_weights({"b": 5}, np.array(["a", "b"]), np.array([0, 1]), None)
    array([1., 5.])
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        total = np.bincount(index, weight, minlength=len(classes))
        # A class without weight has no rows to give more weight to.
        return np.where(total > 0, total.sum() / (len(classes) * np.where(total > 0, total, 1)), 0.0)
    labels = {label: i for i, label in enumerate(classes.tolist())}
    weights = np.ones(len(classes))
    for label, value in class_weight.items():
        if label not in labels:
            expected = f"labels of y, {list(labels)[:20]}"
            raise BadInput(
                "class_weight", f"the label {label!r}", expected, "Labels that are left out have weight 1."
            )
        real = isinstance(value, Real) and not isinstance(value, bool)
        if not real or not 0 <= value < np.inf:
            raise BadInput("class_weight", f"{value!r} for the label {label!r}", "a finite number >= 0")
        weights[labels[label]] = value
    return weights


def check_not_balanced(class_weight: Any) -> None:
    """Raise if `class_weight` is "balanced" in `partial_fit`, which does not see all labels."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        raise BadInput(
            "class_weight",
            "'balanced' in partial_fit, which sees only some of the rows",
            "a dict from labels to numbers",
            "Compute it from all labels: sklearn.utils.class_weight.compute_class_weight('balanced', …).",
        )
