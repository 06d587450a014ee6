"""The plane of a variational autoencoder with two hidden variables, and digits completed from upper halves.

Run with a path to draw the picture: python examples/latent_plane.py plane.png
"""

import sys

import jax.numpy as jnp
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_digits

from energax.energies import DiscretisedLogistic
from energax.estimators import VAE

SIDE = 12  # digits along each side of the plane
COMPLETED = 8
GREYS = 17  # values of a pixel
INK, SOFT, LINE, BLUE = "#23272E", "#5B6370", "#9AA3AF", "#0072B2"


def load() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training and test digits in random order, grey values 0 to 16, and the labels of the test digits."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order].astype(np.float32), y[order]
    return X[:1400], X[1400:], y[1400:]


def plane(model: VAE) -> np.ndarray:
    """One picture of the mean digits on a grid of the plane, at quantiles of the prior."""
    steps = norm.ppf((np.arange(SIDE) + 0.5) / SIDE)
    z = np.stack(np.meshgrid(steps, steps[::-1]), -1).reshape(-1, 2)
    images = model.inverse_transform(z.astype(np.float32)).reshape(SIDE, SIDE, 8, 8)
    framed = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return framed.transpose(0, 2, 1, 3).reshape(10 * SIDE, 10 * SIDE)


def upper_half(X: np.ndarray) -> np.ndarray:
    """The digits without their lower halves."""
    return np.where(np.arange(64) < 32, X, np.nan).astype(np.float32)


def draw(image: np.ndarray, X: np.ndarray, completed: np.ndarray, path: str) -> None:
    """Draw the plane beside the digits: as they are, their upper halves, and completed."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(8.6, 5.6), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.75, 1))
    ax = left.subplots()
    ax.imshow(image, cmap="Greys", vmin=0, vmax=GREYS - 1)
    ax.set(xticks=(), yticks=(), xlabel="first hidden variable", ylabel="second hidden variable")
    ax.set_title("digits that the decoder draws in the plane", fontsize=11, color=INK)
    panels = right.subplots(COMPLETED, 3)
    half = upper_half(X)
    for j, (title, rows) in enumerate((("given", half), ("completed", completed), ("digit", X))):
        for i, panel in enumerate(panels[:, j]):
            panel.imshow(rows[i].reshape(8, 8), cmap="Greys", vmin=0, vmax=GREYS - 1)
            panel.axhline(3.5, color=BLUE, lw=1)
            panel.set(xticks=(), yticks=())
        panels[0, j].set_title(title, fontsize=10, color=INK)
    for each in (ax, *panels.ravel()):
        each.xaxis.label.set_color(SOFT)
        each.yaxis.label.set_color(SOFT)
        for spine in each.spines.values():
            spine.set_color(LINE)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, float]:
    X, X_test, y_test = load()
    likelihood = DiscretisedLogistic(GREYS, jnp.full(64, 0.1))
    settings = {"likelihood": likelihood, "max_iter": 150, "n_importance": 1000, "random_state": 0}
    in_plane = VAE(2, (128, 128), **settings).fit(X)
    # The encoder learns from whole digits and from upper halves.
    completed = VAE(8, (128, 128), **settings).fit(np.r_[X, upper_half(X)]).impute(upper_half(X_test))
    error = lambda images: float(np.sqrt(np.mean((images - X_test[:, 32:]) ** 2)))
    found = {"error": error(completed[:, 32:]), "error of the mean": error(X[:, 32:].mean(0))}
    found["gap"] = float(in_plane.bound_gap(X_test).mean().value)
    print(f"gap of the bound: {found['gap']:.2f} nats per digit; active units: {in_plane.active_units_}")
    print(f"error of the lower half: {found['error']:.2f} of 16 grey values, ", end="")
    print(f"{found['error of the mean']:.2f} by the mean digit")
    if path is not None:
        first = [int(np.flatnonzero(y_test == label)[0]) for label in (0, 2, 3, 4, 5, 6, 8, 9)]
        draw(plane(in_plane), X_test[first], completed[first], path)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
