"""Compiled programs kept on disk, so that the next process need not compile them again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OFF = {"0", "off", "no", "none", "false"}


def default_cache() -> Path:
    """Where caches of this user belong on this system."""
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
    """Turn JAX's persistent compilation cache on, for programs of every size. → its folder.

    The library never does this by itself: call it once, before the first fit. The command line
    does. `ENERGAX_CACHE=off` turns it off, `ENERGAX_CACHE=folder` moves it; a cache that was
    set up through `JAX_COMPILATION_CACHE_DIR` is left as it is.
    """
    import jax

    wish = os.environ.get("ENERGAX_CACHE", "")
    if wish.lower() in _OFF:
        return None
    already = getattr(jax.config, "jax_compilation_cache_dir", None)
    if folder is None and already:
        return Path(already)
    chosen = Path(folder or wish or default_cache())
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError:  # a read-only home is no reason to fail
        return None
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    # Small programs too: a fit of a small model is many of them.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return chosen
