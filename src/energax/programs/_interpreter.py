"""The interpreter: a jaxpr as a list of NumPy calls.

`lower` translates each equation once into a Python function with its parameters bound. A step costs about two
microseconds besides NumPy's own time. Nothing is compiled, and no memory maps are held. Results equal those
of XLA up to rounding; random bits are equal.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from .._util.blas import limit_blas
from . import _elementwise, _indexing, _linear_algebra, _randomness, _shapes
from ._cost import LARGE_PRODUCT, Meter, interpretation
from ._rule import Rule, Unsupported

RULES: dict[str, Rule] = {
    **_elementwise.RULES,
    **_shapes.RULES,
    **_indexing.RULES,
    **_linear_algebra.RULES,
    **_randomness.RULES,
}

#: Primitives that call a jaxpr, and the parameter that holds it. Its equations join those of the caller.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
}
#: Other primitives that are replaced by the equations of a jaxpr.
EXPANDED = ("custom_linear_solve", "random_gamma")
#: Primitives that return their argument if it has the type of the result.
UNCHANGED = {
    "broadcast_in_dim",
    "convert_element_type",
    "copy",
    "expand_dims",
    "reshape",
    "squeeze",
    "stop_gradient",
}


class Step(NamedTuple):
    """One equation: the slots `outputs` get `function` of the slots `inputs`."""

    function: Callable[..., Any]
    several: bool  # whether the function returns a sequence of arrays
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtypes: tuple[np.dtype, ...]
    seconds: float
    last_uses: tuple[int, ...] = ()  # slots of large arrays that no later step reads


#: The fewest numbers of an array that is freed after its last use: junction trees took five times the memory.
LARGE = 2**14
#: The most numbers that depend on fixed arguments alone and are kept for the next call.
MOST_KEPT = 2**14


def lower(
    jaxpr: core.ClosedJaxpr, meter: Meter, n_fixed: int = 0
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """Return a function that evaluates the jaxpr with NumPy. Raise `Unsupported` if a primitive has no rule.

    Random keys are arrays of uint64 inside (`_randomness.pack`). A run adds its estimated time to the meter,
    which raises `TooLong` past its limit. What depends on the first `n_fixed` arguments alone is kept for the
    next call with the same arrays, which must not change: `predict` of a mixture then runs 11 of 28 steps.

    >>> import jax.numpy as jnp
    >>> jaxpr = jax.make_jaxpr(lambda x: jnp.cumsum(x) ** 2)(np.arange(3.0, dtype=np.float32))
    >>> lower(jaxpr, Meter())([np.arange(3.0, dtype=np.float32)])
    [array([0., 1., 9.], dtype=float32)]
    """
    block = Block(jaxpr, n_fixed, meter)
    threads = (lambda: limit_blas(1)) if meter.has_large_product else contextlib.nullcontext
    kept: dict[Any, Any] = {}

    def evaluate(arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        meter.prepared.update(kept)
        try:
            with np.errstate(all="ignore"), threads():
                prepared = block.prepare(list(arguments[:n_fixed]))
                return block.run(prepared, list(arguments[n_fixed:]))
        finally:
            _keep(kept, block, meter.prepared.get(block))
            meter.prepared.clear()

    return evaluate


def _keep(kept: dict[Any, Any], block: Block, entry: Any) -> None:
    """Keep what a block has prepared for the next call, if it is small. Protect it: results may view it."""
    if entry is None or entry is kept.get(block):
        return
    arrays = [value for value in entry[1] if isinstance(value, np.ndarray)]
    if sum(value.size for value in arrays) > MOST_KEPT:
        kept.clear()
        return
    for value in arrays:
        value.flags.writeable = False
    kept[block] = entry


class Block:
    """A jaxpr as steps. Its first `n_fixed` arguments stay the same while it runs many times, as in a loop.

    `prepare(fixed)` computes what depends on these alone, `run(prepared, others)` the rest.
    """

    def __init__(self, jaxpr: Any, n_fixed: int, meter: Meter) -> None:
        self._meter = meter
        self._template: list[Any] = []  # one value per slot; None where it is computed
        self._known: dict[Any, tuple[int, ...]] = {}  # the slots of literals and of repeated equations
        self._large: set[int] = set()  # the slots of large arrays that are computed
        inner, constants = _open(jaxpr)
        slots = {v: self._add_slot(c) for v, c in zip(inner.constvars, constants, strict=True)}
        first = len(self._template)
        slots |= {v: self._add_slot(None) for v in inner.invars}
        self._fixed = slice(first, first + n_fixed)
        self._others = slice(first + n_fixed, len(self._template))
        steps: list[Step] = []
        self._translate(inner.eqns, slots, steps)
        self._results = [self._slot(v, slots) for v in inner.outvars]
        constant, self._before, after = self._split(steps)
        self._steps = _with_last_uses(after, self._large.difference(self._results))
        self._seconds = sum(step.seconds for step in self._steps)
        self._run(constant, self._template)
        self._before_of: dict[frozenset[int], list[Step]] = {}  # steps that depend on some fixed arguments

    def prepare(self, fixed: list[Any]) -> list[Any]:
        """The values that depend on the fixed arguments; those of unchanged arguments from the last time."""
        known = self._meter.prepared.get(self)
        last, values = known or ([None] * len(fixed), self._template)
        first = self._fixed.start
        changed = frozenset(first + i for i, (a, b) in enumerate(zip(fixed, last, strict=True)) if a is not b)
        if changed:
            values = values.copy()
            values[self._fixed] = fixed
            if changed not in self._before_of:
                self._before_of[changed] = _depending(self._before, changed)
            self._run(self._before_of[changed], values)
        if changed or known is None:
            self._meter.prepared[self] = fixed, values
        return values

    def _run(self, steps: list[Step], values: list[Any]) -> None:
        self._meter.add(sum(step.seconds for step in steps))
        with np.errstate(all="ignore"):
            _execute(steps, values)

    def run(self, prepared: list[Any], others: list[Any]) -> list[Any]:
        values = prepared.copy()
        values[self._others] = others
        self._meter.add(self._seconds)
        _execute(self._steps, values)
        return [values[i] for i in self._results]

    def _add_slot(self, value: Any) -> int:
        self._template.append(value)
        return len(self._template) - 1

    def _slot(self, variable: Any, slots: dict[Any, int]) -> int:
        if not isinstance(variable, core.Literal):
            return slots[variable]
        value = np.asarray(variable.val, _dtype(variable.aval))
        key = value.dtype, value.shape, value.tobytes()
        if key not in self._known:
            self._known[key] = (self._add_slot(value),)
        return self._known[key][0]

    def _translate(self, equations: Sequence[Any], slots: dict[Any, int], steps: list[Step]) -> None:
        for equation in equations:
            name, parameters = equation.primitive.name, equation.params
            inputs = tuple(self._slot(v, slots) for v in equation.invars)
            if name in CALLS or name in EXPANDED:
                called, inputs = _called(equation, inputs)
                inner, constants = _open(called)
                inside = dict(zip(inner.invars, inputs, strict=True))
                inside |= {v: self._add_slot(c) for v, c in zip(inner.constvars, constants, strict=True)}
                self._translate(inner.eqns, inside, steps)
                outputs = tuple(self._slot(v, inside) for v in inner.outvars)
                slots.update(zip(equation.outvars, outputs, strict=True))
                continue
            avals = [v.aval for v in equation.outvars]
            if name in UNCHANGED and _is_unchanged(equation):
                slots[equation.outvars[0]] = inputs[0]
                continue
            key = name, inputs, _hashable(parameters)
            if key in self._known:
                slots.update(zip(equation.outvars, self._known[key], strict=True))
                continue
            function = self._find_function(equation)
            several = name in CONTROL or equation.primitive.multiple_results
            outputs = self._known[key] = tuple(self._add_slot(None) for _ in avals)
            slots.update(zip(equation.outvars, outputs, strict=True))
            self._large.update(i for i, aval in zip(outputs, avals, strict=True) if aval.size >= LARGE)
            dtypes = tuple(map(_dtype, avals))
            seconds = interpretation(equation)
            self._meter.has_large_product |= name == "dot_general" and seconds > LARGE_PRODUCT
            steps.append(Step(function, several, inputs, outputs, dtypes, seconds))

    def _find_function(self, equation: Any) -> Callable[..., Any]:
        """The NumPy function of an equation; raise `Unsupported` if there is none."""
        name, parameters = equation.primitive.name, equation.params
        try:
            if name in CONTROL:
                return CONTROL[name](parameters, self._meter)
            if name in RULES:
                avals = [v.aval for v in equation.outvars]
                return RULES[name](parameters, avals, [v.aval for v in equation.invars])
        except (KeyError, AttributeError) as error:  # another version of JAX has other parameters
            raise Unsupported(f"{name} without {error}") from error
        raise Unsupported(name)

    def _split(self, steps: list[Step]) -> tuple[list[Step], list[Step], list[Step]]:
        """(steps that depend on constants, those on fixed arguments too, others); without unused ones."""
        needed = set(self._results)
        used = []
        for step in reversed(steps):
            if not needed.isdisjoint(step.outputs):
                needed.update(step.inputs)
                used.append(step)
        used.reverse()
        after = _depending(used, range(self._others.start, self._others.stop))
        before = _depending(used, range(self._fixed.start, self._fixed.stop))
        later = set(map(id, after))
        before = [step for step in before if id(step) not in later]
        later |= set(map(id, before))
        return [step for step in used if id(step) not in later], before, after


def _depending(steps: list[Step], slots: Iterable[int]) -> list[Step]:
    """The steps that depend on these slots."""
    changing, found = set(slots), []
    for step in steps:
        if not changing.isdisjoint(step.inputs):
            changing.update(step.outputs)
            found.append(step)
    return found


def _with_last_uses(steps: list[Step], large: set[int]) -> list[Step]:
    """The steps, each with those of the large slots that it is the last to read or to write."""
    found, seen = [], set[int]()
    for step in reversed(steps):
        last = large.intersection(step.inputs + step.outputs) - seen
        seen |= last
        found.append(step._replace(last_uses=tuple(last)))
    return found[::-1]


def _execute(steps: list[Step], values: list[Any]) -> None:
    for function, several, inputs, outputs, dtypes, _, last_uses in steps:
        found = function(*[values[i] for i in inputs])
        if several:
            for place, dtype, value in zip(outputs, dtypes, found, strict=True):
                values[place] = value if value.dtype == dtype else value.astype(dtype)
        else:
            dtype = dtypes[0]
            values[outputs[0]] = found if found.dtype == dtype else found.astype(dtype)
        for i in last_uses:
            values[i] = None


def _called(equation: Any, inputs: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """(the jaxpr that an equation stands for, the slots of its arguments)."""
    name, parameters = equation.primitive.name, equation.params
    if name == "custom_linear_solve":
        lengths = parameters["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        constants, b = inputs[first : first + lengths.solve], inputs[sum(lengths) :]
        return parameters["jaxprs"].solve, constants + b
    if name == "random_gamma":  # a function of JAX, which draws for all rows at once
        function = functools.partial(equation.primitive.impl, use_vmap=True, **parameters)
        return jax.make_jaxpr(function)(*[v.aval for v in equation.invars]), inputs
    return parameters[CALLS[name]], inputs


def _open(jaxpr: Any) -> tuple[core.Jaxpr, list[Any]]:
    """(the jaxpr, its constants as NumPy arrays)."""
    if isinstance(jaxpr, core.ClosedJaxpr):
        return jaxpr.jaxpr, [np.asarray(_randomness.pack(c)) for c in jaxpr.consts]
    return jaxpr, []


def _hashable(parameters: dict[str, Any]) -> Any:
    """The parameters of an equation as a key: equal ones for equal equations, if they can be hashed."""
    key = tuple(parameters.items())
    try:
        hash(key)
    except TypeError:
        return object()
    return key


def _is_unchanged(equation: Any) -> bool:
    before, after = equation.invars[0].aval, equation.outvars[0].aval
    turned = equation.params.get("dimensions") if equation.primitive.name == "reshape" else None
    return turned is None and (before.shape, before.dtype) == (after.shape, after.dtype)


def _dtype(aval: Any) -> np.dtype:
    if jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key):
        return _randomness.PACKED
    dtype = np.dtype(aval.dtype)
    if dtype.kind not in "biuf" and dtype != jax.numpy.bfloat16:
        raise Unsupported(f"numbers of type {dtype}")
    return dtype


# -- loops and branches ------------------------------------------------------------------------------------


def _while(parameters: dict[str, Any], meter: Meter) -> Callable[..., Any]:
    n_condition, n_body = parameters["cond_nconsts"], parameters["body_nconsts"]
    condition = Block(parameters["cond_jaxpr"], n_condition, meter)
    body = Block(parameters["body_jaxpr"], n_body, meter)

    def run(*arguments: Any) -> list[Any]:
        of_condition = condition.prepare(list(arguments[:n_condition]))
        of_body = body.prepare(list(arguments[n_condition : n_condition + n_body]))
        carry = list(arguments[n_condition + n_body :])
        while np.any(running := condition.run(of_condition, carry)[0]):
            new = body.run(of_body, carry)
            # Under `vmap` each row has its own condition, and rows that are done keep their values.
            carry = new if running.all() else [_where(running, a, b) for a, b in zip(new, carry, strict=True)]
        return carry

    return run


def _where(running: np.ndarray, new: np.ndarray, old: np.ndarray) -> np.ndarray:
    return np.where(running.reshape(running.shape + (1,) * (new.ndim - running.ndim)), new, old)


def _scan(parameters: dict[str, Any], meter: Meter) -> Callable[..., Any]:
    length = parameters["length"]
    n_constants, n_carry = _scan_counts(parameters)
    body = Block(parameters["jaxpr"], n_constants, meter)
    avals = parameters["jaxpr"].out_avals[n_carry:]
    steps = range(length - 1, -1, -1) if parameters["reverse"] else range(length)

    def run(*arguments: Any) -> list[Any]:
        prepared = body.prepare(list(arguments[:n_constants]))
        carry = list(arguments[n_constants : n_constants + n_carry])
        rows = arguments[n_constants + n_carry :]
        stacked = [np.empty((length, *aval.shape), _dtype(aval)) for aval in avals]
        for i in steps:
            found = body.run(prepared, carry + [row[i] for row in rows])
            carry = found[:n_carry]
            for out, value in zip(stacked, found[n_carry:], strict=True):
                out[i] = value
        return carry + stacked

    return run


def _scan_counts(parameters: dict[str, Any]) -> tuple[int, int]:
    """(the number of constants, of carried arrays) among the arguments of a scan."""
    if "num_consts" in parameters:
        return parameters["num_consts"], parameters["num_carry"]
    constants, carry, _ = parameters["ft_in"].unpack()  # from JAX 0.11 on
    return len(constants), len(carry)


def _cond(parameters: dict[str, Any], meter: Meter) -> Callable[..., Any]:
    branches = [Block(branch, 0, meter) for branch in parameters["branches"]]
    prepared: dict[int, list[Any]] = {}

    def run(index: Any, *arguments: Any) -> list[Any]:
        i = min(max(int(index), 0), len(branches) - 1)
        if i not in prepared:
            prepared[i] = branches[i].prepare([])
        return branches[i].run(prepared[i], list(arguments))

    return run


CONTROL: dict[str, Callable[[dict[str, Any], Meter], Callable[..., Any]]] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
}
