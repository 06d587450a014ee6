"""Markov chains: the next state depends on the present one alone."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Rows
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.keys import as_key
from ...algorithms.chains import markov as structure
from ...algorithms.chains.markov_paths import counted, filtered, log_likelihood, numbered, simulated
from ...energy import Energy
from ...errors import BadInput
from ...missing import is_masked, known, mask_of
from ...spaces import Categorical, Sequence, Simplex, fixed, is_concrete, parameter


class MarkovChain(Energy):
    """e(x) = −log π(x₁) − Σ_t log A[x_{t−1}, x_t], x a sequence of k states; log Z = 0.

    Sequences of differing lengths are padded (`Sequence.pad`, which marks what is past an end as not
    observed); a state that is missing inside a sequence is summed out, and learned from as EM has it.

    Args:
        initial: π, (k,).
        transition: A, (k, k): a row for every state to leave.
        length: of a row, where the energy is to be enumerated or drawn from; None for any.
        prior: pseudo-counts that learning adds to every transition, a number or (k, k): 0 is
            maximum likelihood, above it the mode under a Dirichlet(1 + prior) on every row. A
            state that was never left, and has no prior, keeps its row.
        initial_prior: the same for the first state, a number or (k,).
        states: names of the states, if they have any.

    Markov (1906); Anderson and Goodman (1957), Statistical inference about Markov chains.

    >>> weather = MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], states=("dry", "wet"))
    >>> jnp.exp(-weather(x=jnp.array([0, 0, 1])))            # ½ · 0.9 · 0.1
    Array(0.045, dtype=float32)
    >>> weather.stationary_distribution(), weather.mixing_time(0.01)
    (array([0.75, 0.25]), 9)
    """

    initial: jax.Array = parameter(Simplex())
    transition: jax.Array = parameter(Simplex())
    length: int | None = eqx.field(static=True, default=None)
    prior: Any = fixed(default=0.0)
    initial_prior: Any = fixed(default=0.0)
    states: tuple[str, ...] | None = eqx.field(static=True, default=None)

    marginalises = frozenset({"x"})

    def __init__(
        self,
        initial: Any,
        transition: Any,
        length: int | None = None,
        *,
        prior: Any = 0.0,
        initial_prior: Any = 0.0,
        states: Iterable[str] | None = None,
    ):
        if is_concrete(transition) and is_concrete(initial):
            k = len(structure.check_transition(transition))
            if np.shape(initial) != (k,):
                raise BadInput("initial", f"shape {np.shape(initial)}", f"({k},), from the transition")
            structure.check_probabilities(initial, "initial")
            for name, pseudo, shape in (("prior", prior, (k, k)), ("initial_prior", initial_prior, (k,))):
                _check_prior(name, pseudo, shape)
        number = lambda a: a if isinstance(a, (int, float)) else jnp.asarray(a)
        self.initial, self.transition = _real(initial), _real(transition)
        self.length, self.prior, self.initial_prior = length, number(prior), number(initial_prior)
        self.states = None if states is None else tuple(states)
        if self.states is not None and len(set(self.states)) != self.transition.shape[-1]:
            raise BadInput("states", f"{self.states}", f"{self.transition.shape[-1]} names, each once")

    @classmethod
    def uniform(cls, k: int, **options: Any) -> MarkovChain:
        """All k states alike: where learning may start."""
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise BadInput("k", repr(k), "a number of states >= 1")
        return cls(np.full(k, 1 / k), np.full((k, k), 1 / k), **options)

    @classmethod
    def from_sequences(
        cls,
        sequences: Rows[Any],
        k: int | None = None,
        *,
        states: Any = None,
        weights: Any = None,
        **options: Any,
    ) -> MarkovChain:
        """The chain of highest likelihood (or, with `prior=`, posterior), by counting.

        Args:
            sequences: of states: numbers below `k`, or names; each at least one state long.
            k: the number of states; by default as many as were seen, or named.
            states: the names, in order; by default, where sequences hold names, all of them sorted.
            weights: one a sequence; 2 counts it twice.

        >>> chain = MarkovChain.from_sequences([["sun", "sun", "rain"], ["rain", "sun", "sun", "rain"]])
        >>> chain.states, chain.transition.tolist()
        (('rain', 'sun'), [[0.0, 1.0], [0.5, 0.5]])
        """
        rows, states, k = numbered(sequences, states, k)
        start = cls.uniform(k, states=states, **options)
        weight = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
        if weight.shape != (len(rows),) or not np.isfinite(weight).all() or (weight < 0).any():
            raise BadInput("weights", f"shape {weight.shape}", f"({len(rows)},): finite numbers >= 0")
        return start.maximise(counted(rows, weight, k))

    @property
    def spaces(self):
        return {"x": Sequence(Categorical(self.transition.shape[-1]), self.length)}

    def __call__(self, *, x):
        if is_masked(x):
            return -log_likelihood(self.initial, self.transition, jnp.asarray(x.value), mask_of(x))
        x = jnp.asarray(x)
        return -jnp.log(self.initial[x[0]]) - jnp.log(self.transition[x[:-1], x[1:]]).sum()

    def log_partition(self):
        return jnp.zeros((), self.transition.dtype)

    def draw(self, key, *, x=None):
        """A path of `length` states; with some given (`x` masked), the rest given those."""
        if x is None and self.length is None:
            raise BadInput("length", "None", "the number of steps to draw", "Give it, or use simulate.")
        steps = self.length if x is None else x.shape[0]
        if x is None:
            value, seen = jnp.zeros(steps, self.spaces["x"].jax_dtype), jnp.zeros(steps, bool)
        else:
            value, seen = jnp.asarray(known(x)), mask_of(x)
        beliefs, _ = filtered(self.initial, self.transition, value, seen)
        with_last = jnp.arange(steps) == steps - 1

        # Backwards: the last state given all, then each given the one after it.
        def back(after, args):
            belief, last, key = args
            weight = belief * jnp.where(last, 1, self.transition[:, after])
            state = jax.random.categorical(key, jnp.log(weight))
            return state, state

        inputs = (beliefs, with_last, jax.random.split(key, steps))
        _, path = jax.lax.scan(back, jnp.zeros((), int), inputs, reverse=True)
        return {"x": path.astype(value.dtype)}

    def simulate(self, n_steps: int, *, key: Any, n: int = 1, start: Any = None) -> np.ndarray:
        """`n` paths of `n_steps` states, (n, n_steps): numbers, or names where the states have them.

        `start` is the first state, by number or name; by default it is drawn from `initial`.
        """
        for name, value in (("n_steps", n_steps), ("n", n)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise BadInput(name, repr(value), "a whole number >= 1")
        first = self.initial
        if start is not None:
            first = jax.nn.one_hot(self._number(start), len(self.initial), dtype=self.initial.dtype)
        paths = np.asarray(simulated(first, self.transition, n_steps, jax.random.split(as_key(key), n)))
        return paths if self.states is None else np.array(self.states, dtype=object)[paths]

    # -- learning --------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Expected first states and transitions: plain counts where every state is seen.

        An expected count is θ ∂ log p / ∂θ, so that the forward pass is all there is to write.
        """
        weight = posterior[:, 0]
        if not is_masked(data["x"]):
            x = data["x"]
            steps = jnp.broadcast_to(weight[:, None], x[:, 1:].shape)
            return {
                "first": jnp.zeros_like(self.initial).at[x[:, 0]].add(weight),
                "pairs": jnp.zeros_like(self.transition).at[x[:, :-1], x[:, 1:]].add(steps),
            }

        def total(initial, transition):
            value, seen = jnp.asarray(data["x"].value), mask_of(data["x"])
            rows = jax.vmap(lambda v, s: log_likelihood(initial, transition, v, s))(value, seen)
            return jnp.sum(jnp.where(weight > 0, weight * rows, 0))

        first, pairs = jax.grad(total, (0, 1))(self.initial, self.transition)
        return {"first": first * self.initial, "pairs": pairs * self.transition}

    def maximise(self, statistics, trainable=None):
        moves = lambda name: trainable is None or getattr(trainable, name)
        initial = _shares(statistics["first"] + self.initial_prior, self.initial)
        transition = _shares(statistics["pairs"] + self.prior, self.transition)
        return eqx.tree_at(
            lambda c: (c.initial, c.transition),
            self,
            (
                initial if moves("initial") else self.initial,
                transition if moves("transition") else self.transition,
            ),
        )

    def initialise(self, key, data, weight):
        """Random rows, each near the uniform one."""
        one, two = jax.random.split(key)
        k, dtype = self.transition.shape[-1], self.transition.dtype
        initial = jax.random.dirichlet(one, jnp.full(k, 10.0, dtype))
        rows = jax.random.dirichlet(two, jnp.full(k, 10.0, dtype), (k,))
        return eqx.tree_at(lambda c: (c.initial, c.transition), self, (initial, rows))

    # -- what the chain is like: see energax.graph for the matrix alone ------------------------------

    def classes(self) -> list[structure.CommunicatingClass]:
        """Communicating classes, each with its period and whether it is recurrent."""
        found = structure.communicating_classes(self.transition)
        if self.states is None:
            return found
        named = lambda c: tuple(self.states[i] for i in c.states)  # type: ignore[index]
        return [structure.CommunicatingClass(named(c), c.period, c.recurrent) for c in found]

    @property
    def is_irreducible(self) -> bool:
        """Whether every state can reach every other."""
        return len(self.classes()) == 1

    @property
    def is_aperiodic(self) -> bool:
        """Whether every recurrent class has period 1."""
        return all(c.period == 1 for c in self.classes() if c.recurrent)

    @property
    def is_ergodic(self) -> bool:
        """Irreducible and aperiodic: from anywhere it settles to one distribution over all states."""
        found = self.classes()
        return len(found) == 1 and found[0].period == 1

    @property
    def is_reversible(self) -> bool:
        """Whether detailed balance holds, π_i A_ij = π_j A_ji, to the precision of the parameters."""
        eps = float(jnp.finfo(self.transition.dtype).eps)
        return structure.is_reversible(self.transition, max(1e-9, 100 * eps))

    def unreachable_states(self) -> tuple[Any, ...]:
        """States that are never got to from `initial`."""
        return tuple(self._name(i) for i in structure.unreachable_states(self.transition, self.initial))

    def stationary_distribution(self) -> np.ndarray:
        """The one π = π A, (k,); a `BadInput` if there are several."""
        return structure.stationary_distribution(self.transition)

    def stationary_distributions(self) -> np.ndarray:
        """One for every recurrent class, in the order of `classes`; all others are mixtures of these."""
        return structure.stationary_distributions(self.transition)

    def distances(self, n_steps: int, start: Any = None) -> np.ndarray:
        """Total-variation distance to stationarity after 0, …, n_steps steps, from a state or the worst."""
        if start is not None:
            start = np.eye(len(self.initial))[self._number(start)]
        return structure.distances(self.transition, n_steps, start)

    def mixing_time(self, eps: float = 0.25) -> int | float:
        """Steps until that distance is at most `eps`, from whatever state; infinite if it never is."""
        return structure.mixing_time(self.transition, eps)

    def forecast(self, n_steps: int, start: Any = None) -> np.ndarray:
        """The distribution of the state after `n_steps` steps, (k,), from a state or from `initial`."""
        matrix = structure.check_transition(self.transition)
        first = structure.check_probabilities(self.initial, "initial")
        now = first if start is None else np.eye(len(first))[self._number(start)]
        return now @ np.linalg.matrix_power(matrix, n_steps)

    def hitting_times(self, targets: Any) -> np.ndarray:
        """Expected steps to the target state, or to any of several, from every state; inf if not certain."""
        return structure.hitting_times(self.transition, self._numbers(targets))

    def hitting_probabilities(self, targets: Any) -> np.ndarray:
        """The probability of ever getting there, from every state."""
        return structure.hitting_probabilities(self.transition, self._numbers(targets))

    def absorption_probabilities(self) -> np.ndarray:
        """The probability of ending in each recurrent class, (k, classes), from every state."""
        return structure.absorption_probabilities(self.transition)

    def _name(self, state: int) -> Any:
        return state if self.states is None else self.states[state]

    def _number(self, state: Any) -> int:
        if self.states is not None and state in self.states:
            return self.states.index(state)
        k = self.transition.shape[-1]
        if isinstance(state, (int, np.integer)) and not isinstance(state, bool) and 0 <= state < k:
            return int(state)
        names = "" if self.states is None else f", or one of {', '.join(map(repr, self.states[:8]))}"
        raise BadInput("state", repr(state), f"a number from 0 to {k - 1}{names}")

    def _numbers(self, states: Any) -> list[int]:
        one = isinstance(states, (str, int, np.integer))
        return [self._number(s) for s in ([states] if one else states)]


def _real(values: Any) -> Any:
    values = jnp.asarray(values)
    return values if jnp.issubdtype(values.dtype, jnp.floating) else values.astype(float)


def _check_prior(name: str, prior: Any, shape: tuple[int, ...]) -> None:
    if is_concrete(prior):
        value = np.asarray(prior, np.float64)
        if value.shape not in ((), shape) or not np.isfinite(value).all() or (value < 0).any():
            raise BadInput(name, f"{prior!r:.40}", f"a number >= 0, or {shape} of them")


def _shares(counts: Any, old: Any) -> Any:
    """Counts as probabilities; where nothing was counted, those of before."""
    total = counts.sum(-1, keepdims=True)
    return jnp.where(total > 0, counts / jnp.where(total > 0, total, 1), old).astype(old.dtype)
