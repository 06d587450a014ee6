"""Markov chains: the next state depends only on the present one."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Rows
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import NAME, NONE, WHOLE, check_arguments, check_each
from ..._util.arrays import asarray
from ..._util.keys import as_key
from ...algorithms.chains import markov as structure
from ...algorithms.chains.markov_paths import (
    count_transitions,
    encode_states,
    filter_states,
    log_likelihood,
    simulate_paths,
)
from ...energy import Energy
from ...errors import BadInput
from ...missing import is_masked, mask_of, value_of
from ...spaces import Categorical, Sequence, Simplex, fixed, is_concrete, parameter
from .._emissions.base import normalise
from .checks import as_prior, as_real, check_chain, check_prior


class MarkovChain(Energy):
    """e(x) = −log π(x₁) − Σ_t log A[x_{t−1}, x_t], x a sequence of k states; log Z = 0.

    Sequences of different lengths are padded (`Sequence.pad`, which marks steps past an end as missing). A
    missing state inside a sequence is summed out, and EM learns from its expected transitions.

    Args:
        initial: π, (k,).
        transition: A, (k, k), one row per state.
        length: the number of steps, for drawing and for enumeration; None for any.
        prior: pseudo-counts that learning adds to every transition, a number or (k, k): 0 is
            maximum likelihood, above it the mode under a Dirichlet(1 + prior) on every row. A
            state without transitions and without prior keeps its row.
        initial_prior: the same for the first state, a number or (k,).
        states: names of the states; None for numbers.

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
            k = check_chain(initial, transition)
            check_prior("prior", prior, (k, k), least=0)
            check_prior("initial_prior", initial_prior, (k,), least=0)
        self.initial, self.transition, self.length = as_real(initial), as_real(transition), length
        self.prior, self.initial_prior = as_prior(prior), as_prior(initial_prior)
        check_arguments(locals(), length=WHOLE | NONE)
        listed = list(states) if isinstance(states, Iterable) and not isinstance(states, str) else states
        self.states = None if states is None else check_each("states", listed, NAME, "names of states")
        if self.states is not None and len(set(self.states)) != self.transition.shape[-1]:
            raise BadInput("states", f"{self.states}", f"{self.transition.shape[-1]} different names")

    @classmethod
    def uniform(cls, k: int, **options: Any) -> MarkovChain:
        """The chain with uniform π and A, a start for learning."""
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
        """Estimate the chain of highest likelihood (with `prior=`, of highest posterior) by counting.

        Args:
            sequences: sequences of one or more states, each a number below `k` or a name.
            k: the number of states; by default that of `states`, or the largest state number plus one.
            states: the names in order; by default, if sequences hold names, all of these sorted.
            weights: one weight per sequence; 2 counts it twice.

        >>> chain = MarkovChain.from_sequences([["sun", "sun", "rain"], ["rain", "sun", "sun", "rain"]])
        >>> chain.states, chain.transition.tolist()
        (('rain', 'sun'), [[0.0, 1.0], [0.5, 0.5]])
        """
        rows, states, k = encode_states(sequences, states, k)
        start = cls.uniform(k, states=states, **options)
        weight = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
        if weight.shape != (len(rows),) or not np.isfinite(weight).all() or (weight < 0).any():
            raise BadInput("weights", f"shape {weight.shape}", f"({len(rows)},): finite numbers >= 0")
        return start.maximise(count_transitions(rows, weight, k))

    @property
    def spaces(self):
        return {"x": Sequence(Categorical(self.transition.shape[-1]), self.length)}

    def __call__(self, *, x):
        if is_masked(x):
            return -log_likelihood(self.initial, self.transition, asarray(x.value), mask_of(x))
        x = asarray(x)
        return -jnp.log(self.initial[x[0]]) - jnp.log(self.transition[x[:-1], x[1:]]).sum()

    def log_partition(self):
        return jnp.zeros((), self.transition.dtype)

    def draw(self, key, *, x=None):
        """Draw a path of `length` states, or the missing states of x given the observed ones."""
        if x is None and self.length is None:
            raise BadInput("length", "None", "the number of steps to draw", "Set length, or use simulate.")
        steps = self.length if x is None else x.shape[0]
        if x is None:
            value, observed = jnp.zeros(steps, self.spaces["x"].jax_dtype), jnp.zeros(steps, bool)
        else:
            value, observed = asarray(value_of(x)), mask_of(x)
        beliefs, _ = filter_states(self.initial, self.transition, value, observed)
        is_last = jnp.arange(steps) == steps - 1

        # Backwards: the last state given all observed ones, then each state given the one after it.
        def back(after, args):
            belief, last, key = args
            weight = belief * jnp.where(last, 1, self.transition[:, after])
            state = jax.random.categorical(key, jnp.log(weight))
            return state, state

        inputs = (beliefs, is_last, jax.random.split(key, steps))
        _, path = jax.lax.scan(back, jnp.zeros((), int), inputs, reverse=True)
        return {"x": path.astype(value.dtype)}

    def simulate(self, n_steps: int, *, key: Any, n: int = 1, start: Any = None) -> np.ndarray:
        """Draw `n` paths of `n_steps` states, (n, n_steps): names if the states have them, else numbers.

        `start` is the first state, by number or name; by default it is drawn from `initial`.
        """
        for name, value in (("n_steps", n_steps), ("n", n)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise BadInput(name, repr(value), "a whole number >= 1")
        first = self.initial
        if start is not None:
            first = jax.nn.one_hot(self._number(start), len(self.initial), dtype=self.initial.dtype)
        paths = np.asarray(simulate_paths(first, self.transition, n_steps, jax.random.split(as_key(key), n)))
        return paths if self.states is None else np.array(self.states, dtype=object)[paths]

    # -- learning --------------------------------------------------------------------------------

    def statistics(self, data, posterior):
        """Expected first states and transitions: plain counts where no state is missing.

        Else expected counts are θ ∂ log p / ∂θ, the gradient of the forward pass.
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
            value, observed = asarray(data["x"].value), mask_of(data["x"])
            rows = jax.vmap(lambda v, s: log_likelihood(initial, transition, v, s))(value, observed)
            return jnp.sum(jnp.where(weight > 0, weight * rows, 0))

        first, pairs = jax.grad(total, (0, 1))(self.initial, self.transition)
        return {"first": first * self.initial, "pairs": pairs * self.transition}

    def maximise(self, statistics, trainable=None):
        moves = lambda name: trainable is None or getattr(trainable, name)
        initial = normalise(statistics["first"] + self.initial_prior, self.initial)
        transition = normalise(statistics["pairs"] + self.prior, self.transition)
        return eqx.tree_at(
            lambda c: (c.initial, c.transition),
            self,
            (
                initial if moves("initial") else self.initial,
                transition if moves("transition") else self.transition,
            ),
        )

    def initialise(self, key, data, weight):
        """Random π and A near the uniform ones."""
        one, two = jax.random.split(key)
        k, dtype = self.transition.shape[-1], self.transition.dtype
        initial = jax.random.dirichlet(one, jnp.full(k, 10.0, dtype))
        rows = jax.random.dirichlet(two, jnp.full(k, 10.0, dtype), (k,))
        return eqx.tree_at(lambda c: (c.initial, c.transition), self, (initial, rows))

    # -- properties of the chain; energax.graph has them as functions of the matrix -------------------

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
        """Irreducible and aperiodic: every start converges to one distribution over all states."""
        found = self.classes()
        return len(found) == 1 and found[0].period == 1

    @property
    def is_reversible(self) -> bool:
        """Whether detailed balance holds, π_i A_ij = π_j A_ji, to the precision of the parameters."""
        eps = float(jnp.finfo(self.transition.dtype).eps)
        return structure.is_reversible(self.transition, max(1e-9, 100 * eps))

    def unreachable_states(self) -> tuple[Any, ...]:
        """States that cannot be reached from `initial`."""
        return tuple(self._name(i) for i in structure.unreachable_states(self.transition, self.initial))

    def stationary_distribution(self) -> np.ndarray:
        """The distribution π = π A, (k,); raises if there are several."""
        return structure.stationary_distribution(self.transition)

    def stationary_distributions(self) -> np.ndarray:
        """One row per recurrent class, in the order of `classes`; all others are mixtures of these."""
        return structure.stationary_distributions(self.transition)

    def distances(self, n_steps: int, start: Any = None) -> np.ndarray:
        """Total-variation distance to stationarity after 0, …, n_steps steps, from `start` or the worst."""
        if start is not None:
            start = np.eye(len(self.initial))[self._number(start)]
        return structure.distances(self.transition, n_steps, start)

    def mixing_time(self, eps: float = 0.25) -> int | float:
        """Steps until that distance is at most `eps` from every state; infinite if it never is."""
        return structure.mixing_time(self.transition, eps)

    def forecast(self, n_steps: int, start: Any = None) -> np.ndarray:
        """The distribution of the state after `n_steps` steps, (k,), from `start` or from `initial`."""
        matrix = structure.check_transition(self.transition)
        first = structure.check_probabilities(self.initial, "initial")
        now = first if start is None else np.eye(len(first))[self._number(start)]
        return now @ np.linalg.matrix_power(matrix, n_steps)

    def hitting_times(self, targets: Any) -> np.ndarray:
        """Expected steps to the first target state, from every state; inf if it may never be reached."""
        return structure.hitting_times(self.transition, self._numbers(targets))

    def hitting_probabilities(self, targets: Any) -> np.ndarray:
        """The probability of ever reaching a target state, from every state."""
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
