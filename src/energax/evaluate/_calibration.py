"""`simulation_based_calibration`: a test of an inference method by data that are simulated from the model."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from .._util.keys import as_key
from ..energy import Energy, checked_energy
from ..errors import BadInput, Unsuitable, check_whole_number
from ..infer import plan, sample
from ..parameters import with_energy_precision
from ..programs import jit_to_numpy

#: Polynomials of the test, which sees shifts, wrong scales and skewness.
_DEGREE = 4
_ENERGY = "energy"


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The ranks of true values among posterior draws, which are uniform if the method is right.

    Args:
        ranks: how many of `n_draws` posterior draws are below the true value, by variable, (n, *shape) each,
            from 0 to n_draws; "energy" has those of e(θ, data).
        n_draws: posterior draws of every simulated data set.
        method: the name of the method.
    """

    ranks: dict[str, np.ndarray]
    n_draws: int
    method: str

    @property
    def pvalues(self) -> dict[str, np.ndarray]:
        """How probable ranks as uneven as these are, by variable, for every coordinate by itself.

        Neyman (1937), Smooth test for goodness of fit, with the polynomials up to degree 4.
        """
        from scipy import stats

        points = np.linspace(-1, 1, self.n_draws + 1)
        polynomials = np.linalg.qr(np.vander(points, _DEGREE + 1, increasing=True))[0][:, 1:]
        polynomials *= np.sqrt(points.size)  # mean 0 and variance 1 over all ranks
        out = {}
        for name, ranks in self.ranks.items():
            statistic = len(ranks) * (polynomials[ranks].mean(0) ** 2).sum(-1)
            out[name] = np.asarray(stats.chi2.sf(statistic, _DEGREE))
        return out

    @property
    def pvalue(self) -> float:
        """The smallest p-value of all coordinates, times their number (Bonferroni)."""
        every = np.concatenate([p.ravel() for p in self.pvalues.values()])
        return float(min(1.0, every.size * every.min()))

    @property
    def verdict(self) -> str:
        """Whether the ranks are uneven at level 0.01, as one line of text."""
        n = len(next(iter(self.ranks.values())))
        tested = f"{n} simulated data sets, {self.n_draws} draws each, p = {self.pvalue:.2g}"
        if self.pvalue >= 0.01:
            return f"no problem found ({self.method}): {tested}"
        smallest = {name: p.min() for name, p in self.pvalues.items()}
        worst = min(smallest, key=lambda name: smallest[name])
        return f"miscalibrated ({self.method}): the ranks of {worst} are not uniform; {tested}"

    def __repr__(self) -> str:
        return f"Calibration({self.verdict})"


@with_energy_precision
def simulation_based_calibration(
    energy: Energy,
    observed: str | Collection[str],
    method: Any = None,
    *,
    n: int = 300,
    n_draws: int = 99,
    key: Any,
) -> Calibration:
    """Return the ranks of true values among posterior draws, over data sets simulated from the energy.

    For (θ, data) ~ p(θ, data) and θ₁, …, θ_L ~ p(θ | data), the rank #{θ_l < θ} is uniform on 0, …, L. So is
    that of e(θ, data), which also sees draws that ignore the data. All data sets are rows of one query, so
    that they share one program.

    Args:
        energy: an energy over θ and data with exact draws, such as one with its own `draw`.
        observed: the names of the data; all other variables are θ.
        method: the method to test, as in `sample`. Draws of a Markov chain must be nearly independent, for
            example with `MCMC(NUTS(), thin=5)`, or the ranks are uneven for that reason.
        n: the number of simulated data sets.
        n_draws: L, posterior draws of every data set.
        key: an int or a JAX key.

    Cook, Gelman and Rubin (2006), Validation of software for Bayesian models using posterior quantiles;
    Talts, Betancourt, Simpson, Vehtari and Gelman (2018), Validating Bayesian inference algorithms with
    simulation-based calibration; Modrák et al. (2023), for the rank of the energy.

    >>> import jax.numpy as jnp
    >>> from energax.energies import RBM
    >>> rbm = RBM(jnp.array([[2.0], [-1.0]]), jnp.zeros(2), jnp.zeros(1))
    >>> simulation_based_calibration(rbm, "x", key=0)
    Calibration(no problem found (exact): 300 simulated data sets, 99 draws each, p = ...)
    """
    names = (observed,) if isinstance(observed, str) else tuple(observed)
    hidden = [name for name in energy.spaces if name not in names]
    if not names or not hidden or not set(names) <= set(energy.spaces):
        raise BadInput("observed", repr(observed), f"some, but not all, of {list(energy.spaces)}")
    check_whole_number("n", n, 20)
    check_whole_number("n_draws", n_draws, _DEGREE + 1)
    joint_key, draw_key, tie_key = jax.random.split(as_key(key), 3)
    simulator = plan(sample, energy)
    if simulator.kind != "exact":
        raise Unsuitable(
            f"simulation_based_calibration needs exact draws of {type(energy).__name__}, not those of "
            f"{simulator.method.label}. Give the energy `draw`."
        )
    joint = sample(energy, n, method=simulator.method, key=joint_key)
    true = {k: np.asarray(v) for k, v in joint.items()}
    data = {k: true[k] for k in names}
    draws = sample(energy, n_draws, data, method, key=draw_key)
    found = {k: np.asarray(draws[k]) for k in hidden}
    # In one array with the draws, so that equal values have equal energies.
    energies = _energies(energy, data, {k: np.concatenate([true[k][None], v]) for k, v in found.items()})
    values = {k: (true[k], found[k]) for k in hidden}
    values[_ENERGY if _ENERGY not in values else "energy of all"] = energies[0], energies[1:]
    rng = np.random.default_rng(np.asarray(jax.random.key_data(tie_key)))
    ranks = {k: _ranks(*pair, rng) for k, pair in values.items()}
    return Calibration(ranks, n_draws, draws.method)


@jit_to_numpy
def _energies(energy, data, theta):
    """Return e(θ, data), (L, n), for θ of shape (L, n, …) and data of shape (n, …)."""
    one = lambda values, row: checked_energy(energy, {**row, **values})
    return jax.vmap(lambda values: jax.vmap(one)(values, data))(theta)


def _ranks(true: np.ndarray, draws: np.ndarray, rng: Any) -> np.ndarray:
    """Return how many draws, (L, n, …), are below the true values; equal ones are ordered at random."""
    below, equal = (draws < true).sum(0), (draws == true).sum(0)
    return below + rng.integers(0, equal + 1)
