"""A diagram of a Markov chain: states, and arrows for the transition probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import BadInput
from ._style import INK, PANEL, canvas, colours, text_size, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAME, _LABEL = 10.0, 8.0  # points
_BEND, _LOOP = 0.2, 0.6  # relative to the length of an arrow; the height of a loop in inches
_FINE = 401  # points along a curve
_LABEL_BOX = np.array([0.30, 0.17])  # inches


def transitions(
    matrix: Any, names: Sequence[str] | None = None, *, least: float | None = None, ax: Axes | None = None
) -> Axes:
    """Plot states on a circle, with an arrow for every transition probability of at least `least`.

    By default `least` is 0.01, and 0.05 for more than six states, whose arrows would overlap. `matrix[i, j]`
    is p(j | i); its rows sum to one. Arrows have the colour of the state they leave, a width that grows
    with the probability, and the probability as label; loops are the probabilities to stay.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> ax = transitions([[0.95, 0.05], [0.1, 0.9]], ["fair", "loaded"])
    >>> sorted(patch.get_gid() for patch in ax.patches if "→" in patch.get_gid())
    ['fair → fair', 'fair → loaded', 'loaded → fair', 'loaded → loaded']
    >>> matplotlib.pyplot.close(ax.figure)
    """
    from matplotlib.patches import Circle

    p, names = _check_matrix(matrix, names)
    k, hues = len(names), colours(len(names))
    least = (0.01 if k <= 6 else 0.05) if least is None else max(least, 1e-12)
    radius = max(0.27, max(text_size(name, _NAME, "bold")[0] for name in names) / 2 + 0.12)
    angles = np.array([math.pi, 0.0]) if k == 2 else math.pi / 2 - 2 * math.pi * np.arange(k) / k
    apart = 2 * radius + (1.15 if k < 5 else 1.0)
    ring = 0.0 if k == 1 else apart / (2 * math.sin(math.pi / k))
    centres = ring * np.stack([np.cos(angles), np.sin(angles)], 1)
    pairs = [(int(i), int(j)) for i, j in np.argwhere(p >= least)]
    curves = [
        _loop(centres[i], radius, angles[i]) if i == j else _curve(centres[i], centres[j], radius)
        for i, j in pairs
    ]
    labels = _place_labels([_points(curve) for curve in curves], [p[pair] for pair in pairs], centres, radius)
    everything = [np.array(labels).reshape(-1, 2), *map(_points, curves), centres - radius, centres + radius]
    low, high = (edge(np.concatenate(everything), 0) for edge in (np.min, np.max))
    low, high = low - 0.22, high + 0.22
    ax, scale = canvas(ax, *(high - low))
    for (i, j), curve, place in zip(pairs, curves, labels, strict=True):
        _arrow(ax, curve - low, p[i, j], hues[i], scale, f"{names[i]} → {names[j]}")
        halo = {"facecolor": "white", "edgecolor": "none", "pad": 1.2 * scale, "alpha": 0.9}
        style: dict = {"color": _darker(hues[i]), "bbox": halo, "zorder": 5}
        write(ax, place - low, _format_probability(p[i, j]), _LABEL * scale, **style)
    for i, name in enumerate(names):
        node = Circle(
            tuple(centres[i] - low),
            radius,
            facecolor=PANEL,
            edgecolor=hues[i],
            linewidth=2.2 * scale,
            zorder=6,
        )
        node.set_gid(name)
        ax.add_patch(node)
        write(ax, centres[i] - low, name, _NAME * scale, weight="bold", color=INK, zorder=7)
    return ax


def _check_matrix(matrix: Any, names: Sequence[str] | None) -> tuple[np.ndarray, list[str]]:
    p = np.asarray(matrix, float)
    if p.ndim != 2 or p.shape[0] != p.shape[1] or p.size == 0:
        raise BadInput("matrix", f"shape {p.shape}", "a square matrix of transition probabilities")
    sums = p.sum(1)
    if not np.all(np.isfinite(p)) or p.min() < -1e-9 or np.abs(sums - 1).max() > 1e-3:
        row = int(np.nan_to_num(np.abs(sums - 1), nan=np.inf).argmax())
        raise BadInput("matrix", f"row {row} with the sum {sums[row]:.4g}", "probabilities that sum to one")
    names = [str(i) for i in range(len(p))] if names is None else [str(name) for name in names]
    if len(names) != len(p) or len(set(names)) != len(p):
        raise BadInput("names", f"{names}", f"{len(p)} different names")
    return p, names


def _format_probability(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return text if value >= 0.005 else f"{value:.0e}"


def _darker(colour: str) -> str:
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = (0.62 * channel for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def _curve(start: np.ndarray, end: np.ndarray, radius: float) -> np.ndarray:
    """The three points of a quadratic curve from one circle to the other, bent to its right."""
    along = end - start
    control = (start + end) / 2 + _BEND * np.array([along[1], -along[0]])
    whole = np.array([start, control, end])
    curve, t = _points(whole), np.linspace(0, 1, _FINE)
    first = t[np.argmax(np.hypot(*(curve - start).T) > radius + 0.02)]
    last = t[_FINE - 1 - np.argmax(np.hypot(*(curve - end).T)[::-1] > radius + 0.04)]
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
    curves: list[np.ndarray], values: list[float], centres: np.ndarray, radius: float
) -> list[np.ndarray]:
    """A place on each curve for its label, far from other labels, states and other curves.

    Labels of high probability are placed first. Places near the middle of the curve are preferred.
    """
    fractions = np.linspace(0.2, 0.8, 25)
    found: dict[int, np.ndarray] = {}
    every = np.concatenate([curve[::10] for curve in curves]) if curves else np.zeros((0, 2))
    owner = np.repeat(np.arange(len(curves)), [len(curve[::10]) for curve in curves])
    for i in sorted(range(len(curves)), key=lambda i: -values[i]):
        spots = curves[i][(fractions * (_FINE - 1)).astype(int)]
        cost = 0.6 * np.abs(fractions - 0.45)
        gap = lambda others: np.abs(spots[:, None] - others[None]) / _LABEL_BOX  # noqa: B023
        if found:
            cost += 8.0 * np.clip(1.1 - gap(np.array(list(found.values()))).max(-1), 0, None).sum(1)
        others = every[owner != i]
        if len(others):
            cost += 0.05 * (gap(others).max(-1) < 0.5).sum(1)
        far = np.linalg.norm(spots[:, None] - centres, axis=-1)
        cost += 8.0 * (far < radius + 0.14).sum(1)
        found[i] = spots[np.argmin(cost)]
    return [found[i] for i in range(len(curves))]


def _arrow(ax: Axes, curve: np.ndarray, p: float, colour: str, scale: float, label: str) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    width = 0.7 + 3.0 * p
    code = Path.CURVE3 if len(curve) == 3 else Path.CURVE4
    arrow = FancyArrowPatch(
        path=Path(curve, [Path.MOVETO, *[code] * (len(curve) - 1)]),
        arrowstyle=f"-|>,head_length={3.4 + 1.5 * width},head_width={1.5 + 0.8 * width}",
        mutation_scale=scale,
        linewidth=width * scale,
        color=colour,
        alpha=0.85,
        shrinkA=0,
        shrinkB=0,
        joinstyle="miter",
        capstyle="butt",
        zorder=3,
    )
    arrow.set_gid(label)
    ax.add_patch(arrow)
