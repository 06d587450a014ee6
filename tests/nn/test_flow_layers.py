"""Flow layers: the log-determinant is that of the Jacobian, the inverse undoes the map, in 32 and 64 bits."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax.errors import BadInput
from energax.nn import (
    ActNorm,
    AffineTransform,
    Composed,
    Conv1x1,
    Coupling,
    FlowDistribution,
    FlowEncoder,
    InverseAutoregressive,
    Inverted,
    InvertibleBatchNorm,
    LULinear,
    MaskedAutoregressive,
    MaskedNetwork,
    Permutation,
    Repeated,
    SplineTransform,
    flow_layers,
)
from energax.programs import jit

D, M = 4, 3  # coordinates, numbers of context
X = np.random.default_rng(0).normal(size=(5, D)) * 1.5
CONTEXT = np.random.default_rng(1).normal(size=(5, M))
SPLINE = SplineTransform(4, 3.0)
SIZES = {"width": 6, "depth": 1}


def _block(key):
    first, second = jax.random.split(jax.random.key(key))
    layer = Coupling.random(D, key=first, transform=AffineTransform(), n_context=M, **SIZES)
    return Composed([LULinear.random(D, key=second), Permutation.random(D, key=key), layer])


LAYERS = {
    "affine coupling": lambda: Coupling.random(D, key=0, transform=AffineTransform(), n_context=M, **SIZES),
    "spline coupling": lambda: Coupling.random(D, key=0, transform=SPLINE, n_context=M, **SIZES),
    "a coupling of nothing fixed": lambda: Coupling.random(
        D, key=0, n_fixed=0, transform=AffineTransform(), n_context=M, **SIZES
    ),
    "affine autoregressive": lambda: MaskedAutoregressive.random(
        D, key=0, transform=AffineTransform(), n_context=M, **SIZES
    ),
    "spline autoregressive": lambda: MaskedAutoregressive.random(
        D, key=0, transform=SPLINE, n_context=M, **SIZES
    ),
    "inverse autoregressive": lambda: InverseAutoregressive.random(
        D, key=0, transform=AffineTransform(), n_context=M, **SIZES
    ),
    "LU": lambda: LULinear.random(D, key=0),
    "permutation": lambda: Permutation.random(D, key=0),
    "activation normalisation": lambda: ActNorm.identity(D),
    "batch normalisation": lambda: InvertibleBatchNorm(D),
    "1x1 convolution": lambda: Conv1x1.random((2, 1, 2), key=0),
    "inverted": lambda: Inverted(LULinear.random(D, key=0)),
    "repeated blocks": lambda: Repeated.stack([_block(0), _block(1)]),
}


def _loud(layer, dtype):
    """The layer with parameters far from those of the identity."""
    rng = np.random.default_rng(2)
    noisy = lambda a: a + 0.4 * rng.normal(size=a.shape) if eqx.is_inexact_array(a) else a
    return jax.tree.map(lambda a: noisy(a).astype(dtype) if eqx.is_inexact_array(a) else a, layer)


@jit
def _all_of(layer, x, context):
    def row(x, context):
        u, log_det = layer.forward(x, context)
        back, back_det = layer.inverse(u, context)
        return u, log_det, jax.jacfwd(lambda x: layer.forward(x, context)[0])(x), back, back_det

    return jax.vmap(row)(x, context)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LAYERS)
def test_log_determinant_and_inverse(name, dtype):
    with jax.enable_x64(dtype == "float64"):
        layer = _loud(LAYERS[name](), dtype)
        found = _all_of(layer, jnp.asarray(X, dtype), jnp.asarray(CONTEXT, dtype))
        u, log_det, jacobian, back, back_det = (np.asarray(a) for a in found)
    assert u.dtype == log_det.dtype == back.dtype == dtype
    digits = 1e-4 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(log_det, np.linalg.slogdet(jacobian.astype(float))[1], atol=10 * digits)
    np.testing.assert_allclose(back, X, atol=digits)
    np.testing.assert_allclose(back_det, -log_det, atol=10 * digits)


@pytest.mark.parametrize(("dtype", "worst"), [("float32", 3e-5), ("float64", 1e-13)])
def test_the_spline_is_monotone_the_identity_outside_and_inverted_to_full_precision(dtype, worst):
    rng = np.random.default_rng(0)
    with jax.enable_x64(dtype == "float64"):
        parameters = jnp.asarray(rng.normal(size=SPLINE.n_parameters), dtype)
        x = jnp.asarray(np.linspace(-4, 4, 401), dtype)
        u, log_slope, back = _spline_at(SPLINE, x, jnp.broadcast_to(parameters, (401, SPLINE.n_parameters)))
    u, x = np.asarray(u), np.asarray(x)
    assert (np.diff(u) > 0).all() and np.array_equal(u[np.abs(x) >= 3], x[np.abs(x) >= 3])
    np.testing.assert_allclose(back, x, atol=worst)
    # The slope is continuous, and its integral is u.
    slope = np.exp(np.asarray(log_slope, float))
    np.testing.assert_allclose(np.diff(u), 0.01 * (slope[1:] + slope[:-1]), atol=2e-3)


@jit
def _spline_at(spline, x, parameters):
    u, log_slope = spline.forward(x, parameters)
    return u, log_slope, spline.inverse(u, parameters)[0]


def test_layers_with_small_weights_start_near_the_identity():
    for transform in (AffineTransform(), SPLINE):
        x = np.linspace(-4, 4, 9, dtype=np.float32)
        zero = np.zeros((9, transform.n_parameters), np.float32)
        u, log_slope = evaluate(lambda: transform.forward(jnp.asarray(x), jnp.asarray(zero)))  # noqa: B023
        np.testing.assert_allclose(u, x, atol=1e-5)
        np.testing.assert_allclose(log_slope, 0, atol=1e-5)


@pytest.mark.parametrize("d", [1, 3])
def test_a_masked_network_sees_only_what_comes_before(d):
    network = MaskedNetwork.random(d, 2, key=0, n_context=1, width=7, depth=2)
    x, context = np.ones(d, np.float32), np.ones(1, np.float32)
    slopes, by_context = evaluate(lambda: jax.jacfwd(network, (0, 1))(jnp.asarray(x), jnp.asarray(context)))
    depends = np.abs(np.asarray(slopes)).max(1) > 0
    assert np.array_equal(depends, np.tril(np.ones((d, d), bool), -1))
    assert (np.abs(by_context).max((1, 2)) > 0).all()


def test_normalisation_is_fitted_to_weighted_rows():
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(50, D)) * [1, 2, 3, 0] + 7, rng.integers(0, 3, 50)
    flow = Composed([Inverted(Permutation([1, 0, 2, 3])), ActNorm.identity(D)])
    x = jnp.asarray(rows, jnp.float32)
    fitted = flow.initialise(jax.random.key(0), x, jnp.asarray(weight, jnp.float32))
    u = np.asarray(jax.vmap(lambda x: fitted.forward(x)[0])(x))
    repeated = np.repeat(u, weight, axis=0)
    np.testing.assert_allclose(repeated.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(repeated.std(0), [1, 1, 1, 0], atol=1e-4)


def test_restarts_have_other_weights_in_every_repeated_layer():
    flow = Repeated.stack([_block(0), _block(1)])
    x, context = jnp.asarray(X, jnp.float32), jnp.asarray(CONTEXT, jnp.float32)
    new = flow.initialise(jax.random.key(3), x, jnp.ones(len(X)), context)
    weight = lambda f: np.asarray(f.layers.layers[2].network.layers[0].weight)
    assert jax.tree.structure(new) == jax.tree.structure(flow)
    assert (weight(new) != weight(flow)).all() and (weight(new)[0] != weight(new)[1]).all()


def test_a_distribution_draws_with_the_density_that_it_states():
    """log p from the pass that draws equals log p of the drawn value, and ∫ p = 1."""
    q = FlowDistribution(flow_layers(2, key=0, n_layers=2, transform=SPLINE, **SIZES), 2)
    side = np.linspace(-8, 8, 160, dtype=np.float32)
    grid = np.stack(np.meshgrid(side, side), -1)
    draws, same_pass, again, on_grid = _draw(q, jnp.asarray(grid))
    np.testing.assert_allclose(same_pass, again, atol=1e-4)
    assert draws.shape == (500, 2) and on_grid.shape == (160, 160)
    assert abs(np.exp(np.asarray(on_grid, float)).sum() * (side[1] - side[0]) ** 2 - 1) < 1e-3


@jit
def _draw(q, grid):
    draws, log_prob = q.sample_and_log_prob(jax.random.key(0), (500,))
    return draws, log_prob, q.log_prob(draws), q.log_prob(grid)


def test_bad_arguments():
    with pytest.raises(BadInput, match=r"layers\[0\].*a Bijection"):
        Composed([jnp.sin])
    with pytest.raises(BadInput, match=r"index.*each once"):
        Permutation([0, 0, 1])
    with pytest.raises(BadInput, match=r"several structures.*Composed"):
        Repeated.stack([LULinear.random(2), ActNorm.identity(2)])
    with pytest.raises(BadInput, match=r"several structures"):
        Repeated.stack([LULinear.random(2), LULinear.random(3)])
    with pytest.raises(BadInput, match=r"layer.*'coupling'"):
        flow_layers(2, key=0, layer="convolution")
    with pytest.raises(BadInput, match=r"transform.*'spline'"):
        flow_layers(2, key=0, transform="cubic")
    with pytest.raises(BadInput, match=r"n_fixed.*from 0 to 1"):
        Coupling.random(2, key=0, n_fixed=2)
    with pytest.raises(BadInput, match=r"least.*1 / 8"):
        SplineTransform(8, least=0.2)


def test_an_encoder_by_a_flow_is_a_distribution_given_x():
    encoder = FlowEncoder.random(3, 2, key=0, n_layers=1, sees_mask=True, **SIZES)

    @jit
    def draw(encoder, x):
        q = encoder(x=x)
        z, log_q = q.sample_and_log_prob(jax.random.key(0), (7,))
        return z, log_q, q.log_prob(z)

    first, log_q, again = draw(encoder, jnp.ones(3))
    second = draw(encoder, jnp.zeros(3))[0]
    assert first.shape == (7, 2) and (np.asarray(first) != np.asarray(second)).all()
    np.testing.assert_allclose(log_q, again, atol=1e-4)
