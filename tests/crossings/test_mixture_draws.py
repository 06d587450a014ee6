"""Draws from mixtures over several variables, given some of them, against tables of all values."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax import Binary, Categorical, Energy, Mixture, log_prob, posterior
from energax.programs import jit


class Pair(Energy):
    """A table over x and y, not normalised."""

    table: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(), "y": Categorical(3)}

    def __call__(self, *, x, y):
        return self.table[x.astype(int), y]


TABLES = np.array([[[0.0, 1.0, 2.0], [3.0, 0.5, 0.0]], [[2.0, 0.0, 1.0], [-2.0, -1.5, -1.0]]])
MIXTURE = Mixture([Pair(jnp.asarray(t)) for t in TABLES], weights=[0.7, 0.3])
N = 4000


def joint() -> np.ndarray:
    """p(x, y, z), (2, 3, 2), from the tables alone."""
    p = np.exp(-TABLES)
    p = p / p.sum((1, 2), keepdims=True)
    return np.moveaxis(p * np.array([0.7, 0.3])[:, None, None], 0, -1)


GIVEN = [{}, {"x": 1}, {"x": 0}, {"y": 2}, {"z": 1}, {"x": 1, "y": 0}, {"y": 1, "z": 0}, {"x": 1, "z": 1}]


@pytest.mark.parametrize("given", GIVEN, ids=lambda given: ",".join(given) or "nothing")
def test_draws_given_some_variables_have_the_frequencies_of_the_table(given):
    values = {k: jnp.asarray(v, jnp.float32 if k == "x" else jnp.int32) for k, v in given.items()}
    draw = jit(lambda keys: jax.vmap(lambda key: MIXTURE.draw(key, **values))(keys))
    drawn = draw(jax.random.split(jax.random.key(1), N))
    names, p = ("x", "y", "z"), joint()
    p = p[tuple(given.get(name, slice(None)) for name in names)]
    p = p / p.sum()
    rest = [name for name in names if name not in given]
    assert set(drawn) == set(rest)
    columns = [np.asarray(drawn[name]).astype(int) for name in rest]
    for cell in itertools.product(*(range(n) for n in p.shape)):
        share = np.mean(np.all([c == v for c, v in zip(columns, cell, strict=True)], axis=0))
        assert abs(share - p[cell]) < 4.5 * np.sqrt(p[cell] * (1 - p[cell]) / N) + 1e-9, (given, cell)


@pytest.mark.parametrize("name", ["x", "y"])
def test_log_p_of_both_is_that_of_one_plus_that_of_the_other_given_it(name):
    """log p(x, y) = log p(x) + log p(y | x) for every pair of values."""
    p = joint().sum(-1)
    rows = np.array(list(itertools.product(range(2), range(3))))
    data = {"x": rows[:, 0].astype(np.float32), "y": rows[:, 1]}
    other = "y" if name == "x" else "x"
    both = log_prob(MIXTURE, data).value
    one = log_prob(MIXTURE, {name: data[name]}).value
    rest = log_prob(MIXTURE, {other: data[other]}, given={name: data[name]}).value
    np.testing.assert_allclose(both, np.log(p).ravel(), rtol=1e-5)
    np.testing.assert_allclose(one + rest, both, rtol=1e-5)
    marginal = np.log(p.sum(1 if name == "x" else 0))[rows[:, 0 if name == "x" else 1]]
    np.testing.assert_allclose(one, marginal, rtol=1e-5)


def test_the_weights_of_components_given_one_variable():
    """p(z | x) sums y out under every component."""
    for x in (0, 1):
        truth = joint()[x].sum(0)
        found = posterior(MIXTURE, {"x": np.float32(x)}).marginals["z"]
        np.testing.assert_allclose(found, truth / truth.sum(), rtol=1e-5)
    free = evaluate(lambda: jnp.stack([MIXTURE.free_energy(x=jnp.float32(x)) for x in (0, 1)]))
    np.testing.assert_allclose(np.exp(-np.asarray(free)), joint().sum((1, 2)), rtol=1e-5)
