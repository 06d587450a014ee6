"""`fit`: the training loop of all models, from its arguments to the loop for arrays or for streams."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from .._util.keys import as_key
from ..energy import Energy
from ..errors import BadInput, check_instance, check_memory, check_whole_number, describe
from ..parameters import Freeze, with_energy_precision
from ..programs import MOST_NUMBERS, engine, run_on_one_engine, use_engine
from ._arrays import fit_arrays
from ._batching import ValidatedRows, is_stream
from ._learner import Learner
from ._options import with_fit_options
from ._result import Fit
from ._run import Run
from ._stream import fit_stream


@with_energy_precision
def fit(
    energy: Energy,
    data: Any,
    learner: Learner,
    *,
    key: Any,
    epochs: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
    weights: Any = None,
    validation: Any = None,
    patience: int | None = None,
    freeze: Freeze = None,
    n_init: int = 1,
    initialise: bool | None = None,
    callbacks: Iterable[Callable[[dict[str, Any]], Any]] = (),
    checkpoint: Any = None,
    mesh: Any = None,
    progress: bool = False,
) -> Fit:
    """Learn the parameters θ of an energy from data.

    Args:
        data: a dict of arrays by variable name (NaN or `Masked` where missing); or, for data that
            does not fit in memory, a function that returns an iterator of such dicts.
        key: an int or a JAX key. The same key gives the same result, also after a resume.
        epochs, steps: passes over the data, or updates (default: 100 epochs; 1 epoch of a stream).
        batch_size: rows in an update; None means all of them.
        weights: one weight per row.
        validation: validation rows: a dict, or a fraction of `data`. The energy with the lowest
            validation loss is returned; with `patience`, the fit stops so many epochs after it.
        freeze: parameters that are not learned: dotted names, or a function from the energy to leaves.
        n_init: restarts from `energy.initialise`; the best is returned, all are kept.
        initialise: whether to start from `energy.initialise` (default: only with `n_init > 1`).
        callbacks: each is called after every epoch with a dict (epoch, step, objective, energy,
            partner, history); one that returns True stops the fit.
        checkpoint: a path, or `Checkpoint(path, every=)`. If the file exists, the fit resumes from
            it, and ends bit for bit where it would have ended uninterrupted.
        mesh: a `jax.sharding.Mesh`; the rows are split over all its devices.
        progress: show a progress bar.

    >>> import numpy as np, optax
    >>> from energax.energies import RBM
    >>> from energax.learn import ContrastiveDivergence, Descent
    >>> rbm = RBM.random(6, 3, key=0)
    >>> X = np.tile([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], (32, 1))
    >>> fit(rbm, {"x": X}, Descent(ContrastiveDivergence(k=1), optax.adam(0.1)), key=0, epochs=5).status
    'reached max_iter'
    """
    key = as_key(key)
    if not isinstance(energy, Energy):
        raise BadInput("energy", type(energy).__name__, "an Energy")
    remedy = "Wrap an objective: Descent(objective, optimizer)."
    check_instance("learner", learner, Learner, "a learner", remedy)
    _check_counts(epochs=epochs, steps=steps, batch_size=batch_size, patience=patience, n_init=n_init)
    if epochs is not None and steps is not None:
        raise BadInput("steps", "both epochs and steps", "one of the two")
    if patience is not None and validation is None:
        raise BadInput("patience", "no validation rows", "validation= rows or a fraction", "")
    checkpoint, mesh, progress, callbacks = with_fit_options(checkpoint, mesh, progress, callbacks)
    callbacks = _check_options(callbacks, mesh, progress, initialise, freeze)
    numbers = sum(getattr(leaf, "size", 1) for leaf in jax.tree.leaves(energy))
    check_memory("n_init", n_init, int(n_init) * numbers, "the parameters of all starts")
    run = Run(energy, learner, key, freeze, patience, callbacks, checkpoint, mesh, progress)
    options: dict[str, Any] = {
        "steps": steps,
        "batch_size": batch_size,
        "initialise": initialise,
        "n_init": n_init,
    }
    precision = learner.matmul_precision
    with jax.default_matmul_precision(precision) if precision else contextlib.nullcontext():
        if not is_stream(data):
            fit_all = lambda: fit_arrays(run, data, weights, epochs=epochs, validation=validation, **options)
            if not (checkpoint or callbacks or progress or mesh is not None or _is_large(data)):
                return run_on_one_engine(fit_all)
            # These fits take long, and must not run twice.
            with use_engine("xla" if engine() == "auto" else engine()):
                return fit_all()
        _check_stream_options(weights=weights, **options)
        with use_engine("xla" if engine() == "auto" else engine()):
            return fit_stream(run, data, epochs or 1, validation)


def _check_options(callbacks: Any, mesh: Any, progress: Any, initialise: Any, freeze: Any) -> tuple[Any, ...]:
    """Return the callbacks as a tuple; raise if one of these arguments of `fit` is not valid."""
    several = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    if not isinstance(callbacks, Iterable) or not all(map(callable, several)):
        expected = "a list of functions of a dict"
        raise BadInput("callbacks", describe(callbacks), expected, "Try callbacks=[function].")
    if mesh is not None and not isinstance(mesh, jax.sharding.Mesh):
        raise BadInput("mesh", describe(mesh), "a jax.sharding.Mesh, or None")
    for name, value in {"progress": progress, "initialise": initialise}.items():
        known = value is None or isinstance(value, bool | np.bool_) or (isinstance(value, int) and value >= 0)
        if not known:
            raise BadInput(name, describe(value), "True or False")
    known = freeze is None or callable(freeze) or isinstance(freeze, str | list | tuple | set | frozenset)
    if not known:
        expected = "names of parameters, or a function from the energy to leaves"
        raise BadInput("freeze", describe(freeze), expected)
    return several


def _is_large(data: Any) -> bool:
    """Return whether the data have more numbers than an array of an interpreted program may have."""
    rows = data.data if isinstance(data, ValidatedRows) else data
    # Not the tree itself: JAX sorts the keys of a dict, which are not checked yet.
    values = list(rows.values()) if isinstance(rows, Mapping) else rows
    return sum(getattr(leaf, "size", 0) for leaf in jax.tree.leaves(values)) > MOST_NUMBERS


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None:
            check_whole_number(name, value)


def _check_stream_options(*, n_init: int, **options: Any) -> None:
    unsupported = [k for k, v in options.items() if v is not None and v is not False]
    unsupported += ["n_init"] if n_init > 1 else []
    if unsupported:
        raise BadInput("data", f"a stream, and {', '.join(unsupported)}", "arrays for those")
