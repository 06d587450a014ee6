"""Generators: networks that map noise to an example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from .._util.arguments import FUNCTION, WHOLE, check_arguments
from ._network import mlp


class Generator(eqx.Module):
    """A generator: x = G(u), u ~ N(0, I). It draws in one pass; its density is not known.

    Args:
        network: G, maps noise (n_noise,) to an example.
        n_noise: the number of noise variables u.

    Goodfellow et al. (2014), Generative adversarial nets.

    >>> Generator.random(3, 2, key=0).draw(jax.random.key(0)).shape
    (2,)
    """

    network: Callable[[Any], Any]
    n_noise: int = eqx.field(static=True)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, n_noise=WHOLE)

    @classmethod
    def random(cls, n_noise: int, n_features: int, *, key: Any, **network: Any) -> Generator:
        """A generator with a multilayer perceptron from (n_noise,) to (n_features,).

        `width`, `depth` and `activation` are passed to `nn.mlp`.
        """
        return cls(mlp(n_noise, n_features, key=key, **network), n_noise)

    def __call__(self, u: Any) -> Any:
        return self.network(u)

    def draw(self, key: Any) -> Any:
        """Draw one example."""
        return self(jax.random.normal(key, (self.n_noise,)))
