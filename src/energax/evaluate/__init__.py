"""Numbers that admit their uncertainty, and models compared on one held-out scale."""

from ._compare import Comparison as Comparison
from ._compare import Score as Score
from ._compare import compare as compare
from ._compare import contenders as contenders
from ._intervals import bootstrap as bootstrap
from ._intervals import mean_interval as mean_interval
from ._intervals import paired_difference as paired_difference
from ._split import hold_out as hold_out
