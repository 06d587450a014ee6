"""Posterior predictives against closed forms, predictive checks, ensembles and bagging."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats
from numpyro.distributions import Beta, Normal

from energax import Bayes, Mixture, log_prob, nn, posterior, predictive
from energax.bayes import bagging, deep_ensemble
from energax.energies import (
    RBM,
    Bernoullis,
    Diagonal,
    Gaussian,
    Gaussians,
    Linear,
    LinearModel,
    NeuralRegressor,
)
from energax.errors import BadInput, Unsuitable
from energax.infer import MCMC, Importance, Laplace, Posterior, VariationalGaussian
from energax.learn import EM, CrossEntropy, Descent, NegativeLogLikelihood
from energax.samplers import NUTS, SGLD

RNG = np.random.default_rng(1)
X = RNG.normal(size=(30, 2))
Y = X @ [1.0, -0.5] + 0.3 + RNG.normal(size=30)
DESIGN = np.column_stack([X, np.ones(30)])
NEW = np.array([[0.0, 0.0], [4.0, 1.0]])


@pytest.fixture(scope="module")
def regression():
    with jax.enable_x64(True):
        line = LinearModel(jnp.zeros(2), jnp.zeros(()), Gaussian(1.0))
    over = Bayes(Normal(0.0, 2.0))(line, {"x": X, "y": Y})
    return predictive(over, posterior(over, {}, Laplace()).sample(4000, key=0))


@pytest.fixture(scope="module")
def truth():
    """Mean and variance of y at new points, in closed form."""
    covariance = np.linalg.inv(DESIGN.T @ DESIGN + np.eye(3) / 4)
    new = np.column_stack([NEW, np.ones(2)])
    return new @ covariance @ DESIGN.T @ Y, 1 + np.einsum("ni,ij,nj->n", new, covariance, new)


def test_moments_are_those_of_bayesian_linear_regression(regression, truth):
    """Within 5 standard errors of 4000 independent draws."""
    mean, variance = regression.moments("y", {"x": NEW})
    spread = np.sqrt(truth[1] - 1)
    assert (np.abs(mean - truth[0]) < 5 * spread / np.sqrt(4000)).all()
    np.testing.assert_allclose(variance - 1, spread**2, rtol=5 * np.sqrt(2 / 4000))


def test_log_prob_is_the_closed_form_within_its_standard_error(regression, truth):
    found = regression.log_prob({"x": NEW, "y": [1.0, 2.0]})
    exact = scipy.stats.norm(truth[0], np.sqrt(truth[1])).logpdf([1.0, 2.0])
    assert found.kind == "estimate" and (found.stderr > 0).all() and found.stderr.max() < 0.02
    assert (np.abs(found.value - exact) < 5 * found.stderr).all()
    same = regression.log_prob({"y": [1.0, 2.0]}, given={"x": NEW})
    np.testing.assert_array_equal(same.value, found.value)


def test_probabilities_of_a_coin_are_those_of_laplaces_rule():
    """Draws of the exact posterior Beta(9, 6): p(heads) = 9 / 15, within 5 standard errors."""
    with jax.enable_x64(True):
        coin = Mixture(Bernoullis(jnp.array([[0.5]])))
    heads = np.repeat([1.0, 0.0], [7, 3])[:, None]
    over = Bayes({"components": Beta(2.0, 3.0)})(coin, {"x": heads}, freeze="weights")
    draws = {"components.probs": RNG.beta(9, 6, size=(4000, 1, 1))}
    found = predictive(over, draws).log_prob({"x": [[1.0]]})
    assert abs(found.value[0] - np.log(9 / 15)) < 5 * found.stderr[0] < 0.02
    assert abs(predictive(over, draws).moments("x", {"z": [0]})[0].item() - 0.6) < 5 * 0.1225 / np.sqrt(4000)


def test_classes_are_averaged_over_draws():
    model = Linear(jnp.zeros((2, 2)), jnp.zeros(2))
    over = Bayes(Normal(0.0, 1.0))(model, {"x": X, "y": (Y > 0).astype(int)})
    draws = posterior(over, {}, Laplace()).sample(8, key=0)
    found = predictive(over, draws).probabilities("y", {"x": NEW})
    each = []
    for weight, bias in zip(draws["weight"], draws["bias"], strict=True):
        logits = NEW @ weight.T + bias
        each.append(np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)))
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-4)


def test_a_check_finds_what_the_model_does_not_produce(regression):
    """Normal noise has no such maximum; the mean it has."""
    spread = lambda data: np.abs(data["y"] - data["y"].mean()).max()
    good = regression.check(spread, key=0, n=400)
    assert 0.02 < good.p_value < 0.98 and good.replicated.shape == (400,)
    outlier = Y.copy()
    outlier[3] += 15
    over = Bayes(Normal(0.0, 2.0))(regression.energy.model, {"x": X, "y": outlier})
    bad = predictive(over, posterior(over, {}, Laplace()).sample(400, key=0))
    assert bad.check(spread, key=0).p_value < 0.02
    assert 0.1 < bad.check(lambda data: data["y"].mean(), key=0).p_value < 0.9


def test_replicated_rows_have_the_distribution_of_the_predictive(regression):
    """y at the rows of the data: mean and variance within 5 standard errors, for each of 30 rows."""
    drawn = regression.replicate(key=1, n=4000)
    assert drawn["y"].shape == (4000, 30)
    np.testing.assert_array_equal(drawn["x"][7], X)
    covariance = np.linalg.inv(DESIGN.T @ DESIGN + np.eye(3) / 4)
    variance = 1 + np.einsum("ni,ij,nj->n", DESIGN, covariance, DESIGN)
    error = np.abs(drawn["y"].mean(0) - DESIGN @ covariance @ DESIGN.T @ Y)
    assert (error < 5 * np.sqrt(variance / 4000)).all()
    np.testing.assert_allclose(drawn["y"].var(0), variance, rtol=5 * np.sqrt(2 / 4000))


def test_replicated_rows_are_missing_where_the_data_are():
    holes = X.copy()
    holes[2, 1] = np.nan
    model = Mixture(Gaussians(jnp.array([[0.0, 1.0], [2.0, -1.0]]), Diagonal(jnp.ones((2, 2)))))
    over = Bayes()(model, {"x": holes})
    draws = {k: np.stack([np.asarray(v)] * 3) for k, v in over.starting_point().items()}
    drawn = predictive(over, draws).replicate(key=0)["x"]
    np.testing.assert_array_equal(np.isnan(drawn), np.broadcast_to(np.isnan(holes), (3, 30, 2)))


def test_bagging_has_the_bootstrap_variance_of_a_mean():
    """The standard deviation of 200 bootstrapped means, within 5 standard errors of it, 1 / √400."""
    model = Mixture(Gaussians(jnp.zeros((1, 2)), Diagonal(jnp.ones((1, 2)))))
    over = Bayes()(model, {"x": X})
    draws = bagging(over, EM(), 200, key=0, epochs=2)
    found = draws["components.means"][:, 0].std(0)
    np.testing.assert_allclose(found, X.std(0) / np.sqrt(30), rtol=5 / np.sqrt(400))
    assert "not of a posterior" in draws.verdict


def test_an_ensemble_predicts_better_than_its_members_on_average():
    """Jensen's inequality: log of the mean of p is at least the mean of log p, here by a margin."""
    network = NeuralRegressor(
        nn.mlp(2, "scalar", key=jax.random.key(0), width=8), 2, likelihood=Gaussian(1.0)
    )
    over = Bayes()(network, {"x": X, "y": Y})
    draws = deep_ensemble(over, Descent(NegativeLogLikelihood(), optax.adam(0.05)), 3, key=0, epochs=200)
    assert np.ptp(draws["network.layers.0.weight"], axis=0).min() > 0
    rows = {"x": 3 * X, "y": Y}
    together = predictive(over, draws).log_prob(rows).value
    members = [over.at({k: jnp.asarray(v[i]) for k, v in draws.items()}) for i in range(3)]
    alone = np.stack([log_prob(member, rows).value for member in members])
    assert (together > alone.mean(0) - 1e-4).all() and together.mean() > alone.mean() + 0.1
    np.testing.assert_allclose(together, np.log(np.exp(alone).mean(0)), rtol=1e-3)


