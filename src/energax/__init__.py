"""energax: every model is an energy over named variables.

The names below load when first used, so that `import energax` is light and touches no device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .batch import Batch as Batch
    from .bayes import Bayes as Bayes
    from .bayes import from_numpyro as from_numpyro
    from .bayes import predictive as predictive
    from .energy import Energy as Energy
    from .errors import BadFile as BadFile
    from .errors import BadInput as BadInput
    from .errors import ConvergenceWarning as ConvergenceWarning
    from .errors import Diverged as Diverged
    from .errors import Intractable as Intractable
    from .errors import NotFitted as NotFitted
    from .errors import Unsuitable as Unsuitable
    from .estimate import Estimate as Estimate
    from .evaluate import compare as compare
    from .fitting import Checkpoint as Checkpoint
    from .fitting import Fit as Fit
    from .fitting import fit as fit
    from .fitting import fit_options as fit_options
    from .infer import argmin as argmin
    from .infer import expectation as expectation
    from .infer import log_partition as log_partition
    from .infer import log_prob as log_prob
    from .infer import plan as plan
    from .infer import posterior as posterior
    from .infer import sample as sample
    from .missing import Masked as Masked
    from .mixture import Mixture as Mixture
    from .optimum import constrained as constrained
    from .optimum import curvature as curvature
    from .optimum import whiten as whiten
    from .saving import load as load
    from .saving import save as save
    from .spaces import Binary as Binary
    from .spaces import Categorical as Categorical
    from .spaces import Count as Count
    from .spaces import Interval as Interval
    from .spaces import Ordered as Ordered
    from .spaces import Positive as Positive
    from .spaces import PositiveDefinite as PositiveDefinite
    from .spaces import Real as Real
    from .spaces import Sequence as Sequence
    from .spaces import Simplex as Simplex
    from .spaces import parameter as parameter

_HOME = {
    "batch": ("Batch",),
    "bayes": ("Bayes", "from_numpyro", "predictive"),
    "mixture": ("Mixture",),
    "energy": ("Energy",),
    "errors": (
        "BadFile",
        "BadInput",
        "ConvergenceWarning",
        "Diverged",
        "Intractable",
        "NotFitted",
        "Unsuitable",
    ),
    "estimate": ("Estimate",),
    "evaluate": ("compare",),
    "fitting": ("Checkpoint", "Fit", "fit", "fit_options"),
    "infer": ("argmin", "expectation", "log_partition", "log_prob", "plan", "posterior", "sample"),
    "missing": ("Masked",),
    "optimum": ("constrained", "curvature", "whiten"),
    "saving": ("load", "save"),
    "spaces": (
        "Binary",
        "Categorical",
        "Count",
        "Interval",
        "Ordered",
        "Positive",
        "PositiveDefinite",
        "Real",
        "Sequence",
        "Simplex",
        "parameter",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
_ROOMS = (
    "bayes",
    "catalog",
    "conjugate",
    "data",
    "energies",
    "estimators",
    "graph",
    "infer",
    "kernels",
    "information",
    "learn",
    "nn",
    "plot",
    "samplers",
    "spaces",
)

__all__ = sorted([*_MODULE_OF, *_ROOMS, "__version__"])


def __getattr__(name: str) -> object:
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    elif name in _ROOMS or name in _HOME:
        value = importlib.import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
