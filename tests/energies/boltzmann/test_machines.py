"""Boltzmann machines with lateral connections, labels and inputs, against enumeration."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate
from scipy.special import logsumexp

from energax import Batch, fit, log_partition, log_prob, sample
from energax.energies import RBM, BoltzmannMachine, ClassRBM, ConditionalRBM, RectifiedUnits, SoftmaxUnits
from energax.energy import Energy, enumerated_free_energy
from energax.errors import BadInput, Unsuitable
from energax.infer import MCMC
from energax.learn import (
    ContrastiveDivergence,
    CrossEntropy,
    Descent,
    NegativeLogLikelihood,
    PseudoLikelihood,
)
from energax.samplers import Gibbs


def lateral(seed=0, d=3, h=2, hidden_lateral=True):
    machine = BoltzmannMachine.random(d, h, key=seed, scale=1.0, hidden_lateral=hidden_lateral)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda a: a + jnp.asarray(rng.normal(size=a.shape), jnp.float32), machine)


def joint(machine):
    """−e of all 0-1 vectors (x, z), from one symmetric matrix of all connections."""
    d, h = machine.bias.size, 0 if machine.weight is None else machine.hidden_bias.size
    j = np.zeros((d + h, d + h))
    j[:d, :d] = np.triu(machine.visible_weight, 1)
    if h:
        j[:d, d:] = machine.weight
        if machine.hidden_weight is not None:
            j[d:, d:] = np.triu(machine.hidden_weight, 1)
    bias = np.concatenate([machine.bias, [] if not h else machine.hidden_bias])
    v = np.array(list(itertools.product([0, 1], repeat=d + h)), float)
    logs = ((v @ j) * v).sum(1) + v @ bias
    return v, logs.reshape(2**d, 2**h)


@pytest.mark.parametrize("hidden_lateral", [True, False])
def test_a_boltzmann_machine_equals_its_table(hidden_lateral):
    machine = lateral(hidden_lateral=hidden_lateral)
    _, logs = joint(machine)
    x, z = machine.spaces["x"].values(), machine.spaces["z"].values()
    energies, free, log_z = evaluate(
        lambda: (
            jax.vmap(lambda x: jax.vmap(lambda z: -machine(x=x, z=z))(z))(x),
            jax.vmap(lambda x: -enumerated_free_energy(machine, {"x": x}))(x),
            machine.log_partition(),
        )
    )
    np.testing.assert_allclose(energies, logs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(free, logsumexp(logs, 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_z, logsumexp(logs), rtol=1e-5)
    assert machine.knows("free_energy", {"x"}) is not hidden_lateral
    if not hidden_lateral:
        closed = evaluate(lambda: jax.vmap(lambda x: -machine.free_energy(x=x))(x))
        np.testing.assert_allclose(closed, free, rtol=1e-4, atol=1e-5)
        mean = evaluate(lambda: machine.conditional("z", x=x[5]).mean)
        np.testing.assert_allclose(mean, np.exp(logs[5] - logsumexp(logs[5])) @ z, rtol=1e-4)


def test_coordinates_of_a_boltzmann_machine_are_drawn_from_their_fields():
    machine = lateral(3)
    x, z = jnp.array([1.0, 0.0, 1.0]), jnp.array([0.0, 1.0])
    for name, i in (("x", 1), ("z", 0), ("x", 2)):
        values = {"x": x, "z": z}
        by_field = machine.coordinate_logits(name, i, **values)
        each = [machine(**{**values, name: values[name].at[i].set(v)}) for v in (0.0, 1.0)]
        np.testing.assert_allclose(by_field[1] - by_field[0], each[0] - each[1], rtol=1e-4, atol=1e-5)


def test_gibbs_chains_of_a_boltzmann_machine_have_its_moments():
    """Means over 200 chains of 40 draws, within 4.5 standard errors: 5 units, 1 in 30 000."""
    machine = jax.tree.map(lambda a: 0.5 * a, lateral(1))
    v, logs = joint(machine)
    mean = np.exp(logs.ravel() - logsumexp(logs)) @ v
    draws = sample(machine, 8000, method=MCMC(Gibbs(), n_chains=200, warmup=30), key=1)
    both = np.concatenate([np.asarray(draws["x"]), np.asarray(draws["z"])], 1).reshape(200, 40, 5).mean(1)
    assert (np.abs(both.mean(0) - mean) < 4.5 * both.std(0) / np.sqrt(200)).all()


def test_the_mean_field_bound_is_above_the_free_energy_and_tight_for_weak_connections():
    strong = lateral(2)
    parts = (strong.bias, strong.visible_weight, strong.weight, strong.hidden_bias)
    weak = BoltzmannMachine(*parts, 0.01 * strong.hidden_weight)
    for machine, gap in ((strong, np.inf), (weak, 1e-3)):
        x = machine.spaces["x"].values()
        exact, bound = evaluate(
            lambda m=machine, x=x: (
                jax.vmap(lambda x: enumerated_free_energy(m, {"x": x}))(x),
                jax.vmap(lambda x: m.free_energy_bound(x=x))(x),
            )
        )
        assert (bound >= exact - 1e-5).all() and (bound - exact < gap).all()


def test_an_ising_model_is_learned_by_its_pseudo_likelihood():
    """Rows weighted by their true probabilities: the estimate is consistent, so it is the truth itself."""
    coupling = jnp.full((4, 4), 0.8).at[0, 2].set(-1.0)
    truth = BoltzmannMachine(jnp.array([0.3, -0.5, 0.2, 0.0]), coupling)
    v, logs = joint(truth)
    weights = 16 * np.exp(logs.ravel() - logsumexp(logs))
    learner = Descent(PseudoLikelihood(), optax.adam(0.1))
    start = BoltzmannMachine.random(4, key=1)
    found = fit(start, {"x": v}, learner, weights=weights, epochs=300, key=0).energy
    upper = np.triu_indices(4, 1)
    np.testing.assert_allclose(found.visible_weight[upper], truth.visible_weight[upper], atol=0.03)
    np.testing.assert_allclose(found.bias, truth.bias, atol=0.03)


def test_the_gradient_of_the_bound_is_that_of_its_minimum():
    """With q at its optimum the gradient at fixed q is that of the optimal value, by central differences."""
    machine = jax.tree.map(lambda a: 0.7 * a, lateral(4))
    x, step = jnp.array([1.0, 0.0, 1.0]), 1e-2
    bound = lambda m: m.free_energy_bound(x=x)
    shift = lambda sign: BoltzmannMachine(
        machine.bias,
        machine.visible_weight,
        machine.weight + sign * step * jnp.ones((3, 2)),
        machine.hidden_bias + sign * step,
        machine.hidden_weight + sign * step,
    )
    gradient, up, down = evaluate(lambda: (jax.grad(bound)(machine), bound(shift(1)), bound(shift(-1))))
    along = gradient.weight.sum() + gradient.hidden_bias.sum() + gradient.hidden_weight.sum()
    np.testing.assert_allclose(along, (up - down) / (2 * step), rtol=2e-3)


def test_connected_hidden_units_learn_by_the_bound_in_the_positive_phase():
    """Two patterns with flips of 15 %, by hidden units alone: log p nears the true one."""
    rng, v = np.random.default_rng(0), np.array(list(itertools.product([0, 1], repeat=4)))
    one, other = (np.abs(v - code).sum(1) for code in ([1, 1, 0, 0], [0, 0, 1, 1]))
    p = 0.5 * (0.15**one * 0.85 ** (4 - one) + 0.15**other * 0.85 ** (4 - other))
    rows = v[rng.choice(16, 400, p=p)].astype(np.float32)
    start = BoltzmannMachine.random(4, 3, key=2, scale=0.1)
    start = BoltzmannMachine(start.bias, None, start.weight, start.hidden_bias, start.hidden_weight)
    objective = ContrastiveDivergence(2, persistent=True)
    found = fit(start, {"x": rows}, Descent(objective, optax.adam(0.03)), epochs=150, key=0).energy
    score, entropy = log_prob(found, {"x": v}).value @ p, p @ np.log(p)
    assert entropy - 0.2 < score <= entropy + 1e-4  # independent bits: entropy - 0.51


# -- labels ----------------------------------------------------------------------------------------


def labelled(seed=0, hidden=None):
    machine = ClassRBM.random(3, 2, 3, key=seed, scale=1.5, hidden=hidden)
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda a: a + jnp.asarray(0.5 * rng.normal(size=a.shape), jnp.float32), machine)


@pytest.mark.parametrize("hidden", [None, RectifiedUnits(2)], ids=["binary", "rectified"])
def test_a_class_rbm_is_an_rbm_with_a_softmax_unit_for_the_label(hidden):
    """Every closed form equals the sum over the variables that are left out."""
    machine = labelled(1, hidden)
    values = {"x": jnp.array([1.0, 0.0, 1.0]), "y": jnp.array(2), "z": machine.spaces["z"].at(1)}
    for names in (("x",), ("x", "y"), ("z",), ("x", "z"), ("y", "z")):
        given = {n: values[n] for n in names}
        found, exact = evaluate(
            lambda given=given: (machine.free_energy(**given), enumerated_free_energy(machine, given))
        )
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
    for name, names in (("y", ("x",)), ("y", ("x", "z")), ("z", ("x", "y")), ("x", ("y", "z"))):
        given = {n: values[n] for n in names}
        space = machine.spaces[name]
        found, exact = evaluate(
            lambda given=given, name=name, space=space: (
                jax.vmap(machine.conditional(name, **given).log_prob)(space.values()),
                Energy.conditional(machine, name, **given).log_probs,
            )
        )
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)
    log_z, table = evaluate(lambda: (machine.log_partition(), -enumerated_free_energy(machine, {})))
    np.testing.assert_allclose(log_z, table, rtol=1e-5)
    if hidden is None:
        cold = machine.multiply(2.0)
        np.testing.assert_allclose(cold(**values), 2 * machine(**values), rtol=1e-5)


def test_labels_are_found_from_the_closed_form_by_any_objective():
    """x has two noisy copies of the label's code: at 5 % noise the Bayes rule errs in about 2 %."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    code = np.array([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 1]])
    x = ((code[y] + (rng.random((600, 6)) < 0.05)) % 2).astype(np.float32)
    data = {"x": x[:400], "y": y[:400]}
    for objective in (CrossEntropy(), ContrastiveDivergence(1)):
        start = ClassRBM.random(6, 5, 3, key=0, scale=0.1)
        found = fit(
            start, data, Descent(objective, optax.adam(0.05)), epochs=60, key=0, batch_size=100
        ).energy
        p = evaluate(lambda e=found: jax.vmap(lambda x: e.conditional("y", x=x).probs)(jnp.asarray(x[400:])))
        guess = np.asarray(p).argmax(1)
        assert (guess == y[400:]).mean() > 0.9


