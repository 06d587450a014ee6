"""A plot of a series with its bands, for observed and future steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput
from ._style import INK, LINE, PALETTE, SOFT, legend, panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHADE = 0.18


def forecast(
    mean: Any,
    lower: Any,
    upper: Any,
    observed: Any = None,
    *,
    times: Any = None,
    levels: Sequence[str] | str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the mean of a series between its bands, with the observations as dots.

    `mean` is (T,); `lower` and `upper` are (T,), or (b, T) for several bands, the widest first; `levels`
    are their labels ("90 %"). `observed` holds the first values, at most T, NaN where missing; later steps
    are the forecast, dashed and after a vertical line. `times` (T,) are the positions of the steps, by
    default 0, 1, ….

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = forecast([1.0, 2.0, 3.0], [0.0, 1.0, 1.5], [2.0, 3.0, 4.5], observed=[1.1, 1.9], levels="90 %")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['mean', '90 %', 'observed']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    from matplotlib.patches import Patch

    centre, low, high = _check_bands(mean, lower, upper)
    steps = len(centre)
    where = np.arange(steps) if times is None else np.asarray(times)
    if where.shape != (steps,):
        raise BadInput("times", f"shape {where.shape}", f"shape ({steps},), one for each step of mean")
    labels = [levels] if isinstance(levels, str) else list(levels or ["band"] * len(low))
    if len(labels) != len(low):
        raise BadInput("levels", f"{len(labels)} names", f"one for each of {len(low)} bands")
    observations = None if observed is None else np.asarray(observed, float)
    if observations is not None and (observations.ndim != 1 or len(observations) > steps):
        raise BadInput(
            "observed", f"shape {observations.shape}", f"at most {steps} values, the first of the series"
        )
    ax = panel(ax, 7.0, 3.2)
    handles: list[Any] = []
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        band = ax.fill_between(where, a, b, color=PALETTE[0], alpha=_SHADE, linewidth=0)
        band.set_gid(f"band {i}")
        shade = 1 - (1 - _SHADE) ** (i + 1)  # each band lies on the wider ones
        handles.append(Patch(facecolor=PALETTE[0], alpha=shade, label=labels[i]))
    now = steps if observations is None or len(observations) == 0 else len(observations)
    past = ax.plot(where[:now], centre[:now], color=PALETTE[0], linewidth=1.6, label="mean")[0]
    if now < steps:
        style: dict = {"color": PALETTE[0], "linewidth": 1.6, "linestyle": (0, (4, 2))}
        ax.plot(where[now - 1 :], centre[now - 1 :], **style)
        edge = where[now - 1] + (where[now] - where[now - 1]) / 2
        ax.axvline(edge, color=LINE, linewidth=0.9, zorder=0)
        at: dict = {"xytext": (5, -2), "xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
        ax.annotate("forecast", (edge, 1), va="top", color=SOFT, fontsize=8, **at)
    handles.insert(0, past)
    if observations is not None and len(observations):
        size = float(np.clip(900 / now, 4, 16))
        dots = ax.scatter(
            where[:now], observations, s=size, color=INK, linewidths=0, zorder=4, label="observed"
        )
        handles.append(dots)
    ax.margins(x=0.02)
    ax.set_xlabel("step" if times is None else "time", color=INK)
    legend(ax, handles)
    return ax


def _check_bands(mean: Any, lower: Any, upper: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean (T,), lower and upper bounds (bands, T)); raises if they do not match."""
    centre = np.asarray(mean, float)
    if centre.ndim != 1 or centre.size == 0:
        raise BadInput(
            "mean", f"shape {centre.shape}", "one value per step, shape (T,): one series at a time"
        )
    low, high = (np.atleast_2d(np.asarray(edge, float)) for edge in (lower, upper))
    for name, edge in (("lower", low), ("upper", high)):
        if edge.ndim != 2 or edge.shape[1] != len(centre) or edge.shape != low.shape:
            raise BadInput(name, f"shape {edge.shape}", f"shape ({len(centre)},) or (bands, {len(centre)})")
    for name, values in (("mean", centre), ("lower", low), ("upper", high)):
        if not np.all(np.isfinite(values)):
            raise BadInput(name, "a value that is not finite", "finite numbers")
    if np.any(low > high):
        step = int(np.argwhere(low > high)[0][1])
        raise BadInput("lower", f"a value above `upper` at step {step}", "lower <= upper everywhere")
    return centre, low, high
