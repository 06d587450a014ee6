"""What values a variable, or a parameter, may take.

A space checks values at the door, lists them when it is finite, and carries the bijection
to ℝⁿ through which descent and samplers move (NumPyro's `biject_to`).
"""

from .._util.fields import declared as declared
from .._util.fields import fixed as fixed
from .._util.fields import is_concrete as is_concrete
from .._util.fields import parameter as parameter
from ._counted import Binary as Binary
from ._counted import Categorical as Categorical
from ._counted import Count as Count
from ._real import Interval as Interval
from ._real import Positive as Positive
from ._real import PositiveDefinite as PositiveDefinite
from ._real import Real as Real
from ._real import Simplex as Simplex
from ._semidefinite import Semidefinite as Semidefinite
from ._sequence import Sequence as Sequence
from ._space import Space as Space
