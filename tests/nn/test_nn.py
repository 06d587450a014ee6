"""Networks: reinitialisation keeps shapes and scales; encoders return the right distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax.errors import BadInput
from energax.nn import BernoulliEncoder, CategoricalEncoder, Encoder, Generator, mlp, reinitialise


def test_reinitialise_keeps_the_scale_of_every_layer():
    network = eqx.nn.Sequential(
        [
            eqx.nn.Linear(50, 40, key=jax.random.key(0)),
            eqx.nn.LayerNorm(40),
            eqx.nn.Conv1d(2, 30, 5, key=jax.random.key(1)),
        ]
    )
    other = reinitialise(network, 3)
    for i, fan_in in ((0, 50), (2, 10)):
        a, b = np.asarray(network[i].weight), np.asarray(other[i].weight)
        assert a.shape == b.shape and not np.allclose(a, b)
        assert np.isclose(b.std(), 1 / np.sqrt(3 * fan_in), rtol=0.1)  # of a uniform in ±1/√fan-in
        assert np.abs(b).max() <= 1 / np.sqrt(fan_in)
    assert (other[1].weight == 1).all()


def test_reinitialise_works_under_vmap():
    network = mlp(3, 2, key=0)
    starts = eqx.filter_vmap(lambda key: reinitialise(network, key).layers[0].weight)
    weights = np.asarray(evaluate(lambda: starts(jax.random.split(jax.random.key(0), 4))))
    assert weights.shape[0] == 4 and len(np.unique(weights[:, 0, 0])) == 4


def test_float64_is_kept():
    with jax.enable_x64(True):
        encoder, generator = Encoder.random(3, 2, key=0), Generator.random(3, 2, key=0)
        assert evaluate(lambda: encoder(x=jnp.ones(3)).mean).dtype == jnp.float64
        assert evaluate(lambda: generator.draw(jax.random.key(0))).dtype == jnp.float64


@pytest.mark.parametrize(
    ("build", "space"),
    [
        (lambda: BernoulliEncoder.random(4, 3, key=0), [0, 1]),
        (lambda: CategoricalEncoder.random(4, 5, 3, key=0), list(range(5))),
        (lambda: CategoricalEncoder.random(4, 5, key=0), list(range(5))),
    ],
    ids=["bernoulli", "several", "one"],
)
def test_discrete_encoders_draw_from_their_space(build, space):
    encoder = build()

    def draw():
        q = encoder(x=jnp.ones(4))
        z = q.sample(jax.random.key(0), (100,))
        return z, q.log_prob(z)

    z, log_prob = evaluate(draw)
    assert np.isin(np.asarray(z), space).all() and log_prob.shape == (100,)


def test_bad_input():
    with pytest.raises(BadInput, match="width"):
        mlp(2, 2, key=0, width=0)
    with pytest.raises(BadInput, match="n_values"):
        CategoricalEncoder.random(4, 1, key=0)
