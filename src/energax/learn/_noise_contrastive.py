"""Noise-contrastive estimation: tell data from noise, and learn log Z on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.xla import softplus
from ..energy import Energy, free_energy
from ..errors import BadInput, Unsuitable
from ..missing import Masked
from ..spaces import Binary, Categorical, Real, Space
from ._objective import Objective, check_variables
from ._requirements import check_complete, check_free_energy, check_joint

_DRAWS = 1024


class NoiseContrastive(Objective):
    """−log σ(G(x)) − Σ_j log σ(−G(x̃_j)), G(u) = −F(u) − c − log p_noise(u) − log k, x̃ ~ noise.

    G is the log-odds that u is data and not one of k draws of noise. It is right only when
    exp(−F − c) is a density, so that c, the partner, learns log Z. (It starts at an estimate
    of log Z by importance sampling from the noise.)

    Args:
        noise: a distribution over `variable` with `sample(key, shape)` and `log_prob`, such as
            NumPyro's, or an energy that knows its log Z and how to draw, such as a fitted
            mixture. The more it resembles the data, the better the estimate;
            `NoiseContrastive.matched` makes one with the moments of the data.
        k: draws of noise for every row.
        variable: the one in the data; all others of the energy are summed out.

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
        if not isinstance(k, int) or k < 1:
            raise BadInput("k", repr(k), "a whole number >= 1")
        noise = EnergyNoise(noise, variable) if isinstance(noise, Energy) else noise
        lacking = [m for m in ("sample", "log_prob") if not hasattr(noise, m)]
        if lacking:
            raise BadInput(
                "noise",
                f"{type(noise).__name__} without {' and '.join(lacking)}",
                "a distribution, or an energy that knows its log Z",
                "Try NoiseContrastive.matched(energy, data).",
            )
        self.noise, self.k, self.variable, self.partner = noise, k, variable, partner

    @classmethod
    def matched(
        cls, energy: Any, data: Mapping[str, Any], k: int = 10, variable: str = "x"
    ) -> NoiseContrastive:
        """Noise with the means of the data and, for real data, their covariance.

        Data in (0, ∞), an interval or a simplex are matched in ℝⁿ, through the space's bijection.
        Every coordinate of a finite space is independent of the others. One half is added to
        every count, so that no value has probability 0.
        """
        if variable not in data:
            raise BadInput("data", f"the names {sorted(data)}", f"{variable!r} among them")
        space = energy.spaces[variable]
        rows = space.check(data[variable], f"data[{variable!r}]")
        return cls(matched_noise(space, rows), k, variable)

    def check(self, energy, data):
        check_variables(self, energy, data, self.variable)
        check_joint(self, energy)
        if set(data) != {self.variable}:
            raise Unsuitable(
                f"NoiseContrastive learns {self.variable!r} alone, but the data has {sorted(data)}. "
                "For the answer to a question use CrossEntropy."
            )
        check_complete(self, energy, data, self.variable, instead="ContrastiveDivergence, which draws them")
        check_free_energy(self, energy, data)
        space, shape = energy.spaces[self.variable], getattr(self.noise, "event_shape", None)
        if shape is not None and tuple(shape) != space.shape:
            raise Unsuitable(
                f"NoiseContrastive: the noise draws values of shape {tuple(shape)}, but {self.variable!r} "
                f"lies in {space!r}. Use NoiseContrastive.matched(energy, data), or .to_event(1)."
            )

    def init_partner(self, energy, batch, key):
        """log Z by importance sampling: exact enough to start from while the energy is near the noise."""
        if self.partner is not None:
            return jnp.asarray(self.partner)
        draws = self.noise.sample(key, (_DRAWS,))
        log_w = -self._free(energy, draws) - self.noise.log_prob(draws)
        return jax.nn.logsumexp(log_w) - jnp.log(log_w.shape[0]).astype(log_w.dtype)

    def _free(self, energy, values):
        values = values.astype(energy.spaces[self.variable].jax_dtype)
        return jax.vmap(lambda value: free_energy(energy, {self.variable: value}))(values)

    def __call__(self, energy, batch, carry, key):
        data = batch.data[self.variable]
        draws = self.noise.sample(key, (batch.n, self.k))

        def log_odds(values):
            return -self._free(energy, values) - self.partner - self.noise.log_prob(values) - np.log(self.k)

        from_noise = log_odds(draws.reshape(-1, *draws.shape[2:])).reshape(batch.n, self.k)
        terms = {
            "data": batch.mean(softplus(-log_odds(data))),
            "noise": batch.mean(softplus(from_noise).sum(1)),
        }
        return terms, carry


