"""The hidden Markov chain against enumeration of its energy; properties of learning."""

from __future__ import annotations

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from quick import evaluate

from energax import fit, load, log_prob, posterior, sample, save
from energax.energies import Bernoullis, Gaussians
from energax.energies._emissions.categorical import Categoricals
from energax.energies._emissions.mixtures import Mixtures
from energax.energies._emissions.poisson import Poissons
from energax.energies._emissions.product import Product
from energax.energies._sequence.hmm import HiddenChain
from energax.energy import Energy, enumerated_free_energy
from energax.errors import BadInput, Unsuitable
from energax.infer import Enumeration, argmin, plan
from energax.infer._sequence.forward_backward import ForwardBackward
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.missing import Masked
from energax.spaces import Binary, Categorical, Real, Sequence

PI, A = np.array([0.6, 0.4]), np.array([[0.7, 0.3], [0.2, 0.8]])
B = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6]])


def weather(length=None, **options):
    return HiddenChain(jnp.asarray(PI), jnp.asarray(A), Categoricals(jnp.asarray(B)), length, **options)


@pytest.fixture(scope="module", autouse=True)
def in_double():
    with jax.enable_x64(True):
        yield


def test_everything_exact_agrees_with_enumeration():
    chain, x = weather(4), np.array([[0, 2, 1, 1], [2, 2, 0, 1]])
    whole = Masked(x, np.array([[1, 1, 0, 1], [1, 0, 0, 1]], bool))
    for given in (x, whole):
        asked = {"x": given}
        exact, brute = log_prob(chain, asked), log_prob(chain, asked, Enumeration())
        assert exact.method == "forward-backward" and exact.kind == "exact"
        np.testing.assert_allclose(exact.value, brute.value, rtol=1e-12)
    ours, brute = posterior(chain, {"x": x}), posterior(chain, {"x": x}, Enumeration())
    np.testing.assert_allclose(ours.marginals["z"], brute.marginals["z"], atol=1e-12)
    np.testing.assert_allclose(ours.joint("z"), brute.joint("z"), atol=1e-12)
    np.testing.assert_allclose(ours.log_evidence.value, brute.log_evidence.value, rtol=1e-12)
    pairs = brute.joint("z").reshape(2, 2, 2, 2, 2)
    np.testing.assert_allclose(ours.pairs[:, 0], pairs.sum((3, 4)), atol=1e-12)
    best, slow = argmin(chain, {"x": x}), argmin(chain, {"x": x}, Enumeration())
    assert best["z"].tolist() == slow["z"].tolist() == ours.mode["z"].tolist()
    np.testing.assert_allclose(best.energy, slow.energy)
    told = {"x": x, "z": Masked(np.zeros((2, 4), int), np.array([[0, 1, 0, 0]] * 2, bool))}
    np.testing.assert_allclose(log_prob(chain, told).value, log_prob(chain, told, Enumeration()).value)
    np.testing.assert_allclose(
        posterior(chain, told).marginals["z"],
        posterior(chain, told, Enumeration()).marginals["z"],
        atol=1e-12,
    )
    assert "forward-backward" in str(plan(posterior, chain, {"x": x}))


def test_log_z_is_zero_and_states_alone_have_their_probability():
    chain = weather(2)
    x = np.array([[a, b] for a in range(3) for b in range(3)])
    assert np.exp(log_prob(chain, {"x": x}).value).sum() == pytest.approx(1)
    z = jnp.array([1, 0])
    alone = evaluate(lambda: chain.free_energy(z=z))
    assert alone == pytest.approx(-np.log(PI[1] * A[1, 0]))
    np.testing.assert_allclose(alone, evaluate(lambda: enumerated_free_energy(chain, {"z": z})))


