"""Parameters as a tree: declared spaces, bijections and their inverses, frozen leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.errors import BadInput
from energax.parameters import (
    all_finite,
    constrain,
    parameter_spaces,
    trainable_leaves,
    unconstrain,
)
from energax.spaces import Interval, Positive, PositiveDefinite, Simplex, parameter


class Inner(eqx.Module):
    scale: jax.Array = parameter(Positive())
    offset: jax.Array


class Outer(eqx.Module):
    weights: jax.Array = parameter(Simplex())
    parts: tuple
    covariance: jax.Array = parameter(PositiveDefinite())
    rate: jax.Array = parameter(Interval(0, 2))
    count: jax.Array
    name: str = eqx.field(static=True, default="outer")


def build():
    return Outer(
        jnp.array([0.2, 0.3, 0.5]),
        (Inner(jnp.array([1.0, 2.0]), jnp.array(-1.0)), Inner(jnp.array(3.0), jnp.array(0.0))),
        jnp.array([[2.0, 0.5], [0.5, 1.0]])[None],
        jnp.array(1.5),
        jnp.array(7),
    )


def test_spaces_are_found_by_path():
    spaces = dict(parameter_spaces(build()))
    assert spaces["weights"] == Simplex() and spaces["parts.0.scale"] == Positive()
    assert spaces["parts.1.offset"] is None and spaces["rate"] == Interval(0, 2)


def test_constrain_inverts_unconstrain():
    """constrain(unconstrain(θ)) = θ; ℝ and integers are left alone."""
    module = build()
    free = unconstrain(module)
    assert free.weights.shape == (2,) and free.covariance.shape == (1, 3) and free.count == 7
    assert float(free.parts[0].offset) == -1
    back = constrain(free)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), module, back)


def test_any_point_of_rn_is_mapped_to_a_valid_value():
    moved = jax.tree.map(lambda a: a + 3.0 if eqx.is_inexact_array(a) else a, unconstrain(build()))
    module = constrain(moved)
    weights, scale, rate = (np.asarray(a) for a in (module.weights, module.parts[0].scale, module.rate))
    assert (weights > 0).all() and abs(weights.sum() - 1) < 1e-5
    assert (scale > 0).all() and 0 < rate < 2
    assert (np.linalg.eigvalsh(module.covariance) > 0).all()
    # `check` raises if a value is not in the space.
    Simplex(3).check(weights)
    Positive(2).check(scale)
    PositiveDefinite(2).check(np.asarray(module.covariance))
    Interval(0, 2).check(rate)


@pytest.mark.parametrize(
    ("freeze", "frozen"),
    [
        (None, set()),
        ("weights", {"weights"}),
        ("parts", {"parts.0.scale", "parts.0.offset", "parts.1.scale", "parts.1.offset"}),
        (["parts.1", "rate"], {"parts.1.scale", "parts.1.offset", "rate"}),
        (lambda m: m.parts[0], {"parts.0.scale", "parts.0.offset"}),
    ],
)
def test_freezing(freeze, frozen):
    module = build()
    flags = jax.tree.leaves(trainable_leaves(module, freeze))
    names = [path for path, _ in parameter_spaces(module)]
    assert {n for n, f in zip(names, flags, strict=True) if not f} == frozen | {"count"}


def test_freezing_an_unknown_parameter_raises():
    with pytest.raises(BadInput, match=r"'weight'.*weights"):
        trainable_leaves(build(), "weight")


def test_all_finite():
    assert all_finite(build()) and all_finite({})
    assert not all_finite({"a": jnp.array([1.0, jnp.nan])}) and not all_finite({"a": jnp.array(jnp.inf)})
