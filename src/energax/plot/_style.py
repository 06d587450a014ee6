"""The style of all plots: a palette for colour-blind readers, axes, legends and labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colours of Okabe and Ito (Color Universal Design, 2008), ordered so that neighbours differ. Black is
#: lighter here, to differ from text, and yellow is darker, to be visible as a line.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#5F6570", "#C7B500")
INK = "#23272E"
SOFT = "#6B7280"
LINE = "#9AA3AF"
TRACK = "#E8EBEF"
PANEL = "#FFFFFF"
MARK, MARK_PANEL = "#D55E00", "#FDF1E7"


def colours(n: int) -> list[str]:
    """n colours: the palette, or steps of a perceptually uniform map if it has too few."""
    if n <= len(PALETTE):
        return list(PALETTE[:n])
    import matplotlib

    ramp = matplotlib.colormaps["viridis"].resampled(n)
    return [matplotlib.colors.to_hex(ramp(i)) for i in range(n)]


def panel(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes of a chart: the given ones, or those of a new figure of this size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(LINE)
    ax.tick_params(color=LINE, labelcolor=INK, labelsize=9)
    return ax


def canvas(ax: Axes | None, width: float, height: float, largest: float = 18.0) -> tuple[Axes, float]:
    """Axes without frame on which one unit is one inch if there is room, and their scale.

    A diagram of `width` by `height` inches fills a new figure, made smaller to stay below `largest`
    inches; on the caller's axes it shrinks or grows to fit. Sizes in points times the scale keep their
    proportions.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        shrink = min(1.0, largest / max(width, height))
        figure = plt.figure(figsize=(max(width, 1.5) * shrink, max(height, 1.0) * shrink))
        ax = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    ax.set_axis_off()
    ax.set_xlim(0.0, width)
    ax.set_ylim(0.0, height)
    ax.set_aspect("equal")
    box = ax.get_window_extent()
    dpi = ax.figure.dpi
    scale = min(box.width / dpi / width, box.height / dpi / height)
    return ax, min(scale, 2.0)


def legend(ax: Axes, handles: Any, columns: int = 6) -> Any:
    """A legend in one or more rows above the axes, flush with their left edge."""
    from matplotlib.transforms import ScaledTranslation

    above = ScaledTranslation(0, 5 / 72, ax.figure.dpi_scale_trans)
    return ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        bbox_transform=ax.transAxes + above,
        ncols=min(len(handles), columns),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        borderaxespad=0.0,
        borderpad=0.0,
        handlelength=1.4,
        columnspacing=1.6,
    )


def text_size(text: str, points: float, weight: str = "normal") -> tuple[float, float]:
    """Width and height of a line of text in inches, without a renderer."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=points, weight=weight)
    width, height, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / 72, height / 72


def write(ax: Axes, at: Any, text: str, points: float, **options: Any) -> None:
    """Write a label without parsing mathematics, since names may contain dollar signs."""
    options = {"ha": "center", "va": "center", "color": INK, **options}
    ax.text(float(at[0]), float(at[1]), text, fontsize=points, parse_math=False, **options)
