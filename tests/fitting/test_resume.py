"""A fit killed with SIGKILL and called again ends bit for bit where it would have ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from energax._util import storage

SCRIPT = """
import sys, time
import numpy as np, optax
from energax import Checkpoint, fit
from energax.energies import RBM
from energax.learn import ContrastiveDivergence, Descent, EM

path, out, slow, kind = sys.argv[1:]
X = (np.random.default_rng(0).random((60, 8)) < 0.4).astype(np.float32)
objective = ContrastiveDivergence(k=1, persistent=True)
schedule = optax.cosine_decay_schedule(0.05, 200)
learner = Descent(objective, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule)))

def tell(info):
    print("epoch", info["epoch"], flush=True)
    time.sleep(float(slow))

data = {"x": X} if kind == "arrays" else (lambda: ({"x": part} for part in np.array_split(X, 5)))
size = 16 if kind == "arrays" else None
result = fit(
    RBM.random(8, 4, key=1), data, learner, key=7, epochs=12, batch_size=size,
    validation={"x": X[:10]}, callbacks=[tell], checkpoint=Checkpoint(path, every=2),
)
np.savez(out, weight=result.energy.weight, history=result.history["objective"],
         validation=result.history["validation"], chain=result.state.carry["x"],
         steps=result.n_steps)
"""


def start(tmp_path, name: str, out: str, *, slow: float, kind: str) -> subprocess.Popen:
    arguments = [sys.executable, "-c", SCRIPT, str(tmp_path / name), str(tmp_path / out), str(slow), kind]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, line: str) -> None:
    assert process.stdout is not None
    for heard in process.stdout:
        if heard.strip() == line:
            return
    raise AssertionError(f"the fit ended before it said {line!r}")


@pytest.mark.parametrize("kind", ["arrays", "stream"])
def test_killed_and_resumed_equals_never_killed(tmp_path, kind):
    with start(tmp_path, "whole.safetensors", "whole.npz", slow=0, kind=kind) as whole:
        whole.communicate()
        assert whole.returncode == 0
    with start(tmp_path, "killed.safetensors", "killed.npz", slow=0.5, kind=kind) as killed:
        wait_for(killed, "epoch 5")
        killed.send_signal(signal.SIGKILL)
        assert killed.wait() == -signal.SIGKILL
    assert not (tmp_path / "killed.npz").exists()
    assert storage.read(tmp_path / "killed.safetensors")[1]["kind"] == "fit"
    with start(tmp_path, "killed.safetensors", "killed.npz", slow=0, kind=kind) as resumed:
        heard = resumed.communicate()[0].split("\n")
        assert resumed.returncode == 0
    assert "epoch 3" not in heard and "epoch 12" in heard, "it went on, and did not begin again"
    with np.load(tmp_path / "whole.npz") as a, np.load(tmp_path / "killed.npz") as b:
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_a_crash_while_saving_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file.safetensors"
    storage.write(path, {"a": np.arange(3)}, {"kind": "fit"})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        storage.write(path, {"a": np.arange(4)}, {"kind": "fit"})
    monkeypatch.undo()
    np.testing.assert_array_equal(storage.read(path)[0]["a"], np.arange(3))
    assert [p.name for p in tmp_path.iterdir()] == ["file.safetensors"]
