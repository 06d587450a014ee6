"""Contrastive divergence: fixed values, persistent chains and incompatible energies."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import Energy, fit
from energax.batch import Batch
from energax.energies import RBM, ConditionalRBM, Decoder, GaussianRBM, Linear, NeuralEnergy
from energax.errors import BadInput, Unsuitable
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood
from energax.missing import Masked
from energax.samplers import Gibbs, Langevin, default_sampler
from energax.spaces import Binary, Count, Positive, parameter


def test_the_first_argument_is_k():
    assert ContrastiveDivergence(5).k == 5 and ContrastiveDivergence(5).partner is None


def test_persistent_chains_go_on():
    rbm = RBM.random(6, 3, key=0, scale=0.1)
    batch = Batch({"x": jnp.ones((4, 6))}, jnp.ones(4))
    objective = ContrastiveDivergence(1, persistent=True, n_chains=7)
    carry = evaluate(lambda: objective.init(rbm, batch, jax.random.key(0)))
    assert carry["x"].shape == (7, 6) and (np.asarray(carry["x"]) == 1).all()
    _, after = evaluate(lambda: objective(rbm, batch, carry, jax.random.key(1)))
    assert after["x"].shape == (7, 6) and not (np.asarray(after["x"]) == 1).all()


def test_persistent_chains_keep_what_is_hidden():
    """z equals x: a chain that draws x first moves to its own previous hidden unit."""
    same = RBM(jnp.array([[80.0]]), jnp.array([-40.0]), jnp.array([-40.0]))
    batch = Batch({"x": jnp.zeros((4, 1))}, jnp.ones(4))
    objective = ContrastiveDivergence(1, persistent=True, sampler=Gibbs(("x", "z")))
    carry = {"x": jnp.zeros((4, 1)), "z": jnp.array([[0.0], [1.0], [1.0], [0.0]])}
    shapes = jax.eval_shape(lambda: objective.init(same, batch, jax.random.key(0)))
    assert jax.tree.map(lambda a: a.shape, shapes) == {"x": (4, 1), "z": (4, 1)}
    _, after = evaluate(lambda: objective(same, batch, carry, jax.random.key(1)))
    x, z = (np.asarray(after[name])[:, 0].tolist() for name in ("x", "z"))
    assert x == z == [0, 1, 1, 0]


def test_chains_from_the_data_do_not_draw_the_data_first():
    objective = ContrastiveDivergence(1, sampler=Gibbs(("x", "z")))
    with pytest.raises(Unsuitable, match="draws 'x' first, which overwrites the data"):
        objective.check(RBM.random(2, 2, key=0), {"x": np.zeros((3, 2))})


class HiddenFirst(Energy):
    """z equals x, as above, with the hidden variable named first."""

    @property
    def spaces(self):
        return {"z": Binary(1), "x": Binary(1)}

    def __call__(self, *, z, x):
        return 80.0 * jnp.sum((x - z) ** 2)


def test_chains_from_the_data_keep_them_in_whatever_order_variables_are_named():
    """One sweep that draws x first would move x to the random first value of the hidden unit."""
    energy, x = HiddenFirst(), jnp.array([[0.0], [1.0]] * 20)
    data = {"x": x}
    ContrastiveDivergence(1).check(energy, data)
    sampler = default_sampler(energy, data)
    assert sampler.order == ("z", "x") and default_sampler(energy, {"z": x}).order is None
    drawn = evaluate(lambda: sampler.advance(energy, data, 1, jax.random.key(0)))
    assert (np.asarray(drawn["x"]) == np.asarray(x)).all()
    with pytest.raises(Unsuitable, match="draws 'x' first, which overwrites the data"):
        ContrastiveDivergence(1, sampler=Gibbs()).check(energy, data)
    ContrastiveDivergence(1, persistent=True, sampler=Gibbs()).check(energy, data)


def test_chains_from_the_data_carry_their_weights():
    """A row of weight 0 is in neither phase: the loss does not depend on its values."""
    rbm, key = RBM.random(4, 3, key=0, scale=1.0), jax.random.key(1)
    weight = jnp.array([1.0, 1.0, 0.0])
    losses = []
    for filler in (0.0, 1.0):
        x = jnp.array([[1.0, 0, 1, 0], [0, 1, 1, 1], [filler] * 4])
        batch = Batch({"x": x}, weight)
        losses.append(evaluate(lambda batch=batch: ContrastiveDivergence(2)(rbm, batch, None, key)[0]))
    assert losses[0] == losses[1]


def test_missing_values_are_drawn_with_the_known_held():
    """Two coordinates that are equal: the missing one is drawn equal to the observed one."""
    rbm = RBM(jnp.array([[40.0], [40.0]]), jnp.full(2, -20.0), jnp.array([-40.0]))  # both or none
    x = Masked(jnp.array([[1.0, 0.0]]), jnp.array([[True, False]]))
    objective = ContrastiveDivergence(1)
    complete = jax.vmap(lambda key: objective._complete(rbm, Batch({"x": x}, jnp.ones(1)), key)["x"][0])
    completed = np.asarray(evaluate(lambda: complete(jax.random.split(jax.random.key(0), 10))))
    assert (completed[:, 0] == 1).all()
    assert completed[:, 1].mean() > 0.5


class Counts(Energy):
    """A Poisson energy without a conditional; its values are infinitely many and have no gradient."""

    rate: jax.Array

    @property
    def spaces(self):
        return {"x": Count()}

    def __call__(self, *, x):
        return jax.scipy.special.gammaln(x + 1.0) - x * jnp.log(self.rate)


class Poissons(Counts):
    """The same with a conditional."""

    def conditional(self, name, **given):
        from numpyro.distributions import Poisson

        return Poisson(self.rate)


@pytest.mark.parametrize("persistent", [False, True])
def test_counts_that_know_their_conditional(persistent):
    """Draws are independent of the start: the rate becomes the mean, within 5 standard errors."""
    n = np.random.default_rng(0).poisson(3.0, 400)
    learner = Descent(ContrastiveDivergence(persistent=persistent), optax.adam(0.05))
    rate = fit(Poissons(jnp.array(1.0)), {"x": n}, learner, key=0, epochs=300).energy.rate
    assert abs(rate - n.mean()) < 5 * np.sqrt(3.0 / 400)


def test_refusals():
    with pytest.raises(Unsuitable, match="Langevin"):
        ContrastiveDivergence(sampler=Gibbs()).check(NeuralEnergy.random(2, key=0), {"x": np.zeros((2, 2))})
    with pytest.raises(Unsuitable, match=r"No sampler supports Counts.*Give the energy `conditional`"):
        ContrastiveDivergence().check(Counts(jnp.array(1.0)), {"x": np.zeros(2, int)})
    with pytest.raises(Unsuitable, match=r"Gibbs needs.*Give the energy `conditional`"):
        ContrastiveDivergence(sampler=Gibbs()).check(Counts(jnp.array(1.0)), {"x": np.zeros(2, int)})
    with pytest.raises(Unsuitable, match=r"does not model \['x'\].*CrossEntropy"):
        ContrastiveDivergence(persistent=True).check(
            Linear.random(2, 3, key=0), {"x": np.zeros((2, 2)), "y": np.zeros(2, int)}
        )
    with pytest.raises(Unsuitable, match=r"cannot integrate out 'z' in Real\(2\).*ELBO\(encoder\)"):
        ContrastiveDivergence().check(Decoder.random(4, 2, key=0), {"x": np.zeros((2, 4))})
    with pytest.raises(Unsuitable, match="observed"):
        ContrastiveDivergence().check(RBM.random(2, 2, key=0), {})
    ContrastiveDivergence().check(GaussianRBM.random(2, 2, key=0), {"x": np.zeros((2, 2))})


def test_chains_that_nothing_would_use_are_refused():
    with pytest.raises(BadInput, match="persistent=True"):
        ContrastiveDivergence(n_chains=5)
    with pytest.raises(BadInput, match="k"):
        ContrastiveDivergence(0)


def test_persistent_chains_do_not_begin_at_padding():
    rbm = RBM.random(4, 2, key=0)
    batch = Batch({"x": jnp.concatenate([jnp.ones((1, 4)), jnp.zeros((9, 4))])}, jnp.zeros(10).at[0].set(1))
    objective = ContrastiveDivergence(1, persistent=True)
    carry = evaluate(lambda: objective.init(rbm, batch, jax.random.key(0)))
    assert (np.asarray(carry["x"]) == 1).all()


class Exponential(Energy):
    """e(x) = λx on (0, ∞), without its log Z = −log λ."""

    rate: jax.Array = parameter(Positive())

    @property
    def spaces(self):
        return {"x": Positive(1)}

    def __call__(self, *, x):
        return self.rate * x[0]


def test_without_a_sampler_one_that_suits_is_taken():
    """The alternative that NegativeLogLikelihood suggests works, also on a half line: λ → 1 / mean.

    It starts at four times that. Over six keys the error had a standard deviation of 0.05, from the
    short chains; 0.2 is four of these.
    """
    x = np.random.default_rng(0).exponential(2.0, (1000, 1)).astype(np.float32)
    start = Exponential(jnp.array(2.0))
    with pytest.raises(Unsuitable, match="Use ContrastiveDivergence or NoiseContrastive"):
        NegativeLogLikelihood().check(start, {"x": x})
    steps = optax.adam(optax.cosine_decay_schedule(0.05, 400))
    done = fit(start, {"x": x}, Descent(ContrastiveDivergence(5), steps), key=0, epochs=40, batch_size=100)
    assert abs(float(done.energy.rate) * x.mean() - 1) < 0.2


@pytest.mark.parametrize("mean", [-1.0, 1.0])
def test_langevin_chains_teach_a_network(mean):
    """The energy is lower on the side of zero where the rows of a normal are."""
    x = (mean + 0.3 * np.random.default_rng(0).normal(size=(64, 1))).astype(np.float32)
    energy = NeuralEnergy.random(1, key=0, width=8, depth=1)
    objective = ContrastiveDivergence(5, sampler=Langevin(0.05))
    done = fit(energy, {"x": x}, Descent(objective, optax.adam(0.02)), epochs=30, key=1)
    at = lambda x: float(evaluate(lambda: done.energy(x=jnp.array([x]))))
    low, high = at(mean), at(-mean)
    assert low < high - 0.5


@pytest.mark.parametrize("n_chains", [None, 3])
def test_both_phases_together_have_the_terms_and_the_gradient_of_each_alone(n_chains):
    """F of data and chains is computed in one call; several shards keep the two calls."""
    rbm = RBM.random(5, 4, key=0, scale=0.5)
    rows = {"x": (jax.random.uniform(jax.random.key(1), (6, 5)) < 0.5).astype(jnp.float32)}
    objective = ContrastiveDivergence(2, persistent=True, n_chains=n_chains)
    found = []
    for shards in (1, 2):
        batch = Batch(rows, jnp.arange(6.0), shards)

        def loss(rbm, batch=batch):
            chains = objective.init(rbm, batch, jax.random.key(2))
            terms, _ = objective(rbm, batch, chains, jax.random.key(3))
            return sum(terms.values()), terms

        found.append(evaluate(lambda loss=loss: jax.value_and_grad(loss, has_aux=True)(rbm)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *found)


def test_missing_inputs_are_refused():
    machine = ConditionalRBM.random(1, 2, 2, key=0)
    rows = {"x": np.ones((2, 2)), "u": np.array([[1.0], [np.nan]])}
    with pytest.raises(Unsuitable, match="missing values of 'u'"):
        fit(machine, rows, Descent(ContrastiveDivergence()), key=0, epochs=1)


def test_chains_at_the_data_have_the_weights_of_their_rows():
    """Draws are certain, and copy the rows, so that both phases are equal; the row of weight 0 has F = 10."""
    machine = RBM(60.0 * jnp.eye(2), jnp.array([-25.0, -40.0]), jnp.full(2, -30.0))
    batch = Batch({"x": jnp.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])}, jnp.array([1.0, 3.0, 0.0]))
    terms, _ = evaluate(lambda: ContrastiveDivergence(2)(machine, batch, None, jax.random.key(0)))
    np.testing.assert_allclose([terms["positive phase"], terms["negative phase"]], [-1.25, 1.25], rtol=1e-5)


def test_persistent_chains_start_at_rows_with_a_weight():
    batch = Batch({"x": jnp.array([[1.0, 1.0], [0.0, 0.0]])}, jnp.array([1.0, 0.0]))
    objective = ContrastiveDivergence(persistent=True, n_chains=20)
    chains = evaluate(lambda: objective.init(RBM.random(2, 2, key=0), batch, jax.random.key(0)))
    assert (chains["x"] == 1).all()
