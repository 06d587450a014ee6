"""Conditional decoders: p(x, z | y), with a network from z and y to the parameters of p(x | z, y)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, WHOLE, check_arguments
from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput, Intractable
from ...nn import embed_value, embedded_size, mlp, reinitialise
from ...spaces import Space
from .decoder import log_likelihood
from .likelihoods import Bernoulli, as_likelihood, n_features_of, n_outputs_of, output_size
from .priors import PseudoInputs, as_prior


class ConditionalDecoder(Energy):
    """A directed model given y: e(x, z; y) = −log p(z) − log p(x | f(z, y)), with any network f; log Z = 0.

    y is an input: the model has no distribution of it. Learn it with `ELBO` and a `ConditionalEncoder`. The
    terms of missing coordinates of x are left out.

    Args:
        network: f, maps z and y, one vector after the other, to the outputs of the likelihood. A class y is
            a one-hot vector there.
        latent: the prior: `StandardNormal(n)`, also given as the whole number n, or another.
        given: the space of y: `Categorical(k)` for a class, or `Real(m)`.
        likelihood: the distribution of x given the outputs of the network; `Bernoulli()` by default.

    Sohn, Lee and Yan (2015), Learning structured output representation using deep conditional generative
    models.

    >>> from energax import Categorical
    >>> coins = ConditionalDecoder(lambda zy: jnp.zeros(3), 2, Categorical(2))
    >>> coins(x=jnp.ones(3), z=jnp.zeros(2), y=jnp.array(1))             # 3 log 2 + log 2π
    Array(3.9173186, dtype=float32)
    """

    network: Callable[[Any], Any]
    latent: Any
    likelihood: Any
    given_space: Space = eqx.field(static=True)
    n_features: int = eqx.field(static=True)

    marginalises = frozenset({"x"})
    inputs = frozenset({"y"})

    def __init__(self, network: Callable[[Any], Any], latent: Any, given: Space, likelihood: Any = None):
        if not isinstance(given, Space):
            raise BadInput("given", repr(given), "a space, such as Categorical(10) or Real(2)")
        check_arguments(locals(), network=FUNCTION)
        self.network, self.given_space = network, given
        self.latent = as_prior(latent)
        if isinstance(self.latent, PseudoInputs) and self.latent.encoder is None:
            found, expected = "PseudoInputs without an encoder", "a prior that does not depend on q(z | x, y)"
            raise BadInput("latent", found, expected, "Try StandardNormal(n).")
        self.likelihood = as_likelihood(likelihood, Bernoulli())
        n_in = self.latent.width + embedded_size(given)
        self.n_features = n_features_of(self.likelihood, output_size(network, n_in))

    @classmethod
    def random(
        cls, n_features: int, latent: Any, given: Space, likelihood: Any = None, *, key: Any, **network: Any
    ) -> ConditionalDecoder:
        """A decoder with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        latent = as_prior(latent)
        check_arguments(locals(), n_features=WHOLE)
        n_out = n_outputs_of(as_likelihood(likelihood, Bernoulli()), n_features)
        built = mlp(latent.width + embedded_size(given), n_out, key=key, **network)
        return cls(built, latent, given, likelihood)

    def initialise(self, key, data, weight):
        network = reinitialise(self.network, key)
        return ConditionalDecoder(network, self.latent, self.given_space, self.likelihood)

    @property
    def spaces(self):
        return {
            "x": self.likelihood.space(self.n_features),
            "z": self.latent.space,
            "y": self.given_space,
        }

    @plain_method
    def knows(self, what, names=None):
        if what == "conditional":
            return names is not None and set(names) == {"z", "y"}
        if what == "draw":
            return names is None or ("y" in names and "x" not in names)
        return super().knows(what, names)

    def __call__(self, *, x, z, y):
        return self._energy(x, z, y)

    def relaxed_energy(self, *, x, z, y):
        """The energy at relaxed one-hot vectors z, for `GumbelSoftmax`."""
        return self._energy(x, z, y)

    def _output(self, z, y):
        return self.network(jnp.concatenate([self.latent.embed(z), embed_value(self.given_space, y)]))

    def _energy(self, x, z, y):
        return -self.latent.log_prob(z) - log_likelihood(self.likelihood, self._output(z, y), x)

    def free_energy(self, *, y, z=None):
        """−log p(z), or −log 1 without z."""
        return jnp.zeros(()) if z is None else -self.latent.log_prob(z)

    def conditional(self, name, **given):
        if name == "x" and set(given) == {"z", "y"}:
            return self.likelihood.distribution(self._output(**given))
        raise Intractable(
            f"conditional({name!r}) given {sorted(given)}",
            "an integral through the network",
            "closed forms",
            "Use the encoder that was learned with it, or importance sampling.",
        )

    def draw(self, key, **given):
        if "x" in given:
            return {"z": self.conditional("z", **given)}  # raises, with alternatives
        if "y" not in given:
            raise BadInput("given", f"{sorted(given)}", "a value of y, which is an input")
        first, second = jax.random.split(key)
        z = given["z"] if "z" in given else self.latent.sample(first)
        x = self.conditional("x", z=z, y=given["y"]).sample(second)
        x = x.astype(self.spaces["x"].jax_dtype)
        return {"x": x} if "z" in given else {"x": x, "z": z}