@pytest.mark.parametrize(
    "method",
    [
        NUTS(),
        MCMC(SGLD(2e-3), thin=20),
        Laplace(),
        VariationalGaussian(),
        VariationalGaussian("full-rank"),
        Importance(),
    ],
    ids=lambda m: m.label,
)
def test_every_method_returns_the_same_kind_of_posterior(method, regression, truth):
    """Mean, mode, draws, expectations and predictions of y, within a quarter of a standard deviation."""
    energy = regression.energy
    found = posterior(energy, {}, method, key=0)
    assert isinstance(found, Posterior)
    weight, spread = regression.theta["weight"].mean(0), regression.theta["weight"].std(0)
    means = (
        found.mean["weight"],
        found.sample(1000, key=0)["weight"].mean(0),
        found.expectation(lambda weight: weight, key=0).value,
    )
    for mean in means:
        assert (np.abs(mean - weight) < spread / 4).all()
    assert (np.abs(found.mode["weight"] - weight) < 3 * spread).all()
    mean, variance = predictive(energy, found).moments("y", {"x": NEW})
    assert (np.abs(mean - truth[0]) < np.sqrt(truth[1] - 1) / 4).all()
    assert (np.abs(variance / truth[1] - 1) < 0.15).all()


def test_what_it_cannot_do_is_refused(regression):
    energy = regression.energy
    with pytest.raises(BadInput, match=r"no draws of.*bias"):
        predictive(energy, {"weight": np.zeros((3, 2))})
    with pytest.raises(BadInput, match=r"\(n, \*\(2,\)\)"):
        predictive(energy, {"weight": np.zeros((3, 4)), "bias": np.zeros(3)})
    with pytest.raises(BadInput, match=r"finite variable.*moments"):
        regression.probabilities("y", {"x": NEW})
    with pytest.raises(BadInput, match=r"one of"):
        regression.moments("w", {"x": NEW})
    with pytest.raises(Unsuitable, match=r"no distribution of 'x'"):
        regression.moments("x", {"y": [0.0]})
    large = Bayes(loss=CrossEntropy(target="z"))(
        RBM.random(30, 2, key=0), {"x": (X[:, :1] > 0) * np.ones(30), "z": np.zeros((30, 2))}
    )
    with pytest.raises(Unsuitable, match=r"exact draws"):
        predictive(large, {k: np.asarray(v)[None] for k, v in large.starting_point().items()}).replicate(
            key=0
        )


