"""The hidden Markov chain: one chain of hidden states, and any emission."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.xla import prevent_fusion
from ...algorithms.chains import hmm as recursions
from ...algorithms.chains import markov as structure
from ...algorithms.chains.observations import Coded, tempered
from ...energy import Energy, is_static_value
from ...errors import BadInput, Unsuitable
from ...missing import Masked, is_masked, known, mask_of
from ...parameters import constrained_maximum, has_m_step, recentred
from ...samplers import draw_rest
from ...spaces import Categorical, Sequence, Simplex, fixed, is_concrete, parameter
from .._emissions.base import normalise
from .hmm_paths import Paths


class HiddenChain(Energy):
    """e(x, z) = −log π(z₁) − Σ_t log A[z_{t−1}, z_t] − Σ_t log p(x_t | z_t); log Z = 0.

    `emission` is an energy over (x, z), normalised in x for every z: `Gaussians`, `Categoricals`,
    `Poissons`, `Bernoullis`, `Mixtures`, `Product`, or one of your own (its class says
    `normalised = True`). Sums over all paths are exact, and linear in their length.

    What is missing: an observation that is not seen contributes a factor 1, whole or (if the emission
    sums out coordinates, as those above do) in part; a state that is known, where `z` is given
    masked, rules out all others at its step. Sequences of differing lengths are padded
    (`Sequence.pad`): for the likelihood, steps past an end are the same as missing ones; learning counts no
    step after the last of which something is seen.

    Args:
        initial: π, (k,).
        transition: A, (k, k), a row for every state to leave. What is zero stays zero in learning.
        emission: p(x | z).
        length: of every row, for drawing without x and for enumeration; None for any.
        prior: pseudo-counts that learning adds to every transition, a number or (k, k): α − 1 for
            the mode under a Dirichlet(α); 0 is maximum likelihood.
        initial_prior: the same for the first state.
        whole_steps: promises that what is missing from x is missing by whole steps (as past the ends of
            ragged sequences), so that the emission need not look for parts of them.
        keeps: dotted names of parameters that `initialise` leaves as they are.

    Rabiner (1989), A tutorial on hidden Markov models and selected applications in speech recognition.

    >>> from energax.energies._emissions.categorical import Categoricals
    >>> umbrella = HiddenChain([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Categoricals([[0.9, 0.1], [0.2, 0.8]]))
    >>> umbrella.conditional("z", x=jnp.array([0, 0, 1, 0, 0])).probs[:, 0].round(4)
    Array([0.8673, 0.8204, 0.3075, 0.8204, 0.8673], dtype=float32)
    >>> umbrella.argmin(x=jnp.array([0, 0, 1, 0, 0]))["z"]
    Array([0, 0, 1, 0, 0], dtype=int32)
    """

    initial: jax.Array = parameter(Simplex())
    transition: jax.Array = parameter(Simplex())
    emission: Any
    length: int | None = eqx.field(static=True, default=None)
    prior: Any = fixed(default=0.0)
    initial_prior: Any = fixed(default=0.0)
    whole_steps: bool = eqx.field(static=True, default=False)
    keeps: tuple[str, ...] = eqx.field(static=True, default=())

    marginalises = frozenset({"x", "z"})

    def __init__(
        self,
        initial: Any,
        transition: Any,
        emission: Any,
        length: int | None = None,
        *,
        prior: Any = 0.0,
        initial_prior: Any = 0.0,
        whole_steps: bool = False,
        keeps: tuple[str, ...] = (),
    ):
        if not isinstance(emission, Energy) or set(emission.spaces) != {"x", "z"}:
            raise BadInput("emission", f"{type(emission).__name__}", "an energy over x and z: p(x | z)")
        k = getattr(emission.spaces["z"], "k", None)
        if is_concrete(initial) and is_concrete(transition):
            found = len(structure.check_transition(transition))
            if found != k:
                raise BadInput("transition", f"{found} states", f"{k}, as the emission has")
            structure.check_probabilities(initial, "initial")
            if np.shape(initial) != (k,):
                raise BadInput("initial", f"shape {np.shape(initial)}", f"({k},), from the transition")
            for name, value, shape in (("prior", prior, (k, k)), ("initial_prior", initial_prior, (k,))):
                _check_prior(name, value, shape)
        number = lambda a: a if isinstance(a, int | float) else jnp.asarray(a)
        real = lambda a: a if jnp.issubdtype(a.dtype, jnp.floating) else a.astype(float)
        self.initial, self.transition = real(jnp.asarray(initial)), real(jnp.asarray(transition))
        self.emission, self.length = emission, length
        self.prior, self.initial_prior = number(prior), number(initial_prior)
        self.whole_steps, self.keeps = whole_steps, tuple(keeps)

    @property
    def n_states(self) -> int:
        return self.transition.shape[-1]

    @property
    def spaces(self):
        x = Sequence(self.emission.spaces["x"], self.length)
        return {"x": x, "z": Sequence(Categorical(self.n_states), self.length)}

    def inference(self, task):
        """The family's method: message passing along the chain."""
        return "ForwardBackward" if task != "log_partition" else None

    # -- what the recursions take --------------------------------------------------------------

    def logs(self) -> tuple[Any, Any]:
        """log π and log A."""
        return jnp.log(self.initial), jnp.log(self.transition)

    def log_likelihoods(self, x: Any = None, z: Any = None) -> Any:
        """log p(x_t | z_t) for many sequences, (n, steps, k); −∞ for states that `z` rules out."""
        k, dtype = self.n_states, self.transition.dtype
        total: Any = 0
        if x is not None:
            n, steps = np.shape(known(x))[:2]
            # Step by step, as the recursions go: to turn it is then to turn small tables.
            energies = prevent_fusion(lambda _, rows: self._row_energies(rows), self.transition, _by_time(x))
            total = -energies.reshape(steps, n, k).swapaxes(0, 1)
        if z is not None:
            here = jnp.asarray(known(z))[..., None] == jnp.arange(k)
            here = here | ~mask_of(z)[..., None] if is_masked(z) else here
            total = total + jnp.where(here, 0, -jnp.inf).astype(dtype)
        return jnp.asarray(total, dtype)

    def seen(self, x: Any = None, z: Any = None) -> Any:
        """The same for sums over paths: coded where the emission has few different rows."""
        coded = getattr(self.emission, "coded", None)
        if x is None or z is not None or coded is None:
            return self.log_likelihoods(x, z)
        found = coded(x=x)
        if found is None or len(found[0]) > found[1].size:
            return self.log_likelihoods(x)
        return Coded(-found[0].astype(self.transition.dtype), found[1])

    def _row_energies(self, x: Any) -> Any:
        emission = self.emission
        value, seen = (x.value, x.observed) if self._by_steps(x) else (x, None)
        if hasattr(emission, "row_energies"):
            energies = emission.row_energies(x=value)
        else:
            states = jnp.arange(self.n_states)
            energies = jax.vmap(lambda row: jax.vmap(lambda i: emission(x=row, z=i))(states))(value)
        if seen is None:
            return energies
        complete = jnp.all(seen.reshape(len(seen), -1), axis=1)
        return jnp.where(complete[:, None], energies, 0)

    def _by_steps(self, x: Any) -> bool:
        """Whether steps of x are seen whole or not at all."""
        return is_masked(x) and (self.whole_steps or "x" not in self.emission.marginalises)

    def _like(self, initial: Any, transition: Any, emission: Any) -> HiddenChain:
        """Other parameters, all else the same."""
        return eqx.tree_at(
            lambda c: (c.initial, c.transition, c.emission), self, (initial, transition, emission)
        )

    def steps_seen(self, rows: Any) -> Any:
        """How long each sequence is: up to the last step of which something is seen; None if all are."""
        if not any(is_masked(v) for v in rows.values()):
            return None
        seen = [mask_of(v).reshape(*np.shape(known(v))[:2], -1).any(-1) for v in rows.values()]
        some = jnp.any(jnp.stack(seen), axis=0)
        return jnp.max(jnp.where(some, jnp.arange(1, some.shape[1] + 1), 0), axis=1)

    def _one(self, **given: Any) -> Any:
        rows = jax.tree.map(lambda a: jnp.asarray(a)[None], given)
        return self.log_likelihoods(**rows)[0]

    # -- the energy, and what it knows -----------------------------------------------------------

    def __call__(self, *, x, z):
        log_likelihood = self._one(x=x)
        if is_masked(z):
            return -recursions.log_evidence(*self.logs(), log_likelihood + self._one(z=z))
        z = jnp.asarray(z)
        log_initial, log_transition = self.logs()
        path = log_initial[z[0]] + log_transition[z[:-1], z[1:]].sum()
        return -path - jnp.take_along_axis(log_likelihood, z[:, None], 1).sum()

    def knows(self, what, names=None):
        if what == "log_partition":
            return bool(getattr(self.emission, "normalised", False))
        if what == "free_energy" and names is not None and set(names) == {"z"}:
            return bool(getattr(self.emission, "normalised", False))
        return super().knows(what, names)

    def free_energy(self, *, x=None, z=None):
        """−log p(x), all paths summed; with z alone −log p(z); and with part of z −log p(x, that part)."""
        given = {name: v for name, v in (("x", x), ("z", z)) if v is not None}
        return -recursions.log_evidence(*self.logs(), self._one(**given))

    def log_partition(self):
        if not getattr(self.emission, "normalised", False):
            raise Unsuitable(
                f"log Z of a chain needs a normalised emission; {type(self.emission).__name__} does not say "
                "that it is. Its class says `normalised = True` if exp(−e(x, z)) is a density of x given z."
            )
        return jnp.zeros((), self.transition.dtype)

    def conditional(self, name, **given):
        if name != "z":
            raise NotImplementedError("p(x | …) of a chain: draw it")
        return Paths(*self.logs(), self._one(**given))

    def argmin(self, *, x, z=None):
        """The most probable path of states (Viterbi); of a `z` that is partly known, the rest."""
        given = {"x": x} if z is None else {"x": x, "z": z}
        path, _ = recursions.viterbi(*self.logs(), self._one(**given))
        return {"z": path.astype(self.spaces["z"].jax_dtype)}

    def draw(self, key, *, x=None, z=None):
        """Paths and observations: all of them (`length` steps), or what is not given."""
        choose, emit = jax.random.split(key)
        drawn: dict[str, Any] = {}
        if x is None and z is None and self.length is None:
            raise BadInput("length", "None", "the number of steps to draw", "Give the chain its length.")
        if z is None or is_masked(z):
            given = {name: v for name, v in (("x", x), ("z", z)) if v is not None}
            if given:
                z = Paths(*self.logs(), self._one(**given)).sample(choose)
            else:
                flat = jnp.zeros((self.length, self.n_states), self.transition.dtype)
                z = Paths(*self.logs(), flat).sample(choose)
            z = drawn["z"] = z.astype(self.spaces["z"].jax_dtype)
        if x is None:
            keys = jax.random.split(emit, z.shape[0])
            drawn["x"] = jax.vmap(lambda key, state: self.emission.draw(key, z=state)["x"])(keys, z)
        elif is_masked(x):
            drawn["x"] = self._rest(emit, x, z)
        return drawn

    def _rest(self, key: Any, x: Masked, z: Any) -> Any:
        """The missing coordinates given the states and what is seen beside them."""

        def one(key, value, seen, state):
            return draw_rest(self.emission.conditional("x", z=state), value, key, seen)

        keys = jax.random.split(key, z.shape[0])
        return jax.vmap(one)(keys, jnp.asarray(x.value), jnp.asarray(x.observed), z)

    # -- EM: Baum and Welch -----------------------------------------------------------------------

    def expected_statistics(self, rows, weight, temperature):
        """Sums over rows that count so much, and of their log p(x): all transitions by one product."""
        if is_static_value(0, temperature):
            return None
        posterior, objective = self.expectations(rows, temperature, weight.astype(self.transition.dtype))
        return self.statistics(rows, posterior), jnp.sum(weight * jnp.where(weight > 0, objective, 0))

    def expectations(self, rows: Any, temperature: Any = 1.0, weight: Any = None) -> tuple[Any, Any]:
        """(first states, transitions and states expected of every row, their log p(x) and known z).

        At temperature 0 of the best path alone (Viterbi training), and at another T of p^(1/T). With a
        weight for every row they count so much, and transitions are those of all rows, (1, k, k).
        """
        lengths = self.steps_seen(rows)
        log_initial, log_transition = self.logs()
        given = {k: v for k, v in rows.items() if k in ("x", "z")}
        if is_static_value(0, temperature):
            return self._best(log_initial, log_transition, self.log_likelihoods(**given), lengths)
        if is_static_value(1, temperature):
            parts = log_initial, log_transition, self.seen(**given)
        else:
            likelihood = self.log_likelihoods(**given)
            parts = tempered(log_initial, log_transition, likelihood, temperature, lengths)
        found = recursions.smoothed(*parts, lengths=lengths, weight=weight)
        posterior = {"first": found.first, "pairs": found.pairs, "states": found.states}
        return posterior, temperature * found.log_likelihood

    def _best(self, log_initial, log_transition, likelihood, lengths) -> tuple[Any, Any]:
        path, value = recursions.viterbi(log_initial, log_transition, likelihood, lengths=lengths)
        k, dtype = self.n_states, likelihood.dtype
        states = jax.nn.one_hot(path, k, dtype=dtype)
        if lengths is not None:
            counts = jnp.arange(path.shape[1]) < lengths[:, None]
            states = states * counts[..., None].astype(dtype)
        pairs = jnp.einsum("nti,ntj->nij", states[:, :-1], states[:, 1:])
        return {"first": states[:, 0], "pairs": pairs, "states": states}, value

    @property
    def has_m_step(self) -> bool:
        return has_m_step(self.emission)

    def statistics(self, data, posterior):
        flat, rows = _by_time(posterior["states"]), _by_time(data["x"])
        if self._by_steps(rows):
            complete = jnp.all(rows.observed.reshape(len(flat), -1), axis=1)
            rows, flat = rows.value, flat * complete[:, None].astype(flat.dtype)
        return {
            "first": posterior["first"].sum(0),
            "pairs": posterior["pairs"].sum(0),
            "emission": self.emission.statistics({"x": rows}, flat),
        }

    def maximise(self, statistics, trainable=None):
        moves = lambda name: trainable is None or getattr(trainable, name)
        initial = _kept_zeros(statistics["first"] + self.initial_prior, self.initial)
        transition = _kept_zeros(statistics["pairs"] + self.prior, self.transition)
        below = None if trainable is None else trainable.emission
        return self._like(
            initial if moves("initial") else self.initial,
            transition if moves("transition") else self.transition,
            constrained_maximum(self.emission, statistics["emission"], below),
        )

    def recentred(self, statistics, reference):
        parts = recentred(self.emission, statistics["emission"], reference.emission)
        return {**statistics, "emission": parts}

    def initialise(self, key, data, weight):
        """Random transitions (none where there are none now), and the emission's own start."""
        if not hasattr(self.emission, "initialise"):
            raise BadInput(
                "n_init",
                f"a start of its own for {type(self.emission).__name__}",
                "an emission with `initialise(key, data, weight)`",
                "Begin at the energy as it is: n_init=1.",
            )
        one, two, three = jax.random.split(key, 3)
        flat = jnp.ones(self.n_states, self.transition.dtype)
        random = lambda key, old: _kept_zeros(jax.random.dirichlet(key, flat, old.shape[:-1]), old)
        steps = np.shape(known(data["x"]))[1]
        rows = jax.tree.map(lambda a: jnp.asarray(a).reshape(-1, *a.shape[2:]), data["x"])
        share = jnp.repeat(weight, steps).astype(flat.dtype)
        if is_masked(rows):
            share = share * rows.observed.reshape(len(share), -1).any(1).astype(flat.dtype)
        rows = rows.value if self._by_steps(rows) else rows
        emission = self.emission.initialise(three, {"x": rows}, share)
        start = self._like(random(one, self.initial), random(two, self.transition), emission)
        for name in self.keeps:
            start = eqx.tree_at(lambda c: _at(c, name), start, _at(self, name))  # noqa: B023
        return start


def _by_time(rows: Any) -> Any:
    """All steps of all sequences in one table, the first ones first: (n, steps, …) → (steps · n, …)."""
    return jax.tree.map(lambda a: jnp.swapaxes(jnp.asarray(a), 0, 1).reshape(-1, *a.shape[2:]), rows)


def _at(module: Any, name: str) -> Any:
    """The field of a dotted name."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _kept_zeros(counts: Any, old: Any) -> Any:
    """Shares of counts; a probability that was zero stays so: left-right and other structure is kept."""
    return normalise(jnp.where(old == 0, 0, counts), old)


def _check_prior(name: str, prior: Any, shape: tuple[int, ...]) -> None:
    if is_concrete(prior):
        value = np.asarray(prior, np.float64)
        if value.shape not in ((), shape) or not np.isfinite(value).all() or (value < -1).any():
            raise BadInput(name, f"{prior!r:.40}", f"a number above -1, or {shape} of them")
