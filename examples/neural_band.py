"""A Bayesian neural regression: its band is narrow where there are points, and wide where there are none.

The weights of a small network have a normal prior and are hidden variables. NUTS draws them given 40 points
on two intervals. `predictive` averages the network over the draws: the variance of a new y is that of the
noise plus that of the curve, which grows between the intervals and outside of them. Hidden units can be
exchanged, so that the chains disagree about the weights, which `sample` warns of; they are compared by the
values of the curve instead. An ensemble of fits from random starts has a band too, which is too narrow where
there are no points.

Neal (1996), Bayesian learning for neural networks; Lakshminarayanan, Pritzel and Blundell (2017), Simple and
scalable predictive uncertainty estimation using deep ensembles. `python examples/neural_band.py band.png`
also draws the picture.
"""

import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.distributions import Normal

import energax
from energax.bayes import deep_ensemble
from energax.energies import Gaussian, NeuralRegressor
from energax.errors import ConvergenceWarning
from energax.learn import Descent, NegativeLogLikelihood
from energax.samplers import NUTS, Draws

NOISE = 0.15
INTERVALS = ((-2.0, -0.7), (0.9, 2.0))
GRID = np.linspace(-3, 3, 121).astype(np.float32)


def curve(x: np.ndarray) -> np.ndarray:
    """The true curve."""
    return np.sin(2 * x) + 0.3 * x


def draw_rows(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """n points, half of them on each interval."""
    x = np.concatenate([rng.uniform(*interval, n // 2) for interval in INTERVALS])
    return {
        "x": x[:, None].astype(np.float32),
        "y": (curve(x) + NOISE * rng.normal(size=n)).astype(np.float32),
    }


def has_points(x: np.ndarray) -> np.ndarray:
    """Whether x is on one of the intervals."""
    return np.any([(low <= x) & (x <= high) for low, high in INTERVALS], axis=0)


def bands(rows: dict[str, np.ndarray], n: int) -> dict[str, dict]:
    """Mean and deviation of y, and drawn curves with their deviation, on the grid and by method."""
    network = {"width": 10, "activation": jax.nn.tanh}
    model = NeuralRegressor.random(1, key=0, likelihood=Gaussian(NOISE), **network)
    over = energax.Bayes(Normal(0.0, 1.5))(model, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # about the order of hidden units
        posterior = energax.sample(over, n, method=NUTS(max_doublings=8), key=0)
    learner = Descent(NegativeLogLikelihood(), optax.adam(0.02))
    ensemble = deep_ensemble(over, learner, 20, key=0, epochs=1000)
    found = {}
    for name, draws in {"posterior by NUTS": posterior, "ensemble of 20 fits": ensemble}.items():
        predictive = energax.predictive(over, draws)
        mean, variance = predictive.moments("y", {"x": GRID[:, None]})
        curves = predictive.apply(
            lambda model: jax.vmap(lambda x: model.predict(x=x))(jnp.asarray(GRID[:, None]))
        )
        chains = curves.reshape(draws.n_chains, -1, len(GRID))
        found[name] = {
            "mean": mean,
            "deviation": np.sqrt(variance),
            "of the curve": curves.std(0),
            "curves": curves[:: max(1, len(curves) // 20)],
            "R-hat": 1.0 if draws.exact else float(Draws({"f": chains}, method="").rhat.max()),
        }
    return found


def draw(found: dict[str, dict], rows: dict[str, np.ndarray], path: str) -> None:
    """One panel for each band."""
    import matplotlib.pyplot as plt

    ink, soft, line, blue, orange = "#23272E", "#5B6370", "#9AA3AF", "#0072B2", "#D55E00"
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.4), sharey=True, layout="constrained")
    for ax, (name, one) in zip(panels, found.items(), strict=True):
        low, high = one["mean"] - 2 * one["deviation"], one["mean"] + 2 * one["deviation"]
        ax.fill_between(GRID, low, high, color=blue, alpha=0.18, lw=0, label="± 2 standard deviations of y")
        ax.plot(GRID, one["curves"].T, color=blue, lw=0.6, alpha=0.45)
        ax.plot([], [], color=blue, lw=0.6, label="drawn curves")
        ax.plot(GRID, one["mean"], color=blue, lw=2, label="mean")
        ax.plot(GRID, curve(GRID), color=ink, lw=1.2, ls=(0, (4, 3)), label="true curve")
        ax.plot(rows["x"][:, 0], rows["y"], "o", color=orange, ms=4.5, mec="white", mew=0.7, label="points")
        ax.set_title(name[0].upper() + name[1:], loc="left", fontsize=11, color=ink)
        ax.set(xlim=(-3, 3), ylim=(-2.6, 3.3), xlabel="x")
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(line)
        ax.tick_params(color=line, labelcolor=soft, length=3)
    panels[0].set_ylabel("y", rotation=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, labelcolor=ink)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(path: str | None = None, n: int = 2000) -> dict[str, dict]:
    rng = np.random.default_rng(0)
    rows, new = draw_rows(40, rng), draw_rows(2000, rng)
    found, near, gap = bands(rows, n), has_points(GRID), (GRID > -0.4) & (GRID < 0.6)
    for name, one in found.items():
        at_new = [np.interp(new["x"][:, 0], GRID, one[k]) for k in ("mean", "deviation")]
        one["covered"] = float((np.abs(new["y"] - at_new[0]) < 2 * at_new[1]).mean())
        one["gap"] = float((np.abs(curve(GRID) - one["mean"]) < 2 * one["of the curve"])[gap].mean())
        one["near"], one["far"] = (float(one["of the curve"][part].mean()) for part in (near, ~near))
        print(f"{name}: R-hat of the curve {one['R-hat']:.3f}")
        print(f"  deviation of the curve {one['near']:.2f} near points, {one['far']:.2f} elsewhere")
        print(
            f"  {one['covered']:.0%} of new points inside the band, {one['gap']:.0%} of the curve in the gap"
        )
    if path is not None:
        draw(found, rows, path)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
