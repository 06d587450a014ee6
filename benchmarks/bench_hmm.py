"""Hidden Markov chains of 8 states: scores, best paths and Baum-Welch, against hmmlearn and dynamax."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .case import Case

K, SYMBOLS, LONG, MANY, SHORT, ITERATIONS = 8, 20, 10_000, 1000, 100, 10


def parameters() -> dict[str, np.ndarray]:
    """A chain that stays where it is for some steps, and states that overlap."""
    rng = np.random.default_rng(0)
    return {
        "startprob_": rng.dirichlet(np.ones(K)),
        "transmat_": 0.7 * np.eye(K) + 0.3 * rng.dirichlet(np.ones(K), K),
        "emissionprob_": rng.dirichlet(np.ones(SYMBOLS), K),
    }


def symbols(n: int) -> np.ndarray:
    """A sequence drawn from another chain of the same kind."""
    rng = np.random.default_rng(1)
    p = parameters()
    z, x = 0, np.empty(n, int)
    for t in range(n):
        z = rng.choice(K, p=p["transmat_"][z])
        x[t] = rng.choice(SYMBOLS, p=p["emissionprob_"][z])
    return x[:, None]


def _start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    return {
        "startprob_": np.full(K, 1 / K),
        "transmat_": rng.dirichlet(np.full(K, 5.0), K),
        "emissionprob_": rng.dirichlet(np.full(SYMBOLS, 5.0), K),
    }


def _set(model, values):
    for name, value in values.items():
        setattr(model, name, value.copy())
    return model


def cases() -> list[Case]:
    from hmmlearn.hmm import CategoricalHMM as Theirs

    from energax.estimators import CategoricalHMM as Ours

    X, cut = symbols(LONG), [SHORT] * MANY
    many = np.concatenate([X] * (MANY * SHORT // LONG))
    scaling: dict[str, Any] = {"implementation": "scaling", "n_features": SYMBOLS}
    ours, theirs = (_set(model(K, **scaling), parameters()) for model in (Ours, Theirs))

    def learned(model, rows, lengths):
        def call():
            made = _set(model(K, n_iter=ITERATIONS, tol=-np.inf, init_params="", **scaling), _start())
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return made.fit(rows, lengths)

        return call

    def gap(a, b):
        return f"log-likelihood {a:.6f} and {b:.6f}"

    def paths(a, b):
        return f"paths agree at {np.mean(a[1] == b[1]):.4%} of the steps"

    def fits(a, b):
        return f"log-likelihood {a.monitor_.history[-1]:.6f} and {list(b.monitor_.history)[-1]:.6f}"

    size = f"{K} states"
    found = [
        Case(
            f"HMM log-likelihood, {size}, one sequence of {LONG:,}",
            lambda: ours.score(X),
            lambda: theirs.score(X),
            peer="hmmlearn (scaling)",
            target=1 / 2,
            quality=gap,
            repeats=25,
        ),
        Case(
            f"HMM Viterbi, {size}, one sequence of {LONG:,}",
            lambda: ours.decode(X),
            lambda: theirs.decode(X),
            peer="hmmlearn",
            target=1.0,
            quality=paths,
            repeats=25,
        ),
    ]
    for dtype in (np.float32, np.float64):
        told = f"{ITERATIONS} iterations, {np.dtype(dtype)}"
        found += [
            Case(
                f"HMM Baum-Welch, {size}, one sequence of {LONG:,}, {told}",
                learned(Ours, X.astype(dtype), None),
                learned(Theirs, X, None),
                peer="hmmlearn (scaling, float64)",
                target=1 / 2,
                quality=fits,
                repeats=9,
            ),
            Case(
                f"HMM Baum-Welch, {size}, {MANY:,} sequences of {SHORT}, {told}",
                learned(Ours, many.astype(dtype), cut),
                learned(Theirs, many, cut),
                peer="hmmlearn (scaling, float64)",
                target=1 / 5,
                quality=fits,
            ),
        ]
    return found + _dynamax(ours, X)


def _dynamax(ours, X) -> list[Case]:
    """The same by dynamax, where it is installed."""
    try:
        from dynamax.hidden_markov_model import hmm_filter, hmm_posterior_mode
    except ImportError:
        return []
    import jax
    import jax.numpy as jnp

    p = {name: jnp.asarray(value) for name, value in parameters().items()}
    likelihood = jnp.log(p["emissionprob_"]).T[jnp.asarray(X[:, 0])]
    score = jax.jit(lambda: hmm_filter(p["startprob_"], p["transmat_"], likelihood).marginal_loglik)
    best = jax.jit(lambda: hmm_posterior_mode(p["startprob_"], p["transmat_"], likelihood))
    size = f"{K} states, one sequence of {LONG:,}"
    return [
        Case(
            f"HMM log-likelihood, {size}, and dynamax",
            lambda: ours.score(X),
            score,
            peer="dynamax",
            target=1 / 10,
        ),
        Case(
            f"HMM Viterbi, {size}, and dynamax", lambda: ours.decode(X), best, peer="dynamax", target=1 / 10
        ),
    ]
