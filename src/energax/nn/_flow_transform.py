"""Increasing functions of one number whose parameters a network computes: affine, rational-quadratic."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import is_real
from .._util.xla import softplus
from ..errors import BadInput, check_memory, check_number, check_whole_number, describe


class Transform(eqx.Module):
    """An increasing function of every coordinate, u_i = g(x_i; p_i), with parameters p_i (n_parameters,).

    Both methods take values (m,) and parameters (m, n_parameters), and return values and the logarithms of
    the derivatives, (m,). Parameters 0 are the identity.
    """

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of parameters of each coordinate."""

    @abstractmethod
    def forward(self, x: Any, parameters: Any) -> tuple[Any, Any]:
        """Return u and log ∂u/∂x."""

    @abstractmethod
    def inverse(self, u: Any, parameters: Any) -> tuple[Any, Any]:
        """Return x and log ∂x/∂u."""


class AffineTransform(Transform):
    """u = x exp(s) + t, with the bounded log-scale s = b tanh(p₁ / b) and t = p₂.

    Args:
        bound: b; a bounded scale bounds the digits that the inverse can lose.

    Dinh, Sohl-Dickstein and Bengio (2017), Density estimation using Real NVP.

    >>> AffineTransform().forward(jnp.ones(2), jnp.array([[0.0, 0.0], [0.0, 3.0]]))
    (Array([1., 4.], dtype=float32), Array([0., 0.], dtype=float32))
    """

    bound: float = eqx.field(static=True, default=3.0)

    def __check_init__(self):
        check_number("bound", self.bound, lambda v: v > 0, "a number > 0")

    @property
    def n_parameters(self):
        return 2

    def _scale_shift(self, parameters):
        return self.bound * jnp.tanh(parameters[:, 0] / self.bound), parameters[:, 1]

    def forward(self, x, parameters):
        log_scale, shift = self._scale_shift(parameters)
        return x * jnp.exp(log_scale) + shift, log_scale

    def inverse(self, u, parameters):
        log_scale, shift = self._scale_shift(parameters)
        return (u - shift) * jnp.exp(-log_scale), -log_scale


class SplineTransform(Transform):
    """A monotone rational-quadratic spline on [−b, b], and the identity outside.

    In a bin of width w, height h, slope s = h / w and slopes d₀, d₁ at its ends, at ξ = (x − x₀) / w,

        u = u₀ + h (s ξ² + d₀ ξ(1 − ξ)) / (s + (d₀ + d₁ − 2s) ξ(1 − ξ)).

    Its inverse is the root of a quadratic, followed by one step of Newton's method, which restores the
    digits that the root loses where the slopes at the ends differ much.

    Args:
        n_bins: the number of bins, each with a width and a height; the slopes are at the inner knots.
        bound: b.
        least: the least width and height of a bin, as a fraction of 2b, and the least slope.

    Durkan, Bekasov, Murray and Papamakarios (2019), Neural spline flows; Gregory and Delbourgo (1982),
    Piecewise rational quadratic interpolation to monotonic data.

    >>> SplineTransform(4).forward(jnp.array([-7.0, 0.5]), jnp.zeros((2, 11)))[0].round(6)
    Array([-7. ,  0.5], dtype=float32)
    """

    n_bins: int = eqx.field(static=True, default=8)
    bound: float = eqx.field(static=True, default=5.0)
    least: float = eqx.field(static=True, default=1e-3)

    def __check_init__(self):
        check_whole_number("n_bins", self.n_bins)
        check_memory("n_bins", self.n_bins, 3 * self.n_bins, "the parameters of one coordinate", 4)
        check_number("bound", self.bound, lambda v: v > 0, "a number > 0")
        if not is_real(self.least) or not 0 < self.least * self.n_bins < 1:
            raise BadInput("least", describe(self.least), f"a number between 0 and 1 / {self.n_bins}")

    @property
    def n_parameters(self):
        return 3 * self.n_bins - 1

    def _knots(self, raw: Any) -> Any:
        """Return the positions of all knots but the last, and the sizes of all bins, both (m, n_bins)."""
        share = self.least + (1 - self.least * self.n_bins) * jax.nn.softmax(raw, axis=-1)
        sizes = 2 * self.bound * share
        starts = jnp.cumsum(sizes[:, :-1], axis=-1) - self.bound
        return jnp.concatenate([jnp.full_like(sizes[:, :1], -self.bound), starts], axis=-1), sizes

    def _bins(self, parameters: Any) -> tuple[Any, Any, Any]:
        """Return (starts, sizes) of all bins along x and along u, and the slopes at both ends."""
        k = self.n_bins
        # Parameters 0 give slopes 1, as outside.
        at_zero = math.log(math.expm1(1 - self.least))
        inner = self.least + softplus(parameters[:, 2 * k :] + at_zero)
        one = jnp.ones_like(parameters[:, :1])
        slopes = jnp.concatenate([one, inner], -1), jnp.concatenate([inner, one], -1)
        return self._knots(parameters[:, :k]), self._knots(parameters[:, k : 2 * k]), slopes

    def _select(self, value: Any, by: Any, bins: Any) -> tuple[Any, ...]:
        """Return (x₀, w, u₀, h, d₀, d₁) of the bin in which a value is, by the starts of the bins in `by`."""
        (x, w), (u, h), (left, right) = bins
        index = (value[:, None] >= by[:, 1:]).sum(-1)
        # A sum over a mask: the gradient of an indexed read is a scatter, which is slow on CPUs.
        here = index[:, None] == jnp.arange(self.n_bins)
        return tuple(jnp.where(here, a, 0).sum(-1) for a in (x, w, u, h, left, right))

    def forward(self, x, parameters):
        bins = self._bins(parameters)
        inside = jnp.abs(x) < self.bound
        held = jnp.where(inside, x, 0)
        u, log_slope = _spline(held, self._select(held, bins[0][0], bins))
        return jnp.where(inside, u, x), jnp.where(inside, log_slope, 0)

    def inverse(self, u, parameters):
        bins = self._bins(parameters)
        inside = jnp.abs(u) < self.bound
        held = jnp.where(inside, u, 0)
        here = self._select(held, bins[1][0], bins)
        x0, w = here[:2]
        x = jnp.clip(_inverse_spline(held, here), x0, x0 + w)
        value, log_slope = _spline(x, here)
        x = jnp.clip(x - (value - held) * jnp.exp(-log_slope), x0, x0 + w)
        _, log_slope = _spline(x, here)
        return jnp.where(inside, x, u), jnp.where(inside, -log_slope, 0)


def _spline(x: Any, bin: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return u and log ∂u/∂x of values in their bins."""
    x0, w, u0, h, d0, d1 = bin
    s, xi = h / w, (x - x0) / w
    mixed = xi * (1 - xi)
    denominator = s + (d0 + d1 - 2 * s) * mixed
    u = u0 + h * (s * xi**2 + d0 * mixed) / denominator
    slope = d1 * xi**2 + 2 * s * mixed + d0 * (1 - xi) ** 2
    return u, 2 * jnp.log(s / denominator) + jnp.log(slope)


def _inverse_spline(u: Any, bin: tuple[Any, ...]) -> Any:
    """Return x of values u in their bins: the root of a quadratic, in the form that does not cancel."""
    x0, w, u0, h, d0, d1 = bin
    s, rise = h / w, u - u0
    curved = rise * (d0 + d1 - 2 * s)
    a, b, c = h * (s - d0) + curved, h * d0 - curved, -s * rise
    root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, jnp.finfo(u.dtype).tiny))
    return x0 + w * 2 * c / (-b - root)
