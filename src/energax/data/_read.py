"""Files as tables: csv, npy, npz, parquet."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput
from ._csv import read_csv
from ._table import Table, from_frame


def read(path: str | os.PathLike, *, array: str | None = None) -> Table:
    """The numeric columns of a csv, tsv, npy, npz or parquet file (csv also gzipped).

    An empty cell, `NA` or `nan` is a missing value. A csv whose first line is all numbers has no
    header (unless they are 0, 1, 2 and so on, as pandas writes them); `notes` says how an ambiguous first
    line was read. An npz with several arrays needs `array=`, unless only one of them is a table or one is
    called `X`, `x` or `data`; `dropped` lists the other arrays.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("name,height\\nann,1.7\\nbob,\\n")
    >>> table = read(file)
    >>> table.columns, table.dropped, table.values.tolist()
    (('height',), (('name', 'not numeric'),), [[1.7], [nan]])
    """
    path, kind = Path(path).expanduser(), "data"
    try:
        kind = _kind(path)
        if array is not None and kind != "npz":
            raise BadInput("array", f"{array!r} for a {kind} file", "nothing: only npz files have names")
        return _READERS[kind](path, array)
    except (BadFile, BadInput):
        raise
    except PermissionError:
        raise BadFile(
            f"{path}: no permission to read this file. Change its permissions, or copy it."
        ) from None
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise BadFile(
            f"{path}: not UTF-8 text (byte 0x{byte:02x}; Latin-1, perhaps). Save it as UTF-8."
        ) from None
    except Exception as error:  # parsers raise anything on broken files
        reason = str(error).splitlines()[0].rstrip(". ") if str(error) else type(error).__name__
        raise BadFile(
            f"{path}: not a readable {kind} file ({reason}). Check that the file is complete."
        ) from None


def _kind(path: Path) -> str:
    """The key of the reader for this file; raises if there is none."""
    if re.match(r"[a-z][a-z0-9]+:/", str(path)):
        raise BadFile(f"{path}: this is an address. Download the file first.")
    if path.is_dir():
        raise BadFile(f"{path}: a folder, not a file.{_inside(path)}")
    if not path.is_file():
        raise BadFile(f"{path}: the file does not exist.{_nearby(path)}")
    kind = "".join(path.suffixes[-2:]).lower().removesuffix(".gz").rpartition(".")[2]
    if kind not in _READERS:
        sort = f"files ending in {path.suffix!r}" if path.suffix else "files whose name has no ending"
        raise BadFile(f"{path}: energax does not read {sort}. Convert it to one of {', '.join(_READERS)}.")
    if not path.stat().st_size:
        raise BadFile(f"{path}: the file is empty. Check that it was written.")
    return kind


def _inside(folder: Path) -> str:
    try:
        names = sorted(p.name for p in folder.iterdir() if p.is_file() and p.suffix[1:].lower() in _READERS)
    except OSError:
        names = []
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f" Name a file in it: {', '.join(names[:3])}{more}." if names else " Name a file."


def _nearby(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return " The folder does not exist either. Check the path."
    names = [p.name for p in folder.iterdir() if p.is_file()]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else " Check the path."


def _parquet(path: Path, _: Any) -> Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise BadFile(f"{path}: reading parquet needs pyarrow: pip install pyarrow.") from None
    return from_frame(frame, path.name)


def _npy(path: Path, _: Any) -> Table:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":  # np.load would report a pickle instead
            raise BadFile(f"{path}: not an npy file. Write it with numpy.save.")
    values = _load_unless_objects(lambda: np.load(path, allow_pickle=False))
    return _table(values, str(path), path.name)


def _load_unless_objects(load: Callable[[], np.ndarray]) -> np.ndarray | None:
    """The array, or None for an array of objects: unpickling it could run code."""
    try:
        return load()
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        return None


def _table(values: np.ndarray | None, where: str, source: str) -> Table:
    if values is None:
        raise BadFile(
            f"{where}: an array of Python objects, which energax does not load. "
            "Save numbers: array.astype(float)."
        )
    if values.ndim != 2:
        raise BadInput(
            where,
            f"a {values.ndim}-D array of shape {values.shape}",
            "a 2-D table: rows × columns",
            "Reshape it first: array.reshape(len(array), -1)." if values.ndim > 2 else "",
        )
    return Table.of(values, source)


def _npz(path: Path, array: str | None) -> Table:
    if not zipfile.is_zipfile(path):
        raise BadFile(f"{path}: truncated, or not an npz file. Save it again from the source.")
    with np.load(path, allow_pickle=False) as file:
        names, shapes = list(file.files), {}
        if not names:
            raise BadFile(f"{path}: it contains no array. Write one with numpy.savez(path, X=table).")
        open_array = lambda name: _load_unless_objects(lambda: file[name])
        if array is not None and array not in names:
            raise BadInput("array", repr(array), f"one of {', '.join(names)}")
        for name in names:
            shapes[name] = getattr(open_array(name), "shape", None)
        tables = [n for n in names if len(shapes[n] or ()) == 2]
        usual = [n for n in ("X", "x", "data") if n in tables]
        choice = array or (usual[0] if usual else tables[0] if len(tables) == 1 else None)
        if choice is None and len(names) == 1:
            choice = names[0]  # the only one, so that the error names it
        if choice is None:
            listed = ", ".join(f"{n} {'of objects' if s is None else s}" for n, s in shapes.items())
            which = "Choose one with array= (--array on the command line)." if tables else ""
            expected = "one table" if tables else "a 2-D table: rows × columns"
            raise BadInput(path.name, f"the arrays {listed}", expected, which)
        source = f"array {choice} of {path.name}"
        table = _table(open_array(choice), source, source)
    others = tuple((n, "other arrays in the file") for n in names if n != choice)
    return dataclasses.replace(table, dropped=(*table.dropped, *others))


_READERS: dict[str, Callable[[Path, str | None], Table]] = {
    "csv": read_csv,
    "tsv": read_csv,
    "txt": read_csv,
    "npz": _npz,
    "npy": _npy,
    "parquet": _parquet,
}
