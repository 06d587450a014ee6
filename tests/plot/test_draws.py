"""Plots of draws show the numbers of the draws: chains, ranks, correlations, intervals, divergences."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from energax.errors import BadInput
from energax.plot import autocorrelation, forest, pairs, rank, trace
from energax.samplers import Draws

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 40, 2))
DIVERGENT = np.zeros((3, 40), bool)
DIVERGENT[1, [4, 9]] = True
DRAWS = Draws({"m": X[..., 0] * 2, "x": X}, method="test", info={"divergent": DIVERGENT})
GRIDS = [trace, rank, pairs, autocorrelation]


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def of_gid(ax, gid) -> list:
    return [item for item in (*ax.lines, *ax.collections, *ax.patches) if item.get_gid() == gid]


def first(axes):
    return np.ravel(axes)[0]


def test_a_trace_is_the_chain():
    axes = trace(DRAWS, "x")
    assert axes.shape == (2, 2) and axes[0, 0].get_title(loc="left") == "x[0]"
    for k in range(2):
        for i in range(3):
            (line,) = of_gid(axes[k, 0], f"chain {i}")
            assert np.array_equal(line.get_ydata(), X[i, :, k]) and np.array_equal(
                line.get_xdata(), np.arange(40)
            )
    (ticks,) = of_gid(axes[0, 0], "divergent")
    assert ticks.get_xdata().tolist() == [4, 9]
    (legend,) = axes[0, 0].figure.legends
    assert [t.get_text() for t in legend.get_texts()] == [
        "chain 0",
        "chain 1",
        "chain 2",
        "2 divergent moves",
    ]


def test_long_chains_are_thinned():
    (line,) = of_gid(trace({"x": np.arange(10_000.0)[None]})[0, 0], "chain 0")
    assert len(line.get_xdata()) == 2000 and line.get_ydata()[1] == 5


def test_ranks_by_hand():
    """Chain 0 holds the lower half of all values, chain 1 the upper one."""
    low, high = RNG.permutation(20.0 * np.arange(40)), RNG.permutation(1000 + np.arange(40.0))
    ax = first(rank({"x": np.stack([low, high])}, n_bins=4))
    values = [of_gid(ax, f"chain {i}")[0].get_data().values.tolist() for i in range(2)]
    assert values == [[20, 20, 0, 0], [0, 0, 20, 20]]


def test_ties_are_ranked_at_random():
    """Bits of two chains with the same frequency: 99 % of bins lie in the band, whichever chain is first."""
    bits = np.random.default_rng(1).integers(0, 2, (2, 2000))
    ax = first(rank({"x": bits}))
    counts = np.stack([of_gid(ax, f"chain {i}")[0].get_data().values for i in range(2)])
    assert counts.sum() == 4000 and np.abs(counts - 100).max() < 45  # 4.6 standard deviations of 9.7


def test_a_single_chain_is_compared_with_itself():
    drifts = np.arange(100.0)[None]
    ax = first(rank({"x": drifts}, n_bins=2))
    values = [of_gid(ax, f"chain {i}")[0].get_data().values.tolist() for i in range(2)]
    assert values == [[50, 0], [0, 50]]


def test_autocorrelations_against_sums():
    (line,) = of_gid(first(autocorrelation({"x": X[:1, :, 0]}, max_lag=5)), "chain 0")
    centred = X[0, :, 0] - X[0, :, 0].mean()
    exact = [(centred[: 40 - lag] * centred[lag:]).sum() / (centred**2).sum() for lag in range(6)]
    np.testing.assert_allclose(line.get_ydata(), exact, atol=1e-12)


def test_pairs_show_draws_and_divergences():
    axes = pairs(DRAWS, ["x", "m"])
    (dots,) = of_gid(axes[2, 0], "draws")
    found = np.asarray(dots.get_offsets())
    np.testing.assert_allclose(found, np.stack([X[..., 0].ravel(), 2 * X[..., 0].ravel()], 1))
    (marks,) = of_gid(axes[2, 1], "divergent")
    np.testing.assert_allclose(marks.get_offsets(), np.stack([X[1, [4, 9], 1], 2 * X[1, [4, 9], 0]], 1))
    assert not axes[0, 2].axison and axes[2, 0].get_ylabel() == "m" and axes[2, 1].get_xlabel() == "x[1]"


@pytest.mark.parametrize("by_chain", [False, True])
def test_intervals_are_quantiles(by_chain):
    ax = forest(DRAWS, levels=(0.5, 0.8), by_chain=by_chain)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["m", "x[0]", "x[1]"]
    for k in range(3 if by_chain else 1):
        (line,) = of_gid(ax, f"x[1] {k}")
        values = X[k, :, 1] if by_chain else X[..., 1]
        np.testing.assert_allclose(line.get_xdata(), np.quantile(values, [0.1, 0.9]))
        assert np.abs(np.asarray(line.get_ydata()) - 2).max() < 0.5
    assert "50 % and 80 %" in ax.get_xlabel()


@pytest.mark.parametrize("draw", [*GRIDS, forest])
def test_constant_coordinates_single_chains_and_single_draws(draw):
    for draws in (
        {"c": np.ones((1, 30))},
        {"c": np.zeros((2, 30)), "x": X[:2, :30, 0]},
        {"x": np.ones((1, 1))},
    ):
        axes = draw(draws)
        first(axes).figure.canvas.draw()
    if draw is not forest and draw is not pairs:
        assert "the same in every draw" in first(axes).get_title(loc="left")


@pytest.mark.parametrize("draw", [*GRIDS, forest])
def test_more_coordinates_than_fit_are_counted(draw):
    axes = draw({"x": RNG.normal(size=(2, 20, 3, 3))}, max_coordinates=2)
    figure = first(axes).figure
    figure.canvas.draw()
    (note,) = [t for t in figure.texts if t.get_text() == "7 more coordinates are not shown"]
    box = note.get_window_extent()
    assert box.y0 >= 0 and all(box.y1 <= ax.get_tightbbox().y0 for ax in np.ravel(axes) if ax.axison)
    _, ax = plt.subplots()
    inside = draw({"x": RNG.normal(size=(2, 20, 3, 3))}, max_coordinates=2, ax=ax)
    assert "7 more coordinates are not shown" in [t.get_text() for ax in np.ravel(inside) for t in ax.texts]


@pytest.mark.parametrize("draw", GRIDS)
def test_panels_take_the_place_of_given_axes(draw):
    figure, (left, right) = plt.subplots(1, 2, layout="constrained")
    axes = draw(DRAWS, ax=left)
    figure.canvas.draw()
    assert first(axes).figure is figure and not left.axison
    assert all(ax.get_position().x1 <= right.get_position().x0 + 1e-9 for ax in np.ravel(axes) if ax.axison)


def test_forest_on_given_axes():
    _, ax = plt.subplots()
    assert forest(DRAWS, ax=ax) is ax


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: trace([1.0, 2.0]), "Draws, as `sample` returns"),
        (lambda: trace({"x": np.zeros(4)}), r"\(n_chains, n_draws"),
        (lambda: pairs({"x": np.full((1, 3), np.nan)}), "use a smaller step"),
        (lambda: rank(DRAWS, "y"), r"names: found \['y'\]; expected some of \['m', 'x'\]"),
        (lambda: rank(DRAWS, n_bins=1), "n_bins"),
        (lambda: forest(DRAWS, levels=(0.9, 0.5)), "two increasing probabilities"),
        (lambda: autocorrelation(DRAWS, max_lag=0), "max_lag"),
        (lambda: forest(DRAWS, max_coordinates=0), "max_coordinates"),
        (lambda: trace({"x": X, "y": X[:, :3]}), "different numbers of draws"),
    ],
)
def test_bad_input_is_refused_before_a_figure_is_opened(ask, sentence):
    with pytest.raises(BadInput, match=sentence):
        ask()
    assert plt.get_fignums() == []


def test_coordinates_are_chosen_by_name():
    ax = forest(DRAWS, ["x[1]", "m"])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["x[1]", "m"]
    axes = pairs(DRAWS, ["x[1]", "m"])
    (dots,) = of_gid(axes[1, 0], "draws")
    np.testing.assert_allclose(dots.get_offsets(), np.stack([X[..., 1].ravel(), 2 * X[..., 0].ravel()], 1))
    with pytest.raises(BadInput, match=r"found \['x\[2\]'\]; expected some of \['m', 'x'\], or .*'x\[0\]'"):
        forest(DRAWS, "x[2]")
