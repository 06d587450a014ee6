"""Encoders, generators, multilayer perceptrons and the reinitialisation of networks, on top of Equinox."""

from ._autoencoder import EncoderDecoder as EncoderDecoder
from ._autoencoder import TiedLayers as TiedLayers
from ._encoder import BernoulliEncoder as BernoulliEncoder
from ._encoder import CategoricalEncoder as CategoricalEncoder
from ._encoder import ConditionalEncoder as ConditionalEncoder
from ._encoder import Encoder as Encoder
from ._encoder import embed_value as embed_value
from ._encoder import embedded_size as embedded_size
from ._generator import Generator as Generator
from ._network import mlp as mlp
from ._network import reinitialise as reinitialise
from ._pretrain import Code as Code
from ._pretrain import HiddenMeans as HiddenMeans
from ._pretrain import Pretrained as Pretrained
from ._pretrain import pretrain as pretrain
