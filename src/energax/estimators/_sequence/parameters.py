"""Parameters of estimators of sequences: settings, priors, shapes, and covariances as hmmlearn has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..._util.arrays import asarray
from ...energies import Diagonal, Full, Spherical, Tied
from ...errors import BadInput, describe
from ...programs import jit
from ...spaces import PositiveDefinite
from .._common.settings import (
    ANY_NUMBER,
    NOT_NEGATIVE,
    NUMBERS,
    RANDOM_STATE,
    VERBOSE,
    WHOLE,
    Setting,
    is_numeric,
    letters,
    one_of,
    whole,
)

COVARIANCES = {"full": Full, "tied": Tied, "diag": Diagonal, "spherical": Spherical}
ALGORITHM = one_of("viterbi", "map")


def hmm_settings(known: Iterable[str], *priors: str, **others: Setting) -> dict[str, Setting]:
    """The settings of an HMM with these letters of `params`, these priors and other settings."""
    table = {
        "n_components": WHOLE,
        "startprob_prior": NUMBERS,
        "transmat_prior": NUMBERS,
        "algorithm": ALGORITHM,
        "random_state": RANDOM_STATE,
        "n_iter": whole(0),
        "tol": ANY_NUMBER,
        "verbose": VERBOSE,
        "params": letters(known),
        "init_params": letters(known),
        "implementation": one_of("log", "scaling"),
        "n_init": WHOLE,
    }
    return {**table, **dict.fromkeys(priors, NUMBERS), **others}


GAUSSIAN = {"covariance_type": one_of(*COVARIANCES), "min_covar": NOT_NEGATIVE}


def as_numbers(name: str, value: Any, dtype: Any = np.float64) -> np.ndarray:
    """The value of an attribute as an array; raise `BadInput` if it is not of numbers."""
    if not is_numeric(value):
        raise BadInput(name, describe(value), "an array of numbers")
    return np.asarray(value, dtype)


def read_prior(model: Any, name: str, shape: tuple[int, ...], dtype: Any, default: Any = None) -> np.ndarray:
    """A prior of the model, a number or an array that broadcasts to this shape; `default` for None."""
    value = getattr(model, name)
    array = np.asarray(default if value is None else value, dtype)
    try:
        np.broadcast_to(array, shape)
    except ValueError:
        expected = f"a number, or an array that broadcasts to shape {shape}"
        raise BadInput(name, f"shape {array.shape}", expected) from None
    if not np.isfinite(array).all():
        raise BadInput(name, "NaN or infinity", "finite numbers")
    return array


def dirichlet_counts(model: Any, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """The pseudo-counts α − 1 of a Dirichlet(α) prior: one number, or an array of this shape."""
    alpha = read_prior(model, name, shape, dtype)
    if (alpha < 0).any():
        raise BadInput(name, f"{alpha.min():g}", "numbers >= 0")
    return float(alpha) - 1.0 if alpha.ndim == 0 else asarray(np.broadcast_to(alpha - 1, shape))


@jit
def initialise_chain(chain: Any, data: Any, weights: Any, key: Any) -> Any:
    """The start of a fit, as the training loop makes it."""
    return chain.initialise(key, data, weights)


def check_possible(log_p: np.ndarray) -> None:
    """Raise if a sequence has probability zero: it has no posterior."""
    impossible = np.isneginf(log_p)
    if impossible.any():
        found = f"sequence {int(np.argmax(impossible))}, which has probability zero"
        raise BadInput("X", found, "sequences that the model can produce")


class MeanColumnsMixin:
    """`n_features` of a model whose states have means: their columns. It may be set, to that number."""

    @property
    def n_features(self) -> int:
        return int(np.shape(self._means())[-1])  # type: ignore[attr-defined]

    @n_features.setter
    def n_features(self, value: Any) -> None:
        has_means = hasattr(self, "means_") or hasattr(self, "lambdas_")
        if has_means and value != self.n_features:
            raise BadInput("n_features", repr(value), f"{self.n_features}, the columns of the means")


def check_linear_shapes(given: dict[str, np.ndarray], k: int, d: int) -> None:
    """Raise unless the parameters of a linear-Gaussian chain of k states and d columns have their shapes."""
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("initial_mean", "transition_offset"), (k,))
    shapes |= dict.fromkeys(("transition", "transition_covariance", "initial_covariance"), (k, k))
    shapes |= {"emission": (d, k), "emission_covariance": (d, d), "emission_offset": (d,)}
    for name, value in given.items():
        if name == "emission" and value.ndim == 2 and value.shape[0] != d:
            raise BadInput(name, f"{value.shape[0]} rows", f"{d}, one per column of X")
        if value.shape != shapes[name]:
            expected = f"{shapes[name]}, for {k} states and {d} columns"
            raise BadInput(name, f"shape {value.shape}", expected)


# -- covariances -----------------------------------------------------------------------------------------


def reduce_covariances(covars: Any, kind: str) -> np.ndarray:
    """Covariances in a shape that hmmlearn takes or returns, in the shape of `covariance_type`.

    Matrices (k, d, d), which `covars_` returns for every type, become variances or one shared matrix.
    Spherical variances are (k,), (k, 1) or (k, d), with the same value in all columns.

    >>> reduce_covariances([[[2.0, 0.0], [0.0, 3.0]]], "diag")
    array([[2., 3.]])
    >>> reduce_covariances([[2.0], [3.0]], "spherical")
    array([2., 3.])
    """
    array = as_numbers("covars_", covars).copy()
    if array.ndim == 3 and kind == "tied":
        if not np.allclose(array, array[:1]):
            raise BadInput("covars_", "matrices that differ", "one matrix for all states, for 'tied'")
        return array[0]
    if array.ndim == 3 and kind in ("diag", "spherical"):
        variances = np.diagonal(array, axis1=1, axis2=2)
        if not np.allclose(array, np.eye(array.shape[-1]) * variances[:, None, :]):
            raise BadInput("covars_", "correlated columns", f"diagonal matrices, for {kind!r}")
        array = variances.copy()
    # The mean, as in hmmlearn's M-step.
    return array.mean(1) if kind == "spherical" and array.ndim == 2 else array


def as_covariance(kind: Any, raw: np.ndarray, shape: tuple[int, ...], dtype: Any, **options: Any) -> Any:
    """The covariance object with the values of the attribute `covars_`."""
    if raw.shape != shape:
        raise BadInput("covars_", f"shape {raw.shape}", f"{shape}")
    if hasattr(kind, "matrix") or kind.__dataclass_fields__.get("matrix") is not None:
        valid = PositiveDefinite(shape[-1])._is_valid(raw).all()
    else:
        valid = (np.isfinite(raw) & (raw > 0)).all()
    if not valid:
        raise BadInput("covars_", "invalid values", "variances > 0, or symmetric positive definite matrices")
    return kind(asarray(raw.astype(dtype)), 0.0, **options)
