"""`save` and `load`: energies, fits and estimators as data, never as code.

A file holds arrays (safetensors) and one JSON document that says how they are nested. Loading
builds only what this module can name: classes of energax, of `equinox.nn`, the states of
Optax, functions of `jax.nn`, and whatever the caller hands over in `classes=`.
"""

from ._files import load as load
from ._files import save as save
from ._pickle import picklable as picklable
from ._pickle import unpickled as unpickled
