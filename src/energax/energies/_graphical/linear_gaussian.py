"""Real nodes of a Bayesian network: linear in their real parents, with Gaussian noise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.linalg import cholesky, solve_lower
from ...energy import Energy
from ...errors import BadInput
from ...missing import known, mask_of
from ...parameters import with_energy_precision
from ...spaces import Categorical, Positive, Real, fixed, is_concrete, parameter
from .factor_graph import as_array


class LinearGaussian(Energy):
    """e = −log N(child; bias[d] + Σ_j weights[d, j] parent_j, variance[d]), d the finite parents.

    A node of `BayesianNetwork`. Arrays have one leading axis for each name in `given`, in that order;
    one without them is the same everywhere to begin with, and is learned apart for every d.

    Args:
        child: the real variable.
        parents: the real variables that it is linear in.
        weights: (*d, parents); zeros if left out.
        bias: (*d).
        variance: (*d), positive.
        given: the finite variables that choose the line.
        floor: the least variance that EM will set, in the square of the child's unit.

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
        if not floor > 0:
            raise BadInput("floor", repr(floor), "a variance > 0")
        self.floor = float(floor)
        size = len(self.parents)
        weights, bias, variance = _alike([0.0] * size if weights is None else weights, bias, variance)
        if weights.ndim < 1 or weights.shape[-1] != size:
            found = f"shape {weights.shape} for {size} real parents of {child!r}"
            raise BadInput("weights", found, f"(…, {size}): one for each parent on the last axis")
        shape = _lead((weights.shape[:-1], bias.shape, variance.shape), self.finite_parents, self.child)
        self.weights = _wide(weights, (*shape, size))
        self.bias, self.variance = _wide(bias, shape), _wide(variance, shape)
        for name in ("weights", "bias", "variance"):
            array = getattr(self, name)
            if is_concrete(array) and not np.isfinite(np.asarray(array)).all():
                raise BadInput(f"the {name} of {self.child}", "a number that is not finite", "real numbers")
        if is_concrete(self.variance) and not (np.asarray(self.variance) > 0).all():
            found = f"{np.asarray(self.variance).min():g}"
            raise BadInput(f"the variance of {self.child}", found, "numbers > 0", "To set a value, use do().")

    @property
    def names(self) -> tuple[str, ...]:
        """All parents, the finite ones first, and the child."""
        return (*self.finite_parents, *self.parents, self.child)

    @property
    def spaces(self):
        chosen = zip(self.finite_parents, self.bias.shape, strict=True)
        reals = (*self.parents, self.child)
        return {**{name: Categorical(k) for name, k in chosen}, **{name: Real() for name in reals}}

    def line(self, values: Mapping[str, Any]) -> tuple[Any, Any]:
        """Mean and variance of the child given its parents."""
        at = tuple(values[name] for name in self.finite_parents)
        mean = self.bias[at]
        for j, name in enumerate(self.parents):
            mean = mean + self.weights[(*at, j)] * values[name]
        return mean, self.variance[at]

    @with_energy_precision
    def __call__(self, **values):
        mean, variance = self.line(values)
        return 0.5 * (jnp.log(2 * jnp.pi * variance) + (values[self.child] - mean) ** 2 / variance)

    def drawn(self, key: Any, values: Mapping[str, Any]) -> Any:
        """The child given its parents."""
        mean, variance = self.line(values)
        return mean + jnp.sqrt(variance) * jax.random.normal(key, (), variance.dtype)

    def replaced(self, weights: Any, bias: Any, variance: Any) -> LinearGaussian:
        dtypes = (self.weights.dtype, self.bias.dtype, self.variance.dtype)
        arrays = [a.astype(t) for a, t in zip((weights, bias, variance), dtypes, strict=True)]
        return LinearGaussian(self.child, self.parents, *arrays, given=self.finite_parents, floor=self.floor)

    # -- learning --------------------------------------------------------------------------------

    def centre(self, centres: Mapping[str, Any]) -> Any:
        """About where the child lies, from where its parents do: sums of squares are taken about it."""
        at = [self.weights[..., j] * centres[name] for j, name in enumerate(self.parents)]
        return jnp.mean(sum(at, start=self.bias))

    def maximum(self, moments: Any, centres: Mapping[str, Any], moves: Any = None) -> LinearGaussian:
        """Weighted least squares for every d, from Σ r u uᵀ with u = (1, parents, child) about `centres`.

        `moves` says which of weights, bias and variance are free: the others are held, and the best of
        the free ones found beside them. A d that nobody met keeps its line.
        """
        count = moments[..., 0, 0]
        met = count > 0
        about = moments / jnp.where(met, count, 1)[..., None, None]
        mean, second = about[..., 0, 1:], about[..., 1:, 1:]
        scatter = second - mean[..., :, None] * mean[..., None, :]
        centre = jnp.stack([centres[name] for name in (*self.parents, self.child)])
        x, y = (mean + centre)[..., :-1], (mean + centre)[..., -1]
        # What the subtraction leaves behind where the centres are far: not spread, but rounding.
        rounding = 8 * jnp.finfo(scatter.dtype).eps * jnp.diagonal(second, axis1=-2, axis2=-1)
        xx, xy, yy = scatter[..., :-1, :-1], scatter[..., :-1, -1], scatter[..., -1, -1]
        free = lambda name: moves is None or bool(getattr(moves, name))
        weights, bias, variance = self.weights, self.bias, self.variance
        if free("weights") and self.parents:
            if free("bias"):
                weights = _solve(xx, xy, rounding[..., :-1])
            else:  # the line goes through a bias that is held: squares about zero, not about the mean
                about_zero = xx + x[..., :, None] * x[..., None, :]
                weights = _solve(about_zero, xy + x * (y - bias)[..., None], rounding[..., :-1])
        if free("bias"):
            bias = y - (weights * x).sum(-1)
        if free("variance"):
            gap = y - bias - (weights * x).sum(-1)
            explained = 2 * (weights * xy).sum(-1) - jnp.einsum("...i,...ij,...j->...", weights, xx, weights)
            variance = jnp.maximum(yy - explained + gap**2, jnp.maximum(rounding[..., -1], self.floor))
        keep = lambda new, old: jnp.where(met if new.ndim == met.ndim else met[..., None], new, old)
        return self.replaced(
            keep(weights, self.weights), keep(bias, self.bias), keep(variance, self.variance)
        )

    def recentred(self, moments: Any, old: Mapping[str, Any], new: Mapping[str, Any]) -> Any:
        """The same sums about other centres."""
        shift = jnp.stack([old[name] - new[name] for name in (*self.parents, self.child)])
        move = jnp.eye(len(shift) + 1, dtype=shift.dtype).at[1:, 0].set(shift)
        return jnp.einsum("ij,...jk,lk->...il", move, moments, move)

    def restarted(self, key: Any, data: Mapping[str, Any] | None, weight: Any) -> LinearGaussian:
        """Flat lines, scattered as widely as the child is in the data, so that restarts differ."""
        middle, variance = jnp.zeros_like(self.bias), jnp.ones_like(self.variance)
        slopes, offsets = jax.random.split(key)
        weights = jnp.zeros_like(self.weights)
        if data is not None and self.child in data:
            column = data[self.child]
            share = weight * mask_of(column)
            total = jnp.where(share.sum() > 0, share.sum(), 1)
            mean = (share * known(column)).sum() / total
            spread = (share * (known(column) - mean) ** 2).sum() / total
            middle, variance = middle + mean, variance * jnp.maximum(spread, self.floor)
        else:
            weights = jax.random.normal(slopes, self.weights.shape, self.weights.dtype)
        noise = jax.random.normal(offsets, self.bias.shape, self.bias.dtype)
        return self.replaced(weights, middle + jnp.sqrt(variance) * noise, variance)


