"""Deep latent models on MNIST, on an accelerator: one line per run, with a published neighbour.

    python -m benchmarks.mnist                    all runs, each under ten minutes on one H200
    python -m benchmarks.mnist rbm vae speed      some of them
    python -m benchmarks.mnist --tiny             all of them on a hundred rows, to see that they work

ENERGAX_DATA is the folder that has `mnist` and `binarized-mnist-larochelle`. Log-likelihoods are in nats per
test row of the fixed binarisation unless a line says otherwise; those of latent models are lower bounds.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from energax import fit, log_prob
from energax.energies import (
    RBM,
    Decoder,
    DeepBeliefNetwork,
    DeepBoltzmannMachine,
    Gaussian,
    Linear,
    Scorer,
    pretrain_rbms,
)
from energax.estimators import VaDE
from energax.infer import VariationalBound
from energax.learn import ELBO, ContrastiveDivergence, CrossEntropy, Descent, Dropout, UpDown
from energax.nn import Encoder, pretrain

from . import mnist_flows as flows
from . import mnist_speed
from .mnist_data import (
    Size,
    clustering_accuracy,
    fixed_binary,
    grey,
    importance_score,
    learn,
    persistent,
    rbm_scores,
    steps,
)


def rbm(size: Size) -> str:
    """RBM of 500 hidden units by persistent chains, with both ends of the bracket of log Z."""
    train, _, test = fixed_binary(size)
    epochs = size(500)
    learner = persistent(10, 4e-3, steps(train, epochs, 100), decay=1e-4)
    done = learn(RBM.random(784, size(500, 20), key=0), train, learner, epochs, initialise=True)
    above, below = rbm_scores(done.energy, test, size)
    return (
        f"log p {above} by forward chains, {below} by reverse ones; published: −86.34 (another binarisation)"
    )


def _vae(size: Size, samples: int, epochs: int, published: str) -> str:
    train, valid, test = fixed_binary(size)
    shape: dict[str, Any] = {"width": size(200, 8), "depth": 2, "activation": jnp.tanh}
    encoder = Encoder.random(784, size(50, 3), key=1, **shape)
    epochs = size(epochs)
    # Bounds of validation rows after 60 epochs: −100.1 with 1e-3, −98.7 with 2e-3, −100.4 with 3e-3; after
    # 240 epochs −96.7, and −100.3 with a weight decay of 0.2.
    rate = optax.cosine_decay_schedule(2e-3, steps(train, epochs, 100))
    learner = Descent(ELBO(encoder, samples), optax.adamw(rate, weight_decay=1e-2))
    start = Decoder.random(784, size(50, 3), key=0, **shape)
    done = learn(start, train, learner, epochs, validation={"x": valid[:2000]})
    score = importance_score(done.energy, done.partner, test, size)
    return f"log p {score} by importance sampling; published: {published}"


def vae(size: Size) -> str:
    """Variational autoencoder with one stochastic layer of 50 and two hidden layers of 200 units."""
    return _vae(size, 1, 2000, "−88.71 (fixed binarisation), −86.76 (dynamic)")


def iwae(size: Size) -> str:
    """The same with the importance-weighted bound of 50 draws."""
    return _vae(size, 50, 600, "−87.10 (fixed binarisation), −84.78 (dynamic)")


def dbn(size: Size) -> str:
    """Deep belief network of 500 and 2000 units: greedy, then tuned by the up-down algorithm."""
    train, _, test = fixed_binary(size)
    epochs, hidden, top = size(250), size(500, 20), size(2000, 30)
    stack = [RBM.random(784, hidden, key=0), RBM.random(hidden, top, key=1)]
    learner = persistent(10, 4e-3, steps(train, epochs, 100), decay=1e-4)
    rbms = pretrain_rbms(stack, train, learner, key=0, epochs=epochs, batch_size=min(100, len(train)))
    greedy = DeepBeliefNetwork.from_rbms(rbms)
    epochs = size(60)
    tuning = Descent(UpDown(10, persistent=True), optax.adam(_falling(1e-4, train, epochs)))
    tuned = learn(greedy, train, tuning, epochs).energy
    bottom = rbm_scores(rbms[0], test, size)[1]
    method = VariationalBound(size(1000, 20))
    found = [log_prob(network, {"x": test}, method, key=0).mean() for network in (greedy, tuned)]
    words = f"bound {found[0]} greedy, {found[1]} after up-down; the RBM at the bottom {bottom}"
    return f"{words}; published: −84.55, a bound of −85.97 (another binarisation)"


def dbm(size: Size) -> str:
    """Deep Boltzmann machine of 500 and 1000 units: layers one by one, then together."""
    train, _, test = fixed_binary(size)
    epochs, hidden, top = size(100), size(500, 20), size(1000, 30)
    stack = [RBM.random(784, hidden, key=0), RBM.random(hidden, top, key=1)]
    learner = persistent(5, 4e-3, steps(train, epochs, 100), decay=1e-4)
    options = {"epochs": epochs, "batch_size": min(100, len(train)), "key": 0}
    start = DeepBoltzmannMachine.from_rbms(pretrain_rbms(stack, train, learner, doubled=True, **options))
    epochs = size(300)
    learner = persistent(5, 1e-3, steps(train, epochs, 100), decay=1e-4)
    deep = learn(start, train, learner, epochs).energy
    found = log_prob(deep, {"x": test}, VariationalBound(size(100, 5)), key=0).mean()
    return f"bound {found}; published: −84.62 (another binarisation)"


def _flow(size: Size, start: Any, rate: float, epochs: int, n_draws: int) -> str:
    train, _, test, _ = grey(size)
    epochs = size(epochs)
    rates = _falling(rate, train, epochs)
    learner = Descent(flows.Dequantised(), optax.adamw(rates, weight_decay=1e-3), clip=100.0)
    held_out = size(2000, 20)
    done = learn(start, train[held_out:], learner, epochs, validation={"x": train[:held_out]})
    bits = flows.bits_per_dimension(done.energy, test, size(n_draws))
    return f"{bits:.3f} bits a dimension of dequantised grey MNIST; published: RealNVP 1.06, Glow 1.05"


def flow(size: Size) -> str:
    """Couplings of splines with convolutions, on two scales."""
    return _flow(size, flows.image_flow(size(64, 4), size(8, 2)), 1e-3, 40, 4)


def autoregressive(size: Size) -> str:
    """Masked autoregressive splines: every pixel given those before it."""
    return _flow(size, flows.autoregressive_flow(size(1000, 8), size(16, 3)), 1e-3, 60, 4)


def vade(size: Size) -> str:
    """Clusters of grey MNIST: the best of three starts by its own bound."""
    x, y, test, labels = grey(size)
    hidden = (8,) if size.tiny else (2000, 500, 500)
    settings: dict[str, Any] = {"pretrain_iter": size(50), "max_iter": size(150), "n_init": size(3)}
    settings |= {"likelihood": Gaussian(jnp.array(0.3)), "random_state": 0}
    model = VaDE(10, size(10, 2), hidden, **settings).fit(x / 255)
    found = clustering_accuracy(model.labels_, y), clustering_accuracy(model.predict(test / 255), labels)
    return f"accuracy {found[0]:.4f} of training rows, {found[1]:.4f} of test rows; published: 0.9446"


def features(size: Size) -> str:
    """Test errors of a linear classifier of the hidden units of an RBM of grey MNIST."""
    x, y, test, labels = grey(size)
    x, test, n = x / 255, test / 255, size(4000, 20)
    epochs = size(60)
    rule = Descent(ContrastiveDivergence(1), optax.adamw(_falling(1e-3, x, epochs), weight_decay=1e-3))
    layer = pretrain([(RBM.random(784, n, key=0), rule)], x, key=0, epochs=epochs).network
    apply = jax.jit(jax.vmap(layer))
    inside, outside = (
        np.concatenate([apply(t[i : i + 5000]) for i in range(0, len(t), 5000)]) for t in (x, test)
    )
    epochs = size(100)
    learner = Descent(CrossEntropy(), optax.adamw(_falling(1e-3, x, epochs), weight_decay=0.03))
    done = _classify(Linear.random(n, 10, key=1), inside, y, learner, epochs)
    return f"{_error(done.scores, outside, labels):.2%} of test rows wrong; published: 1.83 %"


def tuned(size: Size) -> str:
    """Test errors of a deep network that starts at a stack of RBMs, tuned with dropout."""
    x, y, test, labels = grey(size)
    x, test = x / 255, test / 255
    sizes = (784, *((8, 8) if size.tiny else (1000, 1000, 2000)))
    epochs = size(20)
    rule = Descent(ContrastiveDivergence(1), optax.adamw(_falling(1e-3, x, epochs), weight_decay=1e-3))
    stack = [(RBM.random(a, b, key=i), rule) for i, (a, b) in enumerate(itertools.pairwise(sizes))]
    layers = pretrain(stack, x, key=0, epochs=epochs).network.layers
    dropped = [part for layer in layers for part in (layer, eqx.nn.Dropout(0.5, inference=True))]
    output = eqx.nn.Linear(sizes[-1], 10, key=jax.random.key(1))
    network = eqx.nn.Sequential([eqx.nn.Dropout(0.2, inference=True), *dropped, output])
    epochs = size(200)
    learner = Descent(Dropout(CrossEntropy()), optax.adam(_falling(1e-3, x, epochs)))
    done = _classify(Scorer(network, 784, 10), x, y, learner, epochs)
    return f"{_error(done.scores, test, labels):.2%} of test rows wrong; published: 1.27 %"


def speed(size: Size) -> str:
    """Time of one update, by the difference of two fits, beside PyTorch if it is installed."""
    return mnist_speed.report(size)


def _falling(rate: float, rows: np.ndarray, epochs: int) -> Any:
    """Return a step size that falls to 0."""
    return optax.cosine_decay_schedule(rate, steps(rows, epochs, 100))


def _classify(energy: Any, x: np.ndarray, y: np.ndarray, learner: Descent, epochs: int) -> Any:
    data = {"x": x, "y": y}
    return fit(energy, data, learner, key=0, epochs=epochs, batch_size=min(100, len(x))).energy


def _error(scores: Callable[[Any], Any], x: np.ndarray, y: np.ndarray) -> float:
    guess = jax.jit(jax.vmap(scores))
    found = np.concatenate([np.asarray(guess(x[i : i + 2000])).argmax(1) for i in range(0, len(x), 2000)])
    return float((found != y).mean())


RUNS = (rbm, vae, iwae, dbn, dbm, flow, autoregressive, vade, features, tuned, speed)


def main() -> None:
    """Print one line per run: name, result, published neighbour, seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", choices=[[], *[run.__name__ for run in RUNS]], metavar="run")
    parser.add_argument("--tiny", action="store_true", help="a hundred rows and one epoch")
    chosen = parser.parse_args()
    print(f"device: {jax.devices()[0].device_kind}, JAX {jax.__version__}", flush=True)
    for run in RUNS:
        if not chosen.runs or run.__name__ in chosen.runs:
            began = time.perf_counter()
            line = run(Size(chosen.tiny))
            print(f"{run.__name__}: {line} [{time.perf_counter() - began:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
