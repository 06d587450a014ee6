"""The base class of HMM estimators: validation, fitting, scores, paths, forecasts."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from numbers import Integral
from typing import Any, ClassVar, Self

import jax
import numpy as np

from ..._util import sizes
from ..._util.arrays import asarray
from ..._util.keys import as_key
from ...algorithms.chains import markov
from ...energies._sequence.hmm import HiddenChain
from ...errors import BadInput, check_memory, check_whole_number, describe
from ...infer._sequence import hmm_queries as queries
from ...learn import EM
from ...missing import Masked, is_masked, value_of
from .._base import EnergyEstimator, NotFitted
from .._common.sequences import Sequences, fill_nan, join_sequences, pad_for_fit
from .._common.settings import RANDOM_STATE, whole
from .parameters import ALGORITHM, as_numbers, check_possible, dirichlet_counts, initialise_chain
from .results import ConvergenceMonitor, HMMForecast

#: By estimator (dtype, copies of the attributes, the chain made of them), so that a chain is made anew only
#: after an attribute has changed. Without it a `score` of 10 symbols takes 6 times as long (1530 and 250 µs).
_CHAINS: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class HMMEstimator(EnergyEstimator):
    """A hidden Markov chain with hmmlearn's interface; a subclass defines the emission.

    The parameters of the model are attributes (`startprob_`, `transmat_`, …), which are set by `fit` or by
    the user.
    """

    _allow_nan = True
    _one_column: ClassVar[bool] = False
    #: Settings that decide the shapes of the parameters.
    _sizes: ClassVar[tuple[str, ...]] = ("n_components",)
    #: Letter of `params` and `init_params` → (attribute, path in the energy).
    _letters: ClassVar[dict[str, tuple[str, str]]] = {}

    startprob_: np.ndarray
    transmat_: np.ndarray

    # -- implemented by a subclass -----------------------------------------------------------------

    def _make_emission(self, dtype: Any) -> Any:
        """The emission with the parameters in the attributes; raises `BadInput` if these are not valid."""
        raise NotImplementedError

    def _default_emission(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Valid values of the attributes of the emission, to be replaced by its start."""
        raise NotImplementedError

    def _set_emission(self, emission: Any) -> None:
        """Set the attributes from a learned emission."""
        raise NotImplementedError

    def _check_values(self, table: np.ndarray, *, reset: bool) -> np.ndarray:
        """The table in the form that the emission takes; raises `BadInput` if its values are not valid."""
        return table

    def _means(self) -> np.ndarray:
        """E[x | z], (k, d)."""
        raise NotImplementedError

    def _n_emission_parameters(self) -> int:
        raise NotImplementedError

    def _storage_name(self, name: str) -> str:
        """The attribute that holds the array of the attribute `name`."""
        return name

    # -- validation --------------------------------------------------------------------------------

    def _validate_input(self, X: Any, lengths: Any, *, reset: bool = False) -> tuple[Sequences, np.ndarray]:
        """(the sequences, the rows of their table in the form that the emission takes)."""
        table, found = join_sequences(X, lengths, self._one_column)
        fresh = reset or not hasattr(self, "n_features_in_")
        if fresh and not hasattr(self, "dtype_"):
            self.dtype_ = np.dtype(np.float64)
        table = self._check_X(table, reset=fresh)
        found = np.array([len(table)]) if found is None else found
        return Sequences(table, found), self._check_values(table, reset=reset)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k = int(self.n_components)
        starts = int(self.n_init) * k * (k + d), "the parameters of all starts"
        return {"n_components": (k * (k + d), "the transition matrix"), "n_init": starts}

    def _check_fitted(self) -> None:
        self._check_settings(*self._sizes)
        lacking = [name for name, _ in self._letters.values() if not hasattr(self, name)]
        if lacking:
            name = type(self).__name__
            what = f"it has no {', '.join(lacking)}"
            raise NotFitted(f"This {name} is not fitted yet: {what}. Call {name}.fit(X), or set them.")

    def _check_states(self, states: Any, sequences: Sequences) -> np.ndarray | None:
        """The known state of every row, −1 where it is not known; None if no states are given."""
        if states is None:
            return None
        if isinstance(states, list | tuple) and states and all(np.ndim(s) == 1 for s in states):
            states = np.concatenate([np.asarray(s) for s in states])
        found = np.nan_to_num(as_numbers("states", states), nan=-1.0)
        if found.shape != (len(sequences.table),):
            raise BadInput("states", f"shape {found.shape}", f"({len(sequences.table)},), one per row of X")
        if (found != np.floor(found)).any() or (found < -1).any() or (found >= self.n_components).any():
            expected = f"whole numbers from 0 to {self.n_components - 1}, and -1 where not known"
            raise BadInput("states", f"values from {found.min():g} to {found.max():g}", expected)
        return found.astype(np.int64)

    # -- the chain -----------------------------------------------------------------------------------

    @property
    def _chain_dtype(self) -> np.dtype:
        """The dtype of the chain: that of X in `fit`, or float64 if the attributes were set by hand."""
        return getattr(self, "dtype_", np.dtype(np.float64))

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        with jax.enable_x64(self._chain_dtype == np.float64), jax.default_matmul_precision("highest"):
            yield

    @property
    def energy_(self) -> HiddenChain:
        """The chain with the parameters in the attributes."""
        self._check_fitted()
        return self._chain()

    def _set_energy(self, energy: Any) -> None:
        self.startprob_ = np.asarray(energy.initial)
        self.transmat_ = np.asarray(energy.transition)
        self._set_emission(energy.emission)

    def _chain(self) -> HiddenChain:
        """The chain with the parameters in the attributes, from the cache if none has changed."""
        dtype = self._chain_dtype
        stored = {name: self._storage_name(name) for name, _ in self._letters.values()}
        arrays = [as_numbers(name, getattr(self, place), None) for name, place in stored.items()]
        cached = _CHAINS.get(self)
        if cached is not None and cached[0] == dtype and _are_equal(cached[1], arrays):
            return cached[2]
        chain = self._make_chain()
        _CHAINS[self] = (dtype, [a.copy() for a in arrays], chain)
        return chain

    def _make_chain(self, **options: Any) -> HiddenChain:
        self._check_settings()  # a model whose attributes were set by hand has had no `fit`
        k, dtype = self.n_components, self._chain_dtype
        initial, transition = (as_numbers(n, getattr(self, n)) for n in ("startprob_", "transmat_"))
        if initial.shape != (k,):
            raise BadInput("startprob_", f"shape {initial.shape}", f"({k},), from n_components")
        if transition.shape != (k, k):
            raise BadInput("transmat_", f"shape {transition.shape}", f"({k}, {k}), from n_components")
        markov.check_probabilities(initial, "startprob_")
        for i, row in enumerate(transition):
            markov.check_probabilities(row, f"transmat_[{i}]")
        with self._precision():
            return HiddenChain(
                asarray(initial.astype(dtype)),
                asarray(transition.astype(dtype)),
                self._make_emission(dtype),
                prior=dirichlet_counts(self, "transmat_prior", (k, k), dtype),
                initial_prior=dirichlet_counts(self, "startprob_prior", (k,), dtype),
                **options,
            )

    # -- learning ------------------------------------------------------------------------------------

    def fit(self, X: Any, lengths: Any = None, *, states: Any = None) -> Self:
        """Learn by EM (Baum-Welch) from `n_init` starts; missing values are NaN.

        Args:
            X: (n_samples, n_features), all sequences one after the other, with `lengths`; or a list
                of sequences.
            lengths: the number of rows of every sequence; by default X is one sequence.
            states: the state of every row where it is known, −1 elsewhere; a list of such if X
                is one. If all are known, the fit is a matter of counting.
        """
        sequences, values = self._validate_input(X, lengths, reset=True)
        data, weights = pad_for_fit(sequences, values, self._check_states(states, sequences), self.dtype_)
        chain, initialise = self._start(values, data)
        if not self.n_iter:  # as in hmmlearn
            return self._only_initialise(chain, data, weights, initialise)
        n = len(sequences.lengths)
        bytes_per_row = data["x"].shape[1] * max(self.n_components, values[0].size) * self.dtype_.itemsize
        frozen = [path for letter, (_, path) in self._letters.items() if letter not in self.params]
        with self._precision():
            chunk = min(sizes.SEQUENCE_BYTES.rows(bytes_per_row), sizes.power_of_two(n))
            result = self._learn(
                chain,
                data,
                EM(tol=asarray(self.tol / n, self.dtype_), chunk=chunk),
                weights=weights,
                tolerance=bool(self.tol >= 0 and self.n_iter > 1),
                pad=False,
                epochs=self.n_iter,
                n_init=self.n_init if initialise else 1,
                initialise=initialise,
                freeze=frozen or None,
                components=self._padded_states(chain, data),
            )
        log_likelihoods = [-float(v) * n for v in result.history["objective"]]
        self.monitor_ = ConvergenceMonitor(
            float(self.tol), int(self.n_iter), log_likelihoods, bool(result.converged)
        )
        return self

    def _only_initialise(self, chain: HiddenChain, data: Any, weights: Any, initialise: bool) -> Self:
        """Set the attributes to the start, without an iteration of EM."""
        with self._precision():
            if initialise:
                rows, weights = jax.tree.map(asarray, (data, weights))
                chain = initialise_chain(chain, rows, weights, self._key())
            self._set_energy(chain)
        for name in {"fit_", "history_"} & set(vars(self)):
            delattr(self, name)
        self.n_iter_, self.converged_ = 0, False
        self.monitor_ = ConvergenceMonitor(float(self.tol), 0, [], False)
        return self

    def _padded_states(self, chain: HiddenChain, data: Any) -> int | None:
        """The number of states to learn with; None to learn with those of the chain."""
        if not hasattr(chain.emission, "take"):
            return None
        n, steps = np.shape(value_of(data["x"]))[:2]
        return sizes.component_size(self.n_components, n * steps, power=2)

    def _divergence_hint(self, result: Any) -> str:
        if result.n_epochs <= 1:
            return "A sequence may be impossible under the start: look for zeros in startprob_ and transmat_."
        return "Scale the columns of X, or give a prior."

    def _convergence_hint(self, result: Any) -> str:
        return f"Raise n_iter (now {self.n_iter}) or tol."

    def _start(self, values: np.ndarray, data: Any) -> tuple[HiddenChain, bool]:
        """(the chain to start from, whether `initialise` should set parts of it)."""
        kept = {
            name: path
            for letter, (name, path) in self._letters.items()
            if letter not in self.init_params and hasattr(self, name)
        }
        k = self.n_components
        uniform = {"startprob_": np.full(k, 1 / k), "transmat_": np.full((k, k), 1 / k)}
        for name, value in {**uniform, **self._default_emission(values)}.items():
            if name not in kept:
                setattr(self, self._storage_name(name), value)
        x = data["x"]
        whole = (
            is_masked(x) and bool((x.observed.all(-1) == x.observed.any(-1)).all()) if x.ndim > 2 else True
        )
        chain = self._make_chain(whole_steps=whole, keeps=tuple(kept.values()))
        return chain, len(kept) < len(self._letters)

    # -- scores and states ---------------------------------------------------------------------------

    def _query(self, function: Any, X: Any, lengths: Any) -> tuple[Sequences, Any]:
        """(the sequences, the result of a compiled function of `hmm_queries` for all of them, padded)."""
        self._check_fitted()
        sequences, values = self._validate_input(X, lengths)
        n, (n_rows, steps) = len(sequences.lengths), sequences.padded_size
        chain, ends = self._chain(), None
        # Short sequences are always masked, so that those of full length need no program of their own.
        short = n_rows * steps <= sizes.SHORT_STEPS
        if short or sequences.is_ragged or (n_rows, steps) != (n, sequences.lengths[0]):
            ends = np.append(sequences.lengths, np.full(n_rows - n, sequences.lengths[0])).astype(np.int32)
        filled, observed = fill_nan(values)
        x: Any = sequences.pad(filled, n_rows, steps)
        if observed is not None:
            x = Masked(x, sequences.pad(observed, n_rows, steps, True))
        with self._precision():
            result = function({chain.observed_name: x}, chain, ends)
            return sequences, jax.tree.map(lambda a: np.asarray(a)[:n], result)

    def score(self, X: Any, lengths: Any = None) -> float:
        """log p(X), summed over all sequences."""
        _, value = self._query(queries.compiled_log_evidence, X, lengths)
        return float(value.sum())

    def score_samples(self, X: Any, lengths: Any = None) -> tuple[float, np.ndarray]:
        """(log p(X), p(state | its sequence) of every row)."""
        sequences, (value, states) = self._query(queries.compiled_smooth, X, lengths)
        check_possible(value)
        return float(value.sum()), sequences.unpad(states)

    def predict_proba(self, X: Any, lengths: Any = None) -> np.ndarray:
        """p(state | its sequence) of every row, (n_samples, n_components)."""
        return self.score_samples(X, lengths)[1]

    def decode(self, X: Any, lengths: Any = None, algorithm: Any = None) -> tuple[float, np.ndarray]:
        """(log probability, states): of the best paths ("viterbi"), or each row's best state ("map").

        For "map" the first is the sum of the probabilities of these states, as in hmmlearn.
        """
        algorithm = self.algorithm if algorithm is None else algorithm
        ALGORITHM.check("algorithm", algorithm)
        if algorithm == "map":
            states = self.predict_proba(X, lengths)
            return float(states.max(1).sum()), states.argmax(1)
        sequences, (paths, value) = self._query(queries.compiled_decode, X, lengths)
        check_possible(value)
        return float(value.sum()), sequences.unpad(paths)

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The states found by `decode`."""
        return self.decode(X, lengths)[1]

    def k_best(self, X: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
        """(log p(X, path), path) of the k most probable paths of one sequence, best first."""
        check_whole_number("k", k)
        self._check_fitted()
        sequences, values = self._validate_input(X, None)
        check_memory("k", k, int(k) * len(sequences.table) * self.n_components, "the paths")
        if len(sequences.lengths) > 1:
            raise BadInput("X", f"{len(sequences.lengths)} sequences", "one sequence at a time")
        filled, observed = fill_nan(values)
        x: Any = filled[None] if observed is None else Masked(filled[None], observed[None])
        chain = self._chain()
        with self._precision():
            rows = {chain.observed_name: x}
            paths, value = map(np.asarray, queries.compiled_k_best(rows, chain, n_best=int(k)))
        possible = np.isfinite(value)
        return value[possible], paths[possible]

    def forecast(self, X: Any, steps: int, lengths: Any = None) -> HMMForecast:
        """The states and the expected observations of the next `steps` steps of every sequence.

        One sequence gives (steps, …), several give (n_sequences, steps, …).
        """
        check_whole_number("steps", steps)
        sequences, (value, states) = self._query(queries.compiled_smooth, X, lengths)
        check_possible(value)
        width = len(sequences.lengths) * (self.n_components + self._means().shape[1])
        check_memory("steps", steps, int(steps) * width, "the forecasts")
        last = states[np.arange(len(sequences.lengths)), sequences.lengths - 1]
        ahead = []
        for _ in range(steps):
            last = last @ self.transmat_
            ahead.append(last)
        probs = np.stack(ahead, 1)
        mean = probs @ self._means()
        return HMMForecast(probs[0], mean[0]) if len(probs) == 1 else HMMForecast(probs, mean)

    def sample(
        self, n_samples: int = 1, random_state: Any = None, currstate: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw (X, states) of one sequence from the model; `currstate` is its first state."""
        n_samples = self._check_n_samples(n_samples)
        RANDOM_STATE.check("random_state", random_state)
        chain, first = self._chain(), None
        if currstate is not None:
            if not whole(0).is_valid(currstate) or currstate >= self.n_components:
                found, expected = describe(currstate), f"a state from 0 to {self.n_components - 1}"
                raise BadInput("currstate", found, expected)
            first = np.eye(self.n_components, dtype=self._chain_dtype)[int(currstate)]
        if random_state is not None and not isinstance(random_state, Integral):
            random_state = int(random_state.randint(2**31 - 1))
        with self._precision():
            key = self._key(2) if random_state is None else as_key(int(random_state))
            size = sizes.round_up(n_samples)
            first = chain.initial if first is None else first
            x, z = queries.compiled_simulate(chain, first, key, n_steps=size)
            x = np.asarray(x)[:n_samples]
            return x.reshape(n_samples, -1), np.asarray(z)[:n_samples].astype(np.int64)

    # -- properties of the model -----------------------------------------------------------------------

    def get_stationary_distribution(self) -> np.ndarray:
        """The stationary distribution of the states."""
        self._check_fitted()
        return markov.stationary_distribution(self.transmat_)

    def _n_parameters(self) -> int:
        k = self.n_components
        return k - 1 + k * (k - 1) + self._n_emission_parameters()

    def aic(self, X: Any, lengths: Any = None) -> float:
        """−2 log p(X) + 2 (free parameters); lower is better."""
        return -2 * self.score(X, lengths) + 2 * self._n_parameters()

    def bic(self, X: Any, lengths: Any = None) -> float:
        """−2 log p(X) + (free parameters) log n; lower is better."""
        sequences, _ = self._validate_input(X, lengths)
        return -2 * self.score(X, lengths) + self._n_parameters() * float(np.log(len(sequences.table)))


def _are_equal(old: list[np.ndarray], new: list[np.ndarray]) -> bool:
    return all(a.shape == b.shape and bool((a == b).all()) for a, b in zip(old, new, strict=True))
