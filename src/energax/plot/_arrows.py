"""Lines and arrows through a list of points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]


def draw_route(
    ax: Axes,
    points: Sequence[Point],
    scale: float,
    *,
    head: bool,
    straight: bool = False,
    colour: str,
    label: str,
) -> None:
    """Draw a line with or without an arrow head, straight or as curves with vertical ends.

    `label` becomes its gid.
    """
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    # A segment of length zero has no direction, so that an arrow head on it would not be drawn.
    points = [points[0], *(b for a, b in itertools.pairwise(points) if math.dist(a, b) > 1e-6)]
    vertices, codes = [points[0]], [Path.MOVETO]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if straight or abs(x0 - x1) < 0.03:
            vertices.append((x1, y1))
            codes.append(Path.LINETO)
        else:
            bend = 0.55 * (y1 - y0)
            vertices += [(x0, y0 + bend), (x1, y1 - bend), (x1, y1)]
            codes += [Path.CURVE4] * 3
    arrow = FancyArrowPatch(
        path=Path(vertices, codes),
        arrowstyle="-|>,head_length=4,head_width=1.8" if head else "-",
        mutation_scale=scale,
        linewidth=1.1 * scale,
        color=colour,
        shrinkA=0,
        shrinkB=0,
        joinstyle="miter",
        zorder=1,
    )
    arrow.set_gid(label)
    ax.add_patch(arrow)
