"""Given some of the variables, find the others: one method a file, and a choice among them."""

from ._ancestral import Ancestral as Ancestral
from ._annealed import AnnealedImportance as AnnealedImportance
from ._approximate import BeliefPropagation as BeliefPropagation
from ._approximate import MeanField as MeanField
from ._chain_methods import ForwardBackward as ForwardBackward
from ._chains import Chains as Chains
from ._conditional_gaussian import ConditionalGaussian as ConditionalGaussian
from ._dispatch import argmin as argmin
from ._dispatch import log_partition as log_partition
from ._dispatch import log_prob as log_prob
from ._dispatch import plan as plan
from ._dispatch import posterior as posterior
from ._dispatch import sample as sample
from ._enumeration import Enumeration as Enumeration
from ._exact import Exact as Exact
from ._importance import Importance as Importance
from ._lbfgs import LBFGS as LBFGS
from ._likelihood_weighting import LikelihoodWeighting as LikelihoodWeighting
from ._message_passing import MessagePassing as MessagePassing
from ._method import Cost as Cost
from ._method import Method as Method
from ._method import Minimum as Minimum
from ._method import Plan as Plan
from ._posterior import Posterior as Posterior
from ._states import Kalman as Kalman
from ._variable_elimination import VariableElimination as VariableElimination
