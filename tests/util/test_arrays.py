"""Conversion to JAX arrays: a copy of the memory of NumPy's, and nothing is compiled."""

from __future__ import annotations

import jax
import numpy as np

from energax._util.arrays import asarray, take_rows


def test_an_array_keeps_its_values_when_the_original_changes():
    # JAX would share the memory of arrays that begin at a multiple of 64 bytes.
    memory = np.zeros(1100, np.float32)
    begin = -memory.ctypes.data % 64 // 4
    original = memory[begin : begin + 1000]
    assert original.ctypes.data % 64 == 0
    converted = asarray(original)
    original[:] = 5
    assert not np.asarray(converted).any()


def test_a_new_shape_compiles_nothing():
    compiled = []
    listener = lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        converted = asarray(np.ones((3, 17, 5)))
        rows = take_rows(converted, np.array([2, 0]))
        number = asarray(0.5, np.float32)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert not compiled
    assert converted.dtype == number.dtype == np.float32 and rows.shape == (2, 17, 5)
