"""NumPyro distributions: closed forms, sums over finite supports, else means over draws."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.keys import as_key, split_key
from ..errors import BadInput, check_whole_number
from ..estimate import Estimate
from ._tables import check_split

#: The most values of a support that are summed.
_MOST_VALUES = 2**16


def is_distribution(p: Any) -> bool:
    """Whether p has the methods of a NumPyro distribution."""
    return not isinstance(p, type) and hasattr(p, "log_prob") and hasattr(p, "sample")


def entropy(p: Any, n: int, key: Any) -> Estimate:
    found = _closed_entropy(p)
    if found is not None:
        return Estimate(found, method="closed form")
    support = _support(p)
    if support is not None:
        log_p = _log_prob(p, support)
        return Estimate(-_expect(log_p, log_p), method="sum over the support")
    x = _draw(p, n, key, "entropy")
    return _mean(-_log_prob(p, x))


def cross_entropy(p: Any, q: Any, n: int, key: Any) -> Estimate:
    _check_pair(p, q)
    divergence, own = _closed_kl(p, q), _closed_entropy(p)
    if divergence is not None and own is not None:
        return Estimate(divergence + own, method="closed form")
    support = _support(p)
    if support is not None:
        return Estimate(-_expect(_log_prob(p, support), _log_prob(q, support)), method="sum over the support")
    return _mean(-_log_prob(q, _draw(p, n, key, "cross_entropy")))


def kl(p: Any, q: Any, n: int, key: Any) -> Estimate:
    _check_pair(p, q)
    found = _closed_kl(p, q)
    if found is not None:
        return Estimate(found, method="closed form")
    support = _support(p)
    if support is not None:
        log_p, log_q = _log_prob(p, support), _log_prob(q, support)
        return Estimate(_expect(log_p, log_p - log_q), method="sum over the support")
    x = _draw(p, n, key, "kl")
    return _mean(_log_prob(p, x) - _log_prob(q, x))


def jensen_shannon(p: Any, q: Any, n: int, key: Any) -> Estimate:
    _check_pair(p, q)

    def gain(own, other):  # log p / ((p + q) / 2)
        return own - np.logaddexp(own, other) + np.log(2.0)

    first, second = _support(p), _support(q)
    if first is not None and second is not None:
        halves = [
            _expect(_log_prob(a, values), gain(_log_prob(a, values), _log_prob(b, values)))
            for a, b, values in ((p, q, first), (q, p, second))
        ]
        return Estimate(sum(halves) / 2, method="sum over the support")
    keys = split_key(as_key(_needed(key, "jensen_shannon")))
    means = []
    for a, b, k in ((p, q, keys[0]), (q, p, keys[1])):
        x = _draw(a, n, k, "jensen_shannon")
        means.append(_mean(gain(_log_prob(a, x), _log_prob(b, x))))
    return (means[0] + means[1]) / 2


def gaussian_parts(p: Any, split: Any) -> tuple[float, float, float]:
    """The entropies of (x, y), of x and of y, where x is the first `split` coordinates of a normal vector."""
    from numpyro import distributions as d

    if not isinstance(p, d.MultivariateNormal | d.LowRankMultivariateNormal) or p.batch_shape:
        raise BadInput(
            "p",
            type(p).__name__,
            "a joint table, one MultivariateNormal, or two Samples",
            "Draw from it and give the draws as two Samples.",
        )
    covariance = np.asarray(p.covariance_matrix, float)
    check_split(split, len(covariance), "coordinates")
    return tuple(
        0.5 * (len(c) * np.log(2 * np.pi * np.e) + np.linalg.slogdet(c)[1])
        for c in (covariance, covariance[:split, :split], covariance[split:, split:])
    )  # type: ignore[return-value]


def cross_terms(x: np.ndarray, q: Any) -> np.ndarray:
    """−log q of every row, for a single distribution q."""
    if q.batch_shape:
        raise BadInput(
            "q", f"distributions of batch shape {q.batch_shape}", "one distribution", "Try to_event."
        )
    shape = (len(x), *q.event_shape)
    if x.size != np.prod(shape):
        raise BadInput("q", f"a distribution of event shape {q.event_shape}", f"one like rows {x.shape[1:]}")
    return -_log_prob(q, x.reshape(shape))


# -- helpers -----------------------------------------------------------------------------------------


def _log_prob(p: Any, values: Any) -> np.ndarray:
    return np.asarray(p.log_prob(jnp.asarray(values)))


def _check_pair(p: Any, q: Any) -> None:
    if tuple(p.event_shape) != tuple(q.event_shape):
        raise BadInput("q", f"event shape {q.event_shape}", f"that of p, {p.event_shape}")


def _closed_entropy(p: Any) -> Any:
    try:
        return np.asarray(p.entropy())
    except (NotImplementedError, AttributeError):
        return None


def _closed_kl(p: Any, q: Any) -> Any:
    from numpyro.distributions import kl_divergence

    try:
        found = np.asarray(kl_divergence(p, q))
    except NotImplementedError:
        return None
    # 0 · log 0 in closed forms, such as of categorical distributions with a probability of 0.
    return None if np.isnan(found).any() else found


def _support(p: Any) -> Any:
    """All values of a finite support, (n_values, *batch, *event), or None."""
    if not getattr(p, "has_enumerate_support", False):
        return None
    try:
        values = jax.eval_shape(p.enumerate_support)
        return p.enumerate_support() if values.shape[0] <= _MOST_VALUES else None
    except Exception:  # parameters of which NumPyro cannot list the values, such as different totals
        return None


def _expect(log_p: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Σ p · values over the first axis, with 0 · ∞ = 0."""
    with np.errstate(invalid="ignore"):
        return np.where(log_p == -np.inf, 0.0, np.exp(log_p) * values).sum(0)


def _needed(key: Any, task: str) -> Any:
    if key is None:
        raise BadInput(
            "key",
            "None",
            f"a key, since {task} has no closed form here and is a mean over draws",
            "Try key=0.",
        )
    return key


def _draw(p: Any, n: Any, key: Any, task: str) -> Any:
    check_whole_number("n", n, 2)
    return p.sample(as_key(_needed(key, task)), (n,))


def _mean(terms: np.ndarray) -> Estimate:
    """The mean over draws, with its standard error."""
    terms = np.asarray(terms, float)
    with np.errstate(invalid="ignore"):
        error = terms.std(0, ddof=1) / np.sqrt(len(terms))
    error = np.where(np.isfinite(error), error, np.inf)
    return Estimate(terms.mean(0), error, "estimate", f"{len(terms)} draws")
