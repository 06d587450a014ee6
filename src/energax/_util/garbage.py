"""A pause of Python's garbage collector."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses = 0
_was_enabled = False


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Do not search for garbage inside of a `with` block.

    Tracing makes tens of thousands of objects, which start a search through all objects of the process. With
    JAX and scikit-learn loaded that takes 0.1 s, as long as the rest of a small fit, and finds nothing.
    Several threads may be inside; the collector goes on when the last one leaves, if it was on before.

    >>> with pause_garbage_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    global _pauses, _was_enabled
    with _lock:
        if _pauses == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _lock:
            _pauses -= 1
            if _pauses == 0 and _was_enabled:
                gc.enable()
