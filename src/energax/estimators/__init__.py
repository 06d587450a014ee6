"""Recipes with scikit-learn's manners: energy + default learner + default inference."""

from ._bernoulli_mixture import BernoulliMixture as BernoulliMixture
from ._boltzmann import BernoulliRBM as BernoulliRBM
from ._classify import LinearClassifier as LinearClassifier
from ._energy_model import EnergyModel as EnergyModel
from ._gmm_hmm import GMMHMM as GMMHMM
from ._hmm import CategoricalHMM as CategoricalHMM
from ._hmm import GaussianHMM as GaussianHMM
from ._hmm import PoissonHMM as PoissonHMM
from ._kalman import LinearGaussianChain as LinearGaussianChain
from ._kmeans import KMeans as KMeans
from ._mixture import GaussianMixture as GaussianMixture
from ._mlp import MLPClassifier as MLPClassifier
from ._ngram import NGramModel as NGramModel
from ._vae import VAE as VAE
