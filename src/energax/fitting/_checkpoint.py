"""Checkpoints: the state of a fit in a file, from which the same call of `fit` resumes."""

from __future__ import annotations

import dataclasses
import os
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util import storage
from .._util.arrays import asarray
from .._util.files import check_path, check_writable, remove_leftovers, shorten
from ..errors import BadFile, BadInput
from . import _epochs


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Save the fit to `path` every `every` epochs (of a stream also every `every` batches), atomically.

    Folders that do not exist are created, a link is followed, and a read-only file is not replaced.
    """

    path: str | os.PathLike
    every: int = 1

    def __post_init__(self):
        check_path(self.path, "checkpoint")
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


def save_carry(checkpoint: Checkpoint, carry: Any, history: np.ndarray, extra: dict[str, Any]) -> None:
    leaves = [leaf for leaf in jax.tree.leaves(carry) if eqx.is_array(leaf)]
    arrays = {f"leaf{i}": _to_numpy(leaf) for i, leaf in enumerate(leaves)}
    document = {"kind": "fit", **extra}
    storage.write(checkpoint.path, {**arrays, "history": history}, document, "checkpoint")


def load_carry(
    checkpoint: Checkpoint, like: Any, history: np.ndarray, identity: str, epochs: int
) -> tuple[Any, np.ndarray, dict] | None:
    """Return (carry, history, document) as saved, in the form of `like` and `history`; None without a file.

    The last axes of the history are (epochs, terms). A fit that goes on needs a file that can be written,
    which is checked before it does; a finished one may be read from a read-only file.
    """
    path = check_path(checkpoint.path, "checkpoint")
    target = Path(os.path.realpath(path))
    remove_leftovers(target)
    if not os.path.lexists(target):
        check_writable(path, "checkpoint")
        return None
    arrays, document = storage.read(path, "checkpoint")
    if document.get("kind") != "fit" or document.get("identity") != identity:
        raise BadInput(
            "checkpoint",
            f"{shorten(path)}, saved by a fit of another energy, data, learner or key",
            "a checkpoint of this fit",
            "Give another path, or delete the file to start anew. Other versions of energax and Python "
            "may describe the same fit differently.",
        )
    saved_history = arrays.pop("history", np.zeros(0))
    done = _n_epochs(saved_history, history)
    carry = _restore(like, arrays)
    if done is None or carry is None:
        raise BadFile(f"{shorten(path)}: does not contain the arrays of this fit. Delete it to start anew.")
    if done < epochs and _is_running(carry):
        check_writable(path, "checkpoint")
    elif done > epochs:
        warnings.warn(
            f"checkpoint: {shorten(path)} contains {done} epochs of this fit, more than the {epochs} asked "
            f"for. The result is that of {done} epochs. For fewer, give another path or delete the file.",
            UserWarning,
            stacklevel=7,  # the caller of `fit`
        )
    return carry, saved_history, document


def _is_running(carry: Any) -> bool:
    """Return whether the saved fit goes on: one that converged or diverged does not."""
    is_carry = lambda node: isinstance(node, _epochs.Carry)
    carries = filter(is_carry, jax.tree.leaves(carry, is_leaf=is_carry))
    return any(bool((np.asarray(c.code) == _epochs.RUNNING).any()) for c in carries)


def _n_epochs(saved: np.ndarray, empty: np.ndarray) -> int | None:
    """Return the number of epochs of a history; None if it does not have the form of `empty`."""
    if saved.dtype != empty.dtype or saved.ndim != empty.ndim:
        return None
    without_epochs = lambda shape: (*shape[:-2], shape[-1])
    return saved.shape[-2] if without_epochs(saved.shape) == without_epochs(empty.shape) else None


def _restore(like: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Return the tree `like` with the saved arrays; None if these are not its arrays."""
    leaves, treedef = jax.tree.flatten(like)
    places = [i for i, leaf in enumerate(leaves) if eqx.is_array(leaf)]
    if set(arrays) != {f"leaf{n}" for n in range(len(places))}:
        return None
    for n, i in enumerate(places):
        saved, wanted = arrays[f"leaf{n}"], _to_numpy(leaves[i])
        if (saved.shape, saved.dtype) != (wanted.shape, wanted.dtype):
            return None
        if jnp.issubdtype(leaves[i].dtype, jax.dtypes.prng_key):
            leaves[i] = jax.random.wrap_key_data(asarray(saved), impl=jax.random.key_impl(leaves[i]))
        else:
            leaves[i] = asarray(saved)
    return jax.tree.unflatten(treedef, leaves)


def position_in_epoch(checkpoint: Checkpoint, document: dict, n_totals: int) -> tuple[int, np.ndarray]:
    """Return the number of batches read in the current epoch of a stream, and the sums over them."""
    position, totals = document.get("position"), document.get("totals")
    is_number = lambda value: type(value) in (int, float)
    has_totals = isinstance(totals, list) and len(totals) == n_totals and all(map(is_number, totals))
    if type(position) is int and position >= 0 and has_totals:
        return position, np.array(totals, float)
    raise BadFile(f"{shorten(checkpoint.path)}: has no position in the stream. Delete it to start anew.")
