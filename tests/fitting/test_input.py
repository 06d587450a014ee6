"""Input validation of `fit`: weights, validation rows, batches of a stream, checkpoints."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from energax import BadInput, Energy, Real, Unsuitable, fit
from energax.energies import RBM
from energax.learn import Descent, NegativeLogLikelihood, ScoreMatching

LIKELIHOOD = Descent(NegativeLogLikelihood(), optax.sgd(0.1))
ROWS = np.random.default_rng(0).normal(-0.5, 0.5, 97).astype(np.float32)


class Steep(Energy):
    """A Gumbel density by its scale: finite where the rows lie, and an overflow not far from there."""

    rate: jax.Array

    @property
    def spaces(self):
        return {"x": Real()}

    def __call__(self, *, x):
        return jnp.exp(self.rate * x) - self.rate * x - jnp.log(self.rate)

    def log_partition(self):
        return jnp.zeros(())


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_row_of_weight_zero_may_hold_anything(batch_size):
    """It is as if it were not there, though the energy overflows on it and 0 · ∞ is NaN."""
    x = np.array([0.1, -0.3, -0.2, 100.0], np.float32)
    options = {"key": 0, "epochs": 5, "batch_size": batch_size}
    found = fit(Steep(jnp.array(1.0)), {"x": x}, LIKELIHOOD, weights=[1, 1, 1, 0], **options)
    without = fit(Steep(jnp.array(1.0)), {"x": x[:3]}, LIKELIHOOD, **options)
    assert found.status == without.status == "reached max_iter"
    if batch_size is None:
        np.testing.assert_allclose(found.energy.rate, without.energy.rate, rtol=1e-6)


def test_validation_is_of_the_same_variables_and_as_complete():
    complete = Descent(ScoreMatching(), optax.sgd(0.1))
    holes = ROWS.copy()
    holes[0] = np.nan
    with pytest.raises(Unsuitable, match=r"validation: .*missing values of 'x'"):
        fit(Steep(jnp.array(1.0)), {"x": ROWS}, complete, key=0, epochs=1, validation={"x": holes})
    with pytest.raises(Unsuitable, match="missing values of 'x'"):
        fit(Steep(jnp.array(1.0)), [{"x": ROWS}, {"x": holes}], complete, key=0, epochs=1)
    machine, z = RBM.random(2, 1, key=0), np.zeros((97, 1))
    both = {"x": np.stack([ROWS > 0, ROWS < -1], 1).astype(float), "z": z}
    with pytest.raises(BadInput, match=r"validation: found the names \['x'\].*\['x', 'z'\]"):
        fit(machine, both, LIKELIHOOD, key=0, epochs=1, validation={"x": both["x"]})
    with pytest.raises(BadInput, match=r"batch 1: found the names \['x'\].*\['x', 'z'\]"):
        fit(machine, [both, {"x": both["x"]}], LIKELIHOOD, key=0, epochs=1)


def test_an_epoch_that_was_cut_short_is_not_gone_on_from(tmp_path):
    """Steps that end within an epoch: the same fit resumes, a longer one is refused, whole epochs extend."""
    options = {"key": 0, "batch_size": 40, "checkpoint": tmp_path / "c"}
    run = lambda steps, **more: fit(
        Steep(jnp.array(1.0)), {"x": ROWS}, LIKELIHOOD, steps=steps, **{**options, **more}
    )
    assert run(4).n_steps == run(4).n_steps == 4
    with pytest.raises(BadInput, match="checkpoint"):
        run(7)
    whole = {"checkpoint": tmp_path / "whole"}
    assert run(3, **whole).n_steps == 3 and run(6, **whole).n_steps == 6


def test_a_fit_that_diverges_says_so_in_words_alone():
    """Its terms are ∞ and −∞, and their sum is no reason for a warning of NumPy's beside the status."""
    ones = np.ones((20, 4), np.float32)
    learner = Descent(NegativeLogLikelihood(), optax.sgd(3e38))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = fit(RBM.random(4, 2, key=0), {"x": ones}, learner, key=0, epochs=5)
    assert done.status == "diverged"


@pytest.mark.parametrize("answer", [True, np.True_])
def test_a_callback_stops_a_fit(answer):
    options = {"key": 0, "epochs": 10, "callbacks": [lambda info: answer if info["epoch"] == 2 else None]}
    done = fit(Steep(jnp.array(1.0)), {"x": ROWS}, LIKELIHOOD, **options)
    assert done.n_epochs == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": [{"x": ROWS}], "weights": np.ones(97)}, "a stream, and weights"),
        ({"data": {"x": ROWS}, "weights": ["a"] * 97}, "weights: found list with non-numeric entries"),
        ({"data": {"x": ROWS}, "freeze": 5}, "freeze: found 5; expected names of parameters"),
    ],
)
def test_arguments_of_another_kind(options, said):
    with pytest.raises(BadInput, match=said):
        fit(Steep(jnp.array(1.0)), options.pop("data"), LIKELIHOOD, key=0, **options)
