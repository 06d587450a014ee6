"""Likelihoods made of likelihoods: mixtures, and columns of different kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import Setting, check_each, whole
from ...distributions import ColumnsDistribution
from ...errors import BadInput
from ...spaces import Space
from .categorical import as_index, check_n_values
from .likelihoods import Likelihood, as_likelihood


class MixtureLikelihood(Likelihood):
    """A mixture of k likelihoods of the same kind for every coordinate: p(x_i) = Σ_j π_ij p(x_i | output_ij).

    Every coordinate has 2k outputs: k logits of π, then k outputs of the likelihood.

    Args:
        likelihood: one with one output per coordinate, such as `Gaussian(0.1)` or `DiscretisedLogistic(256)`.
        k: the number of components.

    Bishop (1994), Mixture density networks.

    >>> from energax.energies import Bernoulli
    >>> two = MixtureLikelihood(Bernoulli(), 2)
    >>> two.log_prob(jnp.zeros(4), jnp.ones(1))                    # −log 2
    Array([-0.6931472], dtype=float32)
    """

    likelihood: Any
    k: int = eqx.field(static=True)

    def __check_init__(self):
        check_n_values("k", self.k)
        check_one_output("likelihood", self.likelihood)

    @property
    def outputs_per_coordinate(self) -> int:
        return 2 * self.k

    def space(self, *shape: int) -> Space:
        return self.likelihood.space(*shape)

    def _split(self, output: Any) -> tuple[Any, Any]:
        """(log π, (…, d, k); the outputs of every component, (…, d, k))."""
        both = output.reshape(*output.shape[:-1], -1, 2, self.k)
        return jax.nn.log_softmax(both[..., 0, :]), both[..., 1, :]

    def log_prob(self, output: Any, x: Any) -> Any:
        log_weight, outputs = self._split(output)
        of_component = jax.vmap(lambda o: self.likelihood.log_prob(o, x), in_axes=-1, out_axes=-1)
        return jax.nn.logsumexp(log_weight + of_component(outputs), axis=-1)

    def distribution(self, output: Any) -> Any:
        return MixtureOutput(self, output)

    def mean(self, output: Any) -> Any:
        log_weight, outputs = self._split(output)
        means = jax.vmap(self.likelihood.mean, in_axes=-1, out_axes=-1)(outputs)
        return (jnp.exp(log_weight) * means).sum(-1)


class MixtureOutput(eqx.Module):
    """Independent coordinates, each from its mixture, with NumPyro's method names."""

    likelihood: MixtureLikelihood
    output: Any

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        choose, draw = jax.random.split(key)
        log_weight, outputs = self.likelihood._split(self.output)
        j = jax.random.categorical(choose, log_weight, shape=(*sample_shape, *log_weight.shape[:-1]))
        # One draw of every component costs little next to the network.
        each = jax.vmap(
            lambda o, key: self.likelihood.likelihood.distribution(o).sample(key, sample_shape),
            in_axes=(-1, 0),
            out_axes=-1,
        )(outputs, jax.random.split(draw, self.likelihood.k))
        return jnp.take_along_axis(each, j[..., None], axis=-1)[..., 0]

    def log_prob(self, value: Any) -> Any:
        return self.likelihood.log_prob(self.output, value).sum(-1)

    @property
    def mean(self) -> Any:
        return self.likelihood.mean(self.output)


_PAIR = Setting(
    lambda pair: isinstance(pair, tuple | list) and len(pair) == 2 and pair[0] is not None,
    "a pair (likelihood, columns)",
)


