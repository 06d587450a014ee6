"""Encoders, generators, flows, multilayer perceptrons and their reinitialisation, on top of Equinox."""

from ._encoder import BernoulliEncoder as BernoulliEncoder
from ._encoder import CategoricalEncoder as CategoricalEncoder
from ._encoder import Encoder as Encoder
from ._flow_bijection import ActNorm as ActNorm
from ._flow_bijection import Bijection as Bijection
from ._flow_bijection import Composed as Composed
from ._flow_bijection import Conv1x1 as Conv1x1
from ._flow_bijection import Inverted as Inverted
from ._flow_bijection import LULinear as LULinear
from ._flow_bijection import Permutation as Permutation
from ._flow_bijection import Repeated as Repeated
from ._flow_coupling import Coupling as Coupling
from ._flow_coupling import InverseAutoregressive as InverseAutoregressive
from ._flow_coupling import MaskedAutoregressive as MaskedAutoregressive
from ._flow_coupling import MaskedNetwork as MaskedNetwork
from ._flow_distribution import FlowDistribution as FlowDistribution
from ._flow_distribution import FlowEncoder as FlowEncoder
from ._flow_distribution import flow_layers as flow_layers
from ._flow_transform import AffineTransform as AffineTransform
from ._flow_transform import SplineTransform as SplineTransform
from ._flow_transform import Transform as Transform
from ._generator import Generator as Generator
from ._network import mlp as mlp
from ._network import reinitialise as reinitialise
