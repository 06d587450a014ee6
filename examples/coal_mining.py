"""When British coal mines became safer: a change point between two rates, by a chain in mixed spaces.

The number of disasters in a year is Poisson with one rate up to the year of the change and another rate
after it. The energy has a finite variable, the change, and two positive ones, the rates. `sample` needs no
more than that: it chooses NUTS, which moves the rates with the change summed out and then draws the change
given the rates. `Compound` alternates between the change given the rates and the rates given the change
instead. For Gamma priors the rates have closed integrals, so that the posterior of the change is a sum over
111 years, which both are compared with.

Jarrett (1979), A note on the intervals between coal-mining disasters; Carlin, Gelfand and Smith (1992),
Hierarchical Bayesian analysis of changepoint problems. `python examples/coal_mining.py coal.png` also draws
the picture.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

import energax
from energax.samplers import Compound, Draws

FIRST = 1851
# Disasters with ten or more deaths in each year from 1851 to 1962; there are 191.
COUNTS = np.array(
    [
        *(4, 5, 4, 1, 0, 4, 3, 4, 0, 6, 3, 3, 4, 0, 2, 6, 3, 3, 5, 4, 5, 3, 1, 4, 4, 1, 5, 5),
        *(3, 4, 2, 5, 2, 2, 3, 4, 2, 1, 3, 2, 2, 1, 1, 1, 1, 3, 0, 0, 1, 0, 1, 1, 0, 0, 3, 1),
        *(0, 3, 2, 2, 0, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 2, 1, 0, 0, 0, 1, 1, 0, 2, 3, 3, 1, 1),
        *(2, 1, 1, 1, 1, 2, 4, 2, 0, 0, 1, 4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1, 0),
    ]
)
SHAPE, RATE = 2.0, 1.0  # of the Gamma priors of both rates


class ChangePoint(energax.Energy):
    """e(k, early, late) = −log p(counts | k, early, late) − log p(early) − log p(late), up to a constant.

    The years 0 … k have the rate `early`, the later ones `late`.
    """

    counts: jax.Array

    @property
    def spaces(self):
        n = self.counts.shape[0]
        return {"k": energax.Categorical(n - 1), "early": energax.Positive(), "late": energax.Positive()}

    def __call__(self, *, k, early, late):
        rate = jnp.where(jnp.arange(self.counts.shape[0]) <= k, early, late)
        log_likelihood = (self.counts * jnp.log(rate) - rate).sum()
        log_prior = sum((SHAPE - 1) * jnp.log(r) - RATE * r for r in (early, late))
        return -log_likelihood - log_prior


def exact_change() -> np.ndarray:
    """p(k | counts), (111,), with the rates integrated out: ∫ λ^(s + a − 1) exp(−(n + b) λ) dλ by part."""
    n = np.arange(1, len(COUNTS))
    before = np.cumsum(COUNTS)[:-1]
    log_p = 0.0
    for total, years in ((before, n), (COUNTS.sum() - before, len(COUNTS) - n)):
        log_p = log_p + gammaln(total + SHAPE) - (total + SHAPE) * np.log(years + RATE)
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def rate_by_year(draws: Draws) -> np.ndarray:
    """The rate in every year for every draw, (n, 112)."""
    years = np.arange(len(COUNTS))
    return np.where(years <= draws["k"][:, None], draws["early"][:, None], draws["late"][:, None])


def draw(draws: Draws, drawn: np.ndarray, exact: np.ndarray, path: str) -> None:
    """Above, the counts and the rate with its 90 % interval; below, the posterior of the change."""
    import matplotlib.pyplot as plt

    ink, soft, line, blue, orange = "#23272E", "#5B6370", "#9AA3AF", "#0072B2", "#D55E00"
    figure, (top, below) = plt.subplots(
        2, 1, figsize=(10, 6.4), sharex=True, height_ratios=(5, 3), layout="constrained"
    )
    years = FIRST + np.arange(len(COUNTS))
    rates = rate_by_year(draws)
    low, high = np.quantile(rates, (0.05, 0.95), axis=0)
    top.bar(years, COUNTS, width=0.75, color="#C9D0D8", label="disasters")
    top.fill_between(
        years, low, high, step="mid", color=blue, alpha=0.22, lw=0, label="90 % interval of the rate"
    )
    top.step(years, rates.mean(0), where="mid", color=blue, lw=2, label="mean of the rate")
    top.set_ylabel("disasters in a year", color=ink)
    below.bar(
        years[:-1], drawn, width=0.75, color=blue, alpha=0.45, label=f"{draws.n:,} draws".replace(",", " ")
    )
    shown = exact > 1e-3
    below.plot(years[:-1][shown], exact[shown], "o", ms=4.5, mfc="white", mec=orange, label="exact sum")
    below.set_ylabel("p(change after the year)", color=ink)
    below.set(xlim=(years[0] - 1, years[-1] + 1), ylim=(0, None))
    below.set_xlabel("year", color=ink)
    for ax, place in ((top, "upper right"), (below, "upper right")):
        ax.legend(loc=place, frameon=False, labelcolor=ink, fontsize=9)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(line)
        ax.tick_params(color=line, labelcolor=soft, length=3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(path: str | None = None, n: int = 8000) -> dict[str, dict]:
    energy = ChangePoint(jnp.asarray(COUNTS, jnp.float32))
    exact, years = exact_change(), FIRST + np.arange(len(COUNTS) - 1)
    out = {"exact": {"p": exact}}
    for name, method in {"chosen by `sample`": None, "compound": Compound()}.items():
        draws = energax.sample(energy, n, method=method, key=0)
        drawn = np.bincount(draws["k"], minlength=len(exact)) / draws.n
        if path is not None and method is None:
            draw(draws, drawn, exact, path)
        out[draws.method] = {"p": drawn, "effective": draws.ess.min(), "trusted": draws.trusted}
        low, high = np.quantile(years[draws["k"]], (0.05, 0.95)).astype(int)
        print(f"{name}, {draws.verdict}")
        print(f"  the early rate lasted to {years[drawn.argmax()]} ({low} to {high} with probability 90 %)")
        print(
            f"  {draws['early'].mean():.2f} disasters in a year before and {draws['late'].mean():.2f} after"
        )
        distance = np.abs(drawn - exact).sum() / 2
        print(f"  largest error of the probability of a set of years: {distance:.3f}")
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
