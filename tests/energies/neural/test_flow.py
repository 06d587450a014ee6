"""The energy of a flow: exact densities and draws, and its five uses in other parts."""

from __future__ import annotations

import itertools
import math
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate
from scipy.special import logsumexp

import energax
from energax import (
    Categorical,
    Checkpoint,
    Energy,
    Mixture,
    Real,
    Sequence,
    fit,
    log_partition,
    log_prob,
    posterior,
    sample,
)
from energax.energies import Decoder, Flow, Gaussian, HiddenChain
from energax.errors import BadInput, ConvergenceWarning, EnergaxError, Unsuitable
from energax.infer import Importance, VariationalGaussian
from energax.learn import ELBO, Descent, NegativeLogLikelihood
from energax.mixture import Switch
from energax.nn import Composed, Encoder, FlowEncoder, LULinear, Permutation

SMALL = {"n_layers": 2, "width": 16, "depth": 1}


def learner(size=0.02, steps=300):
    return Descent(NegativeLogLikelihood(), optax.adam(optax.cosine_decay_schedule(size, steps)))


class Banana(Energy):
    """x₁ ~ N(0, 1), x₂ ~ N(x₁² / 2, ¼), without its constant; log Z = log(2π) + log ½."""

    bend: jax.Array

    log_z = math.log(2 * math.pi) + math.log(0.5)

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return 0.5 * x[0] ** 2 + 2 * (x[1] - self.bend * x[0] ** 2) ** 2


BANANA = Banana(jnp.array(0.5))


def banana_rows(n):
    rng = np.random.default_rng(0)
    first = rng.normal(size=n)
    return np.c_[first, 0.5 * first**2 + 0.5 * rng.normal(size=n)].astype(np.float32)


@pytest.fixture(scope="module")
def fitted():
    """A flow that was learned from draws of the banana."""
    start = Flow.random(2, key=0, **SMALL)
    return fit(start, {"x": banana_rows(2000)}, learner(), epochs=300, key=0).energy


def test_the_likelihood_is_exact_and_near_the_optimum(fitted):
    rows = banana_rows(6000)[2000:]
    found = log_prob(fitted, {"x": rows})
    truth = -np.asarray(jax.vmap(lambda x: BANANA(x=x))(rows)) - BANANA.log_z
    assert found.kind == "exact" and float(fitted.log_partition()) == 0
    assert -0.01 < float((truth - found.value).mean()) < 0.05  # the divergence, up to the error of the mean


def test_draws_have_the_density(fitted):
    """E_q[log q] over draws is −H(q), which an integral on a grid gives."""
    draws = sample(fitted, 4000, key=1)
    side = np.stack(np.meshgrid(np.linspace(-5, 5, 120), np.linspace(-3, 12, 120)), -1).reshape(-1, 2)
    cell = (10 / 119) * (15 / 119)
    log_q = log_prob(fitted, {"x": side.astype(np.float32)}).value.astype(float)
    q = np.exp(log_q) * cell
    assert abs(q.sum() - 1) < 1e-2
    of_draws = log_prob(fitted, {"x": draws["x"]}).value
    assert abs(of_draws.mean() - (q * log_q).sum()) < 4 * of_draws.std() / math.sqrt(4000) + 0.02
    np.testing.assert_allclose(draws["x"].mean(0), q @ side, atol=0.08)


# -- the five uses, and the variational family ---------------------------------------------------------


def _bend(z):
    return z[1:] + z[:1] ** 2


