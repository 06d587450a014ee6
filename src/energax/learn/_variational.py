"""Variational learning: an encoder beside the energy, and a bound on log p(x) from its draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..batch import Batch
from ..errors import BadInput, Unsuitable
from ..spaces import Binary, Categorical
from ._objective import Objective
from ._requirements import (
    check_free_energy,
    check_joint,
    check_log_partition,
    check_marginals,
    has_log_partition,
)


class ELBO(Objective):
    """−log (1/S) Σ_s w_s, w_s = exp(−e(x, z_s)) / q(z_s | x), z_s ~ q(· | x); plus log Z.

    One sample is the evidence lower bound E_q[−e] + H(q); S > 1 the tighter,
    importance-weighted one. `encoder(x=…)`, for one row, is a distribution over the hidden
    variable with `sample` and `log_prob` (`nn.Encoder` and its kin, or any function that
    returns a NumPyro distribution); it is the partner. A directed energy has log Z = 0.

    Args:
        encoder: q(z | x), trained beside the energy.
        samples: S, the number of draws a row.
        estimator: how gradients pass through the draws: `Reparameterised()` (the default),
            `ScoreFunction(baseline=True)`, `GumbelSoftmax(temperature=0.5)`.

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
    'budget spent'
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
            raise Unsuitable(
                f"ELBO needs one hidden variable, but with {sorted(data)} given {type(energy).__name__} has "
                f"{hidden or 'none'}. With none, use NegativeLogLikelihood or ScoreMatching; with several, "
                "sum some out: energy.over(name)."
            )
        if not callable(self.partner):
            raise Unsuitable("ELBO needs an encoder beside the energy: ELBO(nn.Encoder.random(…)).")
        self.estimator.check(energy, hidden[0])
        check_marginals(self, energy, data)
        if not has_log_partition(energy):
            # Those that need no log Z sum out what is hidden, and say so where they cannot.
            check_free_energy(self, energy, data)
            check_log_partition(self, energy, "ContrastiveDivergence or NoiseContrastive")

    def __call__(self, energy, batch, carry, key):
        (name,) = [n for n in energy.spaces if n not in batch.data]

        def row(key, **row):
            q = _fitting(self.partner(**row), energy.spaces[name], name)
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


def _fitting(q: Any, space: Any, name: str) -> Any:
    """The encoder's answer, if it is one distribution over the whole of the hidden variable."""
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
    """z = g(noise; φ): the gradient goes through the draw. For real hidden variables."""

    def check(self, energy, name):
        if not energy.spaces[name].is_real:
            raise Unsuitable(
                f"The reparameterised ELBO needs a real hidden variable, but {name!r} lies in "
                f"{energy.spaces[name]!r}. Use ELBO(encoder, estimator=GumbelSoftmax()) or ScoreFunction()."
            )

    def draw(self, energy, name, row, q, key, n):
        """(energies, log q) of n draws."""
        z = q.rsample(key, (n,)) if hasattr(q, "rsample") else q.sample(key, (n,))
        return jax.vmap(lambda z: energy(**row, **{name: z}))(z), q.log_prob(z)

    def correction(self, log_w, log_q, weight):
        """A term of value 0 a row whose gradient completes that of the bound: none is needed."""
        return jnp.zeros(())


class ScoreFunction(eqx.Module):
    """∇E_q[L] = E_q[L ∇log q + ∇L] (REINFORCE): for any hidden variable, real or discrete.

    `baseline` takes from L what does not depend on the draw, and so lowers the variance
    without a bias: for one sample the mean of the other rows, for several the bound with this
    sample replaced by the geometric mean of the others.

    Williams (1992), Simple statistical gradient-following algorithms for connectionist
    reinforcement learning; Mnih and Rezende (2016), Variational inference for Monte Carlo
    objectives.
    """

    baseline: bool = eqx.field(static=True, default=True)

    def check(self, energy, name):
        """Every hidden variable will do."""

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


