"""A diagram of a Markov chain: states, and arrows for the transition probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._util.arguments import ANY_NUMBER, NONE, check_arguments, read_names
from ..errors import BadInput, as_numbers, describe
from ._style import LIGHT, background, canvas, colours, keep_proportions, readable, text_size, theme_of, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAME, _LABEL, _NOTE = 10.0, 8.0, 7.5  # points
_BENDS = (0.2, 0.14, 0.08, 0.03)  # of an arrow, relative to its length
_LOOP = 0.6  # the height of a loop in inches
_FINE = 401  # points along a curve
_LABEL_BOX = np.array([0.30, 0.17])  # inches
_LEAST = (0.01, 0.02, 0.05)
_MOST_ARROWS = 24  # between different states; more make a diagram that is hard to read
_SWEEPS = 3
_LINE = 1.15  # line spacing, relative to the font size


def transitions(
    matrix: Any, names: Sequence[str] | None = None, *, least: float | None = None, ax: Axes | None = None
) -> Axes:
    """Plot states on a circle, with an arrow for every transition probability of at least `least`.

    By default `least` is 0.01, or up to 0.05 if more than 24 arrows would connect the states; a note tells
    what is left out. `matrix[i, j]` is p(j | i); its rows sum to one. Arrows have the colour of the state
    they leave, a width that grows with the probability, and the probability as label; loops are the
    probabilities to stay. Long names are broken into lines.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = transitions([[0.95, 0.05], [0.1, 0.9]], ["fair", "loaded"])
    >>> sorted(patch.get_gid() for patch in ax.patches if "→" in patch.get_gid())
    ['fair → fair', 'fair → loaded', 'loaded → fair', 'loaded → loaded']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    p, names = _check_matrix(matrix, names)
    check_arguments(locals(), least=ANY_NUMBER | NONE)
    least = _default_least(p) if least is None else max(least, 1e-12)
    texts, radii = _circles(names)
    centres, angles = _ring(radii)
    pairs = [(int(i), int(j)) for i, j in np.argwhere(p >= least)]
    curves = [
        _loop(centres[i], radii[i], angles[i]) if i == j else _clear_curve(i, j, centres, radii)
        for i, j in pairs
    ]
    labels = _place_labels([_points(curve) for curve in curves], [p[pair] for pair in pairs], centres, radii)
    rim = radii[:, None]
    everything = [np.array(labels).reshape(-1, 2), *map(_points, curves), centres - rim, centres + rim]
    low, high = (edge(np.concatenate(everything), 0) for edge in (np.min, np.max))
    low, high = low - 0.22, high + 0.22
    note = _note(p, least)
    if note:
        low = low - (0.0, 0.16)
        high[0] = max(high[0], low[0] + text_size(note, _NOTE)[0] + 0.24)
    ax, scale = canvas(ax, *(high - low))
    theme, hues = theme_of(ax), colours(len(names))
    for (i, j), curve, place in zip(pairs, curves, labels, strict=True):
        _arrow(ax, curve - low, p[i, j], hues[i], scale, f"{names[i]} → {names[j]}")
        halo = {"facecolor": background(ax), "edgecolor": "none", "pad": 1.2 * scale, "alpha": 0.9}
        style: dict = {"color": readable(hues[i], theme), "bbox": halo, "zorder": 5}
        write(ax, place - low, _format_probability(p[i, j]), _LABEL * scale, **style)
    for i, name in enumerate(names):
        _draw_state(ax, name, texts[i], centres[i] - low, radii[i], hues[i], scale)
    if note:
        write(ax, (0.12, 0.14), note, _NOTE * scale, ha="left", color=theme.soft)
    keep_proportions(ax, scale)
    return ax


def _default_least(p: np.ndarray) -> float:
    """The smallest limit that leaves few enough arrows, or the largest one."""
    between = p[~np.eye(len(p), dtype=bool)]
    return next((least for least in _LEAST if (between >= least).sum() <= _MOST_ARROWS), _LEAST[-1])


def _note(p: np.ndarray, least: float) -> str:
    """Name the probabilities that are not drawn, if two digits would show them."""
    hidden = p[p < least]
    return f"p < {_format_probability(least)} not shown" if hidden.size and hidden.max() >= 0.01 else ""


