"""Files into tables: csv, npy, npz, parquet."""

from __future__ import annotations

import difflib
import os
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BadFile, BadInput
from ._table import Table, from_frame


def read(path: str | os.PathLike, *, array: str | None = None) -> Table:
    """The numeric columns of a csv, tsv, npy, npz or parquet file (csv also gzipped).

    An empty cell, `NA` or `nan` is a missing value. A csv whose first line is all numbers has no
    header. An npz with several arrays needs `array=`, unless only one of them is a table or one
    is called `X`, `x` or `data`.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = file.write_text("name,height\\nann,1.7\\nbob,\\n")
    >>> table = read(file)
    >>> table.columns, table.dropped, table.values.tolist()
    (('height',), (('name', 'not numeric'),), [[1.7], [nan]])
    """
    path = Path(path)
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
    except Exception as error:  # whatever a broken file does to its parser
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadFile(f"{path}: not a readable {kind} file ({reason}). Check that it is whole.") from None


def _nearby(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return " Nor is there such a folder. Check the path."
    names = [p.name for p in folder.iterdir() if p.is_file()]
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(near)}?" if near else " Check the path."


def _csv(path: Path, _: Any) -> Table:
    import pandas as pd

    separator: str | None = "\t" if ".tsv" in path.suffixes else ","
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
    return from_frame(frame, path.name)


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
    return Table.of(np.load(path, allow_pickle=False), path.name)


def _npz(path: Path, array: str | None) -> Table:
    if not zipfile.is_zipfile(path):
        raise BadFile(f"{path}: truncated, or not an npz file. Save it again from the source.")
    with np.load(path, allow_pickle=False) as file:
        names = list(file.files)
        if array is not None and array not in names:
            raise BadInput("array", repr(array), f"one of {', '.join(names)}")
        tables = [n for n in names if file[n].ndim == 2]
        usual = [n for n in ("X", "x", "data") if n in tables]
        choice = array or (usual[0] if usual else tables[0] if len(tables) == 1 else None)
        if choice is None:
            listed = ", ".join(f"{n} {file[n].shape}" for n in names)
            raise BadInput(path.name, f"the arrays {listed}", "one table", "Say which with array=.")
        return Table.of(file[choice], f"{path.name}[{choice}]")


_READERS = {"csv": _csv, "tsv": _csv, "txt": _csv, "npz": _npz, "npy": _npy, "parquet": _parquet}
