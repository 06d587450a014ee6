"""The chosen methods, error messages of unsupported queries, and the shapes of results."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import Mixture, argmin, log_partition, log_prob, plan, posterior, sample
from energax._util import sizes
from energax.energies import RBM, Decoder, GaussianRBM, Gaussians, Linear, NeuralEnergy
from energax.energy import Energy
from energax.errors import BadInput, Intractable, Unsuitable
from energax.infer import (
    LBFGS,
    MCMC,
    Ancestral,
    AnnealedImportance,
    Enumeration,
    Exact,
    Importance,
    _map_rows,
)
from energax.programs import _cache
from energax.samplers import Gibbs, Langevin
from energax.spaces import Binary, Count

rbm = RBM(jnp.ones((4, 3)) / 3, jnp.zeros(4), jnp.zeros(3))
large = RBM(jnp.zeros((60, 50)), jnp.zeros(60), jnp.zeros(50))
bare = large + large  # without closed forms
two = Mixture(Gaussians(jnp.array([[0.0, 0.0], [3.0, 1.0]]), jnp.stack([jnp.eye(2)] * 2)))
bowl = NeuralEnergy(lambda x: 0.0 * x.sum(), 2, confinement=1.0)
line = Linear(jnp.array([[1.0], [-1.0]]), jnp.zeros(2))
decoder = Decoder(lambda z: z, 2)
bits, hole = {"x": [0, 1, 1, 0]}, {"x": [0.5, np.nan]}


@pytest.mark.parametrize(
    ("task", "energy", "given", "method", "kind"),
    [
        ("posterior", rbm, bits, Exact, "exact"),
        ("posterior", rbm, {}, Enumeration, "exact"),
        ("posterior", large, {}, MCMC, "estimate"),
        ("posterior", bowl, {}, MCMC, "estimate"),
        ("posterior", two, hole, Exact, "exact"),
        ("posterior", decoder, {"x": [0, 1]}, MCMC, "estimate"),
        ("argmin", rbm, bits, Exact, "exact"),
        ("argmin", rbm, {}, Enumeration, "exact"),
        ("argmin", bowl, {}, LBFGS, "estimate"),
        ("argmin", two, hole, LBFGS, "estimate"),
        ("log_prob", two, hole, Exact, "exact"),
        ("log_prob", rbm, bits, Enumeration, "exact"),
        ("log_prob", decoder, {"x": [0, 1]}, Importance, "lower bound"),
        ("log_prob", bowl, {"x": [0, 1]}, Importance, "estimate"),
        ("log_prob", large, {"x": np.zeros(60)}, AnnealedImportance, "estimate"),
        ("log_partition", large, {}, AnnealedImportance, "estimate"),
        ("log_partition", two, {}, Exact, "exact"),
        ("log_partition", rbm, {}, Enumeration, "exact"),
        ("log_partition", bowl, {}, Importance, "estimate"),
        ("sample", decoder, {}, Ancestral, "exact"),
        ("sample", large, {"x": np.zeros(60)}, Exact, "exact"),
        ("sample", rbm, {}, Enumeration, "exact"),
        ("sample", large, {}, MCMC, "estimate"),
        ("sample", bowl, {}, MCMC, "estimate"),
    ],
)
def test_the_choice(task, energy, given, method, kind):
    """Closed forms, else enumeration, else the automatic approximation, as `plan` says."""
    planned = plan(task, energy, given)
    assert isinstance(planned.method, method) and planned.kind == kind
    assert planned.why and task in str(planned) and "Cost" in str(planned)


def test_the_plan_counts():
    cost = plan("log_partition", RBM(jnp.zeros((9, 6)), jnp.zeros(9), jnp.zeros(6))).cost
    assert cost.joint_values == 64 and cost.evaluations == 64 and cost.n_bytes == 256


class Counting(Energy):
    @property
    def spaces(self):
        return {"x": Count()}

    def __call__(self, *, x):
        return 0.5 * x


ERRORS = [
    (
        lambda: argmin(bowl, {}, Enumeration()),
        Unsuitable,
        r"cannot enumerate the values of 'x'.*Use LBFGS\(\)",
    ),
    (lambda: argmin(rbm, bits, LBFGS()), Unsuitable, r"needs a real hidden variable.*Use Exact\(\)"),
    (
        lambda: argmin(rbm, bits, Importance()),
        Unsuitable,
        "does not implement argmin, only log_partition, log_prob",
    ),
    (
        lambda: posterior(rbm, {}, Langevin()),
        Unsuitable,
        r"Langevin needs real variables.*Use Enumeration\(\)",
    ),
    (lambda: sample(bowl, 3, method=Gibbs(), key=0), Unsuitable, r"conditional of 'x'.*Use NUTS\(\)"),
    (lambda: sample(rbm, 3, method=Ancestral(), key=0), Unsuitable, "needs exact draws"),
    (lambda: log_prob(bowl, {"x": [0, 1]}, Exact()), Unsuitable, r"needs log Z.*Use Importance\(\)"),
    (
        lambda: log_partition(bare),
        Intractable,
        "about 10\\^33 joint values, more than the limit of 1,048,576.*method=AnnealedImportance",
    ),
    (lambda: log_prob(bare, {"x": np.zeros(60)}), Intractable, "log Z"),
    (lambda: log_partition(large), BadInput, "Results by annealed importance are random; pass key=0"),
    (lambda: log_prob(large, {"x": np.full(60, np.nan)}, key=0), Intractable, "impute them, or leave out"),
    (
        lambda: sample(Counting(), 3, key=0),
        Intractable,
        r"Use an approximation: method=InverseTransform\(\), key=0",
    ),
    (lambda: argmin(large, {}), Intractable, r"posterior\(energy, given, Gibbs\(\), key=0\)\.mode"),
    (lambda: argmin(Counting(), {}), Intractable, r"infinite sum over 'x' in Count.*`argmin`\.$"),
    (lambda: log_prob(Counting(), {"x": 1}), Intractable, "infinitely many joint values"),
    (
        lambda: log_prob(bowl, {"x": [[0, 1], [0, np.nan]]}, key=0),
        Intractable,
        "NeuralEnergy does not sum out missing values of 'x': impute them, leave out the rows",
    ),
    (
        lambda: log_prob(line, {"y": 0}, given={"x": [np.nan]}),
        Intractable,
        "Linear does not sum out missing values of 'x'",
    ),
    (lambda: posterior(rbm, bits)["x"], BadInput, r"one of \['z'\]"),
    (lambda: posterior(two, hole).mode, Unsuitable, r"missing coordinates of \['x'\].*Use argmin"),
    (lambda: posterior(line, {}), Unsuitable, r"models \['y'\] given \['x'\].*Give values of \['x'\]"),
    (lambda: posterior(rbm, bits, 3), BadInput, "a method of energax.infer or a sampler"),
    (lambda: posterior(rbm, bits, "gibs"), BadInput, "one of exact, enumeration, .*gibbs"),
    (lambda: posterior(rbm, {**bits, "z": [0, 0, 1]}), BadInput, "at least one hidden or missing value"),
    (lambda: posterior(rbm, {"q": 1}), BadInput, r"the names \['q'\]; expected some of \['x', 'z'\]"),
    (lambda: posterior(rbm, [1, 2]), BadInput, "a dict from variable names"),
    (lambda: posterior("rbm", {}), BadInput, "an Energy"),
    (lambda: log_prob(rbm, {}), BadInput, "no variables"),
    (lambda: log_prob(rbm, {"x": np.zeros((0, 4))}), BadInput, "no rows"),
    (lambda: log_prob(rbm, {"x": np.zeros((2, 2, 4))}), BadInput, "one value or rows"),
    (lambda: log_prob(rbm, {"x": np.zeros((2, 4)), "z": np.zeros((3, 3))}), BadInput, "same number of rows"),
    (lambda: log_prob(rbm, {"x": [0, 1, 2, 0]}), BadInput, "zeros and ones"),
    (lambda: log_prob(bowl, {"x": [np.inf, 0]}, key=0), BadInput, "finite real numbers"),
    (lambda: log_prob(bowl, {"x": [0, 0]}), BadInput, "importance are random; pass key=0"),
    (lambda: log_prob(rbm, bits, given=bits), BadInput, "which are also in data"),
    (lambda: sample(rbm, 0, key=0), BadInput, ">= 1"),
    (lambda: sample(rbm, 3, key="a"), BadInput, "an int or one JAX key"),
    (lambda: sample(rbm, 3, method=Enumeration(), key=0, warmup=3), BadInput, "a sampler as method"),
    (lambda: plan("guess", rbm), BadInput, "one of argmin"),
    (lambda: plan(len, rbm), BadInput, "one of argmin"),
    (lambda: MCMC(Gibbs(), n_chains=0), BadInput, "n_chains"),
    (lambda: Importance(n_samples=0), BadInput, "n_samples"),
    (lambda: posterior(rbm, bits).joint("x"), BadInput, "finite hidden variables"),
    (lambda: posterior(rbm, bits).sample(0, key=0), BadInput, ">= 1"),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors_say_what_to_do(case):
    call, error, message = ERRORS[case]
    with pytest.raises(error, match=f"(?s){message}"):
        call()


def test_a_task_may_be_the_function_and_a_method_its_name():
    assert str(plan(log_prob, rbm, bits)) == str(plan("log_prob", rbm, bits))
    assert isinstance(plan(posterior, rbm, bits, "Enumeration").method, Enumeration)
    assert isinstance(plan(posterior, rbm, bits, "gibbs").method.sampler, Gibbs)
    named = log_prob(line, {"y": 0}, "enumeration", given={"x": [0.5]})
    assert float(named) == pytest.approx(-np.log1p(np.exp(-1.0)), abs=1e-5)
    assert plan(log_prob, line, data={"y": 0}, given={"x": [0.5]}, method="exact").kind == "exact"


@pytest.mark.parametrize("given", [bits, {}, {"x": np.array([[0, 1, 1, 0], [1, 1, 1, 1]])}])
def test_the_mode_of_an_exact_posterior_is_the_argmin(given):
    strong = RBM.random(4, 3, key=2, scale=2.0)
    found, best = posterior(strong, given).mode, argmin(strong, given)
    assert found.keys() == best.keys()
    for name, value in best.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_posterior_by_name():
    """The marginals of a finite variable, the mean of another one."""
    found = posterior(rbm, bits)
    np.testing.assert_array_equal(found["z"], found.marginals["z"])
    fitted = posterior(two, hole)
    np.testing.assert_array_equal(fitted["z"], fitted.marginals["z"])
    np.testing.assert_array_equal(fitted["x"], fitted.mean["x"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n", [1, 3, 10])
def test_as_many_draws_as_asked(n):
    """Four chains of equal length hold more than ten draws; ten are returned, and nothing warns."""
    for draws in (
        sample(large, n, key=0, warmup=5),
        sample(large, n, {"x": np.zeros((2, 60))}, Gibbs(), key=0),
    ):
        assert draws.n == n == len(draws["z"]) and draws.chains["z"].shape[0] == 4
        assert "unreliable" in draws.verdict
        assert draws.to_arviz().posterior["z"].shape[0] == 4


def test_one_example_and_rows():
    """A value with the shape of its space is one row; with one more axis, rows; one value serves all rows."""
    rows = np.array([[0, 1, 1, 0], [1, 1, 1, 1]])
    one, many = posterior(rbm, {"x": rows[1]}), posterior(rbm, {"x": rows})
    assert one.mean["z"].shape == (3,) and many.mean["z"].shape == (2, 3)
    np.testing.assert_allclose(many.mean["z"][1], one.mean["z"], rtol=1e-6)
    assert log_prob(rbm, {"x": rows[0]}).value.shape == () and len(log_prob(rbm, {"x": rows})) == 2
    mixed = log_prob(rbm, {"x": rows, "z": [1, 0, 1]})
    np.testing.assert_allclose(mixed.value, log_prob(rbm, {"x": rows, "z": [[1, 0, 1]] * 2}).value)
    assert sample(rbm, 7, {"x": rows}, key=0)["z"].shape == (7, 2, 3)
    assert sample(rbm, 7, {"x": rows[0]}, key=0)["z"].shape == (7, 3)
    assert argmin(rbm, {"x": rows})["z"].shape == (2, 3)


def test_exact_knowledge_agrees_with_enumeration():
    rows = {"x": np.array([[0, 1, 1, 0], [1, 1, 1, 1]])}
    known, summed = posterior(rbm, rows, Exact()), posterior(rbm, rows, Enumeration())
    np.testing.assert_allclose(known.marginals["z"], summed.marginals["z"], atol=1e-6)
    np.testing.assert_allclose(known.joint("z"), summed.joint("z"), atol=1e-6)
    np.testing.assert_allclose(known.log_evidence, summed.log_evidence, atol=1e-6)
    best = argmin(rbm, rows, Exact())
    np.testing.assert_allclose(best.energy, argmin(rbm, rows, Enumeration()).energy, rtol=1e-6)


def test_classifier_speaks_of_y_given_x():
    data = {"x": [[1.0], [-2.0]], "y": [0, 1]}
    truth = [-np.log1p(np.exp(-2.0)), -np.log1p(np.exp(-4.0))]
    np.testing.assert_allclose(log_prob(line, data).value, truth, rtol=1e-5)
    np.testing.assert_allclose(log_prob(line, {"y": [0, 1]}, given={"x": data["x"]}).value, truth, rtol=1e-5)
    assert argmin(line, {"x": [[1.0], [-2.0]]})["y"].tolist() == [0, 1]


def test_gaussian_mixture_fills_holes():
    """p(z | observed), E[x | observed] and draws of x, against the closed form for unit covariances."""
    post = posterior(two, {"x": [0.5, np.nan]})
    odds = np.exp(-0.5 * np.array([0.25, 6.25]))
    p = odds / odds.sum()
    np.testing.assert_allclose(post.marginals["z"], p, rtol=1e-5)
    np.testing.assert_allclose(post.mean["x"], [0.5, p[1]], rtol=1e-5)
    drawn = post.sample(4000, key=0)
    assert drawn.exact and (drawn["x"][:, 0] == np.float32(0.5)).all()
    # Five standard errors of 4000 draws: wrong once in a million.
    assert abs(drawn["x"][:, 1].mean() - p[1]) < 5 * np.sqrt((1 + p[0] * p[1]) / 4000)
    assert argmin(two, {"x": [0.5, np.nan]})["x"] == pytest.approx([0.5, 0.0], abs=1e-3)


def test_partly_missing_real_values_by_gibbs():
    rbm = GaussianRBM(jnp.zeros((2, 2)), jnp.array([1.0, -1.0]), jnp.zeros(2))
    post = posterior(rbm, {"x": [0.0, np.nan]}, key=0)
    assert post.method == "Gibbs" and post.mean["x"][0] == 0 and "1 coordinates" not in post.verdict
    assert abs(post.mean["x"][1] + 1) < 0.15


def test_a_second_query_compiles_nothing():
    """Other parameters, other rows, another number of rows below the same power of two: no new trace."""
    ask = lambda scale, n: log_prob(
        RBM(scale * rbm.weight, rbm.bias, rbm.hidden_bias), {"x": np.ones((n, 4))}
    )
    ask(1.0, 5)
    programs = lambda: {key for key in _cache._programs if key[0] is _map_rows._vmap_rows}
    before = programs()
    ask(2.0, 7)
    ask(0.5, 8)
    assert before and programs() == before


def test_float64():
    with jax.enable_x64(True):
        wide = RBM(jnp.asarray(np.full((4, 3), 1 / 3)), jnp.zeros(4), jnp.zeros(3))
        assert wide.weight.dtype == jnp.float64
        value = log_prob(wide, {"x": np.array([0.0, 1, 1, 0])})
        assert value.value.dtype == np.float64
        total = sum(np.exp(log_prob(wide, {"x": np.asarray(Binary(4).values())}).value))
        assert abs(total - 1) < 1e-12
        assert posterior(wide, bits).mean["z"].dtype == np.float64


def test_the_plan_of_a_conditional_is_what_log_prob_does():
    """A classifier's x is given and not data, in both calls; methods are used and rejected in both."""
    x, y = {"x": [[1.0], [-2.0]]}, {"y": [0, 1]}
    for planned, done in (
        (plan("log_prob", line, {**x, **y}), log_prob(line, {**x, **y})),
        (plan("log_prob", line, data=y, given=x), log_prob(line, y, given=x)),
        (
            plan("log_prob", rbm, data={"z": [0, 1, 1]}, given=bits),
            log_prob(rbm, {"z": [0, 1, 1]}, given=bits),
        ),
        (
            plan("log_prob", rbm, data={"z": [0, 1, 1]}, given=bits, method=Enumeration()),
            log_prob(rbm, {"z": [0, 1, 1]}, Enumeration(), given=bits),
        ),
    ):
        assert planned.kind == done.kind == "exact" and planned.method.label == done.method
        assert "log Z cancels" in str(planned)
    for ask in (plan, lambda task, energy, data, method: log_prob(energy, data, method, key=0)):
        with pytest.raises(Unsuitable, match="no exact free energy"):
            ask("log_prob", line, {**x, **y}, Importance())
    with pytest.raises(BadInput, match="only log_prob takes data"):
        plan("posterior", rbm, data=bits)


