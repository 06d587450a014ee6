"""`Energy`: a scalar function of named variables, low where a configuration is probable."""

from __future__ import annotations

import difflib
import functools
import inspect
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ._util.methods import plain_method
from ._util.printing import pretty_repr
from .batch import map_rows
from .distributions import FiniteDistribution
from .errors import BadInput, Unsuitable
from .finite import Assignments, log_sum_exp, table
from .missing import Masked, is_masked, value_of
from .protocols import KNOWLEDGE
from .spaces import Space

if TYPE_CHECKING:
    from .compose import Clamped, Marginal, Sum
    from .tempering import Tempered

#: Rows whose missing values are summed out together.
_INCOMPLETE_ROWS = 4

_REMEDY = (
    "Give the energy the exact method `{knowledge}`, make the hidden space smaller, or use an "
    "approximate method: importance sampling for log p, Gibbs or NUTS for draws."
)


class Energy(eqx.Module):
    """e(variables; θ): takes one example, returns one scalar; the array leaves are the parameters θ.

    A subclass defines the values of its variables (`spaces`) and the energy of an example (`__call__`). The
    methods below are derived from these two by enumerating finite spaces, wherever that is tractable. A
    subclass overrides the ones that it has in closed form, and may define any other method of `protocols`;
    `knows` tells learners, inferences and samplers which it has.

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

    #: Variables that `__call__` and the methods of this energy take as `Masked` values, with the missing
    #: coordinates summed or integrated out exactly.
    marginalises: ClassVar[frozenset[str]] = frozenset()

    #: Whether `free_energy` enumerates hidden values for rows with missing coordinates, and not for others.
    enumerates_missing: ClassVar[bool] = False

    #: Variables that are always given: the energy has no distribution of them, as a classifier has none of x.
    #: log p is then that of the other variables given these.
    inputs: ClassVar[frozenset[str]] = frozenset()

    #: Whether ∫ exp(−e(x, z)) dx = 1 for every z, for an energy over (x, z) that is a component of a mixture
    #: or an emission of a hidden chain.
    normalised: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if inspect.isfunction(vars(cls).get("spaces")):
            found, remedy = f"a method of {cls.__name__}", "Write @property above its definition."
            raise BadInput("spaces", found, "a property", remedy)

    @property
    @abstractmethod
    def spaces(self) -> dict[str, Space]:
        """The variables by name, each with the space of its values."""

    @abstractmethod
    def __call__(self, **variables: Any) -> Any:
        """The energy of one complete example."""

    # -- derived by enumeration, unless a subclass has a closed form ------------------------------

    def free_energy(self, **given: Any) -> Any:
        """F(given) = −log Σ_hidden exp(−e): the energy of the given variables alone."""
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
        """One exact draw of all hidden variables and missing coordinates, given the observed ones."""
        hidden = _hidden(self, given)
        hidden.check_size("draw", _remedy("draw"))
        complete = lambda i: _fill(given, hidden.at(i))
        logits = table(lambda i: -checked_energy(self, {**given, **complete(i)}), hidden.n)
        return complete(jax.random.categorical(key, logits))

    # -- the same for every energy ----------------------------------------------------------------

    def score(self, name: str = "x", **given: Any) -> Any:
        """∇ log p(name | …) = −∂F/∂name, at the values in `given`."""
        if not self.spaces[name].is_real:
            raise Unsuitable(
                f"score: {name!r} is in {self.spaces[name]!r}, which has no gradient; "
                "use a method for finite spaces, such as Gibbs."
            )
        rest = {k: v for k, v in given.items() if k != name}
        return -jax.grad(lambda value: free_energy(self, {**rest, name: value}))(given[name])

    def moments(self, **given: Any) -> tuple[Any, Any]:
        """Mean and variance of the energy over the hidden variables, under p(hidden | given)."""
        hidden = _hidden(self, given)
        hidden.check_size("moments", _remedy("draw"))
        energies = table(lambda i: checked_energy(self, {**given, **_fill(given, hidden.at(i))}), hidden.n)
        p = jax.nn.softmax(-energies)
        mean = p @ energies
        return mean, p @ (energies - mean) ** 2

    @plain_method
    def knows(self, what: str, names: Any = None) -> bool:
        """Whether the class has its own method `what`, one of `protocols` (for exactly these given names).

        >>> from energax.energies import RBM
        >>> rbm = RBM.random(3, 2, key=0)
        >>> rbm.knows("free_energy"), rbm.knows("free_energy", {"x"}), rbm.knows("log_partition")
        (True, True, False)
        """
        if what not in KNOWLEDGE:
            near = difflib.get_close_matches(what, KNOWLEDGE, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else ""
            raise BadInput("knows", repr(what), "the name of a method in energax.protocols", remedy)
        method = getattr(type(self), what, None)
        if not callable(method) or method is getattr(Energy, what, None):
            return False
        return names is None or _accepts(method, frozenset(names))

    @property
    def has_m_step(self) -> bool:
        """Whether EM has its M-step in closed form; an energy made of others has it if all of them do."""
        return self.knows("statistics") and self.knows("maximise")

    def __repr__(self) -> str:
        return pretty_repr(self)

    # -- composition ------------------------------------------------------------------------------

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
        """This energy with some variables fixed at these values."""
        from .compose import Clamped

        return Clamped(self, values)

    def over(self, *names: str) -> Marginal:
        """This energy with some variables summed out."""
        from .compose import Marginal

        return Marginal(self, names)


def supports_call(method: Any, *arguments: Any, **keywords: Any) -> bool:
    """Whether a method of an energy takes these arguments without an error, found by tracing it on shapes.

    An energy may have a closed form for some variables only; a call for another may raise any error.
    """
    try:
        eqx.filter_eval_shape(method, *arguments, **keywords)
    except Exception:
        return False
    return True


def _accepts(method: Any, names: frozenset[str]) -> bool:
    required, accepted = _keywords(method)
    return required <= names and (accepted is None or names <= accepted)


@functools.lru_cache(maxsize=1024)
def _keywords(method: Any) -> tuple[frozenset[str], frozenset[str] | None]:
    """(required keyword-only arguments, all of them; None if the method takes any).

    Cached: `inspect.signature` takes 20 µs, and `knows` is called at every query.
    """
    parameters = inspect.signature(method).parameters.values()
    keywords = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    required = frozenset(p.name for p in keywords if p.default is p.empty)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return required, None if takes_any else frozenset(p.name for p in keywords)


def _remedy(knowledge: str) -> str:
    return _REMEDY.format(knowledge=knowledge)


def checked_energy(energy: Energy, example: Mapping[str, Any]) -> Any:
    """Return e(example); raise if it is not a scalar, since an array would broadcast to a wrong result."""
    value = energy(**example)
    if jnp.ndim(value):
        name, shape = type(energy).__name__, jnp.shape(value)
        raise BadInput("energy", f"{name} returns shape {shape}", "one number, shape ()", "Sum its terms.")
    return value


# -- enumeration -------------------------------------------------------------------------------------


def _hidden(energy: Energy, given: Mapping[str, Any]) -> Assignments:
    """The joint values of variables that are not given, or partly missing."""
    spaces = {k: v for k, v in energy.spaces.items() if k not in given or is_masked(given[k])}
    return Assignments(spaces)


def _spaces_to_sum(energy: Energy, given: Mapping[str, Any]) -> dict[str, Space]:
    """Hidden variables, and partly missing ones that the energy does not marginalise itself."""
    partial = {k for k, v in given.items() if is_masked(v) and k not in energy.marginalises}
    return {k: v for k, v in energy.spaces.items() if k not in given or k in partial}


def free_energy(energy: Energy, given: Mapping[str, Any]) -> Any:
    """−log Σ_hidden exp(−e), by the energy's own method if it has one for these names."""
    hidden = _spaces_to_sum(energy, given)
    if not hidden:
        return checked_energy(energy, given)
    if given and hidden.keys().isdisjoint(given) and energy.knows("free_energy", given):
        return energy.free_energy(**given)
    return enumerated_free_energy(energy, given)


