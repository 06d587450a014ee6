"""Paths that are in the way: links, read-only files, folders, names that are none, leftover files."""

from __future__ import annotations

import os
import pathlib
import stat
import subprocess
import sys
import warnings

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bowl import Bowl

import energax
from energax import Checkpoint, fit
from energax._util import files
from energax.data import read_bif, read_uai, write_uai
from energax.energies import MarkovField
from energax.errors import BadFile, BadInput, EnergaxError
from energax.learn import Descent, NegativeLogLikelihood

ROWS = np.random.default_rng(0).normal([3.0, -1.0], 1.0, (97, 2)).astype(np.float32)


def run(checkpoint, epochs=2, **options):
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.1))
    return fit(
        Bowl(jnp.zeros(2)), {"x": ROWS}, learner, key=0, epochs=epochs, checkpoint=checkpoint, **options
    )


def never(info):
    raise AssertionError("the fit began before the path was checked")


def saves(path):
    energax.save({"a": 1}, path)


COIN = MarkovField.from_tables(energax.data._uai.parse_uai("MARKOV 1 2 1 1 0 2 0.25 0.75"))
BAD_PATHS = {
    "empty": "",
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "too long": "a" * 300,
    "folder too long": "a" * 300 + "/file",
    "number": 3,
    "bytes": b"file",
    "list": ["file"],
    "folder": ".",
    "in a file": "in_the_way/file",
    "loop": "loop",
}


