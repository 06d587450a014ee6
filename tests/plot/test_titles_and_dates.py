"""Titles, legends and dates: nothing overlaps or is cut off, and labels tell the truth."""

from __future__ import annotations

import itertools

import matplotlib
import networkx as nx
import numpy as np
import pandas as pd
import pytest

matplotlib.use("Agg")
import matplotlib.dates as mdates
import matplotlib.pyplot as plt

from energax import graph
from energax.errors import BadInput
from energax.plot import decoded, forecast, junction_tree, network, transitions

RNG = np.random.default_rng(0)
STATES = np.repeat([0, 1, 2, 0, 1], 8)
VALUES = RNG.normal(size=(40, 3))
POSTERIOR = np.eye(3)[STATES] * 0.7 + 0.1
NAMES = ["calm", "volatile", "crisis"]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def drawn(ax):
    """Draw, and return the function from artists to their extents."""
    ax.figure.canvas.draw()
    renderer = ax.figure.canvas.get_renderer()
    return lambda artist: artist.get_window_extent(renderer)


def posterior_axes(ax):
    return next(other for other in ax.figure.axes if other.get_label() == "posterior")


def within(outer, box, slack: float = 1.0) -> bool:
    return (
        outer.x0 - slack <= box.x0
        and outer.y0 - slack <= box.y0
        and box.x1 <= outer.x1 + slack
        and box.y1 <= outer.y1 + slack
    )


CHARTS = {
    "decoded": lambda ax=None: decoded(VALUES[:, 0], STATES, None, NAMES, ax=ax),
    "with posterior": lambda ax=None: decoded(VALUES[:, 0], STATES, POSTERIOR, NAMES, ax=ax),
    "forecast": lambda ax=None: forecast(
        VALUES[:, 0], VALUES[:, 0] - 1, VALUES[:, 0] + 1, VALUES[:30, 0], ax=ax
    ),
}


@pytest.mark.parametrize("layout", [None, "constrained"])
@pytest.mark.parametrize("chart", CHARTS)
def test_a_title_lies_above_the_legend(chart, layout):
    _, axes = plt.subplots(figsize=(6, 3.5), layout=layout)
    ax = CHARTS[chart](axes)
    ax.set_title("A title of the user")
    ax.set_title("and", loc="left")
    extent = drawn(ax)
    for title in (ax.title, ax._left_title):
        assert extent(title).y0 >= extent(ax.get_legend()).y1 > extent(ax).y1


@pytest.mark.parametrize("chart", CHARTS)
def test_a_title_on_a_new_figure_is_not_cut_off(chart):
    ax = CHARTS[chart]()
    ax.set_title("A title of the user")
    extent = drawn(ax)
    assert within(ax.figure.bbox, extent(ax.title)) and within(ax.figure.bbox, extent(ax.get_legend()))
    assert extent(ax.title).y0 >= extent(ax.get_legend()).y1
    ax.get_legend().remove()  # the title comes down again
    assert drawn(ax)(ax.title).y0 < extent(ax).y1 + 0.3 * ax.figure.dpi


DIAGRAMS = {
    "network": lambda: network(nx.DiGraph([("cause", "effect")]), {"cause": {"no": 0.4, "yes": 0.6}}),
    "junction tree": lambda: junction_tree(graph.junction_tree([("a", "b"), ("b", "c")])),
    "transitions": lambda: transitions([[0.9, 0.1], [0.2, 0.8]], ["fair", "loaded"]),
}


@pytest.mark.parametrize("diagram", DIAGRAMS)
def test_a_diagram_makes_room_for_a_title_and_keeps_its_proportions(diagram):
    ax = DIAGRAMS[diagram]()
    extent = drawn(ax)
    sizes = lambda: [text.get_fontsize() for text in ax.texts] + [p.get_linewidth() for p in ax.patches]
    wide = extent(ax).width
    before = np.array(sizes()) / wide
    ax.set_title("A title of the user")
    extent = drawn(ax)
    title = extent(ax.title)
    assert within(ax.figure.bbox, title)
    assert not any(title.overlaps(extent(item)) for item in (*ax.texts, *ax.patches))
    assert extent(ax).width < 0.99 * wide
    assert np.array(sizes()) / extent(ax).width == pytest.approx(before, rel=1e-3)


SPANS = {
    "five hours": ("2024-02-28T22:10", "5m"),
    "five days": ("2024-02-27", "180m"),
    "a month": ("2023-12-17", "1D"),
    "a year": ("2023-09-20", "9D"),
    "five years": ("2019-01-01", "45D"),
}