def test_as_the_posterior_of_an_elbo():
    """p(z | x) of x = z₂ + z₁² + noise is bent: a flow comes near log p(x), unlike independent Gaussians."""
    model = Decoder(_bend, 2, Gaussian(0.3))
    side = np.linspace(-6, 6, 801)
    first, second = np.meshgrid(side, side)
    error = (1.5 - second - first**2) / 0.3
    log_joint = -0.5 * (first**2 + second**2 + error**2) - 1.5 * math.log(2 * math.pi) - math.log(0.3)
    truth = logsumexp(log_joint) + 2 * math.log(side[1] - side[0])
    encoders = {
        "flow": FlowEncoder.random(1, 2, key=0, n_layers=2, width=8),
        "gaussian": Encoder.random(1, 2, key=0, width=8),
    }
    gap = {}
    for name, encoder in encoders.items():
        rule = Descent(ELBO(encoder), optax.adam(optax.cosine_decay_schedule(0.03, 300)))
        found = fit(model, {"x": np.full((32, 1), 1.5, np.float32)}, rule, epochs=300, key=0)
        gap[name] = truth + float(np.mean(found.history["objective"][-40:]))
    assert gap["gaussian"] > 0.9 and -0.03 < gap["flow"] < 0.2, gap


def test_as_a_proposal(fitted):
    found = log_partition(BANANA, Importance(fitted, 4000), key=0)
    assert abs(float(found) - BANANA.log_z) < 4 * float(found.stderr) < 0.1


def test_as_a_prior():
    """p(x) = ∫ p(z) N(x; z, ¼) dz with a flow as p(z), by quadrature; ELBO learns the flow."""
    prior = Flow.random(1, key=3, transform="spline", **SMALL)
    model = Decoder(_identity, prior, Gaussian(0.5))
    z = np.linspace(-9, 9, 1500, dtype=np.float32)[:, None]
    log_prior = log_prob(prior, {"x": z}).value.astype(float)
    log_joint = log_prior - 2 * (0.7 - z[:, 0]) ** 2 - 0.5 * math.log(2 * math.pi * 0.25)
    truth = logsumexp(log_joint) + math.log(z[1, 0] - z[0, 0])
    found = log_prob(model, {"x": [0.7]}, Importance(prior.conditional("x"), 4000), key=0)
    assert abs(float(found) - truth) < 4 * float(found.stderr) < 0.1
    rule = Descent(ELBO(Encoder.random(1, 1, key=0, width=4)), optax.adam(0.02))
    learned = fit(model, {"x": np.full((8, 1), 2.0, np.float32)}, rule, epochs=100, key=0).energy
    after = log_prob(learned, {"x": [2.0]}, Importance(n_samples=1000), key=0)
    assert float(after) > float(log_prob(model, {"x": [2.0]}, Importance(n_samples=1000), key=0)) + 1


def _identity(z):
    return z


def test_as_components_of_a_mixture(fitted):
    other = Flow.random(2, key=5, **SMALL)
    both = Mixture([fitted, other], np.array([0.3, 0.7], np.float32))
    x = banana_rows(20)
    each = np.stack([log_prob(part, {"x": x}).value for part in (fitted, other)])
    expected = logsumexp(each.astype(float) + np.log([[0.3], [0.7]]), axis=0)
    np.testing.assert_allclose(log_prob(both, {"x": x}).value, expected, rtol=1e-5, atol=1e-5)
    shares = posterior(both, {"x": x}).marginals["z"]
    np.testing.assert_allclose(shares[:, 0], np.exp(each[0] + math.log(0.3) - expected), atol=1e-5)
    # Learned together, from the start, by descent: the likelihood rises.
    found = fit(both, {"x": x}, learner(0.01, 20), epochs=20, key=0)
    assert found.history["objective"][-1] < found.history["objective"][0]
    draws = sample(both, 300, key=0)
    assert abs((draws["z"] == 0).mean() - 0.3) < 4 * math.sqrt(0.21 / 300)


