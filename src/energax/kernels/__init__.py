"""Kernels: positive semi-definite functions k(x, y), which add and multiply.

>>> import numpy as np
>>> kernel = 2.0 * RBF(length_scale=[0.5, 3.0]) + White(0.1)
>>> kernel.matrix(np.zeros((4, 2))).shape
(4, 4)
"""

from ._dot_product import Linear as Linear
from ._dot_product import Polynomial as Polynomial
from ._kernel import Constant as Constant
from ._kernel import Kernel as Kernel
from ._kernel import Product as Product
from ._kernel import Sum as Sum
from ._kernel import White as White
from ._stationary import RBF as RBF
from ._stationary import Matern as Matern
from ._stationary import Periodic as Periodic
from ._stationary import RationalQuadratic as RationalQuadratic
