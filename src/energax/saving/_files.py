"""`save` and `load`."""

from __future__ import annotations

import os
from typing import Any

from .._util import storage
from .._util.files import check_path, shorten
from ..errors import BadFile, BadInput
from ._reader import Reader
from ._writer import Writer

_KIND = "object"


def save(obj: Any, path: str | os.PathLike) -> None:
    """Write an energy, a fit or an estimator to one file, atomically.

    Folders that do not exist are created, a link is followed, and a read-only file is not replaced.

    >>> import tempfile, energax
    >>> from energax.energies import RBM
    >>> path = tempfile.mkdtemp() + "/rbm.safetensors"
    >>> energax.save(RBM.random(3, 2, key=0), path)
    >>> energax.load(path).spaces
    {'x': Binary(3), 'z': Binary(2)}
    """
    path = check_path(path)
    writer = Writer()
    try:
        document = {"kind": _KIND, "root": writer.encode(obj, type(obj).__name__)}
        storage.write(path, writer.arrays, document)
    except RecursionError:
        expected = "an object nested less deeply, which does not contain itself"
        raise BadInput("obj", f"a {type(obj).__name__} nested too deeply", expected) from None


def load(path: str | os.PathLike, classes: Any = ()) -> Any:
    """Read a file written by `save`. Pass your own classes or functions in `classes=`."""
    classes = _as_tuple(classes)
    arrays, document = storage.read(path)
    if document.get("kind") != _KIND:
        kind = document.get("kind")
        raise BadFile(
            f"{shorten(path)}: contains a {str(kind)[:40]}, not a saved object. "
            "A checkpoint is read by fit(checkpoint=)."
        )
    try:
        return Reader(path, arrays, classes).decode(document["root"])
    except BadFile:
        raise
    except Exception as error:  # a forged document makes NumPy, JAX and spaces raise errors of many classes
        raise BadFile(
            f"{shorten(path)}: the file is inconsistent ({type(error).__name__}: {str(error)[:300]}). "
            "Load it with the energax that wrote it, or save it again."
        ) from None


def _as_tuple(classes: Any) -> tuple:
    """One class or function, or several, as a tuple; checked before the file is read."""
    classes = tuple(classes) if isinstance(classes, (tuple, list, set, frozenset)) else (classes,)
    for c in classes:
        if not (hasattr(c, "__module__") and hasattr(c, "__qualname__")):
            found = " ".join(repr(c).split())[:60]
            raise BadInput("classes", found, "a class or function, or a tuple of them")
    return classes
