"""Samplers: Markov kernels that leave p ∝ exp(−e) invariant, and the draws of their chains."""

from ..distributions import draw_rest as draw_rest
from ._chains import tune_sampler as tune_sampler
from ._compound import Compound as Compound
from ._default import automatic_samplers as automatic_samplers
from ._default import default_sampler as default_sampler
from ._draws import Draws as Draws
from ._draws import import_arviz as import_arviz
from ._elliptical import EllipticalSlice as EllipticalSlice
from ._gibbs import Gibbs as Gibbs
from ._gibbs import knows_conditional as knows_conditional
from ._gumbel import gumbel_max as gumbel_max
from ._gumbel import gumbel_top_k as gumbel_top_k
from ._hamiltonian import HMC as HMC
from ._hamiltonian import MALA as MALA
from ._hamiltonian import NUTS as NUTS
from ._langevin import Langevin as Langevin
from ._metropolis import MetropolisHastings as MetropolisHastings
from ._metropolis import RandomWalk as RandomWalk
from ._run import run_chains as run_chains
from ._sampler import Sampler as Sampler
from ._sgld import SGHMC as SGHMC
from ._sgld import SGLD as SGLD
from ._sgld import StochasticGradient as StochasticGradient
from ._stream import read_draws as read_draws
from ._tempering import ParallelTempering as ParallelTempering
