"""Real nodes of a Bayesian network: linear in their real parents, with Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import POSITIVE_NUMBER, check_arguments
from ..._util.arrays import asarray
from ..._util.linalg import cholesky, solve_lower
from ...energy import Energy
from ...errors import BadInput, as_numbers, describe
from ...missing import mask_of, value_of
from ...parameters import with_energy_precision
from ...spaces import Categorical, Positive, Real, fixed, is_concrete, parameter
from .factor_graph import as_array


class LinearGaussian(Energy):
    """e = −log N(child; bias[d] + Σ_j weights[d, j] parent_j, variance[d]), d the finite parents.

    A node of `BayesianNetwork`. Arrays have one leading axis for each name in `given`, in that order. An
    array without these axes starts with the same values for every d; learning then changes each d separately.

    Args:
        child: the real variable.
        parents: its real parents.
        weights: (*d, parents); zeros by default.
        bias: (*d).
        variance: (*d), positive.
        given: its finite parents.
        floor: the smallest variance that EM sets, in squared units of the child.

    Lauritzen and Wermuth (1989), Graphical models for associations between variables, some of which
    are qualitative and some quantitative.

    >>> weight = LinearGaussian("weight", ("height",), [90.0], bias=-85.0, variance=100.0)
    >>> weight(height=1.8, weight=77.0)                       # ½ log 2π·100
    Array(3.2215..., dtype=float64)
    """

    weights: jax.Array
    bias: jax.Array
    variance: jax.Array = parameter(Positive())
    child: str = eqx.field(static=True)
    parents: tuple[str, ...] = eqx.field(static=True)
    finite_parents: tuple[str, ...] = eqx.field(static=True)
    floor: float = eqx.field(static=True)

    def __init__(
        self,
        child: str,
        parents: Iterable[str] | str = (),
        weights: Any = None,
        bias: Any = 0.0,
        variance: Any = 1.0,
        given: Iterable[str] | str = (),
        *,
        floor: float = 1e-6,
    ):
        self.child, self.parents, self.finite_parents = str(child), _names(parents), _names(given)
        if len(set(self.names)) != len(self.names):
            raise BadInput("parents, given", f"{list(self.names[:-1])} for {child!r}", "different names")
        check_arguments(locals(), floor=POSITIVE_NUMBER)
        self.floor = float(floor)
        size = len(self.parents)
        weights, bias, variance = _same_precision(
            [0.0] * size if weights is None else weights, bias, variance
        )
        if weights.ndim < 1 or weights.shape[-1] != size:
            found = f"shape {weights.shape} for {size} real parents of {child!r}"
            raise BadInput("weights", found, f"(…, {size}), one per parent on the last axis")
        shape = _leading_shape(
            (weights.shape[:-1], bias.shape, variance.shape), self.finite_parents, self.child
        )
        self.weights = _broadcast(weights, (*shape, size))
        self.bias, self.variance = _broadcast(bias, shape), _broadcast(variance, shape)
        for name in ("weights", "bias", "variance"):
            array = getattr(self, name)
            if is_concrete(array) and not np.isfinite(np.asarray(array)).all():
                raise BadInput(f"the {name} of {self.child}", "a number that is not finite", "finite numbers")
        if is_concrete(self.variance) and not (np.asarray(self.variance) > 0).all():
            found = f"{np.asarray(self.variance).min():g}"
            raise BadInput(f"the variance of {self.child}", found, "numbers > 0", "To set a value, use do().")

    @property
    def names(self) -> tuple[str, ...]:
        """All parents, the finite ones first, and the child."""
        return (*self.finite_parents, *self.parents, self.child)

    @property
    def spaces(self):
        finite = zip(self.finite_parents, self.bias.shape, strict=True)
        reals = (*self.parents, self.child)
        return {**{name: Categorical(k) for name, k in finite}, **{name: Real() for name in reals}}

    def mean_and_variance(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Mean and variance of the child given its parents."""
        at = tuple(values[name] for name in self.finite_parents)
        mean = self.bias[at]
        for j, name in enumerate(self.parents):
            mean = mean + self.weights[(*at, j)] * values[name]
        return mean, self.variance[at]

    @with_energy_precision
    def __call__(self, **values):
        mean, variance = self.mean_and_variance(values)
        return 0.5 * (jnp.log(2 * jnp.pi * variance) + (values[self.child] - mean) ** 2 / variance)

    def draw_child(self, key: Any, values: Mapping[str, Any]) -> Any:
        """One draw of the child given its parents."""
        mean, variance = self.mean_and_variance(values)
        return mean + jnp.sqrt(variance) * jax.random.normal(key, (), variance.dtype)

    def with_parameters(self, weights: Any, bias: Any, variance: Any) -> LinearGaussian:
        """The same node with other parameters, in the precision of the old ones."""
        dtypes = (self.weights.dtype, self.bias.dtype, self.variance.dtype)
        arrays = [a.astype(t) for a, t in zip((weights, bias, variance), dtypes, strict=True)]
        return LinearGaussian(self.child, self.parents, *arrays, given=self.finite_parents, floor=self.floor)

    # -- learning --------------------------------------------------------------------------------

    def reference_mean(self, means: Mapping[str, Any]) -> Any:
        """The mean of the child given the parents' reference means, averaged over d with equal weights."""
        terms = [self.weights[..., j] * means[name] for j, name in enumerate(self.parents)]
        return jnp.mean(sum(terms, start=self.bias))

    def least_squares(self, moments: Any, means: Mapping[str, Any], free: Any = None) -> LinearGaussian:
        """Weighted least squares for every d, from Σ r u uᵀ with u = (1, parents, child) minus `means`.

        `free` says which of weights, bias and variance may change; the others keep their values, and the
        free ones are optimal given them. A d that does not occur keeps its parameters.
        """
        count = moments[..., 0, 0]
        occurs = count > 0
        average = moments / jnp.where(occurs, count, 1)[..., None, None]
        mean, second = average[..., 0, 1:], average[..., 1:, 1:]
        scatter = second - mean[..., :, None] * mean[..., None, :]
        offset = jnp.stack([means[name] for name in (*self.parents, self.child)])
        x, y = (mean + offset)[..., :-1], (mean + offset)[..., -1]
        # The subtraction loses digits where the reference means are far away: a bound of the error.
        rounding = 8 * jnp.finfo(scatter.dtype).eps * jnp.diagonal(second, axis1=-2, axis2=-1)
        xx, xy, yy = scatter[..., :-1, :-1], scatter[..., :-1, -1], scatter[..., -1, -1]
        is_free = lambda name: free is None or bool(getattr(free, name))
        weights, bias, variance = self.weights, self.bias, self.variance
        if is_free("weights") and self.parents:
            if is_free("bias"):
                weights = _solve(xx, xy, rounding[..., :-1])
            else:  # the bias is fixed: squares about zero, not about the mean
                about_zero = xx + x[..., :, None] * x[..., None, :]
                weights = _solve(about_zero, xy + x * (y - bias)[..., None], rounding[..., :-1])
        if is_free("bias"):
            bias = y - (weights * x).sum(-1)
        if is_free("variance"):
            gap = y - bias - (weights * x).sum(-1)
            explained = 2 * (weights * xy).sum(-1) - jnp.einsum("...i,...ij,...j->...", weights, xx, weights)
            variance = jnp.maximum(yy - explained + gap**2, jnp.maximum(rounding[..., -1], self.floor))
        keep = lambda new, old: jnp.where(occurs if new.ndim == occurs.ndim else occurs[..., None], new, old)
        return self.with_parameters(
            keep(weights, self.weights), keep(bias, self.bias), keep(variance, self.variance)
        )

    def recenter(self, moments: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
        """The sums of products about the means `new`, from those about the means `old`."""
        shift = jnp.stack([old[name] - new[name] for name in (*self.parents, self.child)])
        move = jnp.eye(len(shift) + 1, dtype=shift.dtype).at[1:, 0].set(shift)
        return jnp.einsum("ij,...jk,lk->...il", move, moments, move)

    def random_start(self, key: Any, data: Mapping[str, Any] | None, weight: Any) -> LinearGaussian:
        """The node with random parameters: with data, weights 0 and a bias spread as widely as the child."""
        mean, variance = jnp.zeros_like(self.bias), jnp.ones_like(self.variance)
        weights_key, bias_key = jax.random.split(key)
        weights = jnp.zeros_like(self.weights)
        if data is not None and self.child in data:
            column = data[self.child]
            w = weight * mask_of(column)
            total = jnp.where(w.sum() > 0, w.sum(), 1)
            center = (w * value_of(column)).sum() / total
            spread = (w * (value_of(column) - center) ** 2).sum() / total
            mean, variance = mean + center, variance * jnp.maximum(spread, self.floor)
        else:
            weights = jax.random.normal(weights_key, self.weights.shape, self.weights.dtype)
        noise = jax.random.normal(bias_key, self.bias.shape, self.bias.dtype)
        return self.with_parameters(weights, mean + jnp.sqrt(variance) * noise, variance)


class Constant(Energy):
    """A real variable with a fixed value: e = 0 at the value and ∞ elsewhere, a point mass.

    `BayesianNetwork.do(height=1.7)` replaces a node by it. It is never learned.

    >>> Constant("height", 1.7)(height=1.7)
    Array(0., dtype=float64)
    """

    value: jax.Array = fixed()
    child: str = eqx.field(static=True)

    def __init__(self, child: str, value: Any):
        self.child, self.value = str(child), _real(value)

    @property
    def parents(self) -> tuple[str, ...]:
        return ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.child,)

    @property
    def spaces(self):
        return {self.child: Real()}

    @with_energy_precision
    def __call__(self, **values):
        # Compared in single precision, so that a float32 1.7 equals a float64 1.7.
        given = asarray(values[self.child]).astype(jnp.float32)
        return jnp.where(given == self.value.astype(jnp.float32), 0, jnp.inf).astype(self.value.dtype)

    def draw_child(self, key: Any, values: Mapping[str, Any]) -> Any:
        """The value."""
        return self.value


