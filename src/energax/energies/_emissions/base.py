"""What an emission is: p(x | z) for each of k values of z, stacked, for mixtures and hidden chains."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import jax
import jax.numpy as jnp

from ...energy import Energy


class Emission(Energy):
    """e(x, z) = −log p(x | z), normalised for every z in {0, …, k − 1}.

    A subclass has `spaces`, the energies of many rows under every z (`row_energies`) and a draw
    given z (`emit`); with `statistics` and `maximise` it is learned by EM in closed form. Coordinates
    that are missing from x are summed out in all of these.

    >>> from energax.energies._emissions.categorical import Categoricals
    >>> coins = Categoricals([[0.5, 0.5], [0.25, 0.75]])
    >>> jnp.exp(-coins.energies(x=1)), coins(x=1, z=1)
    (Array([0.5 , 0.75], dtype=float32), Array(0.287682..., dtype=float32))
    """

    marginalises = frozenset({"x"})
    normalised = True

    @abstractmethod
    def row_energies(self, *, x: Any) -> Any:
        """−log p(x | z) of many rows, (n, k); `x` may be `Masked`."""

    def coded(self, *, x: Any) -> tuple[Any, Any] | None:
        """(energies of all rows there can be, (m, k); which of them each row of x is), if they are few."""
        return None

    @abstractmethod
    def emit(self, key: Any, z: Any) -> Any:
        """A draw of x given z."""

    @property
    def n_states(self) -> int:
        return self.spaces["z"].k  # type: ignore[attr-defined]

    def __call__(self, *, x, z):
        return self.energies(x=x)[z]

    def energies(self, *, x):
        """The energy of one example under every z, (k,)."""
        return self.row_energies(x=jax.tree.map(lambda a: jnp.asarray(a)[None], x))[0]

    def log_partition(self):
        """Σ_z ∫ exp(−e) dx = k."""
        return jnp.log(jnp.asarray(self.n_states, self._real))

    def conditional(self, name, **given):
        from numpyro.distributions import Categorical as Choice

        if name == "z":
            return Choice(logits=-self.energies(**given))
        return self.given_state(given["z"])

    def given_state(self, z):
        """p(x | z) as a distribution."""
        raise NotImplementedError(f"p(x | z) of {type(self).__name__} is no distribution with a name")

    def draw(self, key, **given):
        choose, emit = jax.random.split(key)
        drawn = {}
        if "z" not in given:
            logits = -self.energies(**given) if given else jnp.zeros(self.n_states, self._real)
            drawn = {"z": jax.random.categorical(choose, logits)}
        if "x" in given:
            return drawn
        return {**drawn, "x": self.emit(emit, given.get("z", drawn.get("z")))}

    @property
    def _real(self) -> Any:
        leaves = [a for a in jax.tree.leaves(self) if jnp.issubdtype(jnp.asarray(a).dtype, jnp.floating)]
        return jnp.result_type(*leaves)


def normalise(counts: Any, old: Any) -> Any:
    """Counts along the last axis as probabilities; where nothing was counted, those of before."""
    counts = jnp.maximum(counts, 0)
    total = counts.sum(-1, keepdims=True)
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), old).astype(old.dtype)
