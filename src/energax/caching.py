"""JAX's compilation cache on disk: a later process does not compile the same programs again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OFF = {"0", "off", "no", "none", "false"}


def default_cache() -> Path:
    """The default folder of the cache, by the conventions of the operating system."""
    if "XDG_CACHE_HOME" in os.environ:
        base = Path(os.environ["XDG_CACHE_HOME"])
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32" and "LOCALAPPDATA" in os.environ:
        base = Path(os.environ["LOCALAPPDATA"])
    else:
        base = Path.home() / ".cache"
    return base / "energax" / "jax"


def use_compilation_cache(folder: str | os.PathLike | None = None) -> Path | None:
    """Turn on JAX's persistent compilation cache, for programs of every size. Return its folder, or None.

    The command line calls this; the library does not. Call it once, before the first fit.
    `ENERGAX_CACHE=off` turns the cache off, `ENERGAX_CACHE=folder` moves it; a cache that was set by
    `JAX_COMPILATION_CACHE_DIR` is not changed.
    """
    import jax

    setting = os.environ.get("ENERGAX_CACHE", "")
    if setting.lower() in _OFF:
        return None
    current = getattr(jax.config, "jax_compilation_cache_dir", None)
    if folder is None and current:
        return Path(current)
    chosen = Path(folder or setting or default_cache())
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError:  # for example a read-only home: work without a cache
        return None
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    # Cache small programs too: a fit of a small model compiles many.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return chosen
