"""Spaces: the values that a variable, or a parameter, may take.

A space validates values, lists them if it is finite, and has the bijection to ℝⁿ through which descent and
samplers change them (NumPyro's `biject_to`).
"""

from .._util.fields import field_metadata as field_metadata
from .._util.fields import fixed as fixed
from .._util.fields import is_concrete as is_concrete
from .._util.fields import parameter as parameter
from .._util.fields import running as running
from ._constrained import Constrained as Constrained
from ._constrained import space_of as space_of
from ._counted import Binary as Binary
from ._counted import Categorical as Categorical
from ._counted import Count as Count
from ._frames import as_columns as as_columns
from ._real import Interval as Interval
from ._real import Ordered as Ordered
from ._real import Positive as Positive
from ._real import PositiveDefinite as PositiveDefinite
from ._real import Real as Real
from ._real import Simplex as Simplex
from ._semidefinite import Semidefinite as Semidefinite
from ._sequence import Sequence as Sequence
from ._space import Space as Space
