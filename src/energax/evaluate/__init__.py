"""Estimates with intervals, and models compared on the same held-out rows."""

from ._calibration import Calibration as Calibration
from ._calibration import simulation_based_calibration as simulation_based_calibration
from ._compare import compare as compare
from ._evidence import EvidenceComparison as EvidenceComparison
from ._evidence import compare_evidence as compare_evidence
from ._intervals import bootstrap as bootstrap
from ._intervals import mean_interval as mean_interval
from ._intervals import paired_difference as paired_difference
from ._model_specs import ModelSpec as ModelSpec
from ._model_specs import model_specs as model_specs
from ._result import Comparison as Comparison
from ._result import Score as Score
from ._split import hold_out as hold_out
