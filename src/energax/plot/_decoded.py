"""A plot of a sequence, its decoded states and their posterior probabilities."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.arguments import read_names
from ..errors import BadInput, as_numbers
from ._style import Theme, colours, legend, panel, text_size, theme_of, write
from ._times import Times, as_times, as_values, dates_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_WIDTHS = (1.1, 1.2, 1.5, 1.2)  # dots look thinner than lines
_MAX_SYMBOLS = 20  # whole numbers with more distinct values are drawn as a line
_MAX_WORDS = 30  # longer texts are not written out


def decoded(
    x: Any,
    states: Any,
    probabilities: Any = None,
    names: Sequence[str] | None = None,
    *,
    symbols: Sequence[str] | None = None,
    times: Any = None,
    series: Sequence[str] | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot observations over time on bands in the colours of their states, and the posterior below.

    Args:
        x: real values (T,) or (T, d), drawn as lines (NaN leaves a gap), or symbols (T,), words or whole
            numbers, drawn in rows (a short text is written out).
        states: numbers or names of states, (T,).
        probabilities: the posterior of each step, (T, k), an area chart on axes labelled "posterior" below.
        names: the names of the states.
        symbols: the names of numbered symbols.
        times: the positions of the steps, increasing numbers or dates, (T,); by default the dates in the
            index of a pandas `x`, or 0, 1, ….
        series: the names of the columns of `x`; by default those of a pandas `x`.
        ax: the axes to draw on; by default those of a new figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = decoded([5, 0, 3, 5, 5], [0, 0, 0, 1, 1], names=["fair", "loaded"])
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['fair', 'loaded']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    from matplotlib.patches import Patch

    path, names = _path(states, probabilities, names)
    steps, hues = len(path), colours(len(names))
    symbols = None if symbols is None else read_names("symbols", symbols)
    observations = _observations(x, steps, symbols, series)
    index = dates_of(x) if times is None else times
    when = Times(np.arange(float(steps))) if index is None else as_times(index, steps)
    posterior = None if probabilities is None else _check_probabilities(probabilities, steps, len(names))
    ax = panel(ax, observations.inches, observations.height + (0.0 if posterior is None else 1.2))
    theme, edges = theme_of(ax), when.edges
    lowest = ax if posterior is None else _plot_posterior(ax, posterior, edges, hues)
    keys: list[Any] = []
    for k, name in enumerate(names):
        style: dict = {"facecolor": hues[k], "alpha": theme.fill, "linewidth": 0, "zorder": 0}
        band = ax.broken_barh(_runs(path == k, edges), (0, 1), transform=ax.get_xaxis_transform(), **style)
        band.set_gid(name)
        keys.append(Patch(facecolor=hues[k], alpha=min(1.0, theme.fill + 0.32), label=name))
    keys += observations.draw(ax, when.positions, theme)
    ax.set_xlim(edges[0], edges[-1])
    when.format(lowest, theme.ink)
    legend(ax, keys)
    return ax


def _plot_posterior(ax: Axes, probabilities: np.ndarray, edges: np.ndarray, hues: list[str]) -> Axes:
    """Plot the posterior as areas on new axes, which take the lower part of the space of `ax`."""
    spec, label = ax.get_subplotspec(), "posterior"
    if spec is None:
        x, y, width, height = ax.get_position().bounds
        ax.set_position((x, y + 0.36 * height, width, 0.64 * height))
        below = ax.figure.add_axes((x, y, width, 0.3 * height), sharex=ax, label=label)
    else:
        grid = spec.subgridspec(2, 1, height_ratios=(2.2, 1), hspace=0.12)
        ax.set_subplotspec(grid[0])
        below = ax.figure.add_subplot(grid[1], sharex=ax, label=label)
    panel(below, 0, 0)
    borders = np.repeat(edges, 2)[1:-1]
    tops = np.cumsum(probabilities, 1)
    floor = np.zeros(len(probabilities))
    for k, hue in enumerate(hues):
        low, high = np.repeat(floor, 2), np.repeat(tops[:, k], 2)
        area = below.fill_between(borders, low, high, color=hue, alpha=0.75, linewidth=0)
        area.set_gid(f"posterior {k}")
        floor = tops[:, k]
    below.set_ylim(0, 1)
    below.set_yticks([0, 0.5, 1], ["0", "½", "1"])
    room = below.get_window_extent().height / below.figure.dpi
    points = float(np.clip(10 * room / text_size("posterior", 10)[0], 6.5, 10))
    below.set_ylabel("posterior", color=theme_of(below).ink, fontsize=points)
    ax.tick_params(labelbottom=False, bottom=False)
    return below


@dataclasses.dataclass(frozen=True)
class _Lines:
    """Real values (T, d) over time."""

    values: np.ndarray
    names: list[str] | None
    height = 2.6

    @property
    def inches(self) -> float:
        return min(max(6.5, len(self.values) / 40), 12.0)

    def draw(self, ax: Axes, at: np.ndarray, theme: Theme) -> list[Any]:
        """Draw the series, and return the lines that the legend explains: those of several series."""
        mark = "." if len(self.values) <= 60 else None
        several = self.values.shape[1] > 1
        labels = self.names or [f"series {i}" if several else "x" for i in range(self.values.shape[1])]
        lines = []
        for i, (column, label) in enumerate(zip(self.values.T, labels, strict=True)):
            style: dict = {"linestyle": _STYLES[i % len(_STYLES)], "linewidth": _WIDTHS[i % len(_WIDTHS)]}
            lines += ax.plot(at, column, color=theme.ink, marker=mark, label=label, **style)
        if not several:
            ax.set_ylabel(labels[0], color=theme.ink)
        return lines if several else []


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Symbols over time, one row per symbol; NaN is missing."""

    places: np.ndarray
    rows: list[str]

    @property
    def inches(self) -> float:
        return min(max(6.5, len(self.places) / 40), 12.0)

    @property
    def height(self) -> float:
        return 0.9 + 0.26 * len(self.rows)

    def draw(self, ax: Axes, at: np.ndarray, theme: Theme) -> list[Any]:
        size = float(np.clip(1800 / len(self.places), 5, 26))
        ax.scatter(at, self.places, s=size, color=theme.ink, linewidths=0, zorder=3)
        ax.set_yticks(range(len(self.rows)), self.rows)
        ax.set_ylim(-0.6, len(self.rows) - 0.4)
        return []


