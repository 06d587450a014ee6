"""Small data sets that come with scikit-learn."""

from __future__ import annotations

import numpy as np

from ._table import Table


def digits(*, binary: bool = True) -> Table:
    """scikit-learn's handwritten digits, 1797 rows of 8 × 8 pixels.

    Grey values are divided by 16; `binary` pixels are 1 where that is above one half.

    >>> digits()
    Table(1797 rows × 64 columns)
    """
    from sklearn.datasets import load_digits

    grey = (load_digits().data / 16).astype(np.float32)
    names = tuple(f"pixel_{i}_{j}" for i in range(8) for j in range(8))
    if binary:
        return Table((grey > 0.5).astype(np.float32), names, "scikit-learn's digits, a pixel on where > 0.5")
    return Table(grey, names, "scikit-learn's digits in grey, divided by 16")
