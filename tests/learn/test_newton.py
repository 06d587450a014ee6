"""Newton as a learner: closed and differentiated Hessians agree; frozen and constrained parameters."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import Batch, fit
from energax.energies import Gaussian, Linear, NeuralRegressor, Scorer
from energax.errors import BadInput, Unsuitable
from energax.learn import CrossEntropy, NegativeLogLikelihood, Newton
from energax.nn import mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 2))
Y = (np.argmax(np.c_[X, RNG.normal(size=40)], 1)).astype(np.int32)
DATA = {"x": X, "y": Y}


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def start():
    return Linear(jnp.zeros((3, 2)), jnp.zeros(3))


@pytest.mark.parametrize("beta", [1.0, 2.5])
def test_the_closed_hessian_is_that_of_jax(beta):
    weight = jnp.asarray(RNG.exponential(size=40)).at[3].set(0)
    batch = Batch({"x": jnp.asarray(X), "y": jnp.asarray(Y)}, weight)
    objective = CrossEntropy(beta, l2=0.3, label_smoothing=0.1)
    W, b = jnp.asarray(RNG.normal(size=(3, 2))), jnp.asarray(RNG.normal(size=3))
    unravel = lambda t: Linear(t[:6].reshape(3, 2), t[6:])
    loss = lambda t: sum(objective(unravel(t), batch, None, None)[0].values())
    expected = jax.hessian(loss)(jnp.concatenate([W.ravel(), b]))
    np.testing.assert_allclose(objective.hessian(Linear(W, b), batch), expected, atol=1e-12)


def test_a_network_without_a_closed_hessian():
    """The same model as a network with one layer, whose Hessian JAX computes."""
    plain = fit(start(), DATA, Newton(CrossEntropy(l2=0.1), tol=1e-12), epochs=50, key=0)
    network = Scorer(mlp(2, 3, depth=0, key=0), 2, 3)
    other = fit(network, DATA, Newton(CrossEntropy(l2=0.1), tol=1e-12), epochs=50, key=0)
    assert plain.converged and other.converged and plain.n_epochs < 10
    np.testing.assert_allclose(other.objective, plain.objective, rtol=1e-9)
    found = other.energy.network.layers[0].weight
    np.testing.assert_allclose(found, plain.energy.weight, atol=1e-6)
    assert float(plain.state.gradient) < 1e-5 and 0 <= float(plain.state.decrease) < 1e-10
    assert (np.diff(plain.history["objective"]) <= 1e-15).all()


@pytest.mark.parametrize("l1", [None, 0.02])
def test_frozen_parameters_stay(l1):
    found = fit(
        start(), DATA, Newton(CrossEntropy(l2=0.1), l1=l1, tol=1e-12), epochs=50, key=0, freeze="bias"
    )
    assert not np.asarray(found.energy.bias).any() and np.asarray(found.energy.weight).any()
    gradient = jax.grad(
        lambda w: sum(
            CrossEntropy(l2=0.1)(
                Linear(w, jnp.zeros(3)), Batch(jax.tree.map(jnp.asarray, DATA), jnp.ones(40)), None, None
            )[0].values()
        )
    )(found.energy.weight)
    assert np.abs(gradient).max() <= (1e-7 if l1 is None else l1 + 1e-7)


def test_constrained_parameters_move_in_their_space():
    """The maximum likelihood of a line with normal noise: least squares, σ² the mean squared residual."""
    y = X @ [1.0, -2.0] + 0.5 + 0.1 * RNG.normal(size=40)
    line = NeuralRegressor(mlp(2, "scalar", depth=0, key=0), 2, None, Gaussian(jnp.array(0.5)))
    found = fit(line, {"x": X, "y": y}, Newton(NegativeLogLikelihood(), tol=1e-13), epochs=60, key=0)
    ones = np.c_[X, np.ones(40)]
    best, residual = np.linalg.lstsq(ones, y, rcond=None)[:2]
    assert found.converged
    np.testing.assert_allclose(found.energy.network.layers[0].weight[0], best[:2], rtol=1e-5)
    np.testing.assert_allclose(found.energy.likelihood.scale, np.sqrt(residual[0] / 40), rtol=1e-5)


def test_what_newton_does_not_do_is_refused():
    with pytest.raises(BadInput, match="objective"):
        Newton("x")
    with pytest.raises(BadInput, match="l1"):
        Newton(CrossEntropy(), l1=-1.0)
    big = Scorer(mlp(50, 3, width=200, key=0), 50, 3)
    with pytest.raises(Unsuitable, match=r"Hessian of 10,803.*optax.lbfgs"):
        Newton(CrossEntropy()).check(big, {"x": np.zeros((1, 50)), "y": np.zeros(1, int)})
    with pytest.raises(Unsuitable, match="does not train a partner"):
        Newton(CrossEntropy(partner=jnp.zeros(()))).check(start(), DATA)


class _WithMore(CrossEntropy):
    """A loss with one more term: it has another Hessian, and only a call tells the names."""

    def __call__(self, energy, batch, carry, key):
        terms, carry = super().__call__(energy, batch, carry, key)
        return terms | {"more": 0.1 * jnp.sum(energy.bias**2)}, carry


@pytest.mark.parametrize("l1", [None, 0.02])
@pytest.mark.parametrize("loss", [CrossEntropy(l2=0.1), _WithMore(l2=0.1)], ids=["own", "more"])
def test_the_history_has_every_term_at_the_result(loss, l1):
    found = fit(start(), DATA, Newton(loss, l1=l1, tol=1e-12), epochs=50, key=0)
    batch = Batch({"x": jnp.asarray(X), "y": jnp.asarray(Y)}, jnp.ones(40))
    terms = {name: float(value) for name, value in loss(found.energy, batch, None, None)[0].items()}
    terms |= {} if l1 is None else {"l1": l1 * float(jnp.abs(found.energy.weight).sum())}
    last = {name: values[-1] for name, values in found.history.items() if name != "objective"}
    assert found.converged and found.n_epochs < 15 and set(last) == set(terms)
    np.testing.assert_allclose([last[name] for name in terms], list(terms.values()), rtol=1e-12)
    smooth = lambda e: sum(loss(e, batch, None, None)[0].values())
    slope = jax.grad(smooth)(found.energy)
    assert float(jnp.abs(slope.bias).max()) < 1e-6  # the minimum of this loss, not of another
