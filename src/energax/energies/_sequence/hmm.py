"""The hidden Markov chain: a Markov chain of hidden states with any emission."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import FLAG, NAME, NONE, WHOLE, check_arguments, check_each, read_array
from ..._util.arrays import asarray
from ..._util.methods import plain_method
from ..._util.xla import prevent_fusion
from ...algorithms.chains import hmm as recursions
from ...algorithms.chains import hmm_paths
from ...algorithms.chains.observations import CodedLikelihoods, temper
from ...batch import multiply_weight
from ...distributions import draw_rest
from ...energy import Energy, is_static_value
from ...errors import BadInput, Unsuitable
from ...missing import Masked, is_masked, mask_of, value_of
from ...parameters import m_step, recenter
from ...spaces import Categorical, Sequence, Simplex, fixed, is_concrete, parameter
from .._emissions.base import normalise
from .checks import as_prior, as_real, check_chain, check_prior
from .hmm_padding import crop_states, pad_states
from .hmm_paths import Paths


class HiddenChain(Energy):
    """e(x, z) = −log π(z₁) − Σ_t log A[z_{t−1}, z_t] − Σ_t log p(x_t | z_t); log Z = 0.

    `emission` is an energy over (x, z), normalised in x for every z: `Gaussians`, `Categoricals`,
    `Poissons`, `Bernoullis`, `Mixtures`, `Product`, or one of your own (its class says
    `normalised = True`). Sums over all paths are exact, and linear in their length.

    Missing values: a missing observation contributes a factor 1; if the emission sums out coordinates, as
    those above do, single coordinates may be missing. Where `z` is given masked, an observed state excludes
    all others at its step. Sequences of different lengths are padded (`Sequence.pad`): for the
    likelihood, steps past an end are missing steps; learning counts the steps up to the last observed one.

    Args:
        initial: π, (k,).
        transition: A, (k, k), one row per state. Learning keeps zeros.
        emission: p(x | z).
        length: the number of steps, for drawing without x and for enumeration; None for any.
        prior: pseudo-counts that learning adds to every transition, a number or (k, k): α − 1 for
            the mode under a Dirichlet(α); 0 is maximum likelihood.
        initial_prior: the same for the first state.
        whole_steps: whether steps of x are either complete or wholly missing (as past the ends of
            ragged sequences), so that the emission need not handle partly missing ones.
        keeps: dotted names of parameters that `initialise` does not change.

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
    active: jax.Array | None = None

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
        active: Any = None,
    ):
        if not isinstance(emission, Energy) or set(emission.spaces) != {"x", "z"}:
            raise BadInput("emission", type(emission).__name__, "an energy over x and z: p(x | z)")
        k = getattr(emission.spaces["z"], "k", None)
        if is_concrete(initial) and is_concrete(transition):
            if (found := check_chain(initial, transition)) != k:
                raise BadInput("transition", f"{found} states", f"{k}, the number of states of the emission")
            check_prior("prior", prior, (k, k), least=-1)
            check_prior("initial_prior", initial_prior, (k,), least=-1)
        self.initial, self.transition = as_real(initial), as_real(transition)
        check_arguments(locals(), length=WHOLE | NONE, whole_steps=FLAG)
        self.emission, self.length, self.whole_steps = emission, length, whole_steps
        self.prior, self.initial_prior = as_prior(prior), as_prior(initial_prior)
        self.keeps = check_each("keeps", keeps, NAME, "names of variables")
        self.active = active if active is None else read_array("active", active)

    @property
    def n_states(self) -> int:
        return self.transition.shape[-1]

    n_components = n_states

    @property
    def spaces(self):
        x = Sequence(self.emission.spaces["x"], self.length)
        return {"x": x, "z": Sequence(Categorical(self.n_states), self.length)}

    @property
    def observed_name(self) -> str:
        """The name of the variable that is observed."""
        return "x"

    @property
    def state_name(self) -> str:
        """The name of the variable that holds the hidden states."""
        return "z"

    def inference(self, task):
        """The inference method of this family: message passing along the chain."""
        return "ForwardBackward" if task != "log_partition" else None

    # -- inputs of the recursions --------------------------------------------------------------

    def logs(self) -> tuple[Any, Any]:
        """log π and log A."""
        return jnp.log(self.initial), jnp.log(self.transition)

    def log_likelihoods(self, x: Any = None, z: Any = None) -> Any:
        """log p(x_t | z_t) of many sequences, (n, steps, k); −∞ for states that `z` excludes."""
        k, dtype = self.n_states, self.transition.dtype
        total: Any = 0
        if x is not None:
            n, steps = np.shape(value_of(x))[:2]
            # Time-major, the layout of the recursions, so that the energies need no transposition.
            rows = _flatten_by_time(x)
            energies = prevent_fusion(lambda _, rows: self._row_energies(rows), self.transition, rows)
            total = -energies.reshape(steps, n, k).swapaxes(0, 1)
        if z is not None:
            possible = asarray(value_of(z))[..., None] == jnp.arange(k)
            possible = possible | ~mask_of(z)[..., None] if is_masked(z) else possible
            total = total + jnp.where(possible, 0, -jnp.inf).astype(dtype)
        return asarray(total, dtype)

    def coded_likelihoods(self, x: Any = None, z: Any = None) -> Any:
        """The same for sums over paths: `CodedLikelihoods` if the emission has few distinct rows."""
        if x is None or z is not None or not self.emission.knows("encode_rows"):
            return self.log_likelihoods(x, z)
        found = self.emission.encode_rows(x=x)
        if found is None or len(found[0]) > found[1].size:
            return self.log_likelihoods(x)
        return CodedLikelihoods(-found[0].astype(self.transition.dtype), found[1])

    def _row_energies(self, x: Any) -> Any:
        emission = self.emission
        value, observed = (x.value, x.observed) if self._has_whole_steps(x) else (x, None)
        if emission.knows("row_energies"):
            energies = emission.row_energies(x=value)
        else:
            states = jnp.arange(self.n_states)
            energies = jax.vmap(lambda row: jax.vmap(lambda i: emission(x=row, z=i))(states))(value)
        if observed is None:
            return energies
        complete = jnp.all(observed.reshape(len(observed), -1), axis=1)
        return jnp.where(complete[:, None], energies, 0)

    def _has_whole_steps(self, x: Any) -> bool:
        """Whether steps of x count only if they are complete."""
        return is_masked(x) and (self.whole_steps or "x" not in self.emission.marginalises)

    def _like(self, initial: Any, transition: Any, emission: Any) -> HiddenChain:
        """The same chain with other parameters."""
        return eqx.tree_at(
            lambda c: (c.initial, c.transition, c.emission), self, (initial, transition, emission)
        )

    def observed_lengths(self, rows: Any) -> Any:
        """The number of steps up to the last with an observed value, (n,); None if nothing is masked."""
        if not any(is_masked(v) for v in rows.values()):
            return None
        masks = [mask_of(v).reshape(*np.shape(value_of(v))[:2], -1).any(-1) for v in rows.values()]
        observed = jnp.any(jnp.stack(masks), axis=0)
        return jnp.max(jnp.where(observed, jnp.arange(1, observed.shape[1] + 1), 0), axis=1)

    def _one_sequence(self, **given: Any) -> Any:
        """log p(x_t | z_t) of one sequence, (steps, k)."""
        rows = jax.tree.map(lambda a: asarray(a)[None], given)
        return self.log_likelihoods(**rows)[0]

    # -- the energy and its closed forms ----------------------------------------------------------

    def __call__(self, *, x, z):
        log_likelihood = self._one_sequence(x=x)
        if is_masked(z):
            return -recursions.log_evidence(*self.logs(), log_likelihood + self._one_sequence(z=z))
        z = asarray(z)
        log_initial, log_transition = self.logs()
        path = log_initial[z[0]] + log_transition[z[:-1], z[1:]].sum()
        return -path - jnp.take_along_axis(log_likelihood, z[:, None], 1).sum()

    @plain_method
    def knows(self, what, names=None):
        if what == "log_partition":
            return self.emission.normalised
        if what == "free_energy" and names is not None and set(names) == {"z"}:
            return self.emission.normalised
        if what == "impute_given":
            return self.emission.knows("impute_given")
        return super().knows(what, names)

    def free_energy(self, *, x=None, z=None):
        """−log p(x), summed over all paths; of z alone −log p(z); of x and part of z −log p(x, that part)."""
        given = {name: v for name, v in (("x", x), ("z", z)) if v is not None}
        return -recursions.log_evidence(*self.logs(), self._one_sequence(**given))

    def log_partition(self):
        if not self.emission.normalised:
            raise Unsuitable(
                f"log Z of a chain needs an emission marked as normalised; {type(self.emission).__name__} is "
                "not. Set `normalised = True` in its class if exp(−e(x, z)) is a density of x given z."
            )
        return jnp.zeros((), self.transition.dtype)

    def conditional(self, name, **given):
        if name != "z":
            raise NotImplementedError("p(x | …) of a chain is not available in closed form: use draw")
        return Paths(*self.logs(), self._one_sequence(**given))

    def argmin(self, *, x, z=None):
        """The most probable path of states (Viterbi), given any states of `z` that are observed."""
        given = {"x": x} if z is None else {"x": x, "z": z}
        path, _ = hmm_paths.viterbi(*self.logs(), self._one_sequence(**given))
        return {"z": path.astype(self.spaces["z"].jax_dtype)}

    def draw(self, key, *, x=None, z=None):
        """Draw the states and observations that are not given: `length` steps if none are."""
        choose, emit = jax.random.split(key)
        drawn: dict[str, Any] = {}
        if x is None and z is None and self.length is None:
            raise BadInput("length", "None", "the number of steps to draw", "Set the length of the chain.")
        if z is None or is_masked(z):
            given = {name: v for name, v in (("x", x), ("z", z)) if v is not None}
            z = drawn["z"] = self.draw_states(choose, **given)
        if x is None:
            keys = jax.random.split(emit, z.shape[0])
            drawn["x"] = jax.vmap(lambda key, state: self.emission.draw(key, z=state)["x"])(keys, z)
        elif is_masked(x):
            drawn["x"] = self._draw_missing(emit, x, z)
        return drawn

    def draw_states(self, key, **given):
        """Draw the path of states given x or some states; `length` steps if nothing is given."""
        if given:
            log_likelihood = self._one_sequence(**given)
        else:
            log_likelihood = jnp.zeros((self.length, self.n_states), self.transition.dtype)
        return Paths(*self.logs(), log_likelihood).sample(key).astype(self.spaces["z"].jax_dtype)

    def _draw_missing(self, key: Any, x: Masked, z: Any) -> Any:
        """x with its missing coordinates drawn given the states and the observed coordinates."""

        def one(key, value, observed, state):
            return draw_rest(self.emission.conditional("x", z=state), value, key, observed)

        keys = jax.random.split(key, z.shape[0])
        return jax.vmap(one)(keys, asarray(x.value), asarray(x.observed), z)

    def impute_given(self, data, posterior):
        """The sequences, missing values at their means given p(z_t | …), (n, steps, k)."""
        x = data["x"]
        flat = jax.tree.map(lambda a: asarray(a).reshape(-1, *a.shape[2:]), x)
        states = posterior.reshape(-1, posterior.shape[-1])
        return {"x": self.emission.impute_given({"x": flat}, states)["x"].reshape(x.shape)}

    # -- EM (Baum and Welch) -----------------------------------------------------------------------

    def expected_statistics(self, data, weight, temperature):
        """Weighted statistics and log p(x), summed over rows: all transitions by one matrix product."""
        if is_static_value(0, temperature):
            return None
        posterior, objective = self.expectations(data, temperature, weight.astype(self.transition.dtype))
        return self.statistics(data, posterior), jnp.sum(weight * jnp.where(weight > 0, objective, 0))

    def expectations(self, data: Any, temperature: Any = 1.0, weight: Any = None) -> tuple[Any, Any]:
        """(expected first states, transitions and states of every row; log p of its observed values).

        Temperature 0 takes the most probable path alone (Viterbi training), another T takes p^(1/T). With a
        weight per row, states are multiplied by it and transitions are summed over all rows, (1, k, k).
        """
        lengths = self.observed_lengths(data)
        log_initial, log_transition = self.logs()
        given = {k: v for k, v in data.items() if k in ("x", "z")}
        if is_static_value(0, temperature):
            return hmm_paths.count_best_paths(
                log_initial, log_transition, self.log_likelihoods(**given), lengths
            )
        if is_static_value(1, temperature):
            parts = log_initial, log_transition, self.coded_likelihoods(**given)
        else:
            likelihood = self.log_likelihoods(**given)
            parts = temper(log_initial, log_transition, likelihood, temperature, lengths)
        found = recursions.hmm_smoother(*parts, lengths=lengths, weight=weight)
        posterior = {"first": found.first, "pairs": found.pairs, "states": found.states}
        return posterior, temperature * found.log_likelihood

    def expected_energy(self, data, posterior):
        """−Σ E[log p(z₁) + Σ log p(z_t | z_{t−1}) + Σ log p(x_t | z_t)] under the posterior of every row."""
        logs = (*self.logs(), self.log_likelihoods(x=data["x"]))
        parts = zip((posterior[name] for name in ("first", "pairs", "states")), logs, strict=True)
        return -sum(jnp.sum(multiply_weight(p, log)) for p, log in parts)

    @property
    def has_m_step(self) -> bool:
        return self.emission.has_m_step

    def statistics(self, data, posterior):
        flat, rows = _flatten_by_time(posterior["states"]), _flatten_by_time(data["x"])
        if self._has_whole_steps(rows):
            complete = jnp.all(rows.observed.reshape(len(flat), -1), axis=1)
            rows, flat = rows.value, flat * complete[:, None].astype(flat.dtype)
        return {
            "first": posterior["first"].sum(0),
            "pairs": posterior["pairs"].sum(0),
            "emission": self.emission.statistics({"x": rows}, flat),
        }

    def maximise(self, statistics, trainable=None):
        moves = lambda name: trainable is None or getattr(trainable, name)
        initial = _normalise_keeping_zeros(statistics["first"] + self.initial_prior, self.initial)
        transition = _normalise_keeping_zeros(statistics["pairs"] + self.prior, self.transition)
        below = None if trainable is None else trainable.emission
        return self._like(
            initial if moves("initial") else self.initial,
            transition if moves("transition") else self.transition,
            m_step(self.emission, statistics["emission"], below),
        )

    def recenter(self, statistics, reference):
        parts = recenter(self.emission, statistics["emission"], reference.emission)
        return {**statistics, "emission": parts}

    def initialise(self, key, data, weight):
        """Random π and A, zeros kept, and the start of the emission."""
        if not self.emission.knows("initialise"):
            raise BadInput(
                "n_init",
                f"random starts of {type(self.emission).__name__}",
                "an emission with `initialise(key, data, weight)`",
                "Start from the given energy: n_init=1.",
            )
        one, two, three = jax.random.split(key, 3)
        # Normalised, exponential variables are uniform on the simplex. One key per row: padding changes none.
        draw = lambda key, old: _normalise_keeping_zeros(jax.random.exponential(key, old.shape, dtype), old)
        dtype = self.transition.dtype
        transition = jax.vmap(draw)(jax.random.split(two, self.n_states), self.transition)
        steps = np.shape(value_of(data["x"]))[1]
        rows = jax.tree.map(lambda a: asarray(a).reshape(-1, *a.shape[2:]), data["x"])
        weights = jnp.repeat(weight, steps).astype(dtype)
        if is_masked(rows):
            weights = weights * rows.observed.reshape(len(weights), -1).any(1).astype(dtype)
        rows = rows.value if self._has_whole_steps(rows) else rows
        options = {} if self.active is None else {"active": self.active}
        emission = self.emission.initialise(three, {"x": rows}, weights, **options)
        start = self._like(draw(one, self.initial), transition, emission)
        for name in self.keeps:
            start = eqx.tree_at(lambda c: _read_path(c, name), start, _read_path(self, name))  # noqa: B023
        return start

    def pad(self, n):
        """The same chain with n states, the new ones unreachable, for emissions with `take`."""
        return HiddenChain(**pad_states(self, n))

    def crop(self, n):
        """The first n states: the inverse of `pad`."""
        return HiddenChain(**crop_states(self, n))


def _flatten_by_time(rows: Any) -> Any:
    """All steps of all sequences in one table, ordered by time: (n, steps, …) → (steps · n, …)."""
    return jax.tree.map(lambda a: jnp.swapaxes(asarray(a), 0, 1).reshape(-1, *a.shape[2:]), rows)


def _read_path(module: Any, name: str) -> Any:
    """The field with this dotted name."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def _normalise_keeping_zeros(counts: Any, old: Any) -> Any:
    """Probabilities from counts; zeros stay zero, which keeps structure such as left-to-right."""
    return normalise(jnp.where(old == 0, 0, counts), old)