@pytest.fixture
def in_folder(tmp_path, monkeypatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in_the_way").write_text("a file where a folder should be")
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("path", BAD_PATHS.values(), ids=BAD_PATHS)
@pytest.mark.parametrize(
    "use", [saves, energax.load, lambda path: run(path, callbacks=[never]), read_uai, read_bif],
    ids=["save", "load", "fit", "read_uai", "read_bif"],
)  # fmt: skip
def test_a_path_that_is_none_raises_a_sentence(path, use, in_folder):
    before = sorted(in_folder.iterdir())
    with pytest.raises(EnergaxError) as caught:
        use(path)
    assert isinstance(caught.value, (BadInput, BadFile)) and str(caught.value).endswith(".")
    assert "Errno" not in str(caught.value) and len(str(caught.value)) < 700
    assert sorted(in_folder.iterdir()) == before


def test_the_argument_is_named(tmp_path):
    with pytest.raises(BadInput, match=r"^path: found an empty string"):
        energax.save(1, "")
    with pytest.raises(BadInput, match=r"^checkpoint: found an empty string"):
        run("")
    with pytest.raises(BadInput, match=r"^checkpoint: found int; expected a path"):
        Checkpoint(3)  # type: ignore[arg-type]
    with pytest.raises(BadFile, match=r"a folder, not a file"):
        energax.save(1, tmp_path)
    with pytest.raises(BadFile, match=r"nowhere does not exist"):
        energax.load(tmp_path / "nowhere" / "file")


def test_a_device_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for use in (saves, energax.load, run):
        with pytest.raises(BadFile, match="not a regular file"):
            use(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_folders_are_created_and_a_long_name_is_a_name(tmp_path):
    path = tmp_path / "new" / "folder" / ("n" * 250)
    energax.save({"a": 1}, path)
    energax.save({"a": 2}, path)
    assert energax.load(path) == {"a": 2} and len(list(path.parent.iterdir())) == 1


def test_a_read_only_file_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    energax.save({"a": 1}, path)
    path.chmod(0o444)
    with pytest.raises(BadFile, match="read-only and was not replaced"):
        energax.save({"a": 2}, path)
    assert energax.load(path) == {"a": 1} and len(list(tmp_path.iterdir())) == 1


def test_a_read_only_checkpoint_is_read_but_not_continued(tmp_path):
    path = tmp_path / "fit"
    done = run(path)
    path.chmod(0o444)
    before = path.read_bytes()
    np.testing.assert_array_equal(run(path).energy.centre, done.energy.centre)
    with pytest.raises(BadFile, match="read-only and was not replaced"):
        run(path, epochs=5, callbacks=[never])
    assert path.read_bytes() == before


def test_a_read_only_checkpoint_of_a_fit_that_stopped_early_is_read(tmp_path):
    path, learner = tmp_path / "fit", Descent(NegativeLogLikelihood(), optax.sgd(2.5))
    again = lambda: fit(
        Bowl(jnp.zeros(2)), {"x": ROWS}, learner, key=0, epochs=20, validation={"x": ROWS}, patience=2,
        checkpoint=path,
    )  # fmt: skip
    stopped = again()
    assert len(stopped.history["objective"]) < 20
    path.chmod(0o444)
    assert eqx.tree_equal(again().energy, stopped.energy)


def test_a_link_is_followed(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    link.symlink_to("there/file")
    for value in (1, 2):  # at first the link leads nowhere
        energax.save({"a": value}, link)
        assert link.is_symlink() and energax.load(target) == {"a": value}
    target.unlink()
    run(link, epochs=1)
    more = run(link, epochs=2)
    assert link.is_symlink() and not target.is_symlink()
    np.testing.assert_array_equal(more.energy.centre, run(target).energy.centre)
    assert [p.name for p in target.parent.iterdir()] == ["file"]
    target.chmod(0o444)
    with pytest.raises(BadFile, match="read-only"):
        energax.save(1, link)


def test_model_files_are_written_as_carefully(tmp_path):
    for wrong in (3, "", "a\0.uai"):
        with pytest.raises(BadInput, match="path"):
            write_uai(COIN, wrong)
    path, link = tmp_path / "coin.uai", tmp_path / "link.uai"
    link.symlink_to("coin.uai")
    left = leave(path, "0123abcd")
    write_uai(COIN, link)
    assert link.is_symlink() and path.is_file() and not left.exists()
    path.chmod(0o444)
    (tmp_path / "folder.uai").mkdir()
    for wrong, words in (
        (path, "read-only"),
        (tmp_path / "folder.uai", "a folder"),
        ("a" * 300 + ".uai", "long"),
    ):
        with pytest.raises(BadFile, match=words):
            write_uai(COIN, wrong)


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "file"
    energax.save(1, path)
    path.chmod(0o600)
    energax.save(2, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def leave(path: pathlib.Path, digits: str) -> pathlib.Path:
    """A temporary file as a killed process leaves it."""
    left = path.with_name(f".{path.name}.{digits}.part")
    left.write_bytes(b"half a file")
    return left


def test_files_of_killed_processes_are_removed_at_once(tmp_path):
    """Those of the same file, and none that another process is writing."""
    fcntl = pytest.importorskip("fcntl")
    path = tmp_path / "fit"
    left, other = leave(path, "0123abcd"), leave(tmp_path / "fit2", "0123abcd")
    with open(leave(path, "4567cdef"), "rb") as written:
        fcntl.flock(written.fileno(), fcntl.LOCK_EX)
        run(path)
        assert not left.exists() and other.exists() and pathlib.Path(written.name).exists()
    left = leave(path, "0123abcd")
    run(path)  # which has nothing to write
    assert sorted(p.name for p in tmp_path.iterdir()) == [".fit2.0123abcd.part", "fit"]
    leave(path, "0123abcd")
    energax.save(1, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".fit2.0123abcd.part", "fit"]


WRITER = """
import os, sys, time
from energax._util.files import write_atomically
def wait(descriptor):
    print("writing", flush=True)
    time.sleep(600)
os.fsync = wait
write_atomically(sys.argv[1], b"new")
"""


def test_the_file_of_a_process_stays_while_it_writes_and_goes_when_it_is_killed(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "file"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
            energax.save(1, path)
            assert len(list(tmp_path.glob(".file.*.part"))) == 1, "it is being written"
        finally:
            writer.kill()
    energax.save(2, path)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_is_written_although_others_remove_its_temporary_file(tmp_path, monkeypatch):
    """Another process may remove the file before the lock is taken; then another one is written."""
    path, lock, calls = tmp_path / "file", files._lock, []

    def remove_then_lock(descriptor):
        if not calls:
            calls.append([p.unlink() for p in tmp_path.glob(".file.*.part")])
        return lock(descriptor)

    monkeypatch.setattr(files, "_lock", remove_then_lock)
    energax.save({"a": 1}, path)
    assert calls == [[None]] and energax.load(path) == {"a": 1}


def test_a_checkpoint_of_more_epochs_says_so(tmp_path):
    stream = lambda: iter([{"x": ROWS}])
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.1))
    streamed = lambda path, epochs: fit(
        Bowl(jnp.zeros(2)), stream, learner, key=0, epochs=epochs, checkpoint=path
    )
    for name, again in (("arrays", run), ("stream", streamed)):
        whole = again(tmp_path / name, 8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            again(tmp_path / name, 8)
        with pytest.warns(
            UserWarning, match="contains 8 epochs of this fit, more than the 3 asked for"
        ) as seen:
            fewer = again(tmp_path / name, 3)
        assert seen[0].filename == __file__
        assert eqx.tree_equal(fewer.energy, whole.energy) and len(fewer.history["objective"]) == 8
