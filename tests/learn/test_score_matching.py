"""Score matching: the closed form on a Gaussian, and the agreement of its three methods."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import fit
from energax.batch import Batch
from energax.energies import RBM, GaussianRBM, Linear, NeuralEnergy
from energax.energy import Energy
from energax.errors import BadInput, Unsuitable
from energax.learn import Denoising, Descent, Exact, ScoreMatching, Sliced
from energax.missing import Masked
from energax.spaces import Positive, Real


class Quadratic(Energy):
    """½ (x − μ)ᵀ A (x − μ)."""

    precision: jax.Array
    mean: jax.Array

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        u = x - self.mean
        return 0.5 * u @ (self.precision + self.precision.T) / 2 @ u


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.multivariate_normal([1.0, -1.0], [[1.0, 0.6], [0.6, 2.0]], size=200)


def loss(objective, energy, rows, key=0, weight=None):
    with jax.enable_x64(True):
        weight = jnp.ones(len(rows)) if weight is None else jnp.asarray(weight)
        batch = Batch({"x": jnp.asarray(rows)}, weight)
        return evaluate(lambda: objective(energy, batch, None, jax.random.key(key))[0])


def gradient(objective, energy, rows, weight=None):
    return evaluate(lambda: eqx.filter_grad(lambda e: loss(objective, e, rows, weight=weight))(energy))


def test_exact_has_its_minimum_at_the_moments_of_a_gaussian(rows):
    """Hyvärinen's closed form: A = inverse covariance, μ = mean; the gradient vanishes there."""
    with jax.enable_x64(True):
        best = Quadratic(jnp.asarray(np.linalg.inv(np.cov(rows.T, bias=True))), jnp.asarray(rows.mean(0)))
        slopes = gradient(ScoreMatching(), best, rows)
        assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(slopes)) < 1e-10
        worse = Quadratic(best.precision * 1.1, best.mean)
        assert loss(ScoreMatching(), worse, rows) > loss(ScoreMatching(), best, rows) + 1e-3


def test_weights_repeat_rows(rows):
    with jax.enable_x64(True):
        energy, weight = Quadratic(jnp.eye(2), jnp.zeros(2)), np.arange(200) % 3
        repeated = loss(ScoreMatching(), energy, np.repeat(rows, weight, axis=0))
        assert np.isclose(loss(ScoreMatching(), energy, rows, weight=weight * 1.0), repeated, rtol=1e-12)


def test_sliced_is_exact_where_the_jacobian_is_diagonal(rows):
    """With signs as directions vᵀJv = tr J for a diagonal J, and its mean is so for any J."""
    with jax.enable_x64(True):
        diagonal = Quadratic(jnp.diag(jnp.array([2.0, 0.5])), jnp.zeros(2))
        assert np.isclose(
            loss(ScoreMatching(Sliced()), diagonal, rows), loss(ScoreMatching(), diagonal, rows)
        )
        full = Quadratic(jnp.array([[2.0, 0.9], [0.9, 1.0]]), jnp.zeros(2))
        exact = loss(ScoreMatching(Exact()), full, rows)
        few, many = (loss(ScoreMatching(Sliced(n)), full, rows) for n in (1, 500))
        assert abs(many - exact) < 4 * 1.8 / np.sqrt(500 * 200)  # vᵀJv has standard deviation 2 · 0.9
        assert abs(few - exact) > 1e-6


def test_denoising_learns_the_blurred_gaussian():
    """Its minimum on N(0, 1) rows is the precision 1 / (1 + σ²), by the closed form of Vincent."""
    with jax.enable_x64(True):
        x = np.random.default_rng(0).normal(size=(20_000, 1))
        x = (x - x.mean()) / x.std()
        batch = Batch({"x": jnp.asarray(x)}, jnp.ones(len(x)))
        for sigma in (0.3, 1.0):

            def slope(precision, sigma=sigma):
                energy = NeuralEnergy(lambda x: 0.0, 1, confinement=precision)
                objective = ScoreMatching(Denoising(sigma))
                loss = lambda e: objective(e, batch, None, jax.random.key(0))[0]
                return evaluate(lambda: eqx.filter_grad(loss)(energy).confinement)

            # The loss is quadratic in the precision: two slopes give its minimum.
            a, b = slope(jnp.array(0.0)), slope(jnp.array(1.0))
            assert abs(a / (a - b) - 1 / (1 + sigma**2)) < 4 * np.sqrt(2 / len(x)) / sigma


