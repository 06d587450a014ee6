"""The command line as a person meets it: a table, or one line that says what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from energax import caching, cli


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command line in this process. → (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["energax", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr()
        return ended.value.code or 0, told.out, told.err

    return call


@pytest.fixture(scope="module")
def csv(tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "heights.csv"
    X = np.random.default_rng(0).normal(size=(150, 2))
    pd.DataFrame({"height": X[:, 0], "weight": X[:, 1], "name": "x"}).to_csv(path, index=False)
    return path


def test_compare_prints_one_table_and_writes_it(run, csv, tmp_path):
    out = tmp_path / "table.csv"
    code, told, heard = run("compare", csv, "--models", "gaussian,gmm-diag", "--output", out)
    assert code == 0, heard
    assert "heights.csv" in told and "Real(2): 120 rows to learn from, 30 held out" in told
    assert "not numeric: name" in told
    assert "one Gaussian" in told and "exact" in told and "How to read it" in told
    assert "[2/2]" in heard
    assert set(pd.read_csv(out)["model"]) == {"gaussian", "gmm-diag"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "heigths.csv"], "Did you mean heights.csv?"),
        (["compare", "heights.csv", "--models", "gausian"], "Did you mean 'gaussian'"),
        (["compare", "heights.csv", "--drop", "wieght"], "Did you mean 'weight'"),
        (["compare", "heights.csv", "--columns", "nothing"], "height, weight"),
        (["compare", "heights.csv", "--test-size", "2.5"], "fraction below 1"),
        (["compare", "heights.csv", "--test-size", "0"], "fraction"),
        (["compare", "heights.csv", "--output", "a.doc"], ".csv"),
        (["compare", "heights.csv", "--array", "X"], "npz"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run, csv, monkeypatch, arguments, said):
    monkeypatch.chdir(csv.parent)
    code, told, heard = run(*arguments)
    assert code == 2 and not told
    assert said in heard and "Traceback" not in heard
    assert len(heard.strip().splitlines()) == 1 and heard.startswith("energax: ")


def test_files_that_do_not_suit_are_told_by_what_they_hold(run, tmp_path, monkeypatch):
    """Each mistake of a file is named for what it is, and says what would be right."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "tiny.csv").write_text("a,b\n1,2\n")
    (tmp_path / "mix.csv").write_text("name,a\nann,1\nbob,2\n")
    np.savez("cube.npz", cube=np.ones((5, 4, 3)))
    np.savez("many.npz", X=np.ones((5, 2)), lab=np.arange(5))
    for arguments, said in (
        ("cube.npz", "3-D array of shape (5, 4, 3); expected a 2-D table: rows × columns"),
        (
            "many.npz --array lab",
            "array lab of many.npz: found a 1-D array of shape (5,); expected a 2-D",
        ),
        ("folder", "a folder, not a file"),
        ("mix.csv -c name", "'name', which was left out: not numeric"),
        ("tiny.csv --models foo", "no model 'foo'; expected a model that `energax models` lists."),
    ):
        code, told, heard = run("compare", *arguments.split())
        assert code == 2 and not told and said in heard, heard
        assert "array=" not in heard and "…" not in heard


def test_an_unknown_option_is_exit_code_2(run):
    code, _, heard = run("compare", "--modles", "x")
    assert code == 2 and "Traceback" not in heard and "--models" in heard


def test_the_table_says_which_array_it_took_and_which_not(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "many.npz", X=X, Y=X, lab=np.arange(60))
    code, told, _ = run("compare", tmp_path / "many.npz", "-m", "gaussian", "-q")
    assert code == 0
    assert "array X of many.npz" in told and "Left out, other arrays in the file: Y, lab." in told


def test_models_lists_every_contender(run):
    from energax.evaluate import contenders

    code, told, _ = run("models")
    assert code == 0 and all(c.name in told for _, c in contenders())


def test_the_installed_command_says_its_version():
    from energax import __version__

    ran = subprocess.run(
        [sys.executable, "-m", "energax.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == f"energax {__version__}"


def test_the_cache_can_be_moved_and_turned_off(monkeypatch, tmp_path):
    import jax

    before = jax.config.jax_compilation_cache_dir
    monkeypatch.setenv("ENERGAX_CACHE", "off")
    assert caching.use_compilation_cache() is None
    assert jax.config.jax_compilation_cache_dir == before
    monkeypatch.delenv("ENERGAX_CACHE")
    assert str(caching.use_compilation_cache()) == before, "one that JAX was given is left alone"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.default_cache() == tmp_path / "energax" / "jax"
