"""Positions of steps on the horizontal axis: numbers or dates."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput, describe

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_EXPECTED = "increasing numbers or dates"


def as_values(name: str, values: Any) -> np.ndarray:
    """Values of any dtype as an array; raise if their rows differ in length."""
    try:
        return np.asarray(values)
    except ValueError:
        raise BadInput(name, describe(values), "values of one shape") from None


@dataclasses.dataclass(frozen=True)
class Times:
    """The positions of steps: numbers, or days since the epoch of Matplotlib."""

    positions: np.ndarray
    dated: bool = False
    label: str = "step"
    zone: Any = None

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def edges(self) -> np.ndarray:
        """The borders between steps, half way between them, (steps + 1,)."""
        p = self.positions
        if len(p) == 1:
            return np.array([p[0] - 0.5, p[0] + 0.5])
        inner = (p[1:] + p[:-1]) / 2
        return np.concatenate([[2 * p[0] - inner[0]], inner, [2 * p[-1] - inner[-1]]])

    def format(self, ax: Axes, colour: str) -> None:
        """Set ticks whose labels do not overlap, and the label of the axis; dates need none."""
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        axis = ax.xaxis
        if self.dated:
            from ._artists import DateLabels, FittingDates

            ax.xaxis_date(self.zone)
            axis.set_major_locator(FittingDates(tz=self.zone))
            axis.set_major_formatter(DateLabels(self.zone))
            return
        axis.set_label_text(self.label, color=colour)
        if np.all(self.positions == np.round(self.positions)):
            axis.set_major_locator(MaxNLocator(integer=True))
            plain = ScalarFormatter(useOffset=False)  # years are not written as 1 + 1.99e3
            axis.set_major_formatter(plain)


def as_times(times: Any, steps: int, what: str = "step") -> Times:
    """The positions of `steps` steps; raises if they are not `steps` increasing numbers or dates."""
    found = _dates(times)
    if found is None:
        values = as_values("times", times)
        if values.dtype.kind not in "iuf":
            kind = "texts" if values.dtype.kind in "US" else f"{values.dtype} values"
            raise BadInput("times", kind, _EXPECTED, "numpy.asarray(times, 'datetime64[s]') reads dates.")
        found = Times(values.astype(float), label="time")
    if found.positions.shape != (steps,):
        shape = found.positions.shape
        raise BadInput("times", f"shape {shape}", f"shape ({steps},), one for each {what}")
    if not np.all(np.isfinite(found.positions)):
        raise BadInput("times", "a missing value", _EXPECTED)
    back = np.flatnonzero(np.diff(found.positions) <= 0)
    if len(back):
        step = int(back[0]) + 1
        raise BadInput("times", f"a value at {step} that is not above the one before it", _EXPECTED)
    return found


def dates_of(data: Any) -> Any:
    """The dates in the index of a pandas frame or series, or None."""
    index = getattr(data, "index", None)
    return None if callable(index) or _dates(index) is None else index  # lists have a method `index`


def continued(index: Any, steps: int) -> Any:
    """The dates of a pandas index, followed by `steps` dates at its frequency."""
    import pandas as pd

    index = _without_periods(index)
    frequency = index.freq or (pd.infer_freq(index) if len(index) > 2 else None)
    if frequency is None:
        raise BadInput(
            "history",
            "dates without a regular frequency",
            "dates that can be continued",
            "Pass times=, the dates of history and of all steps of mean.",
        )
    return index.append(pd.date_range(index[-1], periods=steps + 1, freq=frequency)[1:])


def _dates(values: Any) -> Times | None:
    """Dates as `Times`, or None if these are not dates."""
    values = _without_periods(values)
    array = as_values("times", values)
    zone = getattr(values, "tz", None)
    if array.ndim != 1 or array.size == 0:
        return None
    if array.dtype.kind == "O" and all(isinstance(value, datetime.date) for value in array):
        if any(value != value for value in array):  # NaT of pandas is a date
            raise BadInput("times", "a missing value", _EXPECTED)
        zone = getattr(array[0], "tzinfo", None)
    elif array.dtype.kind != "M":
        return None
    from matplotlib.dates import date2num

    return Times(np.asarray(date2num(array), float), dated=True, label="", zone=zone)


def _without_periods(values: Any) -> Any:
    """The first moments of periods of pandas; other values as they are."""
    if not str(getattr(values, "dtype", "")).startswith("period"):
        return values
    import pandas as pd

    return pd.PeriodIndex(values).to_timestamp()
