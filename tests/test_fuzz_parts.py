"""Values of the wrong kind in every argument of every part of the catalog, drawn with fixed seeds.

A part may accept a value, or raise an error of energax. The arguments that are not replaced are those of the
examples in tests/helpers/parts.py, read from the part itself.
"""

from __future__ import annotations

import inspect
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib.pyplot
import networkx as nx
import numpy as np
import pytest
from bad_values import LARGE, VALUES, call
from parts import ENERGIES, INFERENCES, LEARNERS, OBJECTIVES, OPTIONS, SAMPLERS, observed

import energax
from energax import energies, infer, nn, plot, samplers
from energax.errors import BadInput

matplotlib.use("Agg")

#: Calls for every part.
N_CALLS = 30


def _networks():
    """Small networks and flows; the catalog has no rows for them."""
    line, swap = eqx.nn.Linear(2, 4, key=jax.random.key(0)), nn.Permutation([1, 0])
    mlp = lambda a, b: nn.mlp(a, b, key=0, width=3)
    affine = nn.AffineTransform()
    built = (
        affine, swap, nn.SplineTransform(), nn.ActNorm.identity(2), nn.LULinear.random(2), nn.Inverted(swap),
        nn.Composed([swap]), nn.Conv1x1(nn.LULinear.random(2), 3), nn.Coupling(mlp(1, 2), 1, affine),
        nn.MaskedAutoregressive.random(2, key=0, width=3, transform=affine),
        nn.InverseAutoregressive.random(2, key=0, width=3, transform=affine),
        nn.FlowDistribution(swap, 2), nn.Encoder(mlp(4, 4)), nn.BernoulliEncoder(mlp(4, 2)),
        nn.CategoricalEncoder(mlp(4, 6), 3, 2), nn.ConditionalEncoder(mlp(7, 4), energax.Categorical(3)),
        nn.FlowEncoder(mlp(4, 6), swap, 2), nn.Generator(mlp(2, 2), 2),
        nn.EncoderDecoder(mlp(4, 2), mlp(2, 4)),
        nn.TiedLayers.random((4, 2), key=0), nn.Maxout(line, 2), nn.SetLayer(line, line), nn.SetPool(),
        nn.Residual(mlp(2, 2)), nn.Reshape((2, 2)), nn.ToImage((2, 2, 1)), nn.LocalResponseNorm(3),
        nn.Code(nn.EncoderDecoder(mlp(4, 2), mlp(2, 4))), nn.HiddenMeans(ENERGIES["RBM"]()),
    )  # fmt: skip
    return {type(network).__name__: network for network in built}


def _examples():
    made = {f"energies.{name}": build for name, build in ENERGIES.items()}
    made |= OPTIONS | {f"learn.{name}": build for name, (_, build) in LEARNERS.items()}
    made |= {f"samplers.{name}": build for name, (_, build) in SAMPLERS.items()}
    made |= {f"infer.{name}": example.method for name, example in INFERENCES.items()}
    for name, (energy, build) in OBJECTIVES.items():
        made[f"learn.{name}"] = lambda energy=energy, build=build: _objective(energy, build)
    made |= {f"nn.{name}": lambda network=network: network for name, network in _networks().items()}
    return made


def _objective(energy, build):
    energy = ENERGIES[energy]()
    return build(energy, observed(energy))