def row_free_energies(energy: Energy, rows: Mapping[str, Any]) -> Any:
    """`free_energy` of every row, (n,). Missing values are summed out in incomplete rows only.

    Such a sum takes long if it is an enumeration: with one NaN in one of 500 rows, a fit took 450 times as
    long where it was computed for every row.
    """
    one = lambda row: free_energy(energy, row)
    masked = {k: v.observed for k, v in rows.items() if is_masked(v)}
    if not masked or (energy.marginalises >= masked.keys() and not energy.enumerates_missing):
        return map_rows(one, rows)
    complete = jnp.stack([seen.reshape(len(seen), -1).all(1) for seen in masked.values()]).all(0)
    values = map_rows(one, {k: value_of(v) for k, v in rows.items()})
    # Incomplete rows come first, so that few chunks have any; the last row fills the last chunk.
    n = len(complete)
    size = min(n, _INCOMPLETE_ROWS)
    order = jnp.argsort(complete, stable=True)[jnp.minimum(jnp.arange(-(-n // size) * size), n - 1)]

    @jax.checkpoint  # stored for the gradient, the terms of all chunks would take memory and time
    def chunk(indices):
        some = jax.tree.map(lambda a: a[indices], dict(rows))
        summed = lambda some: jax.vmap(one)(some).astype(values.dtype)
        return jax.lax.cond(complete[indices].all(), lambda _: values[indices], summed, some)

    chunks = order.reshape(-1, size)
    return jnp.zeros_like(values).at[chunks].set(jax.lax.map(chunk, chunks))


def enumerated_free_energy(energy: Energy, given: Mapping[str, Any]) -> Any:
    """−log Σ_hidden exp(−e), by enumerating every hidden variable and every missing coordinate."""
    spaces = _spaces_to_sum(energy, given)
    hidden = Assignments(spaces)
    hidden.check_size("free_energy", _remedy("free_energy"))
    log_copies = sum(_log_copies(given[k], v) for k, v in spaces.items() if k in given)

    def negative(i):
        return -checked_energy(energy, {**given, **_fill(given, hidden.at(i))})

    return log_copies - log_sum_exp(negative, hidden.n)


def _fill(given: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of hidden variables; those of partly missing ones only at the missing coordinates."""
    return {k: given[k].fill(v) if k in given else v for k, v in values.items()}


def _log_copies(value: Masked, space: Space) -> Any:
    """The log of how often enumerating all joint values of the space counts each completion of `value`."""
    return jnp.log(float(space.values_per_coordinate or 1)) * jnp.sum(value.observed)


def log_partition_cost(energy: Energy) -> tuple[tuple[str, ...], int | None]:
    """(the variables to enumerate for log Z, their number of joint values), the cheapest choice.

    The others are summed out by `free_energy`. The number is None if no choice is finite.
    """
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
    """log Z, by enumerating the variables that `log_partition_cost` chooses."""
    names, _ = log_partition_cost(energy)
    hidden = Assignments({n: energy.spaces[n] for n in names})
    hidden.check_size("log_partition", _remedy("log_partition"))
    return log_sum_exp(lambda i: -free_energy(energy, hidden.at(i)), hidden.n)


def log_posterior_table(energy: Energy, given: Mapping[str, Any], hidden: Assignments) -> Any:
    """−F(given, hiddenᵢ) for every i: log p(given, hiddenᵢ) up to log Z."""
    return table(lambda i: -free_energy(energy, {**given, **hidden.at(i)}), hidden.n)


def is_static_value(exactly: float, temperature: Any) -> bool:
    """Whether a temperature is a Python number equal to `exactly`; the value of an array is not static.

    >>> is_static_value(1, 1.0), is_static_value(0, jnp.zeros(()))
    (True, False)
    """
    return isinstance(temperature, int | float) and temperature == exactly
