"""`Bayes`: the posterior over the parameters of any energy, as an energy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.arguments import WEIGHT_SCALAR, check_arguments
from .._util.arrays import asarray
from .._util.printing import pretty_repr
from ..batch import Batch
from ..energy import Energy
from ..errors import BadInput, Unsuitable, check_instance, describe
from ..fitting import check_rows
from ..learn import NegativeLogLikelihood, Objective
from ..parameters import Freeze, check_parameters, parameter_spaces, precision_of, trainable_leaves
from ..spaces import Space, fixed
from ._parameter_energy import ParameterEnergy, parameters_of

#: Points in ℝⁿ at which the supports of priors are compared with the spaces of parameters.
_PROBES = 16


class Bayes(eqx.Module):
    """Turns an energy and data into an energy over the parameters θ: −log p(θ) + β Σ_i w_i loss_i(θ).

    Read the result by any inference for real variables: a sampler, `Laplace`, `VariationalGaussian`.
    `predictive` averages the model over draws of θ.

    Args:
        prior: p(θ): a dict from names of parameters to NumPyro distributions; one distribution for all
            parameters; or None, flat. A name such as "network" stands for all parameters under it. Parameters
            without a prior have a flat one, which is improper on an unbounded space: the posterior is then a
            distribution only if the data decide.
        beta: β, the inverse temperature. With β = 1 and the default loss exp(−e) is the posterior; any other
            loss gives the tempered, or generalised, posterior.
        loss: an objective without randomness, such as `CrossEntropy()`; None is `NegativeLogLikelihood()`, so
            that hidden variables and missing values are summed out.

    Bissiri, Holmes and Walker (2016), A general framework for updating belief distributions.

    >>> from numpyro.distributions import Normal
    >>> from energax.energies import Gaussian, LinearModel
    >>> from energax.infer import Laplace, posterior
    >>> line = LinearModel(jnp.zeros(1), jnp.zeros(()), Gaussian(1.0))
    >>> rows = {"x": np.array([[-1.0], [0.0], [1.0]]), "y": np.array([-2.0, 0.0, 2.0])}
    >>> over_theta = Bayes(Normal(0.0, 1.0))(line, rows)
    >>> over_theta.spaces
    {'weight': Real(1), 'bias': Real()}
    >>> posterior(over_theta, {}, Laplace()).mean["weight"].round(3)         # 4 / (2 + 1)
    array([1.333], dtype=float32)
    """

    prior: Any = fixed(default=None)
    beta: Any = fixed(default=1.0)
    loss: Objective | None = fixed(default=None)

    def __check_init__(self):
        check_arguments(self, beta=WEIGHT_SCALAR)
        if self.loss is not None:
            check_instance("loss", self.loss, Objective, "an objective, such as CrossEntropy()")
        priors = self.prior.values() if isinstance(self.prior, Mapping) else (self.prior,)
        for prior in priors:
            if prior is not None and not (hasattr(prior, "log_prob") and hasattr(prior, "support")):
                expected = "NumPyro distributions by name of parameter, one distribution, or None"
                raise BadInput("prior", describe(prior), expected)

    def __repr__(self) -> str:
        return pretty_repr(self)

    def __call__(
        self, energy: Energy, data: Any, *, weights: Any = None, freeze: Freeze = None
    ) -> ParameterEnergy:
        """Return the energy over the trainable parameters of `energy`, given the data.

        Args:
            energy: the model.
            data: rows by name of the variable, as for `fit`; NaN is missing.
            weights: one number per row, which multiplies its loss.
            freeze: parameters that keep their values, as in `fit`.
        """
        check_instance("energy", energy, Energy, "an Energy")
        trainable = trainable_leaves(energy, freeze)
        check_parameters(energy, trainable, others=False)
        with precision_of(energy):
            rows, weight = check_rows(energy, data, weights)
            names = _trainable_names(energy, trainable)
            loss = NegativeLogLikelihood() if self.loss is None else self.loss
            loss.check(energy, rows)
            dtype = jnp.result_type(*jax.tree.leaves(eqx.filter(energy, trainable)))
            rows = jax.tree.map(lambda a: _cast(asarray(a), dtype), rows)
            prior = _priors(self.prior, parameters_of(energy, names), dtype)
            # A copy of its own: the energy of θ then compares and caches as a new object.
            found = ParameterEnergy(energy, rows, asarray(weight, dtype), prior, loss, self.beta, names=names)
            _check_deterministic(loss, energy, Batch(found.data, found.weight))
        return found


def _cast(array: Any, dtype: Any) -> Any:
    return array.astype(dtype) if jnp.issubdtype(array.dtype, jnp.floating) else array


def _trainable_names(energy: Energy, trainable: Any) -> tuple[str, ...]:
    flags = [
        flag
        for leaf, flag in zip(jax.tree.leaves(energy), jax.tree.leaves(trainable), strict=True)
        if eqx.is_array(leaf)
    ]
    return tuple(path for (path, _), flag in zip(parameter_spaces(energy), flags, strict=True) if flag)


def _check_deterministic(loss: Objective, energy: Energy, batch: Batch) -> None:
    """Raise unless the loss is a function of the rows alone, without random numbers or a state."""
    random = Unsuitable(
        f"Bayes needs a loss that is a function of the rows, but {type(loss).__name__} draws random numbers "
        "or keeps a state. Use NegativeLogLikelihood, CrossEntropy or PseudoLikelihood."
    )
    try:
        found = eqx.filter_eval_shape(loss, energy, batch, None, None)
    except (TypeError, AttributeError, ValueError) as error:
        raise random from error
    if found[1] is not None or loss.partner is not None:
        raise random


# -- priors --------------------------------------------------------------------------------------------


def _priors(prior: Any, spaces: dict[str, Space], dtype: Any) -> dict[str, Any]:
    """Return the prior of every parameter that has one, checked against its space."""
    if prior is None:
        return {}
    if isinstance(prior, Mapping):
        for given in prior:
            if not any(_is_under(name, given) for name in spaces):
                raise BadInput("prior", f"the name {given!r}", f"parameters among {', '.join(spaces)}")
        found = {name: _longest_match(prior, name) for name in spaces}
    else:
        found = dict.fromkeys(spaces, prior)
    one_for_all = not isinstance(prior, Mapping)
    found = {name: p for name, p in found.items() if p is not None}
    for name, p in found.items():
        _check_prior(name, p, spaces[name], one_for_all)
    return jax.tree.map(lambda a: _cast(asarray(a), dtype) if eqx.is_array(a) else a, found)


def _is_under(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}.")


def _longest_match(prior: Mapping[str, Any], name: str) -> Any:
    """Return the prior of the longest name that the parameter is under; None if there is none."""
    matches = [given for given in prior if _is_under(name, given)]
    return prior[max(matches, key=len)] if matches else None


def _check_prior(name: str, prior: Any, space: Space, one_for_all: bool) -> None:
    """Raise unless the prior is a distribution of arrays of this shape in this space."""
    argument, shape, event = f"prior of {name!r}", tuple(prior.shape()), prior.event_dim
    fits = len(shape) <= space.ndim and event <= space.ndim
    fits = fits and all(a in (1, b) for a, b in zip(shape[::-1], space.shape[::-1], strict=False))
    fits = fits and shape[len(shape) - event :] == space.shape[space.ndim - event :]
    if not fits:
        raise BadInput(argument, f"shape {shape}", f"{space.shape}, or a shape that broadcasts to it")
    if not _has_support(prior, space):
        found = f"{type(prior).__name__}, with another support"
        remedy = "Give priors by name: Bayes({…}), for example HalfNormal for scales." if one_for_all else ""
        raise BadInput(argument, found, f"a distribution of {space.description()} ({space!r})", remedy)


def _has_support(prior: Any, space: Space) -> bool:
    """Whether the support of the prior is the space, at some points of both."""
    from numpyro.distributions import biject_to

    points = np.random.default_rng(0).normal(
        scale=2.0, size=(_PROBES, *space.bijection.inverse_shape(space.shape))
    )
    of_space = space.bijection(jnp.asarray(points))
    if not bool(jnp.all(prior.support(of_space))):
        return False
    if prior.support.is_discrete:
        return False
    to_support = biject_to(prior.support)
    points = np.random.default_rng(1).normal(
        scale=2.0, size=(_PROBES, *to_support.inverse_shape(space.shape))
    )
    return bool(np.all(space._is_valid(np.asarray(to_support(jnp.asarray(points))))))
