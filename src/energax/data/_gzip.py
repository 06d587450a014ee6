"""Gzip streams, unzipped in pieces and up to a limit: a small file can claim gigabytes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .._util.files import shorten
from ..errors import BadFile

_PIECE = 2**20  # bytes of text that are unzipped at a time


def unzip(file: IO[bytes], path: Path, most: int) -> Iterator[bytes]:
    """The text of all members of a gzip stream, in pieces; raises `BadFile` after `most` bytes."""
    total = 0
    with gzip.GzipFile(fileobj=file) as stream:
        while piece := stream.read1(_PIECE):
            total += len(piece)
            if total > most:
                raise BadFile(
                    f"{shorten(path)}: has more than {most >> 20} MiB of text when unzipped. "
                    "If you trust the file, unzip it and read the unzipped file."
                )
            yield piece
