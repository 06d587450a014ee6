"""An energy that is any function of one variable."""

import equinox as eqx

from energax import Energy


class Given(Energy):
    """Any function of one variable."""

    function: object = eqx.field(static=True)
    space: object = eqx.field(static=True)

    @property
    def spaces(self):
        return {"x": self.space}

    def __call__(self, *, x):
        return self.function(x)
