"""Readers: what a file holds comes out as it is, and a broken one says so in a sentence."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from energax.data import Table, read
from energax.errors import BadFile, BadInput, EnergaxError


def test_csv_keeps_numbers_and_names_what_it_left_out(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("rownames,name,flag,height,empty\n1,ann,True,1.7,\n2,bob,False,NA,\n3,eve,True,1.6,\n")
    table = read(file)
    assert table.columns == ("flag", "height")
    assert dict(table.dropped) == {
        "rownames": "only counts the rows",
        "name": "not numeric",
        "empty": "empty",
    }
    np.testing.assert_array_equal(table.values, [[1, 1.7], [0, np.nan], [1, 1.6]])


def test_a_first_column_that_only_looks_like_a_count_is_kept(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("year,y\n1,2\n2,5\n")
    assert read(file).columns == ("year", "y")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "1.5,1.5,2\n3,4,5\n"),
        ("a.csv", "1.5;1.5;2\n3;4;5\n"),
        ("a.tsv", "1.5\t1.5\t2\n3\t4\t5\n"),
    ],
)
def test_a_csv_of_numbers_alone_has_no_header(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    np.testing.assert_array_equal(read(file).values, [[1.5, 1.5, 2], [3, 4, 5]])


def test_every_format_reads_the_same_numbers(tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 3))
    frame = pd.DataFrame(X, columns=list("abc"))
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress((tmp_path / "x.csv").read_bytes()))
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X, y=np.arange(5))
    for name in ("x.csv", "x.csv.gz", "x.parquet", "x.npy", "x.npz"):
        np.testing.assert_allclose(read(tmp_path / name).values, X, rtol=1e-12, err_msg=name)


def test_npz_with_several_tables_asks_which(tmp_path):
    np.savez(tmp_path / "a.npz", train=np.ones((3, 2)), test=np.zeros((2, 2)))
    with pytest.raises(BadInput, match="array="):
        read(tmp_path / "a.npz")
    assert read(tmp_path / "a.npz", array="test").values.sum() == 0
    with pytest.raises(BadInput, match="train, test"):
        read(tmp_path / "a.npz", array="tset")


def test_pickles_inside_npz_are_never_opened(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[object()]], dtype=object))
    with pytest.raises(BadFile):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.npz", "a.npy", "a.parquet"])
def test_a_truncated_file_is_refused(tmp_path, name):
    X = np.ones((50, 3))
    if name.endswith("npz"):
        np.savez(tmp_path / name, X=X)
    elif name.endswith("npy"):
        np.save(tmp_path / name, X)
    else:
        pd.DataFrame(X, columns=list("abc")).to_parquet(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadFile, match=name):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", ""),
        ("a.csv", "a,b\n"),
        ("a.csv", "a,b\nx,y\n"),
        ("a.csv", "a\ninf\n1\n"),
        ("a.doc", "1,2\n"),
    ],
)
def test_useless_files_are_refused_with_one_sentence(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(EnergaxError) as refusal:
        read(file)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "iris.csv").write_text("a\n1\n")
    with pytest.raises(BadFile, match=r"Did you mean iris\.csv"):
        read(tmp_path / "irsi.csv")


def test_tables_know_their_columns():
    table = Table.of(pd.DataFrame({"height": [1.0, 2.0], "weight": [3.0, 4.0]}))
    assert table.only(["weight"]).values.tolist() == [[3.0], [4.0]]
    assert table.without(["weight"]).dropped == (("weight", "asked for"),)
    with pytest.raises(BadInput, match="Did you mean 'height'"):
        table.without(["hieght"])
    with pytest.raises(BadInput):
        table.without(["height", "weight"])


def test_frames_of_other_libraries_are_read_alike():
    import polars

    frame = {"a": [1.0, None, 3.0], "b": [True, False, True]}
    expected = Table.of(pd.DataFrame(frame)).values
    np.testing.assert_array_equal(Table.of(polars.DataFrame(frame)).values, expected)
    nullable = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": frame["b"]})
    np.testing.assert_array_equal(Table.of(nullable).values, expected)


@pytest.mark.parametrize("bad", [[1, 2], [[1, 2], [3]], np.zeros((0, 3)), [["a", "b"]], [[np.inf, 1.0]]])
def test_arrays_that_are_no_table_are_refused(bad):
    with pytest.raises(BadInput, match="data"):
        Table.of(bad)
