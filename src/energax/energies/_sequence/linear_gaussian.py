"""The linear-Gaussian state-space model: linear dynamics, linear observations, Gaussian noise."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import FLAG, check_arguments, read_array
from ..._util.arrays import asarray
from ..._util.linalg import cholesky, semidefinite_factor, solve_lower
from ...algorithms.chains import kalman as kalman
from ...algorithms.chains.kalman_parallel import parallel_filter, parallel_smoother
from ...algorithms.gaussian import ssm_moments as moments
from ...energy import Energy, is_static_value
from ...errors import BadInput, Unsuitable
from ...missing import is_masked, mask_of, value_of
from ...spaces import PositiveDefinite, Real, Semidefinite, Sequence, Space, is_concrete, parameter

_COVARIANCES = ("initial_covariance", "transition_covariance", "emission_covariance")


class LinearGaussianSSM(Energy):
    """e(x, z) = −log p(z₁) − Σ log p(z_t | z_{t−1}) − Σ log p(x_t | z_t), all of them Gaussian; log Z = 0.

    z₁ ~ N(m, P), z_t = A z_{t−1} + b + N(0, Q), x_t = C z_t + d + N(0, R). F(x) = −log p(x), the
    posterior of z, forecasts and the steps of EM are exact (`energax.infer.Kalman`).

    Missing values of x, single coordinates or whole steps, are integrated out. Sequences of different
    lengths are padded (`Sequence.pad`, which marks steps past an end as missing); learning counts the steps
    up to the last observed one. P and Q may be singular, also zero: then z has no density and e(x, z) is
    not finite, but everything else is.

    Args:
        transition: A, (k, k).
        emission: C, (d, k).
        transition_covariance: Q, (k, k).
        emission_covariance: R, (d, d), not singular.
        initial_mean, initial_covariance: m (default 0) and P (default 1): a large P is a diffuse start.
        transition_offset, emission_offset: b and d, by default 0.
        length: the number of steps of a sequence, needed to draw without x; None for any.
        diagonal: names of the covariances that are diagonal.
        parallel: compute all steps in parallel, by an associative scan. It is more work in total and takes
            longer to compile; for long sequences on accelerators.

    Any parameter can be frozen: `fit(model, data, EM(), freeze=("transition", "emission"), key=0)`.

    Kalman (1960), A new approach to linear filtering and prediction problems; Roweis and Ghahramani
    (1999), A unifying review of linear Gaussian models.

    >>> walk = LinearGaussianSSM([[1.0]], [[1.0]], [[0.5]], [[2.0]])
    >>> x = jnp.array([[0.0], [1.0], [3.0]])
    >>> walk.free_energy(x=x)                                # −log p(x)
    Array(5.69..., dtype=float32)
    >>> walk.smooth(x=x).mean.ravel()                        # E[z | x]
    Array([0.552..., 0.967..., 1.37...], dtype=float32)
    """

    initial_mean: jax.Array
    initial_covariance: jax.Array = parameter(Semidefinite())
    transition: jax.Array
    transition_offset: jax.Array
    transition_covariance: jax.Array = parameter(Semidefinite())
    emission: jax.Array
    emission_offset: jax.Array
    emission_covariance: jax.Array = parameter(PositiveDefinite())
    length: int | None = eqx.field(static=True, default=None)
    diagonal: tuple[str, ...] = eqx.field(static=True, default=())
    parallel: bool = eqx.field(static=True, default=False)

    marginalises = frozenset({"x"})

    def __init__(
        self,
        transition: Any,
        emission: Any,
        transition_covariance: Any,
        emission_covariance: Any,
        *,
        initial_mean: Any = None,
        initial_covariance: Any = None,
        transition_offset: Any = None,
        emission_offset: Any = None,
        length: int | None = None,
        diagonal: Any = (),
        parallel: bool = False,
    ):
        emission = _real("emission", emission, (None, None))
        (d, k), dtype = emission.shape, emission.dtype
        zeros = lambda value, n: jnp.zeros(n, dtype) if value is None else value
        self.emission = emission
        self.transition = _real("transition", transition, (k, k), dtype)
        self.transition_covariance = _real("transition_covariance", transition_covariance, (k, k), dtype)
        self.emission_covariance = _real("emission_covariance", emission_covariance, (d, d), dtype)
        self.initial_mean = _real("initial_mean", zeros(initial_mean, k), (k,), dtype)
        broad = jnp.eye(k, dtype=dtype) if initial_covariance is None else initial_covariance
        self.initial_covariance = _real("initial_covariance", broad, (k, k), dtype)
        self.transition_offset = _real("transition_offset", zeros(transition_offset, k), (k,), dtype)
        self.emission_offset = _real("emission_offset", zeros(emission_offset, d), (d,), dtype)
        check_arguments(locals(), parallel=FLAG)
        self.length, self.parallel = length, bool(parallel)
        self.diagonal = (diagonal,) if isinstance(diagonal, str) else tuple(diagonal)
        if length is not None and (isinstance(length, bool) or not isinstance(length, int) or length < 1):
            raise BadInput("length", repr(length), "a number of steps >= 1, or None")
        unknown = [name for name in self.diagonal if name not in _COVARIANCES]
        if unknown:
            raise BadInput("diagonal", f"the names {unknown}", f"some of {', '.join(_COVARIANCES)}")
        for name in _COVARIANCES:
            _check_covariance(name, getattr(self, name), name in self.diagonal)

    @property
    def spaces(self):
        d, k = self.emission.shape
        return {"x": Sequence(Real(d), self.length), "z": Sequence(Real(k), self.length)}

    @property
    def observed_name(self) -> str:
        """The name of the variable that is observed."""
        return "x"

    @property
    def state_name(self) -> str:
        """The name of the variable that holds the hidden states."""
        return "z"

    @property
    def system(self) -> kalman.System:
        """The parameters in the form that `algorithms.chains.kalman` takes."""
        P, Q, R = (self._covariance(name) for name in _COVARIANCES)
        factor = semidefinite_factor
        moves = (self.transition, self.transition_offset, factor(Q))
        return kalman.System(self.initial_mean, factor(P), *moves, self.emission, self.emission_offset, R)

    def _covariance(self, name):
        value = getattr(self, name)
        return jnp.diag(jnp.diagonal(value)) if name in self.diagonal else value

    def __call__(self, *, x, z):
        s, z = self.system, asarray(z)
        start = _normal_energies(s.initial_factor, (z[0] - s.initial_mean)[None])
        moves = z[1:] - z[:-1] @ s.transition.T - s.transition_offset
        return start + _normal_energies(s.transition_factor, moves) + self._emission_energy(x, z)

    def _emission_energy(self, x, z):
        R = self._covariance("emission_covariance")
        error = asarray(value_of(x)) - z @ self.emission.T - self.emission_offset
        if not is_masked(x):
            return _normal_energies(cholesky(R[None])[0], error)
        observed = mask_of(x)
        factors = kalman.observed_factors(R, observed)
        white = solve_lower(factors, jnp.where(observed, error, 0)[..., None])
        log_det = jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum()
        return 0.5 * (white**2).sum() + log_det + 0.5 * _log_two_pi(R) * observed.sum()

    def free_energy(self, *, x=None, z=None):
        """−log p(x), its missing values integrated out; or −log p(z)."""
        if x is None:
            return self(x=z @ self.emission.T, z=z) - self._emission_energy(z @ self.emission.T, z)
        return -self.filter(x=x).log_likelihood.sum()

    def log_partition(self):
        return jnp.zeros((), self.emission.dtype)

    # -- states given observations -----------------------------------------------------------------

    def filter(self, *, x) -> kalman.FilteredStates:
        """p(z_t | x₁ … x_t) of every step of one sequence."""
        value = asarray(value_of(x)).astype(self.emission.dtype)
        run = parallel_filter if self.parallel else kalman.kalman_filter
        return run(self.system, value, mask_of(x) if is_masked(x) else None)

    def smooth(self, *, x) -> kalman.SmoothedStates:
        """p(z_t | x) of every step of one sequence."""
        return self._smooth_filtered(self.filter(x=x))

    def _smooth_filtered(self, filtered):
        run = parallel_smoother if self.parallel else kalman.kalman_smoother
        return run(self.system, filtered)

    def complete(self, *, x, smoothed: kalman.SmoothedStates | None = None) -> tuple[Any, Any]:
        """E[x | observed entries] (steps, d), and its covariance, (steps, d, d)."""
        smoothed = self.smooth(x=x) if smoothed is None else smoothed
        return moments.impute(self.system, smoothed, asarray(value_of(x)), mask_of(x))

    def forecast(self, steps: int, *, x, after: Any = -1) -> kalman.StateForecast:
        """The states and observations of the `steps` steps that follow x, or its first `after` steps."""
        found = self.filter(x=x)
        return kalman.forecast(self.system, found.predicted_mean[after], found.predicted_factor[after], steps)

    def inference(self, task):
        """The inference method of this family: the Kalman smoother."""
        return "Kalman"

    def argmin(self, *, x=None, z=None):
        """The mean of the hidden variables and missing values, which is the mode of a Gaussian."""
        if x is None:
            return {"x": z @ self.emission.T + self.emission_offset}
        smoothed = self.smooth(x=x)
        best = {"z": smoothed.mean}
        return {**best, "x": self.complete(x=x, smoothed=smoothed)[0]} if is_masked(x) else best

    def conditional(self, name, **given):
        """p(x | z). For p(z | x) use `posterior` or `smooth`."""
        from numpyro.distributions import MultivariateNormal

        if name != "x" or set(given) != {"z"}:
            raise Unsuitable(
                f"LinearGaussianSSM knows p(x | z) as a distribution, not p({name} | {', '.join(given)})."
            )
        factor = cholesky(self._covariance("emission_covariance")[None])[0]
        mean = asarray(given["z"]) @ self.emission.T + self.emission_offset
        return MultivariateNormal(mean, scale_tril=factor).to_event(1)

    def draw(self, key, *, x=None, z=None):
        """Draw z, x or both, and the missing values of x, given the rest."""
        system, (first, second) = self.system, jax.random.split(key)
        if x is None and z is None:
            if self.length is None:
                raise BadInput(
                    "length", "None", "the number of steps to draw", "Set the length of the energy."
                )
            return dict(zip(("z", "x"), kalman.simulate(system, self.length, key), strict=True))
        if x is None:
            return {"x": kalman.sample_observations(system, asarray(z), second)}
        out = {}
        if z is None:
            z = kalman.sample_path(system, self.filter(x=x), first)
            out = {"z": z}
        return {**out, "x": self._draw_missing(second, x, z)} if is_masked(x) else out

    def _draw_missing(self, key, x, z):
        """Draw the missing values of x given z and the observed ones: a draw of x, corrected by its error."""
        value, observed = asarray(x.value), mask_of(x)
        onto, _ = kalman.completion(self._covariance("emission_covariance"), observed)
        draw = kalman.sample_observations(self.system, asarray(z), key)
        error = jnp.where(observed, value - draw, 0)
        return jnp.where(observed, value, draw + jnp.einsum("tij,tj->ti", onto, error))

    def impute(self, data):
        """The rows, missing values at their means given the observed ones."""
        x = data["x"]
        return {"x": jax.vmap(lambda row: self.complete(x=row)[0])(x) if is_masked(x) else x}

    # -- EM ------------------------------------------------------------------------------------------

    def expectations(self, data, temperature=1.0):
        """(expected moments, which the M-step takes, and log p(x)) of every row."""
        if not is_static_value(1, temperature):
            raise Unsuitable(
                "EM of a LinearGaussianSSM has no other temperature than 1. Leave `temperature` out."
            )
        system = self.system

        def one(row):
            x, observed = asarray(value_of(row["x"])), mask_of(row["x"])
            if "z" in row:
                z, zeros = asarray(row["z"]), jnp.zeros((len(x), *self.transition.shape), x.dtype)
                smoothed = kalman.SmoothedStates(z, zeros, zeros[1:], zeros[1:])
                log_p = -self(x=row["x"], z=z)
            else:
                filtered = self.filter(x=row["x"])
                smoothed, log_p = self._smooth_filtered(filtered), filtered.log_likelihood.sum()
            return moments.expected_moments(system, smoothed, x, observed), log_p

        return jax.vmap(one)(data)

    def statistics(self, data, posterior):
        """The sum of the moments over rows."""
        return jax.tree.map(lambda a: a.sum(0), posterior)

    def maximise(self, statistics, trainable=None):
        """The regressions of z_t on z_{t−1} and of x_t on z_t, over the parameters that are not frozen."""
        moves = lambda name: trainable is None or bool(getattr(trainable, name))
        k, found = len(self.initial_mean), {}

        def spread(name, scatter, count, floor=0.0):
            old = self._covariance(name)
            if moves(name):
                found[name] = moments.covariance_estimate(scatter, count, old, floor, name in self.diagonal)

        for name in ("transition", "emission"):
            about = getattr(statistics, name)
            free = np.array([moves(name)] * k + [moves(f"{name}_offset")])
            step = moments.least_squares_step(about, free)
            found[name] = getattr(self, name) + step[:, :k]
            found[f"{name}_offset"] = getattr(self, f"{name}_offset") + step[:, k]
            after = moments.shift_residuals(about, step)
            spread(f"{name}_covariance", after.residual, after.count, 10.0 if name == "emission" else 0.0)
        first = statistics.first
        step = first.shift / jnp.where(first.count > 0, first.count, 1)
        step = step if moves("initial_mean") else jnp.zeros_like(step)
        found["initial_mean"] = self.initial_mean + step
        spread("initial_covariance", moments.shift_initial(first, step).scatter, first.count)
        names = tuple(found)
        get = lambda chain: tuple(getattr(chain, name) for name in names)
        return eqx.tree_at(get, self, tuple(found[n].astype(getattr(self, n).dtype) for n in names))

    def recenter(self, statistics, reference):
        """Statistics that were taken about the parameters of `reference`, about these instead."""
        change = lambda name: jnp.concatenate(
            [
                getattr(self, name) - getattr(reference, name),
                (getattr(self, f"{name}_offset") - getattr(reference, f"{name}_offset"))[:, None],
            ],
            axis=1,
        )
        return moments.Moments(
            moments.shift_initial(statistics.first, self.initial_mean - reference.initial_mean),
            moments.shift_residuals(statistics.transition, change("transition")),
            moments.shift_residuals(statistics.emission, change("emission")),
        )


def _log_two_pi(like: Any) -> Any:
    return jnp.log(asarray(2 * jnp.pi, like.dtype))


def _normal_energies(factor: Any, residuals: Any) -> Any:
    """Σ −log N(r; 0, LLᵀ) over rows."""
    white = solve_lower(factor, residuals.T)
    log_det = jnp.log(jnp.diagonal(factor)).sum()
    return 0.5 * (white**2).sum() + len(residuals) * (log_det + 0.5 * len(factor) * _log_two_pi(factor))


def _real(name: str, value: Any, shape: tuple[int | None, ...], dtype: Any = None) -> Any:
    value = read_array(name, value)
    if jnp.iscomplexobj(value):
        raise BadInput(name, "complex numbers", "an array of real numbers")
    if value.ndim != len(shape) or any(
        b is not None and a != b for a, b in zip(value.shape, shape, strict=True)
    ):
        expected = "(d, k): one row per coordinate of x, one column per state"
        raise BadInput(name, f"shape {value.shape}", expected if None in shape else f"{shape}")
    value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
    value = value if dtype is None else value.astype(dtype)
    if is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise BadInput(name, "NaN or infinity", "finite numbers")
    return value


def _check_covariance(name: str, value: Any, diagonal: bool) -> None:
    if not is_concrete(value):
        return
    array = np.asarray(value, np.float64)
    space: Space = PositiveDefinite() if name == "emission_covariance" else Semidefinite()
    if not np.all(space._is_valid(array)):
        found = "a matrix that is not symmetric"
        if np.allclose(array, array.T, rtol=1e-4, atol=1e-6):
            found = f"a matrix with the eigenvalue {np.linalg.eigvalsh(array)[0]:.3g}"
        remedy = ""
        if isinstance(space, PositiveDefinite):
            remedy = "Observations without noise have no density: use a small variance."
        raise BadInput(name, found, space.description(), remedy)
    if diagonal and np.any(array != np.diag(np.diag(array))):
        raise BadInput(name, "numbers off the diagonal", "a diagonal matrix, since `diagonal` names it")
