"""Arguments of a wrong kind to kernels, attacks, learners and likelihoods raise `BadInput`."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from energax import energies, kernels, learn
from energax.errors import BadInput

LINE = energies.Linear(jnp.ones((2, 2)), jnp.zeros(2))
ATTACK = learn.FastGradientSign(0.1)
LOSS = learn.CrossEntropy()
X = np.zeros((3, 2), np.float32)

CALLS = {
    "points": lambda: kernels.RBF().matrix([["a"]]),
    "theta": lambda: kernels.RBF().with_theta("abc"),
    "terms": lambda: kernels.Sum(("a",)),
    "epsilon": lambda: learn.FastGradientSign("a"),
    "attacked energy": lambda: ATTACK(3, X, np.zeros(3, int)),
    "attacked x": lambda: ATTACK(LINE, "a", 0),
    "attacked y": lambda: ATTACK(LINE, X, "a"),
    "noise": lambda: learn.InputNoise(LOSS, "a"),
    "label smoothing": lambda: learn.CrossEntropy(label_smoothing="x"),
    "l1": lambda: learn.Proximal(LOSS, "a"),
    "on": lambda: learn.Proximal(LOSS, 1.0, on=5),
    "likelihood": lambda: energies.LinearModel(jnp.ones(2), jnp.zeros(()), "gauss"),
    "df": lambda: energies.StudentT("a"),
    "precision": lambda: energies.BayesianLinear("a", 1.0),
    "coefficients": lambda: energies.SupportVectorClassifier(kernels.RBF(), X, [1, 2, 3], 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_kind_of_argument_raises(name):
    with pytest.raises(BadInput):
        CALLS[name]()
