"""Gaussian processes for several classes: an energy over (y, f) given x, one example is a whole data set."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import NONE, WHOLE, check_arguments, whole
from ..._util.arrays import asarray
from ...kernels import Kernel
from ...missing import mask_of, value_of
from ...spaces import Categorical, Real, Sequence
from .gp import check_kernel
from .gp_labels import LabelProcess


class SoftmaxProcess(LabelProcess):
    """k Gaussian processes: e(y, f | x) = Σ_c (½ f_cᵀK⁻¹f_c + ½ log|2πK|) − Σ_i log softmax(f_i)[y_i].

    One example is a whole data set: x (n, d), y (n,) of classes 0 … k − 1, and f (n, k), one function per
    class, all with the kernel of K. x is an input. The posterior of f is not Gaussian:
    `posterior(energy, {"x": X, "y": y}, Laplace())` approximates it, with a Hessian of (kn)² numbers;
    `GaussianProcessClassifier(multi_class="softmax")` computes the same in O(kn³). A missing y adds nothing.
    Of two classes the difference f_1 − f_0 is that of a `LogisticProcess` with kernel 2K.

    Args:
        kernel: the kernel of each function.
        n_classes: k.
        n_features: d.
        length: n; None for data sets of any size (`Laplace` needs it).

    Williams and Barber (1998), Bayesian classification with Gaussian processes; Rasmussen and Williams
    (2006), Gaussian processes for machine learning, section 3.5.

    >>> import numpy as np
    >>> from energax import posterior
    >>> from energax.infer import Laplace
    >>> from energax.kernels import RBF
    >>> process = SoftmaxProcess(4.0 * RBF(), 3, length=2)
    >>> posterior(process, {"x": [[0.0], [3.0]], "y": [0, 2]}, Laplace()).mean["f"].round(2)
    array([[ 1.1 , -0.56, -0.54],
           [-0.54, -0.56,  1.1 ]])
    """

    kernel: Kernel
    n_classes: int = eqx.field(static=True)
    n_features: int = eqx.field(static=True, default=1)
    length: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        check_kernel(self.kernel, self.n_features)
        check_arguments(self, n_classes=whole(2), length=WHOLE | NONE)

    @property
    def spaces(self):
        return {
            "x": Sequence(Real(self.n_features), self.length),
            "y": Sequence(Categorical(self.n_classes), self.length),
            "f": Sequence(Real(self.n_classes), self.length),
        }

    def _log_likelihood(self, y, f):
        index = asarray(value_of(y)).astype(int)[:, None]
        log_p = jnp.take_along_axis(jax.nn.log_softmax(f), index, axis=1)[:, 0]
        return jnp.where(mask_of(y), log_p, 0).sum()

    def _labels(self, f):
        from numpyro.distributions import CategoricalLogits

        return CategoricalLogits(f)
