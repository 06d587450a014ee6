"""`Estimate`: a value with its standard error and its kind (exact, a bound, an estimate)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from .errors import BadInput

Kind = Literal["exact", "lower bound", "upper bound", "estimate"]
KINDS: tuple[Kind, ...] = ("exact", "lower bound", "upper bound", "estimate")
_FLIPPED: dict[Kind, Kind] = {
    "exact": "exact",
    "lower bound": "upper bound",
    "upper bound": "lower bound",
    "estimate": "estimate",
}


def _kind_of_sum(a: Kind, b: Kind) -> Kind:
    """The kind of a sum: a bound only if both terms are bounds from the same side, or exact."""
    if a == b or b == "exact":
        return a
    return b if a == "exact" else "estimate"


class Estimate:
    """A value (or one per row) with its standard error and its kind.

    Arithmetic propagates both: standard errors of independent terms add in quadrature, and the
    difference of two lower bounds is only an estimate. `shared` is the part of `stderr` that is the same
    error in every row, such as that of one estimated log Z; it does not decrease in a mean over rows. `df`
    is the number of degrees of freedom of the rest, if it was estimated from the spread between rows;
    `interval` then uses Student's t distribution.

    >>> a, b = Estimate(-18.0, 0.3, "lower bound"), Estimate(-17.0, 0.4, "lower bound")
    >>> a - b
    -1.000 ± 0.500 (estimate)
    >>> (a + 1.0).kind, (-a).kind
    ('lower bound', 'upper bound')
    """

    __slots__ = ("df", "kind", "method", "shared", "stderr", "value")
    __array_priority__ = 100  # NumPy scalars defer to the operators below

    def __init__(
        self,
        value: Any,
        stderr: Any = 0.0,
        kind: Kind = "exact",
        method: str = "",
        shared: float = 0.0,
        df: float | None = None,
    ):
        if kind not in KINDS:
            raise BadInput("kind", repr(kind), f"one of {', '.join(KINDS)}")
        self.value = np.asarray(value)
        if self.value.dtype.kind not in "f":
            self.value = self.value.astype(float)
        self.stderr = np.broadcast_to(np.asarray(stderr, self.value.dtype), self.value.shape)
        if (self.stderr < 0).any():
            raise BadInput("stderr", f"{self.stderr.min()}", "a number >= 0")
        self.kind: Kind = kind
        self.method = method
        self.shared = float(shared)
        self.df = None if df is None else float(df)

    def __repr__(self) -> str:
        if self.value.ndim:
            noun = f"{self.value.size} values, mean {self.value.mean():.3f}"
            return f"Estimate({noun}, {self.kind})"
        error = f" ± {float(self.stderr):.3f}" if float(self.stderr) else ""
        return f"{float(self.value):.3f}{error} ({self.kind})"

    def __float__(self) -> float:
        return float(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Estimate:
        return Estimate(self.value[index], self.stderr[index], self.kind, self.method, self.shared, self.df)

    def __neg__(self) -> Estimate:
        return Estimate(-self.value, self.stderr, _FLIPPED[self.kind], self.method, self.shared, self.df)

    def __abs__(self) -> Estimate:
        kind = self.kind if self.kind == "exact" else "estimate"
        return Estimate(np.abs(self.value), self.stderr, kind, self.method, self.shared, self.df)

    # Comparisons use the value alone. To judge a difference, use its standard error.
    def __lt__(self, other: Any) -> Any:
        return self.value < np.asarray(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= np.asarray(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > np.asarray(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= np.asarray(other)

    def __add__(self, other: Any) -> Estimate:
        other = other if isinstance(other, Estimate) else Estimate(other, method=self.method)
        shared = float(np.hypot(self._shared_with(other), other._shared_with(self)))
        return Estimate(
            self.value + other.value,
            np.hypot(self.stderr, other.stderr),
            _kind_of_sum(self.kind, other.kind),
            self.method if self.method == other.method else "",
            shared,
            # The smaller number of degrees of freedom gives the wider interval.
            min((e.df for e in (self, other) if e.df is not None), default=None),
        )

    def _shared_with(self, other: Estimate) -> float:
        """The error that this term contributes to every row of a sum: all of it if it is broadcast."""
        is_broadcast = not self.value.ndim and other.value.ndim
        return float(self.stderr) if is_broadcast else self.shared

    __radd__ = __add__

    def __sub__(self, other: Any) -> Estimate:
        return self + (-other if isinstance(other, Estimate) else -np.asarray(other))

    def __rsub__(self, other: Any) -> Estimate:
        return (-self) + other

    def __mul__(self, factor: Any) -> Estimate:
        if isinstance(factor, Estimate):
            raise TypeError("An Estimate can only be multiplied by a plain number; got another Estimate.")
        factor = np.asarray(factor)
        kind = self.kind
        if kind in ("lower bound", "upper bound"):
            negative = factor < 0
            if negative.any():
                kind = _FLIPPED[kind] if negative.all() else "estimate"
        # The error of a number that is broadcast to many rows is shared by all of them.
        shared = float(self.stderr) if factor.ndim and not self.value.ndim else self.shared
        shared *= float(np.abs(factor).max(initial=0.0))
        return Estimate(self.value * factor, self.stderr * np.abs(factor), kind, self.method, shared, self.df)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Estimate:
        return self * (1.0 / np.asarray(divisor))

    def mean(self, weights: Any = None) -> Estimate:
        """The mean over rows; its standard error covers the sampling of rows *and* the error of each row.

        The spread between rows cannot be estimated from one row, so the error of its mean is infinite:

        >>> Estimate([-18.0, -17.0, -19.0]).mean(), Estimate([-18.0]).mean().interval()
        (-18.000 ± 0.577 (exact), (-inf, inf))
        """
        if not self.value.ndim:
            return self
        w = self._normalised_weights(weights)
        mean = float((w * self.value).sum())
        df = 1.0 / (w**2).sum() - 1.0  # the effective number of rows, less one
        # The spread between rows already includes the errors within rows.
        spread = float((w * (self.value - mean) ** 2).sum())
        is_single = np.count_nonzero(w) == 1
        variance = np.inf if is_single else spread / df
        within = float((w**2 * self._own_variance()).sum())
        error = np.sqrt(max(variance, within) + self.shared**2)
        return Estimate(mean, error, self.kind, self.method, self.shared, None if is_single else df)

    def _normalised_weights(self, weights: Any) -> np.ndarray:
        """The weights of the rows, divided by their sum."""
        try:
            w = np.ones(self.value.shape) if weights is None else np.asarray(weights, float)
        except (TypeError, ValueError):
            raise BadInput("weights", repr(weights), "one number per row") from None
        if w.shape != self.value.shape:
            raise BadInput("weights", f"shape {w.shape}", f"one per row, shape {self.value.shape}")
        if not w.size:
            raise BadInput("mean", "no rows", "at least one")
        if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
            raise BadInput("weights", f"{w.min()} to {w.max()}", "finite numbers >= 0, not all 0")
        return w / w.sum()

    def sum(self) -> Estimate:
        """The sum over rows."""
        shared = self.shared * self.value.size
        error = np.sqrt(self._own_variance().sum() + shared**2)
        return Estimate(self.value.sum(), error, self.kind, self.method, shared)

    def _own_variance(self) -> np.ndarray:
        """The variance of every row without the shared part."""
        return np.maximum(self.stderr.astype(float) ** 2 - self.shared**2, 0.0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The values alone, without their errors."""
        return np.array(self.value, dtype=dtype)

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """The symmetric interval of this level, by Student's t for a mean over rows, else normal.

        The shared part of the error is treated as normal in any case; the half-widths of the two parts add
        in quadrature.
        """
        if not 0 < level < 1:
            raise BadInput("level", repr(level), "a probability strictly between 0 and 1")
        from scipy.special import ndtri, stdtrit

        upper = 0.5 + level / 2
        half = ndtri(upper) * self.stderr
        if self.df is not None:
            half = np.hypot(
                stdtrit(self.df, upper) * np.sqrt(self._own_variance()), ndtri(upper) * self.shared
            )
        low, high = self.value - half, self.value + half
        return (float(low), float(high)) if not self.value.ndim else (low, high)
