"""RBMs of all units against enumeration, quadrature and the published construction of rectified units."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate
from scipy.special import logsumexp

from energax import fit, load, log_partition, log_prob, save
from energax.energies import (
    RBM,
    BinaryUnits,
    ClassRBM,
    GaussianRBM,
    GaussianUnits,
    RectifiedUnits,
    SoftmaxUnits,
)
from energax.energy import Energy, enumerated_free_energy
from energax.errors import BadInput
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood
from energax.missing import Masked

UNITS = {"binary": BinaryUnits(), "softmax": SoftmaxUnits(3), "rectified": RectifiedUnits(3)}
#: Statistics t(v) and log h(v) of every value of a unit, written out.
TABLES = {
    "binary": (np.array([[0.0], [1.0]]), np.zeros(2)),
    "softmax": (np.eye(3), np.zeros(3)),
    # [3 choose v]_q is 1, 1 + q + q², 1 + q + q², 1.
    "rectified": (
        np.arange(4.0)[:, None],
        np.array([0.0, -0.5, -2.0, -4.5])
        + np.log1p([0, np.exp(-1) + np.exp(-2), np.exp(-1) + np.exp(-2), 0]),
    ),
}


def machine(visible, hidden, d=2, h=2, seed=0):
    rbm = RBM.random(d, h, key=seed, scale=1.0, visible=visible, hidden=hidden)
    rng = np.random.default_rng(seed)
    biases = (jnp.asarray(rng.normal(size=b.shape), jnp.float32) for b in (rbm.bias, rbm.hidden_bias))
    return rbm.with_biases(*biases)


def by_hand(rbm, visible, hidden):
    """(−e of every pair of values, the values of x, the values of z), of two units in each layer."""

    def layer(name):
        t, h = TABLES[name]
        pairs = [(i, j) for i in range(len(t)) for j in range(len(t))]
        stats = np.array([np.concatenate([t[i], t[j]]) for i, j in pairs])
        return np.array(pairs), stats, np.array([h[i] + h[j] for i, j in pairs])

    (x, tx, hx), (z, tz, hz) = layer(visible), layer(hidden)
    w, b, c = (np.asarray(a, float) for a in (rbm.weight, rbm.bias, rbm.hidden_bias))
    return tx @ w @ tz.T + (tx @ b + hx)[:, None] + tz @ c + hz, x, z


@pytest.mark.parametrize("hidden", UNITS)
@pytest.mark.parametrize("visible", UNITS)
def test_closed_forms_equal_sums_over_all_values(visible, hidden):
    rbm = machine(UNITS[visible], UNITS[hidden])
    logs, x, z = by_hand(rbm, visible, hidden)
    values = lambda space, rows: jnp.asarray(rows, space.jax_dtype)
    x, z = values(rbm.spaces["x"], x), values(rbm.spaces["z"], z)
    found = evaluate(
        lambda: (
            jax.vmap(lambda x: jax.vmap(lambda z: -rbm(x=x, z=z))(z))(x),
            jax.vmap(lambda x: -rbm.free_energy(x=x))(x),
            jax.vmap(lambda z: -rbm.free_energy(z=z))(z),
            rbm.log_partition(),
            jax.vmap(rbm.conditional("z", x=x[-1]).log_prob)(z),
            jax.vmap(rbm.conditional("x", z=z[1]).log_prob)(x),
            rbm.free_energy(x=Masked(x[1], jnp.array([False, True]))),
        )
    )
    same = [i for i in range(len(x)) if x[i][1] == x[1][1]]
    expected = (
        logs,
        logsumexp(logs, 1),
        logsumexp(logs, 0),
        logsumexp(logs),
        logs[-1] - logsumexp(logs[-1]),
        logs[:, 1] - logsumexp(logs[:, 1]),
        -logsumexp(logs[same]),
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_rectified_units_are_the_number_of_active_copies_with_shifted_biases():
    """The sum of n Bernoulli variables with logits a − i + ½, by convolution; its mean nears log(1 + eᵃ)."""
    units, field = RectifiedUnits(30), np.array([-3.0, 0.4, 7.3], np.float32)
    found = np.exp(np.asarray(units.distribution(jnp.asarray(field)).base_dist.logits))
    for a, row, mean in zip(
        field, found / found.sum(1, keepdims=True), units.mean_statistics(field), strict=True
    ):
        p = 1 / (1 + np.exp(-(a - np.arange(1, 31) + 0.5)))
        exact = np.ones(1)
        for each in p:
            exact = np.convolve(exact, [1 - each, each])
        np.testing.assert_allclose(row, exact, atol=3e-6)
        np.testing.assert_allclose(mean, p.sum(), rtol=1e-4)
        assert abs(mean - np.log1p(np.exp(a))) < 0.02


def test_gaussian_units_are_the_gaussian_machine_with_its_bias_in_units_of_the_scale():
    rng = np.random.default_rng(1)
    w, b, c = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((2, 3), 2, 3))
    scale = jnp.array([0.5, 2.0])
    rbm, old = RBM(w, b / scale, c, GaussianUnits(scale)), GaussianRBM(w, b, c, scale)
    x, constant = jnp.array([0.3, -1.0]), 0.5 * ((b / scale) ** 2).sum()
    half = Masked(x, jnp.array([True, False]))
    pairs = evaluate(
        lambda: (
            (rbm.free_energy(x=x) + constant, old.free_energy(x=x)),
            (rbm.free_energy(x=half) + constant, old.free_energy(x=half)),
            (rbm.log_partition() - constant, old.log_partition()),
            (rbm.conditional("x", z=jnp.ones(3)).mean, old.conditional("x", z=jnp.ones(3)).mean),
            ((rbm / 2.0).free_energy(x=x) + constant / 2, (old / 2.0).free_energy(x=x)),
        )
    )
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_real_hidden_units_give_pairwise_couplings():
    """With z ~ N(c, 1), F(x) = −bᵀx − ½‖Wᵀx + c‖² − h/2 log 2π: a Hopfield network."""
    rbm = machine(BinaryUnits(), GaussianUnits(), d=3)
    x = rbm.spaces["x"].values()
    field = np.asarray(x @ rbm.weight + rbm.hidden_bias)
    exact = -np.asarray(x @ rbm.bias) - 0.5 * (field**2).sum(1) - np.log(2 * np.pi)
    found, log_z = evaluate(lambda: (jax.vmap(lambda x: rbm.free_energy(x=x))(x), rbm.log_partition()))
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_z, logsumexp(-exact), rtol=1e-5)


def test_a_multiple_scales_real_hidden_units_too():
    rbm = machine(SoftmaxUnits(3), GaussianUnits(jnp.array([0.5, 2.0])))
    rbm = rbm.with_biases(rbm.bias, jnp.array([0.7, -1.0]))
    labelled = ClassRBM(rbm, jnp.array([[1.0, -2.0], [0.5, 0.3]]), jnp.array([0.2, -0.1]))
    x, z = jnp.array([2, 1]), jnp.array([0.4, -1.5])
    np.testing.assert_allclose(rbm.multiply(3.0)(x=x, z=z), 3 * rbm(x=x, z=z), rtol=1e-5)
    np.testing.assert_allclose(labelled.multiply(3.0)(x=x, y=1, z=z), 3 * labelled(x=x, y=1, z=z), rtol=1e-5)


@pytest.mark.parametrize(
    "visible", [SoftmaxUnits(3), GaussianUnits(jnp.array([0.5, 2.0]))], ids=["soft", "real"]
)
def test_a_multiple_of_the_energy_is_a_machine_of_the_same_class(visible):
    rbm = machine(visible, BinaryUnits())
    x, z = jnp.asarray([2, 1], rbm.spaces["x"].jax_dtype), jnp.array([1.0, 0.0])
    cold = rbm.multiply(3.0)
    np.testing.assert_allclose(cold(x=x, z=z), 3 * rbm(x=x, z=z), rtol=1e-5)
    hidden = evaluate(lambda: Energy.conditional(cold, "z", x=x).log_probs)
    np.testing.assert_allclose(
        evaluate(lambda: jax.vmap(cold.conditional("z", x=x).log_prob)(cold.spaces["z"].values())),
        hidden,
        atol=1e-5,
    )
    rectified = machine(RectifiedUnits(3), BinaryUnits())
    assert not rectified.knows("multiply") and (rectified / 2.0).knows("conditional", {"x"})


def test_annealing_agrees_with_the_sum_for_other_units():
    rbm = machine(SoftmaxUnits(3), RectifiedUnits(4), d=3, h=3)
    found = log_partition(rbm, "AnnealedImportance", key=0)
    assert abs(float(found.value) - float(evaluate(rbm.log_partition))) < 4 * found.stderr + 1e-4


def test_initial_biases_give_the_rates_of_the_data():
    rng = np.random.default_rng(0)
    rows = {
        "softmax": rng.choice(3, (900, 2), p=[0.6, 0.3, 0.1]),
        "rectified": rng.poisson(1.0, (900, 2)).clip(0, 3),
    }
    for name, x in rows.items():
        rbm = machine(UNITS[name], BinaryUnits())
        start = evaluate(
            lambda rbm=rbm, x=x: rbm.initialise(jax.random.key(0), {"x": jnp.asarray(x)}, jnp.ones(900))
        )
        found = UNITS[name].mean_statistics(start.bias)
        wanted = np.eye(3)[x].mean(0).ravel() if name == "softmax" else x.mean(0)
        np.testing.assert_allclose(found, wanted, atol=0.01 if name == "softmax" else 0.12)


@pytest.mark.parametrize(
    "units",
    [BinaryUnits(), SoftmaxUnits(3), RectifiedUnits(3), GaussianUnits(jnp.ones(2))],
    ids=lambda units: type(units).__name__,
)
def test_initial_biases_count_rows_by_weight_and_leave_out_missing_values(units):
    """Every column as its rows repeated, without those of count 0."""
    x = np.array([[0, 1], [1, 0], [1, 1], [0, 0], [1, 1]])
    x = x * [2, 1] + 0.5 if isinstance(units, GaussianUnits) else x
    counts = np.array([[1.0, 0], [2, 1], [0, 0], [1, 3], [1, 2]])
    found, bias = units.fitted(jnp.asarray(x), jnp.asarray(counts))
    for j in range(2):
        rows = np.repeat(x[:, j], counts[:, j].astype(int))[:, None]
        one = GaussianUnits(jnp.ones(1)) if isinstance(units, GaussianUnits) else units
        alone, expected = one.fitted(jnp.asarray(rows), jnp.ones(rows.shape))
        np.testing.assert_allclose(bias.reshape(2, -1)[j], expected, rtol=1e-5)
        if isinstance(units, GaussianUnits):
            moments = [expected[0] * alone.scale[0], alone.scale[0]]
            np.testing.assert_allclose([rows.mean(), rows.std()], moments, rtol=1e-5)
            np.testing.assert_allclose(found.scale[j], alone.scale[0], rtol=1e-5)


def test_learning_categories_reaches_the_entropy_of_the_data():
    """Two columns of three equal categories: log p = −log 3, by likelihood and by CD."""
    x = np.repeat(np.arange(3), 30)[:, None] * np.ones((1, 2), int)
    for objective, tolerance in ((NegativeLogLikelihood(), 0.1), (ContrastiveDivergence(5), 0.25)):
        rbm = RBM.random(2, 3, visible=SoftmaxUnits(3), key=0)
        learner = Descent(objective, optax.adam(0.1))
        found = fit(rbm, {"x": x}, learner, epochs=150, key=0, initialise=True).energy
        score = float(log_prob(found, {"x": x[::30]}).value.mean())
        assert np.log(3) <= -score + 1e-5 < np.log(3) + tolerance


def test_units_are_saved_and_loaded(tmp_path):
    rbm = machine(GaussianUnits(jnp.array([0.5, 2.0])), RectifiedUnits(4))
    save(rbm, tmp_path / "rbm.safetensors")
    again = load(tmp_path / "rbm.safetensors")
    assert again.visible.scale.tolist() == [0.5, 2.0] and again.hidden == RectifiedUnits(4)


def test_bad_units_are_named():
    with pytest.raises(BadInput, match=r"hidden.*Gaussian units in both layers"):
        RBM.random(2, 2, visible=GaussianUnits(), hidden=GaussianUnits(), key=0)
    with pytest.raises(BadInput, match=r"bias.*multiple of 3"):
        RBM(jnp.zeros((4, 1)), jnp.zeros(4), jnp.zeros(1), SoftmaxUnits(3))
    with pytest.raises(BadInput, match="visible"):
        RBM(jnp.zeros((4, 1)), jnp.zeros(4), jnp.zeros(1), "binary")
    with pytest.raises(BadInput, match="k"):
        SoftmaxUnits(1)


def test_missing_values_of_other_units_are_enumerated_once():
    rbm = machine(RectifiedUnits(3), BinaryUnits())
    x = Masked(jnp.array([2, 0]), jnp.array([True, False]))
    by_sum = evaluate(
        lambda: (
            -jax.nn.logsumexp(
                jnp.stack([-enumerated_free_energy(rbm, {"x": jnp.array([2, v])}) for v in range(4)])
            )
        )
    )
    np.testing.assert_allclose(evaluate(lambda: rbm.free_energy(x=x)), by_sum, rtol=1e-5)
