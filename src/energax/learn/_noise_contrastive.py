"""Noise-contrastive estimation: classify data against noise, with log Z as a parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import NAME, WHOLE, check_arguments
from .._util.arrays import asarray
from .._util.xla import softplus
from ..batch import map_rows
from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable
from ..missing import Masked
from ..spaces import Binary, Categorical, Real, Space
from ._objective import Objective
from ._requirements import check_free_energy, check_joint, check_no_missing, check_variables

_INITIAL_DRAWS = 1024  # of noise, for the first estimate of log Z


class NoiseContrastive(Objective):
    """The logistic loss of telling data x from k draws of noise x̃_j per row.

        −log σ(G(x)) − Σ_j log σ(−G(x̃_j)),    G(u) = −F(u) − c − log p_noise(u) − log k.

    G is the log-odds that u is data and not noise. It is correct only if exp(−F − c) is a density,
    so the partner c learns log Z. It starts at an estimate by importance sampling from the noise.

    Args:
        noise: a distribution over `variable` with `sample(key, shape)` and `log_prob`, such as
            NumPyro's, or an energy with exact `log_partition` and `draw`, such as a fitted
            mixture. The more it resembles the data, the better the estimate;
            `NoiseContrastive.matched` makes one with the moments of the data.
        k: draws of noise per row.
        variable: the only variable in the data; all others of the energy are summed out.
        partner: the initial c; by default it is estimated.

    Gutmann and Hyvärinen (2012), Noise-contrastive estimation of unnormalized statistical
    models.

    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> X = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    >>> objective = NoiseContrastive.matched(rbm, {"x": X}, k=20)
    >>> log_z = objective.init_partner(rbm, None, jax.random.key(0))
    >>> print(f"{log_z:.3f}, exactly {rbm.log_partition():.3f}")
    3.466, exactly 3.466
    """

    noise: Any
    k: int = eqx.field(static=True)
    variable: str = eqx.field(static=True)

    def __init__(self, noise: Any, k: int = 10, variable: str = "x", *, partner: Any = None):
        check_arguments(locals(), k=WHOLE, variable=NAME)
        noise = EnergyNoise(noise, variable) if isinstance(noise, Energy) else noise
        absent = [m for m in ("sample", "log_prob") if not hasattr(noise, m)]
        if absent:
            raise BadInput(
                "noise",
                f"{type(noise).__name__} without {' and '.join(absent)}",
                "a distribution, or an energy with log_partition and draw",
                "Try NoiseContrastive.matched(energy, data).",
            )
        self.noise, self.k, self.variable, self.partner = noise, k, variable, partner

    @classmethod
    def matched(
        cls, energy: Any, data: Mapping[str, Any], k: int = 10, variable: str = "x"
    ) -> NoiseContrastive:
        """An objective whose noise has the mean of the data and, for real data, the covariance.

        Data in (0, ∞), an interval or a simplex are matched in ℝⁿ, through the space's bijection.
        The coordinates of a finite space are independent of each other, and one half is added to
        every count, so that no value has probability 0.

        Args:
            energy: the energy to learn; its space of `variable` determines the kind of noise.
            data: a dict with the rows of `variable`, (n, …).
            k: draws of noise per row.
            variable: the name of the variable to learn.
        """
        if variable not in data:
            raise BadInput("data", f"the names {sorted(data)}", f"{variable!r} among them")
        space = energy.spaces[variable]
        rows = space.check(data[variable], f"data[{variable!r}]")
        return cls(matched_noise(space, rows), k, variable)

    def check(self, energy, data):
        check_variables(self, data, self.variable)
        check_joint(self, energy)
        if set(data) != {self.variable}:
            raise Unsuitable(
                f"NoiseContrastive learns only {self.variable!r}, but the data has {sorted(data)}. "
                f"Pass only {self.variable!r}, or use CrossEntropy to predict a variable from the others."
            )
        check_no_missing(self, data, self.variable, instead="ContrastiveDivergence, which draws them")
        check_free_energy(self, energy, data)
        space, shape = energy.spaces[self.variable], getattr(self.noise, "event_shape", None)
        if shape is not None and tuple(shape) != space.shape:
            raise Unsuitable(
                f"NoiseContrastive: the noise draws values of shape {tuple(shape)}, but {self.variable!r} "
                f"is in {space!r}. Make the noise with `matched(energy, data)`, or with .to_event(1)."
            )

    def init_partner(self, energy, batch, key):
        """log Z estimated by importance sampling from the noise, unless a partner was given."""
        if self.partner is not None:
            return asarray(self.partner)
        draws = self.noise.sample(key, (_INITIAL_DRAWS,))
        log_w = -self._free_energies(energy, draws) - self.noise.log_prob(draws)
        return jax.nn.logsumexp(log_w) - jnp.log(log_w.shape[0]).astype(log_w.dtype)

    def _free_energies(self, energy, values):
        values = values.astype(energy.spaces[self.variable].jax_dtype)
        return map_rows(lambda value: free_energy(energy, {self.variable: value}), values)

    def __call__(self, energy, batch, carry, key):
        data = batch.data[self.variable]
        draws = self.noise.sample(key, (batch.n, self.k))

        def log_odds(values):
            log_p = -self._free_energies(energy, values) - self.partner
            return log_p - self.noise.log_prob(values) - np.log(self.k)

        noise_odds = log_odds(draws.reshape(-1, *draws.shape[2:])).reshape(batch.n, self.k)
        terms = {
            "data": batch.mean(softplus(-log_odds(data))),
            "noise": batch.mean(softplus(noise_odds).sum(1)),
        }
        return terms, carry


class EnergyNoise(eqx.Module):
    """An energy with exact `draw` and `log_partition`, with the interface of a NumPyro distribution."""

    energy: Energy
    variable: str = eqx.field(static=True)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.energy.spaces[self.variable].shape

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        keys = jax.random.split(key, int(np.prod(sample_shape)))
        draws = jax.vmap(lambda k: self.energy.draw(k)[self.variable])(keys)
        return jax.lax.stop_gradient(draws.reshape(*sample_shape, *self.event_shape))

    def log_prob(self, value: Any) -> Any:
        rows = value.reshape(-1, *self.event_shape)
        free = jax.vmap(lambda row: free_energy(self.energy, {self.variable: row}))(rows)
        leading = value.shape[: value.ndim - len(self.event_shape)]
        return -free.reshape(leading) - self.energy.log_partition()


def matched_noise(space: Space, rows: Any) -> Any:
    """A NumPyro distribution over one example with the mean of the rows, and in ℝⁿ their covariance.

    Other real spaces are mapped to ℝⁿ by their bijection, and matched there.
    """
    from numpyro import distributions as dist

    observed = np.asarray(rows.observed) if isinstance(rows, Masked) else np.ones(np.shape(rows), bool)
    value = np.asarray(rows.value if isinstance(rows, Masked) else rows)
    n, axes = observed.sum(0), len(space.shape)
    if isinstance(space, Binary):
        p = (np.where(observed, value, 0).sum(0) + 0.5) / (n + 1.0)
        return dist.Bernoulli(logits=asarray(np.log(p) - np.log1p(-p))).to_event(axes)
    if isinstance(space, Categorical):
        counts = np.stack([(observed & (value == j)).sum(0) + 0.5 for j in range(space.k)], -1)
        return dist.Categorical(logits=jnp.log(asarray(counts))).to_event(axes)
    if not space.is_real or len(space.bijection.inverse_shape(space.shape)) > 1:
        raise Unsuitable(
            f"NoiseContrastive.matched has no noise for {space!r}. Pass your own as `noise`, a distribution "
            "over it."
        )
    normal = _fit_normal(*_to_unconstrained(space, value, observed))
    return normal if isinstance(space, Real) else dist.TransformedDistribution(normal, space.bijection)


def _to_unconstrained(space: Space, value: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their masks mapped to ℝⁿ by the bijection of their space."""
    if isinstance(space, Real):
        return value, observed
    if space.event_ndim:  # coordinates with a joint constraint: only complete rows can be mapped
        complete = observed.reshape(len(observed), -1).all(1)
        value = value[complete]
        observed = np.ones((len(value), *space.bijection.inverse_shape(space.shape)), bool)
    unconstrained = np.asarray(space.bijection.inv(asarray(value)))
    if not np.isfinite(unconstrained[observed]).all():
        raise BadInput(
            "data", f"values on the edge of {space!r}", "values inside it", "Move them inside a little."
        )
    return unconstrained, observed


def _fit_normal(value: np.ndarray, observed: np.ndarray) -> Any:
    """The normal distribution with the mean and the covariance of the observed entries of these rows."""
    from numpyro import distributions as dist

    mean = np.where(observed, value, 0).sum(0) / np.maximum(observed.sum(0), 1)
    centred = np.where(observed, value - mean, 0)
    if value.ndim == 1:
        return dist.Normal(asarray(mean), asarray(np.sqrt(max((centred**2).mean(), 1e-6))))
    d = value.shape[1]
    covariance = centred.T @ centred / max(len(value), 1)
    # Keeps the matrix positive definite for constant columns and for fewer rows than columns.
    floor = 1e-3 * max(np.trace(covariance) / d, 1e-6)
    tril = np.linalg.cholesky(covariance + floor * np.eye(d))
    return dist.MultivariateNormal(asarray(mean), scale_tril=asarray(tril))
