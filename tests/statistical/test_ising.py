"""Chromatic Gibbs sampling of the Ising model at the critical temperature, against Kaufman's formula."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ising import CRITICAL, Ising, exact_moments, log_partition

from energax import sample
from energax.errors import ConvergenceWarning
from energax.samplers import Gibbs


def energies(ising, draws):
    """−Σ s_i s_j of draws (chains, n, L, L / 2)."""
    each = jax.jit(jax.vmap(jax.vmap(lambda black, white: ising(black=black, white=white))))
    return np.asarray(each(draws["black"], draws["white"])) / float(ising.coupling)


@pytest.mark.parametrize("coupling", [0.3, float(CRITICAL), 0.6])
def test_kaufman_agrees_with_enumeration(coupling):
    """The 65 536 states of a 4 × 4 torus."""
    spins = np.array(list(itertools.product([-1, 1], repeat=16)), np.int8).reshape(-1, 4, 4)
    e = -(spins * (np.roll(spins, 1, 1) + np.roll(spins, 1, 2))).sum((1, 2))
    weights = np.exp(-coupling * e)
    mean = weights @ e / weights.sum()
    with jax.enable_x64(True):
        np.testing.assert_allclose(log_partition(coupling, 4), np.log(weights.sum()), rtol=1e-12)
    variance = weights @ (e - mean) ** 2 / weights.sum()
    np.testing.assert_allclose(exact_moments(coupling, 4), [mean, variance], rtol=1e-9)


def test_two_colours_are_the_whole_lattice():
    """The energy of the two variables is that of the lattice, and has these conditionals."""
    ising, rng = Ising(jnp.array(0.4), 4), np.random.default_rng(0)
    lattice = rng.integers(0, 2, (4, 4)).astype(np.float32)
    is_black = np.indices((4, 4)).sum(0) % 2 == 0
    state = {"black": lattice[is_black].reshape(4, 2), "white": lattice[~is_black].reshape(4, 2)}
    spins = 2 * lattice - 1
    expected = -0.4 * (spins * (np.roll(spins, 1, 0) + np.roll(spins, 1, 1))).sum()
    np.testing.assert_allclose(ising(**state), expected, rtol=1e-5)
    for name in state:
        p = ising.conditional(name, **{k: v for k, v in state.items() if k != name})
        flipped = {**state, name: 1 - state[name]}
        ratio = p.log_prob(flipped[name]) - p.log_prob(state[name])
        np.testing.assert_allclose(ratio, ising(**state) - ising(**flipped), rtol=1e-4)


@pytest.mark.slow
def test_the_critical_lattice_has_the_exact_energy_and_specific_heat():
    """32 × 32 at the critical temperature: mean and variance of the energy within 3 standard errors.

    Errors are those of the means of independent chains. The magnetisation is much slower than the energy:
    chains disagree about the mean of every spin, and a warning says so.
    """
    side, n_chains = 32, 20
    ising = Ising(jnp.asarray(CRITICAL, jnp.float32), side)
    with pytest.warns(ConvergenceWarning, match="the chains disagree"):
        draws = sample(ising, n_chains * 150, method=Gibbs(), key=0, n_chains=n_chains, warmup=2000, thin=20)
    mean, variance = exact_moments(float(CRITICAL), side)
    found = energies(ising, draws.chains)
    for statistic, exact in ((found, mean), ((found - mean) ** 2, variance)):
        by_chain = statistic.mean(1)
        error = by_chain.std(ddof=1) / np.sqrt(n_chains)
        assert abs(by_chain.mean() - exact) < 3 * error
        assert error < 0.1 * abs(exact)
