"""Checkpoints: the state of a fit in a file, from which the same call of `fit` resumes."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util import storage
from .._util.arrays import asarray
from ..errors import BadFile, BadInput
from ._static_functions import HashableFunction, stable_text


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Save the fit to `path` every `every` epochs (of a stream also every `every` batches), atomically."""

    path: str | os.PathLike
    every: int = 1

    def __post_init__(self):
        if not isinstance(self.every, int) or self.every < 1:
            raise BadInput("Checkpoint.every", repr(self.every), "a whole number >= 1")


def as_checkpoint(value: Any) -> Checkpoint | None:
    if value is None or isinstance(value, Checkpoint):
        return value
    if isinstance(value, str | os.PathLike):
        return Checkpoint(value)
    raise BadInput("checkpoint", type(value).__name__, "a path, or Checkpoint(path, every=)")


def _to_numpy(leaf: Any) -> np.ndarray:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def fingerprint(*parts: Any) -> str:
    """Return a digest of the parts, arrays included: equal for the same fit, also in another process."""
    h = hashlib.sha256()
    for part in parts:
        leaves, treedef = jax.tree.flatten(part)
        h.update(re.sub(r"0x[0-9a-f]+", "", str(treedef)).encode())
        for leaf in leaves:
            if eqx.is_array(leaf):
                array = _to_numpy(leaf)
                h.update(f"{array.dtype}{array.shape}".encode())
                h.update(np.ascontiguousarray(array).tobytes())
            else:
                h.update(stable_text(HashableFunction(leaf).description).encode())
    return h.hexdigest()


def save_carry(checkpoint: Checkpoint, carry: Any, history: np.ndarray, extra: dict[str, Any]) -> None:
    leaves = [leaf for leaf in jax.tree.leaves(carry) if eqx.is_array(leaf)]
    arrays = {f"leaf{i}": _to_numpy(leaf) for i, leaf in enumerate(leaves)}
    storage.write(checkpoint.path, {**arrays, "history": history}, {"kind": "fit", **extra})


def load_carry(checkpoint: Checkpoint, like: Any, identity: str) -> tuple[Any, np.ndarray, dict] | None:
    """Return (carry, history, document) as saved, the carry like `like`; None if there is no file yet."""
    if not Path(checkpoint.path).exists():
        return None
    arrays, document = storage.read(checkpoint.path)
    if document.get("kind") != "fit" or document.get("identity") != identity:
        raise BadInput(
            "checkpoint",
            f"{checkpoint.path}, saved by a fit of another energy, data, learner or key",
            "a checkpoint of this fit",
            "Give another path, or delete the file to start anew.",
        )
    leaves, treedef = jax.tree.flatten(like)
    wanted = [_to_numpy(leaf) for leaf in leaves if eqx.is_array(leaf)]
    found = [arrays.get(f"leaf{i}") for i in range(len(wanted))]
    if len(arrays) != len(wanted) + 1 or any(
        f is None or (f.shape, f.dtype) != (w.shape, w.dtype) for f, w in zip(found, wanted, strict=True)
    ):
        raise BadFile(f"{checkpoint.path}: does not contain the arrays of this fit. Delete it to start anew.")
    saved = iter(range(len(arrays)))

    def restore(leaf):
        if not eqx.is_array(leaf):
            return leaf
        array = arrays[f"leaf{next(saved)}"]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(asarray(array), impl=jax.random.key_impl(leaf))
        return asarray(array)

    return jax.tree.unflatten(treedef, [restore(leaf) for leaf in leaves]), arrays["history"], document
