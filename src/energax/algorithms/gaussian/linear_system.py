"""Linear-Gaussian equations over real variables, with parameters for each value of finite variables."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ..._util.linalg import cholesky, solve_lower
from ...errors import Intractable
from ...missing import is_masked, mask_of, value_of

MAX_ENTRIES = 2**24  # in the matrices of one block: 128 MB in double precision


class BlockLayout(NamedTuple):
    """The real variables of one block (positions in the system) and the finite variables it depends on."""

    members: tuple[int, ...]
    finite_names: tuple[str, ...]
    cards: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of joint values of the finite variables."""
        return math.prod(self.cards)

    @property
    def entries(self) -> int:
        """The number of entries of the block's matrices."""
        return self.n * len(self.members) ** 2


class LinearSystem(eqx.Module):
    """x_v = bias_v[d] + Σ_j weights_v[d, j] x_j + √variance_v[d] ε_v, where d are the finite parents of v.

    `names` are in topological order. A parent that is not in `names` must be given in every row.
    The structure is static, the parameters are traced.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parents: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    finite_parents: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    weights: tuple[Any, ...]
    bias: tuple[Any, ...]
    variance: tuple[Any, ...]

    def layouts(self, observed: Collection[str]) -> tuple[BlockLayout, ...]:
        """The independent blocks once these variables, finite or real, are observed in every row.

        An edge from an observed parent only adds a constant to its child, so two equations share a block
        only if they share an unobserved variable. With all variables observed every block is one
        equation; with none observed the blocks are the connected components of the real variables.
        """
        block = list(range(len(self.names)))
        for i, parents in enumerate(self.parents):
            for parent in parents:
                if parent in self.names and parent not in observed:
                    old, new = block[self.names.index(parent)], block[i]
                    block = [new if b == old else b for b in block]
        layouts = []
        for first in dict.fromkeys(block):
            members = tuple(i for i, b in enumerate(block) if b == first)
            cards: dict[str, int] = {}
            for i in members:
                cards.update(zip(self.finite_parents[i], self.bias[i].shape, strict=True))
            hidden = {n: k for n, k in cards.items() if n not in observed}
            layout = BlockLayout(members, tuple(hidden), tuple(hidden.values()))
            self._check_size(layout)
            layouts.append(layout)
        return tuple(layouts)

    def _check_size(self, layout: BlockLayout) -> None:
        if layout.entries <= MAX_ENTRIES:
            return
        reals = ", ".join(self.names[i] for i in layout.members)
        finite = ", ".join(layout.finite_names)
        raise Intractable(
            f"An exact Gaussian over {reals}",
            f"{layout.entries:,} numbers, one covariance for each of {layout.n:,} joint values of {finite}",
            f"{MAX_ENTRIES:,}",
            "Give values of some of these variables, which cuts the network, or remove edges between them.",
        )

    def equation(self, i: int, layout: BlockLayout, finite: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """Weights (n, parents), bias (n,) and variance (n,) for every joint value of the layout's variables.

        `finite` holds the observed finite variables.
        """
        at = tuple(finite.get(name, slice(None)) for name in self.finite_parents[i])
        left = [name for name in self.finite_parents[i] if name not in finite]
        order = sorted(range(len(left)), key=lambda a: layout.finite_names.index(left[a]))
        shape = tuple(k if n in left else 1 for n, k in zip(layout.finite_names, layout.cards, strict=True))

        def expand(array):
            array = asarray(array)[at]
            more = array.shape[len(left) :]
            array = jnp.transpose(array, (*order, *range(len(left), array.ndim))).reshape(*shape, *more)
            return jnp.broadcast_to(array, (*layout.cards, *more)).reshape(layout.n, *more)

        return expand(self.weights[i]), expand(self.bias[i]), expand(self.variance[i])

    def block(
        self,
        layout: BlockLayout,
        values: Mapping[str, Any],
        finite: Mapping[str, Any],
        temperature: Any = 1.0,
    ) -> GaussianBlock:
        """The Gaussian of one block given the observed values.

        `values` are real (`Masked` where a row may lack them), `finite` the observed finite variables.
        At temperature T the densities are raised to the power 1/T.
        """
        names = tuple(self.names[i] for i in layout.members)
        observed = {name for name, value in values.items() if not is_masked(value)}
        mean, factor, scale, log_scale = self._prior(layout, values, finite, observed, temperature)
        mask = jnp.stack([mask_of(values[n]) if n in values else jnp.array(False) for n in names])
        of = lambda n: asarray(value_of(values[n]) if n in values else 0.0, mean.dtype)
        value = jnp.stack([of(n) for n in names])
        # N(x; m, v)^(1/T) is N(x; m, Tv) times this constant, which is 1 at T = 1.
        log_constant = 0.5 * _log_two_pi_times(scale**2).sum(-1) - log_scale / temperature
        if all(n in observed for n in names):  # a single equation: no matrix to factorise
            residual = ((value - mean) / scale).reshape(layout.n, -1)
            log_density = -0.5 * (residual**2 + _log_two_pi_times(scale**2)).sum(-1)
            log_peak, (_, white, residual) = log_density, _condition(mean, factor, value, mask, ())
        else:
            maybe_observed = tuple(k for k, n in enumerate(names) if n in values)
            log_density, white, residual = _condition(mean, factor, value, mask, maybe_observed)
            log_peak = -0.5 * (residual**2).sum(-1) - log_scale
        in_shape = lambda a: a.reshape(layout.cards)
        density, peak = in_shape(log_density + log_constant), in_shape(log_peak)
        finite_names, cards = layout.finite_names, layout.cards
        return GaussianBlock(
            names, finite_names, cards, density, peak, mean, factor, white, residual, mask, value
        )

    def _prior(
        self, layout: BlockLayout, values: Any, finite: Any, observed: Collection[str], temperature: Any
    ) -> tuple[Any, Any, Any, Any]:
        """x = mean + factor ε before conditioning, the noise scale of each equation and Σ ½ log 2πv.

        Shapes (n, r), (n, r, r), (n, r) and (n,) for r members.
        """
        names = tuple(self.names[i] for i in layout.members)
        means: list[Any] = []
        rows: list[Any] = []
        scales, log_scale = [], 0.0
        for k, i in enumerate(layout.members):
            weights, mean, variance = self.equation(i, layout, finite)
            row = jnp.zeros((layout.n, len(names)), variance.dtype)
            row = row.at[:, k].set(jnp.sqrt(variance * temperature))
            for j, parent in enumerate(self.parents[i]):
                if parent in observed:
                    mean = mean + weights[:, j] * values[parent]
                else:
                    at = names.index(parent)
                    mean = mean + weights[:, j] * means[at]
                    row = row + weights[:, j, None] * rows[at]
            means.append(mean)
            rows.append(row)
            scales.append(row[:, k])
            log_scale = log_scale + 0.5 * _log_two_pi_times(variance)
        return jnp.stack(means, -1), jnp.stack(rows, 1), jnp.stack(scales, -1), log_scale


def _log_two_pi_times(variance: Any) -> Any:
    return jnp.log(2 * jnp.pi * variance)


def _condition(mean: Any, factor: Any, value: Any, mask: Any, maybe_observed: tuple[int, ...]) -> Any:
    """log N(observed values), and W and r with Wε = r for the noise, W Wᵀ = 1 on the observed variables."""
    if not maybe_observed:
        n, r = mean.shape
        return jnp.zeros(n, mean.dtype), jnp.zeros((n, 0, r), mean.dtype), jnp.zeros((n, 0), mean.dtype)
    at = jnp.array(maybe_observed, int)
    mask = mask[at]
    gap = jnp.where(mask, value[at] - mean[:, at], 0)
    part = jnp.where(mask[:, None], factor[:, at], 0)
    fill = jnp.diag(jnp.where(mask, 0, 1).astype(mean.dtype))
    lower = cholesky(jnp.einsum("nij,nkj->nik", part, part) + fill)
    solved = solve_lower(lower, jnp.concatenate([part, gap[..., None]], -1))
    white, residual = solved[..., :-1], solved[..., -1]
    log_det = jnp.log(jnp.diagonal(lower, axis1=1, axis2=2)).sum(1)
    log_two_pi = _log_two_pi_times(jnp.ones((), mean.dtype))
    return -0.5 * (residual**2).sum(1) - log_det - 0.5 * log_two_pi * mask.sum(), white, residual


class GaussianBlock(eqx.Module):
    """Gaussians of r real variables given their observed values, one for each of n joint finite values d.

    Before conditioning x = mean + factor ε with ε standard normal. The observed values require
    white ε = residual, so that ε has mean whiteᵀ residual and covariance 1 − whiteᵀ white.

    `log_density` is log p(observed | d) and `log_peak` is max over hidden of log p(observed, hidden | d),
    both of shape `cards`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    finite_names: tuple[str, ...] = eqx.field(static=True)
    cards: tuple[int, ...] = eqx.field(static=True)
    log_density: Any
    log_peak: Any
    mean: Any  # (n, r)
    factor: Any  # (n, r, r)
    white: Any  # (n, s, r)
    residual: Any  # (n, s)
    observed: Any  # (r,)
    value: Any  # (r,)

    def conditional_mean(self) -> Any:
        """E[x | observed, d], (n, r)."""
        noise = jnp.einsum("nsr,ns->nr", self.white, self.residual)
        return jnp.where(self.observed, self.value, self.mean + jnp.einsum("nij,nj->ni", self.factor, noise))

    def conditional_covariance(self) -> Any:
        """Cov[x | observed, d], (n, r, r): zeros for observed variables."""
        explained = jnp.einsum("nij,nsj->nis", self.factor, self.white)
        prior = jnp.einsum("nij,nkj->nik", self.factor, self.factor)
        left = prior - jnp.einsum("nis,nks->nik", explained, explained)
        return jnp.where(self.observed[:, None] | self.observed, 0, left)

    def index(self, states: Mapping[str, Any]) -> Any:
        """The position in the first axis of a joint value of the finite variables."""
        index = jnp.zeros((), int)
        for name, card in zip(self.finite_names, self.cards, strict=True):
            index = index * card + states[name]
        return index

    def draw(self, key: Any, index: Any) -> Any:
        """One draw of x | observed, d, (r,): prior noise, projected onto white ε = residual."""
        noise = jax.random.normal(key, self.observed.shape, self.mean.dtype)
        white = self.white[index]
        noise = noise + (self.residual[index] - white @ noise) @ white
        return jnp.where(self.observed, self.value, self.mean[index] + self.factor[index] @ noise)
