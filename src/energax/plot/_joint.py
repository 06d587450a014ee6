"""Plots of what was drawn: pairs of coordinates, and intervals of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.arguments import FLAG, check_arguments
from ..errors import BadInput
from ._coordinates import Coordinates, chain_keys, coordinates_of, grid, place_legend, remark, widen
from ._style import colours, panel, text_size, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS = 3000  # draws in one panel of pairs; more are thinned


def pairs(
    draws: Any, names: str | Sequence[str] | None = None, *, max_coordinates: int = 5, ax: Axes | None = None
) -> np.ndarray:
    """Plot every two coordinates of the draws against each other, and each alone on the diagonal.

    Draws of divergent moves are marked: where they gather, the sampler cannot follow the density.

    Args:
        draws: `Draws`, or a dict of arrays (n_chains, n_draws, …) by name.
        names: the variables to show, or coordinates such as "x[0]"; by default all variables.
        max_coordinates: how many coordinates are shown; a remark says how many are not.
        ax: axes whose place is taken; by default those of a new figure.

    Returns:
        the axes, (coordinates, coordinates); those above the diagonal are empty.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = pairs({"x": np.random.default_rng(0).normal(size=(2, 50, 3))})
    >>> axes.shape, axes[0, 1].axison
    ((3, 3), False)
    >>> matplotlib.pyplot.close(axes[0, 0].figure)
    """
    found = coordinates_of(draws, names, max_coordinates)
    n = len(found.shown)
    size = 4.0 if n == 1 else max(1.7, 6.5 / n)
    axes = grid(ax, n, n, size, size * 0.86, sharex="col")
    for i in range(n):
        for j in range(n):
            if j > i:
                axes[i, j].set_axis_off()
            elif j == i:
                _draw_alone(axes[i, i], found, i)
            else:
                _draw_pair(axes[i, j], found, j, i)
    _label(axes, found)
    if found.divergent is not None:
        _key_of_divergences(axes, int(found.divergent.sum()))
    remark(axes, found.note)
    return axes


def _thinned(found: Coordinates) -> np.ndarray:
    """The numbers of the draws to show, evenly chosen."""
    total = found.shown[0].chains.size
    return np.linspace(0, total - 1, min(total, _DOTS)).astype(int)


def _draw_pair(ax: Axes, found: Coordinates, across: int, up: int) -> None:
    theme = theme_of(ax)
    x, y = (found.shown[k].chains.ravel() for k in (across, up))
    chosen = _thinned(found)
    size = float(np.clip(4000 / len(chosen), 2, 14))
    alpha = float(np.clip(400 / len(chosen), 0.18, 0.8))
    spread = [_jitter(v[chosen], k) for k, v in enumerate((x, y))]
    dots = ax.scatter(*spread, s=size, color=theme.accent, alpha=alpha, linewidths=0, rasterized=True)
    dots.set_gid("draws")
    if found.divergent is not None:
        which = found.divergent.ravel()
        style: dict = {
            "s": 16,
            "facecolors": theme.mark,
            "edgecolors": theme.panel,
            "linewidths": 0.5,
            "zorder": 4,
        }
        ax.scatter(x[which], y[which], **style).set_gid("divergent")
    for k, axis in ((across, "x"), (up, "y")):
        if found.shown[k].is_constant:
            widen(ax, found.shown[k].chains, axis)


def _jitter(values: np.ndarray, seed: int) -> np.ndarray:
    """Whole numbers of few values, moved apart a little, so that dots do not hide each other."""
    if not (values % 1 == 0).all() or not 0 < np.ptp(values) <= 20:
        return values
    return values + np.random.default_rng(seed).uniform(-0.18, 0.18, values.shape)


def _draw_alone(ax: Axes, found: Coordinates, i: int) -> None:
    theme, each = theme_of(ax), found.shown[i]
    values = each.chains.ravel()
    if each.is_constant:
        widen(ax, values, "x")
        ax.axvline(values[0], color=theme.accent, lw=1.6)
    else:
        whole = bool((values % 1 == 0).all()) and np.ptp(values) <= 40
        edges: Any = np.arange(values.min() - 0.5, values.max() + 1) if whole else 30
        ax.hist(values, edges, color=theme.accent, alpha=0.55, linewidth=0)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)


def _label(axes: np.ndarray, found: Coordinates) -> None:
    """Name the coordinates below the columns and beside the rows; ticks are at the edges only."""
    for i, each in enumerate(found.shown):
        below, beside = axes[-1, i], axes[i, 0]
        box = below.get_window_extent()
        width, height = (side / below.figure.dpi for side in (box.width, box.height))
        name = _shortened(each.name, width)
        below.set_xlabel(name, color=theme_of(below).ink, fontsize=9.5, parse_math=False)
        if i > 0:
            name = _shortened(each.name, height)
            beside.set_ylabel(name, color=theme_of(beside).ink, fontsize=9.5, parse_math=False)
        for j in range(1, i):
            axes[i, j].tick_params(labelleft=False)
            axes[i, j].sharey(axes[i, 0])
        below.locator_params(axis="x", nbins=4)
        if i > 0:
            beside.locator_params(axis="y", nbins=4)


def _shortened(name: str, room: float) -> str:
    """The end of a name that fits into so many inches: names of parameters differ at the end."""
    if text_size(name, 9.5)[0] <= room:
        return name
    for start in range(1, len(name) - 3):
        if text_size("…" + name[start:], 9.5)[0] <= room:
            return "…" + name[start:]
    return "…" + name[-3:]


def _key_of_divergences(axes: np.ndarray, n: int) -> None:
    from matplotlib.lines import Line2D

    theme = theme_of(axes[0, 0])
    style: dict = {"linestyle": "none", "marker": "o"}
    keys = [
        Line2D([], [], color=theme.accent, ms=4, label="draws", **style),
        Line2D([], [], color=theme.mark, ms=5, label=f"{n} divergent moves", **style),
    ]
    place_legend(axes, keys)


def forest(
    draws: Any,
    names: str | Sequence[str] | None = None,
    *,
    levels: tuple[float, float] = (0.5, 0.9),
    by_chain: bool = False,
    max_coordinates: int = 30,
    ax: Axes | None = None,
) -> Axes:
    """Plot the median and two central intervals of every coordinate, one below the other.

    Args:
        draws: `Draws`, or a dict of arrays (n_chains, n_draws, …) by name.
        names: the variables to show, or coordinates such as "x[0]"; by default all variables.
        levels: the probabilities of the thick and of the thin interval.
        by_chain: whether every chain has its own intervals.
        max_coordinates: how many coordinates are shown; a remark says how many are not.
        ax: the axes to draw on; by default those of a new figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = forest({"x": np.random.default_rng(0).normal(size=(2, 50, 3))})
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['x[0]', 'x[1]', 'x[2]']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    check_arguments(locals(), by_chain=FLAG)
    inner, outer = _check_levels(levels)
    found = coordinates_of(draws, names, max_coordinates)
    n, lines = len(found.shown), found.n_chains if by_chain else 1
    step = max(0.26, 0.14 * lines)
    widest = max(text_size(each.name, 9)[0] for each in found.shown)
    ax = panel(ax, 5.2 + widest, 0.9 + step * n + 0.25 * bool(found.note))
    theme = theme_of(ax)
    hues = colours(lines) if by_chain else [theme.accent]
    probabilities = [(1 - outer) / 2, (1 - inner) / 2, 0.5, (1 + inner) / 2, (1 + outer) / 2]
    for i, each in enumerate(found.shown):
        for k, values in enumerate(each.chains if by_chain else [each.chains]):
            low, left, middle, right, high = np.quantile(values, probabilities)
            y = i + (0 if lines == 1 else 0.62 * (k / (lines - 1) - 0.5))
            thin = ax.plot([low, high], [y, y], color=hues[k], lw=1.3, solid_capstyle="butt")[0]
            thin.set_gid(f"{each.name} {k}")
            ax.plot(
                [left, right], [y, y], color=hues[k], lw=3.6 if lines == 1 else 2.6, solid_capstyle="butt"
            )
            size = 5.5 if lines == 1 else 4
            ax.plot(middle, y, "o", color=hues[k], ms=size, mec=theme.panel, mew=0.8, zorder=3)
    ax.set_yticks(range(n), [each.name for each in found.shown], parse_math=False)
    ax.set_ylim(n - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(axis="x", color=theme.track, lw=0.8)
    ax.set_axisbelow(True)
    ax.set_xlabel(f"median, {100 * inner:g} % and {100 * outer:g} % intervals", color=theme.ink, fontsize=9.5)
    _finish_forest(ax, found, hues if by_chain else [])
    return ax


def _finish_forest(ax: Axes, found: Coordinates, hues: list[str]) -> None:
    values = [each.chains.flat[0] for each in found.shown]
    if all(each.is_constant for each in found.shown) and np.ptp(values) == 0:
        widen(ax, np.array(values), "x")
    axes = np.array([[ax]])
    remark(axes, found.note)  # first: a legend on single axes adds axes of its own
    place_legend(axes, chain_keys(len(hues), hues))


def _check_levels(levels: Any) -> tuple[float, float]:
    try:
        inner, outer = (float(level) for level in levels)
    except (TypeError, ValueError):
        raise BadInput("levels", repr(levels), "two probabilities, such as (0.5, 0.9)") from None
    if not 0 < inner < outer < 1:
        raise BadInput("levels", repr(levels), "two increasing probabilities between 0 and 1")
    return inner, outer
