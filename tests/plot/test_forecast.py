"""Plots of forecasts: what estimators return, the observations before, dates, and probabilities of bands."""

from __future__ import annotations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

matplotlib.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt

from energax.energies import LinearGaussianSSM
from energax.errors import BadInput
from energax.estimators import GaussianHMM, LinearGaussianChain
from energax.plot import forecast

STEPS = 6
X = np.cumsum(np.random.default_rng(0).normal(size=(20, 2)), 0)
MODEL = {
    "transition": 0.9 * np.eye(2),
    "transition_covariance": 0.5 * np.eye(2),
    "emission": np.eye(2),
    "emission_covariance": np.array([[0.3, 0.0], [0.0, 0.6]]),
}


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def bands():
    return LinearGaussianChain(2, **MODEL).forecast(X, STEPS, level=0.8)


def labels(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def drawn_bands(ax) -> list[np.ndarray]:
    """(lower, upper) of every band at its positions, (2, T)."""
    found = []
    for i in range(len(ax.collections)):
        item = next((c for c in ax.collections if c.get_gid() == f"band {i}"), None)
        if item is not None:
            points = item.get_paths()[0].vertices
            at = np.unique(points[:, 0])
            rows = [[f(points[points[:, 0] == t, 1]) for t in at] for f in (np.min, np.max)]
            found.append(np.array(rows))
    return found


@pytest.mark.parametrize("column", [0, 1])
def test_the_forecast_of_an_estimator_follows_the_observations(bands, column):
    ax = forecast(bands, history=X, column=column)
    mean, past = ax.lines[0], ax.lines[-1]
    assert np.array_equal(past.get_ydata(), X[:, column]) and np.array_equal(past.get_xdata(), np.arange(20))
    assert np.array_equal(mean.get_xdata(), 20 + np.arange(STEPS))
    assert mean.get_ydata() == pytest.approx(bands.mean[:, column])
    (band,) = drawn_bands(ax)
    assert band == pytest.approx(np.stack([bands.lower[:, column], bands.upper[:, column]]))
    assert labels(ax) == ["mean", "80 %", "observed"]  # the level is found from the covariances
    edge = next(line for line in ax.lines if len(set(line.get_xdata())) == 1)
    assert edge.get_xdata()[0] == 19.5


def test_probabilities_become_bands(bands):
    ax = forecast(bands, history=X, column=1, levels=[0.5, 0.95])
    assert labels(ax) == ["mean", "95 %", "50 %", "observed"]
    deviation = np.sqrt(bands.covariance[:, 1, 1])
    for level, band in zip((0.95, 0.5), drawn_bands(ax), strict=True):
        inside = norm.cdf(band[1], bands.mean[:, 1], deviation) - norm.cdf(
            band[0], bands.mean[:, 1], deviation
        )
        assert inside == pytest.approx(level, abs=1e-5)


def test_the_forecast_of_an_energy_has_covariances_only():
    energy = LinearGaussianSSM(
        **{k: v.astype(np.float32) for k, v in MODEL.items()},
        initial_mean=np.zeros(2, np.float32),
        initial_covariance=np.eye(2, dtype=np.float32),
    )
    found = energy.forecast(STEPS, x=X.astype(np.float32))
    ax = forecast(found, column=0)
    assert labels(ax) == ["mean", "95 %", "50 %"]
    wide = norm.ppf(0.975) * np.sqrt(np.asarray(found.covariance)[:, 0, 0])
    mean = np.asarray(found.mean)[:, 0]
    assert drawn_bands(ax)[0] == pytest.approx(np.stack([mean - wide, mean + wide]), rel=1e-4)


def test_the_forecast_of_a_hidden_markov_model_is_a_mean():
    model = GaussianHMM(2)
    model.startprob_, model.transmat_ = np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.2, 0.8]])
    model.means_, model.covars_ = np.array([[0.0], [3.0]]), np.ones((2, 1))
    found = model.forecast(X[:, :1], STEPS)
    ax = forecast(found, history=X[:, :1])
    assert ax.lines[0].get_ydata() == pytest.approx(found.mean[:, 0])
    assert labels(ax) == ["mean", "observed"] and drawn_bands(ax) == []


