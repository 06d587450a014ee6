"""Chains that leave p ∝ exp(−e) as it is."""

from ._gibbs import Gibbs as Gibbs
from ._sampler import Sampler as Sampler
