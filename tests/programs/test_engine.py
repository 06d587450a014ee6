"""The choice of an engine, and its errors."""

from __future__ import annotations

import concurrent.futures
import contextvars
import time
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from energax import programs
from energax.errors import BadInput
from energax.programs import engine, use_engine


def test_an_unknown_engine_is_rejected(monkeypatch):
    with pytest.raises(BadInput, match="engine"), use_engine("jax"):
        pass
    monkeypatch.setenv("ENERGAX_ENGINE", "fast")
    with pytest.raises(BadInput, match="ENERGAX_ENGINE"):
        engine()


def test_the_environment_and_the_context_choose(monkeypatch):
    monkeypatch.setenv("ENERGAX_ENGINE", "XLA")
    assert engine() == "xla"
    with use_engine("numpy"):
        assert engine() == "numpy"
    assert engine() == "xla"


def test_kept_values_follow_the_arguments():
    """What is kept for unchanged arrays of JAX is neither used for others nor changed through a result."""

    @programs.jit_to_numpy
    def scale(model, x):
        doubled = 2 * model
        return doubled, doubled.reshape(1, -1), doubled * x

    first, second, x = jnp.arange(3.0), jnp.ones(3), np.full(3, 5.0, np.float32)
    with programs.use_engine("numpy"):
        for model in (first, first, second, first):
            expected = 2 * np.asarray(model)
            found = scale(model, x)
            np.testing.assert_array_equal(found[0], expected)
            np.testing.assert_array_equal(found[1], expected[None])
            np.testing.assert_array_equal(found[2], 5 * expected)
            for array in found:
                array[...] = -1  # results are the caller's own
        # A NumPy array in the same place may have changed, although it is the same object.
        model = np.ones(3, np.float32)
        np.testing.assert_array_equal(scale(model, x)[0], 2 * np.ones(3))
        model[:] = 7
        np.testing.assert_array_equal(scale(model, x)[0], np.full(3, 14.0))


def test_large_arrays_are_freed_after_their_last_use():
    n = 2**18

    @programs.jit_to_numpy
    def repeated_sines(x, y):
        for _ in range(30):
            x = jnp.sin(x + y)
        return x.sum()

    x, y = np.linspace(0, 1, n, dtype=np.float32), np.ones(n, np.float32)
    with programs.use_engine("numpy"):
        expected = repeated_sines(x, y)
        tracemalloc.start()
        found = repeated_sines(x, y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert found == expected
    assert peak < 6 * x.nbytes  # 60 arrays of this size are computed


class SlowHash:
    """A constant whose hash takes long, so that threads look for a program at the same time."""

    def __hash__(self):
        time.sleep(0.02)
        return 0


def test_threads_share_one_trace():
    """Functions with state, such as models of NumPyro, cannot be traced in two threads at once."""
    traces = []

    @programs.jit
    def double(x, constant):
        traces.append(1)
        return 2 * x

    constant = SlowHash()
    with use_engine("xla"), concurrent.futures.ThreadPoolExecutor(4) as pool:
        contexts = [contextvars.copy_context() for _ in range(4)]
        futures = [pool.submit(c.run, double, jnp.ones(3), constant) for c in contexts]
        assert all((future.result() == 2).all() for future in futures)
    assert len(traces) == 1
