"""The workarounds for XLA compute the same numbers and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from energax._util.xla import prevent_fusion, softplus


def test_softplus_and_its_derivatives_are_exact():
    with jax.enable_x64(True):
        x = jnp.concatenate([jnp.linspace(-700, 700, 2001), jnp.linspace(-1, 1, 11)])
        np.testing.assert_allclose(softplus(x), np.logaddexp(0, x), rtol=1e-15)
        slope, curve = (jax.vmap(f)(x) for f in (jax.grad(softplus), jax.grad(jax.grad(softplus))))
        sigmoid = np.asarray(jax.nn.sigmoid(x))
        np.testing.assert_allclose(slope, sigmoid, rtol=1e-15)
        np.testing.assert_allclose(curve, sigmoid * (1 - sigmoid), rtol=1e-12, atol=1e-300)
        limits = softplus(jnp.array([-jnp.inf, jnp.inf, jnp.nan]))
        np.testing.assert_array_equal(limits, [0, np.inf, np.nan])


def test_prevent_fusion_keeps_values_and_gradients():
    x = jnp.array([0.5, 2.0])
    f = lambda x: (prevent_fusion(jnp.log, x) ** 2).sum()
    g = lambda x: (jnp.log(x) ** 2).sum()
    np.testing.assert_allclose(jax.jit(f)(x), g(x), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(f))(x), jax.grad(g)(x), rtol=1e-6)
    assert np.isnan(prevent_fusion(jnp.log, jnp.array([jnp.nan, 1.0]))).all()
