"""Score matching: learn ∇ log p, which does not contain log Z."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import NAME, POSITIVE_SCALAR, WHOLE, check_arguments, with_methods
from ._objective import Objective
from ._requirements import (
    check_free_energy,
    check_no_missing,
    check_not_input,
    check_real,
    check_variables,
)


class Exact(eqx.Module):
    """The score-matching loss ½‖s(x)‖² + tr ∂s(x)/∂x, with the whole Jacobian: d products for x in ℝᵈ.

    Hyvärinen (2005), Estimation of non-normalized statistical models by score matching.

    >>> Exact().loss(lambda x: -x, jnp.ones(2), None)                         # ½·2 − 2
    Array(-1., dtype=float32)
    """

    def loss(self, score, x, key):
        jacobian = jax.jacfwd(score)(x).reshape(x.size, x.size)
        return 0.5 * jnp.sum(score(x) ** 2) + jnp.trace(jacobian)


class Sliced(eqx.Module):
    """The sliced loss ½‖s(x)‖² + vᵀ (∂s(x)/∂x) v with independent random signs v.

    An unbiased estimate of `Exact` that takes one product per slice instead of d.

    Args:
        slices: the number of random vectors v that are averaged.

    Song, Garg, Shi and Ermon (2019), Sliced score matching: a scalable approach to density and
    score estimation.

    >>> Sliced(3).loss(lambda x: -x, jnp.ones(2), jax.random.key(0))          # v·v = 2 for all v
    Array(-1., dtype=float32)
    """

    slices: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        check_arguments(self, slices=WHOLE)

    def loss(self, score, x, key):
        directions = jax.random.rademacher(key, (self.slices, *x.shape), x.dtype)

        def curvature(v):
            return jnp.sum(v * jax.jvp(score, (x,), (v,))[1])

        return 0.5 * jnp.sum(score(x) ** 2) + jax.vmap(curvature)(directions).mean()


class Denoising(eqx.Module):
    """The denoising loss ½‖σ s(x + σε) + ε‖², ε ~ N(0, I), which needs no Jacobian.

    Its minimum is the score of p ∗ N(0, σ²I). As σ → 0 this tends to the score of p, and the
    variance of the gradient grows.

    Args:
        sigma: σ, the standard deviation of the noise.

    Vincent (2011), A connection between score matching and denoising autoencoders.

    >>> Denoising(0.1).loss(lambda x: -x, jnp.zeros(2), jax.random.key(0)).shape
    ()
    """

    sigma: float = 0.1

    def __check_init__(self):
        check_arguments(self, sigma=POSITIVE_SCALAR)

    def loss(self, score, x, key):
        noise = jax.random.normal(key, x.shape, x.dtype)
        return 0.5 * jnp.sum((self.sigma * score(x + self.sigma * noise) + noise) ** 2)


class ScoreMatching(Objective):
    """The score-matching objective: ½ E‖s_θ(x) − ∇ log p(x)‖² up to a constant, s_θ = −∂F/∂x, for real x.

    Other variables in the data are conditions: s_θ(x | rest). Networks need a smooth activation.

    Args:
        method: `Exact()` (the default), `Sliced(slices)` or `Denoising(sigma)`.
        variable: the name of x.

    Hyvärinen (2005), Estimation of non-normalized statistical models by score matching.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.batch import Batch
    >>> normal = NeuralEnergy(lambda x: 0.0, 2, confinement=1.0)      # s(x) = −x
    >>> batch = Batch({"x": jnp.ones((1, 2))}, jnp.ones(1))
    >>> ScoreMatching()(normal, batch, None, jax.random.key(0))[0]    # ½·2 − 2
    Array(-1., dtype=float32)
    """

    method: Any = Exact()
    variable: str = eqx.field(static=True, default="x")

    def __check_init__(self):
        method = with_methods("loss", expected="Exact(), Sliced() or Denoising(sigma)")
        check_arguments(self, method=method, variable=NAME)

    @property
    def differentiates_rows(self):
        return True

    def check(self, energy, data):
        instead = "ContrastiveDivergence() or NoiseContrastive.matched(energy, data)"
        check_real(self, energy, self.variable, instead)
        check_variables(self, data, self.variable)
        check_not_input(self, energy, self.variable)
        check_free_energy(self, energy, data)
        check_no_missing(self, data, *data, instead="ContrastiveDivergence, which draws them")

    def __call__(self, energy, batch, carry, key):
        def row(key, **row):
            given = {k: v for k, v in row.items() if k != self.variable}
            score = lambda x: energy.score(self.variable, **given, **{self.variable: x})
            return self.method.loss(score, row[self.variable], key)

        return batch.mean(batch.map_with_keys(row, key)), carry
