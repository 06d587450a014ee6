"""Encoders, generators, multilayer perceptrons and the reinitialisation of networks, on top of Equinox."""

from ._encoder import BernoulliEncoder as BernoulliEncoder
from ._encoder import CategoricalEncoder as CategoricalEncoder
from ._encoder import Encoder as Encoder
from ._generator import Generator as Generator
from ._network import mlp as mlp
from ._network import reinitialise as reinitialise
