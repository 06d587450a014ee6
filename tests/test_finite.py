"""Numbering joint values and summing over them, in chunks of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.core import jaxprs_in_params
from quick import evaluate
from scipy.special import logsumexp
from scipy.stats import chisquare

from energax._util import sizes
from energax.errors import Intractable
from energax.finite import Assignments, draw, draw_one, enumeration_limit, log_sum_exp, table
from energax.spaces import Binary, Categorical, Real


def test_assignments_are_all_joint_values():
    joint = Assignments({"a": Binary(2), "b": Categorical(3), "c": Binary()})
    rows = evaluate(lambda: jax.vmap(joint.at)(jnp.arange(joint.n)))
    flat = np.column_stack([np.asarray(rows["a"]), np.asarray(rows["b"]), np.asarray(rows["c"])])
    assert joint.n == 24 and len(np.unique(flat, axis=0)) == 24
    assert (
        flat[0].tolist() == [0, 0, 0, 0]
        and flat[1].tolist() == [0, 0, 0, 1]
        and flat[-1].tolist() == [1, 1, 2, 1]
    )
    assert Assignments({}).n == 1 and Assignments({}).at(0) == {}


@settings(max_examples=8)
@given(st.integers(1, 40), st.integers(1, 12))
def test_chunks_of_any_size(n, chunk):
    """Values of table and log-sum-exp, and the gradient, do not depend on the chunk."""
    terms = np.random.default_rng(n).normal(size=40).astype(np.float32) * 5
    before, sizes.JOINT_VALUES = sizes.JOINT_VALUES, sizes.Limit(chunk, chunk)
    try:
        f = lambda t: log_sum_exp(lambda i: t[i], n)
        value, slope = evaluate(lambda: jax.value_and_grad(f)(jnp.asarray(terms)))
        doubled = evaluate(lambda: table(lambda i: 2 * i, n))
        np.testing.assert_array_equal(doubled, 2 * np.arange(n))
    finally:
        sizes.JOINT_VALUES = before
    np.testing.assert_allclose(value, logsumexp(terms[:n]), rtol=1e-5)
    slope = np.asarray(slope)
    np.testing.assert_allclose(slope[:n], np.exp(terms[:n] - logsumexp(terms[:n])), atol=1e-5)
    assert (slope[n:] == 0).all()


def test_limits():
    joint = Assignments({"a": Binary(12)})
    joint.check_size("it", "do less")
    with pytest.raises(
        Intractable, match=r"it would need a sum over 4,096 joint values.*limit of 100\. do less"
    ):
        joint.check_size("it", "do less", 100)
    with enumeration_limit(100), pytest.raises(Intractable):
        joint.check_size("it", "do less")
    with enumeration_limit(2**24):
        Assignments({"a": Binary(22)}).check_size("it", "do less")
    with pytest.raises(Intractable, match=r"about 10\^236"):
        Assignments({"a": Binary(784)}).check_size("it", "do less")
    with pytest.raises(Intractable, match="an integral over 'a' in Real"):
        Assignments({"a": Real()}).check_size("it", "do less")


# -- draws -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [1, 2, 5, 16, 97])
def test_draws_have_the_right_frequencies(m):
    """A χ² test at level 10⁻⁴, with a third of the values impossible."""
    rng = np.random.default_rng(m)
    p = rng.gamma(0.5, size=m) * (rng.random(m) < 0.67)
    p[0] += 0.1
    p /= p.sum()
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    n = 20_000
    found = np.asarray(draw(jax.random.key(m), jnp.asarray(log_p - 50, jnp.float32), n))
    counts = np.bincount(found, minlength=m)
    assert len(counts) == m and (counts[p == 0] == 0).all()
    often = p * n >= 5
    if often.sum() > 1:
        observed = np.append(counts[often], counts[~often].sum())
        expected = np.append(p[often] * n, p[~often].sum() * n)
        kept = expected > 0
        assert chisquare(observed[kept], expected[kept]).pvalue > 1e-4


def test_a_million_values_are_resolved_in_single_precision():
    """Uniform over 2²⁰ values: blocks, and values within blocks, are equally frequent (χ², level 10⁻⁴)."""
    n = 200_000
    found = np.asarray(draw(jax.random.key(0), jnp.zeros(2**20, jnp.float32), n))
    for counts in (np.bincount(found % 1024, minlength=1024), np.bincount(found // 1024, minlength=1024)):
        assert chisquare(counts).pvalue > 1e-4
    assert len(np.unique(found)) > 0.99 * 2**20 * (1 - np.exp(-n / 2**20))


def test_draws_need_memory_for_values_plus_draws():
    """Not for their product, as `jax.random.categorical` does; also through enumeration."""
    from energax import Energy
    from energax.infer._exact.enumeration import _draw_rows
    from energax.infer._exact.unknowns import find_unknowns
    from energax.infer._query import Query

    class Urn(Energy):
        logits: jax.Array

        @property
        def spaces(self):
            return {"x": Categorical(4096)}

        def __call__(self, *, x):
            return -self.logits[x]

    urn, n = Urn(jnp.zeros(4096)), 5000
    unknowns, rows = find_unknowns(Query(urn, {}))
    row = jax.tree.map(lambda a: a[0], rows)
    program = jax.make_jaxpr(lambda key: _draw_rows(row, key, urn, unknowns, n))(jax.random.key(0))
    assert _largest(program.jaxpr) <= 4 * (4096 + n)


def _largest(jaxpr) -> int:
    """The most numbers in an array of a program."""
    sizes_ = [v.aval.size for eqn in jaxpr.eqns for v in eqn.outvars if hasattr(v.aval, "size")]
    inner = [sub for eqn in jaxpr.eqns for sub in jaxprs_in_params(eqn.params)]
    return max(sizes_ + [_largest(getattr(sub, "jaxpr", sub)) for sub in inner], default=0)


def test_draw_one_has_the_given_probabilities():
    """Frequencies of 20 000 draws by a χ² test with an error rate of 1e-4; no impossible value is drawn."""
    p = np.array([0.0, 0.1, 0.0, 0.6, 0.3, 0.0])
    keys = jax.random.split(jax.random.key(3), 20_000)
    drawn = np.asarray(jax.vmap(lambda key: draw_one(key, jnp.log(jnp.asarray(p))))(keys))
    counts = np.bincount(drawn, minlength=len(p))
    assert counts[p == 0].sum() == 0 and len(counts) == len(p)
    assert chisquare(counts[p > 0], 20_000 * p[p > 0]).pvalue > 1e-4
