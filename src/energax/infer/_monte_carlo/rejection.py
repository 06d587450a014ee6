"""Rejection sampling: exact draws by proposals under an envelope."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...algorithms.optimise.lbfgs import minimise
from ...energy import free_energy, supports_call
from ...errors import BadInput, Intractable, Unsuitable, as_numbers, check_whole_number, describe
from ...finite import Assignments
from ...samplers import Draws
from .._map_rows import map_rows
from .._method import Cost, Method
from .._query import Query
from .proposals import check_proposal, log_weight, proposal_log_prob, propose

_MAX_JOINT_VALUES = 4096  # of finite variables, over which the bound is a maximum by enumeration
_PILOT_DRAWS, _STARTS = 512, 8
_HOPELESS = 50.0  # nats that a search may rise above the best of the pilot draws
_LEAST, _MOST = 256, 2**16  # proposals per row and round


class Rejection(Method):
    """Independent exact draws from p ∝ exp(−e) by proposals x ~ q that are accepted or rejected.

    With an envelope exp(−e(x)) ≤ M q(x) for all x, a proposal is accepted with probability
    exp(−e(x)) / (M q(x)), and accepted proposals are draws from p. On average Z / M of them are accepted. The
    rate is in the verdict of the draws and, by row, in `draws.info["acceptance"]`; `draws.info["log_bound"]`
    is log M. A proposal above the envelope proves M wrong and raises an error.

    Args:
        proposal: q: a distribution over the hidden variable, a dict of distributions by name, a function of
            the given values that returns one, or an `Energy` with its own `draw` and `log_partition`.
        log_bound: log M, a number or one per row. None searches the maximum of −e − log q: by
            enumeration for few finite values, else by L-BFGS from the best of 512 proposals, which may
            miss a higher maximum. The verdict says so.
        max_proposals: the largest number of proposals for each row; more are an error.

    von Neumann (1951), Various techniques used in connection with random digits.

    >>> from numpyro.distributions import Normal
    >>> from energax.energies import NeuralEnergy
    >>> from energax.infer import sample
    >>> bowl = NeuralEnergy(lambda x: 0 * x.sum(), 1, confinement=1.0)          # exp(−x²/2), Z = √(2π)
    >>> wide = Normal(jnp.zeros(1), 2.0).to_event(1)
    >>> draws = sample(bowl, 1000, method=Rejection(wide, float(jnp.log(2 * jnp.sqrt(2 * jnp.pi)))), key=0)
    >>> draws["x"].shape, bool(abs(draws.info["acceptance"] - 0.5) < 0.05)
    ((1000, 1), True)
    """

    proposal: Any = None
    log_bound: Any = None
    max_proposals: int = eqx.field(static=True, default=10**6)

    tasks = frozenset({"sample"})
    priority = 40

    def __check_init__(self):
        check_whole_number("max_proposals", self.max_proposals)
        check_proposal(self.proposal)
        if self.log_bound is not None:
            bound = as_numbers("log_bound", self.log_bound, "None or finite numbers")
            if (
                not np.isrealobj(bound)
                or np.ndim(bound) > 1
                or not np.isfinite(np.asarray(bound, float)).all()
            ):
                raise BadInput("log_bound", describe(self.log_bound), "None or finite numbers")

    def unsupported_reason(self, task, query):
        if query.partially_observed:
            return f"cannot draw the missing coordinates of {list(query.partially_observed)}"
        if self.proposal is None:
            return f"needs a proposal= over {list(query.targets)}"
        arguments = (query.row, jax.random.key(0), query.energy, self.proposal)
        found = f"cannot use the proposal {type(self.proposal).__name__} for {list(query.targets)}"
        if not supports_call(log_weight, *arguments):
            return found
        drawn = eqx.filter_eval_shape(propose, *arguments)[0]
        if set(drawn) != set(query.targets):
            return f"{found}: it draws {list(drawn)}"
        return None

    def why(self, task, query):
        return "the proposal covers exp(−e)"

    def kind(self, task, query):
        return "estimate" if self.log_bound is None else "exact"

    def cost(self, task, query):
        return Cost()

    def sample(self, query, n, key):
        bound_key, key = jax.random.split(key)
        if self.log_bound is None:
            log_bound, proven = find_log_bound(query, self.proposal, bound_key)
        else:
            log_bound, proven = np.asarray(self.log_bound, float), True
        if log_bound.shape not in ((), (query.n,)):
            raise BadInput(
                "log_bound", f"shape {log_bound.shape}", f"a number, or one for each of {query.n} rows"
            )
        log_bound = np.broadcast_to(log_bound, (query.n,))
        values, accepted, proposed = self._draw(query, n, log_bound, key)
        if query.batched:
            values = {k: np.swapaxes(v, 0, 1)[None] for k, v in values.items()}
        rate = query.unbatch(accepted / proposed)
        label = f"{self.label}, {accepted.sum() / proposed.sum():.3g} of the proposals accepted"
        caveat = "" if proven else "exact if the envelope, a maximum found by optimisation, is the largest"
        info = {"acceptance": rate, "log_bound": query.unbatch(log_bound)}
        return Draws(values, method=label, exact=True, info=info, caveat=caveat)

    def _draw(self, query: Query, n: int, log_bound: np.ndarray, key: Any) -> tuple[Any, Any, Any]:
        """Return n draws of every row by name, (rows, n, …), and how many were accepted and proposed."""
        accepted, proposed = np.zeros(query.n, int), np.zeros(query.n, int)
        kept: list[list[dict[str, np.ndarray]]] = [[] for _ in range(query.n)]
        active, size = np.arange(query.n), _round_size(n, 0.5)
        for step in range(self.max_proposals):
            rows = {k: v[active] for k, v in query.given.items()}
            arguments = (query.energy, self.proposal, size)
            width = size * (query.width + 2)
            drawn, ratio, log_u = map_rows(
                _propose_many,
                rows,
                len(active),
                *arguments,
                key=jax.random.fold_in(key, step),
                numbers_per_row=width,
            )
            excess = ratio - log_bound[active, None]
            self._check_envelope(excess, drawn, active, log_bound, query)
            taken = log_u < excess
            for i, row in enumerate(active):
                kept[row].append({k: v[i][taken[i]] for k, v in drawn.items()})
            accepted[active] += taken.sum(1)
            proposed[active] += size
            active = np.flatnonzero(accepted < n)
            if not len(active):
                break
            self._check_hope(query, n, accepted, proposed)
            size = _round_size((n - accepted).max(), (accepted / proposed).min())
        names = list(query.targets)
        join = lambda parts, k: np.concatenate([part[k] for part in parts])[:n]
        return {k: np.stack([join(parts, k) for parts in kept]) for k in names}, accepted, proposed

    def _check_envelope(self, excess: Any, drawn: Any, active: Any, log_bound: Any, query: Query) -> None:
        """Raise if a proposal lies above the envelope, or if its weight is not a number."""
        tolerance = 1e-4 if jnp.zeros(()).dtype == jnp.float32 else 1e-9  # of rounding
        wrong = np.isnan(excess) | (excess > tolerance * (1 + np.abs(log_bound[active, None])))
        if not wrong.any():
            return
        i, j = np.unravel_index(
            np.argmax(np.where(wrong, np.nan_to_num(excess, nan=np.inf), -np.inf)), wrong.shape
        )
        point = ", ".join(
            f"{k} = {np.array2string(np.asarray(v[i, j]), precision=4)}" for k, v in drawn.items()
        )
        where = f"{point} of row {active[i]}" if query.batched else point
        bound = log_bound[active[i]]
        if np.isnan(excess[i, j]):
            raise BadInput("energy", f"NaN at {where}", "numbers where the proposal draws")
        found = f"{bound:.6g}" + (", found by optimisation" if self.log_bound is None else "")
        raise BadInput(
            "log_bound",
            found,
            f"at least {bound + excess[i, j]:.6g}, since −e − log q is {excess[i, j]:.3g} larger at {where}",
            "Give a larger log_bound=, or a proposal= with wider tails.",
        )

    def _check_hope(self, query: Query, n: int, accepted: np.ndarray, proposed: np.ndarray) -> None:
        worst = int(np.argmin(accepted / proposed))
        if proposed.max() < self.max_proposals:
            return
        rate = accepted[worst] / proposed[worst]
        need = f"about {n / rate:.2g} proposals" if rate > 0 else f"more than {proposed[worst]:,} proposals"
        raise Intractable(
            f"{n} draws by Rejection",
            need,
            f"{self.max_proposals:,}",
            f"{accepted[worst]:,} of {proposed[worst]:,} were accepted. Use a proposal= closer to exp(−e), a "
            "smaller log_bound= if it is not the least, or Markov chains.",
        )


def _round_size(n: int, rate: float) -> int:
    """Return how many proposals to make for n more draws: a power of two, for few programs."""
    wanted = min(1.2 * n / max(rate, 1e-6), _MOST)
    return int(np.clip(2 ** int(np.ceil(np.log2(max(wanted, 1)))), _LEAST, _MOST))


def _propose_many(row, key, energy, proposal, n):
    """Return n proposals of one row, their −e − log q, and log u of uniform numbers u."""

    def one(key):
        draw_key, accept_key = jax.random.split(key)
        drawn, log_q = propose(row, draw_key, energy, proposal)
        ratio = -free_energy(energy, {**row, **drawn}) - log_q
        return drawn, ratio, -jax.random.exponential(accept_key, (), ratio.dtype)

    return jax.vmap(one)(jax.random.split(key, n))


# -- the bound -----------------------------------------------------------------------------------


def find_log_bound(query: Query, proposal: Any, key: Any) -> tuple[np.ndarray, bool]:
    """Return the largest −e − log q of every row that was found, and whether it is certain."""
    targets = query.targets
    if all(s.is_finite for s in targets.values()) and Assignments(targets).n <= _MAX_JOINT_VALUES:
        names = tuple(targets)
        found = map_rows(_enumerated_bound, query.given, query.n, query.energy, proposal, names)
        return np.asarray(found, float), True
    real = tuple(k for k, s in targets.items() if s.is_real)
    width = _PILOT_DRAWS * query.width
    drawn, best = map_rows(
        _searched_bound, query.given, query.n, query.energy, proposal, real, key=key, numbers_per_row=width
    )
    rise = best - drawn
    if not (rise < _HOPELESS).all():
        raise Unsuitable(
            "Rejection: exp(−e) / q seems to have no bound: a search rose far above all proposals. Use a "
            "proposal= with wider tails, or Markov chains."
        )
    # The search ends where the gradient is small, a little below the maximum.
    return np.asarray(best, float) + 1e-3, False


def _log_ratio(row, values, energy, proposal):
    return -free_energy(energy, {**row, **values}) - proposal_log_prob(row, values, energy, proposal)


def _enumerated_bound(row, key, energy, proposal, names):
    choices = Assignments({n: energy.spaces[n] for n in names})
    ratio = lambda i: _log_ratio(row, choices.at(i), energy, proposal)
    return jax.vmap(ratio)(jnp.arange(choices.n)).max()


def _searched_bound(row, key, energy, proposal, real):
    """Return the largest −e − log q among proposals of one row, and after a search from the best of them."""
    drawn, ratio, _ = _propose_many(row, key, energy, proposal, _PILOT_DRAWS)
    ratio = jnp.where(jnp.isnan(ratio), -jnp.inf, ratio)
    if not real:
        return ratio.max(), ratio.max()
    order = jnp.argsort(-ratio)[:_STARTS]
    starts = {k: v[order] for k, v in drawn.items()}

    def climb(start):
        rest = {k: v for k, v in start.items() if k not in real}
        values = lambda u: {**rest, **{k: energy.spaces[k].bijection(u[k]) for k in real}}
        u = {k: energy.spaces[k].bijection.inv(start[k]) for k in real}
        down = lambda u: -_log_ratio(row, values(u), energy, proposal)
        return -minimise(down, u, tol=1e-4, max_iter=200, memory_size=10)[1]

    climbed = jax.vmap(climb)(starts)
    best = jnp.where(jnp.isnan(climbed), jnp.inf, climbed).max()
    return ratio.max(), jnp.maximum(best, ratio.max())
