"""UAI: problems are read, written files read back, and errors have a position."""

from __future__ import annotations

import itertools
import re

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from energax.data._model_files import load_tables, read_evidence, save_tables
from energax.data._uai import format_uai, parse_evidence, parse_uai
from energax.errors import BadInput
from energax.graph import TableModel, table_cost, triangulate_scopes

PLACE = re.compile(r", line (\d+), column (\d+)$")


@st.composite
def models(draw) -> TableModel:
    n = draw(st.integers(1, 5))
    cards = [draw(st.integers(1, 3)) for _ in range(n)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["markov", "bayes"]))
    if kind == "markov":
        groups = st.lists(st.sampled_from(range(n)), max_size=3, unique=True)
        scopes = [tuple(scope) for scope in draw(st.lists(groups, max_size=5))]
        sizes = [tuple(cards[v] for v in scope) for scope in scopes]
        tables = [rng.exponential(size=size) * rng.integers(0, 2, size=size) for size in sizes]
    else:
        order = draw(st.permutations(range(n)))
        scopes, tables = [], []
        for child in range(n):
            before = order[: order.index(child)]
            parents = draw(st.lists(st.sampled_from(before), max_size=2, unique=True)) if before else []
            scopes.append((*parents, child))
            size = tuple(cards[v] for v in parents)
            tables.append(rng.dirichlet(np.full(cards[child], 0.3), size=size))
    names = tuple(f"x{v}" for v in range(n))
    states = tuple(tuple(map(str, range(card))) for card in cards)
    return TableModel(kind, names, states, tuple(scopes), tuple(np.asarray(t, float) for t in tables))


@settings(max_examples=120)
@given(models())
def test_written_text_reads_back_exactly(model):
    text = format_uai(model)
    assert parse_uai(text) == model
    assert parse_uai("c a comment\n" + text.replace("\n", "\r\nc\n c 1 2\n")) == model
    assert parse_uai(" ".join(text.split())) == model, "line breaks are blanks"


@settings(max_examples=200)
@given(models(), st.data())
def test_a_truncated_file_raises_with_its_position(model, data):
    text = format_uai(model).rstrip()
    last = max(text.rfind(" "), text.rfind("\n")) + 1  # a truncated last number cannot be detected
    cut = text[: data.draw(st.integers(0, last - 1))]
    with pytest.raises(BadInput) as caught:
        parse_uai(cut, "cut.uai")
    line, column = map(int, PLACE.search(caught.value.argument).groups())
    lines = cut.split("\n")
    assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1


@settings(max_examples=200)
@given(models(), st.data())
def test_damaged_text_is_read_or_raises_bad_input(model, data):
    text = format_uai(model)
    at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 5))
    junk = data.draw(st.text(st.sampled_from("0123456789.-e_ \nnaifMc\x00é²"), max_size=5))
    for parse in (parse_uai, parse_evidence):
        place = ", line 1, column 1"
        try:
            parse(text[:at] + junk + text[at + length :])
        except BadInput as error:
            place = error.argument
        assert PLACE.search(place)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "line 1, column 1", "found the end of the file; expected MARKOV or BAYES"),
        ("MARCOV", "line 1, column 1", "found 'MARCOV'"),
        ("MARKOV\n2\n2 0", "line 3, column 3", "states of variable 1: a whole number >= 1"),
        ("MARKOV\n2\n2 2\n1\n2 0 2", "line 5, column 5", "found '2'; expected .*< 2"),
        ("MARKOV\n1\n9999999999 0", "line 3, column 1", ">= 1 and < 1000000"),
        ("MARKOV\n2\n2 2\n1\n2 0 0", "line 5, column 5", "every variable once"),
        ("MARKOV\n1\n2\n1\n1 0\n3 1 1 1", "line 6, column 1", "expected 2 entries of table 0"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 -1", "line 6, column 5", "found '-1'; expected table 0: a number >= 0"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 inf", "line 6, column 5", "found 'inf'"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1", "line 6, column 4", "1 more numbers"),
        ("MARKOV\n1\n2\n1\n1 0\n2 1 1\n7", "line 7, column 1", "found '7'; expected the end of the file"),
        ("BAYES\n2\n2 2\n1\n1 0\n", "line 6, column 1", "no table for variable 1"),
        ("BAYES\n1\n2\n2\n1 0\n1 0\n", "line 6, column 3", "a second table for variable 0"),
        ("BAYES\n2\n1 1\n2\n2 1 0\n2 0 1\n1 1 1 1", "line 5, column 1", "the cycle 0 → 1 → 0"),
        ("BAYES 2 2 2 2 1 0 2 0 1\n2 0.5 0.5\n4 0.5 0.5 0.5 0.4", "line 3, column 3",
         r"p\(x1 \| x0 = 1\) with the sum 0.9"),
    ],
)  # fmt: skip
def test_errors_have_a_position_and_a_reason(text, place, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        parse_uai(text)
    assert caught.value.argument.endswith(place)


def test_tables_of_a_directed_model_come_in_the_order_of_the_variables():
    model = parse_uai("BAYES 2  2 3  2  2 1 0  1 1   6  .1 .9 .2 .8 .3 .7   3  .5 .25 .25")
    assert model.scopes == ((1, 0), (1,)) and model.parents(0) == (1,)
    np.testing.assert_array_equal(model.tables[0], [[0.1, 0.9], [0.2, 0.8], [0.3, 0.7]])


def test_a_constant_and_a_variable_without_a_table():
    model = parse_uai("MARKOV 2 2 3 2 0 1 0 1 2.5 2 0 1")
    assert model.scopes == ((), (0,)) and model.tables[0] == 2.5
    assert table_cost(triangulate_scopes(model.cards, model.scopes).cliques, model.cards).entries == 5


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("", ({},)),
        ("0", ({},)),
        ("\n0\n", ({},)),
        ("1\n0", ({},)),
        ("2 1 0 2 1", ({1: 0, 2: 1},)),
        ("1\n2 1 0 2 1", ({1: 0, 2: 1},)),
        ("1 2 1 0 2 1", ({1: 0, 2: 1},)),
        ("2\n1 0 1\n1 2 0\n", ({0: 1}, {2: 0})),
        ("2\n1 0 1\n0", ({0: 1}, {})),
        ("2\n1 0\n2 1", ({1: 0, 2: 1},)),
        ("0\n", ({},)),
    ],
)
def test_both_layouts_of_evidence(text, samples):
    assert parse_evidence(text, [2, 2, 2]) == samples


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("2 1 0 2", "line 1, column 8", "the state of variable 2"),
        ("1 7 0", "line 1, column 3", "an observed variable: a whole number < 3"),
        ("1 0 2", "line 1, column 5", "the state of variable 0: a whole number < 2"),
        ("2 0 1 0 0", "line 1, column 7", "state 1 and 0"),
        ("1\n1 0 x", "line 2, column 5", "found 'x'"),
        ("x", "line 1, column 1", "found 'x'"),
        ("999999999999 0", "line 1, column 15", "found the end of the file"),
    ],
)
def test_errors_in_evidence_have_a_position(text, place, reason):
    with pytest.raises(BadInput, match=reason) as caught:
        parse_evidence(text, [2, 2, 2])
    assert caught.value.argument.endswith(place)


