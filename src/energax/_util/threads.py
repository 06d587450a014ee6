"""The number of threads of NumPy's matrix products."""

from __future__ import annotations

import functools
from typing import Any

import threadpoolctl


def one_blas_thread() -> Any:
    """A context in which NumPy's products use one thread.

    For products too small for two: OpenBLAS waits for its threads in a loop. Where other processes ran, that
    took 20 times as long as the product itself.
    """
    return _blas().limit(limits=1)


@functools.cache
def _blas() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")