def test_worked_examples_of_the_textbooks(shared_data):
    told = json.loads((shared_data / "hmm" / "worked_examples.json").read_text())
    ice, rain, wiki = told["ice_cream_slp3"], told["umbrella_aima"], told["rainy_sunny_wikipedia"]
    chain = HiddenChain(ice["start"], ice["trans"], Categoricals(jnp.asarray(ice["emit_1_2_3"])), 3)
    x = np.array(ice["obs"]) - 1
    assert np.exp(log_prob(chain, {"x": x}).value) == pytest.approx(ice["likelihood"], rel=1e-12)
    np.testing.assert_allclose(
        posterior(chain, {"x": x}).marginals["z"][:, 0], ice["posterior_H"], rtol=1e-12
    )
    best = argmin(chain, {"x": x})
    assert [ice["states"][i] for i in best["z"]] == ice["viterbi_path"]
    assert np.exp(-best.energy) == pytest.approx(ice["viterbi_prob"])
    chain = HiddenChain(
        rain["start_day1"], rain["trans"], Categoricals(jnp.asarray(rain["emit_umbrella_none"])), 5
    )
    x = np.array(["UN".index(o) for o in rain["obs"]])
    assert log_prob(chain, {"x": x}).value == pytest.approx(rain["log_likelihood"], abs=1e-4)
    np.testing.assert_allclose(posterior(chain, {"x": x}).marginals["z"], rain["smoothed"], atol=1e-4)
    assert argmin(chain, {"x": x}).energy == pytest.approx(-rain["viterbi_logprob"])
    emission = Categoricals(jnp.asarray(wiki["emit_walk_shop_clean"]))
    chain = HiddenChain(wiki["start"], wiki["trans"], emission, 3)
    np.testing.assert_allclose(
        posterior(chain, {"x": np.arange(3)}).marginals["z"], wiki["posterior"], atol=2e-7, rtol=0
    )
    assert np.exp(log_prob(chain, {"x": np.arange(3)}).value) == pytest.approx(wiki["likelihood"])


def test_draws_have_the_frequencies_of_the_model():
    """3000 draws: each frequency within 4.5 standard errors, false alarm below 1e-4."""
    chain = weather(3)
    drawn = sample(chain, 3000, key=0)
    first = np.bincount(np.asarray(drawn["z"])[:, 0], minlength=2) / 3000
    assert abs(first[0] - 0.6) < 4.5 * np.sqrt(0.24 / 3000)
    stay = np.asarray(drawn["z"])
    rate = (stay[:, 1] == 0)[stay[:, 0] == 1].mean()
    assert abs(rate - 0.2) < 4.5 * np.sqrt(0.16 / (stay[:, 0] == 1).sum())
    seen = np.asarray(drawn["x"])[stay == 1]
    assert abs((seen == 2).mean() - 0.6) < 4.5 * np.sqrt(0.24 / len(seen))
    x = np.array([0, 2, 1])
    given = posterior(chain, {"x": x})
    paths = np.asarray(given.sample(3000, key=1)["z"])
    expected = given.marginals["z"][:, 1]
    assert np.all(np.abs(paths.mean(0) - expected) < 4.5 * np.sqrt(expected * (1 - expected) / 3000))


def ragged(rng, n=6):
    rows = [rng.integers(0, 3, rng.integers(1, 7)) for _ in range(n)]
    return rows, Sequence(Categorical(3)).pad(rows)


