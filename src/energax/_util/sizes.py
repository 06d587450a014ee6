"""Sizes: rows per chunk, padded sizes and memory limits, for the current device.

A CPU is fastest with chunks that fit in its cache; a GPU needs large ones. Arrays are padded to sizes that
many inputs share, since every new shape compiles again. Times were measured on two CPU cores and on one
H200, in float32; GPU limits without a time are set by memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np


class Limit(NamedTuple):
    """The most rows, numbers or bytes of one chunk, on a CPU and on a GPU."""

    cpu: int
    gpu: int

    @property
    def value(self) -> int:
        """The limit on JAX's default device."""
        return self.cpu if jax.default_backend() == "cpu" else self.gpu

    def rows(self, per_row: int) -> int:
        """Rows that stay within the limit, each of `per_row` numbers or bytes; at least one.

        >>> Limit(cpu=1000, gpu=1000).rows(300), Limit(cpu=10, gpu=10).rows(300)
        (3, 1)
        """
        return max(1, self.value // max(1, per_row))


# -- limits of chunks: rows in compiled sums -----------------------------------------------------------

#: Rows in the E-step of EM. GPU, an iteration of 10⁶ × 16, k = 32: 19.4 ms with 2¹², 6.5 with 2¹⁶, 7.2 with
#: 2¹⁸.
EM_ROWS = Limit(2**10, 2**16)
#: Rows in an iteration of k-means. CPU: two threads share 8000; powers of two would share cache lines.
#: GPU, 10⁶ × 16, k = 64: 4.7 ms with 8000, 2.7 with 2¹⁶.
KMEANS_ROWS = Limit(8000, 2**16)
#: Rows of the k-means that initialises a fit, and of the first statistics. GPU, an iteration of 10⁶ × 16,
#: k = 32: 10.8 ms with 2¹⁰, 1.0 with 2¹⁶.
START_ROWS = Limit(2**10, 2**16)
#: Rows in sums of a few numbers per row: column moments, distances to candidate centres. GPU, k-means++ of
#: 10⁶ × 16, k = 32: 13.7 ms with 2¹⁵, 5.7 with 2¹⁸, 3.2 with 2²⁰.
MOMENT_ROWS = Limit(2**15, 2**20)
#: Bytes of rows about one mean: below it XLA's CPU leaves a product to one thread.
ONE_CENTRE_BYTES = Limit(2**19, 2**30)
#: Bytes of rows about all means of a Gaussian mixture. 2²⁷ is the 65 536 rows measured for `EM_ROWS`.
ALL_CENTRES_BYTES = Limit(2**23, 2**27)
#: Bytes of one array in the E-step of a chunk of sequences. CPU: a cache. GPU, an iteration of an HMM on
#: 2000 sequences of 1000 steps, k = 8: 22.0 ms with 2²¹, 14.2 with 2²⁶, 14.1 with 2²⁸.
SEQUENCE_BYTES = Limit(2**21, 2**26)
#: Steps of a sequence whose messages are in memory together where only their sum is needed.
SEQUENCE_STEPS = Limit(2**10, 2**10)
#: Numbers in the k × k matrices of all steps, where they are multiplied in parallel.
SCAN_NUMBERS = Limit(2**28, 2**28)
#: Numbers in the d × d matrices of rows with missing values. GPU, EM of 10⁵ × 16, k = 8: 28.5 ms with 2²¹,
#: 22.5 with 2²⁶, 16.7 with 2²⁸, which is several GB.
MISSING_NUMBERS = Limit(2**21, 2**26)
#: Joint values of finite variables whose energies are computed together. GPU, gradient of a sum of 2²⁰:
#: 6.8 ms with 2¹², 1.3 with 2¹⁶, 1.1 with 2¹⁸.
JOINT_VALUES = Limit(2**12, 2**16)
#: Bytes of kernel rows that a support vector machine keeps: 2684 rows of 50 000 numbers in float64 on a CPU.
SMO_ROWS = Limit(2**30, 2**32)
#: Columns up to which a kernel row is computed again and not kept. CPU, 5000 rows: a row of 20 columns takes
#: 15 µs, one of 123 columns 60, one from the cache 3; setting a cache of 200 MB to zero takes 100 ms.
SMO_CHEAP_COLUMNS = 32
#: Variables that a support vector machine optimises together. CPU, 5000 rows with C = 10: 21 working sets of
#: 1024, hundreds of 512; a step on 512 takes 2.0 µs, on 1024 3.4, on 2048 7.5.
SMO_WORKING_SET = 2**10
#: Numbers in the weighted rows of a Hessian. CPU, 32,561 × 123: 2**18 18 ms, 2**20 15 ms.
HESSIAN_NUMBERS = Limit(2**20, 2**26)
#: Draws of one row whose energies are computed together.
DRAWS = Limit(2**9, 2**12)

#: Markov chains that a CPU runs one after another if their moves differ in length.
_FEW_CHAINS = 16

# -- limits of compiled calls: rows or numbers handed over by one call from the host ---------------------

#: Rows that a fitted estimator scores in one call. GPU, a mixture on 10⁶ × 16: 33.7 ms with 2¹⁵, 23.2 with
#: 2¹⁶.
PREDICT_ROWS = Limit(2**15, 2**16)
#: Rows whose missing values are drawn by the Markov chains of one call.
IMPUTED_ROWS = Limit(2**7, 2**12)
#: Rows of one call of `infer`, and the numbers in it: 16 MB of float32 on a CPU. GPU, `log_prob` of a
#: mixture on 10⁶ × 16: 41 to 48 ms with any.
QUERY_ROWS = Limit(2**12, 2**16)
QUERY_NUMBERS = Limit(2**22, 2**26)
#: Numbers in the junction trees of all rows of one call.
TREE_NUMBERS = Limit(2**24, 2**28)
#: Joint values listed for all draws of one call, where draws are exact.
LISTED_NUMBERS = Limit(2**24, 2**28)
#: Numbers in the draws that the chains of one call return.
CHAIN_NUMBERS = Limit(2**26, 2**28)
#: Rows times epochs of one call of the training loop, and its epochs. GPU, an iteration of EM on 10⁶ rows:
#: 6.8 ms with one epoch per call, 5.3 with 8, 5.0 with 64.
EPOCH_ROWS = Limit(2**20, 2**24)
EPOCHS = Limit(64, 64)

# -- limits of NumPy's part, which never runs on a GPU ----------------------------------------------------

#: Numbers transformed at a time. Scaling 60 000 × 784 in float64: 250 ms; 436 with 2²⁰, 510 with 2²².
HOST_NUMBERS = 2**18
#: Numbers multiplied at a time. xᵀx of 60 000 × 784 in float64: 3.0 s; 4.3 with 2¹⁸.
HOST_PRODUCT_NUMBERS = 2**22


# -- padding: sizes that many inputs share ---------------------------------------------------------------


#: Steps of all sequences that take little time, whatever the length they are padded to.
SHORT_STEPS = 2**9


def pad_size(n: int) -> int:
    """The number of rows that a small table is padded to: powers of two from 16 on; large ones stay.

    >>> pad_size(3), pad_size(150), pad_size(1400), pad_size(50_000)
    (16, 256, 2048, 50000)
    """
    return n if n > 4096 else max(16, power_of_two(n))


def round_up(n: int) -> int:
    """A length that many inputs share, at most an eighth larger.

    >>> [round_up(n) for n in (1, 7, 100, 300)]
    [1, 7, 104, 320]
    """
    if n <= 8:
        return n
    step = 1 << max(0, n.bit_length() - 4)
    return -(-n // step) * step


def svm_rows(n: int) -> int:
    """The number of rows that a support vector machine is padded to; its kernel matrix grows as the square.

    >>> svm_rows(100), svm_rows(300), svm_rows(569), svm_rows(900), svm_rows(2500)
    (128, 384, 768, 1024, 2560)
    """
    if n > SMO_WORKING_SET:
        return round_up(n)
    size = pad_size(n)
    return 3 * size // 4 if size > 256 and n <= 3 * size // 4 else size


def component_size(k: int, numbers: int, power: int = 1) -> int:
    """The number of components, clusters or states that k are padded to.

    `numbers` times k to this power is the work of one pass over the data. Where it takes little time all
    small k share a size; else sizes are about a quarter apart; large work is not padded.

    >>> [component_size(k, 1000) for k in (1, 5, 30)], [component_size(k, 100_000) for k in (3, 5, 9, 40)]
    ([8, 8, 32], [4, 8, 12, 48])
    >>> component_size(30, 10**6)
    30
    """
    if numbers * k**power > 2**22:
        return k
    for size in (8, 16, 32):
        if k <= size and numbers * size**power <= 2**16:
            return size
    step = max(4, power_of_two(k) // 4)
    return -(-k // step) * step


def sequence_size(n: int, steps: int) -> tuple[int, int]:
    """(rows, steps) that n sequences of at most `steps` steps are padded to; many or long ones stay.

    >>> sequence_size(2, 100), sequence_size(2, 1000), sequence_size(1000, 100)
    ((2, 128), (2, 1024), (1000, 100))
    """
    if n * steps > 2**15 or steps >= 4096:
        return n, steps
    return round_up(n), max(16, power_of_two(steps)) if n * steps <= SHORT_STEPS else round_up(steps)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n.

    >>> [power_of_two(n) for n in (1, 5, 8)]
    [1, 8, 8]
    """
    return 1 << max(0, n - 1).bit_length()


def call_rows(n: int, most: int) -> int:
    """Rows of one compiled call for n rows, a power of two, so that another n seldom compiles again.

    >>> call_rows(100, 1000), call_rows(5000, 1000)
    (128, 512)
    """
    return min(1 << (most.bit_length() - 1), power_of_two(n))


def even_rows(n: int, most: int) -> int:
    """Rows in each of nearly equal chunks, about `most` at most; multiples of four if many.

    >>> even_rows(1000, 655), even_rows(50_000, 1024), even_rows(10, 20), even_rows(7, 1)
    (500, 1024, 10, 1)
    """
    size = -(-n // -(-n // most))
    return min(n, size if size < 64 else -(-size // 4) * 4)


def number_of_rows(tree: Any) -> int:
    """The leading axis of the first array of a tree."""
    return int(jax.tree.leaves(tree)[0].shape[0])


def pad_rows(tree: Any, n: int | None = None) -> Any:
    """The NumPy arrays of a tree with their first row repeated at the end until there are n rows.

    By default n is `pad_size` of the number of rows.

    >>> pad_rows({"x": np.array([5, 6])}, 4)
    {'x': array([5, 6, 5, 5])}
    """
    rows = number_of_rows(tree)
    short = (pad_size(rows) if n is None else n) - rows
    if not short:
        return tree
    return jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[:1], short, axis=0)]), tree)


def pad_weighted(tree: Any, weight: np.ndarray, n: int) -> tuple[Any, np.ndarray]:
    """Rows and weights, padded by `pad_rows` with rows of weight 0.

    >>> pad_weighted(np.array([5, 6]), np.array([1.0, 2.0]), 3)
    (array([5, 6, 5]), array([1., 2., 0.]))
    """
    return pad_rows(tree, n), np.append(weight, np.zeros(n - len(weight), weight.dtype))


# -- chunks of rows, one call each -----------------------------------------------------------------------


def slices(n: int, size: int) -> Iterator[slice]:
    """Slices of `size` rows each, the last one shorter.

    >>> list(slices(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def chains_one_by_one(n: int) -> bool:
    """Return whether `n` Markov chains whose moves differ in length run one after another.

    Side by side under `vmap`, all of them take as many steps as the longest. On a CPU that costs more than
    few chains gain: four of NUTS on a logistic regression of 1000 × 25 take 0.5 s so, 0.31 one by one.
    """
    return jax.default_backend() == "cpu" and n <= _FEW_CHAINS


def map_chunks(function: Callable[[Any], Any], tree: Any, size: int) -> Any:
    """`function(rows)` of every chunk of `size` rows, joined as NumPy arrays.

    The last chunk is filled up with copies of its last row, so that all chunks share one compiled program.

    >>> map_chunks(lambda x: 2 * x, np.arange(5), 2)
    array([0, 2, 4, 6, 8])
    """
    n, parts = number_of_rows(tree), []
    for some in slices(n, size):
        short = some.stop - some.start < size
        rows = np.minimum(np.arange(some.start, some.start + size), n - 1) if short else some
        result = function(jax.tree.map(lambda a: a[rows], tree))  # noqa: B023
        parts.append(jax.tree.map(lambda a: np.asarray(a)[: some.stop - some.start], result))  # noqa: B023
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def map_table(function: Callable[[Any], Any], tree: Any) -> Any:
    """`function(rows)` of the rows of a table as NumPy arrays: small tables padded, large ones in chunks.

    >>> map_table(lambda x: 2 * x, np.arange(5))
    array([0, 2, 4, 6, 8])
    """
    n = number_of_rows(tree)
    if n > PREDICT_ROWS.value:
        return map_chunks(function, tree, PREDICT_ROWS.value)
    return jax.tree.map(lambda a: np.asarray(a)[:n], function(pad_rows(tree)))


def sum_table(function: Callable[[Any, np.ndarray], Any], tree: Any, weight: np.ndarray) -> Any:
    """Σ over chunks of `function(rows, weight)`, as NumPy arrays: small tables padded, large ones in chunks.

    Padding rows have weight 0. Chunks are added in float64.

    >>> sum_table(lambda x, weight: (x * weight).sum(), np.arange(5), np.ones(5)).tolist()
    10.0
    """
    n = number_of_rows(tree)
    width = sum(leaf[:1].size for leaf in jax.tree.leaves(tree))
    most = min(PREDICT_ROWS.value, power_of_two(QUERY_NUMBERS.rows(width)))
    size = most if n > most else pad_size(n)
    total = None
    for some in slices(n, size):
        rows, weights = jax.tree.map(lambda a: a[some], (tree, weight))  # noqa: B023
        if some.stop - some.start < size:
            rows, weights = pad_weighted(rows, weights, size)
        part = jax.tree.map(lambda a: np.asarray(a, np.float64), function(rows, weights))
        total = part if total is None else jax.tree.map(np.add, total, part)
    return total
