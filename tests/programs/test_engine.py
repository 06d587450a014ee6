"""The choice of an engine, and its errors."""

from __future__ import annotations

import pytest

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
