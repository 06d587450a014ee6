"""Paths that users give, and files that are written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import time
from pathlib import Path
from typing import Any

from ..errors import BadFile, BadInput

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_STALE = 3600.0  # seconds after which a temporary file is left over, on file systems without locks
_LONGEST_NAME = 200  # bytes of a name that fit into the name of a temporary file


def check_path(path: Any, argument: str = "path") -> Path:
    """Return the path; raise unless it is a str or a `Path` that can be the name of a file.

    >>> check_path("", "checkpoint")
    Traceback (most recent call last):
    energax.errors.BadInput: checkpoint: found an empty string; expected the path of a file.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str):
        raise BadInput(argument, type(path).__name__, "a path: a str or a pathlib.Path")
    if not text:
        raise BadInput(argument, "an empty string", "the path of a file")
    try:
        valid = b"\0" not in os.fsencode(text)
    except UnicodeError:
        valid = False
    if not valid:
        raise BadInput(argument, ascii(text[:80]), "a path without NUL and without single surrogates")
    return Path(text)


def shorten(path: Any) -> str:
    """Return the path for an error message, without the middle if it is very long."""
    text = str(path)
    return text if len(text) <= 300 else f"{text[:140]} … {text[-40:]}"


def check_readable(path: Any, argument: str = "path") -> Path:
    """Return the path; raise unless it is an existing file."""
    path = check_path(path, argument)
    found = _status(path)
    if found is None:
        folder = shorten(path.parent)
        where = f"it does not exist in {folder}" if path.parent.is_dir() else f"{folder} does not exist"
        raise BadFile(f"{shorten(path)}: no such file; {where}. Check the path.")
    _check_regular(path, found)
    return path


def check_writable(path: Any, argument: str = "path") -> Path:
    """Return the file to be written, of a link its target; raise if it cannot be written.

    Permissions are read from the mode too: for the superuser the system allows everything.
    """
    path = check_path(path, argument)
    target = Path(os.path.realpath(path))
    found = _status(target)
    if found is not None:
        _check_regular(path, found)
        if not found.st_mode & 0o222 or not os.access(target, os.W_OK):
            raise BadFile(
                f"{shorten(path)}: the file is read-only and was not replaced. "
                "Give another path, or allow writing to this file."
            )
    folder = next(p for p in target.parents if p.exists())  # folders that do not exist are created
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        reason = "no files can be created in it" if folder.is_dir() else "it is not a folder"
        raise BadFile(
            f"{shorten(path)}: cannot be written to {shorten(folder)}: {reason}. Give another path."
        )
    return target


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a file, None if it does not exist; other failures raise `BadFile`."""
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadFile(
            f"{shorten(path)}: not the path of a file ({error.strerror}). Check the path."
        ) from None


def _check_regular(path: Path, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise BadFile(f"{shorten(path)}: a folder, not a file. Add the name of a file to the path.")
    if not stat.S_ISREG(found.st_mode):
        raise BadFile(f"{shorten(path)}: a device, pipe or socket, not a regular file. Give another path.")


def write_atomically(path: Any, data: bytes, argument: str = "path") -> None:
    """Write a file: a reader, or a crash, sees the old file or the new one, never a partial one."""
    target = check_writable(path, argument)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(target)
        while not _write_and_replace(target, data):
            pass
    except OSError as error:
        raise BadFile(
            f"{shorten(path)}: could not be written ({error.strerror or error}). "
            "Check the path and the space on the disk, or give another path."
        ) from None


def _write_and_replace(target: Path, data: bytes) -> bool:
    """Write to a temporary file, then rename it; False if another process removed the temporary file."""
    temporary = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            # Until the lock is taken, another process that removes leftovers may remove this file.
            if _lock(file.fileno()) is False or os.fstat(file.fileno()).st_nlink == 0:
                return False
            if target.exists():
                os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if fcntl is None:
                file.close()  # Windows renames no open file
            os.replace(temporary, target)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files of `path` that killed processes left, but none that is being written.

    A process locks its temporary file while it writes, and the system removes the lock when the process ends.
    """
    temporary = re.compile(re.escape(_prefix(path)) + r"[0-9a-f]{8}\.part")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in entries:
            if temporary.fullmatch(entry.name):
                with contextlib.suppress(OSError):  # another process may have removed it
                    _remove_if_left_over(entry)


def _remove_if_left_over(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(found.st_mode):
        return
    old = time.time() - found.st_mtime > _STALE
    if fcntl is None:  # Windows has no such locks, and removes no open file
        if old:
            os.unlink(entry.path)
        return
    with open(entry.path, "rb+") as file:
        locked = _lock(file.fileno())
        if locked or (locked is None and old):
            os.unlink(entry.path)


def _lock(descriptor: int) -> bool | None:
    """Lock a file without waiting: False if another process has the lock, None if there are no locks."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # such as some network file systems
        return None
    return True


def _prefix(path: Path) -> str:
    """Return how the names of temporary files of `path` begin; of a long name a digest is used."""
    name = os.fsencode(path.name)
    short = path.name if len(name) <= _LONGEST_NAME else hashlib.sha256(name).hexdigest()
    return f".{short}."
