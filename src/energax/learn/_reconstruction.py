"""Autoencoders: the objective of reconstruction, with corrupted inputs and penalties on the code."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import NUMBER, WEIGHT, WEIGHT_SCALAR, check_arguments, numbers
from ..batch import map_rows
from ..errors import BadInput, Unsuitable, describe
from ._objective import Objective
from ._requirements import check_no_missing, check_variables


class GaussianNoise(eqx.Module):
    """A corruption of inputs: x + scale · N(0, I).

    >>> GaussianNoise(0.0)(jax.random.key(0), jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """

    scale: Any = 0.3

    def __check_init__(self):
        check_arguments(self, scale=WEIGHT)

    def __call__(self, key: Any, x: Any) -> Any:
        noise = jax.random.normal(key, x.shape, jnp.result_type(x.dtype, float))
        return x + self.scale * noise


class MaskingNoise(eqx.Module):
    """A corruption of inputs: each coordinate is set to a value with probability p.

    Args:
        p: the probability.
        value: what a coordinate is set to, a number or one per coordinate.

    Vincent et al. (2008), Extracting and composing robust features with denoising autoencoders.

    >>> MaskingNoise(1.0)(jax.random.key(0), jnp.ones(2))
    Array([0., 0.], dtype=float32)
    """

    p: Any = 0.3
    value: Any = 0.0

    def __check_init__(self):
        check_arguments(self, p=numbers(lambda p: (p >= 0) & (p <= 1), "a number from 0 to 1"))
        check_arguments(self, value=NUMBER)

    def __call__(self, key: Any, x: Any) -> Any:
        hidden = jax.random.bernoulli(key, self.p, x.shape)
        return jnp.where(hidden, jnp.asarray(self.value, x.dtype), x)


class Sparsity(eqx.Module):
    """A penalty on the code h: weight · Σ_j |h_j|, or weight · Σ_j KL(target ‖ mean h_j) over a batch.

    Args:
        weight: of the penalty.
        target: the mean activation ρ that every unit should have, for units in (0, 1) such as sigmoids;
            None penalises the absolute values.

    Lee, Ekanadham and Ng (2008), Sparse deep belief net model for visual area V2; Ng (2011), Sparse
    autoencoder.

    >>> codes = jnp.array([[0.5, 0.25], [0.5, 0.75]])
    >>> Sparsity(1.0)(codes, jnp.ones(2)), Sparsity(1.0, target=0.5)(codes, jnp.ones(2))
    (Array(1., dtype=float32), Array(0., dtype=float32))
    """

    weight: Any = 0.1
    target: Any = None

    def __check_init__(self):
        check_arguments(self, weight=WEIGHT_SCALAR)
        if self.target is not None:
            share = numbers(lambda rho: (rho > 0) & (rho < 1), "a number between 0 and 1")
            check_arguments(self, target=share)

    def __call__(self, codes: Any, weight: Any) -> Any:
        """The penalty for codes (n, k) of rows with these weights, (n,)."""
        total = jnp.sum(weight)
        share = weight[:, None] / jnp.where(total > 0, total, 1)
        if self.target is None:
            return self.weight * jnp.sum(share * jnp.abs(codes))
        limit = jnp.finfo(codes.dtype).eps
        mean = jnp.clip(jnp.sum(share * codes, axis=0), limit, 1 - limit)
        rho = self.target
        divergence = rho * jnp.log(rho / mean) + (1 - rho) * jnp.log((1 - rho) / (1 - mean))
        return self.weight * jnp.sum(divergence)


class Reconstruction(Objective):
    """The mean loss of reconstructing x from its code, or from the code of a corrupted x.

        mean [ e(x from x̃) + contraction ‖∂f/∂x‖² ] + sparsity penalty on f(x̃),    x̃ = corruption(x).

    Unlike `InputNoise`, a corruption changes only what the encoder sees: the target is x itself. Validation
    rows are not corrupted.

    Args:
        corruption: a function (key, x) → x̃: `GaussianNoise(scale)`, `MaskingNoise(p)`; None for none.
        sparsity: a penalty on the codes of a batch: `Sparsity(weight, target)`; None for none.
        contraction: the weight of the squared Frobenius norm of the Jacobian of the code at x.

    Vincent et al. (2010), Stacked denoising autoencoders; Rifai et al. (2011), Contractive auto-encoders.

    >>> from energax.batch import Batch
    >>> from energax.energies import Autoencoder
    >>> batch = Batch({"x": jnp.ones((5, 4))}, jnp.ones(5))
    >>> objective = Reconstruction(MaskingNoise(0.5), sparsity=Sparsity(0.1), contraction=0.1)
    >>> sorted(objective(Autoencoder.random(4, 2, key=0), batch, None, jax.random.key(0))[0])
    ['contraction', 'reconstruction', 'sparsity']
    """

    corruption: Any = None
    sparsity: Any = eqx.field(default=None, kw_only=True)
    contraction: Any = eqx.field(default=0.0, kw_only=True)

    def __check_init__(self):
        check_arguments(self, contraction=WEIGHT_SCALAR)
        for name in ("corruption", "sparsity"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, type) or not callable(value)):
                expected = {"corruption": "MaskingNoise(0.3)", "sparsity": "Sparsity(0.1)"}[name]
                raise BadInput(name, describe(value), f"a function, such as {expected}, or None")

    @property
    def differentiates_rows(self):
        return not (isinstance(self.contraction, int | float) and self.contraction == 0)

    def check(self, energy, data):
        check_variables(self, data, "x")
        if not energy.knows("reconstruction_energy"):
            raise Unsuitable(
                f"Reconstruction needs an energy that reconstructs x, such as Autoencoder, not "
                f"{type(energy).__name__}. Use NegativeLogLikelihood, ScoreMatching or ContrastiveDivergence."
            )
        check_no_missing(self, data, "x", instead="ELBO with a Decoder, which leaves them out")

    def validate(self, energy, batch, carry, key):
        clean = Reconstruction(sparsity=self.sparsity, contraction=self.contraction)
        return clean(energy, batch, carry, key)[0]

    def __call__(self, energy, batch, carry, key):
        filled = batch.fill()

        def row(key, *, x, **rest):
            seen = x if self.corruption is None else self.corruption(key, x)
            return energy.reconstruction_energy(x, seen), seen

        losses, seen = filled.map_with_keys(row, key)
        terms = {"reconstruction": batch.mean(losses)}
        if self.sparsity is not None:
            terms["sparsity"] = self.sparsity(map_rows(energy.encode, seen), batch.weight)
        if self.differentiates_rows:
            x = filled.data["x"]  # categories are numbers for the encoder
            slopes = jax.vmap(jax.jacrev(energy.encode))(x.astype(jnp.result_type(x.dtype, float)))
            terms["contraction"] = self.contraction * batch.mean((slopes**2).sum((1, 2)))
        return terms, carry
