"""Values of the wrong kind, and calls with them, for the tests that try them in every argument."""

from __future__ import annotations

import datetime
import traceback
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.exceptions import NotFittedError

from energax.errors import EnergaxError

N = 12
LARGE = {"1e18", "1e40", "1e400"}
VALUES = {
    "None": lambda: None,
    "True": lambda: True,
    "False": lambda: False,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "2.5": lambda: 2.5,
    "1e18": lambda: 10**18,
    "1e40": lambda: 10**40,
    "1e400": lambda: 10**400,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "minus inf": lambda: -np.inf,
    "complex": lambda: 1j,
    "text": lambda: "x",
    "empty text": lambda: "",
    "bytes": lambda: b"x",
    "empty list": list,
    "empty tuple": tuple,
    "empty dict": dict,
    "dict": lambda: {"a": 1},
    "set": lambda: {1, 2},
    "object": object,
    "list of objects": lambda: [object(), object()],
    "function": lambda: lambda *arguments: None,
    "class": lambda: int,
    "iterator": lambda: iter([1, 2]),
    "list of None": lambda: [None] * N,
    "list of text": lambda: ["a", "b"] * (N // 2),
    "list of numbers": lambda: [0.5, 1.5, -1.0],
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "huge in a list": lambda: [[10**40]] * N,
    "too huge in a list": lambda: [[10**400]] * N,
    "vector": lambda: np.arange(3.0),
    "long vector": lambda: np.arange(float(N)),
    "matrix": lambda: np.ones((2, 2)),
    "cube": lambda: np.ones((2, 2, 2)),
    "no rows": lambda: np.ones((0, 3)),
    "no columns": lambda: np.ones((N, 0)),
    "NaN array": lambda: np.full((N, 3), np.nan),
    "infinite array": lambda: np.full((N, 1), np.inf),
    "text array": lambda: np.full((N, 3), "a"),
    "object array": lambda: np.array([[None, 1, "a"]] * N, dtype=object),
    "scalar array": lambda: np.array(1.5),
    "structured": lambda: np.zeros(N, dtype=[("a", float)]),
    "dates": lambda: np.full((N, 3), np.datetime64("2020-01-01")),
    "date": lambda: datetime.date(2020, 1, 1),
    "JAX array": lambda: jnp.ones(3),
    "sparse": lambda: scipy.sparse.csr_array(np.ones((N, 3))),
    "masked": lambda: np.ma.masked_all((N, 3)),
    "frame": lambda: pd.DataFrame({"a": ["x"] * N, "b": np.arange(N), "c": 1.0}),
    "frame with dates": lambda: pd.DataFrame({"a": pd.date_range("2020", periods=N), "b": 1.0, "c": 2.0}),
}


def is_from_sklearn(error):
    """Whether scikit-learn raised the error, and not code that it called."""
    file = traceback.extract_tb(error.__traceback__)[-1].filename
    return isinstance(error, ValueError | TypeError) and "/sklearn/" in file


def call(function, *arguments, **keywords):
    """None, or the message of an exception that a user should not see."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*arguments, **keywords)
    except (EnergaxError, NotFittedError):
        return None
    except Exception as error:
        if is_from_sklearn(error):
            return None
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:120]!r} ({last.filename}:{last.lineno})"
    return None