def test_em_raises_the_likelihood_of_ragged_rows_with_holes_and_keeps_zeros():
    rng = np.random.default_rng(0)
    rows, padded = ragged(rng)
    holes = Masked(padded.value, padded.observed & (rng.random(padded.shape) < 0.9))
    left_right = HiddenChain(
        jnp.array([1.0, 0, 0]),
        jnp.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1.0]]),
        Categoricals(jnp.asarray(rng.dirichlet(np.ones(3), 3))),
    )
    result = fit(left_right, {"x": holes}, EM(tol=0.0), key=0, epochs=8)
    losses = result.history["objective"]
    assert np.all(np.diff(losses) < 1e-12) and losses[-1] < losses[0] - 0.01
    zero = np.asarray(left_right.transition) == 0
    assert not np.asarray(result.energy.transition)[zero].any()
    assert np.asarray(result.energy.initial).tolist() == [1, 0, 0]
    energies = [evaluate(lambda r=r: left_right.free_energy(x=jnp.asarray(r))) for r in rows]
    alone = sum(map(float, energies)) / len(rows)
    first = fit(left_right, {"x": padded}, EM(), key=0, epochs=1).history["objective"][0]
    assert first == pytest.approx(alone)
    frozen = fit(left_right, {"x": padded}, EM(), key=0, epochs=2, freeze="transition").energy
    assert np.array_equal(frozen.transition, left_right.transition)
    assert not np.array_equal(frozen.emission.probs, left_right.emission.probs)


def test_known_states_make_learning_a_matter_of_counting():
    rng = np.random.default_rng(1)
    x, z = rng.integers(0, 3, (5, 6)), rng.integers(0, 2, (5, 6))
    learned = fit(weather(), {"x": x, "z": z}, EM(tol=0.0), key=0, epochs=1).energy
    moves = np.zeros((2, 2))
    np.add.at(moves, (z[:, :-1], z[:, 1:]), 1)
    np.testing.assert_allclose(learned.transition, moves / moves.sum(1, keepdims=True))
    np.testing.assert_allclose(learned.initial, np.bincount(z[:, 0], minlength=2) / 5)
    shown = np.zeros((2, 3))
    np.add.at(shown, (z, x), 1)
    np.testing.assert_allclose(learned.emission.probs, shown / shown.sum(1, keepdims=True))
    with_prior = weather(prior=2.0, initial_prior=1.0)
    learned = fit(with_prior, {"x": x, "z": z}, EM(tol=0.0), key=0, epochs=1).energy
    np.testing.assert_allclose(learned.transition, (moves + 2) / (moves + 2).sum(1, keepdims=True))


def test_hard_em_is_viterbi_training():
    x = np.random.default_rng(2).integers(0, 3, (4, 8))
    chain = weather()
    learned = fit(chain, {"x": x}, EM(hard=True, tol=0.0), key=0, epochs=1)
    paths = np.asarray(evaluate(lambda: jax.vmap(lambda row: chain.argmin(x=row)["z"])(jnp.asarray(x))))
    moves = np.zeros((2, 2))
    np.add.at(moves, (paths[:, :-1], paths[:, 1:]), 1)
    np.testing.assert_allclose(learned.energy.transition, moves / moves.sum(1, keepdims=True))
    best = evaluate(lambda: jax.vmap(lambda x, z: chain(x=x, z=z))(jnp.asarray(x), jnp.asarray(paths)))
    assert learned.history["objective"][0] == pytest.approx(np.mean(best))


class Coins(Energy):
    """A user's own emission: no `row_energies`, no M-step."""

    logits: jax.Array
    normalised = True

    @property
    def spaces(self):
        return {"x": Binary(2), "z": Categorical(2)}

    def __call__(self, *, x, z):
        return -jax.nn.log_sigmoid((2 * x - 1) * self.logits[z]).sum()


def test_an_emission_of_ones_own_is_summed_over_and_learned_by_descent():
    chain = HiddenChain(PI, A, Coins(jnp.array([[1.0, -1.0], [0.5, 2.0]])), 3)
    same = HiddenChain(PI, A, Bernoullis(jax.nn.sigmoid(chain.emission.logits)), 3)
    x = (np.random.default_rng(3).random((8, 3, 2)) < 0.5).astype(float)
    np.testing.assert_allclose(log_prob(chain, {"x": x}).value, log_prob(same, {"x": x}).value, rtol=1e-10)
    result = fit(chain, {"x": x}, Descent(NegativeLogLikelihood(), optax.adam(0.05)), key=0, epochs=30)
    assert result.history["objective"][-1] < result.history["objective"][0]
    assert np.asarray(result.energy.transition).sum(1) == pytest.approx(1)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    chain = weather(3, prior=0.5)
    save(chain, tmp_path / "chain")
    back = load(tmp_path / "chain")
    assert jax.tree.structure(back) == jax.tree.structure(chain) and eqx.tree_equal(back, chain)


