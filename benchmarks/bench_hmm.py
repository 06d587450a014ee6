"""Hidden Markov models of 8 states: scores, best paths and Baum-Welch, against hmmlearn and dynamax."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np

from .case import Case

K, SYMBOLS, LONG, MANY, SHORT = 8, 20, 10_000, 1000, 100
SYMBOL_OPTIONS: dict[str, Any] = {"implementation": "scaling", "n_features": SYMBOLS}
#: In a fit of ten iterations the fixed cost of a fit (about 5 ms) still matters.
ITERATIONS, MORE_ITERATIONS = 10, 50


def parameters() -> dict[str, np.ndarray]:
    """A chain with persistent, overlapping states."""
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


def gaussian_parameters() -> dict[str, np.ndarray]:
    """The same chain with Gaussian emissions in the plane, around eight overlapping means."""
    shown = {k: v for k, v in parameters().items() if k != "emissionprob_"}
    return {**shown, "means_": 2 * np.random.default_rng(3).normal(size=(K, 2)), "covars_": np.ones((K, 2))}


def points(n: int) -> np.ndarray:
    rng, p = np.random.default_rng(4), gaussian_parameters()
    states = [0]
    for _ in range(n - 1):
        states.append(rng.choice(K, p=p["transmat_"][states[-1]]))
    return p["means_"][states] + rng.normal(size=(n, 2))


def _gaussian_start() -> dict[str, np.ndarray]:
    moves = {k: v for k, v in _start().items() if k != "emissionprob_"}
    return {**moves, "means_": gaussian_parameters()["means_"] + 0.3, "covars_": np.full((K, 2), 2.0)}


def cases() -> list[Case]:
    from hmmlearn import hmm as theirs

    from energax import estimators as ours

    X, shown = symbols(LONG), points(LONG)
    categorical = (ours.CategoricalHMM, theirs.CategoricalHMM, SYMBOL_OPTIONS, parameters(), _start())
    gaussian = (
        ours.GaussianHMM,
        theirs.GaussianHMM,
        {"implementation": "scaling"},
        gaussian_parameters(),
        _gaussian_start(),
    )
    found = [
        *_query_cases(f"{K} states", *categorical[:4], X),
        *_fit_cases(f"{K} states", categorical, X, (np.float32, np.float64), (ITERATIONS, MORE_ITERATIONS)),
        *_query_cases(f"{K} Gaussian states", *gaussian[:4], shown),
        *_fit_cases(f"{K} Gaussian states", gaussian, shown, (np.float64,), (ITERATIONS,)),
    ]
    return found + _dynamax_cases(X)


def _query_cases(
    size: str, Ours: Any, Theirs: Any, options: dict[str, Any], values: Any, X: Any
) -> list[Case]:
    """The likelihood and the best path of one long sequence."""
    ours, theirs = (_set(model(K, **options), values) for model in (Ours, Theirs))

    def gap(a, b):
        return f"log-likelihood {a:.6f} and {b:.6f}"

    def paths(a, b):
        return f"paths agree at {np.mean(a[1] == b[1]):.4%} of the steps"

    asked = (
        ("log-likelihood", lambda m: lambda: m.score(X), 1 / 2, gap),
        ("Viterbi", lambda m: lambda: m.decode(X), 1.0, paths),
    )
    return [
        Case(
            f"HMM {what}, {size}, one sequence of {LONG:,}",
            ask(ours),
            ask(theirs),
            peer="hmmlearn (scaling)",
            target=target,
            quality=quality,
            repeats=25,
        )
        for what, ask, target, quality in asked
    ]


def _fit(model: Any, options: dict[str, Any], start: Any, rows: Any, lengths: Any, n_iter: int) -> Any:
    def call():
        made = _set(model(K, n_iter=n_iter, tol=-np.inf, init_params="", **options), start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return made.fit(rows, lengths)

    return call


def _fit_cases(size: str, group: tuple, X: Any, dtypes: tuple, iterations: tuple) -> list[Case]:
    """Baum-Welch on one long sequence, and on many."""
    Ours, Theirs, options, _, start = group

    def fits(a, b):
        return f"log-likelihood {a.monitor_.history[-1]:.6f} and {list(b.monitor_.history)[-1]:.6f}"

    kinds = (
        (f"one sequence of {LONG:,}", X, None, 1 / 2),
        (f"{MANY:,} sequences of {SHORT}", _many(X), [SHORT] * MANY, 1 / 5),
    )
    return [
        Case(
            f"HMM Baum-Welch, {size}, {told}, {n_iter} iterations, {np.dtype(dtype)}",
            _fit(Ours, options, start, rows.astype(dtype), lengths, n_iter),
            _fit(Theirs, options, start, rows, lengths, n_iter),
            peer="hmmlearn (scaling, float64)",
            target=target,
            quality=fits,
        )
        for told, rows, lengths, target in kinds
        for dtype in dtypes
        for n_iter in iterations
    ]


def _many(X: np.ndarray) -> np.ndarray:
    return np.concatenate([X] * (MANY * SHORT // LONG))


def _dynamax_cases(X) -> list[Case]:
    """The cases of dynamax, where it is installed."""
    with warnings.catch_warnings():
        # dynamax and what it imports warn of deprecated features, and a test makes errors of warnings.
        warnings.simplefilter("ignore")
        try:
            dynamax = importlib.import_module("dynamax.hidden_markov_model")
        except ImportError:
            return []
        return _dynamax_query_cases(dynamax, X) + _dynamax_fit_cases(dynamax, X)


def _dynamax_query_cases(dynamax: Any, X) -> list[Case]:
    """The same by dynamax, both in float32: its functions in a jit, for comparison."""
    import jax
    import jax.numpy as jnp

    from energax.estimators import CategoricalHMM as Ours

    single = {name: value.astype(np.float32) for name, value in parameters().items()}
    ours, rows = _set(Ours(K, n_features=SYMBOLS), single), X.astype(np.float32)
    p = {name: jnp.asarray(value) for name, value in single.items()}
    likelihood = jnp.log(p["emissionprob_"]).T[jnp.asarray(X[:, 0])]
    score = jax.jit(lambda: dynamax.hmm_filter(p["startprob_"], p["transmat_"], likelihood).marginal_loglik)
    best = jax.jit(lambda: dynamax.hmm_posterior_mode(p["startprob_"], p["transmat_"], likelihood))
    told, peer = f"{K} states, one sequence of {LONG:,}, float32", "dynamax, likelihoods given"
    return [
        Case(name, ask, theirs, peer=peer, repeats=25)
        for name, ask, theirs in (
            (f"HMM log-likelihood, {told}", lambda: ours.score(rows), score),
            (f"HMM Viterbi, {told}", lambda: ours.decode(rows), best),
        )
    ]


def _dynamax_fit_cases(dynamax: Any, X) -> list[Case]:
    """Baum-Welch by dynamax: its `fit_em` compiles at every call, unless in a jit."""
    import jax
    import jax.numpy as jnp

    from energax.estimators import CategoricalHMM as Ours

    theirs = dynamax.CategoricalHMM(
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
        ours = _fit(Ours, SYMBOL_OPTIONS, _start(), rows.astype(np.float32), lengths, ITERATIONS)
        return [
            Case(name, ours, lambda: em(emissions), peer="dynamax", target=1 / 10, quality=fits),
            Case(name, ours, lambda: compiled(emissions), peer="dynamax in a jit", quality=fits),
        ]

    one = cases_of(f"one sequence of {LONG:,}", X, None, LONG)
    return one + cases_of(f"{MANY:,} sequences of {SHORT}", _many(X), [SHORT] * MANY, SHORT)
