"""Priors of decoders: p(z), and what the network gets of z.

A prior has `space`, `width` (the length of what the network gets), `log_prob(z)`, `sample(key)` and
`embed(z)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, MATRIX, NONE, WHOLE, check_arguments, is_whole, with_methods
from ..._util.arrays import asarray
from ...energy import Energy, free_energy
from ...errors import BadInput, check_instance
from ...spaces import Categorical, Real, Space


class StandardNormal(eqx.Module):
    """The prior z ~ N(0, I) in ℝⁿ; the network gets z itself.

    Args:
        n: the number of hidden variables.

    >>> StandardNormal(2).log_prob(jnp.zeros(2))                # −log 2π
    Array(-1.837877, dtype=float32)
    """

    n: int = eqx.field(static=True)

    def __check_init__(self):
        check_arguments(self, n=WHOLE)

    @property
    def space(self) -> Space:
        return Real(self.n)

    @property
    def width(self) -> int:
        return self.n

    def log_prob(self, z: Any) -> Any:
        return -0.5 * z @ z - 0.5 * self.n * jnp.log(2 * jnp.pi)

    def sample(self, key: Any) -> Any:
        return jax.random.normal(key, (self.n,))

    def embed(self, z: Any) -> Any:
        return z


class UniformChoices(eqx.Module):
    """The prior of m independent variables, uniform over k values; the network gets one-hot vectors (m · k,).

    Args:
        k: the values of each variable.
        m: the number of variables; None is one scalar variable.

    >>> UniformChoices(3, 2).embed(jnp.array([0, 2]))
    Array([1., 0., 0., 0., 0., 1.], dtype=float32)
    """

    k: int = eqx.field(static=True)
    m: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_arguments(self, k=WHOLE, m=WHOLE | NONE)

    @property
    def space(self) -> Space:
        return Categorical(self.k) if self.m is None else Categorical(self.k, self.m)

    @property
    def width(self) -> int:
        return self.k * (self.m or 1)

    def log_prob(self, z: Any) -> Any:
        return -(self.m or 1) * jnp.log(asarray(float(self.k)))

    def sample(self, key: Any) -> Any:
        return jax.random.randint(key, self.space.shape, 0, self.k)

    def embed(self, z: Any) -> Any:
        """z as one-hot vectors, (m · k,); relaxed ones, on the simplex, are only flattened."""
        soft = z if jnp.issubdtype(asarray(z).dtype, jnp.floating) else jax.nn.one_hot(z, self.k)
        return jnp.ravel(soft)


class EnergyPrior(eqx.Module):
    """The prior p(z) of any energy over a real vector x with a known log Z: a mixture, a flow, a chain.

    Its other variables, such as the component of a mixture, are summed out.

    Args:
        energy: the energy, with `draw` and `log_partition`.

    Jiang et al. (2017), Variational deep embedding (a mixture of Gaussians as the prior); Rezende and
    Mohamed (2015), Variational inference with normalizing flows.

    >>> from energax import Mixture
    >>> from energax.energies import Gaussians
    >>> two = EnergyPrior(Mixture(Gaussians(jnp.array([[0.0], [0.0]]), jnp.ones((2, 1, 1)))))
    >>> two.log_prob(jnp.zeros(1))                              # −½ log 2π
    Array(-0.9189385, dtype=float32)
    """

    energy: Energy

    def __check_init__(self):
        check_instance("energy", self.energy, Energy, "an energy")
        space = self.energy.spaces.get("x")
        if not isinstance(space, Real) or space.ndim != 1:
            raise BadInput("energy", f"x in {space!r}", "x in Real(n), the space of z")
        if not self.energy.knows("log_partition"):
            found = f"{type(self.energy).__name__}, whose log Z is not known"
            raise BadInput("energy", found, "a normalised density, such as a mixture or a flow")

    @property
    def space(self) -> Space:
        return self.energy.spaces["x"]

    @property
    def width(self) -> int:
        return self.space.size

    def log_prob(self, z: Any) -> Any:
        return -free_energy(self.energy, {"x": z}) - self.energy.log_partition()

    def sample(self, key: Any) -> Any:
        return self.energy.draw(key)["x"]

    def embed(self, z: Any) -> Any:
        return z


class PseudoInputs(eqx.Module):
    """The prior p(z) = (1/K) Σ_k q(z | u_k): the mean of the encoder over K learned inputs (VampPrior).

    The encoder is the partner of `ELBO`, which passes it to the prior at every step. After learning, give
    it to the energy: `result.energy.with_encoder(result.partner)`.

    Args:
        inputs: u, the pseudo-inputs, (K, d); rows of the data are a good start.
        n: the number of hidden variables.
        encoder: q(z | x), a Gaussian encoder; None until it is known.

    Tomczak and Welling (2018), VAE with a VampPrior.

    >>> from energax.nn import Encoder
    >>> PseudoInputs(jnp.eye(4), 2, Encoder.random(4, 2, key=0)).log_prob(jnp.zeros(2)).shape
    ()
    """

    inputs: jax.Array
    n: int = eqx.field(static=True)
    encoder: Callable[..., Any] | None = None

    def __check_init__(self):
        check_arguments(self, inputs=MATRIX, n=WHOLE, encoder=FUNCTION | NONE)
        if jnp.ndim(self.inputs) != 2:
            raise BadInput("inputs", f"shape {jnp.shape(self.inputs)}", "(K, d): one input per row")

    @property
    def space(self) -> Space:
        return Real(self.n)

    @property
    def width(self) -> int:
        return self.n

    def _component(self, u: Any) -> Any:
        if self.encoder is None:
            found, remedy = "no encoder", "Use energy.with_encoder(encoder); ELBO does it while learning."
            raise BadInput("PseudoInputs", found, "the encoder that the prior averages", remedy)
        return self.encoder(x=u)

    def log_prob(self, z: Any) -> Any:
        log_q = jax.vmap(lambda u: self._component(u).log_prob(z))(asarray(self.inputs))
        return jax.nn.logsumexp(log_q) - jnp.log(asarray(float(len(log_q)), log_q.dtype))

    def sample(self, key: Any) -> Any:
        choose, draw = jax.random.split(key)
        k = jax.random.randint(choose, (), 0, len(self.inputs))
        return self._component(asarray(self.inputs)[k]).sample(draw)

    def embed(self, z: Any) -> Any:
        return z


def as_prior(latent: Any) -> Any:
    """Return the prior of a hidden variable; a whole number n is N(0, I) in ℝⁿ. Raise if it is none."""
    if is_whole(latent):
        return StandardNormal(latent)
    expected = "a whole number >= 1, or a prior such as StandardNormal(2)"
    with_methods("log_prob", "sample", "embed", expected=expected).check("latent", latent)
    return latent


def bind_encoder(prior: Any, encoder: Any) -> Any:
    """Return the prior with this encoder, if it needs one."""
    if not isinstance(prior, PseudoInputs):
        return prior
    return PseudoInputs(prior.inputs, prior.n, encoder)
