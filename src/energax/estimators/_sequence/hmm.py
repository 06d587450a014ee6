"""Hidden Markov models of symbols, real numbers and counts, with hmmlearn's interface."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ...energies import Gaussians
from ...energies._emissions.categorical import Categoricals
from ...energies._emissions.normal_prior import NormalPrior
from ...energies._emissions.poisson import Poissons
from ...errors import BadInput, check_memory
from .._common.settings import NONE, WHOLE
from .hmm_base import HMMEstimator
from .parameters import (
    COVARIANCES,
    GAUSSIAN,
    MeanColumnsMixin,
    as_covariance,
    as_numbers,
    dirichlet_counts,
    hmm_settings,
    read_prior,
    reduce_covariances,
)

_CHAIN = {"s": ("startprob_", "initial"), "t": ("transmat_", "transition")}


class CategoricalHMM(HMMEstimator):
    """A hidden Markov chain that emits symbols 0, …, n_features − 1: X is (n_samples, 1), NaN where missing.

    Args:
        n_components: the number of states.
        startprob_prior, transmat_prior, emissionprob_prior: α of Dirichlet priors, numbers or
            arrays; 1 is maximum likelihood.
        n_features: the number of symbols; by default the largest one in X plus one.
        algorithm: the algorithm of `decode` and `predict`, "viterbi" or "map".
        n_iter, tol: the most iterations of EM, which ends when the log-likelihood gains no more than `tol`.
        params, init_params: the parameters to learn, and those that `fit` initialises: letters of
            "ste" (startprob, transmat, emissionprob). Zeros in a startprob_ or transmat_ that
            is not initialised stay zeros.
        n_init: the number of starts; the best is kept.
        implementation: for compatibility with hmmlearn; the fastest exact recursion is always used.

    Rabiner (1989), A tutorial on hidden Markov models.

    >>> model = CategoricalHMM(2)
    >>> model.startprob_ = np.array([0.6, 0.4])
    >>> model.transmat_ = np.array([[0.7, 0.3], [0.4, 0.6]])
    >>> model.emissionprob_ = np.array([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]])
    >>> log_prob, states = model.decode([[0], [1], [2]])
    >>> states.tolist(), round(float(np.exp(log_prob)), 5)
    ([1, 0, 0], 0.01344)
    """

    _one_column = True
    _letters = {**_CHAIN, "e": ("emissionprob_", "emission.probs")}
    _settings = hmm_settings(_letters, "emissionprob_prior", n_features=WHOLE | NONE)

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        *,
        emissionprob_prior: Any = 1.0,
        n_features: int | None = None,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "ste",
        init_params: str = "ste",
        implementation: str = "log",
        n_init: int = 1,
    ):
        self.n_components = n_components
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.emissionprob_prior = emissionprob_prior
        self.n_features = n_features
        self.algorithm = algorithm
        self.random_state = random_state
        self.n_iter = n_iter
        self.tol = tol
        self.verbose = verbose
        self.params = params
        self.init_params = init_params
        self.implementation = implementation
        self.n_init = n_init

    def _check_values(self, table, *, reset):
        if table.shape[1] != 1:
            raise BadInput("X", f"{table.shape[1]} columns", "one column of symbols: shape (n, 1)")
        symbols = table[:, 0]
        kept = not reset or ("e" not in self.init_params and hasattr(self, "emissionprob_"))
        m = self._probs().shape[1] if kept else self.n_features
        top = 2**31 if m is None else m
        with np.errstate(invalid="ignore"):
            integers = symbols.astype(np.int32)
            if integers.min() >= 0 and integers.max() < top and (integers == symbols).all():
                return integers
            invalid = ~np.isnan(symbols) & ~(
                (symbols >= 0) & (symbols < top) & (symbols == np.floor(symbols))
            )
        if invalid.any():
            i = int(np.argmax(invalid))
            expected = "whole numbers >= 0, below 2³¹" if m is None else f"symbols from 0 to {m - 1}"
            raise BadInput("X", f"{symbols[i]:g} in row {i}", expected)
        return symbols if np.isnan(symbols).any() else symbols.astype(np.int32)

    def _probs(self) -> np.ndarray:
        probs = np.atleast_2d(as_numbers("emissionprob_", self.emissionprob_))
        if probs.ndim != 2 or probs.shape[0] != self.n_components:
            raise BadInput("emissionprob_", f"shape {probs.shape}", f"({self.n_components}, symbols)")
        return probs

    def _make_emission(self, dtype):
        probs = self._probs()
        if not (np.isfinite(probs).all() and (probs >= 0).all() and np.allclose(probs.sum(1), 1)):
            raise BadInput("emissionprob_", f"row sums {probs.sum(1)}", "rows of probabilities that sum to 1")
        prior = dirichlet_counts(self, "emissionprob_prior", probs.shape, dtype)
        return Categoricals(asarray(probs.astype(dtype)), prior)

    def _default_emission(self, values):
        m = self.n_features
        if m is None:
            m = int(np.nanmax(values)) + 1 if not np.isnan(values).all() else 1
            table = int(self.n_components) * m
            check_memory("X", m - 1, table, "a table of all smaller symbols")
        return {"emissionprob_": np.full((self.n_components, m), 1 / m)}

    def _set_emission(self, emission):
        self.emissionprob_ = np.asarray(emission.probs)

    def _means(self):
        """The probabilities of the symbols, which are the means of their one-hot vectors."""
        return np.asarray(self.emissionprob_)

    def _n_emission_parameters(self):
        k, m = np.shape(self.emissionprob_)
        return k * (m - 1)


class GaussianHMM(MeanColumnsMixin, HMMEstimator):
    """A hidden Markov chain that emits real vectors, a Gaussian for each state; NaN where missing.

    Args:
        covariance_type: "spherical", "diag", "full" or "tied".
        min_covar: added to the variances of the start.
        means_prior, means_weight: a normal prior on the means: λ rows at μ₀.
        covars_prior, covars_weight: covars_prior is added to every scatter, and covars_weight − 1
            (− n_features, for matrices) to the number of rows that it is divided by. The default keeps
            variances positive; covars_prior=0 is maximum likelihood.

    The other arguments are those of `CategoricalHMM`; the letters are "stmc".

    >>> X = np.concatenate([np.zeros((50, 1)), np.ones((50, 1))]) + np.linspace(-0.1, 0.1, 100)[:, None]
    >>> model = GaussianHMM(2, random_state=0, n_iter=50).fit(X)
    >>> np.sort(model.means_.ravel()).round(2).tolist(), int((np.diff(model.predict(X)) != 0).sum())
    ([-0.05, 1.05], 1)
    """

    _letters = {**_CHAIN, "m": ("means_", "emission.means"), "c": ("covars_", "emission.covariance")}
    _sizes = ("n_components", "covariance_type")
    _settings = hmm_settings(
        _letters, "means_prior", "means_weight", "covars_prior", "covars_weight", **GAUSSIAN
    )

    def __init__(
        self,
        n_components: int = 1,
        covariance_type: str = "diag",
        min_covar: float = 1e-3,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        means_prior: Any = 0,
        means_weight: Any = 0,
        covars_prior: Any = 1e-2,
        covars_weight: Any = 1,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmc",
        init_params: str = "stmc",
        implementation: str = "log",
        n_init: int = 1,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.min_covar = min_covar
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.means_prior = means_prior
        self.means_weight = means_weight
        self.covars_prior = covars_prior
        self.covars_weight = covars_weight
        self.algorithm = algorithm
        self.random_state = random_state
        self.n_iter = n_iter
        self.tol = tol
        self.verbose = verbose
        self.params = params
        self.init_params = init_params
        self.implementation = implementation
        self.n_init = n_init

    @property
    def covars_(self) -> np.ndarray:
        """Σ of every state as a matrix, (n_components, n_features, n_features).

        Set it as matrices, or in the shape of `covariance_type`: (k,), (k, d), or (d, d) if tied.
        """
        if "_covars_" not in self.__dict__:
            raise AttributeError("covars_ is neither fitted nor set")
        raw, (k, d) = np.asarray(self._covars_), np.shape(self.means_)  # raw has the shape of the type
        if self.covariance_type == "tied":
            return np.broadcast_to(raw, (k, d, d)).copy()
        if self.covariance_type == "full":
            return raw
        return np.eye(d) * (raw if raw.ndim == 2 else raw[:, None])[:, None, :]

    @covars_.setter
    def covars_(self, covars: Any) -> None:
        self._check_settings("covariance_type")
        self._covars_ = reduce_covariances(covars, self.covariance_type)

    def _storage_name(self, name):
        return "_covars_" if name == "covars_" else name

    def _make_emission(self, dtype):
        k, means = self.n_components, as_numbers("means_", self.means_)
        if means.ndim != 2 or len(means) != k or not np.isfinite(means).all():
            raise BadInput("means_", f"shape {means.shape}", f"finite numbers of shape ({k}, features)")
        d = means.shape[1]
        raw = reduce_covariances(self._covars_, self.covariance_type)
        shape = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}[self.covariance_type]
        covariance = as_covariance(COVARIANCES[self.covariance_type], raw, shape, dtype)
        return Gaussians(asarray(means.astype(dtype)), covariance, prior=self._prior(d, dtype))

    def _padded_states(self, chain, data):
        prior = chain.emission.prior
        # Other priors have numbers for every state.
        plain = all(np.ndim(a) == 0 for a in jax.tree.leaves(prior)) and not np.any(prior.weight)
        return super()._padded_states(chain, data) if plain else None

    def _prior(self, d, dtype):
        k = self.n_components
        matrices = self.covariance_type in ("full", "tied")
        by_state = self.covariance_type == "spherical" and np.ndim(self.covars_prior) < 2
        shape = (k, d, d) if matrices else (k,) if by_state else (k, d)
        scatter = read_prior(self, "covars_prior", shape, dtype)
        weight = read_prior(self, "covars_weight", shape, dtype)
        mean = read_prior(self, "means_prior", (k, d), dtype)
        mean_weight = read_prior(self, "means_weight", (k,), dtype)
        if matrices:
            count = np.maximum(weight - d, 0)
        else:
            count = np.maximum(weight - 1, 0)
        if self.covariance_type == "spherical":
            scatter, count = (d * scatter if scatter.ndim < 2 else scatter.sum(1)), d * count
        return NormalPrior(*(asarray(np.asarray(a, dtype)) for a in (mean, mean_weight, scatter, count)))

    def _default_emission(self, values):
        k, d = self.n_components, values.shape[1]
        ones = {"full": np.tile(np.eye(d), (k, 1, 1)), "tied": np.eye(d)}
        shapes = {"diag": (k, d), "spherical": (k,)}
        unit = ones.get(self.covariance_type, np.ones(shapes.get(self.covariance_type, k)))
        return {"means_": np.zeros((k, d)), "covars_": unit}

    def _set_emission(self, emission):
        self.means_ = np.asarray(emission.means)
        covariance = emission.covariance
        self._covars_ = np.asarray(
            covariance.matrix if hasattr(covariance, "matrix") else covariance.variance
        )

    def _means(self):
        return np.asarray(self.means_)

    def _n_emission_parameters(self):
        k, d = np.shape(self.means_)
        return k * d + COVARIANCES[self.covariance_type].unit(k, d).n_parameters(k, d)


class PoissonHMM(MeanColumnsMixin, HMMEstimator):
    """A hidden Markov chain that emits counts, with Poisson rates for each state; NaN where missing.

    Args:
        lambdas_prior, lambdas_weight: a Gamma prior on the rates: so many events in so many rows are added
            to those counted; 0 is maximum likelihood.

    The other arguments are those of `CategoricalHMM`; the letters are "stl".

    >>> X = np.array([0, 1, 0, 0, 1, 9, 8, 11, 9, 10] * 4)[:, None]
    >>> model = PoissonHMM(2, random_state=0, n_iter=50).fit(X)
    >>> np.sort(model.lambdas_.ravel()).round(1).tolist()
    [0.4, 9.4]
    """

    _letters = {**_CHAIN, "l": ("lambdas_", "emission.rates")}
    _settings = hmm_settings(_letters, "lambdas_prior", "lambdas_weight")

    def __init__(
        self,
        n_components: int = 1,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        lambdas_prior: Any = 0.0,
        lambdas_weight: Any = 0.0,
        algorithm: str = "viterbi",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stl",
        init_params: str = "stl",
        implementation: str = "log",
        n_init: int = 1,
    ):
        self.n_components = n_components
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.lambdas_prior = lambdas_prior
        self.lambdas_weight = lambdas_weight
        self.algorithm = algorithm
        self.random_state = random_state
        self.n_iter = n_iter
        self.tol = tol
        self.verbose = verbose
        self.params = params
        self.init_params = init_params
        self.implementation = implementation
        self.n_init = n_init

    def _check_values(self, table, *, reset):
        with np.errstate(invalid="ignore"):
            invalid = ~np.isnan(table) & ~((table >= 0) & (table < 2**31) & (table == np.floor(table)))
        if invalid.any():
            i, j = np.argwhere(invalid)[0]
            raise BadInput("X", f"{table[i, j]:g} in row {i}", "counts: whole numbers >= 0, below 2³¹")
        return table if np.isnan(table).any() else table.astype(np.int32)

    def _make_emission(self, dtype):
        rates = as_numbers("lambdas_", self.lambdas_)
        if rates.ndim != 2 or len(rates) != self.n_components:
            raise BadInput("lambdas_", f"shape {rates.shape}", f"({self.n_components}, features)")
        rates = np.maximum(rates, np.finfo(dtype).tiny) if (rates >= 0).all() else rates
        number = lambda a: float(a) if a.ndim == 0 else asarray(a)
        prior = (read_prior(self, name, rates.shape, dtype) for name in ("lambdas_prior", "lambdas_weight"))
        return Poissons(asarray(rates.astype(dtype)), *map(number, prior))

    def _default_emission(self, values):
        return {"lambdas_": np.ones((self.n_components, values.shape[1]))}

    def _set_emission(self, emission):
        self.lambdas_ = np.asarray(emission.rates)

    def _means(self):
        return np.asarray(self.lambdas_)

    def _n_emission_parameters(self):
        return int(np.size(self.lambdas_))
