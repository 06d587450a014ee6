"""BIF: networks are read, written files read back, and errors have a position."""

from __future__ import annotations

import gzip
import itertools
import json
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from energax.data._bif.parser import format_bif, parse_bif
from energax.data._model_files import load_tables, save_tables
from energax.errors import BadFile, BadInput
from energax.graph import TableModel

NETWORKS = (
    "alarm", "andes", "asia", "cancer", "child", "earthquake",
    "hailfinder", "insurance", "pigs", "sachs", "survey", "win95pts",
)  # fmt: skip
PLACE = re.compile(r", line (\d+), column (\d+)$")

STORY = """\
// the dog of Charniak's story
network "Dog-Problem" { //5 variables
  property "credal-set constant-density-bounded 1.1" ;
  property author = me; }
variable  "light-on" { type discrete[2] { "true" "false" }; property position = (218, 195) ; }
variable "family out" {
  property "a; b";
  type discrete [ 2 ]  {  true, false };
}
variable bowel-problem.v2 { type discrete [3] { 0 1 2.5 }; }
probability ( "light-on" "family out" ) { // 2 variables
  table /* true */ 0.6 0.05 // p(true | ...)
        0.4 0.95;
}
probability ( "family out" ) { property "prior"; table 0.15 0.85; }
probability ( bowel-problem.v2 | family out, "light-on" ) {
  default 0.2, 0.3, 0.5;
  ( true, "false" ) 1, 0.0, 0e-3; /* (false, false) 9 9 9; */
}
"""


def test_every_part_of_the_dialect():
    model = parse_bif(STORY)
    assert model.names == ("light-on", "family out", "bowel-problem.v2")
    assert model.states == (("true", "false"), ("true", "false"), ("0", "1", "2.5"))
    assert model.scopes == ((1, 0), (1,), (1, 0, 2))
    np.testing.assert_array_equal(model.tables[0], [[0.6, 0.4], [0.05, 0.95]])
    rest = [0.2, 0.3, 0.5]
    np.testing.assert_array_equal(model.tables[2], [[rest, [1, 0, 0]], [rest, rest]])
    assert model.properties == {
        "name": "Dog-Problem",
        "network": ('"credal-set constant-density-bounded 1.1"', "author = me"),
        "variables": {"light-on": ("position = (218, 195)",), "family out": ('"a; b"',)},
        "probabilities": {"family out": ('"prior"',)},
    }
    assert parse_bif(format_bif(model)) == model


def test_a_table_counts_child_slowest_unless_only_the_other_way_sums_to_one():
    head = "network n {} variable a { type discrete [2] {x, y}; } variable b { type discrete [3] {x, y, z}; }"
    head += "probability (a) { table 0.5, 0.5; } probability (b | a) { table "
    expected = [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]
    standard, other = "0.1 0.3  0.2 0.3  0.7 0.4; }", "0.1 0.2 0.7  0.3 0.3 0.4; }"
    np.testing.assert_array_equal(parse_bif(head + standard).tables[1], expected)
    np.testing.assert_array_equal(parse_bif(head + other).tables[1], expected)


def test_names_with_blanks_may_be_separated_by_commas():
    model = parse_bif(
        "network n {} variable my var { type discrete [2] { very low, high }; }"
        "variable b { type discrete [2] { t f }; } probability ( my var ) { table 0.5 0.5; }"
        "probability ( b | my var ) { (very low) 0.1 0.9; (high) 0.5 0.5; }"
    )
    assert model.names[0] == "my var" and model.states[0] == ("very low", "high")
    np.testing.assert_array_equal(model.tables[1], [[0.1, 0.9], [0.5, 0.5]])


names = st.one_of(
    st.text(st.characters(exclude_characters='"', exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(
        ["table", "default", "property", "a-b", "x.y", "two words", "1", "//", "/* */", "variable", "{"]
    ),
)


@st.composite
def networks(draw) -> TableModel:
    n = draw(st.integers(1, 4))
    variables = draw(st.lists(names, min_size=n, max_size=n, unique=True))
    states = [tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True))) for _ in variables]
    order = draw(st.permutations(range(n)))
    scopes, tables = [], []
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    for child in range(n):
        before = order[: order.index(child)]
        parents = draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
        shape = tuple(len(states[v]) for v in parents)
        scopes.append((*parents, child))
        tables.append(rng.dirichlet(np.full(len(states[child]), 0.5), size=shape))
    return TableModel(
        "bayes", tuple(variables), tuple(states), tuple(scopes), tuple(tables), {"name": draw(names)}
    )


