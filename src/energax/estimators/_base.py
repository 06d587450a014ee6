"""`EnergyEstimator`, the base of all estimators: precision, random state and learning; density models."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
import optax
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state

from .._util.keys import as_key, fold_in
from .._util.sizes import number_of_rows, pad_size, pad_weighted
from ..energy import Energy
from ..errors import Diverged
from ..estimate import Estimate
from ..fitting import Fit, Learner, ValidatedRows
from ..fitting import fit as run_fit
from ..infer import log_prob, sample
from ..learn import Descent, Objective
from ._common.frames import returns_frames
from ._common.resume import ResumedLearner
from ._common.saving import SaveLoadMixin
from ._common.sklearn_errors import ConvergenceWarning as ConvergenceWarning
from ._common.sklearn_errors import NotFitted as NotFitted
from ._common.sklearn_errors import reword_warnings, warn_user
from ._common.sklearn_errors import translate_sklearn_errors as translate_sklearn_errors
from ._common.table import mask_missing
from ._common.validation import InputValidation


def check_and_rollback(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate `fit` or `partial_fit`: check all settings first; an error restores the attributes."""

    @functools.wraps(method)
    def learn(self: Any, *arguments: Any, **keywords: Any) -> Any:
        self._check_settings()
        before = dict(vars(self))
        try:
            return method(self, *arguments, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return learn


class EnergyEstimator(SaveLoadMixin, InputValidation):
    """The base of all estimators: a model, a default learner and a default inference.

    A subclass has an `__init__` that only stores its arguments, a table of their valid values (`_settings`),
    which is checked before `fit` and `partial_fit`, and a `fit` that validates the input (`_check_X`), enters
    the precision (`_precision`), builds the energy and the learner, and passes them to `_learn`. The
    mathematics is in `energies`, `learn` and `infer`.
    """

    fit_: Fit
    energy_: Any

    def __init_subclass__(cls, **options: Any) -> None:
        for name in ("fit", "partial_fit"):
            if name in vars(cls):
                setattr(cls, name, check_and_rollback(vars(cls)[name]))
        if "impute" in vars(cls):
            setattr(cls, "impute", returns_frames(vars(cls)["impute"]))  # noqa: B010
        super().__init_subclass__(**options)

    def __sklearn_clone__(self) -> Any:
        """Return a clone that shares immutable modules, such as a prior.

        Copies of compiled functions have no name, so that a clone with them could not be saved.
        """
        new = super().__sklearn_clone__()
        for name, value in self.get_params(deep=False).items():
            if isinstance(value, eqx.Module):
                setattr(new, name, value)
        return new

    # -- precision and randomness ----------------------------------------------------------

    @contextlib.contextmanager
    def _precision(self) -> Iterator[None]:
        """The context to compute in: 64 bits if the model was fitted to a float64 table.

        Only estimators with a `dtype` argument leave matrix products to the lower default precision of an
        accelerator.
        """
        exact = contextlib.nullcontext() if self._dtype else jax.default_matmul_precision("highest")
        with jax.enable_x64(self.dtype_ == np.float64), exact:
            yield

    def _key(self, *path: int) -> jax.Array:
        """Return a key made from `random_state` and a path of numbers; an int always gives the same one."""
        key = as_key(self._seed())
        for number in path:
            key = fold_in(key, np.uint32(number))
        return key

    def _seed(self) -> int:
        """Return `random_state` if it is an int, else a number that it draws."""
        state = self.random_state
        if isinstance(state, int | np.integer) and 0 <= state < 2**32:
            return int(state)  # without a generator, which takes as long as drawing a few rows
        return self._generator().randint(2**31 - 1)

    def _generator(self) -> np.random.RandomState:
        """Return `random_state` as a NumPy generator."""
        with translate_sklearn_errors("random_state", "None, an int >= 0 or a RandomState"):
            return check_random_state(self.random_state)

    # -- learning --------------------------------------------------------------------------

    def _learn(
        self,
        energy: Any,
        data: dict[str, Any],
        learner: Learner,
        *,
        weights: np.ndarray | None = None,
        tolerance: bool = False,
        pad: bool = True,
        validated: bool = False,
        components: int | None = None,
        before: float | None = None,
        **options: Any,
    ) -> Fit:
        """Run `fit` and set the fitted attributes; raise if it diverged, warn if it did not converge.

        Args:
            energy: the model to start from.
            data: arrays by variable name, one example per row.
            learner: the learner.
            weights: one weight per row; None for ones.
            tolerance: whether to warn if the fit ends before it has converged.
            pad: whether to pad few rows with rows of weight 0, so that small tables share compiled code.
            validated: whether the data have been validated, so that `fit` need not check them.
            components: the number of components to pad those of the energy to, or None.
            before: the last objective of the fit that a warm start continues; a first epoch that changes it
                by no more than the tolerance has converged, as in scikit-learn.
            options: further arguments of `fit`.
        """
        n, size = number_of_rows(data), options.pop("batch_size", None)
        # Minibatches are padded to whole batches only: more would make them unequal.
        size = None if size is None or n <= size else size
        n_padded = n + -n % size if size is not None else pad_size(n) if pad else n
        weights = np.ones(n, self.dtype_) if weights is None else weights
        if n_padded > n:  # else nothing of the size of the table is copied
            data, weights = pad_weighted(data, weights, n_padded)
        options.setdefault("key", self._key())
        options.setdefault("progress", bool(getattr(self, "verbose", False)))
        rows = {"data": ValidatedRows(data, weights)} if validated else {"data": data, "weights": weights}
        padded = energy if components is None else energy.pad(components)
        result = run_fit(padded, learner=learner, batch_size=size, **rows, **options)
        if components is not None:
            result = dataclasses.replace(result, energy=result.energy.crop(energy.n_components))
        if before is not None:
            result = _compare_with_previous(result, learner, before)
        name = type(self).__name__
        if result.status == "diverged":
            raise Diverged(f"{name} {result.message}. {self._divergence_hint(result)}")
        self.fit_, self.history_ = result, result.history
        self.n_iter_, self.converged_ = result.n_epochs, result.converged
        self._set_energy(result.energy)
        if tolerance and getattr(learner, "tol", None) is not None and result.status == "reached max_iter":
            message = f"{name} did not converge: {result.message}. {self._convergence_hint(result)}"
            warn_user(message)
        return result

    def _set_energy(self, energy: Any) -> None:
        """Set the fitted model: `energy_`, or other attributes that describe it."""
        self.energy_ = energy

    def _divergence_hint(self, result: Fit) -> str:
        """The advice in the error of a fit that diverged."""
        return "Scale the columns of X, or lower the learning rate."

    def _convergence_hint(self, result: Fit) -> str:
        """The advice in the warning of a fit that did not converge."""
        max_iter = getattr(self, "max_iter", result.n_epochs)
        return f"Raise max_iter (now {max_iter}) or tol, or scale the columns of X."

    def _make_learner(self, objective: Any, optimizer: Any) -> Learner:
        """Return the argument `learner`, an objective wrapped in `Descent`; by default `Descent` as given.

        Args:
            objective: a function that makes the default objective.
            optimizer: a function that makes the default optimizer.
        """
        learner = self.learner
        if learner is None:
            return Descent(objective(), optimizer(), **self._descent_options())
        if isinstance(learner, Objective):
            return Descent(learner, optimizer(), **self._descent_options())
        return learner

    def _descent_options(self) -> dict[str, Any]:
        """Options of the default `Descent`."""
        return {}

    def _adam(self, name: str = "learning_rate") -> optax.GradientTransformation:
        """Return Adam with the step size that is the argument of this name."""
        return optax.adam(float(getattr(self, name)))

    def _learn_more(self, energy: Energy, data: dict[str, Any], learner: Learner, **options: Any) -> Fit:
        """Run one epoch for `partial_fit`; every call has its own noise and order of rows."""
        seen = getattr(self, "n_batches_seen_", 0)
        key, size = self._key(7, seen), self._batch_rows()
        options |= {"epochs": 1, "batch_size": size, "key": key, "validated": True}
        result = self._learn(energy, data, learner, **options)
        self.n_batches_seen_ = seen + 1
        return result

    def _batch_rows(self) -> Any:
        """`batch_size` as a number of rows, or None."""
        return self.batch_size

    def _continue(self, learner: Learner) -> Learner:
        """Return the learner with the state of the previous fit, if there is one."""
        before = getattr(self, "fit_", None)
        return learner if before is None or before.state is None else ResumedLearner(learner, before.state)


def _compare_with_previous(result: Fit, learner: Learner, before: float) -> Fit:
    """Return a fit of one epoch as converged if its objective is that of the previous fit."""
    if result.status != "reached max_iter" or result.n_epochs != 1:
        return result  # with more epochs it has compared them itself
    change = abs(before - float(result.history["objective"][0]))
    if not change <= float(getattr(learner, "tol", None) or 0.0):
        return result
    return dataclasses.replace(result, status="converged", message="converged after 1 epoch of a warm start")


class Density(EnergyEstimator):
    """An estimator of the density of rows: `score_samples`, `log_prob`, `sample`."""

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        """Return a validated table as values of the model's variables, by name."""
        return {"x": mask_missing(X)}

    def _log_prob_method(self) -> Any:
        """The inference method of `log_prob`; None for the default."""
        return None

    def _sample_method(self, n: int) -> Any:
        """The inference method that draws n rows; None for the default."""
        return None

    def _draws_hint(self) -> str:
        """The advice in the warning of an estimate from too few draws."""
        return "Take its standard error as a lower bound."

    def log_prob(self, X: Any) -> Estimate:
        """Return log p(x) of every row in nats, with its standard error and its kind."""
        return self._log_prob(self._check_new_X(X))

    def _log_prob(self, X: np.ndarray) -> Estimate:
        """Return log p(x) of the rows of a validated table."""
        with self._precision(), reword_warnings(self._draws_hint()):
            return log_prob(self.energy_, self._to_data(X), method=self._log_prob_method(), key=self._key(1))

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of every row; `log_prob` also gives standard errors."""
        return self.log_prob(X).value

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of log p(x) over the rows."""
        return float(np.mean(self.score_samples(X)))

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows from the model."""
        n = pad_size(self._check_n_samples(n_samples))
        with self._precision(), reword_warnings():
            draws = sample(self.energy_, n, method=self._sample_method(n), key=self._key(2))
            return np.asarray(draws["x"])[:n_samples].astype(self.dtype_)


class Transformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """A mixin for estimators whose `transform` returns `n_components` columns."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        fixed = self._dtype
        tags.transformer_tags.preserves_dtype = ["float64", "float32"] if fixed is None else [fixed.name]
        return tags

    @property
    def _n_features_out(self) -> int:
        return self.energy_.spaces["z"].size
