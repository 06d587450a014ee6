"""Every recursion against the sum, or the maximum, over all paths."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from quick import evaluate

from energax.algorithms.chains import hmm, hmm_paths
from energax.algorithms.chains.observations import CodedLikelihoods, mask_after_end
from energax.errors import BadInput


def compiled(function, **options):
    """The function compiled, with NumPy arrays as results: reading parts of them compiles nothing."""
    jitted = jax.jit(function, **options)
    return staticmethod(lambda *args, **kwargs: jax.tree.map(np.asarray, jitted(*args, **kwargs)))


class r:
    """The recursions, compiled."""

    hmm_filter = compiled(hmm.hmm_filter, static_argnames="kind")
    hmm_smoother = compiled(hmm.hmm_smoother, static_argnames="kind")
    viterbi = compiled(hmm_paths.viterbi, static_argnames="kind")
    k_best = compiled(hmm_paths.k_best, static_argnums=3)
    pair_posteriors = compiled(hmm.pair_posteriors)
    sample_path = staticmethod(hmm_paths.sample_path)
    log_evidence = staticmethod(jax.jit(hmm.log_evidence))


KINDS = ("scaled", "log", "associative")


def all_paths(pi, A, b):
    """(every path, its joint probability): the oracle."""
    T, k = b.shape
    paths = np.array(list(itertools.product(range(k), repeat=T)))
    p = pi[paths[:, 0]] * np.prod(A[paths[:, :-1], paths[:, 1:]], 1) * np.prod(b[np.arange(T), paths], 1)
    return paths, p


def oracle(pi, A, b):
    paths, p = all_paths(pi, A, b)
    T, k = b.shape
    w = p / p.sum()
    states = np.stack([[w[paths[:, t] == i].sum() for i in range(k)] for t in range(T)])
    pairs = np.zeros((T - 1, k, k))
    for t in range(T - 1):
        np.add.at(pairs[t], (paths[:, t], paths[:, t + 1]), w)
    filtered = np.stack([oracle_last(pi, A, b[: t + 1]) for t in range(T)])
    return np.log(p.sum()), filtered, states, pairs, paths[np.argmax(p)], p.max()


def oracle_last(pi, A, b):
    paths, p = all_paths(pi, A, b)
    return np.array([p[paths[:, -1] == i].sum() for i in range(len(pi))]) / p.sum()


def random_chain(rng, T, k, zeros=False):
    pi, A = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    b = rng.random((T, k)) * 10 ** rng.uniform(-8, 2, (T, 1))
    if zeros:  # left to right, from the first state on
        A = np.triu(A)
        A /= A.sum(1, keepdims=True)
        pi = np.eye(k)[0]
        b[T // 2, -1] = 0
    return pi, A, b


def logs(*arrays):
    with np.errstate(divide="ignore"):
        return tuple(jnp.asarray(np.log(a)) for a in arrays)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("T", "k", "zeros"), [(5, 3, False), (5, 3, True), (1, 2, False)])
def test_one_sequence_equals_all_paths(kind, T, k, zeros):
    rng = np.random.default_rng(T + k)
    with jax.enable_x64(True):
        pi, A, b = random_chain(rng, T, k, zeros)
        evidence, filtered, states, pairs, path, best = oracle(pi, A, b)
        args = logs(pi, A, b)
        found = r.hmm_filter(*args, kind=kind)
        np.testing.assert_allclose(found[0], evidence, rtol=1e-12)
        np.testing.assert_allclose(found[1], filtered, atol=1e-12)
        whole = r.hmm_smoother(*args, kind=kind)
        np.testing.assert_allclose(whole.log_likelihood, evidence, rtol=1e-12)
        np.testing.assert_allclose(whole.states, states, atol=1e-12)
        np.testing.assert_allclose(whole.first, states[0], atol=1e-12)
        np.testing.assert_allclose(whole.pairs, pairs.sum(0), atol=1e-12)
        np.testing.assert_allclose(r.pair_posteriors(*args), pairs, atol=1e-12)
        z, value = r.viterbi(*args, kind=kind)
        assert z.tolist() == path.tolist()
        np.testing.assert_allclose(np.exp(value), best, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_ragged_rows_are_each_as_if_alone(kind):
    rng, k, T = np.random.default_rng(0), 3, 5
    lengths = np.array([5, 1, 3, 4])
    with jax.enable_x64(True):
        pi, A, _ = random_chain(rng, T, k)
        b = rng.random((4, T, k))
        for i, n in enumerate(lengths):
            b[i, n:] = 1
        args = logs(pi, A, b)
        whole = r.hmm_smoother(*args, lengths=lengths, kind=kind)
        paths, values = r.viterbi(*args, lengths=lengths, kind=kind)
        evidence, _ = r.hmm_filter(*args, kind=kind)
        for i, n in enumerate(lengths):
            alone = oracle(pi, A, b[i, :n])
            np.testing.assert_allclose(whole.log_likelihood[i], alone[0], rtol=1e-12)
            np.testing.assert_allclose(evidence[i], alone[0], rtol=1e-12)
            np.testing.assert_allclose(whole.states[i, :n], alone[2], atol=1e-12)
            assert not whole.states[i, n:].any()
            np.testing.assert_allclose(whole.pairs[i], alone[3].sum(0), atol=1e-12)
            assert paths[i, :n].tolist() == alone[4].tolist()
            np.testing.assert_allclose(np.exp(values[i]), alone[5], rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("scaled", np.float32), ("scaled", np.float64), ("associative", np.float64)]
)
def test_where_probabilities_underflow_logarithms_take_over(kind, dtype):
    """A left-to-right chain whose first state is e^20 times less likely until the last step requires it."""
    T, gap, rtol = 60, 20.0, 1e-5 if dtype == np.float32 else 1e-10
    pi, A = np.array([1.0, 0.0]), np.array([[0.5, 0.5], [0.0, 1.0]])
    log_b = np.zeros((T, 2))
    log_b[:, 0] = -gap
    log_b[-1] = [0, -1e5]
    # The best path stays in the first state to the end; all others are e^-98000 as probable.
    exact = (T - 1) * (np.log(0.5) - gap)
    with jax.enable_x64(dtype == np.float64):
        args = tuple(jnp.asarray(a, dtype) for a in (*logs(pi, A), log_b))
        whole = r.hmm_smoother(*args, kind=kind)
        np.testing.assert_allclose(whole.log_likelihood, exact, rtol=rtol)
        np.testing.assert_allclose(whole.states[:, 0], 1, atol=1e-6)
        np.testing.assert_allclose(r.hmm_filter(*args, kind=kind)[0], exact, rtol=rtol)
        np.testing.assert_allclose(whole.pairs, [[T - 1, 0], [0, 0]], rtol=1e-6, atol=1e-6)


def test_the_scaled_recursion_keeps_its_digits_over_a_long_chain():
    rng, k, T = np.random.default_rng(1), 4, 3000
    with jax.enable_x64(True):
        args = logs(rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k), rng.random((T, k)))
        by_logs, scaled = r.hmm_smoother(*args, kind="log"), r.hmm_smoother(*args, kind="scaled")
        for a, b in zip(by_logs, scaled, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
        for dtype in (jnp.float32, jnp.float64):
            assert r.viterbi(*(a.astype(dtype) for a in args))[0].shape == (T,)
        single = r.hmm_filter(*(a.astype(jnp.float32) for a in args))[0]
        np.testing.assert_allclose(single, by_logs.log_likelihood, rtol=1e-4)


def test_many_states_take_the_matrix_products():
    rng, k, T = np.random.default_rng(2), 40, 7
    with jax.enable_x64(True):
        args = logs(rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k), rng.random((3, T, k)))
        for a, b in zip(r.hmm_smoother(*args, kind="log"), r.hmm_smoother(*args, kind="scaled"), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)
        one = (*args[:2], jnp.asarray(np.asarray(args[2])[0]))
        paths, values = r.viterbi(*args)
        path, value = r.viterbi(*one)
        assert path.tolist() == paths[0].tolist()
        np.testing.assert_allclose(value, values[0])
        log_pi, log_A, log_b = map(np.asarray, one)
        score = log_pi[path[0]] + log_A[path[:-1], path[1:]].sum() + log_b[np.arange(T), path].sum()
        np.testing.assert_allclose(score, value)


def test_k_best_paths_are_the_first_of_all_paths():
    rng = np.random.default_rng(3)
    with jax.enable_x64(True):
        pi, A, b = random_chain(rng, 5, 3)
        paths, p = all_paths(pi, A, b)
        order = np.argsort(-p)
        found, value = r.k_best(*logs(pi, A, b), 20)
        assert found.tolist() == paths[order[:20]].tolist()
        np.testing.assert_allclose(np.exp(value), p[order[:20]], rtol=1e-12)
        found, value = r.k_best(*logs(pi, A, b[:1]), 5)
        assert np.isneginf(np.asarray(value)[3:]).all() and np.isfinite(np.asarray(value)[:3]).all()


def test_drawn_paths_have_the_frequencies_of_all_paths():
    """4000 draws of 27 paths: χ² with 26 degrees of freedom, false alarm 1e-4."""
    from scipy import stats

    rng = np.random.default_rng(4)
    pi, A, b = random_chain(rng, 3, 3)
    _, p = all_paths(pi, A, b)
    args = tuple(a.astype(jnp.float32) for a in logs(pi, A, b))
    filtered = r.hmm_filter(*args)[1]
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = jax.vmap(lambda key: r.sample_path(key, jnp.asarray(filtered), args[1]))
    drawn = np.asarray(evaluate(lambda: draw(keys)))
    counts = np.bincount(drawn @ [9, 3, 1], minlength=27)
    expected = 4000 * p / p.sum()
    assert stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), 26) > 1e-4


def test_gradients_are_expected_counts_also_where_something_is_impossible():
    rng = np.random.default_rng(5)
    with jax.enable_x64(True):
        pi, A, b = random_chain(rng, 4, 3, zeros=True)
        args = logs(pi, A, b)
        whole = r.hmm_smoother(*args)
        slopes = evaluate(lambda: jax.grad(r.log_evidence, (0, 1, 2))(*args))
        for slope, count in zip(slopes, (whole.first, whole.pairs, whole.states), strict=True):
            np.testing.assert_allclose(slope, count, atol=1e-12)
        total = lambda lb: (r.log_evidence(*args[:2], lb) * jnp.arange(2.0)).sum()
        many = evaluate(lambda: jax.grad(total)(jnp.stack([args[2]] * 2)))
        np.testing.assert_allclose(many, np.stack([0 * whole.states, whole.states]), atol=1e-12)
        moved, step = rng.random((4, 3)), np.zeros((4, 3))
        step[1, 1] = 1e-5
        log_A = jnp.asarray(np.log(rng.dirichlet(np.ones(3), 3)))
        f = lambda lb: r.log_evidence(args[0], log_A, jnp.asarray(lb))
        numeric = (float(f(moved + step)) - float(f(moved - step))) / 2e-5
        slope = np.asarray(jax.jit(jax.grad(f))(jnp.asarray(moved)))
        np.testing.assert_allclose(slope[1, 1], numeric, rtol=1e-6)


def test_an_impossible_sequence_has_probability_zero():
    pi, A = np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]])
    b = np.array([[1.0, 1.0], [0.0, 1.0]])
    args = tuple(a.astype(jnp.float32) for a in logs(pi, A, b))
    for kind in KINDS:
        assert r.hmm_filter(*args, kind=kind)[0] == -np.inf
        assert r.hmm_smoother(*args, kind=kind).log_likelihood == -np.inf


def test_an_unknown_kind_is_refused():
    with pytest.raises(BadInput, match="scaled"):
        r.hmm_filter(jnp.zeros(1), jnp.zeros((1, 1)), jnp.zeros((2, 1)), kind="fast")


@pytest.mark.parametrize("n", [None, 1, 3])
def test_coded_steps_are_what_they_spell_out(n):
    """Symbols, one of which has likelihood one in every state, like a missing one."""
    rng, k, T, m = np.random.default_rng(6), 3, 9, 5
    with jax.enable_x64(True):
        log_pi, log_A = logs(rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k))
        table = jnp.asarray(np.log(np.vstack([rng.dirichlet(np.ones(m), k).T, np.ones(k)])))
        codes = jnp.asarray(rng.integers(0, m + 1, (T,) if n is None else (n, T)), jnp.int32)
        coded, spelled_out = CodedLikelihoods(table, codes), jnp.asarray(np.asarray(table)[np.asarray(codes)])
        for recursion in (r.hmm_filter, r.hmm_smoother):
            for a, b in zip(
                recursion(log_pi, log_A, coded), recursion(log_pi, log_A, spelled_out), strict=True
            ):
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
        total = lambda pi, A, table, spelled: r.log_evidence(
            pi, A, table[codes] if spelled else CodedLikelihoods(table, codes)
        ).sum()
        slope = jax.jit(jax.grad(total, (0, 1, 2)), static_argnums=3)
        for a, b in zip(slope(log_pi, log_A, table, False), slope(log_pi, log_A, table, True), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_weighted_sequences_count_so_much(kind):
    rng, k, T = np.random.default_rng(7), 3, 6
    weight, lengths = np.array([2.0, 0.0, 0.5]), np.array([6, 2, 4])
    with jax.enable_x64(True):
        b = rng.random((3, T, k))
        for i, n in enumerate(lengths):
            b[i, n:] = 1
        args = logs(*random_chain(rng, T, k)[:2], b)
        alone = r.hmm_smoother(*args, lengths=lengths, kind=kind)
        found = r.hmm_smoother(*args, lengths=lengths, weight=weight, kind=kind)
        np.testing.assert_allclose(found.pairs[0], np.einsum("n,nij->ij", weight, alone.pairs), atol=1e-12)
        np.testing.assert_allclose(found.states, weight[:, None, None] * alone.states, atol=1e-12)
        np.testing.assert_allclose(found.first, weight[:, None] * alone.first, atol=1e-12)
        np.testing.assert_allclose(found.log_likelihood, alone.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("move", [1e-6, 1e-12, 1e-20])
@pytest.mark.parametrize("lanes", [1, 2])
def test_states_that_hardly_move_and_observations_that_insist(move, lanes):
    """In single precision, where a message may be as small as the product of two such transitions."""
    T, rng = 40, np.random.default_rng(8)
    A = np.array([[1 - move, move], [move, 1 - move]])
    log_b = np.where(rng.integers(0, 2, (T, 1)) == np.arange(2), 0.0, -60.0)
    exact = oracle_by_logs(np.array([0.5, 0.5]), A, log_b)
    args = tuple(jnp.asarray(a, jnp.float32) for a in (*logs(np.array([0.5, 0.5]), A), log_b))
    many = args if lanes == 1 else (*args[:2], jnp.stack([args[2]] * lanes))
    np.testing.assert_allclose(r.log_evidence(*many), exact, rtol=2e-5)
    np.testing.assert_allclose(r.hmm_smoother(*many).log_likelihood, exact, rtol=2e-5)
    by_logs = r.hmm_smoother(*args, kind="log")
    states = r.hmm_smoother(*many).states.reshape(lanes, T, 2)
    np.testing.assert_allclose(states[-1], by_logs.states, atol=2e-3)


def oracle_by_logs(pi, A, log_b):
    """log p(x) in double precision, step by step."""
    ahead = np.log(pi) + log_b[0]
    for here in log_b[1:]:
        ahead = np.logaddexp.reduce(ahead[:, None] + np.log(A), 0) + here
    return np.logaddexp.reduce(ahead)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lost_at_the_first_step_is_missed(kind):
    """Two states without transitions: the one that starts e^200 times less likely wins in the end."""
    T = 12
    log_b = np.tile([-30.0, 0.0], (T, 1))
    log_b[0] = [0, -200]
    log_pi, log_A = logs(np.array([0.5, 0.5]), np.eye(2))
    args = tuple(jnp.asarray(a, jnp.float32) for a in (log_pi, log_A, log_b))
    exact = np.log(0.5) - 200
    np.testing.assert_allclose(r.log_evidence(*args), exact, rtol=1e-6)
    for reading in (args, (*args[:2], args[2][::-1])):
        found = r.hmm_smoother(*reading, kind=kind)
        np.testing.assert_allclose(found.log_likelihood, exact, rtol=1e-6)
        np.testing.assert_allclose(found.states[:, 1], 1, atol=1e-6)


def test_past_an_end_codes_say_nothing():
    rng, k, T, m = np.random.default_rng(9), 3, 6, 4
    table = jnp.log(jnp.asarray(rng.dirichlet(np.ones(m), k).T, jnp.float32))
    codes, ends = jnp.asarray(rng.integers(0, m, (3, T)), jnp.int32), jnp.array([6, 1, 3])
    coded = mask_after_end(ends, CodedLikelihoods(table, codes))
    np.testing.assert_array_equal(coded.table[coded.codes], mask_after_end(ends, table[codes]))
    assert not np.asarray(coded.table[coded.codes])[1, 1:].any()
