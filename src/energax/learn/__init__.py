"""Learning principles: objectives for `Descent`, and `EM`."""

from ._adversarial import Adversarial as Adversarial
from ._answers import CrossEntropy as CrossEntropy
from ._answers import Margin as Margin
from ._answers import Perceptron as Perceptron
from ._contrastive import ContrastiveDivergence as ContrastiveDivergence
from ._descent import Descent as Descent
from ._em import EM as EM
from ._likelihood import NegativeLogLikelihood as NegativeLogLikelihood
from ._noise import NoiseContrastive as NoiseContrastive
from ._objective import Objective as Objective
from ._pseudo import PseudoLikelihood as PseudoLikelihood
from ._score import Denoising as Denoising
from ._score import Exact as Exact
from ._score import ScoreMatching as ScoreMatching
from ._score import Sliced as Sliced
from ._variational import ELBO as ELBO
from ._variational import GumbelSoftmax as GumbelSoftmax
from ._variational import Reparameterised as Reparameterised
from ._variational import ScoreFunction as ScoreFunction
