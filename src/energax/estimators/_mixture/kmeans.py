"""`KMeans`: hard and soft k-means."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import _num_samples

from ..._util import sizes
from ..._util.arrays import asarray
from ..._util.blas import limit_blas
from ...energies import Centroids
from ...energies._emissions.centroids import hartigan_wong
from ...errors import BadInput
from ...infer._exact import components
from ...learn import EM
from ...missing import value_of
from .._base import EnergyEstimator
from .._common.settings import (
    ARRAY,
    COMMON,
    FINITE_NOT_NEGATIVE,
    FLAG,
    FUNCTION,
    NOT_NEGATIVE,
    WHOLE,
    one_of,
)
from .._common.sklearn_errors import translate_sklearn_errors, warn_user
from .._common.table import check_no_empty_column, mask_missing
from .padding import padded_components, padded_energy

_STARTS = {"k-means++": "k-means++", "random": "random_from_data"}
_DECAY = 0.7  # the exponent with which partial_fit replaces old statistics
_REPAIRS = 10  # the most times that empty clusters are moved
_MOST_SCORES = 2**24  # rows times clusters, for moves of single rows


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, EnergyEstimator):
    """k-means clustering, hard or soft.

    Minimises Σ_i min_z ‖x_i − c_z‖² over the centres c. Arguments, methods and attributes have the names of
    scikit-learn's `KMeans`. Beyond it, missing values (NaN), `partial_fit`, `impute` and a temperature (soft
    k-means) are supported.

    Args:
        n_clusters: the number of clusters.
        init: "k-means++", "random", an array of centres, or a function of (X, k, random_state=).
        n_init: the number of starts; "auto" is 10 for "random", else 1. Centres given by
            `init` are one start. The best of several fits is then improved by moving single rows (Hartigan
            and Wong, 1979).
        max_iter: the most iterations.
        tol: stop when the summed squared movement of the centres is at most this fraction of the mean
            variance of the columns.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        copy_x: ignored; X is never changed.
        algorithm: "lloyd" or "elkan"; both run Lloyd's algorithm here, which has the same result.
        temperature: above 0, soft k-means with responsibilities ∝ exp(−‖x − c‖² / temperature).
        learner: a learner of energax.learn, instead of hard EM.

    Attributes:
        cluster_centers_: the centres, (n_clusters, n_features).
        labels_: the nearest centre of every row of the training data.
        inertia_: the sum of the squared distances of the rows to their nearest centre.
        converged_, n_iter_: whether the fit converged, and after how many iterations it stopped.
        energy_: the fitted model.
        fit_: details of the fit.

    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> km = KMeans(2, random_state=0).fit(X)
    >>> sorted(km.cluster_centers_.ravel().tolist()), float(km.inertia_)
    ([0.5, 10.5], 1.0)
    """

    _allow_nan = True
    _sparse = True
    _settings = {
        **COMMON,
        "n_clusters": WHOLE,
        "init": one_of(*_STARTS) | ARRAY | FUNCTION,
        "n_init": WHOLE | one_of("auto"),
        "max_iter": WHOLE,
        "tol": NOT_NEGATIVE,
        "copy_x": FLAG,
        "algorithm": one_of("lloyd", "elkan"),
        "temperature": FINITE_NOT_NEGATIVE,
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        verbose: int = 0,
        random_state: Any = None,
        copy_x: bool = True,
        algorithm: str = "lloyd",
        temperature: float = 0.0,
        learner: Any = None,
    ):
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose
        self.random_state = random_state
        self.copy_x = copy_x
        self.algorithm = algorithm
        self.temperature = temperature
        self.learner = learner

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the centres from `n_init` starts; the best fit is kept.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        rows = X
        X, data, weight = self._validate_input(X, sample_weight, reset=True)
        self.n_batches_seen_ = 0
        with self._precision():
            energy, initialise, n_init = self._start(X)
            if self.n_init not in ("auto", n_init):
                warn_user(
                    f"KMeans makes one start, not n_init={self.n_init}, if init gives the centres. "
                    "Leave n_init at 'auto'.",
                    RuntimeWarning,
                )
            options = {"weights": weight, "validated": True, "epochs": self.max_iter, "tolerance": True}
            options["components"] = padded_components(self.n_clusters, data, self.learner)
            learner = self._em(X, keep_statistics=True)
            self._learn(energy, data, learner, n_init=n_init, initialise=initialise, **options)
            for _ in range(_REPAIRS):
                moved = self._move_empty_centers(X, self._set_labels(data, weight))
                if moved is None:
                    break
                self._learn(moved, data, learner, initialise=False, **options)
            else:
                self._set_labels(data, weight)
            if n_init > 1 and self._can_move_rows(X):
                self._move_rows(X, data, weight)
        self._warn_of_empty_clusters()
        if weight is not None and len(X) < _num_samples(rows):
            self.labels_ = self.predict(rows)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Fit the centres and return the nearest one of every row."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Fit the centres and return the distance of every row to every centre."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one step of minibatch k-means, continuing from earlier calls of `partial_fit` or `fit`.

        Each call counts by its number of rows, and old rows are forgotten slowly.
        """
        first = not hasattr(self, "energy_")
        X, data, weight = self._validate_input(X, sample_weight, reset=first)
        with self._precision():
            energy, initialise, _ = self._start(X) if first else (self.energy_, False, 1)
            learner = self._em(X, decay=_DECAY)
            if not first:
                learner = self._continue(learner)
            before = None if first else getattr(self, "fit_", None)
            components = padded_components(self.n_clusters, data, self.learner, before)
            options = {"weights": weight, "validated": True, "epochs": 1, "components": components}
            self._learn(energy, data, learner, initialise=initialise, **options)
            self._set_labels(data, weight)
        self.n_batches_seen_ = getattr(self, "n_batches_seen_", 0) + 1
        return self

    # -- before learning -------------------------------------------------------------------

    def _validate_input(self, X: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Any, Any]:
        """Return X, the data of the model and the weights."""
        X = self._check_X(X, reset=reset)
        X, weight = self._drop_zero_weight(X, sample_weight)
        if reset and len(X) < self.n_clusters:
            raise BadInput(
                "X",
                f"n_samples={len(X)}",
                f"n_samples >= n_clusters = {self.n_clusters}",
                "Use fewer clusters.",
            )
        return X, {"x": check_no_empty_column(mask_missing(X))}, weight

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        starts, k = 1 if isinstance(self.n_init, str) else int(self.n_init), min(int(self.n_clusters), n)
        return {"n_init": (starts * k * d, "the centres of all starts")}

    def _start(self, X: np.ndarray) -> tuple[Centroids, bool, int]:
        """Return the initial model, whether to initialise it from data, and the number of starts."""
        shape, init = (self.n_clusters, X.shape[1]), self.init
        if isinstance(init, str):
            n_init = (10 if init == "random" else 1) if self.n_init == "auto" else self.n_init
            return Centroids(np.zeros(shape, self.dtype_), _STARTS[init]), True, n_init
        if callable(init):
            init = init(X, self.n_clusters, random_state=self._generator())
        with translate_sklearn_errors("init", f"finite numbers of shape {shape}"):
            centers = np.asarray(init, self.dtype_)
        if centers.shape != shape or not np.isfinite(centers).all():
            raise BadInput("init", f"shape {centers.shape}", f"finite numbers of shape {shape}")
        return Centroids(asarray(centers)), False, 1

    def _em(self, X: np.ndarray, **options: Any) -> Any:
        """Return hard or soft EM, or the argument `learner`."""
        if self.learner is not None:
            return self._make_learner(None, None)
        # Centres are not known better than to the rounding error of their coordinates.
        squares = np.einsum("ij,ij->j", X, X) / len(X)
        if has_missing := bool(np.isnan(squares).any()):
            squares = np.nanmean(X**2, 0)
        rounding = float(np.finfo(self.dtype_).eps) ** 2 * self.n_clusters * float(squares.sum())
        variance = (np.nanvar if has_missing else np.var)(X, 0).mean() if self.tol else 0.0
        tol = max(self.tol * float(variance), 64 * rounding)
        temperature = float(self.temperature) if self.temperature else 0.0
        return EM(
            temperature=temperature,
            criterion="parameters",
            chunk=sizes.KMEANS_ROWS.value,
            tol=asarray(tol, self.dtype_),
            **options,
        )

    # -- after learning ----------------------------------------------------------------------

    def _set_labels(self, data: Any, weight: Any) -> np.ndarray:
        """Set `labels_` and `inertia_`; return the squared distance of every row to its nearest centre."""
        energy = padded_energy(self, value_of(data["x"]))
        self.labels_, distances = components.nearest(energy, data)
        self.inertia_ = _total(distances, weight)
        return distances

    def _move_empty_centers(self, X: np.ndarray, distances: np.ndarray) -> Centroids | None:
        """Return the centres, those of empty clusters moved to the farthest rows; None if none can move."""
        empty = np.flatnonzero(np.bincount(self.labels_, minlength=self.n_clusters) == 0)
        if not len(empty) or self.temperature or self.learner is not None:
            return None
        rows = np.argsort(-distances, kind="stable")[: len(empty)]
        if not distances[rows].all():  # fewer different rows than centres
            return None
        centers = self.cluster_centers_.copy()
        centers[empty] = np.where(np.isnan(X[rows]), centers[self.labels_[rows]], X[rows])
        return Centroids(asarray(centers))

    def _warn_of_empty_clusters(self) -> None:
        """Warn of empty clusters; with a temperature, centres may coincide."""
        used = np.count_nonzero(np.bincount(self.labels_))
        if used < self.n_clusters and not self.temperature:
            warn_user(
                f"KMeans converged to {used} distinct clusters, fewer than n_clusters={self.n_clusters}: "
                "X may have no more distinct rows. Use fewer clusters."
            )

    def _can_move_rows(self, X: np.ndarray) -> bool:
        hard = not self.temperature and self.learner is None
        return hard and len(X) * self.n_clusters <= _MOST_SCORES and not np.isnan(X).any()

    def _move_rows(self, X: np.ndarray, data: Any, weight: Any) -> None:
        """Improve the best of several fits by moving single rows between clusters."""
        ones = np.ones(len(X), X.dtype) if weight is None else weight
        before = self.energy_, self.inertia_
        with limit_blas(1):
            centers = hartigan_wong(X, ones, self.cluster_centers_, self.labels_)
        self.energy_ = Centroids(asarray(centers))
        self._set_labels(data, weight)
        if self.inertia_ > before[1]:
            self.energy_ = before[0]
            self._set_labels(data, weight)

    # -- clusters of rows --------------------------------------------------------------------

    def _query(self, function: Any, X: np.ndarray, *arguments: Any) -> Any:
        """Return `function(model, data, *arguments)` of a table, with a column for every padded centre."""
        with self._precision():
            return function(padded_energy(self, X), {"x": mask_missing(X)}, *arguments)

    def predict(self, X: Any) -> np.ndarray:
        """Return the nearest centre of every row, (n_samples,)."""
        return self._query(components.nearest, self._check_new_X(X))[0]

    def responsibilities(self, X: Any) -> np.ndarray:
        """Return the responsibility ∝ exp(−‖x − c‖² / temperature) of every centre, (n_samples, n_clusters).

        At temperature 0 it is 1 for the nearest centre and 0 for others.
        """
        X = self._check_new_X(X)
        self._check_settings("temperature")
        if self.temperature:
            temperature = np.asarray(self.temperature, self.dtype_)
            return self._query(components.responsibilities, X, temperature)[:, : len(self.cluster_centers_)]
        return np.eye(len(self.cluster_centers_), dtype=self.dtype_)[self._query(components.nearest, X)[0]]

    def transform(self, X: Any) -> np.ndarray:
        """Return the distance of every row to every centre, (n_samples, n_clusters)."""
        scores = self._query(components.log_joint, self._check_new_X(X))[:, : len(self.cluster_centers_)]
        return np.sqrt(np.maximum(-scores, 0))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return minus the sum of the squared distances to the nearest centres."""
        X = self._check_new_X(X)
        weight = self._check_weight(sample_weight, X)
        return -_total(self._query(components.nearest, X)[1], weight)

    def impute(self, X: Any) -> np.ndarray:
        """Return X with missing values taken from the nearest centre."""
        X = self._check_new_X(X)
        return np.where(np.isnan(X), self.cluster_centers_[self._query(components.nearest, X)[0]], X)

    @property
    def cluster_centers_(self) -> np.ndarray:
        """The centres, (n_clusters, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.centers)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def _total(distances: np.ndarray, weight: np.ndarray | None) -> float:
    """The weighted sum of the distances, in float64."""
    return float((distances if weight is None else distances * weight).sum(dtype=np.float64))
