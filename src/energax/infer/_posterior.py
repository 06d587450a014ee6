"""What is known of the hidden variables once others are given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key
from ..errors import BadInput, Intractable, Unsuitable
from ..estimate import Estimate
from ..parameters import precision_of
from ..spaces import Binary, Space

if TYPE_CHECKING:
    from ..samplers import Draws
    from ._query import Query


def check_single_variable(names: tuple[str, ...], name: str) -> None:
    """Refuse a joint table of more, or of others, than the one variable that a closed form is of."""
    if tuple(names) != (name,):
        raise Unsuitable(
            f"joint: the closed form is of {name!r} alone, not of {list(names)}. "
            "Use posterior(energy, given, Enumeration()), or draws of it."
        )


class Posterior(ABC):
    """p(hidden | given), for one example or for rows.

    Attributes:
        method: the name of the method that found it.
        kind: exact, or an estimate from draws.
        spaces: the variables it speaks of, partly missing ones among them.
    """

    method: str
    kind: str

    def __init__(self, query: Query, key: Any = None):
        self._query, self._key = query, key
        self._cache: dict[str, Any] = {}

    @property
    def spaces(self) -> dict[str, Space]:
        return self._query.targets

    def __repr__(self) -> str:
        rows = f"{self._query.n} rows, " if self._query.many else ""
        return f"Posterior(of {', '.join(self.spaces)}; {rows}{self.method}, {self.kind})"

    @property
    def marginals(self) -> dict[str, np.ndarray]:
        """Probabilities of every finite coordinate, by name: shape (*shape, values), rows first."""
        return self._query.answer(self._once("marginals", self._marginals))

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """E[variable | given] by name, for variables that are numbers (an index has no mean)."""
        return self._query.answer(self._once("mean", self._mean))

    @property
    def mode(self) -> dict[str, np.ndarray]:
        """The joint value of lowest energy, by name; of draws, the best that was seen."""
        return self._query.answer(self._once("mode", self._mode))

    def __getitem__(self, name: str) -> np.ndarray:
        """What is known of one variable: its `marginals` where it is finite, else its `mean`."""
        if name not in self.spaces:
            raise BadInput("name", repr(name), f"a hidden variable, one of {list(self.spaces)}")
        return (self.marginals if name in self.marginals else self.mean)[name]

    @property
    def log_evidence(self) -> Estimate:
        """log p(given), with its kind: what `log_prob` says of the given values.

        Where that is drawn for, it needs the key that `posterior` was given.
        """
        return self._once("log_evidence", self._log_evidence)

    def joint(self, *names: str) -> np.ndarray:
        """p(names | given): one axis for each named variable, over its listed values."""
        spaces = self._query.spaces
        wrong = [n for n in names if n not in self.spaces or not spaces[n].is_finite]
        if wrong or not names:
            finite = [n for n in self.spaces if spaces[n].is_finite]
            raise BadInput("names", f"{wrong or 'none'}", f"finite hidden variables, some of {finite}")
        shape = tuple(spaces[n].n_values for n in names)
        if np.prod([float(s) for s in shape]) > 2**20:
            size = " × ".join(f"{s:,}" for s in shape)
            raise Intractable("joint", f"a table of {size}", f"{2**20:,}", "Ask for fewer variables.")
        with precision_of(self._query.energy):
            table = self._joint(names)
        return self._query.answer(table.reshape(-1, *shape))

    def sample(self, n: int = 1, *, key: Any) -> Draws:
        """Draws from p(hidden | given)."""
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise BadInput("n", repr(n), "a number of draws >= 1")
        with precision_of(self._query.energy):
            return self._sample(int(n), as_key(key))

    def _once(self, name: str, compute: Any) -> Any:
        if name not in self._cache:
            with precision_of(self._query.energy):
                self._cache[name] = compute()
        return self._cache[name]

    def _log_evidence(self) -> Estimate:
        from ._dispatch import choose, draws_at_random, log_prob

        query, key = self._query, self._key
        if not query.given:
            return Estimate(0.0, method=self.method)  # log p(nothing)
        if key is not None:
            # Another key than that of the draws themselves, so that the two errors are independent.
            key = jax.random.fold_in(key, 1)
        elif not query.energy.inputs:
            method = choose("log_prob", query)
            if draws_at_random(method, "log_prob", query):
                remedy = f"log p(given) is by {method.label}, which draws at random: posterior(..., key=0)."
                raise BadInput("key", "none", "an int or a JAX key", remedy)
        estimate = log_prob(query.energy, query.given, key=key)
        return estimate if query.many else estimate[0]

    @abstractmethod
    def _marginals(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _mean(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _mode(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _joint(self, names: tuple[str, ...]) -> np.ndarray: ...

    @abstractmethod
    def _sample(self, n: int, key: Any) -> Draws: ...


def has_mean(space: Space) -> bool:
    return isinstance(space, Binary) or not space.is_finite


def index_of(space: Space, value: Any) -> Any:
    """The number of a value in the list of its finite space: the inverse of `space.at`."""
    flat = jnp.reshape(value, (-1,)).astype(int)
    index = jnp.zeros((), int)
    for i in range(space.size):
        index = index * space.values_per_coordinate + flat[i]
    return index
