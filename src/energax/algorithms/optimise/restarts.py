"""The lowest minimum from several starts, by SciPy's L-BFGS-B on functions that are evaluated on the host."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from ..._util.blas import limit_blas

#: SciPy's status of a line search that found no lower point.
_ABNORMAL = 2

Function = Callable[[np.ndarray], tuple[float, np.ndarray] | None]


class LocalMinimum(NamedTuple):
    """Where a run ended."""

    x: np.ndarray
    value: float
    converged: bool
    n_iter: int
    message: str


def minimise_from_starts(
    function: Function,
    starts: Sequence[np.ndarray],
    *,
    bounds: Any = None,
    max_iter: int = 100,
    tol: float = 1e-9,
    parallel: bool = False,
) -> list[LocalMinimum]:
    """Return the local minimum that each start leads to, the lowest first.

    The compiled L-BFGS of `algorithms.optimise.lbfgs` is for functions that XLA evaluates; this is for those
    that call LAPACK, as the evidence of a Gaussian process does.

    Args:
        function: from a point (p,) to (value, gradient); None where the function is not defined, which the
            line search treats as a large value.
        starts: points (p,).
        bounds: (p, 2), or None.
        max_iter: iterations of each run.
        tol: a run has converged if the value changes relatively by less, or no gradient is larger than 1e-6.
        parallel: whether to run the starts side by side, each on one thread. For functions that spend their
            time in LAPACK and XLA, which leave Python's lock.

    Byrd, Lu, Nocedal and Zhu (1995), A limited memory algorithm for bound constrained optimization.

    >>> well = lambda x: (float((x**2 - 1) @ (x**2 - 1) + 0.1 * x.sum()), 4 * x * (x**2 - 1) + 0.1)
    >>> best = minimise_from_starts(well, [np.array([2.0]), np.array([-2.0])])[0]
    >>> best.x.round(2), best.converged
    (array([-1.01]), True)
    """
    from scipy.optimize import minimize

    def run(start: np.ndarray) -> LocalMinimum:
        worst = 1e25  # where the function is not defined: L-BFGS-B shortens its step

        def guarded(x: np.ndarray) -> tuple[float, np.ndarray]:
            found = function(x)
            if found is None or not np.isfinite(found[0]) or not np.isfinite(found[1]).all():
                return worst, np.zeros_like(x)
            return found

        n_iter, before = 0, np.inf
        while True:
            options = {"maxiter": max_iter - n_iter, "ftol": tol, "gtol": 1e-6}
            found = minimize(guarded, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            n_iter += found.nit
            # Rounding may end a line search. From the gradient alone, without the memory of L-BFGS, it then
            # either goes on or finds nothing lower.
            lowered = before - found.fun > tol * max(abs(found.fun), 1.0)
            if found.status != _ABNORMAL or not lowered or n_iter >= max_iter:
                break
            start, before = found.x, found.fun
        converged = bool((found.success or not lowered) and found.fun < worst)
        return LocalMinimum(found.x, float(found.fun), converged, n_iter, found.message)

    n_threads = min(len(starts), os.cpu_count() or 1)
    if not parallel or n_threads < 2:
        runs = [run(np.asarray(start)) for start in starts]
    else:
        # Runs that share the cores must not start a BLAS thread per core each.
        with limit_blas(1), ThreadPoolExecutor(n_threads) as pool:
            jobs = [pool.submit(contextvars.copy_context().run, run, np.asarray(s)) for s in starts]
            runs = [job.result() for job in jobs]
    return sorted(runs, key=lambda found: found.value)
