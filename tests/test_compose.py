"""Composite energies equal the same operation on tables."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as draws_of
from hypothesis import strategies as st
from quick import evaluate
from scipy import stats
from scipy.special import logsumexp

from energax import Batch, Energy, Mixture, fit, log_prob, posterior
from energax.energies import RBM, Diagonal, Gaussians
from energax.energy import free_energy
from energax.errors import BadInput, Intractable, Unsuitable
from energax.learn import EM, PseudoLikelihood
from energax.missing import Masked
from energax.mixture import Switch
from energax.programs import jit
from energax.spaces import Binary, Categorical, Positive, Real, parameter

seeds = draws_of(seed=st.integers(0, 10_000))
_log_z = jit(lambda e: e.log_partition())
_free = jit(lambda e, g: free_energy(e, g))
_probs = jit(lambda e, name, g: jnp.exp(e.conditional(name, **g).log_probs))


def close(a, b, atol=2e-5):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=atol)


@seeds
def test_sum_and_temperature(oracle, seed):
    a, rng = oracle.random_table(0, seed), np.random.default_rng(seed + 1)
    b = oracle.Table(
        jnp.asarray(rng.normal(size=(3, 2)), jnp.float32), (("z", Categorical(3)), ("w", Binary()))
    )
    both = a + b
    truth = np.asarray(a.table, float)[:, :, None] + np.asarray(b.table, float)[None]
    close(oracle.table_of(both), truth)
    close(_log_z(both), logsumexp(-truth))
    close(oracle.table_of(a / 2.5), np.asarray(a.table) / 2.5)
    close(_log_z(a / 2.5), logsumexp(-np.asarray(a.table, float) / 2.5))


@seeds
def test_given_and_over(oracle, seed):
    """Clamped and summed-out energies, with missing coordinates in the clamped values."""
    energy, rng = oracle.random_table(1, seed), np.random.default_rng(seed)
    x = oracle.random_given(energy, ["x"], rng)["x"]
    e = np.asarray(energy.table, float)
    clamped = energy.given(x=x)
    assert list(clamped.spaces) == ["y", "z"]
    row = e[int(x @ [3, 1])]
    close(oracle.table_of(clamped), row)
    close(_log_z(clamped), logsumexp(-row))
    close(_probs(clamped, "z", {}), np.exp(-row).sum(0) / np.exp(-row).sum())

    hole = Masked(np.array([x[0], 0]), np.array([True, False]))
    partly = energy.given(x=hole)
    rows = e.reshape(3, 3, *e.shape[1:])[int(x[0])]
    close(oracle.table_of(partly), -logsumexp(-rows, axis=0))
    close(_log_z(partly), logsumexp(-rows))

    summed = energy.over("y", "z")
    close(oracle.table_of(summed), -logsumexp(-e, axis=(1, 2)))
    close(_log_z(summed), logsumexp(-e))
    close(_free(energy.over("z"), {"x": x}), -logsumexp(-row))
    p = np.exp(-e).sum((1, 2))
    close(_probs(summed, "x", {}), p / p.sum())


@seeds
def test_mixture_of_any_energies(oracle, seed):
    """p(x, z) = π_z exp(−e_z(x)) / Z_z: normalised whatever the components are."""
    rng = np.random.default_rng(seed)
    parts = [
        oracle.Table(jnp.asarray(2 * rng.normal(size=8), jnp.float32), (("x", Binary(3)),)) for _ in range(2)
    ]
    weights = rng.dirichlet([1.0, 1.0])
    mixture = Mixture(parts, jnp.asarray(weights, jnp.float32))
    each = np.stack([np.asarray(p.table, float) for p in parts], 1)
    each = each + logsumexp(-each, axis=0)
    truth = each - np.log(weights)
    close(oracle.table_of(mixture), truth)
    close(oracle.table_of(Switch(tuple(parts))), each)
    assert float(mixture.log_partition()) == 0 == pytest.approx(logsumexp(-truth), abs=1e-9)
    close(_free(mixture, {"x": jnp.array([0.0, 1.0, 1.0])}), -logsumexp(-truth[3]))
    close(_free(mixture, {"z": jnp.array(1)}), -np.log(weights[1]))
    hole = Masked(np.array([0.0, 0.0, 1.0], np.float32), np.array([True, False, True]))
    close(_free(mixture, {"x": hole}), -logsumexp(-truth[[1, 3]]))


def test_mixture_draws(oracle):
    """Draws of (x, z), of z given x, and of x given z: χ² at false-alarm rate 1e-3 each."""
    rng = np.random.default_rng(0)
    parts = [
        oracle.Table(jnp.asarray(rng.normal(size=4), jnp.float32), (("x", Binary(2)),)) for _ in range(2)
    ]
    mixture = Mixture(parts, jnp.array([0.3, 0.7]))
    p = np.exp(-oracle.table_of(mixture).astype(float))
    keys = jax.random.split(jax.random.key(0), 4000)
    for given in ({}, {"x": jnp.array([1.0, 0.0])}, {"z": jnp.array(1)}):
        drawn = jax.jit(jax.vmap(lambda k, g=given: mixture.draw(k, **g)))(keys)
        both = {**{k: np.broadcast_to(v, (4000, *v.shape)) for k, v in given.items()}, **drawn}
        index = (np.asarray(both["x"]) @ [2, 1]).astype(int) * 2 + np.asarray(both["z"]).astype(int)
        keep = np.zeros((4, 2), bool)
        keep[2 if "x" in given else slice(None), 1 if "z" in given else slice(None)] = True
        expected = np.where(keep, p, 0).reshape(-1)
        seen = np.bincount(index, minlength=8)
        assert (seen[expected == 0] == 0).all()
        keep = expected > 0
        assert stats.chisquare(seen[keep], 4000 * expected[keep] / expected.sum()).pvalue > 1e-3


def test_knowledge_passes_through():
    """A clamped energy and a marginal have the closed forms of their energy, and no others."""
    rbm = RBM(jnp.ones((3, 2)), jnp.zeros(3), jnp.zeros(2))
    clamped = rbm.given(x=jnp.ones(3))
    assert clamped.knows("log_partition") and clamped.knows("conditional") and not clamped.knows("maximise")
    same = lambda a, b: close(evaluate(a), evaluate(b))
    same(clamped.log_partition, lambda: -rbm.free_energy(x=jnp.ones(3)))
    same(lambda: clamped.conditional("z").mean, lambda: rbm.conditional("z", x=jnp.ones(3)).mean)
    x = rbm.over("z")
    free = jax.vmap(lambda v: rbm.free_energy(x=v))
    same(lambda: x.conditional("x").log_probs, lambda: -free(Binary(3).values()) - x.log_partition())
    two = Mixture(Gaussians(jnp.array([[0.0, 0.0], [3.0, 1.0]]), jnp.stack([jnp.eye(2)] * 2)))
    hole = Masked(np.array([1.0, 0.0], np.float32), np.array([True, False]))
    found = evaluate(lambda: free_energy(two.over("z"), {"x": hole}))
    close(found, -logsumexp(stats.norm.logpdf(1, [0, 3]) + np.log(0.5)))


def test_bad_compositions(oracle):
    table = oracle.random_table(0, 0)
    with pytest.raises(BadInput, match="one space in all terms"):
        table + oracle.Table(jnp.zeros(2), (("x", Binary()),))
    with pytest.raises(BadInput, match="given"):
        table.given(q=1)
    with pytest.raises(BadInput, match="over"):
        table.over("q")
    with pytest.raises(BadInput, match=r"as of components\[0\]"):
        Mixture([table, oracle.random_table(1, 0)])
    with pytest.raises(BadInput, match="weights"):
        Mixture([table.over("z")] * 2, jnp.ones(3) / 3)


class Bare(Energy):
    """A unit Gaussian without `log_partition`."""

    scale: jax.Array = parameter(Positive())

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return 0.5 * jnp.sum((x / self.scale) ** 2)


def bare() -> Bare:
    return Bare(jnp.ones(2))


def test_the_builtin_sum_adds_energies():
    total = sum([bare(), bare()])
    assert float(total(x=jnp.ones(2))) == 2.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bare() + 1, "another Energy"),
        (lambda: bare() / 0, "> 0"),
        (lambda: bare() / -1.0, "> 0"),
        (lambda: bare() / "a", "> 0"),
        (lambda: Mixture([]), "at least one energy"),
        (lambda: Mixture([bare(), 3]), "an Energy"),
        (lambda: Mixture([RBM.random(2, 2, key=0)] * 2), "name='k'"),
        (lambda: Mixture([RBM.random(2, 2, key=0)] * 2, [1.5, -0.5], name="k"), "sum to 1"),
        (lambda: Mixture([RBM.random(2, 2, key=0)] * 2, [0.5, 0.7], name="k"), "sum to 1"),
        (lambda: Gaussians(jnp.zeros((1, 2)), jnp.array([[[1.0, 2.0], [2.0, 1.0]]])), "positive eigenvalues"),
        (lambda: Gaussians(jnp.zeros((1, 2)), Diagonal(-jnp.ones((1, 2)))), "> 0"),
    ],
)
def test_energies_that_cannot_be_composed_raise(build, message):
    with pytest.raises(BadInput, match=message):
        build()


def test_a_mixture_needs_components_that_are_normalised():
    with pytest.raises(Unsuitable, match="log Z of every component"):
        Mixture([bare(), bare()])


class Answer(Energy):
    """p(y | c), without a distribution of c."""

    inputs = frozenset({"c"})
    weight: jax.Array

    @property
    def spaces(self):
        return {"c": Binary(2), "y": Binary()}

    def __call__(self, *, c, y):
        return -y * (self.weight @ c)


def test_a_mixture_of_one_is_that_one_though_it_has_inputs():
    answer = Answer(jnp.array([1.0, -2.0]))
    data = {"c": jnp.array([[1.0, 1], [1, 0], [0, 1]]), "y": jnp.array([1.0, 0, 1])}
    mixed = Mixture([answer])
    assert mixed.inputs == {"c"}
    np.testing.assert_allclose(log_prob(mixed, data).value, log_prob(answer, data).value, rtol=1e-6)


@pytest.mark.parametrize("query", [log_prob, posterior])
def test_finite_inputs_are_not_summed_out(query):
    with pytest.raises(Unsuitable, match=r"Give values of \['c'\]"):
        query(Answer(jnp.zeros(2)), {"c": [np.nan, 1.0], "y": 1.0})


def test_em_rejects_inputs():
    data = {"c": np.array([[1.0, 1], [1, 0]]), "y": np.array([1.0, 0])}
    with pytest.raises(Unsuitable, match=r"does not model \['c'\].*CrossEntropy"):
        fit(Answer(jnp.zeros(2)), data, EM(), key=0)


def test_pseudo_likelihood_of_one_target_is_its_likelihood_given_the_inputs():
    answer = Answer(jnp.array([1.0, -2.0]))
    data = {"c": jnp.array([[1.0, 1], [1, 0], [0, 1]]), "y": jnp.array([1.0, 0, 1])}
    loss, _ = PseudoLikelihood()(answer, Batch(data, jnp.ones(3)), None, jax.random.key(0))
    np.testing.assert_allclose(loss, -log_prob(answer, data).value.mean(), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("x", [1, 0], r"x: found shape \(2,\)"),
        ("x", [1, 0, 2], r"x: found 2 at position \(2,\)"),
        ("x", "abc", "x: found dtype <U3"),
        ("x", np.ones((4, 3)), r"x: found shape \(4, 3\); expected one value of shape \(3,\)"),
        ("c", 7, "c: found 7; expected whole numbers from 0 to 3"),
        ("c", 1.5, "c: found 1.5; expected"),
        ("r", [np.inf, 0.0], r"r: found inf at position \(0,\)"),
    ],
)
def test_a_clamped_value_is_validated(name, value, message):
    with pytest.raises(BadInput, match=message):
        Mixed().given(**{name: value})


def test_nan_is_missing_in_a_clamped_value():
    """A density over two coordinates, one of them clamped at NaN, is the density of the other."""
    gaussian = Gaussians(jnp.zeros((1, 2)), Diagonal(jnp.array([[1.0, 4.0]])))
    clamped = gaussian.given(x=[np.nan, 3.0])
    close(clamped.log_partition(), stats.norm(0, 2).logpdf(3.0))
    with pytest.raises(Intractable, match="integral over 'r'"):
        Mixed().given(r=[np.nan, 1.0]).log_partition()


def test_a_clamped_value_keeps_its_precision():
    with jax.enable_x64(True):
        energy = Gaussians(jnp.zeros((2, 1)), Diagonal(jnp.ones((2, 1))))
    assert energy.given(x=[1 / 3]).values["x"].dtype == np.float64


class Mixed(Energy):
    """A real, a binary and a categorical variable."""

    @property
    def spaces(self):
        return {"x": Binary(3), "r": Real(2), "c": Categorical(4)}

    def __call__(self, *, x, r, c):
        return 0.5 * jnp.sum((r - c) ** 2) + x.sum()
