"""Data frames of pandas and polars wherever rows are taken, and answers with the names of states."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from energax import BadInput, Mixture, argmin, fit, log_prob, posterior, sample
from energax._util.labelled import States
from energax.energies import BayesianNetwork, Gaussians
from energax.graph import chow_liu, hill_climb, mutual_information
from energax.learn import EM

STATES = ("no", "yes")
NET = BayesianNetwork(
    {"rain": [0.8, 0.2], "wet": (("rain",), [[0.9, 0.1], [0.2, 0.8]])},
    states={"rain": STATES, "wet": STATES},
)
N = 400


def columns(seed=0):
    rng = np.random.default_rng(seed)
    rain = (rng.random(N) < 0.3).astype(int)
    wet = rain ^ (rng.random(N) < 0.1)
    return {"rain": rain, "wet": wet}


CODES = columns()
NAMED = {k: np.array(STATES, object)[v] for k, v in CODES.items()}
FRAMES = {
    "pandas text": pd.DataFrame(NAMED),
    "pandas categories": pd.DataFrame({k: pd.Categorical(v, categories=STATES) for k, v in NAMED.items()}),
    "pandas codes": pd.DataFrame(CODES),
    "pandas strings": pd.DataFrame(NAMED).astype("string"),
    "polars text": pl.DataFrame({k: list(v) for k, v in NAMED.items()}),
    "polars codes": pl.DataFrame(CODES),
}


@pytest.fixture(params=FRAMES)
def frame(request):
    return FRAMES[request.param]


def test_probabilities_and_posteriors_of_a_frame_are_those_of_its_codes(frame):
    np.testing.assert_allclose(log_prob(NET, frame).value, log_prob(NET, CODES).value, rtol=1e-6)
    one = frame[["wet"]] if isinstance(frame, pd.DataFrame) else frame.select("wet")
    found = posterior(NET, one).marginals["rain"]
    np.testing.assert_allclose(found["yes"], posterior(NET, {"wet": CODES["wet"]}).marginals["rain"][:, 1])


def test_learning_from_a_frame_is_learning_from_its_codes(frame):
    learned = fit(NET, frame, EM(), key=0, epochs=1).energy
    table = np.array([[np.mean(CODES["wet"][CODES["rain"] == r] == w) for w in (0, 1)] for r in (0, 1)])
    np.testing.assert_allclose(learned["wet"].table, table, rtol=1e-5)
    assert chow_liu(frame).edges == chow_liu(CODES).edges
    assert hill_climb(frame).score == pytest.approx(hill_climb(CODES).score)
    np.testing.assert_allclose(mutual_information(frame), mutual_information(CODES))


def test_a_network_from_a_frame_in_one_call(frame):
    net = BayesianNetwork.from_data(frame, prior=0.0)
    assert net.graph().size() == 1
    expected = log_prob(fit(NET, CODES, EM(), key=0, epochs=1).energy, CODES).value
    np.testing.assert_allclose(log_prob(net, frame).value, expected, rtol=1e-4)
    assert net.spaces["wet"].labels in (STATES, None)


def test_missing_entries_of_a_frame_are_missing():
    data = pd.DataFrame(NAMED)
    data.loc[:9, "rain"] = None
    hidden = {"rain": np.where(np.arange(N) < 10, np.nan, CODES["rain"]), "wet": CODES["wet"]}
    np.testing.assert_allclose(log_prob(NET, data).value, log_prob(NET, hidden).value, rtol=1e-6)
    graph = nx.DiGraph([("rain", "wet")])
    net = BayesianNetwork.from_data(data, graph)
    assert 0 < float(net["rain"].table[1]) < 1
    with pytest.raises(BadInput, match="missing entries"):
        BayesianNetwork.from_data(data)


def test_a_frame_of_numbers_holds_the_rows_of_a_vector():
    mixture = Mixture(Gaussians(np.zeros((2, 2), "f"), np.stack([np.eye(2, dtype="f")] * 2)))
    X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    found = log_prob(mixture, pd.DataFrame(X, columns=["height", "weight"])).value
    np.testing.assert_allclose(found, log_prob(mixture, {"x": X}).value)
    with pytest.raises(BadInput, match="'weight'"):
        log_prob(mixture, pd.DataFrame({"height": [1.0], "weight": ["heavy"]}))


def test_answers_have_the_names_of_states():
    best = argmin(NET, {"wet": "yes"})
    assert best["rain"] == "yes" and repr(best["rain"]) == "States('yes')"
    assert posterior(NET, {"wet": "no"}).mode["rain"].names == "no"
    draws = sample(NET, 500, key=0)
    assert isinstance(draws["rain"], States)
    assert abs((draws["rain"] == "yes").mean() - 0.2) < 4 * np.sqrt(0.16 / 500)
    np.testing.assert_array_equal(draws["rain"] == "yes", np.asarray(draws["rain"]) == 1)
    with pytest.raises(BadInput, match="one of"):
        _ = draws["rain"] == "maybe"


def test_draws_are_a_mapping_and_a_frame():
    draws = sample(NET, 20, key=0)
    assert list(draws) == ["rain", "wet"] and len(draws) == 2 and "rain" in draws
    assert {k: v.shape for k, v in draws.items()} == {"rain": (20,), "wet": (20,)}
    frame = draws.to_frame()
    assert list(frame.columns) == ["rain", "wet"] and set(frame["wet"]) <= set(STATES)
    rows = sample(NET, 3, {"wet": ["no", "yes"]}, key=0).to_frame()
    assert list(rows.columns) == ["draw", "row", "rain"] and len(rows) == 6
    mixture = Mixture(Gaussians(np.zeros((2, 2), "f"), np.stack([np.eye(2, dtype="f")] * 2)))
    assert set(sample(mixture, 4, key=0).to_frame().columns) == {"x[0]", "x[1]", "z"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({"wet": pd.to_datetime(["2020-01-01"])}), "dates in the column 'wet'"),
        (pd.DataFrame({"wet": ["no"], "snow": ["no"]}), r"the columns \['snow'\]"),
        (pd.DataFrame({"wet": ["damp"]}), "the state 'damp'"),
        (pd.DataFrame({"a": [0.0], "b": [1.0]}), "a frame with the columns"),
    ],
)
def test_frames_that_do_not_fit_meet_a_sentence(data, message):
    with pytest.raises(BadInput, match=message):
        log_prob(NET, data)


def test_a_graph_takes_the_states_of_a_frame():
    net = BayesianNetwork.from_graph(nx.DiGraph([("rain", "wet")]), FRAMES["pandas text"])
    assert net.spaces["wet"].labels == STATES
    found = hill_climb(FRAMES["pandas text"])
    assert BayesianNetwork.from_graph(found, FRAMES["pandas text"]).graph().size() == 1
    with pytest.raises(BadInput, match="cards"):
        BayesianNetwork.from_graph(nx.DiGraph([("rain", "wet")]), "two")
