"""Intervals cover as often as they say; pairing removes what two models share."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from energax.errors import BadInput
from energax.estimate import Estimate
from energax.evaluate import bootstrap, hold_out, mean_interval, paired_difference

N_REPEATS = 2000


def covers_as_said(hits: int, level: float) -> bool:
    """A two-sided binomial test, false alarm 1e-4."""
    low, high = binom.ppf([5e-5, 1 - 5e-5], N_REPEATS, level)
    return low <= hits <= high


@pytest.mark.parametrize(("n", "level"), [(5, 0.95), (30, 0.8)])
def test_the_mean_interval_covers(n, level):
    X = np.random.default_rng(0).normal(3.0, 2.0, size=(N_REPEATS, n))
    hits = sum(low <= 3.0 <= high for low, high in (mean_interval(x, level) for x in X))
    assert covers_as_said(hits, level)


def test_the_mean_interval_covers_an_error_that_all_rows_share():
    """Few rows under one wrong log Z: neither Student's t nor the shared error may be forgotten."""
    rng = np.random.default_rng(3)
    X = rng.normal(3.0, 2.0, size=(N_REPEATS, 5)) + rng.normal(0.0, 2.0, size=(N_REPEATS, 1))
    rows = [Estimate(x, 2.0, "estimate", shared=2.0) for x in X]
    hits = sum(low <= 3.0 <= high for low, high in map(mean_interval, rows))
    assert hits / N_REPEATS >= 0.94  # conservative: half-widths add in quadrature


def test_the_bootstrap_agrees_with_theory_for_the_mean():
    x = np.random.default_rng(1).normal(size=400)
    low, high = bootstrap(x, key=0, n_resamples=4000)
    half = 1.96 * x.std() / 20
    # The quantiles of 4000 resamples have a standard error of about 0.03 of the half-width.
    np.testing.assert_allclose([low, high], [x.mean() - half, x.mean() + half], atol=0.15 * half)


def test_the_bootstrap_repeats_itself_and_takes_other_statistics():
    x = np.random.default_rng(1).exponential(size=200)
    assert bootstrap(x, np.median, key=3) == bootstrap(x, np.median, key=3)
    assert bootstrap(x, np.median, key=3) != bootstrap(x, np.median, key=4)
    low, high = bootstrap(x, np.median, key=3)
    assert low <= np.median(x) <= high


def test_pairing_sees_what_separate_intervals_cannot():
    rng = np.random.default_rng(2)
    hard = rng.normal(-20, 5, size=300)
    a, b = Estimate(hard + 0.2 + rng.normal(0, 0.1, 300)), Estimate(hard)
    low, high = paired_difference(a, b).interval()
    assert 0.15 < low < 0.2 < high < 0.25
    assert mean_interval(a.value)[0] < mean_interval(b.value)[1]  # apart they overlap


def test_the_interval_of_a_difference_covers_with_few_rows():
    """Five rows: Student's interval holds the truth as often as it says, the normal one would not."""
    rng = np.random.default_rng(5)
    hard = rng.normal(-20, 5, size=(N_REPEATS, 5))
    gaps = rng.normal(0.3, 1.0, size=(N_REPEATS, 5))
    found = [paired_difference(Estimate(h + g), Estimate(h)) for h, g in zip(hard, gaps, strict=True)]
    assert covers_as_said(sum(low <= 0.3 <= high for low, high in (d.interval() for d in found)), 0.95)
    normal = sum(abs(float(d) - 0.3) <= 1.96 * float(d.stderr) for d in found)
    assert not covers_as_said(normal, 0.95)


def test_the_difference_of_two_bounds_is_no_bound():
    a = Estimate(np.zeros(3), kind="lower bound")
    assert paired_difference(a, a).kind == "estimate"
    assert paired_difference(Estimate(np.zeros(3)), Estimate(np.ones(3))).kind == "exact"


def test_held_out_rows_are_apart_seeded_and_as_many_as_asked():
    train, held = hold_out(101, 0.2, key=0)
    assert len(held) == 20 and not set(train) & set(held) and len(train) + len(held) == 101
    again = hold_out(101, 0.2, key=0)
    assert (again[1] == held).all() and (hold_out(101, 0.2, key=1)[1] != held).any()
    assert len(hold_out(101, 7, key=0)[1]) == 7


@pytest.mark.parametrize("bad", [0.0, 1.0, -1, 1, 100, 0.999, True, "x", None])
def test_bad_splits_are_refused(bad):
    with pytest.raises(BadInput, match="test"):
        hold_out(100, bad, key=0)


def test_bad_input_at_every_door():
    with pytest.raises(BadInput):
        mean_interval([1.0])
    with pytest.raises(BadInput):
        mean_interval([1.0, 2.0], 1.5)
    with pytest.raises(BadInput):
        bootstrap([1.0], key=0)
    with pytest.raises(BadInput):
        bootstrap([1.0, 2.0], key=0, level=0)
    with pytest.raises(BadInput):
        paired_difference(Estimate(np.zeros(3)), Estimate(np.zeros(2)))
