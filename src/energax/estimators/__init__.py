"""Estimators with the interface of scikit-learn: `fit`, `predict`, `score_samples`, `transform`.

The first import turns on JAX's compilation cache on disk (`energax.caching`).
"""

from .. import caching as _caching
from ._language.ngram import NGramModel as NGramModel
from ._mixture.bernoulli import BernoulliMixture as BernoulliMixture
from ._mixture.gaussian import GaussianMixture as GaussianMixture
from ._mixture.kmeans import KMeans as KMeans
from ._neural.energy_model import EnergyModel as EnergyModel
from ._neural.rbm import BernoulliRBM as BernoulliRBM
from ._neural.vae import VAE as VAE
from ._sequence.gmm_hmm import GMMHMM as GMMHMM
from ._sequence.hmm import CategoricalHMM as CategoricalHMM
from ._sequence.hmm import GaussianHMM as GaussianHMM
from ._sequence.hmm import PoissonHMM as PoissonHMM
from ._sequence.kalman import LinearGaussianChain as LinearGaussianChain
from ._supervised.gp import GaussianProcessRegressor as GaussianProcessRegressor
from ._supervised.gp_classifier import GaussianProcessClassifier as GaussianProcessClassifier
from ._supervised.kernel_ridge import KernelRidge as KernelRidge
from ._supervised.linear import LinearClassifier as LinearClassifier
from ._supervised.mlp import MLPClassifier as MLPClassifier

_caching.use_compilation_cache()
