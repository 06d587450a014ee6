"""The Kalman filter and smoother, learned by EM, with scikit-learn's manners and hmmlearn's `lengths`."""

from __future__ import annotations

import warnings
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from ..._util.keys import numpy_generator
from ...energies._sequence.initial import linear_start
from ...energies._sequence.linear_gaussian import LinearGaussianSSM
from ...errors import BadInput, Diverged, check_whole_number
from ...fitting import fit as run_fit
from ...learn import EM
from ...missing import Masked
from .._base import ConvergenceWarning, EnergyEstimator, NotFitted, bucket
from . import kalman_predict as rows

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

    A row of X is a step. Several sequences are stacked in X and told apart by `lengths`, or given
    as a list. NaN marks what was not seen; forecasts and `impute` fill it in.

    Args:
        n_states: how many numbers the hidden state has; where `emission` is given, it tells.
        transition, emission, transition_covariance, emission_covariance, initial_mean,
        initial_covariance, transition_offset, emission_offset: A, C, Q, R, m, P, b, d. With the
            first four given the model may be used without `fit`.
        params: names of the parameters to learn, beginning at what is given; by default those that
            are not given (an offset only along with its matrix, and the initial covariance only
            from several sequences). `()` learns nothing, "all" everything.
        diagonal: names of the covariances that have a diagonal alone.
        max_iter, tol: EM ends when the mean log-likelihood of a sequence gains no more than `tol`.
        learner: in place of EM, any energax learner: `Descent(NegativeLogLikelihood(), optax.lbfgs())`.

    Attributes:
        energy_: the `LinearGaussianSSM`; and each parameter under its name with an underscore, `transition_`.

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
        """A random walk seen in noise: variances of its steps and of the noise, learned where None.

        >>> LinearGaussianChain.local_level(1.0, 2.0).filter([[0.0], [3.0]])[0].round(2).tolist()
        [[0.0], [1.8...]]
        """
        return cls._structural(np.eye(1), np.eye(1), [level], error, diffuse, options)

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
        """A level that moves by a slope that moves: three variances, learned where none is given."""
        if (level is None) != (slope is None):
            raise BadInput("level, slope", f"{level}, {slope}", "both variances, or neither, to learn them")
        A, C = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
        return cls._structural(A, C, [level, slope], error, diffuse, options)

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
        """Positions and velocities in `n_dims` dimensions, the positions seen: for tracking.

        `acceleration` is the spectral density of white noise on the velocity, `error` the variance
        of a position as seen; what is None is learned. Bar-Shalom, Li and Kirubarajan (2001), 6.2.
        """
        eye = np.eye(n_dims)
        A = np.kron([[1.0, dt], [0.0, 1.0]], eye)
        C = np.kron([[1.0, 0.0]], eye)
        Q = None
        if acceleration is not None:
            Q = acceleration * np.kron([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]], eye)
        return cls._structural(A, C, Q, error, diffuse, options)

    @classmethod
    def _structural(cls, A: Any, C: Any, noise: Any, error: Any, diffuse: float, options: Any) -> Self:
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
        """Learn `params` by EM from the sequences in X: stacked, told apart by `lengths`; or a list."""
        self._check_counts("max_iter")
        if not isinstance(self.tol, (int, float, np.number)) or not self.tol >= 0:
            raise BadInput("tol", repr(self.tol), "a number >= 0")
        sequences = self._sequences(X, lengths, reset=True)
        longest = max(map(len, sequences))
        learned = self._learned(len(sequences))
        if learned and longest < 2:
            raise BadInput("X", "n_samples=1 in every sequence", "a sequence of two steps or more")
        self._check_columns(np.concatenate(sequences), "emission_covariance" in learned)
        with self._precision():
            start = self._build(linear_start(sequences, self._n_states(), self._given(), self._rng()))
            self.energy_, self.converged_, self.n_iter_ = start, True, 0
            if learned:
                self._run(start, self._padded(sequences), [p for p in PARAMETERS if p not in learned])
        return self

    def _check_columns(self, X: np.ndarray, varied: bool) -> None:
        empty = np.isnan(X).all(0)
        if empty.any():
            raise BadInput("X", f"no known value in column {int(np.argmax(empty))}", "some", "Drop it.")
        still = np.nanmax(X, axis=0) == np.nanmin(X, axis=0)
        if varied and still.any():
            found = f"column {int(np.argmax(still))}, which never changes"
            raise BadInput(
                "X", found, "columns with some noise to learn", "Drop it, or give emission_covariance."
            )

    def _run(self, start: LinearGaussianSSM, x: Masked, held: list[str]) -> None:
        """The one call of `fit`. Rows are sequences, few and long: padding their number would be work."""
        learner = (
            EM(tol=jnp.asarray(self.tol, self.dtype_))
            if self.learner is None
            else self._chosen_learner(None, None)
        )
        result = run_fit(
            start,
            {"x": x},
            learner,
            epochs=self.max_iter,
            freeze=held or None,
            key=self._key(),
            progress=bool(self.verbose),
            initialise=False,
        )
        if result.status == "diverged":
            raise Diverged(f"{type(self).__name__} {result.message}. Scale the columns of X, or learn less.")
        self.fit_, self.energy_, self.history_ = result, result.energy, result.history
        self.n_iter_, self.converged_ = result.n_epochs, result.converged
        if getattr(learner, "tol", None) is not None and result.status == "budget spent":
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.message}. Raise max_iter "
                f"(now {self.max_iter}) or tol, or learn fewer parameters (params=).",
                ConvergenceWarning,
                stacklevel=4,
            )

    # -- what is known of the states ----------------------------------------------------------------------

    def filter(self, X: Any, lengths: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, k) and covariance (n, k, k) of every state given X up to its step."""
        return self._stacked(rows.filtered, X, lengths)

    def smooth(self, X: Any, lengths: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Mean (n, k) and covariance (n, k, k) of every state given all of its sequence."""
        return self._stacked(rows.smoothed, X, lengths)

    def predict(self, X: Any, lengths: Any = None) -> np.ndarray:
        """The most probable states, (n, k): the smoothed means."""
        return self.smooth(X, lengths)[0]

    def impute(self, X: Any, lengths: Any = None) -> np.ndarray:
        """X with what is missing at its mean given the rest of the sequence."""
        return self._stacked(rows.completed, X, lengths)[0]

    def score_samples(self, X: Any, lengths: Any = None) -> np.ndarray:
        """log p(sequence) of every sequence, in nats."""
        return self._ask(rows.log_likelihood, X, lengths)[0]

    def score(self, X: Any, y: Any = None, lengths: Any = None) -> float:
        """log p(X), the sum over its sequences, as hmmlearn has it."""
        return float(self.score_samples(X, lengths).sum())

    def forecast(self, X: Any, steps: int = 1, level: float = 0.95, lengths: Any = None) -> rows.Bands:
        """The next `steps` after X, (steps, d), and the bounds of the band that each is in with p = `level`.

        With several sequences there is an axis for them before.
        """
        check_whole_number("steps", steps)
        if not isinstance(level, (int, float)) or not 0 < level < 1:
            raise BadInput("level", repr(level), "a probability between 0 and 1")
        mean, covariance = self._ask(rows.forecast, X, lengths, int(steps))[0]
        one = lengths is None and not rows.is_list(X)
        mean, covariance = (mean[0], covariance[0]) if one else (mean, covariance)
        reach = norm.ppf(0.5 + level / 2) * np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        return rows.Bands(mean, mean - reach, mean + reach, covariance)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """One sequence of `n_samples` steps drawn from the model: (X, states), as hmmlearn has it."""
        check_whole_number("n_samples", n_samples)
        energy = self._model()
        with self._precision():
            z, x = rows.simulated(energy, bucket(int(n_samples)), self._key(2))
            return np.asarray(x)[:n_samples], np.asarray(z)[:n_samples]

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and name[:-1] in PARAMETERS and "energy_" in vars(self):
            return np.asarray(getattr(self.energy_, name[:-1]))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- the door --------------------------------------------------------------------------------------------

    def _given(self) -> dict[str, np.ndarray]:
        return {p: np.asarray(getattr(self, p)) for p in PARAMETERS if getattr(self, p) is not None}

    def _n_states(self) -> int:
        if self.emission is not None and np.ndim(self.emission) == 2:
            return int(np.shape(self.emission)[1])
        self._check_counts("n_states")
        return int(self.n_states)

    def _learned(self, n_sequences: int) -> tuple[str, ...]:
        """The names of the parameters that `fit` moves."""
        given = self._given()
        if self.params is None:
            free = [p for p in PARAMETERS if p not in given]
            if n_sequences == 1:
                free = [p for p in free if p != "initial_covariance"]
            return tuple(p for p in free if not p.endswith("offset") or p.removesuffix("_offset") in free)
        names = PARAMETERS if isinstance(self.params, str) and self.params == "all" else self.params
        names = (names,) if isinstance(names, str) else tuple(names)
        unknown = [p for p in names if p not in PARAMETERS]
        if unknown:
            raise BadInput("params", f"{unknown}", f"'all', or some of {', '.join(PARAMETERS)}")
        return names

    def _build(self, parameters: dict[str, Any]) -> LinearGaussianSSM:
        cast: dict[str, Any] = {
            k: np.asarray(v, self.dtype_) if np.asarray(v).dtype.kind in "biuf" else v
            for k, v in parameters.items()
        }
        energy = LinearGaussianSSM(**cast, diagonal=self.diagonal)
        d = getattr(self, "n_features_in_", None)
        if d is not None and energy.emission.shape[0] != d:
            raise BadInput("emission", f"{energy.emission.shape[0]} rows", f"{d}: one for each column of X")
        return energy

    def _model(self) -> LinearGaussianSSM:
        """What was fitted; or, without `fit`, what was given, if that is enough."""
        if hasattr(self, "energy_"):
            return self.energy_
        given = self._given()
        lacking = [p for p in PARAMETERS[:4] if p not in given]
        if lacking:
            name = type(self).__name__
            raise NotFitted(
                f"This {name} is not fitted yet: call {name}.fit(X) first, or give {', '.join(lacking)}."
            )
        self.dtype_ = np.dtype(np.float64)
        with self._precision():
            return self._build(given)

    def _rng(self) -> np.random.Generator:
        return numpy_generator(self._key(1))

    def _sequences(self, X: Any, lengths: Any, *, reset: bool) -> list[np.ndarray]:
        """X as a list of (steps, d) tables, or a `BadInput`."""
        X, lengths = rows.joined(X, lengths)
        return rows.split(self._check_X(X, reset=reset), lengths)

    def _padded(self, sequences: list[np.ndarray]) -> Masked:
        """(n, steps, d), as many steps as share a compiled program; what is past an end is not observed."""
        return rows.padded(sequences, bucket(max(map(len, sequences))))

    def _ask(self, question: Any, X: Any, lengths: Any, *options: Any) -> tuple[Any, list[int]]:
        """The answers for every sequence, padded, and how long each is."""
        energy = self._model()
        fresh = not hasattr(self, "energy_")
        sequences = self._sequences(X, lengths, reset=fresh)
        if fresh:
            self.dtype_ = np.dtype(np.float64)
            if sequences[0].shape[1] != energy.emission.shape[0]:
                found = f"{sequences[0].shape[1]} columns"
                raise BadInput("X", found, f"{energy.emission.shape[0]}: one for each row of emission")
        sizes = [len(s) for s in sequences]
        with self._precision():
            x = jax.tree.map(jnp.asarray, self._padded(sequences))
            return jax.tree.map(np.asarray, question(energy, x, jnp.asarray(sizes), *options)), sizes

    def _stacked(self, question: Any, X: Any, lengths: Any) -> tuple[np.ndarray, np.ndarray]:
        answers, sizes = self._ask(question, X, lengths)
        first, second = (np.concatenate([r[:n] for r, n in zip(a, sizes, strict=True)]) for a in answers)
        return first, second
