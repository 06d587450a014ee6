"""Decoders: a simple prior over the hidden z, and a network from z to the parameters of p(x | z)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, WHOLE, check_arguments
from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import Intractable
from ...missing import is_masked
from ...nn import mlp, reinitialise
from .likelihoods import Bernoulli, as_likelihood, n_features_of, n_outputs_of, output_size
from .priors import as_prior, bind_encoder


class Decoder(Energy):
    """A directed model with a hidden z: e(x, z) = −log p(z) − log p(x | f(z)), with any network f; log Z = 0.

    Learn it with `ELBO`. The terms of missing coordinates of x are left out.

    Args:
        network: f, maps z as a vector (`latent.width`,) to the outputs of the likelihood, one number per
            feature for most, (d,).
        latent: the prior: `StandardNormal(n)`, also given as the whole number n, `UniformChoices(k, m)`,
            `EnergyPrior(energy)` or `PseudoInputs(inputs)`.
        likelihood: the distribution of x given the outputs of the network: `Bernoulli()` (the
            default), `Gaussian(scale)`, `Categorical(k)` or any other likelihood of energax.energies.

    Kingma and Welling (2014), Auto-encoding variational Bayes; Rezende, Mohamed and Wierstra
    (2014), Stochastic backpropagation and approximate inference in deep generative models.

    >>> coins = Decoder(lambda z: jnp.zeros(3), 2)
    >>> coins(x=jnp.ones(3), z=jnp.zeros(2))                    # 3 log 2 + log 2π
    Array(3.9173186, dtype=float32)
    """

    network: Callable[[Any], Any]
    latent: Any
    likelihood: Any
    n_features: int = eqx.field(static=True)

    marginalises = frozenset({"x"})

    def __init__(self, network: Callable[[Any], Any], latent: Any, likelihood: Any = None):
        self.network = network
        check_arguments(locals(), network=FUNCTION)
        self.latent = as_prior(latent)
        self.likelihood = as_likelihood(likelihood, Bernoulli())
        n_out = output_size(network, self.latent.width)
        self.n_features = n_features_of(self.likelihood, n_out)

    @classmethod
    def random(
        cls, n_features: int, latent: Any, likelihood: Any = None, *, key: Any, **network: Any
    ) -> Decoder:
        """A decoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        latent = as_prior(latent)
        check_arguments(locals(), n_features=WHOLE)
        n_out = n_outputs_of(as_likelihood(likelihood, Bernoulli()), n_features)
        return cls(mlp(latent.width, n_out, key=key, **network), latent, likelihood)

    def initialise(self, key, data, weight):
        return Decoder(reinitialise(self.network, key), self.latent, self.likelihood)

    @property
    def spaces(self):
        return {"x": self.likelihood.space(self.n_features), "z": self.latent.space}

    @plain_method
    def knows(self, what, names=None):
        # p(z | x), F(x) and draws given x are integrals through the network.
        if what == "conditional":
            return names is not None and set(names) == {"z"}
        if what == "free_energy":
            return names is not None and set(names) == {"z"}
        if what == "draw":
            return names is None or "x" not in names
        return super().knows(what, names)

    def __call__(self, *, x, z):
        return self._energy(x, z)

    def relaxed_energy(self, *, x, z):
        """The energy at relaxed one-hot vectors z, (m, k) or (k,), for `GumbelSoftmax`."""
        return self._energy(x, z)

    def _energy(self, x, z):
        output = self.network(self.latent.embed(z))
        return -self.latent.log_prob(z) - log_likelihood(self.likelihood, output, x)

    def free_energy(self, *, z):
        return -self.latent.log_prob(z)

    def with_encoder(self, encoder):
        """The decoder whose prior uses this encoder, if it is one of `PseudoInputs`."""
        return eqx.tree_at(lambda e: e.latent, self, bind_encoder(self.latent, encoder))

    def conditional(self, name, **given):
        if name == "x" and set(given) == {"z"}:
            return self.likelihood.distribution(self.network(self.latent.embed(given["z"])))
        raise Intractable(
            f"conditional({name!r}) given {sorted(given)}",
            "an integral through the network",
            "closed forms",
            "Use the encoder that was learned with it, or importance sampling.",
        )

    def log_partition(self):
        return jnp.zeros(())

    def draw(self, key, **given):
        if "x" in given:
            return {"z": self.conditional("z", **given)}  # raises, with alternatives
        first, second = jax.random.split(key)
        z = given["z"] if "z" in given else self.latent.sample(first)
        x = self.conditional("x", z=z).sample(second)
        x = x.astype(self.spaces["x"].jax_dtype)
        return {"x": x} if "z" in given else {"x": x, "z": z}


def log_likelihood(likelihood: Any, output: Any, x: Any) -> Any:
    """log p(x | output), without the terms of missing coordinates."""
    if not is_masked(x):
        return likelihood.log_prob(output, x).sum()
    return jnp.where(x.observed, likelihood.log_prob(output, x.value), 0).sum()
