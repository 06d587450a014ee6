"""The public functions: each looks at what it is given and calls the computation for it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import BadInput, describe
from ..estimate import Estimate
from . import _distributions as distributions
from . import _neighbors as neighbors
from . import _samples as samples
from . import _tables as tables
from ._samples import Samples, Terms


def entropy(
    p: Any, *, axis: int | None = None, base: float | None = None, n: int = 10_000, key: Any = None
) -> Any:
    """H(p) = −Σ p log p, or −∫ p log p of a density.

    Args:
        p: a table of probabilities (of any shape), a NumPyro distribution or `Samples`.
        axis: of a stack of tables, the axis that sums to 1; None if the whole table does.
        base: of the logarithm: None for nats, 2 for bits.
        n: draws, where a distribution has no closed form.
        key: of the draws.

    >>> float(entropy([0.5, 0.25, 0.25], base=2))
    1.5
    >>> from numpyro.distributions import Normal
    >>> entropy(Normal(0.0, 1.0))
    1.419 (exact)
    >>> entropy(Samples(np.random.default_rng(1).normal(size=1000)))
    1.402 ± 0.044 (estimate)

    References: Shannon (1948), A mathematical theory of communication; Miller (1955), Note on the bias of
    information estimates; Kozachenko and Leonenko (1987), Sample estimate of the entropy of a random vector.
    """
    if isinstance(p, Samples):
        found = _entropy_terms(p).estimate()
    elif distributions.is_distribution(p):
        found = distributions.entropy(p, n, key)
    else:
        found = tables.entropy(tables.as_table(p, "p", axis), axis)
    return _in_base(found, base)


def cross_entropy(
    p: Any, q: Any, *, axis: int | None = None, base: float | None = None, n: int = 10_000, key: Any = None
) -> Any:
    """−Σ p log q = H(p) + KL(p ‖ q): the mean length of a code for q of draws from p.

    Both are tables, distributions or `Samples`; p may be `Samples` and q a table or a distribution, which
    gives the mean of −log q over the rows. The other arguments are those of `entropy`.

    >>> float(cross_entropy([0.5, 0.5], [0.25, 0.75], base=2)).__round__(4)
    1.2075
    """
    return _two("cross_entropy", p, q, axis, base, n, key)


def kl(
    p: Any, q: Any, *, axis: int | None = None, base: float | None = None, n: int = 10_000, key: Any = None
) -> Any:
    """KL(p ‖ q) = Σ p log p/q ≥ 0; infinite where p > 0 = q. The arguments are those of `cross_entropy`.

    >>> from numpyro.distributions import Laplace, Normal
    >>> kl(Normal(0.0, 1.0), Normal(1.0, 2.0))
    0.443 (exact)
    >>> kl(Laplace(0.0, 1.0), Normal(0.0, 1.0), key=0).kind
    'estimate'

    References: Kullback and Leibler (1951), On information and sufficiency; Wang, Kulkarni and Verdú (2009),
    Divergence estimation for multidimensional densities via k-nearest-neighbor distances.
    """
    return _two("kl", p, q, axis, base, n, key)


def jensen_shannon(
    p: Any, q: Any, *, axis: int | None = None, base: float | None = None, n: int = 10_000, key: Any = None
) -> Any:
    """KL(p ‖ m) / 2 + KL(q ‖ m) / 2 with m = (p + q) / 2: symmetric, and at most log 2 (1 bit).

    Both are tables, distributions or `Samples`.

    >>> float(jensen_shannon([1.0, 0.0], [0.0, 1.0], base=2))
    1.0

    Reference: Lin (1991), Divergence measures based on the Shannon entropy.
    """
    return _two("jensen_shannon", p, q, axis, base, n, key)


def joint_entropy(p: Any, y: Any = None, *, base: float | None = None) -> Any:
    """H(x, y), of a joint table or distribution, or of two `Samples` of which row i belongs together.

    >>> float(joint_entropy([[0.25, 0.25], [0.25, 0.25]], base=2))
    2.0
    """
    if not isinstance(p, Samples):
        _refuse_second(p, y)
        return entropy(p, base=base)
    x, y = _paired(p, y)
    if x.discrete == y.discrete:
        found = _entropy_terms(_joined(x, y))
    else:
        found = _entropy_terms(x) + _entropy_terms(y) - _information_terms(x, y)
    return _in_base(found.estimate(), base)


def conditional_entropy(p: Any, y: Any = None, *, split: int = 1, base: float | None = None) -> Any:
    """H(x | y) = H(x, y) − H(y).

    Args:
        p: a joint table whose first `split` axes are x and the others y; a `MultivariateNormal` whose first
            `split` coordinates are x; or `Samples` of x.
        y: `Samples` of y, row by row with those of x; else None.
        split: see `p`.
        base: of the logarithm: None for nats, 2 for bits.

    >>> float(conditional_entropy([[0.5, 0.0], [0.25, 0.25]], base=2)).__round__(4)
    0.6887
    """
    if isinstance(p, Samples):
        x, y = _paired(p, y)
        if x.discrete and y.discrete:
            found = _entropy_terms(_joined(x, y)) - _entropy_terms(y)
            # The second-order errors of both are nearly the same error.
            found = found._replace(extra=max(found.correction, 0.0) / len(x))
        else:
            found = _entropy_terms(x) - _information_terms(x, y)
        return _in_base(found.estimate(), base)
    _refuse_second(p, y)
    if distributions.is_distribution(p):
        both, _, second = distributions.gaussian_parts(p, split)
        return _in_base(Estimate(both - second, method="closed form"), base)
    joint = tables.as_table(p, "p")
    _, second = tables.split_marginals(joint, split)
    return _in_base(tables.entropy(joint, None) - tables.entropy(second, None), base)


def mutual_information(p: Any, y: Any = None, *, split: int = 1, base: float | None = None) -> Any:
    """I(x; y) = H(x) + H(y) − H(x, y) ≥ 0. The arguments are those of `conditional_entropy`.

    Estimates from samples may be below 0 where x and y are independent.

    >>> float(mutual_information([[0.5, 0.0], [0.0, 0.5]], base=2))
    1.0
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=2000)
    >>> y = 0.6 * x + 0.8 * rng.normal(size=2000)  # I = −log(0.64) / 2 = 0.223
    >>> mutual_information(Samples(x), Samples(y))
    0.207 ± 0.023 (estimate)

    References: Kraskov, Stögbauer and Grassberger (2004), Estimating mutual information; Ross (2014), Mutual
    information between discrete and continuous data sets.
    """
    if isinstance(p, Samples):
        return _in_base(_information_terms(*_paired(p, y)).estimate(), base)
    _refuse_second(p, y)
    if distributions.is_distribution(p):
        both, first, second = distributions.gaussian_parts(p, split)
        return _in_base(Estimate(first + second - both, method="closed form"), base)
    joint = tables.as_table(p, "p")
    first, second = tables.split_marginals(joint, split)
    outer = first.reshape(first.shape + (1,) * second.ndim) * second
    return _in_base(tables.kl(joint, outer, None), base)


# -- the kinds of arguments --------------------------------------------------------------------------


def _two(task: str, p: Any, q: Any, axis: Any, base: Any, n: int, key: Any) -> Any:
    """A function of two arguments of the same kind, or of samples and a table or distribution."""
    if isinstance(p, Samples):
        return _in_base(_from_samples(task, p, q), base)
    both = [distributions.is_distribution(a) for a in (p, q)]
    if all(both):
        return _in_base(getattr(distributions, task)(p, q, n, key), base)
    if any(both) or isinstance(q, Samples):
        other = "Samples" if isinstance(q, Samples) else type(q if both[1] else p).__name__
        raise BadInput("q", f"{other} with {describe(p)}", "two tables, two distributions or two Samples")
    p, q = tables.as_table(p, "p", axis), tables.as_table(q, "q", axis)
    return _in_base(getattr(tables, task)(p, q, axis), base)


def _from_samples(task: str, p: Samples, q: Any) -> Estimate:
    if isinstance(q, Samples):
        if p.discrete != q.discrete:
            raise BadInput("q", repr(q), f"draws of the same kind as {p!r}", "Set `discrete` for both.")
        k = min(p.neighbors, q.neighbors)
        if not p.discrete:
            return getattr(neighbors, task)(p.values, q.values, k)
        if task == "cross_entropy":
            return samples.discrete_kl(p.values, q.values) + _entropy_terms(p).estimate()
        return getattr(samples, f"discrete_{task}")(p.values, q.values)
    if task == "jensen_shannon":
        raise BadInput("q", describe(q), "Samples", "Draw from q and give the draws as Samples.")
    terms = Terms(_cross_terms(p, q), method="rows")
    return (terms if task == "cross_entropy" else terms - _entropy_terms(p)).estimate()


def _cross_terms(p: Samples, q: Any) -> np.ndarray:
    """−log q of every row."""
    if distributions.is_distribution(q):
        return distributions.cross_terms(p.values, q)
    table = np.asarray(tables.as_table(q, "q"))
    rows = p.values
    is_index = p.discrete and rows.dtype.kind in "biu" and rows.shape[1] == table.ndim
    if not is_index or (rows < 0).any() or (rows >= np.array(table.shape)).any():
        raise BadInput("p", repr(p), f"whole numbers that index q, a table of shape {table.shape}")
    with np.errstate(divide="ignore"):
        return -np.log(table[tuple(rows.astype(int).T)])


def _entropy_terms(x: Samples) -> Terms:
    return samples.discrete_entropy(x.values) if x.discrete else neighbors.entropy(x.values, x.neighbors)


def _information_terms(x: Samples, y: Samples) -> Terms:
    k = min(x.neighbors, y.neighbors)
    if x.discrete and y.discrete:
        return samples.discrete_information(x.values, y.values)
    if x.discrete:
        return neighbors.mixed_information(y.values, x.values, k)
    if y.discrete:
        return neighbors.mixed_information(x.values, y.values, k)
    return neighbors.information(x.values, y.values, k)


def _joined(x: Samples, y: Samples) -> Samples:
    """The rows of both side by side."""
    if x.discrete:
        codes = [samples.codes_of(a.values)[0] for a in (x, y)]
        return Samples(np.stack(codes, axis=1))
    return Samples(np.concatenate([x.values, y.values], axis=1), neighbors=min(x.neighbors, y.neighbors))


def _paired(x: Samples, y: Any) -> tuple[Samples, Samples]:
    if not isinstance(y, Samples):
        raise BadInput("y", describe(y), "Samples, as x")
    if len(x) != len(y):
        raise BadInput("y", f"{len(y)} rows", f"{len(x)}, as many as x", "Row i of both belongs together.")
    return x, y


def _refuse_second(p: Any, y: Any) -> None:
    if y is not None:
        remedy = "A joint table or distribution has both."
        raise BadInput("p", describe(p), "Samples, since y is given", remedy)


def _in_base(value: Any, base: Any) -> Any:
    if base is None:
        return value
    is_number = isinstance(base, int | float | np.number) and not isinstance(base, bool)
    if not is_number or not 1 < base < np.inf:
        raise BadInput("base", describe(base), "None for nats, or a number above 1", "Try base=2 for bits.")
    return value / np.log(base)