def test_functions_of_the_model_are_evaluated_at_every_draw(regression):
    found = regression.apply(lambda model: {"end": model.predict(x=jnp.asarray(NEW[1]))})["end"]
    np.testing.assert_allclose(found, regression.theta["weight"] @ NEW[1] + regression.theta["bias"])
    assert found.shape == (4000,) and found.dtype == np.float64


def test_draws_that_are_not_finite_are_refused(regression):
    draws = {**regression.theta, "bias": np.where(np.arange(4000) == 7, np.nan, regression.theta["bias"])}
    with pytest.raises(BadInput, match=r"\['bias'\] that are not finite.*smaller step"):
        predictive(regression.energy, draws)


def coins():
    """A mixture of two coins, the energy of its parameters, and one draw of them."""
    model = Mixture(Bernoullis(jnp.array([[0.2], [0.9]])), jnp.array([0.3, 0.7]))
    over = Bayes()(model, {"x": np.array([[0.0], [0.0], [1.0], [1.0]])})
    return model, over, {name: np.asarray(value)[None] for name, value in over.read(model).items()}


def test_one_draw_of_the_parameters_is_the_model_also_given_others():
    model, over, draw = coins()
    rows, given = {"x": np.array([[0.0], [1.0]])}, {"z": np.array([0, 1])}
    found = predictive(over, draw)
    for condition in (None, given):
        expected = log_prob(model, rows, given=condition).value
        np.testing.assert_allclose(found.log_prob(rows, given=condition).value, expected, rtol=1e-5)


def test_a_statistic_that_is_always_equal_has_a_p_value_of_a_half():
    _, over, draw = coins()
    assert predictive(over, draw).check(lambda data: len(data["x"]), key=0).p_value == 0.5


def test_bagging_draws_rows_with_their_weights():
    one = Mixture(Bernoullis(jnp.array([[0.5]])))
    over = Bayes()(one, {"x": np.array([[0.0], [0.0], [1.0], [1.0]])}, weights=[1.0, 1.0, 1e-6, 1e-6])
    drawn = bagging(over, EM(), 4, key=1, epochs=2)["components.probs"]
    assert np.abs(drawn).max() < 1e-4
