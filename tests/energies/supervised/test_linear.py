"""Classifiers: the conditional is the softmax of the scores, and x is not modelled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax.energies import Linear, Scorer
from energax.energy import Energy
from energax.errors import BadInput

CLASSIFIERS = [Linear.random(4, 3, key=0, scale=1.0), Scorer.random(4, 3, key=0, width=5)]


@pytest.mark.parametrize("energy", CLASSIFIERS, ids=["linear", "scorer"])
def test_knowledge_equals_enumeration(energy):
    x = jnp.array([0.3, -1.0, 2.0, 0.5])
    generic = Energy.conditional(energy, "y", x=x)
    np.testing.assert_allclose(energy.conditional("y", x=x).probs, generic.probs, rtol=1e-5)
    np.testing.assert_allclose(energy.free_energy(x=x), Energy.free_energy(energy, x=x), rtol=1e-5)
    np.testing.assert_allclose(energy.energies(x=x), [energy(x=x, y=i) for i in range(3)], rtol=1e-6)


def test_a_classifier_says_nothing_of_x():
    energy = CLASSIFIERS[0]
    assert energy.inputs == {"x"} and not energy.knows("conditional", {"y"})
    with pytest.raises(BadInput, match="'y' given only 'x'"):
        energy.conditional("x", y=0)


def test_a_draw_follows_the_softmax():
    energy, x = CLASSIFIERS[0], jnp.array([0.5, 0.1, 0.2, -0.3])
    drawn = jax.vmap(lambda k: energy.draw(k, x=x)["y"])(jax.random.split(jax.random.key(0), 4000))
    share, p = np.bincount(drawn, minlength=3) / 4000, np.asarray(energy.conditional("y", x=x).probs)
    assert (np.abs(share - p) < 4 * np.sqrt(p * (1 - p) / 4000)).all()  # 4 standard errors: 2e-4 in all


def test_every_start_is_another():
    for energy in CLASSIFIERS:
        starts = [energy.initialise(jax.random.key(i), {}, None) for i in (0, 1)]
        leaves = [jax.tree.leaves(s)[0] for s in starts]
        assert not np.allclose(*leaves) and leaves[0].shape == jax.tree.leaves(energy)[0].shape


def test_shapes_that_do_not_fit():
    with pytest.raises(BadInput, match="one row per class"):
        Linear(jnp.zeros((3, 4)), jnp.zeros(2))
