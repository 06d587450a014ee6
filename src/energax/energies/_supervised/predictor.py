"""`Predictor`: the base of energies of y given x."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput


class Predictor(Energy):
    """The base class of classifiers and regressors: energies of y, with x as an input.

    The distribution of x is not modelled. A subclass has p(y | x) in closed form.
    """

    inputs = frozenset({"x"})

    @abstractmethod
    def distribution(self, x: Any) -> Any:
        """p(y | x), a NumPyro distribution."""

    @plain_method
    def knows(self, what, names=None):
        if what in ("conditional", "draw"):
            return names is not None and set(names) == {"x"}
        return super().knows(what, names)

    def conditional(self, name, **given):
        if name != "y" or set(given) != {"x"}:
            raise BadInput("conditional", f"{name!r} given {sorted(given)}", "'y' given only 'x'")
        return self.distribution(given["x"])

    def draw(self, key, **given):
        return {"y": self.conditional("y", **given).sample(key)}
