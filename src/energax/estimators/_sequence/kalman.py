"""The linear-Gaussian state-space model (Kalman filter and smoother), learned by EM."""

from __future__ import annotations

from typing import Any, Self

import jax
import numpy as np
from scipy.stats import norm

from ..._util.arrays import asarray
from ..._util.keys import numpy_generator
from ..._util.sizes import pad_size
from ...energies._sequence.initial import linear_start
from ...energies._sequence.linear_gaussian import LinearGaussianSSM
from ...errors import BadInput, check_memory, check_number, check_whole_number
from ...infer._sequence import kalman_queries as queries
from ...learn import EM
from ...missing import Masked
from .._base import EnergyEstimator, NotFitted
from .._common.sequences import Sequences, is_list_of_sequences, join_sequences
from .._common.settings import ANY_NUMBER, ARRAY, COMMON, NONE, NOT_NEGATIVE, WHOLE, names, one_of
from .parameters import check_linear_shapes
from .results import ForecastBands

PARAMETERS = (
    "transition",
    "emission",
    "transition_covariance",
    "emission_covariance",
    "initial_mean",
    "initial_covariance",
    "transition_offset",
    "emission_offset",
)


class LinearGaussianChain(EnergyEstimator):
    """z_t = A z_{t−1} + b + N(0, Q), x_t = C z_t + d + N(0, R): Kalman filter, smoother, forecasts, EM.

    X has one row per step. Several sequences are stacked in X with their `lengths`, or given as a list.
    Missing values are NaN; `impute` and `forecast` estimate them.

    Args:
        n_states: the dimension of the hidden state; by default that of `emission` if it is given.
        transition, emission, transition_covariance, emission_covariance, initial_mean,
        initial_covariance, transition_offset, emission_offset: A, C, Q, R, m, P, b, d. With the
            first four given the model may be used without `fit`.
        params: names of the parameters to learn, starting from given values; by default those that
            are not given (an offset only along with its matrix, and the initial covariance only
            from several sequences). `()` learns nothing, "all" everything.
        diagonal: names of the covariances that are diagonal.
        max_iter, tol: EM ends when the mean log-likelihood per sequence gains no more than `tol`.
        learner: in place of EM, any energax learner: `Descent(NegativeLogLikelihood(), optax.lbfgs())`.

    Attributes:
        energy_: the `LinearGaussianSSM`. Every parameter is also an attribute: `transition_`, `emission_`, ….

    Kalman (1960); Shumway and Stoffer (1982), An approach to time series smoothing and forecasting
    using the EM algorithm; Durbin and Koopman (2012), Time Series Analysis by State Space Methods.

    >>> x = np.array([[0.0], [1.1], [1.9], [np.nan], [4.1], [5.0]])
    >>> line = LinearGaussianChain.local_trend(level=1e-6, slope=1e-6, error=0.01)
    >>> line.impute(x)[3].round(2).tolist()
    [3.0...]
    >>> bands = line.forecast(x, 2)
    >>> bands.mean.round(1).ravel().tolist(), bool((bands.upper > bands.lower).all())
    ([6.0, 7.0], True)
    """

    _allow_nan = True
    _settings = {
        **COMMON,
        **dict.fromkeys(PARAMETERS, ARRAY | NONE),
        "n_states": WHOLE,
        "params": NONE | one_of("all") | names(PARAMETERS, "names"),
        "diagonal": names([p for p in PARAMETERS if p.endswith("covariance")], "names"),
        "max_iter": WHOLE,
        "tol": NOT_NEGATIVE,
    }

    def __init__(
        self,
        n_states: int = 1,
        *,
        transition: Any = None,
        emission: Any = None,
        transition_covariance: Any = None,
        emission_covariance: Any = None,
        initial_mean: Any = None,
        initial_covariance: Any = None,
        transition_offset: Any = None,
        emission_offset: Any = None,
        params: Any = None,
        diagonal: Any = (),
        max_iter: int = 200,
        tol: float = 1e-4,
        learner: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ):
        self.n_states = n_states
        self.transition = transition
        self.emission = emission
        self.transition_covariance = transition_covariance
        self.emission_covariance = emission_covariance
        self.initial_mean = initial_mean
        self.initial_covariance = initial_covariance
        self.transition_offset = transition_offset
        self.emission_offset = emission_offset
        self.params = params
        self.diagonal = diagonal
        self.max_iter = max_iter
        self.tol = tol
        self.learner = learner
        self.random_state = random_state
        self.verbose = verbose

    # -- well-known models ---------------------------------------------------------------------------

    @classmethod
    def local_level(
        cls, level: float | None = None, error: float | None = None, *, diffuse: float = 1e7, **options: Any
    ) -> Self:
        """A random walk observed with noise; the variances of its steps and of the noise are learned if None.

        >>> LinearGaussianChain.local_level(1.0, 2.0).filter([[0.0], [3.0]])[0].round(2).tolist()
        [[0.0], [1.8...]]
        """
        _check_numbers(diffuse, level=level, error=error)
        return cls._from_matrices(np.eye(1), np.eye(1), [level], error, diffuse, options)

    @classmethod
    def local_trend(
        cls,
        level: float | None = None,
        slope: float | None = None,
        error: float | None = None,
        *,
        diffuse: float = 1e7,
        **options: Any,
    ) -> Self:
        """A level with a slope, both random walks, observed with noise; variances are learned if None."""
        if (level is None) != (slope is None):
            raise BadInput("level, slope", f"{level}, {slope}", "both variances, or neither to learn them")
        _check_numbers(diffuse, level=level, slope=slope, error=error)
        A, C = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        return cls._from_matrices(A, C, [level, slope], error, diffuse, options)

    @classmethod
    def constant_velocity(
        cls,
        n_dims: int = 2,
        *,
        dt: float = 1.0,
        acceleration: float | None = None,
        error: float | None = None,
        diffuse: float = 1e7,
        **options: Any,
    ) -> Self:
        """Positions and velocities in `n_dims` dimensions, with observed positions, for tracking.

        `acceleration` is the spectral density of white noise on the velocity, `error` the variance of
        an observed position; None is learned. Bar-Shalom, Li and Kirubarajan (2001), 6.2.
        """
        check_whole_number("n_dims", n_dims)
        _check_numbers(diffuse, acceleration=acceleration, error=error, dt=dt)
        eye = np.eye(n_dims)
        A = np.kron([[1.0, dt], [0.0, 1.0]], eye)
        C = np.kron([[1.0, 0.0]], eye)
        Q = None
        if acceleration is not None:
            Q = acceleration * np.kron([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]], eye)
        return cls._from_matrices(A, C, Q, error, diffuse, options)

    @classmethod
    def _from_matrices(cls, A: Any, C: Any, noise: Any, error: Any, diffuse: float, options: Any) -> Self:
        d, k = C.shape
        chosen: dict[str, Any] = {"n_states": k, "transition": A, "emission": C}
        if isinstance(noise, list):
            chosen["diagonal"] = ("transition_covariance", "emission_covariance")
            noise = None if noise[0] is None else np.diag(noise)
        chosen["transition_covariance"] = noise
        chosen["emission_covariance"] = None if error is None else error * np.eye(d)
        chosen["initial_mean"], chosen["initial_covariance"] = np.zeros(k), diffuse * np.eye(k)
        return cls(**{**chosen, **options})

    # -- learning --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, lengths: Any = None) -> Self:
        """Learn `params` by EM from the sequences in X: stacked, with their `lengths`, or a list."""
        sequences = self._validate_input(X, lengths, reset=True)
        learned = self._learned_names(len(sequences.lengths))
        if learned and sequences.lengths.max() < 2:
            raise BadInput("X", "n_samples=1 in every sequence", "a sequence of two steps or more")
        self._check_columns(sequences.table, "emission_covariance" in learned)
        with self._precision():
            given, rng = self._given_parameters(sequences.table.shape[1]), self._rng()
            start = self._make_energy(linear_start(sequences.split(), self._n_states(), given, rng))
            self.energy_, self.converged_, self.n_iter_ = start, True, 0
            if learned:
                default = EM(tol=asarray(self.tol, self.dtype_))
                self._learn(
                    start,
                    {start.observed_name: self._pad(sequences)},
                    default if self.learner is None else self._make_learner(None, None),
                    tolerance=True,
                    pad=False,  # rows are sequences, few and long
                    epochs=self.max_iter,
                    freeze=[p for p in PARAMETERS if p not in learned] or None,
                    initialise=False,
                )
        return self

    def _divergence_hint(self, result: Any) -> str:
        return "Scale the columns of X, or learn fewer parameters (params=)."

    def _convergence_hint(self, result: Any) -> str:
        return f"Raise max_iter (now {self.max_iter}) or tol, or learn fewer parameters (params=)."

    def _check_columns(self, X: np.ndarray, learns_noise: bool) -> None:
        empty = np.isnan(X).all(0)
        if empty.any():
            found = f"only missing values in column {int(np.argmax(empty))}"
            raise BadInput("X", found, "some observed ones", "Drop the column.")
        constant = np.nanmax(X, axis=0) == np.nanmin(X, axis=0)
        if learns_noise and constant.any():
            found = f"the constant column {int(np.argmax(constant))}"
            raise BadInput(
                "X", found, "columns with some noise to learn", "Drop it, or give emission_covariance."
            )

    # -- states, missing values, forecasts -----------------------------------------------------------------

    def filter(self, X: Any, lengths: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, k) and covariance (n, k, k) of every state given X up to its step."""
        sequences, moments = self._query(queries.compiled_filter_states, X, lengths)
        mean, covariance = map(sequences.unpad, moments)
        return mean, covariance

    def smooth(self, X: Any, lengths: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, k) and covariance (n, k, k) of every state given all of its sequence."""
        sequences, moments = self._query(queries.compiled_smooth, X, lengths)
        mean, covariance = map(sequences.unpad, moments)
        return mean, covariance

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The most probable states, (n, k): the smoothed means."""
        return self.smooth(X, lengths)[0]

    def impute(self, X: Any, lengths: Any = None) -> np.ndarray:
        """X with missing values at their means given the rest of the sequence."""
        sequences, (_, (mean, _)) = self._query(queries.compiled_smooth_and_complete, X, lengths)
        return sequences.unpad(mean)

    def score_samples(self, X: Any, lengths: Any = None) -> np.ndarray:
        """log p(sequence) of every sequence, in nats."""
        return self._query(queries.compiled_log_evidence, X, lengths)[1]

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """log p(X), summed over its sequences, as in hmmlearn."""
        return float(self.score_samples(X, lengths).sum())

    def forecast(self, X: Any, steps: int = 1, level: float = 0.95, lengths: Any = None) -> ForecastBands:
        """The next `steps` steps after X, (steps, d), with bounds that hold with probability `level`.

        Several sequences give a leading axis for the sequences.
        """
        check_whole_number("steps", steps)
        check_number("level", level, lambda level: 0 < level < 1, "a probability between 0 and 1")
        sequences, rows, energy = self._prepare(X, lengths)
        size = len(sequences.lengths) * sequences.table.shape[1] ** 2
        check_memory("steps", steps, int(steps) * size, "the covariances of the forecasts")
        with self._precision():
            found = queries.compiled_forecast(rows, energy, sequences.lengths, steps=int(steps))
            mean, covariance = map(np.asarray, found)
        if lengths is None and not is_list_of_sequences(X) and np.ndim(X) < 3:
            mean, covariance = mean[0], covariance[0]
        reach = norm.ppf(0.5 + level / 2) * np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        return ForecastBands(mean, mean - reach, mean + reach, covariance)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw (X, states) of one sequence of `n_samples` steps from the model, as in hmmlearn."""
        n_samples, energy = self._check_n_samples(n_samples), self._model()
        with self._precision():
            z, x = queries.compiled_simulate(energy, steps=pad_size(n_samples), key=self._key(2))
            return np.asarray(x)[:n_samples], np.asarray(z)[:n_samples]

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and name[:-1] in PARAMETERS and "energy_" in vars(self):
            return np.asarray(getattr(self.energy_, name[:-1]))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- arguments and input ---------------------------------------------------------------------------------

    def _given_parameters(self, d: int | None = None) -> dict[str, np.ndarray]:
        """The parameters that were passed as arguments, by name; their shapes checked for d columns."""
        given = {p: np.asarray(getattr(self, p)) for p in PARAMETERS if getattr(self, p) is not None}
        if d is not None:
            check_linear_shapes(given, self._n_states(), d)
        return given

    def _n_states(self) -> int:
        if self.emission is not None and np.ndim(self.emission) == 2:
            return int(np.shape(self.emission)[1])
        return int(self.n_states)

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k = self._n_states()
        return {"n_states": (k * (k * min(n, 1024) + d), "covariances of the states of all steps")}

    def _numbers_per_draw(self) -> int:
        return sum(np.shape(self._model().emission))

    def _learned_names(self, n_sequences: int) -> tuple[str, ...]:
        """The names of the parameters that `fit` learns."""
        given = self._given_parameters()
        if self.params is None:
            free = [p for p in PARAMETERS if p not in given]
            if n_sequences == 1:
                free = [p for p in free if p != "initial_covariance"]
            return tuple(p for p in free if not p.endswith("offset") or p.removesuffix("_offset") in free)
        if isinstance(self.params, str):
            return PARAMETERS if self.params == "all" else (self.params,)
        return tuple(self.params)

    def _make_energy(self, parameters: dict[str, Any]) -> LinearGaussianSSM:
        cast: dict[str, Any] = {
            k: np.asarray(v, self.dtype_) if np.asarray(v).dtype.kind in "biuf" else v
            for k, v in parameters.items()
        }
        return LinearGaussianSSM(**cast, diagonal=self.diagonal)

    def _model(self) -> LinearGaussianSSM:
        """The fitted model, or without `fit` the one that the arguments define."""
        if hasattr(self, "energy_"):
            return self.energy_
        self._check_settings()  # there has been no `fit`
        given = self._given_parameters()
        lacking = [p for p in PARAMETERS[:4] if p not in given]
        if lacking:
            name = type(self).__name__
            raise NotFitted(
                f"This {name} is not fitted yet: call {name}.fit(X) first, or give {', '.join(lacking)}."
            )
        self.dtype_ = np.dtype(np.float64)
        with self._precision():
            return self._make_energy(given)

    def _check_fitted(self) -> None:
        self._model()

    def _rng(self) -> np.random.Generator:
        return numpy_generator(self._key(1))

    def _validate_input(self, X: Any, lengths: Any, *, reset: bool) -> Sequences:
        """X as sequences; raises `BadInput` if it is not valid."""
        table, found = join_sequences(X, lengths)
        table = self._check_X(table, reset=reset)
        return Sequences(table, np.array([len(table)]) if found is None else found)

    def _pad(self, sequences: Sequences) -> Masked:
        """(n, steps, d), padded to a number of steps that many inputs share; padding is missing."""
        steps = pad_size(int(sequences.lengths.max()))
        return Masked.from_nan(sequences.pad(sequences.table, len(sequences.lengths), steps, np.nan))

    def _prepare(self, X: Any, lengths: Any) -> tuple[Sequences, dict[str, Masked], LinearGaussianSSM]:
        """(the sequences, the same padded and by variable name, the model)."""
        energy = self._model()
        fresh = not hasattr(self, "energy_")
        sequences = self._validate_input(X, lengths, reset=fresh)
        if fresh:
            self.dtype_ = np.dtype(np.float64)
            if sequences.table.shape[1] != energy.emission.shape[0]:
                found = f"{sequences.table.shape[1]} columns"
                raise BadInput("X", found, f"{energy.emission.shape[0]}, one per row of emission")
        return sequences, {energy.observed_name: self._pad(sequences)}, energy

    def _query(self, function: Any, X: Any, lengths: Any) -> tuple[Sequences, Any]:
        """(the sequences, the result of a compiled function of `kalman_queries` for all of them, padded)."""
        sequences, rows, energy = self._prepare(X, lengths)
        with self._precision():
            return sequences, jax.tree.map(np.asarray, function(rows, energy))


def _check_numbers(diffuse: Any, **variances: Any) -> None:
    """Raise unless these arguments of a well-known model are numbers, or None where they are learned."""
    ANY_NUMBER.check("diffuse", diffuse)
    for name, value in variances.items():
        (ANY_NUMBER if name == "dt" else ANY_NUMBER | NONE).check(name, value)
