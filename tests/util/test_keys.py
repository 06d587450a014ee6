"""Keys: which values are keys, and that unrolled ones give the same numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax._util.keys import as_key, numpy_generator, unrolled_threefry_key
from energax.errors import BadInput

DRAWS = {
    "8 bits": lambda k: jax.random.bits(k, (7, 5), "uint8"),
    "16 bits": lambda k: jax.random.bits(k, (7, 5), "uint16"),
    "32 bits": lambda k: jax.random.bits(k, (7, 5), "uint32"),
    "64 bits": lambda k: jax.random.bits(k, (3,), "uint64"),
    "none": lambda k: jax.random.bits(k, (0, 3)),
    "one": lambda k: jax.random.uniform(k),
    "normal": lambda k: jax.random.normal(k, (11,)),
    "split": lambda k: jax.random.key_data(jax.random.split(k, (3, 2))),
    "folded": lambda k: jax.random.key_data(jax.random.fold_in(k, 2**31 + 5)),
    "by rows": lambda k: jax.vmap(lambda q: jax.random.uniform(q, (4,)))(jax.random.split(k, 5)),
    "in a loop": lambda k: jax.lax.fori_loop(
        0, 3, lambda i, s: s + jax.random.uniform(jax.random.fold_in(k, i), (2,)), jnp.zeros(2)
    ),
}


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only on a CPU is there another way")
@pytest.mark.parametrize("name", DRAWS)
def test_an_unrolled_key_draws_the_same(name):
    for seed in (0, 2**32 - 1):
        key = jax.random.key(seed)
        quick = unrolled_threefry_key(key)
        assert quick.dtype != key.dtype
        assert unrolled_threefry_key(quick).dtype == quick.dtype
        with jax.enable_x64(name == "64 bits"):
            draw = jax.jit(DRAWS[name])
            np.testing.assert_array_equal(draw(key), draw(quick))


def test_keys_of_other_generators_stay_as_they_are():
    key = jax.random.key(0, impl="rbg")
    assert unrolled_threefry_key(key) is key


def test_a_key_is_an_int_or_a_key():
    assert (jax.random.key_data(as_key(3)) == jax.random.key_data(jax.random.key(3))).all()
    assert (jax.random.key_data(as_key(jax.random.PRNGKey(3))) == jax.random.key_data(as_key(3))).all()
    for bad in (-1, 2**32, 1.5, True, "0", jax.random.split(jax.random.key(0), 2)):
        with pytest.raises(BadInput, match="key"):
            as_key(bad)


def test_numpy_draws_depend_on_the_key_and_the_path_alone():
    draw = lambda seed, *path: numpy_generator(as_key(seed), *path).random()
    assert draw(0, 1) == draw(0, 1)
    assert len({draw(0), draw(1), draw(0, 1), draw(0, 2), draw(0, 2, 1)}) == 5
