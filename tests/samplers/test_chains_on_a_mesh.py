"""Chains that are split over four devices are those of one device."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import jax, numpy as np
from energax.energies import RBM, NeuralEnergy
from energax.infer import MCMC, sample
from energax.samplers import Gibbs, HMC

assert jax.device_count() == 4
mesh = jax.make_mesh((4,), ("chains",))
bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0)
for energy, sampler in ((RBM.random(5, 3, key=0, scale=1.0), Gibbs()), (bowl, HMC(n_steps=4))):
    one, four = (
        sample(energy, 160, method=MCMC(sampler, n_chains=8, warmup=40, mesh=m), key=1) for m in (None, mesh)
    )
    np.testing.assert_allclose(one["x"], four["x"], rtol=1e-4, atol=1e-5)
    assert one["x"].std() > 0.3
print("same")
"""


@pytest.mark.slow
def test_four_devices_give_the_draws_of_one():
    host = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "ENERGAX_ENGINE": "xla",
    }
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | host, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0 and run.stdout.strip() == "same", run.stderr[-3000:]
