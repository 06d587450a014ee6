"""Hidden Markov chains of 8 states: scores, best paths and Baum-Welch, against hmmlearn and dynamax."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from .case import Case

K, SYMBOLS, LONG, MANY, SHORT = 8, 20, 10_000, 1000, 100
#: A fit of ten iterations is short enough for what any fit costs (some 5 ms here) to weigh in it.
ITERATIONS, MORE_ITERATIONS = 10, 50


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

    def learned(model, rows, lengths, n_iter=ITERATIONS):
        def call():
            made = _set(model(K, n_iter=n_iter, tol=-np.inf, init_params="", **scaling), _start())
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
    kinds = (
        (f"one sequence of {LONG:,}", X, None, 1 / 2),
        (f"{MANY:,} sequences of {SHORT}", many, cut, 1 / 5),
    )
    found += [
        Case(
            f"HMM Baum-Welch, {size}, {told}, {n_iter} iterations, {np.dtype(dtype)}",
            learned(Ours, rows.astype(dtype), lengths, n_iter),
            learned(Theirs, rows, lengths, n_iter),
            peer="hmmlearn (scaling, float64)",
            target=target,
            quality=fits,
        )
        for told, rows, lengths, target in kinds
        for dtype in (np.float32, np.float64)
        for n_iter in (ITERATIONS, MORE_ITERATIONS)
    ]
    return found + _dynamax(X) + _dynamax_learned(learned, X, many, cut)


def _dynamax(X) -> list[Case]:
    """The same by dynamax, where it is installed, both in float32."""
    try:
        from dynamax.hidden_markov_model import hmm_filter, hmm_posterior_mode
    except ImportError:
        return []
    import jax
    import jax.numpy as jnp

    from energax.estimators import CategoricalHMM as Ours

    single = {name: value.astype(np.float32) for name, value in parameters().items()}
    ours, rows = _set(Ours(K, n_features=SYMBOLS), single), X.astype(np.float32)
    p = {name: jnp.asarray(value) for name, value in single.items()}
    likelihood = jnp.log(p["emissionprob_"]).T[jnp.asarray(X[:, 0])]
    score = jax.jit(lambda: hmm_filter(p["startprob_"], p["transmat_"], likelihood).marginal_loglik)
    best = jax.jit(lambda: hmm_posterior_mode(p["startprob_"], p["transmat_"], likelihood))
    told, peer = f"{K} states, one sequence of {LONG:,}, float32", "dynamax, likelihoods given"
    return [
        Case(name, ask, theirs, peer=peer, target=1 / 10, repeats=25)
        for name, ask, theirs in (
            (f"HMM log-likelihood, {told}", lambda: ours.score(rows), score),
            (f"HMM Viterbi, {told}", lambda: ours.decode(rows), best),
        )
    ]


def _dynamax_learned(learned, X, many, cut) -> list[Case]:
    """Baum-Welch by dynamax, where it is installed: its `fit_em` compiles at every call, unless in a jit."""
    try:
        from dynamax.hidden_markov_model import CategoricalHMM
    except ImportError:
        return []
    import jax
    import jax.numpy as jnp

    from energax.estimators import CategoricalHMM as Ours

    theirs = CategoricalHMM(
        K,
        1,
        SYMBOLS,
        initial_probs_concentration=1.0,
        transition_matrix_concentration=1.0,
        emission_prior_concentration=1.0,
    )
    start = {name: jnp.asarray(value, jnp.float32) for name, value in _start().items()}
    begun, kinds = theirs.initialize(
        initial_probs=start["startprob_"],
        transition_matrix=start["transmat_"],
        emission_probs=start["emissionprob_"][:, None],
    )
    em = lambda rows: theirs.fit_em(begun, kinds, rows, num_iters=ITERATIONS, verbose=False)
    compiled = jax.jit(em)

    def fits(a, b):
        prior = theirs.log_prior(begun)  # even, so the same for all parameters; dynamax counts it
        return f"log-likelihood {a.monitor_.history[-1]:.2f} and {float(b[1][-1] - prior):.2f}"

    def cases_of(told, rows, lengths, length):
        emissions = jnp.asarray(rows.reshape(-1, length, 1))
        name = f"HMM Baum-Welch, {K} states, {told}, {ITERATIONS} iterations, float32"
        ours = learned(Ours, rows.astype(np.float32), lengths)
        return [
            Case(name, ours, lambda: em(emissions), peer="dynamax", target=1 / 10, quality=fits),
            Case(
                name, ours, lambda: compiled(emissions), peer="dynamax in a jit", target=1 / 10, quality=fits
            ),
        ]

    one = cases_of(f"one sequence of {LONG:,}", X, None, LONG)
    return one + cases_of(f"{MANY:,} sequences of {SHORT}", many, cut, SHORT)
