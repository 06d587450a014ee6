"""`run_chains`: Markov chains in parallel, with start, warm-up and thinning, for one example or for rows."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np

from .._util.arguments import FLAG, NONE, WHOLE, check_arguments, instance, whole
from .._util.arrays import automatic_mesh
from .._util.keys import as_key
from .._util.sizes import CHAIN_NUMBERS, chains_one_by_one, map_chunks
from .._util.threads import map_in_threads
from ..energy import Energy
from ..errors import check_memory
from ..missing import is_masked
from ..programs import use_engine
from ._chains import Moves, advance, find_start, reduce_info
from ._draws import Draws
from ._sampler import Sampler
from ._stream import DrawsWriter, show_progress

#: Blocks of draws of a run that shows its progress or writes its draws to disk.
_N_BLOCKS = 20


def run_chains(
    sampler: Sampler,
    energy: Energy,
    n: int,
    *,
    key: Any,
    given: dict[str, Any] | None = None,
    n_rows: int | None = None,
    n_chains: int = 4,
    warmup: int = 500,
    thin: int = 1,
    progress: bool = False,
    path: Any = None,
    mesh: Any = None,
) -> Draws:
    """Return `n` draws of hidden variables and missing coordinates from `n_chains` chains.

    Every chain has a random start, and is warmed up and tuned by itself.

    Args:
        sampler: the kernel.
        energy: the energy.
        n: the number of draws, over all chains; of every row, if there are rows.
        key: a JAX key.
        given: arrays by name with a leading axis of rows, `Masked` where coordinates are missing.
        n_rows: the number of rows; None for one example, whose draws have no axis of rows.
        n_chains: chains that run in parallel.
        warmup: moves of each chain that are discarded; rounded up to a multiple of `thin`.
        thin: moves for every draw that is kept.
        progress: whether a bar shows the moves that are done, for every group of chains.
        path: a folder for the draws of one example, which are then read from there and not kept in memory.
        mesh: a `jax.sharding.Mesh`; the chains are split over all its devices.

    >>> from energax.energies import RBM
    >>> from energax.samplers import Gibbs
    >>> import jax.numpy as jnp
    >>> rbm = RBM(jnp.zeros((3, 2)), jnp.zeros(3), jnp.zeros(2))
    >>> run_chains(Gibbs(), rbm, 100, key=jax.random.key(0), warmup=10)["x"].shape
    (100, 3)
    """
    counts = {"n": WHOLE, "n_rows": WHOLE | NONE, "n_chains": WHOLE, "warmup": whole(0), "thin": WHOLE}
    kinds = {
        "sampler": instance(Sampler, "a sampler", "Try Gibbs()."),
        "energy": instance(Energy, "an energy"),
        "given": instance(dict, "a dict of rows by name") | NONE,
        "mesh": instance(jax.sharding.Mesh, "a jax.sharding.Mesh") | NONE,
    }
    check_arguments(locals(), **counts, **kinds, progress=FLAG)
    given, rows = given or {}, n_rows or 1
    size = sum(max(1, s.size) for s in energy.spaces.values())
    check_memory("n_chains", n_chains, n_chains * size, "the states of all chains", 4)
    if path is None:
        check_memory("n", n, n * rows * size, "the draws", 4)
    plan = Moves(n_warmup=-(-warmup // thin), thin=thin)
    n_draws = -(-n // n_chains)
    chunk = min(rows, CHAIN_NUMBERS.rows(n_chains * (n_draws + plan.n_warmup) * size))
    keys = jax.random.split(as_key(key), (rows, n_chains))
    method, caveat = sampler.label, sampler.caveat
    writer = None if path is None else DrawsWriter(path, n_chains, n_draws, n, method, caveat)
    run = lambda part: _run_rows(sampler, energy, part[0], part[1], n_draws, plan, progress, writer, mesh)
    values, info = map_chunks(run, (given, keys), chunk)
    fixed = {k: np.asarray(v.observed) for k, v in given.items() if is_masked(v)}
    if writer is not None:
        return writer.finish(fixed=jax.tree.map(lambda a: a[0], fixed))
    if n_rows is None:
        values, info, fixed = jax.tree.map(lambda a: a[0], (values, info, fixed))
    else:
        values = {k: np.moveaxis(v, 0, 2) for k, v in values.items()}
        info = reduce_info(info)
    return Draws(values, method=method, caveat=caveat, info=info, fixed=fixed, n=n)


def _run_rows(
    sampler: Sampler,
    energy: Energy,
    given: Any,
    keys: Any,
    n_draws: int,
    plan: Moves,
    progress: bool,
    writer: DrawsWriter | None,
    mesh: Any,
) -> Any:
    """Return the draws and the info of all chains of some rows, (rows, chains, draws, …).

    With a writer they go to disk, and what is returned has no draws.
    """
    carry = find_start(sampler, energy, given, keys)
    if mesh is not None:
        keys, carry = _shard((keys, carry), mesh)
    one_by_one = sampler.varies_in_length and mesh is None and chains_one_by_one(keys.size)
    total = plan.n_warmup + n_draws
    n = total if writer is None and not progress else -(-total // _N_BLOCKS)
    parts = []
    context = use_engine("xla") if sampler.is_compiled else contextlib.nullcontext()
    with context, show_progress(sampler.label, total, progress) as show:
        for first in range(0, total, n):
            start = np.asarray(first, np.int32)
            run = lambda part, start=start: advance(
                sampler, energy, given, part[0], part[1], start, n, plan, one_by_one
            )
            # Chains are independent, so that threads share them: XLA runs a loop of small steps on one core.
            found = map_in_threads(run, (keys, carry), 1) if one_by_one else run((keys, carry))
            carry, *results = found
            skip = min(max(plan.n_warmup - first, 0), n)
            kept = jax.tree.map(lambda a, skip=skip: np.asarray(a)[:, :, skip:], tuple(results))
            if writer is not None:
                writer.add(kept)
                kept = jax.tree.map(lambda a: a[:, :, :0], kept)
            parts.append(kept)
            show(min(first + n, total))
    joined = jax.tree.map(lambda *arrays: np.concatenate(arrays, 2)[:, :, :n_draws], *parts)
    return joined


def _shard(tree: Any, mesh: Any) -> Any:
    """Return arrays (rows, chains, …) with their chains split over the devices of a mesh."""
    axes = jax.sharding.PartitionSpec(None, tuple(mesh.axis_names))
    return jax.device_put(tree, jax.sharding.NamedSharding(automatic_mesh(mesh), axes))