class GumbelSoftmax(eqx.Module):
    """z = softmax((logits + Gumbel noise) / temperature): a soft choice that has a gradient.

    For categorical hidden variables and, as a soft coin, for binary ones. The bound that is
    optimised is a relaxed one: it becomes the ELBO as the temperature goes to 0, where the
    variance of its gradient grows. The energy meets a soft choice in its method `relaxed`;
    without one, a binary variable goes to `__call__` as numbers in (0, 1), and the energy of a
    single categorical one is interpolated: Σ_k s_k e(k).

    Jang, Gu and Poole (2017), Categorical reparameterization with Gumbel-softmax; Maddison,
    Mnih and Teh (2017), The concrete distribution.
    """

    temperature: float = 0.5

    def __check_init__(self):
        if isinstance(self.temperature, int | float) and not self.temperature > 0:
            raise BadInput("temperature", repr(self.temperature), "a number > 0")

    def check(self, energy, name):
        space = energy.spaces[name]
        choice = isinstance(space, Categorical) and (space.shape == () or hasattr(energy, "relaxed"))
        if not (choice or isinstance(space, Binary)):
            raise Unsuitable(
                f"GumbelSoftmax relaxes binary variables, a single categorical one, or several if the energy "
                f"has a method `relaxed`; {name!r} of {type(energy).__name__} lies in {space!r}. "
                "Use ScoreFunction() for what is discrete, Reparameterised() for what is real."
            )

    def draw(self, energy, name, row, q, key, n):
        logits = getattr(q, "base_dist", q).logits
        if isinstance(energy.spaces[name], Binary):
            noise = jax.random.logistic(key, (n, *logits.shape), logits.dtype)
            soft = jax.nn.sigmoid((logits + noise) / self.temperature)
            each = soft * jax.nn.log_sigmoid(logits) + (1 - soft) * jax.nn.log_sigmoid(-logits)
        else:
            noise = jax.random.gumbel(key, (n, *logits.shape), logits.dtype)
            soft = jax.nn.softmax((logits + noise) / self.temperature)
            each = soft * jax.nn.log_softmax(logits)
        log_q = each.reshape(n, -1).sum(1)
        return jax.vmap(lambda s: _relaxed(energy, name, row, s))(soft), log_q

    def correction(self, log_w, log_q, weight):
        return jnp.zeros(())


def _fill_zero_weight_rows(batch: Batch) -> Batch:
    """Rows of weight 0 hold what the first row that counts holds.

    Theirs may be anything, and where a network overflows at it the gradient is 0 × ∞, not 0.
    """
    counts = batch.weight > 0
    first = jnp.argmax(counts)
    kept = lambda a: jnp.where(counts.reshape(-1, *[1] * (a.ndim - 1)), a, a[first])
    return Batch(jax.tree.map(lambda a: kept(jnp.asarray(a)), batch.data), batch.weight, batch.shards)


def _relaxed(energy: Any, name: str, row: dict[str, Any], soft: Any) -> Any:
    if hasattr(energy, "relaxed"):
        return energy.relaxed(**row, **{name: soft})
    space = energy.spaces[name]
    if isinstance(space, Binary):
        return energy(**row, **{name: soft})
    return soft @ jax.vmap(lambda z: energy(**row, **{name: z}))(space.values())


def _log_mean(log_w: Any) -> Any:
    return jax.nn.logsumexp(log_w, axis=1) - jnp.log(log_w.shape[1])


def _mean_of_others(values: Any, weight: Any) -> Any:
    """For every row the weighted mean of all other rows, which knows nothing of its draw."""
    kept = jnp.where(weight > 0, weight * values, 0)
    left = weight.sum() - weight
    return jnp.where(left > 0, (kept.sum() - kept) / jnp.where(left > 0, left, 1), 0)


def _bound_without_each(log_w: Any) -> Any:
    """(n, S): the bound with sample s replaced by the geometric mean of the other samples."""
    n_samples = log_w.shape[1]
    others = (log_w.sum(1, keepdims=True) - log_w) / (n_samples - 1)
    own = jnp.eye(n_samples, dtype=bool)
    replaced = jnp.where(own, others[:, :, None], log_w[:, None, :])
    return jax.nn.logsumexp(replaced, axis=2) - jnp.log(n_samples)
