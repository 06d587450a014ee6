"""Variational inference: the Gaussian, or the flow, in unconstrained coordinates nearest to a posterior."""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import POSITIVE_NUMBER, SEED, Setting, check_arguments, one_of
from ...algorithms.optimise.lbfgs import minimise
from ...errors import ConvergenceWarning, check_whole_number
from ...estimate import Estimate
from .._map_rows import map_rows
from .._method import Cost, Method
from .._monte_carlo.weights import GOOD_PARETO_K, pareto_k
from .._query import Query
from .flows import draw_flow, train_flow
from .unconstrained import (
    GaussianPosterior,
    UnconstrainedPosterior,
    flatten_energy,
    n_coordinates,
    unsupported_space,
)

_MOST_FULL_RANK = 512  # coordinates of a full covariance
_MOST_CURVATURES = 4096  # coordinates whose curvature is computed for the start
_MODE_ITERATIONS = 200  # of the search of a mode to start from
_EVALUATION_DRAWS = 4000  # for the bound and its Pareto k̂
_AT_ONCE = 100  # draws that are evaluated together
#: Share of effective draws above which q is near the posterior whatever the shape of the tail of its weights.
_GOOD_SHARE = 0.9


class VariationalGaussian(Method):
    """p(hidden | given) as the Gaussian q of highest ELBO = E_q[−E(u)] + H(q) ≤ log ∫ exp(−E).

    x = b(u) for the bijection b of the space, and E(u) = e(b(u)) − log|∂b/∂u|. The expectation is a mean over
    draws u = μ + Rz that are fixed: z has mean 0 and, with enough draws, covariance I exactly. The ELBO is
    then an ordinary function of μ and R, which L-BFGS maximises until its gradient vanishes, and results
    repeat. A quadratic E is solved exactly. The bound and the Pareto k̂ of the weights p/q come from other
    draws; above 0.7 the posterior warns that q is too far from it, unless nearly all weights are equal.

    Args:
        family: "mean-field", independent coordinates; "full-rank", any covariance, for up to 512 coordinates;
            or a flow, an Equinox module with `sample(key)`, a vector u, and `log_prob(u)`, whose arrays are
            trained by Adam.
        n_samples: draws of z; "full-rank" takes at least four for every coordinate. Of a flow, at each step.
        tol: L-BFGS stops if no coordinate of the gradient is larger, in units of the standard deviations of
            q.
        max_iter: the largest number of iterations, or the steps of Adam for a flow.
        learning_rate: of Adam, at the start of a cosine decay.
        seed: the key of all draws.

    Giordano, Ingram and Broderick (2024), Black box variational inference with a deterministic objective;
    Kucukelbir et al. (2017), Automatic differentiation variational inference; Yao, Vehtari, Simpson and
    Gelman (2018), Yes, but did it work?

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import posterior
    >>> bowl = NeuralEnergy(lambda x: -x.sum(), 2, confinement=1.0)     # −Σx + ½‖x‖²
    >>> found = posterior(bowl, {}, VariationalGaussian())
    >>> found.mean["x"].round(2), found.covariance.round(2).diagonal()
    (array([1., 1.], dtype=float32), array([1., 1.], dtype=float32))
    """

    family: Any = "mean-field"
    n_samples: int = eqx.field(static=True, default=64)
    tol: float = eqx.field(static=True, default=1e-3)
    max_iter: int = eqx.field(static=True, default=1000)
    learning_rate: float = eqx.field(static=True, default=1e-2)
    seed: int = eqx.field(static=True, default=0)

    deterministic = True
    tasks = frozenset({"posterior", "sample", "log_prob", "log_partition"})
    priority = 50

    def __check_init__(self):
        is_flow = callable(getattr(self.family, "sample", None)) and hasattr(self.family, "log_prob")
        if not is_flow:
            families = one_of("mean-field", "full-rank")
            flow = Setting(lambda _: False, "a flow with sample(key) and log_prob(u)")
            check_arguments(self, family=families | flow)
        check_whole_number("n_samples", self.n_samples, 2)
        check_whole_number("max_iter", self.max_iter)
        check_arguments(self, tol=POSITIVE_NUMBER, learning_rate=POSITIVE_NUMBER, seed=SEED)

    @property
    def label(self):
        return f"variational, {self.family if isinstance(self.family, str) else type(self.family).__name__}"

    def unsupported_reason(self, task, query):
        reason = unsupported_space(query)
        if reason is not None:
            return reason
        if not query.hidden:
            return "needs a hidden variable"
        if task == "log_prob" and not query.energy.knows("log_partition"):
            return f"needs log Z, which {type(query.energy).__name__} does not have in closed form"
        size = n_coordinates(query)
        if isinstance(self.family, str) and self.family == "full-rank" and size > _MOST_FULL_RANK:
            return f"has a covariance of {size:,}² numbers, more than {_MOST_FULL_RANK:,}²; use 'mean-field'"
        return None

    def why(self, task, query):
        return "the hidden variables are real and the energy has a gradient"

    def kind(self, task, query):
        return "lower bound" if task in ("log_prob", "log_partition") else "estimate"

    def cost(self, task, query):
        return Cost(evaluations=query.n * self.n_samples * self.max_iter)

    def fit(self, query: Query) -> dict[str, Any]:
        """Return the best q of every row and its log-weights; warn if the search did not converge."""
        size = n_coordinates(query)
        function = _fit_gaussian if isinstance(self.family, str) else train_flow
        width = self.n_samples * size + (4 * size**2 if self.family == "full-rank" else 0)
        arguments = (query.energy, self, tuple(query.hidden))
        found = map_rows(function, query.given, query.n, *arguments, numbers_per_row=width)
        if not found["converged"].all():
            warnings.warn(
                f"VariationalGaussian: the bound of {int((~found['converged']).sum())} of {query.n} rows "
                f"did not reach its maximum in {self.max_iter} iterations. Raise max_iter or n_samples.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return found

    def posterior(self, query, key):
        found = self.fit(query)
        if isinstance(self.family, str):
            return VariationalPosterior(query, found, self, key)
        return FlowPosterior(query, found, self, key)

    def sample(self, query, n, key):
        found = self.posterior(query, None)
        if found.problem:
            # Draws of q are exact, so that their own diagnostics cannot find this.
            message = f"Results by {found.method} cannot be trusted: {found.problem}."
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        return found._draw(n, key)

    def log_prob(self, query, key):
        bound = _bound(self.fit(query)["log_weights"], self.label)
        return bound - np.asarray(query.energy.log_partition())

    def log_partition(self, query, key):
        return _bound(self.fit(query)["log_weights"], self.label)[0]


def _bound(log_weights: np.ndarray, label: str) -> Estimate:
    """Return the mean of log p/q over the draws of every row, with its standard error."""
    error = log_weights.std(1, ddof=1) / math.sqrt(log_weights.shape[1])
    return Estimate(log_weights.mean(1), error, "lower bound", label)


class _Diagnosed(UnconstrainedPosterior):
    """A posterior with the log-weights log p/q of draws of q."""

    _found: dict[str, Any]
    _variational: VariationalGaussian

    def _set(self, found: dict[str, Any], method: VariationalGaussian) -> None:
        self._found, self._variational, self.method = found, method, method.label
        self._caveat = f"of a {method.label} approximation"  # type: ignore[misc]

    @functools.cached_property
    def pareto_k(self) -> Any:
        """The Pareto k̂ of the weights p/q of draws of q, per row: below 0.7, q is near the posterior."""
        return self._query.unbatch(pareto_k(self._found["log_weights"]))

    @functools.cached_property
    def effective_share(self) -> Any:
        """(Σ w)² / (n Σ w²) of the weights w = p/q of draws of q, per row: 1 if q is the posterior."""
        logs = self._found["log_weights"].astype(float)
        w = np.exp(logs - logs.max(1, keepdims=True))
        return self._query.unbatch(w.mean(1) ** 2 / (w**2).mean(1))

    @property
    def problem(self):
        # Weights that are nearly equal may have a heavy tail, as the posterior of a logistic regression has.
        far = np.atleast_1d(self.effective_share) < _GOOD_SHARE
        k = float(np.max(np.atleast_1d(self.pareto_k)[far], initial=0.0))
        if k <= GOOD_PARETO_K:
            return ""
        reason = f"Pareto k-hat is {k:.2f}, above {GOOD_PARETO_K}"
        return f"{reason}, so that q is far from the posterior; use a sampler"

    @property
    def elbo(self) -> Estimate:
        """The lower bound of log ∫ exp(−e) over the hidden variables."""
        bound = _bound(self._found["log_weights"], self.method)
        return bound if self._query.batched else bound[0]

    def _compute_log_evidence(self):
        return self._log_evidence_by(self._variational)


class VariationalPosterior(_Diagnosed, GaussianPosterior):
    """p(hidden | given) as the Gaussian of highest ELBO in unconstrained coordinates."""

    def __init__(self, query: Query, found: dict[str, Any], method: VariationalGaussian, key: Any = None):
        GaussianPosterior.__init__(self, query, found["center"], found["root"], key)
        self._set(found, method)


class FlowPosterior(_Diagnosed):
    """p(hidden | given) as a flow in unconstrained coordinates; its mode is the best of some draws."""

    def __init__(self, query: Query, found: dict[str, Any], method: VariationalGaussian, key: Any = None):
        super().__init__(query, key)
        self._set(found, method)

    @property
    def _center(self):
        return self._found["center"]

    def _draw_u(self, n, key):
        return draw_flow(self._variational.family, self._found["flow"], n, self._query.n, key)

    def _compute_mean(self):
        return {k: v.mean(0) for k, v in self._values(self._draw_u(2000, jax.random.key(0))).items()}


# -- the Gaussian of one row ---------------------------------------------------------------------------


def _fit_gaussian(row, key, energy, method, names):
    """Return center, root and log-weights of the best Gaussian of one row."""
    objective, _, start = flatten_energy(energy, row, names)
    full = method.family == "full-rank"
    fixed_key, new_key = jax.random.split(jax.random.key(method.seed))
    z = _fixed_noise(fixed_key, max(method.n_samples, 4 * start.size if full else 2), start)
    mean_energy = lambda u: jax.vmap(objective)(u).mean()
    center, root = _best_start(objective, mean_energy, start, z, full)
    times = lambda root, v: v @ root.T if full else v * root
    log_det = jnp.linalg.slogdet(root)[1] if full else jnp.log(root).sum()

    def factor(p):
        scale = jnp.exp(p["log_scale"])
        return jnp.tril(p["lower"], -1) + jnp.diag(scale) if full else scale

    def loss(p):
        """−ELBO, with the entropy of q in closed form but for its constant."""
        u = center + times(root, p["shift"] + times(factor(p), z))
        return mean_energy(u) - log_det - p["log_scale"].sum()

    zero = jnp.zeros_like(start)
    first = {"shift": zero, "log_scale": zero}
    if full:
        first["lower"] = jnp.zeros((start.size, start.size), start.dtype)
    p, _, converged = minimise(loss, first, tol=method.tol, max_iter=method.max_iter, memory_size=10)
    center = center + times(root, p["shift"])
    root = root @ factor(p) if full else root * factor(p)
    log_det = log_det + p["log_scale"].sum()

    def log_weight(z):
        log_q = -0.5 * z @ z - 0.5 * z.size * math.log(2 * math.pi) - log_det
        return -objective(center + times(root, z)) - log_q

    noise = jax.random.normal(new_key, (_EVALUATION_DRAWS, start.size), start.dtype)
    log_weights = jax.lax.map(log_weight, noise, batch_size=_AT_ONCE)
    return {"center": center, "root": root, "log_weights": log_weights, "converged": converged}


def _fixed_noise(key, n, like):
    """Return n draws z in pairs z, −z, scaled to variance 1; uncorrelated if there are enough of them."""
    half = jax.random.normal(key, (-(-n // 2), like.size), like.dtype)
    if half.shape[0] > like.size:
        factor = jnp.linalg.cholesky(half.T @ half / half.shape[0])
        half = jax.scipy.linalg.solve_triangular(factor, half.T, lower=True).T
    else:
        half = half / jnp.sqrt((half**2).mean(0))
    return jnp.concatenate([half, -half])


def _best_start(objective, mean_energy, start, z, full):
    """Return (center, root): of Laplace's method near a mode, or a narrow Gaussian at the start if better.

    A posterior may have a mode far from its mass, as a funnel has.
    """
    d = start.size
    narrow = jnp.full_like(start, 0.1)
    mode, _, _ = minimise(objective, start, tol=1e-2, max_iter=_MODE_ITERATIONS, memory_size=10)
    if d <= _MOST_CURVATURES:
        curvature = lambda v: jax.jvp(jax.grad(objective), (mode,), (v,))[1] @ v
        found = jax.lax.map(curvature, jnp.eye(d, dtype=start.dtype))
        scale = jnp.where(found > 0, jax.lax.rsqrt(jnp.where(found > 0, found, 1)), 0.1)
    else:
        scale = narrow
    root, other = scale, narrow
    if full:
        factor = jnp.linalg.cholesky(jax.hessian(objective)(mode))
        inverse = jax.scipy.linalg.solve_triangular(factor, jnp.eye(d, dtype=start.dtype), lower=True).T
        root = jnp.where(jnp.isfinite(inverse).all(), inverse, jnp.diag(scale))
        other = jnp.diag(narrow)
    times = lambda root, v: v @ root.T if full else v * root
    log_det = lambda root: jnp.linalg.slogdet(root)[1] if full else jnp.log(root).sum()
    bound = lambda center, root: mean_energy(center + times(root, z)) - log_det(root)
    values = jnp.stack([bound(mode, root), bound(start, other)])
    use_mode = jnp.argmin(jnp.where(jnp.isfinite(values), values, jnp.inf)) == 0
    return jnp.where(use_mode, mode, start), jnp.where(use_mode, root, other)
