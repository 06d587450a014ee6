"""The linear-Gaussian chain: real hidden states that move linearly, and are seen linearly, in noise."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.linalg import cholesky, semidefinite_factor, solve_lower
from ...algorithms.chains import kalman as kalman
from ...algorithms.chains.kalman_parallel import parallel_filter, parallel_smoother
from ...algorithms.gaussian import ssm_moments as moments
from ...energy import Energy, is_static_value
from ...errors import BadInput, Unsuitable
from ...missing import is_masked, known, mask_of
from ...spaces import PositiveDefinite, Real, Semidefinite, Sequence, Space, is_concrete, parameter

_COVARIANCES = ("initial_covariance", "transition_covariance", "emission_covariance")


class LinearGaussianSSM(Energy):
    """e(x, z) = −log p(z₁) − Σ log p(z_t | z_{t−1}) − Σ log p(x_t | z_t), all of them normal; log Z = 0.

    z₁ ~ N(m, P), z_t = A z_{t−1} + b + N(0, Q), x_t = C z_t + d + N(0, R). So F(x) = −log p(x), the
    posterior of z, forecasts and the steps of EM are all exact (`energax.infer.Kalman`).

    What is missing of x, single coordinates or whole steps, is integrated out. Sequences of
    differing lengths are padded (`Sequence.pad`, which marks what is past an end as not observed):
    learning counts the steps up to the last of which anything is seen. P and Q may be singular,
    zero too; z has then no density, and e(x, z) is not finite, but all else is.

    Args:
        transition: A, (k, k).
        emission: C, (d, k).
        transition_covariance: Q, (k, k).
        emission_covariance: R, (d, d), not singular.
        initial_mean, initial_covariance: m (default 0) and P (default 1): a large P is a diffuse start.
        transition_offset, emission_offset: b and d, by default 0.
        length: of a row, where rows are to be drawn; None for any.
        diagonal: names of the covariances that have a diagonal alone.
        parallel: all steps side by side, by an associative scan: more work in all, and more to
            compile; for long sequences on accelerators.

    Any of the parameters can be held: `fit(chain, data, EM(), freeze=("transition", "emission"), key=0)`.

    Kalman (1960), A new approach to linear filtering and prediction problems; Roweis and Ghahramani
    (1999), A unifying review of linear Gaussian models.

    >>> walk = LinearGaussianSSM([[1.0]], [[1.0]], [[0.5]], [[2.0]])
    >>> x = jnp.array([[0.0], [1.0], [3.0]])
    >>> walk.free_energy(x=x)                                # −log p(x)
    Array(5.69..., dtype=float32)
    >>> walk.smoothed(x=x).mean.ravel()                      # E[z | x]
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
    def system(self) -> kalman.System:
        """The parameters as the recursions take them."""
        P, Q, R = (self._covariance(name) for name in _COVARIANCES)
        factor = semidefinite_factor
        moves = (self.transition, self.transition_offset, factor(Q))
        return kalman.System(self.initial_mean, factor(P), *moves, self.emission, self.emission_offset, R)

    def _covariance(self, name):
        value = getattr(self, name)
        return jnp.diag(jnp.diagonal(value)) if name in self.diagonal else value

    def __call__(self, *, x, z):
        s, z = self.system, jnp.asarray(z)
        start = _normal_energies(s.initial_factor, (z[0] - s.initial_mean)[None])
        moves = z[1:] - z[:-1] @ s.transition.T - s.transition_offset
        return start + _normal_energies(s.transition_factor, moves) + self._emission_energy(x, z)

    def _emission_energy(self, x, z):
        R = self._covariance("emission_covariance")
        error = jnp.asarray(known(x)) - z @ self.emission.T - self.emission_offset
        if not is_masked(x):
            return _normal_energies(cholesky(R[None])[0], error)
        seen = mask_of(x)
        factors = kalman.seen_factors(R, seen)
        white = solve_lower(factors, jnp.where(seen, error, 0)[..., None])
        log_det = jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum()
        return 0.5 * (white**2).sum() + log_det + 0.5 * _log_two_pi(R) * seen.sum()

    def free_energy(self, *, x=None, z=None):
        """−log p(x), what is missing of it integrated out; or −log p(z)."""
        if x is None:
            return self(x=z @ self.emission.T, z=z) - self._emission_energy(z @ self.emission.T, z)
        return -self.filtered(x=x).log_likelihood.sum()

    def log_partition(self):
        return jnp.zeros((), self.emission.dtype)

    # -- what is known of the states --------------------------------------------------------------

    def filtered(self, *, x) -> kalman.Filtered:
        """What is known of z_t from x₁ … x_t, for one sequence."""
        value = jnp.asarray(known(x)).astype(self.emission.dtype)
        find = parallel_filter if self.parallel else kalman.kalman_filter
        return find(self.system, value, mask_of(x) if is_masked(x) else None)

    def smoothed(self, *, x) -> kalman.SmoothedStates:
        """What is known of z_t from all of x, for one sequence."""
        return self._smoothed(self.filtered(x=x))

    def _smoothed(self, filtered):
        find = parallel_smoother if self.parallel else kalman.smoother
        return find(self.system, filtered)

    def completed(self, *, x, smoothed: kalman.SmoothedStates | None = None) -> tuple[Any, Any]:
        """E[x | what is seen of it] (steps, d), and its covariance, (steps, d, d)."""
        smoothed = self.smoothed(x=x) if smoothed is None else smoothed
        return moments.completed(self.system, smoothed, jnp.asarray(known(x)), mask_of(x))

    def forecast(self, steps: int, *, x, after: Any = -1) -> kalman.Forecast:
        """The next `steps` after the last of x (or after so many): states, and what will be seen of them."""
        found = self.filtered(x=x)
        return kalman.forecast(self.system, found.predicted_mean[after], found.predicted_factor[after], steps)

    def inference(self, task):
        """The family's standard method."""
        return "Kalman"

    def argmin(self, *, x=None, z=None):
        """A normal distribution is highest at its mean."""
        if x is None:
            return {"x": z @ self.emission.T + self.emission_offset}
        smoothed = self.smoothed(x=x)
        best = {"z": smoothed.mean}
        return {**best, "x": self.completed(x=x, smoothed=smoothed)[0]} if is_masked(x) else best

    def conditional(self, name, **given):
        """p(x | z). That of z is no distribution of one step: ask `posterior`, or `smoothed`."""
        from numpyro.distributions import MultivariateNormal

        if name != "x" or set(given) != {"z"}:
            raise Unsuitable(
                f"LinearGaussianSSM knows p(x | z) as a distribution, not p({name} | {', '.join(given)})."
            )
        factor = cholesky(self._covariance("emission_covariance")[None])[0]
        mean = jnp.asarray(given["z"]) @ self.emission.T + self.emission_offset
        return MultivariateNormal(mean, scale_tril=factor).to_event(1)

    def draw(self, key, *, x=None, z=None):
        """z, x or both, and what is missing of x, given the rest."""
        system, (first, second) = self.system, jax.random.split(key)
        if x is None and z is None:
            if self.length is None:
                raise BadInput("length", "None", "the number of steps to draw", "Give it to the energy.")
            drawn = kalman.simulate(system, self.length, key)
            return dict(zip(("z", "x"), drawn, strict=True))
        if x is None:
            return {"x": kalman.emitted(system, jnp.asarray(z), second)}
        out = {}
        if z is None:
            z = kalman.posterior_path(system, self.filtered(x=x), first)
            out = {"z": z}
        return {**out, "x": self._rest_drawn(second, x, z)} if is_masked(x) else out

    def _rest_drawn(self, key, x, z):
        """What is missing of x given z and the rest of it: a draw, corrected to agree with what is seen."""
        value, seen = jnp.asarray(x.value), mask_of(x)
        onto, _ = kalman.completion(self._covariance("emission_covariance"), seen)
        drawn = kalman.emitted(self.system, jnp.asarray(z), key)
        gap = jnp.where(seen, value - drawn, 0)
        return jnp.where(seen, value, drawn + jnp.einsum("tij,tj->ti", onto, gap))

    def impute(self, data):
        """E[x | what is seen of it], for rows."""
        x = data["x"]
        return {"x": jax.vmap(lambda row: self.completed(x=row)[0])(x) if is_masked(x) else x}

    # -- EM ------------------------------------------------------------------------------------------

    def expectations(self, rows, temperature=1.0):
        """(moments, log p(x)) of every row: all that the M-step needs of the posterior of z."""
        if not is_static_value(1, temperature):
            raise Unsuitable(
                "EM of a LinearGaussianSSM is exact at temperature 1, and knows no other. Leave it out."
            )
        system = self.system

        def one(row):
            x, seen = jnp.asarray(known(row["x"])), mask_of(row["x"])
            if "z" in row:
                z, none = jnp.asarray(row["z"]), jnp.zeros((len(x), *self.transition.shape), x.dtype)
                smoothed = kalman.SmoothedStates(z, none, none[1:], none[1:])
                log_p = -self(x=row["x"], z=z)
            else:
                filtered = self.filtered(x=row["x"])
                smoothed, log_p = self._smoothed(filtered), filtered.log_likelihood.sum()
            return moments.expected_moments(system, smoothed, x, seen), log_p

        return jax.vmap(one)(rows)

    def statistics(self, data, posterior):
        """The sum of the moments over rows."""
        return jax.tree.map(lambda a: a.sum(0), posterior)

    def maximise(self, statistics, trainable=None):
        """The regressions of z_t on z_{t−1} and of x_t on z_t, over what is not held."""
        moves = lambda name: trainable is None or bool(getattr(trainable, name))
        k, found = len(self.initial_mean), {}

        def spread(name, scatter, count, floor=0.0):
            old = self._covariance(name)
            if moves(name):
                found[name] = moments.spread_of(scatter, count, old, floor, name in self.diagonal)

        for name in ("transition", "emission"):
            about = getattr(statistics, name)
            free = np.array([moves(name)] * k + [moves(f"{name}_offset")])
            step = moments.best_step(about, free)
            found[name] = getattr(self, name) + step[:, :k]
            found[f"{name}_offset"] = getattr(self, f"{name}_offset") + step[:, k]
            after = moments.moved(about, step)
            spread(f"{name}_covariance", after.residual, after.count, 10.0 if name == "emission" else 0.0)
        first = statistics.first
        step = first.shift / jnp.where(first.count > 0, first.count, 1)
        step = step if moves("initial_mean") else jnp.zeros_like(step)
        found["initial_mean"] = self.initial_mean + step
        spread("initial_covariance", moments.moved_first(first, step).scatter, first.count)
        names = tuple(found)
        get = lambda chain: tuple(getattr(chain, name) for name in names)
        return eqx.tree_at(get, self, tuple(found[n].astype(getattr(self, n).dtype) for n in names))

    def recentred(self, statistics, reference):
        """Statistics about the parameters of `reference`, about these instead."""
        change = lambda name: jnp.concatenate(
            [
                getattr(self, name) - getattr(reference, name),
                (getattr(self, f"{name}_offset") - getattr(reference, f"{name}_offset"))[:, None],
            ],
            axis=1,
        )
        return moments.Moments(
            moments.moved_first(statistics.first, self.initial_mean - reference.initial_mean),
            moments.moved(statistics.transition, change("transition")),
            moments.moved(statistics.emission, change("emission")),
        )


def _log_two_pi(like: Any) -> Any:
    return jnp.log(jnp.asarray(2 * jnp.pi, like.dtype))


def _normal_energies(factor: Any, residuals: Any) -> Any:
    """Σ −log N(r; 0, LLᵀ) over rows."""
    white = solve_lower(factor, residuals.T)
    log_det = jnp.log(jnp.diagonal(factor)).sum()
    return 0.5 * (white**2).sum() + len(residuals) * (log_det + 0.5 * len(factor) * _log_two_pi(factor))


def _real(name: str, value: Any, shape: tuple[int | None, ...], dtype: Any = None) -> Any:
    if is_concrete(value):
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise BadInput(name, f"dtype {array.dtype}", "an array of numbers")
    value = jnp.asarray(value)
    if value.ndim != len(shape) or any(
        b is not None and a != b for a, b in zip(value.shape, shape, strict=True)
    ):
        expected = "(d, k): a row for every coordinate of x, a column for every state"
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
            remedy = "What is seen without noise has no density here: give it a small variance."
        raise BadInput(name, found, space.description(), remedy)
    if diagonal and np.any(array != np.diag(np.diag(array))):
        raise BadInput(name, "numbers off the diagonal", "a diagonal matrix, as `diagonal` says")
