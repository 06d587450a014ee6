"""Bayesian curve fitting: the predictive band narrows as points arrive, one by one.

`python examples/bayesian_curve_fitting.py curve.png` also draws the picture.
"""

import sys

import jax.numpy as jnp
import numpy as np

import energax
from energax.energies import BayesianLinear
from energax.estimators import BasisExpansion, BayesianRidge

STEPS = (1, 3, 8, 30)  # points that have arrived in each panel
NOISE = 0.2


def curve(x: np.ndarray) -> np.ndarray:
    """The true curve."""
    return np.sin(2 * np.pi * x)


def fit_step_by_step(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> dict[int, dict[str, np.ndarray]]:
    """Mean, deviation and some drawn curves on the grid, after the numbers of points in STEPS."""
    basis = BasisExpansion("gaussian", 9).fit(grid[:, None])
    columns = lambda x: jnp.asarray(basis.transform(x[:, None]), jnp.float32)
    # One example of this energy is a whole data set (x, y) with its weights w; the prior is N(0, 1).
    model = BayesianLinear(jnp.array(1.0), jnp.array(NOISE**-2), n_features=9)
    found = {}
    for i in range(len(x)):
        model = model.update(x=columns(x[i : i + 1]), y=jnp.asarray(y[i : i + 1], jnp.float32))
        if i + 1 in STEPS:
            predictive = model.conditional("y", x=columns(grid))
            draws = energax.sample(model, 6, {"x": columns(grid)}, key=0)["w"]
            found[i + 1] = {
                "mean": np.asarray(predictive.mean),
                "deviation": np.sqrt(np.asarray(predictive.variance)),
                "curves": draws @ np.asarray(columns(grid)).T,
            }
    return found


def draw(found: dict, x: np.ndarray, y: np.ndarray, grid: np.ndarray, path: str) -> None:
    """Draw one panel for every number of points."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(12, 3.6), sharey=True, layout="constrained")
    for ax, (n, step) in zip(panels, found.items(), strict=True):
        mean, deviation = step["mean"], step["deviation"]
        band = ax.fill_between(
            grid, mean - 2 * deviation, mean + 2 * deviation, color="#0072B2", alpha=0.18, lw=0
        )
        curves = ax.plot(grid, step["curves"].T, color="#0072B2", lw=0.7, alpha=0.5)
        (line,) = ax.plot(grid, mean, color="#0072B2", lw=2)
        (truth,) = ax.plot(grid, curve(grid), color="#23272E", lw=1.2, ls=(0, (4, 3)))
        points = ax.plot(x[:n], y[:n], "o", color="#D55E00", ms=5, mec="white", mew=0.8)[0]
        ax.set_title(f"{n} point{'s' if n > 1 else ''}", fontsize=11, color="#23272E")
        ax.set(xlim=(-0.02, 1.02), ylim=(-3, 3), yticks=(-2, 0, 2), xlabel="x")
        ax.set_xticks((0, 0.5, 1), ("0", "½", "1"))
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color("#9AA3AF")
        ax.tick_params(color="#9AA3AF", labelcolor="#5B6370", length=3)
    panels[0].set_ylabel("y", rotation=0)
    names = ["points", "true curve", "mean", "drawn curves", "± 2 standard deviations of y"]
    handles = [points, truth, line, curves[0], band]
    figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, labelcolor="#23272E")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, float]:
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 1, max(STEPS))
    y = curve(x) + NOISE * rng.normal(size=len(x))
    grid = np.linspace(0, 1, 200)
    found = fit_step_by_step(x, y, grid)
    widths = {}
    for n, step in found.items():
        widths[f"{n}"] = float(step["deviation"].mean())
        off = float(np.sqrt(np.mean((step["mean"] - curve(grid)) ** 2)))
        print(f"{n:3d} points: mean deviation of y {widths[f'{n}']:.3f}, error of the curve {off:.3f}")
    inside = np.abs(found[max(STEPS)]["mean"] - curve(grid)) < 2 * found[max(STEPS)]["deviation"]
    widths["covered"] = float(inside.mean())
    print(f"true curve inside the last band: {widths['covered']:.0%}; the noise is {NOISE}")

    # The precisions need not be known: they maximise the evidence.
    basis = BasisExpansion("gaussian", 9).fit(grid[:, None])
    fitted = BayesianRidge(compute_score=True).fit(basis.transform(x[:, None]), y)
    widths["noise"] = float(fitted.alpha_**-0.5)
    print(f"noise by the evidence {widths['noise']:.3f}, log evidence {fitted.scores_[-1]:.1f}")
    if path is not None:
        draw(found, x, y, grid, path)
    return widths


if __name__ == "__main__":
    main(*sys.argv[1:2])
