"""Kernels of estimators: an object of `energax.kernels`, or a name with scikit-learn's arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import BadInput
from ...kernels import RBF, Kernel, Linear, Polynomial
from .settings import Setting, instance, one_of

KERNEL_OR_NAME: Setting = one_of("linear", "rbf", "poly", "polynomial") | instance(
    Kernel, "a kernel of energax.kernels"
)


def named_kernel(kernel: Any, n_features: int, *, gamma: Any, degree: int, coef0: float) -> Kernel:
    """Return a kernel as it is, and a name as a kernel: linear, rbf exp(−γ‖x − y‖²), poly (γxᵀy + c)^p.

    Args:
        kernel: a `Kernel`, or a name.
        n_features: the number of columns.
        gamma: γ > 0; None for 1 / n_features.
        degree, coef0: p and c.

    >>> named_kernel("rbf", 2, gamma=None, degree=3, coef0=1.0)(0.0, 1.0) == RBF(1.0)(0.0, 1.0)
    Array(True, dtype=bool)
    """
    if isinstance(kernel, Kernel):
        if kernel.n_dims not in (None, n_features):
            found = f"{kernel.n_dims} length scales"
            raise BadInput("kernel", found, f"one, or one for each of the {n_features} columns of X")
        return kernel
    gamma = 1.0 / n_features if gamma is None else float(gamma)
    if kernel == "linear":
        return Linear()
    if kernel == "rbf":
        return RBF(np.sqrt(0.5 / gamma))
    return Polynomial(int(degree), gamma, float(coef0))