def test_denoising_tends_to_exact():
    """∇ denoising / σ² → ∇ exact as σ → 0, with the noise integrated by quadrature."""
    with jax.enable_x64(True):
        energy = NeuralEnergy.random(1, key=0, width=6, depth=1, confinement=jnp.array(1.0))
        x = jnp.array([[0.3], [-1.2], [0.8]])
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)
        weights = weights / weights.sum()

        def blurred(e, sigma):
            one = lambda x, n: 0.5 * jnp.sum((sigma * e.score("x", x=x + sigma * n) + n) ** 2)
            row = lambda x: weights @ jax.vmap(lambda n: one(x, n))(jnp.asarray(nodes)[:, None])
            return jax.vmap(row)(x).mean() / sigma**2

        weight = lambda found: np.asarray(found.network.layers[0].weight)
        exact = weight(gradient(ScoreMatching(), energy, x))
        slope = lambda sigma: weight(evaluate(lambda: eqx.filter_grad(blurred)(energy, sigma)))
        off = [np.abs(slope(sigma) - exact).max() for sigma in (0.1, 0.05)]
        assert off[0] < 0.02 * np.abs(exact).max() and off[1] < 0.3 * off[0]  # second order in σ


def test_hidden_variables_are_summed_out():
    """A Gaussian RBM, whose free energy the score is taken of, is fitted to its own draws."""
    truth = GaussianRBM(jnp.array([[3.0]]), jnp.array([-1.5]), jnp.array([0.0]), 1.0)
    x = evaluate(lambda: jax.vmap(truth.draw)(jax.random.split(jax.random.key(0), 2000))["x"])
    start = GaussianRBM(jnp.array([[1.0]]), jnp.array([0.0]), jnp.array([0.0]), 1.0)
    learner = Descent(ScoreMatching(), optax.adam(0.05))
    learned = fit(start, {"x": x}, learner, key=0, epochs=300).energy
    mean_log_p = lambda e: -jax.vmap(lambda x: e.free_energy(x=x))(x).mean() - e.log_partition()
    log_p = lambda e: float(evaluate(lambda: mean_log_p(e)))
    assert log_p(learned) > log_p(truth) - 0.02 and log_p(start) < log_p(truth) - 0.1


def test_refusals(rows):
    data = {"x": rows}
    with pytest.raises(Unsuitable, match="ContrastiveDivergence"):
        ScoreMatching().check(RBM.random(2, 2, key=0), data)
    with pytest.raises(Unsuitable, match="all of ℝⁿ"):
        ScoreMatching().check(NeuralEnergy.random(Positive(2), key=0), data)
    with pytest.raises(Unsuitable, match="missing values"):
        ScoreMatching().check(NeuralEnergy.random(2, key=0), {"x": Masked(rows, rows > 0)})
    with pytest.raises(Unsuitable, match="'w'"):
        ScoreMatching(variable="w").check(Linear.random(2, 2, key=0), data)
    for bad in (lambda: Denoising(0.0), lambda: Sliced(0), lambda: ScoreMatching("exact")):
        with pytest.raises(BadInput):
            bad()


def test_what_is_only_ever_given_has_no_score():
    """A classifier does not model x; of an energy of y given x, y can be learned and x cannot."""
    line, data = Linear(jnp.zeros((2, 3)), jnp.zeros(2)), {"x": np.zeros((4, 3)), "y": np.zeros(4, int)}
    with pytest.raises(Unsuitable, match="distribution of 'x', but Linear does not model it"):
        ScoreMatching().check(line, data)
    curve = {"x": np.zeros((4, 1)), "y": np.zeros((4, 1))}
    ScoreMatching(variable="y").check(Curve(jnp.ones(())), curve)
    with pytest.raises(Unsuitable, match="distribution of 'x'"):
        ScoreMatching().check(Curve(jnp.ones(())), curve)


class Curve(Energy):
    slope: jax.Array
    inputs = frozenset({"x"})

    @property
    def spaces(self):
        return {"x": Real(1), "y": Real(1)}

    def __call__(self, *, x, y):
        return jnp.sum((y - self.slope * x) ** 2)
