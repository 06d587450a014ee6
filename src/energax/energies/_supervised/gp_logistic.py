"""A Gaussian process for two classes: an energy over (y, f) given x, one example is a whole data set."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import NONE, WHOLE, check_arguments
from ..._util.arrays import asarray
from ...kernels import Kernel
from ...missing import mask_of, value_of
from ...spaces import Binary, Real, Sequence
from .gp import check_kernel
from .gp_labels import LabelProcess


class LogisticProcess(LabelProcess):
    """A Gaussian process of two classes: e(y, f | x) = ½ fᵀK⁻¹f + ½ log|2πK| − Σ_i log σ((2y_i − 1) f_i).

    One example is a whole data set: x (n, d), y (n,) of zeros and ones, and f (n,), the log-odds of y = 1 at
    x. x is an input. The posterior of f is not Gaussian: `posterior(energy, {"x": X, "y": y}, Laplace())`
    approximates it, `Langevin()` draws from it. A missing y adds nothing. `SoftmaxProcess` is for several
    classes.

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

    def _log_likelihood(self, y, f):
        sign = 2 * asarray(value_of(y)).astype(f.dtype) - 1
        return jnp.where(mask_of(y), jax.nn.log_sigmoid(sign * f), 0).sum()

    def _labels(self, f):
        from numpyro.distributions import BernoulliLogits

        return BernoulliLogits(f)
