"""k-means and its initial centres: k-means++, Lloyd's steps, or random rows. Centres are (k, d).

Centres may be padded: `active` (k,) tells which exist, the first ones; None is all.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util import sizes
from ...batch import Batch
from ...missing import is_masked, value_of
from ...programs import interpreted

START_NAMES = ("kmeans", "k-means++", "random", "random_from_data")
_SAMPLE_BLOCK = 512  # rows per block when rows are drawn in proportion to their mass
_UNROLLED_CENTERS = 64  # comparisons in one unrolled loop
_LLOYD_MAX_ITER = 100
_FEW_ROWS = 4096  # in one chunk


def column_moments(x: Any, weight: Any) -> tuple[Any, Any]:
    """The weighted mean and variance of the observed entries of every column, (d,) each."""
    # Differences from a row of the data keep the digits of a mean far from the origin.
    origin, batch = value_of(x)[0], Batch({"x": x}, weight)

    def moment(power, middle):
        def chunk(rows, weight):
            weights = weight[:, None] * (rows["x"].observed if is_masked(rows["x"]) else 1)
            weights = jnp.broadcast_to(weights, value_of(rows["x"]).shape)
            return jnp.sum(weights * (value_of(rows["x"]) - middle) ** power, 0), jnp.sum(weights, 0)

        total, count = batch.sum_chunks(chunk, sizes.MOMENT_ROWS.value)
        return total / jnp.where(count > 0, count, 1)

    mean = origin + moment(1, origin)
    return mean, moment(2, mean)


def squared_distances(x: Any, centers: Any, middle: Any, active: Any = None) -> Any:
    """‖xᵢ − c_z‖² over observed coordinates, (k, n); `middle` (d,) is the origin of the products."""
    value, _ = _relative_rows(x, middle)
    return jnp.maximum(relative_distances(x, centers, middle, active) + jnp.sum(value**2, 1), 0)


def relative_distances(x: Any, centers: Any, middle: Any, active: Any = None) -> Any:
    """‖xᵢ − c_z‖² − ‖xᵢ − middle‖², (k, n), which is enough to compare centres; ∞ for padding."""
    (value, observed), offset = _relative_rows(x, middle), centers - middle
    squares = jnp.sum(offset**2, 1)[:, None] if observed is None else (offset**2) @ observed.T
    return _infinite_padding(squares, active) - 2 * offset @ value.T


def _infinite_padding(squares: Any, active: Any) -> Any:
    """The squares (k, …), ∞ for padding."""
    if active is None:
        return squares
    return jnp.where(active.reshape(-1, *(1,) * (squares.ndim - 1)), squares, jnp.inf)


def _relative_rows(x: Any, middle: Any) -> tuple[Any, Any]:
    """(x − middle with zeros for missing values, the mask as numbers; None if nothing is missing)."""
    value = value_of(x) - middle
    if not is_masked(x):
        return value, None
    observed = x.observed.astype(value.dtype)
    return value * observed, observed


def nearest_center(x: Any, centers: Any, middle: Any, active: Any = None) -> Any:
    """The index of the centre nearest to every row, (n,)."""
    if is_masked(x) or centers.shape[0] > _UNROLLED_CENTERS or interpreted():
        return min_and_argmin(relative_distances(x, centers, middle, active))[1]
    offset = centers - middle
    products = (-2 * offset) @ _relative_rows(x, middle)[0].T
    # ‖c‖² is added in the loop that compares the rows, not to the whole table before it.
    squares = _infinite_padding(jnp.sum(offset**2, 1), active)
    return _unrolled_argmin([row + term for row, term in zip(products, squares, strict=True)])[1]


def min_and_argmin(scores: Any) -> tuple[Any, Any]:
    """The minimum of every column of (k, n) and its first row, (n,) each.

    XLA's argmin, and even its minimum over a leading axis, are slow on a CPU. Unrolled as
    comparisons of whole rows they become one vectorised loop, ten times as fast.
    """
    if interpreted():
        return jnp.min(scores, axis=0), jnp.argmin(scores, axis=0)
    k, n = scores.shape
    if k > _UNROLLED_CENTERS:
        groups = -(-k // _UNROLLED_CENTERS)
        padding = ((0, groups * _UNROLLED_CENTERS - k), (0, 0))
        padded = jnp.pad(scores, padding, constant_values=jnp.inf)
        least, row = _unrolled_argmin(padded.reshape(groups, _UNROLLED_CENTERS, n).swapaxes(0, 1))
        least, group = min_and_argmin(least)
        return least, group * _UNROLLED_CENTERS + jnp.take_along_axis(row, group[None], 0)[0]
    return _unrolled_argmin(scores)


def _unrolled_argmin(rows: Any) -> tuple[Any, Any]:
    """The elementwise minimum of the rows and the index of the first row that has it."""
    least, index = rows[0], jnp.zeros(rows[0].shape, jnp.int32)
    for i in range(1, len(rows)):
        lower = rows[i] < least
        least, index = jnp.where(lower, rows[i], least), jnp.where(lower, i, index)
    return least, index


def _sample_rows(key: Any, mass: Any, n_draws: int) -> Any:
    """Row indices drawn with probability proportional to `mass` (n,), (n_draws,).

    A block of rows is drawn first, then a row in it: a running sum over all rows is slow, and
    inexact in single precision.
    """
    n = mass.shape[0]
    uniform = jax.random.uniform(key, (2, n_draws), mass.dtype)
    if n <= _SAMPLE_BLOCK:
        return _first_above(jnp.broadcast_to(jnp.cumsum(mass), (n_draws, n)), uniform[0])
    blocks = jnp.pad(mass, (0, -n % _SAMPLE_BLOCK)).reshape(-1, _SAMPLE_BLOCK)
    totals = jnp.cumsum(blocks.sum(1))
    block = _first_above(jnp.broadcast_to(totals, (n_draws, len(blocks))), uniform[0])
    return block * _SAMPLE_BLOCK + _first_above(jnp.cumsum(blocks[block], 1), uniform[1])


def _first_above(running_sums: Any, fraction: Any) -> Any:
    """The first index whose running sum (n_draws, n) is above a fraction < 1 of the last one, (n_draws,)."""
    return jnp.sum(running_sums <= fraction[:, None] * running_sums[:, -1:], 1, dtype=jnp.int32)


def kmeans_plus_plus(key: Any, x: Any, weight: Any, k: int, mean: Any, active: Any = None) -> Any:
    """k rows as centres, each drawn in proportion to its squared distance from the centres before it.

    `mean` (d,) is that of the columns.

    Each centre is the best of 2 + log k candidates, as in the experiments of the paper.

    Arthur and Vassilvitskii (2007), k-means++: the advantages of careful seeding.
    """
    value = value_of(x)
    most_trials = 2 + int(math.log(k))
    n_centers, n_trials = k, most_trials
    if active is not None:
        n_centers = active.sum()
        n_trials = 2 + (n_centers >= np.exp(np.arange(1, most_trials - 1))).sum()
    first_key, other_key = jax.random.split(key)
    # Missing coordinates of a chosen row are replaced by the mean of their column.
    row = (lambda i: jnp.where(x.observed[i], value[i], mean)) if is_masked(x) else (lambda i: value[i])
    first = row(_sample_rows(first_key, weight, 1))
    closest = _distances_to_center(x, first[0])
    centers = jnp.broadcast_to(first, (k, value.shape[1]))

    def add(i, state):
        centers, closest = state
        mass = weight * closest
        # If every row equals a centre, all are equally good.
        mass = jnp.where(mass.sum() > 0, mass, weight)
        candidates = row(_sample_rows(jax.random.fold_in(other_key, i), mass, most_trials))

        def inertia(rows, weight):  # with each of the candidates added
            return jnp.minimum(squared_distances(rows["x"], candidates, mean), rows["closest"]) @ weight

        batch = Batch({"x": x, "closest": closest}, weight)
        inertias = batch.sum_chunks(inertia, sizes.MOMENT_ROWS.value)
        if active is not None:
            inertias = jnp.where(jnp.arange(most_trials) < n_trials, inertias, jnp.inf)
        best = candidates[jnp.argmin(inertias)]
        return centers.at[i].set(best), jnp.minimum(closest, _distances_to_center(x, best))

    return jax.lax.fori_loop(1, n_centers, add, (centers, closest))[0]


def _distances_to_center(x: Any, center: Any) -> Any:
    """‖xᵢ − c‖² over observed coordinates, (n,), without a second array of the size of x."""
    squares = jnp.square(value_of(x) - center)
    return jnp.sum(jnp.where(x.observed, squares, 0) if is_masked(x) else squares, 1)


def assignment_sums(
    centers: Any, rows: dict[str, Any], weight: Any, active: Any = None
) -> tuple[Any, Any, Any]:
    """Sums over the rows nearest to each centre: count (k, d) or (k, 1), Σ (x − c) (k, d), and Σ ‖x − c‖² ().

    The count is that of observed values, one per column if x has missing values.
    """
    x = rows["x"]
    # What does not depend on the centres is computed once, unless there are several chunks of rows.
    middle = value_of(x).mean(0) if interpreted() or len(value_of(x)) <= _FEW_ROWS else centers.mean(0)
    nearest = nearest_center(x, centers, middle, active)
    (value, observed), weight = _relative_rows(x, middle), weight.astype(centers.dtype)
    ones = jnp.ones_like(value[:, :1]) if observed is None else observed
    total, count = _sum_by_center(nearest, (value, ones), weight, len(centers))
    # Σ w ‖x − c‖² from the sums above, without a second pass over the rows.
    offset = centers - middle
    loss = weight @ jnp.sum(value**2, 1) + jnp.sum(offset * (count * offset - 2 * total))
    return count, total - count * offset, jnp.maximum(loss, 0)


def _sum_by_center(nearest: Any, tables: tuple[Any, ...], weight: Any, k: int) -> list[Any]:
    """The weighted sum of the rows (n, d) of each table that have the same nearest centre, (k, d)."""
    terms = [table * weight[:, None] for table in tables]
    if interpreted():  # one product, with the terms in the order in which BLAS reads them
        indicator = (nearest == jnp.arange(k)[:, None]).astype(weight.dtype)
        ends = np.cumsum([table.shape[1] for table in tables])
        return jnp.split(indicator @ jnp.concatenate(terms, axis=1), ends[:-1], axis=1)
    # XLA on a CPU adds rows faster than it multiplies by one-hot vectors.
    return [jnp.zeros((k, term.shape[1]), term.dtype).at[nearest].add(term) for term in terms]


def lloyd(
    centers: Any, x: Any, weight: Any, tol: Any, active: Any = None, max_iter: int = _LLOYD_MAX_ITER
) -> Any:
    """Centres after Lloyd's steps, until their summed squared change is at most `tol`.

    Lloyd (1982), Least squares quantization in PCM.
    """
    batch = Batch({"x": x}, weight)

    def step(state):
        i, centers, _ = state
        count, first, _ = batch.sum_chunks(
            lambda r, w: assignment_sums(centers, r, w, active), sizes.START_ROWS.value
        )
        change = first / jnp.where(count > 0, count, 1)
        return i + 1, centers + change, jnp.sum(change**2)

    def is_running(state):
        return (state[0] < max_iter) & (state[2] > tol)

    start = (jnp.zeros((), jnp.int32), centers, jnp.full((), jnp.inf, centers.dtype))
    return jax.lax.while_loop(is_running, step, start)[1]


def initial_centers(
    method: str, key: Any, x: Any, weight: Any, k: int, active: Any = None, moments: Any = None
) -> Any:
    """Initial centres (k, d) of rows x (n, d) with these weights (n,).

    `method` is "kmeans", "k-means++", "random_from_data" (k different rows) or "mean" (all centres there).
    `moments` are the `column_moments`, if they are known.
    """
    mean, variance = column_moments(x, weight) if moments is None else moments
    if method == "mean":
        return jnp.broadcast_to(mean, (k, mean.shape[0]))
    if method == "random_from_data":
        value = value_of(x)
        # The k largest of Gumbel noise plus log-weight are k different rows, drawn by their weights.
        rank = jnp.log(weight) + jax.random.gumbel(key, weight.shape, weight.dtype)
        rows = jax.lax.top_k(rank, k)[1] if k <= value.shape[0] else jnp.arange(k) % value.shape[0]
        return jnp.where(x.observed[rows], value[rows], mean) if is_masked(x) else value[rows]
    centers = kmeans_plus_plus(key, x, weight, k, mean, active)
    return lloyd(centers, x, weight, 1e-4 * variance.mean(), active) if method == "kmeans" else centers
