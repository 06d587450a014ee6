"""The command line as a person meets it: a table, or one line that says what to do."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from energax import cli


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
        (["compare", "heights.csv", "--columns", ""], "--columns: found no name"),
        (
            ["compare", "heights.csv", "--test-size", "2.5"],
            "--test-size: found 2.5; expected a fraction strictly between 0 and 1",
        ),
        (["compare", "heights.csv", "--test-size", "0"], "--test-size: found 0; expected a fraction"),
        (["compare", "heights.csv", "--test-size", "inf"], "--test-size: found inf"),
        (["compare", "heights.csv", "--test-size", "149"], "--test-size: found 149 of 150 rows held out"),
        (["compare", "heights.csv", "--seed", "-1"], "--seed: found -1; expected an int from 0 to"),
        (["compare", "heights.csv", "--output", "a.doc"], ".csv"),
        (["compare", "heights.csv", "--output", "heights.csv"], "which holds the data"),
        (["compare", "heights.csv", "--output", "folder.csv"], "which is a folder"),
        (["compare", "heights.csv", "--array", "X"], "--array: found 'X' for a csv file"),
        (
            ["compare", "heights.csv", "--models", "rbm"],
            "--models: found rbm-likelihood, rbm-cd, rbm-pcd, rbm-nce",
        ),
        (
            ["compare", "heights.csv", "--models", "rbm-cd"],
            "expected at least one that suits: gaussian, gmm-full",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(run, csv, monkeypatch, arguments, said):
    monkeypatch.chdir(csv.parent)
    (csv.parent / "folder.csv").mkdir(exist_ok=True)
    code, told, heard = run(*arguments)
    assert code == 2 and not told
    assert said in heard and "Traceback" not in heard
    assert len(heard.strip().splitlines()) == 1 and heard.startswith("energax: ")


def test_files_that_do_not_suit_are_told_by_what_they_hold(run, tmp_path, monkeypatch):
    """Each mistake of a file is named for what it is, and says what would be right."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "tiny.csv").write_text("a,b\n1,2\n")
    (tmp_path / "twice.csv").write_text("x,x,y\n" + "1,2,3\n4,5,6\n" * 10)
    (tmp_path / "flat.csv").write_text("a,b\n" + "3,4\n" * 10)
    (tmp_path / "inf.csv").write_text("a,b\n1,2\n3,1e400\n")
    np.savez("none.npz")
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
        ("twice.csv -d x", "twice.csv: found more than one column called 'x'"),
        ("tiny.csv", "tiny.csv: found 1 row; expected at least 4"),
        ("flat.csv", "flat.csv: found only constant columns"),
        ("inf.csv", "inf.csv: found an infinite value in row 2 of 2, column b"),
        ("none.npz", "none.npz: it contains no array"),
        ("mix.csv -c name", "'name', which was left out: not numeric"),
        ("tiny.csv --models foo", "no model 'foo'; expected a model that `energax models` lists."),
    ):
        code, told, heard = run("compare", *arguments.split())
        assert code == 2 and not told and said in heard, heard
        assert "array=" not in heard and "…" not in heard


def test_columns_are_chosen_by_name_whatever_is_in_it(run, tmp_path):
    """A word that is a column's name is that column, commas and all; an option may be given again."""
    file, X = tmp_path / "a.csv", np.random.default_rng(0).normal(size=(40, 4))
    pd.DataFrame(X, columns=["height, cm", "b", "c", "d"]).to_csv(file, index=False)
    for arguments, left in (
        (["-c", "height, cm"], "Real(1)"),
        (["-c", "height, cm", "-c", "b,c"], "Real(3)"),
        (["-d", "height, cm", "-d", "b"], "Left out, asked for: 'height, cm', b."),
        (["-c", "b, c", "-d", "c,d"], "Real(1)"),
    ):
        code, told, heard = run("compare", file, *arguments, "-m", "gaussian", "-q")
        assert code == 0 and left in told, (arguments, told, heard)
    code, _, heard = run("compare", file, "-c", "height")
    assert code == 2 and "a column among 'height, cm', b, c, d" in heard
    _, told, _ = run("compare", "--help")
    assert "A name with a comma" in " ".join(told.split())


def test_models_may_be_named_one_option_each(run, csv):
    code, told, _ = run("compare", csv, "-m", "gaussian", "-m", "gmm-diag", "-q")
    assert code == 0 and "one Gaussian" in told and "GMM 8, diag" in told


@pytest.mark.parametrize("unit", ["e200", "e307", "e-200", ""])
def test_the_unit_of_a_column_moves_the_score_by_its_logarithm(run, tmp_path, unit):
    X = np.random.default_rng(0).normal(size=(60, 2))
    scores = []
    for i, power in enumerate(("", unit)):
        lines = [f"{a:.6f}{power},{b:.6f}" for a, b in X]
        (tmp_path / "a.csv").write_text("\n".join(["x,y", *lines]))
        code, told, heard = run(
            "compare", tmp_path / "a.csv", "-m", "gaussian", "-q", "-o", tmp_path / f"{i}.csv"
        )
        assert code == 0 and not heard and "Whole numbers" not in told
        scores.append(pd.read_csv(tmp_path / f"{i}.csv")["log_likelihood"][0])
    shift = float(unit.removeprefix("e") or 0) * np.log(10)
    assert scores[0] - scores[1] == pytest.approx(shift, abs=1e-9)


def test_a_held_out_value_beyond_all_scale_is_named(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(40, 2))
    from energax.evaluate import hold_out

    X[hold_out(40, 0.2, key=0)[1][0], 1] = 1e200
    pd.DataFrame(X, columns=["x", "y"]).to_csv(tmp_path / "a.csv", index=False)
    code, told, heard = run("compare", tmp_path / "a.csv", "-m", "gaussian")
    assert code == 2 and not told and len(heard.splitlines()) == 1
    assert "a.csv: found 1e+200 in column y, whose other values are" in heard


def test_an_unknown_option_is_exit_code_2(run):
    code, _, heard = run("compare", "--modles", "x")
    assert code == 2 and "Traceback" not in heard and "--models" in heard


def test_the_table_says_which_array_it_took_and_which_not(run, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "many.npz", X=X, Y=X, lab=np.arange(60))
    code, told, _ = run("compare", tmp_path / "many.npz", "-m", "gaussian", "-q")
    assert code == 0
    assert "array X of many.npz" in told and "Left out, other arrays in the file: Y, lab." in told


def test_models_lists_every_model(run):
    from energax.evaluate import model_specs

    code, told, _ = run("models")
    assert code == 0 and all(spec.name in told for spec in model_specs())


def test_the_installed_command_says_its_version():
    from energax import __version__

    ran = subprocess.run(
        [sys.executable, "-m", "energax.cli", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == f"energax {__version__}"
