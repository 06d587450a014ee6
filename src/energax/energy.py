"""`Energy`: a number, low where a configuration of named variables is preferred."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ._util.printing import pretty_repr
from .errors import BadInput, Unsuitable
from .finite import Assignments, log_sum_exp, table
from .missing import Masked, is_masked, known
from .spaces import Space

if TYPE_CHECKING:
    from .compose import Clamped, Marginal, Sum
    from .tempering import Tempered

_REMEDY = (
    "Give the energy the exact method `{knowledge}`, make the hidden space smaller, or use an "
    "approximate method: importance sampling for log p, Gibbs or Langevin for draws."
)


class Energy(eqx.Module):
    """e(variables; θ): one example in, one scalar out; the array leaves are θ.

    A subclass says which values its variables may take (`spaces`) and what it prefers
    (`__call__`). The methods below work from these two alone wherever that is tractable, by
    enumerating finite spaces; a subclass that *knows* better overrides them, and every
    learner, inference and sampler uses that knowledge.

    >>> class Ising(Energy):
    ...     coupling: jax.Array
    ...     @property
    ...     def spaces(self):
    ...         from energax.spaces import Binary
    ...         return {"x": Binary(2)}
    ...     def __call__(self, *, x):
    ...         return -self.coupling * (2 * x[0] - 1) * (2 * x[1] - 1)
    >>> Ising(jnp.array(0.5)).log_partition()          # log(2 e^½ + 2 e^-½)
    Array(1.50640..., dtype=float32)
    """

    #: Variables whose `Masked` (partly missing) values `__call__` and the knowledge below take,
    #: summing or integrating the hidden coordinates out exactly.
    marginalises: ClassVar[frozenset[str]] = frozenset()

    #: Variables that are only ever given: the energy says nothing of how they are distributed,
    #: as a classifier says nothing of x. log p is then that of the others given these.
    inputs: ClassVar[frozenset[str]] = frozenset()

    @property
    @abstractmethod
    def spaces(self) -> dict[str, Space]:
        """The variables by name, and what each may be."""

    @abstractmethod
    def __call__(self, **variables: Any) -> Any:
        """The energy of one complete example."""

    # -- what the core derives, and a subclass may know better ---------------------------

    def free_energy(self, **given: Any) -> Any:
        """F(given) = −log Σ_hidden exp(−e): the energy of what is given alone."""
        return enumerated_free_energy(self, given)

    def conditional(self, name: str, **given: Any) -> Any:
        """p(name | given), a distribution; variables neither named nor given are summed out."""
        space = self.spaces[name]
        Assignments({name: space}).check_size(f"conditional({name!r})", _remedy("conditional"))
        logits = table(lambda i: -free_energy(self, {**given, name: space.at(i)}), space.n_values)
        return FiniteDistribution(logits - jax.nn.logsumexp(logits), space)

    def log_partition(self) -> Any:
        """log Z = log Σ_variables exp(−e)."""
        return enumerated_log_partition(self)

    def draw(self, key: Any, **given: Any) -> dict[str, Any]:
        """One exact draw of all hidden variables, and missing coordinates, given the known ones."""
        hidden = Assignments({k: v for k, v in self.spaces.items() if k not in given or is_masked(given[k])})
        hidden.check_size("draw", _remedy("draw"))
        complete = lambda i: _filled(given, hidden.at(i))
        logits = table(lambda i: -checked_energy(self, {**given, **complete(i)}), hidden.n)
        return complete(jax.random.categorical(key, logits))

    # -- the same for every energy -------------------------------------------------------

    def score(self, name: str = "x", **given: Any) -> Any:
        """∇ log p(name | …) = −∂F/∂name, at the values in `given`."""
        if not self.spaces[name].is_real:
            raise Unsuitable(
                f"score: {name!r} lies in {self.spaces[name]!r}, which has no gradient; "
                "use a method for finite spaces, such as Gibbs."
            )
        rest = {k: v for k, v in given.items() if k != name}
        return -jax.grad(lambda value: free_energy(self, {**rest, name: value}))(given[name])

    def moments(self, **given: Any) -> tuple[Any, Any]:
        """Mean and variance of the energy over the hidden variables, under p(hidden | given)."""
        hidden = Assignments({k: v for k, v in self.spaces.items() if k not in given or is_masked(given[k])})
        hidden.check_size("moments", _remedy("draw"))
        energies = table(lambda i: checked_energy(self, {**given, **_filled(given, hidden.at(i))}), hidden.n)
        p = jax.nn.softmax(-energies)
        mean = p @ energies
        return mean, p @ (energies - mean) ** 2

    def knows(self, what: str, names: Any = None) -> bool:
        """Whether this energy has its own exact `what` (for exactly these given names)."""
        method = getattr(type(self), what, None)
        if method is None or method is getattr(Energy, what, None):
            return False
        return names is None or _accepts(method, frozenset(names))

    def __repr__(self) -> str:
        return pretty_repr(self)

    # -- composition ---------------------------------------------------------------------

    def __add__(self, other: Energy) -> Sum:
        from .compose import Sum

        if not isinstance(other, Energy):
            raise BadInput("energy + …", type(other).__name__, "another Energy")
        return Sum((self, other))

    def __radd__(self, other: Any) -> Energy:
        """So that sum([a, b, c]) is a + b + c."""
        if isinstance(other, int) and other == 0:
            return self
        raise BadInput("… + energy", type(other).__name__, "another Energy")

    def __truediv__(self, temperature: Any) -> Tempered:
        from .tempering import Tempered

        return Tempered(self, temperature)

    def given(self, **values: Any) -> Clamped:
        """This energy with some variables held at these values."""
        from .compose import Clamped

        return Clamped(self, values)

    def over(self, *names: str) -> Marginal:
        """This energy with some variables summed out."""
        from .compose import Marginal

        return Marginal(self, names)


def supports_call(method: Any, *arguments: Any, **keywords: Any) -> bool:
    """Whether a method of an energy answers this, found by tracing it on shapes alone.

    Knowledge may cover some variables only; how an energy says so is its own affair.
    """
    try:
        eqx.filter_eval_shape(method, *arguments, **keywords)
    except Exception:
        return False
    return True


def _accepts(method: Any, names: frozenset[str]) -> bool:
    keywords = [p for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    anything = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(method).parameters.values())
    required = {p.name for p in keywords if p.default is p.empty}
    return required <= names and (anything or names <= {p.name for p in keywords})


def _remedy(knowledge: str) -> str:
    return _REMEDY.format(knowledge=knowledge)


def checked_energy(energy: Energy, example: Mapping[str, Any]) -> Any:
    """e(example), if it is one number: many would be summed or broadcast to a wrong answer without a word."""
    value = energy(**example)
    if jnp.ndim(value):
        name, shape = type(energy).__name__, jnp.shape(value)
        raise BadInput("energy", f"{name} returns shape {shape}", "one number, shape ()", "Sum its terms.")
    return value


def _must_enumerate(energy: Energy, given: Mapping[str, Any]) -> dict[str, Space]:
    """Hidden variables, and given ones with missing coordinates the energy cannot sum out itself."""
    partly = {k for k, v in given.items() if is_masked(v) and k not in energy.marginalises}
    return {k: v for k, v in energy.spaces.items() if k not in given or k in partly}


def free_energy(energy: Energy, given: Mapping[str, Any]) -> Any:
    """−log Σ_hidden exp(−e), from the energy's own knowledge if it covers these names."""
    hidden = _must_enumerate(energy, given)
    if not hidden:
        return checked_energy(energy, given)
    unhandled = any(is_masked(v) and k not in energy.marginalises for k, v in given.items())
    if given and not unhandled and energy.knows("free_energy", given):
        return energy.free_energy(**given)
    return enumerated_free_energy(energy, given)


