"""Plots of Markov chains over their moves: traces, ranks and autocorrelations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import check_whole_number
from ._coordinates import (
    Coordinate,
    chain_keys,
    coordinates_of,
    grid,
    place_legend,
    remark,
    tick_key,
    widen,
    write_name,
)
from ._style import colours, theme_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE_POINTS = 2000  # draws of one chain that are drawn; more would be a solid block


def trace(
    draws: Any, names: str | Sequence[str] | None = None, *, max_coordinates: int = 6, ax: Axes | None = None
) -> np.ndarray:
    """Plot every coordinate over the draws of each chain, and its density on the right.

    Chains that agree and move freely overlap everywhere. Divergent moves are marked at the lower edge.

    Args:
        draws: `Draws`, or a dict of arrays (n_chains, n_draws, …) by name.
        names: the variables to show, or coordinates such as "x[0]"; by default all variables.
        max_coordinates: how many coordinates are shown; a remark says how many are not.
        ax: axes whose place is taken; by default those of a new figure.

    Returns:
        the axes, (coordinates, 2).

    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = trace({"x": np.random.default_rng(0).normal(size=(2, 50, 3))})
    >>> axes.shape
    (3, 2)
    >>> matplotlib.pyplot.close(axes[0, 0].figure)
    """
    found = coordinates_of(draws, names, max_coordinates)
    axes = grid(ax, len(found.shown), 2, 4.2, 1.55, (4, 1), sharey="row")
    hues = colours(found.n_chains)
    for each, (left, right) in zip(found.shown, axes, strict=True):
        _draw_lines(left, each, hues)
        _draw_density(right, each, hues)
        if found.divergent is not None:
            _mark_moves(left, found.divergent)
        write_name(left, each.name, each.is_constant)
        right.axis("off")
        if left is not axes[-1, 0]:
            left.sharex(axes[-1, 0])
            left.tick_params(labelbottom=False)
    axes[-1, 0].set_xlabel("draw", color=theme_of(axes[-1, 0]).ink, fontsize=9.5)
    keys = chain_keys(found.n_chains, hues)
    if found.divergent is not None:
        keys.append(tick_key(theme_of(axes[0, 0]).mark, f"{int(found.divergent.sum())} divergent moves"))
    place_legend(axes, keys)
    remark(axes, found.note)
    return axes


def _draw_lines(ax: Axes, each: Coordinate, hues: list[str]) -> None:
    n_draws = each.chains.shape[1]
    step = -(-n_draws // _LINE_POINTS)
    width = 0.9 if n_draws <= 500 else 0.6
    for i, chain in enumerate(each.chains):
        line = ax.plot(np.arange(0, n_draws, step), chain[::step], color=hues[i], lw=width, alpha=0.8)[0]
        line.set_gid(f"chain {i}")
    ax.set_xlim(0, max(n_draws - 1, 1))
    if each.is_constant:
        widen(ax, each.chains)


def _draw_density(ax: Axes, each: Coordinate, hues: list[str]) -> None:
    """Draw the histograms of the chains on their side; of whole numbers one bar for each."""
    values = each.chains
    if each.is_constant:
        return
    whole = bool((values % 1 == 0).all()) and np.ptp(values) <= 40
    if whole:
        edges = np.arange(values.min() - 0.5, values.max() + 1)
    else:
        edges = np.histogram_bin_edges(values, min(40, max(10, int(np.sqrt(values.shape[1])))))
    for i, chain in enumerate(values):
        height, _ = np.histogram(chain, edges, density=True)
        ax.stairs(height, edges, orientation="horizontal", color=hues[i], lw=1.2)
    ax.set_xlim(0, None)


def _mark_moves(ax: Axes, divergent: np.ndarray) -> None:
    """Draw a tick at the lower edge for every draw at which some chain diverged."""
    at = np.flatnonzero(divergent.any(0))
    style: dict = {
        "transform": ax.get_xaxis_transform(),
        "clip_on": False,
        "linestyle": "none",
        "marker": "|",
    }
    ticks = ax.plot(at, np.full(len(at), 0.0), color=theme_of(ax).mark, ms=9, mew=1.1, zorder=5, **style)[0]
    ticks.set_gid("divergent")


def rank(
    draws: Any,
    names: str | Sequence[str] | None = None,
    *,
    n_bins: int = 20,
    max_coordinates: int = 8,
    ax: Axes | None = None,
) -> np.ndarray:
    """Plot how often the draws of each chain have low and high ranks among the draws of all chains.

    If all chains have the same distribution, ranks are uniform: the lines stay near the dashed line, and
    99 % of the bins lie in the grey band if draws are independent. Equal values are ranked in random order.
    The two halves of a single chain are compared with each other.

    Args:
        draws: `Draws`, or a dict of arrays (n_chains, n_draws, …) by name.
        names: the variables to show, or coordinates such as "x[0]"; by default all variables.
        n_bins: the number of bins of ranks.
        max_coordinates: how many coordinates are shown; a remark says how many are not.
        ax: axes whose place is taken; by default those of a new figure.

    Returns:
        the axes, one for each coordinate and some without a frame, (rows, columns).

    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and localization:
    an improved R̂.

    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = rank({"x": np.random.default_rng(0).normal(size=(4, 100))})
    >>> [len(line.get_xdata()) for line in axes[0, 0].lines][:1]
    [2]
    >>> matplotlib.pyplot.close(axes[0, 0].figure)
    """
    from scipy.stats import binom

    check_whole_number("n_bins", n_bins, 2)
    found = coordinates_of(draws, names, max_coordinates)
    n_chains, n_draws = _halved(found.shown[0].chains).shape
    n_bins = max(2, min(n_bins, n_draws))
    axes = _grid_of(ax, len(found.shown), sharex=True, sharey=True)
    hues = colours(n_chains)
    share = n_draws / n_bins
    band = binom.ppf([0.005, 0.995], n_draws, 1 / n_bins)
    highest = band[1]
    for each, panel in zip(found.shown, axes.flat, strict=False):
        theme = theme_of(panel)
        panel.axhspan(*band, color=theme.track, lw=0, zorder=0)
        panel.axhline(share, color=theme.line, lw=1, ls=(0, (4, 3)), zorder=1)
        write_name(panel, each.name, each.is_constant)
        if each.is_constant:
            continue
        for i, counts in enumerate(rank_counts(_halved(each.chains), n_bins)):
            edges = np.arange(n_bins + 1) / n_bins
            panel.stairs(counts, edges, baseline=None, color=hues[i], lw=1.4).set_gid(f"chain {i}")
            highest = max(highest, counts.max())
        panel.set_xlim(0, 1)
    axes[0, 0].set_ylim(0, 1.15 * highest)
    axes[0, 0].set_xticks([0.08, 0.92], ["low", "high"])
    for panel in axes.flat:
        panel.tick_params(axis="x", length=0)
    _label_edges(axes, len(found.shown), "rank among all draws", "draws")
    halves = ("first half", "second half") if found.n_chains == 1 else None
    place_legend(axes, chain_keys(n_chains, hues, halves))
    remark(axes, found.note)
    return axes


def _halved(chains: np.ndarray) -> np.ndarray:
    """The chains; the two halves of a single one, since its ranks alone are always uniform."""
    if len(chains) > 1 or chains.shape[1] < 2:
        return chains
    half = chains.shape[1] // 2
    return np.concatenate([chains[:, :half], chains[:, -half:]])


def rank_counts(chains: np.ndarray, n_bins: int) -> np.ndarray:
    """(n_chains, n_bins): how many draws of each chain have ranks in each bin of equal width."""
    from scipy.stats import rankdata

    # Equal values get different ranks, in random order: in order of the chains, they would seem to differ.
    order = np.random.default_rng(0).permutation(chains.size)
    ranks = np.empty(chains.size)
    ranks[order] = rankdata(chains.ravel()[order], method="ordinal")
    bins = ((ranks - 0.5) / chains.size * n_bins).astype(int).reshape(chains.shape)
    return np.stack([np.bincount(chain, minlength=n_bins) for chain in bins])


def autocorrelation(
    draws: Any,
    names: str | Sequence[str] | None = None,
    *,
    max_lag: int | None = None,
    max_coordinates: int = 8,
    ax: Axes | None = None,
) -> np.ndarray:
    """Plot the correlation of draws with later draws of the same chain, by their distance.

    It falls to 0 quickly if draws are nearly independent. The band is that of independent draws, 95 %.

    Args:
        draws: `Draws`, or a dict of arrays (n_chains, n_draws, …) by name.
        names: the variables to show, or coordinates such as "x[0]"; by default all variables.
        max_lag: the largest distance; by default 60, or half of the draws.
        max_coordinates: how many coordinates are shown; a remark says how many are not.
        ax: axes whose place is taken; by default those of a new figure.

    Returns:
        the axes, one for each coordinate and some without a frame, (rows, columns).

    >>> import matplotlib; matplotlib.use("Agg")
    >>> axes = autocorrelation({"x": np.random.default_rng(0).normal(size=(1, 100))}, max_lag=10)
    >>> float(axes[0, 0].lines[-1].get_ydata()[0])
    1.0
    >>> matplotlib.pyplot.close(axes[0, 0].figure)
    """
    found = coordinates_of(draws, names, max_coordinates)
    n_draws = found.shown[0].chains.shape[1]
    lags = min(60, max(1, n_draws // 2)) if max_lag is None else max_lag
    check_whole_number("max_lag", lags)
    lags = min(lags, n_draws - 1)
    axes = _grid_of(ax, len(found.shown), sharex=True, sharey=True)
    hues = colours(found.n_chains)
    bound = 1.96 / np.sqrt(n_draws)
    lowest = -bound
    for each, panel in zip(found.shown, axes.flat, strict=False):
        theme = theme_of(panel)
        panel.axhspan(-bound, bound, color=theme.track, lw=0, zorder=0)
        panel.axhline(0, color=theme.line, lw=0.9, zorder=1)
        write_name(panel, each.name, each.is_constant)
        if each.is_constant:
            continue
        for i, values in enumerate(autocorrelations(each.chains, lags)):
            line = panel.plot(np.arange(lags + 1), values, color=hues[i], lw=1.4)[0]
            line.set_gid(f"chain {i}")
            lowest = min(lowest, float(np.nanmin(values)))
    axes[0, 0].set_ylim(min(-0.12, 1.15 * lowest), 1.05)
    axes[0, 0].set_xlim(0, max(lags, 1))
    _label_edges(axes, len(found.shown), "distance in draws", "correlation")
    place_legend(axes, chain_keys(found.n_chains, hues))
    remark(axes, found.note)
    return axes


def autocorrelations(chains: np.ndarray, max_lag: int) -> np.ndarray:
    """(n_chains, max_lag + 1): Σ_t (x_t − x̄)(x_{t+l} − x̄) / Σ_t (x_t − x̄)², by the fast Fourier transform."""
    n = chains.shape[1]
    centred = chains - chains.mean(1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centred, 2 * n, axis=1)) ** 2
    products = np.fft.irfft(spectrum, axis=1)[:, : max_lag + 1]
    with np.errstate(invalid="ignore"):
        # A chain that does not move has no correlation.
        return np.where(products[:, :1] > 1e-12 * n, products / products[:, :1], np.nan)


# -- panels ----------------------------------------------------------------------------------------


def _grid_of(ax: Axes | None, n: int, **options: Any) -> np.ndarray:
    """Panels for n coordinates, in at most two columns up to four and else three; the rest is empty."""
    columns = 1 if n == 1 else 2 if n <= 4 else 3
    rows = -(-n // columns)
    axes = grid(
        ax, rows, columns, 7.0 if n == 1 else 7.6 / columns * (1.15 if columns == 3 else 1), 2.1, **options
    )
    for empty in axes.flat[n:]:
        empty.set_axis_off()
    return axes


def _label_edges(axes: np.ndarray, n: int, below: str, left: str) -> None:
    """Label the lowest panel of every column and the first of every row."""
    columns = axes.shape[1]
    for i, ax in enumerate(axes.flat[:n]):
        ink = theme_of(ax).ink
        if i + columns >= n:
            ax.set_xlabel(below, color=ink, fontsize=9.5)
            ax.tick_params(labelbottom=True)
        if i % columns == 0:
            ax.set_ylabel(left, color=ink, fontsize=9.5)
