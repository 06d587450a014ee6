"""Early stopping under scikit-learn's argument names."""

from __future__ import annotations

from typing import Any

from ...errors import BadInput


def early_stopping_options(estimator: Any, n_rows: int) -> dict[str, Any]:
    """Return `early_stopping`, `validation_fraction` and `n_iter_no_change` as options of `fit`.

    Args:
        estimator: the estimator with these arguments.
        n_rows: the number of rows of positive weight.
    """
    fraction, patience = estimator.validation_fraction, estimator.n_iter_no_change
    if not estimator.early_stopping:
        return {}
    n_held_out = n_validation_rows(fraction, n_rows)
    if n_held_out >= n_rows:
        raise BadInput(
            "validation_fraction",
            f"{fraction!r}, which holds out {n_held_out} of {n_rows} rows of positive weight",
            "at least one row left for training",
            "Lower it, or set early_stopping=False.",
        )
    return {"validation": float(fraction), "patience": int(patience)}


def n_validation_rows(fraction: float, n_rows: int) -> int:
    """The number of rows that `fit` holds out for validation."""
    return max(1, round(float(fraction) * n_rows))
