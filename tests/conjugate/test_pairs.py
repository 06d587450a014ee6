"""Conjugate pairs: batch and sequential updates, evidence by quadrature and by the chain rule, queries."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from scipy import stats

import energax
from energax.conjugate import (
    BetaBernoulli,
    DirichletCategorical,
    GammaPoisson,
    NormalInverseGamma,
    NormalInverseWishart,
)
from energax.errors import BadInput

RNG = np.random.default_rng(0)
CASES = {
    "BetaBernoulli": (lambda: BetaBernoulli(0.7, 2.0), [1, 0, 0, 1, 1, 0]),
    "several Bernoulli": (lambda: BetaBernoulli([0.7, 3.0], 2.0), RNG.integers(0, 2, (6, 2))),
    "DirichletCategorical": (lambda: DirichletCategorical([0.5, 1.0, 2.0]), [0, 2, 2, 1, 2, 0]),
    "GammaPoisson": (lambda: GammaPoisson(2.0, 0.5), [3, 0, 5, 2, 9, 1]),
    "several Poisson": (lambda: GammaPoisson([2.0, 1.0], [0.5, 0.1]), RNG.poisson(4, (6, 2))),
    "NormalInverseGamma": (lambda: NormalInverseGamma(0.5, 0.7, 1.5, 2.0), RNG.normal(3, 2, 6)),
    "several normal": (lambda: NormalInverseGamma([0.5, 0.0], 0.7, 1.5, 2.0), RNG.normal(3, 2, (6, 2))),
    "NormalInverseWishart": (
        lambda: NormalInverseWishart([0.5, -0.5], 0.7, 3.5, [[2.0, 0.3], [0.3, 1.0]]),
        RNG.normal(1, 2, (6, 2)),
    ),
}
each = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def same_pair(a, b, **tolerance):
    for one, two in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(one, two, **tolerance or {"rtol": 1e-12})


@each
def test_one_after_another_equals_all_at_once(name):
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    one_by_one = pair
    for x in data:
        one_by_one = one_by_one.posterior(x[None])
    same_pair(one_by_one, pair.posterior(data))
    same_pair(pair.posterior(data[:2]).posterior(data[2:]), pair.posterior(data))
    assert type(pair.posterior(data)) is type(pair)


@each
def test_the_evidence_is_the_product_of_predictives(name):
    """log p(x₁, …, x_n) = Σ log p(x_i | x_1, …, x_{i−1}), exactly."""
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    total = sum(float(pair.posterior(data[:i]).predictive.log_prob(x)) for i, x in enumerate(data))
    np.testing.assert_allclose(pair.log_evidence(data), total, rtol=1e-10)


@each
def test_weights_are_repetitions(name):
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    weights = np.array([1, 2, 0, 3, 1, 1])
    repeated = np.repeat(data, weights, axis=0)
    same_pair(pair.posterior(data, weights), pair.posterior(repeated))
    np.testing.assert_allclose(pair.log_evidence(data, weights), pair.log_evidence(repeated), rtol=1e-12)


@each
def test_no_data_changes_nothing(name):
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    same_pair(pair.posterior(data[:0]), pair)
    assert abs(pair.log_evidence(data[:0])) < 1e-12


def test_evidence_by_quadrature():
    data = np.array([1, 0, 0, 1, 1, 0])
    p = (np.arange(200_000) + 0.5) / 200_000  # the midpoint rule, in p² for the singularity at 0
    density = stats.beta(0.7, 2).pdf(p**2) * 2 * p * p ** (2 * data.sum()) * (1 - p**2) ** (6 - data.sum())
    np.testing.assert_allclose(BetaBernoulli(0.7, 2.0).log_evidence(data), np.log(density.mean()), rtol=1e-6)
    counts, log_rate = np.array([3, 0, 5]), np.linspace(-12, 5, 4001)
    rate, step = np.exp(log_rate), log_rate[1] - log_rate[0]
    density = stats.gamma(2, scale=2).pdf(rate) * stats.poisson(rate[:, None]).pmf(counts).prod(1) * rate
    found = GammaPoisson(2.0, 0.5).log_evidence(counts)
    np.testing.assert_allclose(found, np.log(density.sum() * step), rtol=1e-9)
    rows, log_v, z = np.array([1.0, 2.5]), np.linspace(-6, 9, 601), np.linspace(-12, 12, 601)
    v = np.exp(log_v)[:, None]
    m = 1.2 + z * np.sqrt(v)  # about the mean of the posterior, in units of σ
    density = (
        stats.invgamma(3.0, scale=2.0).pdf(v) * stats.norm(0.5, np.sqrt(v / 0.7)).pdf(m) * v * np.sqrt(v)
    )
    density = density * stats.norm(m, np.sqrt(v)).pdf(1.0) * stats.norm(m, np.sqrt(v)).pdf(2.5)
    total = density.sum() * (log_v[1] - log_v[0]) * (z[1] - z[0])
    np.testing.assert_allclose(
        NormalInverseGamma(0.5, 0.7, 3.0, 2.0).log_evidence(rows), np.log(total), rtol=1e-8
    )


def test_a_wishart_of_one_dimension_is_a_gamma():
    data = RNG.normal(2, 3, 8)
    one = NormalInverseGamma(0.5, 0.7, 1.5, 2.0)
    matrix = NormalInverseWishart([0.5], 0.7, 3.0, [[4.0]])
    np.testing.assert_allclose(one.log_evidence(data), matrix.log_evidence(data[:, None]), rtol=1e-12)


def test_predictives_of_scipy():
    np.testing.assert_allclose(
        GammaPoisson(2.5, 0.5).predictive.log_prob(np.arange(9)),
        stats.nbinom(2.5, 0.5 / 1.5).logpmf(np.arange(9)),
        rtol=1e-10,
    )
    x = np.linspace(-3, 3, 7)
    scale = np.sqrt(2 * 1.7 / (1.5 * 0.7))
    found = NormalInverseGamma(0.5, 0.7, 1.5, 2.0).predictive.log_prob(x)
    np.testing.assert_allclose(found, stats.t(3.0, 0.5, scale).logpdf(x), rtol=1e-10)
    rows, matrix = RNG.normal(size=(5, 2)), np.array([[2.0, 0.3], [0.3, 1.0]])
    found = NormalInverseWishart([0.5, -0.5], 0.7, 3.5, matrix).predictive.log_prob(rows)
    expected = stats.multivariate_t([0.5, -0.5], matrix * 1.7 / (0.7 * 2.5), df=2.5).logpdf(rows)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_missing_coordinates_are_left_out():
    pair = GammaPoisson([2.0, 1.0], 0.5)
    data = np.array([[3.0, np.nan], [1.0, 4.0]])
    after = pair.posterior(data)
    np.testing.assert_allclose(after.shape, [6.0, 5.0])
    np.testing.assert_allclose(after.rate, [2.5, 1.5])
    expected = GammaPoisson(2.0, 0.5).log_evidence([3, 1]) + GammaPoisson(1.0, 0.5).log_evidence([4])
    np.testing.assert_allclose(pair.log_evidence(data), expected)
    with pytest.raises(BadInput, match=r"^data: found missing values.*NormalInverseGamma"):
        NormalInverseWishart([0, 0], 1, 3, np.eye(2)).posterior([[1.0, np.nan]])


# -- queries about the energy ----------------------------------------------------------------------------


@each
def test_the_energy_is_the_joint_density(name):
    """e = −log p(x) − log p(θ | x), with the conditionals in closed form, and log Z = 0."""
    pair, data = CASES[name][0](), CASES[name][1]
    drawn = {k: np.asarray(v)[0] for k, v in energax.sample(pair, 1, key=1).items()}
    assert set(drawn) == set(pair.spaces)
    energy = float(pair(**drawn))
    x, total = {"x": drawn["x"]}, 0.0
    rest = [k for k in ("p", "rate", "variance", "covariance", "mean") if k in drawn]
    for k in rest:
        total -= float(pair.conditional(k, **x).log_prob(drawn[k]))
        x[k] = drawn[k]
    total += float(pair.free_energy(x=drawn["x"]))
    np.testing.assert_allclose(energy, total, rtol=1e-9)
    assert float(energax.log_partition(pair)) == 0
    rows = np.asarray(data)
    log_p = energax.log_prob(pair, {"x": rows})
    assert log_p.kind == "exact"
    np.testing.assert_allclose(log_p.value, [pair.log_evidence(x[None]) for x in rows], rtol=1e-9)


@pytest.mark.parametrize("name", ["BetaBernoulli", "GammaPoisson", "DirichletCategorical"])
def test_posteriors_of_single_observations(name):
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    (parameter,) = [k for k in pair.spaces if k != "x"]
    found = energax.posterior(pair, {"x": data}).mean[parameter]
    expected = np.array([np.asarray(pair.posterior(x[None]).prior.mean) for x in data])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["NormalInverseGamma", "NormalInverseWishart", "several Bernoulli"])
def test_draws_have_the_moments_of_the_posterior(name):
    """The mean of 20 000 exact draws is within 5 standard errors."""
    pair, data = CASES[name][0](), np.asarray(CASES[name][1])
    after = pair.posterior(np.tile(data, (4, *(1,) * (data.ndim - 1))))
    drawn = energax.sample(after, 20_000, key=0)
    for k in ("mean", "p", "x"):
        if k in drawn:
            values = np.asarray(drawn[k])
            expected = np.asarray(after.predictive.mean)
            assert (np.abs(values.mean(0) - expected) < 5 * values.std(0) / np.sqrt(20_000)).all()
    if "covariance" in drawn:
        values, d = np.asarray(drawn["covariance"]), 2
        expected = np.asarray(after.scale) / (float(after.dof) - d - 1)
        assert (np.abs(values.mean(0) - expected) < 5 * values.std(0) / np.sqrt(20_000)).all()


def test_hyperparameters_are_learned_from_groups():
    """Empirical Bayes: the gradient of the evidence of single observations, by the common `fit`."""
    rng = np.random.default_rng(0)
    rates = rng.gamma(4.0, 1 / 2.0, 4000)
    counts = rng.poisson(rates)
    learner = energax.learn.Descent(energax.learn.NegativeLogLikelihood(), optax.adam(0.1))
    fitted = energax.fit(GammaPoisson(1.0, 1.0), {"x": counts}, learner, epochs=200, key=0).energy
    best = GammaPoisson(4.0, 2.0)
    mean = lambda pair: float(energax.log_prob(pair, {"x": counts}).value.mean())
    assert mean(fitted) > mean(best) - 1e-3


def test_float32_and_saving(tmp_path):
    pair = BetaBernoulli(np.float32([1, 2]), np.float32(2))
    assert pair.posterior([[1, 0]]).a.dtype in (np.float32, np.float64)
    after = BetaBernoulli(1, 2).posterior([1, 1])
    energax.save(after, tmp_path / "pair.safetensors")
    same_pair(energax.load(tmp_path / "pair.safetensors"), after)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BetaBernoulli(0, 1), r"^a: found \[0.0\]; expected finite numbers > 0"),
        (lambda: BetaBernoulli([1, 2], [1, 2, 3]), r"^a, b: found the shapes"),
        (lambda: BetaBernoulli("x", 1), r"^a: found 'x'"),
        (lambda: BetaBernoulli(1, 1).posterior([2]), r"^data: found 2.*zeros and ones"),
        (lambda: BetaBernoulli(1, 1).posterior([1, 0], [1]), r"^weights: "),
        (lambda: BetaBernoulli(1, 1).posterior([1, 0], [1, -1]), r"^weights: "),
        (lambda: DirichletCategorical(1.0), r"^alpha: found shape \(\)"),
        (lambda: DirichletCategorical([1, 1]).posterior([2]), r"^data: "),
        (lambda: GammaPoisson(1, 1).log_evidence([1.5]), r"^data: found 1.5"),
        (lambda: NormalInverseGamma(np.nan, 1, 1, 1), r"^mean: found \[nan\]"),
        (lambda: NormalInverseWishart([0, 0], 1, 1, np.eye(2)), r"^dof: found 1; expected a number > 1"),
        (lambda: NormalInverseWishart([0, 0], 1, 3, -np.eye(2)), r"^scale: "),
        (lambda: NormalInverseWishart([0, 0], 1, 3, np.eye(3)), r"^scale: found shape \(3, 3\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(BadInput, match=message):
        call()