# -- inputs ----------------------------------------------------------------------------------------


def test_a_conditional_rbm_at_fixed_inputs_is_an_rbm():
    machine = jax.tree.map(lambda a: a + 0.3, ConditionalRBM.random(2, 3, 2, key=0, scale=1.0))
    u, x = jnp.array([0.5, -1.0]), jnp.array([1.0, 0.0, 1.0])
    plain = machine.at(u)
    np.testing.assert_allclose(plain.bias, machine.rbm.bias + machine.input_weight.T @ u, rtol=1e-5)
    hidden = machine.rbm.hidden_bias + machine.input_hidden_weight.T @ u
    np.testing.assert_allclose(plain.hidden_bias, hidden, rtol=1e-5)
    found = log_prob(machine, {"x": x}, given={"u": u})
    exact = evaluate(lambda: -plain.free_energy(x=x) - plain.log_partition())
    np.testing.assert_allclose(found.value, exact, rtol=1e-5)
    assert float(log_partition(machine.given(u=u)).value) == pytest.approx(
        float(plain.log_partition()), rel=1e-5
    )


@pytest.mark.parametrize(
    "objective",
    [ContrastiveDivergence(2), NegativeLogLikelihood(), PseudoLikelihood()],
    ids=["cd", "exact", "pseudo"],
)
def test_a_conditional_rbm_learns_which_rows_follow_which_inputs(objective):
    """x is 1100 after u = −1 and 0011 after u = 1: log p(x | u) near 0, where an RBM without u has −log 2."""
    u = np.repeat([[-1.0], [1.0]], 100, 0).astype(np.float32)
    x = np.where(u < 0, [[1, 1, 0, 0]], [[0, 0, 1, 1]]).astype(np.float32)
    start = ConditionalRBM.random(1, 4, 2, key=0)
    done = fit(start, {"u": u, "x": x}, Descent(objective, optax.adam(0.1)), epochs=80, key=0, batch_size=50)
    found = log_prob(done.energy, {"x": x[::100]}, given={"u": u[::100]}).value
    assert (found > -0.1).all()


