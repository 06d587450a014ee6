"""Where clustering begins: rows spread out by k-means++, a few steps of k-means, or chance."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from ...batch import Batch
from ...missing import is_masked, known

START_NAMES = ("kmeans", "k-means++", "random", "random_from_data")
_BLOCK = 512
_CHUNK = 1024
_PIECE = 2**15
_UNROLLED = 64
_LLOYD = 100


def column_moments(x: Any, weight: Any) -> tuple[Any, Any]:
    """Weighted mean and variance of every column, over what is seen of it: (d,), (d,)."""
    # Differences from some row of the data: a mean far from the origin keeps its digits.
    origin, batch = known(x)[0], Batch({"x": x}, weight)

    def moment(power, middle):
        def chunk(rows, weight):
            share = weight[:, None] * (rows["x"].observed if is_masked(rows["x"]) else 1)
            share = jnp.broadcast_to(share, known(rows["x"]).shape)
            return jnp.sum(share * (known(rows["x"]) - middle) ** power, 0), jnp.sum(share, 0)

        total, count = batch.sum_chunks(chunk, _PIECE)
        return total / jnp.where(count > 0, count, 1)

    mean = origin + moment(1, origin)
    return mean, moment(2, mean)


def squared_distances(x: Any, centers: Any, middle: Any) -> Any:
    """‖xᵢ − c_z‖² over the coordinates seen, (k, n); products are taken about `middle`."""
    value, _ = _about(x, middle)
    return jnp.maximum(relative_distances(x, centers, middle) + jnp.sum(value**2, 1), 0)


def relative_distances(x: Any, centers: Any, middle: Any) -> Any:
    """The same less ‖xᵢ − middle‖², which no comparison of centres needs, (k, n)."""
    (value, seen), around = _about(x, middle), centers - middle
    far = jnp.sum(around**2, 1)[:, None] if seen is None else (around**2) @ seen.T
    return far - 2 * around @ value.T


def _about(x: Any, middle: Any) -> tuple[Any, Any]:
    """x − middle, with zeros where nothing is known; and what is known, as numbers, if not all."""
    value = known(x) - middle
    if not is_masked(x):
        return value, None
    seen = x.observed.astype(value.dtype)
    return value * seen, seen


def nearest_center(x: Any, centers: Any, middle: Any) -> Any:
    """The number of the centre nearest to every row, (n,)."""
    if is_masked(x) or centers.shape[0] > _UNROLLED:
        return smallest(relative_distances(x, centers, middle))[1]
    around = centers - middle
    products = (-2 * around) @ _about(x, middle)[0].T
    # ‖c‖² is added row by row in the one loop that compares them, not to the whole table before it.
    far = jnp.sum(around**2, 1)
    return _first_smallest([row + term for row, term in zip(products, far, strict=True)])[1]


def smallest(scores: Any) -> tuple[Any, Any]:
    """(lowest score, its row) of every column of (k, n); the first wins a tie.

    XLA's argmin, and even its minimum over a leading axis, are slow on a CPU. Written out as
    comparisons of whole rows they become one vectorised loop, ten times as fast.
    """
    k, n = scores.shape
    if k > _UNROLLED:
        groups = -(-k // _UNROLLED)
        padded = jnp.pad(scores, ((0, groups * _UNROLLED - k), (0, 0)), constant_values=jnp.inf)
        least, row = _first_smallest(padded.reshape(groups, _UNROLLED, n).swapaxes(0, 1))
        least, group = smallest(least)
        return least, group * _UNROLLED + jnp.take_along_axis(row, group[None], 0)[0]
    return _first_smallest(scores)


def _first_smallest(rows: Any) -> tuple[Any, Any]:
    least, index = rows[0], jnp.zeros(rows[0].shape, jnp.int32)
    for i in range(1, len(rows)):
        lower = rows[i] < least
        least, index = jnp.where(lower, rows[i], least), jnp.where(lower, i, index)
    return least, index


def _pick(key: Any, mass: Any, n_picks: int) -> Any:
    """Row numbers drawn in proportion to `mass`: first a block, then a row in it.

    A running sum over all rows at once is slow, and in single precision inexact.
    """
    n = mass.shape[0]
    blocks = jnp.pad(mass, (0, -n % _BLOCK)).reshape(-1, _BLOCK)
    which, inside = jax.random.split(key)
    block = jax.random.categorical(which, jnp.log(blocks.sum(1)), shape=(n_picks,))
    row = jax.random.categorical(inside, jnp.log(blocks[block]), axis=1)
    return jnp.minimum(block * _BLOCK + row, n - 1)


def plus_plus(key: Any, x: Any, weight: Any, k: int) -> Any:
    """k rows as centres, each drawn by its squared distance from those before: the best of a few draws.

    Arthur and Vassilvitskii (2007), k-means++: the advantages of careful seeding (with the
    greedy choice among 2 + log k candidates of their experiments).
    """
    value = known(x)
    mean, _ = column_moments(x, weight)
    n_trials = 2 + int(math.log(k))
    begin, go_on = jax.random.split(key)
    # A coordinate that is missing from the chosen row is put at the middle of its column.
    row = (lambda i: jnp.where(x.observed[i], value[i], mean)) if is_masked(x) else (lambda i: value[i])
    first = row(_pick(begin, weight, 1))
    closest = _to_one(x, first[0])
    centers = jnp.broadcast_to(first, (k, value.shape[1]))

    def add(i, state):
        centers, closest = state
        mass = weight * closest
        # All rows chosen or duplicated: any row is as good as another.
        mass = jnp.where(mass.sum() > 0, mass, weight)
        candidates = row(_pick(jax.random.fold_in(go_on, i), mass, n_trials))

        def left(rows, weight):  # of the distances, with each candidate chosen
            return jnp.minimum(squared_distances(rows["x"], candidates, mean), rows["closest"]) @ weight

        best = candidates[jnp.argmin(Batch({"x": x, "closest": closest}, weight).sum_chunks(left, _PIECE))]
        return centers.at[i].set(best), jnp.minimum(closest, _to_one(x, best))

    return jax.lax.fori_loop(1, k, add, (centers, closest))[0]


def _to_one(x: Any, center: Any) -> Any:
    """‖xᵢ − c‖² over the coordinates seen, (n,), with nothing of the size of the table held."""
    gram = jnp.square(known(x) - center)
    return jnp.sum(jnp.where(x.observed, gram, 0) if is_masked(x) else gram, 1)


def nearest_sums(centers: Any, rows: dict[str, Any], weight: Any) -> tuple[Any, Any, Any]:
    """Count (k, d) or (k, 1) of what is seen, Σ (x − c) (k, d) and Σ ‖x − c‖² of the rows nearest to each."""
    x, middle = rows["x"], centers.mean(0)
    nearest = nearest_center(x, centers, middle)
    (value, seen), weight = _about(x, middle), weight.astype(centers.dtype)
    none, weighted = jnp.zeros_like(centers), value * weight[:, None]
    # Adding rows to where they belong beats a product with one-hot vectors on a CPU.
    total = none.at[nearest].add(weighted)
    if seen is None:
        count = none[:, :1].at[nearest].add(weight[:, None])
    else:
        count = none.at[nearest].add(seen * weight[:, None])
    # Σ w ‖x − c‖² by the sums at hand, about the middle: no row need be looked at once more.
    around = centers - middle
    loss = weight @ jnp.sum(value**2, 1) + jnp.sum(around * (count * around - 2 * total))
    return count, total - count * around, jnp.maximum(loss, 0)


def lloyd(centers: Any, x: Any, weight: Any, tol: Any, max_iter: int = _LLOYD) -> Any:
    """A few steps of k-means."""
    batch = Batch({"x": x}, weight)

    def step(state):
        i, centers, _ = state
        count, first, _ = batch.sum_chunks(lambda r, w: nearest_sums(centers, r, w), _CHUNK)
        moved = first / jnp.where(count > 0, count, 1)
        return i + 1, centers + moved, jnp.sum(moved**2)

    def going(state):
        return (state[0] < max_iter) & (state[2] > tol)

    start = (jnp.zeros((), jnp.int32), centers, jnp.full((), jnp.inf, centers.dtype))
    return jax.lax.while_loop(going, step, start)[1]


def start_centers(start: str, key: Any, x: Any, weight: Any, k: int) -> Any:
    """(k, d) centres by the name of a start; "mean" puts all of them in the middle."""
    mean, variance = column_moments(x, weight)
    if start == "mean":
        return jnp.broadcast_to(mean, (k, mean.shape[0]))
    if start == "random_from_data":
        value = known(x)
        # The k largest of weight-favoured random numbers: k different rows.
        rank = jnp.log(weight) + jax.random.gumbel(key, weight.shape, weight.dtype)
        rows = jax.lax.top_k(rank, k)[1] if k <= value.shape[0] else jnp.arange(k) % value.shape[0]
        return jnp.where(x.observed[rows], value[rows], mean) if is_masked(x) else value[rows]
    centers = plus_plus(key, x, weight, k)
    return lloyd(centers, x, weight, 1e-4 * variance.mean()) if start == "kmeans" else centers