def dates(span: str, steps: int = 40) -> np.ndarray:
    start, step = SPANS[span]
    return np.datetime64(start, "m") + np.arange(steps) * np.timedelta64(int(step[:-1]), step[-1])


@pytest.mark.parametrize("span", SPANS)
def test_labels_of_dates_do_not_overlap(span):
    mean = VALUES[:, 0]
    for inches in (3.0, 6.5, 14.0):
        _, ax = plt.subplots(figsize=(inches, 2.5), layout="constrained")
        forecast(mean, mean - 1, mean + 1, mean[:30], times=dates(span), ax=ax)
        extent = drawn(ax)
        first, last = ax.get_xlim()
        shown = [t for t in ax.xaxis.get_major_ticks() if first <= t.get_loc() <= last]
        boxes = [extent(tick.label1) for tick in shown if tick.label1.get_text()]
        assert len(boxes) >= 2
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
        assert all(within(ax.figure.bbox, box) for box in boxes)
        assert any(f"{date.astype(object).year}" in shown[0].label1.get_text() for date in dates(span))


@pytest.mark.parametrize(
    ("ticks", "labels"),
    [
        (["2019-01-01", "2020-01-01"], ["2019", "2020"]),
        (["2023-11-01", "2023-12-01", "2024-01-01"], ["Nov\n2023", "Dec", "Jan\n2024"]),
        (["2024-02-28", "2024-02-29", "2024-03-01"], ["28\nFeb 2024", "29", "1\nMar"]),
        (["2023-12-31", "2024-01-01"], ["31\nDec 2023", "1\nJan 2024"]),
        (["2024-02-28T12:00", "2024-02-29T00:00"], ["12:00\n28 Feb 2024", "00:00\n29 Feb"]),
        (["2024-02-28T12:00:30", "2024-02-28T12:01:00"], ["12:00:30\n28 Feb 2024", "12:01:00"]),
    ],
)
def test_larger_units_are_written_where_they_change(ticks, labels):
    ax = decoded(VALUES[:, 0], STATES, times=dates("a year"))
    numbers = mdates.date2num(np.array(ticks, "datetime64[s]"))
    assert ax.xaxis.get_major_formatter().format_ticks(numbers) == labels


def band_edges(ax, name: str) -> np.ndarray:
    band = next(item for item in ax.collections if item.get_gid() == name)
    return np.array([[p.vertices[:, 0].min(), p.vertices[:, 0].max()] for p in band.get_paths()])


def test_bands_and_values_lie_at_their_times():
    times = np.array([0.0, 1.0, 3.0, 7.0])
    ax = decoded(np.array([1.5, 2.5, 3.5, 4.5]), [0, 0, 1, 0], np.eye(2)[[0, 0, 1, 0]], times=times)
    assert band_edges(ax, "state 0").tolist() == [[-0.5, 2.0], [5.0, 9.0]]
    assert band_edges(ax, "state 1").tolist() == [[2.0, 5.0]]
    assert np.array_equal(ax.lines[0].get_xdata(), times)
    area = next(item for item in posterior_axes(ax).collections if item.get_gid() == "posterior 0")
    corners = area.get_paths()[0].vertices
    assert set(corners[np.isclose(corners[:, 1], 1), 0]) == {-0.5, 0.5, 2.0, 5.0, 9.0}
    assert posterior_axes(ax).get_xlabel() == "time"


@pytest.mark.parametrize(
    "index",
    [
        pd.date_range("2020-01-31", periods=40, freq="ME"),
        pd.period_range("2020-01", periods=40, freq="M"),
        pd.date_range("2024-01-01", periods=40, freq="h", tz="Europe/Madrid"),
    ],
    ids=["dates", "periods", "zone"],
)
def test_dates_come_from_the_index_of_pandas(index):
    ax = decoded(pd.Series(VALUES[:, 0], index=index, name="level"), STATES)
    stamps = index.to_timestamp() if isinstance(index, pd.PeriodIndex) else index
    assert ax.lines[0].get_xdata() == pytest.approx(mdates.date2num(list(stamps)))
    assert ax.get_ylabel() == "level"
    drawn(ax)
    first = next(t.label1.get_text() for t in ax.xaxis.get_major_ticks() if t.get_loc() >= ax.get_xlim()[0])
    assert str(stamps[0].year) in first or str(stamps[0].year + 1) in first
    if stamps.tz is not None:  # labels are in the zone of the index
        ticks = [stamps[5], stamps[6]]
        labels = ax.xaxis.get_major_formatter().format_ticks(mdates.date2num(ticks))
        assert labels[0].startswith(f"{stamps[5]:%H:%M}")
    ax.axvline(stamps[3])  # the axis takes dates
    decoded(pd.Series(VALUES[:, 0]), STATES)  # numbers of rows are no dates


