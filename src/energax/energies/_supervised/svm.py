"""Support vector machines: energies of y given x from kernel values with support vectors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import ARRAYS, MATRIX, NONE, VECTOR, check_arguments
from ..._util.arrays import asarray
from ...algorithms.optimise.smo import BoxDual
from ...energy import Energy
from ...errors import BadInput, check_instance, describe
from ...kernels import Kernel
from ...spaces import Categorical, Real
from .._latent.likelihoods import as_likelihood
from .epsilon_insensitive import EpsilonInsensitive
from .linear import Classifier
from .regression import Regressor


class _KernelExpansion(Energy):
    """f(x) = Σ_i c_i k(s_i, x) + b, for one or several vectors c of coefficients.

    Without a kernel x is the vector of kernel values with the support vectors.
    """

    kernel: Kernel | None
    support: jax.Array | None
    coefficients: jax.Array
    intercept: jax.Array

    def _check_expansion(self, ndim: int):
        if (self.kernel is None) != (self.support is None):
            raise BadInput("support", f"{self.support}", "support vectors and a kernel, or neither")
        if self.kernel is not None:
            check_instance("kernel", self.kernel, Kernel, "a kernel of energax.kernels")
        check_arguments(self, support=MATRIX | NONE, coefficients=VECTOR, intercept=ARRAYS)
        if self.coefficients.ndim < ndim:
            raise BadInput("coefficients", describe(self.coefficients), f"at least {ndim} axes")
        m = self.coefficients.shape[-1]
        if self.support is not None and self.support.shape[-2] != m:
            shapes = f"support {self.support.shape}, coefficients {self.coefficients.shape}"
            raise BadInput("support, coefficients", shapes, "one coefficient per support vector")
        if self.coefficients.ndim < ndim or self.intercept.ndim != self.coefficients.ndim - 1:
            shapes = f"coefficients {self.coefficients.shape}, intercept {self.intercept.shape}"
            raise BadInput("coefficients, intercept", shapes, "one intercept per vector of coefficients")

    @property
    def _input_space(self):
        return Real(self.coefficients.shape[-1] if self.support is None else self.support.shape[-1])

    def kernel_values(self, x: Any) -> Any:
        """k of rows (n, d) with all support vectors, (n, m)."""
        return x if self.kernel is None else self.kernel.matrix(x, self.support)

    def row_outputs(self, x: Any) -> Any:
        """f of rows (n, d): (n,), or (n, p) for p vectors of coefficients."""
        return self.kernel_values(asarray(x)) @ self.coefficients.T + self.intercept

    def crop(self, kept: np.ndarray) -> Any:
        """The same function with the support vectors of these indices alone."""
        support = None if self.support is None else self.support[kept]
        coefficients = self.coefficients[..., kept]
        return dataclasses.replace(self, support=support, coefficients=coefficients)  # type: ignore[type-var]

    # -- learning by SMO --------------------------------------------------------------------------------

    def dual_kernel(self, data: Any) -> tuple[Any, Any, Any]:
        """(a function from indices to rows of the kernel matrix, one to their block, its diagonal)."""
        x = asarray(data["x"])
        if self.kernel is None:
            take = lambda index: jnp.take(x, index, axis=0)
            return take, lambda index: x[index[:, None], index], jnp.diagonal(x)
        diagonal, values = self.kernel.diagonal(x), self.kernel.by_index(x)

        # White noise is only on the diagonal, which the values of some rows with others do not know.
        def rows(index):
            is_same = index[:, None] == jnp.arange(len(x), dtype=index.dtype)
            return jnp.where(is_same, jnp.take(diagonal, index)[:, None], values(index, None))

        def block(index):
            is_same = index[:, None] == index
            return jnp.where(is_same, jnp.take(diagonal, index), values(index, index))

        return rows, block, diagonal

    def _with_rows(self, data: Any, coefficients: Any, intercept: Any) -> Any:
        support = None if self.support is None else data["x"]
        shape = self.coefficients.shape
        return dataclasses.replace(  # type: ignore[type-var]
            self,
            support=support,
            coefficients=coefficients.reshape(shape),
            intercept=intercept.reshape(self.intercept.shape),
        )


class SupportVectorClassifier(_KernelExpansion, Classifier):
    """A support vector machine: e(x, y) = −score_y(x), from functions f_ij(x) = Σ_s c_s k(s, x) + b.

    There is one function for every pair of classes i < j, positive for j. With two classes the scores are
    (0, f), so that p(y | x) = σ(f); with `calibration` (A, B) they are (0, −(A f + B)). With more classes a
    score is the number of pairs that the class wins, plus the sum of its functions squeezed below ½, which
    decides ties; with `calibration` it is log p(y | x), coupled from the probabilities of all pairs.

    It is learned by `learn.SMO`.

    Args:
        kernel: k, or None: x is then the vector of kernel values with the support vectors.
        support: the support vectors s, (m, d); None without a kernel.
        coefficients: c, (p, m), one row per pair (0, 1), (0, 2), …, (1, 2), …
        intercept: b, (p,).
        calibration: (A, B) of every pair, (p, 2), or None.

    Cortes and Vapnik (1995), Support-vector networks; for probabilities Platt (1999), Probabilistic outputs
    for support vector machines, and Wu, Lin and Weng (2004), Probability estimates for multi-class
    classification by pairwise coupling.

    >>> from energax import argmin
    >>> from energax.kernels import RBF
    >>> support = jnp.array([[-1.0], [1.0]])
    >>> svm = SupportVectorClassifier(RBF(), support, jnp.array([[-1.0, 1.0]]), jnp.zeros(1))
    >>> argmin(svm, {"x": [[-2.0], [0.5]]})["y"]
    array([0, 1])
    """

    calibration: jax.Array | None = None

    def __check_init__(self):
        self._check_expansion(2)
        check_arguments(self, calibration=MATRIX | NONE)
        pairs = self.coefficients.shape[-2]
        if self.n_classes * (self.n_classes - 1) // 2 != pairs:
            raise BadInput("coefficients", f"{pairs} rows", "one for each of k (k − 1) / 2 pairs of classes")
        if self.calibration is not None and self.calibration.shape[-2:] != (pairs, 2):
            raise BadInput("calibration", f"shape {self.calibration.shape}", f"({pairs}, 2)")

    @property
    def n_classes(self) -> int:
        return (1 + math.isqrt(1 + 8 * self.coefficients.shape[-2])) // 2

    @property
    def spaces(self):
        return {"x": self._input_space, "y": Categorical(self.n_classes)}

    def scores(self, x):
        return self.scores_of(self.row_outputs(x[None])[0])

    def scores_of(self, outputs: Any) -> Any:
        """The scores of all classes, (k,), from the functions of all pairs, (p,)."""
        if self.calibration is not None:
            log_odds = -(self.calibration[:, 0] * outputs + self.calibration[:, 1])
        if self.n_classes == 2:
            second = outputs[0] if self.calibration is None else log_odds[0]
            return jnp.stack([jnp.zeros_like(second), second])
        if self.calibration is not None:
            return jnp.log(couple(jax.nn.sigmoid(log_odds), self.n_classes))
        votes, total = self.votes(outputs), _sum_by_class(outputs, self.n_classes)
        return votes + total / (3 * (jnp.abs(total) + 1))

    def votes(self, outputs: Any) -> Any:
        """How many pairs each class wins, (k,); 0 counts for the second class of a pair."""
        won = jnp.where(outputs >= 0, 1, -1).astype(outputs.dtype)
        return (_sum_by_class(won, self.n_classes) + self.n_classes - 1) / 2

    # -- learning by SMO --------------------------------------------------------------------------------

    def dual_problem(self, data, bound):
        """One problem; with more than two classes one for every pair, in which other rows have no bounds."""
        first, second = (jnp.asarray(of_pair)[:, None, None] for of_pair in pairs_of(self.n_classes))
        sign = jnp.where(data["y"] == second, 1.0, jnp.where(data["y"] == first, -1.0, 0)).astype(bound.dtype)
        zero = jnp.zeros_like(sign)
        several = BoxDual(sign, jnp.where(sign < 0, -bound, zero), jnp.where(sign > 0, bound, zero))
        return several if self.n_classes > 2 else BoxDual(*(array[0] for array in several))

    def with_dual(self, data, variables, intercept):
        return self._with_rows(data, variables, intercept)


class SupportVectorRegressor(_KernelExpansion, Regressor):
    """Support vector regression: e(x, y) = C max(0, |y − f(x)| − ε) + log Z, f(x) = Σ_s c_s k(s, x) + b.

    Args:
        kernel: k, or None: x is then the vector of kernel values with the support vectors.
        support: the support vectors s, (m, d); None without a kernel.
        coefficients: c, (m,).
        intercept: b, a number.
        likelihood: of y given f(x).

    Drucker et al. (1997), Support vector regression machines.

    >>> from energax.kernels import Linear
    >>> line = SupportVectorRegressor(Linear(), jnp.array([[2.0]]), jnp.array([0.5]), jnp.array(1.0))
    >>> line.predict(x=jnp.array([3.0]))
    Array(4., dtype=float32)
    """

    likelihood: Any = EpsilonInsensitive()

    def __check_init__(self):
        self._check_expansion(1)
        as_likelihood(self.likelihood, None)

    @property
    def spaces(self):
        return {"x": self._input_space, "y": self.likelihood.space()}

    def output(self, x):
        return self.row_outputs(x[None])[0]

    # -- learning by SMO --------------------------------------------------------------------------------

    def dual_problem(self, data, bound):
        """Two variables for every row: one for y above f, one for y below."""
        y = asarray(data["y"]).astype(bound.dtype)
        epsilon, zero = jnp.asarray(self.likelihood.epsilon, bound.dtype), jnp.zeros_like(bound)
        targets = jnp.stack([y - epsilon, y + epsilon])
        return BoxDual(targets, jnp.stack([zero, -bound]), jnp.stack([bound, zero]))

    def with_dual(self, data, variables, intercept):
        return self._with_rows(data, variables.sum(0), intercept)


# -- several classes from pairs -------------------------------------------------------------------------


def pairs_of(k: int) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second class of every pair of k classes.

    >>> pairs_of(3)
    (array([0, 0, 1]), array([1, 2, 2]))
    """
    first, second = np.triu_indices(k, 1)
    return first, second


