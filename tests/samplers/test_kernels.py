"""Kernels: clamped coordinates stay, unsupported energies raise, settings are tuned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import Mixture, sample
from energax.energies import RBM, Decoder, Gaussians, NeuralEnergy
from energax.energy import Energy
from energax.errors import BadInput, ConvergenceWarning, Unsuitable
from energax.samplers import Gibbs, Langevin, draw_rest, knows_conditional
from energax.spaces import Binary, Interval, Positive, Simplex

bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0)


def test_knowledge_is_asked_for_each_variable():
    """A decoder has p(x | z) in closed form and not p(z | x)."""
    decoder, x, z = Decoder(lambda z: z, 2), jnp.zeros(2), jnp.zeros(2)
    assert knows_conditional(decoder, "x", {"z": z}) and not knows_conditional(decoder, "z", {"x": x})
    with pytest.raises(Unsuitable, match="conditional of 'z'"):
        Gibbs().check(decoder)
    Gibbs().check(decoder.given(z=z))
    assert sample(decoder, 8, {"z": [9.0, -9.0]}, Gibbs(), key=0)["x"].mean(0).tolist() == [1, 0]


def test_clamped_coordinates_stay(oracle):
    energy = oracle.random_table(0, 0)
    state = {"x": jnp.array([1.0, 0.0, 1.0]), "z": jnp.array(2)}
    clamped = {"x": jnp.array([True, False, True]), "z": jnp.array(True)}
    for i in range(5):
        old, key = state, jax.random.key(i)
        state = evaluate(lambda old=old, key=key: Gibbs().step(energy, old, key, clamped))
        assert state["x"][0] == 1 and state["x"][2] == 1 and state["z"] == 2
    start = {"x": jnp.array([0.3, -0.7])}
    held = {"x": jnp.array([False, True])}
    moved = evaluate(lambda: Langevin(0.5).step(bowl, start, jax.random.key(0), held))
    assert moved["x"][1] == start["x"][1]


def test_a_sweep_has_an_order():
    """z equals x: the variable that is drawn first takes the value of the other."""
    same = RBM(jnp.array([[80.0]]), jnp.array([-40.0]), jnp.array([-40.0]))
    state, key = {"x": jnp.array([1.0]), "z": jnp.array([0.0])}, jax.random.key(0)
    assert evaluate(lambda: Gibbs().step(same, state, key)) == {"x": 1, "z": 1}
    assert evaluate(lambda: Gibbs(("x", "z")).step(same, state, key)) == {"x": 0, "z": 0}
    assert repr(Gibbs(("x", "z"))) == "Gibbs(order=('x', 'z'))"
    # A random scan draws the same variable twice in a quarter of the sweeps, and otherwise in both orders.
    scan = jax.vmap(lambda k: Gibbs(scan="random").step(same, state, k)["x"][0])
    drawn = np.asarray(evaluate(lambda: scan(jax.random.split(key, 4000))))
    assert abs(drawn.mean() - 0.5) < 5 * 0.5 / np.sqrt(4000)


def test_a_block_is_drawn_jointly():
    """x and y are equal, so that one at a time they never change; jointly they do, given z and a clamp."""

    class Equal(Energy):
        @property
        def spaces(self):
            return {"x": Binary(), "y": Binary(2), "z": Binary()}

        def __call__(self, *, x, y, z):
            return 90.0 * jnp.sum((x - y) ** 2) - jnp.log(3.0) * x * z

    state = {"x": jnp.array(0.0), "y": jnp.zeros(2), "z": jnp.array(1.0)}
    clamped = {"z": jnp.array(True)}
    keys = jax.random.split(jax.random.key(0), 4000)
    move = lambda sampler: jax.vmap(lambda k: sampler.step(Equal(), state, k, clamped))
    alone, joint = (evaluate(lambda s=s: move(s)(keys)) for s in (Gibbs(), Gibbs((("x", "y"), "z"))))
    assert not np.asarray(alone["x"]).any()
    assert (np.asarray(joint["y"]) == np.asarray(joint["x"])[:, None]).all()
    assert abs(np.mean(joint["x"]) - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 4000)
    held = {"x": jnp.array(False), "y": jnp.array([True, False])}
    one = evaluate(lambda: Gibbs((("x", "y"), "z")).step(Equal(), state, keys[0], held))
    assert one["x"] == 0 and (np.asarray(one["y"]) == 0).all()


def test_a_block_needs_draws():
    """A decoder has no p(x, z) by enumeration, but draws of it; a bowl has neither."""
    decoder = Decoder(lambda z: z, 2)
    Gibbs((("x", "z"),)).check(decoder)
    two = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0) + Pair()
    with pytest.raises(Unsuitable, match=r"cannot draw x, y jointly.*no `draw`"):
        Gibbs((("x", "y"),)).check(two)
    with pytest.raises(BadInput, match="scan: found 'shuffled'; expected 'systematic' or 'random'"):
        Gibbs(scan="shuffled")


class Pair(Energy):
    @property
    def spaces(self):
        return {"x": bowl.spaces["x"], "y": Positive()}

    def __call__(self, *, x, y):
        return y * jnp.sum(x**2)


@pytest.mark.parametrize(
    ("order", "says"),
    [("xz", "names of variables"), (("x", "x"), "each name once"), (("x",), "x, z"), (("x", "y"), "x, z")],
)
def test_an_order_names_every_variable_once(order, says):
    with pytest.raises(BadInput, match=f"order.*{says}"):
        Gibbs(order).check(RBM.random(2, 2, key=0))


def test_the_rest_of_a_correlated_normal():
    """p(x_a | x_b) of a full covariance is not p(x_a): 4000 draws, five standard errors."""
    from numpyro.distributions import MultivariateNormal

    s = jnp.array([[1.0, 0.9], [0.9, 1.0]])
    p = MultivariateNormal(jnp.zeros(2), s)
    old, clamped = jnp.array([0.0, 2.0]), jnp.array([False, True])
    draw = jax.vmap(lambda k: draw_rest(p, old, k, clamped))
    drawn = np.asarray(evaluate(lambda: draw(jax.random.split(jax.random.key(0), 4000))))
    assert (drawn[:, 1] == 2).all()
    spread = np.sqrt(1 - 0.81)
    assert abs(drawn[:, 0].mean() - 1.8) < 5 * spread / np.sqrt(4000)
    assert abs(drawn[:, 0].std() - spread) < 5 * spread / np.sqrt(8000)


class Shaped(Energy):
    """Gamma(3), Uniform(0, 2) and Dirichlet(2, 3, 4) side by side, each in its own space."""

    @property
    def spaces(self):
        return {"g": Positive(), "u": Interval(0, 2), "d": Simplex(3)}

    def __call__(self, *, g, u, d):
        return g - 2 * jnp.log(g) - jnp.array([1.0, 2.0, 3.0]) @ jnp.log(d) + 0 * u


def test_langevin_moves_through_bijections():
    """Means of a Gamma, a uniform and a Dirichlet variable, within five standard errors."""
    draws = sample(Shaped(), 8000, method=Langevin(), key=0)
    assert 0.4 < draws.info["acceptance"].mean() < 0.75
    truth = np.array([3.0, 1.0, 2 / 9, 3 / 9, 4 / 9])
    spread = np.array([np.sqrt(3.0), np.sqrt(1 / 3), *np.sqrt(truth[2:] * (1 - truth[2:]) / 10)])
    got = np.concatenate(
        [draws["g"].mean(0, keepdims=True), draws["u"].mean(0, keepdims=True), draws["d"].mean(0)]
    )
    ess = np.nanmin(draws.ess)
    assert ess > 200 and (np.abs(got - truth) < 5 * spread / np.sqrt(ess)).all()


def test_langevin_sums_out_finite_variables():
    """Two far wells: no chain crosses, so the label of each draw is that of its own well."""
    two = Mixture(Gaussians(jnp.array([[-9.0], [9.0]]), jnp.ones((2, 1, 1))))
    with pytest.warns(ConvergenceWarning, match="different regions"):
        draws = sample(two, 400, method=Langevin(0.3), key=0, warmup=200)
    np.testing.assert_array_equal(draws["z"], (draws["x"][:, 0] > 0).astype(int))


def test_unadjusted_langevin_admits_its_bias():
    """With step ε the spread of a unit normal is 1/√(1 − ε/2): wrong, and the verdict says so."""
    draws = sample(bowl, 8000, method=Langevin(0.8, adjusted=False), key=0)
    assert "biased by the step size" in draws.verdict
    assert draws["x"].std() == pytest.approx(1 / np.sqrt(0.6), rel=0.05)


def test_score_alone_is_enough():
    class Scored(Energy):
        @property
        def spaces(self):
            return bowl.spaces

        def __call__(self, *, x):
            return jnp.nan

        def score(self, name="x", **given):
            return 3.0 - given["x"]

    draws = sample(Scored(), 4000, method=Langevin(0.05, adjusted=False), key=0)
    assert draws["x"].mean() == pytest.approx(3.0, abs=0.3)


def test_bad_settings():
    with pytest.raises(BadInput, match="step_size"):
        Langevin(-1.0)
    with pytest.raises(BadInput, match="acceptance rate"):
        Langevin(adjusted=False)


def test_same_key_same_chain():
    rbm = RBM.random(4, 3, key=0, scale=1.0)
    run = lambda key, n_chains=2: sample(
        rbm, 50, method=Gibbs(), key=key, n_chains=n_chains, warmup=5, thin=2
    )
    np.testing.assert_array_equal(run(1)["x"], run(1)["x"])
    assert (run(1)["x"] != run(2)["x"]).any()
    assert run(1, 3).chains["x"].shape == (3, 17, 4)


class Gamma(Energy):
    """Two Gamma(3) variables, in (0, ∞)."""

    @property
    def spaces(self):
        return {"x": Positive(2)}

    def __call__(self, *, x):
        return jnp.sum(x - 2 * jnp.log(x))


class ScoredGamma(Gamma):
    def score(self, name="x", **given):
        return 2 / given["x"] - 1


def test_a_known_score_is_carried_through_the_bijection():
    """The move by an energy's own score is the move by the gradient of the same energy."""
    sampler, state = Langevin(0.1, adjusted=False), {"x": jnp.array([0.2, 5.0])}
    for i in range(3):
        step = lambda energy, i=i: evaluate(lambda: sampler.step(energy, state, jax.random.key(i)))
        by_gradient, by_score = step(Gamma()), step(ScoredGamma())
        np.testing.assert_allclose(by_score["x"], by_gradient["x"], rtol=1e-5)
        assert np.abs(by_score["x"] - state["x"]).max() > 0.01
