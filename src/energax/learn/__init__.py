"""Learning principles: objectives for `Descent`, and `EM`."""

from ._contrastive import ContrastiveDivergence as ContrastiveDivergence
from ._descent import Descent as Descent
from ._em import EM as EM
from ._likelihood import NegativeLogLikelihood as NegativeLogLikelihood
from ._objective import Objective as Objective
