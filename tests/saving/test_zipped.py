"""Zipped model files that are small and unzip to gigabytes, and numbers that claim memory."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest

from energax import data
from energax.data import _csv, read_bif, read_uai
from energax.data._bif import block
from energax.data._bif.parser import parse_bif
from energax.data._model_files import read_evidence
from energax.data._position import position
from energax.data._uai import parse_uai
from energax.errors import BadFile, BadInput

#: 1 GiB of blanks in 64 members of a gzip stream.
BOMB = gzip.compress(b"MARKOV 1 2 0 ") + gzip.compress(b" " * 2**24) * 64


def peak_of(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["bomb.uai.gz", "bomb.bif.gz", "bomb.uai.evid.gz"])
def test_a_zipped_file_has_a_limit(name, tmp_path):
    """The stream is damaged at its end, which is not reached."""
    path = tmp_path / name
    path.write_bytes(BOMB + b"\xff\x00\xff")
    read = read_uai if name.endswith("uai.gz") else read_bif if name.endswith("bif.gz") else read_evidence

    def refused():
        with pytest.raises(BadFile, match=r"more than 256 MiB of text when unzipped.*unzip it"):
            read(path)

    assert peak_of(refused) < 2**29


@pytest.mark.parametrize("name", ["a.csv.gz", "a.tsv.gz", "A.TXT.GZ"])
@pytest.mark.parametrize("row", [b"1,2\n", b"1,", b"# "], ids=["rows", "one line", "a comment"])
def test_a_zipped_table_has_a_limit(name, row, tmp_path, monkeypatch):
    """32 MiB against a limit of 16: nothing of it is kept, also if it is one line."""
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"x,y\n") + gzip.compress(row * (2**24 // len(row))) * 2)
    assert path.stat().st_size < 2**20
    monkeypatch.setattr(_csv, "_MOST_BYTES", 2**24)

    def refused():
        with pytest.raises(BadFile, match=r"more than 16 MiB of text when unzipped.*unzip it"):
            data.read(path)

    assert peak_of(refused) < 2**23


def test_a_zipped_table_that_is_cut_is_refused(tmp_path):
    path = tmp_path / "a.csv.gz"
    whole = gzip.compress(b"x,y\n" + b"1,2\n" * 1000)
    path.write_bytes(whole)
    assert data.read(path).values.shape == (1000, 2)
    path.write_bytes(whole[:-10])
    with pytest.raises(BadFile, match="complete"):
        data.read(path)


def test_members_blanks_after_them_and_damage(tmp_path):
    """What is read did not change: several members are one text, and zeros may follow."""
    text = b"MARKOV 1 2 1\n1 0\n2 0.25 0.75\n"
    path = tmp_path / "coin.uai.gz"
    for content in (gzip.compress(text), gzip.compress(text[:9]) + gzip.compress(text[9:]) + bytes(700)):
        path.write_bytes(content)
        assert read_uai(path).to_tables() == parse_uai(text.decode())
    whole = gzip.compress(text)
    for content, words in (
        (whole[:-9], "end of the file within the gzip stream"),
        (whole[:-1], "end of the file within the gzip stream"),
        (whole[:-8] + bytes(8), "damaged gzip stream"),
        (whole + b"rubbish", "damaged gzip stream"),
        (whole[:20] + b"\xff\xff" + whole[22:], "damaged gzip stream"),
    ):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=rf"coin.uai.gz, line \d+, column \d+: found .*{words}"):
            read_uai(path)


def test_many_empty_members_are_read_once_each(tmp_path):
    path = tmp_path / "coin.uai.gz"
    path.write_bytes(gzip.compress(b"") * 3000 + gzip.compress(b"MARKOV 1 2 0"))
    assert read_uai(path).to_tables().cards == (2,)


def test_the_names_of_states_have_a_limit():
    """A file of few bytes claims millions of names of states; those that are allowed are shared."""
    claims = "MARKOV 20 " + "999999 " * 20 + "0"
    with pytest.raises(BadInput, match=r"found 19999980 states of all variables; expected at most 10000000"):
        parse_uai(claims)
    assert peak_of(lambda: parse_uai("MARKOV 90 " + "100000 " * 90 + "0")) < 50e6


def test_default_rows_have_a_limit(monkeypatch):
    """Each of these tables is small enough, all of them are not."""
    monkeypatch.setattr(block, "_MAX_ENTRIES", 4000)
    names = [f"v{i}" for i in range(14)]
    text = "".join(f"variable {v} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for v in names)
    text += "".join(f"probability ( {v} ) {{ table 0.5 0.5; }}\n" for v in names[:9])
    text += "".join(f"probability ( {v} | {', '.join(names[:9])} ) {{ default 1 0; }}\n" for v in names[9:])
    with pytest.raises(BadInput, match=r"found 1024 for v12; expected at most 4000 entries of all tables"):
        parse_bif(text)


def test_a_position_is_found_without_a_copy():
    text = "ab\n" * 2**22
    assert peak_of(lambda: position(text, len(text), "t")) < 10**5
    for offset in range(-1, 8):
        before = "ab\ncd\n"[: max(offset, 0)]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        assert position("ab\ncd\n", offset, "t") == f"t, line {line}, column {column}"
