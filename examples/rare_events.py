"""The probability of a rare event: plain Monte Carlo, a shifted proposal, an adapted and the optimal one.

Run with a path to draw the picture: python examples/rare_events.py events.png
"""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jax.scipy.stats import norm
from numpyro import distributions as dist

from energax import Energy, expectation
from energax.infer import AdaptiveMixture, Exceeds, Importance
from energax.spaces import Real

LEVEL, BEND = 4.0, 12.0
INK, SOFT, LINE, GREY = "#23272E", "#5B6370", "#9AA3AF", "#B8BEC7"
BLUE, RED, GREEN = "#0072B2", "#D55E00", "#009E73"


class Standard(Energy):
    """p(x) = N(0, I) in the plane."""

    @property
    def spaces(self) -> dict[str, Any]:
        return {"x": Real(2)}

    def __call__(self, *, x: Any) -> Any:
        return 0.5 * jnp.sum(x**2) + jnp.log(2 * jnp.pi)

    def log_partition(self) -> Any:
        return jnp.zeros(())

    def draw(self, key: Any) -> dict[str, Any]:
        return {"x": jax.random.normal(key, (2,))}


def score(x: Any) -> Any:
    """The event is score(x) ≥ 4, a region with a curved edge."""
    return x[0] + x[1] ** 2 / BEND


class Optimal(eqx.Module):
    """q(x) = p(x) / P(event) within the event: the proposal without variance.

    x₁ has a density that is constant in cells of width h; x₀ given x₁ is a normal above the edge. To build
    it takes P(event) itself, so that it serves only as the limit of what a proposal can reach.
    """

    edges: jax.Array
    probabilities: jax.Array

    def __init__(self, n_cells: int = 8000, end: float = 8.0):
        self.edges = jnp.linspace(-end, end, n_cells + 1)
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        density = norm.pdf(middle) * norm.cdf(middle**2 / BEND - LEVEL)
        self.probabilities = density / density.sum()

    def sample(self, key: Any) -> Any:
        cell_key, place_key, tail_key = jax.random.split(key, 3)
        i = jax.random.categorical(cell_key, jnp.log(self.probabilities))
        x1 = jax.random.uniform(place_key, minval=self.edges[i], maxval=self.edges[i + 1])
        above = norm.cdf(x1**2 / BEND - LEVEL)
        x0 = -ndtri(above * jax.random.uniform(tail_key, minval=1e-6))
        return jnp.stack([x0, x1])

    def log_prob(self, x: Any) -> Any:
        i = jnp.clip(jnp.searchsorted(self.edges, x[1]) - 1, 0, len(self.probabilities) - 1)
        within = jnp.log(self.probabilities[i] / (self.edges[1] - self.edges[0]))
        return within + norm.logpdf(x[0]) - norm.logcdf(x[1] ** 2 / BEND - LEVEL)


def exact() -> float:
    """P(event) = ∫ φ(x₁) Φ(x₁² / 12 − 4) dx₁ by the trapezoidal rule."""
    from scipy import stats

    x1 = np.linspace(-12, 12, 100_001)
    return float(np.trapezoid(stats.norm.pdf(x1) * stats.norm.cdf(x1**2 / BEND - LEVEL), x1))


def proposals() -> dict[str, Any]:
    """The model itself, a normal at the most probable point of the event, an adapted and the optimal one."""
    identity = dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    shifted = dist.Normal(jnp.array([LEVEL, 0.0]), 1.0).to_event(1)
    return {
        "plain Monte Carlo": identity,
        "shifted": shifted,
        "adapted": AdaptiveMixture(n_components=4),
        "optimal": Optimal(),
    }


def draw(needed: dict[str, float], path: str) -> None:
    """Draw the event with draws of the proposals, and the number of draws that each needs."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), width_ratios=(1.15, 1), layout="constrained")
    x1 = np.linspace(-4.5, 4.5, 200)
    left.fill_betweenx(x1, LEVEL - x1**2 / BEND, 8, color=GREEN, alpha=0.12, lw=0)
    left.plot(LEVEL - x1**2 / BEND, x1, color=GREEN, lw=1)
    clouds = {"plain Monte Carlo": (GREY, 500), "shifted": (RED, 150), "optimal": (GREEN, 150)}
    for name, (color, count) in clouds.items():
        keys = jax.random.split(jax.random.key(1), count)
        points = np.asarray(jax.vmap(proposals()[name].sample)(keys))
        left.scatter(*points.T, s=6, color=color, lw=0)
    left.text(0, 3.6, "the model", color=SOFT, ha="center")
    left.text(6.1, -2.9, "shifted", color=RED, ha="center")
    left.text(7.8, 4.2, "the event, and draws of\nthe optimal proposal", color=GREEN, ha="right", va="top")
    left.set(xlim=(-3.5, 8), ylim=(-4.5, 4.5), xlabel="$x_0$", ylabel="$x_1$")
    names = list(needed)
    colors = dict(zip(names, (SOFT, RED, BLUE, GREEN), strict=True))
    for place, name in enumerate(reversed(names)):
        right.plot([1, needed[name]], [place, place], color=colors[name], lw=2)
        right.plot(needed[name], place, "o", color=colors[name], ms=7)
        label = f"{float(f'{needed[name]:.2g}'):,.0f}"
        right.annotate(
            label, (needed[name], place), (8, 0), textcoords="offset points", va="center", color=INK
        )
    right.set_yticks(range(len(names)), list(reversed(names)))
    right.set(xscale="log", xlim=(1, 3e10), ylim=(-0.6, 3.6), xticks=10.0 ** np.arange(0, 10, 2))
    right.set_xlabel("draws for a standard error of 1 %")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(LINE)
        ax.tick_params(color=LINE, labelcolor=SOFT, length=3)
        ax.xaxis.label.set_color(INK)
        ax.yaxis.label.set_color(INK)
    right.minorticks_off()
    right.tick_params(axis="y", labelcolor=INK, length=0)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(path: str | None = None, n: int = 20_000) -> dict[str, dict[str, float]]:
    truth = exact()
    event = Exceeds(score, LEVEL)
    found: dict[str, dict[str, float]] = {}
    print(f"P(event) by quadrature: {truth:.4e}")
    for name, proposal in proposals().items():
        plain = name == "plain Monte Carlo"
        size = 50 * n if plain else n
        estimate = expectation(Standard(), event, method=Importance(proposal, n_samples=size), key=0)
        # The variance of one draw is n · stderr²; that of plain Monte Carlo is known.
        variance = truth * (1 - truth) if plain else size * float(estimate.stderr) ** 2
        found[name] = {
            "value": float(estimate),
            "stderr": float(estimate.stderr),
            "draws": max(1.0, variance / (0.01 * truth) ** 2),
        }
        needed = f"{found[name]['draws']:13,.0f} draws"
        print(f"{name:18} {estimate.value:.4e} ± {estimate.stderr:.1e}   1 % error with {needed}")
    print("To adapt took 10,000 more draws. The optimal proposal has the rounding errors of its cells only.")
    if path is not None:
        draw({name: each["draws"] for name, each in found.items()}, path)
    return {"truth": {"value": truth}, **found}


if __name__ == "__main__":
    main(*sys.argv[1:2])
