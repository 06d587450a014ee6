"""Ten posteriors of posteriordb as energies in 64 bits, with their reference draws.

Magnusson et al. (2024), posteriordb: testing, benchmarking and developing Bayesian inference algorithms.
"""

from __future__ import annotations

import functools
import json
import pathlib
import zipfile
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Beta, HalfCauchy, HalfNormal, Normal

from energax import Energy, Ordered, Positive, Real, Simplex
from energax.spaces import Interval, Space, fixed


class Posterior(Energy):
    """e(θ) = −log p(θ, data), from a function of (data, θ)."""

    data: dict[str, jax.Array] = fixed()
    log_density: Callable[..., Any] = eqx.field(static=True)
    variables: tuple[tuple[str, Space], ...] = eqx.field(static=True)

    @property
    def spaces(self):
        return dict(self.variables)

    def __call__(self, **theta):
        return -self.log_density(self.data, **theta)


# -- log densities -----------------------------------------------------------------------------------


def eight_schools(data, t, mu, tau):
    prior = Normal(0, 5).log_prob(mu) + HalfCauchy(5).log_prob(tau) + Normal(0, 1).log_prob(t).sum()
    return prior + Normal(mu + tau * t, data["sigma"]).log_prob(data["y"]).sum()


def autoregression(data, alpha, beta, sigma):
    y, k = data["y"], beta.shape[0]
    lags = jnp.stack([y[k - 1 - i : len(y) - 1 - i] for i in range(k)], axis=1)
    prior = Normal(0, 10).log_prob(alpha) + Normal(0, 10).log_prob(beta).sum()
    return prior + HalfCauchy(2.5).log_prob(sigma) + Normal(alpha + lags @ beta, sigma).log_prob(y[k:]).sum()


def garch(data, mu, alpha0, weights):
    y = data["y"]

    def step(variance, before):
        variance = alpha0 + weights[0] * (before - mu) ** 2 + weights[1] * variance
        return variance, variance

    first = data["sigma1"] ** 2
    _, rest = jax.lax.scan(step, first, y[:-1])
    return Normal(mu, jnp.sqrt(jnp.append(first, rest))).log_prob(y).sum()


def gaussian_mixture(data, mu, sigma, theta):
    logs = jnp.log(jnp.stack([theta, 1 - theta]))
    rows = jax.nn.logsumexp(logs + Normal(mu, sigma).log_prob(data["y"][:, None]), axis=1)
    prior = Normal(0, 2).log_prob(mu).sum() + HalfNormal(2).log_prob(sigma).sum()
    return prior + Beta(5, 5).log_prob(theta) + rows.sum()


def regression(data, beta, sigma):
    return Normal(data["X"] @ beta, sigma).log_prob(data["y"]).sum()


def regression_with_scale_prior(data, beta, sigma):
    return regression(data, beta, sigma) + HalfCauchy(2.5).log_prob(sigma)


def regression_with_priors(data, beta, sigma):
    prior = Normal(0, 10).log_prob(beta).sum() + HalfNormal(10).log_prob(sigma)
    return prior + regression(data, beta, sigma)


# -- data --------------------------------------------------------------------------------------------