def test_missing_observations_are_imputed_by_their_states():
    normal = Gaussians(jnp.array([[0.0, 0.0], [5.0, -5.0]]), jnp.broadcast_to(jnp.eye(2), (2, 2, 2)))
    chain = HiddenChain(PI, A, normal, 3)
    x = np.array([[5.0, np.nan], [np.nan, np.nan], [0.1, 0.0]])
    found = posterior(chain, {"x": x})
    np.testing.assert_allclose(found.mean["x"][0], [5, -5], atol=1e-3)
    np.testing.assert_allclose(found.mean["x"][1], found.marginals["z"][1] @ normal.means, atol=1e-9)


def test_bad_chains_and_impossible_sequences_are_refused():
    with pytest.raises(BadInput, match="transition"):
        HiddenChain(PI, [[0.7, 0.7], [0.2, 0.8]], Categoricals(B))
    with pytest.raises(BadInput, match="initial"):
        HiddenChain([0.6, 0.6], A, Categoricals(B))
    with pytest.raises(BadInput, match="states"):
        HiddenChain(np.full(3, 1 / 3), np.full((3, 3), 1 / 3), Categoricals(B))
    with pytest.raises(BadInput, match="prior"):
        weather(prior=-2.0)
    with pytest.raises(BadInput, match=r"p\(x \| z\)"):
        HiddenChain(PI, A, Coins)
    with pytest.raises(BadInput, match="length"):
        weather().draw(jax.random.key(0))
    sure = HiddenChain([1.0, 0.0], np.eye(2), Categoricals([[1.0, 0.0], [0.0, 1.0]]), 3)
    with pytest.raises(BadInput, match=r"probability zero.*step 1"):
        posterior(sure, {"x": [0, 1, 0]}, ForwardBackward())


# -- emissions -----------------------------------------------------------------------------------------


def emissions():
    rng = np.random.default_rng(5)
    normal = Gaussians(jnp.asarray(rng.normal(size=(4, 2))), jnp.broadcast_to(jnp.eye(2), (4, 2, 2)))
    two = Gaussians(jnp.asarray(rng.normal(size=(2, 1))), jnp.ones((2, 1, 1)))
    return {
        "categorical": (Categoricals(jnp.asarray(B)), rng.integers(0, 3, 30)),
        "columns": (
            Categoricals(jnp.asarray(rng.dirichlet(np.ones(3), (2, 2)))),
            rng.integers(0, 3, (30, 2)),
        ),
        "poisson": (Poissons(jnp.asarray(rng.uniform(1, 5, (2, 2)))), rng.poisson(3, (30, 2))),
        "mixtures": (Mixtures(normal, jnp.array([[0.3, 0.7], [0.6, 0.4]])), rng.normal(size=(30, 2))),
        "product": (
            Product((Categoricals(jnp.asarray(B)), two), [[1], [0]]),
            np.stack([rng.normal(size=30), rng.integers(0, 3, 30)], 1),
        ),
    }


