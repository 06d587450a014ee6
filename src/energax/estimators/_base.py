"""What every recipe shares: the door, the precision, the key, the one call of `fit`, saving."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np
import optax
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError as _SklearnNotFitted
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import errors
from .._util.keys import as_key
from ..energy import Energy
from ..errors import BadInput, Diverged, check_number, check_whole_number
from ..estimate import Estimate
from ..fitting import Fit, Learner
from ..fitting import fit as run_fit
from ..learn import Descent, Objective
from ..missing import Masked
from ._common.table import bucket as bucket
from ._common.table import bucketed as bucketed
from ._common.table import drop_zero_weight, n_rows
from ._common.table import padded as padded
from ._common.table import with_mask as with_mask
from ._common.validation import ConvergenceWarning as ConvergenceWarning
from ._common.validation import NotFitted as NotFitted
from ._common.validation import rollback_on_error
from ._common.validation import translate_sklearn_errors as translate_sklearn_errors

_PLAIN = tuple(map(np.dtype, (np.float32, np.float64, np.int32, np.int64)))


class EnergyEstimator(BaseEstimator):
    """energy + default learner + default inference, with scikit-learn's manners.

    A subclass has an `__init__` that only stores its arguments, and a `fit` of four lines:
    check the input (`_check_X`), enter the precision (`_precision`), build the energy and the
    learner, and hand them to `_learn`. It holds no mathematics.
    """

    #: Whether missing values (NaN, masked arrays) are welcome in X.
    _allow_nan: ClassVar[bool] = False
    #: Whether scipy.sparse input is taken (it is made dense: energies are dense in their rows).
    _sparse: ClassVar[bool] = False

    fit_: Fit
    energy_: Any
    dtype_: np.dtype

    def __init_subclass__(cls, **options: Any) -> None:
        for name in ("fit", "partial_fit"):
            if name in vars(cls):
                setattr(cls, name, rollback_on_error(vars(cls)[name]))
        super().__init_subclass__(**options)

    @property
    def _dtype(self) -> Any:
        """The dtype to compute in: `dtype=` where a recipe has it, else None for that of the input."""
        dtype = getattr(self, "dtype", None)
        if dtype is None:
            return None
        if str(dtype) not in ("float32", "float64"):
            raise BadInput("dtype", repr(dtype), "'float32' or 'float64'")
        return np.dtype(str(dtype))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._allow_nan
        tags.input_tags.sparse = self._sparse
        return tags

    # -- the door ------------------------------------------------------------------------

    def _check_X(
        self, X: Any, *, reset: bool, y: Any = None, min_rows: int = 1, allow_nan: bool | None = None
    ) -> Any:
        """X (or X, y) as a dense, finite array of the dtype to compute in, or a `BadInput`."""
        allow_nan = self._allow_nan if allow_nan is None else allow_nan
        if not reset and y is None and self._can_skip_validation(X, min_rows):
            return np.ascontiguousarray(X, self._table_dtype(X))
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(np.float64 if X.dtype.kind != "f" else X.dtype), np.nan)
        if isinstance(X, Masked):
            X = X.to_nan()
        options = {
            "reset": reset,
            "dtype": [np.float64, np.float32],
            "ensure_all_finite": "allow-nan" if allow_nan else True,
            "accept_sparse": ["csr", "csc", "coo"] if self._sparse else False,
            "ensure_min_samples": min_rows,
        }
        expected = "a table of finite numbers, one row an example" + (
            " (NaN where a value is missing)" if allow_nan else ""
        )
        with translate_sklearn_errors("X" if y is None else "X, y", expected):
            if y is None:
                X = validate_data(self, X, **options)
            else:
                X, y = validate_data(self, X, y, **options, multi_output=False)
        if scipy.sparse.issparse(X):
            X = X.toarray()
        if reset:
            self.dtype_ = np.dtype(self._dtype or X.dtype)
        X = self._in_range(np.ascontiguousarray(X))
        return X if y is None else (X, y)

    def _can_skip_validation(self, X: Any, min_rows: int) -> bool:
        """Whether X needs no look by scikit-learn, which takes longer than many a small question does."""
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype not in _PLAIN:
            return False
        shape_known = X.shape[1] == getattr(self, "n_features_in_", 0) and X.shape[0] >= max(1, min_rows)
        if not shape_known or hasattr(self, "feature_names_in_"):
            return False
        limit = self._largest(self._table_dtype(X))
        return bool(-limit <= X.min() and X.max() <= limit)  # False of NaN

    def _table_dtype(self, X: np.ndarray) -> np.dtype:
        """The dtype of a table that has passed the door: that of the model."""
        return self.dtype_

    @staticmethod
    def _largest(dtype: np.dtype) -> float:
        """The magnitude up to which squares, and sums of many, are numbers in this dtype."""
        return float(np.sqrt(np.finfo(dtype).max)) / 1e3

    def _in_range(self, X: np.ndarray) -> np.ndarray:
        """X in the dtype of the model's tables, if its squares are numbers there."""
        dtype = self._table_dtype(X)
        limit = self._largest(dtype)
        # Not the maximum of |X|, which would be a second table.
        high, low = np.fmax.reduce(X, None, initial=0.0), np.fmin.reduce(X, None, initial=0.0)
        largest = max(float(high), -float(low))
        if 0 < largest < 1 / limit:
            raise BadInput(
                "X",
                f"no value larger than {largest:.3g}",
                f"magnitudes above {1 / limit:.1g}, whose squares {dtype} can hold",
                "Scale the columns first (StandardScaler).",
            )
        if largest > limit:
            raise BadInput(
                "X",
                f"values as large as {largest:.3g}",
                f"magnitudes below {limit:.1g}, whose squares {dtype} can hold",
                "Scale the columns first (StandardScaler)"
                + (", or give float64." if dtype == np.float32 and not self._dtype else "."),
            )
        return X.astype(dtype, copy=False)

    def _check_weight(self, sample_weight: Any, X: np.ndarray) -> np.ndarray | None:
        if sample_weight is None:
            return None
        dtype = getattr(self, "dtype_", X.dtype)  # words have none
        with translate_sklearn_errors("sample_weight", "one finite number >= 0 for each row, not all 0"):
            weight = _check_sample_weight(sample_weight, X, dtype=dtype, ensure_non_negative=True)
        if not weight.any():
            raise BadInput("sample_weight", "only zeros", "at least one weight > 0")
        return weight

    def _counted(self, X: np.ndarray, sample_weight: Any) -> tuple[Any, Any]:
        """(X, weight) of the rows that count."""
        X, weight = drop_zero_weight(X, weight=self._check_weight(sample_weight, X))
        return X, weight

    def _check_counts(self, *names: str) -> None:
        for name in names:
            check_whole_number(name, getattr(self, name))

    def _adam(self, name: str = "learning_rate") -> optax.GradientTransformation:
        """Adam at the step size of this name."""
        rate = getattr(self, name)
        check_number(name, rate, lambda rate: 0 <= rate < np.inf, remedy="Try 0.001.")
        return optax.adam(float(rate))

    def _check_fitted(self) -> None:
        try:
            check_is_fitted(self, "energy_")
        except _SklearnNotFitted:
            name = type(self).__name__
            raise NotFitted(f"This {name} is not fitted yet: call {name}.fit(X) first.") from None

    # -- precision and randomness ----------------------------------------------------------

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        """The scope to compute in: 64 bits if the table that the model was fitted to had them.

        Only deep models leave products of matrices to an accelerator's coarser arithmetic.
        """
        exact = contextlib.nullcontext() if self._dtype else jax.default_matmul_precision("highest")
        with jax.enable_x64(self.dtype_ == np.float64), exact:
            yield

    def _key(self, *path: int) -> jax.Array:
        """A key from `random_state`; an int gives the same one every time."""
        state, generator = self.random_state, self._generator()
        whole = isinstance(state, (int, np.integer))
        key = as_key(int(state) if whole else generator.randint(2**31 - 1))
        for number in path:
            key = jax.random.fold_in(key, number)
        return key

    def _generator(self) -> np.random.RandomState:
        with translate_sklearn_errors("random_state", "None, an int >= 0 or a RandomState"):
            return check_random_state(self.random_state)

    # -- learning --------------------------------------------------------------------------

    def _learn(
        self,
        energy: Energy,
        data: dict[str, Any],
        learner: Learner,
        *,
        weights: np.ndarray | None = None,
        tolerance: bool = False,
        **options: Any,
    ) -> Fit:
        """The one call of `fit`: few rows are padded, so that all small tables share compiled code.

        `tolerance` says that the fit was meant to end by converging, and warns when it did not.
        """
        n, size = n_rows(data), options.pop("batch_size", None)
        # Minibatches are padded to whole batches only: more would make them unequal.
        size = None if size is None or n <= size else size
        n_padded = bucket(n) if size is None else n + -n % size
        weights = np.ones(n, self.dtype_) if weights is None else weights
        if n_padded > n:  # else nothing of the size of the table is copied
            data, weights = padded(data, n_padded), np.append(weights, np.zeros(n_padded - n, weights.dtype))
        options.setdefault("key", self._key())
        options.setdefault("progress", bool(getattr(self, "verbose", False)))
        result = run_fit(energy, data, learner, weights=weights, batch_size=size, **options)
        if result.status == "diverged":
            raise Diverged(
                f"{type(self).__name__} {result.message}. Scale the columns of X, or lower the learning rate."
            )
        self.fit_, self.energy_, self.history_ = result, result.energy, result.history
        self.n_iter_, self.converged_ = result.n_epochs, result.converged
        if tolerance and getattr(learner, "tol", None) is not None and result.status == "budget spent":
            warnings.warn(
                f"{type(self).__name__} did not converge: {result.message}. Raise max_iter (now "
                f"{getattr(self, 'max_iter', result.n_epochs)}) or tol, or scale the columns of X.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return result

    def _chosen_learner(self, objective: Any, optimizer: Any) -> Learner:
        """`learner=`, a bare objective wrapped in descent; or the default, which is made when needed."""
        chosen = self.learner
        if chosen is None:
            return Descent(objective(), optimizer(), **self._descent_options())
        if isinstance(chosen, Objective):
            return Descent(chosen, optimizer(), **self._descent_options())
        if not isinstance(chosen, Learner):
            raise BadInput(
                "learner",
                type(chosen).__name__,
                "an energax learner or objective",
                "Try energax.learn.Descent(objective, optimizer).",
            )
        return chosen

    def _descent_options(self) -> dict[str, Any]:
        return {}

    def _learn_more(self, energy: Energy, data: dict[str, Any], learner: Learner, **options: Any) -> Fit:
        """One pass of `partial_fit`. Passes are counted, so that each has its own noise and order of rows."""
        seen = getattr(self, "n_batches_seen_", 0)
        key, size = self._key(7, seen), self._batch_rows()
        result = self._learn(energy, data, learner, epochs=1, batch_size=size, key=key, **options)
        self.n_batches_seen_ = seen + 1
        return result

    def _batch_rows(self) -> Any:
        """`batch_size` as a number of rows, or None."""
        return self.batch_size

    def _continue(self, learner: Learner) -> Learner:
        """For `partial_fit`: the learner with the state of the fit before, if there was one."""
        before = getattr(self, "fit_", None)
        return learner if before is None or before.state is None else ResumedLearner(learner, before.state)

    # -- saving ----------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> None:
        """Write this estimator, fitted or not, as data (safetensors + JSON), atomically."""
        from ..saving import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike, classes: Any = ()) -> Self:
        """What `save` wrote. Runs no code from the file; refuses what it does not know."""
        from ..saving import load

        others = tuple(classes) if isinstance(classes, tuple | list) else (classes,)
        loaded = load(path, classes=(cls, *others))
        if not isinstance(loaded, cls):
            raise errors.BadFile(
                f"{path}: holds {type(loaded).__name__}, not {cls.__name__}. Use energax.load(path)."
            )
        return loaded

    def __getstate__(self):
        from ..saving import picklable

        return picklable(super().__getstate__())

    def __setstate__(self, state):
        from ..saving import unpickled

        super().__setstate__(unpickled(state))


