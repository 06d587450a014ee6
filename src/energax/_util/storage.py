"""Arrays and a JSON document in one safetensors file, written atomically.

Loading reads data and runs no code. The header has the name of the format, its version and a digest, so that
a truncated, altered, foreign or newer file raises an error that says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput
from .files import check_path, check_readable, shorten, write_atomically

FORMAT, VERSION = "energax", 1


def _digest(arrays: dict[str, np.ndarray], document: str) -> str:
    h = hashlib.sha256(document.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        h.update(f"{name}:{array.dtype.str}:{array.shape}".encode())
        h.update(array.tobytes())
    return h.hexdigest()


def write(
    path: str | os.PathLike, arrays: dict[str, Any], document: dict[str, Any], argument: str = "path"
) -> None:
    """Write atomically; a link is followed, a read-only file raises. `argument` is named in errors."""
    from safetensors import SafetensorError
    from safetensors.numpy import save

    path = check_path(path, argument)
    plain = {k: np.array(v, order="C") for k, v in arrays.items()}
    text = json.dumps(document, sort_keys=True)
    header = {
        "format": FORMAT,
        "version": str(VERSION),
        "document": text,
        "digest": _digest(plain, text),
    }
    try:
        data = save(plain, metadata=header)
    except SafetensorError as error:  # a header of more than 100 MB, which could not be read
        found = f"an object that safetensors cannot hold ({error}): {len(text)} characters besides its arrays"
        raise BadInput(argument, found, "at most about 100 million", "Save its parts separately.") from None
    write_atomically(path, data, argument)


def read(path: str | os.PathLike, argument: str = "path") -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return (arrays, document); raise `BadFile` with the reason and a remedy.

    The arrays of a file take as much memory as the file: safetensors compares the sizes that a header
    claims with the size of the file before it reads them, and rejects headers of more than 100 MB.
    """
    from safetensors import safe_open

    path = check_readable(path, argument)
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            _check_header(path, header)  # before the arrays of a foreign file are read
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except BadFile:
        raise
    except Exception as error:  # of a forged header NumPy raises errors of many classes
        raise BadFile(
            f"{shorten(path)}: truncated, or not a safetensors file ({error}). Save it again from the source."
        ) from None
    text = header.get("document", "")
    if header.get("digest") != _digest(arrays, text):
        raise BadFile(f"{shorten(path)}: altered after saving (its contents do not match its digest).")
    return arrays, _parse(path, text)


def _check_header(path: Any, header: dict[str, str]) -> None:
    if header.get("format") != FORMAT:
        raise BadFile(f"{shorten(path)}: a safetensors file that energax did not write.")
    version = header.get("version", "")
    if not re.fullmatch("[0-9]{1,9}", version) or int(version) > VERSION:
        raise BadFile(
            f"{shorten(path)}: written in format version {version[:20]}; this energax reads up to {VERSION}. "
            "Update energax."
        )


def _parse(path: Any, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        reason = f"{type(error).__name__}: {error}"
    else:
        if isinstance(document, dict):
            return document
        reason = f"it is a {type(document).__name__}, not a dict"
    raise BadFile(f"{shorten(path)}: its document is damaged ({reason}). Save it again from the source.")
