"""Words and ids: order, markers, unknown words, plain JSON."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from energax import BadFile, BadInput
from energax.vocabulary import Vocabulary

TEXT = [["the", "cat", "sat", "on", "the", "mat"], ["the", "dog", "sat"]]


def test_commonest_words_first_and_the_begin_marker_last():
    v = Vocabulary.build(TEXT)
    assert v.words == ("<unk>", "</s>", "the", "sat", "cat", "dog", "mat", "on", "<s>")
    assert (v.unknown_id, v.end_id, v.begin_id, v.n_predicted, len(v)) == (0, 1, 8, 8, 9)
    assert Vocabulary.build(TEXT, min_count=2).words == ("<unk>", "</s>", "the", "sat", "<s>")
    assert Vocabulary.build(TEXT, max_size=1).words == ("<unk>", "</s>", "the", "<s>")


def test_markers_in_the_text_are_the_markers():
    v = Vocabulary.build([["<unk>", "a", "</s>"]])
    assert v.words == ("<unk>", "</s>", "a", "<s>")
    assert v.encode(["<unk>", "never", "a"], begin=True, end=True).tolist() == [3, 0, 0, 2, 1]


@given(st.lists(st.lists(st.text(max_size=3), min_size=1), min_size=1))
def test_decoding_undoes_encoding(text):
    v = Vocabulary.build(text)
    for row in text:
        assert v.decode(v.encode(row)) == row
        assert v.encode(row).dtype == np.int32


def test_a_closed_vocabulary_refuses_strangers():
    v = Vocabulary.build(TEXT, unknown=None, begin=None, end=None)
    assert v.n_predicted == len(v) == 6 and v.end_id is None and "cat" in v and "bird" not in v
    with pytest.raises(BadInput, match="'bird', not in the vocabulary"):
        v.encode(["the", "bird"])
    with pytest.raises(BadInput, match="no end marker"):
        v.encode(["the"], end=True)
    with pytest.raises(BadInput, match="unknown"):
        Vocabulary.build(TEXT, unknown=None, min_count=2)


def test_it_is_immutable_and_compared_by_its_words():
    v = Vocabulary.build(TEXT)
    assert v == Vocabulary.build(TEXT) and hash(v) == hash(Vocabulary.build(TEXT))
    with pytest.raises(dataclasses.FrozenInstanceError):
        v.words = ()
    assert repr(v) == "Vocabulary(9 words: '<unk>', '</s>', 'the', 'sat', …)"


def test_it_is_saved_as_plain_json(tmp_path):
    v = Vocabulary.build([["é", "日本", "\n"]])
    path = tmp_path / "there" / "words.json"
    v.save(path)
    assert json.loads(path.read_text(encoding="utf-8"))["words"] == list(v.words)
    assert Vocabulary.load(path) == v and [p.name for p in path.parent.iterdir()] == ["words.json"]


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "words.json"
    with pytest.raises(BadFile, match="no such file"):
        Vocabulary.load(path)
    Vocabulary.build(TEXT).save(path)
    whole = path.read_text()
    for damaged, sentence in (
        (whole[:-9], "not JSON"),
        ("[1]", "not a vocabulary"),
        (whole.replace('"version": 1', '"version": 2'), "Update energax"),
        (whole.replace('"cat"', '"dog"'), "more than once"),
        (whole.replace('"cat"', "3"), "each a str"),
    ):
        path.write_text(damaged)
        with pytest.raises(BadFile, match=sentence):
            Vocabulary.load(path)


def test_bad_input_is_refused_by_name():
    v = Vocabulary.build(TEXT)
    for sentence, call in {
        "min_count": lambda: Vocabulary.build(TEXT, min_count=0),
        "max_size": lambda: Vocabulary.build(TEXT, max_size=1.5),
        r"sequences\[0\]: found a string": lambda: Vocabulary.build(["a b"]),
        "the word 3 of type int": lambda: Vocabulary.build([[3]]),
        "words: found a string": lambda: v.encode("a b"),
        "ids": lambda: v.decode([9]),
        "more than once": lambda: Vocabulary(("a", "a"), None, None, None),
        "words: found none": lambda: Vocabulary((), None, None, None),
        "begin": lambda: Vocabulary(("<s>", "a"), None, "<s>", None),
        "unknown": lambda: Vocabulary(("a", "<s>"), "<unk>", "<s>", None),
    }.items():
        with pytest.raises(BadInput, match=sentence):
            call()
