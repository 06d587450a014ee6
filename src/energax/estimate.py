"""A number that admits its uncertainty: value, standard error, and what kind of claim it is."""

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


def _combined(a: Kind, b: Kind) -> Kind:
    """A sum is a bound only if both terms err in the same direction."""
    if a == b or b == "exact":
        return a
    return b if a == "exact" else "estimate"


class Estimate:
    """A value (or one for each row) with its standard error and its kind.

    Arithmetic keeps both honest: errors of independent terms add in quadrature, and the
    difference of two lower bounds is no bound at all, only an estimate. `shared` is the part of
    `stderr` that is the same error in every row, such as that of one estimated log Z: a mean
    over rows does not average it away. `df` is the number of degrees of freedom of the rest, where
    that was judged by a spread between rows: few rows know their own spread badly, and `interval`
    is wider for it, after Student.

    >>> a, b = Estimate(-18.0, 0.3, "lower bound"), Estimate(-17.0, 0.4, "lower bound")
    >>> a - b
    -1.000 ± 0.500 (estimate)
    >>> (a + 1.0).kind, (-a).kind
    ('lower bound', 'upper bound')
    """

    __slots__ = ("df", "kind", "method", "shared", "stderr", "value")
    __array_priority__ = 100  # so that NumPy scalars defer to our operators

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

    # Compared by value alone: whether a difference means anything, its standard error tells.
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
        shared = float(np.hypot(self._in_all_of(other), other._in_all_of(self)))
        return Estimate(
            self.value + other.value,
            np.hypot(self.stderr, other.stderr),
            _combined(self.kind, other.kind),
            self.method if self.method == other.method else "",
            shared,
            # Of two spreads the one that is known worse: wide enough for both.
            min((e.df for e in (self, other) if e.df is not None), default=None),
        )

    def _in_all_of(self, other: Estimate) -> float:
        """The error that this term brings to every row of a sum: all of it, if it is one number for many."""
        spread_out = not self.value.ndim and other.value.ndim
        return float(self.stderr) if spread_out else self.shared

    __radd__ = __add__

    def __sub__(self, other: Any) -> Estimate:
        return self + (-other if isinstance(other, Estimate) else -np.asarray(other))

    def __rsub__(self, other: Any) -> Estimate:
        return (-self) + other

    def __mul__(self, factor: Any) -> Estimate:
        if isinstance(factor, Estimate):
            raise TypeError("multiply an Estimate by a plain number: a product has no simple kind")
        factor = np.asarray(factor)
        kind = self.kind
        if kind in ("lower bound", "upper bound"):
            negative = factor < 0
            if negative.any():
                kind = _FLIPPED[kind] if negative.all() else "estimate"
        # One number for many rows brings all of its error to each.
        everywhere = float(self.stderr) if factor.ndim and not self.value.ndim else self.shared
        shared = everywhere * float(np.abs(factor).max(initial=0.0))
        return Estimate(self.value * factor, self.stderr * np.abs(factor), kind, self.method, shared, self.df)

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Estimate:
        return self * (1.0 / np.asarray(divisor))

    def mean(self, weights: Any = None) -> Estimate:
        """The mean over rows; its standard error covers which rows were drawn *and* each row's own.

        One row says nothing of the spread between rows, so the error of its mean is infinite:

        >>> Estimate([-18.0, -17.0, -19.0]).mean(), Estimate([-18.0]).mean().interval()
        (-18.000 ± 0.577 (exact), (-inf, inf))
        """
        if not self.value.ndim:
            return self
        w = self._shares(weights)
        mean = float((w * self.value).sum())
        df = 1.0 / (w**2).sum() - 1.0  # rows that count, less one
        # The spread between rows already contains the noise within them.
        spread = float((w * (self.value - mean) ** 2).sum())
        alone = np.count_nonzero(w) == 1
        variance = np.inf if alone else spread / df
        within = float((w**2 * self._own_variance()).sum())
        error = np.sqrt(max(variance, within) + self.shared**2)
        return Estimate(mean, error, self.kind, self.method, self.shared, None if alone else df)

    def _shares(self, weights: Any) -> np.ndarray:
        """The weights of the rows, as shares of their sum."""
        try:
            w = np.ones(self.value.shape) if weights is None else np.asarray(weights, float)
        except (TypeError, ValueError):
            raise BadInput("weights", repr(weights), "one number for each row") from None
        if w.shape != self.value.shape:
            raise BadInput("weights", f"shape {w.shape}", f"one for each row, shape {self.value.shape}")
        if not w.size:
            raise BadInput("mean", "no rows", "at least one")
        if not (np.isfinite(w) & (w >= 0)).all() or not w.any():
            raise BadInput("weights", f"{w.min()} to {w.max()}", "finite numbers >= 0, not all 0")
        return w / w.sum()

    def sum(self) -> Estimate:
        shared = self.shared * self.value.size
        error = np.sqrt(self._own_variance().sum() + shared**2)
        return Estimate(self.value.sum(), error, self.kind, self.method, shared)

    def _own_variance(self) -> np.ndarray:
        """Each row's variance without the part that is shared by all."""
        return np.maximum(self.stderr.astype(float) ** 2 - self.shared**2, 0.0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The values alone, for code that knows nothing of their errors."""
        return np.array(self.value, dtype=dtype)

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """The symmetric interval of this level: Student's for a mean over rows, else the normal one.

        The part of the error that all rows share is normal in any case; the half-widths of the two
        parts add in quadrature.
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