def _columns(target: str, *names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that makes X, with a column of ones, and y from named columns."""
    return lambda d: {"X": np.column_stack([np.ones(d["N"]), *(d[n] for n in names)]), "y": d[target]}


def _kidiq_interaction(d):
    hs, iq = np.asarray(d["mom_hs"]), np.asarray(d["mom_iq"])
    return {"X": np.column_stack([np.ones(d["N"]), hs, iq, hs * iq]), "y": d["kid_score"]}


def _nes(d):
    age = np.asarray(d["age_discrete"])
    names = ("real_ideo", "race_adj"), ("educ1", "gender", "income")
    first, last = ([d[n] for n in group] for group in names)
    return {
        "X": np.column_stack([np.ones(d["N"]), *first, age == 2, age == 3, age == 4, *last]),
        "y": d["partyid7"],
    }


def _mesquite(d):
    return _columns("weight", "diam1", "diam2", "canopy_height", "total_height", "density", "group")(d)


def _linear(k: int) -> dict[str, Space]:
    return {"beta": Real(k), "sigma": Positive()}


#: name: (file of the data, file of the draws, log density, spaces, function from the file to the data)
MODELS: dict[str, tuple[str, str, Any, dict[str, Space], Any]] = {
    "eight_schools_noncentered": (
        "eight_schools",
        "eight_schools-eight_schools_noncentered",
        eight_schools,
        {"t": Real(8), "mu": Real(), "tau": Positive()},
        lambda d: {"y": d["y"], "sigma": d["sigma"]},
    ),
    "arK": (
        "arK",
        "arK-arK",
        autoregression,
        {"alpha": Real(), "beta": Real(5), "sigma": Positive()},
        lambda d: {"y": d["y"]},
    ),
    "garch11": (
        "garch",
        "garch-garch11",
        garch,
        {"mu": Real(), "alpha0": Positive(), "weights": Simplex(3)},
        lambda d: {"y": d["y"], "sigma1": d["sigma1"]},
    ),
    "low_dim_gauss_mix": (
        "low_dim_gauss_mix",
        "low_dim_gauss_mix-low_dim_gauss_mix",
        gaussian_mixture,
        {"mu": Ordered(2), "sigma": Positive(2), "theta": Interval(0, 1)},
        lambda d: {"y": d["y"]},
    ),
    "sblri-blr": (
        "sblri",
        "sblri-blr",
        regression_with_priors,
        _linear(5),
        lambda d: {"X": d["X"], "y": d["y"]},
    ),
    "mesquite": ("mesquite", "mesquite-mesquite", regression, _linear(7), _mesquite),
    "kidscore_interaction": (
        "kidiq",
        "kidiq-kidscore_interaction",
        regression_with_scale_prior,
        _linear(4),
        _kidiq_interaction,
    ),
    "kidscore_momiq": (
        "kidiq",
        "kidiq-kidscore_momiq",
        regression_with_scale_prior,
        _linear(2),
        _columns("kid_score", "mom_iq"),
    ),
    "earn_height": ("earnings", "earnings-earn_height", regression, _linear(2), _columns("earn", "height")),
    "nes1980": ("nes1980", "nes1980-nes", regression, _linear(9), _nes),
}


@functools.cache
def posteriordb_energy(name: str, folder: pathlib.Path) -> tuple[Energy, dict[str, np.ndarray]]:
    """Return the energy of a posterior and its reference draws, (10000, …) by the names of its variables.

    Two posteriors have other variables than the reference files: the eight schools have t = (θ − μ) / τ for
    θ, and garch11 has weights = (α1, β1, 1 − α1 − β1), on the simplex, for α1 and β1. The draws of t and
    weights are computed from those of the files, which are returned too.

    `folder` is that of posteriordb.
    """
    data_file, draws_file, log_density, spaces, prepare = MODELS[name]
    with jax.enable_x64(True):
        data = prepare(_read(folder / "data" / f"{data_file}.json.zip"))
        data = {k: jnp.asarray(np.asarray(v, np.float64)) for k, v in data.items()}
    draws = _reference(_read(folder / "reference_draws" / f"{draws_file}.json.zip"))
    if name == "eight_schools_noncentered":
        draws["t"] = (draws["theta"] - draws["mu"][:, None]) / draws["tau"][:, None]
    if name == "garch11":
        a, b = draws["alpha1"], draws["beta1"]
        draws["weights"] = np.stack([a, b, 1 - a - b], axis=1)
    return Posterior(data, log_density, tuple(spaces.items())), draws


def _read(path: pathlib.Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(archive.namelist()[0]))


def _reference(chains: list[dict[str, list[float]]]) -> dict[str, np.ndarray]:
    """Return the draws of all chains, with "beta[1]", "beta[2]", … as one array "beta"."""
    flat = {k: np.concatenate([chain[k] for chain in chains]) for k in chains[0]}
    groups: dict[str, list[np.ndarray]] = {}
    for name, values in flat.items():
        groups.setdefault(name.split("[")[0], []).append(values)
    return {k: np.stack(v, axis=1) if f"{k}[1]" in flat else v[0] for k, v in groups.items()}
