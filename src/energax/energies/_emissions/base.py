"""The base class of emissions p(x | z), for mixtures and hidden Markov models."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ...energy import Energy


class Emission(Energy):
    """The base class of emissions: e(x, z) = −log p(x | z), normalised for every z in {0, …, k − 1}.

    A subclass defines `spaces`, the energies of many rows under every z (`row_energies`) and a draw
    given z (`emit`). With `statistics` and `maximise` EM learns it in closed form. All of them sum
    out missing coordinates of x.

    >>> from energax.energies._emissions.categorical import Categoricals
    >>> coins = Categoricals([[0.5, 0.5], [0.25, 0.75]])
    >>> jnp.exp(-coins.energies(x=1)), coins(x=1, z=1)
    (Array([0.5 , 0.75], dtype=float32), Array(0.287682..., dtype=float32))
    """

    marginalises = frozenset({"x"})
    normalised = True

    @abstractmethod
    def row_energies(self, *, x: Any) -> Any:
        """−log p(x | z) of n rows under every z, (n, k); `x` may be `Masked`."""

    def encode_rows(self, *, x: Any) -> tuple[Any, Any] | None:
        """(energies of all m possible rows (m, k), indices of the rows of x (n,)), or None if m is large."""
        return None

    @abstractmethod
    def emit(self, key: Any, z: Any) -> Any:
        """Draw x given z."""

    def labelled_energies(self, label, **rows):
        return jnp.take_along_axis(self.row_energies(**rows), label[:, None], axis=1)[:, 0]

    def labelled_statistics(self, data, label, weight):
        return self.statistics(data, one_hot(label, weight, self.n_states))  # type: ignore[attr-defined]

    @property
    def n_states(self) -> int:
        return self.spaces["z"].k  # type: ignore[attr-defined]

    def __call__(self, *, x, z):
        return self.energies(x=x)[z]

    def energies(self, *, x):
        """The energy of one example under every z, (k,)."""
        return self.row_energies(x=jax.tree.map(lambda a: asarray(a)[None], x))[0]

    def log_partition(self):
        """Σ_z ∫ exp(−e) dx = k."""
        return jnp.log(asarray(self.n_states, self._dtype))

    def conditional(self, name, **given):
        from numpyro.distributions import Categorical as Choice

        if name == "z":
            return Choice(logits=-self.energies(**given))
        return self.state_distribution(given["z"])

    def state_distribution(self, z):
        """p(x | z) as a NumPyro distribution."""
        raise NotImplementedError(f"{type(self).__name__} has no NumPyro distribution for p(x | z)")

    def draw(self, key, **given):
        if "z" in given:
            return {} if "x" in given else {"x": self.emit(key, given["z"])}
        choose, emit = jax.random.split(key)
        logits = -self.energies(**given) if given else jnp.zeros(self.n_states, self._dtype)
        z = jax.random.categorical(choose, logits)
        return {"z": z} if "x" in given else {"z": z, "x": self.emit(emit, z)}

    @property
    def _dtype(self) -> Any:
        leaves = [a for a in jax.tree.leaves(self) if jnp.issubdtype(asarray(a).dtype, jnp.floating)]
        return jnp.result_type(*leaves)


def one_hot(label: Any, weight: Any, k: int) -> Any:
    """The posterior of rows with known labels, times their weights, (n, k)."""
    return jax.nn.one_hot(label, k, dtype=weight.dtype) * weight[:, None]


def normalise(counts: Any, old: Any) -> Any:
    """Probabilities from counts along the last axis; the old ones where all counts are 0."""
    counts = jnp.maximum(counts, 0)
    total = counts.sum(-1, keepdims=True)
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), old).astype(old.dtype)
