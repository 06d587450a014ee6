"""Options for all fits in a context: an estimator that is stopped and run again, devices, callbacks."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

from energax import fit, fit_options
from energax.energies import RBM
from energax.errors import BadInput
from energax.estimators import DeepBoltzmannMachine
from energax.learn import ContrastiveDivergence, Descent

X = (np.random.default_rng(0).random((40, 6)) < 0.4).astype(np.float32)


def machine():
    settings = {"n_iter_pretrain": 3, "n_iter": 4, "k": 1, "batch_size": 20, "random_state": 0}
    return DeepBoltzmannMachine((3, 2), **settings)


@pytest.mark.filterwarnings("ignore:After learning")  # chains of a few epochs
def test_an_estimator_of_several_fits_goes_on_where_it_was_stopped(tmp_path):
    """Three fits: two RBMs of 3 epochs, and all layers of 4, stopped in their second epoch."""
    whole, calls = machine(), []
    with fit_options(checkpoints=tmp_path / "whole"):
        whole.fit(X)

    def stop(info):
        calls.append(info["epoch"])
        if len(calls) == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fit_options(checkpoints=tmp_path / "part", callbacks=[stop]):
        machine().fit(X)
    assert calls == [1, 2, 3, 1, 2, 3, 1, 2]
    assert sorted(os.listdir(tmp_path / "part")) == [f"fit-{i}.safetensors" for i in range(3)]
    resumed, calls = machine(), []
    with fit_options(checkpoints=tmp_path / "part", callbacks=[lambda info: calls.append(info["epoch"])]):
        resumed.fit(X)
    assert calls == [3, 4], "fits that had ended were read"
    jax.tree.map(np.testing.assert_array_equal, resumed.energy_, whole.energy_)
    np.testing.assert_array_equal(resumed.history_["objective"], whole.history_["objective"])


def test_arguments_of_a_call_come_first_and_contexts_end(tmp_path):
    seen: list[str] = []
    run = lambda **options: fit(
        RBM.random(6, 2, key=0), {"x": X}, Descent(ContrastiveDivergence()), key=0, epochs=1, **options
    )
    with fit_options(checkpoints=tmp_path / "outer", callbacks=[lambda info: seen.append("outer")]):
        run(checkpoint=tmp_path / "own", callbacks=[lambda info: seen.append("own")])
        with fit_options():
            run()
        run()
    run()
    assert seen == ["own", "outer", "outer"]
    assert sorted(os.listdir(tmp_path)) == ["outer", "own"]
    assert os.listdir(tmp_path / "outer") == ["fit-0.safetensors"]


def test_bad_options(tmp_path):
    (tmp_path / "file").write_text("")
    for options, name in (({"checkpoints": tmp_path / "file"}, "checkpoints"), ({"every": 0}, "every")):
        with pytest.raises(BadInput, match=name), fit_options(**options):
            pass
    with pytest.raises(BadInput, match="mesh"), fit_options(mesh=3):
        machine().fit(X)


MESH = """
import jax, numpy as np
from energax import fit_options
from energax.estimators import VAE, BernoulliRBM, Flow

X = (np.random.default_rng(0).random((100, 6)) < 0.3).astype(np.float32)
mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
weight = np.random.default_rng(1).random(100).astype(np.float32)
models = {
    "rbm": lambda: BernoulliRBM(3, n_iter=3, batch_size=20, random_state=0),
    "vae": lambda: VAE(2, (4,), max_iter=3, batch_size=20, random_state=0),
    "flow": lambda: Flow(1, width=4, depth=1, max_iter=3, batch_size=20, random_state=0),
}
for name, model in models.items():
    rows = X if name != "flow" else np.random.default_rng(2).normal(size=(100, 3)).astype(np.float32)
    one = model().fit(rows, sample_weight=weight)
    with fit_options(mesh=mesh):
        four = model().fit(rows, sample_weight=weight)
    a, b = (jax.tree.leaves(m.energy_)[0] for m in (one, four))
    assert len(b.sharding.device_set) == 4, name
    np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(one.history_["objective"], four.history_["objective"], rtol=1e-3, atol=1e-4)
print("same")
"""


@pytest.mark.slow
def test_estimators_on_four_devices_equal_one():
    host = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "JAX_PLATFORMS": "cpu",
        "ENERGAX_ENGINE": "xla",
    }
    command = [sys.executable, "-c", MESH]
    run = subprocess.run(command, env=os.environ | host, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0 and run.stdout.strip() == "same", run.stderr[-3000:]
