"""Greedy layer-wise pretraining of deep networks, and fine tuning of the stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import Setting, check_arguments, check_each, with_methods
from .._util.keys import as_key
from .._util.sizes import map_table
from ..energy import Energy
from ..errors import BadInput, Unsuitable, check_instance
from ..fitting import Fit, Learner, ValidatedRows, check_weights, fit
from ..programs import jit
from ..spaces import Binary, Real

_PAIR = Setting(lambda pair: isinstance(pair, tuple | list) and len(pair) == 2, "a pair (energy, learner)")


class HiddenMeans(eqx.Module):
    """The means of the hidden variable of an energy, as a layer: x ↦ E[z | x], such as σ(xᵀW + c) of an RBM.

    Categories have no mean: their features are the probabilities of all values.

    >>> from energax.energies import RBM
    >>> HiddenMeans(RBM.random(4, 3, key=0))(jnp.ones(4)).shape
    (3,)
    """

    energy: Energy

    def __check_init__(self):
        check_instance("energy", self.energy, Energy, "an energy with p(z | x), such as an RBM")

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        energy: Any = self.energy
        return energy.hidden_means(x) if energy.knows("hidden_means") else energy.conditional("z", x=x).mean


class Code(eqx.Module):
    """The code of an autoencoder, as a layer: x ↦ f(x).

    >>> from energax.energies import Autoencoder
    >>> Code(Autoencoder.random(4, 3, key=0).network)(jnp.ones(4)).shape
    (3,)
    """

    network: Any

    def __check_init__(self):
        expected = "an object with encode, such as nn.EncoderDecoder"
        check_arguments(self, network=with_methods("encode", expected=expected))

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return self.network.encode(x)


class Pretrained(NamedTuple):
    """The result of `pretrain`: the stack of layers as one network, and the fit of every layer."""

    network: eqx.nn.Sequential
    fits: tuple[Fit, ...]


def pretrain(
    layers: Sequence[tuple[Energy, Learner]],
    x: Any,
    *,
    key: Any,
    epochs: int = 50,
    batch_size: int | None = 100,
    output: Any = None,
    weights: Any = None,
) -> Pretrained:
    """Return a deep network whose layers are learned one by one, each from the features of those before.

    A layer is an energy over x, with its learner: a restricted Boltzmann machine, whose features are
    E[z | x], or an autoencoder, whose features are the code. Probabilities may be rows of binary units. The
    network is the start of supervised learning, "fine tuning":

        network = pretrain(layers, X, output=eqx.nn.Linear(n, k, key=…), key=0).network
        fit(Scorer(network, d, k), {"x": X, "y": y}, Descent(CrossEntropy()), key=1)

    Args:
        layers: pairs (energy, learner), the first over the columns of x.
        x: rows, (n, d).
        key: an int or a JAX key.
        epochs, batch_size, weights: of the fit of every layer, as in `fit`.
        output: a last layer that is not pretrained, such as the linear layer of a classifier; or None.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets; Bengio et al. (2007),
    Greedy layer-wise training of deep networks.

    >>> from energax.energies import Autoencoder, RBM
    >>> from energax.learn import ContrastiveDivergence, Descent, Reconstruction
    >>> X = np.tile([1.0, 0.0, 1.0, 0.0], (8, 1)).astype(np.float32)
    >>> first = RBM.random(4, 3, key=0), Descent(ContrastiveDivergence())
    >>> second = Autoencoder.random(3, 2, key=1), Descent(Reconstruction())
    >>> pretrain([first, second], X, key=2, epochs=2).network(X[0]).shape
    (2,)
    """
    layers = _check_layers(layers)
    features, built, fits = np.asarray(x), [], []
    for i, (energy, learner) in enumerate(layers):
        rows = _check_features(features, energy, i)
        weight = check_weights(weights, len(rows), rows.dtype if rows.dtype.kind == "f" else np.float32)
        size = None if batch_size is None else min(batch_size, len(rows))
        options: dict[str, Any] = {"key": jax.random.fold_in(as_key(key), i), "epochs": epochs}
        found = fit(energy, ValidatedRows({"x": rows}, weight), learner, batch_size=size, **options)
        layer = _feature_layer(found.energy)
        features = map_table(lambda rows, layer=layer: _apply(layer, rows), rows)
        built.append(layer)
        fits.append(found)
    return Pretrained(eqx.nn.Sequential([*built, *([] if output is None else [output])]), tuple(fits))


def _check_layers(layers: Any) -> list[tuple[Energy, Learner]]:
    layers = check_each("layers", layers, _PAIR, "pairs (energy, learner)")
    if not layers:
        raise BadInput("layers", "none", "at least one pair (energy, learner)")
    for i, pair in enumerate(layers):
        check_instance(f"layers[{i}][0]", pair[0], Energy, "an energy")
        remedy = "Wrap an objective: Descent(objective, optimizer)."
        check_instance(f"layers[{i}][1]", pair[1], Learner, "a learner", remedy)
        _feature_layer(pair[0])
    return [(energy, learner) for energy, learner in layers]


def _check_features(features: np.ndarray, energy: Energy, i: int) -> np.ndarray:
    """Return the rows of layer i; raise if they are not rows of its energy.

    A probability may take the place of a binary value: the features of one layer are those of the next.
    """
    space = energy.spaces["x"]
    if features.ndim != 2 or space.shape != features.shape[1:] or not len(features):
        expected = f"rows of {space.size} columns, x of layer {i} ({type(energy).__name__})"
        raise BadInput("x" if i == 0 else "layers", f"features of shape {features.shape}", expected)
    if not isinstance(space, Binary):
        return np.asarray(space.check(features, "x", missing=False))
    rows = np.asarray(Real(space.size).check(features, "x", missing=False))
    if rows.min() < 0 or rows.max() > 1:
        found = f"values from {rows.min():g} to {rows.max():g} for the binary units of layer {i}"
        raise BadInput("x", found, "zeros and ones, or probabilities", "Use GaussianRBM or Autoencoder.")
    return rows


def _feature_layer(energy: Any) -> Any:
    """Return the map from x to the features of an energy as a layer."""
    if energy.knows("encode"):
        return Code(energy.network)
    if "z" in energy.spaces and energy.knows("conditional", {"x"}):
        return HiddenMeans(energy)
    raise Unsuitable(
        f"pretrain needs layers with a code (Autoencoder) or with p(z | x) in closed form (RBM), not "
        f"{type(energy).__name__}."
    )


@jit
def _apply(layer: Any, rows: Any) -> Any:
    return jax.vmap(layer)(jnp.asarray(rows))
