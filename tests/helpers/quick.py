"""Small computations of tests as one program instead of one compiled program for each operation."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from energax.programs import jit


def evaluate(function: Callable[[], Any]) -> Any:
    """function(), traced as a whole. `energax.programs` interprets small work, so that nothing is compiled.

    Called as it is, every operation of JAX compiles a program for the shapes of its arguments, which takes
    tens of milliseconds each.
    """
    return jit(function)()


def default_compiler() -> dict[str, Any]:
    """`compiler_options` of `jax.jit` with which XLA generates the code that users get.

    conftest.py chooses another code generator for all programs.
    """
    flag = "xla_cpu_use_fusion_emitters"
    return {flag: True} if flag in os.environ.get("XLA_FLAGS", "") else {}
