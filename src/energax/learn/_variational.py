"""Variational learning: a lower bound on log p(x) from draws of an encoder, trained with the energy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .._util.arguments import FUNCTION, NONE, WEIGHT_SCALAR, WHOLE, check_arguments, instance, is_real
from ..batch import Batch
from ..energy import Energy
from ..errors import BadInput, EnergaxError, Unsuitable, describe
from ..missing import value_of
from ..spaces import Binary, Categorical
from ._baselines import ConstantBaseline, LeaveOneOut, as_baseline, mean_of_others, zero_with_scores
from ._expectation import GradientEstimator, Reparameterised
from ._objective import Objective
from ._requirements import (
    check_inputs,
    check_joint,
    check_log_partition,
    check_missing,
    free_energy_problem,
    suggest_without_hidden,
)

_ACTIVE = 0.01


class ELBO(Objective):
    """The negative evidence lower bound, or its importance-weighted form with S samples.

        −log (1/S) Σ_s w_s + log Z,    w_s = exp(−e(x, z_s)) / q(z_s | x),    z_s ~ q(· | x).

    S = 1 is the evidence lower bound E_q[−e] + H(q); S > 1 is tighter. A directed energy has
    log Z = 0. An energy with inputs y, such as `ConditionalDecoder`, has the bound on log p(x | y).

    With β the loss of a directed energy is E_q[−log p(x | z)] + β KL(q(z | x) ‖ p(z)): β > 1 makes hidden
    variables independent, a β that rises from 0 to 1 prevents their collapse early in learning. The history
    then has the term "beta", (β − 1) KL, beside those of the bound.

    Args:
        encoder: q(z | x), the partner: `encoder(x=row)` returns a distribution over the one hidden
            variable with `sample` and `log_prob`. Use an encoder of `energax.nn`, or any function
            that returns a NumPyro distribution.
        samples: S, the number of draws per row.
        estimator: the gradient estimator: `Reparameterised()` (the default), `ScoreFunction(baseline=True)`,
            `GumbelSoftmax(temperature=0.5)` or `StraightThrough()`.
        beta: β, a number, or a function from the number of the step to one, such as
            `optax.linear_schedule(0.0, 1.0, 1000)`. Validation rows are scored with the number, or with 1.

    Kingma and Welling (2014), Auto-encoding variational Bayes; Burda, Grosse and
    Salakhutdinov (2016), Importance weighted autoencoders; Higgins et al. (2017), β-VAE: learning basic
    visual concepts with a constrained variational framework.

    >>> import optax
    >>> from energax import fit
    >>> from energax.energies import Decoder
    >>> from energax.learn import Descent
    >>> from energax.nn import Encoder
    >>> X = jnp.tile(jnp.array([1.0, 1.0, 0.0, 0.0]), (8, 1))
    >>> learner = Descent(ELBO(Encoder.random(4, 2, key=0)), optax.adam(0.01))
    >>> fit(Decoder.random(4, 2, key=1), {"x": X}, learner, epochs=3, key=2).status
    'reached max_iter'
    """

    samples: int = eqx.field(static=True)
    estimator: Any
    beta: Any

    def __init__(self, encoder: Callable[..., Any], samples: int = 1, estimator: Any = None, beta: Any = 1.0):
        estimators = instance(GradientEstimator, "a gradient estimator of energax.learn") | NONE
        check_arguments(locals(), encoder=FUNCTION | NONE, samples=WHOLE, estimator=estimators)
        if not callable(beta):
            expected = "a number >= 0, or a function of the step"
            check_arguments(locals(), beta=dataclasses.replace(WEIGHT_SCALAR, expected=expected))
        self.partner, self.samples, self.beta = encoder, samples, beta
        self.estimator = Reparameterised() if estimator is None else estimator
        if samples > 1 and self._has_beta:
            found = f"samples={samples} with beta={beta!r}"
            raise BadInput("samples", found, "1: with several samples the bound has no KL term")

    @property
    def _has_beta(self) -> bool:
        return not (is_real(self.beta) and self.beta == 1)

    def init(self, energy, batch, key):
        """The number of steps, if β depends on it."""
        return jnp.zeros((), jnp.int32) if callable(self.beta) else None

    def validate(self, energy, batch, carry, key):
        fixed = ELBO(self.partner, self.samples, self.estimator) if callable(self.beta) else self
        return fixed(energy, batch, None, key)[0]

    def monitor(self, energy, batch):
        """The active units: those of z whose mean under q(z | x) has a variance over rows above 0.01."""
        (name,) = [n for n in energy.spaces if n not in batch.data]
        if not energy.spaces[name].is_real:
            return {}
        try:
            means = batch.fill().map(lambda **row: self.partner(**row).mean)
        except (AttributeError, NotImplementedError):  # a distribution of the caller may have no mean
            return {}
        return {"active units": count_active(means, batch.weight)}

    def check(self, energy, data):
        hidden = [n for n in energy.spaces if n not in data]
        if len(hidden) != 1:
            instead = "Sum some out: energy.over(name)" if hidden else suggest_without_hidden(energy, data)
            raise Unsuitable(
                f"ELBO needs one hidden variable, but with {sorted(data)} given {type(energy).__name__} has "
                f"{hidden or 'none'}. {instead}."
            )
        if not callable(self.partner):
            raise Unsuitable("ELBO needs an encoder. Pass one, such as nn.Encoder.random(…).")
        check_missing(self, energy, data)
        # Objectives that need no log Z have to sum out the hidden variable.
        instead = "Use ContrastiveDivergence or NoiseContrastive."
        if free_energy_problem(energy, data) is not None:
            instead = (
                f"Give the energy `log_partition`; or `free_energy`, which sums out {hidden[0]!r}, and use "
                "ContrastiveDivergence or NoiseContrastive."
            )
        if energy.inputs:
            self._check_inputs(energy, data)
        else:
            check_log_partition(self, energy, instead)
        _check_encoder(self.partner, data)
        if self._has_beta and not energy.knows("free_energy", {hidden[0], *energy.inputs}):
            raise Unsuitable(
                f"ELBO(beta=) needs log p({hidden[0]}), which {type(energy).__name__} does not have in "
                "closed form. Use beta=1."
            )
        # Last, since it recommends another estimator of the same bound.
        _check_estimator(self.estimator, energy, hidden[0])

    def _check_inputs(self, energy: Energy, data: Any) -> None:
        check_inputs(self, energy, data)
        if not energy.knows("free_energy", energy.inputs):
            # A classifier has none: with all of its other variables hidden, log Z is a sum over them.
            check_joint(self, energy)

    def __call__(self, energy, batch, carry, key):
        (name,) = [n for n in energy.spaces if n not in batch.data]
        if energy.knows("with_encoder"):
            energy = energy.with_encoder(self.partner)

        def row(key, **row):
            q = _check_encoding(self.partner(**row), energy.spaces[name], name)
            z, log_q = self.estimator.sample(q, key, self.samples)
            energies = energies_of_draws(self.estimator, energy, name, row, z)
            return energies, log_q, self._log_prior(energy, name, row, z)

        energies, log_q, log_prior = batch.fill().map_with_keys(row, key)
        beta, carry = (self.beta(carry), carry + 1) if callable(self.beta) else (self.beta, carry)
        excess = (beta - 1) * (log_q - log_prior) if self._has_beta else jnp.zeros_like(log_q)
        correction = self._correction(-energies - log_q - excess, log_q, batch.weight)
        if self.samples == 1:
            terms = {
                "energy": batch.mean(energies[:, 0] + correction),
                "negative entropy": batch.mean(log_q[:, 0]),
            }
            if self._has_beta:
                terms["beta"] = batch.mean(excess[:, 0])
        else:
            terms = {"negative bound": batch.mean(correction - _log_mean(-energies - log_q))}
        return {**terms, "log partition": self._log_partition(energy, batch)}, carry

    def _log_prior(self, energy: Energy, name: str, row: Any, z: Any) -> Any:
        """log p(z) of the draws, (S,); zeros where β is 1, which does not use them."""
        if not self._has_beta:
            return jnp.zeros(())
        inputs = {k: row[k] for k in energy.inputs}
        return -jax.vmap(lambda z: energy.free_energy(**inputs, **{name: z}))(z)

    def _log_partition(self, energy: Energy, batch: Batch) -> Any:
        if not energy.inputs:
            return energy.log_partition()
        return -batch.mean(batch.map(lambda **row: energy.free_energy(**{k: row[k] for k in energy.inputs})))

    def _correction(self, log_w, log_q, weight):
        """Return a term 0 of every row whose gradient completes that of the loss, where draws have no paths.

        The bound is a function of all samples of a row, so that the scores of all are multiplied by it, less
        a baseline that does not depend on the own sample.
        """
        if self.estimator.has_paths:
            return jnp.zeros(())
        bound = _log_mean(log_w)[:, None]
        baseline = as_baseline(self.estimator.baseline)
        if baseline is None:
            advantage = bound
        elif isinstance(baseline, ConstantBaseline):
            advantage = bound - baseline.value
        elif self.samples == 1:
            advantage = bound - mean_of_others(bound[:, 0], weight)[:, None]
        else:
            advantage = bound - _bound_without_each(log_w)
        return -zero_with_scores(advantage, log_q)


def count_active(means: Any, weight: Any) -> Any:
    """The number of units whose mean under q(z | x), (n, …), varies over the rows: a variance above 0.01.

    Burda, Grosse and Salakhutdinov (2016), Importance weighted autoencoders.

    >>> count_active(jnp.array([[0.0, 1.0], [0.01, -1.0]]), jnp.ones(2))
    Array(1., dtype=float32)
    """
    means = means.reshape(len(means), -1)
    share = weight[:, None] / jnp.maximum(jnp.sum(weight), jnp.finfo(weight.dtype).tiny)
    centred = means - jnp.sum(share * means, axis=0)
    return jnp.sum(jnp.sum(share * centred**2, axis=0) > _ACTIVE).astype(means.dtype)


def _check_encoder(encoder: Any, data: Any) -> None:
    """Raise `BadInput` if the encoder does not take rows of the data."""
    row = {
        name: jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), value)
        for name, value in data.items()
    }
    try:
        eqx.filter_eval_shape(lambda row: encoder(**row), row)
    except EnergaxError:
        raise
    except (TypeError, ValueError, IndexError) as error:
        shapes = ", ".join(f"{name} of shape {value_of(of).shape}" for name, of in row.items())
        found = f"{describe(encoder)}, which fails for {shapes} ({str(error).splitlines()[0]:.80})"
        raise BadInput("encoder", found, f"a function of {', '.join(row)}, one row each") from error


def _check_encoding(q: Any, space: Any, name: str) -> Any:
    """Return q if it is one distribution over the whole hidden variable, else raise `BadInput`."""
    shapes = getattr(q, "batch_shape", ()), getattr(q, "event_shape", space.shape)
    if shapes != ((), space.shape):
        raise BadInput(
            "encoder",
            f"a distribution of batch shape {shapes[0]} and event shape {shapes[1]}",
            f"() and {space.shape}: one distribution over all of {name!r}",
            f"Try .to_event({len(space.shape)}).",
        )
    return q


def _check_estimator(estimator: Any, energy: Energy, name: str) -> None:
    """Raise `Unsuitable` if the estimator has no gradient for this hidden variable."""
    space = energy.spaces[name]
    if estimator.is_relaxed:
        if not _has_relaxation(energy, name):
            other = "Reparameterised" if space.is_real else "ScoreFunction"
            raise Unsuitable(
                f"{type(estimator).__name__} relaxes binary variables, a single categorical one, or several "
                f"if the energy has a method `relaxed_energy`; {name!r} of {type(energy).__name__} is in "
                f"{space!r}. "
                f"Pass estimator={other}()."
            )
    elif estimator.has_paths:
        if not space.is_real:
            others = (
                "GumbelSoftmax() or ScoreFunction()" if _has_relaxation(energy, name) else "ScoreFunction()"
            )
            raise Unsuitable(
                f"The reparameterised ELBO needs a real hidden variable, but {name!r} is in {space!r}. "
                f"Pass estimator={others}."
            )
    elif not isinstance(as_baseline(estimator.baseline), ConstantBaseline | LeaveOneOut | None):
        raise Unsuitable(
            f"ELBO does not support {type(estimator.baseline).__name__}. Pass estimator=ScoreFunction(): its "
            "baseline is made of the other rows or samples."
        )


def _has_relaxation(energy: Energy, name: str) -> bool:
    """Whether the energy is defined for relaxed values of this variable."""
    space = energy.spaces[name]
    choice = isinstance(space, Categorical) and (space.shape == () or energy.knows("relaxed_energy"))
    return choice or isinstance(space, Binary)


def energies_of_draws(
    estimator: GradientEstimator, energy: Energy, name: str, row: dict[str, Any], z: Any
) -> Any:
    """The energies (n,) of n draws of the hidden variable."""
    if estimator.is_relaxed:
        return jax.vmap(lambda s: _relaxed_energy(energy, name, row, s))(z)
    if not estimator.has_paths:
        z = z.astype(energy.spaces[name].jax_dtype)
    return jax.vmap(lambda z: energy(**row, **{name: z}))(z)


def _relaxed_energy(energy: Any, name: str, row: dict[str, Any], soft: Any) -> Any:
    """The energy at relaxed values: by its method `relaxed_energy`, or as `GumbelSoftmax` describes."""
    if energy.knows("relaxed_energy"):
        return energy.relaxed_energy(**row, **{name: soft})
    space = energy.spaces[name]
    if isinstance(space, Binary):
        return energy(**row, **{name: soft})
    return soft @ jax.vmap(lambda z: energy(**row, **{name: z}))(space.values())


def _log_mean(log_w: Any) -> Any:
    """log of the mean weight over the samples of every row, (n,)."""
    return jax.nn.logsumexp(log_w, axis=1) - jnp.log(log_w.shape[1])


def _bound_without_each(log_w: Any) -> Any:
    """(n, S): the bound with sample s replaced by the geometric mean of the other samples."""
    n_samples = log_w.shape[1]
    others = (log_w.sum(1, keepdims=True) - log_w) / (n_samples - 1)
    own = jnp.eye(n_samples, dtype=bool)
    replaced = jnp.where(own, others[:, :, None], log_w[:, None, :])
    return jax.nn.logsumexp(replaced, axis=2) - jnp.log(n_samples)
