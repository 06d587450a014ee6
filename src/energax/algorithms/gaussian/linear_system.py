"""Real variables that are linear in each other with Gaussian noise, for every value of finite ones."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.linalg import cholesky, solve_lower
from ...errors import Intractable
from ...missing import is_masked, known, mask_of

MOST_NUMBERS = 2**24  # in the matrices of one block, 128 MB in double precision


class Layout(NamedTuple):
    """Real variables that depend on each other, and the finite ones that their Gaussian depends on."""

    members: tuple[int, ...]
    over: tuple[str, ...]
    cards: tuple[int, ...]

    @property
    def n(self) -> int:
        """How many joint values the finite variables have."""
        return math.prod(self.cards)

    @property
    def numbers(self) -> int:
        return self.n * len(self.members) ** 2


class LinearSystem(eqx.Module):
    """x_v = bias_v[d] + Σ_j weights_v[d, j] x_j + √variance_v[d] ε_v, d the finite parents of v.

    `names` are in an order in which causes come first. A parent that is not among them is a value
    that is always known. Structure is static and numbers are traced.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    parents: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    given: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    weights: tuple[Any, ...]
    bias: tuple[Any, ...]
    variance: tuple[Any, ...]

    def layouts(self, certain: Collection[str]) -> tuple[Layout, ...]:
        """The blocks that fall apart once these variables, finite or real, are known in every row.

        An arrow out of a known variable is a constant in its head, so that two equations belong
        together only if they share a variable that is not known. With all known, every block is one
        equation; with nothing known, blocks are the connected parts of the graph of real variables.
        """
        block = list(range(len(self.names)))
        for i, parents in enumerate(self.parents):
            for parent in parents:
                if parent in self.names and parent not in certain:
                    old, new = block[self.names.index(parent)], block[i]
                    block = [new if b == old else b for b in block]
        found = []
        for first in dict.fromkeys(block):
            members = tuple(i for i, b in enumerate(block) if b == first)
            cards: dict[str, int] = {}
            for i in members:
                cards.update(zip(self.given[i], self.bias[i].shape, strict=True))
            free = {n: k for n, k in cards.items() if n not in certain}
            layout = Layout(members, tuple(free), tuple(free.values()))
            if layout.numbers > MOST_NUMBERS:
                self._check_size(layout)
            found.append(layout)
        return tuple(found)

    def _check_size(self, layout: Layout) -> None:
        reals = ", ".join(self.names[i] for i in layout.members)
        choices = ", ".join(layout.over)
        raise Intractable(
            f"An exact Gaussian over {reals}",
            f"{layout.numbers:,} numbers, one covariance for each of {layout.n:,} joint values of {choices}",
            f"{MOST_NUMBERS:,}",
            "Give values of some of these variables, which cuts the network, or leave out arrows among them.",
        )

    def equation(self, i: int, layout: Layout, chosen: Mapping[str, Any]) -> tuple[Any, Any, Any]:
        """weights (n, parents), bias (n,) and variance (n,) for every joint value of `layout.over`."""
        at = tuple(chosen.get(name, slice(None)) for name in self.given[i])
        left = [name for name in self.given[i] if name not in chosen]
        order = sorted(range(len(left)), key=lambda a: layout.over.index(left[a]))
        shape = tuple(k if n in left else 1 for n, k in zip(layout.over, layout.cards, strict=True))

        def spread(array):
            array = jnp.asarray(array)[at]
            more = array.shape[len(left) :]
            array = jnp.transpose(array, (*order, *range(len(left), array.ndim))).reshape(*shape, *more)
            return jnp.broadcast_to(array, (*layout.cards, *more)).reshape(layout.n, *more)

        return spread(self.weights[i]), spread(self.bias[i]), spread(self.variance[i])

    def block(
        self, layout: Layout, values: Mapping[str, Any], chosen: Mapping[str, Any], temperature: Any = 1.0
    ) -> GaussianBlock:
        """The Gaussian of one block given what is known of its variables.

        `values` are real (`Masked` where a row may lack them), `chosen` finite ones that are known. At a
        temperature T the densities are taken to the power 1/T.
        """
        names = tuple(self.names[i] for i in layout.members)
        certain = {name for name, value in values.items() if not is_masked(value)}
        means: list[Any] = []
        rows: list[Any] = []
        scales, log_scale = [], 0.0
        for k, i in enumerate(layout.members):
            weights, mean, variance = self.equation(i, layout, chosen)
            row = jnp.zeros((layout.n, len(names)), variance.dtype)
            row = row.at[:, k].set(jnp.sqrt(variance * temperature))
            for j, parent in enumerate(self.parents[i]):
                if parent in certain:
                    mean = mean + weights[:, j] * values[parent]
                else:
                    cause = names.index(parent)
                    mean = mean + weights[:, j] * means[cause]
                    row = row + weights[:, j, None] * rows[cause]
            means.append(mean)
            rows.append(row)
            scales.append(row[:, k])
            log_scale = log_scale + 0.5 * _log_two_pi_times(variance)
        mean, factor, scale = jnp.stack(means, -1), jnp.stack(rows, 1), jnp.stack(scales, -1)
        seen = jnp.stack([mask_of(values[n]) if n in values else jnp.array(False) for n in names])
        value = jnp.stack([jnp.asarray(known(values[n]) if n in values else 0.0, mean.dtype) for n in names])
        # N(x; m, v)^(1/T) is N(x; m, Tv) and this, which T = 1 makes nothing.
        normal = 0.5 * _log_two_pi_times(scale**2).sum(-1) - log_scale / temperature
        watched = tuple(k for k, n in enumerate(names) if n in values)
        if all(n in certain for n in names):  # one equation: no matrix to factor
            residual = ((value - mean) / scale).reshape(layout.n, -1)
            log_density = -0.5 * (residual**2 + _log_two_pi_times(scale**2)).sum(-1)
            log_peak, (_, white, residual) = log_density, _conditioned(mean, factor, value, seen, ())
        else:
            log_density, white, residual = _conditioned(mean, factor, value, seen, watched)
            log_peak = -0.5 * (residual**2).sum(-1) - log_scale
        shaped = lambda a: a.reshape(layout.cards)
        density, peak = shaped(log_density + normal), shaped(log_peak)
        return GaussianBlock(
            names, layout.over, layout.cards, density, peak, mean, factor, white, residual, seen, value
        )


