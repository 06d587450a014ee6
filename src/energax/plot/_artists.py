"""Parts of Matplotlib that adapt when axes change their size; imported only when something is drawn."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import DAILY, MONTHLY, AutoDateLocator, num2date
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import Formatter
from matplotlib.transforms import Bbox


def diagram_scale(ax: Any, width: float, height: float) -> float:
    """Inches on the page per inch of a diagram of this width and height."""
    box = ax.get_window_extent()
    dpi = ax.figure.dpi
    return min(box.width / dpi / width, box.height / dpi / height, 2.0)


class Proportions(Artist):
    """Keeps letters and lines in proportion to a diagram, whose axes shrink when a title is added.

    It draws nothing. It has the lowest `zorder` and so comes first when the axes are drawn.
    """

    def __init__(self, ax: Axes, width: float, height: float, scale: float):
        super().__init__()
        self._extent, self._scale = (width, height), scale
        self._texts, self._patches = list(ax.texts), list(ax.patches)
        self.set_zorder(-1e6)
        self.set_in_layout(False)
        ax.add_artist(self)

    def draw(self, renderer: Any) -> None:
        """Multiply all sizes in points by the change of scale since the last time."""
        factor = diagram_scale(self.axes, *self._extent) / self._scale
        if abs(factor - 1) < 1e-3 or factor <= 0:
            return
        self._scale *= factor
        for text in self._texts:
            text.set_fontsize(float(text.get_fontsize()) * factor)
        for patch in self._patches:
            patch.set_linewidth(patch.get_linewidth() * factor)
            if isinstance(patch, FancyArrowPatch):
                patch.set_mutation_scale(patch.get_mutation_scale() * factor)


class LegendBox:
    """The position of empty axes that lie where the legend of `ax` is.

    Matplotlib moves titles above all axes inside of axes, but not above legends.
    """

    def __init__(self, ax: Axes):
        self._ax = ax

    def __call__(self, _: Any, renderer: Any) -> Bbox:
        ax = self._ax
        legend, own = ax.get_legend(), ax.get_position()
        if legend is None:
            return Bbox.from_extents(own.x0, own.y1, own.x1, own.y1)
        found = legend.get_window_extent(renderer)
        return found.transformed(ax.figure.transSubfigure.inverted())


class FittingDates(AutoDateLocator):
    """Dates as ticks, as many as their labels have room for."""

    def get_locator(self, dmin: Any, dmax: Any) -> Any:
        """The locator of the unit (years, months, …) for this range."""
        axis: Any = self.axis
        ax = axis.axes
        width = ax.get_window_extent().width / ax.figure.dpi
        for frequency in self.maxticks:
            room = 0.5 if frequency <= MONTHLY else 0.6 if frequency <= DAILY else 0.7  # inches per label
            self.maxticks[frequency] = int(min(max(width / room, 2), 8)) + 1
        self.minticks = max(2, self.maxticks[DAILY] // 3)
        return super().get_locator(dmin, dmax)


class DateLabels(Formatter):
    """Labels of dates in the unit of the ticks, with the larger units below where they change.

    The days 28 and 29 February and 1 March are labelled "28 / Feb 2024", "29" and "1 / Mar".
    """

    def __init__(self, zone: Any = None):
        self._zone = zone

    def __call__(self, x: float, pos: Any = None) -> str:
        return f"{num2date(x, self._zone):%Y-%m-%d %H:%M}"

    def format_ticks(self, values: Any) -> list[str]:
        """The labels of all ticks."""
        dates = [num2date(value, self._zone) for value in values]
        unit = max((_unit(date) for date in dates), default=0)
        labels, before = [], None
        for date in dates:
            below = _larger_units(date, before, unit)
            label = (f"{date.year}", f"{date:%b}", f"{date.day}", f"{date:%H:%M}", f"{date:%H:%M:%S}")[unit]
            labels.append(f"{label}\n{below}" if below else label)
            before = date
        return labels


def _unit(date: datetime) -> int:
    """The finest unit of a date that is not at its start: 0 years, 1 months, 2 days, 3 minutes, 4 seconds."""
    if date.second or date.microsecond:
        return 4
    if date.hour or date.minute:
        return 3
    return 2 if date.day > 1 else int(date.month > 1)


def _larger_units(date: datetime, before: datetime | None, unit: int) -> str:
    """The units above `unit`, from the largest that differs from the date before; "" if none does."""
    day = f"{date.day} " if unit > 2 else ""
    if unit == 0:
        return ""
    if before is None or before.year != date.year:
        return f"{date.year}" if unit == 1 else f"{day}{date:%b} {date.year}"
    changed = unit > 1 and (before.month != date.month or (unit > 2 and before.day != date.day))
    return f"{day}{date:%b}" if changed else ""
