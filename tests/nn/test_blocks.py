"""Blocks: closed forms, Jacobians, permutations of sets, statistics of batches; saving, new weights."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

import energax
from energax import fit
from energax.energies import Scorer
from energax.errors import BadInput, Unsuitable
from energax.learn import CrossEntropy, Descent
from energax.missing import Masked
from energax.nn import (
    BatchNorm,
    FromImage,
    LocalResponseNorm,
    Maxout,
    Reshape,
    Residual,
    SetLayer,
    SetPool,
    ToImage,
    calibrate,
    conv_network,
    deconv_network,
    reinitialise,
    set_network,
)
from energax.parameters import trainable_leaves

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


def _linear(n_in, n_out, seed=0):
    return eqx.nn.Linear(n_in, n_out, key=jax.random.key(seed))


def test_maxout_is_the_maximum_of_linear_functions():
    with jax.enable_x64(True):
        layer, x = Maxout.random(4, 3, key=0, n_pieces=5), RNG.normal(size=4)
        found = np.asarray(evaluate(lambda: layer(jnp.asarray(x))))
        values = np.asarray(layer.linear.weight) @ x + np.asarray(layer.linear.bias)
        expected = [values[5 * i : 5 * i + 5].max() for i in range(3)]
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_local_response_normalisation_has_its_definition():
    x = RNG.normal(size=(6, 2, 3))
    expected = np.empty_like(x)
    for c in range(6):
        total = (x[max(0, c - 2) : c + 3] ** 2).sum(0)
        expected[c] = x[c] / (1.5 + 0.3 * total) ** 0.6
    with jax.enable_x64(True):
        layer = LocalResponseNorm(5, alpha=0.3, beta=0.6, k=1.5)
        found = np.asarray(evaluate(lambda: layer(jnp.asarray(x))))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_jacobian_of_a_residual_block_is_that_of_shortcut_plus_block():
    block, shortcut = _linear(3, 3), _linear(3, 3, 1)
    x = jnp.array([1.0, -2.0, 0.5])
    plain, with_shortcut = evaluate(
        lambda: (jax.jacobian(Residual(block))(x), jax.jacobian(Residual(block, shortcut))(x))
    )
    np.testing.assert_allclose(plain, np.eye(3) + np.asarray(block.weight), rtol=1e-6)
    np.testing.assert_allclose(with_shortcut, np.asarray(shortcut.weight + block.weight), rtol=1e-6)


def test_a_residual_block_passes_keys_on():
    dropping = Residual(eqx.nn.Dropout(0.5))
    y = np.asarray(dropping(jnp.ones(100), key=KEY))
    assert set(np.unique(y)) == {1.0, 3.0}  # x + 0 and x + x / 0.5


# -- sets ------------------------------------------------------------------------------------------------


def test_a_set_layer_of_one_feature_is_the_general_equivariant_matrix():
    layer, m = SetLayer.random(1, 1, key=3), 4
    slope = np.asarray(evaluate(lambda: jax.jacobian(layer)(jnp.ones((m, 1)))))[:, 0, :, 0]
    w, v = float(layer.own.weight[0, 0]), float(layer.mean.weight[0, 0])
    np.testing.assert_allclose(slope, w * np.eye(m) + v / m, rtol=1e-5)


def test_set_layers_commute_with_permutations_and_set_networks_ignore_them():
    m, d, n_cases = 5, 3, 20
    x = RNG.normal(size=(n_cases, m, d))
    orders = np.argsort(RNG.random((n_cases, m)), 1)
    moved = np.take_along_axis(x, orders[..., None], 1)
    with jax.enable_x64(True):
        layer = eqx.nn.Sequential([SetLayer.random(d, 4, key=0), SetLayer.random(4, 2, key=1)])
        networks = [
            set_network((m, d), 2, key=i, width=6, pool=p) for i, p in enumerate(("mean", "sum", "max"))
        ]

        def both(rows):
            return jax.vmap(layer)(rows), [jax.vmap(f)(rows.reshape(n_cases, -1)) for f in networks]

        (y, pooled), (y_moved, pooled_moved) = evaluate(
            lambda: (both(jnp.asarray(x)), both(jnp.asarray(moved)))
        )
    y, y_moved, pooled, pooled_moved = map(np.asarray, (y, y_moved, pooled, pooled_moved))
    np.testing.assert_allclose(y_moved, np.take_along_axis(y, orders[..., None], 1), atol=1e-12)
    np.testing.assert_allclose(pooled_moved, pooled, atol=1e-12)
    # Neither is constant.
    assert y.std(1).min() > 1e-3 and pooled.std(1).min() > 1e-3


# -- batch normalisation -----------------------------------------------------------------------------------


def _normalised(x, weight, layer):
    """Rows (n, c) normalised by NumPy, and their mean and variance."""
    mean = np.average(x, axis=0, weights=weight)
    variance = np.average((x - mean) ** 2, axis=0, weights=weight)
    z = (x - mean) / np.sqrt(variance + layer.eps)
    return z * np.asarray(layer.scale) + np.asarray(layer.bias), mean, variance


def test_statistics_of_a_stack_are_those_of_numpy():
    with jax.enable_x64(True):
        first = eqx.tree_at(lambda n: (n.scale, n.bias), BatchNorm(3), (jnp.array([2.0, 1, 1]), jnp.ones(3)))
        middle, last = _linear(3, 2), BatchNorm(2, eps=1e-3)
        network = eqx.nn.Sequential([first, middle, eqx.nn.Lambda(jax.nn.relu), Residual(last)])
        x, weight = RNG.normal(size=(40, 3)) * [1, 5, 0.1] + [3, 0, -1], RNG.random(40)
        fitted = calibrate(network, x, weight)
        h, *of_first = _normalised(x, weight, first)
        h = np.maximum(h @ np.asarray(middle.weight).T + np.asarray(middle.bias), 0)
        z, *of_last = _normalised(h, weight, last)
        found = evaluate(lambda: jax.vmap(fitted)(jnp.asarray(x)))
    for layer, (mean, variance) in ((fitted[0], of_first), (fitted[3].block, of_last)):
        np.testing.assert_allclose(layer.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(layer.variance, variance, rtol=1e-10)
    np.testing.assert_allclose(found, h + z, rtol=1e-9)


def test_channels_of_images_are_normalised_over_rows_and_positions():
    images = (RNG.normal(size=(10, 2, 3, 3)) * 4 + 1).astype(np.float32)
    fitted = calibrate(BatchNorm(2), images)
    z = np.asarray(evaluate(lambda: jax.vmap(fitted)(jnp.asarray(images))))
    np.testing.assert_allclose(z.mean((0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(z.std((0, 2, 3)), 1, atol=1e-4)


def test_missing_values_count_as_zeros_and_rows_of_weight_zero_do_not_count():
    x = np.array([[1.0, np.nan], [3.0, 4.0], [50.0, 60.0]], np.float32)
    fitted = calibrate(
        BatchNorm(2), Masked(np.nan_to_num(x), ~np.isnan(x)), np.array([1.0, 1.0, 0.0], np.float32)
    )
    np.testing.assert_allclose(fitted.mean, [2, 2])
    np.testing.assert_allclose(fitted.variance, [1, 4])


def test_learning_moves_the_gains_and_keeps_the_statistics():
    x = (RNG.normal(size=(30, 2)) * 3 + 1).astype(np.float32)
    network = calibrate(eqx.nn.Sequential([BatchNorm(2), _linear(2, 2)]), x)
    energy = Scorer(network, 2, 2)
    is_trainable = trainable_leaves(energy).network[0]
    assert (is_trainable.mean, is_trainable.variance, is_trainable.scale) == (False, False, True)
    data = {"x": x, "y": (x[:, 0] > 1).astype(np.int32)}
    learned = fit(energy, data, Descent(CrossEntropy(), optax.adam(0.1)), epochs=2, key=0).energy.network[0]
    np.testing.assert_array_equal(learned.mean, network[0].mean)
    np.testing.assert_array_equal(learned.variance, network[0].variance)
    assert (np.asarray(learned.scale) != 1).any()


def test_calibrate_returns_networks_without_batch_normalisation_as_they_are():
    network = _linear(2, 2)
    assert calibrate(network, np.ones((3, 2), np.float32)) is network


# -- the rectifiers of JAX and Equinox, and pooling ------------------------------------------------------


def test_rectifiers_have_their_definitions_and_learn_a_bent_function():
    """y = 1 where |x₁| > 1: no linear classifier finds it, any rectifier does; the slope is learned."""
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    rectifiers = {
        "leaky": (eqx.nn.Lambda(jax.nn.leaky_relu), np.where(x > 0, x, 0.01 * x)),
        "absolute": (eqx.nn.Lambda(jnp.abs), np.abs(x)),
        "parametric": (eqx.nn.Lambda(eqx.nn.PReLU(0.3)), np.where(x > 0, x, 0.3 * x)),
        "maxout": (Maxout(_linear(1, 2), 2), None),
    }
    rows = RNG.uniform(-2, 2, (200, 2)).astype(np.float32)
    data = {"x": rows, "y": (np.abs(rows[:, 0]) > 1).astype(np.int32)}
    for name, (layer, expected) in rectifiers.items():
        if expected is None:
            layers = [Maxout.random(2, 8, key=1), _linear(8, 2)]
        else:
            np.testing.assert_allclose(evaluate(lambda f=layer: f(x)), expected, rtol=1e-6)
            layers = [_linear(2, 16), layer, _linear(16, 2)]
        start = Scorer(eqx.nn.Sequential(layers), 2, 2)
        rule = Descent(CrossEntropy(), optax.adam(0.05))
        found = fit(start, data, rule, epochs=150, key=0).energy
        guess = evaluate(lambda e=found: jax.vmap(e.scores)(rows)).argmax(1)
        assert (guess == data["y"]).mean() > 0.95, name
        if name == "parametric":
            slopes = [n.network.layers[1].fn.negative_slope for n in (start, found)]
            assert abs(slopes[1] - slopes[0]) > 0.01


def test_pooling_between_convolutions():
    """Means and maxima of squares of pixels, by hand."""
    image = RNG.normal(size=16).astype(np.float32)
    squares = image.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(4, 4)
    for pool, expected in (
        (eqx.nn.AvgPool2d(2, 2), squares.mean(1)),
        (eqx.nn.MaxPool2d(2, 2), squares.max(1)),
    ):
        network = eqx.nn.Sequential([ToImage((4, 4, 1)), pool, FromImage()])
        np.testing.assert_allclose(evaluate(lambda n=network: n(image)), expected, rtol=1e-5)


# -- all networks --------------------------------------------------------------------------------------------


def _every_layer():
    return eqx.nn.Sequential(
        [
            Maxout.random(4, 6, key=0),
            BatchNorm(6),
            eqx.nn.Lambda(jnp.abs),
            Residual(eqx.nn.Sequential([_linear(6, 6), eqx.nn.Lambda(eqx.nn.PReLU())]), eqx.nn.LayerNorm(6)),
            eqx.nn.Dropout(0.5, inference=True),
            Reshape((3, 2)),
            LocalResponseNorm(3),
            SetLayer.random(2, 2, key=1),
            SetPool("sum"),
            _linear(2, 2),
        ]
    )


@pytest.mark.parametrize(
    ("build", "n_in"),
    [
        (_every_layer, 4),
        (lambda: set_network((2, 2), 2, key=0, width=3), 4),
        (lambda: conv_network((4, 4), 2, key=0, widths=(2,), n_blocks=1, norm=BatchNorm), 16),
        (lambda: deconv_network(2, (4, 5, 2), key=0, widths=(2,), n_blocks=1, norm=BatchNorm), 2),
    ],
    ids=["layers", "set", "convolutions", "transposed convolutions"],
)
def test_networks_are_saved_and_get_new_weights(build, n_in, tmp_path):
    network = build()
    energax.save(network, tmp_path / "network.safetensors")
    loaded = energax.load(tmp_path / "network.safetensors")
    assert bool(eqx.tree_equal(loaded, network))
    new = reinitialise(network, 7)
    x = jnp.linspace(-1, 1, n_in)
    before, same, after = evaluate(lambda: (network(x), loaded(x), new(x)))
    np.testing.assert_array_equal(before, same)
    assert np.isfinite(after).all() and not np.allclose(before, after)


def test_bad_input():
    rows = np.ones((3, 2), np.float32)
    for build, argument in (
        (lambda: Maxout.random(2, 0, key=0), "n_out"),
        (lambda: LocalResponseNorm(4), "size"),
        (lambda: LocalResponseNorm(k=0.0), "k"),
        (lambda: SetPool("median"), "how"),
        (lambda: set_network((4,), 2, key=0), "shape"),
        (lambda: set_network((4, 2), 2, key=0, depth=0), "depth"),
        (lambda: BatchNorm(0), "n_channels"),
        (lambda: BatchNorm(2, eps=0.0), "eps"),
        (lambda: BatchNorm(3)(rows[0]), "channels"),
        (lambda: calibrate(BatchNorm(2), rows, np.ones(2, np.float32)), "weight"),
        (lambda: calibrate(BatchNorm(2), rows, np.zeros(3, np.float32)), "not all 0"),
        (lambda: calibrate(BatchNorm(2), np.full((3, 2), np.nan, np.float32)), "Masked"),
        (lambda: calibrate(BatchNorm(2), rows[:0]), "at least one"),
        (lambda: Residual(_linear(2, 3))(jnp.ones(2)), "shortcut"),
    ):
        with pytest.raises(BadInput, match=argument):
            build()


def test_a_layer_that_is_called_twice_has_no_statistics():
    class Twice(eqx.Module):
        norm: BatchNorm

        def __call__(self, x):
            return self.norm(self.norm(x))

    with pytest.raises(Unsuitable, match="called 2 times"):
        calibrate(Twice(BatchNorm(2)), np.ones((3, 2), np.float32))
