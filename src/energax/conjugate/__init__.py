"""Conjugate pairs: a prior and a likelihood whose posterior is of the family of the prior.

Each is an energy over the parameter and one observation x, and has `posterior(data)`, the pair with the
parameters of the posterior; `predictive`, the distribution of the next observation; and `log_evidence(data)`.
"""

from ._discrete import BetaBernoulli as BetaBernoulli
from ._discrete import DirichletCategorical as DirichletCategorical
from ._discrete import GammaPoisson as GammaPoisson
from ._normal import NormalInverseGamma as NormalInverseGamma
from ._normal import NormalInverseWishart as NormalInverseWishart
from ._pair import ConjugatePair as ConjugatePair
