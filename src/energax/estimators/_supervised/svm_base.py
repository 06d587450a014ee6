"""The base of support vector machines: kernels, the fit of one problem, its certificate."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np
import scipy.linalg
from sklearn.metrics.pairwise import sigmoid_kernel

from ..._util.arrays import asarray
from ..._util.keys import as_key
from ..._util.sizes import QUERY_NUMBERS, call_rows, map_chunks, pad_rows, svm_rows
from ...errors import BadInput, Diverged
from ...kernels import Kernel
from ...learn import SMO
from ...programs import jit
from .._base import EnergyEstimator
from .._common.kernels import named_kernel
from .._common.settings import (
    FUNCTION,
    NOT_NEGATIVE,
    VERBOSE,
    Setting,
    instance,
    is_whole,
    number,
    one_of,
    whole,
)
from .._common.sklearn_errors import warn_user

_STRINGS = ("rbf", "linear", "poly", "sigmoid", "precomputed")
_SEMI_DEFINITE_ROWS = 2000
#: Steps after which a hard margin is given up, and those per row.
_HARD_STEPS, _HARD_STEPS_PER_ROW = 100_000, 100

POSITIVE = number(lambda value: 0 < value < np.inf, "a number > 0")


class SupportVectorMachine(EnergyEstimator):
    """The base of `SVC` and `SVR`: the kernel, the fit of one problem, and outputs in chunks of rows."""

    _sparse = True
    _settings: ClassVar[dict[str, Setting]] = {
        "kernel": one_of(*_STRINGS) | instance(Kernel, "a kernel of energax.kernels") | FUNCTION,
        "degree": whole(1),
        "gamma": one_of("scale", "auto") | POSITIVE,
        "coef0": NOT_NEGATIVE | number(lambda value: np.isfinite(value), "a number"),
        "tol": POSITIVE,
        "cache_size": POSITIVE,
        "verbose": VERBOSE,
        "max_iter": Setting(lambda value: is_whole(value) and (value == -1 or value >= 1), "-1 or >= 1"),
    }

    support_: np.ndarray
    support_vectors_: np.ndarray
    dual_coef_: np.ndarray

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    def _precision(self):
        """64 bits always: sums over thousands of support vectors do not reach a tolerance in float32."""
        stack = contextlib.ExitStack()
        stack.enter_context(jax.enable_x64(True))
        stack.enter_context(jax.default_matmul_precision("highest"))
        return stack

    # -- kernels ------------------------------------------------------------------------------

    @property
    def _is_precomputed(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    def _set_kernel(self, X: np.ndarray) -> None:
        """Set `kernel_`, None for a kernel that is given by its matrix, and `gamma_`."""
        self.kernel_ = None
        self.gamma_: Any = self._gamma(X)
        if isinstance(self.kernel, Kernel) or self.kernel in ("linear", "rbf", "poly"):
            numbers: dict[str, Any] = {
                "gamma": self.gamma_,
                "degree": int(self.degree),
                "coef0": float(self.coef0),
            }
            self.kernel_ = named_kernel(self.kernel, X.shape[1], **numbers).astype(np.float64)

    def _gamma(self, X: np.ndarray) -> float:
        if not isinstance(self.gamma, str):
            return float(self.gamma)
        variance = float(X.var()) if self.gamma == "scale" else 1.0
        return 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0

    def _model_rows(self, X: np.ndarray, support: np.ndarray | None = None) -> np.ndarray:
        """Return X as the energy takes it: as it is, or as kernel values with the support vectors."""
        if self.kernel_ is not None:
            return X
        if self._is_precomputed:
            return X if support is None else np.ascontiguousarray(X[:, support])
        others = X if support is None else self.support_vectors_
        if callable(self.kernel):
            values = np.asarray(self.kernel(X, others), np.float64)
        else:
            values = sigmoid_kernel(X, others, gamma=self.gamma_, coef0=float(self.coef0))
        if values.shape != (len(X), len(others)) or not np.isfinite(values).all():
            expected = f"finite numbers of shape ({len(X)}, {len(others)}) from the function"
            raise BadInput("kernel", f"values of shape {values.shape}", expected)
        return values

    def _check_gram(self, gram: np.ndarray) -> None:
        """Raise if a given kernel matrix is not square or symmetric; warn if it is not semi-definite."""
        if gram.shape[0] != gram.shape[1]:
            expected = "a square kernel matrix, Precomputed (n_samples, n_samples), for kernel='precomputed'"
            raise BadInput("X", f"shape {gram.shape}", expected)
        size = float(np.abs(gram).max(initial=0.0))
        if not np.allclose(gram, gram.T, rtol=1e-7, atol=1e-9 * size):
            raise BadInput("X", "a kernel matrix that is not symmetric", "k(x, y) = k(y, x)")
        some = gram[:_SEMI_DEFINITE_ROWS, :_SEMI_DEFINITE_ROWS]
        try:
            scipy.linalg.cholesky(some + (1e-8 * size) * np.eye(len(some)), check_finite=False)
        except scipy.linalg.LinAlgError:
            warn_user(
                f"{type(self).__name__}: the kernel matrix is not positive semi-definite, so the problem is "
                "not convex and the solution may be one of several. Use a positive semi-definite kernel."
            )

    # -- one problem ----------------------------------------------------------------------------

    def _solve(
        self, start: Any, rows: np.ndarray, y: np.ndarray, weight: np.ndarray, most_rows: int | None = None
    ) -> Any:
        """Fit one problem, or those of all pairs of classes. → (coefficients, intercept, certificate).

        The coefficients are (..., n), the intercept and the numbers of the certificate (...).

        Args:
            start: maps padded rows to the initial energy.
            rows: X, or the kernel matrix.
            y: targets or indices of classes.
            weight: of the rows, times C the bounds of their variables.
            most_rows: the most rows of a pair of classes; None if there is one problem.
        """
        n = len(rows)
        size = svm_rows(n)
        padded = pad_rows({"x": rows, "y": y}, size)
        if self.kernel_ is None:
            padded["x"] = np.pad(padded["x"], ((0, 0), (0, size - n)))
        weight = np.append(weight, np.zeros(size - n))
        max_steps = int(np.iinfo(np.int32).max) if self.max_iter == -1 else int(self.max_iter)
        if np.inf == self.C and self.max_iter == -1:
            max_steps = _HARD_STEPS + _HARD_STEPS_PER_ROW * n
        numbers = float(self.cache_size) * 2**20 / np.dtype(np.float64).itemsize
        learner = SMO(
            C=asarray(np.float64(self.C)),
            tol=asarray(np.float64(self.tol)),
            max_steps=asarray(np.int32(max_steps)),
            cache_rows=min(size, max(1, int(numbers // size))),
            most_rows=most_rows,
        )
        options: dict[str, Any] = {"weights": weight, "epochs": 1, "pad": False, "validated": True}
        try:
            result = self._learn(start(padded["x"]), padded, learner, **options)
        except Diverged:
            self._check_separable(False)
            raise
        found: Any = result.energy
        certificate = type(result.state.certificate)(*map(np.asarray, result.state.certificate))
        self._check_separable(bool((certificate.violation <= self.tol).all()))
        return np.asarray(found.coefficients)[..., :n], np.asarray(found.intercept), certificate

    def _check_separable(self, converged: bool) -> None:
        """Raise if a hard margin was asked for, and there is none."""
        if np.inf == self.C and not converged and self.max_iter == -1:
            raise BadInput(
                "C",
                "infinity, a hard margin, but the classes are not separable with this kernel",
                "a finite number > 0, which allows rows inside the margin",
                "Try C=1.0, or another kernel.",
            )

    def _key(self, *path: int) -> Any:
        """A fit draws no random numbers."""
        return as_key(0)

    def _record(self, certificate: Any) -> None:
        """Set the attributes of the certificates, numbers or (pairs,); warn if one is not within `tol`."""
        names = ("dual_objective", "duality_gap", "violation", "n_at_bound", "n_steps")
        values = {name: np.atleast_1d(getattr(certificate, name)) for name in names}
        only = (lambda a: a[0].item()) if len(values["violation"]) == 1 else (lambda a: a)
        self.dual_objective_, self.duality_gap_ = only(values["dual_objective"]), only(values["duality_gap"])
        self.kkt_violation_, self.n_at_bound_ = only(values["violation"]), only(values["n_at_bound"])
        self.n_iter_ = values["n_steps"]
        self.converged_ = bool((values["violation"] <= self.tol).all())
        self.fit_status_ = 0 if self.converged_ else 1
        worst, name = values["violation"].max(), type(self).__name__
        if not self.converged_:
            warn_user(
                f"{name} did not converge: after max_iter={self.max_iter} steps the largest violation of the "
                f"optimality conditions is {worst:.3g}, above tol={self.tol:g}. Raise max_iter, or scale the "
                "columns of X."
            )
        elif self.fit_.status == "reached max_iter":
            message = f"converged after {int(values['n_steps'].sum())} steps"
            self.fit_ = dataclasses.replace(self.fit_, status="converged", message=message)

    # -- outputs --------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> np.ndarray:
        """Return f of every row, (n, p) or (n,)."""
        X = self._check_new_X(X)
        with self._precision():
            rows = self._model_rows(X.astype(np.float64), self.support_)
            return self._row_outputs(self.energy_, rows).astype(self.dtype_)

    def _row_outputs(self, energy: Any, rows: np.ndarray) -> np.ndarray:
        per_row = max(energy.coefficients.shape[-1], rows.shape[1])
        size = call_rows(len(rows), max(16, QUERY_NUMBERS.rows(per_row)))
        return map_chunks(lambda chunk: _row_outputs(energy, chunk), rows, size)


@jit
def _row_outputs(energy: Any, rows: Any) -> Any:
    return energy.row_outputs(asarray(rows))
