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


def test_objects_are_never_opened_and_do_not_hide_the_table_beside_them(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.savez(tmp_path / "a.npz", X=X, lab=np.array(["a", None], dtype=object))
    assert read(tmp_path / "a.npz").values.tolist() == X.tolist()
    with pytest.raises(BadFile, match="Save numbers"):
        read(tmp_path / "a.npz", array="lab")
    np.save(tmp_path / "a.npy", np.array([[1, None]], dtype=object))
    with pytest.raises(BadFile, match="Save numbers"):
        read(tmp_path / "a.npy")


def test_an_array_that_is_no_table_is_told_by_its_shape(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 3, 4)))
    with pytest.raises(BadInput, match=r"3-D array of shape \(2, 3, 4\); expected a 2-D table.*reshape"):
        read(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", a=np.ones(3), b=np.ones((2, 2, 2)))
    with pytest.raises(BadInput, match=r"a \(3,\), b \(2, 2, 2\); expected a 2-D table") as refusal:
        read(tmp_path / "a.npz")
    assert "array=" not in str(refusal.value), "no choice of array would help"


def test_the_value_that_spoils_a_column_is_named(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("a,b,c\n1,2,x\n2,3,y\n?,4,z\n4,5,x\n")
    table = read(file)
    assert table.columns == ("b",)
    why = dict(table.dropped)
    assert why["a"].startswith("not numeric for '?' in row 3 of 4") and why["c"] == "not numeric"
    with pytest.raises(BadInput, match=r"'a', which was left out: not numeric for '\?' in row 3"):
        table.only(["a"])
    assert table.without(["c"]).columns == ("b",), "what is out already may be left out"


@pytest.mark.parametrize("header", ["a;b\n", ""])
def test_decimal_commas_are_named_with_their_remedy(tmp_path, header):
    file = tmp_path / "a.csv"
    file.write_text(header + "1,5;2,5\n" * 3)
    with pytest.raises(BadInput, match=r"decimal commas such as '1,5' in row 1.*decimal=','"):
        read(file)
    file.write_text("a;n\n1,5;1\n2;3\n4;5\n")
    table = read(file)
    assert table.columns == ("n",) and "'1,5' in row 1 of 3" in dict(table.dropped)["a"]


@pytest.mark.parametrize("text", ["a\n1,5\n3,5\n", "a,b\n1,5,2,5\n3,5,4,5\n", "a,b\n1,2,\n3,4,\n"])
def test_rows_longer_than_the_header_are_not_cut(tmp_path, text):
    """1,5 under one name must not be read as 5."""
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(BadFile, match="more cells than the header"):
        read(file)
    file.write_text("a,b\nann,1,2\nbob,3,4\n")  # names of rows
    assert read(file).values.tolist() == [[1, 2], [3, 4]]


def test_latin_1_and_folders_are_told(tmp_path):
    file = tmp_path / "a.csv"
    file.write_bytes("größe,b\n1,2\n".encode("latin-1"))
    with pytest.raises(BadFile, match="Save it as UTF-8"):
        read(file)
    with pytest.raises(BadFile, match=r"a folder, not a file\. Name a file in it: a\.csv"):
        read(tmp_path)


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