@pytest.mark.parametrize("name", ["categorical", "columns", "poisson", "mixtures", "product"])
def test_an_emission_is_normalised_sums_out_what_is_missing_and_has_its_m_step(name):
    from scipy import stats

    emission, x = emissions()[name]
    of_rows = lambda emission, x: np.asarray(evaluate(lambda: emission.row_energies(x=x)))
    energies = of_rows(emission, jnp.asarray(x))
    assert energies.shape == (30, 2)
    np.testing.assert_allclose(evaluate(lambda: emission(x=jnp.asarray(x[3]), z=1)), energies[3, 1])
    if name == "categorical":
        np.testing.assert_allclose(np.exp(-energies), B.T[x], rtol=1e-12)
    if name == "poisson":
        rates = np.asarray(emission.rates)
        brute = -stats.poisson.logpmf(x[:, None], rates).sum(-1)
        np.testing.assert_allclose(energies, brute, rtol=1e-9)
    if name == "mixtures":
        means, w = np.asarray(emission.components.means).reshape(2, 2, 2), np.asarray(emission.weights)
        brute = sum(w[:, c] * stats.norm.pdf(x[:, None], means[:, c]).prod(-1) for c in range(2))
        np.testing.assert_allclose(energies, -np.log(brute), rtol=1e-9)
    if name == "product":
        means = np.asarray(emission.parts[1].means)[:, 0]
        parts = -np.log(B.T[x[:, 1].astype(int)]) - stats.norm.logpdf(x[:, :1], means)
        np.testing.assert_allclose(energies, parts, rtol=1e-9)
    # A missing row is a factor 1, and the M-step is a maximum of the expected log-likelihood.
    nothing = Masked(jnp.asarray(x), jnp.zeros(x.shape, bool))
    np.testing.assert_allclose(of_rows(emission, nothing), 0, atol=1e-12)
    share = np.random.default_rng(6).dirichlet(np.ones(2), 30)
    rows = {"x": jnp.asarray(x)}
    step = lambda e: evaluate(lambda: e.maximise(e.statistics(rows, jnp.asarray(share))))
    best = step(emission)
    value = lambda e: float((share * of_rows(e, jnp.asarray(x))).sum())
    assert value(best) <= value(emission)
    if name != "mixtures":  # its own posterior is one more hidden variable
        assert value(step(best)) == pytest.approx(value(best), rel=1e-9)
    draw = jax.vmap(lambda key: emission.draw(key, z=1)["x"])
    drawn = evaluate(lambda: draw(jax.random.split(jax.random.key(0), 500)))
    assert drawn.shape == (500, *x.shape[1:])
    # e of its own draws under z is on average below that under the other: Gibbs' inequality.
    mean = of_rows(emission, drawn).mean(0)
    assert mean[1] < mean[0]


def test_emissions_refuse_what_they_cannot_be():
    with pytest.raises(BadInput, match="probs"):
        Categoricals([[0.5, 0.6]])
    with pytest.raises(BadInput, match="rates"):
        Poissons([[0.0]])
    with pytest.raises(BadInput, match="weights"):
        Mixtures(Poissons([[1.0], [2.0]]), [[0.5, 0.6]])
    with pytest.raises(BadInput, match="columns"):
        Product((Categoricals(B), Categoricals(B)), [[0], [0]])


def test_em_refuses_an_emission_without_an_m_step_and_log_z():
    """One with log Z has an M-step by descent; for others the error names a learner."""

    class Plain(Energy):
        middle: jax.Array

        @property
        def spaces(self):
            return {"x": Real(1), "z": Categorical(2)}

        def __call__(self, *, x, z):
            return 0.5 * jnp.sum((x - self.middle[z]) ** 2)

    chain = HiddenChain([0.5, 0.5], [[0.7, 0.3], [0.3, 0.7]], Plain(jnp.zeros(2)), length=60)
    with pytest.raises(Unsuitable, match="NegativeLogLikelihood"):
        fit(chain, {"x": np.zeros((3, 60, 1))}, EM(), key=0, epochs=1)


