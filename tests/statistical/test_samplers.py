"""Invariance: moves of exact draws leave their distribution unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from energax.energies import RBM, NeuralEnergy
from energax.infer import sample
from energax.samplers import Gibbs, Langevin

pytestmark = pytest.mark.slow
N = 20_000
LEVEL = 1e-3  # false alarms of each test below, at fixed keys


def frequencies(state, oracle, energy):
    index = np.zeros(N, int)
    for name, space in energy.spaces.items():
        flat = np.asarray(state[name]).reshape(N, -1).astype(int)
        for i in range(space.size):
            index = index * space.values_per_coordinate + flat[:, i]
    return np.bincount(index, minlength=np.prod([s.n_values for s in energy.spaces.values()]))


@pytest.mark.parametrize(
    ("kind", "sampler"),
    [
        ("known conditionals", Gibbs()),
        ("known conditionals", Gibbs(("x", "z"))),
        ("known conditionals", Gibbs(scan="random")),
        ("generic", Gibbs()),
        ("generic", Gibbs(("x", "z"))),
        ("generic", Gibbs(scan="random")),
        ("generic", Gibbs((("z", "x"),))),
    ],
)
def test_gibbs_leaves_p_as_it_is(oracle, kind, sampler):
    """χ² over all joint values after three sweeps of exact draws; and a wrong target is rejected."""
    energy = (
        RBM.random(3, 2, key=3, scale=1.5) if kind == "known conditionals" else oracle.random_table(0, 3, 1.0)
    )
    exact = {k: jnp.asarray(v) for k, v in sample(energy, N, key=0).items()}
    moved = jax.jit(lambda s, k: sampler.advance(energy, s, 3, k))(exact, jax.random.key(1))
    e = oracle.table_of(energy).astype(float)
    p = np.exp(-e) / np.exp(-e).sum()
    counts = frequencies(moved, oracle, energy)
    assert stats.chisquare(counts, N * p.reshape(-1)).pvalue > LEVEL
    wrong = np.exp(-0.8 * e) / np.exp(-0.8 * e).sum()
    assert stats.chisquare(counts, N * wrong.reshape(-1)).pvalue < 1e-6


def test_gibbs_given_held_coordinates(oracle):
    """Moves of the free coordinates leave p(free | clamped) invariant."""
    energy = oracle.random_table(0, 4, 1.0)
    x = np.ma.masked_array(np.array([1.0, 0, 0]), [False, True, True])
    exact = {k: jnp.asarray(v) for k, v in sample(energy, N, {"x": x}, key=0).items()}
    clamped = {"x": jnp.broadcast_to(jnp.array([True, False, False]), (N, 3)), "z": jnp.zeros(N, bool)}
    moved = jax.jit(lambda s, k: Gibbs().advance(energy, s, 3, k, clamped))(exact, jax.random.key(1))
    p = np.exp(-oracle.table_of(energy).astype(float))
    p[:4] = 0
    counts, expected = frequencies(moved, oracle, energy), (N * p / p.sum()).reshape(-1)
    assert (counts[expected == 0] == 0).all()
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > LEVEL


@pytest.mark.parametrize("step_size", [0.05, 1.0])
def test_adjusted_langevin_leaves_p_as_it_is(step_size):
    """Kolmogorov–Smirnov on both coordinates, small steps and large; unadjusted moves are rejected."""
    energy = NeuralEnergy(lambda x: 1.5 * x[0] ** 2, 2, confinement=1.0)
    rng = np.random.default_rng(0)
    spread = np.array([0.5, 1.0])
    exact = {"x": jnp.asarray(rng.normal(size=(N, 2)) * spread, jnp.float32)}
    advance = jax.jit(lambda kernel, s, k: kernel.advance(energy, s, 5, k), static_argnums=0)
    moved = advance(Langevin(step_size), exact, jax.random.key(1))["x"]
    assert (np.asarray(moved) != exact["x"]).any(1).mean() > 0.2
    for i in range(2):
        assert stats.kstest(moved[:, i], stats.norm(0, spread[i]).cdf).pvalue > LEVEL
    if step_size == 1.0:
        raw = advance(Langevin(0.2, adjusted=False), exact, jax.random.key(1))["x"]
        assert stats.kstest(raw[:, 0], stats.norm(0, 0.5).cdf).pvalue < 1e-6


def test_chains_find_the_distribution(oracle):
    """Chains from random starts reach the exact means, within five standard errors."""
    energy = oracle.random_table(1, 8, 1.0)
    draws = sample(energy, 8000, method=Gibbs(), key=0, thin=2)
    assert draws.trusted, draws.verdict
    exact = sample(energy, 200_000, key=1)
    for name in energy.spaces:
        error = exact[name].std(0) / np.sqrt(np.nanmin(draws.ess))
        assert (np.abs(draws[name].mean(0) - exact[name].mean(0)) < 5 * error).all()
