"""Rules of the interpreter: every primitive gives what XLA gives."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
import rule_cases
import rule_cases_arrays

from energax.programs._cost import Meter
from energax.programs._interpreter import CALLS, CONTROL, EXPANDED, RULES, lower

#: Names of the same call in other versions of JAX.
OTHER_NAMES = {"pjit", "core_call", "closed_call", "remat2", "checkpoint", "custom_vjp_call_jaxpr"}
TABLES = (rule_cases.UNARY, rule_cases.BINARY, rule_cases.REDUCTIONS, rule_cases_arrays.CASES)
#: Where precision matters: also in double precision.
DOUBLE = {
    "unary": rule_cases.UNARY,
    "binary": rule_cases.BINARY,
    "reductions": rule_cases.REDUCTIONS,
    "matrices": rule_cases_arrays.MATRICES,
    "random": rule_cases_arrays.RANDOM,
}
SHORT = (np.float16, ml_dtypes.bfloat16)
NAMES = sorted({name for table in TABLES for name in table})
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}

#: Functions that XLA computes less precisely.
LESS_PRECISE = {"lgamma": 10, "digamma": 10, "random_gamma": 10}
#: The sign of a zero differs: of two equal numbers XLA returns the other one.
EITHER_ZERO = {"bessel_i1e", "cumsum", "erf_inv", "max", "min", "reduce_max", "reduce_min", "sign"}


def cases_of(name):
    return [case for table in TABLES for case in table.get(name, ())]


def primitives(jaxpr):
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in inner.eqns:
        yield equation.primitive.name
        for parameter in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            if hasattr(parameter, "eqns") or hasattr(parameter, "jaxpr"):
                yield from primitives(parameter)


def check_equal(found, expected, name, case):
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype), case
    tolerance = TOLERANCE.get(str(found.dtype), 0) * LESS_PRECISE.get(name, 1)
    wide = [a.astype(np.float64) if tolerance else a for a in (found, expected)]
    np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance / 10, err_msg=case)
    if tolerance and name not in EITHER_ZERO:
        zero = wide[1] == 0
        np.testing.assert_array_equal(*[np.signbit(a[zero]) for a in wide], err_msg=f"zeros of {case}")


def compare(cases):
    """Interpret and compile all (name, (function, *arguments)) as one program."""
    arguments = [arguments for _, (_, *arguments) in cases]
    together = lambda arguments: [f(*a) for (_, (f, *_)), a in zip(cases, arguments, strict=True)]
    jaxpr = jax.make_jaxpr(together)(arguments)
    missing = {name for name, _ in cases} - OTHER_NAMES - set(primitives(jaxpr))
    assert not missing, "the cases do not contain the primitive"
    found = lower(jaxpr, Meter())([np.asarray(a) for a in jax.tree.leaves(arguments)])
    expected = jax.jit(together)(arguments)
    ends = np.cumsum([len(jax.tree.leaves(e)) for e in expected])
    for i, (value, reference) in enumerate(zip(found, jax.tree.leaves(expected), strict=True)):
        number = int(np.searchsorted(ends, i, "right"))
        name, (_, *inputs) = cases[number]
        check_equal(value, reference, name, f"{name}, case {number} of {inputs}")


def test_every_rule_has_a_case():
    own = {"require"}  # a primitive of energax, which XLA does not have
    assert set(RULES) - own | set(CONTROL) | set(EXPANDED) | set(CALLS) - OTHER_NAMES <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_agrees_with_xla(name):
    compare([(name, case) for case in cases_of(name)])


@pytest.mark.parametrize("table", DOUBLE)
def test_rules_agree_with_xla_in_double_precision(table):
    widen = lambda a: a.astype(np.float64) if getattr(a, "dtype", None) == np.float32 else a
    cases = [(name, [f, *map(widen, a)]) for name, group in DOUBLE[table].items() for f, *a in group]
    with jax.enable_x64(True):
        compare([case for case in cases if all(getattr(a, "dtype", None) not in SHORT for a in case[1][1:])])
