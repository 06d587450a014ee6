"""Samplers of real and mixed variables: closed-form targets and tuning.

Means of draws are compared within five standard errors of the effective draws: an error of 6e-7 for each.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from function_energy import Given

from energax import (
    Binary,
    Categorical,
    Count,
    Energy,
    Interval,
    Ordered,
    Positive,
    Real,
    Simplex,
    posterior,
    sample,
)
from energax.energies import RBM
from energax.errors import ConvergenceWarning
from energax.samplers import (
    HMC,
    MALA,
    NUTS,
    SGHMC,
    SGLD,
    Compound,
    Draws,
    EllipticalSlice,
    Gibbs,
    MetropolisHastings,
    ParallelTempering,
    RandomWalk,
)

COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 100.0]])


class Normal(Energy):
    """N(mean, covariance)."""

    mean: jax.Array
    precision: jax.Array

    @property
    def spaces(self):
        return {"x": Real(self.mean.shape[0])}

    def __call__(self, *, x):
        return 0.5 * (x - self.mean) @ self.precision @ (x - self.mean)


class Shaped(Energy):
    """Gamma(3), Uniform(0, 2) and Dirichlet(2, 3, 4) side by side, each in its own space."""

    one: jax.Array

    @property
    def spaces(self):
        return {"g": Positive(), "u": Interval(0, 2), "s": Simplex(3)}

    def __call__(self, *, g, u, s):
        return g * self.one - 2 * jnp.log(g) - jnp.sum(jnp.array([1.0, 2.0, 3.0]) * jnp.log(s)) + 0 * u


class ChangePoint(Energy):
    """Counts with rate a before the change c and b after it, a, b ~ Gamma(2, 1/5); extra ~ Poisson(3)."""

    counts: jax.Array

    @property
    def spaces(self):
        return {"a": Positive(), "b": Positive(), "c": Categorical(self.counts.size), "extra": Count()}

    def __call__(self, *, a, b, c, extra):
        before = jnp.arange(self.counts.size) < c
        rate = jnp.where(before, a, b)
        prior = a / 5 - jnp.log(a) + b / 5 - jnp.log(b)
        poisson = jax.scipy.special.gammaln(extra + 1.0) - extra * jnp.log(3.0)
        return prior + poisson + jnp.sum(rate - self.counts * jnp.log(rate))


def normal():
    mean = jnp.array([1.0, -1.0, 10.0])
    return Normal(mean, jnp.asarray(np.linalg.inv(COVARIANCE), jnp.float32))


def check_mean(draws, name, mean, statistic=lambda x: x):
    """Compare the mean of a statistic with the truth, within five standard errors of the effective draws."""
    chains = statistic(draws.chains[name])
    chains = chains.reshape(*chains.shape[:2], -1).astype(float)
    ess = Draws({"x": chains}, method="").ess
    error = 5 * chains.std((0, 1)) / np.sqrt(ess) + 1e-3 * np.abs(mean)
    assert (np.abs(chains.mean((0, 1)) - np.ravel(mean)) < error).all(), (chains.mean((0, 1)), mean, error)


@pytest.mark.parametrize(
    ("sampler", "n"),
    [
        (NUTS(), 4000),
        (NUTS(dense=True), 4000),
        (HMC(), 4000),
        (MALA(dense=True), 20000),
        (RandomWalk(), 20000),
    ],
    ids=lambda p: getattr(p, "label", None),
)
def test_a_normal_of_three_scales(sampler, n):
    draws = sample(normal(), n, method=sampler, key=1)
    check_mean(draws, "x", [1.0, -1.0, 10.0])
    squares = lambda x: (x - np.array([1.0, -1.0, 10.0])) ** 2
    check_mean(draws, "x", np.diag(COVARIANCE), squares)
    check_mean(draws, "x", 0.9, lambda x: (x[..., 0] - 1) * (x[..., 1] + 1))
    assert not draws.problem


@pytest.mark.parametrize("sampler", [NUTS(), RandomWalk()], ids=lambda s: s.label)
def test_constrained_spaces_have_their_jacobian(sampler):
    draws = sample(Shaped(jnp.ones(())), 8000, method=sampler, key=0)
    check_mean(draws, "g", 3.0)
    check_mean(draws, "g", 12.0, lambda g: g**2)
    check_mean(draws, "u", 1.0)
    check_mean(draws, "u", 4 / 3, lambda u: u**2)
    check_mean(draws, "s", np.array([2, 3, 4]) / 9)


def test_clamped_coordinates_are_conditioned_on():
    """x₀ given x₁ = 1: mean 1 + 0.9 · 2, variance 0.19."""
    given = {"x": [np.nan, 1.0, np.nan]}
    draws = sample(normal(), 8000, given, method=NUTS(), key=0)
    assert (draws["x"][:, 1] == 1).all()
    check_mean(draws, "x", 2.8, lambda x: x[..., 0])
    check_mean(draws, "x", 0.19, lambda x: (x[..., 0] - 2.8) ** 2)


def test_finite_variables_are_summed_out_and_drawn():
    """Two wells of different width and weight, z known given x: p(z = 1) = 1/4 with σ = 1 and 3."""

    class Wells(Energy):
        one: jax.Array

        @property
        def spaces(self):
            return {"x": Real(), "z": Binary()}

        def __call__(self, *, x, z):
            scale = jnp.where(z == 1, 3.0, self.one)
            weight = jnp.where(z == 1, 0.25, 0.75)
            return 0.5 * (x / scale) ** 2 + jnp.log(scale) - jnp.log(weight)

    draws = sample(Wells(jnp.ones(())), 8000, method=NUTS(), key=0)
    check_mean(draws, "z", 0.25)
    check_mean(draws, "x", 0.75 + 0.25 * 9, lambda x: x**2)


def test_elliptical_slice_of_a_gaussian_posterior():
    """Prior N(0, K), y = f + noise of variance 1/4: the posterior is in closed form."""
    t = np.linspace(0, 3, 4)
    k = np.exp(-0.5 * (t[:, None] - t) ** 2) + 1e-4 * np.eye(4)
    y = np.array([1.0, 0.5, -0.5, 0.0])

    class Posterior(Energy):
        precision: jax.Array
        y: jax.Array

        @property
        def spaces(self):
            return {"f": Real(4)}

        def __call__(self, *, f):
            return 0.5 * f @ self.precision @ f + 2 * jnp.sum((self.y - f) ** 2)

    with jax.enable_x64(True):
        energy = Posterior(jnp.asarray(np.linalg.inv(k)), jnp.asarray(y))
        draws = sample(energy, 8000, method=EllipticalSlice(jnp.asarray(k)), key=0)
    gain = k @ np.linalg.inv(k + 0.25 * np.eye(4))
    check_mean(draws, "f", gain @ y)
    check_mean(draws, "f", np.diag(k - gain @ k), lambda f: (f - gain @ y) ** 2)


def test_metropolis_hastings_with_an_asymmetric_proposal():
    """Gamma(3) by multiplicative steps, whose ratio q(x | x′) / q(x′ | x) is x′ / x."""
    propose = lambda key, state: {"g": state["g"] * jnp.exp(0.8 * jax.random.normal(key))}
    ratio = lambda old, new: jnp.log(new["g"]) - jnp.log(old["g"])

    class Gamma(Energy):
        one: jax.Array

        @property
        def spaces(self):
            return {"g": Positive()}

        def __call__(self, *, g):
            return self.one * g - 2 * jnp.log(g)

    draws = sample(Gamma(jnp.ones(())), 20000, method=MetropolisHastings(propose, ratio), key=0)
    check_mean(draws, "g", 3.0)


def test_a_compound_of_kernels_for_mixed_spaces():
    """The rates given the change point c are gamma distributions, so that p(c) is in closed form."""
    counts = np.array([5, 4, 6, 5, 1, 0, 1, 2])
    energy = ChangePoint(jnp.asarray(counts, jnp.float32))
    draws = sample(energy, 8000, key=0)
    assert draws.method == "compound"
    sums = np.cumsum(np.concatenate([[0], counts]))[: counts.size]
    log_p, mean_a = [], []
    for c, s in enumerate(sums):
        shape_a, rate_a, shape_b, rate_b = 2 + s, c + 0.2, 2 + counts.sum() - s, counts.size - c + 0.2
        gammaln = lambda v: float(jax.scipy.special.gammaln(float(v)))
        log_p.append(
            gammaln(shape_a) - shape_a * np.log(rate_a) + gammaln(shape_b) - shape_b * np.log(rate_b)
        )
        mean_a.append(shape_a / rate_a)
    p = np.exp(np.array(log_p) - np.logaddexp.reduce(log_p))
    for c in range(counts.size):
        check_mean(draws, "c", p[c], lambda x, c=c: x == c)
    check_mean(draws, "a", p @ np.array(mean_a))
    check_mean(draws, "extra", 3.0)
    check_mean(draws, "extra", 12.0, lambda x: x.astype(float) ** 2)


class Double(Energy):
    """Wells at ±2 with a barrier of 16; the one at 2 has 3/4 of the mass."""

    height: jax.Array

    @property
    def spaces(self):
        return {"x": Real()}

    def __call__(self, *, x):
        left, right = -self.height * (x + 2) ** 2, -self.height * (x - 2) ** 2
        return -jnp.logaddexp(jnp.log(0.25) + left, jnp.log(0.75) + right)


def test_tempering_crosses_barriers_and_walks_do_not():
    wells = Double(jnp.array(8.0))
    with pytest.warns(ConvergenceWarning, match="ParallelTempering"):
        sample(wells, 4000, method=RandomWalk(scale=0.3), key=0)
    draws = sample(wells, 8000, method=ParallelTempering(RandomWalk()), key=0)
    check_mean(draws, "x", 0.75, lambda x: x > 0)
    check_mean(draws, "x", 4 + 1 / 16, lambda x: x**2)


def test_tempering_of_gibbs_agrees_with_enumeration():
    rbm = RBM(8.0 * jnp.ones((2, 1)), jnp.full(2, -4.0), jnp.full(1, -7.5))
    draws = sample(rbm, 8000, method=ParallelTempering(Gibbs(), n_temperatures=4), key=0)
    check_mean(draws, "z", float(posterior(rbm).mean["z"][0]))


class Linked(Energy):
    """e(m, s, t) = ½ m² + ½ (s − m)² + ½ t² + shift."""

    shift: jax.Array

    @property
    def spaces(self):
        return {"m": Real(), "s": Real(), "t": Real()}

    def __call__(self, *, m, s, t):
        return 0.5 * (m**2 + (s - m) ** 2 + t**2) + self.shift


@pytest.mark.parametrize(
    "wrap",
    [
        lambda inner: ParallelTempering(inner, n_temperatures=3, max_temperature=4.0),
        lambda inner: Compound({"m": inner, ("s", "t"): RandomWalk()}),
    ],
    ids=["tempering", "compound"],
)
def test_a_momentum_outlives_swaps_and_other_moves(wrap):
    """m, s − m and t are standard normal. Without its momentum SGHMC would not move."""
    energy = Linked(jnp.zeros(()))
    draws = sample(energy, 8000, method=wrap(SGHMC(0.2)), key=0, thin=5)
    for name, variance in (("m", 1.0), ("s", 2.0), ("t", 1.0)):
        check_mean(draws, name, 0.0)
        np.testing.assert_allclose(draws[name].var(), variance, rtol=0.15)


def test_decaying_steps_decay_inside_other_samplers():
    """A step that has decayed to nearly 0 no longer moves m, whatever holds the sampler."""
    tiny = SGLD(0.1, decay=1.0, delay=1e-4)
    for method in (
        Compound({"m": tiny, ("s", "t"): RandomWalk()}),
        ParallelTempering(tiny, n_temperatures=2),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            chain = sample(Linked(jnp.zeros(())), 400, method=method, key=0, warmup=100).chains["m"]
        steps = np.abs(np.diff(chain, axis=1))
        assert np.median(steps) < 1e-2, method.label


def test_one_step_of_tempering_leaves_p_as_it_is():
    """A step without memory, as annealed methods make: exact draws of N(0, 1) stay so."""
    energy = Given(lambda x: 0.5 * x**2, Real())
    sampler = ParallelTempering(RandomWalk(1.0), n_temperatures=2)
    rows = {"x": jnp.asarray(np.random.default_rng(0).normal(size=20_000), jnp.float32)}
    moved = jax.jit(lambda rows, key: sampler.advance(energy, rows, 3, key))(rows, jax.random.key(1))["x"]
    assert (np.asarray(moved) != rows["x"]).mean() > 0.5
    assert scipy.stats.kstest(np.asarray(moved), "norm").pvalue > 1e-3


@pytest.mark.parametrize("dense", [False, True], ids=["diagonal", "matrix"])
def test_the_warm_up_finds_the_variances(dense):
    sampler, energy = NUTS(dense=dense), normal()
    state = {"x": jnp.zeros(3)}

    @jax.jit
    def move(i, tuning, state, memory):
        state, memory, info = sampler.with_tuning(tuning).move(energy, state, memory, jax.random.key(i))
        return sampler.adapt(tuning, i, 500, state, memory, info), state, memory

    memory = sampler.init_memory(energy, state)
    tuning = sampler.init_tuning(energy, state, memory)
    for i in range(500):
        tuning, state, memory = move(i, tuning, state, memory)
    found = np.asarray(tuning.inverse_mass)
    variances = np.diag(found) if found.ndim == 2 else found
    ratio = variances / np.diag(COVARIANCE)
    assert (ratio > 0.5).all() and (ratio < 2).all()
    if found.ndim == 2:
        assert 0.8 < found[0, 1] / np.sqrt(variances[0] * variances[1]) < 0.95  # truly 0.9


@pytest.mark.parametrize(
    ("covariance", "dense"),
    [
        (np.diag([1e-6, 1e-6, 1e-6, 1e-6, 1.0]), False),  # 700 with Stan's prior of variances
        (0.001 * np.eye(5) + 0.999, True),  # 300 with a diagonal
    ],
    ids=["small scales", "correlated"],
)
def test_scales_and_correlations_are_tuned(covariance, dense):
    """Effective draws of 4000 of squares, which see steps that are too small for a wide coordinate."""
    precision = jnp.asarray(np.linalg.inv(covariance), jnp.float32)
    draws = sample(Normal(jnp.zeros(5), precision), 4000, method=NUTS(dense=dense), key=0)
    squares = Draws({"x": draws.chains["x"].astype(float) ** 2}, method="")
    assert min(draws.ess.min(), squares.ess.min()) > 1500, (draws.ess, squares.ess)
    np.testing.assert_allclose(draws["x"].var(0), np.diag(covariance), rtol=0.15)


def test_new_parameters_do_not_compile_again():
    traces = []

    class Counted(Energy):
        scale: jax.Array

        @property
        def spaces(self):
            return {"x": Real(2)}

        def __call__(self, *, x):
            traces.append(1)
            return 0.5 * self.scale * jnp.sum(x**2)

    sample(Counted(jnp.array(1.0)), 400, method=NUTS(), key=0, warmup=100)
    before = len(traces)
    draws = sample(Counted(jnp.array(4.0)), 400, method=NUTS(), key=1, warmup=100)
    assert before > 0 and len(traces) == before
    assert abs(draws["x"].std() - 0.5) < 0.1


def test_new_data_of_the_same_shape_does_not_compile_again():
    """Data in the energy and data that are given: y ~ N(m + shift, 1) four times, m ~ N(0, 1)."""
    traces = []

    class Shifted(Energy):
        shift: jax.Array

        @property
        def spaces(self):
            return {"m": Real(), "y": Real(4)}

        def __call__(self, *, m, y):
            traces.append(1)
            return 0.5 * m**2 + 0.5 * jnp.sum((y - m - self.shift) ** 2)

    draw = lambda shift, y: sample(Shifted(jnp.array(shift)), 400, {"y": y}, method=NUTS(), key=0, warmup=100)
    first = draw([0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0])
    before = len(traces)
    second = draw([1.0, 1.0, 1.0, 1.0], [-1.0, -2.0, -3.0, -4.0])
    assert before > 0 and len(traces) == before
    assert abs(first["m"].mean() - 2) < 0.2 and abs(second["m"].mean() + 2.8) < 0.2


def test_ordered_vectors_have_their_jacobian():
    """Order statistics of three standard normal numbers: their means, and the largest one squared."""
    energy = Given(lambda x: 0.5 * jnp.sum(x**2), Ordered(3))
    draws = sample(energy, 8000, method=NUTS(target_acceptance=0.95), key=0)
    largest = 3 / (2 * np.sqrt(np.pi))
    for i, mean in enumerate((-largest, 0.0, largest)):
        check_mean(draws, "x", mean, lambda x, i=i: x[..., i])
    check_mean(draws, "x", 1 + np.sqrt(3) / (2 * np.pi), lambda x: x[..., 2] ** 2)


def test_heavy_tails_of_positive_variables_are_light_for_chains():
    """Half-Cauchy: P(x > 10) = 1 − 2 arctan(10) / π. In the coordinates of chains its tail is exponential."""
    energy = Given(lambda x: jnp.log1p(x**2).sum(), Positive(20))
    draws = sample(energy, 4000, method=NUTS(), key=0)
    assert not draws.problem and draws.ess.min() > 1000 and np.nanmax(draws.rhat) < 1.02
    check_mean(draws, "x", np.full(20, 1 - 2 * np.arctan(10) / np.pi), lambda x: x > 10)


def test_positive_coordinates_of_chains_have_an_inverse_and_their_jacobian():
    transform = Positive().chain_bijection
    u = jnp.array([-80.0, -10.0, -1.0, 0.0, 1.0, 4.0, 30.0, 150.0])
    x = transform(u)
    assert (x > 0).all() and (np.diff(x) > 0).all()
    np.testing.assert_allclose(transform.inv(x), u, rtol=1e-4, atol=1e-5)
    slopes = jax.vmap(jax.grad(transform))(u)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(u, x), jnp.log(slopes), rtol=1e-4, atol=1e-5)
