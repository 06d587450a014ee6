"""Adversarial learning in energy-based form: a generator draws the negative phase."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..energy import free_energy
from ..errors import Unsuitable
from ._objective import Objective, check_variables, stop_gradient
from ._requirements import check_complete, check_free_energy, check_real

_MOST_PAIRED = 2048  # rows whose discrepancy is computed from all pairs
_WIDTHS = (0.25, 1.0, 4.0)  # of the kernels, in mean squared distances of the data


class Adversarial(Objective):
    """Energy: mean F(x) − mean F(G(u)) + ½ γ mean‖∂F‖². Generator: mean F(G(u)) + λ MMD²(G(u), x).

    The energy is pushed down at the data and up at what the generator (the partner) draws;
    the generator walks to low energies in one pass, where a chain would take many. Alone it
    would sit in the lowest point: the maximum mean discrepancy, whose first part
    E k(G(u), G(u′)) pushes draws apart, keeps it as diverse as the data. Each sees the other
    held fixed, so that one optimizer serves both. In a batch of more than 2048 rows the
    discrepancy is that of 2048 picked at random.

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
        check_real(self, energy, self.variable, "ContrastiveDivergence, whose chains draw from any space")
        check_variables(self, energy, data, self.variable)
        check_free_energy(self, energy, data)
        check_complete(self, energy, data, self.variable, instead="ContrastiveDivergence, which draws them")
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
        draw_key, pick_key = jax.random.split(key)
        made = jax.vmap(self.partner.draw)(jax.random.split(draw_key, batch.n)).astype(real.dtype)

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
            "generator": energies(stop_gradient(energy), made).mean(),
            "discrepancy": self.diversity * _sampled_discrepancy(made, real, batch.weight, pick_key),
        }
        return terms, carry


def _sampled_discrepancy(made: Any, real: Any, weight: Any, key: Any) -> Any:
    """The discrepancy; of many rows, that of some: as many draws, and rows picked anew at every call.

    Rows are picked without replacement, those of weight 0 last, so that memory and time do not grow
    with the square of the batch.
    """
    n = len(real)
    if n <= _MOST_PAIRED:
        return discrepancy(made, real, weight)
    order = jnp.where(weight > 0, jax.random.uniform(key, (n,)), 2)
    _, picked = jax.lax.top_k(-order, _MOST_PAIRED)
    return discrepancy(made[:_MOST_PAIRED], real[picked], weight[picked])


def discrepancy(a: Any, b: Any, weight: Any) -> Any:
    """Unbiased MMD² between rows a (n, …) and weighted rows b (m, …), with Gaussian kernels.

    The widths follow the data b, so that there is none to choose. Tables of n × n, n × m and
    m × m are held.
    """
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    # A padded row may hold anything, infinities too, and 0 × ∞ is not 0.
    b = jnp.where(weight[:, None] > 0, b, 0)
    # Distances are differences of squares: far from the origin they would be made of rounding.
    centre = jax.lax.stop_gradient(weight @ b / jnp.maximum(weight.sum(), jnp.finfo(b.dtype).tiny))
    a, b = a - centre, b - centre
    uniform = jnp.ones(len(a), a.dtype)
    among_b = _squared_distances(b, b)
    scale = jax.lax.stop_gradient(_pair_mean(among_b, weight, weight, distinct=True))
    scale = jnp.maximum(scale, jnp.finfo(a.dtype).tiny ** 0.5)

    def kernel(squared):
        return sum(jnp.exp(-squared / (2 * width * scale)) for width in _WIDTHS) / len(_WIDTHS)

    within_a = _pair_mean(kernel(_squared_distances(a, a)), uniform, uniform, distinct=True)
    within_b = _pair_mean(kernel(among_b), weight, weight, distinct=True)
    between = _pair_mean(kernel(_squared_distances(a, b)), uniform, weight, distinct=False)
    return within_a + within_b - 2 * between


def _squared_distances(x: Any, y: Any) -> Any:
    """‖xᵢ − yⱼ‖² by one product of matrices, (n, m): no difference of every pair is ever held."""
    products = jnp.matmul(x, y.T, precision="highest")
    return jnp.maximum((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * products, 0)


def _pair_mean(values: Any, left: Any, right: Any, *, distinct: bool) -> Any:
    weights = left[:, None] * right[None]
    if distinct:
        weights = weights * (1 - jnp.eye(len(left), dtype=weights.dtype))
    total = weights.sum()
    return jnp.sum(weights * values) / jnp.where(total > 0, total, 1)
