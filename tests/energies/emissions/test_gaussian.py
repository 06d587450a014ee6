"""Gaussians and their covariances against SciPy, dense formulas and brute force."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import evaluate
from scipy.stats import multivariate_normal, norm

from energax import BadInput, Masked, Mixture, fit
from energax.energies import Bernoullis, Diagonal, Full, Gaussians, Spherical, Tied
from energax.learn import EM
from energax.parameters import parameter_spaces

SHAPES = [Full, Tied, Diagonal, Spherical]


def random_covariance(shape, k, d, rng, floor=0.0):
    a = rng.normal(size=(k, d, d))
    full = a @ a.transpose(0, 2, 1) + np.eye(d)
    return {
        Full: lambda: Full(jnp.asarray(full), floor),
        Tied: lambda: Tied(jnp.asarray(full[0]), floor),
        Diagonal: lambda: Diagonal(jnp.asarray(rng.uniform(0.5, 3, (k, d))), floor),
        Spherical: lambda: Spherical(jnp.asarray(rng.uniform(0.5, 3, k)), floor),
    }[shape]()


def random_mixture(shape, k, d, rng, floor=0.0):
    gaussians = Gaussians(
        jnp.asarray(rng.normal(size=(k, d)) * 2), random_covariance(shape, k, d, rng, floor)
    )
    return Mixture(gaussians, jnp.asarray(rng.dirichlet(np.ones(k))))


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("shape", SHAPES)
def test_row_energies_are_minus_the_log_density(shape, rng):
    g = random_mixture(shape, 3, 4, rng).components
    x, dense = rng.normal(size=(7, 4)), np.asarray(evaluate(lambda: g.covariance.dense(3, 4)))
    means = np.asarray(g.means)
    truth = [[-multivariate_normal(means[z], dense[z]).logpdf(row) for z in range(3)] for row in x]
    np.testing.assert_allclose(evaluate(lambda: g.row_energies(x=jnp.asarray(x))), truth, rtol=1e-12)
    np.testing.assert_allclose(evaluate(lambda: g(x=jnp.asarray(x[0]), z=2)), truth[0][2], rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_missing_coordinates_are_integrated_out(shape, rng):
    g = random_mixture(shape, 2, 4, rng).components
    x, seen = rng.normal(size=(6, 4)), rng.random((6, 4)) < 0.6
    seen[0], seen[1] = False, True
    dense, means = np.asarray(evaluate(lambda: g.covariance.dense(2, 4))), np.asarray(g.means)
    truth = np.zeros((6, 2))
    for i in range(1, 6):
        for z in range(2):
            o = seen[i]
            truth[i, z] = (
                -multivariate_normal(means[z][o], dense[z][np.ix_(o, o)]).logpdf(x[i, o]) if o.any() else 0
            )
    rows = Masked(jnp.asarray(np.where(seen, x, 77.0)), jnp.asarray(seen))
    found = evaluate(lambda: g.row_energies(x=rows))
    np.testing.assert_allclose(found, truth, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_of_missing_parts_are_conditional_moments(shape, rng):
    """Against the textbook formulas of E[x_m | x_o] and Cov[x_m | x_o].

    `Diagonal` counts the observed rows of every column, and its missing values add nothing.
    """
    k, d, n = 2, 3, 5
    g = random_mixture(shape, k, d, rng).components
    x, seen, r = rng.normal(size=(n, d)), rng.random((n, d)) < 0.5, rng.dirichlet(np.ones(k), n)
    dense, mu = np.asarray(evaluate(lambda: g.covariance.dense(k, d))), np.asarray(g.means)
    first, second = np.zeros((k, d)), np.zeros((k, d, d))
    for i in range(n):
        o, m = seen[i], ~seen[i]
        for z in range(k):
            gain = (
                dense[z][np.ix_(m, o)] @ np.linalg.inv(dense[z][np.ix_(o, o)])
                if o.any()
                else np.zeros((m.sum(), 0))
            )
            e = np.zeros(d)
            e[o] = x[i, o] - mu[z, o]
            e[m] = gain @ e[o]
            c = np.zeros((d, d))
            if shape is not Diagonal:
                c[np.ix_(m, m)] = dense[z][np.ix_(m, m)] - gain @ dense[z][np.ix_(o, m)]
            first[z] += r[i, z] * e
            second[z] += r[i, z] * (np.outer(e, e) + c)
    rows = {"x": Masked(jnp.asarray(x), jnp.asarray(seen))}
    found = evaluate(lambda: g.statistics(rows, jnp.asarray(r)))
    np.testing.assert_allclose(found["first"], first, atol=1e-12)
    reduced = evaluate(lambda: g.covariance.reduce(jnp.asarray(second)))
    np.testing.assert_allclose(found["scatter"], reduced, atol=1e-12)
    count = r.T @ seen if shape is Diagonal else r.sum(0)
    np.testing.assert_allclose(found["count"], count, atol=1e-12)


@pytest.mark.parametrize("missing", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_known_labels_are_a_posterior_of_ones(shape, missing, rng):
    x, label, w = rng.normal(size=(40, 3)), rng.integers(0, 2, 40), rng.random(40)
    x[rng.random(x.shape) < 0.4 * missing] = np.nan
    mixture = random_mixture(shape, 2, 3, rng)
    rows = {"x": Masked.from_nan(x) if missing else jnp.asarray(x)}
    label, w = jnp.asarray(label), jnp.asarray(w)
    known = jnp.eye(2)[label] * w[:, None]
    expected = evaluate(lambda: mixture.statistics(rows, known))
    found, objective = evaluate(lambda: mixture.expected_statistics({**rows, "z": label}, w, 1.0))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    joint = evaluate(lambda: mixture.log_posterior(rows))
    np.testing.assert_allclose(objective, np.sum(np.asarray(known) * np.asarray(joint)), rtol=1e-12)


def test_missing_values_of_independent_columns_need_one_step(rng):
    """Given the labels, the maximum is that of the observed values of every column, after one M-step."""
    x, label, w = rng.normal(size=(60, 3)), rng.integers(0, 2, 60), rng.random(60)
    x[rng.random(x.shape) < 0.4] = np.nan
    g = random_mixture(Diagonal, 2, 3, rng).components
    rows = {"x": Masked.from_nan(x)}
    r = np.eye(2)[label] * w[:, None]
    by_posterior = evaluate(lambda: g.statistics(rows, jnp.asarray(r)))
    by_label = evaluate(lambda: g.labelled_statistics(rows, jnp.asarray(label), jnp.asarray(w)))
    for name in by_posterior:
        np.testing.assert_allclose(by_label[name], by_posterior[name], atol=1e-12)
    best = evaluate(lambda: g.maximise(by_label))
    for z in range(2):
        own = np.ma.masked_invalid(x[label == z])
        mean = np.ma.average(own, axis=0, weights=w[label == z])
        variance = np.ma.average((own - mean) ** 2, axis=0, weights=w[label == z])
        np.testing.assert_allclose(best.means[z], mean, rtol=1e-12)
        np.testing.assert_allclose(best.covariance.variance[z], variance, rtol=1e-12)


@given(st.sampled_from(SHAPES), st.integers(0, 10**6), st.booleans())
def test_em_never_lowers_the_likelihood(shape, seed, missing):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 3)) * rng.uniform(0.1, 10, 3) + rng.normal(size=3) * 100
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
    energy = random_mixture(shape, 3, 3, rng)
    with jax.enable_x64(True):
        losses = fit(energy, {"x": x}, EM(tol=-1.0), key=seed, epochs=8).history["objective"]
    assert (np.diff(losses) <= 1e-9 * np.abs(losses[:-1])).all(), losses


@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_of_em_is_a_stationary_point_of_its_bound(shape, rng):
    """∇_θ' E_r [log p(x, z; θ')] = 0 at θ' = maximise(statistics)."""
    x, r = jnp.asarray(rng.normal(size=(50, 2))), jnp.asarray(rng.dirichlet(np.ones(3), 50))
    g = random_mixture(shape, 3, 2, rng).components
    new = evaluate(lambda: g.maximise(g.statistics({"x": x}, r)))
    slope = evaluate(lambda: jax.grad(lambda g: jnp.sum(r * g.row_energies(x=x)))(new))
    for leaf in jax.tree.leaves(slope):
        np.testing.assert_allclose(leaf, 0, atol=1e-9)


