"""NUTS on a logistic regression, effective draws a second, against NumPyro and BlackJAX used by hand.

The least bulk effective size of any coefficient (ArviZ) is divided by the time of the run, so that quality is
in the number. In a fresh process the time includes all compilation.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .case import Case

N_ROWS, N_COLUMNS, WARMUP, DRAWS = 1000, 25, 500, 1000

_RUN = "import benchmarks.bench_mcmc as b; b.report({maker!r}, {n_chains})"


class Sampled:
    """The time of one run and its least effective size; `float` is seconds per 1000 effective draws."""

    def __init__(self, seconds: float, ess: float):
        self.seconds, self.ess = seconds, ess

    def __float__(self):
        return 1000 * self.seconds / self.ess


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_COLUMNS)).astype(np.float32)
    w = rng.normal(size=N_COLUMNS) / np.sqrt(N_COLUMNS) * 2
    return X, (rng.random(N_ROWS) < 1 / (1 + np.exp(-X @ w))).astype(np.float32)


def least_ess(chains: Any) -> float:
    """The least bulk effective size of draws (chains, draws, d), and of their squares."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    chains = np.asarray(chains, float)
    both = np.concatenate([chains, chains**2], -1)
    return min(float(arviz.ess(both[..., j], method="bulk")) for j in range(both.shape[-1]))


# -- the runs: functions of a seed that return draws (chains, draws, d) -------------------------------------


def make_ours(n_chains: int) -> Callable[[int], Any]:
    import jax.numpy as jnp

    from energax import Energy, Real, sample
    from energax.infer import MCMC
    from energax.samplers import NUTS

    class Logistic(Energy):
        """e(w) = −log N(w; 0, I) − Σ log p(y | x, w)."""

        X: Any
        y: Any

        @property
        def spaces(self):
            return {"w": Real(N_COLUMNS)}

        def __call__(self, *, w):
            logits = self.X @ w
            return 0.5 * w @ w + (jnp.logaddexp(0.0, logits) - self.y * logits).sum()

    energy = Logistic(*map(jnp.asarray, data()))
    method = MCMC(NUTS(), n_chains=n_chains, warmup=WARMUP)
    return lambda seed: sample(energy, n_chains * DRAWS, method=method, key=seed).chains["w"]


def make_numpyro(n_chains: int, method: str = "sequential") -> Callable[[int], Any]:
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    X, y = map(jnp.asarray, data())

    def model(X, y):
        w = numpyro.sample("w", dist.Normal(jnp.zeros(N_COLUMNS), 1.0).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=X @ w), obs=y)

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model),
        num_warmup=WARMUP,
        num_samples=DRAWS,
        num_chains=n_chains,
        chain_method=method,
        progress_bar=False,
        jit_model_args=True,  # without it every run compiles again
    )

    def run(seed):
        mcmc.run(jax.random.key(seed), X, y)
        return mcmc.get_samples(group_by_chain=True)["w"]

    return run


def make_blackjax(n_chains: int) -> Callable[[int], Any]:
    """Window adaptation and NUTS for each chain in one compiled function, chains one by one."""
    import blackjax
    import jax
    import jax.numpy as jnp

    X, y = map(jnp.asarray, data())

    def log_p(w):
        logits = X @ w
        return -0.5 * w @ w - (jnp.logaddexp(0.0, logits) - y * logits).sum()

    def chain(key):
        start_key, warm_key, key = jax.random.split(key, 3)
        warm = blackjax.window_adaptation(blackjax.nuts, log_p)
        (state, parameters), _ = warm.run(warm_key, jax.random.normal(start_key, (N_COLUMNS,)), WARMUP)
        kernel = blackjax.nuts(log_p, **parameters)

        def step(state, key):
            state = kernel.step(key, state)[0]
            return state, state.position

        return jax.lax.scan(step, state, jax.random.split(key, DRAWS))[1]

    run = jax.jit(lambda keys: jax.lax.map(chain, keys))
    return lambda seed: run(jax.random.split(jax.random.key(seed), n_chains))


MAKERS = {
    "energax": make_ours,
    "NumPyro": make_numpyro,
    "NumPyro, vectorised": partial(make_numpyro, method="vectorized"),
    "BlackJAX by hand": make_blackjax,
}


def timed(run: Callable[[int], Any], seed: int) -> Sampled:
    began = time.perf_counter()
    draws = np.asarray(run(seed))
    return Sampled(time.perf_counter() - began, least_ess(draws))


def report(maker: str, n_chains: int) -> None:
    """Print the first and the second run of a fresh process as JSON."""
    warnings.simplefilter("ignore")
    run = MAKERS[maker](n_chains)
    print(json.dumps([vars(timed(run, seed)) for seed in (0, 1)]))


def _fresh(maker: str, n_chains: int = 4) -> Sampled:
    """The first run of a fresh process without a cache on disk."""
    code = _RUN.format(maker=maker, n_chains=n_chains)
    env = {**os.environ, "ENERGAX_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return Sampled(**json.loads(done.stdout.splitlines()[-1])[0])


def _warm(maker: str) -> Callable[[], Sampled]:
    made: dict[str, Any] = {}
    seeds = itertools.count()

    def run() -> Sampled:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if not made:
                made["run"] = MAKERS[maker](4)
                made["run"](next(seeds))
            return timed(made["run"], next(seeds))

    return run


def cases() -> list[Case]:
    title = f"NUTS, logistic regression, n = {N_ROWS:,}, d = {N_COLUMNS}, 4 chains"
    quality = lambda a, b: (
        f"effective draws {a.ess:.0f} of {4 * DRAWS} and {b.ess:.0f}, {a.seconds:.2f} and {b.seconds:.2f} s"
    )
    shared = {"units": 1000.0, "unit": "effective draws", "reported": True, "quality": quality, "repeats": 3}
    ours = _warm("energax")
    targets = {"NumPyro": 1 / 5, "NumPyro, vectorised": 1 / 5, "BlackJAX by hand": 1 / 0.95}
    return [
        *(
            Case(f"{title}, against {peer}", ours, _warm(peer), peer=peer, target=target, **shared)
            for peer, target in targets.items()
        ),
        Case(
            f"{title}, first run of a fresh process, no cache",
            partial(_fresh, "energax"),
            partial(_fresh, "NumPyro"),
            peer="NumPyro",
            target=1 / 1.2,
            **shared,
        ),
    ]
