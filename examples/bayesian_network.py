"""A Bayesian neural regression: the posterior widens where there are no data, an approximation too little.

`Bayes(prior)` turns a small network into an energy over its weights, which NUTS and a mean-field Gaussian
read. The hidden units can be exchanged and reflected, so that chains need not agree about the weights: R̂ is
that of the values of the network, f(x). A mean-field Gaussian describes one of the equivalent modes without
correlations and is too sure outside the data; an ensemble of fits from random starts shows only how fits
differ.

Neal (1996), Bayesian learning for neural networks. `python examples/bayesian_network.py network.png` also
draws the picture.
"""

import sys
import warnings

import jax
import numpy as np
import optax
from numpyro.distributions import Normal

import energax
from energax.bayes import deep_ensemble
from energax.energies import Gaussian, NeuralRegressor
from energax.errors import ConvergenceWarning
from energax.learn import Descent, NegativeLogLikelihood
from energax.samplers import NUTS, Draws

NOISE = 0.2
GRID = np.linspace(-3, 3, 121, dtype=np.float32)
SIDES = (-1.6, -0.5), (0.4, 1.5)  # where there are data


def curve(x: np.ndarray) -> np.ndarray:
    """The true curve."""
    return np.sin(2.5 * x)


def read_data() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(*side, 20) for side in SIDES]).astype(np.float32)
    return {"x": x[:, None], "y": (curve(x) + NOISE * rng.normal(size=len(x))).astype(np.float32)}


def infer(over: energax.bayes.ParameterEnergy) -> dict[str, Draws]:
    """Draws of the weights by three methods."""
    with warnings.catch_warnings():
        # The weights are not identified; the values of the network are diagnosed in `main`. The Gaussian is
        # far from the posterior, and the picture shows how far.
        warnings.simplefilter("ignore", ConvergenceWarning)
        chains = energax.sample(over, 1200, method=NUTS(max_doublings=8), key=0, warmup=400)
        gaussian = energax.sample(over, 1200, method="VariationalGaussian", key=0)
    learner = Descent(NegativeLogLikelihood(), optax.adam(0.02))
    return {
        "NUTS": chains,
        "mean-field Gaussian": gaussian,
        "ensemble": deep_ensemble(over, learner, 10, key=0, epochs=1500),
    }


def draw(functions: dict[str, np.ndarray], rows: dict[str, np.ndarray], path: str) -> None:
    """One panel for each method, with its mean, band and some of its functions."""
    import matplotlib.pyplot as plt

    ink, soft, line, blue = "#23272E", "#5B6370", "#9AA3AF", "#0072B2"
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), sharey=True, layout="constrained")
    for ax, (name, values) in zip(panels, functions.items(), strict=True):
        mean, deviation = values.mean(0), values.std(0)
        for side in SIDES:
            shade = ax.axvspan(*side, color="#F1F3F5", lw=0, zorder=0)
        style = {"color": blue, "alpha": 0.18, "lw": 0}
        band = ax.fill_between(GRID, mean - 2 * deviation, mean + 2 * deviation, **style)
        some = values[:: len(values) // 8]
        curves = ax.plot(GRID, some.T, color=blue, lw=0.7, alpha=0.55)
        (middle,) = ax.plot(GRID, mean, color=blue, lw=2)
        (truth,) = ax.plot(GRID, curve(GRID), color=ink, lw=1.2, ls=(0, (4, 3)))
        (points,) = ax.plot(rows["x"], rows["y"], "o", color="#D55E00", ms=4, mec="white", mew=0.6)
        ax.set_title(name[0].upper() + name[1:], loc="left", fontsize=11, color=ink)
        ax.set(xlim=(-3, 3), ylim=(-3, 3), xticks=(-2, 0, 2), yticks=(-2, 0, 2))
        ax.set_xlabel("x", color=ink)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(line)
        ax.tick_params(color=line, labelcolor=soft, length=3)
    panels[0].set_ylabel("f(x)", color=ink)
    names = [
        "data",
        "true curve",
        "mean",
        "drawn functions",
        "± 2 standard deviations of f(x)",
        "range of the data",
    ]
    handles = [points, truth, middle, curves[0], band, shade]
    figure.legend(handles, names, loc="outside lower center", ncols=6, frameon=False, labelcolor=ink)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, dict[str, float]]:
    rows = read_data()
    model = NeuralRegressor.random(1, key=0, width=8, activation=jax.nn.tanh, likelihood=Gaussian(NOISE))
    prior = {"network.layers.0": Normal(0.0, 2.0), "network.layers.1": Normal(0.0, 0.8)}
    over = energax.Bayes(prior)(model, rows)
    on_grid = lambda model: jax.vmap(lambda x: model.predict(x=x[None]))(GRID)
    inside = np.any([(a < GRID) & (b > GRID) for a, b in SIDES], axis=0)
    outside = np.abs(GRID) > 2
    out, functions = {}, {}
    for name, draws in infer(over).items():
        values = functions[name] = energax.predictive(over, draws).apply(on_grid)
        deviation, error = values.std(0), np.abs(values.mean(0) - curve(GRID))
        out[name] = {
            "inside": float(deviation[inside].mean()),
            "outside": float(deviation[outside].mean()),
            "covered": float((error < 2 * deviation)[inside].mean()),
        }
        print(
            f"{name}: s.d. of f {out[name]['inside']:.3f} near the data, {out[name]['outside']:.3f} outside"
        )
        print(f"  true curve inside the band at {out[name]['covered']:.0%} of the points between the data")
        if name == "NUTS":
            chains = Draws({"f": values.reshape(draws.n_chains, -1, len(GRID))}, method="NUTS, of f(x)")
            out[name]["R-hat"] = float(chains.rhat.max())
            print(f"  {chains.verdict}")
    if path is not None:
        draw(functions, rows, path)
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
