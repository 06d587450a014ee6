"""Threefry in NumPy: the random bits that JAX draws.

A key is a pair of 32-bit words. Here it is one uint64, so that arrays of keys have their shapes of JAX.
Salmon, Moraes, Dror and Shaw (2011), Parallel random numbers: as easy as 1, 2, 3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ._rule import Rule, Unsupported, plain

PACKED = np.dtype(np.uint64)
_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
# Arrays without axes, because NumPy converts a scalar in every call: 384 hashes take 36 µs, with scalars 57.
_TURNS = [[(np.array(r, np.uint32), np.array(32 - r, np.uint32)) for r in turns] for turns in _ROTATIONS]
_ROUNDS = [np.array(i + 1, np.uint32) for i in range(5)]
_PARITY = np.array(0x1BD11BDA, np.uint32)
#: Up to this many hashes are computed in one long integer of Python. With 128 that takes 25 µs, NumPy 33.
_FEW = 160


def pack(value: Any) -> Any:
    """Keys of JAX as uint64; other values unchanged."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return value
    if str(jax.random.key_impl(value)) != "threefry2x32":
        raise Unsupported("keys that are not Threefry's")
    return _join(np.asarray(jax.random.key_data(value)))


def unpack(value: np.ndarray) -> jax.Array:
    """The inverse of `pack` for an array of keys."""
    words: Any = _words(np.asarray(value))
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _join(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words, np.uint32).view(np.uint64)[..., 0]


