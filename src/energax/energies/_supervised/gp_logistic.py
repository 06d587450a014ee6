"""A Gaussian process for two classes: an energy over (y, f) given x, one example is a whole data set."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import NONE, WHOLE, check_arguments
from ..._util.arrays import asarray
from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput
from ...kernels import Kernel
from ...missing import mask_of, value_of
from ...spaces import Binary, Real, Sequence
from .gp import check_kernel, prior, prior_energy


class LogisticProcess(Energy):
    """A Gaussian process of two classes: e(y, f | x) = ½ fᵀK⁻¹f + ½ log|2πK| − Σ_i log σ((2y_i − 1) f_i).

    One example is a whole data set: x (n, d), y (n,) of zeros and ones, and f (n,), the log-odds of y = 1 at
    x. x is an input. The posterior of f is not Gaussian: `posterior(energy, {"x": X, "y": y}, Laplace())`
    approximates it, `Langevin()` draws from it. A missing y adds nothing.

    Args:
        kernel: k.
        n_features: d.
        length: n; None for data sets of any size (`Laplace` needs it).

    Rasmussen and Williams (2006), Gaussian processes for machine learning, chapter 3.

    >>> import numpy as np
    >>> from energax import posterior
    >>> from energax.infer import Laplace
    >>> from energax.kernels import RBF
    >>> process = LogisticProcess(4.0 * RBF(), length=2)
    >>> posterior(process, {"x": [[0.0], [3.0]], "y": [0, 1]}, Laplace()).mean["f"].round(2)
    array([-1.04,  1.04])
    """

    kernel: Kernel
    n_features: int = eqx.field(static=True, default=1)
    length: int | None = eqx.field(static=True, default=None)

    inputs = frozenset({"x"})
    marginalises = frozenset({"y"})

    def __check_init__(self):
        check_kernel(self.kernel, self.n_features)
        check_arguments(self, length=WHOLE | NONE)

    @property
    def spaces(self):
        return {
            "x": Sequence(Real(self.n_features), self.length),
            "y": Sequence(Binary(), self.length),
            "f": Sequence(Real(), self.length),
        }

    def __call__(self, *, x, y, f):
        sign = 2 * asarray(value_of(y)).astype(f.dtype) - 1
        log_p = jnp.where(mask_of(y), jax.nn.log_sigmoid(sign * f), 0).sum()
        return prior_energy(self.kernel, x, f) - log_p

    def free_energy(self, *, x, f=None):
        return jnp.zeros((), x.dtype) if f is None else prior_energy(self.kernel, x, f)

    @plain_method
    def knows(self, what, names=None):
        if what in ("conditional", "draw") and names is not None:
            return set(names) in ({"x"}, {"x", "f"})
        return super().knows(what, names)

    def conditional(self, name, *, x, f=None):
        from numpyro.distributions import BernoulliLogits

        if name == "y" and f is not None:
            return BernoulliLogits(f).to_event(1)
        if name == "f" and f is None:
            return prior(self.kernel, x)
        raise BadInput("conditional", repr(name), "'y' given x and f, or 'f' given x")

    def draw(self, key, *, x, f=None):
        first, second = jax.random.split(key)
        drawn = {} if f is not None else {"f": self.conditional("f", x=x).sample(first).astype(x.dtype)}
        f = drawn.get("f", f)
        y: Any = self.conditional("y", x=x, f=f).sample(second)
        return {"y": y.astype(self.spaces["y"].jax_dtype), **drawn}