@pytest.mark.parametrize("shared", [False, True])
def test_as_an_emission_of_a_hidden_chain(shared):
    """log p of a sequence equals the sum over all paths."""
    if shared:  # one flow for all states, given the state
        emission = Flow.random(1, key=1, context=Categorical(2), context_name="z", **SMALL)
    else:
        emission = Switch((Flow.random(1, key=1, **SMALL), Flow.random(1, key=2, **SMALL)))
    initial, transition = np.array([0.4, 0.6], np.float32), np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    chain = HiddenChain(initial, transition, emission, length=4)
    x = np.array([[0.3], [-1.0], [0.5], [2.0]], np.float32)
    states = np.arange(2)
    each = -evaluate(
        lambda: jax.vmap(lambda x: jax.vmap(lambda z: emission(x=x, z=z))(states))(jnp.asarray(x))
    )
    paths = [
        math.log(initial[p[0]])
        + sum(math.log(transition[a, b]) for a, b in itertools.pairwise(p))
        + sum(float(each[t, s]) for t, s in enumerate(p))
        for p in itertools.product(range(2), repeat=4)
    ]
    assert abs(float(log_prob(chain, {"x": x})) - logsumexp(paths)) < 1e-4
    assert sample(chain, 3, key=0)["x"].shape == (3, 4, 1)
    assert chain.spaces["x"] == Sequence(Real(1), 4)


def test_as_a_variational_family():
    """The bound of a flow is nearer to log Z of the banana than that of the best Gaussian."""
    flow = Flow.random(2, key=0, **SMALL)
    method = VariationalGaussian(flow, 16, max_iter=300, learning_rate=0.02)
    found = posterior(BANANA, {}, method)
    with pytest.warns(ConvergenceWarning, match="far from the posterior"):
        gaussian = posterior(BANANA, {}, VariationalGaussian("full-rank"))
    assert float(found.elbo) > BANANA.log_z - 0.06 > float(gaussian.elbo) + 0.25
    assert found.pareto_k < 0.7 and found.sample(5, key=0)["x"].shape == (5, 2)


# -- contexts ---------------------------------------------------------------------------------------


