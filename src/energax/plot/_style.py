"""The style of all plots: a palette for colour-blind readers, light and dark colours, axes and labels."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colours of Okabe and Ito (Color Universal Design, 2008), ordered so that neighbours differ. Black is
#: lighter here, to differ from text, and yellow is darker, to be visible as a line.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#5F6570", "#C7B500")
_LEGEND = 9.0  # points
_EDGE = 0.06  # inches above and below a diagram, so that a title does not touch the border of the figure


@dataclasses.dataclass(frozen=True)
class Theme:
    """The colours of text, lines and boxes, for one kind of background."""

    ink: str
    soft: str  # text of less importance
    line: str
    track: str  # the part of a bar that is not filled
    panel: str  # the inside of boxes
    accent: str
    mark: str  # evidence
    mark_panel: str
    fill: float  # the opacity of coloured bands


LIGHT = Theme(
    ink="#23272E",
    soft="#5B6370",
    line="#9AA3AF",
    track="#E8EBEF",
    panel="#FFFFFF",
    accent=PALETTE[0],
    mark="#D55E00",
    mark_panel="#FDF1E7",
    fill=0.28,
)
DARK = Theme(
    ink="#ECEFF3",
    soft="#AEB6C1",
    line="#7D8794",
    track="#3A424D",
    panel="#1D222A",
    accent="#56B4E9",
    mark="#F5893D",
    mark_panel="#3B2717",
    fill=0.42,
)


def background(ax: Axes) -> tuple[float, float, float]:
    """The colour behind the axes: of the axes if they are drawn, of the figure, or white."""
    from matplotlib.colors import to_rgba

    behind = [ax.patch] if ax.axison else []
    for patch in (*behind, ax.figure.patch, ax.figure.figure.patch):
        red, green, blue, alpha = to_rgba(patch.get_facecolor())
        if alpha > 0.5:
            return red, green, blue
    return 1.0, 1.0, 1.0


def theme_of(ax: Axes) -> Theme:
    """The colours that are legible on the background of the axes."""
    red, green, blue = background(ax)
    return LIGHT if 0.299 * red + 0.587 * green + 0.114 * blue > 0.45 else DARK


def colours(n: int) -> list[str]:
    """n colours: the palette, or steps of a perceptually uniform map if it has too few."""
    if n <= len(PALETTE):
        return list(PALETTE[:n])
    import matplotlib

    ramp = matplotlib.colormaps["viridis"].resampled(n)
    return [matplotlib.colors.to_hex(ramp(i)) for i in range(n)]


def readable(colour: str, theme: Theme) -> str:
    """A colour of the palette as text: darker on a light background, lighter on a dark one."""
    from matplotlib.colors import to_hex, to_rgb

    end, share = (0.0, 0.62) if theme is LIGHT else (1.0, 0.6)
    red, green, blue = (share * channel + (1 - share) * end for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def panel(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes of a chart: the given ones, or those of a new figure of this size in inches."""
    if ax is None:
        import matplotlib.pyplot as plt

        # The position before the layout engine sets it: legends are arranged by it.
        place = {"left": 0.1, "right": 0.97}
        _, ax = plt.subplots(figsize=(width, height), layout="constrained", gridspec_kw=place)
    theme = theme_of(ax)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(theme.line)
    ax.tick_params(color=theme.line, labelcolor=theme.ink, labelsize=9)
    ax.title.set_color(theme.ink)
    return ax


