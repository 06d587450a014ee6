"""The verdict on draws reports each kind of problem, and none for good draws."""

import re

import numpy as np
import pytest

from energax.samplers import Draws

rng = np.random.default_rng(0)


def chains(values, **kwargs):
    return Draws({"x": values}, method="test", **kwargs)


def test_good_chains():
    draws = chains(rng.normal(size=(4, 500, 2)))
    assert draws.trusted and draws.verdict.startswith("no problem found") and (draws.rhat < 1.01).all()
    assert draws.n == 2000 and draws["x"].shape == (2000, 2)
    np.testing.assert_array_equal(draws["x"][:500], draws.chains["x"][0])


@pytest.mark.parametrize(
    ("values", "kwargs", "message"),
    [
        (rng.normal(size=(4, 500)) + 3 * np.arange(4)[:, None], {}, "the chains disagree"),
        (np.cumsum(rng.normal(size=(4, 500)), 1), {}, "the chains disagree"),
        (np.repeat(rng.normal(size=(4, 20)), 25, axis=1), {}, "fewer than 100 effective draws"),
        (rng.normal(size=(1, 500)), {}, "one chain cannot be compared"),
        (rng.normal(size=(4, 3)), {}, "too few draws"),
        (np.ones((4, 500)), {}, "all draws are the same"),
        (np.where(np.arange(500) == 7, np.inf, rng.normal(size=(4, 500))), {}, "diverged"),
        (rng.normal(size=(4, 500)), {"info": {"divergent": np.eye(4, 500) > 0}}, "4 moves diverged"),
        (rng.normal(size=(4, 500)), {"info": {"acceptance": np.full((4, 500), 0.01)}}, "1.0% of the moves"),
    ],
)
def test_trouble_is_seen(values, kwargs, message):
    draws = chains(values, **kwargs)
    assert message in draws.verdict and not draws.trusted


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        # Modes that chains never leave, and modes between which they rarely move.
        (
            rng.normal(size=(4, 500)) + 4 * np.array([[0], [0], [0], [1]]),
            "different regions.*Use ParallelTemp",
        ),
        (
            rng.normal(size=(4, 500)) + 9 * (np.arange(500) > [[99], [400], [300], [0]]),
            "separated modes.*TemperedS",
        ),
        (np.cumsum(rng.normal(size=(4, 500)), 1), "use more warmup or more draws, and check.*proper prior"),
        # Chains that go outwards all the time.
        (np.arange(500) * [[1], [-1], [0.9], [0.8]] + rng.normal(size=(4, 500)), "x drifts to.*improper"),
        (np.cumsum(1e3 * rng.normal(size=(4, 500)), 1), "improper.*proper prior"),
    ],
)
def test_advice_about_chains_that_disagree(values, advice):
    draws = chains(values)
    assert re.search(advice, draws.problem) and re.search(advice, draws.verdict)


def test_a_scale_that_shrinks_for_ever_is_named():
    """Draws of a density 1 / s: s comes to 10⁻³⁷, and moves diverge there."""
    s = 10 ** rng.uniform(-37, 1, (4, 500))
    values = {"m": rng.normal(size=(4, 500, 2)), "s": s}
    draws = Draws(values, method="NUTS", info={"divergent": s < 1e-36})
    assert re.search("moves diverged: s shrinks to numbers such as.*improper.*proper prior", draws.problem)


def test_a_variable_that_grows_for_ever_is_named():
    """A flat density: the chains come to 10³⁷ and all moves diverge; one chain hides that they disagree."""
    x = 1e37 * np.array([[3.0], [3.1], [3.2], [1.0]]) * rng.normal(size=(4, 500))
    draws = Draws({"m": rng.normal(size=(4, 500)), "x": x}, method="NUTS", info={"divergent": x > 0})
    assert re.search("moves diverged: x grows to numbers such as.*improper.*proper prior", draws.problem)


def test_divergent_moves_explain_chains_that_disagree():
    """Slow chains in a funnel: not separated modes, but steps that are too large for its neck."""
    values, divergent = np.cumsum(rng.normal(size=(4, 500)), 1), np.eye(4, 500) > 0
    draws = chains(values, info={"divergent": divergent})
    for text in (draws.problem, draws.verdict):
        assert re.search("the chains disagree.*4 moves diverged.*non-centred form", text)
        assert "separated modes" not in text
    stuck = chains(rng.normal(size=(4, 500)) + 9 * np.arange(4)[:, None], info={"divergent": divergent})
    assert "ParallelTempering" in stuck.problem


def test_one_chain_logs_nothing(caplog):
    with caplog.at_level("WARNING"):
        assert np.isnan(chains(rng.normal(size=(1, 500))).rhat).all()
    assert not caplog.records


def test_what_was_given_is_not_judged():
    values = rng.normal(size=(4, 500, 2))
    values[..., 1] = 3.0
    assert "same in every draw" in chains(values).verdict
    assert "same in every draw" not in chains(values, fixed={"x": np.array([False, True])}).verdict


def test_bias_is_repeated():
    assert chains(rng.normal(size=(4, 500)), caveat="biased by the step size").verdict.endswith("step size")


def test_arviz_reads_them():
    data = chains(rng.normal(size=(4, 50, 2)), info={"acceptance": np.ones((4, 50))}).to_arviz()
    assert data.posterior["x"].shape == (4, 50, 2) and data.sample_stats["acceptance_rate"].shape == (4, 50)
