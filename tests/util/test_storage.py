"""Files are written atomically; truncated, altered and foreign ones raise an error that says so."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load, save

from energax._util import storage
from energax.errors import BadFile

ARRAYS = {
    "w": np.arange(6.0).reshape(2, 3),
    "n": np.array(3, np.int32),
    "flag": np.array([True, False]),
    "e": np.zeros((0, 2)),
}
DOCUMENT = {"kind": "test", "nested": {"a": [1, 2.5, None, "x"]}}


@pytest.fixture
def path(tmp_path):
    target = tmp_path / "deep" / "model.safetensors"
    storage.write(target, ARRAYS, DOCUMENT)
    return target


def rewrite(path, arrays=None, **header):
    """The same file with some of its contents changed, still a valid safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    metadata = json.loads(raw[8 : 8 + length])["__metadata__"]
    path.write_bytes(save(arrays or load(raw), metadata={**metadata, **header}))


def test_round_trip(path):
    arrays, document = storage.read(path)
    assert document == DOCUMENT and set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    storage.write(path, {"w": np.ones(2).T[::-1]}, {})
    assert storage.read(path)[0]["w"].tolist() == [1, 1] and os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_truncated(path, share):
    raw = path.read_bytes()
    path.write_bytes(raw[: int(share * len(raw))])
    with pytest.raises(BadFile, match="truncated"):
        storage.read(path)


def test_a_flipped_byte(path):
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1
    path.write_bytes(bytes(raw))
    with pytest.raises(BadFile, match="altered after saving"):
        storage.read(path)


def test_tampered_document_or_array(path):
    rewrite(path, document=json.dumps({"kind": "other"}))
    with pytest.raises(BadFile, match="altered after saving"):
        storage.read(path)
    storage.write(path, ARRAYS, DOCUMENT)
    rewrite(path, arrays={**ARRAYS, "w": ARRAYS["w"] + 1})
    with pytest.raises(BadFile, match="altered after saving"):
        storage.read(path)
    storage.write(path, ARRAYS, DOCUMENT)
    rewrite(path, arrays={"w": ARRAYS["w"]})
    with pytest.raises(BadFile, match="altered after saving"):
        storage.read(path)


@pytest.mark.parametrize("version", ["2", "99", "next", ""])
def test_future_version(path, version):
    rewrite(path, version=version)
    with pytest.raises(BadFile, match="Update energax"):
        storage.read(path)


def test_foreign_files(tmp_path):
    foreign = tmp_path / "foreign.safetensors"
    foreign.write_bytes(save({"w": np.ones(2)}))
    with pytest.raises(BadFile, match="energax did not write"):
        storage.read(foreign)
    foreign.write_bytes(b"\x80\x04\x95 a pickle, perhaps, that must never be run")
    with pytest.raises(BadFile, match="not a safetensors file"):
        storage.read(foreign)
    with pytest.raises(BadFile, match="no such file"):
        storage.read(tmp_path / "nothing")
    with pytest.raises(BadFile, match="a folder, not a file"):
        storage.read(tmp_path)


def test_a_failed_write_leaves_the_old_file(path, monkeypatch):
    """If the disk is full or the process is interrupted, the old file stays and nothing else is left."""
    before = path.read_bytes()

    def fail(*_):
        raise OSError("no space left on device")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(storage.os, step, fail)
            with pytest.raises(OSError, match="no space"):
                storage.write(path, {"w": np.zeros(9)}, {})
        assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    with pytest.raises(TypeError):
        storage.write(path, ARRAYS, {"not json": object()})
    assert path.read_bytes() == before


def test_only_stale_temporary_files_are_removed(path):
    """Only temporary files of this path that nobody writes: not another file's, not a folder."""
    fcntl = pytest.importorskip("fcntl")
    folder, old = path.parent, 1e9
    stale = folder / ".model.safetensors.0123abcd.part"
    kept = [
        folder / ".model.safetensors.fedc9876.part",  # another process is writing it
        folder / ".other.safetensors.0123abcd.part",
        folder / ".modelXsafetensors.0123abcd.part",
        folder / ".model.safetensors.notes.part",
        folder / "model.safetensors.0123abcd.part",
    ]
    for file in (stale, *kept):
        file.write_bytes(b"x")
        os.utime(file, (old, old))
    nested = folder / ".model.safetensors.aaaaaaaa.part"
    nested.mkdir()
    os.utime(nested, (old, old))
    with open(kept[0]) as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        storage.write(path, ARRAYS, DOCUMENT)
    assert not stale.exists() and nested.is_dir() and all(file.exists() for file in kept)
    assert storage.read(path)[1] == DOCUMENT
