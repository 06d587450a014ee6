"""`MixtureEstimator`: the part that Gaussian and Bernoulli mixtures share."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import numpy as np
import optax

from ..._util import sizes
from ..._util.arrays import asarray
from ...errors import BadInput
from ...infer import sample
from ...infer._exact import components
from ...learn import EM, Descent, Objective
from ...missing import any_nan, is_masked
from .._base import Density
from .._common.settings import ARRAY, COMMON, FLAG, NONE, NOT_NEGATIVE, WHOLE, Setting
from .._common.table import check_no_empty_column
from .padding import padded_components, padded_energy

_DECAY = 0.7  # the exponent with which partial_fit replaces old statistics
_FEW_DRAWS = 4096
_FEWEST_ROWS = 256  # of a chunk


class MixtureEstimator(Density):
    """A mixture model, fitted by EM.

    A subclass builds the model in `_start` and counts its free parameters in `_n_parameters`.
    """

    _allow_nan = True
    _settings: ClassVar[dict[str, Setting]] = {
        **COMMON,
        "n_components": WHOLE,
        "tol": NOT_NEGATIVE,
        "max_iter": WHOLE,
        "n_init": WHOLE,
        "weights_init": ARRAY | NONE,
        "warm_start": FLAG,
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the mixture by EM from `n_init` starts; the best fit is kept.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X, data, weight = self._validate_input(X, sample_weight, reset=True)
        self.n_batches_seen_ = 0
        warm = self.warm_start and hasattr(self, "fit_")
        before = float(self.fit_.history["objective"][-1]) if warm else None
        with self._precision():
            start, initialise, n_init = self._start(X, data, weight)
            self._learn(
                start,
                data,
                self._em(data, keep_statistics=True),
                weights=weight,
                validated=True,
                epochs=self.max_iter,
                n_init=n_init,
                initialise=initialise,
                tolerance=True,
                components=padded_components(self.n_components, data, self.learner),
                before=before,
            )
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one step of minibatch EM, continuing from earlier calls of `partial_fit` or `fit`.

        Each call counts by its number of rows, and old rows are forgotten slowly.

        Cappé and Moulines (2009), On-line expectation-maximization for latent data models.
        """
        first = not hasattr(self, "energy_")
        X, data, weight = self._validate_input(X, sample_weight, reset=first)
        with self._precision():
            start, initialise, _ = self._start(X, data, weight) if first else (self.energy_, False, 1)
            learner = self._em(data, decay=_DECAY)
            if not first:
                learner = self._continue(learner)
            before = None if first else getattr(self, "fit_", None)
            components = padded_components(self.n_components, data, self.learner, before)
            options = {"weights": weight, "validated": True, "epochs": 1, "components": components}
            self._learn(start, data, learner, initialise=initialise, **options)
        self.n_batches_seen_ = getattr(self, "n_batches_seen_", 0) + 1
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Fit the mixture and return the most probable component of every row."""
        return self.fit(X, y, sample_weight).predict(X)

    # -- before learning -------------------------------------------------------------------

    def _start(self, X: np.ndarray, data: Any, weight: Any) -> tuple[Any, bool, int]:
        """Return the initial model, whether to initialise it from data, and the number of starts."""
        raise NotImplementedError

    def _validate_input(self, X: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Any, Any]:
        """Return X, the data of the model and the weights."""
        X = self._check_X(X, reset=reset)
        X, weight = self._drop_zero_weight(X, sample_weight)
        if reset and len(X) < self.n_components:
            raise BadInput(
                "X",
                f"n_samples={len(X)}",
                f"n_samples >= n_components = {self.n_components}",
                "Use fewer components.",
            )
        data = self._to_data(X)
        check_no_empty_column(data["x"])
        return X, data, weight

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        k = min(int(self.n_components), n)
        return {"n_init": (int(self.n_init) * k * d, "the components of all starts")}

    def _previous_model(self, d: int, **unchanged: bool) -> Any:
        """Return the model of the previous fit, for a warm start, in the dtype of this one.

        Args:
            d: the number of columns of X.
            unchanged: whether the arguments of these names are those of the previous fit.
        """
        same = {"n_components": self.energy_.n_components == self.n_components, **unchanged}
        for name, is_same in same.items():
            if not is_same:
                found = f"{getattr(self, name)!r}, which differs from the previous fit"
                raise BadInput(name, found, "the same value in a warm start", "Set warm_start=False.")
        columns = self.energy_.spaces["x"].size
        if columns != d:
            expected = f"{columns}, as in the previous fit"
            raise BadInput("X", f"{d} columns", expected, "Set warm_start=False.")
        cast = lambda leaf: leaf.astype(self.dtype_) if eqx.is_inexact_array(leaf) else leaf
        return jax.tree.map(cast, self.energy_)

    def _em(self, data: Any, **options: Any) -> Any:
        """Return EM, or the argument `learner`."""
        if self.learner is None:
            if not is_masked(data["x"]):
                n, d = data["x"].shape
                row, k = d * self.dtype_.itemsize, sizes.power_of_two(self.n_components)
                most = min(sizes.ONE_CENTRE_BYTES.rows(row), sizes.ALL_CENTRES_BYTES.rows(row * k))
                # At most all rows, so that models of a small table share a program.
                options["chunk"] = max(_FEWEST_ROWS, min(most, sizes.power_of_two(n)))
            # An array, so that another tolerance needs no compilation.
            return EM(tol=asarray(self.tol, self.dtype_), **options)
        if isinstance(self.learner, Objective):
            return Descent(self.learner, optax.adam(1e-2))
        return self._make_learner(None, None)

    def _initial_weights(self, k: int) -> Any:
        if self.weights_init is None:
            return asarray(np.full(k, 1 / k, self.dtype_))
        weights = np.asarray(self.weights_init, self.dtype_)
        valid = weights.shape == (k,) and np.isfinite(weights).all() and (weights >= 0).all()
        if not valid or abs(weights.sum() - 1) > 1e-4:
            raise BadInput(
                "weights_init",
                f"{np.array2string(weights, threshold=5)}",
                f"{k} numbers >= 0 that sum to 1",
                "Divide them by their sum.",
            )
        return asarray(weights)

    # -- components and densities of rows ----------------------------------------------------

    def _query(self, function: Any, X: np.ndarray) -> Any:
        """Return `function(model, data)` of a validated table, with a column for every padded component."""
        with self._precision():
            return function(padded_energy(self, X), self._to_data(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable component of every row, (n_samples,)."""
        return self._query(components.log_joint, self._check_new_X(X)).argmax(1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every component for every row, (n_samples, n_components)."""
        return self._query(components.responsibilities, self._check_new_X(X))[:, : self.energy_.n_components]

    def score_samples(self, X: Any) -> np.ndarray:
        """Return log p(x) of every row, over its observed values."""
        return self._query(components.log_evidence, self._check_new_X(X))

    def impute(self, X: Any) -> np.ndarray:
        """Return X with each missing value replaced by its mean given the observed values of its row."""
        X = self._check_new_X(X)
        return np.where(np.isnan(X), self._query(components.impute, X)["x"], X) if any_nan(X) else X.copy()

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the model; return them and their components, sorted by component."""
        n = self._check_n_samples(n_samples)
        with self._precision():
            if n <= _FEW_DRAWS:  # one program
                draws = components.draw(self.energy_, sizes.pad_size(n), self._seed(), 2)
            else:
                draws = sample(self.energy_, n, key=self._key(2))
            rows, component = np.asarray(draws["x"])[:n], np.asarray(draws["z"])[:n]
        order = np.argsort(component, kind="stable")
        return rows[order], component[order]

    # -- model selection ---------------------------------------------------------------------

    def _n_parameters(self) -> int:
        """The number of free parameters."""
        raise NotImplementedError

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on X (lower is better)."""
        scores = self.score_samples(X)
        return -2 * float(scores.sum()) + self._n_parameters() * np.log(len(scores))

    def aic(self, X: Any) -> float:
        """Return the Akaike information criterion on X (lower is better)."""
        return -2 * float(self.score_samples(X).sum()) + 2 * self._n_parameters()

    # -- attributes with scikit-learn's names --------------------------------------------------

    @property
    def weights_(self) -> np.ndarray:
        """The probabilities of the components, (n_components,)."""
        self._check_fitted()
        return np.asarray(self.energy_.weights)

    @property
    def lower_bounds_(self) -> list[float]:
        """The mean log-likelihood before every EM iteration."""
        self._check_fitted()
        return [-float(v) for v in self.history_["objective"]]

    @property
    def lower_bound_(self) -> float:
        """The last of `lower_bounds_`."""
        return self.lower_bounds_[-1]