@settings(max_examples=120)
@given(networks())
def test_written_text_reads_back_exactly(model):
    assert parse_bif(format_bif(model)) == model


@settings(max_examples=200)
@given(networks(), st.data())
def test_a_truncated_file_raises_with_its_position(model, data):
    text = format_bif(model).rstrip()
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    with pytest.raises(BadInput) as caught:
        parse_bif(cut, "cut.bif")
    line, column = map(int, PLACE.search(caught.value.argument).groups())
    lines = cut.split("\n")
    assert caught.value.argument.startswith("cut.bif")
    assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1


@settings(max_examples=200)
@given(st.data())
def test_damaged_text_is_read_or_raises_bad_input(data):
    at = data.draw(st.integers(0, len(STORY)))
    length = data.draw(st.integers(0, 5))
    junk = data.draw(st.text(st.sampled_from('(){};,|"/*0.9e-1ab \n\x00é'), max_size=5))
    place = ", line 1, column 1"
    try:
        parse_bif(STORY[:at] + junk + STORY[at + length :])
    except BadInput as error:
        place = error.argument
    assert PLACE.search(place)


COIN = "network n { }\nvariable a { type discrete [ 2 ] { yes, no }; }\n"
BODY = "variable b { type discrete [ 2 ] { up, down }; }\nprobability ( a ) { table 0.5, 0.5; }\n"


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "line 1, column 1", "expected at least one variable"),
        ("hello", "line 1, column 1", "found 'hello'; expected network, variable or probability"),
        (COIN, "line 3, column 1", "expected a probability block for a"),
        (COIN + "probability ( c ) { }", "line 3, column 15", "found 'c'; expected a variable declared"),
        (COIN + "probability ( a ) { table 0.5; }", "line 3, column 30", "found 1; expected .*2 numbers"),
        (COIN + "probability ( a ) { table 0.5, 0.6; }", "line 3, column 13", r"p\(a\) with the sum 1.1"),
        (COIN + "probability ( a ) { table 0.5, x; }", "line 3, column 32", "found 'x'; expected .*numbers"),
        (COIN + "probability ( a ) { table -0.5, 1.5; }", "line 3, column 27", "found '-0.5'"),
        (COIN + "probability ( a ) { table nan, 1; }", "line 3, column 27", "found 'nan'"),
        (COIN + COIN[14:], "line 3, column 10", "a second variable a"),
        (COIN + BODY + "probability ( b | a ) { (yes) 0.1 0.9; }", "line 5, column 40", "of b for a = no"),
        (COIN + BODY + "probability ( b | a ) { (yse) 0.1 0.9; }", "line 5, column 26", r"of a \(yes, no\)"),
        (COIN + BODY + "probability ( b | a ) { (yes) 0.1 0.8; default 1 0; }", "line 5, column 13",
         r"p\(b \| a = yes\) with the sum 0.9"),
        (COIN + BODY + "probability ( b | a ) { (yes, no) 1 0; }", "line 5, column 25", "the 1 parents"),
        (COIN + BODY + "probability ( b | b ) { }", "line 5, column 13", "twice in the block of b"),
        ("network n { }\nvariable a { type continuous; }", "line 2, column 19", "discrete"),
        ("network n { }\nvariable a { type discrete [ 3 ] { x, y }; }", "line 2, column 34", "3 states of a"),
        ("network n { /* \n }", "line 1, column 13", "an open comment"),
        ('network "n { }', "line 1, column 9", "an open quote"),
    ],
)  # fmt: skip
def test_errors_have_a_position_and_a_reason(text, place, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        parse_bif(text)
    assert caught.value.argument.endswith(place)


def test_a_cycle_is_named():
    pair = "network n {} variable a { type discrete [1] {x}; } variable b { type discrete [1] {x}; }"
    with pytest.raises(BadInput, match="the cycle a → b → a"):
        parse_bif(pair + "probability (a | b) { (x) 1; } probability (b | a) { (x) 1; }")


def test_rows_off_by_rounding_are_normalised_and_exact_ones_left_alone():
    text = COIN + "probability ( a ) { table 0.33333, 0.66666; }"
    assert parse_bif(text).tables[0].sum() == 1.0
    thirds = np.array([0.1, 0.2, 0.7])
    text = "network n {} variable a { type discrete [3] {x y z}; } probability (a) { table 0.1 0.2 0.7; }"
    np.testing.assert_array_equal(parse_bif(text).tables[0], thirds)


def test_models_that_bif_cannot_hold_raise():
    model = TableModel("bayes", ('say "a"',), (("x",),), ((0,),), (np.ones(1),))
    with pytest.raises(BadInput, match="without quotes"):
        format_bif(model)
    with pytest.raises(BadInput, match="a Bayesian network"):
        format_bif(TableModel("markov", ("a",), (("x",),), (), ()))


def test_incomplete_files_raise(tmp_path):
    model = parse_bif(STORY)
    for name in ("dog.bif", "dog.BIF.gz"):
        save_tables(model, tmp_path / "new" / name)
        assert load_tables(tmp_path / "new" / name) == model
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["dog.BIF.gz", "dog.bif"]
    packed = (tmp_path / "new" / "dog.BIF.gz").read_bytes()
    for cut in range(2, len(packed) - 1, 7):
        (tmp_path / "cut.bif.gz").write_bytes(packed[:cut])
        with pytest.raises(BadInput, match=r"cut.bif.gz, line \d+, column \d+"):
            load_tables(tmp_path / "cut.bif.gz")
    (tmp_path / "bent.bif.gz").write_bytes(packed[:40] + b"\xff\x00\xff" + packed[43:])
    with pytest.raises(BadInput, match="damaged gzip"):
        load_tables(tmp_path / "bent.bif.gz")
    with pytest.raises(BadFile, match="does not exist"):
        load_tables(tmp_path / "none.bif")
    with pytest.raises(BadFile, match=r"must end in \.bif, \.uai"):
        load_tables(tmp_path / "dog.xml")
    before = (tmp_path / "new" / "dog.bif").read_bytes()
    with pytest.raises(BadInput):
        save_tables(TableModel("markov", ("a",), (("x",),), (), ()), tmp_path / "new" / "dog.bif")
    assert (tmp_path / "new" / "dog.bif").read_bytes() == before


def test_latin_1_is_read(tmp_path):
    (tmp_path / "old.bif").write_bytes(STORY.replace("family out", "famille sortée").encode("latin-1"))
    assert load_tables(tmp_path / "old.bif").names[1] == "famille sortée"


@pytest.mark.parametrize("name", NETWORKS)
def test_every_shared_network_reads_and_reads_back(shared_data, name):
    folder = shared_data / "bayesnets-bif"
    model = load_tables(folder / f"{name}.bif.gz")
    assert all(np.allclose(table.sum(-1), 1.0, rtol=0, atol=1e-12) for table in model.tables)
    assert parse_bif(format_bif(model)) == model
    with gzip.open(folder / "exact_marginals" / f"{name}.json.gz", "rt") as file:
        assert set(model.names) <= set(re.findall(r'"([^"]*)"', file.read()))


def test_asia_answers_as_published(shared_data):
    """The order of the axes is right: p(lung | xray = yes, dysp = yes) by brute force."""
    model = load_tables(shared_data / "bayesnets-bif" / "asia.bif.gz")
    joint = np.einsum(*itertools.chain.from_iterable(zip(model.tables, model.scopes, strict=True)), range(8))
    at = {name: i for i, name in enumerate(model.names)}
    evidence = np.take(np.take(joint, [0], at["xray"]), [0], at["dysp"])
    assert np.isclose(np.log(evidence.sum()), -2.64973265, rtol=0, atol=5e-9)
    for name, value in (("lung", 0.621253), ("bronc", 0.681869)):
        marginal = np.einsum(evidence, range(8), [at[name]]) / evidence.sum()
        assert np.isclose(marginal[0], value, rtol=0, atol=1e-6)
    assert json.dumps(model.properties) == '{"name": "unknown"}'


def test_a_large_network_reads_back():
    """Two hundred thousand numbers in rows of twenty come back bit for bit."""
    card, n = 20, 25
    states = tuple(f"s-{i}.5" for i in range(card))
    rng = np.random.default_rng(0)
    scopes = [(0,), (0, 1), *((i - 2, i - 1, i) for i in range(2, n))]
    tables = [rng.dirichlet(np.ones(card), size=(card,) * (len(scope) - 1)) for scope in scopes]
    names = tuple(f"v{i}" for i in range(n))
    model = TableModel("bayes", names, (states,) * n, tuple(scopes), tuple(tables))
    found = parse_bif(format_bif(model))
    assert all(map(np.array_equal, found.tables, model.tables))
