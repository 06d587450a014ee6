"""The training loop: batches, restarts, stopping rules, checkpoints, devices."""

from ._batching import ValidatedRows as ValidatedRows
from ._batching import check_rows as check_rows
from ._batching import check_weights as check_weights
from ._checkpoint import Checkpoint as Checkpoint
from ._learner import MONITOR as MONITOR
from ._learner import Learner as Learner
from ._learner import check_setting as check_setting
from ._loop import fit as fit
from ._options import fit_options as fit_options
from ._result import Fit as Fit
