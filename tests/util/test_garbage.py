"""Pauses of the garbage collector: they end, nest, and cover the tracing of programs."""

import gc
import threading

import jax.numpy as jnp
import numpy as np
import pytest

from energax._util.garbage import pause_garbage_collection
from energax.programs import jit, use_engine


@pytest.fixture(autouse=True)
def _enabled():
    gc.enable()
    yield
    gc.enable()


def test_it_is_on_again_after_nested_pauses_and_errors():
    with pause_garbage_collection():
        with pytest.raises(ZeroDivisionError), pause_garbage_collection():
            1 / 0  # noqa: B018
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_stays_off_where_it_was_off():
    gc.disable()
    with pause_garbage_collection():
        pass
    assert not gc.isenabled()


def test_the_last_thread_that_leaves_turns_it_on():
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with pause_garbage_collection():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=hold)
    with pause_garbage_collection():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.parametrize("engine", ["numpy", "xla"])
def test_tracing_starts_no_search_for_garbage(engine):
    """The function makes as many objects as start a search, whenever it is traced."""
    found, limits = [], gc.get_threshold()

    @jit
    def function(x):
        kept = [[] for _ in range(2000)]
        found.append((gc.isenabled(), len(kept)))
        return jnp.sin(x)

    gc.set_threshold(100, *limits[1:])
    try:
        with use_engine(engine):
            np.testing.assert_allclose(function(jnp.arange(3.0)), np.sin(np.arange(3.0)), rtol=1e-6)
    finally:
        gc.set_threshold(*limits)
    assert found == [(False, 2000)] and gc.isenabled()
