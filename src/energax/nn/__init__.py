"""Encoders, generators, flows, and networks of vectors, images and sets, on top of Equinox.

Every network here maps one vector to a vector or a scalar, so that any model takes any network of its
shape: `mlp` for tables and binary vectors, `conv_network` and `deconv_network` for small images,
`set_network` for sets.

Layers of Equinox and activations of JAX are used as they are, in an `equinox.nn.Sequential`:

- activations: `jax.nn.relu`, `leaky_relu`, `elu`, `silu`, `softplus`; `jax.numpy.abs` (absolute value
  rectification); `equinox.nn.PReLU` (a learned slope), within an `equinox.nn.Lambda`;
- normalisation: `equinox.nn.LayerNorm`, `GroupNorm`, `RMSNorm`, `WeightNorm`; here
  `LocalResponseNorm`, and `BatchNorm`, whose statistics follow the batches in
  `energax.learn.BatchStatistics`, or come from `calibrate`. `equinox.nn.BatchNorm` needs a state, which
  energies do not have;
- `equinox.nn.Dropout(p, inference=True)`, which `energax.learn.Dropout` turns on while it learns;
- pooling: `equinox.nn.MaxPool2d`, `AvgPool2d`, `AdaptiveAvgPool2d`; of sets, `SetPool`;
- convolutions: `equinox.nn.Conv2d`, `ConvTranspose2d`, between `ToImage` and `FromImage`;
- masked layers: `MaskedNetwork`; invertible ones: `Coupling`, `Conv1x1`, `LULinear`, `ActNorm`,
  `InvertibleBatchNorm`.
"""

from ._autoencoder import EncoderDecoder as EncoderDecoder
from ._autoencoder import TiedLayers as TiedLayers
from ._batch_norm import BatchNorm as BatchNorm
from ._batch_norm import InvertibleBatchNorm as InvertibleBatchNorm
from ._batch_norm import calibrate as calibrate
from ._blocks import LocalResponseNorm as LocalResponseNorm
from ._blocks import Maxout as Maxout
from ._blocks import Reshape as Reshape
from ._blocks import Residual as Residual
from ._blocks import SetLayer as SetLayer
from ._blocks import SetPool as SetPool
from ._blocks import set_network as set_network
from ._convolution import FromImage as FromImage
from ._convolution import ToImage as ToImage
from ._convolution import conv_network as conv_network
from ._convolution import deconv_network as deconv_network
from ._convolution import residual_block as residual_block
from ._encoder import BernoulliEncoder as BernoulliEncoder
from ._encoder import CategoricalEncoder as CategoricalEncoder
from ._encoder import ConditionalEncoder as ConditionalEncoder
from ._encoder import Encoder as Encoder
from ._encoder import embed_value as embed_value
from ._encoder import embedded_size as embedded_size
from ._encoder import gaussian_of as gaussian_of
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
from ._ladder import LadderDistribution as LadderDistribution
from ._ladder import LadderEncoder as LadderEncoder
from ._network import mlp as mlp
from ._network import reinitialise as reinitialise
from ._pretrain import Code as Code
from ._pretrain import HiddenMeans as HiddenMeans
from ._pretrain import Pretrained as Pretrained
from ._pretrain import pretrain as pretrain