def test_the_pseudo_likelihood_given_inputs_is_that_of_the_machine_there():
    """−Σ_i log p(x_i | x_¬i, u), from the table of p(x | u); the inputs themselves have no term."""
    machine = jax.tree.map(lambda a: a + 0.3, ConditionalRBM.random(2, 3, 2, key=0, scale=1.0))
    u, x = np.array([[0.5, -1.0]], np.float32), np.array([[1.0, 0.0, 1.0]], np.float32)
    batch = Batch({"u": jnp.asarray(u), "x": jnp.asarray(x)}, jnp.ones(1))
    found = evaluate(lambda: PseudoLikelihood()(machine, batch, None, jax.random.key(0))[0])
    plain = evaluate(lambda: machine.at(u[0]))
    minus_free = lambda x: -float(evaluate(lambda: plain.free_energy(x=jnp.asarray(x))))
    flips = [np.where(np.arange(3) == i, 1 - x[0], x[0]) for i in range(3)]
    expected = sum(np.logaddexp(minus_free(x[0]), minus_free(f)) - minus_free(x[0]) for f in flips)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    with pytest.raises(Unsuitable, match="'u'"):
        PseudoLikelihood().check(machine, {"x": x})


def test_a_class_rbm_starts_at_the_rates_of_pixels_and_labels():
    """Without weights, p(y) is the frequency of the labels, weighted, with half a count for each."""
    x = np.zeros((10, 3), np.float32)
    data = {"x": jnp.asarray(x), "y": jnp.asarray([0] * 6 + [1] * 3 + [2])}
    weight = jnp.asarray([1.0] * 9 + [3.0])
    start = evaluate(lambda: ClassRBM.random(3, 2, 3, key=0).initialise(jax.random.key(0), data, weight))
    rates = np.exp(start.label_bias) / np.exp(start.label_bias).sum()
    np.testing.assert_allclose(rates, np.array([6.5, 3.5, 3.5]) / 13.5, rtol=1e-5)


