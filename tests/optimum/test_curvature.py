"""Curvature: quadratics with known spectra, Rosenbrock's function, two wells, energies; whitening."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from energax import BadInput, ConvergenceWarning, Diverged, curvature, whiten


def rotation(n: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(n, n)))[0]


def quadratic(spectrum):
    Q = rotation(len(spectrum))
    H = (Q * np.asarray(spectrum, float)) @ Q.T
    return lambda x: x @ H @ x / 2, H


@pytest.mark.parametrize(
    ("spectrum", "kind", "condition"),
    [
        ([1, 4, 10], "minimum", 10),
        ([-8, -4, -2], "maximum", 4),
        ([-5, 1, 2], "saddle", 5),
        ([0, 1, 2], "degenerate", np.inf),
        ([-3, 0, 2], "saddle", np.inf),
    ],
)
def test_the_spectrum_of_a_quadratic(spectrum, kind, condition):
    f, H = quadratic(spectrum)
    found = curvature(f, np.zeros(3))
    assert found.kind == kind and found.is_complete
    np.testing.assert_allclose(found.hessian, H, atol=1e-12)
    np.testing.assert_allclose(found.eigenvalues, sorted(spectrum), atol=1e-12)
    if condition < np.inf:
        assert found.condition_number == pytest.approx(condition)
    else:
        assert found.condition_number > 1e12
    assert found.lipschitz == pytest.approx(max(map(abs, spectrum)))
    assert found.safe_step == pytest.approx(1 / max(map(abs, spectrum)))
    assert np.isnan(found.best_step)  # there is no direction


def test_the_best_step_minimises_along_the_gradient():
    f, H = quadratic([1, 4, 10])
    x = np.array([1.0, -2.0, 0.5])
    found = curvature(f, x)
    g = H @ x
    assert found.kind == "not critical"
    np.testing.assert_allclose(found.gradient, g, atol=1e-12)
    assert found.best_step == pytest.approx(g @ g / (g @ H @ g))
    after = curvature(f, x - found.best_step * g)
    assert after.gradient @ g == pytest.approx(0, abs=1e-12)  # the slope along −g is 0 there
    down = curvature(lambda x: -f(x), x)
    assert down.best_step == np.inf


def test_rosenbrock():
    f = lambda x: (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    found = curvature(f, [1, 1])
    np.testing.assert_allclose(found.hessian, [[802, -400], [-400, 200]])
    assert found.kind == "minimum"
    assert found.condition_number == pytest.approx(2508.0096, rel=1e-6)
    assert curvature(f, [-1.2, 1]).kind == "not critical"


def test_two_wells():
    """(x² − 1)² + y²: minima at (±1, 0), a saddle between them."""
    f = lambda p: (p["x"] ** 2 - 1) ** 2 + (p["y"] ** 2).sum()
    kinds = {x: curvature(f, {"x": x, "y": np.zeros(1)}).kind for x in (-1.0, 0.0, 1.0, 0.5)}
    assert kinds == {-1.0: "minimum", 0.0: "saddle", 1.0: "minimum", 0.5: "not critical"}
    found = curvature(f, {"x": 0.5, "y": np.zeros(1)})
    assert set(found.gradient) == {"x", "y"} and float(found.gradient["x"]) == pytest.approx(-1.5)


def test_the_kind_does_not_depend_on_the_units_of_f():
    for scale in (1e-12, 1.0, 1e12):
        f = lambda x, scale=scale: scale * ((x - 1) ** 2).sum()
        assert curvature(f, np.ones(2)).kind == "minimum"
        assert curvature(f, np.full(2, 1.1)).kind == "not critical"


def test_a_flat_function_is_degenerate_and_a_slope_is_not_critical():
    assert curvature(lambda x: 0 * x.sum() + 3, np.ones(2)).kind == "degenerate"
    slope = curvature(lambda x: x.sum(), np.ones(2))
    assert slope.kind == "not critical" and slope.safe_step == np.inf


@pytest.mark.parametrize(("low", "kind"), [(0.5, "minimum"), (-2.0, "saddle")])
def test_extreme_eigenvalues_of_many_variables(low, kind):
    """The same as with all eigenvalues, from products with the Hessian alone."""
    spectrum = np.concatenate([[low], np.linspace(1, 20, 118), [40.0]])
    f, _ = quadratic(spectrum)
    found = curvature(f, np.zeros(120), dense=10)
    assert found.hessian is None and found.kind == kind
    np.testing.assert_allclose(found.eigenvalues, [low, 40], rtol=1e-8)
    full = curvature(f, np.zeros(120))
    assert full.kind == kind
    align = np.abs((full.eigenvectors[:, [0, -1]] * found.eigenvectors).sum(0))
    np.testing.assert_allclose(align, 1, atol=1e-6)
    assert found.condition_number == pytest.approx(80) if low > 0 else np.isnan(found.condition_number)
    assert "Lanczos" in repr(found)


def test_eigenvalues_that_lanczos_does_not_find_are_not_made_up():
    spectrum = np.concatenate([np.geomspace(1e-14, 1e-9, 80), np.linspace(1, 2, 40)])
    f, _ = quadratic(spectrum)
    with pytest.warns(ConvergenceWarning, match="dense=120"):
        found = curvature(f, np.zeros(120), dense=10)
    assert found.kind == "undetermined" and np.isnan(found.condition_number)
    assert found.lipschitz == pytest.approx(2)


def test_the_lipschitz_constant_over_a_region_is_a_lower_bound():
    """f = x⁴: f″ = 12 x², at most 12 (1 + 0.5)² = 27 within 0.5 of 1."""
    found = curvature(lambda x: x**4, 1.0, radius=0.5, n_samples=200, key=1)
    assert curvature(lambda x: x**4, 1.0).lipschitz == pytest.approx(12)
    assert 26 < found.lipschitz <= 27 and "lower bound" in found.region and "within 0.5" in repr(found)
    again = curvature(lambda x: x**4, 1.0, radius=0.5, n_samples=200, key=1)
    assert again.lipschitz == found.lipschitz


def test_the_parameters_of_an_energy_and_their_precision():
    """−log N(x; m, 1) for two rows: the Hessian in the mean is 2."""
    from energax.energies import Centroids

    rows = jnp.array([[1.0], [3.0]])
    energy = Centroids(jnp.array([[2.0]]))
    f = lambda e: e(x=rows[0], z=0) + e(x=rows[1], z=0)
    found = curvature(f, energy)
    assert found.hessian.dtype == np.float32 and found.kind == "minimum"
    assert isinstance(found.gradient, Centroids)
    assert curvature(f, Centroids(jnp.array([[2.5]]))).kind == "not critical"


def test_bad_input_is_refused_in_words():
    f = lambda x: (x**2).sum()
    for arguments, message in [
        ((3, np.ones(2)), "f"),
        ((lambda x: x, np.ones(2)), "one number"),
        ((f, "a"), "x"),
    ]:
        with pytest.raises(BadInput, match=message):
            curvature(*arguments)
    for settings in ({"radius": -1}, {"n_samples": 0}, {"tolerance": 2}, {"dense": 1.5}, {"key": "a"}):
        with pytest.raises(BadInput, match=next(iter(settings))):
            curvature(f, np.ones(2), **settings)
    with pytest.raises(Diverged, match="f is not finite"):
        curvature(lambda x: jnp.log(x).sum(), -np.ones(2))
    with pytest.raises(Diverged, match="gradient of f is not finite"):
        curvature(lambda x: jnp.sqrt(x).sum(), np.zeros(2))


# -- whitening ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def badly_scaled():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3)) @ np.array([[1.0, 0, 0], [3.0, 200.0, 0], [0.0, 0.5, 0.01]]) + [
        5,
        -400,
        0.3,
    ]
    return X, X @ [1.0, 0.02, 30.0] + 0.1 * rng.normal(size=300)


@pytest.mark.parametrize("kind", ["PCA", "ZCA"])
def test_whitened_least_squares_needs_one_step(badly_scaled, kind):
    X, y = badly_scaled
    loss = lambda Z: lambda w: ((Z @ w - (y - y.mean())) ** 2).mean() / 2
    white = whiten(X, kind)
    Z = white.transform(X)
    before = curvature(loss(X - X.mean(0)), np.zeros(3))
    after = curvature(loss(Z), np.zeros(3))
    assert before.condition_number > 1e7
    assert white.condition_before == pytest.approx(before.condition_number, rel=1e-5)
    assert after.condition_number == pytest.approx(1, abs=1e-9)
    assert white.condition_after == pytest.approx(1, abs=1e-9)
    w = -after.best_step * after.gradient
    assert curvature(loss(Z), w).kind == "minimum"
    np.testing.assert_allclose(white.matrix @ w, np.linalg.lstsq(X - X.mean(0), y - y.mean())[0], rtol=1e-6)
    np.testing.assert_allclose(white.inverse(Z), X, rtol=1e-9)
    if kind == "ZCA":
        np.testing.assert_allclose(white.matrix, white.matrix.T, rtol=1e-6)


def test_directions_without_variance_are_left_out():
    X = np.random.default_rng(0).normal(size=(50, 2))
    wide = np.column_stack([X, X.sum(1), np.full(50, 1e6 + 0.1)])
    with pytest.warns(ConvergenceWarning, match="4 columns but varies in 2"):
        white = whiten(wide)
    assert white.rank == 2 and white.condition_before == np.inf
    np.testing.assert_allclose(np.cov(white.transform(wide).T, bias=True), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(white.inverse(white.transform(wide)), wide, rtol=1e-9)
    with pytest.warns(ConvergenceWarning, match="3 directions"):
        assert whiten(np.random.default_rng(0).normal(size=(4, 9)), "ZCA").transform(
            np.zeros((1, 9))
        ).shape == (1, 9)


def test_weights_count_as_repeated_rows_and_a_ridge_keeps_small_directions_small():
    X = np.random.default_rng(0).normal(size=(20, 2)) * [1, 100]
    weights = np.r_[np.zeros(5), np.full(5, 2.0), np.ones(10)]
    a = whiten(X, "ZCA", weights=weights)
    b = whiten(np.concatenate([X[5:10], X[5:10], X[10:]]), "ZCA")
    np.testing.assert_allclose(a.matrix, b.matrix, rtol=1e-9)
    soft = whiten(X, ridge=0.01)
    assert 1.5 < soft.condition_after < soft.condition_before


def test_whitening_refuses_in_words():
    import pandas as pd

    X = np.random.default_rng(0).normal(size=(5, 2))
    assert whiten(pd.DataFrame(X, columns=["a", "b"])).rank == 2
    for bad, message in [
        (X[0], "shape"),
        ([["a"]], "numbers"),
        (np.full((3, 2), np.nan), "NaN"),
        (X[:1], "two rows"),
        (np.ones((3, 2)), "all equal"),
    ]:
        with pytest.raises(BadInput, match=message):
            whiten(bad)
    with pytest.raises(BadInput, match="PCA or ZCA"):
        whiten(X, "pca")
    with pytest.raises(BadInput, match="weights"):
        whiten(X, weights=[1, 2])
    with pytest.raises(BadInput, match="2 columns"):
        whiten(X).transform(np.ones((3, 3)))
