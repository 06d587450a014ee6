"""What an inference method is: tasks it does, when it makes sense, what it costs."""

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
    """What a method will spend: evaluations of the energy, joint values, operations, bytes held."""

    evaluations: int | None = None
    joint_values: int | None = None
    n_bytes: int | None = None
    operations: int | None = None

    def __str__(self) -> str:
        parts = []
        if self.joint_values is not None:
            parts.append(f"{self.joint_values:,} joint values a row")
        if self.evaluations is not None:
            parts.append(f"about {self.evaluations:,} evaluations of the energy")
        if self.operations is not None:
            parts.append(f"about {self.operations:,} operations a row")
        if self.n_bytes is not None:
            parts.append(f"about {_bytes(self.n_bytes)} of memory")
        return ", ".join(parts) or "not known"


def _bytes(n: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1024:
            return f"{n:,.0f} {unit}"
        n = n / 1024
    return f"{n:,.0f} TB"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What would be done, said before it is done.

    `kind` is the kind of number that comes out, for tasks whose answer is a number.
    """

    task: str
    method: Any
    why: str
    kind: str
    cost: Cost

    def __str__(self) -> str:
        return f"{self.task} by {self.method.label} ({self.kind}), because {self.why}. Cost: {self.cost}."


class Method(eqx.Module):
    """One way to answer some of the tasks; a file in this folder each.

    `unsupported_reason` returns the reason why the method makes no sense for a question, or None. The
    tasks themselves are methods of the same names and may assume that it returned None.
    """

    tasks: ClassVar[frozenset[str]] = frozenset()

    #: Whether it is a family's own exact knowledge, which is tried before enumeration.
    knowledge: ClassVar[bool] = False

    #: Whether an answer that is not exact is still the same every time, without a key.
    deterministic: ClassVar[bool] = False

    if not TYPE_CHECKING:
        # Equinox makes a tree of every method that is called, to transform it. Nobody transforms these,
        # and to make one takes as long as a small question itself.
        __getattribute__ = object.__getattribute__

    @property
    def label(self) -> str:
        """The name that results carry."""
        return type(self).__name__.lower()

    def unsupported_reason(self, task: str, query: Query) -> str | None:
        """A reason, as a clause that follows the method's name, or None if it suits."""
        raise NotImplementedError

    def why(self, task: str, query: Query) -> str:
        """Why this method is the one, as a clause."""
        return "it suits"

    def kind(self, task: str, query: Query) -> str:
        return "exact"

    def cost(self, task: str, query: Query) -> Cost:
        return Cost()

    def argmin(self, query: Query, key: Any) -> Any:
        raise self._cannot("argmin")

    def posterior(self, query: Query, key: Any) -> Posterior:
        raise self._cannot("posterior")

    def log_prob(self, query: Query, key: Any) -> Estimate:
        raise self._cannot("log_prob")

    def log_partition(self, query: Query, key: Any) -> Estimate:
        raise self._cannot("log_partition")

    def sample(self, query: Query, n: int, key: Any) -> Draws:
        raise self._cannot("sample")

    def _cannot(self, task: str) -> Unsuitable:
        return Unsuitable(f"{type(self).__name__} does not do {task}.")


class Minimum(dict):
    """The hidden variables at the lowest energy found, by name, and how they were found."""

    def __init__(self, values: dict[str, Any], *, energy: Any, method: str, converged: Any = True):
        super().__init__(values)
        self.energy, self.method, self.converged = energy, method, converged

    def __repr__(self) -> str:
        return f"Minimum({dict.__repr__(self)}, method={self.method!r})"
