"""log Z by SMC, thermodynamic integration, bridges and annealing, against closed forms and enumeration.

Spreads of 16 scores around 1: with 15 degrees of freedom one in 1000 samples leaves [0.45, 1.65].
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from energax import Energy, log_partition, sample
from energax.energies import RBM, GaussianRBM, NeuralEnergy
from energax.errors import BadInput, ConvergenceWarning
from energax.infer import AnnealedImportance, BridgeSampling, TemperedSMC, ThermodynamicIntegration
from energax.spaces import Real

RNG = np.random.default_rng(0)
MACHINE = RBM(*(jnp.asarray(RNG.normal(size=s), jnp.float32) for s in ((9, 6), (9,), (6,))))
MIXED = GaussianRBM(
    jnp.asarray(RNG.normal(size=(3, 4)), jnp.float32), jnp.ones(3), jnp.zeros(4), jnp.full(3, 0.7)
)
BOWL = NeuralEnergy(lambda x: 0.0 * x.sum(), 3, confinement=2.0)
BOWL_LOG_Z = 1.5 * np.log(np.pi)


class Wells(Energy):
    """Two normal densities at ±4 with weights 0.3 and 0.7: log Z = 0."""

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        well = lambda p, m: jnp.log(p) - 0.5 * jnp.sum((x - m) ** 2) / 0.25
        return jnp.log(2 * jnp.pi * 0.25) - jnp.logaddexp(well(0.3, 4.0), well(0.7, -4.0))


def scores(energy, method, truth, n=16):
    found = [log_partition(energy, method, key=i) for i in range(n)]
    return np.array([(float(f) - truth) / float(f.stderr) for f in found])


@pytest.mark.parametrize(
    "method",
    [TemperedSMC(), ThermodynamicIntegration(9, 4, 200), AnnealedImportance(64, 100)],
    ids=lambda m: m.label,
)
def test_finite_variables_have_calibrated_errors(method):
    z = scores(MACHINE, method, float(log_partition(MACHINE)))
    assert 0.45 < z.std(ddof=1) < 1.65 and abs(z.mean()) < 4 / np.sqrt(16)


@pytest.mark.parametrize("method", [BridgeSampling(n_draws=2000), TemperedSMC(128, 8)], ids=lambda m: m.label)
def test_a_known_integral(method):
    z = scores(BOWL, method, BOWL_LOG_Z)
    assert 0.45 < z.std(ddof=1) < 1.8 and abs(z.mean()) < 4 / np.sqrt(16)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [TemperedSMC(128, 8), ThermodynamicIntegration(9, 4, 300), AnnealedImportance(64, 200), BridgeSampling()],
    ids=lambda m: m.label,
)
def test_finite_and_real_variables(method):
    """A Gaussian machine, whose log Z is a sum over its hidden layer: within 5 standard errors."""
    found, truth = log_partition(MIXED, method, key=0), float(log_partition(MIXED))
    assert abs(float(found) - truth) < 5 * float(found.stderr) and float(found.stderr) < 0.2


def test_particles_have_the_weights_of_separated_wells():
    """log Z of two wells is 0, and 0.7 of the draws are in the second: within 5 standard errors."""
    found = log_partition(Wells(), TemperedSMC(), key=0)
    assert abs(float(found)) < 5 * float(found.stderr) and float(found.stderr) < 0.1
    draws = sample(Wells(), 2000, method=TemperedSMC(), key=1)
    # 16 runs of 256 particles: about √(0.21 / 4096 · 4) = 0.014 with the resampling, and 0.01 by the choice.
    assert abs((draws["x"][:, 0] < 0).mean() - 0.7) < 5 * 0.02
    assert "particles" in draws.verdict


def test_chains_that_stay_in_a_well_warn():
    with pytest.warns(ConvergenceWarning, match="TemperedSMC"):
        log_partition(Wells(), ThermodynamicIntegration(9, 4, 100), key=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: TemperedSMC(n_particles=1),
        lambda: TemperedSMC(ess=1.5),
        lambda: ThermodynamicIntegration(n_temperatures=8),
        lambda: ThermodynamicIntegration(sampler=3),
        lambda: BridgeSampling(n_draws=3),
        lambda: AnnealedImportance(stderr=0.0),
        lambda: AnnealedImportance(data=3),
    ],
)
def test_settings(make):
    with pytest.raises(BadInput):
        make()
