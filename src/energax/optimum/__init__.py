"""Optima: minima under constraints, curvature at a point, and whitening of inputs."""

from ._certificate import Certificate as Certificate
from ._certificate import Multipliers as Multipliers
from ._constrained import ConstrainedMinimum as ConstrainedMinimum
from ._constrained import constrained as constrained
from ._curvature import Curvature as Curvature
from ._curvature import curvature as curvature
from ._whiten import Whitening as Whitening
from ._whiten import whiten as whiten

__all__ = [
    "Certificate",
    "ConstrainedMinimum",
    "Curvature",
    "Multipliers",
    "Whitening",
    "constrained",
    "curvature",
    "whiten",
]