def _circles(names: list[str]) -> tuple[list[str], np.ndarray]:
    """The name of each state in lines, and the radius of its circle.

    Circles have one radius, but for names that are much longer than the others.
    """
    options = [_break_name(name) for name in names]
    fits = np.array([min(option.values()) for option in options])
    usual = max(0.27, min(float(fits.max()), 1.4 * float(np.median(fits))))
    radii = np.maximum(fits, usual)
    fewest = lambda text: text.count("\n")
    return [
        min((text for text, needed in option.items() if needed <= radius), key=fewest)
        for option, radius in zip(options, radii, strict=True)
    ], radii


def _break_name(name: str) -> dict[str, float]:
    """A name broken into lines in several ways, and the radius of the circle around each."""
    words = re.findall(r"[^\s_/-]+[_/-]*|[_/-]+", name) or [name]
    glue = ["" if word[-1:] in tuple("_/-") else " " for word in words]
    found = {}
    for first in range(len(words)):  # lines not longer than the first words, or than a longer word
        limit = _width("".join(word + space for word, space in zip(words[: first + 1], glue, strict=False)))
        lines, spaces = [words[0]], [glue[0]]
        for word, space in zip(words[1:], glue[1:], strict=True):
            longer = lines[-1] + spaces[-1] + word
            if _width(longer) <= limit + 1e-9:
                lines[-1], spaces[-1] = longer, space
            else:
                lines.append(word)
                spaces.append(space)
        found["\n".join(lines)] = _radius(lines)
    return found


def _width(text: str) -> float:
    return text_size(text.strip(), _NAME, "bold")[0]


def _radius(lines: list[str]) -> float:
    """The radius of a circle around centred lines of text."""
    height = _NAME * _LINE / 72
    tops = np.abs(height * (np.arange(len(lines)) - (len(lines) - 1) / 2)) + 0.3 * height
    widths = np.array([_width(line) for line in lines])
    return float(np.hypot(widths / 2, tops if len(lines) > 1 else 0.0).max()) + 0.12


