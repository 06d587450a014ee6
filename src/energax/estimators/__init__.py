"""Estimators with the interface of scikit-learn: `fit`, `predict`, `score_samples`, `transform`.

The first import turns on JAX's compilation cache on disk (`energax.caching`).
"""

from .. import caching as _caching
from ._language.ngram import NGramModel as NGramModel
from ._mixture.bernoulli import BernoulliMixture as BernoulliMixture
from ._mixture.gaussian import GaussianMixture as GaussianMixture
from ._mixture.kmeans import KMeans as KMeans
from ._neural.autoencoder import Autoencoder as Autoencoder
from ._neural.autoencoder import DenoisingAutoencoder as DenoisingAutoencoder
from ._neural.autoencoder import SparseAutoencoder as SparseAutoencoder
from ._neural.boltzmann import BoltzmannMachine as BoltzmannMachine
from ._neural.conditional_vae import ConditionalVAE as ConditionalVAE
from ._neural.dbm import DeepBoltzmannMachine as DeepBoltzmannMachine
from ._neural.dbn import DeepBeliefNetwork as DeepBeliefNetwork
from ._neural.energy_model import EnergyModel as EnergyModel
from ._neural.flow import Flow as Flow
from ._neural.rbm import BernoulliRBM as BernoulliRBM
from ._neural.vade import VaDE as VaDE
from ._neural.vae import VAE as VAE
from ._sequence.gmm_hmm import GMMHMM as GMMHMM
from ._sequence.hmm import CategoricalHMM as CategoricalHMM
from ._sequence.hmm import GaussianHMM as GaussianHMM
from ._sequence.hmm import PoissonHMM as PoissonHMM
from ._sequence.kalman import LinearGaussianChain as LinearGaussianChain
from ._supervised.basis import BasisExpansion as BasisExpansion
from ._supervised.bayesian import ARDRegression as ARDRegression
from ._supervised.bayesian import BayesianRidge as BayesianRidge
from ._supervised.discriminant import LinearDiscriminantAnalysis as LinearDiscriminantAnalysis
from ._supervised.discriminant import QuadraticDiscriminantAnalysis as QuadraticDiscriminantAnalysis
from ._supervised.gp import GaussianProcessRegressor as GaussianProcessRegressor
from ._supervised.gp_classifier import GaussianProcessClassifier as GaussianProcessClassifier
from ._supervised.kernel_ridge import KernelRidge as KernelRidge
from ._supervised.lasso import Lasso as Lasso
from ._supervised.linear import LinearClassifier as LinearClassifier
from ._supervised.linear_regression import LinearRegression as LinearRegression
from ._supervised.linear_regression import Ridge as Ridge
from ._supervised.logistic import LogisticRegression as LogisticRegression
from ._supervised.mlp import MLPClassifier as MLPClassifier
from ._supervised.mlp_regressor import MLPRegressor as MLPRegressor
from ._supervised.naive_bayes import NaiveBayes as NaiveBayes
from ._supervised.poisson import PoissonRegressor as PoissonRegressor
from ._supervised.svm import SVC as SVC
from ._supervised.svr import SVR as SVR

_caching.use_compilation_cache()
