"""The training loop: results, status, restarts, streams, checkpoints, input validation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from energax import BadInput, Checkpoint, Energy, Masked, Positive, Real, Unsuitable, fit, parameter
from energax.energies import RBM
from energax.fitting import Learner
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood, Objective, ScoreMatching
from energax.programs import use_engine


class Bowl(Energy):
    """½‖x − centre‖² + ½ d log 2π: a unit Gaussian, normalised."""

    centre: jax.Array
    offset: jax.Array

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return 0.5 * jnp.sum((x - self.centre - self.offset) ** 2) + jnp.log(2 * jnp.pi)

    def log_partition(self):
        return jnp.zeros(())

    def initialise(self, key, data, weight):
        return Bowl(jax.random.normal(key, (2,)), self.offset)


def bowl() -> Bowl:
    return Bowl(jnp.zeros(2), jnp.zeros(2))


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(0).normal([3.0, -1.0], 1.0, (97, 2)).astype(np.float32)


def likelihood(rate: float = 0.1) -> Descent:
    return Descent(NegativeLogLikelihood(), optax.sgd(rate))


class Nan(Objective):
    """Finite for three steps, then one of its two terms is not."""

    partner: None = None

    def init(self, energy, batch, key):
        return jnp.zeros((), int)

    def __call__(self, energy, batch, carry, key):
        fine = batch.mean(batch.map(lambda x: energy(x=x)))
        return {"fine": fine, "broken": jnp.where(carry >= 3, jnp.nan, 0.0)}, carry + 1


class Scripted(Learner):
    """A learner whose objective follows a script, whatever the data."""

    script: tuple[float, ...] = eqx.field(static=True)
    tol: float = 1e-3
    monotone = True

    def init(self, energy, batch, key, trainable):
        return jnp.zeros((), jnp.int32)

    def step(self, energy, state, batch, key, trainable):
        return energy, state + 1, {"loss": jnp.asarray(self.script)[state]}

    def evaluate(self, energy, state, batch, key):
        return {"loss": jnp.asarray(self.script)[state]}

    def converged(self, before, after, old, new):
        return jnp.abs(before - after) <= self.tol


def test_descent_finds_the_closed_form_optimum(rows):
    result = fit(bowl(), {"x": rows}, likelihood(0.5), key=0, epochs=60, freeze="offset")
    np.testing.assert_allclose(result.energy.centre, rows.mean(0), atol=1e-5)
    assert result.status == "reached max_iter" and result.n_epochs == 60 and result.n_steps == 60


def test_frozen_parameters_do_not_move_and_the_rest_do(rows):
    result = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=3, freeze=lambda e: e.offset)
    assert (np.asarray(result.energy.offset) == 0).all() and (np.asarray(result.energy.centre) != 0).all()
    with pytest.raises(BadInput, match=r"'middle'.*centre, offset"):
        fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=1, freeze="middle")


def test_weights_count_as_repetitions(rows):
    repeated = np.concatenate([rows[:10], rows[:10], rows[10:20]])
    weights = np.array([2.0] * 10 + [1.0] * 10)
    a = fit(bowl(), {"x": repeated}, likelihood(), key=0, epochs=7)
    b = fit(bowl(), {"x": rows[:20]}, likelihood(), key=0, epochs=7, weights=weights)
    np.testing.assert_allclose(a.energy.centre, b.energy.centre, rtol=1e-5)
    np.testing.assert_allclose(a.history["objective"], b.history["objective"], rtol=1e-5)


def test_every_row_is_seen_once_an_epoch(rows):
    class Seen(Objective):
        partner: None = None

        def init(self, energy, batch, key):
            return jnp.zeros(97)

        def __call__(self, energy, batch, carry, key):
            index = batch.data["x"][:, 0].astype(int)
            loss = 0.0 * energy.centre.sum()
            return loss, carry.at[index].add(jnp.where(batch.weight > 0, 1.0, 0.0))

    numbered = np.stack([np.arange(97.0), np.zeros(97)], 1).astype(np.float32)
    result = fit(bowl(), {"x": numbered}, Descent(Seen(), optax.sgd(0.1)), key=3, epochs=4, batch_size=10)
    assert result.n_steps == 40
    np.testing.assert_array_equal(result.state.carry, np.full(97, 4.0))


def test_steps_stop_inside_an_epoch(rows):
    result = fit(bowl(), {"x": rows}, likelihood(), key=0, steps=13, batch_size=10)
    assert result.n_steps == 13 and result.n_epochs == 2


def test_the_same_key_gives_the_same_result_and_another_does_not(rows):
    run = lambda key: fit(bowl(), {"x": rows}, likelihood(), key=key, epochs=2, batch_size=16).energy.centre
    np.testing.assert_array_equal(run(5), run(jax.random.key(5)))
    assert (np.asarray(run(5)) != np.asarray(run(6))).any()


def test_divergence_names_the_term_and_the_step_and_keeps_the_last_finite_energy(rows):
    result = fit(bowl(), {"x": rows}, Descent(Nan(), optax.sgd(0.1)), key=0, epochs=9)
    assert result.status == "diverged" and not result.converged
    assert "'broken'" in result.message and "step 4" in result.message
    assert np.isfinite(np.asarray(result.energy.centre)).all()
    assert np.asarray(result.energy.centre).any(), "three good steps are kept"


def test_a_parameter_that_overflows_is_divergence(rows):
    result = fit(bowl(), {"x": 1e30 * rows}, likelihood(1e30), key=0, epochs=5)
    assert result.status == "diverged" and np.isfinite(np.asarray(result.energy.centre)).all()


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ((3.0, 2.0, 2.0, 1.0), "converged"),
        ((1.0, 2.0, 3.0, 3.0), "reached max_iter"),  # at rest, but worse than at the start
        ((1.0, np.nan, np.nan, 0.0), "diverged"),
        ((4.0, 3.0, 2.0, 1.0), "reached max_iter"),
    ],
)
def test_convergence_is_never_claimed_on_nan_or_on_a_worse_objective(rows, script, status):
    result = fit(bowl(), {"x": rows}, Scripted(script), key=0, epochs=4)
    assert result.status == status
    if script[-1] == script[-2] == 3.0:
        assert "got worse" in result.message


def test_patience_stops_and_the_best_energy_on_validation_is_kept(rows):
    far = {"x": np.zeros((5, 2), np.float32)}  # moving towards the rows is worse and worse here
    result = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=50, validation=far, patience=4)
    assert result.status == "stopped early" and result.n_epochs == 5
    assert np.argmin(result.history["validation"]) == 0
    expected = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=1).energy.centre
    np.testing.assert_allclose(result.energy.centre, expected, rtol=1e-6)


def test_a_validation_fraction_is_held_out_of_learning(rows):
    result = fit(bowl(), {"x": rows}, likelihood(0.5), key=0, epochs=60, validation=0.5, freeze="offset")
    assert np.abs(np.asarray(result.energy.centre) - rows.mean(0)).max() > 1e-3
    assert np.isfinite(result.history["validation"]).all()


def test_restarts_are_all_kept_and_the_best_is_returned(rows):
    result = fit(bowl(), {"x": rows}, likelihood(0.05), key=0, epochs=3, n_init=6)
    losses = [r.loss for r in result.restarts]
    assert len(set(losses)) == 6 and result.loss == min(losses)


def test_restarts_equal_single_fits(rows):
    together = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=3, n_init=3, batch_size=20)
    alone = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=3, initialise=True, batch_size=20)
    np.testing.assert_allclose(together.restarts[0].energy.centre, alone.energy.centre, rtol=1e-6)


def test_a_second_fit_of_the_same_shapes_compiles_nothing(rows):
    def run(key, shift):
        learner = Descent(
            ContrastiveDivergence(k=2), optax.adam(optax.cosine_decay_schedule(0.05, 30)), clip=1.0
        )
        x = (rows > shift).astype(np.float32)
        with use_engine("xla"):
            return fit(RBM.random(2, 3, key=key), {"x": x}, learner, key=key, epochs=3, batch_size=16)

    compiled = []
    listener = lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        run(0, 0.0)
        assert compiled, "the listener hears compilations"
        compiled.clear()
        run(1, 0.5)
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    assert compiled == []


def test_callbacks_see_every_epoch_and_can_stop(rows):
    seen = []

    def watch(info):
        seen.append((info["epoch"], info["step"]))
        return info["epoch"] == 3

    result = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=9, batch_size=50, callbacks=[watch])
    assert seen == [(1, 2), (2, 4), (3, 6)] and result.status == "stopped early"


def test_progress_shows_the_objective(rows, capsys):
    fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=4, progress=True)
    assert "4/4" in capsys.readouterr().out


def test_a_stream_learns_as_arrays_do(rows):
    parts = np.array_split(rows, 4)  # of 25, 24, 24 and 24 rows
    stream = fit(bowl(), lambda: ({"x": p} for p in parts), likelihood(), key=0, epochs=3)
    assert stream.n_steps == 12 and stream.n_epochs == 3
    with_list = fit(bowl(), [{"x": p} for p in parts], likelihood(), key=0, epochs=3)
    np.testing.assert_array_equal(stream.energy.centre, with_list.energy.centre)
    centre = np.zeros(2)
    # Two parameters that only enter as a sum: each moves by rate × (mean − centre − offset).
    for _ in range(3):
        for part in parts:
            centre = centre + 0.1 * (part.mean(0) - 2 * centre)
    np.testing.assert_allclose(stream.energy.centre, centre, rtol=1e-4)


def test_an_iterator_is_read_once_and_completely(rows):
    parts = [{"x": p} for p in np.array_split(rows, 4)]
    once = fit(bowl(), iter(parts), likelihood(), key=0, epochs=1)
    again = fit(bowl(), parts, likelihood(), key=0, epochs=1)
    np.testing.assert_array_equal(once.energy.centre, again.energy.centre)
    with pytest.raises(BadInput, match="read only once"):
        fit(bowl(), iter(parts), likelihood(), key=0, epochs=2)


def test_float64_is_kept(rows):
    with jax.enable_x64(True):
        start = Bowl(jnp.zeros(2, float), jnp.zeros(2, float))
        result = fit(start, {"x": rows.astype(float)}, likelihood(0.25), key=0, epochs=60)
        assert result.energy.centre.dtype == np.float64
        total = np.asarray(result.energy.centre + result.energy.offset)
        np.testing.assert_allclose(total, rows.astype(float).mean(0), rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"data": np.zeros((3, 2))}, "a dict of arrays"),
        ({"data": {"y": np.zeros((3, 2))}}, "some of"),
        ({"data": {"x": np.zeros((3, 4))}}, "rows of shape"),
        ({"data": {"x": np.zeros((0, 2))}}, "0 rows"),
        ({"data": {"x": np.full((3, 2), np.inf)}}, "finite real numbers"),
        ({"data": {"x": np.array([["a", "b"]])}}, "numbers"),
        ({"weights": [-1.0, 1, 1]}, "numbers >= 0"),
        ({"weights": [1.0, 1]}, "one number per row"),
        ({"epochs": 0}, ">= 1"),
        ({"epochs": 2, "steps": 3}, "one of the two"),
        ({"batch_size": 1.5}, "whole number"),
        ({"patience": 2}, "validation"),
        ({"validation": 1.5}, "fraction"),
        ({"key": "a"}, "an int or one JAX key"),
        ({"learner": NegativeLogLikelihood()}, "Wrap an objective"),
        ({"energy": 3}, "an Energy"),
        ({"checkpoint": 3}, "a path"),
    ],
)
def test_bad_input_meets_a_sentence(change, sentence):
    arguments = {"energy": bowl(), "data": {"x": np.zeros((3, 2))}, "learner": likelihood(), "key": 0}
    with pytest.raises(BadInput, match=sentence):
        fit(**(arguments | {"epochs": 1} | change))


def test_a_learner_that_makes_no_sense_is_refused_before_any_work():
    big = RBM.random(64, 64, key=0)
    with pytest.raises(Unsuitable, match="Use ContrastiveDivergence or NoiseContrastive"):
        fit(big, {"x": np.zeros((3, 64))}, likelihood(), key=0, epochs=1)


def test_missing_values_are_hidden_coordinates(binary_digits):
    """Exact likelihood with missing pixels equals that of the marginal over them, enumerated."""
    rbm = RBM.random(3, 2, key=0, scale=1.0)
    value = np.array([[1.0, 0.0, 1.0]], np.float32)
    hidden = Masked(value, np.array([[True, False, True]]))
    result = fit(rbm, {"x": hidden}, likelihood(1e-9), key=0, epochs=1)
    both = [rbm.free_energy(x=jnp.array([1.0, v, 1.0])) for v in (0.0, 1.0)]
    exact = -jax.nn.logsumexp(-jnp.stack(both)) + rbm.log_partition()
    np.testing.assert_allclose(result.objective, exact, rtol=1e-5)


def test_a_checkpoint_of_another_fit_is_refused(rows, tmp_path):
    path = tmp_path / "fit.safetensors"
    fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=2, checkpoint=path)
    with pytest.raises(BadInput, match="another energy, data, learner or key"):
        fit(bowl(), {"x": rows}, likelihood(), key=1, epochs=2, checkpoint=path)
    with pytest.raises(BadInput, match="every"):
        Checkpoint(path, every=0)


def test_a_finished_fit_can_be_prolonged_from_its_checkpoint(rows, tmp_path):
    path = tmp_path / "fit.safetensors"
    fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=2, batch_size=16, checkpoint=path)
    more = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=5, batch_size=16, checkpoint=path)
    whole = fit(bowl(), {"x": rows}, likelihood(), key=0, epochs=5, batch_size=16)
    np.testing.assert_array_equal(more.energy.centre, whole.energy.centre)
    np.testing.assert_array_equal(more.history["objective"], whole.history["objective"])


def test_a_global_that_changed_is_another_program(rows):
    """The same code reading another value must not run what was compiled for the old one."""
    scope = {"scale": 1.0}
    define = "def penalty(energy): return scale * (energy.centre ** 2).sum()"
    losses = []
    for value in (1.0, 1000.0):
        scope["scale"] = value
        exec(define, scope)
        objective = NegativeLogLikelihood(prior=scope["penalty"], n_rows=1.0)
        start = Bowl(jnp.ones(2), jnp.zeros(2))
        losses.append(fit(start, {"x": rows}, Descent(objective, optax.sgd(0.0)), key=0, epochs=1).objective)
    assert losses[1] - losses[0] == pytest.approx(999 * 2, rel=1e-5)


def test_a_checkpoint_knows_its_step_size_and_its_validation(rows, tmp_path):
    run = lambda **changes: fit(
        bowl(), {"x": rows}, **({"learner": likelihood(0.1), "key": 0, "epochs": 2} | changes)
    )
    run(checkpoint=tmp_path / "a", validation={"x": rows[:4]})
    with pytest.raises(BadInput, match="another energy, data, learner or key"):
        run(checkpoint=tmp_path / "a", validation={"x": rows[:4]}, learner=likelihood(0.2))
    with pytest.raises(BadInput, match="another energy, data, learner or key"):
        run(checkpoint=tmp_path / "a")


def test_validation_is_never_padding(rows):
    weights = np.zeros(97)
    weights[:4] = 1.0
    for key in range(8):
        result = fit(bowl(), {"x": rows}, likelihood(), key=key, epochs=1, validation=0.25, weights=weights)
        assert result.history["validation"][0] > 1.0, "a unit Gaussian's energy is at least log 2π"


def test_what_is_clamped_or_fixed_is_data_and_does_not_move():
    rbm = RBM.random(2, 3, key=0, scale=1.0)
    held = rbm.given(z=jnp.ones(3)) / jnp.array(2.0)
    x = np.array([[0.0, 1.0], [1.0, 1.0]], np.float32)
    decay = Descent(NegativeLogLikelihood(), optax.adamw(0.1, weight_decay=1.0))
    new = fit(held, {"x": x}, decay, key=0, epochs=3).energy
    np.testing.assert_array_equal(new.energy.values["z"], np.ones(3))
    assert float(new.temperature) == 2.0
    assert (np.asarray(new.energy.energy.bias) != np.asarray(rbm.bias)).all()


@pytest.mark.parametrize("option", [{"batch_size": 3}, {"initialise": True}, {"n_init": 2}, {"steps": 2}])
def test_a_stream_refuses_what_it_cannot_do(rows, option):
    with pytest.raises(BadInput, match=next(iter(option))):
        fit(bowl(), [{"x": rows}], likelihood(), key=0, **option)


class Scaled(Energy):
    scale: jax.Array = parameter(Positive())

    @property
    def spaces(self):
        return {"x": Real(2)}

    def __call__(self, *, x):
        return jnp.sum((x / self.scale) ** 2)


class Vector(Scaled):
    def __call__(self, *, x):
        return (x / self.scale) ** 2


@pytest.mark.parametrize(
    ("energy", "sentence"),
    [
        (Scaled(-jnp.ones(2)), "scale: found .* expected finite numbers > 0"),
        (Scaled(jnp.array([1.0, jnp.nan])), "scale: .*not finite"),
        (Scaled(1.0), "nothing to learn .scale: not real arrays"),
        (Scaled(jnp.ones(2, int)), "nothing to learn"),
        (Vector(jnp.ones(2)), r"Vector returns shape \(2,\)"),
    ],
)
def test_an_energy_that_cannot_be_learned_is_refused_before_any_work(rows, energy, sentence):
    with pytest.raises(BadInput, match=sentence):
        fit(energy, {"x": rows}, Descent(ScoreMatching(), optax.adam(0.1)), key=0, epochs=1)
