"""The number of threads of BLAS and LAPACK."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

import threadpoolctl

_lock = threading.Lock()
_running = 0
_limiter: Any = None


@functools.cache
def _libraries() -> Any:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@contextlib.contextmanager
def limit_blas(threads: int | None = None) -> Iterator[None]:
    """Let BLAS and LAPACK use so many threads, by default half of the cores; the outermost limit holds.

    The threads of OpenBLAS wait for each other in a loop, and for a core that another thread or process has.
    Measured with a Cholesky factor of n = 3000 on 2 cores: 0.21 s on one thread and 0.12 on two if nothing
    else runs; 0.6 s on one and 4.8 to 11.6 on two if other processes do. The limit is for the whole process;
    threads that enter it together share it.

    >>> with limit_blas():
    ...     pass
    """
    global _running, _limiter
    with _lock:
        if not _running:
            _limiter = _libraries().limit(limits=threads or max(1, (os.cpu_count() or 2) // 2))
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                _limiter.restore_original_limits()
