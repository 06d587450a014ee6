"""Errors of wrong calls: a sentence of energax instead of an exception from inside NumPy, JAX or Python."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import optax
import pytest

from energax import (
    BadInput,
    Binary,
    Categorical,
    Energy,
    Intractable,
    Masked,
    Unsuitable,
    fit,
    log_partition,
    log_prob,
    plan,
    posterior,
    sample,
)
from energax.energies import RBM, BayesianNetwork, Categoricals, Gaussians, HiddenChain
from energax.graph import junction_tree
from energax.infer import Importance
from energax.learn import EM, Descent, NegativeLogLikelihood, ScoreMatching
from energax.spaces import Real

STATES = ("no", "yes")
NET = BayesianNetwork(
    {"rain": [0.8, 0.2], "wet": (("rain",), [[0.9, 0.1], [0.2, 0.8]])},
    states={"rain": STATES, "wet": STATES},
)
RBM_3 = RBM(jnp.ones((3, 2)) / 2, jnp.zeros(3), jnp.zeros(2))


class Spins(Energy):
    """Too many values to enumerate, and no closed form."""

    weight: jax.Array

    @property
    def spaces(self):
        return {"x": Binary(40)}

    def __call__(self, *, x):
        return -self.weight * jnp.sum(x[1:] * x[:-1])


class TwoHidden(Energy):
    scale: jax.Array

    @property
    def spaces(self):
        return {"x": Real(1), "a": Real(1), "b": Real(1)}

    def __call__(self, *, x, a, b):
        return self.scale * jnp.sum((x - a - b) ** 2)


WRONG = {
    "a list of one cause": (lambda: NET.effect("wet", rain=["yes"]), "rain: found shape"),
    "an intervention on a list": (lambda: NET.do(rain=["yes"]), "rain: found shape"),
    "names in a list": (lambda: posterior(NET).joint(["rain", "wet"]), r"Call joint\('rain', 'wet'\)"),
    "a class instead of an objective": (
        lambda: Descent(NegativeLogLikelihood, optax.adam(0.1)),
        "the class NegativeLogLikelihood",
    ),
    "a table of a wrong shape": (
        lambda: BayesianNetwork({"rain": [0.8, 0.2], "wet": (("rain",), np.full((3, 2), 0.5))}),
        "the table of wet: found 3 states of the parent rain",
    ),
    "cards that are no numbers": (
        lambda: BayesianNetwork.from_graph(nx.DiGraph([("a", "b")]), {"a": 2}),
        "cards: found None for 'b'",
    ),
    "cliques that are text": (lambda: junction_tree(["ab", "bc"]), "a sequence of variables"),
    "evidence in a dict": (lambda: posterior(NET, {"wet": {"a": 1}}), "wet: found a value of type dict"),
    "evidence of any object": (
        lambda: posterior(NET, {"wet": object()}),
        "wet: found a value of type object",
    ),
    "evidence in bytes": (lambda: posterior(NET, {"wet": b"yes"}), "wet: found a value of type bytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_meets_a_sentence(case):
    call, message = WRONG[case]
    with pytest.raises(BadInput, match=message):
        call()


def test_spaces_must_be_a_property():
    with pytest.raises(BadInput, match="Write @property above"):

        class Wrong(Energy):
            def spaces(self):
                return {"x": Binary(2)}

            def __call__(self, *, x):
                return x.sum()


def test_a_chain_without_a_length_says_so():
    chain = HiddenChain([0.5, 0.5], np.full((2, 2), 0.5), Categoricals(np.full((2, 2), 0.5)))
    with pytest.raises(Intractable, match="length="):
        sample(chain, 10, key=0)


def test_several_hidden_variables_are_not_recommended_an_elbo_of_all():
    with pytest.raises(Unsuitable, match="all but one of them"):
        fit(TwoHidden(jnp.ones(())), {"x": np.zeros((4, 1), "f")}, EM(), key=0)
    with pytest.raises(Unsuitable) as error:
        fit(TwoHidden(jnp.ones(())), {"x": np.zeros((4, 1), "f")}, Descent(ScoreMatching()), key=0)
    assert "ScoreFunction" not in str(error.value)


def test_a_graph_is_triangulated_for_its_junction_tree():
    graph = nx.DiGraph([("a", "c"), ("b", "c"), ("c", "d")])
    tree = junction_tree(graph)
    assert sorted(map(sorted, tree.cliques)) == [["a", "b", "c"], ["c", "d"]]
    assert len(junction_tree(nx.cycle_graph(4)).cliques) == 2


def test_a_mask_of_integers_is_a_mask():
    known = {"x": Masked(jnp.array([0.0, 1.0, 1.0]), jnp.array([1, 1, 0]))}
    exact = {"x": Masked(jnp.array([0.0, 1.0, 1.0]), jnp.array([True, True, False]))}
    np.testing.assert_allclose(log_prob(RBM_3, known).value, log_prob(RBM_3, exact).value)
    by_hand = np.logaddexp(*[log_prob(RBM_3, {"x": [0, 1, last]}).value for last in (0, 1)])
    np.testing.assert_allclose(log_prob(RBM_3, known).value, by_hand, rtol=1e-5)


def test_what_only_an_approximation_can_do_is_planned():
    for task, given in ((log_partition, None), (log_prob, {"x": np.zeros((5, 40))})):
        found = plan(task, Spins(jnp.ones(())), given)
        assert found.kind == "estimate" and "method=AnnealedImportance() and key=0" in found.why


def test_the_plan_counts_one_log_partition_for_all_rows():
    class Bump(Energy):
        @property
        def spaces(self):
            return {"x": Real(1)}

        def __call__(self, *, x):
            return jnp.sum(x**4)

    rows = {"x": np.zeros((1000, 1))}
    assert plan(log_prob, Bump(), rows, Importance(n_samples=500)).cost.evaluations == 1500


def test_labels_of_categorical_values_may_be_mixed_with_numbers():
    space = Categorical(2, labels=STATES)
    np.testing.assert_array_equal(space.check(np.array(["yes", 0], object)), [1, 0])


def test_one_missing_value_is_summed_out_in_its_own_row_only():
    """The objective of all rows is that of complete rows, and the sum over completions for the other one."""
    x = np.array([[0.0, 1, 1], [1, 0, 1], [1, 1, 1]], np.float32)
    hidden = x.copy()
    hidden[1, 2] = np.nan
    rows = log_prob(RBM_3, {"x": x}).value
    incomplete = np.logaddexp(*[log_prob(RBM_3, {"x": [1, 0, last]}).value for last in (0, 1)])
    learner = Descent(NegativeLogLikelihood(), optax.sgd(0.0))
    found = fit(RBM_3, {"x": hidden}, learner, key=0, epochs=1)
    np.testing.assert_allclose(found.objective, -(rows[0] + incomplete + rows[2]) / 3, rtol=1e-5)


def test_gaussians_take_a_table_by_name_only():
    with pytest.raises(BadInput, match="a dict"):
        log_prob(Gaussians(np.zeros((1, 2), "f"), np.eye(2, dtype="f")[None]), np.zeros((3, 2)))
