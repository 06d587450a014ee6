"""`Kernel`, the base class, the two constant kernels, and sums and products of kernels."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from abc import abstractmethod
from collections.abc import Callable
from numbers import Real as RealNumber
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import check_each, instance
from .._util.arrays import asarray
from .._util.hyperparameter import hyperparameter
from ..errors import BadInput, as_numbers, describe
from ..programs import jit
from ..spaces import Positive, is_concrete, parameter

#: The most numbers of a hyperparameter in the repr of a kernel.
_MOST_SHOWN = 10


def check_scalar(name: str, value: Any) -> None:
    """Raise if a hyperparameter that must be one number is a vector."""
    if eqx.is_array(value) and value.ndim and is_concrete(value):
        raise BadInput(name, f"an array of shape {value.shape}", "one number > 0")


class Kernel(eqx.Module):
    """k(x, y): a symmetric function whose matrix over any points is positive semi-definite.

    A subclass has `_matrix`, `_diagonal` and hyperparameters declared by `parameter(Positive())`, which
    learners change in unconstrained coordinates. k1 + k2, k1 * k2 and number * k are kernels.

    >>> import numpy as np
    >>> from energax.kernels import RBF
    >>> kernel = 2.0 * RBF(length_scale=0.5)
    >>> X = np.array([[0.0], [0.5]])
    >>> np.round(kernel.matrix(X), 3)
    Array([[2.   , 1.213],
           [1.213, 2.   ]], dtype=float32)

    Rasmussen and Williams (2006), Gaussian processes for machine learning, chapter 4.
    """

    @abstractmethod
    def _matrix(self, X: Any, Y: Any) -> Any:
        """k of all pairs of rows (n, d) and (m, d): (n, m). Y is None for the pairs of X with itself."""

    @abstractmethod
    def _diagonal(self, X: Any) -> Any:
        """k(x, x) of every row, (n,)."""

    @property
    def n_dims(self) -> int | None:
        """The number of columns that the hyperparameters are for; None if any."""
        sizes = [leaf.shape[-1] for leaf in jax.tree.leaves(self) if eqx.is_array(leaf) and leaf.ndim]
        return max(sizes, default=None)

    def __call__(self, x: Any, y: Any = None) -> Any:
        """k(x, y) of two points (d,); without y the variance k(x, x) of one point."""
        x = jnp.atleast_1d(jnp.asarray(x))[None]
        if y is None:
            return self.diagonal(x)[0]
        return self.matrix(x, jnp.atleast_1d(jnp.asarray(y))[None])[0, 0]

    def matrix(self, X: Any, Y: Any = None) -> Any:
        """Return k of all pairs of rows of X (n, d) and Y (m, d), (n, m); of X with itself if Y is None."""
        X = self._check_points(X, "X")
        Y = None if Y is None else self._check_points(Y, "Y", X.shape[1])
        return _compiled_matrix(self, X, Y)

    def diagonal(self, X: Any) -> Any:
        """Return k(x, x) of every row of X (n, d), (n,): the diagonal of `matrix(X)`."""
        return _compiled_diagonal(self, self._check_points(X, "X"))

    def by_index(self, X: Any) -> Callable[[Any, Any], Any]:
        """Return f(i, j), the values of k between rows i (m,) and j (q,) of X, (m, q); j is None for all.

        What depends on X alone is computed once. A value of a row with itself is that of two different rows.

        >>> from energax.kernels import Linear
        >>> Linear().by_index(jnp.array([[0.0], [1.0], [3.0]]))(jnp.array([1]), None)
        Array([[0., 1., 3.]], dtype=float32)
        """
        take = lambda i: jnp.take(X, i, axis=0)
        return lambda i, j=None: self._matrix(take(i), X if j is None else take(j))

    def astype(self, dtype: Any) -> Self:
        """Return the same kernel with hyperparameters of this dtype."""
        # NumPy converts without a program; float64 needs 64 bits to be enabled.
        with jax.enable_x64(np.dtype(dtype) == np.float64):
            cast = lambda leaf: asarray(np.asarray(leaf, dtype)) if is_concrete(leaf) else leaf.astype(dtype)
            return jax.tree.map(lambda leaf: cast(leaf) if eqx.is_inexact_array(leaf) else leaf, self)

    @property
    def theta(self) -> np.ndarray:
        """The logarithms of all hyperparameters in one vector, in the order of `jax.tree.leaves`."""
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(self)]
        return np.log(np.concatenate([np.zeros(0), *leaves]).astype(np.float64))

    def with_theta(self, theta: Any) -> Self:
        """Return the same kernel with hyperparameters exp(theta), in float64."""
        leaves, treedef = jax.tree.flatten(self)
        theta = np.asarray(as_numbers("theta", theta, "one number per hyperparameter"), np.float64)
        ends = np.cumsum([0, *(leaf.size for leaf in leaves)])
        if theta.shape != (ends[-1],):
            raise BadInput("theta", f"shape {theta.shape}", f"({ends[-1]},), one number per hyperparameter")
        parts = [np.exp(theta[a:b]) for a, b in itertools.pairwise(ends)]
        with jax.enable_x64(True):
            new = [asarray(part.reshape(leaf.shape)) for part, leaf in zip(parts, leaves, strict=True)]
        return jax.tree.unflatten(treedef, new)

    def _check_points(self, X: Any, name: str, n_columns: int | None = None) -> Any:
        X = as_numbers(name, X, "points as rows, (n, d)")
        if X.dtype.kind != "f":
            X = X.astype(np.float64)
        if X.ndim != 2:
            raise BadInput(name, f"shape {X.shape}", "points as rows, (n, d)", "Reshape it to (n, 1).")
        for expected in (n_columns, self.n_dims):
            if expected is not None and X.shape[1] != expected:
                raise BadInput(name, f"{X.shape[1]} columns", f"{expected}, one per length scale, as in X")
        return asarray(X)

    # -- the algebra -----------------------------------------------------------------------

    def __add__(self, other: Any) -> Sum:
        return Sum((self, as_kernel(other, "+")))

    def __radd__(self, other: Any) -> Kernel:
        if isinstance(other, int) and other == 0:
            return self  # so that sum([k1, k2]) is k1 + k2
        return Sum((as_kernel(other, "+"), self))

    def __mul__(self, other: Any) -> Product:
        return Product((self, as_kernel(other, "*")))

    def __rmul__(self, other: Any) -> Product:
        return Product((as_kernel(other, "*"), self))

    def __repr__(self) -> str:
        """Return the expression that makes the kernel, with the values of its hyperparameters."""
        fields = ((f.name, getattr(self, f.name)) for f in dataclasses.fields(self) if f.repr)
        return f"{type(self).__name__}({', '.join(f'{name}={_show(value)}' for name, value in fields)})"


def _show(value: Any) -> str:
    """Return a hyperparameter to four digits, or the shape of one that is not known or has many numbers."""
    if not eqx.is_array(value):
        return repr(value)
    if not is_concrete(value) or value.size > _MOST_SHOWN:
        return str(eqx.tree_pformat(value))
    numbers = [f"{float(number):.4g}" for number in np.ravel(np.asarray(value))]
    return f"[{', '.join(numbers)}]" if value.ndim else numbers[0]


@jit
def _compiled_matrix(kernel: Kernel, X: Any, Y: Any) -> Any:
    return kernel._matrix(X, Y)


@jit
def _compiled_diagonal(kernel: Kernel, X: Any) -> Any:
    return kernel._diagonal(X)


def as_kernel(value: Any, sign: str) -> Kernel:
    """Return a kernel as it is, and a number > 0 as the constant kernel."""
    if isinstance(value, Kernel):
        return value
    if isinstance(value, RealNumber) or (eqx.is_array(value) and not value.ndim):
        return Constant(value)
    raise BadInput(f"kernel {sign} …", describe(value), "a kernel, or a number > 0")


class Constant(Kernel):
    """k(x, y) = c, the variance of a random offset.

    Args:
        constant_value: c > 0.

    >>> import numpy as np
    >>> Constant(3.0).matrix(np.zeros((1, 2)), np.ones((2, 2)))
    Array([[3., 3.]], dtype=float32)
    """

    constant_value: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="constant_value")
    )

    def __check_init__(self):
        check_scalar("constant_value", self.constant_value)

    def _matrix(self, X, Y):
        return jnp.full((len(X), len(X if Y is None else Y)), self.constant_value, X.dtype)

    def _diagonal(self, X):
        return jnp.full(len(X), self.constant_value, X.dtype)


class White(Kernel):
    """Independent noise of every observation: `matrix(X)` is σ²I, and `matrix(X, Y)` is 0.

    Equal rows are different observations, as in scikit-learn, so k(x, y) = 0 for every pair and the variance
    k(x) is σ².

    Args:
        noise_level: σ² > 0.

    >>> import numpy as np
    >>> White(0.5).matrix(np.zeros((2, 1)))
    Array([[0.5, 0. ],
           [0. , 0.5]], dtype=float32)
    """

    noise_level: jax.Array = parameter(
        Positive(), default=1.0, converter=functools.partial(hyperparameter, name="noise_level")
    )

    def __check_init__(self):
        check_scalar("noise_level", self.noise_level)

    def _matrix(self, X, Y):
        if Y is not None:
            return jnp.zeros((len(X), len(Y)), X.dtype)
        return jnp.eye(len(X), dtype=X.dtype) * self.noise_level.astype(X.dtype)

    def _diagonal(self, X):
        return jnp.full(len(X), self.noise_level, X.dtype)


_KERNEL = instance(Kernel, "a kernel of energax.kernels", "Try RBF().")


def _as_kernels(values: Any) -> tuple[Kernel, ...]:
    return check_each("kernels", values, _KERNEL, "kernels of energax.kernels")


class _Combination(Kernel):
    kernels: tuple[Kernel, ...] = eqx.field(converter=_as_kernels)
    #: Between two kernels in the repr.
    sign: ClassVar[str] = ""

    def __check_init__(self):
        if not self.kernels:
            raise BadInput("kernels", "none", "at least one kernel")

    def __repr__(self) -> str:
        if len(self.kernels) < 2 or all(isinstance(k, Constant) for k in self.kernels):
            return super().__repr__()
        return f" {self.sign} ".join(self._show_part(k) for k in self.kernels)

    def _show_part(self, part: Kernel) -> str:
        if isinstance(part, Constant) and is_concrete(part.constant_value):
            return _show(part.constant_value)
        return f"({part})" if self.sign == "*" and isinstance(part, Sum) else repr(part)


class Sum(_Combination):
    """k1 + k2 + …: independent functions are added. Written k1 + k2.

    Args:
        kernels: the terms.

    >>> import numpy as np
    >>> (Constant(1.0) + White(2.0)).diagonal(np.zeros((2, 1)))
    Array([3., 3.], dtype=float32)
    """

    sign: ClassVar[str] = "+"

    def _matrix(self, X, Y):
        return functools.reduce(operator.add, [k._matrix(X, Y) for k in self.kernels])

    def _diagonal(self, X):
        return functools.reduce(operator.add, [k._diagonal(X) for k in self.kernels])


class Product(_Combination):
    """k1 · k2 · …, the product of kernels. Written k1 * k2, or with a variance, 2.0 * k.

    Args:
        kernels: the factors.

    Schur (1911): the elementwise product of positive semi-definite matrices is positive semi-definite.

    >>> import numpy as np
    >>> (3.0 * White(2.0)).diagonal(np.zeros((2, 1)))
    Array([6., 6.], dtype=float32)
    """

    sign: ClassVar[str] = "*"

    def _matrix(self, X, Y):
        return functools.reduce(operator.mul, [k._matrix(X, Y) for k in self.kernels])

    def _diagonal(self, X):
        return functools.reduce(operator.mul, [k._diagonal(X) for k in self.kernels])
