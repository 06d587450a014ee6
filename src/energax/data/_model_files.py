"""Read and write finite models as BIF and UAI files, also gzipped."""

from __future__ import annotations

import gzip
import os
import secrets
import zlib
from pathlib import Path

from ..algorithms.factors.model import TableModel
from ..errors import BadFile, BadInput
from ._bif.parser import format_bif, parse_bif
from ._position import position
from ._uai import format_uai, parse_evidence, parse_uai

_PARSERS = {".bif": parse_bif, ".uai": parse_uai}
_FORMATS = {".bif": format_bif, ".uai": format_uai}


def load_tables(path: str | os.PathLike) -> TableModel:
    """The tables of a `.bif` or `.uai` file, which may be gzipped (`.bif.gz`).

    A damaged file raises `BadInput` with the line, the column and what was expected there.
    """
    path = Path(path)
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
    path = Path(path)
    data = _FORMATS[_kind(path)](model).encode()
    if path.suffix.lower() == ".gz":
        data = gzip.compress(data, mtime=0)  # without a time, equal models give equal files
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_evidence(path: str | os.PathLike, model: TableModel | None = None) -> tuple[dict[int, int], ...]:
    """{variable: state} for each sample of a UAI evidence file, checked against a model if one is given."""
    path = Path(path)
    return parse_evidence(read_text(path), None if model is None else model.cards, path.name)


def _kind(path: Path) -> str:
    kind = Path(path.name.lower().removesuffix(".gz")).suffix
    if kind not in _PARSERS:
        raise BadFile(
            f"{path}: the name must end in .bif, .uai, .bif.gz or .uai.gz. Rename or convert the file."
        )
    return kind


def read_text(path: Path) -> str:
    """The text of a file, unzipped if necessary; decoded as UTF-8, or as Latin-1 if that fails."""
    if not path.is_file():
        raise BadFile(f"{path}: the file does not exist. Check the path.")
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = _decompress(data, path.name)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _decompress(data: bytes, source: str) -> bytes:
    """All members of a gzip stream; raises with the position in the text if the stream is damaged."""
    text = b""
    while data.strip(b"\0"):
        stream = zlib.decompressobj(wbits=31)
        try:
            text += stream.decompress(data)
            problem = "" if stream.eof else "the end of the file within the gzip stream"
        except zlib.error as error:
            problem = f"a damaged gzip stream ({error})"
        if problem:
            decoded = text.decode("latin-1")
            raise BadInput(position(decoded, len(decoded), source), problem, "a complete file") from None
        data = stream.unused_data
    return text
