"""Read and write finite models as BIF and UAI files, also gzipped."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import IO

from .._util.files import check_path, check_readable, shorten, write_atomically
from ..algorithms.factors.model import TableModel
from ..errors import BadFile, BadInput
from ._bif.parser import format_bif, parse_bif
from ._gzip import unzip
from ._position import position
from ._uai import format_uai, parse_evidence, parse_uai

_PARSERS = {".bif": parse_bif, ".uai": parse_uai}
_FORMATS = {".bif": format_bif, ".uai": format_uai}
_MOST_BYTES = 2**28  # of an unzipped file; models of the inference competitions have less than a tenth


def load_tables(path: str | os.PathLike) -> TableModel:
    """The tables of a `.bif` or `.uai` file, which may be gzipped (`.bif.gz`).

    A damaged file raises `BadInput` with the line, the column and what was expected there.
    """
    path = check_path(path)
    parse = _PARSERS[_kind(path)]
    return parse(read_text(path), path.name)


def save_tables(model: TableModel, path: str | os.PathLike) -> None:
    """Write a `.bif` or `.uai` file (gzipped if the name ends in `.gz`) atomically.

    >>> import pathlib, tempfile
    >>> from energax.data._uai import parse_uai
    >>> model = parse_uai("MARKOV 1 2 1 1 0 2 0.25 0.75")
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "coin.uai.gz"
    >>> save_tables(model, file)
    >>> load_tables(file) == model
    True
    """
    path = check_path(path)
    data = _FORMATS[_kind(path)](model).encode()
    if path.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # without a time, equal models give equal files
    write_atomically(path, data)


def read_evidence(path: str | os.PathLike, model: TableModel | None = None) -> tuple[dict[int, int], ...]:
    """{variable: state} for each sample of a UAI evidence file, checked against a model if one is given."""
    path = check_path(path)
    return parse_evidence(read_text(path), None if model is None else model.cards, path.name)


def _kind(path: Path) -> str:
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind not in _PARSERS:
        raise BadFile(
            f"{shorten(path)}: the name must end in .bif, .uai, .bif.gz or .uai.gz. "
            "Rename or convert the file."
        )
    return kind


def read_text(path: str | os.PathLike) -> str:
    """The text of a file, unzipped if necessary; decoded as UTF-8, or as Latin-1 if that fails."""
    path = check_readable(path)
    try:
        with open(path, "rb") as file:
            zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            data = _decompress(file, path) if zipped else file.read()
    except OSError as error:
        if isinstance(error, BadFile):
            raise
        raise BadFile(f"{shorten(path)}: cannot be read ({error.strerror or error}).") from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _decompress(file: IO[bytes], path: Path) -> bytes:
    """All members of a gzip stream, read in pieces, so that a small file cannot fill the memory.

    Raises with the position in the text if the stream is damaged.
    """
    text = bytearray()
    try:
        for piece in unzip(file, path, _MOST_BYTES):
            text += piece
        return bytes(text)
    except EOFError:
        problem = "the end of the file within the gzip stream"
    except (gzip.BadGzipFile, zlib.error) as error:
        problem = f"a damaged gzip stream ({error})"
    decoded = text.decode("latin-1")
    raise BadInput(position(decoded, len(decoded), path.name), problem, "a complete file")
