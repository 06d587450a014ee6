"""Names of classes and functions in files: which are allowed, how they are written and found.

A class of energax is written as `energax:Name` or `energax.<subpackage>:Name`, without the private module
that defines it, so files stay readable when code moves. Names within a subpackage are therefore unique.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pkgutil
import types
from typing import Any

import equinox as eqx

from ..estimate import Estimate
from ..spaces import Space

#: Other packages whose classes may be built: layers, and states of optimizers.
_PACKAGES = ("equinox.nn", "optax")
_FUNCTIONS: dict[str, list[str] | None] = {
    "jax.nn": None,  # all of its public functions
    "jax.numpy": str.split("abs arctan cos cosh exp expm1 log log1p sign sin sinh sqrt square tan tanh"),
    "equinox.nn._mlp": ["_identity"],  # the default activation after the last layer of an MLP
    "jax.lax": str.split("cos exp logistic neg rsqrt sin sqrt square tanh"),
}
#: Names that older versions wrote, and where the class is now.
_RENAMED = {
    "energax.compose:Mixture": "energax:Mixture",
    "energax.compose:Switch": "energax.mixture:Switch",
    "energax.energies:First": "energax.algorithms:InitialMoments",
    "energax.energies:Moments": "energax.algorithms:Moments",
    "energax.energies:Residuals": "energax.algorithms:ResidualMoments",
    "energax.energy:FiniteDistribution": "energax.distributions:FiniteDistribution",
    "energax.energies:LinearChain": "energax.energies:LinearGaussianSSM",
    "energax.energies:Semidefinite": "energax.spaces:Semidefinite",
    "energax.energies:Table": "energax.energies:NGramTable",
    "energax.estimators:Bands": "energax.estimators:ForecastBands",
    "energax.estimators:Forecast": "energax.estimators:HMMForecast",
    "energax.estimators:Monitor": "energax.estimators:ConvergenceMonitor",
    "energax.estimators:Rescale": "energax.estimators:FixedAffine",
    "energax.estimators:Scalar": "energax.estimators:Squeeze",
    "energax.estimators:SeenStandardised": "energax.estimators:StandardiseObserved",
    "energax.estimators:Tilted": "energax.estimators:NetworkPlusGaussian",
}


def public_name(thing: Any) -> str:
    """The name of a class or function in a file.

    >>> from energax.energies import RBM
    >>> public_name(RBM)
    'energax.energies:RBM'
    """
    module, name = thing.__module__, thing.__qualname__
    if not _within(module, ("energax",)):
        return f"{module}:{name}"
    home = "energax" if getattr(_energax(), name, None) is thing else _subpackage(module)
    return f"{home}:{name}"


def is_buildable(cls: Any) -> bool:
    """Whether a class only holds data: modules, spaces, estimators, results."""
    if not isinstance(cls, type):
        return False
    if issubclass(cls, (eqx.Module, Space, Estimate)) or hasattr(cls, "__sklearn_tags__"):
        return True
    return dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))


def find(name: str, classes: dict[str, Any]) -> Any:
    """The class or function of this name; None if files may not use it."""
    if name in classes:
        return classes[name]
    module, _, qualname = name.partition(":")
    # A private class has a name such as _Table; the names with two underscores are Python's own.
    if any(not part.isidentifier() or part.startswith("__") for part in (*module.split("."), qualname)):
        return None
    if _within(module, ("energax",)):
        return _find_in_energax(_subpackage(module), qualname)
    if module in _FUNCTIONS:
        names = _FUNCTIONS[module]
        public = qualname in names if names is not None else not qualname.startswith("_")
        found = getattr(importlib.import_module(module), qualname, None) if public else None
        if callable(found) and not isinstance(found, type):
            return found
    if not _within(module, _PACKAGES):
        return None
    try:
        found = getattr(importlib.import_module(module), qualname, None)
    except Exception:  # a submodule of Optax may fail in any way when it is imported
        return None
    in_equinox = _within(module, ("equinox.nn",))
    if is_buildable(found) and (in_equinox or hasattr(found, "_fields")):
        return found
    # Default functions of layers, such as the identity of an MLP.
    is_function = isinstance(found, types.FunctionType) and found.__module__ == module
    return found if in_equinox and is_function else None


def _within(module: str, packages: tuple[str, ...]) -> bool:
    """Whether a module is one of the packages or in one; `energax_other` is not in `energax`."""
    return any(module == p or module.startswith(p + ".") for p in packages)


def _energax() -> Any:
    return importlib.import_module("energax")


def _subpackage(module: str) -> str:
    """`energax.energies` of `energax.energies._boltzmann.rbm`: the private parts of a path may change."""
    return ".".join(module.split(".")[:2])


def _find_in_energax(module: str, name: str) -> Any:
    module, _, name = _RENAMED.get(f"{module}:{name}", f"{module}:{name}").partition(":")
    if module == "energax":
        found = getattr(_energax(), name, None)
    else:
        found = classes_of(module).get(name)
    return found if is_buildable(found) else None


@functools.cache
def classes_of(module: str) -> dict[str, Any]:
    """The classes defined in a package of energax or in one of its modules, by name."""
    try:
        home = importlib.import_module(module)
    except ImportError:
        return {}
    files = [home]
    for info in pkgutil.walk_packages(getattr(home, "__path__", []), f"{module}."):
        files.append(importlib.import_module(info.name))
    return {cls.__name__: cls for file in files for cls in defined_in(file)}


def defined_in(file: types.ModuleType) -> list[type]:
    """The classes defined in this file."""
    return [v for v in vars(file).values() if isinstance(v, type) and v.__module__ == file.__name__]


@functools.cache
def jax_functions() -> dict[int, str]:
    """The allowed functions of JAX by identity: their `__module__` is not where they are public."""
    out: dict[int, str] = {}
    for module, names in _FUNCTIONS.items():
        home = importlib.import_module(module)
        for name in names or [n for n in dir(home) if not n.startswith("_")]:
            function = getattr(home, name, None)
            if callable(function) and not isinstance(function, type):
                out.setdefault(id(function), f"{module}:{name}")
    return out
