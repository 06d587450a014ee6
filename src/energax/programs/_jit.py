"""`jit`: a function as programs, one for every structure of its arguments.

A program is first interpreted with NumPy (`_interpreter`): that starts at once and leaves nothing behind.
When its calls have taken about twice as long as compiling it would, or one call half as long, XLA compiles
it. All programs are in one cache of limited size (`_cache`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from .._util.garbage import pause_garbage_collection
from . import _cache, _randomness
from ._cost import Meter, TooLong, compilation
from ._engine import attempt, engine, trace_for_numpy
from ._interpreter import MOST_KEPT, Unsupported, lower

P = ParamSpec("P")
R = TypeVar("R")

_DISABLE_JIT = "jax_disable_jit"
#: Settings of JAX that change a trace.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_threefry_partitionable",
    "jax_debug_nans",
)


#: How many times as long as compiling takes a program may be interpreted, in all calls. A compiled call still
#: takes time, about half as much: after twice the time the difference would have paid.
_PATIENCE = 2.0
#: The part of that time that one call or fit may take.
_LONGEST = 0.25
#: The most structures of arguments for which a function remembers what takes too long.
_MOST_KINDS = 256
#: Seconds of a call that matter for the choice of an engine for a whole fit.
_LONG = 5e-3

with jax.core.eval_context():
    _NO_TRACE = get_opaque_trace_state()


class Jit(Generic[P, R]):
    """A function whose calls run as programs."""

    def __init__(self, function: Callable[P, R], to_numpy: bool = False) -> None:
        self.function, self.to_numpy = function, to_numpy
        self._too_long: dict[Any, int] = {}  # the least numbers, by structure and constants of the arguments
        functools.update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        leaves, structure = jax.tree.flatten((args, kwargs))
        if getattr(jax.config, _DISABLE_JIT) or get_opaque_trace_state() != _NO_TRACE:
            return self.function(*args, **kwargs)
        dynamic = [eqx.is_array(leaf) for leaf in leaves]
        arrays = [leaf for leaf, is_array in zip(leaves, dynamic, strict=True) if is_array]
        key = (self, structure, tuple(map(_describe, leaves, dynamic)), _settings())
        program = _cache.find(key)
        if program is None:
            memory = self._remember(leaves, dynamic, structure)
            program = _cache.insert(key, Program(self.function, structure, leaves, dynamic, memory))
        return program(arrays, self.to_numpy)

    def _remember(self, leaves: Sequence[Any], dynamic: Sequence[bool], structure: Any) -> Memory:
        """Return the record of programs of this structure and these constants that took too long."""
        constants = tuple(_describe(leaf, False) for leaf, d in zip(leaves, dynamic, strict=True) if not d)
        numbers = sum(leaf.size for leaf, d in zip(leaves, dynamic, strict=True) if d)
        return Memory(self._too_long, (structure, constants), numbers)


def jit(function: Callable[P, R]) -> Jit[P, R]:
    """Decorate a function of trees: arrays are traced, everything else is constant and must be hashable.

    As `equinox.filter_jit`, with two differences: small work is interpreted with NumPy, and old programs are
    freed. Inside another transformation the function is called as it is.

    >>> import jax.numpy as jnp
    >>> @jit
    ... def scale(x, power):
    ...     return {"x": 2 * x**power, "power": power}
    >>> scale(jnp.arange(3.0), 2)
    {'power': 2, 'x': Array([0., 2., 8.], dtype=float32)}
    """
    return Jit(function)


def jit_to_numpy(function: Callable[P, R]) -> Jit[P, R]:
    """`jit` for functions whose results leave JAX: arrays in them are NumPy's, and keys are not allowed."""
    return Jit(function, to_numpy=True)


def _describe(leaf: Any, is_array: bool) -> Any:
    """Return the shape and type of an array, and anything else itself: a trace depends on these."""
    if not is_array:
        return type(leaf), leaf
    return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)


def _settings() -> tuple[Any, ...]:
    return tuple(getattr(jax.config, name) for name in _SETTINGS)


class Memory(NamedTuple):
    """A record of programs that took too long to interpret. Those with as many numbers or more will too."""

    least: dict[Any, int]
    kind: Any
    numbers: int

    def is_too_long(self) -> bool:
        return self.numbers >= self.least.get(self.kind, math.inf)

    def add(self) -> None:
        if len(self.least) >= _MOST_KINDS:
            self.least.clear()
        self.least[self.kind] = min(self.numbers, self.least.get(self.kind, self.numbers))


