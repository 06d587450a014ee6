"""Deep Boltzmann machines and deep belief networks against the sum over all their layers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate
from scipy.special import expit, logsumexp

from energax import Batch, fit, load, log_partition, log_prob, sample, save
from energax.energies import (
    RBM,
    DeepBeliefNetwork,
    DeepBoltzmannMachine,
    GaussianUnits,
    Recognition,
    RectifiedUnits,
    pretrain_rbms,
)
from energax.energies._boltzmann.greedy import TwinRBM
from energax.energies._boltzmann.mean_field import settle
from energax.energy import Energy, enumerated_free_energy
from energax.errors import BadInput, Unsuitable
from energax.estimate import Estimate
from energax.infer import AnnealedImportance, TopDown, VariationalBound
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood, UpDown


def bits(n):
    return np.array(list(itertools.product([0, 1], repeat=n)), float)


def shaken(energy, seed=0):
    rng = np.random.default_rng(seed)
    noise = lambda a: a + jnp.asarray(0.7 * rng.normal(size=a.shape), jnp.float32)
    return jax.tree.map(lambda a: noise(a) if isinstance(a, jax.Array) else a, energy)


@pytest.fixture(scope="module")
def dbm():
    return shaken(DeepBoltzmannMachine.random((3, 2, 2), key=0, scale=1.0))


@pytest.fixture(scope="module")
def dbn():
    return shaken(DeepBeliefNetwork.random((3, 2, 2), key=0, scale=1.0))


def dbm_table(machine):
    """−e of all layers, (8, 4, 4), from the definition."""
    w1, w2 = (np.asarray(w, float) for w in machine.weights)
    b, c, d = (np.asarray(b, float) for b in machine.biases)
    x, z1, z2 = bits(3), bits(2), bits(2)
    low, high = (x @ w1 @ z1.T + (x @ b)[:, None] + z1 @ c), z1 @ w2 @ z2.T + z2 @ d
    return low[:, :, None] + high[None]


def dbn_table(network):
    """log p(x, z1, z2) + log Z: log p(x | z1) and the RBM of z1 and z2."""
    bottom, top = network.layers[0], network.top
    x, z1, z2 = bits(3), bits(2), bits(2)
    on = expit(z1 @ np.asarray(bottom.weight).T + np.asarray(bottom.bias))
    log_p = np.log(on) @ x.T + np.log1p(-on) @ (1 - x).T
    above = (
        z1 @ np.asarray(top.weight) @ z2.T
        + (z1 @ np.asarray(top.bias))[:, None]
        + z2 @ np.asarray(top.hidden_bias)
    )
    return log_p.T[:, :, None] + above[None]


@pytest.mark.parametrize("kind", ["dbm", "dbn"])
def test_every_closed_form_equals_the_table(kind, dbm, dbn):
    energy, logs = (dbm, dbm_table(dbm)) if kind == "dbm" else (dbn, dbn_table(dbn))
    x, z1, z2 = (space.values() for space in energy.spaces.values())
    over = lambda function: jax.vmap(
        lambda x: jax.vmap(lambda a: jax.vmap(lambda b: function(x, a, b))(z2))(z1)
    )(x)
    table, f_x_z1, f_z1, f_z2, log_z = evaluate(
        lambda: (
            over(lambda x, a, b: -energy(x=x, z1=a, z2=b)),
            jax.vmap(lambda x: jax.vmap(lambda a: -energy.free_energy(x=x, z1=a))(z1))(x),
            jax.vmap(lambda a: -energy.free_energy(z1=a))(z1),
            jax.vmap(lambda b: -enumerated_free_energy(energy, {"z2": b}))(z2),
            energy.log_partition(),
        )
    )
    np.testing.assert_allclose(table, logs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(f_x_z1, logsumexp(logs, 2), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(f_z1, logsumexp(logs, (0, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(f_z2, logsumexp(logs, (0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(log_z, logsumexp(logs), rtol=1e-5)
    rows = np.asarray(x)
    found = log_prob(energy, {"x": rows})
    np.testing.assert_allclose(found.value, logsumexp(logs, (1, 2)) - logsumexp(logs), rtol=1e-4, atol=1e-5)
    assert found.kind == "exact"


def test_layers_of_a_deep_machine_given_their_neighbours(dbm):
    values = {"x": jnp.array([1.0, 0, 1]), "z1": jnp.array([0.0, 1]), "z2": jnp.array([1.0, 1])}
    for name in dbm.names:
        rest = {k: v for k, v in values.items() if k != name}
        space = dbm.spaces[name]
        found, exact = evaluate(
            lambda name=name, rest=rest, space=space: (
                jax.vmap(dbm.conditional(name, **rest).log_prob)(space.values()),
                Energy.conditional(dbm, name, **rest).log_probs,
            )
        )
        np.testing.assert_allclose(found, exact, rtol=1e-3, atol=1e-4)


def test_a_deep_machine_is_an_rbm_of_even_and_odd_layers():
    machine = shaken(DeepBoltzmannMachine.random((2, 3, 2, 2), key=1, scale=1.0))
    rbm = machine.bipartite()
    x, z1, z2, z3 = jnp.array([1.0, 0]), jnp.array([0.0, 1, 1]), jnp.array([1.0, 0]), jnp.array([0.0, 1])
    one, other = evaluate(
        lambda: (
            machine(x=x, z1=z1, z2=z2, z3=z3),
            rbm(x=jnp.concatenate([x, z2]), z=jnp.concatenate([z1, z3])),
        )
    )
    np.testing.assert_allclose(one, other, rtol=1e-5)
    found = log_partition(machine, AnnealedImportance(n_chains=50, n_steps=500), key=0)
    exact = float(evaluate(machine.log_partition))
    assert abs(float(found.value) - exact) < 4 * found.stderr + 1e-3


@pytest.mark.parametrize("kind", ["dbm", "dbn"])
def test_bounds_are_below_log_p_and_close_in_with_draws(kind, dbm, dbn):
    """400 draws: within 5 standard errors of log p, and the mean-field bound below it."""
    energy = dbm if kind == "dbm" else dbn
    rows = {"x": bits(3)}
    exact = log_prob(energy, rows).value
    many = log_prob(energy, rows, VariationalBound(400), key=0)
    assert many.kind == "lower bound"
    assert (np.abs(many.value - exact) < 5 * many.stderr + 1e-3).all()
    few = log_prob(energy, rows, VariationalBound() if kind == "dbm" else VariationalBound(1), key=1)
    if kind == "dbm":
        assert (few.value <= exact + 1e-5).all()
    assert few.value.mean() < many.value.mean()


def test_an_annealed_log_z_is_the_upper_end_of_its_bracket(monkeypatch):
    """A lower bound of log p needs an upper bound of log Z, also of the top of a network."""
    asked = []

    class Annealed:
        def bracket(self, energy, *, key):
            asked.append(energy)
            return Estimate(10.0, 0.0, "lower bound"), Estimate(50.0, 0.0, "upper bound")

    monkeypatch.setattr("energax.infer._variational.bound.AnnealedImportance", Annealed)
    machine = DeepBoltzmannMachine.random((25, 22, 2), key=0)  # both halves have more than 20 units
    x = np.zeros(25)
    found = log_prob(machine, {"x": x}, VariationalBound(), key=0)
    bound = float(evaluate(lambda: machine.free_energy_bound(x=jnp.asarray(x, jnp.float32))))
    assert found.kind == "lower bound" and np.isclose(found.value, -bound - 50.0)
    network = DeepBeliefNetwork.random((3, 22, 22), key=0)
    log_prob(network, {"x": np.zeros(3)}, VariationalBound(20), key=0)
    assert [type(energy) for energy in asked] == [DeepBoltzmannMachine, RBM]


def test_the_mean_field_bound_is_tight_for_weak_connections():
    """Without connections of the hidden layers the bound is F(x); its distance is quadratic in weak ones."""
    strong = shaken(DeepBoltzmannMachine.random((3, 2, 2), key=0, scale=1.0))
    x = jnp.asarray(bits(3), jnp.float32)
    for share, gap in ((0.0, 1e-5), (0.05, 2e-3)):
        weak = DeepBoltzmannMachine((strong.weights[0], share * strong.weights[1]), strong.biases)
        exact, bound = evaluate(
            lambda m=weak: (
                jax.vmap(lambda x: enumerated_free_energy(m, {"x": x}))(x),
                jax.vmap(lambda x: m.free_energy_bound(x=x))(x),
            )
        )
        assert (bound >= exact - 1e-5).all() and (bound - exact < gap).all()


def test_draws_from_the_top_down_have_the_rates_of_the_network(dbn):
    """Means of 4000 exact draws of 7 units within 4.5 standard errors: 1 in 20 000."""
    logs = dbn_table(dbn)
    p = np.exp(logs - logsumexp(logs))
    draws = sample(dbn, 4000, key=0)
    assert draws.exact
    expected = np.concatenate([p.sum((1, 2)) @ bits(3), p.sum((0, 2)) @ bits(2), p.sum((0, 1)) @ bits(2)])
    found = np.concatenate([np.asarray(draws[n]).mean(0) for n in ("x", "z1", "z2")])
    assert (np.abs(found - expected) < 4.5 * 0.5 / np.sqrt(4000)).all()
    # The bottom depends on the layer above it: their product too.
    both = np.asarray(draws["x"]).T @ np.asarray(draws["z1"]) / 4000
    exact = np.einsum("xab,xi,aj->ij", p, bits(3), bits(2))
    assert (np.abs(both - exact) < 4.5 * 0.5 / np.sqrt(4000)).all()


def test_proposals_have_the_probability_that_they_claim(dbn, dbm):
    x = jnp.array([1.0, 0, 1])
    values, log_q = evaluate(lambda: dbn.propose(jax.random.key(0), x=x))
    np.testing.assert_allclose(log_q, evaluate(lambda: dbn.log_proposal(x=x, **values)), rtol=1e-5)
    q = dbn.recognition[0]
    on = expit(np.asarray(x @ q.weight + q.bias))
    z = np.asarray(values["z1"])
    np.testing.assert_allclose(log_q, np.log(np.where(z, on, 1 - on)).sum(), rtol=1e-5)
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn, log_qs = evaluate(lambda: jax.vmap(lambda k: dbm.propose(k, x=x))(keys))
    codes = np.asarray(drawn["z2"]) @ [2, 1]
    for code in range(4):
        rate, p = (codes == code).mean(), np.exp(np.asarray(log_qs)[codes == code][0])
        assert abs(rate - p) < 4.5 * np.sqrt(p * (1 - p) / 4000)


PATTERNS = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1]])


def noisy_patterns(n=400, flips=0.05):
    rng = np.random.default_rng(0)
    x = PATTERNS[rng.integers(0, 4, n)]
    return ((x + (rng.random(x.shape) < flips)) % 2).astype(np.float32)


def test_a_proposal_of_two_directed_layers_has_the_probability_of_both():
    network = shaken(DeepBeliefNetwork.random((3, 2, 2, 2), key=0, scale=1.0))
    x, z = jnp.array([1.0, 0.0, 1.0]), jnp.asarray(bits(2), jnp.float32)
    values, log_q = evaluate(lambda: network.propose(jax.random.key(0), x=x))
    log_proposal = lambda z1, z2: network.log_proposal(x=x, z1=z1, z2=z2)
    np.testing.assert_allclose(log_q, evaluate(lambda: log_proposal(**values)), rtol=1e-5)
    every = evaluate(lambda: jax.vmap(lambda a: jax.vmap(lambda b: log_proposal(a, b))(z))(z))
    np.testing.assert_allclose(logsumexp(every), 0, atol=1e-5)


def test_a_deep_machine_learns_with_a_mean_field_and_a_persistent_phase():
    """Independent columns have −6 log 2 = −4.16; exact learning reaches −3.31 in as many epochs."""
    x = noisy_patterns(600, flips=0.12)
    start = DeepBoltzmannMachine.random((6, 5, 3), key=0, scale=0.3)
    learner = Descent(ContrastiveDivergence(3, persistent=True), optax.adam(0.02))
    done = fit(start, {"x": x}, learner, epochs=60, batch_size=100, key=0)
    assert log_prob(done.energy, {"x": x}).value.mean() > -3.5


def test_greedy_layers_then_up_down_raise_the_bound_of_the_network():
    x = noisy_patterns()
    stack = [RBM.random(6, 6, key=0), RBM.random(6, 4, key=1)]
    learner = Descent(ContrastiveDivergence(1), optax.adam(0.05))
    greedy = DeepBeliefNetwork.from_rbms(pretrain_rbms(stack, x, learner, key=0, epochs=15, batch_size=100))
    before = log_prob(greedy, {"x": x}).value.mean()
    tuned = fit(greedy, {"x": x}, Descent(UpDown(3), optax.adam(0.01)), epochs=40, batch_size=100, key=0)
    after = log_prob(tuned.energy, {"x": x}).value.mean()
    assert before > -3.7 and after > before + 0.05
    moved = tuned.energy.recognition[0].weight - tuned.energy.layers[0].weight
    assert np.abs(moved).max() > 0.01  # the two directions are untied


def saturated():
    """A network whose draws are certain: every unit copies the one below, or above."""
    copy = RBM(60.0 * jnp.eye(2), jnp.array([-25.0, -35.0]), jnp.full(2, -30.0))
    return DeepBeliefNetwork([copy], copy)


def test_phases_of_up_down_by_hand():
    """Draws are certain: z₁ = z₂ = x, and the top stays where it is. Rows of weight 0 do not count."""
    x, weight = jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), jnp.array([1.0, 3.0, 0.0])
    network, batch = saturated(), Batch({"x": x}, weight)
    top = jax.vmap(lambda z: network.top.free_energy(x=z))(x)
    mean = float(weight @ top) / 4
    terms, carry = evaluate(lambda: UpDown(2)(network, batch, None, jax.random.key(0)))
    assert carry is None
    np.testing.assert_allclose([terms["wake"], terms["top"], terms["sleep"]], [mean, -mean, 0], atol=1e-3)
    # Persistent chains stay as many as they were, and where they were, whatever the rows are.
    objective = UpDown(1, persistent=True)
    carry = evaluate(lambda: objective.init(network, Batch({"x": x[:2]}, jnp.ones(2)), jax.random.key(1)))
    terms, chains = evaluate(lambda: objective(network, batch, carry, jax.random.key(2)))
    assert np.array_equal(chains["x"], x[:2]) and np.array_equal(chains["z"], x[:2])
    np.testing.assert_allclose([terms["wake"], terms["top"]], [mean, -top[:2].mean()], rtol=1e-4)


def test_dreams_are_drawn_from_the_top_after_its_sweeps():
    """A top without couplings forgets where it began: dreams have the rates of its biases."""
    still = RBM(jnp.zeros((2, 2)), jnp.array([30.0, -30.0]), jnp.zeros(2))
    network = DeepBeliefNetwork(saturated().layers, still)
    batch = Batch({"x": jnp.array([[0.0, 1.0]])}, jnp.ones(1))
    gradient = evaluate(
        lambda: jax.grad(lambda n: UpDown(1)(n, batch, None, jax.random.key(0))[0]["sleep"])(network)
    )
    # z₁ of the dream is (1, 0), and so is x below it; q(z₁ | x) is right there, so that nothing is learned.
    np.testing.assert_allclose(gradient.recognition[0].bias, 0, atol=1e-6)
    wrong = DeepBeliefNetwork(network.layers, still, [Recognition(jnp.zeros((2, 2)), jnp.zeros(2))])
    gradient = evaluate(
        lambda: jax.grad(lambda n: UpDown(1)(n, batch, None, jax.random.key(0))[0]["sleep"])(wrong)
    )
    np.testing.assert_allclose(gradient.recognition[0].bias, [-0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(gradient.recognition[0].weight, [[-0.5, 0.5], [0, 0]], atol=1e-6)


def test_mean_field_rates_settle_at_a_fixed_point():
    rng = np.random.default_rng(0)
    coupling, field = 0.8 * rng.normal(size=(5, 5)), rng.normal(size=5)
    coupling = np.triu(coupling, 1) + np.triu(coupling, 1).T
    rates = evaluate(lambda: settle(jnp.asarray(coupling, jnp.float32), jnp.asarray(field, jnp.float32)))
    np.testing.assert_allclose(rates, expit(field + coupling @ np.asarray(rates)), atol=1e-4)


def test_greedy_layers_see_copies_weights_and_draws_of_the_layer_below(monkeypatch):
    """Copies of x at the bottom and of z at the top stand for the layers that are not there."""
    seen, checked = [], []
    check = lambda done, data, learner, *, weights=None: checked.append(weights)
    monkeypatch.setattr("energax.energies._boltzmann.greedy.check_phases", check)

    def record(start, data, learner, *, weights, **options):
        seen.append((start, data["x"], weights))
        return fit(start, data, learner, weights=weights, **options)

    monkeypatch.setattr("energax.energies._boltzmann.greedy.fit", record)
    stack = [RBM(20.0 * jnp.eye(3), jnp.zeros(3), jnp.full(3, -30.0)), *[RBM.random(3, 3, key=0)] * 2]
    x, weights = np.eye(3, dtype=np.float32), np.array([1.0, 2.0, 3.0], np.float32)
    options = {"key": 0, "weights": weights, "epochs": 1, "initialise": False}
    still = Descent(NegativeLogLikelihood(), optax.sgd(0.0))
    pretrain_rbms(stack, x, still, doubled=True, **options)
    assert [(s.n_visible_copies, s.n_hidden_copies) for s, _, _ in seen] == [(2, 1), (2, 2), (1, 2)]
    assert [rows.shape for _, rows, _ in seen] == [(3, 2, 3), (3, 2, 3), (3, 1, 3)]
    assert all(given is weights for _, _, given in seen)
    assert all(given is weights for given in checked)
    # The field of an active unit is 2 · 20 − 30 with both copies of x, 20 − 30 with one.
    assert np.array_equal(seen[1][1][:, 0], x) and np.array_equal(seen[1][1][:, 1], x)
    seen.clear()
    pretrain_rbms(stack[:2], x, still, **options)
    assert [type(s) for s, _, _ in seen] == [RBM, RBM] and np.array_equal(seen[1][1], 0 * x)


def test_a_deep_machine_of_rbms_has_their_weights_and_the_mean_of_two_inner_biases():
    low, high = (shaken(RBM.random(n, 2, key=0), seed) for n, seed in ((3, 1), (2, 2)))
    machine = DeepBoltzmannMachine.from_rbms([low, high])
    expected = (low.bias, (low.hidden_bias + high.bias) / 2, high.hidden_bias)
    for found, bias in zip(machine.biases, expected, strict=True):
        np.testing.assert_allclose(found, bias, rtol=1e-6)
    assert machine.weights[0] is low.weight and machine.weights[1] is high.weight


def test_the_likelihood_of_a_small_deep_machine_is_maximised_exactly():
    x = np.tile(PATTERNS[:2], (5, 1)).astype(np.float32)
    start = DeepBoltzmannMachine.random((6, 3, 2), key=0, scale=0.1)
    done = fit(start, {"x": x}, Descent(NegativeLogLikelihood(), optax.adam(0.1)), epochs=80, key=0)
    assert abs(done.objective - np.log(2)) < 0.05


def test_real_columns_below_binary_layers():
    network = shaken(DeepBeliefNetwork.random((2, 3, 2), key=0, scale=0.5, visible=GaussianUnits()))
    z1 = bits(3)
    draws = sample(network, 50, method=TopDown(), key=0)
    assert draws["x"].shape == (50, 2)
    log_p = evaluate(lambda: jax.vmap(lambda z: -network.free_energy(z1=z))(jnp.asarray(z1, jnp.float32)))
    weights = np.asarray(log_p) - float(evaluate(network.log_partition))
    mean = np.asarray(network.layers[0].weight @ z1.T + network.layers[0].bias[:, None]).T
    x = np.array([0.3, -0.5])
    exact = logsumexp(weights - 0.5 * ((x - mean) ** 2).sum(1) - np.log(2 * np.pi))
    np.testing.assert_allclose(log_prob(network, {"x": x}).value, exact, rtol=1e-4)


def test_deep_models_are_saved_and_bad_stacks_are_named(tmp_path, dbn):
    save(dbn, tmp_path / "dbn.safetensors")
    again = load(tmp_path / "dbn.safetensors")
    assert isinstance(again.recognition[0], Recognition) and again.spaces == dbn.spaces
    apart = [RBM.random(3, 2, key=0), RBM.random(4, 2, key=0)]
    learner = Descent(ContrastiveDivergence())
    for stack in (
        DeepBeliefNetwork.from_rbms,
        DeepBoltzmannMachine.from_rbms,
        lambda rbms: pretrain_rbms(rbms, np.zeros((2, 3)), learner, key=0),
    ):
        with pytest.raises(BadInput, match=r"rbms\[0\].*Binary\(2\) below Binary\(4\)"):
            stack(apart)
        with pytest.raises(BadInput, match="rbms"):
            stack([])
    with pytest.raises(BadInput, match=r"layers\[0\].*Binary\(2\) below Binary\(4\)"):
        DeepBeliefNetwork(apart[:1], apart[1])
    with pytest.raises(BadInput, match=r"recognition\[0\].*\(2, 3\)"):
        DeepBeliefNetwork(apart[:1], RBM.random(2, 2, key=0), [Recognition(jnp.zeros((2, 3)), jnp.zeros(3))])
    counts = [RBM.random(3, 2, key=0, hidden=RectifiedUnits(2))]
    with pytest.raises(BadInput, match=r"rbms\[0\].*RectifiedUnits.*binary"):
        DeepBoltzmannMachine.from_rbms(counts)
    with pytest.raises(BadInput, match=r"rbms\[0\].*RectifiedUnits.*binary"):
        pretrain_rbms(counts, np.zeros((2, 3)), learner, key=0, doubled=True)
    with pytest.raises(BadInput, match=r"weights\[1\].*\(3, 2\)"):
        DeepBoltzmannMachine((jnp.zeros((4, 3)), jnp.zeros((2, 2))), tuple(jnp.zeros(n) for n in (4, 3, 2)))
    with pytest.raises(BadInput, match="sizes"):
        DeepBeliefNetwork.random((4, 3), key=0)
    with pytest.raises(Unsuitable, match="UpDown needs recognition weights"):
        UpDown().check(RBM.random(2, 2, key=0), {"x": np.zeros((2, 2))})
    with pytest.raises(BadInput, match=r"data.*missing"):
        pretrain_rbms(
            [RBM.random(2, 2, key=0)], np.array([[np.nan, 1]]), Descent(ContrastiveDivergence()), key=0
        )


@pytest.mark.parametrize("copies", [(2, 1), (1, 2)])
def test_copies_with_shared_weights_are_a_machine_of_their_own(copies):
    """Closed forms of the copies that stand for a missing layer, by enumeration; inputs are doubled."""
    rbm = shaken(RBM.random(2, 2, key=0, scale=1.0))
    twin = TwinRBM(rbm, *copies)
    for name, other in (("x", "z"), ("z", "x")):
        value, space = twin.spaces[name].at(5 if twin.spaces[name].n_values > 4 else 2), twin.spaces[other]
        found, exact, p, q = evaluate(
            lambda name=name, other=other, value=value, space=space: (
                twin.free_energy(**{name: value}),
                enumerated_free_energy(twin, {name: value}),
                jax.vmap(twin.conditional(other, **{name: value}).log_prob)(space.values()),
                Energy.conditional(twin, other, **{name: value}).log_probs,
            )
        )
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(p, q, rtol=1e-3, atol=1e-4)
    x = jnp.array([[1.0, 0.0]])
    rows = jnp.tile(x, (copies[0], 1))
    field = np.asarray(copies[0] * (x @ rbm.weight) + rbm.hidden_bias)[0]
    np.testing.assert_allclose(twin.conditional("z", x=rows).mean[0], expit(field), rtol=1e-5)