def test_a_conditional_flow_learns_a_conditional_density():
    """x = y² + N(0, ¼): log p(x | y) is the expected one, and draws follow y."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-2, 2, (1500, 1)).astype(np.float32)
    x = y**2 + 0.5 * rng.normal(size=(1500, 1)).astype(np.float32)
    start = Flow.random(1, key=0, context=1, **SMALL)
    assert start.inputs == {"y"}
    found = fit(start, {"x": x, "y": y}, learner(0.02, 200), epochs=200, key=0).energy
    entropy = 0.5 * math.log(2 * math.pi * math.e * 0.25)
    assert abs(float(log_prob(found, {"x": x, "y": y}).mean()) + entropy) < 0.06
    draws = sample(found, 400, {"y": [1.5]}, key=0)["x"]
    assert abs(draws.mean() - 2.25) < 0.15 and abs(draws.std() - 0.5) < 0.1


def test_a_finite_context_is_a_uniform_variable():
    flow = Flow.random(2, key=0, context=Categorical(3), **SMALL)
    assert not flow.inputs and math.isclose(float(flow.log_partition()), math.log(3), rel_tol=1e-6)
    pair = Flow.random(2, key=0, context=Categorical(3, 2), **SMALL)  # one of nine values
    assert math.isclose(float(pair.log_partition()), 2 * math.log(3), rel_tol=1e-6)
    x = banana_rows(5)
    joint = np.stack([log_prob(flow, {"x": x, "y": np.full(5, k)}).value for k in range(3)])
    np.testing.assert_allclose(log_prob(flow, {"x": x}).value, logsumexp(joint, axis=0), atol=1e-5)
    found = posterior(flow, {"x": x}).marginals["y"]
    np.testing.assert_allclose(found, np.exp(joint - logsumexp(joint, axis=0)).T, atol=1e-5)
    draws = sample(flow, 900, key=0)
    assert np.abs(np.bincount(draws["y"], minlength=3) / 900 - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 900)
    with pytest.raises(BadInput, match=r"without a context.*conditional"):
        flow.sample(jax.random.key(0))


# -- failures, files, starts --------------------------------------------------------------------------


def test_draws_whose_inverse_loses_digits_warn():
    # Not round numbers, whose products are exact on some processors.
    steep = LULinear(jnp.array([[0.0, 20.3], [20.3, 0.0]]), jnp.full(2, 0.3), jnp.zeros(2))
    flow = Flow(Composed([steep, Permutation([1, 0]), steep]), 2)
    with pytest.warns(
        ConvergenceWarning, match=r"the inverse of the flow loses digits: for \d+% of the draws"
    ):
        draws = sample(flow, 100, key=0)
    assert draws.verdict.startswith("unreliable") and not draws.trusted and "loses digits" in repr(draws)
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda a: a.astype(float) if eqx.is_inexact_array(a) else a, flow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sample(exact, 100, key=0).trusted, "64 bits are enough"


def test_saved_and_resumed(tmp_path):
    """A fit that was interrupted and called again ends bit for bit where it would have ended."""
    start, data = Flow.random(2, key=0, **SMALL), {"x": banana_rows(100)}
    options = {"epochs": 6, "batch_size": 50, "key": 0}

    def stop(info):
        if info["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(
            start,
            data,
            learner(),
            callbacks=[stop],
            checkpoint=Checkpoint(tmp_path / "c", every=1),
            **options,
        )
    resumed = fit(start, data, learner(), checkpoint=Checkpoint(tmp_path / "c", every=1), **options)
    whole = fit(start, data, learner(), checkpoint=Checkpoint(tmp_path / "w", every=1), **options)
    energax.save(resumed.energy, tmp_path / "flow")
    loaded = energax.load(tmp_path / "flow")
    assert bool(eqx.tree_equal(loaded, whole.energy))


def test_restarts_are_fitted_to_the_rows():
    rows = 100 + 5 * banana_rows(200)
    start = Flow.random(2, key=0, n_layers=1, width=4, depth=1)
    found = fit(start, {"x": rows}, learner(0.01, 20), n_init=2, epochs=20, key=0)
    gaussian = -0.5 * np.linalg.slogdet(np.cov(rows.T))[1] - 1 - math.log(2 * math.pi)
    assert -found.history["objective"][-1] > gaussian - 0.3


def test_a_mixture_of_flows_starts_at_the_rows():
    """Its component is hidden: the normalisation of the first layer takes the mean of all rows."""
    rows = 100 + 5 * banana_rows(100)
    start = Mixture(Flow.random(2, key=0, context=Categorical(3), context_name="z", **SMALL))
    still = Descent(NegativeLogLikelihood(), optax.sgd(0.0))
    found = fit(start, {"x": rows}, still, epochs=1, key=0, initialise=True).energy
    first = found.components.bijection.layers[0]
    np.testing.assert_allclose(first.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(jnp.exp(first.log_scale), rows.std(0), rtol=1e-4)


def test_bad_arguments():
    with pytest.raises(BadInput, match=r"bijection.*Flow\.random"):
        Flow(jnp.sin, 2)
    with pytest.raises(BadInput, match=r"space.*Real"):
        Flow(LULinear.random(2), Categorical(2))
    with pytest.raises(BadInput, match="context_name"):
        Flow(LULinear.random(2), 2, context_name="x")
    sizes = Flow.random(np.int64(2), context=np.int64(1), key=0, **SMALL).spaces
    assert sizes == {"x": Real(2), "y": Real(1)}
    flow = Flow.random(2, key=0, **SMALL)
    with pytest.raises((BadInput, Unsuitable), match=r"missing|NaN"):
        fit(flow, {"x": np.array([[np.nan, 1.0]], np.float32)}, learner(), epochs=1, key=0)
    with pytest.raises(EnergaxError):
        fit(flow, {"x": np.zeros((3, 5), np.float32)}, learner(), epochs=1, key=0)
