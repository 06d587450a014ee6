"""The programs of the library: the least recently used are freed when there are too many.

A compiled program holds memory maps, about three for every kernel. Linux allows a process 65 530 of them by
default, and XLA crashes without any left.
"""

from __future__ import annotations

import pathlib
import threading
from collections import OrderedDict
from typing import Any

#: The most programs, and the most memory maps of compiled ones.
MOST_PROGRAMS = 256
MOST_MAPS = 10_000

_programs: OrderedDict[Any, Any] = OrderedDict()
_lock = threading.RLock()
_MAPS = pathlib.Path("/proc/self/maps")


def find(key: Any) -> Any:
    """Return the program of a key, or None."""
    with _lock:
        program = _programs.get(key)
        if program is not None:
            _programs.move_to_end(key)
        return program


def insert(key: Any, program: Any) -> Any:
    """Keep a program unless there is one of this key, and return that of the key; free old ones.

    Threads that call a function at the same time so share one trace and one compilation.
    """
    with _lock:
        program = _programs.setdefault(key, program)
    trim()
    return program


def trim() -> None:
    """Free the least recently used programs until the limits hold."""
    with _lock:
        while len(_programs) > MOST_PROGRAMS:
            _programs.popitem(last=False)
        maps = sum(program.maps for program in _programs.values())
        for key in list(_programs)[:-1]:
            if maps <= MOST_MAPS:
                break
            if _programs[key].maps:
                maps -= _programs.pop(key).maps


def clear() -> None:
    """Free all programs."""
    with _lock:
        _programs.clear()


def forget_calls() -> None:
    """Choose engines as if no program had been called, except those that are compiled or were too long."""
    with _lock:
        for program in _programs.values():
            program.forget_calls()


def memory_maps() -> int:
    """The memory maps of this process; 0 where the system does not tell."""
    try:
        return _MAPS.read_bytes().count(b"\n")
    except OSError:
        return 0
