"""Models, one family a file."""

from ._bernoulli import Bernoullis as Bernoullis
from ._boltzmann import RBM as RBM
from ._boltzmann import GaussianRBM as GaussianRBM
from ._centroids import Centroids as Centroids
from ._covariance import Covariance as Covariance
from ._covariance import Diagonal as Diagonal
from ._covariance import Full as Full
from ._covariance import Spherical as Spherical
from ._covariance import Tied as Tied
from ._directed import Decoder as Decoder
from ._directed import StandardNormal as StandardNormal
from ._directed import UniformChoices as UniformChoices
from ._gaussian import Gaussians as Gaussians
from ._likelihoods import Bernoulli as Bernoulli
from ._likelihoods import Gaussian as Gaussian
from ._linear import Linear as Linear
from ._linear import Scorer as Scorer
from ._markov import MarkovChain as MarkovChain
from ._neural import NeuralEnergy as NeuralEnergy
from ._ngram import NGram as NGram
from ._ngram_smoothing import AddK as AddK
from ._ngram_smoothing import Katz as Katz
from ._ngram_smoothing import KneserNey as KneserNey
from ._ngram_smoothing import Smoothing as Smoothing
