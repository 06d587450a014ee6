"""`LabelProcess`: labels whose probabilities depend on the values f of Gaussian processes."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput
from ...kernels import Kernel
from ...spaces import Sequence
from .gp import prior, prior_energy


class LabelProcess(Energy):
    """The base of Gaussian processes of classes: e(y, f | x) = Σ_c −log N(f_c; 0, K) − Σ_i log p(y_i | f_i).

    One example is a whole data set: x (n, d), an input, labels y (n,), and f, one function (n,) or k of them
    (n, k). A subclass has the spaces of x, y and f, and p(y | f).
    """

    kernel: eqx.AbstractVar[Kernel]

    inputs = frozenset({"x"})
    marginalises = frozenset({"y"})

    @abstractmethod
    def _log_likelihood(self, y: Any, f: Any) -> Any:
        """Σ_i log p(y_i | f_i); a missing y adds nothing."""

    @abstractmethod
    def _labels(self, f: Any) -> Any:
        """p(y | f) of one label per point, as a distribution of NumPyro."""

    def __call__(self, *, x, y, f):
        return self._prior_energy(x, f) - self._log_likelihood(y, f)

    def free_energy(self, *, x, f=None):
        return jnp.zeros((), x.dtype) if f is None else self._prior_energy(x, f)

    @plain_method
    def knows(self, what, names=None):
        if what in ("conditional", "draw") and names is not None:
            return set(names) in ({"x"}, {"x", "f"})
        return super().knows(what, names)

    def conditional(self, name, *, x, f=None):
        if name == "y" and f is not None:
            return self._labels(f).to_event(1)
        if name == "f" and f is None:
            return self._prior(x)
        raise BadInput("conditional", repr(name), "'y' given x and f, or 'f' given x")

    def draw(self, key, *, x, f=None):
        first, second = jax.random.split(key)
        drawn = {} if f is not None else {"f": self.conditional("f", x=x).sample(first).astype(x.dtype)}
        f = drawn.get("f", f)
        y: Any = self.conditional("y", x=x, f=f).sample(second)
        return {"y": y.astype(self.spaces["y"].jax_dtype), **drawn}

    def _prior_energy(self, x: Any, f: Any) -> Any:
        """−log N(f_c; 0, K), summed over the functions: one factor of K for all."""
        one = lambda column: prior_energy(self.kernel, x, column)
        return one(f) if f.ndim == 1 else jax.vmap(one, in_axes=1)(f).sum()

    def _prior(self, x: Any) -> Any:
        """N(0, K) of every function, as a distribution of f."""
        from numpyro.distributions import MatrixNormal

        one, latent = prior(self.kernel, x), cast(Sequence, self.spaces["f"]).space
        if not latent.shape:
            return one
        columns = jnp.eye(latent.size, dtype=one.scale_tril.dtype)
        mean = jnp.zeros((len(x), len(columns)), columns.dtype)
        return MatrixNormal(mean, scale_tril_row=one.scale_tril, scale_tril_column=columns)