def test_the_log_evidence_needs_a_key_if_it_is_random():
    assert float(posterior(rbm, bits).log_evidence) == pytest.approx(float(log_prob(rbm, bits)), abs=1e-6)
    assert float(posterior(rbm, {}).log_evidence) == 0  # nothing is given
    flat = GaussianRBM(jnp.zeros((2, 2)), jnp.zeros(2), jnp.zeros(2))
    both = flat + flat  # has no closed log Z
    with pytest.raises(BadInput, match=r"posterior\(\.\.\., key=0\)"):
        _ = posterior(both, {"x": [0.0, 1.0]}).log_evidence


def test_holes_are_filled_in_chunks(monkeypatch):
    """Rows imputed in chunks equal rows imputed one by one."""
    x = np.random.default_rng(0).normal(size=(20, 2))
    x[np.arange(20), np.arange(20) % 2] = np.nan
    alone = [posterior(two, {"x": row}).mean["x"] for row in x[:3]]
    monkeypatch.setattr(_map_rows, "QUERY_NUMBERS", sizes.Limit(64, 64))
    together = posterior(two, {"x": x}).mean["x"]
    np.testing.assert_allclose(together[:3], alone, rtol=1e-5, atol=1e-6)
    assert together.shape == (20, 2) and np.isfinite(together).all()


