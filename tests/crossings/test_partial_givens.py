"""log p(x, y) = log p(x) + log p(y | x), crossed with missing values, masks, padded models and precision."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from energax import Mixture, log_prob
from energax.energies import (
    RBM,
    BayesianNetwork,
    Bernoullis,
    Categoricals,
    Diagonal,
    Gaussians,
    HiddenChain,
    Linear,
)
from energax.missing import Masked

RNG = np.random.default_rng(5)
N = 6


def table(*shape):
    values = RNG.random(shape) + 0.2
    return values / values.sum(-1, keepdims=True)


THETA = {
    "GaussianMixture": (table(2), RNG.normal(size=(2, 3)), RNG.uniform(0.5, 2, (2, 3))),
    "BernoulliMixture": (table(2), RNG.uniform(0.1, 0.9, (2, 3))),
    "Chain": (table(2), table(2, 2), table(2, 3)),
    "RBM": (RNG.normal(size=(3, 2)), RNG.normal(size=3), RNG.normal(size=2)),
    "Network": (table(2), table(2, 3), table(2, 3, 2)),
    "Linear": (RNG.normal(size=(3, 3)), RNG.normal(size=3)),
}
BUILD = {
    "GaussianMixture": lambda w, m, v: Mixture(Gaussians(m, Diagonal(v)), w),
    "BernoulliMixture": lambda w, p: Mixture(Bernoullis(p), w),
    "Chain": lambda i, t, p: HiddenChain(i, t, Categoricals(p)),
    "RBM": RBM,
    "Network": lambda a, b, c: BayesianNetwork({"x": a, "y": ("x", b), "z": (("x", "y"), c)}),
    "Linear": Linear,
}
BITS = (RNG.random((N, 3)) < 0.5).astype(float)
ROWS = {
    "GaussianMixture": {"x": RNG.normal(size=(N, 3)), "z": RNG.integers(0, 2, N)},
    "BernoulliMixture": {"x": BITS, "z": RNG.integers(0, 2, N)},
    "Chain": {"x": RNG.integers(0, 3, (N, 4)).astype(float), "z": RNG.integers(0, 2, (N, 4))},
    "RBM": {"x": BITS, "z": (RNG.random((N, 2)) < 0.5).astype(float)},
    "Network": {"z": RNG.integers(0, 2, N).astype(float), "y": RNG.integers(0, 3, N), "x": np.arange(N) % 2},
    "Linear": {"x": RNG.normal(size=(N, 3)), "y": RNG.integers(0, 3, N)},
}
#: The parts with `pad`; a missing value of a classifier's input has no meaning.
PADS = ("GaussianMixture", "BernoulliMixture", "Chain")
FEATURES = ("nan", "masks", "padding", "float32")
CASES = [
    (name, block)
    for name in THETA
    for block in itertools.chain([()], itertools.combinations(FEATURES, 2))
    if (name in PADS or "padding" not in block) and (name != "Linear" or not {"nan", "masks"} & set(block))
]


def problem(name, block):
    """(energy, the variable that may have missing values, its rows, the other variables)."""
    dtype = np.float32 if "float32" in block else np.float64
    energy = BUILD[name](*(jnp.asarray(a, dtype) for a in THETA[name]))
    energy = energy.pad(3) if "padding" in block else energy
    first, *others = ROWS[name]
    x = ROWS[name][first].copy()
    if "nan" in block:
        x[np.random.default_rng(1).random(x.shape) < 0.3] = np.nan
    cast = lambda a: a.astype(dtype) if a.dtype == float else a
    if "masks" in block:
        rows = Masked(cast(np.where(np.isnan(x), 1.0, x)), ~np.isnan(x))
    else:
        rows = cast(x)
    return energy, first, rows, {n: cast(ROWS[name][n]) for n in others}


@pytest.mark.parametrize(("name", "block"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v))
def test_the_chain_rule(name, block):
    with jax.enable_x64(True):
        energy, first, x, rest = problem(name, block)
        if energy.inputs:
            values = np.arange(3)
            each = [log_prob(energy, {"y": np.full(N, v)}, given={"x": x}).value for v in values]
            np.testing.assert_allclose(np.exp(each).sum(0), 1, rtol=1e-5)
            np.testing.assert_allclose(
                log_prob(energy, {"x": x, **rest}).value, np.choose(rest["y"], each), rtol=1e-5
            )
            return
        both = log_prob(energy, {first: x, **rest}).value
        alone = log_prob(energy, {first: x}).value
        given_x = log_prob(energy, rest, given={first: x}).value
        close = {"rtol": 1e-4, "atol": 1e-4} if "float32" in block else {"rtol": 1e-9, "atol": 1e-9}
        np.testing.assert_allclose(alone + given_x, both, **close)
        # The other way round, and the same numbers without any feature.
        if all(space.is_finite for space in energy.spaces.values()):
            reverse = log_prob(energy, rest).value + log_prob(energy, {first: x}, given=rest).value
            np.testing.assert_allclose(reverse, both, **close)
        plain = problem(name, tuple(f for f in block if f == "nan"))
        np.testing.assert_allclose(both, log_prob(plain[0], {first: plain[2], **plain[3]}).value, **close)
        assert (given_x <= 1e-5).all()
