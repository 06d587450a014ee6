"""Greedy learning of a stack of RBMs: each one learns the hidden units of the one below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ..._util.keys import as_key, unrolled_threefry_key
from ..._util.xla import softplus
from ...energy import Energy
from ...errors import BadInput
from ...fitting import Learner, fit
from ...learn import check_phases
from ...missing import is_masked
from ...programs import jit
from ...spaces import Binary
from .layers import check_rbms
from .rbm import RBM


def pretrain_rbms(
    rbms: Sequence[RBM],
    data: Any,
    learner: Learner | Sequence[Learner],
    *,
    key: Any,
    weights: Any = None,
    doubled: bool = False,
    **options: Any,
) -> list[RBM]:
    """Return RBMs that were learned one after another, each from draws of the hidden units below it.

    If the weights of a new RBM start at the transpose of those below and its learning raises the likelihood
    of the draws, a lower bound of log p(x) of the deep belief network of all rises. In practice it starts at
    random, as here. `DeepBeliefNetwork.from_rbms` takes the result, and `DeepBoltzmannMachine.from_rbms` with
    `doubled`. Warns like `check_phases`, if chains do not mix or weights explode.

    Args:
        rbms: machines to start from, from the bottom; hidden units of one are visible ones of the next.
        data: rows of x, (n, n_visible), or a dict {"x": rows}.
        learner: a learner of all RBMs, or one for each.
        key: an int or a JAX key.
        weights: one weight per row.
        doubled: whether the inner layers of every RBM are learned as two copies with the same weights, in
            place of the layer beyond, which a deep Boltzmann machine adds. Binary units only.
        options: further arguments of every `fit`, such as `epochs` and `batch_size`.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets; Salakhutdinov and Hinton
    (2009), Deep Boltzmann machines, for copies.

    >>> from energax.learn import ContrastiveDivergence, Descent
    >>> stack = [RBM.random(4, 3, key=0), RBM.random(3, 2, key=1)]
    >>> rows = np.tile([[1.0, 1, 0, 0], [0, 0, 1, 1]], (20, 1))
    >>> learned = pretrain_rbms(stack, rows, Descent(ContrastiveDivergence()), key=0, epochs=2)
    >>> [rbm.spaces["z"] for rbm in learned]
    [Binary(3), Binary(2)]
    """
    rbms = check_rbms(rbms, binary=doubled)
    rows = data["x"] if isinstance(data, dict) else data
    if is_masked(rows) or np.isnan(np.asarray(rows, float)).any():
        raise BadInput("data", "missing values (NaN)", "complete rows", "Impute them first.")
    learners = [learner] * len(rbms) if isinstance(learner, Learner) else list(learner)
    if len(learners) != len(rbms):
        raise BadInput("learner", f"{len(learners)} learners", f"one, or one for each of {len(rbms)} RBMs")
    options = {"initialise": True, **options}
    learned: list[RBM] = []
    keys = jax.random.split(as_key(key), len(rbms))
    for i, (rbm, each, sub) in enumerate(zip(rbms, learners, keys, strict=True)):
        fit_key, draw_key = jax.random.split(sub)
        # The lowest layer has no layer below, and the highest none above, whose inputs a copy stands for.
        copies = (1 + (doubled and i < len(rbms) - 1), 1 + (doubled and i > 0))
        start: Energy = TwinRBM(rbm, *copies) if doubled else rbm
        data = {"x": np.stack([rows] * copies[0], 1) if doubled else rows}
        done = fit(start, data, each, key=fit_key, weights=weights, **options)
        check_phases(done, data, each, weights=weights)
        learned.append(done.energy.rbm if doubled else done.energy)
        upwards = RBM(copies[0] * learned[i].weight, *_rest(learned[i])) if doubled else learned[i]
        rows = np.asarray(draw_hidden(upwards, asarray(rows), draw_key))
    return learned


def _rest(rbm: RBM) -> tuple[Any, ...]:
    return rbm.bias, rbm.hidden_bias, rbm.visible, rbm.hidden


class TwinRBM(Energy):
    """A binary RBM with copies of its layers that share all weights and biases.

    e(x, z) = −(Σ_a x_a)ᵀ W (Σ_b z_b) − bᵀ Σ_a x_a − cᵀ Σ_b z_b.

    Args:
        rbm: the machine of one copy of each layer.
        n_visible_copies, n_hidden_copies: how many copies there are.

    Salakhutdinov and Hinton (2009), Deep Boltzmann machines.

    >>> TwinRBM(RBM.random(3, 2, key=0), 2, 1).spaces
    {'x': Binary(2, 3), 'z': Binary(1, 2)}
    """

    rbm: RBM
    n_visible_copies: int = eqx.field(static=True)
    n_hidden_copies: int = eqx.field(static=True)

    def initialise(self, key, data, weight):
        """The start of the RBM; copies have the same rows."""
        one = {"x": data["x"][:, 0]}
        return TwinRBM(self.rbm.initialise(key, one, weight), self.n_visible_copies, self.n_hidden_copies)

    @property
    def spaces(self):
        sizes = self.rbm.bias.shape[-1], self.rbm.hidden_bias.shape[-1]
        return {"x": Binary(self.n_visible_copies, sizes[0]), "z": Binary(self.n_hidden_copies, sizes[1])}

    def __call__(self, *, x, z):
        return self.rbm(x=x.sum(0), z=z.sum(0))

    def free_energy(self, *, x=None, z=None):
        if z is None:
            total, field = x.sum(0), self.rbm.hidden_field(x.sum(0))
            return -(total @ self.rbm.bias) - self.n_hidden_copies * softplus(field).sum()
        total, field = z.sum(0), self.rbm.visible_field(z.sum(0))
        return -(total @ self.rbm.hidden_bias) - self.n_visible_copies * softplus(field).sum()

    def conditional(self, name, **given):
        from numpyro.distributions import Bernoulli

        if name == "z":
            field, n = self.rbm.hidden_field(given["x"].sum(0)), self.n_hidden_copies
        else:
            field, n = self.rbm.visible_field(given["z"].sum(0)), self.n_visible_copies
        return Bernoulli(logits=jnp.broadcast_to(field, (n, *field.shape))).to_event(2)


@jit
def draw_hidden(rbm: RBM, rows: Any, key: Any) -> Any:
    """Return one draw of the hidden units given every row."""
    keys = jax.random.split(unrolled_threefry_key(key), rows.shape[0])
    draw = lambda x, k: rbm.conditional("z", x=x).sample(k)
    return jax.vmap(draw)(rows, keys).astype(rbm.spaces["z"].jax_dtype)
