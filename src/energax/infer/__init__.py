"""Inference: minima, posteriors, probabilities and draws of hidden variables, and the methods for them."""

from ._exact.closed_form import Exact as Exact
from ._exact.enumeration import Enumeration as Enumeration
from ._functions import argmin as argmin
from ._functions import log_partition as log_partition
from ._functions import log_prob as log_prob
from ._functions import plan as plan
from ._functions import posterior as posterior
from ._functions import sample as sample
from ._graphical.approximate import BeliefPropagation as BeliefPropagation
from ._graphical.approximate import MeanField as MeanField
from ._graphical.conditional_gaussian import ConditionalGaussian as ConditionalGaussian
from ._graphical.likelihood_weighting import LikelihoodWeighting as LikelihoodWeighting
from ._graphical.message_passing import MessagePassing as MessagePassing
from ._graphical.variable_elimination import VariableElimination as VariableElimination
from ._method import Cost as Cost
from ._method import Method as Method
from ._method import Minimum as Minimum
from ._method import Plan as Plan
from ._monte_carlo.ancestral import Ancestral as Ancestral
from ._monte_carlo.annealed import AnnealedImportance as AnnealedImportance
from ._monte_carlo.importance import Importance as Importance
from ._monte_carlo.mcmc import MCMC as MCMC
from ._optimise.lbfgs import LBFGS as LBFGS
from ._posterior import Posterior as Posterior
from ._sequence.forward_backward import ForwardBackward as ForwardBackward
from ._sequence.kalman import Kalman as Kalman
