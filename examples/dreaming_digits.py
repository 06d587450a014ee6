"""Digits dreamt by a deep belief network: an RBM at the top, directed layers down to the pixels.

Two layers of hidden units are learned greedily, each as an RBM of the units below it, and tuned together by
the up-down algorithm. The dream is a Gibbs chain at the top; every state of it is drawn down to an image.
Run with a path to draw the picture: python examples/dreaming_digits.py dreams.png
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from energax import fit, log_prob
from energax.energies import RBM, DeepBeliefNetwork, pretrain_rbms
from energax.infer import VariationalBound
from energax.learn import ContrastiveDivergence, Descent, UpDown
from energax.samplers import Gibbs

EPOCHS, TUNING = 60, 60
EVERY = 40  # sweeps between two images of a dream
INK, SOFT, LINE = "#23272E", "#5B6370", "#D5DAE0"


def adam(step, epochs, n=1400):
    """Adam with weight decay and a step that falls to zero, for batches of 100 of n rows."""
    schedule = optax.cosine_decay_schedule(step, epochs * n // 100)
    return optax.adamw(schedule, weight_decay=0.02)


def learn(X):
    """Return the RBM at the bottom, and the network before and after tuning."""
    stack = [RBM.random(64, 20, key=0), RBM.random(20, 20, key=1)]
    learner = Descent(ContrastiveDivergence(5, persistent=True, n_chains=200), adam(0.02, EPOCHS))
    rbms = pretrain_rbms(stack, X, learner, key=0, epochs=EPOCHS, batch_size=100)
    greedy = DeepBeliefNetwork.from_rbms(rbms)
    tuning = Descent(UpDown(5, persistent=True), adam(0.01, TUNING))
    tuned = fit(greedy, {"x": X}, tuning, key=1, epochs=TUNING, batch_size=100)
    return rbms[0], greedy, tuned.energy


def dream(network, starts, sweeps, every, key):
    """Return the mean images (chains, sweeps / every, 64) along chains at the top that start at rows."""
    names = network.undirected()[1]
    moved = jax.vmap(lambda x, k: network.propose(k, x=x)[0])(starts, jax.random.split(key, len(starts)))
    states, images = {"x": moved[names["x"]]}, []
    for t in range(0, sweeps, every):
        states = Gibbs(("z", "x")).advance(network.top, states, every, jax.random.fold_in(key, t))
        images.append(jax.vmap(lambda z: network.conditional("x", z1=z).mean)(states["x"]))
    return np.asarray(jnp.stack(images, 1))


def main(path=None):
    """Print test scores in nats per row, and return them by name; draw the dreams if there is a path."""
    X = (load_digits().data / 16 > 0.5).astype(np.float32)
    train, test = X[:1400], {"x": X[1400:]}
    rbm, greedy, tuned = learn(train)
    found = {"bottom RBM": log_prob(rbm, test)}
    for name, network in (("greedy network", greedy), ("network after up-down", tuned)):
        found[name] = log_prob(network, test, VariationalBound(1000), key=0)
    for name, score in found.items():
        print(f"{name + ':':<23} {score.value.mean():.2f} nats per row ({score.kind})")
    if path is not None:
        # One image of each digit 0 to 7 starts a chain.
        draw(train[:8], dream(tuned, jnp.asarray(train[:8]), 10 * EVERY, EVERY, jax.random.key(2)), path)
    return {name: score.value.mean() for name, score in found.items()}


def draw(starts, images, path):
    """Draw every chain as a row: the digit at its start, then the mean image after more and more sweeps."""
    import matplotlib.pyplot as plt

    n, steps = images.shape[:2]
    figure = plt.figure(figsize=(0.78 * (steps + 1.4), 0.78 * n + 0.75))
    grid = {"left": 0.015, "right": 0.985, "bottom": 0.015, "top": 1 - 0.72 / (0.78 * n + 0.75)}
    axes = figure.subplots(
        n, steps + 2, width_ratios=[1, 0.35, *[1] * steps], gridspec_kw={**grid, "wspace": 0.1, "hspace": 0.1}
    )
    for row, start, chain in zip(axes, starts, images, strict=True):
        row[1].axis("off")
        for axis, image in zip([row[0], *row[2:]], [start, *chain], strict=True):
            axis.imshow(image.reshape(8, 8), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
            axis.set(xticks=(), yticks=())
            axis.spines[:].set_color(LINE)
    axes[0, 0].set_title("start", fontsize=9, color=INK)
    for j in range(steps):
        axes[0, j + 2].set_title(f"{EVERY * (j + 1)}", fontsize=9, color=SOFT)
    title = "Digits dreamt by a deep belief network, after more and more Gibbs sweeps at its top"
    figure.text(grid["left"], 0.985, title, fontsize=12, color=INK, va="top")
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:2])