class Columns(Likelihood):
    """Likelihoods of different kinds, each for some columns of x, independent given z.

    x is a vector of real numbers; likelihoods of categories or counts read their columns as whole numbers.

    Args:
        parts: pairs of a likelihood and the indices of its columns: together each column once.

    Nazábal et al. (2020), Handling incomplete heterogeneous data using VAEs.

    >>> from energax.energies import Categorical, Gaussian
    >>> mixed = Columns([(Gaussian(1.0), [0, 2]), (Categorical(3), [1])])
    >>> mixed.n_outputs(3), mixed.log_prob(jnp.zeros(5), jnp.array([0.0, 2.0, 0.0]))
    (5, Array([-0.9189385, -1.0986123, -0.9189385], dtype=float32))
    """

    likelihoods: tuple[Any, ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, parts: Sequence[tuple[Any, Sequence[int]]]):
        parts = [
            (as_likelihood(likelihood, None), check_each("columns", columns, whole(0), "indices of columns"))
            for likelihood, columns in check_each("parts", parts, _PAIR, "pairs (likelihood, columns)")
        ]
        flat = sorted(c for _, columns in parts for c in columns)
        if not flat or flat != list(range(len(flat))):
            found = f"columns {[columns for _, columns in parts]}"
            raise BadInput("parts", found, f"each of 0 to {max(0, len(flat) - 1)} once")
        self.likelihoods = tuple(likelihood for likelihood, _ in parts)
        self.columns = tuple(columns for _, columns in parts)

    @property
    def _sizes(self) -> list[int]:
        """The number of outputs of every part."""
        each = zip(self.likelihoods, self.columns, strict=True)
        return [likelihood.n_outputs(len(columns)) for likelihood, columns in each]

    def n_outputs(self, n_features: int) -> int:
        d = sum(map(len, self.columns))
        if n_features != d:
            raise BadInput("n_features", repr(n_features), f"{d}, the columns of the likelihoods")
        return sum(self._sizes)

    def n_features(self, n_outputs: int) -> int:
        if n_outputs != sum(self._sizes):
            raise BadInput("network", f"{n_outputs} outputs", f"{sum(self._sizes)} for these columns")
        return sum(map(len, self.columns))

    def space(self, *shape: int) -> Space:
        return MixedColumns([p.space() for p in self.likelihoods], self.columns)

    def _split(self, output: Any) -> list[Any]:
        """The outputs of every part."""
        ends = [sum(self._sizes[: i + 1]) for i in range(len(self.columns))]
        return jnp.split(output, ends[:-1], axis=-1)

    def _each(self, output: Any) -> Any:
        return zip(self.likelihoods, self._split(output), self.columns, strict=True)

    def _join(self, values: list[Any], dtype: Any) -> Any:
        shapes = tuple((len(c),) for c in self.columns)
        return ColumnsDistribution((), self.columns, shapes).join(values, dtype)

    def log_prob(self, output: Any, x: Any) -> Any:
        terms = [p.log_prob(o, _columns_of(p, x, c)) for p, o, c in self._each(output)]
        return self._join(terms, jnp.result_type(output))

    def distribution(self, output: Any) -> Any:
        shapes = tuple((len(c),) for c in self.columns)
        parts = tuple(p.distribution(o) for p, o, _ in self._each(output))
        return ColumnsDistribution(parts, self.columns, shapes)

    def mean(self, output: Any) -> Any:
        return self._join([p.mean(o) for p, o, _ in self._each(output)], jnp.result_type(output))


def _columns_of(likelihood: Any, x: Any, columns: tuple[int, ...]) -> Any:
    """Some columns of x, in the type of the likelihood."""
    value = jnp.take(x, jnp.array(columns), axis=-1)
    is_real = jnp.issubdtype(jnp.dtype(likelihood.space().dtype), jnp.floating)
    return value if is_real else as_index(value)


class MixedColumns(Space):
    """Vectors of real numbers whose columns are in spaces of their own."""

    def __init__(self, spaces: Sequence[Space], columns: Sequence[tuple[int, ...]]):
        super().__init__(sum(map(len, columns)))
        self.spaces, self.columns = tuple(spaces), tuple(columns)

    def _arguments(self):
        return (self.spaces, self.columns)

    @property
    def is_real(self) -> bool:
        return all(space.is_real for space in self.spaces)

    def _is_valid(self, array):
        valid = np.zeros(array.shape, bool)
        for space, columns in zip(self.spaces, self.columns, strict=True):
            valid[..., list(columns)] = space._is_valid(array[..., list(columns)])
        return valid

    @property
    def _filler(self):
        filler = np.zeros(self.shape)
        for space, columns in zip(self.spaces, self.columns, strict=True):
            filler[list(columns)] = space._filler
        return filler

    def description(self):
        each = zip(self.spaces, self.columns, strict=True)
        return "; ".join(f"{s.description()} in columns {list(c)}" for s, c in each)


def check_one_output(name: str, likelihood: Any) -> None:
    outputs = getattr(likelihood, "outputs_per_coordinate", None)
    if outputs != 1 or isinstance(likelihood, Columns):
        raise BadInput(name, repr(likelihood), "a likelihood with one output per coordinate")
