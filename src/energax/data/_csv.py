"""Text files as tables: find the separator and the header, and reject unreadable files."""

from __future__ import annotations

import gzip
import itertools
import re
from pathlib import Path
from typing import Any

from ..errors import BadFile
from ._gzip import unzip
from ._table import Table, check_unique_names, from_frame

_SPACES = r"\s+"
_MOST_BYTES = 2**30  # of an unzipped file


def read_csv(path: Path, _: Any = None) -> Table:
    """A csv, tsv or txt file with any separator.

    Lines above the table that begin with # are comments. A comment directly above numbers that has as many
    cells as they have is the header.
    """
    import pandas as pd

    if path.suffix.lower() == ".gz":
        _check_unzipped_size(path)
    _check_is_text(path)
    notes, lines = _first_lines(path)
    if not lines:
        raise BadFile(f"{path}: it has no rows. Check that the file is complete.")
    separator = _separator(lines, tabs_first=".tsv" in path.name.lower())
    options: dict[str, Any] = {"sep": separator, "skipinitialspace": True, "skiprows": len(notes)}
    try:
        first = _first_cells(path, options)
        header = _split_comment(notes[-1], separator) if notes else []
        in_note = len(header) == len(first) > 1 and any(map(_is_number, first))
        if not in_note:
            header = [] if all(map(_is_number, first)) and not _is_default_header(first) else first
        check_unique_names(
            [name for name in header if name], path.name
        )  # pandas would rename a second "x" to "x.1"
        where = {"header": None, "names": header} if in_note else {"header": 0 if header else None}
        frame = pd.read_csv(path, low_memory=False, **where, **options)
    except pd.errors.ParserError as error:
        raise BadFile(f"{path}: {_explain_parser_error(str(error))}.") from None
    if not len(frame):
        raise BadFile(f"{path}: there are no rows below the header. Check that the file is complete.")
    if _has_surplus_cells(frame.index):
        raise BadFile(
            f"{path}: its rows have {frame.index.nlevels} more cells than the header has names. "
            "Name every column; write numbers with decimal points, not commas."
        )
    frame.columns = [str(c).strip() if header else f"x{i}" for i, c in enumerate(frame.columns)]
    return from_frame(frame, path.name, _notes_on_header(header))


def _notes_on_header(header: list[str]) -> tuple[str, ...]:
    """How the first line was read, if it was ambiguous."""
    if not header:
        return (
            "The first line is all numbers and was read as a row; the columns are called x0, x1 and so on. "
            "If it holds names, write names with letters.",
        )
    odd = [name for name in header if _is_number(name) and not name.isdigit()]
    if not odd and not _is_default_header(header):
        return ()
    among = "0, 1, 2 and so on" if _is_default_header(header) else f"{odd[0]} among them"
    return (
        f"The first line was read as column names, {among}. If it is a row, add a line of names above it.",
    )


def _is_default_header(header: list[str]) -> bool:
    """Whether these are the default column names of pandas. (0, 1 alone may be a row.)"""
    return len(header) > 2 and header == [str(i) for i in range(len(header))]


def _check_unzipped_size(path: Path) -> None:
    """Raise if the file has more text than `_MOST_BYTES`, or a damaged stream, before any of it is kept."""
    with path.open("rb") as file:
        for _ in unzip(file, path, _MOST_BYTES):
            pass


def _check_is_text(path: Path) -> None:
    with _open(path, "rb") as file:
        start = file.read(4096)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadFile(f"{path}: UTF-16 text. Save it as UTF-8.")
    if b"\0" in start:
        raise BadFile(f"{path}: it contains zero bytes: UTF-16 text, or not text. Save it as UTF-8 text.")


def _open(path: Path, mode: str, **options: Any) -> Any:
    opener: Any = gzip.open if path.suffix.lower() == ".gz" else open
    return opener(path, mode, **options)


def _first_lines(path: Path) -> tuple[list[str], list[str]]:
    """(comments and empty lines above the table; the first five lines of the table)."""
    above = lambda line: not line.strip() or line.lstrip().startswith("#")
    with _open(path, "rt", encoding="utf-8-sig") as file:
        notes, lines = [], []
        for line in file:
            if not above(line):
                lines.append(line)
                break
            notes.append(line)
        lines += [line for line in itertools.islice(file, 4) if line.strip()]
    return notes, lines


def _split_comment(note: str, separator: str) -> list[str]:
    cells = note.strip().lstrip("# ").split(None if separator == _SPACES else separator)
    return [cell.strip().strip('"') for cell in cells]


def _first_cells(path: Path, options: dict[str, Any]) -> list[str]:
    import pandas as pd

    row = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, **options)
    return [str(cell).strip() for cell in row.iloc[0]]


def _separator(lines: list[str], *, tabs_first: bool) -> str:
    """The separator: a comma, unless every line has equally many semicolons, tabs, bars or words.

    It is found before reading, since decimal commas would be taken for separators. The header may be one cell
    short, if the column of row names has no name.
    """
    lines = [re.sub('"[^"]*"', "q", line).rstrip("\r\n") for line in lines]
    same = lambda counts: min(counts) > 0 and len(set(counts[1:])) <= 1
    for sign in "\t;|" if tabs_first else ";\t|":
        if same([line.count(sign) for line in lines]):
            return sign
    gaps = [len(line.split()) - 1 for line in lines]
    # A header of several words above one column is a single name.
    header_fits = gaps[0] in (gaps[-1], gaps[-1] - 1)
    return _SPACES if same(gaps) and header_fits and not any("," in line for line in lines) else ","


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_surplus_cells(index: Any) -> bool:
    """Whether the index that pandas made of surplus cells holds numbers and not row names or a row index.

    pandas takes surplus cells on the left for row names: `1,5` under one name would be read as 5.
    """
    if index.nlevels > 1 or index.dtype.kind not in "iuf":
        return index.nlevels > 1
    return list(index - index[0]) != list(range(len(index))) or index[0] not in (0, 1)


def _explain_parser_error(reason: str) -> str:
    """The parser error of pandas about a line that is too long, in plain words."""
    found = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if not found:
        return (
            f"not a readable table ({reason.splitlines()[0].rstrip('. ')}). Check that the file is complete"
        )
    return (
        f"line {found[2]} has {found[3]} cells, the lines above it have {found[1]}. "
        "Give every line the same number of cells; quote cells that contain the separator"
    )
