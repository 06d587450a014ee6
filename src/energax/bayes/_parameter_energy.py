"""`ParameterEnergy`: an energy whose variables are the parameters of a model, given data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.sizes import number_of_rows
from ..batch import Batch
from ..energy import Energy
from ..learn import Objective
from ..parameters import parameter_spaces
from ..spaces import PositiveDefinite, Real, Semidefinite, Space, fixed


class ParameterEnergy(Energy):
    """e(θ) = −log p(θ) + β Σ_i w_i loss_i(θ): the negative log posterior of the parameters of a model.

    Made by `Bayes`. Its variables are the trainable parameters, by their dotted paths, such as "weight" or
    "emission.means"; their spaces are those declared by `parameter(…)`. exp(−e) integrates to the evidence
    p(data) if the prior is normalised, β = 1 and the loss is −log p(row).

    Args:
        model: the energy with θ; its values of the trainable parameters are where searches start.
        data: validated rows by name.
        weight: the weights of the rows, (n,).
        prior: distributions by the name of the parameter; flat for names without one.
        loss: the objective whose mean over rows, times the total weight, is the sum above.
        beta: β, the inverse temperature of the data.
        scale: the number of all rows divided by that of these rows, if they are a minibatch.
        names: the parameters that are variables.
    """

    model: Energy = fixed()
    data: dict[str, Any] = fixed()
    weight: jax.Array = fixed()
    prior: dict[str, Any] = fixed()
    loss: Objective = fixed()
    beta: Any = fixed(default=1.0)
    scale: Any = fixed(default=1.0)
    names: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def spaces(self) -> dict[str, Space]:
        return parameters_of(self.model, self.names)

    @property
    def flat(self) -> tuple[str, ...]:
        """The parameters with a flat prior, which is improper on an unbounded space."""
        return tuple(name for name in self.names if name not in self.prior)

    @property
    def n_rows(self) -> int:
        """The number of rows of the data."""
        return number_of_rows(self.data)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The real parameters of the model that are no variables."""
        arrays = zip(_paths(self.model), _arrays(self.model), strict=True)
        return tuple(k for k, v in arrays if k not in self.names and eqx.is_inexact_array(v))

    def read(self, model: Energy) -> dict[str, Any]:
        """Return the values of the variables in a model of the same structure, by name."""
        return {k: v for k, v in zip(_paths(model), _arrays(model), strict=True) if k in self.names}

    def starting_point(self):
        """Return the values of the parameters in the model, by name."""
        return self.read(self.model)

    def at(self, theta: Mapping[str, Any]) -> Energy:
        """Return the model with these values of its parameters."""
        leaves, structure = jax.tree.flatten(self.model)
        paths = iter(_paths(self.model))
        new = []
        for leaf in leaves:
            path = next(paths) if eqx.is_array(leaf) else None
            new.append(theta[path] if path in self.names else leaf)
        return jax.tree.unflatten(structure, new)

    def log_prior(self, **theta: Any) -> Any:
        """Return log p(θ), up to a constant where the prior is flat."""
        terms = [jnp.sum(prior.log_prob(theta[name])) for name, prior in self.prior.items()]
        return sum(terms) if terms else 0.0

    def data_loss(self, **theta: Any) -> Any:
        """Return Σ_i w_i loss_i(θ) of all rows; of a minibatch, an unbiased estimate of it."""
        batch = Batch(self.data, self.weight)
        terms, _ = self.loss(self.at(theta), batch, None, None)
        mean = sum(terms.values()) if isinstance(terms, dict) else terms
        return self.scale * mean * jnp.sum(self.loss.row_weights(batch))

    def __call__(self, **theta):
        return self.beta * self.data_loss(**theta) - self.log_prior(**theta)

    def minibatch(self, rows: Any) -> ParameterEnergy:
        """Return this energy with the given rows of the data instead of all, (m,) numbers of rows.

        Their loss is multiplied by n / m, so that for rows drawn at random the energy and its gradient have
        the mean of those of all rows.
        """
        data, weight = jax.tree.map(lambda a: a[rows], (self.data, self.weight))
        scale = self.scale * self.n_rows / jnp.shape(rows)[0]
        return ParameterEnergy(self.model, data, weight, self.prior, self.loss, self.beta, scale, self.names)

    def subsample(self, key, n):
        """Return the `minibatch` of `n` rows drawn at random, with replacement."""
        return self.minibatch(jax.random.randint(key, (n,), 0, self.n_rows))


def parameters_of(model: Energy, names: Any) -> dict[str, Space]:
    """Return the spaces of these parameters of a model, in the order of its leaves."""
    spaces: dict[str, Space] = {}
    for (path, space), leaf in zip(parameter_spaces(model), _arrays(model), strict=True):
        if path not in names:
            continue
        if isinstance(space, Semidefinite):
            # Singular matrices have probability 0 under any density.
            space = PositiveDefinite()
        spaces[path] = (Real() if space is None else space).with_shape(*leaf.shape)
    return spaces


def _paths(model: Energy) -> list[str]:
    return [path for path, _ in parameter_spaces(model)]


def _arrays(model: Energy) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(model) if eqx.is_array(leaf)]