def enumerated_free_energy(energy: Energy, given: Mapping[str, Any]) -> Any:
    """The same by brute force over every hidden variable and every missing coordinate."""
    spaces = _must_enumerate(energy, given)
    hidden = Assignments(spaces)
    hidden.check_size("free_energy", _remedy("free_energy"))
    log_copies = sum(_log_copies(given[k], v) for k, v in spaces.items() if k in given)

    def negative(i):
        return -checked_energy(energy, {**given, **_filled(given, hidden.at(i))})

    return log_copies - log_sum_exp(negative, hidden.n)


def _filled(given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for hidden variables as they are; for partly known ones only where nothing is known."""
    return {k: given[k].fill(v) if k in given else v for k, v in values.items()}


def _log_copies(value: Masked, space: Space) -> Any:
    """Filling the hidden coordinates of every joint value counts each completion this often."""
    return jnp.log(float(space.values_per_coordinate or 1)) * jnp.sum(value.observed)


def log_partition_cost(energy: Energy) -> tuple[tuple[str, ...], int | None]:
    """The cheapest set of variables to enumerate for log Z, the rest summed out by knowledge."""
    spaces = energy.spaces
    candidates = [tuple(spaces)]
    candidates += [(name,) for name in spaces if len(spaces) > 1]
    costs = []
    for names in candidates:
        finite = all(spaces[n].is_finite for n in names)
        known_rest = len(names) == len(spaces) or energy.knows("free_energy", names)
        if finite and known_rest:
            costs.append((Assignments({n: spaces[n] for n in names}).n, names))
    if not costs:
        return tuple(spaces), None
    cost, names = min(costs)
    return names, cost


def enumerated_log_partition(energy: Energy) -> Any:
    names, _ = log_partition_cost(energy)
    hidden = Assignments({n: energy.spaces[n] for n in names})
    hidden.check_size("log_partition", _remedy("log_partition"))
    return log_sum_exp(lambda i: -free_energy(energy, hidden.at(i)), hidden.n)


def log_posterior_table(energy: Energy, given: Mapping[str, Any], hidden: Assignments) -> Any:
    """(log p(given, hiddenᵢ) for every i): unnormalised unless the energy is directed."""
    return table(lambda i: -free_energy(energy, {**given, **hidden.at(i)}), hidden.n)


class FiniteDistribution(eqx.Module):
    """A distribution over the listed values of a finite space, with NumPyro's manners."""

    log_probs: jax.Array
    space: Space = eqx.field(static=True)

    @property
    def probs(self) -> Any:
        return jnp.exp(self.log_probs)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        return self.space.at(jax.random.categorical(key, self.log_probs, shape=sample_shape))

    def log_prob(self, value: Any) -> Any:
        index = jnp.zeros(jnp.shape(value)[: jnp.ndim(value) - len(self.space.shape)], int)
        flat = jnp.reshape(value, (*index.shape, -1)).astype(int)
        for i in range(self.space.size):
            index = index * self.space.values_per_coordinate + flat[..., i]
        return self.log_probs[index]

    @property
    def mean(self) -> Any:
        values = self.space.values().astype(self.log_probs.dtype)
        return jnp.tensordot(self.probs, values, axes=1)

    @property
    def mode(self) -> Any:
        return self.space.at(jnp.argmax(self.log_probs))


def rows(energy: Energy, given: Mapping[str, Any]) -> tuple[bool, int]:
    """Whether the given values are many rows, and how many: one more leading axis than one example."""
    spaces = energy.spaces
    counts = {}
    for name, value in given.items():
        extra = jnp.ndim(known(value)) - spaces[name].ndim
        counts[name] = jnp.shape(known(value))[0] if extra else None
    sizes = {c for c in counts.values() if c is not None}
    if len(sizes) > 1:
        raise BadInput("given", f"row counts {counts}", "the same number of rows in every variable")
    return bool(sizes), sizes.pop() if sizes else 1


def is_static_value(exactly: float, temperature: Any) -> bool:
    """Whether a temperature is this number for sure; one that is an array may be any.

    >>> is_static_value(1, 1.0), is_static_value(0, jnp.zeros(()))
    (True, False)
    """
    return isinstance(temperature, int | float) and temperature == exactly