@dataclasses.dataclass(frozen=True)
class _Words:
    """A short text, written out."""

    words: list[str]

    @property
    def _widest(self) -> float:
        return max(text_size(word, 10)[0] for word in self.words) + 0.14

    @property
    def inches(self) -> float:
        return min(max(4.0, 0.5 + self._widest * len(self.words)), 14.0)

    @property
    def height(self) -> float:
        return 0.95 if self._fits(self.inches) else 0.7 + self._widest

    def _fits(self, inches: float) -> bool:
        return self._widest * len(self.words) <= inches

    def draw(self, ax: Axes, at: np.ndarray, theme: Theme) -> list[Any]:
        turn = 0 if self._fits(ax.get_window_extent().width / ax.figure.dpi) else 90
        for step, word in zip(at, self.words, strict=True):
            write(ax, (step, 0.5), word, 10, rotation=turn, color=theme.ink)
        ax.set_ylim(0, 1)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        return []


def _runs(where: np.ndarray, edges: np.ndarray) -> list[tuple[float, float]]:
    """(start, width) of every run of True."""
    change = edges[np.flatnonzero(np.diff(np.concatenate([[0], where.astype(int), [0]])))]
    return [(float(a), float(b - a)) for a, b in zip(change[::2], change[1::2], strict=True)]