def _sum_by_class(outputs: Any, k: int) -> Any:
    """Σ over the pairs of every class of ±output, + where it is the second of the pair, (k,)."""
    first, second = pairs_of(k)
    sign = np.zeros((k, len(first)))
    sign[second, np.arange(len(first))], sign[first, np.arange(len(first))] = 1, -1
    return jnp.asarray(sign, outputs.dtype) @ outputs


def couple(probabilities: Any, k: int) -> Any:
    """The probabilities of k classes (k,) from those of the second class in every pair, (p,).

    They minimise Σ_{i ≠ j} (r_ji p_i − r_ij p_j)², where r_ij is the probability of i among i and j.

    Wu, Lin and Weng (2004), Probability estimates for multi-class classification by pairwise coupling.

    >>> couple(jnp.array([0.5, 0.5, 0.5]), 3).round(3)
    Array([0.333, 0.333, 0.333], dtype=float32)
    """
    first, second = pairs_of(k)
    wins = jnp.zeros((k, k), probabilities.dtype)
    # As in libsvm: certainty would leave the other classes without a probability.
    chance = jnp.clip(probabilities, 1e-7, 1 - 1e-7)
    wins = wins.at[second, first].set(chance).at[first, second].set(1 - chance)
    quadratic = jnp.diag((wins.T**2).sum(1)) - wins.T * wins
    ones = jnp.ones(k, wins.dtype)
    system = jnp.block([[quadratic, ones[:, None]], [ones[None], jnp.zeros((1, 1), wins.dtype)]])
    found = jnp.linalg.solve(system, jnp.zeros(k + 1, wins.dtype).at[k].set(1))[:k]
    found = jnp.maximum(found, 1e-12)
    return found / found.sum()
