"""Mixtures as recipes: what they share, and the Gaussian one."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...energies import Diagonal, Full, Gaussians, Spherical, Tied
from ...errors import BadInput, check_number
from ...learn import EM, Descent, Objective
from ...missing import any_nan, is_masked
from ...mixture import Mixture
from ...spaces import PositiveDefinite
from .._base import Density, bucket
from .._common.predict import evidence, imputed, joint, map_chunks, responsibilities
from .._common.table import check_no_empty_column

_COVARIANCES = {"full": Full, "tied": Tied, "diag": Diagonal, "spherical": Spherical}
_STARTS = ("kmeans", "k-means++", "random", "random_from_data")
_FORGETTING = 0.7  # the exponent with which partial_fit replaces old statistics
#: Bytes of a chunk of rows about one mean, below which XLA leaves its product to one thread; and about all.
_SHARED_PRODUCT, _MOST_CENTRED, _FEWEST_ROWS = 2**19, 2**23, 256


class MixtureRecipe(Density):
    """What Gaussian and Bernoulli mixtures share."""

    _allow_nan = True
    #: Arguments beside `tol` that are numbers >= 0.
    _not_negative: ClassVar[tuple[str, ...]] = ()

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.estimator_type = "density_estimator"
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn by EM from `n_init` starts side by side; the best is kept. NaN marks what is not known."""
        X, data, weight = self._validate_input(X, sample_weight, reset=True)
        self.n_batches_seen_ = 0
        with self._precision():
            start, initialise, n_init = self._start(X, data, weight)
            self._learn(
                start,
                data,
                self._em(data, keep_statistics=True),
                weights=weight,
                epochs=self.max_iter,
                n_init=n_init,
                initialise=initialise,
                tolerance=True,
            )
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One step of minibatch EM, going on from the rows seen before, by `fit` too.

        A call weighs by its rows, and old rows are forgotten slowly.

        Cappé and Moulines (2009), On-line expectation-maximization for latent data models.
        """
        first = not hasattr(self, "energy_")
        X, data, weight = self._validate_input(X, sample_weight, reset=first)
        with self._precision():
            start, initialise, _ = self._start(X, data, weight) if first else (self.energy_, False, 1)
            learner = self._em(data, decay=_FORGETTING)
            if not first:
                learner = self._continue(learner)
            self._learn(start, data, learner, weights=weight, epochs=1, initialise=initialise)
        self.n_batches_seen_ = getattr(self, "n_batches_seen_", 0) + 1
        return self

    def _before(self, d: int, **same: bool) -> Any:
        """The energy of the fit before, to go on from, if it has d columns and what is named is the same."""
        for name, fits in {"n_components": self.energy_.n_components == self.n_components, **same}.items():
            if not fits:
                found = f"{getattr(self, name)!r}, another than in the fit before"
                raise BadInput(name, found, "the same, to go on from it", "Set warm_start=False.")
        columns = self.energy_.spaces["x"].size
        if columns != d:
            expected = f"{columns}, to go on from the fit before"
            raise BadInput("X", f"{d} columns", expected, "Set warm_start=False.")
        as_now = lambda leaf: leaf.astype(self.dtype_) if eqx.is_inexact_array(leaf) else leaf
        return jax.tree.map(as_now, self.energy_)

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """`fit`, then the component of every row."""
        return self.fit(X, y, sample_weight).predict(X)

    def _validate_input(self, X: Any, sample_weight: Any, *, reset: bool) -> tuple[Any, Any, Any]:
        self._check_parameters()
        X = self._check_X(X, reset=reset)
        X, weight = self._counted(X, sample_weight)
        if reset and len(X) < self.n_components:
            raise BadInput(
                "X",
                f"n_samples={len(X)}",
                f"n_samples >= n_components = {self.n_components}",
                "Ask for fewer components.",
            )
        data = self._given(X)
        check_no_empty_column(data["x"])
        return X, data, weight

    def _check_parameters(self) -> None:
        self._check_counts("n_components", "max_iter", "n_init")
        for name in ("tol", *self._not_negative):
            check_number(name, getattr(self, name))

    def _em(self, data: Any, **options: Any) -> Any:
        if self.learner is None:
            if not is_masked(data["x"]):
                row = data["x"].shape[1] * self.dtype_.itemsize
                most = min(_SHARED_PRODUCT // row, _MOST_CENTRED // (row * self.n_components))
                options["chunk"] = max(_FEWEST_ROWS, most)
            # An array: another tolerance is no other program.
            return EM(tol=jnp.asarray(self.tol, self.dtype_), **options)
        if isinstance(self.learner, Objective):
            import optax

            return Descent(self.learner, optax.adam(1e-2))
        return self._chosen_learner(None, None)

    def _checked_weights(self, k: int) -> Any:
        if self.weights_init is None:
            return jnp.full(k, 1 / k, self.dtype_)
        weights = np.asarray(self.weights_init, self.dtype_)
        legal = weights.shape == (k,) and np.isfinite(weights).all() and (weights >= 0).all()
        if not legal or abs(weights.sum() - 1) > 1e-4:
            raise BadInput(
                "weights_init",
                f"{np.array2string(weights, threshold=5)}",
                f"{k} numbers >= 0 that sum to 1",
                "Divide them by their sum.",
            )
        return jnp.asarray(weights)

    # -- which component -------------------------------------------------------------------

    def _ask(self, question: Any, X: Any) -> np.ndarray:
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            return map_chunks(question, self.energy_, self._given(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable component of every row."""
        return self._ask(joint, X).argmax(1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(z | x), (n, n_components)."""
        return self._ask(responsibilities, X)

    def score_samples(self, X: Any) -> np.ndarray:
        """log p(x) of every row, over the coordinates that are known."""
        return self._ask(evidence, X)

    def impute(self, X: Any) -> np.ndarray:
        """X with each missing value at its mean given the known ones of its row."""
        self._check_fitted()
        checked = self._check_X(X, reset=False)
        if not any_nan(checked):
            return checked.copy()
        return np.where(np.isnan(checked), self._ask(imputed, X), checked)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Rows drawn from the model, and the component of each, in the order of components."""
        rows, components = self._draw(n_samples)
        order = np.argsort(components, kind="stable")
        return rows[order], components[order]

    def _draw(self, n_samples: int) -> tuple[np.ndarray, np.ndarray]:
        from ...infer import sample

        self._check_n_samples(n_samples)
        with self._precision():
            drawn = sample(self.energy_, bucket(int(n_samples)), key=self._key(2))
            return np.asarray(drawn["x"])[:n_samples], np.asarray(drawn["z"])[:n_samples]

    # -- comparing models ------------------------------------------------------------------

    def bic(self, X: Any) -> float:
        """−2 log p(X) + (free parameters) log n: the lower the better."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        return -2 * float(self.score_samples(X).sum()) + self._n_parameters() * np.log(len(X))

    def aic(self, X: Any) -> float:
        """−2 log p(X) + 2 (free parameters): the lower the better."""
        return -2 * float(self.score_samples(X).sum()) + 2 * self._n_parameters()

    # -- scikit-learn's names ----------------------------------------------------------------

    @property
    def weights_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.weights)

    @property
    def lower_bounds_(self) -> list[float]:
        """The mean log-likelihood before every step."""
        self._check_fitted()
        return [-float(v) for v in self.history_["objective"]]

    @property
    def lower_bound_(self) -> float:
        return self.lower_bounds_[-1]


class GaussianMixture(MixtureRecipe):
    """p(x) = Σ_z π_z N(x; μ_z, Σ_z), by EM; scikit-learn's names, and NaN, weights and minibatches.

    Args:
        covariance_type: "full", "tied", "diag" or "spherical".
        tol: stop when the mean log-likelihood rises by no more.
        reg_covar: added to every variance.
        n_init: starts, learned side by side.
        init_params: "kmeans", "k-means++", "random" or "random_from_data".
        learner: in place of EM, any energax learner or objective.

    >>> X = np.concatenate([np.zeros((50, 1)), np.ones((50, 1))]) + np.linspace(-0.1, 0.1, 100)[:, None]
    >>> gm = GaussianMixture(2, random_state=0).fit(X)
    >>> np.sort(gm.means_.ravel()).round(2).tolist()
    [-0.05, 1.05]
    >>> gm.impute([[np.nan]]).round(2).tolist()               # nothing known: the mean of all
    [[0.5]]
    """

    _not_negative = ("reg_covar",)

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        weights_init: Any = None,
        means_init: Any = None,
        precisions_init: Any = None,
        random_state: Any = None,
        warm_start: bool = False,
        verbose: int = 0,
        verbose_interval: int = 10,
        learner: Any = None,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weights_init = weights_init
        self.means_init = means_init
        self.precisions_init = precisions_init
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.learner = learner

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name, legal in (("covariance_type", _COVARIANCES), ("init_params", _STARTS)):
            if getattr(self, name) not in legal:
                raise BadInput(name, repr(getattr(self, name)), f"one of {', '.join(map(repr, legal))}")

    def _warm(self, d: int) -> Any:
        """The fit before, with the floor asked for now."""
        kind = type(self.energy_.components.covariance)
        before = self._before(d, covariance_type=kind is _COVARIANCES[self.covariance_type])
        floored = dataclasses.replace(before.components.covariance, floor=float(self.reg_covar))
        return eqx.tree_at(lambda e: e.components.covariance, before, floored)

    def _start(self, X: np.ndarray, data: Any, weight: Any) -> tuple[Any, bool, int]:
        """(energy, whether to initialise it, starts)."""
        k, d, dtype = self.n_components, X.shape[1], self.dtype_
        if self.warm_start and hasattr(self, "energy_"):
            return self._warm(d), False, 1
        weights = self._checked_weights(k)
        covariance = _COVARIANCES[self.covariance_type].unit(k, d, dtype, float(self.reg_covar))
        energy = Mixture(Gaussians(jnp.zeros((k, d), dtype), covariance, self.init_params), weights)
        if self.means_init is None and self.precisions_init is None:
            return energy, True, self.n_init
        means = None if self.means_init is None else self._checked_means(k, d)
        if self.precisions_init is not None:
            covariance = self._checked_precisions(covariance, k, d)
        if means is None or self.precisions_init is None:
            rows = jax.tree.map(jnp.asarray, data)
            weight = jnp.ones(len(X), dtype) if weight is None else jnp.asarray(weight)
            found = _initialised(energy.components, means, rows, weight, self._key())
            means = found.means if means is None else means
            covariance = found.covariance if self.precisions_init is None else covariance
        return Mixture(Gaussians(means, covariance, self.init_params), weights), False, 1

    def _checked_means(self, k: int, d: int) -> Any:
        means = np.asarray(self.means_init, self.dtype_)
        if means.shape != (k, d) or not np.isfinite(means).all():
            raise BadInput("means_init", f"shape {means.shape}", f"finite numbers of shape ({k}, {d})")
        return jnp.asarray(means)

    def _checked_precisions(self, covariance: Any, k: int, d: int) -> Any:
        """The covariance object whose inverse is `precisions_init`."""
        found = np.asarray(self.precisions_init, self.dtype_)
        name, leaf = (
            ("matrix", covariance.matrix)
            if hasattr(covariance, "matrix")
            else ("variance", covariance.variance)
        )
        if found.shape != leaf.shape:
            raise BadInput(
                "precisions_init", f"shape {found.shape}", f"{leaf.shape} for {self.covariance_type!r}"
            )
        if name == "matrix":
            if not PositiveDefinite(d)._is_valid(found).all():
                raise BadInput(
                    "precisions_init",
                    "a matrix that is not symmetric, or not positive definite",
                    "symmetric positive definite matrices",
                )
            inverse = np.linalg.inv(found)
        else:
            if not (np.isfinite(found) & (found > 0)).all():
                raise BadInput("precisions_init", f"{found.min():g} to {found.max():g}", "finite numbers > 0")
            inverse = 1 / found
        return eqx.tree_at(lambda c: getattr(c, name), covariance, jnp.asarray(inverse.astype(self.dtype_)))

    def _n_parameters(self) -> int:
        k, d = self.means_.shape
        return k - 1 + k * d + self.energy_.components.covariance.n_free(k, d)

    @property
    def means_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.components.means)

    @property
    def covariances_(self) -> np.ndarray:
        """Shaped as `covariance_type` has it: (k, d, d), (d, d), (k, d) or (k,)."""
        self._check_fitted()
        covariance = self.energy_.components.covariance
        return np.asarray(covariance.matrix if hasattr(covariance, "matrix") else covariance.variance)

    @property
    def precisions_cholesky_(self) -> np.ndarray:
        """U with U Uᵀ = Σ⁻¹, upper triangular; 1/σ where Σ is diagonal."""
        covariances = self.covariances_
        if self.covariance_type in ("diag", "spherical"):
            return 1 / np.sqrt(covariances)
        return np.swapaxes(np.linalg.inv(np.linalg.cholesky(covariances)), -1, -2)

    @property
    def precisions_(self) -> np.ndarray:
        factor = self.precisions_cholesky_
        if self.covariance_type in ("diag", "spherical"):
            return factor**2
        return factor @ np.swapaxes(factor, -1, -2)


@eqx.filter_jit
def _initialised(components: Any, means: Any, rows: Any, weight: Any, key: Any) -> Gaussians:
    """Where `init_params` would begin; with means given, the spread of the rows nearest to each."""
    found = components.initialise(key, rows, weight)
    return found if means is None else eqx.tree_at(lambda g: g.means, found, means).of_nearest(rows, weight)
