"""Blocks that Equinox does not have: maxout, local response normalisation, residual blocks, sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import (
    FUNCTION,
    NONE,
    WHOLE,
    WIDTH,
    check_arguments,
    check_each,
    check_layer_sizes,
    instance,
    is_whole,
    one_of,
)
from .._util.keys import as_key
from ..errors import BadInput, check_number, check_whole_number, describe

_LINEAR = instance(eqx.nn.Linear, "an equinox.nn.Linear")
_POOL = one_of("mean", "sum", "max")


class Maxout(eqx.Module):
    """A layer of maxima of linear functions: y_i = max_j (w_ijᵀ x + b_ij), with j = 1 … n_pieces.

    With two pieces, of which one is 0, a unit is a rectifier; in general it is any convex function with
    n_pieces linear pieces.

    Args:
        linear: the linear functions, an `equinox.nn.Linear` from (n_in,) to (n_out · n_pieces,), the pieces
            of a unit together.
        n_pieces: the number of linear functions of every unit.

    Goodfellow, Warde-Farley, Mirza, Courville and Bengio (2013), Maxout networks.

    >>> Maxout.random(3, 2, key=0)(jnp.ones(3)).shape
    (2,)
    """

    linear: eqx.nn.Linear
    n_pieces: int = eqx.field(static=True)

    def __check_init__(self):
        check_arguments(self, linear=_LINEAR, n_pieces=WHOLE)

    @classmethod
    def random(cls, n_in: int, n_out: int, *, key: Any, n_pieces: int = 2) -> Maxout:
        """Return a layer with the initial weights of `equinox.nn.Linear`."""
        check_arguments(locals(), n_in=WHOLE, n_out=WHOLE, n_pieces=WHOLE)
        check_layer_sizes("n_in, n_out", (n_in, n_out * n_pieces))
        return cls(eqx.nn.Linear(n_in, n_out * n_pieces, key=as_key(key)), n_pieces)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.linear(x).reshape(-1, self.n_pieces).max(1)


class LocalResponseNorm(eqx.Module):
    """Normalisation by neighbouring channels: y_c = x_c / (k + α Σ_{c'} x_{c'}²)^β, |c' − c| ≤ size // 2.

    The input is (channels, …); the sum is over channels at the same position. As in the paper, and unlike in
    other libraries, α is not divided by `size`.

    Args:
        size: the number of neighbours, the channel itself included; odd.
        alpha: α.
        beta: β.
        k: k, > 0.

    Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional neural networks.

    >>> LocalResponseNorm(3, alpha=1.0, beta=1.0, k=1.0)(jnp.array([1.0, 0.0, 2.0]))
    Array([0.5, 0. , 0.4], dtype=float32)
    """

    size: int = eqx.field(static=True, default=5)
    alpha: float = eqx.field(static=True, default=1e-4)
    beta: float = eqx.field(static=True, default=0.75)
    k: float = eqx.field(static=True, default=2.0)

    def __check_init__(self):
        check_whole_number("size", self.size)
        if self.size % 2 == 0:
            raise BadInput(
                "size", repr(self.size), "an odd number, to have equally many channels on each side"
            )
        check_number("alpha", self.alpha)
        check_number("beta", self.beta)
        check_number("k", self.k, lambda k: k > 0, "a number > 0")

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        half = self.size // 2
        around = jnp.pad(x * x, [(half, half)] + [(0, 0)] * (x.ndim - 1))
        total = jnp.stack([around[i : i + x.shape[0]] for i in range(self.size)]).sum(0)
        return x * (self.k + self.alpha * total) ** -self.beta


class Residual(eqx.Module):
    """A residual block: y = x + f(x), or y = g(x) + f(x) where f changes the shape.

    Args:
        block: f.
        shortcut: g, such as a linear layer or a 1 × 1 convolution; the identity if None.

    He, Zhang, Ren and Sun (2016), Deep residual learning for image recognition.

    >>> Residual(eqx.nn.Lambda(jnp.square))(jnp.array([1.0, 3.0]))
    Array([ 2., 12.], dtype=float32)
    """

    block: Callable[..., Any]
    shortcut: Callable[..., Any] | None = None

    def __check_init__(self):
        check_arguments(self, block=FUNCTION, shortcut=FUNCTION | NONE)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        # Plain functions take no key.
        keys = [{}, {}] if key is None else [{"key": k} for k in jax.random.split(key)]
        change = self.block(x, **keys[0])
        kept = x if self.shortcut is None else self.shortcut(x, **keys[1])
        if kept.shape != change.shape:
            raise BadInput(
                "block",
                f"an output of shape {change.shape}",
                f"the shape {kept.shape} of the shortcut",
                "Pass a shortcut that has the shape of the block.",
            )
        return kept + change


class Reshape(eqx.Module):
    """A layer that gives an array another shape; −1 stands for what remains.

    >>> Reshape((2, -1))(jnp.arange(6)).shape
    (2, 3)
    """

    shape: tuple[int, ...] = eqx.field(static=True)

    def __check_init__(self):
        sizes = self.shape if isinstance(self.shape, tuple) else (None,)
        if not all(is_whole(n) and (n == -1 or n > 0) for n in sizes):
            raise BadInput("shape", describe(self.shape), "a tuple of whole numbers >= 1, or −1")

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return x.reshape(self.shape)


class SetLayer(eqx.Module):
    """A layer of sets, equivariant to permutations: y_i = W x_i + V mean_j x_j + b, for sets x (m, n_in).

    Every linear map of sets with n_in = n_out = 1 that commutes with all permutations has this form.

    Args:
        own: W and b, an `equinox.nn.Linear` from n_in to n_out.
        mean: V, an `equinox.nn.Linear` without bias.

    Zaheer et al. (2017), Deep sets.

    >>> SetLayer.random(2, 3, key=0)(jnp.ones((5, 2))).shape
    (5, 3)
    """

    own: eqx.nn.Linear
    mean: eqx.nn.Linear

    def __check_init__(self):
        check_arguments(self, own=_LINEAR, mean=_LINEAR)

    @classmethod
    def random(cls, n_in: int, n_out: int, *, key: Any) -> SetLayer:
        """Return a layer with the initial weights of `equinox.nn.Linear`."""
        check_arguments(locals(), n_in=WHOLE, n_out=WHOLE)
        check_layer_sizes("n_in, n_out", (n_in, n_out))
        first, second = jax.random.split(as_key(key))
        own = eqx.nn.Linear(n_in, n_out, key=first)
        return cls(own, eqx.nn.Linear(n_in, n_out, use_bias=False, key=second))

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return jax.vmap(self.own)(x) + self.mean(x.mean(0))


class SetPool(eqx.Module):
    """The mean, sum or maximum over the members of a set (m, n), which no permutation changes.

    >>> SetPool("max")(jnp.array([[1.0, 5.0], [3.0, 2.0]]))
    Array([3., 5.], dtype=float32)
    """

    how: Literal["mean", "sum", "max"] = eqx.field(static=True, default="mean")

    def __check_init__(self):
        check_arguments(self, how=_POOL)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return getattr(x, self.how)(0)


def set_network(
    shape: Sequence[int],
    n_out: int | Literal["scalar"],
    *,
    key: Any,
    width: int = 64,
    depth: int = 2,
    activation: Callable[[Any], Any] = jax.nn.silu,
    pool: Literal["mean", "sum", "max"] = "mean",
) -> eqx.nn.Sequential:
    """A network of sets given as vectors (m · d,), whose output does not depend on the order of the members.

    `depth` layers `SetLayer` of `width` units per member, `SetPool`, and a linear layer.

    Args:
        shape: (m, d): members, and numbers per member.
        n_out: the number of outputs, or "scalar" for an output of shape ().
        key: an int or a JAX key, for the initial weights.
        width: units per member and layer.
        depth: layers before the pool, ≥ 1.
        activation: of the layers before the pool.
        pool: how the members are combined.

    Zaheer et al. (2017), Deep sets.

    >>> set_network((5, 2), "scalar", key=0)(jnp.zeros(10)).shape
    ()
    """
    check_arguments(locals(), n_out=WIDTH, width=WHOLE, depth=WHOLE, activation=FUNCTION, pool=_POOL)
    if not isinstance(shape, list | tuple) or len(shape) != 2:
        raise BadInput("shape", describe(shape), "(m, d): members, and numbers per member")
    check_each("shape", shape, WHOLE, "(m, d)")
    check_layer_sizes("n_out", (width, 1 if isinstance(n_out, str) else n_out))
    check_layer_sizes("width", (width, width * depth))
    keys = jax.random.split(as_key(key), depth + 1)
    layers: list[Any] = [Reshape(tuple(shape))]
    for i in range(depth):
        n_in = shape[1] if i == 0 else width
        layers += [SetLayer.random(n_in, width, key=keys[i]), eqx.nn.Lambda(activation)]
    layers += [SetPool(pool), eqx.nn.Linear(width, n_out, key=keys[depth])]
    return eqx.nn.Sequential(layers)
