"""Text into tables: how the cells are separated, whether there is a header, what cannot be read so."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path
from typing import Any

from ..errors import BadFile
from ._table import Table, check_unique_names, from_frame

_SPACES = r"\s+"


def read_csv(path: Path, _: Any = None) -> Table:
    """A csv, tsv or txt file, whatever separates its cells.

    Lines above the table that begin with # are notes; one right above numbers, with as many cells as
    they are, is their header.
    """
    import pandas as pd

    _check_is_text(path)
    notes, lines = _first_lines(path)
    if not lines:
        raise BadFile(f"{path}: no rows in it. Check that it is whole.")
    separator = _separator(lines, tabs_first=".tsv" in path.name.lower())
    options: dict[str, Any] = {"sep": separator, "skipinitialspace": True, "skiprows": len(notes)}
    try:
        first = _cells_of_first(path, options)
        header = _cells_of_note(notes[-1], separator) if notes else []
        in_note = len(header) == len(first) > 1 and any(map(_is_number, first))
        if not in_note:
            header = [] if all(map(_is_number, first)) and not _counts(first) else first
        check_unique_names([name for name in header if name], path.name)  # pandas would call a second x x.1
        where = {"header": None, "names": header} if in_note else {"header": 0 if header else None}
        frame = pd.read_csv(path, low_memory=False, **where, **options)
    except pd.errors.ParserError as error:
        raise BadFile(f"{path}: {_ragged(str(error))}.") from None
    if not len(frame):
        raise BadFile(f"{path}: no rows below the header. Check that it is whole.")
    if _shifted(frame.index):
        raise BadFile(
            f"{path}: its rows have {frame.index.nlevels} more cells than the header has names. "
            "Name every column; write numbers with decimal points, not commas."
        )
    frame.columns = [str(c).strip() if header else f"x{i}" for i, c in enumerate(frame.columns)]
    return from_frame(frame, path.name, _told_of_the_header(header))


def _told_of_the_header(header: list[str]) -> tuple[str, ...]:
    """What was made of the first line, where that may have been wrong."""
    if not header:
        return (
            "The first line is all numbers: it was read as a row, and the columns are x0, x1 and so on. "
            "If it names them, write names with letters.",
        )
    odd = [name for name in header if _is_number(name) and not name.isdigit()]
    if not odd and not _counts(header):
        return ()
    among = "0, 1, 2 and so on" if _counts(header) else f"{odd[0]} among them"
    return (
        f"The first line was read as the names of the columns, {among}. "
        "If it is a row, write a line of names above it.",
    )


def _counts(header: list[str]) -> bool:
    """Whether these are the names that pandas gives to columns without one. (0, 1 may well be a row.)"""
    return len(header) > 2 and header == [str(i) for i in range(len(header))]


def _check_is_text(path: Path) -> None:
    with _opened(path, "rb") as file:
        start = file.read(4096)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadFile(f"{path}: UTF-16 text. Save it as UTF-8.")
    if b"\0" in start:
        raise BadFile(f"{path}: zero bytes in it: UTF-16 text, or no text at all. Save it as UTF-8 text.")


def _opened(path: Path, mode: str, **options: Any) -> Any:
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, mode, **options)


def _first_lines(path: Path) -> tuple[list[str], list[str]]:
    """(the notes above the table, empty lines among them; the first five lines of the table)."""
    above = lambda line: not line.strip() or line.lstrip().startswith("#")
    with _opened(path, "rt", encoding="utf-8-sig") as file:
        notes, lines = [], []
        for line in file:
            if not above(line):
                lines.append(line)
                break
            notes.append(line)
        lines += [line for line in itertools.islice(file, 4) if line.strip()]
    return notes, lines


def _cells_of_note(note: str, separator: str) -> list[str]:
    cells = note.strip().lstrip("# ").split(None if separator == _SPACES else separator)
    return [cell.strip().strip('"') for cell in cells]


def _cells_of_first(path: Path, options: dict[str, Any]) -> list[str]:
    import pandas as pd

    row = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
    return [str(cell).strip() for cell in row.iloc[0]]


def _separator(lines: list[str], *, tabs_first: bool) -> str:
    """A comma, unless every line holds as many semicolons, tabs or bars, or as many words and no comma.

    To be known before reading: where numbers have decimal commas, commas would cut them in two.
    A header may lack one, the name of the column of names.
    """
    lines = [re.sub('"[^"]*"', "q", line).rstrip("\r\n") for line in lines]
    same = lambda counts: min(counts) > 0 and len(set(counts[1:])) <= 1
    for sign in "\t;|" if tabs_first else ";\t|":
        if same([line.count(sign) for line in lines]):
            return sign
    gaps = [len(line.split()) - 1 for line in lines]
    # A header of several words over one column, or over few, is not one of several names.
    header_fits = gaps[0] in (gaps[-1], gaps[-1] - 1)
    return _SPACES if same(gaps) and header_fits and not any("," in line for line in lines) else ","


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _shifted(index: Any) -> bool:
    """Whether cells without a name were numbers, not the names of the rows or their count.

    pandas takes what is too much on the left for row names: 1,5 under one name would be read as 5.
    """
    if index.nlevels > 1 or index.dtype.kind not in "iuf":
        return index.nlevels > 1
    return list(index - index[0]) != list(range(len(index))) or index[0] not in (0, 1)


def _ragged(reason: str) -> str:
    """pandas' complaint of a line that is too long, in words for whoever wrote the file."""
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if not found:
        return f"not a readable table ({reason.splitlines()[0].rstrip('. ')}). Check that it is whole"
    return (
        f"line {found[2]} has {found[3]} cells, and those above it {found[1]}. "
        "Give every line as many; put a cell that holds the separator in quotes"
    )
