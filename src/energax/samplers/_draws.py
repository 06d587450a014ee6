"""`Draws`: draws of named variables, with diagnostics and a verdict on their convergence."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._util.arguments import FLAG, NONE, Setting, check_arguments, instance, whole
from .._util.frames import make_frame
from .._util.labelled import States
from ..errors import BadInput

_MAX_COORDINATES = 2000  # diagnostics are computed for at most so many; the verdict says if there are more
GOOD_RHAT = 1.01
#: R̂ without ranks above which chains clearly disagree: with enough draws to tell, and with fewer.
_BAD_RHAT, _BAD_RHAT_OF_FEW = 1.1, 1.5
#: Chains seem to stay in separated modes if the variance of their halves about their means is less than this
#: part of that of the means.
_MOST_MOVEMENT = 0.1
_ENOUGH_DRAWS = 50  # per chain
#: Numbers of chains that disagree above which they seem to drift: chains start at standard normal values.
_FAR = 1e3
#: Chains drift if the means of their halves differ by more than so many standard deviations of a half, all
#: outwards. Halves of a straight line differ by 3.5, halves of a random walk by 1.6 on average.
_STEADY = 2.0
#: Positive numbers below which a variable seems to shrink for ever, and above whose inverse it seems to grow.
_NEAR = 1e-25
_IMPROPER = "as if the distribution were improper. Check that every variable has a proper prior"
_NOT_FINITE = "check that every variable has a proper prior, or use a smaller step"
_DIVERGED = (
    "use a smaller step (a higher target_acceptance), or a non-centred form of variables whose scale is "
    "another variable"
)
_GENERAL_ADVICE = (
    ": use more warmup or more draws, and check that every variable has a proper prior. If there are "
    "separated modes, use ParallelTempering or TemperedSMC"
)
_MOST_LONG = 0.2  # of the trajectories may be as long as is allowed
GOOD_ESS_PER_CHAIN = 100


_MAPPING = instance(Mapping, "a dict of arrays by name")
_TEXT: Setting = instance(str, "a text")


class Draws(Mapping):
    """Draws of named variables, a mapping from their names to arrays.

    `draws["x"]` are the draws of x from all chains, (n, …); `chains["x"]` has them by chain. If the states of
    a variable have names, its draws are `States`, which compare with names: `draws["wet"] == "yes"`.

    Args:
        chains: arrays by name, of shape (n_chains, n_draws, *shape of the variable); for draws
            given many rows (n_chains, n_draws, rows, *shape).
        method: the name of the method or sampler.
        exact: whether the draws are independent and exact, but for the caveat; else they are Markov chains.
        info: values of every move, such as `acceptance` and `divergent`, (n_chains, n_draws) each.
        caveat: a known bias, which the verdict repeats.
        fixed: masks by name, True for coordinates that were given; these are not diagnosed.
        n: the number of draws. Chains of equal length may hold a few more, which only the
            diagnostics use.
        chains_checked: the draws of Markov chains from which these were taken, in random order; the verdict
            and the diagnostics are theirs.
        flaw: why exact draws cannot be trusted, as a clause, if the one who drew them found a reason.

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
        chains_checked: Draws | None = None,
        flaw: str = "",
    ):
        mappings = {"chains": _MAPPING, "info": _MAPPING | NONE, "fixed": _MAPPING | NONE}
        check_arguments(
            locals(), **mappings, method=_TEXT, caveat=_TEXT, flaw=_TEXT, n=whole(0) | NONE, exact=FLAG
        )
        _check_chains(chains)
        self._checked, self._flaw = chains_checked, flaw
        self.labels: dict[str, tuple[str, ...] | None] = {}  # names of states, by variable
        self.n_rows: int | None = None  # rows that were given, if there were rows
        self.chains = {k: np.asarray(v) for k, v in chains.items()}
        self.method, self.exact, self.caveat = method, exact, caveat
        self._free = {k: ~np.asarray((fixed or {}).get(k, False)) for k in self.chains}
        self.info = {k: np.asarray(v) for k, v in (info or {}).items()}
        total = int(np.prod(next(iter(self.chains.values())).shape[:2]))
        self.n = total if n is None else min(n, total)

    @property
    def n_chains(self) -> int:
        """The number of chains."""
        return next(iter(self.chains.values())).shape[0]

    def __getitem__(self, name: str) -> np.ndarray:
        """The draws of all chains, one chain after another, (n, …)."""
        if name not in self.chains:
            raise BadInput("name", repr(name), f"a variable, one of {list(self.chains)}")
        chains = self.chains[name]
        return States.of(chains.reshape(-1, *chains.shape[2:])[: self.n], self.labels.get(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.chains)

    def __len__(self) -> int:
        return len(self.chains)

    def __contains__(self, name: object) -> bool:
        return name in self.chains

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def to_frame(self) -> Any:
        """Return the draws as a pandas frame, one row per draw; states have their names.

        Draws of rows have one frame row per draw and row, numbered in the columns `draw` and `row`.
        """
        if self.n_rows is None:
            return make_frame(self)
        numbers = np.indices((self.n, self.n_rows)).reshape(2, -1)
        flat = {k: States.of(v.reshape(-1, *v.shape[2:]), self.labels.get(k)) for k, v in self.items()}
        return make_frame({"draw": numbers[0], "row": numbers[1], **flat})

    def __repr__(self) -> str:
        shapes = ", ".join(f"{k} {v.shape}" for k, v in self.items())
        warning = f"; not to be trusted: {self.problem}" if self.problem else ""
        return f"Draws({shapes}; {self.method}{warning})"

    def to_arviz(self) -> Any:
        """Return the draws as an ArviZ `InferenceData`, for its plots and summaries."""
        arviz = import_arviz()
        names = {"acceptance": "acceptance_rate", "divergent": "diverging"}
        stats = {names.get(k, k): v for k, v in self.info.items() if v.ndim == 2}
        with warnings.catch_warnings():
            # ArviZ takes few draws of many chains for transposed arrays.
            warnings.filterwarnings("ignore", message="More chains")
            return arviz.from_dict(posterior=self.chains, sample_stats=stats or None)

    # -- diagnostics -----------------------------------------------------------------------------

    @functools.cached_property
    def _coordinates(self) -> np.ndarray:
        """All coordinates that were not given, (n_chains, n_draws, coordinates)."""
        flat = []
        for name, value in self.chains.items():
            free = np.broadcast_to(self._free[name], value.shape[2:]).reshape(-1)
            flat.append(value.reshape(*value.shape[:2], -1)[..., free].astype(float))
        return np.concatenate(flat, axis=-1)

    @functools.cached_property
    def _diagnosed(self) -> np.ndarray:
        """At most `_MAX_COORDINATES` of the coordinates, evenly chosen."""
        is_small = self._coordinates.shape[-1] <= _MAX_COORDINATES
        return self._coordinates if is_small else self._coordinates[..., self._chosen]

    @property
    def _chosen(self) -> np.ndarray:
        n = self._coordinates.shape[-1]
        return np.linspace(0, n - 1, min(n, _MAX_COORDINATES)).astype(int)

    @property
    def _diagnosed_names(self) -> np.ndarray:
        """The variables to which the diagnosed coordinates belong."""
        sizes = [np.broadcast_to(self._free[k], v.shape[2:]).sum() for k, v in self.chains.items()]
        return np.repeat(list(self.chains), sizes)[self._chosen]

    @functools.cached_property
    def _constant(self) -> np.ndarray:
        """Whether a diagnosed coordinate is the same in every draw, (coordinates,)."""
        return np.ptp(self._diagnosed, axis=(0, 1)) == 0

    @functools.cached_property
    def rhat(self) -> np.ndarray:
        """Rank-normalised split R̂ of every diagnosed coordinate; NaN if it is the same in every draw.

        Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization, folding, and
        localization: an improved R̂.
        """
        return self._diagnose("rhat") if self._checked is None else self._checked.rhat

    @functools.cached_property
    def ess(self) -> np.ndarray:
        """The effective sample size of every diagnosed coordinate, for means and medians (bulk)."""
        if self.exact:
            return np.full(self._diagnosed.shape[-1], float(self.n))
        return self._diagnose("ess") if self._checked is None else self._checked.ess

    @functools.cached_property
    def ess_tail(self) -> np.ndarray:
        """The effective sample size of every diagnosed coordinate, for its 5 % and 95 % quantiles (tail)."""
        if self.exact:
            return np.full(self._diagnosed.shape[-1], float(self.n))
        return self._diagnose("ess", method="tail") if self._checked is None else self._checked.ess_tail

    def _diagnose(self, statistic: str, **settings: Any) -> np.ndarray:
        """Return a statistic of ArviZ by name, for every diagnosed coordinate."""
        moving = np.ptp(self._diagnosed, axis=(0, 1)) > 0
        out = np.full(moving.shape, np.nan)
        # ArviZ would log a warning about too few chains or draws.
        enough = self._diagnosed.shape[1] >= 4 and (self.n_chains > 1 or statistic != "rhat")
        if enough and moving.any() and np.isfinite(self._diagnosed).all():
            arviz = import_arviz()
            with warnings.catch_warnings():
                # Statistics of chains that are too short are NaN, which the verdict reports.
                warnings.simplefilter("ignore")
                data = arviz.convert_to_dataset({"x": self._diagnosed[..., moving]})
                out[moving] = getattr(arviz, statistic)(data, **settings)["x"].values
        return out

    @functools.cached_property
    def verdict(self) -> str:
        """Whether the diagnostics found a problem, and their values, as one line of text."""
        diverged = [k for k, v in self.chains.items() if not np.isfinite(v).all()]
        if diverged:
            return f"diverged: {', '.join(diverged)} not finite; {_NOT_FINITE}"
        if self._flaw:
            return f"unreliable ({self.method}): {self._flaw}"
        if self.exact:
            kind = f"independent draws ({self.method}); {self.caveat}" if self.caveat else None
            return f"{self.n} {kind or f'exact, independent draws ({self.method})'}"
        if self._checked is not None:
            return self._checked.verdict
        problems, summary = self._problems(), self._summary()
        if problems:
            return f"unreliable ({self.method}): {'; '.join(problems)}; {summary}"
        caveat = f"; {self.caveat}" if self.caveat else ""
        return f"no problem found ({self.method}, {self.n_chains} chains): {summary}{caveat}"

    @property
    def trusted(self) -> bool:
        """Whether the draws are exact, or the diagnostics found no problem."""
        return (self.exact and not self._flaw) or self.verdict.startswith("no problem found")

    @functools.cached_property
    def problem(self) -> str:
        """Why the draws cannot be trusted, in one sentence; empty if they are exact or nothing was found.

        This finds clear problems, in little time: draws that are not finite or all the same, chains that
        disagree, moves that diverged or were rejected. `verdict` is stricter.
        """
        if self.exact:
            return self._flaw
        if self._checked is not None:
            return self._checked.problem
        diverged = [k for k, v in self.chains.items() if not np.isfinite(v).all()]
        if diverged:
            return f"{', '.join(diverged)} is not finite: {_NOT_FINITE}"
        # States that are nearly certain may be the same in all draws, real numbers not.
        if self._constant.all() and self.n > 1 and not (self._diagnosed % 1 == 0).all():
            return "all draws are the same"
        n_draws = self._diagnosed.shape[1]
        rhats = _split_rhat(self._diagnosed) if self.n_chains > 1 and n_draws >= 4 else np.ones(1)
        rhat, worst = float(rhats.max()), int(rhats.argmax())
        if rhat > (_BAD_RHAT if n_draws >= _ENOUGH_DRAWS else _BAD_RHAT_OF_FEW):
            hint = self._hint(worst) or f" and {self._divergence}"
            return f"the chains disagree (R-hat {min(rhat, 1e3):.4g}){hint}"
        found = [p for p in self._move_problems() if p]
        return found[0] if found else ""

    def _hint(self, worst: int) -> str:
        """Return advice about chains that disagree most about this diagnosed coordinate.

        It is empty if they do not drift and are not stuck, but moves diverged: then that is the advice.
        """
        advice, is_stuck = _advice(self._diagnosed_names[worst], self._diagnosed[..., worst])
        if advice == _GENERAL_ADVICE and self._divergence:
            return ""
        whole = [(v % 1 == 0).all() for v in self.chains.values()] if is_stuck else []
        if not any(whole) or all(whole):
            return advice
        return (
            f"{advice}, or give the energy `free_energy` or `conditional`, so that its finite variables are "
            "drawn first"
        )

    def _summary(self) -> str:
        text = f"{self.n} draws"
        if not np.isnan(self.rhat).all():
            text = f"R-hat at most {min(np.nanmax(self.rhat), 1e3):.3f}"
            text += f", effective draws at least {np.nanmin(self.ess):.0f} of {self.n}"
        if self._constant.any():
            text += f", {int(self._constant.sum())} coordinates the same in every draw"
        left_out = self._coordinates.shape[-1] - _MAX_COORDINATES
        if left_out > 0:
            text += f" ({_MAX_COORDINATES} coordinates diagnosed, {left_out} not)"
        return text

    def _problems(self) -> list[str]:
        problems = []
        if self.n_chains < 2:
            problems.append("one chain cannot be compared with another: use n_chains >= 2")
        if self._constant.all():
            problems.append("all draws are the same")
        if (np.isnan(self.rhat) & ~self._constant).any() and self.n_chains >= 2:
            problems.append("too few draws to diagnose: use more")
        if (self.rhat > GOOD_RHAT).any():
            worst = int(np.nanargmax(self.rhat))
            problems.append(f"the chains disagree (R-hat above {GOOD_RHAT}){self._hint(worst)}")
        if (np.minimum(self.ess, self.ess_tail) < GOOD_ESS_PER_CHAIN * self.n_chains).any():
            problems.append(f"fewer than {GOOD_ESS_PER_CHAIN} effective draws per chain")
        return problems + self._move_problems()

    @property
    def _extreme(self) -> str | None:
        """Advice about a variable whose draws come so near to 0, or so far, that it seems improper, or None.

        They come near to 0 if 1 / x is its density, and far if the density is flat.
        """
        sizes = np.abs(self._diagnosed)
        small, large = np.where(sizes == 0, np.inf, sizes).min((0, 1)), sizes.max((0, 1))
        if small.min() <= _NEAR:
            change, size, name = "shrinks", small.min(), self._diagnosed_names[small.argmin()]
        elif large.max() >= 1 / _NEAR:
            change, size, name = "grows", large.max(), self._diagnosed_names[large.argmax()]
        else:
            return None
        return f"{name} {change} to numbers such as {size:.2g}, {_IMPROPER}"

    @property
    def _divergence(self) -> str:
        """How many moves diverged and what to do; empty if none did."""
        n = int(self.info["divergent"].sum()) if "divergent" in self.info else 0
        return f"{n} move{'s' if n > 1 else ''} diverged: {self._extreme or _DIVERGED}" if n else ""

    def _move_problems(self) -> list[str]:
        problems = [self._divergence] if self._divergence else []
        if "acceptance" in self.info and self.info["acceptance"].mean() < 0.05:
            problems.append(f"only {self.info['acceptance'].mean():.1%} of the moves were accepted")
        if "reached_max_steps" in self.info and self.info["reached_max_steps"].mean() > _MOST_LONG:
            share = self.info["reached_max_steps"].mean()
            problems.append(
                f"{share:.0%} of the trajectories were cut off: scale the variables, or set dense=True"
            )
        return problems


def _split_rhat(chains: np.ndarray) -> np.ndarray:
    """R̂ of the halves of the chains, (n_chains, n_draws, coordinates), without ranks; 1 if nothing moves.

    Gelman and Rubin (1992), Inference from iterative simulation using multiple sequences.
    """
    half = chains.shape[1] // 2
    halves = np.concatenate([chains[:, :half], chains[:, -half:]])
    within, between = halves.var(1, ddof=1).mean(0), halves.mean(1).var(0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (half - 1) / half + between / within
    return np.sqrt(np.where(between > 0, ratio, 1.0))


def _advice(name: str, chains: np.ndarray) -> tuple[str, bool]:
    """Return advice about chains of a variable, (n_chains, n_draws), that disagree, and if they are stuck."""
    largest = np.abs(chains).max()
    half = chains.shape[1] // 2
    first, last = chains[:, :half], chains[:, -half:]
    ends = np.stack([first.mean(1), last.mean(1)])
    within = np.maximum(first.std(1), last.std(1))
    outwards = np.sign(ends[1]) * np.diff(ends, axis=0)[0] > _STEADY * within
    if largest > _FAR or outwards.all():
        return f": {name} drifts to numbers such as {largest:.2g}, {_IMPROPER}, or use more warmup", False
    if ends.var(0).mean() > _MOST_MOVEMENT * ends.mean(0).var():
        return _GENERAL_ADVICE, False
    stuck = (
        ": they stay in different regions, and more draws do not help. Use ParallelTempering or TemperedSMC"
    )
    return stuck, True


def _check_chains(chains: Mapping[str, Any]) -> None:
    """Raise unless all variables have the same chains and draws."""
    shapes = {name: np.shape(values)[:2] for name, values in chains.items()}
    if not shapes or len(set(shapes.values())) > 1 or len(next(iter(shapes.values()))) < 2:
        found = ", ".join(f"{name!r} of shape {np.shape(chains[name])}" for name in shapes) or "no variables"
        raise BadInput("chains", found, "arrays (n_chains, n_draws, …) of all variables")


def import_arviz() -> Any:
    """Return the module `arviz`, imported without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import arviz
    return arviz