def _path(states: Any, probabilities: Any, names: Sequence[str] | None) -> tuple[np.ndarray, list[str]]:
    """(the number of the state of every step, the names of all states)."""
    path = as_values("states", states)
    if path.ndim != 1 or path.size == 0:
        raise BadInput("states", f"shape {path.shape}", "one state per step, shape (T,) with T >= 1")
    if path.dtype.kind in "USO":
        known = [str(name) for name in names] if names is not None else sorted(set(path.astype(str)))
        unknown = set(path.astype(str)) - set(known)
        if unknown:
            raise BadInput("states", repr(min(unknown)), f"one of {known}")
        return np.array([known.index(str(state)) for state in path]), known
    if path.dtype.kind not in "iub":
        raise BadInput("states", f"{path.dtype} values", "whole numbers or names of states")
    k = int(path.max()) + 1
    shape = () if probabilities is None else as_values("probabilities", probabilities).shape
    k = max(k, shape[1]) if len(shape) == 2 else k
    names = [f"state {i}" for i in range(k)] if names is None else read_names("names", names)
    if path.min() < 0 or len(names) < k:
        raise BadInput("states", f"numbers from {path.min()} to {path.max()}", f"0 to {len(names) - 1}")
    return path.astype(int), names


def _check_probabilities(probabilities: Any, steps: int, k: int) -> np.ndarray:
    p = np.real(np.asarray(as_numbers("probabilities", probabilities, "numbers (T, k)"))).astype(float)
    if p.shape != (steps, k):
        raise BadInput(
            "probabilities",
            f"shape {p.shape}",
            f"shape ({steps}, {k}), one row per step and one column per state",
        )
    if not np.all(np.isfinite(p)) or p.min() < -1e-6 or np.abs(p.sum(1) - 1).max() > 1e-3:
        raise BadInput("probabilities", "a row that does not sum to one", "probabilities of the states")
    return p


def _observations(
    x: Any, steps: int, symbols: Sequence[str] | None, series: Sequence[str] | str | None
) -> _Lines | _Rows | _Words:
    """The observations in the form in which they are drawn."""
    missing = np.ma.getmaskarray(x) if isinstance(x, np.ma.MaskedArray) else None
    values = as_values("x", x)
    if not values.size:
        raise BadInput("x", f"shape {values.shape}", "at least one number per step")
    if values.shape[:1] != (steps,) or values.ndim > 2:
        raise BadInput("x", f"shape {values.shape}", f"one observation for each of {steps} states")
    if values.ndim == 2 and values.shape[1] == 1:
        values, missing = values[:, 0], None if missing is None else missing[:, 0]
    if values.dtype.kind in "USO" and values.ndim == 1:
        if symbols is None and steps <= _MAX_WORDS:
            return _Words([str(value) for value in values])
        rows = [str(s) for s in symbols] if symbols is not None else sorted(set(values.astype(str)))
        if set(values.astype(str)) - set(rows):
            raise BadInput("x", f"{min(set(values.astype(str)) - set(rows))!r}", f"one of {rows}")
        return _Rows(np.array([rows.index(str(v)) for v in values], float), rows)
    if values.dtype.kind not in "iubf":
        raise BadInput("x", f"{values.dtype} values", "numbers, or one symbol per step")
    numbers = values.astype(float)
    if missing is not None:
        numbers = np.where(missing, np.nan, numbers)
    integers = values.dtype.kind in "iub" and values.ndim == 1
    kinds = np.unique(numbers[~np.isnan(numbers)]) if integers or symbols is not None else np.zeros(0)
    if symbols is not None:
        if values.ndim != 1 or (kinds.size and (kinds[0] < 0 or kinds[-1] >= len(symbols))):
            raise BadInput("x", f"values up to {kinds[-1]:g}", f"numbers of the {len(symbols)} symbols")
        return _Rows(numbers, [str(s) for s in symbols])
    if integers and len(kinds) <= _MAX_SYMBOLS:
        places = np.where(np.isnan(numbers), np.nan, np.searchsorted(kinds, numbers))
        return _Rows(places, [f"{value:g}" for value in kinds])
    numbers = numbers.reshape(steps, -1)
    return _Lines(numbers, _series_names(x, numbers.shape[1], series))


def _series_names(x: Any, columns: int, series: Sequence[str] | str | None) -> list[str] | None:
    """The names of the columns: the given ones, or the texts with which pandas names them."""
    if series is not None:
        names = [series] if isinstance(series, str) else read_names("series", series)
        if len(names) != columns:
            raise BadInput("series", f"{len(names)} names", f"{columns}, one for each column of x")
        return names
    own = list(getattr(x, "columns", [getattr(x, "name", None)]))
    return own if len(own) == columns and all(isinstance(name, str) for name in own) else None
