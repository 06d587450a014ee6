"""The compilation cache on disk: when it is turned on, where it is, how large it gets, and who shares it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jax
import pytest

from energax import caching

FLAGS = [
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
]
#: The flags that changed and the folder, first without estimators, then with them.
REPORT = """
import json
import jax
from jax._src import xla_bridge
before = {name: repr(value) for name, value in jax.config.values.items()}
def report():
    changed = sorted(k for k, v in jax.config.values.items() if before.get(k) != repr(v))
    return changed, jax.config.jax_compilation_cache_dir, len(xla_bridge._backends)
import energax, energax.energies, energax.learn, energax.infer
alone = report()
energax.estimators
print(json.dumps([alone, report()]))
"""
#: Compile two programs, or find them in the cache; count those that were found.
COMPILE = """
from energax import caching
caching.use_compilation_cache()
import jax, numpy as np
found = []
jax.monitoring.register_event_listener(lambda name, **_: found.append(name.endswith("cache_hits")))
for power in (2, 3):
    jax.jit(lambda x: (x @ x) ** power)(np.eye(3))
print(sum(found))
"""


def environment(**settings: str) -> dict[str, str]:
    """The variables of this process without those of a cache, with these settings."""
    names = ("JAX_COMPILATION_CACHE", "JAX_PERSISTENT_CACHE", "ENERGAX_CACHE")
    return {k: v for k, v in os.environ.items() if not k.startswith(names)} | settings


def start(code: str, **settings: str) -> subprocess.Popen:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(**settings))


def output(process: subprocess.Popen) -> str:
    told, errors = process.communicate()
    assert process.returncode == 0, errors
    return told


@pytest.fixture
def unset(monkeypatch, tmp_path):
    """No cache is set, and the default one is below `tmp_path`."""
    before = {name: getattr(jax.config, name) for name in (*FLAGS, "jax_enable_compilation_cache")}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("ENERGAX_CACHE", raising=False)
    monkeypatch.setattr(caching.atexit, "register", lambda *_: None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_only_estimators_turn_it_on(tmp_path):
    alone, used = json.loads(output(start(REPORT, XDG_CACHE_HOME=str(tmp_path))))
    assert alone == [[], None, 0]
    changed, folder, n_backends = used
    assert changed == FLAGS and n_backends == 0
    assert folder.startswith(str(tmp_path / "energax" / "jax"))


@pytest.mark.usefixtures("unset")
def test_it_is_in_a_private_folder_of_the_user_unless_moved(tmp_path, monkeypatch):
    found = caching.use_compilation_cache()
    assert found == caching.default_cache() and found.parent == tmp_path / "energax" / "jax"
    assert jax.config.jax_compilation_cache_dir == str(found)
    assert found.stat().st_mode & 0o077 == 0, "others may not put machine code there"
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("ENERGAX_CACHE", str(tmp_path / "moved"))
    assert caching.use_compilation_cache() == tmp_path / "moved"
    assert caching.use_compilation_cache(tmp_path / "asked") == tmp_path / "asked"


@pytest.mark.usefixtures("unset")
def test_one_that_jax_was_given_is_left_alone(tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    before = {name: getattr(jax.config, name) for name in FLAGS}
    assert caching.use_compilation_cache() == tmp_path / "mine"
    assert before == {name: getattr(jax.config, name) for name in FLAGS}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("setting", ["off", "0", "/dev/null/nowhere"])
def test_it_can_be_turned_off_and_works_without_a_folder(setting, monkeypatch):
    monkeypatch.setenv("ENERGAX_CACHE", setting)
    assert caching.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.usefixtures("unset")
def test_it_is_off_where_jax_caches_nothing():
    jax.config.update("jax_enable_compilation_cache", False)
    assert caching.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir is None


def test_processes_share_it_at_the_same_time_and_later(tmp_path):
    both = [start(COMPILE, ENERGAX_CACHE=str(tmp_path)) for _ in range(2)]
    assert all(int(output(process)) <= 2 for process in both)
    assert output(start(COMPILE, ENERGAX_CACHE=str(tmp_path))).split() == ["2"]


def write(folder, name, size, used):
    path = folder / name
    path.write_bytes(b"x" * size)
    os.utime(path, (used, 0))
    return path


def test_the_least_recently_used_entries_are_removed_first(tmp_path):
    files = [write(tmp_path, f"{i}-cache", 100, used) for i, used in enumerate((50, 10, 40, 20, 30))]
    inner = tmp_path / "folder"
    inner.mkdir()
    caching.trim(tmp_path, most=500, kept=300)
    assert all(path.exists() for path in files), "not over the limit"
    caching.trim(tmp_path, most=499, kept=300)
    assert [path.exists() for path in files] == [True, False, True, False, True]
    assert inner.exists()


def test_trimming_tolerates_other_processes(tmp_path, monkeypatch):
    caching.trim(tmp_path / "missing", most=0, kept=0)
    files = [write(tmp_path, f"{i}-cache", 100, i) for i in range(3)]
    unlink = os.unlink

    def race(path):
        unlink(path)  # another process was faster
        unlink(path)

    monkeypatch.setattr(caching.os, "unlink", race)
    caching.trim(tmp_path, most=250, kept=150)
    assert [path.exists() for path in files] == [False, False, True]


@pytest.mark.parametrize("work", ["", COMPILE])
def test_only_a_process_that_wrote_trims_when_it_ends(work, tmp_path):
    old = write(tmp_path, "old-cache", 1000, 0)
    limits = "from energax import caching; caching.trim.__defaults__ = 900, 500\n"
    output(start(limits + "caching.use_compilation_cache()\n" + work, ENERGAX_CACHE=str(tmp_path)))
    assert old.exists() == (not work)
