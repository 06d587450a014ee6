"""`Estimate`: arithmetic of values, standard errors and kinds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from energax import Estimate
from energax.errors import BadInput
from energax.estimate import KINDS

# The kinds of a + b and a − b, by the kinds of a and b.
SUM = {
    ("exact", "exact"): "exact",
    ("exact", "lower bound"): "lower bound",
    ("lower bound", "lower bound"): "lower bound",
    ("lower bound", "upper bound"): "estimate",
    ("upper bound", "upper bound"): "upper bound",
    ("estimate", "exact"): "estimate",
    ("estimate", "lower bound"): "estimate",
}
FLIP = {"lower bound": "upper bound", "upper bound": "lower bound"}


def test_kinds():
    for (a, b), kind in SUM.items():
        x, y = Estimate(1.0, kind=a), Estimate(2.0, kind=b)
        assert (x + y).kind == (y + x).kind == kind
        flipped = Estimate(2.0, kind=FLIP.get(b, b))
        assert (x - flipped).kind == kind
    for kind in KINDS:
        assert (Estimate(1.0, kind=kind) * -2).kind == FLIP.get(kind, kind)
        assert (Estimate(1.0, kind=kind) / 2).kind == kind == (3 + Estimate(1.0, kind=kind)).kind
        assert (3 - Estimate(1.0, kind=kind)).kind == FLIP.get(kind, kind)
    both_signs = Estimate([1.0, 2.0], kind="lower bound") * np.array([1, -1])
    assert both_signs.kind == "estimate"


numbers = st.floats(-1e3, 1e3)
errors = st.floats(0, 1e2)


@given(numbers, errors, numbers, errors, numbers)
def test_arithmetic(a, s, b, t, c):
    x, y = Estimate(a, s, "estimate"), Estimate(b, t, "estimate")
    for got, value, error in [
        (x + y, a + b, np.hypot(s, t)),
        (x - y, a - b, np.hypot(s, t)),
        (c * x, c * a, abs(c) * s),
        (-x, -a, s),
        (c - x, c - a, s),
        (np.float64(c) + x, c + a, s),
    ]:
        assert isinstance(got, Estimate)
        assert float(got) == pytest.approx(value, abs=1e-9) and float(got.stderr) == pytest.approx(
            error, abs=1e-9
        )


def test_mean_over_rows():
    """The spread between rows, or the error within rows if it is larger; weights are frequencies of rows."""
    values = np.array([1.0, 2.0, 4.0, 5.0])
    mean = Estimate(values).mean()
    assert float(mean) == 3 and float(mean.stderr) == pytest.approx(values.std(ddof=1) / 2)
    noisy = Estimate(values, 10.0, "estimate").mean()
    assert float(noisy.stderr) == pytest.approx(5.0) and noisy.kind == "estimate"
    assert float(Estimate(values).mean(weights=[1, 0, 0, 1])) == 3
    assert Estimate([2.0]).mean().stderr == np.inf  # no spread between rows can be estimated


def test_a_shared_error_does_not_average_away():
    rows = Estimate(np.arange(100.0)) - Estimate(5.0, 0.5, "estimate")
    assert rows.shared == 0.5 and rows[3].shared == 0.5
    alone = Estimate(np.arange(100.0)).mean()
    assert float(rows.mean().stderr) == pytest.approx(np.hypot(float(alone.stderr), 0.5))
    assert float(rows.sum().stderr) == pytest.approx(50.0)
    assert float((rows * 2).mean().stderr) == pytest.approx(2 * float(rows.mean().stderr))
    own = Estimate(np.zeros(100), 1.0, "estimate")
    assert own.shared == 0 and float(own.sum().stderr) == pytest.approx(10.0)


def test_interval_and_printing():
    low, high = Estimate(1.0, 2.0, "estimate").interval(0.95)
    assert (low, high) == pytest.approx((1 - 3.919928, 1 + 3.919928))
    assert repr(Estimate(1.0, 2.0, "lower bound")) == "1.000 ± 2.000 (lower bound)"
    assert repr(Estimate(1.0)) == "1.000 (exact)" and "3 values" in repr(Estimate([1.0, 2.0, 3.0]))
    with pytest.raises(BadInput, match="level"):
        Estimate(1.0).interval(1.0)


def test_the_interval_of_a_mean_is_students():
    """n rows have n − 1 degrees of freedom: SciPy's interval, also after sums, negation and scaling."""
    values = np.array([1.0, 2.0, 4.0, 5.0])
    mean = Estimate(values).mean()
    low, high = stats.t.interval(0.9, 3, values.mean(), stats.sem(values))
    assert mean.df == 3 and mean.interval(0.9) == pytest.approx((low, high))
    assert (2 * mean + 1).interval(0.9) == pytest.approx((2 * low + 1, 2 * high + 1))
    assert (1 - mean).interval(0.9) == pytest.approx((1 - high, 1 - low))
    assert Estimate([2.0]).mean().df is None and Estimate(1.0, 0.1).df is None
    assert Estimate([2.0], 0.1, "estimate").mean().interval() == (-np.inf, np.inf)
    assert Estimate([2.0, 9.0]).mean([1.0, 0.0]).interval() == (-np.inf, np.inf)


def test_weights_of_a_mean():
    """Integer weights repeat rows, except in the spread, which uses Σ w² (Kish)."""
    values = np.array([1.0, 4.0, 6.0])
    mean = Estimate(values).mean([2, 1, 1])
    assert float(mean) == pytest.approx(3.0)
    effective = 16 / 6
    spread = (2 * 4 + 1 + 9) / 4
    assert float(mean.stderr) == pytest.approx(np.sqrt(spread / (effective - 1)))
    for bad, message in (
        ([0, 0, 0], "not all 0"),
        ("abc", "one number per row"),
        ([1, 1], r"shape \(2,\)"),
        ([1, -1, 1], "-1.0 to 1.0"),
        ([1, np.nan, 1], "nan"),
    ):
        with pytest.raises(BadInput, match=f"weights: found.*{message}"):
            Estimate(values).mean(bad)
    with pytest.raises(BadInput, match="no rows"):
        Estimate([]).mean()


def test_behaves_as_a_number():
    x = Estimate([1.0, -3.0])
    np.testing.assert_allclose(x, [1, -3])
    assert (abs(x) <= 3).all() and (x > -4).all() and len(x) == 2 and float(x[0]) == 1
    assert Estimate(2.0) < 3 and Estimate(2.0) >= 2 and pytest.approx(2.0) == Estimate(2.0)


def test_invalid_arguments_raise():
    with pytest.raises(BadInput, match="kind"):
        Estimate(1.0, kind="guess")
    with pytest.raises(BadInput, match="stderr"):
        Estimate(1.0, -1.0)
    with pytest.raises(TypeError, match="plain number"):
        Estimate(1.0) * Estimate(2.0)
