"""The linear-Gaussian state-space model: densities, posterior and EM against the joint normal."""

from __future__ import annotations

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import energax
from energax import Energy
from energax.energies._sequence.linear_gaussian import LinearGaussianSSM, Semidefinite
from energax.errors import BadInput, Unsuitable
from energax.infer._sequence.kalman import Kalman
from energax.learn import EM
from energax.missing import Masked
from energax.parameters import constrain, m_step, trainable_leaves, unconstrain
from energax.spaces import Real, Sequence

NAMES = (
    "initial_mean",
    "initial_covariance",
    "transition",
    "transition_offset",
    "transition_covariance",
    "emission",
    "emission_offset",
    "emission_covariance",
)
K, D, STEPS = 2, 3, 4


def random_chain(seed=0, length=STEPS, **options):
    """In the precision of the scope."""
    rng = np.random.default_rng(seed)
    spread = lambda n: (lambda a: a @ a.T / n + 0.2 * np.eye(n))(rng.normal(size=(n, n)))
    return LinearGaussianSSM(
        0.6 * rng.normal(size=(K, K)),
        rng.normal(size=(D, K)),
        spread(K),
        spread(D),
        initial_mean=rng.normal(size=K),
        initial_covariance=spread(K),
        transition_offset=0.3 * rng.normal(size=K),
        emission_offset=rng.normal(size=D),
        length=length,
        **options,
    )


def joint(chain, steps):
    """Mean and covariance of (z₁ … z_T, x₁ … x_T)."""
    c = {name: np.asarray(getattr(chain, name), np.float64) for name in NAMES}
    m, P, A, b, Q, C, d, R = c.values()
    k = len(m)
    mean, cov = [m], np.zeros((steps * k, steps * k))
    cov[:k, :k] = P
    for t in range(1, steps):
        mean.append(A @ mean[-1] + b)
        old, new = slice((t - 1) * k, t * k), slice(t * k, (t + 1) * k)
        cov[new, : t * k] = A @ cov[old, : t * k]
        cov[: t * k, new] = cov[new, : t * k].T
        cov[new, new] = A @ cov[old, old] @ A.T + Q
    emission = np.kron(np.eye(steps), C)
    below = emission @ cov
    noise = np.kron(np.eye(steps), R)
    both = np.block([[cov, below.T], [below, below @ emission.T + noise]])
    return np.concatenate([np.ravel(mean), np.ravel(np.array(mean) @ C.T + d)]), both


def conditioned(chain, x, seen):
    """(mean, covariance) of (z, x) given the observed values of x, and their log p."""
    steps = len(x)
    mean, cov = joint(chain, steps)
    at = steps * K + np.flatnonzero(seen)
    block = cov[np.ix_(at, at)]
    gain = np.linalg.solve(block, cov[at]).T
    log_p = multivariate_normal.logpdf(x[seen], mean[at], block)
    return mean + gain @ (x[seen] - mean[at]), cov - gain @ cov[at], log_p


