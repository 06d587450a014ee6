"""A digit before and after adversarial training: which change deceives which network.

Run with a path to draw the picture: python examples/adversarial_digits.py digit.png
"""

import sys
from typing import Any

import numpy as np
import optax
from sklearn.datasets import load_digits

from energax import fit, posterior
from energax.energies import Scorer
from energax.learn import AdversarialTraining, CrossEntropy, Descent, FastGradientSign, ProjectedGradient

STRENGTHS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25)  # of the change of a pixel, whose range is 0 to 1
SHOWN = 0.15
INK, SOFT, LINE, BLUE, RED = "#23272E", "#5B6370", "#9AA3AF", "#0072B2", "#D55E00"


def train(data: dict[str, np.ndarray]) -> dict[str, Scorer]:
    """The same network, learned from the digits as they are and from digits that an attack has changed."""
    start = Scorer.random(64, 10, key=0, width=100)
    plain = CrossEntropy(l2=1e-4)
    robust = AdversarialTraining(plain, ProjectedGradient(SHOWN, steps=5, low=0.0, high=1.0))
    networks = {}
    for name, objective in {"plain": plain, "adversarial": robust}.items():
        learner = Descent(objective, optax.adam(5e-3))
        networks[name] = fit(start, data, learner, epochs=60, batch_size=100, key=0).energy
    return networks


def probabilities(network: Scorer, x: Any) -> np.ndarray:
    return np.asarray(posterior(network, {"x": np.asarray(x)}).marginals["y"])


def accuracies(networks: dict[str, Scorer], x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """The fraction of test digits that each network reads correctly after an attack on itself."""
    found: dict[str, list[float]] = {}
    for name, network in networks.items():
        found[name] = []
        for strength in STRENGTHS:
            attack = ProjectedGradient(strength, steps=20, low=0.0, high=1.0)
            found[name].append(float((probabilities(network, attack(network, x, y)).argmax(1) == y).mean()))
    return found


def choose(networks: dict[str, Scorer], x: np.ndarray, y: np.ndarray, changed: dict[str, np.ndarray]) -> int:
    """The digit of which the plain network is most certain, before the attack, and wrong after it."""
    sure = probabilities(networks["plain"], x)[np.arange(len(y)), y]
    deceived = probabilities(networks["plain"], changed["plain"])
    wrong = deceived.max(1) * (deceived.argmax(1) != y)
    still = probabilities(networks["adversarial"], changed["adversarial"])[np.arange(len(y)), y]
    return int(np.argmax(sure * wrong * still))


def draw(
    networks: dict[str, Scorer],
    x: np.ndarray,
    changed: dict[str, np.ndarray],
    curves: dict[str, list[float]],
    path: str,
) -> None:
    """Draw the digit, the changes and the changed digits, and the accuracy against the strength."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.2, 4.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.45, 1))
    panels = left.subplots(2, 3)
    for row, (name, network) in zip(panels, networks.items(), strict=True):
        images = [x, changed[name] - x, changed[name]]
        for ax, image, title in zip(row, images, ("digit", "change", "changed digit"), strict=True):
            is_change = title == "change"
            limits = {"vmin": -2 * SHOWN, "vmax": 2 * SHOWN} if is_change else {"vmin": 0, "vmax": 1}
            ax.imshow(image.reshape(8, 8), cmap="PuOr_r" if is_change else "Greys", **limits)
            ax.set(xticks=(), yticks=())
            for spine in ax.spines.values():
                spine.set_color(LINE)
            if ax in panels[0]:
                ax.set_title(title, fontsize=11, color=INK)
            if is_change:
                ax.set_xlabel(f"± {SHOWN}, orange is darker", color=SOFT)
            else:
                p = probabilities(network, image[None])[0]
                right_digit = p.argmax() == probabilities(networks["adversarial"], x[None])[0].argmax()
                ax.set_xlabel(f"read as {p.argmax()}, p = {p.max():.2f}", color=BLUE if right_digit else RED)
        row[0].set_ylabel(f"{name} training", fontsize=11, color=INK)
    ax = right.subplots()
    for name, colour, marker in (("adversarial", BLUE, "o"), ("plain", RED, "s")):
        ax.plot(STRENGTHS, curves[name], color=colour, marker=marker, lw=2, ms=5)
    ax.text(0.16, 0.76, "adversarial training", color=BLUE)
    ax.text(0.09, 0.28, "plain training", color=RED, ha="right")
    ax.axvline(SHOWN, color=LINE, lw=1, ls=(0, (4, 3)), zorder=0)
    ax.text(SHOWN, 1.03, "the changes shown", color=SOFT, ha="center", fontsize=9)
    ax.set(xlabel="largest change of a pixel", ylabel="test digits read correctly", ylim=(0, 1.02))
    ax.set_yticks((0, 0.5, 1), ("0 %", "50 %", "100 %"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(LINE)
    ax.tick_params(color=LINE, labelcolor=SOFT, length=3)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, list[float]]:
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32), y.astype(np.int32)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    test, labels = x[1400:], y[1400:]
    networks = train({"x": x[:1400], "y": y[:1400]})
    curves = accuracies(networks, test, labels)
    print("largest change of a pixel ", *(f"{s:7.2f}" for s in STRENGTHS))
    for name, row in curves.items():
        print(f"{name + ' training':26}", *(f"{a:7.1%}" for a in row))
    one_step = FastGradientSign(SHOWN, low=0.0, high=1.0)
    for name, network in networks.items():
        right = (probabilities(network, one_step(network, test, labels)).argmax(1) == labels).mean()
        print(f"{name} training, one step of {SHOWN} along the signs of the gradient: {right:.1%}")
    if path is not None:
        attack = ProjectedGradient(SHOWN, steps=20, low=0.0, high=1.0)
        changed = {name: np.asarray(attack(network, test, labels)) for name, network in networks.items()}
        i = choose(networks, test, labels, changed)
        draw(networks, test[i], {name: rows[i] for name, rows in changed.items()}, curves, path)
    return curves


if __name__ == "__main__":
    main(*sys.argv[1:2])
