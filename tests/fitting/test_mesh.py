"""Eight devices give what one gives, to float tolerance."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import equinox as eqx, jax, numpy as np, jax.numpy as jnp, optax
from energax import Mixture, fit
from energax.energies import RBM, Gaussians, Scorer
from energax.learn import (
    EM, BatchStatistics, ContrastiveDivergence, CrossEntropy, Descent, NegativeLogLikelihood,
)
from energax.nn import BatchNorm

assert jax.device_count() == 8
mesh = jax.make_mesh((8,), ("rows",))  # with explicit axes, as JAX makes it
rng = np.random.default_rng(0)

X = (rng.random((203, 6)) < 0.3).astype(np.float32)
weights = rng.random(203).astype(np.float32)
for objective in (NegativeLogLikelihood(), ContrastiveDivergence(k=1)):
    for size in (None, 48):
        runs = [
            fit(RBM.random(6, 3, key=0), {"x": X}, Descent(objective, optax.adam(0.05)), key=3,
                epochs=4, batch_size=size, weights=weights, mesh=m)
            for m in (None, mesh)
        ]
        a, b = (np.asarray(r.energy.weight) for r in runs)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(*[r.history["objective"] for r in runs], rtol=1e-4, atol=1e-5)

layers = [BatchNorm(6), eqx.nn.Linear(6, 3, key=jax.random.key(0)), BatchNorm(3)]
rows = {"x": X, "y": rng.integers(0, 3, 203)}
# Not Adam: the gradient of the first biases is 0, and of its rounding errors Adam makes whole steps.
learner = Descent(BatchStatistics(CrossEntropy()), optax.sgd(0.1))
for size in (None, 48):
    runs = [
        fit(Scorer(eqx.nn.Sequential(layers), 6, 3), rows, learner, key=3, epochs=4, batch_size=size,
            weights=weights, mesh=m)
        for m in (None, mesh)
    ]
    for a, b in zip(*[jax.tree.leaves(r.energy) for r in runs], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)

X = np.concatenate([rng.normal(c, 1.0, (1001, 2)) for c in (-4, 4)]).astype(np.float32)
start = Mixture(Gaussians(jnp.array([[-1.0, 0.0], [1.0, 0.0]]), jnp.stack([jnp.eye(2)] * 2)))
one, eight = (fit(start, {"x": X}, EM(tol=-1.0, chunk=256), key=0, epochs=8, mesh=m) for m in (None, mesh))
np.testing.assert_allclose(one.energy.components.means, eight.energy.components.means, rtol=1e-4)
np.testing.assert_allclose(one.history["objective"], eight.history["objective"], rtol=1e-5)
shards = jax.tree.leaves(eight.energy)[0].sharding
assert len(shards.device_set) == 8, shards
print("same")
"""


def test_eight_devices_equal_one():
    host = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
        "ENERGAX_ENGINE": "xla",
    }
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=os.environ | host, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0 and run.stdout.strip() == "same", run.stderr[-3000:]