@pytest.mark.parametrize("task", ["argmin", "posterior", "log_prob", "log_partition", "sample"])
def test_a_parameter_that_is_nan_raises(task):
    import energax
    from energax import BadInput
    from energax.energies import RBM

    broken = RBM(jnp.zeros((2, 2)), jnp.array([0.0, jnp.nan]), jnp.zeros(2))
    calls = {
        "argmin": lambda: energax.argmin(broken, {"x": [0, 1]}),
        "posterior": lambda: energax.posterior(broken, {"x": [0, 1]}),
        "log_prob": lambda: energax.log_prob(broken, {"x": [0, 1]}),
        "log_partition": lambda: energax.log_partition(broken),
        "sample": lambda: energax.sample(broken, 2, key=0),
    }
    with pytest.raises(BadInput, match="bias: found a parameter that is NaN"):
        calls[task]()


@pytest.mark.parametrize("ask", [posterior, argmin])
def test_an_input_must_be_known_whole(ask):
    """An energy has no distribution of its inputs: hidden or partly missing ones cannot be summed out."""
    linear = Linear.random(2, 3, key=0)
    for given in ({"y": 1}, {"x": [np.nan, 1.0], "y": 1}):
        with pytest.raises(Unsuitable, match=r"given \['x'\] and nothing else. Give values of \['x'\]"):
            ask(linear, given)
