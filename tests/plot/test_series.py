"""Plots of sequences: bands where the states are, areas as high as probabilities."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from energax.errors import BadInput
from energax.plot import decoded, forecast


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def by_gid(ax) -> dict:
    return {item.get_gid(): item for item in ax.collections if item.get_gid()}


def posterior_axes(ax):
    return next(other for other in ax.figure.axes if other.get_label() == "posterior")


def covered(band, steps: int) -> np.ndarray:
    """The steps whose centre lies in a band."""
    spans = [(p.vertices[:, 0].min(), p.vertices[:, 0].max()) for p in band.get_paths()]
    return np.array([any(a < t < b for a, b in spans) for t in range(steps)])


def test_bands_lie_where_the_states_are():
    states = np.random.default_rng(0).integers(0, 3, 50)
    ax = decoded(np.linspace(0, 1, 50), states, names=["a", "b", "c"])
    for k, name in enumerate("abc"):
        assert np.array_equal(covered(by_gid(ax)[name], 50), states == k)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "c"]
    assert ax.get_xlim() == (-0.5, 49.5)


def test_areas_are_as_high_as_the_probabilities():
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.ones(3), 20)
    ax = decoded(rng.normal(size=20), p.argmax(1), p)
    areas = by_gid(posterior_axes(ax))
    for k in range(3):
        path = areas[f"posterior {k}"].get_paths()[0].vertices
        for t in range(20):
            here = path[(path[:, 0] > t - 0.51) & (path[:, 0] < t + 0.51), 1]
            low, high = p[t, :k].sum(), p[t, : k + 1].sum()
            assert np.isclose(here, low).any() and np.isclose(here, high).any()
    assert posterior_axes(ax).get_xlim() == ax.get_xlim()


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_the_posterior_shares_the_space_of_the_axes(layout):
    figure, axes = plt.subplots(2, 1, layout=layout)
    before = axes[0].get_position()
    p = np.full((6, 2), 0.5)
    assert decoded(np.zeros(6), [0, 0, 1, 1, 0, 0], p, ax=axes[0]) is axes[0]
    figure.canvas.draw()
    upper, lower = axes[0].get_position(), posterior_axes(axes[0]).get_position()
    assert upper.y0 > lower.y1
    if layout is None:
        assert lower.y0 == pytest.approx(before.y0) and upper.y1 == pytest.approx(before.y1)
    assert lower.y0 > axes[1].get_position().y1
    free = plt.figure().add_axes((0.1, 0.1, 0.8, 0.8))
    decoded(np.zeros(6), [0, 0, 1, 1, 0, 0], p, ax=free)
    assert free.get_position().y0 > posterior_axes(free).get_position().y1


def test_real_values_are_lines_with_gaps():
    x = np.array([[0.0, 1.0], [np.nan, 2.0], [2.0, 3.0]])
    ax = decoded(x, [0, 1, 1])
    assert len(ax.lines) == 2
    assert np.array_equal(ax.lines[0].get_ydata(), x[:, 0], equal_nan=True)
    assert ax.lines[0].get_linestyle() != ax.lines[1].get_linestyle()


def dots(ax) -> list:
    return np.ma.filled(np.ma.array(ax.collections[-1].get_offsets())[:, 1].astype(float), np.nan).tolist()


def test_symbols_are_rows():
    ax = decoded([6, 1, 3, 6], [0, 0, 1, 1])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "3", "6"]
    assert dots(ax) == [2, 0, 1, 2]
    ax = decoded([1, 0, 1, 1], [0, 0, 1, 1], symbols=["tails", "heads"])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["tails", "heads"]
    assert dots(ax) == [1, 0, 1, 1]
    hidden = np.ma.array([0, 1, 0], mask=[False, True, False])
    assert np.isnan(dots(decoded(hidden, [0, 0, 1]))).tolist() == [False, True, False]
    words = np.array(["b", "a"] * 20)
    ax = decoded(words, np.zeros(40, int))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_counts_are_amounts():
    x = np.arange(40)
    assert np.array_equal(decoded(x, np.zeros(40, int)).lines[0].get_ydata(), x)


def test_a_short_text_is_written_out():
    ax = decoded(["the", "dog", "saw", "the", "cat"], ["DET", "NOUN", "VERB", "DET", "NOUN"])
    assert [text.get_text() for text in ax.texts] == ["the", "dog", "saw", "the", "cat"]
    assert [text.get_position()[0] for text in ax.texts] == [0, 1, 2, 3, 4]
    assert np.array_equal(covered(by_gid(ax)["NOUN"], 5), [False, True, False, False, True])


def test_a_forecast_shows_its_numbers():
    rng = np.random.default_rng(0)
    mean, width = rng.normal(size=10), rng.uniform(0.5, 1, 10)
    seen = np.where(np.arange(7) == 3, np.nan, mean[:7] + 0.1)
    ax = forecast(mean, [mean - 2 * width, mean - width], [mean + 2 * width, mean + width], seen)
    past, ahead = ax.lines[0], ax.lines[1]
    assert np.array_equal(past.get_ydata(), mean[:7]) and np.array_equal(ahead.get_ydata(), mean[6:])
    assert past.get_linestyle() != ahead.get_linestyle()
    for i, factor in enumerate((2, 1)):
        corners = {tuple(v) for v in by_gid(ax)[f"band {i}"].get_paths()[0].vertices.round(9)}
        for t in range(10):
            for sign in (-1, 1):
                assert (t, round(mean[t] + sign * factor * width[t], 9)) in corners
    offsets = np.ma.getdata(ax.collections[-1].get_offsets())
    assert np.array_equal(offsets[:, 1], seen, equal_nan=True)
    assert [text.get_text() for text in ax.texts] == ["forecast"]


def test_a_forecast_without_observations_or_with_all_is_one_line():
    mean = np.arange(5.0)
    for seen in (None, mean, []):
        ax = forecast(mean, mean - 1, mean + 1, seen, times=10 + mean, levels="90 %")
        assert np.array_equal(ax.lines[0].get_ydata(), mean) and len(ax.lines) == 1
        assert np.array_equal(ax.lines[0].get_xdata(), 10 + mean)


STEPS = np.zeros(3)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: decoded(STEPS, [0, 1]), "one observation for each of 2 states"),
        (lambda: decoded([], []), "T >= 1"),
        (lambda: decoded(STEPS, [0.0, 0.5, 1.0]), "whole numbers or names"),
        (lambda: decoded(STEPS, [0, -1, 0]), "numbers from -1 to 0"),
        (lambda: decoded(STEPS, [0, 2, 0], names=["a", "b"]), "0 to 1"),
        (lambda: decoded(STEPS, ["a", "b", "c"], names=["a", "b"]), "'c'"),
        (lambda: decoded(STEPS, [0, 1, 0], np.ones((2, 2)) / 2), r"shape \(3, 2\)"),
        (lambda: decoded(STEPS, [0, 1, 0], np.ones((3, 2))), "sum to one"),
        (lambda: decoded([0, 1, 2], [0, 1, 0], symbols=["a", "b"]), "numbers of the 2 symbols"),
        (lambda: decoded(["a", "b", "c"], [0, 1, 0], symbols=["a", "b"]), "'c'"),
        (lambda: decoded(np.zeros((3, 2, 2)), [0, 1, 0]), "one observation"),
        (lambda: decoded(np.zeros(3, complex), [0, 1, 0]), "one symbol per step"),
        (lambda: forecast([[1.0]], [0.0], [2.0]), "one series at a time"),
        (lambda: forecast(STEPS, [0.0], STEPS), "lower: found shape"),
        (lambda: forecast(STEPS, STEPS, [STEPS, STEPS]), "upper: found shape"),
        (lambda: forecast(STEPS, STEPS + 1, STEPS), "above `upper` at step 0"),
        (lambda: forecast([0, np.nan, 0], STEPS, STEPS), "not finite"),
        (lambda: forecast(STEPS, STEPS, STEPS, np.zeros(4)), "at most 3 values"),
        (lambda: forecast(STEPS, STEPS, STEPS, times=[1, 2]), "one for each step"),
        (lambda: forecast(STEPS, STEPS, STEPS, levels=["a", "b"]), "one for each of 1 bands"),
    ],
)
def test_bad_input_is_refused_before_a_figure_is_opened(ask, sentence):
    with pytest.raises(BadInput, match=sentence):
        ask()
    assert plt.get_fignums() == []


def test_matplotlib_loads_when_something_is_drawn():
    code = "import sys, energax.plot; print(sorted({'matplotlib', 'networkx', 'jax'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_drawing_changes_no_setting(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *a, **k: pytest.fail("shown"))
    before = dict(matplotlib.rcParams)
    decoded(STEPS, [0, 1, 0], np.full((3, 2), 0.5))
    forecast(STEPS, STEPS, STEPS)
    assert dict(matplotlib.rcParams) == before