def _names(names: Iterable[str] | str) -> tuple[str, ...]:
    if not isinstance(names, Iterable) or isinstance(names, bytes):
        raise BadInput("parents, given", describe(names), "names of variables")
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _same_precision(*arrays: Any) -> list[jax.Array]:
    """Real arrays of one dtype: the widest of the floating arrays, float64 if there are none."""
    dtypes = [a.dtype for a in arrays if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.floating)]
    dtype = max(dtypes, key=lambda d: d.itemsize, default=np.dtype(float))
    return [_real(a, dtype) for a in arrays]


def _real(values: Any, dtype: Any = None) -> jax.Array:
    if isinstance(values, jax.Array) and (dtype is None or values.dtype == dtype):
        return values
    if is_concrete(values):
        values = np.asarray(as_numbers("LinearGaussian", values, "real numbers"))
        if not np.isrealobj(values):
            raise BadInput("LinearGaussian", f"dtype {values.dtype}", "real numbers")
        return as_array(values.astype(float if dtype is None else dtype))
    return values.astype(dtype)


def _broadcast(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    if array.shape == shape:
        return array
    return (
        as_array(np.broadcast_to(np.asarray(array), shape))
        if is_concrete(array)
        else jnp.broadcast_to(array, shape)
    )


def _leading_shape(shapes: Any, given: tuple[str, ...], child: str) -> tuple[int, ...]:
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        shape = None
    if shape is None or len(shape) != len(given) or 0 in shape:
        found = f"leading shapes {shapes[0]} of weights, {shapes[1]} of bias and {shapes[2]} of variance"
        expected = f"one axis for each of the finite parents {list(given)}" if given else "no leading axes"
        raise BadInput(f"the arrays of {child}", found, expected, "Name the finite parents in given=.")
    return shape


def _solve(square: Any, right: Any, rounding: Any) -> Any:
    """square⁻¹ right for stacks of matrices that may be singular, by a small relative ridge."""
    eye = jnp.eye(square.shape[-1], dtype=square.dtype)
    spread = jnp.maximum(jnp.diagonal(square, axis1=-2, axis2=-1), 0) + rounding
    size = jnp.sqrt(jnp.where(spread > 0, spread, 1))
    scaled = (square + rounding[..., None] * eye) / (size[..., :, None] * size[..., None, :])
    scaled = scaled * (1 - eye) + (1 + jnp.finfo(square.dtype).eps ** 0.75) * eye
    inverse = solve_lower(cholesky(scaled), jnp.broadcast_to(eye, square.shape))
    return jnp.einsum("...ji,...jk,...k->...i", inverse, inverse, right / size) / size
