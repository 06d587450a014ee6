"""Filter, smoother, draws and forecasts against the joint normal distribution, conditioned by brute force."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax._util.linalg import gram, semidefinite_factor
from energax.algorithms.chains import kalman

STEPS = 6


def random_system(seed, k=3, d=2, zero_noise=False):
    """(m, P, A, b, Q, C, d, R) in NumPy, R with correlations."""
    rng = np.random.default_rng(seed)
    spread = lambda n: (lambda a: a @ a.T + 0.1 * np.eye(n))(rng.normal(size=(n, n)))
    Q = np.zeros((k, k)) if zero_noise else spread(k)
    A = rng.normal(size=(k, k)) / np.sqrt(k)
    return (
        rng.normal(size=k),
        spread(k),
        A,
        rng.normal(size=k),
        Q,
        rng.normal(size=(d, k)),
        rng.normal(size=d),
        spread(d),
    )


def as_system(parameters, dtype=jnp.float64):
    m, P, A, b, Q, C, d, R = (jnp.asarray(p, dtype) for p in parameters)
    factor = semidefinite_factor
    return evaluate(lambda: kalman.System(m, factor(P), A, b, factor(Q), C, d, R))


def smooth(system, x, observed=None):
    """(filtered, smoothed) as NumPy arrays, which can be read outside of `enable_x64`."""

    def both():
        filtered = kalman.kalman_filter(system, x, observed)
        return filtered, kalman.kalman_smoother(system, filtered)

    return jax.tree.map(np.asarray, evaluate(both))


def joint(parameters, steps):
    """Mean and covariance of (z₁ … z_T, x₁ … x_T), written out."""
    m, P, A, b, Q, C, d, R = parameters
    k = len(m)
    mean, cov = np.zeros((steps, k)), np.zeros((steps, k, steps, k))
    mean[0], cov[0, :, 0] = m, P
    for t in range(1, steps):
        mean[t] = A @ mean[t - 1] + b
        for s in range(t):
            cov[t, :, s] = A @ cov[t - 1, :, s]
            cov[s, :, t] = cov[t, :, s].T
        cov[t, :, t] = A @ cov[t - 1, :, t - 1] @ A.T + Q
    zz = cov.reshape(steps * k, steps * k)
    emission, noise = np.kron(np.eye(steps), C), np.kron(np.eye(steps), R)
    both = np.block([[zz, zz @ emission.T], [emission @ zz, emission @ zz @ emission.T + noise]])
    return np.concatenate([mean.ravel(), (mean @ C.T + d).ravel()]), both


def conditioned(parameters, x, observed):
    """(mean, covariance) of all variables given the observed values of x, and their log p."""
    steps = len(x)
    mean, cov = joint(parameters, steps)
    at = steps * len(parameters[0]) + np.flatnonzero(observed)
    gap, block = x[observed] - mean[at], cov[np.ix_(at, at)]
    gain = np.linalg.solve(block, cov[at]).T
    log_p = (
        -0.5 * (gap @ np.linalg.solve(block, gap) + np.linalg.slogdet(2 * np.pi * block)[1])
        if len(at)
        else 0.0
    )
    return mean + gain @ gap, cov - gain @ cov[at], log_p


PATTERNS = {
    "complete": lambda rng, shape: np.ones(shape, bool),
    "coordinates": lambda rng, shape: rng.random(shape) < 0.6,
    "steps": lambda rng, shape: np.repeat(np.array([1, 0, 0, 1, 1, 0], bool)[:, None], shape[1], 1),
    "nothing": lambda rng, shape: np.zeros(shape, bool),
}


@functools.lru_cache
def case(seed, pattern, zero_noise=False):
    rng = np.random.default_rng(100 + seed)
    parameters = random_system(seed, zero_noise=zero_noise)
    x = rng.normal(size=(STEPS, 2)) * 2
    return parameters, x, PATTERNS[pattern](rng, x.shape)


@pytest.mark.parametrize("zero_noise", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", [0, 1])
def test_filter_and_smoother_are_the_joint_normal_conditioned(seed, pattern, zero_noise):
    parameters, x, observed = case(seed, pattern, zero_noise)
    k = len(parameters[0])
    with jax.enable_x64(True):
        system = as_system(parameters)
        given = None if pattern == "complete" else jnp.asarray(observed)
        filtered = jax.jit(kalman.kalman_filter)(system, jnp.asarray(np.where(observed, x, 99.0)), given)
        smoothed = jax.jit(kalman.kalman_smoother)(system, filtered)
        before = 0.0
        for t in range(STEPS):
            so_far = observed & (np.arange(STEPS) <= t)[:, None]
            mean, cov, log_p = conditioned(parameters, x, so_far)
            here = slice(t * k, (t + 1) * k)
            np.testing.assert_allclose(filtered.mean[t], mean[here], atol=1e-9)
            np.testing.assert_allclose(gram(filtered.factor[t]), cov[here, here], atol=1e-9)
            np.testing.assert_allclose(filtered.log_likelihood[t], log_p - before, atol=1e-9)
            before = log_p
        mean, cov, log_p = conditioned(parameters, x, observed)
        np.testing.assert_allclose(filtered.log_likelihood.sum(), log_p, atol=1e-9)
        np.testing.assert_allclose(smoothed.mean.ravel(), mean[: STEPS * k], atol=1e-9)
        blocks = cov[: STEPS * k, : STEPS * k].reshape(STEPS, k, STEPS, k)
        for t in range(STEPS):
            np.testing.assert_allclose(smoothed.covariance[t], blocks[t, :, t], atol=1e-9)
        for t in range(STEPS - 1):
            np.testing.assert_allclose(smoothed.lag_one[t], blocks[t + 1, :, t], atol=1e-9)


def test_one_step_is_enough():
    parameters, x, observed = random_system(3), np.ones((1, 2)), np.ones((1, 2), bool)
    with jax.enable_x64(True):
        system = as_system(parameters)
        _, smoothed = smooth(system, jnp.asarray(x))
    mean, cov, _ = conditioned(parameters, x, observed)
    np.testing.assert_allclose(smoothed.mean[0], mean[:3], atol=1e-9)
    np.testing.assert_allclose(smoothed.covariance[0], cov[:3, :3], atol=1e-9)
    assert smoothed.lag_one.shape == (0, 3, 3)


def test_the_forecast_is_the_joint_normal_conditioned():
    parameters, x, observed = case(0, "coordinates")
    more = np.concatenate([x, np.zeros((3, 2))]), np.concatenate([observed, np.zeros((3, 2), bool)])
    mean, cov, _ = conditioned(parameters, *more)
    with jax.enable_x64(True):
        system = as_system(parameters)
        filtered, _ = smooth(system, jnp.asarray(x), jnp.asarray(observed))
        last = jnp.asarray(filtered.predicted_mean[-1]), jnp.asarray(filtered.predicted_factor[-1])
        ahead = jax.tree.map(np.asarray, evaluate(lambda: kalman.forecast(system, *last, 3)))
    n, k = STEPS + 3, 3
    np.testing.assert_allclose(ahead.state_mean.ravel(), mean[STEPS * k : n * k], atol=1e-9)
    np.testing.assert_allclose(ahead.mean.ravel(), mean[n * k + STEPS * 2 :], atol=1e-9)
    for i in range(3):
        z = slice((STEPS + i) * k, (STEPS + i + 1) * k)
        observed_at = slice(n * k + (STEPS + i) * 2, n * k + (STEPS + i + 1) * 2)
        np.testing.assert_allclose(ahead.state_covariance[i], cov[z, z], atol=1e-9)
        np.testing.assert_allclose(ahead.covariance[i], cov[observed_at, observed_at], atol=1e-9)


def test_noise_of_which_some_is_seen():
    parameters, _, observed = case(0, "coordinates")
    R = parameters[-1]
    with jax.enable_x64(True):
        gain, left = evaluate(lambda: kalman.completion(jnp.asarray(R), jnp.asarray(observed)))
        gain, left = np.asarray(gain), np.asarray(left)
    for t, row in enumerate(observed):
        o = np.flatnonzero(row)
        want = R[:, o] @ np.linalg.inv(R[np.ix_(o, o)])
        np.testing.assert_allclose(gain[t][:, o], want, atol=1e-9)
        assert not np.any(np.delete(gain[t], o, axis=1))
        np.testing.assert_allclose(left[t], R - want @ R[o], atol=1e-9)


def test_drawn_paths_have_the_moments_of_the_posterior():
    """20 000 paths: a mean further than 5 standard errors off is expected once in 10⁵ such tests."""
    parameters, x, observed = case(1, "coordinates")
    mean, cov, _ = conditioned(parameters, x, observed)
    mean, cov, n = mean[: STEPS * 3], cov[: STEPS * 3, : STEPS * 3], 20_000
    with jax.enable_x64(True):
        system = as_system(parameters)
        filtered = evaluate(lambda: kalman.kalman_filter(system, jnp.asarray(x), jnp.asarray(observed)))
        draw = jax.jit(jax.vmap(lambda key: kalman.sample_path(system, filtered, key)))
        z = np.asarray(draw(jax.random.split(jax.random.key(0), n))).reshape(n, -1)
    assert np.abs((z.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert np.abs((np.cov(z.T) - cov) / error).max() < 5.5


def test_simulated_sequences_have_the_moments_of_the_model():
    parameters, n = random_system(2), 20_000
    mean, cov = joint(parameters, 4)
    with jax.enable_x64(True):
        draw = jax.jit(jax.vmap(lambda key: kalman.simulate(as_system(parameters), 4, key)))
        z, x = draw(jax.random.split(jax.random.key(1), n))
    both = np.concatenate([np.asarray(z).reshape(n, -1), np.asarray(x).reshape(n, -1)], axis=1)
    assert np.abs((both.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert np.abs((np.cov(both.T) - cov) / error).max() < 5.5


# -- what breaks lesser filters -----------------------------------------------------------------------


def trend(initial, noise):
    """A local trend: level and slope, the level observed."""
    A = np.array([[1.0, 1.0], [0.0, 1.0]])
    return (
        np.zeros(2),
        initial * np.eye(2),
        A,
        np.zeros(2),
        noise,
        np.array([[1.0, 0.0]]),
        np.zeros(1),
        np.eye(1),
    )


@pytest.mark.parametrize("noise", [np.diag([0.1, 0.01]), np.diag([0.0, 0.01]), np.zeros((2, 2))], ids=str)
def test_float32_with_a_diffuse_start_keeps_its_digits(noise):
    """With a variance of 10⁷, recursions on covariances would lose all 7 digits."""
    x = np.cumsum(np.random.default_rng(0).normal(size=(300, 1)), 0)

    def run(dtype):
        system = as_system(trend(1e7, noise), dtype)
        filtered = jax.jit(kalman.kalman_filter)(system, jnp.asarray(x, dtype))
        smoothed = jax.jit(kalman.kalman_smoother)(system, filtered)
        return [np.asarray(a) for a in (smoothed.mean, smoothed.covariance, filtered.log_likelihood.sum())]

    rough = run(jnp.float32)
    with jax.enable_x64(True):
        fine = run(jnp.float64)
    assert all(a.dtype == np.float32 and np.isfinite(a).all() for a in rough)
    for a, b in zip(rough[:2], fine[:2], strict=True):
        assert np.abs(a - b).max() < 2e-3 * np.abs(b).max()
    assert abs(rough[2] - fine[2]) < 1e-4 * abs(fine[2])
    assert (np.linalg.eigvalsh(rough[1].astype(float)) > -1e-7 * np.abs(rough[1]).max()).all()


def test_a_diffuse_start_and_no_noise_is_least_squares():
    """With P = 10¹⁴ I and Q = 0 the smoothed line is the regression line."""
    t = np.arange(20.0)
    x = 3 + 0.5 * t + np.random.default_rng(1).normal(size=20)
    with jax.enable_x64(True):
        system = as_system(trend(1e14, np.zeros((2, 2))))
        _, smoothed = smooth(system, jnp.asarray(x[:, None]))
    slope, level = np.polyfit(t, x, 1)
    np.testing.assert_allclose(smoothed.mean[:, 0], level + slope * t, atol=1e-6)
    np.testing.assert_allclose(smoothed.mean[:, 1], slope, atol=1e-6)
    design = np.stack([np.ones(20), t - t[7]], 1)
    np.testing.assert_allclose(smoothed.covariance[7], np.linalg.inv(design.T @ design), rtol=1e-5)


def test_a_state_that_is_known_for_certain_stays_so():
    """P = 0 and Q = 0: the observations change nothing, and nothing is divided by zero."""
    m, _, A, b, _, C, d, R = random_system(4)
    zero = np.zeros((3, 3))
    with jax.enable_x64(True):
        system = as_system((m, zero, A, b, zero, C, d, R))
        _, smoothed = smooth(system, jnp.ones((5, 2)))
    z = [m]
    for _ in range(4):
        z.append(A @ z[-1] + b)
    np.testing.assert_allclose(smoothed.mean, z, atol=1e-12)
    np.testing.assert_allclose(smoothed.covariance, 0, atol=1e-20)


def test_a_singular_transition_and_singular_noise():
    """Rank one of each, as in a moving average."""
    rng = np.random.default_rng(5)
    theta = np.array([1.0, 0.7])
    A, Q = np.array([[0.5, 1.0], [0.0, 0.0]]), np.outer(theta, theta)
    parameters = np.zeros(2), np.zeros((2, 2)), A, np.zeros(2), Q, np.eye(2)[:1], np.zeros(1), 0.3 * np.eye(1)
    x = rng.normal(size=(STEPS, 1))
    mean, cov, log_p = conditioned(parameters, x, np.ones_like(x, bool))
    with jax.enable_x64(True):
        system = as_system(parameters)
        filtered, smoothed = smooth(system, jnp.asarray(x))
    blocks = cov[: STEPS * 2, : STEPS * 2].reshape(STEPS, 2, STEPS, 2)
    np.testing.assert_allclose(np.sum(np.asarray(filtered.log_likelihood)), log_p, atol=1e-9)
    np.testing.assert_allclose(smoothed.mean.ravel(), mean[: STEPS * 2], atol=1e-9)
    np.testing.assert_allclose(smoothed.covariance, [blocks[t, :, t] for t in range(STEPS)], atol=1e-9)
    np.testing.assert_allclose(smoothed.lag_one, [blocks[t + 1, :, t] for t in range(STEPS - 1)], atol=1e-9)


def test_the_gradient_of_the_likelihood_is_its_slope():
    parameters, x, observed = case(0, "coordinates")
    with jax.enable_x64(True):

        def log_p(parameters):
            filtered = kalman.kalman_filter(as_system(parameters), jnp.asarray(x), jnp.asarray(observed))
            return filtered.log_likelihood.sum()

        slope = jax.jit(jax.grad(log_p))([jnp.asarray(p) for p in parameters])
    for i, name in enumerate(("m", "P", "A", "b", "Q", "C", "d", "R")):
        rng = np.random.default_rng(i)
        way = rng.normal(size=parameters[i].shape)
        way = way + way.T if name in "PQR" else way
        moved = lambda h: [p + h * way if j == i else p for j, p in enumerate(parameters)]  # noqa: B023
        rise = conditioned(moved(1e-5), x, observed)[2] - conditioned(moved(-1e-5), x, observed)[2]
        # A factor reads only the lower triangle: the slope of a symmetric change is that of both halves.
        found = np.sum(np.asarray(slope[i]) * way)
        np.testing.assert_allclose(found, rise / 2e-5, rtol=1e-5, atol=1e-6, err_msg=name)


def by_parallel_scan(system, x, observed):
    from energax.algorithms.chains.kalman_parallel import parallel_filter, parallel_smoother

    filtered = parallel_filter(system, x, observed)
    return filtered, parallel_smoother(system, filtered)


def test_the_parallel_scan_says_the_same():
    parameters, x, observed = case(0, "coordinates")

    def one_by_one(system, x, observed):
        filtered = kalman.kalman_filter(system, x, observed)
        return filtered, kalman.kalman_smoother(system, filtered)

    with jax.enable_x64(True):
        arguments = as_system(parameters), jnp.asarray(x), jnp.asarray(observed)
        answers = jax.jit(one_by_one)(*arguments), jax.jit(by_parallel_scan)(*arguments)
        for a, b in zip(*answers, strict=True):
            assert type(a) is type(b)
            for name in a._fields:
                left, right = getattr(a, name), getattr(b, name)
                if "factor" in name or name == "rest":
                    left, right = gram(left), gram(right)
                np.testing.assert_allclose(left, right, atol=1e-9, err_msg=name)


def test_the_parallel_scan_in_float32_with_a_diffuse_start():
    x = np.cumsum(np.random.default_rng(0).normal(size=(STEPS, 1)), 0)
    parameters, observed = trend(1e7, np.zeros((2, 2))), np.ones((STEPS, 1), bool)
    mean, cov, log_p = conditioned(parameters, x, observed)
    system = as_system(parameters, jnp.float32)
    filtered, smoothed = jax.jit(by_parallel_scan)(system, jnp.asarray(x, jnp.float32), jnp.asarray(observed))
    np.testing.assert_allclose(smoothed.mean.ravel(), mean[: 2 * STEPS], atol=5e-3)
    blocks = [cov[2 * t : 2 * t + 2, 2 * t : 2 * t + 2] for t in range(STEPS)]
    np.testing.assert_allclose(smoothed.covariance, blocks, atol=5e-3)
    np.testing.assert_allclose(filtered.log_likelihood.sum(), log_p, rtol=1e-4)
