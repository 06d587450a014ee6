"""Files into tables: csv, npy, npz, parquet."""

from __future__ import annotations

import dataclasses
import difflib
import gzip
import itertools
import os
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput
from ._table import Table, from_frame


def read(path: str | os.PathLike, *, array: str | None = None) -> Table:
    """The numeric columns of a csv, tsv, npy, npz or parquet file (csv also gzipped).

    An empty cell, `NA` or `nan` is a missing value. A csv whose first line is all numbers has no
    header. An npz with several arrays needs `array=`, unless only one of them is a table or one
    is called `X`, `x` or `data`; the arrays that were not taken stand in `dropped`.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("name,height\\nann,1.7\\nbob,\\n")
    >>> table = read(file)
    >>> table.columns, table.dropped, table.values.tolist()
    (('height',), (('name', 'not numeric'),), [[1.7], [nan]])
    """
    path = Path(path)
    if path.is_dir():
        raise BadFile(f"{path}: a folder, not a file.{_inside(path)}")
    if not path.is_file():
        raise BadFile(f"{path}: there is no such file.{_nearby(path)}")
    kind = "".join(path.suffixes[-2:]).lower().removesuffix(".gz").rpartition(".")[2]
    reader = _READERS.get(kind)
    if reader is None:
        raise BadFile(
            f"{path}: energax does not read files ending in {path.suffix or 'nothing'!r}. "
            f"Convert it to one of {', '.join(_READERS)}."
        )
    if array is not None and kind != "npz":
        raise BadInput("array", f"{array!r} for a {kind} file", "nothing: only npz files have names")
    try:
        return reader(path, array)
    except (BadFile, BadInput):
        raise
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise BadFile(
            f"{path}: not UTF-8 text (byte 0x{byte:02x}; Latin-1, perhaps). Save it as UTF-8."
        ) from None
    except Exception as error:  # whatever a broken file does to its parser
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadFile(f"{path}: not a readable {kind} file ({reason}). Check that it is whole.") from None


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
        return " Nor is there such a folder. Check the path."
    names = [p.name for p in folder.iterdir() if p.is_file()]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else " Check the path."


def _csv(path: Path, _: Any) -> Table:
    import pandas as pd

    separator: str | None = "\t" if ".tsv" in path.suffixes else _separator(path)
    frame = pd.read_csv(path, sep=separator)
    if frame.shape[1] == 1 and any(c in str(frame.columns[0]) for c in ";\t| "):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = pd.read_csv(path, sep=None, engine="python")
        separator = None
    if len(frame) and all(_is_number(c) for c in frame.columns):
        engine: Any = "python" if separator is None else None
        frame = pd.read_csv(path, sep=separator, engine=engine, header=None, names=None)
        frame.columns = [f"x{i}" for i in range(frame.shape[1])]
    if not len(frame):
        raise BadFile(f"{path}: no rows below the header. Check that it is whole.")
    if _shifted(frame.index):
        raise BadFile(
            f"{path}: its rows have {frame.index.nlevels} more cells than the header has names. "
            "Name every column; write numbers with decimal points, not commas."
        )
    return from_frame(frame, path.name)


def _shifted(index: Any) -> bool:
    """Whether cells without a name were numbers, not the names of the rows or their count.

    pandas takes what is too much on the left for row names: 1,5 under one name would be read as 5.
    """
    if index.nlevels > 1 or index.dtype.kind not in "iuf":
        return index.nlevels > 1
    return list(index - index[0]) != list(range(len(index))) or index[0] not in (0, 1)


def _separator(path: Path) -> str:
    """A comma, unless the first lines all hold the same number of semicolons or tabs.

    To be known before reading: where numbers have decimal commas, commas would cut them in two.
    """
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        lines = [re.sub('"[^"]*"', "", line) for line in itertools.islice(file, 5) if line.strip()]
    for sign in ";\t":
        counts = {line.count(sign) for line in lines}
        if len(counts) == 1 and counts != {0}:
            return sign
    return ","


def _is_number(text: Any) -> bool:
    text = str(text)
    try:  # pandas tells a second 1.5 in the header from the first by calling it 1.5.1
        float(text.rpartition(".")[0] if text.count(".") > 1 else text)
    except ValueError:
        return False
    return True


def _parquet(path: Path, _: Any) -> Table:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
    except ImportError:
        raise BadFile(f"{path}: reading parquet needs pyarrow: pip install pyarrow.") from None
    return from_frame(frame, path.name)


def _npy(path: Path, _: Any) -> Table:
    values = _unless_objects(lambda: np.load(path, allow_pickle=False))
    return _table(values, str(path), path.name)


def _unless_objects(load: Callable[[], np.ndarray]) -> np.ndarray | None:
    """The array, or None for one of objects: those would have to be unpickled, which may run code."""
    try:
        return load()
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        return None


def _table(values: np.ndarray | None, where: str, source: str) -> Table:
    if values is None:
        raise BadFile(
            f"{where}: an array of Python objects, which energax never opens. "
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
        opened = lambda name: _unless_objects(lambda: file[name])
        if array is not None and array not in names:
            raise BadInput("array", repr(array), f"one of {', '.join(names)}")
        for name in names:
            shapes[name] = getattr(opened(name), "shape", None)
        tables = [n for n in names if len(shapes[n] or ()) == 2]
        usual = [n for n in ("X", "x", "data") if n in tables]
        choice = array or (usual[0] if usual else tables[0] if len(tables) == 1 else None)
        if choice is None and len(names) == 1:
            choice = names[0]  # the only one there is, to say what is wrong with it
        if choice is None:
            listed = ", ".join(f"{n} {'of objects' if s is None else s}" for n, s in shapes.items())
            which = "Say which with array= (--array on the command line)." if tables else ""
            expected = "one table" if tables else "a 2-D table: rows × columns"
            raise BadInput(path.name, f"the arrays {listed}", expected, which)
        source = f"array {choice} of {path.name}"
        table = _table(opened(choice), source, source)
    others = tuple((n, "other arrays in the file") for n in names if n != choice)
    return dataclasses.replace(table, dropped=(*table.dropped, *others))


_READERS = {"csv": _csv, "tsv": _csv, "txt": _csv, "npz": _npz, "npy": _npy, "parquet": _parquet}