def test_several_series_have_a_key():
    frame = pd.DataFrame(VALUES, columns=["rain", "wind", "level"])
    for x, named, expected in (
        (frame, None, ["rain", "wind", "level"]),
        (VALUES, ["a", "b", "cost in $"], ["a", "b", "cost in $"]),
        (VALUES, None, ["series 0", "series 1", "series 2"]),
    ):
        ax = decoded(x, STATES, names=NAMES, series=named)
        entries = ax.get_legend().get_texts()
        assert [text.get_text() for text in entries] == [*NAMES, *expected]
        keys = ax.get_legend().get_lines()
        assert [key.get_linestyle() for key in keys] == [line.get_linestyle() for line in ax.lines]
        assert len({str(line._unscaled_dash_pattern) for line in ax.lines}) == 3
    assert decoded(VALUES[:, 0], STATES, series="rain").get_ylabel() == "rain"


@pytest.mark.parametrize("layout", [None, "constrained"])
def test_a_legend_of_long_names_stays_in_the_figure(layout):
    names = ["a very long name of a state", "short", "a name of medium length", "yy"]
    for inches in ((3.0, 2.4), (6.5, 3.0), (14.0, 7.0)):
        _, ax = plt.subplots(figsize=inches, layout=layout)
        decoded(VALUES[:, 0], np.arange(40) % 4, names=names, ax=ax)
        extent, key = drawn(ax), ax.get_legend()
        assert within(ax.figure.bbox, extent(key))
        assert extent(key).x1 <= max(extent(ax).x1 + 2, extent(key.get_texts()[0]).x1)
        assert extent(ax).height > 0.3 * ax.figure.bbox.height


def contrast(a, b) -> float:
    """The ratio of luminances by the definition of WCAG 2."""

    def luminance(colour):
        rgb = np.array(matplotlib.colors.to_rgb(colour))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("paper", ["black", "#222831", "#f5f0e6"])
def test_text_and_lines_are_visible_on_light_and_dark_paper(paper):
    with plt.rc_context({"axes.facecolor": paper, "figure.facecolor": paper}):
        for ax in (decoded(VALUES, STATES, POSTERIOR), forecast([1, 2, 3], [0, 1, 2], [2, 3, 4], [1, 2])):
            ax.set_title("A title")
            drawn(ax)
            texts = [ax.title, *ax.get_legend().get_texts(), *ax.texts, *ax.yaxis.get_ticklabels()]
            for item in (*texts, *ax.lines):
                assert contrast(item.get_color(), paper) > (
                    1.5 if item is ax.lines[-1] else 4.0
                )  # the divider
        ax = transitions([[0.9, 0.1], [0.2, 0.8]])
        for text in ax.texts[:2]:
            assert contrast(text.get_color(), paper) > 4.0
            assert contrast(text.get_bbox_patch().get_facecolor(), paper) < 1.01
        for patch, text in zip(ax.patches[-2:], ax.texts[-2:], strict=True):
            assert contrast(text.get_color(), patch.get_facecolor()) > 7


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda t: decoded(t, [0, 1, 0], times=[0, 1]), r"shape \(3,\), one for each step"),
        (lambda t: decoded(t, [0, 1, 0], times=[0, 2, 1]), "times: found a value at 2 that is not above"),
        (lambda t: decoded(t, [0, 1, 0], times=["2020", "2021", "2022"]), "datetime64"),
        (lambda t: decoded(t, [0, 1, 0], times=[0, np.nan, 1]), "a missing value"),
        (
            lambda t: decoded(t, [0, 1, 0], times=[pd.Timestamp("2020"), pd.NaT, pd.Timestamp("2021")]),
            "missing",
        ),
        (
            lambda t: decoded(t, [0, 1, 0], times=np.array(["2020", "NaT", "2021"], "M8[D]")),
            "a missing value",
        ),
        (lambda t: decoded(t, [0, 1, 0], series=["a", "b"]), "series: found 2 names; expected 1"),
    ],
)
def test_bad_times_raise_before_a_figure_is_opened(ask, sentence):
    with pytest.raises(BadInput, match=sentence):
        ask(np.zeros(3))
    assert plt.get_fignums() == []
