"""`save` and `load`: energies, fits and estimators as data, never as code.

A file holds arrays (safetensors) and one JSON document that describes how they are nested. Loading builds
only classes of energax and of `equinox.nn`, states of Optax, functions of `jax.nn`, and the classes and
functions that the caller passes in `classes=`.
"""

from ._files import load as load
from ._files import save as save
from ._pickle import pack_state as pack_state
from ._pickle import unpack_state as unpack_state
