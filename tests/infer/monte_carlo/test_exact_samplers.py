"""Exact samplers: rejection, inverse transform and the Gumbel trick have the distribution that they claim.

Tests of goodness of fit (Kolmogorov–Smirnov, χ²) reject a true distribution with probability 1e-3 each; seeds
are fixed.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro import distributions as dist
from scipy import stats

from energax import Energy, Mixture, log_partition, log_prob, sample
from energax.energies import RBM, Gaussians, NeuralEnergy
from energax.errors import BadInput, Intractable, Unsuitable
from energax.infer import Enumeration, GumbelMax, InverseTransform, Rejection
from energax.samplers import gumbel_max, gumbel_top_k
from energax.spaces import Binary, Categorical, Count, Interval, Positive, Real

RATE = 1e-3


class One(Energy):
    """An energy over one number x, given an optional y: −log of a density of x, times exp(3)."""

    space: object
    log_density: object
    conditioned: bool = False

    @property
    def spaces(self):
        return {"x": self.space, **({"y": Real()} if self.conditioned else {})}

    def __call__(self, *, x, y=0.0):
        return -jnp.sum(self.log_density(x, y)) - 3


def fits(draws, cdf):
    return stats.kstest(np.asarray(draws, float).ravel(), cdf).pvalue > RATE


# -- inverse transform -----------------------------------------------------------------------------

CASES = {
    "normal far from 0": (Real(), dist.Normal(700.0, 2.5), stats.norm(700, 2.5)),
    "narrow": (Real(1), dist.Normal(-3.0, 0.01), stats.norm(-3, 0.01)),
    "Student t": (Real(), dist.StudentT(3.0), stats.t(3)),
    "two modes": (
        Real(),
        dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([-20.0, 4.0]), 1.0)
        ),
        None,
    ),
    "gamma with a pole": (Positive(), dist.Gamma(0.5, 2.0), stats.gamma(0.5, scale=0.5)),
    "exponential": (Positive(1), dist.Exponential(1e-3), stats.expon(scale=1e3)),
    "beta": (Interval(0, 1), dist.Beta(2.0, 5.0), stats.beta(2, 5)),
    "uniform": (Interval(-3, 5), dist.Uniform(-3.0, 5.0), stats.uniform(-3, 8)),
}


def two_modes(x):
    return 0.3 * stats.norm(-20).cdf(x) + 0.7 * stats.norm(4).cdf(x)


@pytest.mark.parametrize("name", CASES)
def test_numeric_inverses_have_the_distribution_and_the_integral(name):
    space, law, truth = CASES[name]
    energy = One(space, lambda x, y: law.log_prob(x))
    draws = sample(energy, 4000, method=InverseTransform(), key=1)
    assert draws.exact and "quadrature" in draws.verdict and draws["x"].dtype == np.float32
    assert fits(draws["x"], two_modes if truth is None else truth.cdf)
    found = log_partition(energy, InverseTransform())
    assert found.kind == "estimate" and float(found.value) == pytest.approx(3, abs=1e-3)


def test_the_quadrature_in_double_precision():
    with jax.enable_x64(True):
        for law, space in ((dist.Normal(5.0, 0.3), Real()), (dist.Gamma(2.5, 1.0), Positive())):
            energy = One(space, lambda x, y, law=law: law.log_prob(x))
            assert float(log_partition(energy, InverseTransform()).value) == pytest.approx(3, abs=1e-6)
            draws = sample(energy, 2000, method=InverseTransform(), key=0)["x"]
            assert draws.dtype == np.float64


def test_inverses_against_the_exact_quantiles():
    """F⁻¹ itself, at given probabilities, including tails: relative to the deviation of the normal."""
    from energax.infer._monte_carlo.numeric_cdf import build_cdfs

    found = build_cdfs(lambda rows, u: stats.norm(2.0, 0.5 + rows).logpdf(u), 2)
    p = np.array([1e-6, 1e-3, 0.1, 0.5, 0.9, 0.999, 1 - 1e-6])
    for row, cdf in enumerate(found):
        truth = stats.norm(2.0, 0.5 + row)
        assert np.abs(truth.cdf(cdf.inverse(p)) - p).max() < 1e-7
        assert abs(cdf.log_mass) < 1e-7 < cdf.error < 1e-3


def test_rows_of_given_values_have_their_own_distributions():
    energy = One(Positive(), lambda x, y: dist.Gamma(3.0, jnp.exp(y)).log_prob(x), True)
    y = np.array([-2.0, 0.0, 1.5])
    draws = sample(energy, 2000, {"y": y}, InverseTransform(), key=3)["x"]
    assert draws.shape == (2000, 3)
    for i in range(3):
        assert stats.kstest(draws[:, i], stats.gamma(3, scale=np.exp(-y[i])).cdf).pvalue > RATE / 3
    assert abs(np.corrcoef(np.log(draws[:, 0]), np.log(draws[:, 1]))[0, 1]) < 3.3 / np.sqrt(2000)
    assert sample(energy, 7, {"y": 0.0}, InverseTransform(), key=3)["x"].shape == (7,)


def chi_square(values, expected):
    """Whether counts of 0, 1, … fit; values expected fewer than 5 times are one class."""
    counts = np.bincount(np.asarray(values, int).ravel(), minlength=len(expected)).astype(float)
    common = expected >= 5
    seen = np.append(counts[: len(expected)][common], counts.sum() - counts[: len(expected)][common].sum())
    hoped = np.append(expected[common], counts.sum() - expected[common].sum())
    keep = hoped > 1e-9
    return stats.chisquare(seen[keep], hoped[keep] * seen[keep].sum() / hoped[keep].sum()).pvalue > RATE


def test_counts_and_finite_values():
    n = 5000
    for rate in (0.3, 2500.0):
        energy = One(Count(), lambda x, y, rate=rate: dist.Poisson(rate).log_prob(x))
        draws = sample(energy, n, method=InverseTransform(), key=0)["x"]
        assert chi_square(draws, n * stats.poisson(rate).pmf(np.arange(4000)))
        # float32 resolves the log-gamma of 2500 to about 1e-3.
        assert float(log_partition(energy, InverseTransform()).value) == pytest.approx(3, abs=5e-3)
    p = np.array([0.1, 0.0, 0.6, 0.3])
    energy = One(Categorical(4), lambda x, y: jnp.log(jnp.asarray(p))[x])
    found = sample(energy, n, method=InverseTransform(), key=0)
    assert found.verdict == "5000 exact, independent draws (inverse transform)"
    assert chi_square(found["x"], n * p) and not (found["x"] == 1).any()
    assert log_partition(energy, InverseTransform()).kind == "exact"


def test_a_closed_form_inverse_is_used():
    class Tilted(Energy):
        @property
        def spaces(self):
            return {"x": Real(), "y": Real()}

        def __call__(self, *, x, y):
            return 0.5 * ((x - 2 * y) / 3) ** 2

        def conditional(self, name, **given):
            return dist.Normal(2 * given["y"], 3.0)

    draws = sample(Tilted(), 4000, {"y": 1.0}, InverseTransform(), key=0)
    assert draws.verdict == "4000 exact, independent draws (inverse transform)"
    assert fits(draws["x"], stats.norm(2, 3).cdf)


def test_log_prob_by_quadrature():
    energy = One(Interval(0, 1), lambda x, y: dist.Beta(2.0, 5.0).log_prob(x))
    at = np.array([0.1, 0.5, 0.9])
    found = log_prob(energy, {"x": at}, InverseTransform())
    np.testing.assert_allclose(found.value, stats.beta(2, 5).logpdf(at), atol=1e-3)


def test_integrals_that_do_not_converge_are_errors():
    with pytest.raises(Unsuitable, match="does not converge"):
        log_partition(One(Real(), lambda x, y: 0.0 * x), InverseTransform())
    with pytest.raises(Unsuitable, match="does not converge within"):
        log_partition(One(Count(), lambda x, y: 0.0 * x), InverseTransform())
    with pytest.raises(Unsuitable, match="one number"):
        sample(NeuralEnergy.random(2, key=0), 3, method=InverseTransform(), key=0)


# -- rejection -------------------------------------------------------------------------------------

BUMP = One(Real(), lambda x, y: -0.5 * x**2 + jnp.log1p(jnp.sin(3 * x) ** 2))  # ≤ −x²/2 + log 2
WIDE = dist.Normal(0.0, 1.0)
LOG_BOUND = 3 + np.log(2) + 0.5 * np.log(2 * np.pi)


def bump_cdf():
    x = np.linspace(-9, 9, 40_001)
    density = np.exp(-0.5 * x**2) * (1 + np.sin(3 * x) ** 2)
    cdf = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return lambda at: np.interp(at, x, cdf / cdf[-1])


def test_accepted_proposals_have_the_distribution_and_the_rate():
    """Z / M of the proposals are accepted: E[1 + sin²(3x)] / 2 = (3/2 − exp(−18) / 2) / 2 = 0.75."""
    draws = sample(BUMP, 4000, method=Rejection(WIDE, LOG_BOUND), key=0)
    assert fits(draws["x"], bump_cdf())
    n = 4000 / 0.75
    assert abs(draws.info["acceptance"] - 0.75) < stats.norm.isf(RATE / 2) * np.sqrt(0.75 * 0.25 / n)
    assert (
        draws.exact and "of the proposals accepted" in draws.verdict and "exact, independent" in draws.verdict
    )


def test_a_bound_found_by_optimisation_is_the_maximum():
    draws = sample(BUMP, 4000, method=Rejection(WIDE), key=1)
    assert float(draws.info["log_bound"]) == pytest.approx(LOG_BOUND, abs=2e-3)
    assert fits(draws["x"], bump_cdf()) and "found by optimisation" in draws.verdict
    positive = One(Positive(), lambda x, y: dist.Gamma(2.5, 1.0).log_prob(x))
    draws = sample(positive, 3000, method=Rejection({"x": dist.Exponential(0.4)}), key=2)
    assert fits(draws["x"], stats.gamma(2.5).cdf)
    x = np.linspace(0.01, 30, 100_000)
    largest = (stats.gamma(2.5).logpdf(x) - stats.expon(scale=2.5).logpdf(x)).max() + 3
    assert float(draws.info["log_bound"]) == pytest.approx(largest, abs=2e-3)


def test_rejection_by_rows_and_from_an_energy():
    energy = One(Positive(), lambda x, y: dist.Gamma(2.0, jnp.exp(y)).log_prob(x), True)
    y = np.array([-1.0, 0.5])
    propose = lambda y: dist.Exponential(jnp.exp(y) / 2)
    draws = sample(energy, 2000, {"y": y}, Rejection(propose), key=0)
    assert draws["x"].shape == (2000, 2) and draws.info["acceptance"].shape == (2,)
    for i in range(2):
        assert stats.kstest(draws["x"][:, i], stats.gamma(2, scale=np.exp(-y[i])).cdf).pvalue > RATE / 2
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0)
    wide = Mixture(Gaussians(jnp.zeros((1, 2)), 4 * jnp.eye(2)[None]))
    draws = sample(bowl, 2000, method=Rejection(wide, np.log(4 * 2 * np.pi)), key=0)
    assert fits(draws["x"], stats.norm.cdf) and draws.info["acceptance"] == pytest.approx(0.25, abs=0.04)


def test_finite_values_by_rejection():
    p = np.array([0.1, 0.4, 0.2, 0.3])
    energy = One(Categorical(4), lambda x, y: jnp.log(jnp.asarray(p))[x])
    draws = sample(energy, 3000, method=Rejection(dist.Categorical(jnp.ones(4) / 4)), key=0)
    assert chi_square(draws["x"], 3000 * p)
    assert draws.info["log_bound"] == pytest.approx(3 + np.log(0.4 * 4), abs=1e-5)
    assert "optimisation" not in draws.verdict  # the maximum of four numbers is certain


def test_a_wrong_envelope_is_an_error_that_names_the_point():
    with pytest.raises(
        BadInput, match=r"log_bound: found 3; expected at least .* larger at x = .*wider tails"
    ):
        sample(BUMP, 100, method=Rejection(WIDE, 3.0), key=0)
    given = One(Real(), lambda x, y: -0.5 * (x - y) ** 2, True)
    method = Rejection(WIDE, np.array([3 + 0.5 * np.log(2 * np.pi), 0.0]))
    with pytest.raises(BadInput, match="of row 1"):
        sample(given, 100, {"y": np.array([0.0, 1.0])}, method, key=0)


def test_hopeless_rates_and_unbounded_ratios_are_errors():
    with pytest.raises(Intractable, match=r"proposals, more than the limit of 2,000.*were accepted"):
        sample(BUMP, 100, method=Rejection(WIDE, 30.0, max_proposals=2000), key=0)
    flat = One(Real(), lambda x, y: dist.Normal(0.0, 5.0).log_prob(x))
    with pytest.raises(Unsuitable, match="no bound"):
        sample(flat, 100, method=Rejection(WIDE), key=0)
    with pytest.raises(Unsuitable, match="needs a proposal="):
        sample(BUMP, 100, method=Rejection(), key=0)
    with pytest.raises(BadInput, match="log_bound"):
        Rejection(WIDE, np.nan)


# -- Gumbel ----------------------------------------------------------------------------------------


def test_gumbel_max_draws_by_weight():
    w = np.array([3.0, 0.0, 1.0, 6.0])
    with np.errstate(divide="ignore"):
        drawn = gumbel_max(np.log(w) + 100, 0, 20_000)
    assert chi_square(drawn, 20_000 * w / w.sum())


def test_gumbel_top_k_has_the_probabilities_of_successive_draws():
    """All ordered pairs of four, enumerated: w_i / Σ · w_j / (Σ − w_i)."""
    w, n = np.array([1.0, 2.0, 3.0, 4.0]), 20_000
    keys = jax.random.split(jax.random.key(0), n)
    drawn = np.asarray(jax.vmap(lambda key: gumbel_top_k(jnp.log(w), 2, key))(keys))
    pairs = list(itertools.permutations(range(4), 2))
    expected = np.array([w[i] / 10 * w[j] / (10 - w[i]) for i, j in pairs])
    counts = np.array([(drawn == pair).all(1).sum() for pair in pairs])
    assert counts.sum() == n and stats.chisquare(counts, n * expected).pvalue > RATE
    assert sorted(np.asarray(gumbel_top_k(jnp.log(w), 4, 1))) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", [4, 300])
def test_the_draws_of_an_energy_in_chunks(size, monkeypatch):
    """The 16 visible values of an RBM by their frequencies, with all values in one chunk and in many."""
    from energax._util import sizes

    energy = RBM.random(4, 2, key=0, scale=1.0)
    monkeypatch.setattr(type(sizes.JOINT_VALUES), "value", property(lambda self: size))
    draws = sample(energy, 8000, method=GumbelMax(), key=size)
    x = np.asarray(draws["x"]) @ 2.0 ** np.arange(3, -1, -1)
    p = np.exp(log_prob(energy, {"x": Binary(4).values()}, Enumeration()).value)
    assert chi_square(x, 8000 * p / p.sum())
    assert draws.verdict == "8000 exact, independent draws (Gumbel-max)"


def test_gumbel_max_by_rows():
    energy = RBM.random(3, 2, key=1, scale=2.0)
    x = np.array([[1.0, 0, 1], [0, 0, 0]])
    draws = sample(energy, 4000, {"x": x}, GumbelMax(), key=0)["z"]
    assert draws.shape == (4000, 2, 2)
    p = 1 / (1 + np.exp(-np.asarray(x @ np.asarray(energy.weight) + np.asarray(energy.hidden_bias))))
    assert (np.abs(draws.mean(0) - p) < stats.norm.isf(RATE / 8) * np.sqrt(p * (1 - p) / 4000)).all()


def test_bad_weights_are_refused():
    with pytest.raises(BadInput, match="at most 2"):
        gumbel_top_k([0.0, 1.0], 3, 0)
    with pytest.raises(BadInput, match="vector"):
        gumbel_max(np.zeros((2, 2)), 0)
