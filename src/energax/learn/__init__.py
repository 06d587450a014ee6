"""Learning principles: objectives for `Descent`, and `EM`."""

from ._adversarial import Adversarial as Adversarial
from ._contrastive_divergence import ContrastiveDivergence as ContrastiveDivergence
from ._descent import Descent as Descent
from ._em import EM as EM
from ._likelihood import NegativeLogLikelihood as NegativeLogLikelihood
from ._newton import Newton as Newton
from ._noise_contrastive import NoiseContrastive as NoiseContrastive
from ._objective import Objective as Objective
from ._proximal import Proximal as Proximal
from ._pseudo_likelihood import PseudoLikelihood as PseudoLikelihood
from ._score_matching import Denoising as Denoising
from ._score_matching import Exact as Exact
from ._score_matching import ScoreMatching as ScoreMatching
from ._score_matching import Sliced as Sliced
from ._smo import SMO as SMO
from ._supervised import CrossEntropy as CrossEntropy
from ._supervised import Margin as Margin
from ._supervised import Perceptron as Perceptron
from ._variational import ELBO as ELBO
from ._variational import GumbelSoftmax as GumbelSoftmax
from ._variational import Reparameterised as Reparameterised
from ._variational import ScoreFunction as ScoreFunction
