"""`Method`: the base of all inference methods; `Plan`, `Cost` and `Minimum`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx

from ..errors import Unsuitable
from ..estimate import Estimate

if TYPE_CHECKING:
    from ..samplers import Draws
    from ._posterior import Posterior
    from ._query import Query

TASKS = ("argmin", "posterior", "log_prob", "log_partition", "sample")


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a method, as far as it is known beforehand; None is unknown.

    Attributes:
        evaluations: evaluations of the energy, over all rows.
        joint_values: joint values that are enumerated for one row.
        n_bytes: bytes of memory.
        operations: arithmetic operations for one row.

    >>> print(Cost(evaluations=16, n_bytes=2048))
    about 16 evaluations of the energy, about 2 KB of memory
    """

    evaluations: int | None = None
    joint_values: int | None = None
    n_bytes: int | None = None
    operations: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.joint_values is not None:
            parts.append(f"{self.joint_values:,} joint values per row")
        if self.evaluations is not None:
            parts.append(f"about {self.evaluations:,} evaluations of the energy")
        if self.operations is not None:
            parts.append(f"about {self.operations:,} operations per row")
        if self.n_bytes is not None:
            parts.append(f"about {_format_bytes(self.n_bytes)} of memory")
        return ", ".join(parts) or "unknown"


def _format_bytes(n: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1024:
            return f"{n:,.0f} {unit}"
        n = n / 1024
    return f"{n:,.0f} TB"


@dataclasses.dataclass(frozen=True)
class Plan:
    """The method that a task would use, the reason, the kind of its numbers, and its cost.

    Attributes:
        task: the name of the task, such as "log_prob".
        method: the `Method`.
        why: the reason for this method, as a clause.
        kind: "exact", "lower bound" or "estimate".
        cost: its `Cost`.
    """

    task: str
    method: Any
    why: str
    kind: str
    cost: Cost

    def __str__(self) -> str:
        return f"{self.task} by {self.method.label} ({self.kind}), because {self.why}. Cost: {self.cost}."


class Method(eqx.Module):
    """The base of inference methods.

    A subclass lists its `tasks`, says in `unsupported_reason` which queries it cannot handle, and implements
    a method of the same name for each task. These are called only for queries that it supports.

    A method listed in the catalog can be named by a string. To be tried without being named it also sets
    `automatic`.

    >>> class Zero(Method):
    ...     tasks = frozenset({"log_partition"})
    ...     def unsupported_reason(self, task, query):
    ...         return None
    ...     def log_partition(self, query, key):
    ...         return Estimate(0.0, method=self.label)
    >>> from energax.energies import RBM
    >>> from energax.infer import log_partition
    >>> log_partition(RBM.random(2, 2, key=0), Zero())
    0.000 (exact)
    """

    #: The tasks that the method implements, some of `TASKS`.
    tasks: ClassVar[frozenset[str]] = frozenset()

    #: Whether the method is tried, with its default settings, where no method is named; or for which tasks.
    automatic: ClassVar[bool | frozenset[str]] = False

    #: Methods of lower priority are tried first. 0: exact for one family of energies, 10: exact draws,
    #: 20: closed forms, 30: enumeration, 40: approximations for one family, 50: for all energies.
    priority: ClassVar[int] = 40

    #: Whether results that are not exact are the same every time, so that no key is needed.
    deterministic: ClassVar[bool] = False

    if not TYPE_CHECKING:
        # Equinox makes a module of each bound method that is read, to transform it, which is not done here.
        # Without this line a `posterior` of a network of 5 nodes takes 1.3 to 1.7 times as long.
        __getattribute__ = object.__getattribute__

    @classmethod
    def is_automatic(cls, task: str) -> bool:
        """Return whether the method is tried for a task where no method is named."""
        if isinstance(cls.automatic, bool):
            return cls.automatic and task in cls.tasks
        return task in cls.automatic

    @property
    def label(self) -> str:
        """The name of the method in results."""
        return type(self).__name__.lower()

    def unsupported_reason(self, task: str, query: Query) -> str | None:
        """Return why the method cannot handle this query, as a clause after its name; None if it can."""
        raise NotImplementedError

    def why(self, task: str, query: Query) -> str:
        """Return why this method is chosen, as a clause."""
        return "it supports this query"

    def kind(self, task: str, query: Query) -> str:
        """Return the kind of the result: "exact", "lower bound" or "estimate"."""
        return "exact"

    def cost(self, task: str, query: Query) -> Cost:
        """Return the expected `Cost`."""
        return Cost()

    def argmin(self, query: Query, key: Any) -> Minimum:
        raise self._not_implemented("argmin")

    def posterior(self, query: Query, key: Any) -> Posterior:
        raise self._not_implemented("posterior")

    def log_prob(self, query: Query, key: Any) -> Estimate:
        raise self._not_implemented("log_prob")

    def log_partition(self, query: Query, key: Any) -> Estimate:
        raise self._not_implemented("log_partition")

    def sample(self, query: Query, n: int, key: Any) -> Draws:
        raise self._not_implemented("sample")

    def expectation(self, query: Query, function: Any, key: Any) -> Estimate:
        """Return E[f | given] of a function of the variables, from the posterior."""
        return self.posterior(query, key).expectation(function, key=key)

    def _not_implemented(self, task: str) -> Unsuitable:
        return Unsuitable(f"{type(self).__name__} does not implement {task}.")


class Minimum(dict):
    """The values of lowest energy that were found, by name.

    Attributes:
        energy: the energy at these values, one number per row.
        method: the name of the method.
        converged: whether the search converged, per row; True for exact methods.
    """

    def __init__(self, values: dict[str, Any], *, energy: Any, method: str, converged: Any = True):
        super().__init__(values)
        self.energy, self.method, self.converged = energy, method, converged

    def __repr__(self) -> str:
        return f"Minimum({dict.__repr__(self)}, method={self.method!r})"
