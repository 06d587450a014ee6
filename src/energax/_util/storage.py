"""Arrays and a JSON document in one safetensors file, written atomically.

Loading reads data and runs no code. The header has the name of the format, its version and a digest, so that
a truncated, altered, foreign or newer file raises an error that says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import time
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile

FORMAT, VERSION = "energax", 1
_STALE = 3600.0  # seconds after which a temporary file is left over from a killed process


def _digest(arrays: dict[str, np.ndarray], document: str) -> str:
    h = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        h.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        h.update(array.tobytes())
    return h.hexdigest()


def write(path: str | os.PathLike, arrays: dict[str, Any], document: dict[str, Any]) -> None:
    """Write atomically: a reader, or a crash, sees the old file or the new one, never a partial one."""
    from safetensors.numpy import save

    path = Path(path)
    plain = {k: np.array(v, order="C") for k, v in arrays.items()}
    text = json.dumps(document, sort_keys=True)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "document": text,
        "digest": _digest(plain, text),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(save(plain, metadata=header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove temporary files of `path` that killed processes left, but none that is being written."""
    temporary = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if not temporary.fullmatch(entry.name):
                continue
            with contextlib.suppress(OSError):  # another process may have removed it
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and time.time() - found.st_mtime > _STALE:
                    os.unlink(entry.path)


def read(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return (arrays, document); raise `BadFile` with the reason and a remedy."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise BadFile(f"{path}: no such file. Check the path.")
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise BadFile(
            f"{path}: truncated, or not a safetensors file ({error}). Save it again from the source."
        ) from None
    if header.get("format") != FORMAT:
        raise BadFile(f"{path}: a safetensors file that energax did not write.")
    version = header.get("version", "")
    if not version.isdigit() or int(version) > VERSION:
        raise BadFile(
            f"{path}: written in format version {version}; this energax reads up to {VERSION}. "
            "Update energax."
        )
    text = header.get("document", "")
    if header.get("digest") != _digest(arrays, text):
        raise BadFile(f"{path}: altered after saving (its contents do not match its digest).")
    return arrays, json.loads(text)
