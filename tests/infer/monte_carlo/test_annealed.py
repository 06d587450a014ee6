"""Annealed importance sampling, compared with enumeration and with closed forms."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import Energy, log_partition, log_prob
from energax.energies import RBM
from energax.energy import enumerated_free_energy
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import BernoulliRBM
from energax.infer import AnnealedImportance
from energax.infer._monte_carlo.annealed import _warn_if_below_trial
from energax.infer._monte_carlo.annealing_path import GeometricPath, Independent
from energax.infer._monte_carlo.pilot import _pilot_rates
from energax.infer._monte_carlo.weights import LogMean
from energax.samplers import Gibbs
from energax.spaces import Binary, Categorical

RNG = np.random.default_rng(0)
MACHINE = RBM(*(jnp.asarray(RNG.normal(size=s), jnp.float32) for s in ((9, 6), (9,), (6,))))


class Potts(Energy):
    """Three sites of four colours and a switch, without closed forms."""

    table: jnp.ndarray

    @property
    def spaces(self):
        return {"x": Categorical(4, 3), "s": Binary()}

    def __call__(self, *, x, s):
        pairs = self.table[x[0], x[1]] + self.table[x[1], x[2]]
        return pairs * (1 + s)


POTTS = Potts(jnp.asarray(RNG.normal(size=(4, 4)), jnp.float32))


@pytest.mark.parametrize("energy", [MACHINE, POTTS], ids=["RBM", "Potts"])
def test_the_mean_weight_is_unbiased(energy):
    """E[w] = Z even with far too few steps: 2000 weights, |z| < 4, a fixed seed."""
    method = AnnealedImportance(n_chains=2000, n_steps=6, sampler=Gibbs(tuple(energy.spaces)))
    found = log_partition(energy, method, key=0)
    ratio = np.exp(float(found) - float(log_partition(energy)))
    assert abs(ratio - 1) < 4 * ratio * float(found.stderr)
    assert float(found.stderr) * np.sqrt(2000) > 0.05  # else the test has no power


def test_the_bracket_holds_the_truth():
    """Chains to the model and back agree with enumeration, within 4 standard errors each."""
    truth = float(log_partition(MACHINE))
    lower, upper = AnnealedImportance(n_steps=100).bracket(MACHINE, key=0)
    assert (lower.kind, upper.kind) == ("lower bound", "upper bound")
    for found in (lower, upper):
        assert abs(float(found) - truth) < 4 * float(found.stderr) and float(found.stderr) < 0.05


def test_the_path_has_the_closed_forms_of_a_sum():
    """Conditionals, free energies and weights along the path equal sums over all values."""
    rng = np.random.default_rng(1)
    rbm = RBM(*(jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((4, 3), (4,), (3,))))
    logits = {n: jnp.asarray(rng.normal(size=s.shape), jnp.float32) for n, s in rbm.spaces.items()}
    path = GeometricPath(Independent(logits, tuple(rbm.spaces.items())), rbm, jnp.asarray(0.3))
    x = jnp.array([1.0, 0, 1, 1])
    summed = evaluate(lambda: enumerated_free_energy(path, {"x": x}))
    np.testing.assert_allclose(evaluate(lambda: path.free_energy(x=x)), summed, rtol=1e-5)
    later = evaluate(lambda: enumerated_free_energy(path.at(jnp.asarray(0.8)), {"x": x}))
    np.testing.assert_allclose(evaluate(lambda: path.log_ratio(0.8, {"x": x})), summed - later, rtol=1e-4)
    given = evaluate(lambda: Energy.conditional(path, "z", x=x).mean)
    np.testing.assert_allclose(evaluate(lambda: path.conditional("z", x=x).mean), given, rtol=1e-5)
    assert path.knows("free_energy", {"x"}) and path.knows("conditional", {"z"})


def test_many_steps_have_a_small_and_calibrated_error():
    """Of 50 estimates the scores (found − truth) / error have a spread of 1: between 0.75 and 1.3."""
    truth = float(log_partition(MACHINE))
    found = [log_partition(MACHINE, AnnealedImportance(64, 200), key=i) for i in range(50)]
    scores = np.array([(float(f) - truth) / float(f.stderr) for f in found])
    assert max(float(f.stderr) for f in found) < 0.08
    assert 0.75 < scores.std() < 1.3 and abs(scores.mean()) < 4 / np.sqrt(50)


def test_log_prob_shares_the_error_of_log_z():
    rows = {"x": (RNG.random((20, 9)) < 0.5).astype(float)}
    found, exact = log_prob(MACHINE, rows, AnnealedImportance(), key=0), log_prob(MACHINE, rows)
    assert found.kind == "estimate" and found.shared == pytest.approx(float(found.stderr[0]))
    np.testing.assert_allclose(found.value - exact.value, (found.value - exact.value)[0], atol=1e-4)
    assert abs((found.value - exact.value)[0]) < 4 * found.shared


def test_too_few_steps_warn():
    steep = RBM(4 * MACHINE.weight, 4 * MACHINE.bias, 4 * MACHINE.hidden_bias)
    far = {n: np.zeros((10, s.size)) for n, s in steep.spaces.items()}
    with pytest.warns(ConvergenceWarning, match=r"AnnealedImportance: log Z rests on .*more n_steps"):
        log_partition(steep, AnnealedImportance(n_steps=2, data=far), key=0)


def test_a_run_below_a_trial_warns():
    """Weights are unbiased: P(log mean w ≥ log Z + 4) ≤ e⁻⁴, so that a trial this high found more of Z."""
    found = LogMean(10.0, 0.1, 50.0)
    with pytest.warns(ConvergenceWarning, match="missed a mode"):
        _warn_if_below_trial(found, 14.5)
    _warn_if_below_trial(found, 14.2)  # warnings are errors


def test_the_pilot_run_settles():
    """Chains from noise take hundreds of sweeps to the lower basin: the first 200 give 0.74 for 0.93."""
    strong = RBM(jnp.full((10, 1), 4.0), jnp.full(10, -1.65), jnp.full(1, -20.0))
    rates = _pilot_rates(strong, Gibbs(), jax.random.key(0))
    exact = evaluate(lambda: Energy.conditional(strong, "z").mean)
    np.testing.assert_allclose(np.asarray(rates["z"])[:, 1], exact, atol=0.06)


@pytest.mark.parametrize(
    "settings", [{"n_chains": 1}, {"n_steps": 0}, {"n_steps": 2.5}, {"n_chains": True}, {"sampler": 3}]
)
def test_settings(settings):
    with pytest.raises(BadInput, match=next(iter(settings))):
        AnnealedImportance(**settings)


def test_a_machine_with_many_units_has_a_score():
    """24 independent pairs of units: log p(x) is a sum over 24 coins."""
    weight = np.zeros((24, 24), np.float32)
    np.fill_diagonal(weight, 2.0)
    rbm = RBM(jnp.asarray(weight), jnp.full(24, -0.5), jnp.full(24, -1.0))
    model = BernoulliRBM(24, n_iter=1, random_state=0).fit(np.eye(24))
    model.energy_ = rbm
    on, off = np.exp(-0.5) * (1 + np.exp(1.0)), 1 + np.exp(-1.0)
    X = (RNG.random((30, 24)) < 0.5).astype(float)
    truth = X @ np.full(24, np.log(on)) + (1 - X) @ np.full(24, np.log(off)) - 24 * np.log(on + off)
    found = model.log_prob(X)
    assert found.kind == "estimate" and 0 < found.shared < 0.1
    assert np.abs(found.value - truth).max() < 4.5 * found.shared + 1e-3
