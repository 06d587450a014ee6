"""Information of real draws by the distances to nearest neighbours (SciPy's k-d trees)."""

from __future__ import annotations

import numpy as np

from ..errors import BadInput
from ..estimate import Estimate
from ._samples import Terms, codes_of

ENTROPY = "nearest neighbours, Kozachenko and Leonenko (1987)"
INFORMATION = "nearest neighbours, Kraskov, Stögbauer and Grassberger (2004)"
MIXED = "nearest neighbours, Ross (2014)"
DIVERGENCE = "nearest neighbours, Wang, Kulkarni and Verdú (2009)"


def _standardise(*arrays: np.ndarray) -> tuple[list[np.ndarray], float]:
    """The arrays with columns of unit spread in the first, and Σ log of the spreads."""
    spread = arrays[0].std(axis=0)
    if (spread == 0).any():
        column = int((spread == 0).argmax())
        raise BadInput("values", f"the constant column {column}", "columns that vary", "Leave it out.")
    center = arrays[0].mean(axis=0)
    return [(a - center) / spread for a in arrays], float(np.log(spread).sum())


def _check_distances(distances: np.ndarray, k: int) -> np.ndarray:
    if (distances == 0).any():
        ties = int((distances == 0).sum())
        raise BadInput(
            "values",
            f"{ties} rows that occur more than {k} times",
            "draws from a density, which do not repeat",
            "Use Samples(values, discrete=True), or a larger `neighbors`.",
        )
    return distances


def _shared(k: int, n: int) -> float:
    """The variance of a mean over n rows that is not seen in their spread, since rows share neighbours.

    The log-volume up to the k-th neighbour has variance ψ′(k), which is therefore counted twice. In
    simulations (uniform and normal draws, n = 300, up to 4 columns) 0.2 to 1.4 times ψ′(k) was missing for k
    up to 3."""
    from scipy.special import polygamma

    return float(polygamma(1, k)) / n


def _squared_bias(terms: np.ndarray, farther: np.ndarray, d: float) -> float:
    """The square of the bias of the mean of `terms`, from that of the terms of twice as distant neighbours.

    The density is not constant up to the k-th neighbour, which is at a distance of the order (k / n)^(1/d).
    The bias is of that order at the edge of a support, of its square inside. Of 300 intervals at 95 % for 500
    draws in 4 columns 237 held the entropy of a normal distribution without this, of a uniform one none."""
    return (float((farther - terms).mean()) / (2 ** (1 / d) - 1)) ** 2


def _log_ball(d: int) -> float:
    """The logarithm of the volume of the unit ball of ℝᵈ."""
    from scipy.special import gammaln

    return d / 2 * np.log(np.pi) - float(gammaln(d / 2 + 1))


def entropy(x: np.ndarray, k: int) -> Terms:
    """ψ(n) − ψ(k) + log c_d + d log ε_i, where ε_i is the distance of row i to its k-th neighbour."""
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    (z,), logs = _standardise(x)
    n, d = z.shape
    ks = np.array([k, min(2 * k, n - 1)])
    distances = _check_distances(cKDTree(z).query(z, ks + 1)[0], k)
    terms = digamma(n) - digamma(ks) + _log_ball(d) + logs + d * np.log(distances)
    extra = _shared(k, n) + _squared_bias(terms[:, 0], terms[:, 1], d)
    return Terms(terms[:, 0], extra=extra, method=ENTROPY)


def information(x: np.ndarray, y: np.ndarray, k: int) -> Terms:
    """ψ(k) + ψ(n) − ψ(n_x + 1) − ψ(n_y + 1).

    n_x and n_y count the neighbours in x and in y within the distance of the k-th neighbour in (x, y).
    """
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    (x,), (y,) = _standardise(x)[0], _standardise(y)[0]
    both = np.concatenate([x, y], axis=1)
    ks = [k, min(2 * k, len(x) - 1)]
    distances = cKDTree(both).query(both, np.add(ks, 1), p=np.inf)[0]
    inside = np.nextafter(_check_distances(distances, k), 0)
    trees = cKDTree(x), cKDTree(y)

    def terms_of(k, radius):
        counts = [
            tree.query_ball_point(tree.data, radius, p=np.inf, return_length=True) for tree in trees
        ]  # each row is its own neighbour: n_x + 1
        return digamma(k) + digamma(len(x)) - digamma(counts[0]) - digamma(counts[1])

    terms, farther = map(terms_of, ks, inside.T)
    # The numbers of neighbours in x and in y adapt to the edge of a support.
    extra = _shared(k, len(x)) + _squared_bias(terms, farther, both.shape[1] / 2)
    return Terms(terms, extra=extra, method=INFORMATION)


