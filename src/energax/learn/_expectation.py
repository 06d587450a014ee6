"""Gradients of expectations: estimators of ∇ E_q[f(z)] in the parameters of the distribution q."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .. import distributions
from .._util.arguments import NONE, POSITIVE_SCALAR, check_arguments
from ..errors import BadInput, Unsuitable, check_whole_number
from ._baselines import ConstantBaseline, as_baseline

_stop = jax.lax.stop_gradient


class GradientEstimator(eqx.Module):
    """The base of estimators of ∇_φ E_{q_φ}[f(z)] from n draws.

    `surrogate` returns the mean of f over the draws; its gradient is the estimate. A subclass implements
    `sample` and, if draws do not carry all of the gradient, `score_term`.
    """

    #: Whether draws are relaxed or one-hot vectors in place of categories.
    is_relaxed: ClassVar[bool] = False

    #: Whether draws are differentiable functions of the parameters.
    has_paths: ClassVar[bool] = True

    def surrogate(
        self, f: Callable[[Any], Any], distribution: Any, key: Any, n: int = 1, *, context: Any = None
    ) -> Any:
        """Return (1/n) Σ_i f(z_i) with z_i ~ q, a scalar whose gradient estimates ∇ E_q[f(z)].

        Parameters of f are differentiated too: the gradient is that of q and f together.

        Args:
            f: a function of one draw that returns a scalar.
            distribution: q, a NumPyro distribution over one z, without batch axes.
            key: a JAX key.
            n: the number of draws.
            context: what a `LearnedBaseline` is a function of.
        """
        check_whole_number("n", n)
        check_unbatched("distribution", distribution)
        self.check_distribution(distribution)
        z, log_q = self.sample(distribution, key, n)
        values = jax.vmap(f)(z)
        if jnp.shape(values) != (n,):
            raise BadInput("f", f"a value of shape {jnp.shape(values)[1:]}", "a scalar for one draw")
        return values.mean() + self.score_term(values, distribution, z, log_q, context)

    def check_distribution(self, distribution: Any) -> None:
        """Raise `Unsuitable` if this estimator has no gradient for the distribution."""

    def sample(self, distribution: Any, key: Any, n: int) -> tuple[Any, Any]:
        """Return n draws (n, …) and their log q (n,)."""
        raise NotImplementedError

    def score_term(self, values: Any, distribution: Any, z: Any, log_q: Any, context: Any = None) -> Any:
        """Return a number 0 whose gradient completes that of the mean of the values."""
        return jnp.zeros((), values.dtype)


class Reparameterised(GradientEstimator):
    """The reparameterisation gradient: z = g(noise; φ) is differentiated, and ∇ E[f] = E[∇ f(g(noise; φ))].

    For real variables and a differentiable f; unbiased, and often of much lower variance than scores.

    Kingma and Welling (2014), Auto-encoding variational Bayes.

    >>> from numpyro.distributions import Normal
    >>> loss = lambda mean: Reparameterised().surrogate(jnp.sin, Normal(mean, 1.0), jax.random.key(0), 4000)
    >>> round(float(jax.grad(loss)(0.0)), 1)                # E[cos z] = exp(−½) = 0.607
    0.6
    """

    def check_distribution(self, distribution):
        paths = getattr(distribution, "has_rsample", None)
        if distributions.is_discrete(distribution) or paths is False:
            raise Unsuitable(
                f"Reparameterised needs draws with a gradient, which {_name(distribution)} does not have. "
                "Use ScoreFunction()."
            )

    def sample(self, distribution, key, n):
        return distributions.rsample_and_log_prob(distribution, key, (n,))


class ScoreFunction(GradientEstimator):
    """The score-function gradient (REINFORCE) ∇E_q[f] = E_q[(f − b) ∇log q + ∇f], for any variable; unbiased.

    Args:
        baseline: b, which does not depend on the draw and lowers the variance: True is `LeaveOneOut()`, the
            mean of the other draws; False is none; a number is the same for all draws; or
            `OptimalBaseline()`, or `LearnedBaseline(value)`. In an `ELBO`, True is for one sample the
            mean of the other rows, for several the bound with this sample replaced by the geometric mean
            of the others.

    Williams (1992), Simple statistical gradient-following algorithms for connectionist
    reinforcement learning; Mnih and Rezende (2016), Variational inference for Monte Carlo
    objectives.

    >>> from numpyro.distributions import Bernoulli
    >>> f = lambda z: 3.0 * z
    >>> loss = lambda p: ScoreFunction().surrogate(f, Bernoulli(probs=p), jax.random.key(0), 40_000)
    >>> round(float(jax.grad(loss)(0.3)), 1)                # E[f] = 3 p
    3.0
    """

    baseline: Any = True

    has_paths = False

    def __check_init__(self):
        as_baseline(self.baseline)

    def sample(self, distribution, key, n):
        z = _stop(distribution.sample(key, (n,)))
        return z, distributions.log_prob(distribution, z)

    def score_term(self, values, distribution, z, log_q, context=None):
        baseline = as_baseline(self.baseline) or ConstantBaseline(0.0)
        return baseline.score_term(values, distribution, z, log_q, context)


class GumbelSoftmax(GradientEstimator):
    """The Gumbel-softmax relaxation z = softmax((logits + Gumbel noise) / temperature).

    For categorical variables, whose draws are vectors of K weights that sum to 1, and, with a sigmoid, for
    binary ones, whose draws are numbers in (0, 1). f takes such values. The gradient is that of E[f(z)] of
    the relaxed z, which tends to that of the discrete one as the temperature goes to 0, while the variance
    grows. In an `ELBO`, the energy of relaxed values is its method `relaxed_energy`, if it has one. Otherwise
    a binary variable is passed to `__call__` as numbers in (0, 1), and the energy of a single categorical
    variable is interpolated: Σ_k s_k e(k).

    Args:
        temperature: of the relaxation, above 0.

    Jang, Gu and Poole (2017), Categorical reparameterization with Gumbel-softmax; Maddison,
    Mnih and Teh (2017), The concrete distribution.

    >>> from numpyro.distributions import Categorical
    >>> cost = jnp.array([1.0, 2.0, 4.0])
    >>> q = Categorical(logits=jnp.zeros(3))
    >>> GumbelSoftmax(0.5).surrogate(lambda z: z @ cost, q, jax.random.key(0), 4000).round(1)
    Array(2.3, dtype=float32)
    """

    temperature: float = 0.5

    is_relaxed = True

    def __check_init__(self):
        check_arguments(self, temperature=POSITIVE_SCALAR)

    def check_distribution(self, distribution):
        _check_logits(self, distribution)

    def sample(self, distribution, key, n):
        logits = distributions.logits(distribution)
        binary = distributions.is_binary(distribution)
        z = _relax(_add_noise(logits, binary, key, n), binary, self.temperature)
        return z, _relaxed_log_prob(logits, binary, z)


class StraightThrough(GradientEstimator):
    """The straight-through gradient: draws are discrete, and the gradient is that of a relaxation; biased.

    Draws of categorical variables are one-hot vectors, those of binary ones 0 and 1. f sees these values,
    and its derivative there is multiplied by that of the probabilities, or of the `GumbelSoftmax` with the
    same noise. It is unbiased only where f is linear.

    Args:
        temperature: of the Gumbel-softmax; None takes the gradient of the probabilities.

    Bengio, Léonard and Courville (2013), Estimating or propagating gradients through stochastic neurons
    for conditional computation; Jang, Gu and Poole (2017), Categorical reparameterization with
    Gumbel-softmax.

    >>> from numpyro.distributions import Bernoulli
    >>> f = lambda z: 3.0 * z
    >>> loss = lambda p: StraightThrough().surrogate(f, Bernoulli(probs=p), jax.random.key(0), 9)
    >>> round(float(jax.grad(loss)(0.3)), 3)                # exact, since f is linear
    3.0
    """

    temperature: float | None = None

    is_relaxed = True

    def __check_init__(self):
        check_arguments(self, temperature=POSITIVE_SCALAR | NONE)

    def check_distribution(self, distribution):
        _check_logits(self, distribution)

    def sample(self, distribution, key, n):
        logits = distributions.logits(distribution)
        binary = distributions.is_binary(distribution)
        noisy = _add_noise(logits, binary, key, n)
        soft = (
            _relax(logits, binary, 1.0)
            if self.temperature is None
            else _relax(noisy, binary, self.temperature)
        )
        if binary:
            hard = (noisy > 0).astype(logits.dtype)
        else:
            hard = jax.nn.one_hot(jnp.argmax(noisy, -1), logits.shape[-1], dtype=logits.dtype)
        z = hard + (soft - _stop(soft))
        return z, _relaxed_log_prob(logits, binary, z)


# -- relaxations -----------------------------------------------------------------------------------


def _add_noise(logits: Any, binary: bool, key: Any, n: int) -> Any:
    """Return logits plus noise whose largest entry, or sign if binary, is an exact draw, (n, …)."""
    noise = jax.random.logistic if binary else jax.random.gumbel
    return logits + noise(key, (n, *logits.shape), logits.dtype)


def _relax(scores: Any, binary: bool, temperature: Any) -> Any:
    return (jax.nn.sigmoid if binary else jax.nn.softmax)(scores / temperature)


def _relaxed_log_prob(logits: Any, binary: bool, z: Any) -> Any:
    """Return log q, linear in relaxed values: Σ z log p (n,)."""
    if binary:
        terms = z * jax.nn.log_sigmoid(logits) + (1 - z) * jax.nn.log_sigmoid(-logits)
    else:
        terms = z * jax.nn.log_softmax(logits)
    return terms.reshape(len(z), -1).sum(1)


# -- checks ----------------------------------------------------------------------------------------


def check_unbatched(argument: str, distribution: Any) -> None:
    """Raise `BadInput` if the distribution has batch axes: several distributions instead of one."""
    shape = getattr(distribution, "batch_shape", ())
    if shape != ():
        found = f"a distribution of batch shape {shape}"
        raise BadInput(
            argument, found, "one distribution, of batch shape ()", f"Try .to_event({len(shape)})."
        )


def _check_logits(estimator: GradientEstimator, distribution: Any) -> None:
    if not distributions.has_logits(distribution):
        other = "ScoreFunction" if distributions.is_discrete(distribution) else "Reparameterised"
        raise Unsuitable(
            f"{_name(estimator)} needs a Bernoulli or categorical distribution, not {_name(distribution)}. "
            f"Use {other}()."
        )


def _name(part: Any) -> str:
    return type(part).__name__