def _ring(radii: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The centres of the circles, with room for arrows between neighbours, and their angles."""
    k = len(radii)
    angles = np.array([math.pi, 0.0]) if k == 2 else math.pi / 2 - 2 * math.pi * np.arange(k) / k
    room = 1.15 if k < 5 else 1.3
    apart = float((radii + np.roll(radii, 1)).max()) + room
    ring = 0.0 if k == 1 else apart / (2 * math.sin(math.pi / k))
    return ring * np.stack([np.cos(angles), np.sin(angles)], 1), angles


def _draw_state(
    ax: Axes, name: str, text: str, centre: np.ndarray, radius: float, hue: str, scale: float
) -> None:
    from matplotlib.patches import Circle

    theme = theme_of(ax)
    node = Circle((float(centre[0]), float(centre[1])), radius, facecolor=theme.panel, edgecolor=hue)
    node.set(linewidth=2.2 * scale, zorder=6)
    node.set_gid(name)
    ax.add_patch(node)
    write(ax, centre, text, _NAME * scale, weight="bold", color=theme.ink, linespacing=_LINE, zorder=7)


def _check_matrix(matrix: Any, names: Sequence[str] | None) -> tuple[np.ndarray, list[str]]:
    p = np.asarray(as_numbers("matrix", matrix, "a square matrix of transition probabilities"))
    if not np.isrealobj(p) or p.dtype.kind == "b":
        raise BadInput("matrix", describe(matrix), "a square matrix of transition probabilities")
    p = p.astype(float)
    if p.ndim != 2 or p.shape[0] != p.shape[1] or p.size == 0:
        raise BadInput("matrix", f"shape {p.shape}", "a square matrix of transition probabilities")
    sums = p.sum(1)
    if not np.all(np.isfinite(p)) or p.min() < -1e-9 or np.abs(sums - 1).max() > 1e-3:
        row = int(np.nan_to_num(np.abs(sums - 1), nan=np.inf).argmax())
        raise BadInput("matrix", f"row {row} with the sum {sums[row]:.4g}", "probabilities that sum to one")
    names = [str(i) for i in range(len(p))] if names is None else read_names("names", names)
    if len(names) != len(p) or len(set(names)) != len(p):
        raise BadInput("names", f"{names}", f"{len(p)} different names")
    return p, names


def _format_probability(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return text if value >= 0.005 else f"{value:.0e}"


def _clear_curve(i: int, j: int, centres: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """A curve from state i to state j, bent so little that it passes beside the other states."""
    others = [k for k in range(len(radii)) if k not in (i, j)]
    for bend in _BENDS:
        curve = _curve(centres[i], centres[j], radii[i], radii[j], bend)
        far = np.linalg.norm(_points(curve)[:, None] - centres[others], axis=-1)
        if np.all(far > radii[others] + 0.08):
            break
    return curve


def _curve(start: np.ndarray, end: np.ndarray, leave: float, arrive: float, bend: float) -> np.ndarray:
    """The three points of a quadratic curve from one circle to the other, bent to its right."""
    along = end - start
    control = (start + end) / 2 + bend * np.array([along[1], -along[0]])
    whole = np.array([start, control, end])
    curve, t = _points(whole), np.linspace(0, 1, _FINE)
    first = t[np.argmax(np.hypot(*(curve - start).T) > leave + 0.02)]
    last = t[_FINE - 1 - np.argmax(np.hypot(*(curve - end).T)[::-1] > arrive + 0.04)]
    blossom = lambda a, b: ((1 - a) * (1 - b), a * (1 - b) + b * (1 - a), a * b) @ whole
    return np.array([blossom(first, first), blossom(first, last), blossom(last, last)])


def _loop(centre: np.ndarray, radius: float, angle: float) -> np.ndarray:
    """The four points of a loop on the outer side of a state."""
    unit = lambda a: np.array([math.cos(a), math.sin(a)])
    rim, open_ = 0.17 / radius, math.atan2(0.42, radius + _LOOP)
    far = radius + _LOOP * 4 / 3
    near = [
        (radius + 0.02, angle + rim),
        (far, angle + open_),
        (far, angle - open_),
        (radius + 0.04, angle - rim),
    ]
    return np.array([centre + r * unit(a) for r, a in near])


def _points(curve: np.ndarray) -> np.ndarray:
    """Points along a Bézier curve, (_FINE, 2)."""
    t, degree = np.linspace(0, 1, _FINE)[:, None], len(curve) - 1
    basis = [math.comb(degree, i) * t**i * (1 - t) ** (degree - i) for i in range(degree + 1)]
    return np.concatenate(basis, 1) @ curve


def _place_labels(
    curves: list[np.ndarray], values: list[float], centres: np.ndarray, radii: np.ndarray
) -> list[np.ndarray]:
    """A place on each curve for its label, far from other labels, states and other curves.

    Labels of high probability are placed first, and then all again while the others stay. Places near the
    middle of the curve are preferred.
    """
    fractions = np.linspace(0.16, 0.8, 33)
    found: dict[int, np.ndarray] = {}
    every = np.concatenate([curve[::10] for curve in curves]) if curves else np.zeros((0, 2))
    owner = np.repeat(np.arange(len(curves)), [len(curve[::10]) for curve in curves])
    for i in _SWEEPS * sorted(range(len(curves)), key=lambda i: -values[i]):
        spots = curves[i][(fractions * (_FINE - 1)).astype(int)]
        cost = 0.6 * np.abs(fractions - 0.45)
        gap = lambda others: np.abs(spots[:, None] - others[None]) / _LABEL_BOX  # noqa: B023
        placed = [place for j, place in found.items() if j != i]
        if placed:
            cost += 8.0 * np.clip(1.15 - gap(np.array(placed)).max(-1), 0, None).sum(1)
        others = every[owner != i]
        if len(others):
            cost += 0.08 * (gap(others).max(-1) < 0.55).sum(1)
        far = np.linalg.norm(spots[:, None] - centres, axis=-1)
        cost += 8.0 * (far < radii + 0.14).sum(1)
        found[i] = spots[np.argmin(cost)]
    return [found[i] for i in range(len(curves))]


def _arrow(ax: Axes, curve: np.ndarray, p: float, colour: str, scale: float, label: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    width = 0.7 + 3.0 * p
    faintest = 0.5 if theme_of(ax) is LIGHT else 0.75
    code = Path.CURVE3 if len(curve) == 3 else Path.CURVE4
    arrow = FancyArrowPatch(
        path=Path(curve, [Path.MOVETO, *[code] * (len(curve) - 1)]),
        arrowstyle=f"-|>,head_length={3.4 + 1.5 * width},head_width={1.5 + 0.8 * width}",
        mutation_scale=scale,
        linewidth=width * scale,
        color=colour,
        alpha=faintest + (0.95 - faintest) * math.sqrt(p),  # weak transitions stay in the background
        shrinkA=0,
        shrinkB=0,
        joinstyle="miter",
        capstyle="butt",
        zorder=3 + p,
    )
    arrow.set_gid(label)
    ax.add_patch(arrow)