def _log_two_pi_times(variance: Any) -> Any:
    return jnp.log(2 * jnp.pi * variance)


def _conditioned(mean: Any, factor: Any, value: Any, seen: Any, watched: tuple[int, ...]) -> Any:
    """log N(what is seen), and the noise given it: W and r with Wε = r, W Wᵀ = 1 on what is seen."""
    if not watched:
        n, r = mean.shape
        return jnp.zeros(n, mean.dtype), jnp.zeros((n, 0, r), mean.dtype), jnp.zeros((n, 0), mean.dtype)
    at = jnp.array(watched, int)
    mask = seen[at]
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
    """The Gaussians of some real variables given what is seen of them, one for each of n joint values.

    Before anything is seen, x = mean + factor ε with ε standard normal. What is seen says
    white ε = residual, so that ε has the mean whiteᵀ residual and the covariance 1 − whiteᵀ white.

    `log_density` is log p(seen | d) and `log_peak` max log p(seen, hidden | d), in the shape of `cards`.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    over: tuple[str, ...] = eqx.field(static=True)
    cards: tuple[int, ...] = eqx.field(static=True)
    log_density: Any
    log_peak: Any
    mean: Any  # (n, r)
    factor: Any  # (n, r, r)
    white: Any  # (n, s, r)
    residual: Any  # (n, s)
    seen: Any  # (r,)
    value: Any  # (r,)

    def expected(self) -> Any:
        """E[x | seen, d], (n, r)."""
        noise = jnp.einsum("nsr,ns->nr", self.white, self.residual)
        return jnp.where(self.seen, self.value, self.mean + jnp.einsum("nij,nj->ni", self.factor, noise))

    def covariance(self) -> Any:
        """Cov[x | seen, d], (n, r, r): zeros where something is seen."""
        onto = jnp.einsum("nij,nsj->nis", self.factor, self.white)
        left = jnp.einsum("nij,nkj->nik", self.factor, self.factor) - jnp.einsum("nis,nks->nik", onto, onto)
        return jnp.where(self.seen[:, None] | self.seen, 0, left)

    def index(self, states: Mapping[str, Any]) -> Any:
        """The number of a joint value of `over`."""
        index = jnp.zeros((), int)
        for name, card in zip(self.over, self.cards, strict=True):
            index = index * card + states[name]
        return index

    def draw(self, key: Any, index: Any) -> Any:
        """One draw of x | seen, d, (r,): noise drawn freely, then moved to where it explains what is seen."""
        noise = jax.random.normal(key, self.seen.shape, self.mean.dtype)
        white = self.white[index]
        noise = noise + (self.residual[index] - white @ noise) @ white
        return jnp.where(self.seen, self.value, self.mean[index] + self.factor[index] @ noise)