class EnergyNoise(eqx.Module):
    """An energy with exact `draw` and `log_partition`, in the manners of a distribution."""

    energy: Energy
    variable: str = eqx.field(static=True)

    @property
    def event_shape(self) -> tuple[int, ...]:
        return self.energy.spaces[self.variable].shape

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        keys = jax.random.split(key, int(np.prod(sample_shape)))
        drawn = jax.vmap(lambda k: self.energy.draw(k)[self.variable])(keys)
        return jax.lax.stop_gradient(drawn.reshape(*sample_shape, *self.event_shape))

    def log_prob(self, value: Any) -> Any:
        rows = value.reshape(-1, *self.event_shape)
        free = jax.vmap(lambda row: free_energy(self.energy, {self.variable: row}))(rows)
        leading = value.shape[: value.ndim - len(self.event_shape)]
        return -free.reshape(leading) - self.energy.log_partition()


def matched_noise(space: Space, rows: Any) -> Any:
    """A NumPyro distribution over one example with the first moments of the rows.

    In ℝⁿ the first two; other real spaces are carried to ℝⁿ by their bijection, and matched there.
    """
    from numpyro import distributions as dist

    seen = np.asarray(rows.observed) if isinstance(rows, Masked) else np.ones(np.shape(rows), bool)
    value = np.asarray(rows.value if isinstance(rows, Masked) else rows)
    n, axes = seen.sum(0), len(space.shape)
    if isinstance(space, Binary):
        on = (np.where(seen, value, 0).sum(0) + 0.5) / (n + 1.0)
        return dist.Bernoulli(logits=jnp.asarray(np.log(on) - np.log1p(-on))).to_event(axes)
    if isinstance(space, Categorical):
        counts = np.stack([(seen & (value == j)).sum(0) + 0.5 for j in range(space.k)], -1)
        return dist.Categorical(logits=jnp.log(jnp.asarray(counts))).to_event(axes)
    if not space.is_real or len(space.bijection.inverse_shape(space.shape)) > 1:
        raise Unsuitable(
            f"There is no ready-made noise for {space!r}. Give NoiseContrastive a distribution over it."
        )
    value, seen = _in_rn(space, value, seen)
    normal = _matched_normal(value, seen)
    return normal if isinstance(space, Real) else dist.TransformedDistribution(normal, space.bijection)


def _in_rn(space: Space, value: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and their masks carried to ℝⁿ by the bijection of their space."""
    if isinstance(space, Real):
        return value, seen
    if space.event_ndim:  # coordinates that are constrained together are known together
        whole = seen.reshape(len(seen), -1).all(1)
        value, seen = (
            value[whole],
            np.ones((int(whole.sum()), *space.bijection.inverse_shape(space.shape)), bool),
        )
    free = np.asarray(space.bijection.inv(jnp.asarray(value)))
    if not np.isfinite(free[seen]).all():
        raise BadInput(
            "data", f"values on the very edge of {space!r}", "values inside it", "Move them inside a little."
        )
    return free, seen


def _matched_normal(value: np.ndarray, seen: np.ndarray) -> Any:
    """The normal distribution with the mean and the covariance of these rows, what is missing left out."""
    from numpyro import distributions as dist

    mean = np.where(seen, value, 0).sum(0) / np.maximum(seen.sum(0), 1)
    centred = np.where(seen, value - mean, 0)
    if value.ndim == 1:
        return dist.Normal(jnp.asarray(mean), jnp.asarray(np.sqrt(max((centred**2).mean(), 1e-6))))
    d = value.shape[1]
    covariance = centred.T @ centred / max(len(value), 1)
    # A constant column, or fewer rows than columns, must still leave a density.
    floor = 1e-3 * max(np.trace(covariance) / d, 1e-6)
    tril = np.linalg.cholesky(covariance + floor * np.eye(d))
    return dist.MultivariateNormal(jnp.asarray(mean), scale_tril=jnp.asarray(tril))
