"""Five gradients of one expectation: same mean, same optimum, different variance.

The task is min_θ E[z²] with z ~ N(aθ + b, 1), a = 2, b = 3. E[z²] = (aθ + b)² + 1, so that the gradient is
2a (aθ + b) and the minimum is at θ = −b / a = −1.5. The score function needs only log q and values of f; a
baseline lowers its variance; the path through z = aθ + b + noise uses the derivative of f. The best baseline
is E[z² s²] = (aθ + b)² + 3 for the score s. Estimated from 15 other draws it is noisy: their mean is better,
except near the optimum.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Normal

from energax.learn import OptimalBaseline, Reparameterised, ScoreFunction

A, B, DRAWS = 2.0, 3.0, 16
# Estimators by the mean of z, on which the best baseline depends.
ESTIMATORS = {
    "score, no baseline": lambda mean: ScoreFunction(baseline=False),
    "score, best baseline, estimated": lambda mean: ScoreFunction(OptimalBaseline()),
    "score, mean of the others": lambda mean: ScoreFunction(baseline=True),
    "score, best baseline, known": lambda mean: ScoreFunction(jax.lax.stop_gradient(mean**2 + 3)),
    "reparameterised": lambda mean: Reparameterised(),
}
COLOURS = dict(zip(ESTIMATORS, ("#D55E00", "#CC79A7", "#E69F00", "#009E73", "#0072B2"), strict=True))
THETAS = np.linspace(-3.5, 0.5, 33)


def gradient(name: str, theta, key):
    """One estimate of the gradient at θ, from `DRAWS` draws."""

    def surrogate(theta):
        mean = A * theta + B
        return ESTIMATORS[name](mean).surrogate(jnp.square, Normal(mean, jnp.ones(())), key, DRAWS)

    return jax.grad(surrogate)(theta)


def spread(name: str, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard deviation) of the gradient at every θ, from n estimates each."""
    keys = jax.random.split(jax.random.key(0), n)
    many = jax.jit(jax.vmap(jax.vmap(lambda t, k: gradient(name, t, k), (None, 0)), (0, None)))
    found = np.asarray(many(jnp.asarray(THETAS, jnp.float32), keys), float)
    return found.mean(1), found.std(1)


def descend(name: str, steps: int = 400, rate: float = 0.02, runs: int = 50) -> np.ndarray:
    """(runs, steps + 1): paths of θ by stochastic gradient descent with a falling step."""

    def path(key):
        def step(theta, t):
            moved = theta - rate / (1 + t / 50) * gradient(name, theta, jax.random.fold_in(key, t))
            return moved, moved

        return jax.lax.scan(step, jnp.array(0.5), jnp.arange(steps))[1]

    found = np.asarray(jax.jit(jax.vmap(path))(jax.random.split(jax.random.key(1), runs)))
    return np.concatenate([np.full((runs, 1), 0.5), found], 1)


def draw(spreads: dict, paths: dict, file: str) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for name, colour in COLOURS.items():
        left.plot(THETAS, spreads[name][1], color=colour, lw=2, label=name)
        distance = np.sqrt(((paths[name] + B / A) ** 2).mean(0))
        right.plot(distance, color=colour, lw=1.6)
    left.set(yscale="log", xlabel="θ", ylabel="standard deviation", ylim=(0.7, 14))
    left.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    left.minorticks_off()
    left.set_title(f"Spread of one gradient from {DRAWS} draws", loc="left")
    left.axvline(-B / A, color="#9AA3AF", lw=1, zorder=0)
    left.annotate(
        "optimum",
        (-B / A, 0.02),
        (4, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        color="#5B6370",
        fontsize=9,
    )
    right.set(yscale="log", xlabel="step", ylabel="distance of θ from −1.5", xlim=(0, 400), ylim=(0.008, 3))
    right.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    right.minorticks_off()
    right.set_title("Descent: root mean square over 50 runs", loc="left")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=3, frameon=False)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def main(file: str | None = None) -> dict[str, dict[str, float]]:
    spreads = {name: spread(name) for name in ESTIMATORS}
    paths = {name: descend(name) for name in ESTIMATORS}
    exact = 2 * A * (A * THETAS + B)
    at = int(np.argmin(np.abs(THETAS)))
    print(f"{'':32} bias (s.e.)   sd at θ = {THETAS[at]:g}   sd at the optimum   θ at the end")
    found = {}
    best = int(np.argmin(np.abs(THETAS + B / A)))
    for name, (mean, deviation) in spreads.items():
        bias = (mean - exact) / (deviation / np.sqrt(4000))
        end = paths[name][:, -1]
        found[name] = {
            "bias": float(np.abs(bias).max()),
            "deviation": float(deviation[at]),
            "at the optimum": float(deviation[best]),
            "end": float(end.mean()),
        }
        print(
            f"{name:32} {np.abs(bias).max():11.1f} {deviation[at]:13.2f} {deviation[best]:19.2f}"
            f"   {end.mean():+.3f} ± {end.std():.3f}"
        )
    if file:
        draw(spreads, paths, file)
        print(f"drawn in {file}")
    return found


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "gradient_estimators.png")
