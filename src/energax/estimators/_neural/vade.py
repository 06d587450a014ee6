"""`VaDE`: clustering by a variational autoencoder whose prior is a mixture."""

from __future__ import annotations

import warnings
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import ClusterMixin

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...energies import Decoder, EnergyPrior
from ...errors import BadInput
from ...fitting import fit as run_fit
from ...learn import ELBO, Descent
from ...mixture import Mixture
from ...programs import jit
from .._common.settings import WHOLE, one_of
from .._common.sklearn_errors import ConvergenceWarning
from .._mixture.gaussian import GaussianMixture
from .latent_rows import encode_rows
from .vae import VAE

_CODES_BETA = 0.1  # of the divergence from N(0, I) while the first codes are learned
_EM_STARTS = 5
_FLOOR = 1e-3  # added to the variances of the mixture of codes


class VaDE(ClusterMixin, VAE):
    """Variational deep embedding: clusters of a mixture of Gaussians in the latent space of an autoencoder.

    The model is p(z) = Σ_c π_c N(z; μ_c, Σ_c) and p(x | z) with a decoder network. First an autoencoder
    learns codes with a weak prior; a mixture of Gaussians fitted to the codes by EM is the initial prior;
    then the bound on log p(x) is maximised over decoder, encoder and mixture together. A row belongs to the
    cluster with the largest p(c | z) at the mean z of q(z | x).

    Args:
        n_clusters: the number of clusters.
        n_components: the number of latent dimensions.
        covariance_type: "full", "tied", "diag" (as in the paper) or "spherical", for Σ_c.
        pretrain_iter: epochs for the first codes.
        n_init: the number of starts; the one with the best bound is kept.
        likelihood: as in `VAE`. If all columns have one unit, such as pixels, give one scale for all, which
            is learned if it is an array: `Gaussian(jnp.array(0.3))`.
        hidden_layer_sizes, activation, learning_rate, batch_size, max_iter, n_importance, n_refine,
            verbose, random_state, dtype, learner: as in `VAE`.

    Attributes:
        labels_: the cluster of every training row, (n_samples,).
        cluster_weights_: π, (n_clusters,).
        cluster_means_: μ, (n_clusters, n_components).
        energy_, encoder_, mean_, scale_, active_units_, history_, fit_: as in `VAE`.

    Jiang et al. (2017), Variational deep embedding: an unsupervised and generative approach to clustering.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(300) % 3
    >>> X = np.eye(3)[y] * 8 + rng.normal(size=(300, 3))
    >>> model = VaDE(3, 2, (16,), max_iter=20, learning_rate=0.01, random_state=0).fit(X)
    >>> all(len(set(model.labels_[y == k])) == 1 for k in range(3))
    True
    """

    _settings = {
        **{k: v for k, v in VAE._settings.items() if k not in ("prior", "beta", "beta_warmup", "samples")},
        "n_clusters": WHOLE,
        "covariance_type": one_of("full", "tied", "diag", "spherical"),
        "pretrain_iter": WHOLE,
        "n_init": WHOLE,
    }

    # What `VAE` takes as arguments.
    samples = 1
    beta = 1.0
    beta_warmup = 0
    prior = "normal"

    def __init__(
        self,
        n_clusters: int = 8,
        n_components: int = 10,
        hidden_layer_sizes: Any = (256,),
        *,
        covariance_type: str = "full",
        activation: Any = "relu",
        likelihood: Any = "auto",
        learning_rate: float = 1e-3,
        batch_size: int = 100,
        pretrain_iter: int = 50,
        max_iter: int = 100,
        n_init: int = 1,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        n_importance: int = 500,
        n_refine: int = 0,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.covariance_type = covariance_type
        self.activation = activation
        self.likelihood = likelihood
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.pretrain_iter = pretrain_iter
        self.max_iter = max_iter
        self.n_init = n_init
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_importance = n_importance
        self.n_refine = n_refine
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the codes, the mixture, and both together.

        Args:
            X: a table (n_samples, n_features); NaN marks a missing value.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        best, seed = None, self._seed()
        for start in range(int(self.n_init)):
            self._start_number, self._fixed_seed = start, seed
            super().fit(X, y, sample_weight)
            if best is None or self.fit_.loss < best["fit_"].loss:
                best = dict(vars(self))
        self.__dict__.update(best or {})
        del self._start_number, self._fixed_seed
        self.labels_ = self.predict(X)
        return self

    def _key(self, *path: int) -> jax.Array:
        start = getattr(self, "_start_number", 0)
        key = super()._key(*path)
        return jax.random.fold_in(key, start) if start else key

    def _seed(self) -> int:
        return getattr(self, "_fixed_seed", None) or super()._seed()

    def fit_predict(self, X: Any, y: Any = None, **fit_params: Any) -> np.ndarray:
        """Fit, and return the cluster of every row."""
        return self.fit(X, **fit_params).labels_

    def _start(self, X: np.ndarray, weight: Any) -> tuple[dict[str, Any], Decoder, Any]:
        if len(X) < self.n_clusters:
            expected = f"n_samples >= n_clusters = {self.n_clusters}"
            raise BadInput("X", f"n_samples={len(X)}", expected, "Use fewer clusters.")
        data, energy, encoder = super()._start(X, weight)
        objective = ELBO(encoder, beta=_CODES_BETA)
        options = {"weights": weight, "batch_size": min(int(self.batch_size), len(X)), "key": self._key(10)}
        codes = run_fit(
            energy, data, Descent(objective, self._adam()), epochs=int(self.pretrain_iter), **options
        )
        z = map_table(lambda x: encode_rows(codes.partner, x), data["x"])
        mixture = self._fit_mixture(z, weight)
        return (
            data,
            Decoder(codes.energy.network, EnergyPrior(mixture), codes.energy.likelihood),
            codes.partner,
        )

    def _fit_mixture(self, z: np.ndarray, weight: Any) -> Mixture:
        """Return a mixture of Gaussians fitted to the codes by EM."""
        model = GaussianMixture(
            int(self.n_clusters),
            covariance_type=self.covariance_type,
            reg_covar=_FLOOR,
            n_init=_EM_STARTS,
            random_state=int(jax.random.bits(self._key(11), dtype=jnp.uint32)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is only a start
            return model.fit(z, sample_weight=weight).energy_

    # -- clusters ------------------------------------------------------------------------------

    @property
    def _mixture(self) -> Any:
        self._check_fitted()
        return self.energy_.latent.energy

    @property
    def cluster_weights_(self) -> np.ndarray:
        """The weights of the clusters, (n_clusters,)."""
        return np.asarray(self._mixture.weights)

    @property
    def cluster_means_(self) -> np.ndarray:
        """The means of the clusters in the latent space, (n_clusters, n_components)."""
        return np.asarray(self._mixture.components.means)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return p(c | z) of every row and cluster at the mean z of q(z | x), (n_samples, n_clusters)."""
        z = self.transform(X)
        with self._precision():
            return map_table(lambda z: _responsibilities(self._mixture, z), z)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable cluster of every row."""
        return self.predict_proba(X).argmax(1)


@jit
def _responsibilities(mixture: Mixture, z: Any) -> Any:
    return jax.nn.softmax(mixture.log_posterior({"x": asarray(z)}))
