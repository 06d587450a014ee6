"""Autoencoders as energies: the loss of reconstructing x from its code."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import WHOLE, check_arguments
from ...energy import Energy
from ...errors import BadInput
from ...nn import EncoderDecoder, reinitialise
from .likelihoods import Gaussian, as_likelihood, n_features_of, n_outputs_of, output_size


class Autoencoder(Energy):
    """The loss of reconstruction as an energy: e(x) = −log p(x | g(f(x))), with an encoder f and a decoder g.

    With the default likelihood this is ½ ‖x − g(f(x))‖² up to a constant. The energy is low where the
    network reconstructs well, near the data, but exp(−e) need not be normalisable: learn it with
    `Reconstruction`, and compare energies, not probabilities.

    Args:
        network: an object with `encode` and `decode`: `nn.EncoderDecoder` or `nn.TiedLayers`.
        n_features: the length of x.
        likelihood: the distribution of x given the outputs of the decoder; `Gaussian(1.0)` by default.

    Rumelhart, Hinton and Williams (1986), Learning internal representations by error propagation; as an
    energy LeCun et al. (2006), A tutorial on energy-based learning.

    >>> from energax.nn import TiedLayers
    >>> perfect = TiedLayers((jnp.eye(2),), (jnp.zeros(2),), (jnp.zeros(2),), activation=jnp.abs)
    >>> Autoencoder(perfect, 2)(x=jnp.array([1.0, 2.0]))               # log 2π
    Array(1.837877, dtype=float32)
    """

    network: Any
    likelihood: Any
    n_features: int = eqx.field(static=True)

    def __init__(self, network: Any, n_features: int, likelihood: Any = None):
        if not (callable(getattr(network, "encode", None)) and callable(getattr(network, "decode", None))):
            expected = "an object with encode and decode, such as nn.EncoderDecoder or nn.TiedLayers"
            raise BadInput("network", type(network).__name__, expected)
        self.network, self.n_features = network, n_features
        check_arguments(locals(), n_features=WHOLE)
        self.likelihood = as_likelihood(likelihood, Gaussian(1.0))
        n_outputs = n_outputs_of(self.likelihood, n_features)
        found = output_size(lambda x: network.decode(network.encode(x)), n_features)
        if found != n_outputs:
            raise BadInput("network", f"an output of shape ({found},)", f"({n_outputs},)")
        n_features_of(self.likelihood, n_outputs)

    @classmethod
    def random(
        cls, n_features: int, n_code: int, likelihood: Any = None, *, key: Any, **network: Any
    ) -> Autoencoder:
        """Two multilayer perceptrons; `width`, `depth` and `activation` go to `nn.mlp`."""
        check_arguments(locals(), n_features=WHOLE, n_code=WHOLE)
        likelihood = as_likelihood(likelihood, Gaussian(1.0))
        n_outputs = n_outputs_of(likelihood, n_features)
        built = EncoderDecoder.random(n_features, n_code, n_outputs, key=key, **network)
        return cls(built, n_features, likelihood)

    def initialise(self, key, data, weight):
        return Autoencoder(reinitialise(self.network, key), self.n_features, self.likelihood)

    @property
    def spaces(self):
        return {"x": self.likelihood.space(self.n_features)}

    @property
    def n_code(self) -> int:
        """The length of the code."""
        x = jax.ShapeDtypeStruct((self.n_features,), jnp.zeros(()).dtype)
        return eqx.filter_eval_shape(self.network.encode, x).shape[0]

    def __call__(self, *, x):
        return self.reconstruction_energy(x, x)

    def reconstruction_energy(self, x, seen):
        """−log p(x | g(f(seen))): of x reconstructed from another input, such as x with noise."""
        return -self.likelihood.log_prob(self.network.decode(self.encode(seen)), x).sum()

    def encode(self, x):
        """The code f(x), (k,)."""
        x = jnp.asarray(x)
        return self.network.encode(x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(float))

    def reconstruct(self, x: Any) -> Any:
        """E[x | g(f(x))], (d,)."""
        return self.likelihood.mean(self.network.decode(self.encode(x)))
