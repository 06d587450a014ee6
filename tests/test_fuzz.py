"""Values of the wrong kind in every argument of every estimator and of `fit`, drawn with fixed seeds.

A call may succeed, or raise an error of energax, or of scikit-learn's own validation. Any other exception
would come from inside NumPy, JAX or Python, without the name of the argument.
"""

from __future__ import annotations

import functools
import inspect
import warnings
import zlib

import equinox as eqx
import numpy as np
import pytest
from bad_values import LARGE, VALUES, N, call
from sklearn.base import is_classifier

import energax
from energax import learn
from energax.catalog import of_kind
from energax.energies import RBM
from energax.errors import EnergaxError

#: Calls for every estimator.
N_CALLS = 150
#: Settings under which every fit is small; an estimator takes those that it has.
SMALL = {
    "n_components": 2, "n_clusters": 2, "hidden_layer_sizes": (2, 2), "max_iter": 1, "n_iter": 1,
    "n_importance": 8, "n_noise": 1, "order": 2, "random_state": 0, "reg_param": 0.1,
}  # fmt: skip
#: Counts of iterations, which may be large.
ITERATIONS = {"max_iter", "n_iter", "n_iter_no_change", "epochs", "steps"}
#: Methods that are not about data.
OTHERS = {"save", "load", "get_params", "set_params"}


def good_arguments(cls):
    """Valid arguments of `fit`, by name: small, binary, and of the same shapes for all estimators."""
    rng = np.random.default_rng(0)
    tags, parameters = cls().__sklearn_tags__(), inspect.signature(cls.fit).parameters
    if not tags.input_tags.two_d_array:
        return {"X": ["a b", "b a a"]}
    columns = 1 if "lengths" in parameters else 3
    X = rng.integers(0, 2, (N, columns)).astype(np.float64)
    needs_y = cls().__sklearn_tags__().target_tags.required
    return {"X": X, "y": np.arange(N) % 3} if needs_y else {"X": X}


def make(cls, **changes):
    names = inspect.signature(cls).parameters
    return cls(**{name: value for name, value in SMALL.items() if name in names} | changes)


@functools.cache
def fitted(cls):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(cls).fit(**good_arguments(cls))


def queries(model):
    """(method, names of its arguments) of all methods that a fitted model has, `fit` excluded."""
    for name in sorted(dir(type(model))):
        method = inspect.getattr_static(type(model), name)
        if name.startswith(("_", "fit", "partial_fit")) or name in OTHERS:
            continue
        if isinstance(method, property | classmethod) or not hasattr(model, name):
            continue
        bound = getattr(model, name)
        if callable(bound) and "energax" in (getattr(bound, "__module__", None) or ""):
            arguments = list(inspect.signature(bound).parameters)
            if arguments:
                yield name, arguments


def is_long(name, label):
    """Whether this is a valid number of iterations, or a progress bar, that takes too long for a test."""
    return (name in ITERATIONS and label in LARGE) or name in ("verbose", "progress")


def random_call(cls, rng):
    """(description, call) with one value of the wrong kind, in a setting, in `fit`, or in another method."""
    label = str(rng.choice(list(VALUES)))
    bad, good = VALUES[label](), good_arguments(cls)
    where = rng.choice(["setting", "setting after fit", "fit", "method", "method"])
    settings = [name for name in inspect.signature(cls).parameters if not is_long(name, label)]
    if where == "setting":
        name = str(rng.choice(settings))
        return f"{name}={label}", lambda: make(cls, **{name: bad}).fit(**good)
    if where == "fit":
        method = str(rng.choice([m for m in ("fit", "partial_fit") if hasattr(cls, m)]))
        name = str(rng.choice([n for n in inspect.signature(getattr(cls, method)).parameters if n != "self"]))
        options = {"classes": [0, 1, 2]} if method == "partial_fit" and is_classifier(cls()) else {}
        return f"{method}({name}={label})", lambda: getattr(make(cls), method)(**good | options | {name: bad})
    model = fitted(cls)
    method, arguments = list(queries(model))[rng.integers(len(list(queries(model))))]
    known = {**good, "v": good["X"], "context": "a", "n_samples": 2, "steps": 2, "k": 2}
    chosen = {name: known[name] for name in arguments if name in known}
    if where == "method":
        name = str(rng.choice(arguments))
        return f"{method}({name}={label})", lambda: getattr(model, method)(**chosen | {name: bad})
    name = str(rng.choice(settings))

    def changed():
        copy = make(cls)
        copy.__dict__.update(model.__dict__)
        getattr(copy.set_params(**{name: bad}), method)(**chosen)

    return f"{method} with {name}={label}", changed


ESTIMATORS = [row.load() for row in of_kind("estimator")]


@pytest.mark.parametrize("cls", ESTIMATORS, ids=lambda cls: cls.__name__)
def test_wrong_kinds_of_values_raise_errors_of_energax(cls):
    rng = np.random.default_rng(zlib.crc32(cls.__name__.encode()))
    found = {}
    for _ in range(N_CALLS):
        description, attempt = random_call(cls, rng)
        if message := call(attempt):
            found[description] = message
    assert not found, "\n".join(f"{cls.__name__}: {k}: {v}" for k, v in found.items())


def test_wrong_kinds_of_values_in_every_setting():
    """Not drawn: every setting of every estimator with every value that is of no use for any of them."""
    found = {}
    for cls in ESTIMATORS:
        good = good_arguments(cls)
        for name in inspect.signature(cls).parameters:
            for label in ("object", "complex", "ragged", "list of objects", "structured", "set"):
                attempt = lambda: make(cls, **{name: VALUES[label]()}).fit(**good)  # noqa: B023
                with pytest.raises(EnergaxError) as caught:
                    attempt()
                if not str(caught.value).startswith(f"{name}:"):
                    found[f"{cls.__name__}({name}={label})"] = str(caught.value)
    assert not found


FIT = {
    "data": None, "key": 0, "epochs": 1, "steps": None, "batch_size": None, "weights": None,
    "validation": None, "patience": None, "freeze": None, "n_init": 1, "initialise": None, "callbacks": (),
    "checkpoint": None, "mesh": None, "progress": False,
}  # fmt: skip


def test_the_arguments_of_fit():
    energy, learner = RBM.random(3, 2, key=0), learn.Descent(learn.NegativeLogLikelihood())
    assert set(FIT) == set(inspect.signature(energax.fit).parameters) - {"energy", "learner"}
    data = {"x": np.arange(N * 3).reshape(N, 3) % 2}
    rng, found = np.random.default_rng(0), {}
    for _ in range(2 * N_CALLS):
        name, label = str(rng.choice([*FIT, "energy", "learner"])), str(rng.choice(list(VALUES)))
        arguments = {**FIT, "data": data, "energy": energy, "learner": learner, name: VALUES[label]()}
        if name in ("freeze", "data") and label in ("function", "class"):
            continue  # functions of the caller may raise anything
        if is_long(name, label):
            continue
        if name == "checkpoint" and label in ("text", "empty text"):
            continue  # a file
        if name == "steps":
            arguments["epochs"] = None
        if message := call(energax.fit, **arguments):
            found[f"{name}={label}"] = message
    assert not found, "\n".join(f"fit: {k}: {v}" for k, v in found.items())
    assert eqx.is_array(energy.bias)
