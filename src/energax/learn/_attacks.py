"""Adversarial inputs: changes of x within a ball that raise −log p(y | x), and training on such inputs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import (
    NONE,
    NUMBER,
    POSITIVE_SCALAR,
    WEIGHT,
    WHOLE,
    check_arguments,
    number,
    numbers,
    one_of,
)
from .._util.arrays import asarray
from .._util.keys import as_key
from .._util.printing import pretty_repr
from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable, as_numbers, check_instance
from ..missing import is_masked
from ..programs import jit
from ._noise import replace_rows
from ._objective import WrappedObjective, stop_gradient


class Attack(eqx.Module):
    """The base class of attacks: `attack(energy, x, y, key=…)` returns x′ near x on which y is less probable.

    Works for every energy of y given x, such as `Linear`, `Scorer` or a regressor: the loss that it raises is
    −log p(y | x) = F(x, y) − F(x). x is one input or rows of them, and y its label or labels.
    """

    def __repr__(self) -> str:
        return pretty_repr(self)

    @abstractmethod
    def perturb(self, energy: Any, x: Any, y: Any, key: Any) -> Any:
        """Return the changed input of one example."""

    def __call__(self, energy: Any, x: Any, y: Any, *, key: Any = None) -> jax.Array:
        check_instance("energy", energy, Energy, "an Energy of y given x")
        x, y = (
            asarray(as_numbers("x", x, "numbers")),
            asarray(as_numbers("y", y, "indices of classes, or numbers")),
        )
        shape = energy.spaces["x"].shape
        if x.shape[x.ndim - len(shape) :] != shape or x.ndim - len(shape) not in (0, 1):
            raise BadInput("x", f"shape {x.shape}", f"one input of shape {shape}, or rows of them")
        if y.shape[: x.ndim - len(shape)] != x.shape[: x.ndim - len(shape)]:
            raise BadInput("y", f"shape {y.shape}", f"one label for every input of x, {x.shape}")
        key = None if key is None else as_key(key)
        rows = x.ndim > len(shape)
        found = _perturb(self, energy, x if rows else x[None], y if rows else y[None], key)
        return found if rows else found[0]


@jit
def _perturb(attack: Attack, energy: Any, x: Any, y: Any, key: Any) -> Any:
    return perturb_rows(attack, energy, x, y, key)


def perturb_rows(attack: Attack, energy: Any, x: Any, y: Any, key: Any) -> Any:
    """The changed inputs of many rows, each with its own key."""
    keys = None if key is None else jax.random.split(key, x.shape[0])
    return jax.vmap(lambda x, y, key: attack.perturb(energy, x, y, key))(x, y, keys)


def _loss(energy: Any, x: Any, y: Any) -> Any:
    """−log p(y | x)."""
    return free_energy(energy, {"x": x, "y": y}) - free_energy(energy, {"x": x})


class FastGradientSign(Attack):
    """One step along the signs of the gradient: x′ = x + ε sign(∂/∂x −log p(y | x)).

    The most harmful change of at most ε in every coordinate if the loss is linear in x.

    Args:
        epsilon: ε, a number or one per coordinate.
        low, high: the least and the largest value of a coordinate; None for no limit.

    Goodfellow, Shlens and Szegedy (2015), Explaining and harnessing adversarial examples.

    >>> from energax.energies import Linear
    >>> two = Linear(jnp.array([[1.0, -2.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> FastGradientSign(0.1)(two, jnp.zeros(2), 0)
    Array([-0.1,  0.1], dtype=float32)
    """

    epsilon: Any
    low: float | None = eqx.field(default=None, kw_only=True)
    high: float | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_arguments(self, epsilon=WEIGHT, low=NUMBER | NONE, high=NUMBER | NONE)

    def perturb(self, energy, x, y, key):
        slope = jax.grad(lambda x: _loss(energy, x, y))(x)
        return _clip(x + self.epsilon * jnp.sign(slope), self.low, self.high)


class ProjectedGradient(Attack):
    """Several gradient steps, each projected back into the ball of radius ε around x.

    With norm "inf" a step is step · sign(∇) and the ball is a cube; with norm 2 it is step · ∇ / ‖∇‖. The
    input with the largest loss of all steps is returned. With a key, the first point is random in the ball.

    Args:
        epsilon: ε, a number; with norm "inf" also one per coordinate.
        step: the length of a step; by default 2.5 ε / steps.
        steps: the number of steps.
        norm: "inf" or 2.
        low, high: the least and the largest value of a coordinate; None for no limit.

    Madry et al. (2018), Towards deep learning models resistant to adversarial attacks.

    >>> from energax.energies import Linear
    >>> two = Linear(jnp.array([[3.0, -4.0], [0.0, 0.0]]), jnp.zeros(2))
    >>> ProjectedGradient(1.0, norm=2)(two, jnp.zeros(2), 0).round(3)
    Array([-0.6,  0.8], dtype=float32)
    """

    epsilon: Any
    step: Any = None
    steps: int = eqx.field(static=True, default=10)
    norm: Any = eqx.field(static=True, default="inf")
    low: float | None = eqx.field(default=None, kw_only=True)
    high: float | None = eqx.field(default=None, kw_only=True)

    def __check_init__(self):
        check_arguments(self, epsilon=WEIGHT, low=NUMBER | NONE, high=NUMBER | NONE, steps=WHOLE)
        euclidean = number(lambda norm: norm == 2, "2")
        check_arguments(self, norm=one_of("inf") | euclidean, step=POSITIVE_SCALAR | NONE)

    def perturb(self, energy, x, y, key):
        loss = jax.value_and_grad(lambda x: _loss(energy, x, y))
        length = 2.5 * self.epsilon / self.steps if self.step is None else self.step
        start = self._project(x if key is None else x + self._random_move(x, key), x)

        def move(_, state):
            here, best, highest = state
            value, slope = loss(here)
            best = jnp.where(value > highest, here, best)
            here = self._project(here + length * self._direction(slope), x)
            return here, best, jnp.maximum(value, highest)

        # One step more than asked, which is not taken: it computes the loss of the last point.
        state = (start, start, jnp.full((), -jnp.inf, x.dtype))
        return jax.lax.fori_loop(0, self.steps + 1, move, state)[1]

    def _direction(self, slope):
        if self.norm == "inf":
            return jnp.sign(slope)
        return slope / jnp.maximum(jnp.sqrt((slope**2).sum()), jnp.finfo(slope.dtype).tiny)

    def _project(self, x, centre):
        change = x - centre
        if self.norm == "inf":
            change = jnp.clip(change, -self.epsilon, self.epsilon)
        else:
            length = jnp.sqrt((change**2).sum())
            change = change * jnp.minimum(1, self.epsilon / jnp.maximum(length, jnp.finfo(x.dtype).tiny))
        return _clip(centre + change, self.low, self.high)

    def _random_move(self, x, key):
        if self.norm == "inf":
            return self.epsilon * jax.random.uniform(key, x.shape, x.dtype, -1, 1)
        direction, radius = jax.random.split(key)
        move = self._direction(jax.random.normal(direction, x.shape, x.dtype))
        return self.epsilon * move * jax.random.uniform(radius, (), x.dtype) ** (1 / x.size)


class AdversarialTraining(WrappedObjective):
    """An objective on inputs that an attack has changed, against the energy as it is at this step.

    objective(x′) with x′ = attack(x); with `clean` = c, c · objective(x) + (1 − c) · objective(x′).
    The attack is not differentiated. Validation rows are not attacked.

    Args:
        objective: the objective, such as `CrossEntropy()`.
        attack: an `Attack`, such as `FastGradientSign(0.1)`.
        clean: the weight of the objective on unchanged inputs, from 0 to 1.

    Goodfellow, Shlens and Szegedy (2015), Explaining and harnessing adversarial examples; Madry et al.
    (2018), Towards deep learning models resistant to adversarial attacks.

    >>> from energax import Batch
    >>> from energax.energies import Linear
    >>> from energax.learn import CrossEntropy
    >>> batch = Batch({"x": jnp.ones((1, 1)), "y": jnp.array([0])}, jnp.ones(1))
    >>> two = Linear(jnp.array([[1.0], [0.0]]), jnp.zeros(2))
    >>> robust = AdversarialTraining(CrossEntropy(), FastGradientSign(1.0))
    >>> robust(two, batch, None, jax.random.key(0))[0]                          # x′ = 0: log 2
    {'loss': Array(0.6931472, dtype=float32)}
    """

    attack: Attack
    clean: float = 0.0

    def __check_init__(self):
        check_instance("attack", self.attack, Attack, "an attack", "Try FastGradientSign(0.1).")
        check_arguments(
            self, clean=numbers(lambda c: (c >= 0) & (c <= 1), "a number from 0 to 1", scalar=True)
        )

    @property
    def differentiates_rows(self):
        return True

    def check(self, energy, data):
        super().check(energy, data)
        known = "x" in data and "y" in data and energy.spaces["x"].is_real
        if not known or is_masked(data["x"]) or is_masked(data["y"]):
            name = type(energy).__name__
            raise Unsuitable(
                "AdversarialTraining needs complete rows of a real x and a target y, as a classifier has; "
                f"{name} is over {', '.join(energy.spaces)}. Use the objective without it."
            )

    def __call__(self, energy, batch, carry, key):
        attack_key, key = jax.random.split(key)
        x, y = batch.data["x"], batch.data["y"]
        changed = perturb_rows(self.attack, stop_gradient(energy), x, y, attack_key)
        attacked = replace_rows(batch, "x", jax.lax.stop_gradient(changed))
        terms, new_carry = self.inner(energy, attacked, carry, key)
        if isinstance(self.clean, int | float) and self.clean == 0:
            return terms, new_carry
        plain, new_carry = self.inner(energy, batch, carry, key)
        mix = lambda a, b: self.clean * a + (1 - self.clean) * b
        return jax.tree.map(mix, plain, terms), new_carry


def _clip(x: Any, low: float | None, high: float | None) -> Any:
    return x if low is None and high is None else jnp.clip(x, low, high)
