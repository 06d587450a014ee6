"""Settings of all tests and doctests: the compilation cache, and the memory of a worker."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The older code generator of XLA takes a third of the time to compile. Set XLA_FLAGS, empty or not, to test
# with the one that users have. XLA ends the process at a flag that it does not know, so only for versions
# that know this one.
if importlib.metadata.version("jaxlib").startswith(("0.9.", "0.10.")):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import jax  # noqa: E402
import pytest  # noqa: E402

from energax import programs  # noqa: E402

#: Memory maps and bytes of a worker above which it drops its programs.
_MOST_MAPS, _MOST_BYTES = 25_000, 1.5e9
_PROCESS = pathlib.Path("/proc/self")
#: Whether something was compiled since the memory maps were last counted.
_compiled = {"since": False}


def _note_compilation(event: str, _seconds: float, **_more: object) -> None:
    _compiled["since"] |= event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_note_compilation)


@pytest.fixture(autouse=True)
def bounded_memory():
    """Drop the programs of a worker when there are many. Doctests are not below `tests/`, so this is here."""
    yield
    if not _PROCESS.exists():
        return
    pages = int((_PROCESS / "statm").read_text().split()[1])
    # To count 15 000 maps takes 15 ms, and most tests compile nothing.
    maps = (_PROCESS / "maps").read_bytes().count(b"\n") if _compiled["since"] else 0
    _compiled["since"] = False
    if maps > _MOST_MAPS or pages * os.sysconf("SC_PAGE_SIZE") > _MOST_BYTES:
        programs.clear()
        jax.clear_caches()
        gc.collect()
        if hasattr(ctypes.CDLL(None), "malloc_trim"):  # glibc keeps freed memory otherwise
            ctypes.CDLL(None).malloc_trim(0)
