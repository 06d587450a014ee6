"""The Gaussian process: an energy over (y, f) given x, where one example is a whole data set."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import NONE, WHOLE, check_arguments
from ..._util.arrays import asarray
from ..._util.hyperparameter import hyperparameter
from ..._util.linalg import cholesky
from ..._util.methods import plain_method
from ...algorithms.gaussian.process import add_jitter, condition, log_normal, noisy_covariance
from ...energy import Energy
from ...errors import BadInput, check_instance, check_whole_number
from ...kernels import Kernel
from ...missing import mask_of, value_of
from ...spaces import Positive, Real, Sequence, parameter


def check_kernel(kernel: Any, n_features: int) -> None:
    """Raise unless `kernel` is a kernel of points with so many columns."""
    check_instance("kernel", kernel, Kernel, "a kernel of energax.kernels")
    check_whole_number("n_features", n_features)
    if kernel.n_dims not in (None, n_features):
        found = f"length scales of {kernel.n_dims} columns"
        raise BadInput("kernel", found, f"n_features={n_features} of them")


def prior_energy(kernel: Kernel, x: Any, f: Any) -> Any:
    """½ fᵀK⁻¹f + ½ log|2πK|, of the values f of a random function at x."""
    matrix = kernel.matrix(x)
    everywhere = jnp.ones(len(x), bool)
    return -log_normal(add_jitter(matrix, jnp.diagonal(matrix)), f, everywhere)


def prior(kernel: Kernel, x: Any) -> Any:
    """N(0, K), the distribution of the values of a random function at x."""
    from numpyro.distributions import MultivariateNormal

    matrix = kernel.matrix(x)
    scale = jnp.diagonal(matrix)
    return MultivariateNormal(jnp.zeros_like(scale), scale_tril=cholesky(add_jitter(matrix, scale)))


class GaussianProcess(Energy):
    """A Gaussian process: e(y, f | x) = ½ fᵀK⁻¹f + ½ log|2πK| − log N(y; f, σ²I), K_ij = k(x_i, x_j).

    One example is a whole data set: x (n, d), y (n,) and the values f (n,) of a random function at x. x is an
    input. `posterior(gp, {"x": X, "y": y})` is the Gaussian over f, `log_prob(gp, {"y": y}, given={"x": X})`
    the evidence, `sample(gp, 5, {"x": X})` draws from the prior. A y that is NaN is missing: give the points
    to predict a y of NaN, and their f and y have a posterior.

    Args:
        kernel: k.
        noise: σ², the variance of y around f, one number, or one per point.
        n_features: d.
        length: n; None for data sets of any size.

    Rasmussen and Williams (2006), Gaussian processes for machine learning, chapter 2.

    >>> import numpy as np
    >>> from energax import posterior
    >>> from energax.kernels import RBF
    >>> gp = GaussianProcess(RBF(), noise=0.01)
    >>> found = posterior(gp, {"x": [[0.0], [1.0], [0.5]], "y": [0.0, 1.0, np.nan]})
    >>> found.mean["f"].round(3), found.mean["y"].round(3)
    (array([0.009, 0.985, 0.546]), array([0.   , 1.   , 0.546]))
    """

    kernel: Kernel
    noise: jax.Array = parameter(
        Positive(), default=1e-2, converter=functools.partial(hyperparameter, name="noise")
    )
    n_features: int = eqx.field(static=True, default=1)
    length: int | None = eqx.field(static=True, default=None)

    inputs = frozenset({"x"})
    marginalises = frozenset({"y"})

    def __check_init__(self):
        check_kernel(self.kernel, self.n_features)
        check_arguments(self, length=WHOLE | NONE)

    @property
    def spaces(self):
        number = Sequence(Real(), self.length)
        return {"x": Sequence(Real(self.n_features), self.length), "y": number, "f": number}

    def __call__(self, *, x, y, f):
        return prior_energy(self.kernel, x, f) + self._noise_energy(y, f)

    def free_energy(self, *, x, y=None, f=None):
        if y is not None and f is not None:
            return self(x=x, y=y, f=f)
        if y is not None:
            observed = mask_of(y)
            covariance = noisy_covariance(self.kernel.matrix(x), self._noise(x), observed)
            return -log_normal(covariance, asarray(value_of(y)), observed)
        return jnp.zeros((), x.dtype) if f is None else prior_energy(self.kernel, x, f)

    @plain_method
    def knows(self, what, names=None):
        if what == "conditional" and names is not None:
            return "x" in names and len(set(names) & {"y", "f"}) < 2
        return super().knows(what, names)

    def conditional(self, name, *, x, y=None, f=None):
        from numpyro.distributions import MultivariateNormal, Normal

        if name not in ("y", "f") or {"y": y, "f": f}[name] is not None:
            raise BadInput("conditional", repr(name), "'f' or 'y', whichever is not given")
        if f is not None:
            return Normal(f, jnp.sqrt(self._noise(x))).to_event(1)
        kernel, noise = self.kernel.matrix(x), self._noise(x)
        scale = jnp.diagonal(kernel)
        if name == "y":
            covariance = kernel + jnp.eye(len(x), dtype=kernel.dtype) * noise
            return MultivariateNormal(jnp.zeros_like(scale), scale_tril=cholesky(covariance))
        if y is None:
            return prior(self.kernel, x)
        mean, covariance = condition(kernel, noise, asarray(value_of(y)), mask_of(y))
        return MultivariateNormal(mean, scale_tril=cholesky(add_jitter(covariance, scale)))

    def draw(self, key, *, x, y=None, f=None):
        first, second = jax.random.split(key)
        drawn = {}
        if f is None:
            f = drawn["f"] = self.conditional("f", x=x, y=y).sample(first).astype(x.dtype)
        new = self.conditional("y", x=x, f=f).sample(second).astype(x.dtype)
        return {"y": new if y is None else jnp.where(mask_of(y), asarray(value_of(y)), new), **drawn}

    def argmin(self, *, x, y=None, f=None):
        """The most probable f, its mean, and y = f where y is missing."""
        if f is not None:
            return {"y": f}
        zero = jnp.zeros(len(x), x.dtype)
        if y is None:
            return {"y": zero, "f": zero}
        observed = mask_of(y)
        mean, _ = condition(self.kernel.matrix(x), self._noise(x), asarray(value_of(y)), observed)
        return {"y": jnp.where(observed, asarray(value_of(y)), mean), "f": mean}

    def impute(self, data):
        """The data sets, with every missing y at its mean given the others."""
        complete = lambda x, y: self.argmin(x=x, y=y)["y"]
        return {**data, "y": jax.vmap(complete)(data["x"], data["y"])}

    def initialise(self, key, data, weight):
        """The same process with hyperparameters multiplied by random factors, exp N(0, 1)."""
        leaves, treedef = jax.tree.flatten(self)
        keys = jax.random.split(key, len(leaves))
        jump = lambda k, leaf: leaf * jnp.exp(jax.random.normal(k, leaf.shape, leaf.dtype))
        return jax.tree.unflatten(
            treedef,
            [
                jump(k, leaf) if eqx.is_inexact_array(leaf) else leaf
                for k, leaf in zip(keys, leaves, strict=True)
            ],
        )

    def _noise(self, x: Any) -> Any:
        return jnp.broadcast_to(self.noise, (len(x),)).astype(x.dtype)

    def _noise_energy(self, y: Any, f: Any) -> Any:
        noise = jnp.broadcast_to(self.noise, f.shape).astype(f.dtype)
        terms = (asarray(value_of(y)) - f) ** 2 / noise + jnp.log(2 * jnp.pi * noise)
        return 0.5 * jnp.where(mask_of(y), terms, 0).sum()
