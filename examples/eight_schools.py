"""Eight schools in two parametrisations: NUTS fails on the centred one, and says so.

Eight schools measured the effect of coaching on a test score, with standard errors. Effects are drawn from
N(μ, τ²). Where τ is small, the effects must be nearly equal: the density has a narrow neck, in which every
step size of the centred model is too large. Moves diverge there and small τ are missed. In the non-centred
model θ = μ + τ z the neck is gone. With θ integrated out in closed form, τ has a density on a grid, which
both are compared with.

Rubin (1981), Estimation in parallel randomized experiments; Betancourt and Girolami (2015), Hamiltonian
Monte Carlo for hierarchical models. `python examples/eight_schools.py schools.png` also draws the picture.
"""

import sys
import warnings

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

import energax
from energax.errors import ConvergenceWarning
from energax.samplers import NUTS, Draws

# Table 1 of Rubin (1981): estimated effects and their standard errors, schools A to H.
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0], np.float32)
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0], np.float32)

LOG_SMALL = -2.0  # a log τ in the neck


def centred(effects, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    numpyro.deterministic("log tau", jnp.log(tau))
    with numpyro.plate("schools", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, errors), obs=effects)


def non_centred(effects, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    numpyro.deterministic("log tau", jnp.log(tau))
    with numpyro.plate("schools", 8):
        z = numpyro.sample("z", dist.Normal(0, 1))
        theta = numpyro.deterministic("theta", mu + tau * z)
        numpyro.sample("y", dist.Normal(theta, errors), obs=effects)


def exact_log_tau() -> tuple[np.ndarray, np.ndarray]:
    """The posterior density of log τ on a grid, with μ and all θ integrated out: y ~ N(0, D + 25)."""
    grid = np.linspace(-12, 6, 3601)
    tau = np.exp(grid)
    variance = tau[:, None] ** 2 + ERRORS.astype(float) ** 2
    # y_i given μ is N(μ, variance_i), and μ is N(0, 25), so that the integral over μ is Gaussian.
    precision = (1 / variance).sum(1) + 1 / 25
    mean = (EFFECTS / variance).sum(1) / precision
    log_p = -0.5 * (np.log(variance) + EFFECTS**2 / variance).sum(1) + 0.5 * precision * mean**2
    log_p += -0.5 * np.log(precision) - np.log1p((tau / 5) ** 2) + grid  # + grid: the density of log τ
    density = np.exp(log_p - log_p.max())
    return grid, density / np.trapezoid(density, grid)


def draw_posterior(model, n: int) -> tuple[Draws, list[str]]:
    """Draws of all sites, and the warnings of the sampler."""
    energy = energax.from_numpyro(model, EFFECTS, ERRORS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        draws = energax.sample(energy, n, method=NUTS(target_acceptance=0.9), key=0)
    return energy.with_deterministic(draws), [str(w.message) for w in caught]


def draw(found: dict[str, Draws], path: str) -> None:
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(12, 9), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.4, 1), hspace=0.04)
    limits = {"mu": (-9, 17), "theta[0]": (-15, 42), "log tau": (-6, 4)}
    for place, (name, draws) in zip(top.subfigures(1, 2, wspace=0.04), found.items(), strict=True):
        panels = energax.plot.pairs(draws, list(limits), ax=place.subplots())
        for i, limit in enumerate(limits.values()):
            panels[-1, i].set_xlim(limit)
            if i > 0:
                panels[i, 0].set_ylim(limit)
        n = int(draws.info["divergent"].sum())
        title = f"{name.capitalize()}: {n if n else 'no'} divergent moves"
        place.suptitle(title, fontsize=11, color="#23272E", x=0.06, ha="left")
    forest, density = bottom.subplots(1, 2)
    draw_forest(forest, found["non-centred"])
    draw_density(density, found)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_forest(ax, draws: Draws) -> None:
    """Intervals of the effects, which lie between the measured effects and their common mean."""
    energax.plot.forest(draws, ["mu", "theta"], ax=ax)
    ax.set_yticklabels(["mean μ", *(f"school {letter}" for letter in "ABCDEFGH")])
    ax.plot(EFFECTS, np.arange(1, 9), "D", ms=5, mfc="white", mec="#D55E00", label="measured effect")
    ax.set_xlabel("effect: median, 50 % and 90 % intervals of the non-centred draws")
    ax.legend(loc="center right", frameon=False, labelcolor="#23272E", fontsize=9)
    ax.set_title("Schools are pulled together", loc="left", fontsize=11, color="#23272E")


def draw_density(ax, found: dict[str, Draws]) -> None:
    """The density of log τ in the draws and exactly, with the share below the least centred draw filled."""
    grid, exact = exact_log_tau()
    lowest = found["centred"]["log tau"].min()
    style = {
        "edgecolor": "none",
        "label": f"{exact[grid < lowest].sum() / exact.sum():.0%} below all centred draws",
    }
    ax.fill_between(grid, exact, where=grid < lowest, color="#D55E00", alpha=0.25, **style)
    for (name, draws), color in zip(found.items(), ("#D55E00", "#0072B2"), strict=True):
        heights, edges = np.histogram(draws["log tau"], np.arange(-6, 4.3, 0.25), density=True)
        ax.stairs(heights, edges, color=color, lw=1.5, label=name)
    ax.plot(grid, exact, color="#23272E", lw=1.4, ls=(0, (4, 3)), label="exact")
    ax.set(xlim=(-6, 4), ylim=(0, None), yticks=[])
    ax.set_xlabel("log τ", color="#23272E")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("#9AA3AF")
    ax.tick_params(color="#9AA3AF", labelcolor="#23272E", labelsize=9)
    ax.legend(loc="upper left", frameon=False, labelcolor="#23272E", fontsize=9)
    ax.set_title("Density of log τ", loc="left", fontsize=11, color="#23272E")


def main(path: str | None = None, n: int = 4000) -> dict[str, dict]:
    grid, exact = exact_log_tau()
    small = exact[grid < LOG_SMALL].sum() / exact.sum()
    out, found = {"exact": {"small": float(small)}}, {}
    for name, model in {"centred": centred, "non-centred": non_centred}.items():
        draws, said = draw_posterior(model, n)
        found[name] = draws
        out[name] = {
            "divergent": int(draws.info["divergent"].sum()),
            "small": float((draws["log tau"] < LOG_SMALL).mean()),
            "effective": float(np.nanmin(draws.ess)),
            "warnings": said,
            "trusted": draws.trusted,
        }
        print(f"{name}: {draws.verdict}")
        print(f"  P(log τ < {LOG_SMALL}) = {out[name]['small']:.3f}; exactly {small:.3f}")
    if path is not None:
        draw(found, path)
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
