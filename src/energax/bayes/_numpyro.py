"""`from_numpyro`: a model of NumPyro as an energy over its latent sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arrays import asarray
from ..energy import Energy
from ..errors import BadInput, Unsuitable, check_instance, describe
from ..parameters import precision_of
from ..samplers import Draws
from ..spaces import Space, fixed, space_of


class NumPyroEnergy(Energy):
    """e(latent) = −log p(latent, observed) of a NumPyro model, with its observed sites fixed.

    Made by `from_numpyro`.

    Args:
        model: the function.
        args, kwargs: its arguments.
        sites: the names and spaces of the latent sites.
        dtypes: the dtypes of their values.
    """

    model: Callable[..., Any] = eqx.field(static=True)
    args: tuple[Any, ...] = fixed()
    kwargs: dict[str, Any] = fixed()
    sites: tuple[tuple[str, Space], ...] = eqx.field(static=True)
    dtypes: tuple[str, ...] = eqx.field(static=True)

    @property
    def spaces(self):
        return dict(self.sites)

    def __call__(self, **latent):
        from numpyro.infer.util import log_density

        model = _with_proper_imputation(self.model)
        return -log_density(model, self.args, self.kwargs, self._as_sites(latent))[0]

    def deterministic(self, draws: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Return the deterministic sites of the model for every draw, (n, …) by name.

        Args:
            draws: arrays (n, …) of all latent sites by name, such as `Draws`.
        """

        def one(latent):
            sites = _trace(self.model, self.args, self.kwargs, self._as_sites(latent))
            return {k: v["value"] for k, v in sites.items() if v["type"] == "deterministic"}

        with precision_of(self):
            latent = {name: asarray(np.asarray(draws[name])) for name in self.spaces}
            return jax.tree.map(np.asarray, jax.vmap(one)(latent))

    def with_deterministic(self, draws: Draws) -> Draws:
        """Return draws of the latent sites together with the deterministic sites, chain by chain.

        So `plot` and the diagnostics show both, and divergent moves keep their places.

        Args:
            draws: the `Draws` of `sample`.
        """
        check_instance("draws", draws, Draws, "the Draws of sample(energy, …)")
        shape = next(iter(draws.chains.values())).shape[:2]
        flat = {k: v.reshape(-1, *v.shape[2:]) for k, v in draws.chains.items()}
        found = {k: v.reshape(*shape, *v.shape[1:]) for k, v in self.deterministic(flat).items()}
        return Draws(
            {**draws.chains, **found},
            method=draws.method,
            exact=draws.exact,
            info=draws.info,
            caveat=draws.caveat,
            n=draws.n,
            chains_checked=draws._checked,
        )

    def _as_sites(self, latent: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values in the dtypes of the sites: binary ones are floats in energax."""
        pairs = zip(self.spaces, self.dtypes, strict=True)
        is_real = {name: space.is_real for name, space in self.sites}
        return {name: latent[name] if is_real[name] else latent[name].astype(dtype) for name, dtype in pairs}


def from_numpyro(model: Callable[..., Any], *args: Any, **kwargs: Any) -> NumPyroEnergy:
    """Return −log p(latent, observed) of a NumPyro model as an energy over its latent sites.

    Sites are variables, with the spaces of their supports; discrete sites of finite support are `Binary` or
    `Categorical`. Plates, masks, scales and factors work as in NumPyro. With `obs_mask` the missing values of
    a site y are the variable y_unobserved, which has values also where y was observed: replicated data.
    Arrays of 64 bits among the arguments make the energy one of 64 bits. The model is traced with its arrays
    as tracers, so it must not branch on their values.

    Args:
        model: a function with `numpyro.sample` statements.
        args, kwargs: its arguments.

    Phan, Pradhan and Jankowiak (2019), Composable effects for flexible and accelerated probabilistic
    programming in NumPyro.

    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> def model(y):
    ...     mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    ...     scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    ...     numpyro.sample("y", dist.Normal(mean, scale), obs=y)
    >>> energy = from_numpyro(model, jnp.array([0.5, 1.5]))
    >>> energy.spaces
    {'mean': Real(), 'scale': Positive()}
    >>> energy(mean=jnp.array(1.0), scale=jnp.array(1.0))               # 2 log 2π + 5/4 − log 2
    Array(4.23260..., dtype=float32)
    """
    if not callable(model):
        raise BadInput("model", describe(model), "a function with numpyro.sample statements")
    is_double = any(
        getattr(a, "dtype", None) == np.float64
        for a in jax.tree.leaves((args, kwargs))
        if eqx.is_array_like(a)
    )
    with jax.enable_x64(True) if is_double else precision_of(None):
        is_numbers = lambda a: isinstance(a, np.ndarray | np.generic) and a.dtype.kind in "biuf"
        args, kwargs = jax.tree.map(lambda a: asarray(a) if is_numbers(a) else a, (args, kwargs))
        _check_hashable(args, kwargs)
        first, second = (_latent_sites(model, args, kwargs, seed) for seed in (0, 1))
    changed = [name for name in {**first, **second} if first.get(name) != second.get(name)]
    if changed:
        raise Unsuitable(
            f"from_numpyro: the sites {changed} exist, or have their shape or support, only for some values "
            "of other sites. Write them with a fixed support, such as u in (0, 1) times the bound."
        )
    if not first:
        raise BadInput("model", "no latent site", "numpyro.sample statements without obs=")
    sites = tuple((name, space) for name, (space, _) in first.items())
    return NumPyroEnergy(model, args, kwargs, sites, tuple(dtype for _, dtype in first.values()))


def _check_hashable(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise if an argument is neither an array nor hashable, such as a pandas frame."""
    for leaf in jax.tree.leaves((args, kwargs)):
        try:
            hash(leaf if not eqx.is_array(leaf) else None)
        except TypeError:
            remedy = "Pass its columns as arrays, such as frame['y'].to_numpy()."
            raise BadInput("args", f"a {type(leaf).__name__}", "arrays, numbers and texts", remedy) from None


def _with_proper_imputation(model: Any) -> Any:
    """Return the model without the masks of sites that `obs_mask` makes for missing values.

    NumPyro masks such a site y_unobserved where y was observed. Its density is flat there, and chains would
    drift for ever. Without the mask these values are drawn by the model, and no other site depends on them.
    """
    from numpyro.distributions import MaskedDistribution
    from numpyro.primitives import Messenger

    class Unmask(Messenger):
        def __init__(self, fn):
            super().__init__(fn)
            self.observed: set[str] = set()

        def process_message(self, msg):
            name = str(msg.get("name", ""))
            if msg["type"] != "sample":
                return
            if msg["is_observed"] and name.endswith("_observed"):
                self.observed.add(name.removesuffix("_observed"))
            elif name.endswith("_unobserved") and name.removesuffix("_unobserved") in self.observed:
                while isinstance(msg["fn"], MaskedDistribution):
                    msg["fn"] = msg["fn"].base_dist

    return Unmask(model)


def _trace(model: Any, args: Any, kwargs: Any, values: Mapping[str, Any], seed: int = 0) -> dict[str, Any]:
    """Return the sites of a run of the model: with these values of all latent sites, or at random without."""
    from numpyro import handlers
    from numpyro.infer import init_to_uniform

    seeded = handlers.seed(_with_proper_imputation(model), jax.random.key(seed))
    # Not drawn from their distributions: some, such as ImproperUniform, have no draws.
    how = {"data": dict(values)} if values else {"substitute_fn": init_to_uniform}
    return handlers.trace(handlers.substitute(seeded, **how)).get_trace(*args, **kwargs)


def _latent_sites(model: Any, args: Any, kwargs: Any, seed: int) -> dict[str, tuple[Space, str]]:
    """Return the space and the dtype of every latent site, in a run with this seed."""
    found = {}
    for name, site in _trace(model, args, kwargs, {}, seed).items():
        if site["type"] == "param":
            remedy = "Pass it as an argument, or give it a prior with numpyro.sample."
            raise Unsuitable(f"from_numpyro: {name!r} is a numpyro.param, which has no prior. {remedy}")
        if site["type"] == "plate" and site["value"] is not None and len(site["value"]) < site["args"][0]:
            raise Unsuitable(
                f"from_numpyro: the plate {name!r} draws {len(site['value'])} of {site['args'][0]} rows anew "
                "at each evaluation, so that there is no fixed energy. Write it without subsample_size; for "
                "minibatches use Bayes and SGLD."
            )
        if site["type"] == "sample" and not site["is_observed"]:
            found[name] = (_site_space(name, site), str(jnp.result_type(site["value"])))
    return found


def _site_space(name: str, site: Any) -> Space:
    fn = site["fn"]
    if fn.support is None:
        raise Unsuitable(f"from_numpyro: {name!r} has no support. Give its distribution one.")
    if fn.support.is_discrete and fn.event_dim:
        raise Unsuitable(
            f"from_numpyro: {name!r} is a discrete vector of {type(fn).__name__}, whose values cannot be "
            "listed one by one. Sum it out, or write it as independent sites."
        )
    try:
        return space_of(fn.support, jnp.shape(site["value"]))
    except BadInput as error:
        raise Unsuitable(
            f"from_numpyro: {name!r} has {error.found}; expected {error.expected}. {error.remedy}"
        ) from None
