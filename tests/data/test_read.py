"""Readers: what a file holds comes out as it is, and a broken one says so in a sentence."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest

from energax.data import Table, _read, read
from energax.errors import BadFile, BadInput, EnergaxError


def test_csv_keeps_numbers_and_names_what_it_left_out(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("rownames,name,flag,height,empty\n1,ann,True,1.7,\n2,bob,False,NA,\n3,eve,True,1.6,\n")
    table = read(file)
    assert table.columns == ("flag", "height")
    assert dict(table.dropped) == {
        "rownames": "a row index",
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


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "x, y\n1, 2\n3, 4\n"),
        ("a.csv", 'x, y\n1, "2"\n3, "4"\n'),
        ("a.csv", "x|y\n1|2\n3|4\n"),
        ("a.tsv", "x,y\n1,2\n3,4\n"),
        ("a.txt", "  x   y\n  1   2\n  3   4\n"),
        ("a.txt", '"x" "y"\n"1" 1 2\n"2" 3 4\n'),  # R's row names
        ("a.txt", "# x y\n1 2\n3 4\n"),  # numpy.savetxt
        ("a.csv", "# written by hand\n\nx,y\n1,2\n3,4\n"),
        ("a.txt", "# by hand\nx y\n1 2\n3 4\n"),
    ],
)
def test_whatever_separates_the_cells(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    table = read(tmp_path / name)
    assert table.columns == ("x", "y") and table.dropped == () == table.notes
    assert table.values.tolist() == [[1, 2], [3, 4]]


def test_words_in_the_name_of_one_column_are_one_name(tmp_path):
    (tmp_path / "a.csv").write_text("height in cm\n170\n180\n")
    assert read(tmp_path / "a.csv").columns == ("height in cm",)


def test_what_was_made_of_a_first_line_in_doubt_is_told(tmp_path):
    file = tmp_path / "a.csv"
    for text, columns, rows, said in (
        ("1.5,2\n3,4\n", ("x0", "x1"), 2, "all numbers and was read as a row"),
        ("1.5,2,ann\n3,4,bob\n5,6,eve\n", ("1.5", "2"), 2, "column names, 1.5 among them"),
        ("0,1,2\n3,4,5\n", ("0", "1", "2"), 1, "column names, 0, 1, 2 and so on"),
    ):
        file.write_text(text)
        table = read(file)
        assert table.columns == columns and len(table) == rows
        assert len(table.notes) == 1 and said in table.notes[0]


def test_truth_values_and_large_whole_numbers_are_numbers_beside_empty_cells(tmp_path):
    (tmp_path / "a.csv").write_text(f"flag,n,gap\nTrue,{10**30},1\n,{2 * 10**30}, \nFalse,{10**30},2\n")
    expected = [[1, 1e30, 1], [np.nan, 2e30, np.nan], [0, 1e30, 2]]
    np.testing.assert_array_equal(read(tmp_path / "a.csv").values, expected)


def test_two_columns_of_one_name_are_refused(tmp_path):
    file = tmp_path / "a.csv"
    for header in ("x,x,y", " x,y,x ", "# x,x,y"):
        file.write_text(f"{header}\n1,2,3\n4,5,6\n")
        with pytest.raises(BadInput, match=r"a\.csv: found more than one column called 'x'; .* Rename"):
            read(file)
    file.write_text("x,x.1,,\n1,2,3,4\n4,5,6,7\n")  # its own names, and two without one
    assert read(file).columns[:2] == ("x", "x.1")
    with pytest.raises(BadInput, match="data: found more than one column called 'b'"):
        Table.of(pd.DataFrame(np.ones((2, 3)), columns=["a", "b", "b"]))


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


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1,125,730", "999"], "commas in numbers such as '1,125,730' in row 1"),
        (["1,234", "2,345"], "commas in numbers such as '1,234' in row 1 of 2 (write 1234, or 1.234"),
        (["1.234,5", "0,5"], "decimal commas"),
        (["12%", "-3.5 %"], "signs beside numbers such as '12%'"),
        (["$12.50", "$ 3"], "signs beside numbers"),
        (["2024-01-31", "2024-02-01 10:00"], "dates such as '2024-01-31'"),
        (["1.2.2024", "31/12/2024"], "dates"),
        (["1.2.3", "1.2.4"], "not numeric"),
    ],
)
def test_what_makes_text_of_numbers_is_named(tmp_path, cells, said):
    file = tmp_path / "a.csv"
    file.write_text("a,b\n" + "".join(f'"{cell}",1\n' for cell in cells))
    assert dict(read(file).dropped)["a"].startswith(said)


@pytest.mark.parametrize("text", ["a\n1,5\n3,5\n", "a,b\n1,5,2,5\n3,5,4,5\n", "a,b\n1,2,\n3,4,\n"])
def test_rows_longer_than_the_header_are_not_cut(tmp_path, text):
    """1,5 under one name must not be read as 5."""
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(BadFile, match="more cells than the header"):
        read(file)
    file.write_text("a,b\nann,1,2\nbob,3,4\n")  # names of rows
    assert read(file).values.tolist() == [[1, 2], [3, 4]]


def test_a_line_that_is_too_long_is_named(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4,5\n")
    with pytest.raises(BadFile, match=r"a\.csv: line 3 has 3 cells, the lines above it have 2\."):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_called_so(tmp_path, encoding):
    (tmp_path / "a.csv").write_bytes("a,b\n1,2\n3,4\n".encode(encoding))
    with pytest.raises(BadFile, match=r"UTF-16 text.* Save it as UTF-8"):
        read(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_bytes("a,b\n1,2\n".encode("utf-8-sig"))
    assert read(tmp_path / "b.csv").columns == ("a", "b"), "the mark of UTF-8 is no part of a name"


def test_a_file_of_another_kind_is_told_by_its_name(tmp_path):
    (tmp_path / "a.npy").write_bytes(b"no array, only text")
    np.savez(tmp_path / "zip.npz", X=np.ones((2, 2)))
    (tmp_path / "zip.npz").rename(tmp_path / "zip.npy")
    for name in ("a.npy", "zip.npy"):
        with pytest.raises(BadFile, match=rf"{name}: not an npy file\. .* numpy\.save\.$"):
            read(tmp_path / name)
    np.savez(tmp_path / "a.npz")
    with pytest.raises(BadFile, match=r"a\.npz: it contains no array\."):
        read(tmp_path / "a.npz")
    for name in ("a.csv", "b.npy", "b.npz"):
        (tmp_path / name).touch()
        with pytest.raises(BadFile, match=f"{name}: the file is empty"):
            read(tmp_path / name)
    (tmp_path / "none").write_text("1")
    with pytest.raises(BadFile, match="files whose name has no ending"):
        read(tmp_path / "none")
    with pytest.raises(BadFile, match="Download the file first"):
        read("https://example.org/a.csv")


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    def locked(*_):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.csv").write_text("a\n1\n")
    monkeypatch.setitem(_read._READERS, "csv", locked)
    with pytest.raises(BadFile, match="no permission to read this file"):
        read(tmp_path / "a.csv")


def test_a_long_table_with_one_odd_cell_is_read_without_a_warning(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,2\n" * 300_000 + "a,3\n")
    table = read(tmp_path / "a.csv")
    assert "'a' in row 300001 of 300001" in dict(table.dropped)["x"]


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


@pytest.mark.parametrize(
    "bad", [[1, 2], [[1, 2], [3]], np.zeros((0, 3)), [["a", "b"]], [[np.inf, 1.0]], [[1j]]]
)
def test_arrays_that_are_no_table_are_refused(bad):
    with pytest.raises(BadInput, match="data"):
        Table.of(bad)