def test_every_shared_problem_reads_and_reads_back(shared_data, tmp_path):
    files = sorted((shared_data / "uai2014").glob("*.uai.gz"))
    assert len(files) == 26
    for file in files:
        model = load_tables(file)
        samples = read_evidence(file.with_suffix(".evid"), model)
        assert len(samples) == 1 and len(samples[0]) < len(model.names)
    save_tables(model, tmp_path / "copy.uai")
    assert load_tables(tmp_path / "copy.uai") == model


@pytest.mark.parametrize(
    "name", ["Promedus_15", "Promedus_24", "Promedus_26", "Promedus_30", "Pedigree_13", "CSP_12"]
)
def test_the_published_partition_function(shared_data, name):
    """log10 Z of the evidence by elimination in the order found, against the published value."""
    file = shared_data / "uai2014" / f"{name}.uai.gz"
    model = load_tables(file)
    evidence = read_evidence(file.with_suffix(".evid"), model)[0]
    factors, log_z = [], 0.0
    for scope, table in zip(model.scopes, model.tables, strict=True):
        at = tuple(evidence.get(v, slice(None)) for v in scope)
        factors.append(([v for v in scope if v not in evidence], np.asarray(table[at])))
    for v in triangulate_scopes(model.cards, model.scopes, without=evidence).order:
        mine = [factor for factor in factors if v in factor[0]]
        factors = [factor for factor in factors if v not in factor[0]]
        scope = [*sorted({u for over, _ in mine for u in over} - {v}), v]
        product = np.ones([model.cards[u] for u in scope])
        for over, table in mine:
            axes = sorted(range(len(over)), key=lambda i: scope.index(over[i]))
            product *= table.transpose(axes).reshape([model.cards[u] if u in over else 1 for u in scope])
        message = product.sum(-1)
        log_z += np.log10(message.max())
        factors.append((scope[:-1], message / message.max()))
    log_z += sum(np.log10(table) for _, table in factors)
    published = float(file.with_suffix(".PR").read_text().split()[1])
    assert np.isclose(log_z, published, rtol=1e-5, atol=1e-5)


def test_a_small_partition_function_is_the_sum_over_everything():
    """The last variable of a scope changes fastest."""
    model = parse_uai("MARKOV 3 2 2 3 2 2 0 1 3 2 1 0 4 1 2 3 4 12 " + " ".join(map(str, range(12))))
    z = 0.0
    for x, y, w in itertools.product(range(2), range(2), range(3)):
        z += (1 + 2 * x + y) * (4 * w + 2 * y + x)
    total = np.einsum(model.tables[0], model.scopes[0], model.tables[1], model.scopes[1], [])
    assert np.isclose(total, z)
