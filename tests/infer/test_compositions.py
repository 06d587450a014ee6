"""Compositions that once gave wrong results, compared with tables of all joint values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpyro import distributions as nd
from scipy.special import expit

from energax import (
    BadInput,
    Binary,
    Categorical,
    Energy,
    Estimate,
    Masked,
    Mixture,
    Unsuitable,
    log_partition,
    log_prob,
    posterior,
    sample,
)
from energax.energies import RBM, BayesianNetwork, Bernoullis, Gaussians, Linear, NeuralEnergy
from energax.infer import AnnealedImportance, Enumeration, Importance, LikelihoodWeighting
from energax.samplers import Gibbs

PROBS = np.array([[0.9, 0.5, 0.2], [0.3, 0.4, 0.6]])


class Coin(Energy):
    """Two independent coins with a closed conditional."""

    bias: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(1), "y": Binary(1)}

    def __call__(self, *, x, y):
        return -x @ self.bias - y @ self.bias

    def conditional(self, name, **given):
        return nd.Bernoulli(logits=self.bias).to_event(1)


def test_a_variable_of_a_mixture_whose_component_is_not_known():
    """p(x = 1) of a mixture is the weighted mean over its components."""
    both = Mixture([Coin(jnp.array([2.0])), Coin(jnp.array([-2.0]))], weights=[0.9, 0.1])
    on = 0.9 * expit(2.0) + 0.1 * expit(-2.0)
    alone = both.over("z")
    assert_allclose(posterior(alone).marginals["x"][0, 1], on, rtol=1e-5)
    assert_allclose(posterior(both.given(z=np.nan)).marginals["x"][0, 1], on, rtol=1e-5)
    drawn = sample(alone, 4000, method=Gibbs(), key=0, n_chains=50)["x"].mean()
    assert abs(drawn - on) < 0.05
    found = log_partition(alone, AnnealedImportance(), key=0)
    assert abs(float(found)) < 4.5 * float(found.stderr)


def test_components_that_are_not_normalised_weigh_what_they_sum_to():
    mixture = Mixture(Bernoullis(jnp.array([[0.9, 0.9], [0.5, 0.5]])) / 4.0)
    truth = posterior(mixture, {}, Enumeration()).marginals["z"][1]
    drawn = np.asarray(sample(mixture, 8000, key=0)["z"]).mean()
    assert abs(drawn - truth) < 4.5 * np.sqrt(truth * (1 - truth) / 8000) and abs(truth - 0.5) > 0.03


def test_a_sum_at_one_temperature_is_none_at_another():
    hot = Bernoullis(jnp.asarray(PROBS)) / 2.0
    clamped, given = posterior(hot.given(x=[np.nan, 1, 0])), posterior(hot, {"x": [np.nan, 1, 0]})
    root = np.sqrt(PROBS)
    truth = (root[:, 0] + np.sqrt(1 - PROBS[:, 0])) * root[:, 1] * np.sqrt(1 - PROBS[:, 2])
    for found in (clamped, given):
        assert_allclose(found.marginals["z"], truth / truth.sum(), rtol=1e-5)


def test_probabilities_that_underflow_are_recovered_at_a_high_temperature():
    line = Linear(jnp.array([[200.0], [0.0]]), jnp.zeros(2))
    assert_allclose(posterior(line / 100.0, {"x": [1.0]}).marginals["y"], [expit(2), expit(-2)], rtol=1e-5)
    found = log_partition(line.given(x=[1.0]), AnnealedImportance(), key=0)
    # The base gives the other value a probability of 1/400, and perhaps no chain starts there.
    assert abs(float(found) - 200.0) < 4.5 * float(found.stderr) + 3e-3
    certain = (Bernoullis(jnp.array([[1.0, 0.5]])) / 8.0).conditional("x", z=0)
    assert_allclose(certain.mean, [1.0, 0.5])
    assert_allclose(certain.log_prob(jnp.array([1.0, 1.0])), np.log(0.5), rtol=1e-5)


def test_a_joint_table_is_of_what_was_named():
    mixture = Mixture(Bernoullis(jnp.array([[0.9, 0.5], [0.3, 0.4], [0.2, 0.1], [0.6, 0.7]])))
    found = posterior(mixture, {"x": [1, np.nan]})
    assert_allclose(found.joint("z"), found.marginals["z"], rtol=1e-5)
    for names in (("x",), ("z", "x")):
        with pytest.raises(Unsuitable, match=r"closed form is of 'z' alone.*Enumeration"):
            found.joint(*names)
    listed = posterior(mixture, {"x": [1, np.nan]}, Enumeration())
    assert_allclose(listed.joint("z", "x").sum(1), found.joint("z"), rtol=1e-5)


class Plain(RBM):
    """An RBM whose conditional is a batch of Bernoullis, without `to_event`."""

    def conditional(self, name, **given):
        field = (
            given["x"] @ self.weight + self.hidden_bias
            if name == "z"
            else self.weight @ given["z"] + self.bias
        )
        return nd.Bernoulli(logits=field)


def test_coordinates_side_by_side_are_one_table():
    rbm = Plain(jnp.ones((2, 2)), jnp.zeros(2), jnp.array([0.0, -1.0]))
    exact, listed = posterior(rbm, {"x": [1, 0]}), posterior(rbm, {"x": [1, 0]}, Enumeration())
    assert_allclose(exact.joint("z"), listed.joint("z"), rtol=1e-5)


def test_every_row_has_its_own_best_draw():
    a, b, c = [0.5, 0.5], ("a", [[0.9, 0.1], [0.2, 0.8]]), ("b", [[0.9, 0.1], [0.3, 0.7]])
    network = BayesianNetwork({"a": a, "b": b, "c": c})
    found = posterior(network, {"c": [0, 1]}, LikelihoodWeighting(), key=0).mode
    assert found["a"].tolist() == found["b"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("energy", "proposal"),
    [
        (NeuralEnergy(lambda x: 0 * x.sum(), 3, confinement=1.0), nd.Normal(0.0, 1.5)),
        (RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1)).over("z"), nd.Bernoulli(0.5)),
        (
            RBM(jnp.zeros((2, 1)), jnp.zeros(2), jnp.zeros(1)).over("z"),
            nd.Normal(jnp.zeros(2), 1.0).to_event(1),
        ),
    ],
    ids=["shape", "shape of coins", "kind"],
)
def test_a_proposal_of_another_shape_or_kind_is_refused(energy, proposal):
    with pytest.raises(Unsuitable, match="cannot use the proposal"):
        log_partition(energy, Importance(proposal), key=0)


def test_masks_of_names_and_of_whole_numbers():
    states = Categorical(2, labels=("n", "y"))
    checked = states.check(np.ma.array(["n", "n", "y"], mask=[0, 1, 0]))
    assert checked.observed.tolist() == [True, False, True]
    rbm = RBM(jnp.ones((2, 1)), jnp.array([1.0, 2.0]), jnp.zeros(1))
    value = np.array([1.0, 0.0])
    by_number, by_truth = (
        log_partition(rbm.given(x=Masked(value, np.array([1, 0], kind)))) for kind in (int, bool)
    )
    assert float(by_number) == float(by_truth)


class Given(Energy):
    """A model of y and w given x."""

    inputs = frozenset({"x"})

    @property
    def spaces(self):
        return {"x": Binary(2), "y": Binary(), "w": Binary()}

    def __call__(self, *, x, y, w):
        return 3 * x.sum() * y - y * w + w


def test_an_input_is_given_wherever_it_stands():
    energy, x = Given(), [1.0, 0.0]
    among_data = log_prob(energy, {"x": x, "y": 1}, given={"w": 1})
    assert_allclose(float(among_data), float(log_prob(energy, {"y": 1}, given={"x": x, "w": 1})))
    assert_allclose(float(among_data), np.log(expit(-2.0)), rtol=1e-5)
    with pytest.raises(BadInput, match=r"missing values in \['x'\]"):
        energy.given(x=[np.nan, 1.0])
    with pytest.raises(BadInput, match=r"over: found \['x'\], inputs of Given"):
        energy.over("x")


def test_certain_pixels_are_numbers():
    mixture = Mixture(Bernoullis(jnp.array([[1.0, 0.5], [0.3, 0.4]])))
    truth = np.log([0.5 * 0.5 + 0.5 * 0.3 * 0.4, 0.5 * 0.7 * 0.4])
    assert_allclose(log_prob(mixture, {"x": [[1, 1], [0, 1]]}).value, truth, rtol=1e-5)


def test_one_error_times_many_rows_is_shared_by_all():
    spread = Estimate(0.0, 1.0, "estimate") * np.ones(10)
    assert spread.shared == 1.0 and float(spread.mean().stderr) == pytest.approx(1.0)


def test_nothing_is_computed_in_half_precision():
    gaussian = Gaussians(jnp.zeros((1, 2)), jnp.eye(2)[None])
    x = np.array([300.0, 20.0])
    half, single = (log_prob(gaussian, {"x": x.astype(t), "z": 0}).value for t in (np.float16, np.float32))
    assert half == single
    assert Binary(2).check(np.ones(2, np.float16)).dtype == np.float32


def test_a_temperature_is_a_number():
    with pytest.raises(BadInput, match="temperature: found '2'"):
        _ = RBM.random(2, 2, key=0) / "2"


class Same(Energy):
    """y equals x; x = 2 has probability zero."""

    @property
    def spaces(self):
        return {"x": Categorical(3), "y": Categorical(2)}

    def __call__(self, *, x, y):
        return jnp.where(x == y, 0.5 * y, jnp.inf)


def test_evidence_of_probability_zero_raises():
    rows = {"x": [0, 2]}
    for ask in (
        lambda: posterior(Same(), rows).marginals,
        lambda: posterior(Same(), rows).joint("y"),
        lambda: sample(Same(), 3, rows, key=0),
    ):
        with pytest.raises(BadInput, match="given: found evidence of probability zero in row 1"):
            ask()
    assert posterior(Same(), {"x": 1}).marginals["y"].tolist() == [0.0, 1.0]


def test_weights_have_the_precision_of_their_components():
    with jax.enable_x64(True):
        components = Gaussians(jnp.zeros((3, 1)), jnp.ones((3, 1, 1)))
    thirds = Mixture(components)
    assert thirds.weights.dtype == np.float64
    x = {"x": np.array([[0.3]])}
    by_keyword = log_prob(method=None, energy=thirds, data=x)
    assert by_keyword.value.dtype == np.float64
    assert_allclose(by_keyword.value, log_prob(thirds, x).value, rtol=1e-15)
