"""Models, one family a file."""

from ._boltzmann import RBM as RBM
