"""Draw random functions from a Gaussian process, before and after it has seen a few points.

`python examples/gaussian_process.py picture.png` also draws them.
"""

import sys

import numpy as np

from energax import log_prob, posterior, sample
from energax.energies import GaussianProcess
from energax.estimators import GaussianProcessRegressor
from energax.kernels import RBF, White


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(3 * x) + 0.5 * x


def main(path: str | None = None) -> dict[str, float]:
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-2, 2, 9))
    y = truth(x) + 0.1 * rng.normal(size=9)
    grid = np.linspace(-3, 3, 121)

    # An energy over (y, f) given x. The prior: f at the points of the grid, nothing observed.
    process = GaussianProcess(1.0 * RBF(0.6), noise=0.01)
    before = np.asarray(sample(process, 5, {"x": grid[:, None]}, key=0)["f"])

    # The posterior: the points of the grid join the data set, and their y is missing.
    points = np.concatenate([x, grid])[:, None]
    given = {"x": points, "y": np.concatenate([y, np.full(121, np.nan)])}
    seen = posterior(process, given)
    mean = seen.mean["f"][9:]
    after = np.asarray(seen.sample(200, key=1)["f"])[:, 9:]
    deviation = after.std(0)

    # The estimator learns length scale, variance and noise by maximum evidence.
    model = GaussianProcessRegressor(1.0 * RBF(0.6) + White(0.01), n_restarts_optimizer=2, random_state=0)
    model.fit(x[:, None], y)
    learned, band = model.predict(grid[:, None], return_std=True)

    inside = (grid > x.min()) & (grid < x.max())
    found = {
        "evidence": float(log_prob(process, {"y": y}, given={"x": x[:, None]})),
        "evidence, learned": model.log_marginal_likelihood_value_,
        "largest error between the data": float(np.abs(mean - truth(grid))[inside].max()),
        "deviation between the data": float(deviation[inside].mean()),
        "deviation far from them": float(deviation[[0, -1]].mean()),
    }
    for name, value in found.items():
        print(f"{name}: {value:.3f}")
    if path:
        draw(path, grid, x, y, before, (mean, deviation, after[:5]), (learned, band))
    return found


def draw(path, grid, x, y, before, after, learned) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), sharey=True, layout="constrained")
    thin = {"color": "#0072B2", "lw": 0.9}
    axes[0].plot(grid, before.T, **thin)
    axes[0].set(title="prior: five draws", ylabel="y")
    mean, deviation, draws = after
    axes[1].plot(grid, draws[1:].T, **thin)
    axes[1].plot(grid, draws[0], **thin, label="draw of f")
    titles = {1: "posterior: five draws", 2: "learned kernel: mean, with noise"}
    for i, (middle, scale) in {1: (mean, deviation), 2: learned}.items():
        low, high = middle - 1.96 * scale, middle + 1.96 * scale
        axes[i].fill_between(
            grid, low, high, color="#D1E5F0", lw=0, label="95 % of f" if i == 1 else "95 % of y"
        )
        axes[i].plot(grid, middle, color="black", lw=1.5, label="mean")
        axes[i].plot(x, y, "o", color="black", ms=5, label="data")
        axes[i].set_title(titles[i])
    axes[2].plot(grid, truth(grid), "--", color="#D55E00", lw=1.3, label="truth")
    for axis in axes:
        axis.set_xlabel("x")
        if axis is not axes[0]:
            axis.legend(loc="lower center", ncols=2, frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
