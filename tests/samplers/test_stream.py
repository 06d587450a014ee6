"""Draws on disk, progress bars, and blocks of draws."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import sample
from energax.energies import RBM
from energax.errors import BadInput, Unsuitable
from energax.samplers import Gibbs, read_draws

rbm = RBM(0.3 * jnp.ones((3, 2)), jnp.zeros(3), jnp.array([0.5, -0.5]))


def test_draws_on_disk_are_those_in_memory(tmp_path, capsys):
    whole = sample(rbm, 200, method=Gibbs(), key=0, warmup=30)
    streamed = sample(rbm, 200, method=Gibbs(), key=0, warmup=30, path=tmp_path / "a", progress=True)
    assert "Gibbs" in capsys.readouterr().out
    again = read_draws(tmp_path / "a")
    for draws in (streamed, again):
        assert isinstance(draws.chains["x"].base, np.memmap)
        assert all(np.array_equal(draws[k], whole[k]) for k in ("x", "z"))
        assert draws.verdict == whole.verdict
    with pytest.raises(BadInput, match="with files in it"):
        sample(rbm, 10, method=Gibbs(), key=0, path=tmp_path / "a")


def test_a_path_takes_one_example(tmp_path):
    with pytest.raises(Unsuitable, match="one example"):
        sample(rbm, 10, {"x": np.zeros((2, 3))}, method=Gibbs(), key=0, path=tmp_path)


@pytest.mark.parametrize(
    "document", ["[]", "{", '{"n": 1, "draws": ["x"], "info": [], "method": "", "caveat": ""}']
)
def test_a_damaged_folder(tmp_path, document):
    (tmp_path / "draws.json").write_text(document)
    with pytest.raises(BadInput, match="damaged"):
        read_draws(tmp_path)


def test_no_file_runs_code(tmp_path):
    """An array of Python objects would need pickle, which is not read."""
    sample(rbm, 200, method=Gibbs(), key=0, warmup=30, path=tmp_path / "a")
    names = json.loads((tmp_path / "a" / "draws.json").read_text())["draws"]
    np.save(tmp_path / "a" / f"draws_{names.index('x')}.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(BadInput, match="damaged"):
        read_draws(tmp_path / "a")


def test_progress_is_a_switch():
    with pytest.raises(BadInput, match="progress"):
        sample(rbm, 10, method=Gibbs(), key=jax.random.key(0), progress="yes")
