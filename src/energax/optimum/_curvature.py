"""`curvature`: gradient and Hessian at a point, and what they say about steps and the kind of the point."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from .._util.keys import as_key, numpy_generator
from ..errors import ConvergenceWarning, Diverged, check_number, check_whole_number
from . import _vector
from ._vector import Point, as_point

Kind = Literal["minimum", "maximum", "saddle", "degenerate", "not critical", "undetermined"]
#: Up to this many variables all eigenvalues are computed; above, the two extreme ones.
DENSE = 500


@dataclasses.dataclass(frozen=True)
class Curvature:
    """The first two derivatives of a function at a point, and what follows from them."""

    value: float
    gradient: Any  #: in the structure of x
    gradient_norm: float
    hessian: np.ndarray | None  #: (n, n), in the order of the leaves of x; None for many variables
    eigenvalues: np.ndarray  #: ascending: all n, or the least and the largest
    eigenvectors: np.ndarray  #: (n, n) or (n, 2), one column per eigenvalue
    condition_number: float  #: largest / least |eigenvalue|; NaN if the least is not known
    kind: Kind
    best_step: float  #: gᵀg / gᵀHg: the step along −g to the minimum of the quadratic; ∞ if it has none
    lipschitz: float  #: the largest |eigenvalue| of H, at x or at the points of `region`
    region: str  #: where `lipschitz` was computed

    @property
    def safe_step(self) -> float:
        """1 / L: a step of gradient descent that cannot increase f where L bounds the curvature."""
        return 1.0 / self.lipschitz if self.lipschitz > 0 else np.inf

    @property
    def is_complete(self) -> bool:
        """Whether all eigenvalues are known."""
        return self.hessian is not None

    def __repr__(self) -> str:
        n = self.eigenvectors.shape[0]
        low, high = self.eigenvalues[0], self.eigenvalues[-1]
        what = "eigenvalues" if self.is_complete else "extreme eigenvalues (Lanczos)"
        return (
            f"Curvature({self.kind}, {n} variable{'s' if n > 1 else ''})\n"
            f"  value {self.value:.6g}, gradient norm {self.gradient_norm:.3g}\n"
            f"  {what} {low:.4g} to {high:.4g}, condition number {self.condition_number:.4g}\n"
            f"  best step {self.best_step:.4g}, Lipschitz constant {self.lipschitz:.4g} ({self.region}), "
            f"safe step {self.safe_step:.4g}"
        )


def curvature(
    f: Any,
    x: Any,
    *,
    tolerance: float | None = None,
    radius: float | None = None,
    n_samples: int = 64,
    key: Any = 0,
    dense: int = DENSE,
) -> Curvature:
    """Describe f near x by its gradient g and its Hessian H.

    x is a critical point if |g|_∞ ≤ tolerance · L · (1 + |x|_∞), with L = max |eigenvalue of H|: where g is
    as small as that of a quadratic of this curvature a relative distance `tolerance` away. An eigenvalue
    counts as zero below tolerance · L. The kind of a critical point is

        minimum     all eigenvalues > 0
        maximum     all < 0
        saddle      some > 0 and some < 0
        degenerate  some = 0 and no two of different sign: higher derivatives decide

    With up to `dense` variables all eigenvalues are computed. With more, the least and the largest are found
    by Lanczos iterations on products Hv, in memory for some twenty vectors; a condition number is then given
    only if both have the same sign, since the least |eigenvalue| of a saddle is not an extreme one.

    Args:
        f: a function of x that returns one number, written with jax.numpy.
        x: an array, a tree of arrays, or an energy, whose trainable parameters are the variables. Its dtype
            decides the precision.
        tolerance: by default 1e-6 for 64-bit numbers and 1e-3 for 32-bit ones.
        radius: if given, `lipschitz` is the largest |eigenvalue| at x and at `n_samples` points drawn from
            the ball of this radius around x: a lower bound of the Lipschitz constant of the gradient on the
            ball.
        n_samples: see `radius`.
        key: of the draws, and of the start of Lanczos iterations.
        dense: the most variables for which all eigenvalues are computed.

    >>> import jax.numpy as jnp
    >>> curvature(lambda x: x[0] ** 2 - 3 * x[1] ** 2, np.zeros(2))
    Curvature(saddle, 2 variables)
      value 0, gradient norm 0
      eigenvalues -6 to 2, condition number 3
      best step nan, Lipschitz constant 6 (at x), safe step 0.1667

    References: Nocedal and Wright (2006), Numerical optimization, ch. 2 and 3; Pearlmutter (1994), Fast exact
    multiplication by the Hessian; Lehoucq, Sorensen and Yang (1998), ARPACK users' guide.
    """
    point = as_point(x)
    is_double = point.vector.dtype == np.float64
    tolerance = (1e-6 if is_double else 1e-3) if tolerance is None else tolerance
    check_number("tolerance", tolerance, lambda t: 0 < t < 1, "a number between 0 and 1")
    check_whole_number("n_samples", n_samples)
    check_whole_number("dense", dense, 0)
    if radius is not None:
        check_number("radius", radius, lambda r: 0 < r < np.inf, "a number > 0")
    rng = numpy_generator(as_key(key))
    with jax.enable_x64(True) if is_double else contextlib.nullcontext():
        f = _vector.hashable(f, "f")
        _vector.check_scalar(f, point)
        return _describe(f, point, tolerance, radius, n_samples, rng, dense)


def _describe(f, point: Point, tolerance, radius, n_samples, rng, dense) -> Curvature:
    x, args = point.vector, (point.rest, point.layout)
    value, gradient = _vector.value_and_gradient(f, x, *args)
    _check_finite(value, "f")
    _check_finite(gradient, "the gradient of f")
    hessian, values, vectors = _spectrum(f, x, args, rng, dense)
    lipschitz, region = _largest(values), "at x"
    kind = _kind(gradient, x, values, lipschitz, tolerance)
    if radius is not None:
        points = _ball(x, radius, n_samples, rng)
        found = [_largest(_spectrum(f, p, args, rng, dense)[1]) for p in points]
        lipschitz = max(lipschitz, *found)
        region = f"largest at x and {n_samples} points within {radius:g}: a lower bound"
    squared = float(gradient @ gradient)
    along = float(gradient @ _vector.hessian_product(f, x, gradient, *args))
    best = np.nan if squared == 0 else (squared / along if along > 0 else np.inf)
    return Curvature(
        value=float(value),
        gradient=point.layout.unflatten(gradient),
        gradient_norm=float(np.sqrt(squared)),
        hessian=hessian,
        eigenvalues=values,
        eigenvectors=vectors,
        condition_number=_condition(values, hessian is not None),
        kind=kind,
        best_step=best,
        lipschitz=lipschitz,
        region=region,
    )


def _check_finite(values: Any, what: str) -> None:
    if not np.isfinite(values).all():
        raise Diverged(f"{what} is not finite at this x. Choose a point where f has two finite derivatives.")


def _spectrum(f, x, args, rng, dense) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """The Hessian or None, eigenvalues and eigenvectors."""
    if x.size <= max(dense, 2):
        hessian = _vector.hessian(f, x, *args)
        _check_finite(hessian, "the Hessian of f")
        hessian = (hessian + hessian.T) / 2
        return (hessian, *np.linalg.eigh(hessian))
    product = lambda direction: _vector.hessian_product(f, x, direction.astype(x.dtype), *args)
    _check_finite(product(rng.normal(size=x.size)), "the Hessian of f")
    (low, v_low), (high, v_high) = (_extreme(product, x, which, rng) for which in ("SA", "LA"))
    return None, np.array([low, high]), np.stack([v_low, v_high], axis=1)


def _extreme(product: Callable[[np.ndarray], np.ndarray], x: np.ndarray, which: str, rng) -> Any:
    """The least ("SA") or the largest ("LA") eigenvalue and its vector, NaN if Lanczos does not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    operator = LinearOperator((x.size, x.size), matvec=lambda d: product(np.ravel(d)), dtype=x.dtype)
    start = rng.normal(size=x.size).astype(x.dtype)
    try:
        values, vectors = eigsh(operator, 1, which=which, v0=start, ncv=min(x.size, 40), maxiter=100)
    except ArpackNoConvergence:
        side = "least" if which == "SA" else "largest"
        warnings.warn(
            f"The {side} eigenvalue of the Hessian was not found in 100 restarts of Lanczos. "
            f"Use dense={x.size} to compute all of them, or scale the variables.",
            ConvergenceWarning,
            stacklevel=5,
        )
        return np.nan, np.full(x.size, np.nan)
    return float(values[0]), vectors[:, 0]


def _largest(values: np.ndarray) -> float:
    return float(np.nanmax(np.abs(values))) if not np.isnan(values).all() else np.nan


def _condition(values: np.ndarray, is_complete: bool) -> float:
    sizes = np.abs(values)
    if np.isnan(values).any() or (not is_complete and values[0] < 0 < values[-1]):
        return np.nan
    return float(sizes.max() / sizes.min()) if sizes.min() > 0 else np.inf


def _kind(gradient, x, values, lipschitz, tolerance) -> Kind:
    if not np.abs(gradient).max() <= tolerance * lipschitz * (1 + np.abs(x).max()):
        return "not critical"
    if np.isnan(values).any():
        return "undetermined"
    zero = tolerance * lipschitz
    low, high = values[0], values[-1]
    if low < -zero and high > zero:
        return "saddle"
    if lipschitz > 0 and low > zero:
        return "minimum"
    return "maximum" if lipschitz > 0 and high < -zero else "degenerate"


def _ball(x: np.ndarray, radius: float, n: int, rng) -> np.ndarray:
    """n uniform draws from the ball around x."""
    directions = rng.normal(size=(n, x.size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = radius * rng.random((n, 1)) ** (1 / x.size)
    return (x + lengths * directions).astype(x.dtype)
