"""Greedy learning of a stack of RBMs: each one learns the hidden units of the one below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ..._util.keys import as_key, unrolled_threefry_key
from ...errors import BadInput
from ...fitting import Learner, fit
from ...missing import is_masked
from ...programs import jit
from .rbm import RBM


def pretrain(
    rbms: Sequence[RBM],
    data: Any,
    learner: Learner | Sequence[Learner],
    *,
    key: Any,
    weights: Any = None,
    **options: Any,
) -> list[RBM]:
    """Return RBMs that were learned one after another, each from draws of the hidden units below it.

    If the weights of a new RBM start at the transpose of those below and its learning raises the likelihood
    of the draws, a lower bound of log p(x) of the deep belief network of all rises. In practice it starts at
    random, as here. `DeepBeliefNetwork.from_rbms` and `DeepBoltzmannMachine.from_rbms` take the result.

    Args:
        rbms: machines to start from, from the bottom; hidden units of one are visible ones of the next.
        data: rows of x, (n, n_visible), or a dict {"x": rows}.
        learner: a learner of all RBMs, or one for each.
        key: an int or a JAX key.
        weights: one weight per row.
        options: further arguments of every `fit`, such as `epochs` and `batch_size`.

    Hinton, Osindero and Teh (2006), A fast learning algorithm for deep belief nets.

    >>> from energax.learn import ContrastiveDivergence, Descent
    >>> stack = [RBM.random(4, 3, key=0), RBM.random(3, 2, key=1)]
    >>> rows = np.tile([[1.0, 1, 0, 0], [0, 0, 1, 1]], (20, 1))
    >>> [rbm.spaces["z"] for rbm in pretrain(stack, rows, Descent(ContrastiveDivergence()), key=0, epochs=2)]
    [Binary(3), Binary(2)]
    """
    rows = data["x"] if isinstance(data, dict) else data
    if is_masked(rows) or np.isnan(np.asarray(rows, float)).any():
        raise BadInput("data", "missing values (NaN)", "complete rows", "Impute them first.")
    learners = [learner] * len(rbms) if isinstance(learner, Learner) else list(learner)
    if len(learners) != len(rbms):
        raise BadInput("learner", f"{len(learners)} learners", f"one, or one for each of {len(rbms)} RBMs")
    options = {"initialise": True, **options}
    learned = []
    for rbm, each, sub in zip(rbms, learners, jax.random.split(as_key(key), len(rbms)), strict=True):
        fit_key, draw_key = jax.random.split(sub)
        done = fit(rbm, {"x": rows}, each, key=fit_key, weights=weights, **options)
        learned.append(done.energy)
        rows = np.asarray(draw_hidden(done.energy, asarray(rows), draw_key))
    return learned


@jit
def draw_hidden(rbm: RBM, rows: Any, key: Any) -> Any:
    """Return one draw of the hidden units given every row."""
    keys = jax.random.split(unrolled_threefry_key(key), rows.shape[0])
    draw = lambda x, k: rbm.conditional("z", x=x).sample(k)
    return jax.vmap(draw)(rows, keys).astype(rbm.spaces["z"].jax_dtype)
