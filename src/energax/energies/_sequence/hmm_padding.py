"""Padding of the states of a hidden Markov chain, so that chains of different sizes share programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._util.arrays import asarray, take_rows


def pad_states(chain: Any, n: int) -> dict[str, Any]:
    """The fields of the chain with n states; the new ones are never entered, and stay where they are."""
    k, index = chain.n_states, np.arange(n)
    active = index < k
    return {
        "initial": _pad(chain.initial, (n,)),
        "transition": asarray(np.asarray(_pad(chain.transition, (n, n))) + np.diag(~active)),
        "emission": chain.emission.take(np.where(active, index, 0)),
        "prior": _pad(chain.prior, (n, n)),
        "initial_prior": _pad(chain.initial_prior, (n,)),
        "active": active,
        **_settings(chain),
    }


def crop_states(chain: Any, n: int) -> dict[str, Any]:
    """The fields of the chain with its first n states: the inverse of `pad_states`."""
    cut = lambda a: a if np.ndim(a) == 0 else asarray(np.asarray(a)[(slice(n),) * np.ndim(a)])
    return {
        "initial": take_rows(chain.initial, np.arange(n)),
        "transition": cut(chain.transition),
        "emission": chain.emission.take(np.arange(n)),
        "prior": cut(chain.prior),
        "initial_prior": cut(chain.initial_prior),
        **_settings(chain),
    }


def _settings(chain: Any) -> dict[str, Any]:
    return {name: getattr(chain, name) for name in ("length", "whole_steps", "keeps")}


def _pad(array: Any, shape: tuple[int, ...]) -> Any:
    """An array with zeros at the end of every axis; a number as it is."""
    if np.ndim(array) == 0:
        return array
    return asarray(np.pad(array, [(0, n - m) for n, m in zip(shape, np.shape(array), strict=True)]))
