"""k-means, hard and soft, as a recipe."""

from __future__ import annotations

import warnings
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import _num_samples

from ...energies import Centroids
from ...energies._emissions.centroids import single_moves
from ...errors import BadInput, check_number
from ...learn import EM
from .._base import ConvergenceWarning, EnergyEstimator, translate_sklearn_errors, with_mask
from .._common.predict import joint, map_chunks, nearest, responsibilities
from .._common.table import check_no_empty_column

_STARTS = {"k-means++": "k-means++", "random": "random_from_data"}
_FORGETTING = 0.7
_REPAIRS = 10
_MOST_SCORES = 2**24
_CHUNK = 8000  # rows at a time: enough for two threads; no power of two, whose multiples share cache lines


class KMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, EnergyEstimator):
    """min Σ_i min_z ‖x_i − c_z‖², by hard EM; scikit-learn's names, and NaN, minibatches and a temperature.

    Args:
        init: "k-means++", "random", an array of centres, or a function of (X, k, random_state=).
        n_init: starts, learned side by side; "auto" is 10 for random, else 1. From centres that
            `init` gives there is one start. The best of several is then improved by moving single
            rows (Hartigan and Wong, 1979).
        tol: stop when the centres move, summed and squared, by no more than this share of the
            mean variance of the columns.
        temperature: above 0, soft k-means: responsibilities ∝ exp(−‖x − c‖² / temperature).
        algorithm: "lloyd" or "elkan" (they end the same; both run Lloyd's here).
        learner: in place of hard EM, any energax learner.

    >>> X = np.array([[0.0], [1.0], [10.0], [11.0]])
    >>> km = KMeans(2, random_state=0).fit(X)
    >>> sorted(km.cluster_centers_.ravel().tolist()), float(km.inertia_)
    ([0.5, 10.5], 1.0)
    """

    _allow_nan = True
    _sparse = True

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
        """Learn the centres from `n_init` starts side by side; the best is kept."""
        rows = X
        X, data, weight = self._validate_input(X, sample_weight, reset=True)
        self.n_batches_seen_ = 0
        with self._precision():
            energy, initialise, n_init = self._start(X)
            if self.n_init not in ("auto", n_init):
                warnings.warn(
                    f"KMeans makes one start, not n_init={self.n_init}, from centres that init gives. "
                    "Leave n_init at 'auto'.",
                    RuntimeWarning,
                    stacklevel=3,
                )
            options = {"weights": weight, "epochs": self.max_iter, "tolerance": True}
            learner = self._em(X, keep_statistics=True)
            self._learn(energy, data, learner, n_init=n_init, initialise=initialise, **options)
            for _ in range(_REPAIRS):
                moved = self._without_empty(X, self._finish(data, weight))
                if moved is None:
                    break
                self._learn(moved, data, learner, initialise=False, **options)
            else:
                self._finish(data, weight)
            if n_init > 1 and self._may_move_rows(X):
                self._move_rows(X, data, weight)
        self._tell_of_empty()
        if weight is not None and len(X) < _num_samples(rows):
            self.labels_ = self.predict(rows)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """`fit`, and the nearest centre of every row."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """`fit`, and the distance of every row from every centre."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One step of minibatch k-means, going on from the rows seen before, by `fit` too.

        A call weighs by its rows, and old rows are forgotten slowly.
        """
        first = not hasattr(self, "energy_")
        X, data, weight = self._validate_input(X, sample_weight, reset=first)
        with self._precision():
            energy, initialise, _ = self._start(X) if first else (self.energy_, False, 1)
            learner = self._em(X, decay=_FORGETTING)
            if not first:
                learner = self._continue(learner)
            self._learn(energy, data, learner, weights=weight, epochs=1, initialise=initialise)
            self._finish(data, weight)
        self.n_batches_seen_ = getattr(self, "n_batches_seen_", 0) + 1
        return self

    # -- the door --------------------------------------------------------------------------

    def _validate_input(self, X: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Any, Any]:
        self._check_counts("n_clusters", "max_iter")
        if self.n_init != "auto":
            self._check_counts("n_init")
        if self.algorithm not in ("lloyd", "elkan"):
            raise BadInput("algorithm", repr(self.algorithm), "'lloyd' or 'elkan'")
        for name in ("tol", "temperature"):
            check_number(name, getattr(self, name))
        X = self._check_X(X, reset=reset)
        X, weight = self._counted(X, sample_weight)
        if reset and len(X) < self.n_clusters:
            raise BadInput(
                "X",
                f"n_samples={len(X)}",
                f"n_samples >= n_clusters = {self.n_clusters}",
                "Ask for fewer clusters.",
            )
        return X, {"x": check_no_empty_column(with_mask(X))}, weight

    def _start(self, X: np.ndarray) -> tuple[Centroids, bool, int]:
        """(energy, whether to initialise it, starts)."""
        shape, init = (self.n_clusters, X.shape[1]), self.init
        if isinstance(init, str):
            if init not in _STARTS:
                raise BadInput("init", repr(init), "'k-means++', 'random', an array or a function")
            n_init = (10 if init == "random" else 1) if self.n_init == "auto" else self.n_init
            return Centroids(jnp.zeros(shape, self.dtype_), _STARTS[init]), True, n_init
        if callable(init):
            init = init(X, self.n_clusters, random_state=self._generator())
        with translate_sklearn_errors("init", f"finite numbers of shape {shape}"):
            centers = np.asarray(init, self.dtype_)
        if centers.shape != shape or not np.isfinite(centers).all():
            raise BadInput("init", f"shape {centers.shape}", f"finite numbers of shape {shape}")
        return Centroids(jnp.asarray(centers)), False, 1

    def _em(self, X: np.ndarray, **options: Any) -> Any:
        if self.learner is not None:
            return self._chosen_learner(None, None)
        # No centre is known better than to the rounding of its coordinates.
        squares = np.einsum("ij,ij->j", X, X) / len(X)
        if holes := bool(np.isnan(squares).any()):
            squares = np.nanmean(X**2, 0)
        rounding = float(np.finfo(self.dtype_).eps) ** 2 * self.n_clusters * float(squares.sum())
        variance = (np.nanvar if holes else np.var)(X, 0).mean() if self.tol else 0.0
        tol = max(self.tol * float(variance), 64 * rounding)
        temperature = float(self.temperature) if self.temperature else 0.0
        return EM(
            temperature=temperature,
            criterion="parameters",
            chunk=_CHUNK,
            tol=jnp.asarray(tol, self.dtype_),
            **options,
        )

    # -- what is left after a fit ------------------------------------------------------------

    def _finish(self, data: Any, weight: Any) -> np.ndarray:
        """Labels and inertia at the centres now; → each row's squared distance from its own."""
        self.labels_, distances = map_chunks(nearest, self.energy_, data)
        shared = distances if weight is None else distances * weight
        self.inertia_ = float(shared.sum(dtype=np.float64))
        return distances

    def _without_empty(self, X: np.ndarray, distances: np.ndarray) -> Centroids | None:
        """Centres that no row is nearest to, moved to the rows worst off; None if there are none."""
        empty = np.flatnonzero(np.bincount(self.labels_, minlength=self.n_clusters) == 0)
        if not len(empty) or self.temperature or self.learner is not None:
            return None
        worst = np.argsort(-distances, kind="stable")
        rows = worst[: len(empty)]
        if not distances[rows].all():  # fewer different rows than centres: nowhere to go
            return None
        centers = self.cluster_centers_.copy()
        centers[empty] = np.where(np.isnan(X[rows]), centers[self.labels_[rows]], X[rows])
        return Centroids(jnp.asarray(centers))

    def _tell_of_empty(self) -> None:
        """Warn of centres that no row is nearest to; at a temperature centres may well coincide."""
        used = np.count_nonzero(np.bincount(self.labels_))
        if used < self.n_clusters and not self.temperature:
            warnings.warn(
                f"KMeans converged to {used} distinct clusters, fewer than n_clusters={self.n_clusters}: "
                "X may have no more distinct rows. Ask for fewer clusters.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _may_move_rows(self, X: np.ndarray) -> bool:
        hard = not self.temperature and self.learner is None
        return hard and len(X) * self.n_clusters <= _MOST_SCORES and not np.isnan(X).any()

    def _move_rows(self, X: np.ndarray, data: Any, weight: Any) -> None:
        """Whoever asks for many starts wants the best there is: the winner, improved row by row."""
        ones = np.ones(len(X), X.dtype) if weight is None else weight
        before = self.energy_, self.inertia_
        self.energy_ = Centroids(jnp.asarray(single_moves(X, ones, self.cluster_centers_, self.labels_)))
        self._finish(data, weight)
        if self.inertia_ > before[1]:
            self.energy_ = before[0]
            self._finish(data, weight)

    def _nearest(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with self._precision():
            return map_chunks(nearest, self.energy_, {"x": with_mask(X)})

    # -- which cluster -----------------------------------------------------------------------

    def _rows(self, X: Any) -> np.ndarray:
        self._check_fitted()
        return self._check_X(X, reset=False)

    def predict(self, X: Any) -> np.ndarray:
        """The nearest centre of every row."""
        return self._nearest(self._rows(X))[0]

    def responsibilities(self, X: Any) -> np.ndarray:
        """∝ exp(−‖x − c‖² / temperature); certainties where that is 0. (n, n_clusters)."""
        X = self._rows(X)
        with self._precision():
            if self.temperature:
                heat, data = jnp.asarray(self.temperature, self.dtype_), {"x": with_mask(X)}
                return map_chunks(
                    lambda energy, rows: responsibilities(energy, rows, heat), self.energy_, data
                )
        return np.eye(self.n_clusters, dtype=X.dtype)[self._nearest(X)[0]]

    def transform(self, X: Any) -> np.ndarray:
        """The distance of every row from every centre, (n, n_clusters)."""
        X = self._rows(X)
        with self._precision():
            return np.sqrt(np.maximum(-map_chunks(joint, self.energy_, {"x": with_mask(X)}), 0))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus the summed squared distances from the nearest centres."""
        X = self._rows(X)
        weight = self._check_weight(sample_weight, X)
        distances = self._nearest(X)[1]
        return -float((distances if weight is None else distances * weight).sum(dtype=np.float64))

    def impute(self, X: Any) -> np.ndarray:
        """X with what is missing taken from the nearest centre."""
        X = self._rows(X)
        return np.where(np.isnan(X), self.cluster_centers_[self._nearest(X)[0]], X)

    @property
    def cluster_centers_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.centers)

    @property
    def _n_features_out(self) -> int:
        return self.n_clusters