@functools.lru_cache
def sequences(n=3, seed=0):
    """(x, seen): single coordinates and whole steps missing, and one sequence shorter than the rest."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, STEPS, D)) * 1.5
    seen = rng.random(x.shape) < 0.7
    seen[0, 1] = False
    seen[1, 3:] = False
    seen[:, 0] |= ~seen.any(2)[:, 0, None]
    return x, seen


# -- the energy ------------------------------------------------------------------------------------------


def test_energy_and_free_energies_are_those_of_the_joint_normal():
    x, seen = sequences()
    z = np.random.default_rng(9).normal(size=(STEPS, K))
    with jax.enable_x64(True):
        chain = random_chain()
        mean, cov = joint(chain, STEPS)
        at = np.concatenate([np.arange(STEPS * K), STEPS * K + np.flatnonzero(seen[0])])
        whole = np.concatenate([z.ravel(), x[0].ravel()])
        masked = Masked(np.where(seen[0], x[0], 7.0), seen[0])
        log_p = lambda at: multivariate_normal.logpdf(whole[at], mean[at], cov[np.ix_(at, at)])
        every = np.arange(len(whole))

        @eqx.filter_jit
        def energies(chain, x, masked, z):
            every = [
                chain(x=x, z=z),
                chain(x=masked, z=z),
                chain.free_energy(x=x),
                chain.free_energy(x=masked),
            ]
            by_scan = random_chain(parallel=True).free_energy(x=masked)
            return [*every, chain.free_energy(z=z), chain.log_partition(), by_scan]

        found = energies(chain, jnp.asarray(x[0]), jax.tree.map(jnp.asarray, masked), jnp.asarray(z))
    at_x, seen_x = every[STEPS * K :], at[STEPS * K :]
    want = [log_p(every), log_p(at), log_p(at_x), log_p(seen_x), log_p(every[: STEPS * K]), 0, log_p(seen_x)]
    np.testing.assert_allclose(found, -np.array(want), atol=1e-9)


def test_the_posterior_is_the_joint_normal_conditioned():
    x, seen = sequences()
    with jax.enable_x64(True):
        chain = random_chain()
        found = energax.posterior(chain, {"x": np.where(seen, x, np.nan)})
        assert found.method == "kalman" and found.kind == "exact"
        for i in range(len(x)):
            mean, cov, log_p = conditioned(chain, x[i], seen[i])
            blocks = [cov[t * K : (t + 1) * K, t * K : (t + 1) * K] for t in range(STEPS)]
            np.testing.assert_allclose(found.mean["z"][i].ravel(), mean[: STEPS * K], atol=1e-9)
            np.testing.assert_allclose(found.covariance["z"][i], blocks, atol=1e-9)
            np.testing.assert_allclose(found.mean["x"][i].ravel(), mean[STEPS * K :], atol=1e-9)
            variance = np.diag(cov)[STEPS * K :].reshape(STEPS, D)
            np.testing.assert_allclose(found.standard_deviation["x"][i] ** 2, variance, atol=1e-9)
            np.testing.assert_allclose(found.log_evidence.value[i], log_p, atol=1e-9)
        best = energax.argmin(chain, {"x": np.where(seen, x, np.nan)})
        np.testing.assert_allclose(best["z"], found.mean["z"], atol=1e-12)
        # No neighbour is better: the gradient there is zero.
        slope = jax.jit(jax.grad(lambda z, x: chain(x=x, z=z)))(best["z"][0], best["x"][0])
        assert np.abs(slope).max() < 1e-9


def test_draws_have_the_moments_of_the_posterior():
    """10 000 draws of z and the missing values of x: beyond 5 standard errors once in 10⁵ such tests."""
    x, seen = sequences()
    n = 10_000
    with jax.enable_x64(True):
        chain = random_chain()
        draws = energax.sample(chain, n, {"x": np.where(seen[0], x[0], np.nan)}, key=0)
        mean, cov, _ = conditioned(chain, x[0], seen[0])
        found = np.concatenate([np.reshape(draws["z"], (n, -1)), np.reshape(draws["x"], (n, -1))], axis=1)
    free = np.diag(cov) > 1e-9
    np.testing.assert_allclose(found[:, ~free] - mean[~free], 0, atol=1e-9)
    found, mean, cov = found[:, free], mean[free], cov[np.ix_(free, free)]
    assert np.abs((found.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    assert np.abs((np.cov(found.T) - cov) / error).max() < 5.5


def test_draws_of_everything_have_the_moments_of_the_model():
    n = 10_000
    chain = random_chain(1)
    draws = energax.sample(chain, n, key=3)
    mean, cov = joint(chain, STEPS)
    found = np.concatenate([np.reshape(draws["z"], (n, -1)), np.reshape(draws["x"], (n, -1))], axis=1)
    assert np.abs((found.mean(0) - mean) / np.sqrt(np.diag(cov) / n)).max() < 5
    given_z = energax.posterior(chain, {"z": draws["z"][0]})
    np.testing.assert_allclose(
        given_z.mean["x"], draws["z"][0] @ chain.emission.T + chain.emission_offset, rtol=1e-5
    )


# -- learning --------------------------------------------------------------------------------------------


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
                new = start.maximise(found, trainable_leaves(start, held))
                changed = {n for n in NAMES if not np.array_equal(getattr(start, n), getattr(new, n))}
                assert changed == set(NAMES) - set(held)
                assert float(log_p(new, rows)) > before
                about = jax.tree.map(np.asarray, new.recenter(found, start))
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
        moved = new.recenter(about(old), old)
        for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(about(new)), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-9)


def test_covariances_go_to_the_reals_and_back_also_where_they_are_zero():
    """So that descent can learn other parameters while a noise is frozen at zero."""
    with jax.enable_x64(True):
        for noise in (np.zeros((2, 2)), np.diag([0.0, 0.7]), np.array([[1.0, 0.5], [0.5, 2.0]])):
            chain = LinearGaussianSSM(np.eye(2), np.eye(2), noise, np.eye(2))
            back = constrain(unconstrain(chain))
            for name in NAMES:
                np.testing.assert_allclose(getattr(back, name), getattr(chain, name), atol=1e-12)
        # The volume of the last, against the Jacobian of its lower halves.
        square, half = Semidefinite().bijection, np.tril_indices(2)
        factor = square.inv(jnp.asarray(noise))
        whole = lambda v: square(jnp.zeros((2, 2)).at[half].set(v))[half]
        want = np.linalg.slogdet(jax.jacobian(whole)(factor[half]))[1]
        np.testing.assert_allclose(square.log_abs_det_jacobian(factor, None), want, rtol=1e-9)


def test_minibatch_em_goes_through_fit():
    x, seen = many_sequences()
    start, rows = random_chain(7, length=6), rows_of(x, seen)
    stream = energax.fit(
        start, {"x": np.where(seen, x, np.nan)}, EM(decay=0.7, tol=0), epochs=8, batch_size=10, key=0
    )
    log_p = eqx.filter_jit(log_likelihood)
    assert float(log_p(stream.energy, rows)) > float(log_p(start, rows)) + 50


# -- input validation --------------------------------------------------------------------------------------


def test_what_is_no_model_is_refused_with_a_sentence():
    eye = np.eye(2)
    good = {"transition": eye, "emission": eye, "transition_covariance": eye, "emission_covariance": eye}
    cases = [
        ({"emission_covariance": np.diag([1.0, 0.0])}, r"eigenvalue 0.*positive eigenvalues.*small variance"),
        ({"emission_covariance": np.zeros((2, 2))}, "small variance"),
        ({"transition_covariance": -eye}, r"eigenvalue -1.*without negative"),
        ({"transition_covariance": np.array([[1.0, 2.0], [0.0, 1.0]])}, "not symmetric"),
        ({"transition": np.eye(3)}, r"transition: found shape \(3, 3\); expected \(2, 2\)"),
        ({"emission": np.ones(2)}, r"emission: found shape \(2,\); expected \(d, k\)"),
        ({"transition": np.full((2, 2), np.nan)}, "NaN or infinity"),
        ({"transition": [["a"]]}, "array of numbers"),
        ({"initial_mean": np.zeros(3)}, "initial_mean"),
        ({"length": 0}, "number of steps >= 1"),
        ({"diagonal": ("emission",)}, "some of initial_covariance"),
        ({"diagonal": "transition_covariance", "transition_covariance": eye + 0.1}, "off the diagonal"),
    ]
    for change, sentence in cases:
        with pytest.raises(BadInput, match=sentence):
            LinearGaussianSSM(**{**good, **change})
    with pytest.raises(BadInput, match="number of steps to draw"):
        LinearGaussianSSM(**good).draw(jax.random.key(0))
    with pytest.raises(Unsuitable, match="temperature"):
        LinearGaussianSSM(**good).expectations({"x": jnp.zeros((1, 3, 2))}, 2.0)
    with pytest.raises(Unsuitable, match="Kalman is for linear-Gaussian chains"):
        energax.posterior(energax.energies.RBM.random(3, 2, key=0), {"x": [0, 1, 1]}, Kalman())


def test_saved_and_loaded(tmp_path):
    chain = random_chain(0, diagonal=())
    energax.save(chain, tmp_path / "chain")
    loaded = energax.load(tmp_path / "chain")
    assert loaded.spaces == chain.spaces
    x = np.ones((STEPS, D), np.float32)
    assert float(loaded.free_energy(x=x)) == float(chain.free_energy(x=x))


class Tracker(Energy):
    """A state-space model whose variables are called positions and track."""

    model: LinearGaussianSSM
    observed_name, state_name = "positions", "track"
    marginalises = frozenset({"positions"})

    transition = property(lambda self: self.model.transition)

    @property
    def spaces(self):
        return {"positions": self.model.spaces["x"], "track": self.model.spaces["z"]}

    def __call__(self, *, positions, track):
        return self.model(x=positions, z=track)

    def smooth(self, *, positions):
        return self.model.smooth(x=positions)

    def complete(self, *, positions, smoothed=None):
        return self.model.complete(x=positions, smoothed=smoothed)

    def draw(self, key, *, positions=None, track=None):
        names = {"x": "positions", "z": "track"}
        return {names[k]: v for k, v in self.model.draw(key, x=positions, z=track).items()}


def test_kalman_asks_the_energy_for_the_names_of_its_variables():
    x, seen = sequences()
    model = random_chain()
    given = np.where(seen, x, np.nan)
    theirs = energax.posterior(model, {"x": given})
    ours = energax.posterior(Tracker(model), {"positions": given}, Kalman())
    for name, other in {"positions": "x", "track": "z"}.items():
        np.testing.assert_array_equal(ours.mean[name], theirs.mean[other])
        np.testing.assert_array_equal(ours.covariance[name], theirs.covariance[other])
    best = energax.argmin(Tracker(model), {"positions": given}, Kalman())
    np.testing.assert_array_equal(best.energy, energax.argmin(model, {"x": given}).energy)
    with pytest.raises(Unsuitable, match="finds track given positions"):
        energax.posterior(Tracker(model), {"track": np.zeros((STEPS, K))}, Kalman())