@pytest.mark.parametrize("temperature", [1.0, 2.5, 0.5])
def test_at_any_temperature_ragged_rows_are_each_as_if_alone(temperature):
    """Against p^(1/T) of every path; at T ≠ 1 transitions do not sum to one, also past an end."""
    chain, lengths = weather(), np.array([4, 2, 1])
    x = np.array([[0, 2, 1, 1], [2, 0, 0, 0], [1, 0, 0, 0]])
    seen = np.arange(4) < lengths[:, None]
    found, value = evaluate(lambda: chain.expectations({"x": Masked(x, seen)}, temperature))
    for i, n in enumerate(lengths):
        paths = np.array(np.meshgrid(*[[0, 1]] * n, indexing="ij")).reshape(n, -1).T
        p = PI[paths[:, 0]] * np.prod(A[paths[:, :-1], paths[:, 1:]], 1) * np.prod(B[paths, x[i, :n]], 1)
        q = p ** (1 / temperature)
        np.testing.assert_allclose(value[i], temperature * np.log(q.sum()), rtol=1e-12)
        states = np.stack([q @ (paths == z) for z in (0, 1)], 1) / q.sum()
        np.testing.assert_allclose(found["states"][i, :n], states, atol=1e-12)
        assert not found["states"][i, n:].any()
        pairs = [
            [sum(q @ ((paths[:, :-1] == a) & (paths[:, 1:] == b))) for b in (0, 1)] if n > 1 else [0, 0]
            for a in (0, 1)
        ]
        np.testing.assert_allclose(found["pairs"][i], np.array(pairs) / q.sum(), atol=1e-12)


class Tagger(Energy):
    """A hidden chain whose variables are called words and tags."""

    chain: HiddenChain
    observed_name, state_name = "words", "tags"
    marginalises = frozenset({"words", "tags"})

    n_states = property(lambda self: self.chain.n_states)
    transition = property(lambda self: self.chain.transition)

    @property
    def spaces(self):
        return {"words": self.chain.spaces["x"], "tags": self.chain.spaces["z"]}

    def __call__(self, *, words, tags):
        return self.chain(x=words, z=tags)

    def logs(self):
        return self.chain.logs()

    def log_likelihoods(self, words=None, tags=None):
        return self.chain.log_likelihoods(words, tags)

    def coded_likelihoods(self, words=None, tags=None):
        return self.chain.coded_likelihoods(words, tags)

    def log_partition(self):
        return self.chain.log_partition()

    def conditional(self, name, **given):
        return self.chain.conditional("z", x=given["words"])

    def draw(self, key, *, words=None, tags=None):
        names = {"x": "words", "z": "tags"}
        return {names[k]: v for k, v in self.chain.draw(key, x=words, z=tags).items()}

    def impute_given(self, data, posterior):
        return {"words": self.chain.impute_given({"x": data["words"]}, posterior)["x"]}


def test_forward_backward_asks_the_energy_for_the_names_of_its_variables():
    normal = Gaussians(jnp.array([[0.0, 0.0], [5.0, -5.0]]), jnp.broadcast_to(jnp.eye(2), (2, 2, 2)))
    chain = HiddenChain(PI, A, normal, 3)
    tagger, method = Tagger(chain), ForwardBackward()
    x = np.array([[5.0, np.nan], [np.nan, np.nan], [0.1, 0.0]])
    theirs, ours = posterior(chain, {"x": x}), posterior(tagger, {"words": x}, method)
    np.testing.assert_array_equal(ours.marginals["tags"], theirs.marginals["z"])
    np.testing.assert_array_equal(ours.mean["words"], theirs.mean["x"])
    np.testing.assert_array_equal(ours.mode["tags"], theirs.mode["z"])
    np.testing.assert_array_equal(ours.pairs, theirs.pairs)
    np.testing.assert_array_equal(ours.joint("tags"), theirs.joint("z"))
    np.testing.assert_array_equal(ours.sample(4, key=0)["tags"], theirs.sample(4, key=0)["z"])
    whole = np.zeros((3, 2))
    assert argmin(tagger, {"words": whole}, method).energy == argmin(chain, {"x": whole}).energy
    assert log_prob(tagger, {"words": whole}, method).value == log_prob(chain, {"x": whole}).value
    with pytest.raises(Unsuitable, match="needs words, complete or in part"):
        posterior(tagger, {"tags": np.zeros(3, int)}, method)