def test_recentred_statistics_are_those_about_the_new_means(rng):
    x, r = jnp.asarray(rng.normal(size=(30, 3))), jnp.asarray(rng.dirichlet(np.ones(2), 30))
    for shape in SHAPES:
        old, new = (random_mixture(shape, 2, 3, rng).components for _ in range(2))
        moved = evaluate(lambda new=new, old=old: new.recenter(old.statistics({"x": x}, r), old))
        about_new = evaluate(lambda new=new: new.statistics({"x": x}, r))
        for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(about_new), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_single_precision_far_from_the_origin(shape, rng):
    """300 standard deviations from the origin, float32 gives the same fit as float64."""
    x = (rng.normal(size=(400, 3)) + 300 + 6 * rng.integers(0, 2, (400, 1))).astype(np.float32)
    start = Mixture(Gaussians(x[:2], shape.unit(2, 3, jnp.float64)), jnp.full(2, 0.5))
    exact = fit(start, {"x": x.astype(np.float64)}, EM(tol=-1.0), key=0, epochs=10)
    with jax.enable_x64(False):
        single = jax.tree.map(lambda a: jnp.asarray(a, jnp.float32), start)
        rough = fit(single, {"x": x}, EM(tol=-1.0), key=0, epochs=10)
        shares = evaluate(lambda: jax.nn.softmax(rough.energy.log_posterior({"x": jnp.asarray(x)}), axis=1))
    np.testing.assert_allclose(rough.history["objective"], exact.history["objective"], rtol=2e-5)
    rows = {"x": jnp.asarray(x, jnp.float64)}
    truth = evaluate(lambda: jax.nn.softmax(exact.energy.log_posterior(rows), axis=1))
    np.testing.assert_allclose(shares, truth, atol=2e-3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_degenerate_rows_leave_every_number_finite(shape, dtype):
    """Duplicates, a constant column, as many components as rows; without a floor."""
    x = np.array([[1e3, 5, 0], [1e3, 5, 0], [1e3, 7, 1], [1e3, 7, 1], [1e3, 9, 2]], dtype)
    with jax.enable_x64(dtype == np.float64):
        start = Gaussians(x, shape.unit(5, 3, dtype, floor=0.0))
        result = fit(Mixture(start), {"x": x}, EM(tol=-1.0), key=0, epochs=10)
        assert result.status != "diverged", result.message
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result.energy))
        rows, one_each = jnp.asarray(x), np.eye(5, dtype=dtype)
        again = evaluate(lambda: start.maximise(start.statistics({"x": rows}, jnp.asarray(one_each))))
        assert np.isfinite(evaluate(lambda: again.row_energies(x=rows))).all()


def test_an_empty_component_keeps_its_place(rng):
    energy = Mixture(Gaussians(jnp.array([[0.0], [1e6]]), Full.unit(2, 1, jnp.float64)))
    new = fit(energy, {"x": rng.normal(size=(50, 1))}, EM(tol=-1.0), key=0, epochs=3).energy
    np.testing.assert_allclose(new.components.means[1], 1e6)
    np.testing.assert_allclose(new.components.covariance.matrix[1], 1, rtol=1e-5)


def test_draws_have_the_moments_of_the_component(rng):
    """z-scores of 2 means and 3 second moments below 4.5: a false alarm in 10⁵ for a fixed seed."""
    g = random_mixture(Full, 2, 2, rng).components
    draw = jax.vmap(lambda key: g.draw(key, z=1)["x"])
    x = np.asarray(evaluate(lambda: draw(jax.random.split(jax.random.key(0), 4000))))
    centred = x - np.asarray(g.means[1])
    features = np.column_stack([centred, centred**2, centred[:, 0] * centred[:, 1]])
    sigma = np.asarray(g.covariance.matrix[1])
    truth = np.array([0, 0, sigma[0, 0], sigma[1, 1], sigma[0, 1]])
    assert (np.abs(features.mean(0) - truth) / (features.std(0) / 4000**0.5) < 4.5).all()
    density = evaluate(lambda: g.conditional("x", z=1).log_prob(jnp.asarray(x[0])))
    assert density == pytest.approx(-float(evaluate(lambda: g(x=x[0], z=1))))


def test_imputed_values_are_posterior_means(rng):
    """Against the ratio of two integrals over a grid."""
    energy = random_mixture(Full, 2, 2, rng)
    grid = np.linspace(-40, 40, 20001)
    rows = np.column_stack([grid, np.full_like(grid, 0.7)])
    log_joint = evaluate(lambda: energy.log_posterior({"x": jnp.asarray(rows)}))
    p = np.exp(np.logaddexp.reduce(np.asarray(log_joint), axis=1))
    half = Masked(jnp.array([[0.0, 0.7]]), jnp.array([[False, True]]))
    found = evaluate(lambda: energy.impute({"x": half})["x"])
    np.testing.assert_allclose(found, [[p @ grid / p.sum(), 0.7]], rtol=1e-8)


def test_parameters_know_their_spaces():
    names = {
        n: type(s).__name__
        for n, s in parameter_spaces(Mixture(Gaussians(np.zeros((2, 1)), Full.unit(2, 1))))
    }
    assert names["weights"] == "Simplex" and names["components.covariance.matrix"] == "PositiveDefinite"


def test_bad_shapes_are_named():
    with pytest.raises(BadInput, match="means"):
        Gaussians(np.zeros(3), Full.unit(1, 3))
    with pytest.raises(BadInput, match=r"covariance.variance.*\(2, 3\)"):
        Gaussians(np.zeros((2, 3)), Diagonal.unit(3, 2))
    with pytest.raises(BadInput, match="start"):
        Gaussians(np.zeros((2, 3)), Full.unit(2, 3), start="kmean")


def test_bernoullis_sum_to_one_and_leave_missing_bits_out(rng):
    b = Bernoullis(jnp.asarray(rng.uniform(0.1, 0.9, (2, 3))))
    every = b.spaces["x"].values().astype(float)
    energies = lambda x: np.asarray(evaluate(lambda: b.row_energies(x=x)))
    np.testing.assert_allclose(np.exp(-energies(every)).sum(0), 1, rtol=1e-12)
    half = Masked(jnp.array([[1.0, 0.0, 0.0]]), jnp.array([[True, False, True]]))
    both = energies(jnp.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]))
    np.testing.assert_allclose(energies(half)[0], -np.logaddexp.reduce(-both, axis=0), rtol=1e-12)


@pytest.mark.parametrize("d", [0, 2, 33])
@pytest.mark.parametrize("kind", [Diagonal, Spherical])
def test_few_columns_many_or_none_have_the_same_density(kind, d):
    """The sum over columns is unrolled for few columns only."""
    rng = np.random.default_rng(d)
    x, means = rng.normal(size=(5, d)), rng.normal(size=(3, d))
    variance = rng.uniform(0.5, 2, size=(3, d) if kind is Diagonal else 3)
    each = variance if kind is Diagonal else np.repeat(variance[:, None], d, 1)
    wanted = -norm.logpdf(x[:, None], means, np.sqrt(each)).sum(2)
    with jax.enable_x64(True):
        covariance = kind(jnp.asarray(variance))
        found = evaluate(lambda: covariance.row_energies(jnp.asarray(x), jnp.asarray(means)))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
