"""Classifiers: p(y | x) from one score per class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import (
    FUNCTION,
    MATRIX,
    VECTOR,
    WEIGHT_SCALAR,
    WHOLE,
    check_arguments,
    check_layer_sizes,
    whole,
)
from ..._util.keys import as_key
from ..._util.sizes import HESSIAN_NUMBERS
from ...errors import BadInput
from ...nn import mlp, reinitialise
from ...spaces import Categorical, Real
from .predictor import Predictor


class Classifier(Predictor):
    """The base class of classifiers: e(x, y) = −score_y(x), so that p(y | x) = softmax(scores(x))."""

    @abstractmethod
    def scores(self, x: Any) -> Any:
        """The scores of all classes, (k,)."""

    def __call__(self, *, x, y):
        return -self.scores(x)[y]

    def energies(self, *, x):
        """The energies of all classes, (k,)."""
        return -self.scores(x)

    def free_energy(self, *, x):
        return -jax.nn.logsumexp(self.scores(x))

    def distribution(self, x):
        from numpyro.distributions import Categorical as Choice

        return Choice(logits=self.scores(x))


class Linear(Classifier):
    """A linear classifier: e(x, y) = −(Wx + b)_y.

    With `CrossEntropy` it is multinomial logistic regression, with `Margin` the support vector
    machine of Crammer and Singer, with `Perceptron` the perceptron.

    Args:
        weight: W, (k, d), one row per class.
        bias: b, (k,).

    Crammer and Singer (2001), On the algorithmic implementation of multiclass kernel-based
    vector machines.

    >>> two = Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2))
    >>> two.conditional("y", x=jnp.array([1.0])).probs
    Array([0.880797  , 0.11920291], dtype=float32)
    """

    weight: jax.Array
    bias: jax.Array

    def __check_init__(self):
        check_arguments(self, weight=MATRIX, bias=VECTOR)
        if self.weight.shape[-2] != self.bias.shape[-1]:
            shapes = f"weight {self.weight.shape}, bias {self.bias.shape}"
            raise BadInput("weight, bias", shapes, "(k, d) and (k,): one row per class")

    @classmethod
    def random(cls, n_features: int, n_classes: int, *, key: Any, scale: float = 0.01) -> Linear:
        """A classifier with normal weights of standard deviation `scale` and biases of 0."""
        check_arguments(locals(), n_features=WHOLE, n_classes=whole(2), scale=WEIGHT_SCALAR)
        check_layer_sizes("n_features, n_classes", (n_features, n_classes))
        weight = scale * jax.random.normal(as_key(key), (n_classes, n_features))
        return cls(weight, jnp.zeros(n_classes))

    def initialise(self, key, data, weight):
        noise = 0.01 * jax.random.normal(key, self.weight.shape, self.weight.dtype)
        return Linear(noise, jnp.zeros_like(self.bias))

    @property
    def spaces(self):
        return {"x": Real(self.weight.shape[-1]), "y": Categorical(self.bias.shape[-1])}

    def scores(self, x):
        return self.weight @ x + self.bias

    def score_hessian(self, batch, pairs):
        k, d = self.weight.shape

        def chunk(rows, weight):
            """For every pair: products of the coordinates of x, of these and the bias, and of the bias."""
            x, c = rows["x"], pairs(rows, weight)
            if k == 2:  # c >= 0. One array is written, not two: on a9a 13 instead of 15 ms.
                scaled = jnp.sqrt(c) * x
                return scaled.T @ scaled, x.T @ c, c.sum(0)
            scaled = (c[:, :, None] * x[:, None, :]).reshape(x.shape[0], -1)
            return x.T @ scaled, x.T @ c, c.sum(0)

        size = HESSIAN_NUMBERS.rows(d * k * (k - 1) // 2)
        inner, cross, total = batch.sum_chunks(chunk, size)
        inner, laplacian = inner.reshape(d, -1, d), _laplacian(k).astype(inner.dtype)
        weight = jnp.einsum("abp,ipj->aibj", laplacian, inner).reshape(k * d, k * d)
        mixed = jnp.einsum("abp,ip->aib", laplacian, cross).reshape(k * d, k)
        rows = jnp.concatenate([weight, mixed], 1), jnp.concatenate([mixed.T, laplacian @ total], 1)
        return jnp.concatenate(rows)


def _laplacian(k: int) -> np.ndarray:
    """(e_a − e_b)(e_a − e_b)ᵀ of every pair a < b of k classes, (k, k, k(k − 1)/2)."""
    a, b = np.triu_indices(k, 1)
    differences = np.eye(k)[a] - np.eye(k)[b]
    return np.einsum("pi,pj->ijp", differences, differences)


class Scorer(Classifier):
    """A neural classifier: e(x, y) = −f(x)_y, with any network f.

    Args:
        network: f, maps x (n_features,) to (n_classes,).
        n_features: the number of inputs.
        n_classes: the number of classes.

    LeCun et al. (2006), A tutorial on energy-based learning.

    >>> net = Scorer.random(4, 3, width=8, key=0)
    >>> float(net.conditional("y", x=jnp.ones(4)).probs.sum().round(3))
    1.0
    """

    network: Callable[[Any], Any]
    n_features: int = eqx.field(static=True)
    n_classes: int = eqx.field(static=True)

    def __check_init__(self):
        check_arguments(self, network=FUNCTION, n_features=WHOLE, n_classes=whole(2))

    @classmethod
    def random(cls, n_features: int, n_classes: int, *, key: Any, **network: Any) -> Scorer:
        """A classifier with a multilayer perceptron; `width`, `depth` and `activation` go to `nn.mlp`."""
        return cls(mlp(n_features, n_classes, key=key, **network), n_features, n_classes)

    def initialise(self, key, data, weight):
        return Scorer(reinitialise(self.network, key), self.n_features, self.n_classes)

    @property
    def spaces(self):
        return {"x": Real(self.n_features), "y": Categorical(self.n_classes)}

    def scores(self, x):
        return self.network(x)
