"""`Run`: the settings of one call of `fit`, and the steps that fits of arrays and of streams share."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray, automatic_mesh
from .._util.sizes import number_of_rows
from ..batch import Batch
from ..errors import BadInput, Unsuitable
from ..parameters import check_parameters, trainable_leaves
from ..programs import use_engine
from . import _epochs
from ._batching import ValidatedRows, check_data, check_rows
from ._checkpoint import as_checkpoint
from ._result import Fit, best_fit, sum_terms
from ._static_functions import hash_functions, unwrap_functions


class Run:
    """One call of `fit`: energy, learner, key, devices, callbacks, checkpoint."""

    def __init__(self, energy, learner, key, freeze, patience, callbacks, checkpoint, mesh, progress):
        self.original = energy
        self.energy = jax.tree.map(_without_weak_type, energy)
        self.learner, self.key, self.patience, self.mesh = learner, key, patience, automatic_mesh(mesh)
        self.trainable = trainable_leaves(self.energy, freeze)
        self.changing = trainable_leaves(self.energy, freeze, running=True)
        learner_has_parameters = bool(jax.tree.leaves(eqx.filter(learner, eqx.is_inexact_array)))
        check_parameters(self.energy, self.trainable, learner_has_parameters)
        self.callbacks, self.progress = callbacks, progress
        self.checkpoint = as_checkpoint(checkpoint)
        self.shards = 1 if mesh is None else int(mesh.size)
        self.began = time.perf_counter()

    def check_rows(
        self, data: Any, weights: Any, argument: str = "data"
    ) -> tuple[dict[str, Any], np.ndarray]:
        """Return validated rows and weights."""
        if isinstance(data, ValidatedRows):
            return data.data, data.weight
        return check_rows(self.energy, data, weights, argument)

    def check_validation(self, validation: Any, data: Any, dtype: Any) -> Batch | None:
        """Return given validation rows as a batch; they must have the variables of the data."""
        if validation is None:
            return None
        rows = check_data(self.energy, validation, "validation")
        if set(rows) != set(data):
            raise BadInput("validation", f"the names {sorted(rows)}", f"those of the data: {sorted(data)}")
        try:
            self.learner.check(self.energy, rows)
        except Unsuitable as reason:
            raise Unsuitable(f"validation: {reason}") from None
        return Batch(jax.tree.map(asarray, rows), jnp.ones(number_of_rows(rows), dtype))

    def program(self, data: Any) -> _epochs.Program:
        self.learner.check(self.energy, data)
        settings = (self.learner, self.trainable, self.changing, self.patience, self.shards)
        return hash_functions(_epochs.Program(*settings))

    def start(
        self, program: _epochs.Program, data: Any, weight: Any, keys: Any, validated: bool, **options: Any
    ) -> tuple[_epochs.Program, Any]:
        """Return the program with the names of its loss terms, and the carries of all restarts."""
        energy = self.place(hash_functions(self.energy), by_rows=False)
        options = {"initialise": False, "first_indices": None} | options
        is_constant = not (options["initialise"] or self.learner.init_computes)
        # On an accelerator an interpreted program would fetch the data from the device.
        is_constant = is_constant and self.mesh is None and jax.default_backend() == "cpu"
        with use_engine("numpy") if is_constant else contextlib.nullcontext():
            carries, names = _epochs.start_restarts(program, energy, data, weight, keys, validated, **options)
        return program.with_term_names(names), carries

    def place(self, tree: Any, *, by_rows: bool) -> Any:
        """Return the tree with its arrays on the device; on a mesh by rows, or copied to every device."""
        if self.mesh is None:
            if not by_rows:
                return tree
            target = None
        else:
            axes = (tuple(self.mesh.axis_names),) if by_rows else ()
            target = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(*axes))
        arrays, rest = eqx.partition(tree, eqx.is_array)
        # `device_put` makes one copy of NumPy arrays, `jnp.asarray` two.
        return eqx.combine(jax.device_put(arrays, target), rest)

    def run_callbacks(self, carries: Any, history: np.ndarray, program: _epochs.Program) -> bool:
        """Call all callbacks with the first restart; return whether one of them returned True."""
        if not self.callbacks:
            return False
        carry = _epochs.take_restart(carries, 0)
        info = {
            "epoch": int(carry.epoch),
            "step": int(carry.step),
            "objective": float(carry.objective),
            "energy": unwrap_functions(carry.energy),
            "partner": unwrap_functions(program.learner.partner(carry.state)),
            "history": {"objective": sum_terms(history[0], program.term_names)},
        }
        returned = [callback(info) for callback in self.callbacks]
        return any(isinstance(value, bool | np.bool_) and bool(value) for value in returned)

    def result(self, program, carries, history, validated: bool, stopped: bool) -> Fit:
        return best_fit(program, carries, history, validated, stopped, time.perf_counter() - self.began)


def _without_weak_type(leaf: Any) -> Any:
    """Return arrays without a weak type, such as that of a Python scalar, which may change in a loop."""
    if isinstance(leaf, np.ndarray | jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return asarray(leaf, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