EXAMPLES = _examples()
FUNCTIONS = {
    "mlp": (nn.mlp, {"n_in": 2, "n_out": 2, "key": 0, "width": 3, "depth": 1}),
    "set_network": (nn.set_network, {"shape": (3, 2), "n_out": 2, "key": 0, "width": 3, "pool": "mean"}),
    "conv_network": (nn.conv_network, {"shape": (4, 4), "n_out": 2, "key": 0, "widths": (2,), "norm": None}),
    "deconv_network": (nn.deconv_network, {"n_in": 2, "shape": (4, 4), "key": 0, "widths": (2,)}),
    "flow_layers": (nn.flow_layers, {"d": 2, "key": 0, "n_layers": 1, "layer": "coupling", "n_context": 0}),
    "InvertibleBatchNorm": (nn.InvertibleBatchNorm, {"d": 2, "eps": 1e-5}),
    "calibrate": (nn.calibrate, {"network": nn.BatchNorm(2), "x": np.eye(2, dtype="f"), "weight": None}),
    "RBM.random": (energies.RBM.random, {"n_visible": 3, "n_hidden": 2, "key": 0, "scale": 0.1}),
    "gumbel_max": (samplers.gumbel_max, {"log_weights": jnp.zeros(3), "key": 0, "n": 2}),
    "gumbel_top_k": (samplers.gumbel_top_k, {"log_weights": jnp.zeros(3), "k": 2, "key": 0}),
    "Draws": (samplers.Draws, {"chains": {"x": np.zeros((2, 5))}, "method": "a", "fixed": None, "n": None}),
    "transitions": (plot.transitions, {"matrix": np.eye(2), "names": None, "least": None}),
    "decoded": (
        plot.decoded,
        {
            "x": np.arange(4.0),
            "states": [0, 1, 1, 0],
            "probabilities": None,
            "names": None,
            "symbols": None,
            "times": None,
            "series": None,
        },
    ),
    "forecast": (
        plot.forecast,
        {
            "mean": np.arange(3.0),
            "lower": None,
            "upper": None,
            "observed": None,
            "history": None,
            "times": None,
            "levels": None,
        },
    ),
    "network": (
        plot.network,
        {"graph": nx.path_graph(2), "marginals": None, "evidence": None, "states": None},
    ),
    "trace": (plot.trace, {"draws": {"x": np.zeros((2, 9))}, "names": None, "max_coordinates": 2}),
    "read_draws": (samplers.read_draws, {"path": "no such folder", "fixed": None}),
}


#: Arguments that a part keeps under another name.
KEPT_AS = {"encoder": "partner", "generator": "partner", "given": "given_space"}


def arguments_of(part):
    """The arguments of a part, as it keeps them."""
    if isinstance(part, energies.Columns):
        return {"parts": list(zip(part.likelihoods, part.columns, strict=True))}
    if isinstance(part, energies.BayesianNetwork):
        return {"tables": {"x": [0.8, 0.2]}, "states": {"x": ["no", "yes"]}, "prior": part.prior}
    found = {}
    for name in inspect.signature(type(part)).parameters:
        place = name if hasattr(part, name) else KEPT_AS.get(name, "")
        if hasattr(part, place) and not inspect.ismethod(getattr(part, place)):
            found[name] = getattr(part, place)
    return found


def unwanted(function, arguments, seed, n):
    """Messages of calls with one value of the wrong kind that ended in an error from elsewhere."""
    rng, found = np.random.default_rng(zlib.crc32(seed.encode())), {}
    assert call(lambda: function(**arguments)) is None
    for _ in range(n if arguments else 0):
        name, label = str(rng.choice(list(arguments))), str(rng.choice(list(VALUES)))
        changed = {**arguments, name: VALUES[label]()}
        if message := call(lambda: function(**changed)):  # noqa: B023
            found[f"{seed}({name}={label})"] = message
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_wrong_kinds_of_values_in_parts_raise_errors_of_energax(name):
    part = EXAMPLES[name]()
    assert not unwanted(type(part), arguments_of(part), name, N_CALLS)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_kinds_of_values_in_functions_raise_errors_of_energax(name):
    function, arguments = FUNCTIONS[name]
    assert not unwanted(function, arguments, name, 2 * N_CALLS)
    matplotlib.pyplot.close("all")


#: Functions that allocate, with the arguments that decide how much.
SIZES = {
    "mlp": ("n_in", "n_out", "width", "depth"),
    "set_network": ("n_out", "width", "depth"),
    "flow_layers": ("d", "n_layers", "n_context"),
    "InvertibleBatchNorm": ("d",),
    "RBM.random": ("n_visible", "n_hidden"),
    "gumbel_max": ("n",),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_beyond_the_memory_raise(name):
    """XLA would end the process."""
    function, arguments = FUNCTIONS[name]
    for size in SIZES[name]:
        for label in LARGE:
            with pytest.raises(BadInput, match=r"memory|number"):
                function(**{**arguments, size: VALUES[label]()})


def test_more_draws_than_memory_raise():
    rbm = ENERGIES["RBM"]()
    for method in (None, samplers.Gibbs()):
        with pytest.raises(BadInput, match="n: found"):
            energax.sample(rbm, 10**15, method=method, key=0)
    with pytest.raises(BadInput, match="n_chains"):
        energax.sample(rbm, 4, method=infer.MCMC(samplers.Gibbs(), n_chains=10**15), key=0)
