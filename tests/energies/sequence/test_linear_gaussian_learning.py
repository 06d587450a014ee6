"""EM of the linear-Gaussian state-space model."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate
from state_space import NAMES, D, K, random_chain, sequences

import energax
from energax.energies._sequence.linear_gaussian import LinearGaussianSSM, Semidefinite
from energax.learn import EM
from energax.missing import Masked
from energax.parameters import constrain, m_step, trainable_leaves, unconstrain
from energax.spaces import Real, Sequence


def rows_of(x, seen):
    return {"x": Masked(jnp.asarray(np.where(seen, x, 0.0)), jnp.asarray(seen))}


def log_likelihood(chain, rows, weight=None):
    log_p = -jax.vmap(lambda row: chain.free_energy(x=row))(rows["x"])
    return log_p.sum() if weight is None else weight @ log_p


@eqx.filter_jit
def em(chain, rows, moves, n):
    """`n` steps of EM, and log p before each."""

    def step(chain, _):
        posterior, log_p = chain.expectations(rows, 1.0)
        return m_step(chain, chain.statistics(rows, posterior), moves), log_p.sum()

    return jax.lax.scan(step, chain, length=n)


@functools.lru_cache
def many_sequences(n=30, seed=2):
    with jax.enable_x64(True):
        drawn = energax.sample(random_chain(5, length=6), n, key=4)["x"]
    rng = np.random.default_rng(seed)
    seen = rng.random(drawn.shape) < 0.8
    seen[: n // 3, 4:] = False
    return np.asarray(drawn), seen


@pytest.mark.parametrize("diagonal", [(), ("emission_covariance", "transition_covariance")])
def test_em_never_lowers_the_likelihood(diagonal):
    x, seen = many_sequences()
    with jax.enable_x64(True):
        start = LinearGaussianSSM(
            0.5 * np.eye(K),
            np.eye(D, K) + 0.1,
            np.eye(K),
            np.eye(D),
            initial_covariance=np.eye(K),
            diagonal=diagonal,
        )
        rows = rows_of(x, seen)
        end, log_p = em(start, rows, None, 40)
        assert (np.diff(log_p) >= -1e-9).all()
        assert log_p[-1] > log_p[0] + 100
        for name in diagonal:
            value = np.asarray(getattr(end, name))
            assert not np.any(value - np.diag(np.diag(value)))


def test_the_e_step_has_the_gradient_of_the_likelihood():
    """∇ log p(x) = E ∇ log p(x, z) (Fisher), at any θ: so at a fixed point of EM the gradient is zero."""
    x, seen = many_sequences()
    with jax.enable_x64(True):
        chain, rows = random_chain(7, length=6), rows_of(x, seen)
        slope, found = eqx.filter_jit(
            lambda c: (eqx.filter_grad(log_likelihood)(c, rows), c.statistics(rows, c.expectations(rows)[0]))
        )(chain)
        slope, found = jax.tree.map(np.asarray, (slope, found))
    inverse = {name: np.linalg.inv(getattr(chain, name)) for name in NAMES if "covariance" in name}
    for name in ("transition", "emission"):
        W, about = inverse[f"{name}_covariance"], getattr(found, name)
        np.testing.assert_allclose(getattr(slope, name), (W @ about.cross)[:, :K], atol=1e-8)
        np.testing.assert_allclose(getattr(slope, f"{name}_offset"), (W @ about.cross)[:, K], atol=1e-8)
        want = 0.5 * (W @ about.residual @ W - about.count * W)
        np.testing.assert_allclose(both_halves(getattr(slope, f"{name}_covariance")), want, atol=1e-8)
    W, first = inverse["initial_covariance"], found.first
    np.testing.assert_allclose(slope.initial_mean, W @ first.shift, atol=1e-8)
    want = 0.5 * (W @ first.scatter @ W - first.count * W)
    np.testing.assert_allclose(both_halves(slope.initial_covariance), want, atol=1e-8)


def both_halves(slope):
    """The gradient of a symmetric matrix that is read by its lower half."""
    return (slope + slope.T) / 2


def test_any_parameter_can_be_held_and_the_rest_is_the_best_given_it():
    """The M-step of every parameter alone, and of all but it: where its expected energy is least."""
    x, seen = many_sequences()
    with jax.enable_x64(True):
        start, rows = random_chain(7, length=6), rows_of(x, seen)
        found = eqx.filter_jit(lambda c: c.statistics(rows, c.expectations(rows)[0]))(start)
        log_p = eqx.filter_jit(log_likelihood)
        before = float(log_p(start, rows))
        for name in NAMES:
            others = [n for n in NAMES if n != name]
            for held in (others, [name]):
                moves = trainable_leaves(start, held)
                new = evaluate(lambda moves=moves: start.maximise(found, moves))
                changed = {n for n in NAMES if not np.array_equal(getattr(start, n), getattr(new, n))}
                assert changed == set(NAMES) - set(held)
                assert float(log_p(new, rows)) > before
                about = evaluate(lambda new=new: new.recenter(found, start))
                about = jax.tree.map(np.asarray, about)
                for part in ("transition", "emission"):
                    cross, size = getattr(about, part).cross, np.abs(getattr(found, part).cross).max()
                    assert part in held or np.abs(cross[:, :K]).max() < 1e-9 * size
                    assert f"{part}_offset" in held or np.abs(cross[:, K]).max() < 1e-9 * size
                    covariance = getattr(about, part).residual / getattr(about, part).count
                    if f"{part}_covariance" not in held:
                        np.testing.assert_allclose(
                            getattr(new, f"{part}_covariance"), covariance, rtol=1e-9, atol=1e-12
                        )
                if "initial_covariance" not in held:
                    np.testing.assert_allclose(
                        new.initial_covariance, about.first.scatter / about.first.count, atol=1e-9
                    )


def test_where_em_ends_the_gradient_is_zero():
    """One state; its scale and offset are frozen, since log p does not determine them."""
    rng = np.random.default_rng(0)
    z = [2 * rng.normal(size=30)]
    for _ in range(7):
        z.append(0.7 * z[-1] + rng.normal(size=30))
    way = np.array([[1.0], [0.5], [-0.7]])
    x = np.stack(z, axis=1)[..., None] * way[:, 0] + 0.5 * rng.normal(size=(30, 8, D))
    held = ("emission", "emission_offset")
    with jax.enable_x64(True):
        # With correlations the best noise would be singular, where EM slows down.
        options = {"initial_mean": [1.0], "diagonal": "emission_covariance"}
        start = LinearGaussianSSM([[0.5]], way, [[2.0]], np.eye(D), **options)
        rows = rows_of(x, rng.random(x.shape) < 0.9)
        end, log_p = em(start, rows, trainable_leaves(start, held), 400)
        assert (np.diff(log_p) >= -1e-9).all()
        slope = eqx.filter_jit(eqx.filter_grad(log_likelihood))
        steep = lambda chain, name: np.abs(np.asarray(getattr(slope(chain, rows), name))).max()
        for name in NAMES:
            assert name in held or steep(end, name) < 1e-6, name


def test_what_is_past_the_end_counts_for_nothing():
    """Padded sequences have the statistics of the sequences without padding."""
    rng = np.random.default_rng(0)
    ragged = [rng.normal(size=(t, D)) for t in (2, 5, 2)]
    padded = Sequence(Real(D)).pad(ragged)
    with jax.enable_x64(True):
        chain = random_chain(0, length=None)
        expect = eqx.filter_jit(lambda c, x: c.expectations({"x": x}))
        together, log_p = expect(chain, jax.tree.map(jnp.asarray, padded))
        short, log_short = expect(chain, jnp.asarray(np.stack([ragged[0], ragged[2]])))
        np.testing.assert_allclose(np.asarray(log_p)[[0, 2]], log_short, atol=1e-9)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(short), strict=True):
            np.testing.assert_allclose(np.asarray(a)[[0, 2]], b, atol=1e-9)
        assert np.asarray(together.transition.count).tolist() == [1, 4, 1]
        assert np.asarray(together.emission.count).tolist() == [2, 5, 2]


def test_known_states_are_learned_from_as_a_regression():
    """With z given, one M-step is least squares."""
    rng = np.random.default_rng(3)
    z, x = rng.normal(size=(5, 8, K)), rng.normal(size=(5, 8, D))
    with jax.enable_x64(True):
        chain, rows = random_chain(0, length=8), {"x": jnp.asarray(x), "z": jnp.asarray(z)}
        new = eqx.filter_jit(lambda c: c.maximise(c.statistics(rows, c.expectations(rows)[0])))(chain)
    inputs = np.concatenate([z.reshape(-1, K), np.ones((40, 1))], axis=1)
    weights, *_ = np.linalg.lstsq(inputs, x.reshape(-1, D), rcond=None)
    np.testing.assert_allclose(np.asarray(new.emission), weights[:K].T, atol=1e-9)
    np.testing.assert_allclose(np.asarray(new.emission_offset), weights[K], atol=1e-9)
    errors = x.reshape(-1, D) - inputs @ weights
    np.testing.assert_allclose(np.asarray(new.emission_covariance), errors.T @ errors / 40, atol=1e-9)
    np.testing.assert_allclose(np.asarray(new.initial_mean), z[:, 0].mean(0), atol=1e-9)
    np.testing.assert_allclose(np.asarray(new.initial_covariance), np.cov(z[:, 0].T, bias=True), atol=1e-9)


def test_statistics_are_carried_over_to_other_parameters():
    """As in minibatch EM: moments about old parameters are turned into moments about new ones."""
    x, seen = sequences()
    with jax.enable_x64(True):
        old, new, rows = random_chain(0), random_chain(1), rows_of(x, seen)
        from energax.algorithms.gaussian import ssm_moments as moments

        value, seen = rows["x"].value[0], jnp.ones_like(rows["x"].observed[0])
        smoothed = eqx.filter_jit(lambda c: c.smooth(x=value))(old)
        about = eqx.filter_jit(lambda c: moments.expected_moments(c.system, smoothed, value, seen))
        before = about(old)
        moved = evaluate(lambda: new.recenter(before, old))
        for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(about(new)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_covariances_go_to_the_reals_and_back_also_where_they_are_zero():
    """So that descent can learn other parameters while a noise is frozen at zero."""
    with jax.enable_x64(True):
        for noise in (np.zeros((2, 2)), np.diag([0.0, 0.7]), np.array([[1.0, 0.5], [0.5, 2.0]])):
            chain = LinearGaussianSSM(np.eye(2), np.eye(2), noise, np.eye(2))
            back = evaluate(lambda chain=chain: constrain(unconstrain(chain)))
            for name in NAMES:
                np.testing.assert_allclose(getattr(back, name), getattr(chain, name), atol=1e-12)
        # The volume of the last, against the Jacobian of its lower halves.
        square, half = Semidefinite().bijection, np.tril_indices(2)
        factor = evaluate(lambda: square.inv(jnp.asarray(noise)))
        whole = lambda v: square(jnp.zeros((2, 2)).at[half].set(v))[half]
        jacobian = evaluate(lambda: jax.jacobian(whole)(factor[half]))
        volume = evaluate(lambda: square.log_abs_det_jacobian(factor, None))
        np.testing.assert_allclose(volume, np.linalg.slogdet(jacobian)[1], rtol=1e-9)


def test_minibatch_em_goes_through_fit():
    x, seen = many_sequences()
    start, rows = random_chain(7, length=6), rows_of(x, seen)
    stream = energax.fit(
        start, {"x": np.where(seen, x, np.nan)}, EM(decay=0.7, tol=0), epochs=8, batch_size=10, key=0
    )
    log_p = eqx.filter_jit(log_likelihood)
    assert float(log_p(stream.energy, rows)) > float(log_p(start, rows)) + 50
