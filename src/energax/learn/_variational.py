"""Variational learning: a lower bound on log p(x) from draws of an encoder, trained with the energy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import distributions
from .._util.arrays import asarray
from ..batch import Batch, multiply_weight
from ..energy import Energy
from ..errors import BadInput, Unsuitable
from ..spaces import Binary, Categorical
from ._objective import Objective
from ._requirements import (
    check_joint,
    check_log_partition,
    check_missing,
    free_energy_problem,
    suggest_without_hidden,
)


class ELBO(Objective):
    """The negative evidence lower bound, or its importance-weighted form with S samples.

        −log (1/S) Σ_s w_s + log Z,    w_s = exp(−e(x, z_s)) / q(z_s | x),    z_s ~ q(· | x).

    S = 1 is the evidence lower bound E_q[−e] + H(q); S > 1 is tighter. A directed energy has
    log Z = 0.

    Args:
        encoder: q(z | x), the partner: `encoder(x=row)` returns a distribution over the one hidden
            variable with `sample` and `log_prob`. Use an encoder of `energax.nn`, or any function
            that returns a NumPyro distribution.
        samples: S, the number of draws per row.
        estimator: the gradient estimator: `Reparameterised()` (the default),
            `ScoreFunction(baseline=True)` or `GumbelSoftmax(temperature=0.5)`.

    Kingma and Welling (2014), Auto-encoding variational Bayes; Burda, Grosse and
    Salakhutdinov (2016), Importance weighted autoencoders.

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

    def __init__(self, encoder: Callable[..., Any], samples: int = 1, estimator: Any = None):
        if not isinstance(samples, int) or samples < 1:
            raise BadInput("samples", repr(samples), "a whole number >= 1")
        self.partner, self.samples = encoder, samples
        self.estimator = Reparameterised() if estimator is None else estimator

    def check(self, energy, data):
        check_joint(self, energy)
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
        check_log_partition(self, energy, instead)
        # Last, since it recommends another estimator of the same bound.
        self.estimator.check(energy, hidden[0])

    def __call__(self, energy, batch, carry, key):
        (name,) = [n for n in energy.spaces if n not in batch.data]

        def row(key, **row):
            q = _check_encoding(self.partner(**row), energy.spaces[name], name)
            return self.estimator.draw(energy, name, row, q, key, self.samples)

        energies, log_q = _fill_zero_weight_rows(batch).map_with_keys(row, key)
        correction = self.estimator.correction(-energies - log_q, log_q, batch.weight)
        if self.samples == 1:
            terms = {
                "energy": batch.mean(energies[:, 0] + correction),
                "negative entropy": batch.mean(log_q[:, 0]),
            }
        else:
            terms = {"negative bound": batch.mean(correction - _log_mean(-energies - log_q))}
        return {**terms, "log partition": energy.log_partition()}, carry


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


class Reparameterised(eqx.Module):
    """The reparameterisation gradient: z = g(noise; φ) is differentiated. For real hidden variables.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> from energax.energies import Decoder
    >>> from energax.nn import Encoder
    >>> row, energy = {"x": jnp.ones(4)}, Decoder.random(4, 2, key=1)
    >>> q = Encoder.random(4, 2, key=0)(**row)
    >>> energies, log_q = Reparameterised().draw(energy, "z", row, q, jax.random.key(0), 5)
    >>> energies.shape, log_q.shape
    ((5,), (5,))
    """

    def check(self, energy, name):
        space = energy.spaces[name]
        if not space.is_real:
            others = "GumbelSoftmax() or ScoreFunction()" if _is_relaxed(energy, name) else "ScoreFunction()"
            raise Unsuitable(
                f"The reparameterised ELBO needs a real hidden variable, but {name!r} is in {space!r}. "
                f"Pass estimator={others}."
            )

    def draw(self, energy, name, row, q, key, n):
        """(energies, log q) of n draws, (n,) each."""
        z = distributions.rsample(q, key, (n,))
        return jax.vmap(lambda z: energy(**row, **{name: z}))(z), q.log_prob(z)

    def correction(self, log_w, log_q, weight):
        """A term of value 0 whose gradient completes that of the bound; here none is needed."""
        return jnp.zeros(())


class ScoreFunction(eqx.Module):
    """The score-function gradient (REINFORCE) ∇E_q[L] = E_q[L ∇log q + ∇L], for any hidden variable.

    Args:
        baseline: whether to subtract from L a term that does not depend on the draw, which lowers
            the variance without bias: for one sample the mean of the other rows, for several the
            bound with this sample replaced by the geometric mean of the others.

    Williams (1992), Simple statistical gradient-following algorithms for connectionist
    reinforcement learning; Mnih and Rezende (2016), Variational inference for Monte Carlo
    objectives.

    >>> from energax.energies import RBM
    >>> from energax.nn import BernoulliEncoder
    >>> row, energy = {"x": jnp.ones(4)}, RBM.random(4, 3, key=1)
    >>> q = BernoulliEncoder.random(4, 3, key=0)(**row)
    >>> energies, log_q = ScoreFunction().draw(energy, "z", row, q, jax.random.key(0), 5)
    >>> energies.shape, log_q.shape
    ((5,), (5,))
    """

    baseline: bool = eqx.field(static=True, default=True)

    def check(self, energy, name):
        """Every hidden variable is supported."""

    def draw(self, energy, name, row, q, key, n):
        z = jax.lax.stop_gradient(q.sample(key, (n,)))
        z = z.astype(energy.spaces[name].jax_dtype)
        return jax.vmap(lambda z: energy(**row, **{name: z}))(z), q.log_prob(z)

    def correction(self, log_w, log_q, weight):
        bound = _log_mean(log_w)[:, None]
        if not self.baseline:
            advantage = bound
        elif log_w.shape[1] == 1:
            advantage = bound - _mean_of_others(bound[:, 0], weight)[:, None]
        else:
            advantage = bound - _bound_without_each(log_w)
        surrogate = jnp.sum(jax.lax.stop_gradient(advantage) * log_q, axis=1)
        return jax.lax.stop_gradient(surrogate) - surrogate


