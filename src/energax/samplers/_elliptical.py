"""`EllipticalSlice`: moves on ellipses, for posteriors with a Gaussian prior."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import NUMBER, VECTOR, check_arguments
from ..energy import Energy
from ..errors import BadInput, Unsuitable
from ..spaces import fixed
from ._coordinates import check_gradient, complete_state, log_density, split_spaces, to_unconstrained
from ._sampler import Sampler


class EllipticalSlice(Sampler):
    """Elliptical slice sampling: a draw on an ellipse through the state and a draw of the prior N(μ, Σ).

    For energies e(x) = ½ (x − μ)ᵀ Σ⁻¹ (x − μ) − log L(x) over real x, such as the function values of a
    Gaussian process. The likelihood is e(x) without the prior, −log L(x). Every move changes the state, and
    there is nothing to tune. Draws are right for any μ and Σ, and fast for those of the prior.

    Args:
        covariance: Σ of all real variables, (d, d), or its diagonal (d,).
        mean: μ, (d,) or a number.

    Murray, Adams and MacKay (2010), Elliptical slice sampling.

    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> narrow = NeuralEnergy(lambda x: 1.5 * (x**2).sum(), 2, confinement=1.0)   # N(0, ¼)
    >>> draws = sample(narrow, 4000, method=EllipticalSlice(jnp.ones(2)), key=0)
    >>> bool(abs(draws["x"].std() - 0.5) < 0.03)
    True
    """

    covariance: Any = fixed()
    mean: Any = 0.0

    varies_in_length = True
    is_compiled = True

    def __check_init__(self):
        check_arguments(self, covariance=VECTOR, mean=NUMBER)
        shape = np.shape(self.covariance)
        if len(shape) not in (1, 2) or len(set(shape)) != 1:
            raise BadInput("covariance", f"shape {shape}", "a matrix (d, d), or its diagonal (d,)")

    @property
    def label(self):
        return "elliptical slice"

    def check(self, energy: Energy) -> None:
        check_gradient(energy, "EllipticalSlice")
        real = split_spaces(energy)[0]
        constrained = [n for n, s in real.items() if not s.is_unconstrained]
        if constrained:
            raise Unsuitable(
                f"EllipticalSlice needs variables in Real spaces, which {constrained} are not. Use NUTS."
            )
        d = sum(s.size for s in real.values())
        if np.shape(self.covariance)[0] != d:
            found = f"{np.shape(self.covariance)[0]} rows"
            raise BadInput("covariance", found, f"{d}, one for every coordinate of {list(real)}")

    def init_memory(self, energy, state, clamped=None):
        from blackjax.mcmc.elliptical_slice import init

        return init(to_unconstrained(energy, state), self._log_likelihood(energy, state, clamped))

    def is_valid_start(self, memory):
        return jnp.isfinite(memory.logdensity)

    def _log_likelihood(self, energy, state, clamped):
        log_p = log_density(energy, state, clamped)

        def log_likelihood(u):
            v = u - jnp.asarray(self.mean, u.dtype)
            covariance = jnp.asarray(self.covariance, u.dtype)
            if covariance.ndim == 1:
                return log_p(u) + 0.5 * jnp.sum(v**2 / covariance)
            white = jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(covariance), v, lower=True)
            return log_p(u) + 0.5 * white @ white

        return log_likelihood

    def step(self, energy, state, key, clamped=None):
        return self.move(energy, state, self.init_memory(energy, state, clamped), key, clamped)[0]

    def move(self, energy, state, memory, key, clamped=None):
        from blackjax.mcmc.elliptical_slice import build_kernel

        move_key, finite_key = jax.random.split(key)
        u = memory.position
        covariance = jnp.asarray(self.covariance, u.dtype)
        mean = jnp.broadcast_to(jnp.asarray(self.mean, u.dtype), u.shape)
        kernel = build_kernel(covariance, mean)
        memory, info = kernel(move_key, memory, self._log_likelihood(energy, state, clamped))
        state = complete_state(energy, state, memory.position, finite_key, clamped)
        return state, memory, {"n_steps": jnp.asarray(info.subiter, jnp.int32)}
