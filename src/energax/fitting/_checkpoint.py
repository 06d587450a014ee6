"""Where a fit was when it stopped, so that the same call goes on from there."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .. import storage
from ..errors import BadInput


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Save the fit to `path` every so many epochs (and, for streams, batches), atomically."""

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
    """A digest of what makes two fits the same fit: structure, settings and the data itself."""
    h = hashlib.sha256()
    for part in parts:
        leaves, treedef = jax.tree.flatten(part)
        h.update(_stable(str(treedef)).encode())
        for leaf in leaves:
            if eqx.is_array(leaf):
                array = _to_numpy(leaf)
                h.update(f"{array.dtype}{array.shape}".encode())
                h.update(np.ascontiguousarray(array).tobytes())
            else:
                h.update(_stable(repr(leaf)).encode())
    return h.hexdigest()


def _stable(text: str) -> str:
    """Without addresses in memory, which differ from process to process."""
    import re

    return re.sub(r"0x[0-9a-f]+|\b\d{12,}\b", "", text)


def save_carry(checkpoint: Checkpoint, carry: Any, history: np.ndarray, extra: dict[str, Any]) -> None:
    leaves = [leaf for leaf in jax.tree.leaves(carry) if eqx.is_array(leaf)]
    arrays = {f"leaf{i}": _to_numpy(leaf) for i, leaf in enumerate(leaves)}
    storage.write(checkpoint.path, {**arrays, "history": history}, {"kind": "fit", **extra})


def load_carry(checkpoint: Checkpoint, like: Any, identity: str) -> tuple[Any, np.ndarray, dict] | None:
    """The saved carry in the shape of `like`, or None where there is no file yet."""
    if not Path(checkpoint.path).exists():
        return None
    arrays, document = storage.read(checkpoint.path)
    if document.get("kind") != "fit" or document.get("identity") != identity:
        raise BadInput(
            "checkpoint",
            f"{checkpoint.path}, saved by a fit of another energy, data, learner or key",
            "a checkpoint of this very fit",
            "Give another path, or delete the file to start anew.",
        )
    leaves, treedef = jax.tree.flatten(like)
    saved = iter(range(len(arrays)))

    def restore(leaf):
        if not eqx.is_array(leaf):
            return leaf
        array = arrays[f"leaf{next(saved)}"]
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
        return jnp.asarray(array)

    return jax.tree.unflatten(treedef, [restore(leaf) for leaf in leaves]), arrays["history"], document
