"""Checks of a fit by contrastive divergence: weights that explode, chains that do not follow the data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..errors import BadInput, ConvergenceWarning, as_numbers, describe
from ..fitting import Fit, Learner, check_weights
from ..missing import is_masked, mask_of, value_of
from ..spaces import as_columns
from ._contrastive_divergence import ContrastiveDivergence
from ._descent import Descent

#: The largest coupling of two units that is still plausible: e²⁰ is a ratio of probabilities of 5 · 10⁸.
MOST_WEIGHT = 20.0
#: The root mean square difference of rates, beyond the noise of the chains, above which they are apart.
MOST_GAP = 0.1


def check_phases(
    result: Fit, data: Mapping[str, Any], learner: Learner | None = None, *, weights: Any = None
) -> dict[str, float]:
    """Warn if the weights of a fit exploded, or if its persistent chains are not where the data are.

    At the maximum of the likelihood, rates (means) of the observed variables are the same in the data and in
    the model. The persistent chains of `ContrastiveDivergence` stand for the model: if their rates differ
    from those of the data by more than chance, chains stay in one mode, or the steps are too large.

    Args:
        result: what `fit` returned.
        data: the rows that were learned, by name.
        learner: the learner, whose persistent chains are compared with the data; None checks weights only.
        weights: one weight per row.

    Returns:
        "largest weight", and "gap" with persistent chains: the root mean square over coordinates of the
        difference of the two means, in standard deviations of the data (at least ¼).

    >>> from energax import fit
    >>> from energax.energies import RBM
    >>> rows, learner = {"x": np.eye(3)[[0, 1, 2] * 9]}, Descent(ContrastiveDivergence(persistent=True))
    >>> done = fit(RBM.random(3, 2, key=0), rows, learner, key=0, epochs=1, initialise=True)
    >>> sorted(check_phases(done, rows, learner))
    ['gap', 'largest weight']
    """
    if not isinstance(result, Fit):
        raise BadInput("result", type(result).__name__, "the result of fit")
    found = {"largest weight": _largest_weight(result.energy)}
    if not found["largest weight"] <= MOST_WEIGHT:
        _warn(
            f"the largest weight is {found['largest weight']:.3g}; couplings above {MOST_WEIGHT:g} freeze "
            "their units. Use smaller steps, weight decay (optax.adamw), or fewer epochs."
        )
    chains = _chains(result, learner)
    if chains is not None:
        found["gap"], noise = _gap(*_rows(result.energy, data, weights), chains)
        if not found["gap"] <= MOST_GAP + noise:
            _warn(
                f"the chains of the negative phase are not where the data are: their means differ by "
                f"{found['gap']:.2f} standard deviations, and {noise:.2f} is chance. They do not mix, or the "
                "steps are too large: lower the learning rate, raise k or n_chains, or draw by "
                "ContrastiveDivergence(persistent=True, sampler=ParallelTempering(Gibbs()))."
            )
    return found


def _warn(problem: str) -> None:
    warnings.warn(f"After learning, {problem}", ConvergenceWarning, stacklevel=3)


def _largest_weight(energy: Any) -> float:
    matrices = [a for a in jax.tree.leaves(eqx.filter(energy, eqx.is_inexact_array)) if a.ndim >= 2]
    return max((float(np.abs(np.asarray(a)).max(initial=0)) for a in matrices), default=0.0)


def _chains(result: Fit, learner: Any) -> dict[str, Any] | None:
    objective = learner.objective if isinstance(learner, Descent) else None
    if not isinstance(objective, ContrastiveDivergence) or not objective.persistent:
        return None
    return objective.states(result.state.carry)


def _rows(energy: Any, data: Any, weights: Any) -> tuple[dict[str, tuple[Any, Any]], Any]:
    """Return values and masks by name, and weights; NaN is missing. Probabilities may stand for bits."""
    data = as_columns(energy.spaces, data)
    if not isinstance(data, Mapping) or not data or not set(data) <= set(energy.spaces):
        raise BadInput("data", describe(data), f"rows of some of {list(energy.spaces)} by name")
    found = {}
    for name, rows in data.items():
        value = np.asarray(as_numbers("data", value_of(rows), "rows of numbers"), float)
        seen = np.broadcast_to(np.asarray(mask_of(rows if is_masked(rows) else value)), value.shape)
        found[name] = np.nan_to_num(value), seen & ~np.isnan(value)
    return found, check_weights(weights, len(value), float)


def _gap(data: Mapping[str, Any], weights: Any, chains: Mapping[str, Any]) -> tuple[float, float]:
    """Return the root mean square difference of means in standard deviations, and three times its noise."""
    squares, n_chains = [], 1
    for name, (value, observed) in data.items():
        states = np.asarray(chains[name], float)
        n_chains = len(states)
        seen = observed * weights.reshape(-1, *[1] * (value.ndim - 1))
        total = np.maximum(seen.sum(0), 1e-12)
        mean = (seen * value).sum(0) / total
        deviation = np.sqrt((seen * (value - mean) ** 2).sum(0) / total)
        squares.append((((states.mean(0) - mean) / np.maximum(deviation, 0.25)) ** 2).ravel())
    every = np.concatenate(squares)
    return float(np.sqrt(every.mean())), float(3 / np.sqrt(n_chains))
