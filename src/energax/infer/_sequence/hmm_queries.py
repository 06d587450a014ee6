"""Queries of hidden Markov chains for many sequences, used by `ForwardBackward` and the HMM estimators.

Rows are arrays by variable name, (n, steps, …), `Masked` where values are missing. `ends` (n,) are the true
lengths of padded sequences; None if none is padded. The chain is described by `protocols.HiddenMarkov`.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from ..._util.arrays import asarray
from ...algorithms.chains import hmm, hmm_paths
from ...algorithms.chains.observations import mask_after_end
from ...programs import jit_to_numpy


def _recursion_inputs(rows: Any, chain: Any, ends: Any, likelihoods: Any) -> tuple[Any, Any, Any]:
    """log π, log A and log p(x_t | z_t), zero past the end of a sequence."""
    values = likelihoods(**jax.tree.map(asarray, rows))
    return (*chain.logs(), values if ends is None else mask_after_end(ends, values))


def log_evidence(rows: Any, chain: Any, ends: Any = None) -> Any:
    """log p(rows) of every sequence, (n,)."""
    return hmm.log_evidence(*_recursion_inputs(rows, chain, ends, chain.coded_likelihoods))


def smooth(rows: Any, chain: Any, ends: Any = None) -> tuple[Any, Any]:
    """(log p(rows) of every sequence, (n,); p(z_t | rows) of every step, (n, steps, k))."""
    inputs = _recursion_inputs(rows, chain, ends, chain.coded_likelihoods)
    found = hmm.hmm_smoother(*inputs, lengths=ends)
    return found.log_likelihood, found.states


def pair_posteriors(rows: Any, chain: Any) -> Any:
    """p(z_t, z_{t+1} | rows) of every step but the last, (n, steps − 1, k, k)."""
    return hmm.pair_posteriors(*_recursion_inputs(rows, chain, None, chain.log_likelihoods))


def decode(rows: Any, chain: Any, ends: Any = None) -> tuple[Any, Any]:
    """(the most probable paths, (n, steps); log p(rows, path), (n,))."""
    return hmm_paths.viterbi(*_recursion_inputs(rows, chain, ends, chain.log_likelihoods), lengths=ends)


def k_best(rows: Any, chain: Any, n_best: int) -> tuple[Any, Any]:
    """(the `n_best` most probable paths of one sequence, (n_best, steps); log p(rows, path), (n_best,))."""
    initial, transition, likelihood = _recursion_inputs(rows, chain, None, chain.log_likelihoods)
    return hmm_paths.k_best(initial, transition, likelihood[0], n_best)


def possible_steps(rows: Any, chain: Any) -> Any:
    """Whether the observations up to every step have positive probability, (n, steps)."""
    states = hmm.hmm_filter(*_recursion_inputs(rows, chain, None, chain.log_likelihoods), kind="log")[1]
    return jnp.nan_to_num(states).sum(-1) > 0


def impute(rows: Any, chain: Any) -> dict[str, Any]:
    """The observed variable, missing values at their means."""
    name = chain.observed_name
    return chain.impute_given({name: rows[name]}, smooth(rows, chain)[1])


def simulate(chain: Any, first: Any, key: Any, n_steps: int) -> tuple[Any, Any]:
    """Draw (observations, states) of one sequence whose first state is drawn from `first` (k,)."""
    one, two = jax.random.split(key)
    noise = jax.random.gumbel(one, (n_steps, chain.n_states), chain.transition.dtype)
    log_transition = jnp.log(chain.transition)

    def step(state, noise):
        new = jnp.argmax(log_transition[state] + noise)
        return new, new

    start = jnp.argmax(jnp.log(first) + noise[0])
    _, rest = jax.lax.scan(step, start, noise[1:])
    z = jnp.concatenate([start[None], rest])
    keys = jax.random.split(two, n_steps)
    return jax.vmap(lambda key, state: chain.emission.draw(key, z=state)["x"])(keys, z), z


# Compiled, for the chains of estimators, which hold only arrays and numbers. `ForwardBackward` uses
# `eqx.filter_jit`, which also takes an emission that holds functions; with it a `score` of 10 symbols
# takes 1.3 times as long (334 and 251 µs).
compiled_log_evidence = jit_to_numpy(log_evidence)
compiled_smooth = jit_to_numpy(smooth)
compiled_decode = jit_to_numpy(decode)
compiled_k_best = jit_to_numpy(k_best)
compiled_simulate = jit_to_numpy(simulate)
