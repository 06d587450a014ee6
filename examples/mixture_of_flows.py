"""Separate two arcs by a mixture of two normalising flows: one flow leaves bridges between them."""

import sys

import numpy as np
import optax

from energax import Mixture, fit, log_prob, posterior, sample
from energax.energies import Flow
from energax.estimators import GaussianMixture
from energax.learn import Descent, NegativeLogLikelihood

BLUE, ORANGE, INK, GREY = "#0072B2", "#D55E00", "#23272E", "#9AA3AF"
EPOCHS, ROWS = 60, 100


def two_arcs(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points near two arcs that are open to opposite sides, and the number of the arc."""
    label, angle = np.arange(n) % 2, rng.uniform(-2.2, 2.2, n)
    left = np.c_[-1.8 + np.cos(angle + np.pi), np.sin(angle)]
    X = np.where(label[:, None] == 0, left, -left) + 0.1 * rng.normal(size=(n, 2))
    return X.astype(np.float32), label


def learner(n: int) -> Descent:
    """Adam on the exact likelihood, with a step size that goes to 0."""
    size = optax.cosine_decay_schedule(5e-3, EPOCHS * n // ROWS)
    return Descent(NegativeLogLikelihood(), optax.adam(size))


def train(X: np.ndarray) -> tuple[Flow, Mixture]:
    """Return one flow for all points, and a mixture of two flows."""
    data, options = {"x": X}, {"epochs": EPOCHS, "batch_size": ROWS, "key": 0}
    new = lambda seed: Flow.random(2, key=seed, n_layers=3, width=32, depth=1)
    single = fit(new(0), data, learner(len(X)), **options).energy
    # A mixture of Gaussians says which points each flow starts with.
    shares = GaussianMixture(2, random_state=0).fit(X).predict_proba(X)
    parts = [fit(new(k), data, learner(len(X)), weights=shares[:, k], **options).energy for k in range(2)]
    mixture = fit(Mixture(parts), data, learner(len(X)), **options).energy
    return single, mixture


def draw(single: Flow, mixture: Mixture, X: np.ndarray, shares: np.ndarray, between: dict, path: str) -> None:
    """Plot both densities with the points, and the component of every point."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.4), sharex=True, sharey=True, layout="constrained")
    side = np.linspace(-3.6, 3.6, 240, dtype=np.float32)
    grid = np.stack(np.meshgrid(side, side), -1)
    for ax, (name, model) in zip(
        panels, {"one flow": single, "mixture of two flows": mixture}.items(), strict=False
    ):
        density = np.exp(log_prob(model, {"x": grid.reshape(-1, 2)}).value).reshape(grid.shape[:2])
        levels = np.linspace(0.04, np.sqrt(density.max()), 10)
        ax.contourf(side, side, np.sqrt(density), levels=levels, cmap="Blues")
        ax.set_title(f"{name}\n{between[name]:.2%} of its draws lie between the arcs", fontsize=11, color=INK)
    colour = np.where(shares[:, 0] > 0.5, BLUE, ORANGE)
    panels[2].scatter(*X[:800].T, s=9, c=colour[:800], edgecolors="white", linewidths=0.3)
    panels[2].set_title("the more probable component\nof every point", fontsize=11, color=INK)
    for ax in panels:
        ax.set(
            xlim=(-3.6, 3.6),
            ylim=(-2, 2),
            aspect="equal",
            xlabel="x₁",
            xticks=[-2, 0, 2],
            yticks=[-2, 0, 2],
        )
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GREY)
        ax.tick_params(color=GREY, labelcolor="#5B6370", length=3)
    panels[0].set_ylabel("x₂", rotation=0)
    figure.savefig(path, dpi=150)


def main(path: str | None = None) -> dict[str, float]:
    """Print log p of held-out points, the draws between the arcs, and the points in their component."""
    rng = np.random.default_rng(0)
    X, _ = two_arcs(3000, rng)
    held_out, label = two_arcs(3000, rng)
    single, mixture = train(X)
    models = {"one flow": single, "mixture of two flows": mixture}
    scores = {name: float(log_prob(model, {"x": held_out}).mean()) for name, model in models.items()}
    # The arcs end at |x₁| = 1.2, five standard deviations of the noise away.
    draws = {name: sample(model, 20_000, key=0)["x"] for name, model in models.items()}
    between = {name: float(np.mean(np.abs(x[:, 0]) < 0.7)) for name, x in draws.items()}
    shares = np.asarray(posterior(mixture, {"x": held_out}).marginals["z"])
    agree = float(np.mean((shares[:, 1] > 0.5) == label))
    for name, score in scores.items():
        print(f"{name}: log p of held-out points {score:.3f} nats on average, ", end="")
        print(f"{between[name]:.2%} of its draws between the arcs")
    print(f"points in the component of their arc: {max(agree, 1 - agree):.1%}")
    if path is not None:
        draw(single, mixture, held_out, shares, between, path)
        print(f"plot: {path}")
    return between | {"agreement": max(agree, 1 - agree)}


if __name__ == "__main__":
    main(*sys.argv[1:2])
