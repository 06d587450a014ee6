"""Draws, and a verdict on them that cannot lie."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

_LOOK_AT = 2000  # coordinates whose diagnostics are computed; more are said to be left out
GOOD_RHAT = 1.01
GOOD_ESS_PER_CHAIN = 100


class Draws:
    """Draws of named variables, as (chain, draw, …) inside and (n, …) in `values`.

    Args:
        chains: arrays by name, of shape (n_chains, n_draws, *shape of the variable); for draws
            given many rows (n_chains, n_draws, rows, *shape).
        method: the name of what drew them.
        exact: whether the draws are independent and exact; else they are Markov chains.
        info: what the kernel said of every draw, such as `acceptance` and `divergent`,
            (n_chains, n_draws) each.
        caveat: a sentence on a known bias, that the verdict repeats.
        fixed: coordinates that were given and are no draws (True), by name: not judged.
        n: how many draws were asked for. Chains of one length may hold a few more: `values` has
            `n`, and the diagnostics look at all of them.

    >>> draws = Draws({"x": np.arange(6.0).reshape(1, 6)}, method="ancestral", exact=True)
    >>> draws["x"].shape, draws.verdict
    ((6,), '6 exact, independent draws (ancestral)')
    """

    def __init__(
        self,
        chains: Mapping[str, Any],
        *,
        method: str,
        exact: bool = False,
        info: Mapping[str, Any] | None = None,
        caveat: str = "",
        fixed: Mapping[str, Any] | None = None,
        n: int | None = None,
    ):
        self.chains = {k: np.asarray(v) for k, v in chains.items()}
        self.method, self.exact, self.caveat = method, exact, caveat
        self._free = {k: ~np.asarray((fixed or {}).get(k, False)) for k in self.chains}
        self.info = {k: np.asarray(v) for k, v in (info or {}).items()}
        made = int(np.prod(next(iter(self.chains.values())).shape[:2]))
        self.n = made if n is None else min(n, made)

    @property
    def n_chains(self) -> int:
        return next(iter(self.chains.values())).shape[0]

    @property
    def values(self) -> dict[str, np.ndarray]:
        """The draws of all chains, one after another: arrays (n, …) by name."""
        return {k: v.reshape(-1, *v.shape[2:])[: self.n] for k, v in self.chains.items()}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k} {v.shape}" for k, v in self.values.items())
        return f"Draws({shapes}; {self.method})"

    def to_arviz(self) -> Any:
        """The same as an ArviZ `InferenceData`, for its plots and summaries."""
        arviz = import_arviz()
        names = {"acceptance": "acceptance_rate", "divergent": "diverging"}
        stats = {names.get(k, k): v for k, v in self.info.items() if v.ndim == 2}
        with warnings.catch_warnings():
            # Few draws of many chains look transposed to it, and are not.
            warnings.filterwarnings("ignore", message="More chains")
            return arviz.from_dict(posterior=self.chains, sample_stats=stats or None)

    # -- diagnostics ------------------------------------------------------------------------

    @functools.cached_property
    def _looked_at(self) -> np.ndarray:
        """(n_chains, n_draws, coordinates), of at most `_LOOK_AT` coordinates, evenly chosen."""
        flat = []
        for name, value in self.chains.items():
            free = np.broadcast_to(self._free[name], value.shape[2:]).reshape(-1)
            flat.append(value.reshape(*value.shape[:2], -1)[..., free].astype(float))
        whole = np.concatenate(flat, axis=-1)
        self._n_free = whole.shape[-1]
        if whole.shape[-1] <= _LOOK_AT:
            return whole
        return whole[..., np.linspace(0, whole.shape[-1] - 1, _LOOK_AT).astype(int)]

    @functools.cached_property
    def rhat(self) -> np.ndarray:
        """Rank-normalised split R̂ of every coordinate looked at; NaN where it never changed.

        Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and
        localization: an improved R̂.
        """
        return self._diagnose("rhat")

    @functools.cached_property
    def ess(self) -> np.ndarray:
        """Effective number of draws of every coordinate looked at."""
        if self.exact:
            return np.full(self._looked_at.shape[-1], float(self.n))
        return self._diagnose("ess")

    def _diagnose(self, what: str) -> np.ndarray:
        arviz = import_arviz()
        moving = np.ptp(self._looked_at, axis=(0, 1)) > 0
        out = np.full(moving.shape, np.nan)
        if moving.any() and np.isfinite(self._looked_at).all():
            with warnings.catch_warnings():
                # Chains too short to judge give NaN, which the verdict reports itself.
                warnings.simplefilter("ignore")
                data = arviz.convert_to_dataset({"x": self._looked_at[..., moving]})
                out[moving] = getattr(arviz, what)(data)["x"].values
        return out

    @functools.cached_property
    def verdict(self) -> str:
        """How far these draws can be trusted, in a sentence."""
        if not all(np.isfinite(v).all() for v in self.chains.values()):
            bad = [k for k, v in self.chains.items() if not np.isfinite(v).all()]
            return f"diverged: {', '.join(bad)} left the finite numbers; use a smaller step"
        if self.exact:
            return f"{self.n} exact, independent draws ({self.method})"
        problems = self._problems()
        moved = f"{self.n} draws"
        if not np.isnan(self.rhat).all():
            moved = f"R-hat at most {np.nanmax(self.rhat):.3f}"
            moved += f", effective draws at least {np.nanmin(self.ess):.0f} of {self.n}"
        still = int((np.ptp(self._looked_at, axis=(0, 1)) == 0).sum())
        if still:
            moved += f", {still} coordinates the same in every draw"
        if self._n_free > _LOOK_AT:
            moved += f" ({_LOOK_AT} coordinates looked at, {self._n_free - _LOOK_AT} not)"
        if problems:
            return f"not to be trusted ({self.method}): {'; '.join(problems)}; {moved}"
        return f"no sign of trouble ({self.method}, {self.n_chains} chains): {moved}" + (
            f"; {self.caveat}" if self.caveat else ""
        )

    @property
    def trusted(self) -> bool:
        """Whether the verdict found nothing wrong."""
        return self.exact or self.verdict.startswith("no sign of trouble")

    def _problems(self) -> list[str]:
        problems = []
        if self.n_chains < 2:
            problems.append("one chain cannot be compared with another: use n_chains >= 2")
        still = np.ptp(self._looked_at, axis=(0, 1)) == 0
        if still.all():
            problems.append("nothing ever changed")
        if (np.isnan(self.rhat) & ~still).any() and self.n_chains >= 2:
            problems.append("too few draws to judge: ask for more")
        if (self.rhat > GOOD_RHAT).any():
            problems.append(f"the chains disagree (R-hat above {GOOD_RHAT}): use more warmup or more draws")
        if (self.ess < GOOD_ESS_PER_CHAIN * self.n_chains).any():
            problems.append(f"fewer than {GOOD_ESS_PER_CHAIN} effective draws a chain")
        if "divergent" in self.info and self.info["divergent"].any():
            problems.append(f"{int(self.info['divergent'].sum())} moves diverged: use a smaller step")
        if "acceptance" in self.info and self.info["acceptance"].mean() < 0.05:
            problems.append(f"only {self.info['acceptance'].mean():.1%} of the moves were accepted")
        return problems


def import_arviz() -> Any:
    """ArviZ, without the announcement that it makes when imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz
