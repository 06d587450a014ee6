"""Laplace's method for a softmax of processes, against matrices of (k n)² numbers and against two classes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
from scipy.special import softmax

from energax._util.blas import limit_blas
from energax.algorithms.gaussian import laplace
from energax.algorithms.gaussian.laplace_softmax import evidence_slope, find_mode, predict
from energax.algorithms.gaussian.mean_softmax import mean_softmax

GENERATOR = np.random.default_rng(0)
N, K = 9, 4
POINTS, NEW = GENERATOR.normal(size=(N, 2)), GENERATOR.normal(size=(5, 2))
LABELS = np.append(np.arange(K), GENERATOR.integers(0, K, N - K))
WEIGHT = GENERATOR.uniform(0.3, 3, N)
close = np.testing.assert_allclose


@pytest.fixture(autouse=True)
def _few_threads():
    """As in the estimators: the threads of BLAS wait for each other if other processes run."""
    with limit_blas():
        yield


def rbf(first, second, variance=3.0, scale=1.0):
    return variance * np.exp(-0.5 * ((first[:, None] - second) ** 2).sum(-1) / scale**2)


def signs(labels, k):
    return np.where(np.arange(k)[:, None] == labels, 1.0, -1.0)


KERNEL, SIGN = rbf(POINTS, POINTS) + 1e-3 * np.eye(N), signs(LABELS, K)


def dense_curvature(f):
    """W of all latent values, (k n, k n), class by class."""
    p = softmax(f, 0)
    blocks = [WEIGHT[i] * (np.diag(p[:, i]) - np.outer(p[:, i], p[:, i])) for i in range(N)]
    full = np.zeros((K, N, K, N))
    for i, block in enumerate(blocks):
        full[:, i, :, i] = block
    return full.reshape(K * N, K * N)


def test_mode_evidence_and_predictions_are_those_of_dense_matrices():
    mode = find_mode(KERNEL, SIGN, WEIGHT)
    p = softmax(mode.f, 0)
    close(mode.weights, WEIGHT * ((SIGN > 0) - p), atol=1e-10)  # K⁻¹f = ∇ log p(y | f)
    close(mode.weights @ KERNEL, mode.f, atol=1e-12)
    prior, hessian = np.kron(np.eye(K), KERNEL), dense_curvature(mode.f)
    log_p = WEIGHT @ np.log(p[LABELS, np.arange(N)])
    log_determinant = np.linalg.slogdet(np.eye(K * N) + prior @ hessian)[1]
    value = log_p - 0.5 * (mode.weights * mode.f).sum() - 0.5 * log_determinant
    assert mode.converged and mode.log_evidence == pytest.approx(value, rel=1e-12)
    inverse = hessian @ np.linalg.inv(np.eye(K * N) + prior @ hessian)  # (K + W⁻¹)⁻¹
    right = GENERATOR.normal(size=(K, N))
    close(mode.curvature.solve(right).ravel(), inverse @ right.ravel(), atol=1e-12)
    cross = rbf(NEW, POINTS)
    mean, covariance = predict(cross, np.full(5, 3.0), mode)
    for i, row in enumerate(cross):
        onto = np.kron(np.eye(K), row)
        close(mean[i], onto @ mode.weights.ravel(), atol=1e-12)
        close(covariance[i], 3.0 * np.eye(K) - onto @ inverse @ onto.T, atol=1e-12)


def test_the_slope_of_the_evidence_is_that_of_differences():
    """For changes of K in random directions."""
    slope = evidence_slope(KERNEL, find_mode(KERNEL, SIGN, WEIGHT, tol=1e-14))
    for _ in range(4):
        root = GENERATOR.normal(size=(N, N))
        change = root @ root.T
        values = [find_mode(KERNEL + h * change, SIGN, WEIGHT, tol=1e-14).log_evidence for h in (1e-4, -1e-4)]
        assert (slope * change).sum() == pytest.approx((values[0] - values[1]) / 2e-4, rel=1e-5)


@pytest.mark.parametrize("variance", [1e-5, 1.0, 1e3, 1e5])
@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e3])
def test_two_classes_are_one_process_with_twice_the_kernel(variance, scale):
    """Also for kernels of large variance, where Newton's full step overshoots."""
    points = GENERATOR.normal(size=(60, 2))
    labels = (points[:, 0] + GENERATOR.normal(size=60) > 0).astype(int)
    kernel = rbf(points, points, variance, scale)
    ours = find_mode(kernel, signs(labels, 2), np.ones(60))
    one = laplace.find_mode(2 * kernel, 2.0 * labels - 1, np.ones(60))
    assert ours.converged and ours.log_evidence == pytest.approx(one.log_evidence, rel=1e-8)
    close(ours.f[1] - ours.f[0], one.f, rtol=1e-6, atol=1e-6)
    slopes = [(evidence_slope(kernel, ours) * kernel).sum()]
    slopes.append((laplace.evidence_slope(2 * kernel, one) * 2 * kernel).sum())
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-6, abs=1e-8)
    cross = 0.9 * kernel[:3]
    mean, covariance = predict(cross, np.full(3, variance), ours)
    theirs = laplace.predict(2 * cross, np.full(3, 2 * variance), one)
    close(mean[:, 1] - mean[:, 0], theirs[0], rtol=1e-6, atol=1e-5)
    close(theirs[0], 0.9 * one.f[:3], rtol=1e-6, atol=1e-6)
    variances = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    close(variances, theirs[1], rtol=1e-8)


def test_newton_converges_for_any_kernel_and_weights():
    """Variances of 1e-5 to 1e8, lengths of 0.01 to 100, weights of 0.001 to 1000; K⁻¹f is the gradient."""
    generator = np.random.default_rng(3)
    for _ in range(60):
        n, k = generator.integers(2, 20), generator.integers(2, 6)
        points, labels = generator.normal(size=(n, 2)), generator.integers(0, k, n)
        variance, scale = 10 ** generator.uniform(-5, 8), 10 ** generator.uniform(-2, 2)
        kernel, weight = rbf(points, points, variance, scale), 10 ** generator.uniform(-3, 3, n)
        mode = find_mode(kernel, signs(labels, k), weight)
        slope = weight * ((signs(labels, k) > 0) - softmax(mode.f, 0))
        assert mode.converged and np.abs(mode.weights - slope).max() < 1e-5 * weight.max()
        assert np.isfinite(evidence_slope(kernel, mode)).all()


def test_an_order_of_classes_and_rows_is_an_order_of_the_answer():
    mode, classes, rows = find_mode(KERNEL, SIGN, WEIGHT), [2, 0, 3, 1], GENERATOR.permutation(N)
    other = find_mode(KERNEL[np.ix_(rows, rows)], SIGN[classes][:, rows], WEIGHT[rows])
    close(other.f, mode.f[classes][:, rows], atol=1e-9)
    assert other.log_evidence == pytest.approx(mode.log_evidence, rel=1e-12)


def test_a_weight_is_a_number_of_repetitions_and_zero_is_no_row():
    weight = np.array([0, 1, 2, 3, 1, 0, 2, 1, 1])
    rows = np.repeat(np.arange(N), weight)
    weighted = find_mode(KERNEL, SIGN, weight.astype(float))
    repeated = find_mode(KERNEL[np.ix_(rows, rows)], SIGN[:, rows], np.ones(len(rows)))
    assert weighted.log_evidence == pytest.approx(repeated.log_evidence, rel=1e-10)
    close(weighted.f[:, rows], repeated.f, atol=1e-9)


def test_a_kernel_that_is_not_finite_has_no_mode():
    assert find_mode(np.full((N, N), np.nan), SIGN, WEIGHT) is None
    assert find_mode(np.full((N, N), np.inf), SIGN, WEIGHT) is None


# -- the mean of the softmax -------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0.3, 3.0, 50.0])
def test_the_mean_for_three_classes_is_a_sum_over_a_grid(size):
    """Within 4e-4, over a grid of the two differences with the first class, 50 points per deviation."""
    roots = GENERATOR.normal(size=(6, 3, 3))
    covariance = size * (roots @ roots.transpose(0, 2, 1) / 3 + 0.2 * np.eye(3))
    mean = np.sqrt(size) * GENERATOR.normal(size=(6, 3))
    axis = np.linspace(-7, 7, 701)
    normal = np.exp(-0.5 * axis**2)
    mass = np.outer(normal, normal) / normal.sum() ** 2
    difference = np.array([[-1.0, 1, 0], [-1, 0, 1]])
    found = mean_softmax(mean, covariance)
    for m, c, p in zip(mean, covariance, found, strict=True):
        root = np.linalg.cholesky(difference @ c @ difference.T)
        f = np.tensordot(root, np.stack(np.meshgrid(axis, axis, indexing="ij")), 1)
        f = np.concatenate([np.zeros((1, *mass.shape)), f + (difference @ m)[:, None, None]])
        close(p, (softmax(f, 0) * mass).sum((1, 2)), atol=4e-4)


def test_the_mean_for_ten_classes_is_an_integral():
    """Within 5e-3, 1e-3 on average, for independent f_c with equal variances.

    argmax_c (f_c + g_c) with Gumbel noise g_c is c with probability softmax(f)_c; the mean over f is one
    integral over the value of the largest, with the distribution functions of f_c + g_c by a sum over f_c.
    """
    nodes = np.linspace(-8, 8, 201)
    mass = np.exp(-0.5 * nodes**2)
    mass /= mass.sum()
    for scale in (0.5, 2.0, 5.0):
        mean = scale * GENERATOR.normal(size=10)
        value = np.linspace(mean.min() - 8 * scale - 5, mean.max() + 8 * scale + 40, 1601)
        gap = value[:, None] - mean[:, None, None] - scale * nodes  # (k, values, nodes)
        below = np.exp(-np.exp(-gap)) @ mass
        density = np.exp(-gap - np.exp(-gap)) @ mass
        others = np.exp(np.log(np.maximum(below, 1e-300)).sum(0) - np.log(np.maximum(below, 1e-300)))
        exact = scipy.integrate.simpson(density * others, x=value)
        assert exact.sum() == pytest.approx(1, abs=1e-6)
        covariance = scale**2 * np.eye(10) + 7.0  # a common shift changes nothing
        error = np.abs(mean_softmax(mean[None], covariance[None])[0] - exact)
        assert error.max() < 5e-3 and error.mean() < 1e-3


def test_the_mean_without_variance_is_the_softmax():
    mean = GENERATOR.normal(size=(3, 5)) * 400
    close(mean_softmax(mean, np.zeros((3, 5, 5))), softmax(mean, 1), atol=1e-12)
    assert mean_softmax(mean[:0], np.zeros((0, 5, 5))).shape == (0, 5)
