"""Single moves of samplers, from values where the rule of the move is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax.energies import NeuralEnergy
from energax.energy import Energy
from energax.samplers import (
    HMC,
    Compound,
    EllipticalSlice,
    Langevin,
    ParallelTempering,
    RandomWalk,
    run_chains,
)
from energax.spaces import Binary, Count, Real

N = 4000


def moved(energy, sampler, values, n=N, clamped=None):
    """x after one move, n times from every one of these values, (values, n, …)."""
    step = lambda x: jax.vmap(lambda key: sampler.step(energy, {"x": x}, key, clamped)["x"])
    keys = jax.random.split(jax.random.key(0), n)
    return np.asarray(evaluate(lambda: jax.vmap(lambda x: step(x)(keys))(jnp.asarray(values))))


class Levels(Energy):
    """e = 0 at 0 and 1, and 50 at all other counts."""

    @property
    def spaces(self):
        return {"x": Count()}

    def __call__(self, *, x):
        return 50.0 * (x > 1)


class Bits(Energy):
    @property
    def spaces(self):
        return {"x": Binary(3)}

    def __call__(self, *, x):
        return 0.0 * x.sum()


def test_a_count_moves_up_from_zero_as_often_as_down_to_it():
    """p(0) = p(1), and at both a half of the proposals is the other: five standard errors."""
    drawn = moved(Levels(), RandomWalk(0.1), [0, 1])
    up, down = (drawn[0] == 1).mean(), (drawn[1] == 0).mean()
    assert abs(up - 0.5) < 5 * np.sqrt(0.25 / N) and abs(down - 0.5) < 5 * np.sqrt(0.25 / N)


def test_a_random_walk_keeps_clamped_bits():
    held = {"x": jnp.array([True, False, True])}
    drawn = moved(Bits(), RandomWalk(0.1), [[1.0, 0.0, 1.0]], 100, held)[0]
    assert (drawn[:, [0, 2]] == 1).all() and 0 < drawn[:, 1].mean() < 1


def test_replicas_of_tempering_move_by_their_own_noise():
    """On a flat energy every step is accepted, so that replicas with the same noise would stay equal."""
    flat = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=0.0)
    sampler, state = ParallelTempering(RandomWalk(1.0), n_temperatures=4), {"x": jnp.zeros(2)}

    def move():
        memory = sampler.init_memory(flat, state)
        return sampler.move(flat, state, memory, jax.random.key(0))[1].states["x"]

    assert len(np.unique(np.asarray(evaluate(move)), axis=0)) == 4


def test_neighbours_in_temperature_change_places_in_turn():
    """Swaps on a flat energy are always accepted: pairs (0, 1), (2, 3), then (1, 2), so all states mix."""
    flat = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=0.0)
    sampler, state = ParallelTempering(RandomWalk(1e-6), n_temperatures=4), {"x": jnp.zeros(1)}

    def places():
        memory = sampler.init_memory(flat, state)
        memory = memory._replace(states={"x": jnp.arange(4.0)[:, None]})
        found, cold = [], state
        for t in range(2):
            memory = sampler.renew_memory(flat, cold, memory)
            cold, memory, _ = sampler.move(flat, cold, memory, jax.random.key(t))
            found.append(memory.states["x"][:, 0])
        return jnp.stack(found)

    np.testing.assert_allclose(evaluate(places), [[1, 0, 3, 2], [1, 3, 0, 2]], atol=1e-4)


@pytest.mark.parametrize("covariance", [[1.0, 4.0], [[1.0, 0.5], [0.5, 4.0]]])
def test_an_elliptical_slice_of_a_prior_with_a_mean_accepts_at_once(covariance):
    """The likelihood of N(μ, Σ) itself is constant, so that no angle is ever rejected."""
    mean, matrix = jnp.array([3.0, -1.0]), jnp.array(covariance)
    precision = jnp.linalg.inv(matrix if matrix.ndim == 2 else jnp.diag(matrix))
    prior = NeuralEnergy(lambda x: 0.5 * (x - mean) @ precision @ (x - mean), 2, confinement=0.0)
    sampler, state = EllipticalSlice(matrix, mean), {"x": jnp.array([9.0, 9.0])}

    def tries():
        memory = sampler.init_memory(prior, state)
        return jax.vmap(lambda key: sampler.move(prior, state, memory, key)[2]["n_steps"])(keys)

    keys = jax.random.split(jax.random.key(0), 200)
    assert (np.asarray(evaluate(tries)) == 1).all()


def test_a_thinned_chain_is_every_third_draw_of_the_chain():
    """The noise of a move depends on its number alone."""
    bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 1, confinement=1.0)
    run = lambda n, thin: run_chains(RandomWalk(0.5), bowl, n, key=1, n_chains=2, warmup=6, thin=thin)
    np.testing.assert_allclose(run(24, 1).chains["x"][:, 2::3], run(8, 3).chains["x"], rtol=1e-5)


def test_impossible_starts_are_drawn_again_until_one_is_possible():
    """31 % of the starts are possible: of 8 chains one fails 20 times with probability 0.005."""
    right = NeuralEnergy(lambda x: jnp.where(x[0] > 0.5, 0.0, jnp.inf), 1, confinement=1.0)
    draws = run_chains(RandomWalk(0.5), right, 16, key=0, n_chains=8, warmup=0)
    assert (draws["x"] > 0.5).all()


@pytest.mark.parametrize("far", [1e12, 1e3], ids=["absurd", "ordinary"])
def test_starts_of_absurd_energy_are_drawn_again_and_others_are_not(far):
    """Above 0.5, where a third of the starts lie, the energy is `far`: only if that is absurd they go."""
    step = NeuralEnergy(lambda x: jnp.where(x[0] > 0.5, far, 0.0), 1, confinement=1.0)
    for sampler in (RandomWalk(1e-9), HMC(step_size=1e-9), Langevin(step_size=1e-18)):
        draws = run_chains(sampler, step, 16, key=0, n_chains=16, warmup=0)
        assert (draws["x"] > 0.5).any() == (far == 1e3), sampler.label


class Pair(Energy):
    @property
    def spaces(self):
        return {"a": Real(), "b": Real()}

    def __call__(self, *, a, b):
        return 0.0 * (a + b)


def test_parts_of_a_compound_move_by_their_own_noise():
    """On a flat energy every step is accepted, so that parts with the same noise would stay equal."""
    sampler, state = Compound({"a": RandomWalk(1.0), "b": RandomWalk(1.0)}), {"a": 0.0, "b": 0.0}
    state = {k: jnp.asarray(v) for k, v in state.items()}

    def move():
        memory = sampler.init_memory(Pair(), state)
        moved = sampler.move(Pair(), state, memory, jax.random.key(0))[0]
        return moved, sampler.step(Pair(), state, jax.random.key(0))

    for drawn in evaluate(move):
        assert drawn["a"] != drawn["b"] and drawn["a"] != 0