def test_arrays_follow_a_history_and_meet_later_observations():
    mean = np.linspace(1, 2, STEPS)
    past = np.ma.array(X[:, 0], mask=np.arange(20) == 3)
    ax = forecast(
        mean, [mean - 2, mean - 1], [mean + 2, mean + 1], [1.0, np.nan], history=past, levels=[0.9, 0.5]
    )
    assert labels(ax) == ["mean", "90 %", "50 %", "observed"]
    assert np.isnan(ax.lines[-1].get_ydata()).tolist() == (np.arange(20) == 3).tolist()
    assert ax.lines[0].get_linestyle() == "--" and len(ax.lines[0].get_xdata()) == STEPS
    offsets = np.ma.getdata(ax.collections[-1].get_offsets())
    assert offsets[:, 0].tolist() == [20, 21]
    assert [text.get_text() for text in ax.texts] == ["forecast"]


@pytest.mark.parametrize(
    ("index", "ahead"),
    [
        (pd.date_range("2022-05-31", periods=20, freq="ME"), "2024-01-31"),
        (pd.date_range("2024-02-05", periods=20, freq="B"), "2024-03-04"),
        (pd.date_range("2024-02-28 05:00", periods=20, freq="h"), "2024-02-29 01:00"),
        (pd.period_range("2022-05", periods=20, freq="M"), "2024-01-01"),
    ],
    ids=["months", "weekdays", "hours", "periods"],
)
def test_dates_of_the_history_go_on(bands, index, ahead):
    frame = pd.DataFrame(X, index=index, columns=["height", "width"])
    ax = forecast(bands, history=frame, column="width")
    assert ax.lines[0].get_xdata()[0] == pytest.approx(mdates.date2num(np.datetime64(ahead)))
    assert np.array_equal(ax.lines[-1].get_ydata(), X[:, 1])
    assert ax.get_ylabel() == "width" and ax.get_xlabel() == ""


def test_times_may_be_of_all_steps_or_of_the_forecast(bands):
    days = np.datetime64("2024-02-01") + np.cumsum(np.random.default_rng(0).integers(1, 4, 20 + STEPS))
    frame = pd.DataFrame(X, index=days[:20])
    for history, times in ((X, days), (frame, days), (frame, days[20:])):
        ax = forecast(bands, history=history, column=0, times=times)
        assert ax.lines[0].get_xdata() == pytest.approx(mdates.date2num(days[20:]))
        assert ax.lines[-1].get_xdata() == pytest.approx(mdates.date2num(days[:20]))
    with pytest.raises(BadInput, match="without a regular frequency"):
        forecast(bands, history=frame, column=0)


def test_one_step_is_visible(bands):
    one = LinearGaussianChain(2, **MODEL).forecast(X, 1)
    ax = forecast(one, history=X, column=0)
    assert np.ptp(ax.lines[0].get_xdata()) > 0
    (band,) = drawn_bands(ax)
    assert band[:, 0] == pytest.approx([one.lower[0, 0], one.upper[0, 0]])


def test_the_word_forecast_stays_in_the_axes(bands):
    long = np.random.default_rng(0).normal(size=(900, 2))
    ax = forecast(bands, history=long, column=0)
    ax.figure.canvas.draw()
    word = ax.texts[0].get_window_extent()
    assert ax.get_window_extent().x1 > word.x1


def test_bad_forecasts_raise_before_a_figure_is_opened(bands):
    mean, several = np.zeros(3), LinearGaussianChain(2, **MODEL).forecast([X, X], 2)
    for ask, sentence in (
        (lambda: forecast(bands), "2 columns; expected one series at a time. Choose one with column="),
        (lambda: forecast(bands, column=2), "column: found 2; expected a column of mean, 0 to 1"),
        (lambda: forecast(bands, column="height"), "column: found 'height'"),
        (lambda: forecast(bands, bands.lower, bands.upper, column=0), "bounds beside a forecast"),
        (lambda: forecast(several, column=0), "of one sequence"),
        (lambda: forecast(bands, observed=X[:, 0], column=0), "history="),
        (lambda: forecast(mean, mean), "upper: found None"),
        (lambda: forecast(bands, column=0, levels=[0.5, 1.5]), "probabilities between 0 and 1"),
        (lambda: forecast(mean, history=["a", "b"]), "history: found"),
        (lambda: forecast(mean, history=X), "history: found 2 columns"),
        (lambda: forecast(mean, history=X[:, 0], times=mean), r"shape \(23,\), one for each step of history"),
    ):
        with pytest.raises(BadInput, match=sentence):
            ask()
    assert plt.get_fignums() == []
