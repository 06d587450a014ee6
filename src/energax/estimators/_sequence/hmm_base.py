"""What all presets of the hidden Markov chain share: the door, fitting, scores, paths, forecasts."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.keys import as_key
from ...algorithms.chains import markov as structure
from ...energies._sequence.hmm import HiddenChain
from ...errors import BadInput, Diverged, check_whole_number
from ...fitting import fit as run_fit
from ...learn import EM
from ...missing import Masked, is_masked
from .._base import ConvergenceWarning, EnergyEstimator, NotFitted
from .._common.sequences import Sequences, as_rows, as_sequences, padded_size, rounded_up
from .hmm_predict import Forecast, Monitor, best, best_paths, drawn, evidence, flatten_chain, smoothed

#: The chains made of the attributes of a model, and copies of these: a change by hand is seen.
_MADE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
_CHUNK = 2**21  # bytes of one kind that the E-step of one chunk of sequences holds: a cache's worth


class HMMEstimator(EnergyEstimator):
    """A hidden Markov chain with hmmlearn's manners; a subclass says what its emission is.

    Parameters of the model are plain attributes (`startprob_`, `transmat_`, …), which `fit` sets and a
    person may set instead.
    """

    _allow_nan = True
    _one_column: ClassVar[bool] = False
    #: Letter of `params` and `init_params` → (attribute, path in the energy).
    _letters: ClassVar[dict[str, tuple[str, str]]] = {}

    startprob_: np.ndarray
    transmat_: np.ndarray

    # -- what a subclass says ---------------------------------------------------------------------

    def _emission(self, dtype: Any) -> Any:
        """The emission of the attributes as they are; a `BadInput` if they are not right."""
        raise NotImplementedError

    def _blank(self, values: np.ndarray, dtype: Any) -> dict[str, np.ndarray]:
        """Legal values of the emission's attributes, to be replaced by its start."""
        raise NotImplementedError

    def _adopt(self, emission: Any) -> None:
        """Set the attributes from a learned emission."""
        raise NotImplementedError

    def _values(self, table: np.ndarray, *, reset: bool) -> np.ndarray:
        """The table as the emission reads it, checked."""
        return table

    def _means(self) -> np.ndarray:
        """E[x | z], (k, d)."""
        raise NotImplementedError

    def _n_emission_parameters(self) -> int:
        raise NotImplementedError

    # -- the door ---------------------------------------------------------------------------------

    def _validate_input(self, X: Any, lengths: Any, *, reset: bool = False) -> tuple[Sequences, np.ndarray]:
        table, found = as_sequences(X, lengths, self._one_column)
        had = getattr(self, "dtype_", None)
        fresh = reset or not hasattr(self, "n_features_in_")
        if fresh and had is None:
            self.dtype_ = np.dtype(np.float64)
        table = self._check_X(table, reset=fresh)
        found = np.array([len(table)]) if found is None else found
        return Sequences(table, found), self._values(table, reset=reset)

    def _check_arguments(self) -> None:
        self._check_counts("n_components", "n_iter", "n_init")
        if not isinstance(self.tol, int | float | np.number) or isinstance(self.tol, bool):
            raise BadInput("tol", repr(self.tol), "a number")
        for name in ("params", "init_params"):
            unknown = sorted(set(getattr(self, name)) - set(self._letters))
            if unknown:
                raise BadInput(name, f"the letters {unknown}", f"some of {''.join(self._letters)!r}")
        if self.implementation not in ("log", "scaling"):
            raise BadInput("implementation", repr(self.implementation), "'log' or 'scaling'")
        self._check_algorithm(self.algorithm)

    def _check_algorithm(self, algorithm: Any) -> None:
        if algorithm not in ("viterbi", "map"):
            raise BadInput("algorithm", repr(algorithm), "'viterbi' or 'map'")

    def _check_fitted(self) -> None:
        lacking = [name for name, _ in self._letters.values() if not hasattr(self, name)]
        if lacking:
            name = type(self).__name__
            what = f"it has no {', '.join(lacking)}"
            raise NotFitted(f"This {name} is not fitted yet: {what}. Call {name}.fit(X), or set them.")

    @contextlib.contextmanager
    def _in(self, dtype: Any) -> Any:
        with jax.enable_x64(dtype == np.float64), jax.default_matmul_precision("highest"):
            yield

    @property
    def energy_(self) -> HiddenChain:
        """The chain that the attributes describe."""
        self._check_fitted()
        return self._chain(self.dtype_ if hasattr(self, "dtype_") else np.dtype(np.float64))

    def _chain(self, dtype: Any, **options: Any) -> HiddenChain:
        """The energy of the attributes, made anew only when one of them has changed."""
        k = self.n_components
        arrays = [np.asarray(getattr(self, self._stored(name))) for name, _ in self._letters.values()]
        cached = _MADE.get(self)
        if cached is not None and not options and cached[0] == dtype and _same(cached[1], arrays):
            return cached[2][0]
        start = np.asarray(self.startprob_, np.float64)
        moves = np.asarray(self.transmat_, np.float64)
        if start.shape != (k,):
            raise BadInput("startprob_", f"shape {start.shape}", f"({k},), from n_components")
        if moves.shape != (k, k):
            raise BadInput("transmat_", f"shape {moves.shape}", f"({k}, {k}), from n_components")
        structure.check_probabilities(start, "startprob_")
        for i, row in enumerate(moves):
            structure.check_probabilities(row, f"transmat_[{i}]")
        less = lambda a: a - 1.0 if np.ndim(a) == 0 else jnp.asarray(np.asarray(a, dtype) - 1)
        with self._in(dtype):
            chain = HiddenChain(
                jnp.asarray(start.astype(dtype)),
                jnp.asarray(moves.astype(dtype)),
                self._emission(dtype),
                prior=less(self.transmat_prior),
                initial_prior=less(self.startprob_prior),
                **options,
            )
        if not options:
            with self._in(dtype):
                _MADE[self] = (dtype, [a.copy() for a in arrays], (chain, flatten_chain(chain)))
        return chain

    def _stored(self, name: str) -> str:
        """Where an attribute keeps its array."""
        return name

    # -- learning ---------------------------------------------------------------------------------

    def fit(self, X: Any, lengths: Any = None, *, states: Any = None) -> Self:
        """Baum-Welch from `n_init` starts side by side; NaN marks what is missing.

        Args:
            X: (n_samples, n_features), all sequences one after the other, with `lengths`; or a list
                of sequences.
            states: the state of every row where it is known, −1 where not; a list of such if X
                is one. With all of them known the fit is one of counting.
        """
        self._check_arguments()
        sequences, values = self._validate_input(X, lengths, reset=True)
        told = self._told(states, sequences)
        dtype = self.dtype_
        data, weights = as_rows(sequences, values, told, dtype)
        chain, initialise = self._start(values, data, dtype)
        n = len(sequences.lengths)
        per_row = data["x"].shape[1] * max(self.n_components, values[0].size) * dtype.itemsize
        frozen = [path for letter, (_, path) in self._letters.items() if letter not in self.params]
        with self._in(dtype):
            learner = EM(tol=jnp.asarray(self.tol / n, dtype), chunk=max(1, _CHUNK // per_row))
            result = run_fit(
                chain,
                data,
                learner,
                weights=weights,
                key=self._key(),
                epochs=self.n_iter,
                n_init=self.n_init if initialise else 1,
                initialise=initialise,
                freeze=frozen or None,
                progress=bool(self.verbose),
            )
        if result.status == "diverged":
            raise Diverged(f"{type(self).__name__} {result.message}. {self._why_diverged(result)}")
        self._take(result, n)
        return self

    def _take(self, result: Any, n: int) -> None:
        self.fit_, self.history_, self.n_iter_ = result, result.history, result.n_epochs
        self.converged_ = result.converged
        log_likelihoods = [-float(v) * n for v in result.history["objective"]]
        self.monitor_ = Monitor(float(self.tol), int(self.n_iter), log_likelihoods, bool(result.converged))
        self.startprob_ = np.asarray(result.energy.initial)
        self.transmat_ = np.asarray(result.energy.transition)
        self._adopt(result.energy.emission)
        if not result.converged and self.tol >= 0 and self.n_iter > 1:
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.message}. "
                f"Raise n_iter (now {self.n_iter}) or tol.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _why_diverged(self, result: Any) -> str:
        if result.n_epochs <= 1:
            return "A sequence may be impossible under the start: look for zeros in startprob_ and transmat_."
        return "Scale the columns of X, or give a prior."

    def _told(self, states: Any, sequences: Sequences) -> np.ndarray | None:
        if states is None:
            return None
        if isinstance(states, list | tuple) and states and np.ndim(states[0]) == 1:
            states = np.concatenate([np.asarray(s) for s in states])
        found = np.nan_to_num(np.asarray(states, np.float64), nan=-1.0)
        if found.shape != (len(sequences.table),):
            raise BadInput("states", f"shape {found.shape}", f"({len(sequences.table)},): one a row of X")
        if (found != np.floor(found)).any() or (found < -1).any() or (found >= self.n_components).any():
            expected = f"whole numbers from 0 to {self.n_components - 1}, and -1 where not known"
            raise BadInput("states", f"values from {found.min():g} to {found.max():g}", expected)
        return found.astype(np.int64)

    def _start(self, values: np.ndarray, data: Any, dtype: Any) -> tuple[HiddenChain, bool]:
        """(the chain to begin at, whether parts of it are to be initialised)."""
        kept = [
            (name, path)
            for letter, (name, path) in self._letters.items()
            if letter not in self.init_params and hasattr(self, name)
        ]
        k = self.n_components
        blank = {"startprob_": np.full(k, 1 / k), "transmat_": np.full((k, k), 1 / k)}
        for name, value in {**blank, **self._blank(values, dtype)}.items():
            if name not in [n for n, _ in kept]:
                setattr(self, self._stored(name), value)
        x = data["x"]
        whole = (
            is_masked(x) and bool((x.observed.all(-1) == x.observed.any(-1)).all()) if x.ndim > 2 else True
        )
        chain = self._chain(dtype, whole_steps=whole, keeps=tuple(path for _, path in kept))
        return chain, len(kept) < len(self._letters)

    # -- scores and states --------------------------------------------------------------------------

    def _ask(self, question: Any, X: Any, lengths: Any) -> tuple[Sequences, Any]:
        self._check_fitted()
        sequences, values = self._validate_input(X, lengths)
        n, (n_rows, steps) = len(sequences.lengths), padded_size(sequences.lengths)
        self._chain(self.dtype_)
        parts, ends = _MADE[self][2][1], None
        if sequences.ragged or (n_rows, steps) != (n, sequences.lengths[0]):
            ends = np.append(sequences.lengths, np.full(n_rows - n, sequences.lengths[0])).astype(np.int32)
        if values.dtype.kind == "f" and np.isnan(values).any():
            seen = ~np.isnan(values)
            x: Any = Masked(
                sequences.padded(np.where(seen, values, 0), n_rows, steps),
                sequences.padded(seen, n_rows, steps, True),
            )
        else:
            x = sequences.padded(values, n_rows, steps)
        with self._in(self.dtype_):
            answer = question(parts, x, ends)
            return sequences, jax.tree.map(lambda a: np.asarray(a)[:n], answer)

    def score(self, X: Any, lengths: Any = None) -> float:
        """log p(X), the sum over all sequences."""
        _, value = self._ask(evidence, X, lengths)
        return float(value.sum())

    def score_samples(self, X: Any, lengths: Any = None) -> tuple[float, np.ndarray]:
        """(log p(X), p(state | its sequence) of every row)."""
        sequences, (value, states) = self._ask(smoothed, X, lengths)
        return float(value.sum()), sequences.split(states)

    def predict_proba(self, X: Any, lengths: Any = None) -> np.ndarray:
        """p(state | its sequence) of every row, (n_samples, n_components)."""
        return self.score_samples(X, lengths)[1]

    def decode(self, X: Any, lengths: Any = None, algorithm: Any = None) -> tuple[float, np.ndarray]:
        """(log probability, states): of the best paths ("viterbi"), or each row's best state ("map").

        For "map" the first is the sum of those states' probabilities, as hmmlearn has it.
        """
        algorithm = self.algorithm if algorithm is None else algorithm
        self._check_algorithm(algorithm)
        if algorithm == "map":
            states = self.predict_proba(X, lengths)
            return float(states.max(1).sum()), states.argmax(1)
        sequences, (paths, value) = self._ask(best, X, lengths)
        if np.isneginf(value).any():
            row = int(np.argmax(np.isneginf(value)))
            found = f"sequence {row}, which has probability zero"
            raise BadInput("X", found, "sequences that the model can produce")
        return float(value.sum()), sequences.split(paths)

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The states by `decode`."""
        return self.decode(X, lengths)[1]

    def k_best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(log p(X, path), path) of the k most probable paths of one sequence, best first."""
        check_whole_number("k", k)
        self._check_fitted()
        sequences, values = self._validate_input(X, None)
        if len(sequences.lengths) > 1:
            raise BadInput("X", f"{len(sequences.lengths)} sequences", "one sequence at a time")
        x = Masked.from_nan(values) if values.dtype.kind == "f" and np.isnan(values).any() else values
        with self._in(self.dtype_):
            row = jax.tree.map(lambda a: a[None], x)
            paths, value = best_paths(self._chain(self.dtype_), row, int(k))
            paths, value = np.asarray(paths), np.asarray(value)
        possible = np.isfinite(value)
        return value[possible], paths[possible]

    def forecast(self, X: Any, steps: int, lengths: Any = None) -> Forecast:
        """The states and the expected observations of the next `steps` steps of every sequence.

        One sequence gives (steps, …), several give (n_sequences, steps, …).
        """
        check_whole_number("steps", steps)
        sequences, (_, states) = self._ask(smoothed, X, lengths)
        last = states[np.arange(len(sequences.lengths)), sequences.lengths - 1]
        ahead = []
        for _ in range(steps):
            last = last @ self.transmat_
            ahead.append(last)
        probs = np.stack(ahead, 1)
        mean = probs @ self._means()
        return Forecast(probs[0], mean[0]) if len(probs) == 1 else Forecast(probs, mean)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(X, states) of one sequence drawn from the model; `currstate` is its first state."""
        self._check_fitted()
        check_whole_number("n_samples", n_samples)
        dtype = self.dtype_ if hasattr(self, "dtype_") else np.dtype(np.float64)
        chain = self._chain(dtype)
        first = None
        if currstate is not None:
            if not 0 <= int(currstate) < self.n_components:
                raise BadInput("currstate", repr(currstate), f"a state from 0 to {self.n_components - 1}")
            first = np.eye(self.n_components, dtype=dtype)[int(currstate)]
        if isinstance(random_state, np.random.RandomState):
            random_state = int(random_state.randint(2**31 - 1))
        with self._in(dtype):
            key = self._key(2) if random_state is None else as_key(int(random_state))
            size = rounded_up(int(n_samples))
            x, z = drawn(chain, chain.initial if first is None else first, key, size)
            x = np.asarray(x)[:n_samples]
            return x.reshape(int(n_samples), -1), np.asarray(z)[:n_samples].astype(np.int64)

    # -- about the model ------------------------------------------------------------------------------

    def get_stationary_distribution(self) -> np.ndarray:
        """The distribution over states that the transitions leave as it is."""
        self._check_fitted()
        return structure.stationary_distribution(self.transmat_)

    def _n_parameters(self) -> int:
        k = self.n_components
        return k - 1 + k * (k - 1) + self._n_emission_parameters()

    def aic(self, X: Any, lengths: Any = None) -> float:
        """−2 log p(X) + 2 (free parameters): the lower the better."""
        return -2 * self.score(X, lengths) + 2 * self._n_parameters()

    def bic(self, X: Any, lengths: Any = None) -> float:
        """−2 log p(X) + (free parameters) log n: the lower the better."""
        sequences, _ = self._validate_input(X, lengths)
        return -2 * self.score(X, lengths) + self._n_parameters() * float(np.log(len(sequences.table)))


class Columns:
    """`n_features` of a model whose states have means: their columns. It may be set, to that number."""

    @property
    def n_features(self) -> int:
        return int(np.shape(self._means())[-1])  # type: ignore[attr-defined]

    @n_features.setter
    def n_features(self, value: Any) -> None:
        has_means = hasattr(self, "means_") or hasattr(self, "lambdas_")
        if has_means and value != self.n_features:
            raise BadInput("n_features", repr(value), f"{self.n_features}, the columns of the means")


def _same(old: list[np.ndarray], new: list[np.ndarray]) -> bool:
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(old, new, strict=True))
