"""A generator: noise in, an example out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from ._network import mlp


class Generator(eqx.Module):
    """x = G(u), u ~ N(0, I): draws in one pass, from a distribution whose density nobody knows.

    Goodfellow et al. (2014), Generative adversarial nets.

    >>> Generator.random(3, 2, key=0).draw(jax.random.key(0)).shape
    (2,)
    """

    network: Callable[[Any], Any]
    n_noise: int = eqx.field(static=True)

    @classmethod
    def random(cls, n_noise: int, n_features: int, *, key: Any, **network: Any) -> Generator:
        """A multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        return cls(mlp(n_noise, n_features, key=key, **network), n_noise)

    def __call__(self, u: Any) -> Any:
        return self.network(u)

    def draw(self, key: Any) -> Any:
        """One example."""
        return self(jax.random.normal(key, (self.n_noise,)))
