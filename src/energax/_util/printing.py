"""The repr of modules."""

from __future__ import annotations

import re
from typing import Any


def pretty_repr(module: Any) -> str:
    """A module as Equinox prints it, without the addresses of functions."""
    import equinox as eqx

    text = eqx.tree_pformat(module)
    text = re.sub(r"<PjitFunction of <function (\S+) at 0x[0-9a-f]+>>", r"<function \1>", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)
