"""Programs: functions that are traced once, then interpreted with NumPy or compiled by XLA."""

from ._cache import clear, forget_calls
from ._cost import MOST_NUMBERS
from ._engine import engine, interpreted, run_on_one_engine, use_engine
from ._jit import jit, jit_to_numpy

__all__ = [
    "MOST_NUMBERS",
    "clear",
    "engine",
    "forget_calls",
    "interpreted",
    "jit",
    "jit_to_numpy",
    "run_on_one_engine",
    "use_engine",
]