def test_persistent_chains_of_a_conditional_machine_raise():
    with pytest.raises(Unsuitable, match=r"does not model \['u'\], its inputs. Use persistent=False"):
        ContrastiveDivergence(persistent=True).check(
            ConditionalRBM.random(1, 2, 2, key=0), {"u": np.zeros((2, 1)), "x": np.zeros((2, 2))}
        )


def test_shapes_that_do_not_fit_are_named():
    rbm = RBM.random(3, 2, key=0)
    with pytest.raises(BadInput, match=r"label_weight.*\(4, 2\)"):
        ClassRBM(rbm, jnp.zeros((4, 3)), jnp.zeros(4))
    with pytest.raises(BadInput, match=r"input_hidden_weight.*\(5, 2\)"):
        ConditionalRBM(rbm, jnp.zeros((5, 3)), jnp.zeros((4, 2)))
    with pytest.raises(BadInput, match="visible_weight"):
        BoltzmannMachine(jnp.zeros(3), jnp.zeros((2, 2)))
    with pytest.raises(BadInput, match="hidden_bias"):
        BoltzmannMachine(jnp.zeros(3), None, jnp.zeros((3, 2)))
    assert ClassRBM.random(2, 2, 2, visible=SoftmaxUnits(3), key=0).spaces["x"].n_values == 9
