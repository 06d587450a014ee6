"""`save` and `load`."""

from __future__ import annotations

import os
from typing import Any

from .._util import storage
from ..errors import BadFile, BadInput
from ._reader import Reader
from ._writer import Writer

_KIND = "object"


def save(obj: Any, path: str | os.PathLike) -> None:
    """Write an energy, a fit or an estimator to one file, atomically.

    >>> import tempfile, energax
    >>> from energax.energies import RBM
    >>> path = tempfile.mkdtemp() + "/rbm.safetensors"
    >>> energax.save(RBM.random(3, 2, key=0), path)
    >>> energax.load(path).spaces
    {'x': Binary(3), 'z': Binary(2)}
    """
    writer = Writer()
    document = {"kind": _KIND, "root": writer.encode(obj, type(obj).__name__)}
    storage.write(path, writer.arrays, document)


def load(path: str | os.PathLike, classes: Any = ()) -> Any:
    """Read a file written by `save`. Pass your own classes or functions in `classes=`."""
    classes = _as_tuple(classes)
    arrays, document = storage.read(path)
    if document.get("kind") != _KIND:
        kind = document.get("kind")
        raise BadFile(
            f"{path}: contains a {kind}, not a saved object. A checkpoint is read by fit(checkpoint=)."
        )
    try:
        return Reader(path, arrays, classes).decode(document["root"])
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadFile(
            f"{path}: the file is inconsistent ({type(error).__name__}: {error}). "
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