def _words(key: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(key[..., None]).view(np.uint32)


def threefry(key0: Any, key1: Any, x0: Any, x1: Any) -> tuple[Any, Any]:
    """The Threefry-2x32 hash with 20 rounds of the counters (x0, x1)."""
    shape = np.broadcast_shapes(key0.shape, key1.shape, x0.shape, x1.shape)
    if 0 < math.prod(shape) <= _FEW:
        key0, key1, x0, x1 = (_as_lanes(a, shape) for a in (key0, key1, x0, x1))
        words = _words(_as_array(_hash_lanes(key0, key1, x0, x1, math.prod(shape)), shape))
        return words[..., 0], words[..., 1]
    keys = key0, key1, key0 ^ key1 ^ _PARITY
    x0, x1, spare = np.add(x0, keys[0]), np.add(x1, keys[1]), np.empty(shape, np.uint32)
    x0, x1 = (a if a.shape == shape else np.array(np.broadcast_to(a, shape)) for a in (x0, x1))
    for i in range(5):
        for left, right in _TURNS[i % 2]:
            np.add(x0, x1, x0)
            np.left_shift(x1, left, spare)
            np.right_shift(x1, right, x1)
            np.bitwise_or(x1, spare, x1)
            np.bitwise_xor(x1, x0, x1)
        np.add(x0, keys[(i + 1) % 3], x0)
        np.add(x1, keys[(i + 2) % 3] + _ROUNDS[i], x1)
    return x0, x1


# -- a few hashes: all in one integer, 64 bits for each, because a call of NumPy takes longer ----------------


@functools.lru_cache(64)
def _ones(n: int) -> int:
    return int.from_bytes(np.ones(n, np.uint64).tobytes(), "little")


def _as_lanes(array: Any, shape: tuple[int, ...]) -> int:
    wide = np.empty(shape, np.uint64)
    wide[...] = array
    return int.from_bytes(wide.tobytes(), "little")


def _as_array(lanes: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(lanes.to_bytes(8 * math.prod(shape), "little"), np.uint64).reshape(shape)


def _hash_lanes(key0: int, key1: int, x0: int, x1: int, n: int) -> int:
    """`threefry` of n numbers; the two words of a hash in one lane, as in a packed key."""
    ones = _ones(n)
    mask = 0xFFFFFFFF * ones
    keys = key0, key1, key0 ^ key1 ^ 0x1BD11BDA * ones
    x0, x1 = x0 + key0, (x1 + key1) & mask
    for i in range(5):
        for turn in _ROTATIONS[i % 2]:
            x0 += x1  # 20 sums of 32-bit numbers do not leave their lane
            x1 = ((x1 << turn | x1 >> 32 - turn) ^ x0) & mask
        x0 += keys[(i + 1) % 3]
        x1 = (x1 + keys[(i + 2) % 3] + (i + 1) * ones) & mask
    return x0 & mask | x1 << 32


# -- rules -------------------------------------------------------------------------------------------------


def _hash(keys: tuple[int, ...], shape: tuple[int, ...]) -> Callable[[Any], np.ndarray]:
    """A function that hashes 0, 1, … with every key, to packed pairs of words (*keys, *shape)."""
    if not jax.config.jax_threefry_partitionable:  # type: ignore[attr-defined]
        raise Unsupported("the old order of random bits")
    each, whole = math.prod(shape), (*keys, *shape)
    n = math.prod(whole)
    count = np.arange(each, dtype=np.uint64)
    if n == 0:
        return lambda key: np.empty(whole, np.uint64)
    if n <= _FEW:
        ones, counters = _ones(n), int.from_bytes(np.tile(count, n // each).tobytes(), "little")

        def few(key):
            if keys:
                lanes = int.from_bytes(key.repeat(each).tobytes(), "little")
                key0, key1 = lanes & 0xFFFFFFFF * ones, lanes >> 32 & 0xFFFFFFFF * ones
            else:
                number = int(key)
                key0, key1 = (number & 0xFFFFFFFF) * ones, (number >> 32) * ones
            return _as_array(_hash_lanes(key0, key1, 0, counters, n), whole)

        return few
    count = np.tile(count, n // each)
    high, low = (count >> np.uint64(32)).astype(np.uint32), count.astype(np.uint32)

    def many(key):
        # One flat array: with a key for every few numbers, NumPy's inner loops would be as short as these.
        key = np.repeat(key.ravel(), each) if keys else key
        first, second = key.astype(np.uint32), (key >> np.uint64(32)).astype(np.uint32)
        return _pair(*threefry(first, second, high, low)).reshape(whole)

    return many


def _bits(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    width, dtype = parameters["bit_width"], np.dtype(outputs[0].dtype)
    hashes = _hash(tuple(inputs[0].shape), tuple(parameters["shape"]))

    def bits(key):
        words = _words(hashes(key))
        if width == 64:
            return _join(words[..., ::-1])
        return (words[..., 0] ^ words[..., 1]).astype(dtype, copy=False)

    return bits


def _split(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    return _hash(tuple(inputs[0].shape), tuple(parameters["shape"]))


def _pair(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    words = np.empty((*first.shape, 2), np.uint32)
    words[..., 0], words[..., 1] = first, second
    return words.view(np.uint64)[..., 0]


def _fold_in(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    def one(key, data):
        number, data = int(key), int(data) & 0xFFFFFFFF
        return _as_array(_hash_lanes(number & 0xFFFFFFFF, number >> 32, 0, data, 1), ())

    def several(key, data):
        words, low = _words(key), data.astype(np.uint32)
        return _pair(*threefry(words[..., 0], words[..., 1], np.zeros_like(low), low))

    return several if outputs[0].shape else one


def _seed(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    _check_threefry(outputs[0])
    long = np.dtype(inputs[0].dtype).itemsize == 8

    def one(value):
        number = int(value)
        high = number >> 32 & 0xFFFFFFFF if long else 0
        return np.array(high | (number & 0xFFFFFFFF) << 32, np.uint64)

    def several(value):
        number = value.astype(np.int64).view(np.uint64)
        high = number >> np.uint64(32) if long else np.zeros_like(number)
        return _pair(high.astype(np.uint32), number.astype(np.uint32))

    return several if outputs[0].shape else one


def _wrap(parameters: Any, outputs: Any, inputs: Any) -> Callable[..., Any]:
    _check_threefry(outputs[0])
    return _join


def _check_threefry(aval: Any) -> None:
    if "fry" not in str(aval.dtype):
        raise Unsupported(str(aval.dtype))


RULES: dict[str, Rule] = {
    "random_bits": _bits,
    "random_clone": plain(lambda key: key),
    "random_fold_in": _fold_in,
    "random_seed": _seed,
    "random_split": _split,
    "random_unwrap": plain(_words),
    "random_wrap": _wrap,
    "threefry2x32": plain(threefry),
}