def text_size(text: str, points: float, weight: str = "normal") -> tuple[float, float]:
    """Width and height of a line of text in inches, without a renderer."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=points, weight=weight)
    width, height, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return width / 72, height / 72


def write(ax: Axes, at: Any, text: str, points: float, **options: Any) -> None:
    """Write a label without parsing mathematics, since names may contain dollar signs."""
    options = {"ha": "center", "va": "center", **options}
    if "color" not in options:
        options["color"] = theme_of(ax).ink
    ax.text(float(at[0]), float(at[1]), text, fontsize=points, parse_math=False, **options)


def canvas(ax: Axes | None, width: float, height: float, largest: float = 18.0) -> tuple[Axes, float]:
    """Axes without frame on which one unit is one inch if there is room, and their scale.

    A diagram of `width` by `height` inches fills a new figure, made smaller to stay below `largest`
    inches; on the caller's axes it shrinks or grows to fit. Sizes in points times the scale keep their
    proportions, also later if `keep_proportions` is called when all is drawn.
    """
    from ._artists import diagram_scale

    if ax is None:
        import matplotlib.pyplot as plt
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        shrink = min(1.0, largest / max(width, height + 2 * _EDGE))
        size = max(width, 1.5) * shrink, max(height + 2 * _EDGE, 1.0) * shrink
        # The layout engine makes room for a title; without one the axes stay where they are placed here.
        edge = _EDGE / size[1]
        place = {"left": 0.0, "right": 1.0, "bottom": edge, "top": 1.0 - edge}
        engine = ConstrainedLayoutEngine(h_pad=_EDGE, w_pad=0.0, hspace=0.0, wspace=0.0)
        figure = plt.figure(figsize=size, layout=engine)
        ax = figure.add_subplot(figure.add_gridspec(1, 1, **place)[0])
    ax.set_axis_off()
    ax.set_xlim(0.0, width)
    ax.set_ylim(0.0, height)
    ax.set_aspect("equal")
    ax.title.set_color(theme_of(ax).ink)
    return ax, diagram_scale(ax, width, height)


def keep_proportions(ax: Axes, scale: float) -> None:
    """Rescale the letters and lines of the diagram on these axes whenever the axes change their size."""
    from ._artists import Proportions

    Proportions(ax, ax.get_xlim()[1], ax.get_ylim()[1], scale)


def legend(ax: Axes, handles: Any) -> Any:
    """A legend in one or more rows above the axes, flush with their left edge, and below a title."""
    from matplotlib.transforms import ScaledTranslation

    from ._artists import LegendBox

    above = ScaledTranslation(0, 5 / 72, ax.figure.dpi_scale_trans)
    theme = theme_of(ax)
    made = ax.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        bbox_transform=ax.transAxes + above,
        ncols=_columns(ax, [handle.get_label() for handle in handles]),
        frameon=False,
        fontsize=_LEGEND,
        labelcolor=theme.ink,
        borderaxespad=0.0,
        borderpad=0.0,
        handlelength=1.4,
        columnspacing=1.6,
        labelspacing=0.3,
    )
    for text in made.get_texts():
        text.set_parse_math(False)
    _lower_below(ax, made)
    strip = ax.inset_axes((0.0, 1.0, 1.0, 0.0))
    strip.set_axis_off()
    strip.set_navigate(False)
    strip.set_axes_locator(LegendBox(ax))
    return made


def _lower_below(ax: Axes, legend: Any) -> None:
    """Move the upper edge of the axes down if the legend does not fit between it and that of the figure.

    A layout engine does this by itself.
    """
    if ax.figure.figure.get_layout_engine() is not None:
        return
    box, spec = ax.get_window_extent(), ax.get_subplotspec()
    over = legend.get_window_extent().y1 - ax.figure.bbox.y1
    share = (over + 0.03 * ax.figure.dpi) / box.height
    if over <= 0 or share > 0.5:
        return
    if spec is not None:
        ax.set_subplotspec(spec.subgridspec(2, 1, height_ratios=(share, 1 - share), hspace=0.0)[1])
    else:
        x, y, width, height = ax.get_position().bounds
        ax.set_position((x, y, width, height * (1 - share)))


def _columns(ax: Axes, labels: list[str]) -> int:
    """The largest number of columns of a legend that is not wider than the axes."""
    room = ax.get_window_extent().width / ax.figure.dpi
    em = _LEGEND / 72
    widths = [text_size(label, _LEGEND)[0] + 2.2 * em for label in labels]  # handle and space: 2.2 em
    for n in range(len(labels), 1, -1):
        rows, longer = divmod(len(labels), n)
        heights = [rows + (i < longer) for i in range(n)]  # Matplotlib fills columns first
        ends = [sum(heights[: i + 1]) for i in range(n)]
        columns = [max(widths[end - height : end]) for end, height in zip(ends, heights, strict=True)]
        if sum(columns) + 1.6 * em * (n - 1) <= room:
            return n
    return 1
