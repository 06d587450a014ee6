"""A plot of a series with its bands, for observed and future steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, as_numbers
from ._bands import Bands, bands_of, column_of
from ._style import legend, panel, theme_of
from ._times import Times, as_times, continued, dates_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADE = 0.2
_DOTS = 60  # more observations are drawn as a line without dots


def forecast(
    mean: Any,
    lower: Any = None,
    upper: Any = None,
    observed: Any = None,
    *,
    history: Any = None,
    column: int | str | None = None,
    times: Any = None,
    levels: Sequence[str | float] | str | float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean of a series between its bands, with the observations.

    The forecast, which begins after `history`, or without it after `observed`, is dashed and after a line.

    Args:
        mean: a forecast, as `forecast` of the estimators of sequences returns it, or the means (T,).
        lower: the lower bounds (T,), or (b, T) for several bands, the widest first. A forecast has its own.
        upper: the upper bounds, of the same shape.
        observed: the values of the first steps of `mean`, at most T, NaN where missing.
        history: the observations before the first step of `mean`, (n,) or (n, d).
        column: the column to draw, by number or by name, if there are several.
        times: the positions of all steps, those of `history` first: increasing numbers or dates. By default
            the dates in the index of a pandas `history`, continued at their frequency, or 0, 1, ….
        levels: the labels of the bands ("90 %") or their probabilities (0.9). From a forecast that has
            covariances, a band is computed for each probability.
        ax: the axes to draw on; by default those of a new figure.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = forecast([1.0, 2.0, 3.0], [0.0, 1.0, 1.5], [2.0, 3.0, 4.5], observed=[1.1, 1.9], levels="90 %")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mean', '90 %', 'observed']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    number = _column_number(column, history)
    bands = bands_of(mean, lower, upper, levels, number)
    seen = _check_observed(observed, len(bands))
    past = np.zeros(0) if history is None else _check_history(history, number)
    when = _positions(times, history, len(past), len(bands))
    ax = panel(ax, 7.0, 3.2)
    theme = theme_of(ax)
    before, ahead = when.positions[: len(past)], when.positions[len(past) :]
    gap = float(when.edges[-1] - when.edges[-2])
    keys = _draw_bands(ax, bands, ahead, gap)
    split = 0 if len(past) else len(seen) or len(bands)  # the step of `mean` at which the forecast begins
    keys.insert(0, _draw_mean(ax, bands.mean, ahead, split, gap))
    if split < len(bands) and len(past) + split > 0:
        _divide(ax, when.positions, len(past) + split)
    keys += _draw_observations(ax, before, past, ahead[: len(seen)], seen)
    name = column if isinstance(column, str) else getattr(history, "name", None)
    if isinstance(name, str):
        ax.set_ylabel(name, color=theme.ink)
    ax.margins(x=0.02)
    when.format(ax, theme.ink)
    legend(ax, keys)
    return ax


def _draw_bands(ax: Axes, bands: Bands, at: np.ndarray, gap: float) -> list[Any]:
    """Draw the bands, and return their keys for the legend."""
    from matplotlib.patches import Patch

    accent, keys = theme_of(ax).accent, []
    where, spread = _spread(at, gap)
    for i, (low, high, label) in enumerate(zip(bands.lower, bands.upper, bands.labels, strict=True)):
        band = ax.fill_between(where, spread(low), spread(high), color=accent, alpha=_SHADE, linewidth=0)
        band.set_gid(f"band {i}")
        shade = 1 - (1 - _SHADE) ** (i + 1)  # each band lies on the wider ones
        keys.append(Patch(facecolor=accent, alpha=shade, label=label))
    return keys


def _draw_mean(ax: Axes, mean: np.ndarray, at: np.ndarray, split: int, gap: float) -> Any:
    """Draw the mean, dashed from step `split` on, and return the line for the legend."""
    style: dict = {"color": theme_of(ax).accent, "linewidth": 1.6, "label": "mean"}
    line = ax.plot(at[:split], mean[:split], **style)[0] if split else None
    if split < len(mean):
        first = max(split - 1, 0)  # the dashed line begins where the solid one ends
        where, spread = _spread(at[first:], gap)
        dashed = ax.plot(where, spread(mean[first:]), linestyle=(0, (4, 2)), **style)[0]
        line = line or dashed
    return line


def _draw_observations(
    ax: Axes, before: np.ndarray, past: np.ndarray, during: np.ndarray, seen: np.ndarray
) -> list[Any]:
    """Draw the history as a line and the values of later steps as dots; return a key for the legend."""
    ink, keys = theme_of(ax).ink, list[Any]()
    if len(past):
        style: dict = {"marker": "o", "markersize": 2.6} if len(past) <= _DOTS else {}
        keys += ax.plot(before, past, color=ink, linewidth=0.9, label="observed", **style)
    if len(seen):
        size = float(np.clip(900 / len(seen), 4, 16))
        style = {"s": size, "color": ink, "linewidths": 0, "zorder": 4}
        keys.append(ax.scatter(during, seen, label="observed", **style))
    return keys[:1]


def _spread(at: np.ndarray, gap: float) -> tuple[np.ndarray, Any]:
    """Positions, and how values lie on them: a single step gets a width, without which it is not visible."""
    if len(at) > 1:
        return at, lambda values: values
    return at[0] + 0.35 * gap * np.array([-1.0, 1.0]), lambda values: np.repeat(values, 2)


def _divide(ax: Axes, at: np.ndarray, first: int) -> None:
    """Draw a line before the first step of the forecast, and the word beside it."""
    theme = theme_of(ax)
    edge = (at[first - 1] + at[first]) / 2
    ax.axvline(edge, color=theme.line, linewidth=0.9, zorder=0)
    share = (at[-1] - edge) / max(at[-1] - at[0], 1e-12)
    room = share * ax.get_window_extent().width / ax.figure.dpi
    shift, side = (5, "left") if room > 0.6 else (-5, "right")
    style: dict = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 8}
    ax.annotate("forecast", (edge, 1), (shift, -2), va="top", ha=side, color=theme.soft, **style)


def _column_number(column: int | str | None, history: Any) -> int | None:
    """The number of the column; raises if a name is not a column of `history`."""
    if not isinstance(column, str):
        return column
    names = list(getattr(history, "columns", ()))
    if column not in names:
        expected = f"one of {names}" if names else "a number, since history has no names of columns"
        raise BadInput("column", repr(column), expected)
    return names.index(column)


def _check_observed(observed: Any, steps: int) -> np.ndarray:
    values = np.zeros(0) if observed is None else np.real(_unmasked("observed", observed)).astype(float)
    if values.ndim != 1 or len(values) > steps:
        expected = f"at most {steps} values, the first of the series"
        hint = "Pass observations before the first step as history=."
        raise BadInput("observed", f"shape {values.shape}", expected, hint)
    return values


def _unmasked(name: str, values: Any) -> np.ndarray:
    """An array, with NaN where a masked array is masked."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(float), np.nan)
    return np.asarray(as_numbers(name, values, "numbers"))


def _check_history(history: Any, column: int | None) -> np.ndarray:
    values = _unmasked("history", history)
    if values.dtype.kind not in "iuf" or values.ndim not in (1, 2) or len(values) == 0:
        found = f"{values.dtype} values of shape {values.shape}"
        raise BadInput("history", found, "numbers (n,) or (n, d), the observations before the forecast")
    return column_of("history", values.astype(float), column) if values.ndim == 2 else values.astype(float)


def _positions(times: Any, history: Any, n_past: int, steps: int) -> Times:
    """The positions of the steps of the history and of the mean."""
    index = dates_of(history)
    if times is None and index is None:
        return Times(np.arange(float(n_past + steps)))
    if times is None:
        return as_times(continued(index, steps), n_past + steps)
    if index is not None and len(times) == steps:
        own, ahead = as_times(index, n_past), as_times(times, steps)
        if own.dated == ahead.dated:
            times = np.concatenate([own.positions, ahead.positions])
            return dataclasses.replace(own, positions=times)
    return as_times(times, n_past + steps, "step of history and mean" if n_past else "step of mean")
