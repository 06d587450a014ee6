"""Adversarial learning in energy-based form: a generator draws the negative phase."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import free_energy
from ..errors import Unsuitable
from ._needs import need_complete, need_real
from ._objective import Objective, need_variables

_WIDTHS = (0.25, 1.0, 4.0)  # of the kernels, in mean squared distances of the data


class Adversarial(Objective):
    """Energy: mean F(x) − mean F(G(u)) + ½ γ mean‖∂F‖². Generator: mean F(G(u)) + λ MMD²(G(u), x).

    The energy is pushed down at the data and up at what the generator (the partner) draws;
    the generator walks to low energies in one pass, where a chain would take many. Alone it
    would sit in the lowest point: the maximum mean discrepancy, whose first part
    E k(G(u), G(u′)) pushes draws apart, keeps it as diverse as the data. Each sees the other
    held fixed, so that one optimizer serves both.

    Args:
        generator: a module with `draw(key)`, such as `nn.Generator`.
        diversity: λ, the weight of the discrepancy.
        smoothness: γ, the weight of the squared gradient of the energy, averaged over data and
            draws; without it the energies grow for ever.

    Kim and Bengio (2016), Deep directed generative models with energy-based probability
    estimation; Gretton et al. (2012), A kernel two-sample test; Mescheder, Geiger and Nowozin
    (2018), Which training methods for GANs do actually converge?

    >>> from energax import Batch
    >>> from energax.energies import NeuralEnergy
    >>> from energax.nn import Generator
    >>> objective = Adversarial(Generator.random(2, 2, key=0))
    >>> batch = Batch({"x": jnp.ones((4, 2))}, jnp.ones(4))
    >>> terms, _ = objective(NeuralEnergy.random(2, key=1), batch, None, jax.random.key(2))
    >>> sorted(terms)
    ['discrepancy', 'energy of data', 'energy of draws', 'generator', 'smoothness']
    """

    diversity: float = 1.0
    smoothness: float = 1.0
    variable: str = eqx.field(static=True, default="x")

    def __init__(self, generator: Any, diversity: float = 1.0, smoothness: float = 1.0, variable: str = "x"):
        self.partner, self.diversity, self.smoothness = generator, diversity, smoothness
        self.variable = variable

    def check(self, energy, data):
        need_real(self, energy, self.variable, "ContrastiveDivergence, whose chains draw discrete values")
        need_variables(self, energy, data, self.variable)
        need_complete(self, energy, data, self.variable, instead="ContrastiveDivergence, which draws them")
        if set(data) != {self.variable}:
            raise Unsuitable(f"Adversarial learns {self.variable!r} alone, but the data has {sorted(data)}.")
        if not hasattr(self.partner, "draw"):
            raise Unsuitable("Adversarial needs a generator with `draw(key)`, such as nn.Generator.")
        drawn = eqx.filter_eval_shape(self.partner.draw, jax.random.key(0)).shape
        if drawn != energy.spaces[self.variable].shape:
            raise Unsuitable(
                f"Adversarial: the generator draws shape {drawn}, but {self.variable!r} lies in "
                f"{energy.spaces[self.variable]!r}. Give the network as many outputs as there are features."
            )

    def __call__(self, energy, batch, carry, key):
        hold = jax.lax.stop_gradient
        real = batch.data[self.variable]
        made = jax.vmap(self.partner.draw)(jax.random.split(key, batch.n)).astype(real.dtype)

        def energies(model, rows):
            return jax.vmap(lambda x: free_energy(model, {self.variable: x}))(rows)

        def steepness(rows):
            slopes = jax.vmap(lambda x: energy.score(self.variable, **{self.variable: x}))(rows)
            return jnp.sum(slopes.reshape(len(rows), -1) ** 2, axis=1)

        steep = 0.5 * (batch.mean(steepness(real)) + steepness(hold(made)).mean())
        terms = {
            "energy of data": batch.mean(energies(energy, real)),
            "energy of draws": -energies(energy, hold(made)).mean(),
            "smoothness": 0.5 * self.smoothness * steep,
            "generator": energies(_held(energy), made).mean(),
            "discrepancy": self.diversity * discrepancy(made, real, batch.weight),
        }
        return terms, carry


def _held(module: Any) -> Any:
    arrays, rest = eqx.partition(module, eqx.is_inexact_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


def discrepancy(a: Any, b: Any, weight: Any) -> Any:
    """Unbiased MMD² between rows a (n, …) and weighted rows b (m, …), with Gaussian kernels.

    The widths follow the data b, so that there is none to choose.
    """
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    uniform = jnp.ones(len(a), a.dtype)
    scale = jax.lax.stop_gradient(_pair_mean(_squared_distances(b, b), weight, weight, distinct=True))
    scale = jnp.maximum(scale, jnp.finfo(a.dtype).tiny ** 0.5)

    def kernel(x, y):
        d2 = _squared_distances(x, y) / scale
        return sum(jnp.exp(-d2 / (2 * width)) for width in _WIDTHS) / len(_WIDTHS)

    within_a = _pair_mean(kernel(a, a), uniform, uniform, distinct=True)
    within_b = _pair_mean(kernel(b, b), weight, weight, distinct=True)
    between = _pair_mean(kernel(a, b), uniform, weight, distinct=False)
    return within_a + within_b - 2 * between


def _squared_distances(x: Any, y: Any) -> Any:
    return jnp.sum((x[:, None] - y[None]) ** 2, axis=-1)


def _pair_mean(values: Any, left: Any, right: Any, *, distinct: bool) -> Any:
    weights = left[:, None] * right[None]
    if distinct:
        weights = weights * (1 - jnp.eye(len(left), dtype=weights.dtype))
    total = weights.sum()
    return jnp.sum(weights * values) / jnp.where(total > 0, total, 1)
