"""Two modes far apart: chains of random-walk Metropolis stay in one of them, tempered chains visit both.

Every chain of `RandomWalk` moves well inside its mode and never sees the other one. R̂ compares the chains,
so that `sample` warns and names the remedy. In `ParallelTempering` replicas at higher temperatures cross the
barrier, and swaps bring both modes to the chains at temperature 1, with the right weights. `TemperedSMC`
moves a population from a broad start to the target instead, and estimates log Z, which is 0 here, on the
way.

`python examples/two_modes.py modes.png` also draws the picture.
"""

import sys
import warnings

import jax.numpy as jnp
import numpy as np
from jax.nn import logsumexp

import energax
from energax.errors import ConvergenceWarning
from energax.samplers import Draws, ParallelTempering, RandomWalk

CENTRES = np.array([[-4.0, -2.0], [4.0, 2.0]])
DEVIATIONS = np.array([0.5, 0.5])
WEIGHTS = np.array([0.35, 0.65])


class TwoModes(energax.Energy):
    """e(x) = −log Σ_k w_k N(x; m_k, s_k² I): a density that is normalised, so that log Z = 0."""

    @property
    def spaces(self):
        return {"x": energax.Real(2)}

    def __call__(self, *, x):
        s = jnp.asarray(DEVIATIONS, x.dtype)
        squares = ((x - jnp.asarray(CENTRES, x.dtype)) ** 2).sum(1) / s**2
        return -logsumexp(jnp.asarray(np.log(WEIGHTS), x.dtype) - squares / 2 - jnp.log(2 * jnp.pi * s**2))


def run(sampler, n: int) -> tuple[Draws, list[str]]:
    """Draws of four chains, and what `sample` warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        draws = energax.sample(TwoModes(), n, method=sampler, key=0)
    return draws, [str(w.message) for w in caught]


def draw(found: dict[str, Draws], path: str) -> None:
    """Above, the chains on contours of the density; below, the first coordinate over the draws."""
    import matplotlib.pyplot as plt

    hues, ink, line = ("#0072B2", "#E69F00", "#009E73", "#CC79A7"), "#23272E", "#9AA3AF"
    figure, axes = plt.subplots(
        2, 2, figsize=(11, 7.4), height_ratios=(3, 2), sharey="row", sharex="row", layout="constrained"
    )
    x, y = np.meshgrid(np.linspace(-6.5, 6.5, 200), np.linspace(-4.2, 4.2, 130))
    density = np.exp(-jnp.vectorize(lambda a, b: TwoModes()(x=jnp.stack([a, b])))(x, y))
    for (name, draws), (plane, trace) in zip(found.items(), axes.T, strict=True):
        chains = draws.chains["x"]
        plane.contour(
            x, y, density, levels=density.max() * np.array([0.02, 0.2, 0.6]), colors=ink, linewidths=0.7
        )
        for i, hue in enumerate(hues):
            plane.plot(*chains[i, ::5].T, ".", color=hue, ms=3.5, mec="none", alpha=0.75, zorder=0)
            trace.plot(chains[i, :200, 0], color=hue, lw=1.0, alpha=0.9)
            plane.plot([], [], ".", color=hue, ms=9, label=f"chain {i}")
        share = (chains[..., 0] > 0).mean()
        plane.set_title(
            f"{name.capitalize()}: {share:.0%} of the draws on the right", loc="left", fontsize=11, color=ink
        )
        plane.set(xlabel="x[0]", aspect="equal")
        trace.set(xlabel="draw of each chain, the first 200", xlim=(0, 200), yticks=(-4, 0, 4))
    axes[0, 0].set_ylabel("x[1]")
    axes[1, 0].set_ylabel("x[0]")
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(line)
        ax.tick_params(color=line, labelcolor=ink, labelsize=9)
    figure.suptitle(
        f"The right mode has {WEIGHTS[1]:.0%} of the probability", x=0.01, ha="left", fontsize=11, color=ink
    )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, labelcolor=ink)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(path: str | None = None, n: int = 8000) -> dict[str, dict]:
    out, found = {}, {}
    samplers = {"random walk": RandomWalk(), "parallel tempering": ParallelTempering(RandomWalk())}
    for name, sampler in samplers.items():
        draws, said = run(sampler, n)
        found[name] = draws
        right = (draws.chains["x"][..., 0] > 0).mean(1)
        out[name] = {"right": float(right.mean()), "by chain": right, "warnings": said}
        out[name]["effective"] = float(draws.ess.min())
        print(f"{name}: right mode in chains {', '.join(f'{r:.2f}' for r in right)}; truly {WEIGHTS[1]:.2f}")
        print("  " + (said[0] if said else draws.verdict))
    log_z = energax.log_partition(TwoModes(), "TemperedSMC", key=0)
    out["log Z"] = {"value": float(log_z), "error": float(log_z.stderr)}
    print(f"log Z by tempered SMC: {log_z}; truly 0")
    if path is not None:
        draw(found, path)
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