class Density(EnergyEstimator):
    """A recipe whose energy says how probable a row is."""

    def _given(self, X: np.ndarray) -> dict[str, Any]:
        """The variables of the energy that X fills."""
        return {"x": with_mask(X)}

    def _method(self) -> Any:
        """How log p(x) is found where the planner should not choose."""
        return None

    def log_prob(self, X: Any) -> Estimate:
        """log p(x) of every row in nats, with its standard error and its kind."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        from ..infer import log_prob

        with self._precision():
            return log_prob(self.energy_, self._given(X), method=self._method(), key=self._key(1))

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of every row; `log_prob` says how sure that is."""
        return self.log_prob(X).value

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of log p(x) over the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Rows drawn from the model."""
        from ..infer import sample

        n = bucket(self._check_n_samples(n_samples))
        with self._precision():
            drawn = sample(self.energy_, n, method=self._sampler(n), key=self._key(2))
            return np.asarray(drawn["x"])[:n_samples].astype(self.dtype_)

    def _check_n_samples(self, n_samples: Any) -> int:
        self._check_fitted()
        check_whole_number("n_samples", n_samples)
        return int(n_samples)

    def _sampler(self, n: int) -> Any:
        """How `n` rows are drawn where the planner should not choose."""
        return None


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """For recipes with a `transform` to `n_components` columns in the dtype they compute in."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        fixed = self._dtype
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if fixed is None else [fixed.name]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.n_components


class ResumedLearner(Learner):
    """A learner that begins in a state it was in before: moments, chains and running sums kept."""

    learner: Learner
    state: Any

    def check(self, energy, data):
        self.learner.check(energy, data)

    def init(self, energy, batch, key, trainable):
        fresh = eqx.filter_eval_shape(self.learner.init, energy, batch, key, trainable)
        if jax.tree.structure(fresh) != jax.tree.structure(self.state):
            raise BadInput(
                "learner",
                f"{type(self.learner).__name__} with settings that the passes before had not",
                "the learner that began, to go on",
                "Call fit to begin anew.",
            )
        return self.state

    def step(self, energy, state, batch, key, trainable):
        return self.learner.step(energy, state, batch, key, trainable)

    def evaluate(self, energy, state, batch, key):
        return self.learner.evaluate(energy, state, batch, key)

    def partner(self, state):
        return self.learner.partner(state)

    def converged(self, before, after, old, new):
        return self.learner.converged(before, after, old, new)