class Program:
    """A traced function for one structure of arguments."""

    def __init__(
        self,
        function: Callable[..., Any],
        structure: Any,
        leaves: Sequence[Any],
        dynamic: Sequence[bool],
        memory: Memory,
    ) -> None:
        constants = [None if is_array else leaf for leaf, is_array in zip(leaves, dynamic, strict=True)]
        # Structure, constants and which leaves are arrays, known after tracing. `flat` must not refer to the
        # program: in a cycle it would keep its memory maps until the next garbage collection.
        self._results = results = list[Any]()

        def flat(*arrays: Any) -> list[Any]:
            found = iter(arrays)
            filled = [next(found) if is_array else c for c, is_array in zip(constants, dynamic, strict=True)]
            args, kwargs = jax.tree.unflatten(structure, filled)
            out, structure_of_results = jax.tree.flatten(function(*args, **kwargs))
            which = [eqx.is_array(leaf) for leaf in out]
            fixed = [None if is_array else leaf for leaf, is_array in zip(out, which, strict=True)]
            results[:] = structure_of_results, fixed, which
            return [leaf for leaf, is_array in zip(out, which, strict=True) if is_array]

        flat.__name__ = flat.__qualname__ = getattr(function, "__name__", "program")
        self._flat = flat
        self._jitted = jax.jit(flat)
        self._evaluate: Callable[..., Any] | None = None
        self._order: list[int] = []  # of the arguments of `_evaluate`, those first that may stay the same
        self._last: list[tuple[Any, Any]] = []  # these of the last call, as given and as NumPy arrays
        self._avals: Any = None
        self._supported = True
        self._meter = Meter()  # of one call, or of all calls of an attempt
        self._memory = memory
        self._used, self._calls = math.inf if memory.is_too_long() else 0.0, 0  # in all calls
        self._most = math.inf  # seconds in all calls
        self.maps = 0  # memory maps that the compiled program holds

    def __call__(self, arrays: Sequence[Any], to_numpy: bool) -> Any:
        found: Any = self._interpret(arrays)
        if found is None:
            found = self._run_compiled(arrays)
            found = map(np.asarray, found) if to_numpy else found
        elif attempt() is not None:
            # Between the programs of a fit arrays stay NumPy's: 85 conversions took a third of a small fit.
            found = _unpack_keys(found, self._avals)
        else:
            found = _detach(found, arrays)
            found = found if to_numpy else _to_jax(found, self._avals)
        structure, constants, which = self._results
        out = iter(found)
        leaves = [next(out) if is_array else c for c, is_array in zip(constants, which, strict=True)]
        return jax.tree.unflatten(structure, leaves)

    def forget_calls(self) -> None:
        """Forget the time of earlier calls, unless one was too long."""
        if self._used < math.inf:
            self._used, self._calls = 0.0, 0

    def _interpret(self, arrays: Sequence[Any]) -> list[Any] | None:
        """The results by NumPy, or None if the program must be compiled.

        Raise `TooLong` in an attempt to interpret a whole fit, unless the program takes little time.
        """
        name, others = engine(), attempt()
        if name == "xla" or not self._supported or not all(map(_is_local, arrays)):
            return None
        if name == "auto" and (self.maps or self._used >= self._most):
            if others is not None and self._used >= _LONG * self._calls:
                raise TooLong
            return None
        before = 0.0 if others is None else others.get(self, 0.0)
        try:
            if self._evaluate is None:
                self._prepare(arrays)
            self._meter.used = before
            self._meter.limit = _LONGEST * self._most if name == "auto" else math.inf
            found = self._evaluate(self._convert(arrays))
        except Unsupported:
            self._supported = False
            return None
        except TooLong:
            self._used = math.inf
            self._memory.add()
            if others is not None:
                raise
            return None
        if others is not None:
            others[self] = self._meter.used
        self._used += self._meter.used - before
        self._calls += 1
        return found

    def _prepare(self, arrays: Sequence[Any]) -> None:
        flat, n = self._flat, len(arrays)
        # Arrays of JAX cannot change. Those of a model are the same in many calls.
        fixed = [i for i in range(n) if isinstance(arrays[i], jax.Array) and arrays[i].size <= MOST_KEPT]
        order = fixed + [i for i in range(n) if i not in fixed]
        places = np.argsort(order).tolist()
        # A function of its own: JAX would take the trace for XLA from its cache, and the other way round.
        with trace_for_numpy(), pause_garbage_collection():
            jaxpr = jax.make_jaxpr(lambda *ordered: flat(*[ordered[i] for i in places]))(
                *[arrays[i] for i in order]
            )
            self._avals, self._most = jaxpr.out_avals, _PATIENCE * compilation(jaxpr)
            self._evaluate = lower(jaxpr, self._meter, len(fixed))
        self._order, self._last = order, [(None, None)] * len(fixed)

    def _convert(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The arguments of `_evaluate`: the same NumPy array if the array of JAX is that of the last call."""
        n = len(self._last)
        fixed = []
        for i, (last, converted) in zip(self._order[:n], self._last, strict=True):
            if arrays[i] is not last or not isinstance(last, jax.Array):
                converted = np.asarray(_randomness.pack(arrays[i])).view()
            fixed.append((arrays[i], converted))
        self._last = fixed
        others = [np.asarray(_randomness.pack(arrays[i])) for i in self._order[n:]]
        return [converted for _, converted in fixed] + others

    def _run_compiled(self, arrays: Sequence[Any]) -> list[Any]:
        if self.maps:
            return self._jitted(*arrays)
        before = _cache.memory_maps()
        with pause_garbage_collection():
            found = self._jitted(*arrays)
        self.maps = max(1, _cache.memory_maps() - before)
        _cache.trim()
        return found


def _is_local(array: Any) -> bool:
    """Whether all numbers of an array are on one device."""
    return not isinstance(array, jax.Array) or len(array.sharding.device_set) == 1


def _detach(results: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Copy the results that are views of NumPy arguments, because their owner may write to these later.

    Copy also those that are write-protected: they are views of what is kept for the next call.
    """
    own = [a for a in arguments if isinstance(a, np.ndarray)]

    def is_shared(array: Any) -> bool:
        protected = isinstance(array, np.ndarray) and not array.flags.writeable
        return protected or any(np.may_share_memory(array, other) for other in own)

    return [np.array(array) if is_shared(array) else array for array in results]


def _unpack_keys(arrays: Sequence[np.ndarray], avals: Sequence[Any]) -> list[Any]:
    is_key = lambda aval: jax.dtypes.issubdtype(aval.dtype, jax.dtypes.prng_key)
    return [_randomness.unpack(a) if is_key(v) else a for a, v in zip(arrays, avals, strict=True)]


def _to_jax(arrays: Sequence[np.ndarray], avals: Sequence[Any]) -> list[Any]:
    return jax.device_put(_unpack_keys(arrays, avals))
