"""`Posterior`: the distribution p(hidden | given) that `posterior` returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key
from .._util.labelled import Labelled
from ..algorithms.weights import weighted_mean
from ..errors import BadInput, Intractable, Unsuitable, check_whole_number
from ..estimate import Estimate
from ..finite import ENUMERATION_LIMIT
from ..parameters import precision_of
from ..spaces import Binary, Space
from ._expectation import values_at

if TYPE_CHECKING:
    from ..samplers import Draws
    from ._query import Query

#: Draws for the expectation of a function, where the posterior is not made of draws itself.
_EXPECTATION_DRAWS = 10_000


class Posterior(ABC):
    """p(hidden | given), for one example or for rows.

    Results are computed when they are first read, and cached. For rows, all arrays have a leading axis of
    rows. A subclass computes them for rows, also for one example.

    Attributes:
        method: the name of the method.
        kind: "exact" or "estimate".
        spaces: the spaces of the hidden and the partially observed variables, by name.

    >>> from energax import posterior
    >>> from energax.energies import RBM
    >>> found = posterior(RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2)), {"x": [0, 1, 1]})
    >>> found
    Posterior(of z; exact, exact)
    >>> found.mean["z"], found.joint("z")
    (array([0.5, 0.5], dtype=float32), array([0.25, 0.25, 0.25, 0.25], dtype=float32))
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
        rows = f"{self._query.n} rows, " if self._query.batched else ""
        warning = f"; not to be trusted: {self.problem}" if self.problem else ""
        return f"Posterior(of {', '.join(self.spaces)}; {rows}{self.method}, {self.kind}{warning})"

    @property
    def problem(self) -> str:
        """Why the posterior cannot be trusted, in one sentence; empty if nothing was found."""
        return ""

    # -- results ---------------------------------------------------------------------------------

    @property
    def marginals(self) -> dict[str, np.ndarray]:
        """Probabilities of the values of every coordinate of finite variables, by name: (*shape, values)."""
        return self._query.unbatch(self._cached("marginals", self._labelled_marginals))

    def _labelled_marginals(self) -> dict[str, np.ndarray]:
        labels = {k: getattr(v, "labels", None) for k, v in self._query.spaces.items()}
        found = self._compute_marginals()
        return {k: v if labels[k] is None else Labelled.of(v, labels[k]) for k, v in found.items()}

    @property
    def mean(self) -> dict[str, np.ndarray]:
        """E[variable | given] of binary and real variables, by name: (*shape,)."""
        return self._query.unbatch(self._cached("mean", self._compute_mean))

    @property
    def mode(self) -> dict[str, np.ndarray]:
        """The joint value of lowest energy, by name; for posteriors made of draws, the best draw."""
        return self._query.name_states(self._query.unbatch(self._cached("mode", self._compute_mode)))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the `marginals` of a finite variable, the `mean` of another one."""
        if name not in self.spaces:
            raise BadInput("name", repr(name), f"a hidden variable, one of {list(self.spaces)}")
        return (self.marginals if name in self.marginals else self.mean)[name]

    @property
    def log_evidence(self) -> Estimate:
        """log p(given), the `log_prob` of the given values; one number per row.

        If it is estimated from draws, the key of `posterior` is needed.
        """
        return self._cached("log_evidence", self._compute_log_evidence)

    def joint(self, *names: str) -> np.ndarray:
        """Return the table p(names | given): one axis per variable, over all its values."""
        if len(names) == 1 and not isinstance(names[0], str):
            listed = isinstance(names[0], list | tuple)
            raise BadInput(
                "names",
                f"one {type(names[0]).__name__}",
                "names as separate arguments",
                f"Call joint({', '.join(map(repr, names[0]))})." if listed else "",
            )
        spaces = self._query.spaces
        wrong = [n for n in names if n not in self.spaces or not spaces[n].is_finite]
        if wrong or not names:
            finite = [n for n in self.spaces if spaces[n].is_finite]
            raise BadInput("names", f"{wrong or 'none'}", f"finite hidden variables, some of {finite}")
        shape = tuple(spaces[n].n_values for n in names)
        if np.prod([float(s) for s in shape]) > ENUMERATION_LIMIT:
            size = " × ".join(f"{s:,}" for s in shape)
            raise Intractable(
                "joint", f"a table of {size}", f"{ENUMERATION_LIMIT:,}", "Name fewer variables."
            )
        with precision_of(self._query.energy):
            table = self._compute_joint(names)
        return self._query.unbatch(table.reshape(-1, *shape))

    def sample(self, n: int = 1, *, key: Any) -> Draws:
        """Return `n` draws from p(hidden | given): arrays (n, …) by name, (n, rows, …) for rows."""
        check_whole_number("n", n)
        with precision_of(self._query.energy):
            return self._query.name_draws(self._draw(int(n), as_key(key)))

    def expectation(self, function: Callable[..., Any], *, key: Any = None) -> Estimate:
        """Return E[f | given] with its Monte Carlo standard error.

        The error is the standard deviation of f divided by the root of the effective number of draws. It does
        not include the error of a posterior that is itself an approximation, such as a Gaussian.

        Args:
            function: f of one example. Its arguments are names of variables, hidden or given; it returns a
                number, a bool or an array.
            key: an int or a JAX key for 10,000 draws; not needed if the posterior is made of draws.

        >>> from energax import posterior
        >>> from energax.energies import RBM
        >>> found = posterior(RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2)), {"x": [0, 1, 1]})
        >>> found.expectation(lambda x, z: z[0] * z[1] * x.sum(), key=0)                # 2 / 4
        0.50... ± 0.00... (estimate)
        """
        query = self._query
        with precision_of(query.energy):
            mean, error = self._compute_expectation(function, None if key is None else as_key(key))
        mean, error = query.unbatch((mean, error))
        return Estimate(mean, error, "estimate", self.method)

    def _cached(self, name: str, compute: Callable[[], Any]) -> Any:
        if name not in self._cache:
            with precision_of(self._query.energy):
                self._cache[name] = compute()
        return self._cache[name]

    # -- computed by the subclass, always with a leading axis of rows ----------------------------

    @abstractmethod
    def _compute_marginals(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _compute_mean(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _compute_mode(self) -> dict[str, np.ndarray]: ...

    @abstractmethod
    def _compute_joint(self, names: tuple[str, ...]) -> np.ndarray: ...

    @abstractmethod
    def _draw(self, n: int, key: Any) -> Draws: ...

    def _compute_expectation(self, function: Any, key: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard errors of a function, (rows, *shape of its values), in float64."""
        if key is None:
            remedy = f"expectation of a posterior by {self.method} is a mean over draws; pass key=0."
            raise BadInput("key", "none", "an int or a JAX key", remedy)
        rows = draws_by_row(self._query, self._draw(_EXPECTATION_DRAWS, key))
        values = values_at(self._query, rows, function)
        return weighted_mean(values, np.full(values.shape[:2], 1 / values.shape[1]))

    def _compute_log_evidence(self) -> Estimate:
        """Return the `log_prob` of the given values, without an axis of rows for one example."""
        from ._functions import log_prob

        query = self._query
        if not query.given:
            return Estimate(0.0, method=self.method)
        # Another key than that of the draws themselves, so that the two errors are independent.
        key = None if self._key is None else jax.random.fold_in(self._key, 1)
        try:
            estimate = log_prob(query.energy, query.given, key=key)
        except BadInput as error:
            if error.argument != "key":
                raise
            remedy = "log p(given) is estimated from draws; use posterior(..., key=0)."
            raise BadInput("key", "none", "an int or a JAX key", remedy) from None
        return estimate if query.batched else estimate[0]


def draws_by_row(query: Query, draws: Draws) -> dict[str, np.ndarray]:
    """Return draws by name with rows first, (rows, n, …), also for one example."""
    values = {k: np.asarray(v) for k, v in draws.items()}
    return {k: np.swapaxes(v, 0, 1) if query.batched else v[None] for k, v in values.items()}


def check_single_variable(names: tuple[str, ...], name: str) -> None:
    """Raise unless `names` is just `name`, the variable of a closed form."""
    if tuple(names) != (name,):
        raise Unsuitable(
            f"joint: the closed form is of {name!r} alone, not of {list(names)}. "
            "Use posterior(energy, given, Enumeration()), or draws of it."
        )


def has_mean(space: Space) -> bool:
    """Return whether values of the space have a mean: numbers do, indices of categories do not."""
    return isinstance(space, Binary) or not space.is_finite


def index_of(space: Space, value: Any) -> Any:
    """Return the index of a value in a finite space, the inverse of `space.at`."""
    flat = jnp.reshape(value, (-1,)).astype(int)
    index = jnp.zeros((), int)
    for i in range(space.size):
        index = index * space.values_per_coordinate + flat[i]
    return index
