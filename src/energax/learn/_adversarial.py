"""Adversarial learning of an energy: a generator draws the negative phase."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import NAME, WEIGHT_SCALAR, check_arguments, with_methods
from ..batch import map_rows
from ..energy import free_energy
from ..errors import Unsuitable
from ._objective import Objective, stop_gradient
from ._requirements import check_free_energy, check_no_missing, check_real, check_variables

_MAX_PAIRED_ROWS = 2048  # rows in the discrepancy, whose kernels take memory of their square
_KERNEL_WIDTHS = (0.25, 1.0, 4.0)  # in mean squared distances of the data


class Adversarial(Objective):
    """The adversarial objective of an energy F and a generator G, its partner.

        energy:     mean F(x) − mean F(G(u)) + ½ γ mean‖∂F‖²
        generator:  mean F(G(u)) + λ MMD²(G(u), x)

    The energy is lowered at the data and raised at draws of the generator, which take one pass
    through a network instead of a chain. Minimising its energy alone, the generator would collapse
    to one point; the maximum mean discrepancy, whose first term E k(G(u), G(u′)) pushes draws
    apart, keeps it as diverse as the data. Each is constant in the other's loss, so that one
    optimizer serves both. Batches of more than 2048 rows compute the discrepancy of 2048 random rows.

    Args:
        generator: a module with `draw(key)`, such as `nn.Generator`.
        diversity: λ, the weight of the discrepancy.
        smoothness: γ, the weight of the squared gradient of the energy, averaged over data and
            draws; with γ = 0 the energies grow without bound.
        variable: the name of x, which must be real.

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
        if generator is not None:  # as for every partner, `check` says that it is needed
            with_methods("draw", expected="a generator, such as nn.Generator").check("generator", generator)
        check_arguments(locals(), diversity=WEIGHT_SCALAR, smoothness=WEIGHT_SCALAR, variable=NAME)
        self.partner, self.diversity, self.smoothness = generator, diversity, smoothness
        self.variable = variable

    @property
    def differentiates_rows(self):
        return not (isinstance(self.smoothness, int | float) and self.smoothness == 0)

    def check(self, energy, data):
        check_real(self, energy, self.variable, "ContrastiveDivergence, whose chains draw from any space")
        check_variables(self, data, self.variable)
        check_free_energy(self, energy, data)
        check_no_missing(self, data, self.variable, instead="ContrastiveDivergence, which draws them")
        if set(data) != {self.variable}:
            raise Unsuitable(
                f"Adversarial learns only {self.variable!r}, but the data has {sorted(data)}. "
                f"Pass only {self.variable!r}."
            )
        if not hasattr(self.partner, "draw"):
            raise Unsuitable("Adversarial needs a generator with `draw(key)`, such as nn.Generator.")
        shape = eqx.filter_eval_shape(self.partner.draw, jax.random.key(0)).shape
        if shape != energy.spaces[self.variable].shape:
            raise Unsuitable(
                f"Adversarial: the generator draws shape {shape}, but {self.variable!r} is in "
                f"{energy.spaces[self.variable]!r}. Give the network one output per feature."
            )

    def __call__(self, energy, batch, carry, key):
        constant = jax.lax.stop_gradient
        data = batch.data[self.variable]
        draw_key, pick_key = jax.random.split(key)
        draws = map_rows(self.partner.draw, jax.random.split(draw_key, batch.n)).astype(data.dtype)

        def energies(model, rows):
            return map_rows(lambda x: free_energy(model, {self.variable: x}), rows)

        def squared_gradient(rows):
            slopes = jax.vmap(lambda x: energy.score(self.variable, **{self.variable: x}))(rows)
            return jnp.sum(slopes.reshape(len(rows), -1) ** 2, axis=1)

        penalty = 0.5 * (batch.mean(squared_gradient(data)) + squared_gradient(constant(draws)).mean())
        terms = {
            "energy of data": batch.mean(energies(energy, data)),
            "energy of draws": -energies(energy, constant(draws)).mean(),
            "smoothness": 0.5 * self.smoothness * penalty,
            "generator": energies(stop_gradient(energy), draws).mean(),
            "discrepancy": self.diversity * _discrepancy_of_some(draws, data, batch.weight, pick_key),
        }
        return terms, carry


def _discrepancy_of_some(draws: Any, data: Any, weight: Any, key: Any) -> Any:
    """The discrepancy of all rows, or of a random subset if there are many.

    Rows are chosen without replacement, those of weight 0 last. Memory and time would otherwise grow
    with the square of the batch.
    """
    n = len(data)
    if n <= _MAX_PAIRED_ROWS:
        return discrepancy(draws, data, weight)
    order = jnp.where(weight > 0, jax.random.uniform(key, (n,)), 2)
    _, rows = jax.lax.top_k(-order, _MAX_PAIRED_ROWS)
    return discrepancy(draws[:_MAX_PAIRED_ROWS], data[rows], weight[rows])


def discrepancy(a: Any, b: Any, weight: Any) -> Any:
    """The unbiased MMD² between rows a (n, …) and weighted rows b (m, …), with Gaussian kernels.

    The widths of the kernels are multiples of the mean squared distance within b. Matrices of
    n × n, n × m and m × m are held in memory.
    """
    a, b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    # A row of weight 0 may hold any value, also infinity, and 0 × ∞ is NaN.
    b = jnp.where(weight[:, None] > 0, b, 0)
    # Distances are computed as differences of squares, which cancel unless the rows are near the origin.
    center = jax.lax.stop_gradient(weight @ b / jnp.maximum(weight.sum(), jnp.finfo(b.dtype).tiny))
    a, b = a - center, b - center
    uniform = jnp.ones(len(a), a.dtype)
    distances_b = _squared_distances(b, b)
    scale = jax.lax.stop_gradient(_pair_mean(distances_b, weight, weight, distinct=True))
    scale = jnp.maximum(scale, jnp.finfo(a.dtype).tiny ** 0.5)

    def kernel(squared):
        return sum(jnp.exp(-squared / (2 * width * scale)) for width in _KERNEL_WIDTHS) / len(_KERNEL_WIDTHS)

    within_a = _pair_mean(kernel(_squared_distances(a, a)), uniform, uniform, distinct=True)
    within_b = _pair_mean(kernel(distances_b), weight, weight, distinct=True)
    between = _pair_mean(kernel(_squared_distances(a, b)), uniform, weight, distinct=False)
    return within_a + within_b - 2 * between


def _squared_distances(x: Any, y: Any) -> Any:
    """‖xᵢ − yⱼ‖² of all pairs, (n, m), by one matrix product, without the differences of all pairs."""
    products = jnp.matmul(x, y.T, precision="highest")
    return jnp.maximum((x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * products, 0)


def _pair_mean(values: Any, left: Any, right: Any, *, distinct: bool) -> Any:
    """The weighted mean of `values` over all pairs, or over pairs of distinct rows."""
    weights = left[:, None] * right[None]
    if distinct:
        weights = weights * (1 - jnp.eye(len(left), dtype=weights.dtype))
    total = weights.sum()
    return jnp.sum(weights * values) / jnp.where(total > 0, total, 1)