def mixed_information(x: np.ndarray, labels: np.ndarray, k: int) -> Terms:
    """ψ(n) + ψ(k) − ψ(N_label) − ψ(m_i).

    m_i counts the rows within the distance of the k-th neighbour of the same label.
    """
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    (x,) = _standardise(x)[0]
    (codes,) = codes_of(labels)
    counts = np.bincount(codes)
    if counts.min() <= k:
        few = int(counts.min())
        raise BadInput(
            "values",
            f"a discrete value with {few} rows",
            f"more than {k} rows each",
            "Use fewer `neighbors`.",
        )
    inside = np.empty(len(x))
    for code in range(len(counts)):
        part = x[codes == code]
        inside[codes == code] = cKDTree(part).query(part, k + 1, p=np.inf)[0][:, -1]
    inside = np.nextafter(_check_distances(inside, k), 0)
    m = cKDTree(x).query_ball_point(x, inside, p=np.inf, return_length=True)
    terms = digamma(len(x)) + digamma(k) - digamma(counts[codes]) - digamma(m)
    return Terms(terms, extra=_shared(k, len(x)), method=MIXED)


def cross_entropy(x: np.ndarray, y: np.ndarray, k: int) -> Estimate:
    """log m − ψ(k) + log c_d + d log ν_i, where ν_i is the distance of x_i to its k-th neighbour in y."""
    from scipy.spatial import cKDTree
    from scipy.special import digamma

    (z, w), logs = _pair(x, y)
    d, ks = z.shape[1], np.array([k, min(2 * k, len(w))])
    distances = _check_distances(cKDTree(w).query(z, ks)[0], k)
    terms = np.log(len(w)) - digamma(ks) + _log_ball(d) + logs + d * np.log(distances)
    return _two_samples(terms[:, 0], len(x), len(y), k, _squared_bias(terms[:, 0], terms[:, 1], d))


def kl(x: np.ndarray, y: np.ndarray, k: int) -> Estimate:
    """d log(ν_i / ρ_i) + log(m / (n − 1)): distances of x_i to k-th neighbours in y and in the rest of x."""
    from scipy.spatial import cKDTree

    (z, w), _ = _pair(x, y)
    d, ks = z.shape[1], np.array([k, min(2 * k, len(z) - 1, len(w))])
    own = _check_distances(cKDTree(z).query(z, ks + 1)[0], k)
    other = _check_distances(cKDTree(w).query(z, ks)[0], k)
    terms = d * np.log(other / own) + np.log(len(w) / (len(z) - 1))
    return _two_samples(terms[:, 0], len(x), len(y), k, _squared_bias(terms[:, 0], terms[:, 1], d))


def jensen_shannon(x: np.ndarray, y: np.ndarray, k: int) -> Estimate:
    """I(x; which of the two), as the mutual information of the pooled rows and a fair label.

    The label is fair if both have as many rows: the first rows of the larger one are used.
    """
    n = min(len(x), len(y))
    pooled = np.concatenate([x[:n], y[:n]])
    labels = np.repeat([0, 1], n)[:, None]
    return mixed_information(pooled, labels, k).estimate()


def _pair(x: np.ndarray, y: np.ndarray) -> tuple[list[np.ndarray], float]:
    if x.shape[1] != y.shape[1]:
        raise BadInput("q", f"rows of {y.shape[1]} columns", f"{x.shape[1]}, as in p")
    return _standardise(x, y)


def _two_samples(terms: np.ndarray, n: int, m: int, k: int, extra: float = 0.0) -> Estimate:
    """The mean of the terms of n rows. Their distances depend on m other rows: both add to the error."""
    variance = float(terms.var(ddof=1)) * (1 / n + 1 / m) + _shared(k, n) + extra
    return Estimate(float(terms.mean()), np.sqrt(variance), "estimate", DIVERGENCE)
