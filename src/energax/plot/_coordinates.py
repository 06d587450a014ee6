"""The coordinates of draws that a plot shows, with their names, and the grid of panels for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.arguments import read_names
from ..errors import BadInput, check_whole_number
from ._style import legend, panel, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """One number of a variable over all draws: its name, and the values by chain, (n_chains, n_draws)."""

    name: str
    chains: np.ndarray

    @property
    def is_constant(self) -> bool:
        return bool(np.ptp(self.chains) == 0)


@dataclasses.dataclass(frozen=True)
class Coordinates:
    """The coordinates to show, and how many were left out."""

    shown: list[Coordinate]
    left_out: int
    n_chains: int
    divergent: np.ndarray | None  # (n_chains, n_draws)

    @property
    def note(self) -> str:
        return "" if self.left_out == 0 else f"{self.left_out} more coordinates are not shown"


def coordinates_of(draws: Any, names: Any, limit: int, argument: str = "max_coordinates") -> Coordinates:
    """The first `limit` coordinates of the named variables of draws, or of a dict of chains; checked."""
    check_whole_number(argument, limit)
    chains = getattr(draws, "chains", draws)
    if not isinstance(chains, dict) or not chains:
        expected = "Draws, as `sample` returns them, or a dict of arrays (n_chains, n_draws, …)"
        raise BadInput("draws", type(draws).__name__, expected)
    arrays = {name: _check_chains(name, value) for name, value in chains.items()}
    if len({a.shape[:2] for a in arrays.values()}) > 1:
        raise BadInput("draws", "variables with different numbers of draws", "the same number for all")
    labels = {name: _coordinate_names(name, a.shape[2:]) for name, a in arrays.items()}
    chosen = _choose(names, labels)
    found: list[Coordinate] = []
    for name, i in chosen[:limit]:
        value = arrays[name].reshape(*arrays[name].shape[:2], -1)[..., i]
        found.append(Coordinate(labels[name][i], value))
    if not found:
        raise BadInput("draws", "no coordinates", "at least one")
    shape = next(iter(arrays.values())).shape[:2]
    divergent = getattr(draws, "info", {}).get("divergent")
    if divergent is not None:
        divergent = np.asarray(divergent, bool)
        divergent = divergent if divergent.shape == shape and divergent.any() else None
    return Coordinates(found, len(chosen) - len(found), shape[0], divergent)


def _check_chains(name: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.ndim < 2 or array.dtype.kind not in "biuf" or 0 in array.shape[:2]:
        found = f"{array.dtype} values of shape {array.shape}"
        raise BadInput(name, found, "numbers (n_chains, n_draws, …)")
    array = array.astype(float)
    if not np.isfinite(array).all():
        remedy = "Draws that are not finite diverged: use a smaller step."
        raise BadInput(name, "values that are not finite", "finite numbers", remedy)
    return array


def _coordinate_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """The names of the coordinates of a variable, such as x[0, 1]; that of a number is its own."""
    return [f"{name}[{', '.join(map(str, i))}]" if i else name for i in np.ndindex(*shape)]


def _choose(names: Any, known: dict[str, list[str]]) -> list[tuple[str, int]]:
    """The chosen coordinates as pairs of a variable and a flat index; `known` has their names by variable."""
    places = {label: (k, i) for k, labels in known.items() for i, label in enumerate(labels)}
    chosen = (
        list(known) if names is None else [names] if isinstance(names, str) else read_names("names", names)
    )
    unknown = [n for n in chosen if n not in known and n not in places]
    if unknown or not chosen:
        example = next((label for label in places if label not in known), None)
        expected = f"some of {list(known)}" + (f", or of coordinates such as {example!r}" if example else "")
        raise BadInput("names", f"{unknown or 'none'}", expected)
    pairs = [[(n, i) for i in range(len(known[n]))] if n in known else [places[n]] for n in chosen]
    return [pair for each in pairs for pair in each]


def grid(
    ax: Axes | None,
    rows: int,
    columns: int,
    width: float,
    height: float,
    ratios: tuple[float, ...] | None = None,
    **options: Any,
) -> np.ndarray:
    """Panels (rows, columns) on a new figure of panels of this size in inches, or in the place of `ax`."""
    if ax is None:
        import matplotlib.pyplot as plt

        size = (columns * width, rows * height)
        _, axes = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False, width_ratios=ratios, **options
        )
    else:
        spec = ax.get_subplotspec()
        if spec is None:
            expected = "axes of a grid, such as those of plt.subplots()"
            raise BadInput("ax", "axes that are placed by hand", expected)
        ax.set_axis_off()
        place = spec.subgridspec(rows, columns, width_ratios=ratios)
        axes = place.subplots(squeeze=False, **options)
    for each in axes.flat:
        panel(each, 0, 0)
    return axes


def remark(axes: np.ndarray, text: str) -> None:
    """Write a remark in small letters below the panels, on the left."""
    if not text:
        return
    ax = axes[-1, 0]
    figure, theme = ax.figure, theme_of(ax)
    if _fill_figure(axes):
        # As a label of the figure it gets room of its own; in a panel it would widen the column.
        figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=theme.soft)
        return
    style: dict = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8}
    note = ax.annotate(text, (0, 0), (0, -34), va="top", ha="left", color=theme.soft, **style)
    note.set_in_layout(False)


def _fill_figure(axes: np.ndarray) -> bool:
    """Whether a figure with a layout engine holds these panels and nothing else."""
    figure = axes[0, 0].figure
    return figure.get_layout_engine() is not None and len(figure.axes) == axes.size


def write_name(ax: Axes, name: str, constant: bool = False) -> None:
    """Write the name of a coordinate over its panel, on the left."""
    theme = theme_of(ax)
    text = f"{name}  (the same in every draw)" if constant else name
    ax.set_title(text, loc="left", fontsize=9.5, color=theme.ink, parse_math=False)


def chain_keys(n_chains: int, hues: Sequence[str], labels: Sequence[str] | None = None) -> list[Any]:
    """Keys of the chains for a legend; none for one chain, nor for more than a legend can hold."""
    from matplotlib.lines import Line2D

    if n_chains <= 1 or n_chains > 8:
        return []
    labels = [f"chain {i}" for i in range(n_chains)] if labels is None else labels
    return [Line2D([], [], color=hues[i], lw=2, label=labels[i]) for i in range(n_chains)]


def widen(ax: Axes, values: np.ndarray, axis: str = "y") -> None:
    """Set limits around a constant value, where Matplotlib would show a band of arbitrary height."""
    centre = float(values.flat[0])
    reach = max(abs(centre), 1.0) * 0.5
    (ax.set_ylim if axis == "y" else ax.set_xlim)(centre - reach, centre + reach)


def tick_key(colour: str, label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], color=colour, marker="|", linestyle="none", ms=9, mew=1.6, label=label)


def place_legend(axes: np.ndarray, keys: list[Any]) -> None:
    """Draw a legend above all panels, on the left."""
    if not keys:
        return
    figure, theme = axes[0, 0].figure, theme_of(axes[0, 0])
    if _fill_figure(axes):
        made = figure.legend(
            handles=keys,
            loc="outside upper left",
            ncols=len(keys),
            frameon=False,
            fontsize=9,
            labelcolor=theme.ink,
        )
        made.set_gid("legend")
    else:
        legend(axes[0, 0], keys)
