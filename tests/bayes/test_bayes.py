"""Posteriors over parameters: the density against log_prob and closed forms, priors, temperatures, errors."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpyro.distributions import Beta, Dirichlet, HalfNormal, Normal, Wishart

from energax import (
    Bayes,
    Interval,
    Mixture,
    PositiveDefinite,
    Real,
    Sequence,
    log_partition,
    log_prob,
    nn,
    posterior,
    sample,
)
from energax.bayes import ParameterEnergy
from energax.energies import (
    Bernoullis,
    Diagonal,
    Gaussian,
    Gaussians,
    HiddenChain,
    Linear,
    LinearModel,
    NeuralRegressor,
)
from energax.errors import BadInput, Unsuitable
from energax.infer import Laplace, VariationalGaussian
from energax.learn import ContrastiveDivergence, CrossEntropy, Denoising, NegativeLogLikelihood, ScoreMatching
from energax.samplers import Langevin

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = X @ [1.0, -0.5] + 0.3 + RNG.normal(size=30)
DESIGN = np.column_stack([X, np.ones(30)])


def line():
    with jax.enable_x64(True):
        return LinearModel(jnp.zeros(2), jnp.zeros(()), Gaussian(1.0))


def mixture():
    with jax.enable_x64(True):
        return Mixture(Gaussians(jnp.array([[0.0, 1.0], [2.0, -1.0]]), Diagonal(jnp.ones((2, 2)))))


def missing():
    holes = X.copy()
    holes[[0, 3], [1, 0]] = np.nan
    return {"x": holes}


def chain():
    with jax.enable_x64(True):
        emission = Gaussians(jnp.array([[0.0], [2.0]]), jnp.ones((2, 1, 1)))
        return HiddenChain(jnp.full(2, 0.5), jnp.array([[0.7, 0.3], [0.2, 0.8]]), emission, length=5)


def ragged():
    return {"x": Sequence(Real(1)).pad([RNG.normal(size=(k, 1)) for k in (5, 3, 4)])}


def classifier():
    with jax.enable_x64(True):
        return Linear(jnp.ones((2, 2)), jnp.zeros(2))


def network():
    with jax.enable_x64(True):
        return NeuralRegressor(
            nn.mlp(2, "scalar", key=jax.random.key(1), width=4), 2, likelihood=Gaussian(jnp.ones(()))
        )


CASES = {
    "logistic regression": (classifier, lambda: {"x": X, "y": (Y > 0).astype(int)}, Normal(0.0, 2.0)),
    "mixture": (
        mixture,
        missing,
        {"weights": Dirichlet(jnp.array([2.0, 3.0])), "components.means": Normal(0.0, 3.0)},
    ),
    "HMM": (
        chain,
        ragged,
        {"transition": Dirichlet(jnp.full(2, 2.0)), "emission.covariance": Wishart(3.0, jnp.eye(1))},
    ),
    "network": (
        network,
        lambda: {"x": X, "y": Y},
        {"network": Normal(0.0, 1.0), "likelihood": HalfNormal(1.0)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_energy_is_minus_the_log_of_prior_times_likelihood(name):
    """Against `log_prob` of every row, at other parameters than those of the model."""
    build, data, prior = CASES[name]
    model, rows = build(), data()
    n = len(next(iter(rows.values())).value if name == "HMM" else next(iter(rows.values())))
    weights = RNG.uniform(0.5, 2.0, n)
    over = Bayes(prior)(model, rows, weights=weights)
    with jax.enable_x64(True):
        theta = {
            k: s.bijection(
                s.bijection.inv(v)
                + 0.1 * (1 + jnp.arange(s.bijection.inv(v).size)).reshape(s.bijection.inv(v).shape)
            )
            for (k, s), v in zip(over.spaces.items(), over.starting_point().values(), strict=True)
        }
        likelihood = weights @ log_prob(over.at(theta), rows).value
        expected = -likelihood
        for k, v in theta.items():
            given = (
                prior
                if isinstance(prior, Normal)
                else prior.get(k, prior.get(k.split(".")[0], prior.get(k.rpartition(".")[0])))
            )
            expected -= 0 if given is None else float(jnp.sum(given.log_prob(v)))
        np.testing.assert_allclose(over(**theta), expected, rtol=1e-7)
    assert over.spaces.keys() == theta.keys()


def test_names_spaces_and_flat_priors_are_those_of_the_model():
    over = Bayes({"weights": Dirichlet(jnp.ones(2))})(mixture(), missing(), freeze="components.means")
    assert set(over.spaces) == {"weights", "components.covariance.variance"}
    assert over.flat == ("components.covariance.variance",) and over.frozen == ("components.means",)
    full = Mixture(Gaussians(jnp.zeros((2, 2)), jnp.stack([jnp.eye(2)] * 2)))
    assert Bayes()(full, {"x": X}).spaces["components.covariance.matrix"] == PositiveDefinite().with_shape(
        2, 2, 2
    )


def test_laplace_and_variational_inference_are_exact_for_linear_regression():
    over = Bayes(Normal(0.0, 2.0))(line(), {"x": X, "y": Y})
    covariance = np.linalg.inv(DESIGN.T @ DESIGN + np.eye(3) / 4)
    mean = covariance @ DESIGN.T @ Y
    evidence = scipy.stats.multivariate_normal(np.zeros(30), np.eye(30) + 4 * DESIGN @ DESIGN.T).logpdf(Y)
    for method in (Laplace(), VariationalGaussian("full-rank", tol=1e-8)):
        found = posterior(over, {}, method)
        np.testing.assert_allclose([*found.mean["weight"], found.mean["bias"]], mean, atol=1e-6)
        np.testing.assert_allclose(found.covariance, covariance, rtol=1e-5)
        assert abs(float(log_partition(over, method)) - evidence) < 1e-5


def test_a_sampler_finds_the_beta_posterior_of_a_coin():
    """Seven heads of ten, Beta(2, 3) prior: Beta(9, 6), within 5 standard errors."""
    with jax.enable_x64(True):
        coin = Mixture(Bernoullis(jnp.array([[0.5]])))
    over = Bayes({"components": Beta(2.0, 3.0)})(
        coin, {"x": np.repeat([1.0, 0.0], [7, 3])[:, None]}, freeze="weights"
    )
    assert over.spaces == {"components.probs": Interval(0, 1, 1, 1)}
    draws = sample(over, 8000, method=Langevin(), key=0, thin=5)
    truth = scipy.stats.beta(9, 6)
    found = draws["components.probs"].ravel()
    assert abs(found.mean() - truth.mean()) < 5 * truth.std() / np.sqrt(draws.ess.min())
    assert abs(found.std() / truth.std() - 1) < 5 / np.sqrt(2 * draws.ess.min())


def test_a_loss_and_an_inverse_temperature_give_a_tempered_posterior():
    rows = {"x": X, "y": (Y > 0).astype(int)}
    model = classifier()
    with jax.enable_x64(True):
        theta = {"weight": jnp.array([[0.3, 0.1], [-1.0, 0.2]]), "bias": jnp.array([0.1, 0.4])}
        plain = Bayes()(model, rows)(**theta)
        np.testing.assert_allclose(Bayes(beta=0.3)(model, rows)(**theta), 0.3 * plain, rtol=1e-12)
        # β of the loss itself: the cross-entropy at β = 2 is that of doubled scores, divided by two.
        doubled = {k: 2 * v for k, v in theta.items()}
        tempered = Bayes(beta=2.0, loss=CrossEntropy(beta=2.0))(model, rows)(**theta)
        np.testing.assert_allclose(tempered, Bayes()(model, rows)(**doubled), rtol=1e-10)


def test_a_prior_that_does_not_fit_is_refused():
    rows = missing()
    cases = {
        r"prior of 'weights'.*another support.*sum to 1.*by name": Normal(0.0, 1.0),
        r"prior of 'components.means'.*another support.*real": {"components.means": HalfNormal(1.0)},
        r"prior of 'components.means'.*shape \(3,\).*\(2, 2\)": {
            "components.means": Normal(jnp.zeros(3), 1.0)
        },
        r"the name 'mean'.*weights, components.means": {"mean": Normal(0.0, 1.0)},
        r"prior.*NumPyro distributions": {"weights": 1.0},
        r"prior of 'components.covariance.variance'.*support": {"components.covariance": Normal(0.0, 1.0)},
    }
    for message, prior in cases.items():
        with pytest.raises(BadInput, match=message):
            Bayes(prior)(mixture(), rows)


def test_losses_and_data_that_do_not_fit_are_refused():
    with pytest.raises(
        Unsuitable, match=r"function of the rows.*ContrastiveDivergence|ContrastiveDivergence.*draws"
    ):
        Bayes(loss=ContrastiveDivergence())(mixture(), {"x": X})
    with pytest.raises(Unsuitable, match=r"ScoreMatching draws random numbers"):
        Bayes(loss=ScoreMatching(Denoising(0.1)))(
            Gaussians(jnp.zeros((1, 2)), jnp.eye(2)[None]).given(z=0), {"x": X}
        )
    with pytest.raises(BadInput, match=r"rows of shape"):
        Bayes()(mixture(), {"x": X[:, :1]})
    with pytest.raises(BadInput, match=r"beta"):
        Bayes(beta=-1.0)
    with pytest.raises(BadInput, match=r"loss.*an objective"):
        Bayes(loss=NegativeLogLikelihood)
    assert isinstance(Bayes()(line(), {"x": X, "y": Y}), ParameterEnergy)


def test_the_inverse_temperature_multiplies_the_data_alone():
    warm, one = (Bayes(Normal(0.0, 2.0), beta=beta)(line(), {"x": X, "y": Y}) for beta in (0.25, 1.0))
    with jax.enable_x64(True):
        theta = {"weight": jnp.array([0.5, -1.0]), "bias": jnp.array(0.2)}
        log_prior = float(one.log_prior(**theta))
        expected = 0.25 * (float(one(**theta)) + log_prior) - log_prior
        np.testing.assert_allclose(float(warm(**theta)), expected, rtol=1e-9)