def _is_relaxed(energy: Energy, name: str) -> bool:
    """Whether the energy is defined for relaxed values of this variable."""
    space = energy.spaces[name]
    choice = isinstance(space, Categorical) and (space.shape == () or energy.knows("relaxed_energy"))
    return choice or isinstance(space, Binary)


class GumbelSoftmax(eqx.Module):
    """The Gumbel-softmax relaxation z = softmax((logits + Gumbel noise) / temperature).

    For categorical hidden variables and, with a sigmoid, for binary ones. The loss is a relaxation
    of the ELBO: it tends to the ELBO as the temperature goes to 0, and the variance of its gradient
    grows. The energy of relaxed values is its method `relaxed_energy`, if it has one. Otherwise a binary
    variable is passed to `__call__` as numbers in (0, 1), and the energy of a single categorical
    variable is interpolated: Σ_k s_k e(k).

    Args:
        temperature: of the relaxation, above 0.

    Jang, Gu and Poole (2017), Categorical reparameterization with Gumbel-softmax; Maddison,
    Mnih and Teh (2017), The concrete distribution.

    >>> from energax.energies import Decoder, UniformChoices
    >>> from energax.nn import CategoricalEncoder
    >>> row, energy = {"x": jnp.ones(4)}, Decoder.random(4, UniformChoices(3), key=1)
    >>> q = CategoricalEncoder.random(4, 3, key=0)(**row)
    >>> energies, log_q = GumbelSoftmax(0.5).draw(energy, "z", row, q, jax.random.key(0), 5)
    >>> energies.shape, log_q.shape
    ((5,), (5,))
    """

    temperature: float = 0.5

    def __check_init__(self):
        if isinstance(self.temperature, int | float) and not self.temperature > 0:
            raise BadInput("temperature", repr(self.temperature), "a number > 0")

    def check(self, energy, name):
        space = energy.spaces[name]
        if not _is_relaxed(energy, name):
            other = "Reparameterised" if space.is_real else "ScoreFunction"
            raise Unsuitable(
                f"GumbelSoftmax relaxes binary variables, a single categorical one, or several if the energy "
                f"has a method `relaxed_energy`; {name!r} of {type(energy).__name__} is in {space!r}. "
                f"Pass estimator={other}()."
            )

    def draw(self, energy, name, row, q, key, n):
        logits = distributions.logits(q)
        if isinstance(energy.spaces[name], Binary):
            noise = jax.random.logistic(key, (n, *logits.shape), logits.dtype)
            soft = jax.nn.sigmoid((logits + noise) / self.temperature)
            terms = soft * jax.nn.log_sigmoid(logits) + (1 - soft) * jax.nn.log_sigmoid(-logits)
        else:
            noise = jax.random.gumbel(key, (n, *logits.shape), logits.dtype)
            soft = jax.nn.softmax((logits + noise) / self.temperature)
            terms = soft * jax.nn.log_softmax(logits)
        log_q = terms.reshape(n, -1).sum(1)
        return jax.vmap(lambda s: _relaxed_energy(energy, name, row, s))(soft), log_q

    def correction(self, log_w, log_q, weight):
        return jnp.zeros(())


def _fill_zero_weight_rows(batch: Batch) -> Batch:
    """Copy the first row of positive weight into the rows of weight 0.

    If the encoder overflows at the values of such a row, its gradient is 0 × ∞, which is NaN. `fit`
    has already filled them on the host; this is for direct calls of an objective.
    """
    counts = batch.weight > 0
    first = jnp.argmax(counts)
    fill = lambda a: jnp.where(counts.reshape(-1, *[1] * (a.ndim - 1)), a, a[first])
    return Batch(jax.tree.map(lambda a: fill(asarray(a)), batch.data), batch.weight, batch.shards)


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


def _mean_of_others(values: Any, weight: Any) -> Any:
    """For every row the weighted mean of all other rows, which is independent of its own draw."""
    terms = multiply_weight(weight, values)
    others = weight.sum() - weight
    return jnp.where(others > 0, (terms.sum() - terms) / jnp.where(others > 0, others, 1), 0)


def _bound_without_each(log_w: Any) -> Any:
    """(n, S): the bound with sample s replaced by the geometric mean of the other samples."""
    n_samples = log_w.shape[1]
    others = (log_w.sum(1, keepdims=True) - log_w) / (n_samples - 1)
    own = jnp.eye(n_samples, dtype=bool)
    replaced = jnp.where(own, others[:, :, None], log_w[:, None, :])
    return jax.nn.logsumexp(replaced, axis=2) - jnp.log(n_samples)
