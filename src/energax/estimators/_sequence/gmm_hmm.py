"""The hidden Markov model whose states are mixtures of Gaussians, with hmmlearn's interface."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._util.arrays import asarray
from ...energies import Gaussians
from ...energies._emissions.mixtures import Mixtures, TiedWithin
from ...energies._emissions.normal_prior import NormalPrior
from ...errors import BadInput
from .._common.settings import NONE, NUMBERS, WHOLE
from .hmm import _CHAIN
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
)


class GMMHMM(MeanColumnsMixin, HMMEstimator):
    """A hidden Markov chain each of whose states is a mixture of `n_mix` Gaussians; NaN where missing.

    Args:
        n_mix: the number of Gaussians per state.
        covariance_type: "spherical", "diag", "full", or "tied" (one matrix for all Gaussians of a state).
        weights_prior: α of a Dirichlet prior on the weights of a state.
        means_prior, means_weight: a normal prior on the means: λ rows at μ₀.
        covars_prior, covars_weight: parameters of an inverse Wishart prior (matrices) or inverse
            Gamma prior (variances), as in hmmlearn; None is (nearly) maximum likelihood.

    The other arguments are those of `CategoricalHMM`; the letters are "stmcw". As in hmmlearn, an iteration
    of EM computes scatters about the previous means, so it is an exact M-step only at convergence; a
    `HiddenChain` with `energax.energies.Mixtures` has the exact one.

    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.choice([-4.0, 4.0], 200), rng.choice([-1.0, 1.0], 200)])[:, None]
    >>> X = X + 0.3 * rng.normal(size=(400, 1))
    >>> model = GMMHMM(2, n_mix=2, random_state=0, n_iter=100, n_init=4).fit(X)
    >>> np.sort(model.means_.ravel()).round().tolist()
    [-4.0, -1.0, 1.0, 4.0]
    """

    _letters = {
        **_CHAIN,
        "m": ("means_", "emission.components.means"),
        "c": ("covars_", "emission.components.covariance"),
        "w": ("weights_", "emission.weights"),
    }
    _sizes = ("n_components", "n_mix", "covariance_type")
    _settings = hmm_settings(
        _letters,
        "weights_prior",
        "means_prior",
        "means_weight",
        **GAUSSIAN,
        n_mix=WHOLE,
        covars_prior=NUMBERS | NONE,
        covars_weight=NUMBERS | NONE,
    )

    def __init__(
        self,
        n_components: int = 1,
        n_mix: int = 1,
        min_covar: float = 1e-3,
        startprob_prior: Any = 1.0,
        transmat_prior: Any = 1.0,
        weights_prior: Any = 1.0,
        means_prior: Any = 0.0,
        means_weight: Any = 0.0,
        covars_prior: Any = None,
        covars_weight: Any = None,
        algorithm: str = "viterbi",
        covariance_type: str = "diag",
        random_state: Any = None,
        n_iter: int = 10,
        tol: float = 1e-2,
        verbose: bool = False,
        params: str = "stmcw",
        init_params: str = "stmcw",
        implementation: str = "log",
        n_init: int = 1,
    ):
        self.n_components = n_components
        self.n_mix = n_mix
        self.min_covar = min_covar
        self.startprob_prior = startprob_prior
        self.transmat_prior = transmat_prior
        self.weights_prior = weights_prior
        self.means_prior = means_prior
        self.means_weight = means_weight
        self.covars_prior = covars_prior
        self.covars_weight = covars_weight
        self.algorithm = algorithm
        self.covariance_type = covariance_type
        self.random_state = random_state
        self.n_iter = n_iter
        self.tol = tol
        self.verbose = verbose
        self.params = params
        self.init_params = init_params
        self.implementation = implementation
        self.n_init = n_init

    def _largest_arrays(self, n, d):
        gaussians = int(self.n_components) * int(self.n_mix)
        found = super()._largest_arrays(n, d)
        return {**found, "n_mix": (gaussians * d, "the Gaussians of all states")}

    def _shape(self, d: int) -> tuple[int, ...]:
        k, m = self.n_components, self.n_mix
        shapes = {"full": (k, m, d, d), "tied": (k, d, d), "diag": (k, m, d), "spherical": (k, m)}
        return shapes[self.covariance_type]

    def _make_emission(self, dtype):
        k, m = self.n_components, self.n_mix
        means, weights = as_numbers("means_", self.means_), as_numbers("weights_", self.weights_)
        if means.ndim != 3 or means.shape[:2] != (k, m) or not np.isfinite(means).all():
            raise BadInput("means_", f"shape {means.shape}", f"finite numbers of shape ({k}, {m}, features)")
        if weights.shape != (k, m) or (weights < 0).any() or not np.allclose(weights.sum(1), 1):
            raise BadInput("weights_", f"shape {weights.shape}", f"({k}, {m}): rows that sum to 1")
        d = means.shape[2]
        raw, shape = as_numbers("covars_", self.covars_), self._shape(d)
        if raw.shape != shape:
            raise BadInput("covars_", f"shape {raw.shape}", f"{shape} for {self.covariance_type!r}")
        if self.covariance_type == "tied":
            covariance = as_covariance(TiedWithin, raw, shape, dtype, n_each=m)
        else:
            flat = (k * m, *shape[2:])
            covariance = as_covariance(COVARIANCES[self.covariance_type], raw.reshape(flat), flat, dtype)
        normals = Gaussians(
            asarray(means.reshape(k * m, d).astype(dtype)), covariance, prior=self._prior(d, dtype)
        )
        prior = np.broadcast_to(dirichlet_counts(self, "weights_prior", (k, m), dtype), (k, m))
        return Mixtures(normals, asarray(weights.astype(dtype)), asarray(prior.astype(dtype)))

    def _prior(self, d, dtype):
        """The hyperparameters of hmmlearn as pseudo-counts and pseudo-scatters."""
        k, m, tie = self.n_components, self.n_mix, self.covariance_type
        defaults = {
            "full": (0.0, -(d + 2.0)),
            "tied": (0.0, -(m + d + 1.0)),
            "diag": (-1.5, 0.0),
            "spherical": (-(m + 2.0) / 2, 0.0),
        }[tie]
        rows = {"full": (k, m), "tied": (k,)}.get(tie, self._shape(d))
        one = read_prior(self, "covars_prior", self._shape(d), dtype, defaults[0])
        two = read_prior(self, "covars_weight", rows, dtype, defaults[1])
        if tie in ("full", "tied"):
            scatter = np.broadcast_to(one, self._shape(d))
            count = np.broadcast_to(two, rows)[..., None, None] + d + 1 + (1 if tie == "full" else m)
        else:
            scatter = np.broadcast_to(2 * two, self._shape(d))
            count = np.broadcast_to(2 * (one + 1), self._shape(d)) + (1 if tie == "diag" else d)
        lead = (k,) if tie == "tied" else (k * m,)
        flat = lambda a: a.reshape(*lead, *a.shape[1 if tie == "tied" else 2 :])
        mean = read_prior(self, "means_prior", (k, m, d), dtype)
        mean = np.broadcast_to(mean, (k, m, d)).reshape(k * m, d)
        weight = np.broadcast_to(read_prior(self, "means_weight", (k, m), dtype), (k, m)).reshape(k * m)
        return NormalPrior(*map(asarray, (mean, weight, flat(scatter), flat(count))), recentre=False)

    def _default_emission(self, values):
        k, m, d = self.n_components, self.n_mix, values.shape[1]
        shape = self._shape(d)
        unit = (
            np.broadcast_to(np.eye(d), shape) if self.covariance_type in ("full", "tied") else np.ones(shape)
        )
        return {"means_": np.zeros((k, m, d)), "covars_": unit, "weights_": np.full((k, m), 1 / m)}

    def _set_emission(self, emission):
        normals, d = emission.components, emission.components.means.shape[1]
        self.means_ = np.asarray(normals.means).reshape(self.n_components, self.n_mix, d)
        covariance = normals.covariance
        raw = covariance.matrix if hasattr(covariance, "matrix") else covariance.variance
        self.covars_ = np.asarray(raw).reshape(self._shape(d))
        self.weights_ = np.asarray(emission.weights)

    def _means(self):
        return np.einsum("km,kmd->kd", self.weights_, self.means_)

    def _n_emission_parameters(self):
        k, m, d = np.shape(self.means_)
        one = {"full": m * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": m * d, "spherical": m}
        return k * (m * d + one[self.covariance_type] + m - 1)