class Constant(Energy):
    """A real variable that was set: e = 0 at its value and ∞ elsewhere, a point of mass one.

    What `BayesianNetwork.do(height=1.7)` puts in the place of a node. Its children are answered with the
    value in their lines; nobody learns it.

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
        # In single precision, so that 1.7 is 1.7 however it came.
        seen = jnp.asarray(values[self.child]).astype(jnp.float32)
        return jnp.where(seen == self.value.astype(jnp.float32), 0, jnp.inf).astype(self.value.dtype)


def _names(names: Iterable[str] | str) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(map(str, names))


def _alike(*arrays: Any) -> list[jax.Array]:
    """Real arrays of one precision: that of the arrays among them, or 64 bits for Python's numbers."""
    said = [a.dtype for a in arrays if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jnp.floating)]
    dtype = max(said, key=lambda d: d.itemsize, default=np.dtype(float))
    return [_real(a, dtype) for a in arrays]


def _real(values: Any, dtype: Any = None) -> jax.Array:
    if isinstance(values, jax.Array) and (dtype is None or values.dtype == dtype):
        return values
    if is_concrete(values):
        values = np.asarray(values)
        if values.dtype.kind not in "biuf":
            raise BadInput("LinearGaussian", f"dtype {values.dtype}", "real numbers")
        return as_array(values.astype(float if dtype is None else dtype))
    return values.astype(dtype)


def _wide(array: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    if array.shape == shape:
        return array
    return (
        as_array(np.broadcast_to(np.asarray(array), shape))
        if is_concrete(array)
        else jnp.broadcast_to(array, shape)
    )


def _lead(shapes: Any, given: tuple[str, ...], child: str) -> tuple[int, ...]:
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
    """square⁻¹ right for stacks of matrices that may be singular: columns that say nothing new get little."""
    eye = jnp.eye(square.shape[-1], dtype=square.dtype)
    spread = jnp.maximum(jnp.diagonal(square, axis1=-2, axis2=-1), 0) + rounding
    size = jnp.sqrt(jnp.where(spread > 0, spread, 1))
    scaled = (square + rounding[..., None] * eye) / (size[..., :, None] * size[..., None, :])
    scaled = scaled * (1 - eye) + (1 + jnp.finfo(square.dtype).eps ** 0.75) * eye
    inverse = solve_lower(cholesky(scaled), jnp.broadcast_to(eye, square.shape))
    return jnp.einsum("...ji,...jk,...k->...i", inverse, inverse, right / size) / size
