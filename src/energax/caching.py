"""JAX's compilation cache on disk: a later process does not compile the same programs again.

`energax.estimators` and the command line turn it on. Its size is limited: a process that wrote to it removes
the least recently used entries when it ends. (JAX's own limit, `jax_compilation_cache_max_size`, needs
another package and reads the whole folder at every write: 100 ms with 2000 entries.)
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import platform
import sys
from pathlib import Path

_OFF = {"0", "off", "no", "none", "false"}
#: The most bytes of a cache, and how many are left when it had more. An entry has 15 kB on average.
MOST_BYTES = 500_000_000
KEPT_BYTES = 400_000_000


def default_cache() -> Path:
    """The default folder of the cache, by the conventions of the operating system.

    Each kind of processor has its own: computers may share a home folder but not machine code.
    """
    if "XDG_CACHE_HOME" in os.environ:
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        base = Path(os.environ["LOCALAPPDATA"])
    else:
        base = Path.home() / ".cache"
    return base / "energax" / "jax" / _processor()


def use_compilation_cache(folder: str | os.PathLike | None = None) -> Path | None:
    """Turn on JAX's persistent compilation cache, for programs of every size. Return its folder, or None.

    The first import of `energax.estimators` calls this, and so does the command line. `ENERGAX_CACHE=off`
    turns the cache off, `ENERGAX_CACHE=folder` moves it. Without `folder`, a cache that was set in
    `jax.config` or by `JAX_COMPILATION_CACHE_DIR` is not changed. Processes may share a folder.
    """
    import jax

    setting = os.environ.get("ENERGAX_CACHE", "")
    if setting.lower() in _OFF or not getattr(jax.config, "jax_enable_compilation_cache", True):
        return None
    current = getattr(jax.config, "jax_compilation_cache_dir", None)
    if folder is None and current:
        return Path(current)
    try:
        chosen = Path(folder or setting or default_cache())
        chosen.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # a read-only home, or none: work without a cache
        return None
    if not os.access(chosen, os.R_OK | os.W_OK | os.X_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    # Cache small programs too: a fit of a small model compiles many.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    atexit.register(_trim_if_changed, chosen, _changed(chosen))
    return chosen


def _changed(folder: Path) -> int:
    """The time at which an entry was last added or removed; 0 if the folder is gone."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _trim_if_changed(folder: Path, since: int) -> None:
    if _changed(folder) != since:
        trim(folder)


def trim(folder: str | os.PathLike[str], most: int = MOST_BYTES, kept: int = KEPT_BYTES) -> None:
    """Remove the least recently used files of a folder with more than `most` bytes, until `kept` are left.

    Other processes may write and remove files meanwhile. One that reads a removed entry compiles it again.
    """
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if entry.is_file(follow_symlinks=False):
                    # Many systems record the first read of a day only.
                    found.append((max(about.st_atime, about.st_mtime), about.st_size, entry.path))
    size = sum(n for _, n, _ in found)
    if size <= most:
        return
    for _, n, path in sorted(found):
        if size <= kept:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        size -= n


def _processor() -> str:
    """A short name of the instructions of this processor: the architecture and a hash of its features."""
    features = ""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return f"{platform.machine()}-{hashlib.sha256(features.encode()).hexdigest()[:8]}"
