"""Samplers: Markov kernels that leave p ∝ exp(−e) invariant, and the draws of their chains."""

from ..distributions import draw_rest as draw_rest
from ._default import automatic_samplers as automatic_samplers
from ._default import default_sampler as default_sampler
from ._draws import Draws as Draws
from ._draws import import_arviz as import_arviz
from ._gibbs import Gibbs as Gibbs
from ._gibbs import knows_conditional as knows_conditional
from ._langevin import Langevin as Langevin
from ._run import run_chains as run_chains
from ._sampler import Sampler as Sampler
from ._sgld import SGHMC as SGHMC
from ._sgld import SGLD as SGLD
from ._sgld import StochasticGradient as StochasticGradient
