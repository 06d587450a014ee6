"""An encoder refined by gradient steps on the bound of every row, and the gap of the bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import FUNCTION, POSITIVE_NUMBER, SEED, check_arguments, instance
from ..._util.printing import pretty_repr
from ...energy import Energy
from ...errors import Unsuitable, check_whole_number


class RefinedEncoder(eqx.Module):
    """A Gaussian encoder whose q(z | x) is improved for every row by gradient steps on the ELBO of this row.

    An encoder that is trained on all rows is not the best q for each of them (the amortisation gap), least of
    all for new rows. The steps start from the encoder's q and use the same noise throughout, so that the
    ELBO is a smooth function of the mean and the scale. If fresh noise finds the result worse than the start,
    the start is kept. It takes the place of the encoder: `Importance(RefinedEncoder(encoder, energy))`.

    Args:
        encoder: q(z | x), normal with independent coordinates, such as `nn.Encoder`.
        energy: the energy over x and one real hidden variable.
        n_steps: gradient steps, by Adam.
        n_draws: draws of z in every step, an even number.
        learning_rate: the step size, in standard deviations of the start.
        seed: of the noise.

    Kim et al. (2018), Semi-amortized variational autoencoders; Cremer, Li and Duvenaud (2018), Inference
    suboptimality in variational autoencoders.

    >>> from energax.energies import Decoder, Gaussian
    >>> from energax.nn import Encoder
    >>> line = Decoder(lambda z: jnp.concatenate([z, z]), 1, Gaussian(0.5))      # p(z | x) = N(8 / 9, 1 / 9)
    >>> refined = RefinedEncoder(Encoder.random(2, 1, key=0), line, n_steps=200)
    >>> round(float(refined(x=jnp.ones(2)).mean[0]), 2)
    0.89
    """

    encoder: Callable[..., Any]
    energy: Energy
    n_steps: int = eqx.field(static=True, default=20)
    n_draws: int = eqx.field(static=True, default=32)
    learning_rate: float = eqx.field(static=True, default=0.05)
    seed: int = eqx.field(static=True, default=0)

    def __repr__(self) -> str:
        return pretty_repr(self)

    def __check_init__(self):
        check_whole_number("n_steps", self.n_steps)
        check_whole_number("n_draws", self.n_draws, 2)
        check_arguments(self, encoder=FUNCTION, energy=instance(Energy, "an energy"))
        check_arguments(self, learning_rate=POSITIVE_NUMBER, seed=SEED)

    def __call__(self, **given: Any) -> Any:
        from numpyro.distributions import Normal

        start = _normal_base(self.encoder(**given))
        name = self._hidden_name(given)
        optimise, compare = jax.random.split(jax.random.key(self.seed))
        shape, dtype = start.loc.shape, start.loc.dtype
        loss = lambda parameters, noise: self._negative_elbo(parameters, start, noise, given, name)
        noise = _balanced_noise(optimise, self.n_draws, shape, dtype)
        found = self._descend(lambda p: loss(p, noise), jnp.zeros((2, *shape), dtype))
        fresh = jax.random.normal(compare, (self.n_draws, *shape), dtype)
        better = loss(found, fresh) < loss(jnp.zeros_like(found), fresh)
        shift, stretch = jnp.where(better, found, 0)
        return Normal(start.loc + start.scale * shift, start.scale * jnp.exp(stretch)).to_event(len(shape))

    def _hidden_name(self, given: dict[str, Any]) -> str:
        hidden = [name for name in self.energy.spaces if name not in given]
        if len(hidden) != 1 or not self.energy.spaces[hidden[0]].is_real:
            raise Unsuitable(
                f"RefinedEncoder needs one real hidden variable, but with {sorted(given)} given "
                f"{type(self.energy).__name__} has {hidden or 'none'}. Use the encoder itself."
            )
        return hidden[0]

    def _negative_elbo(
        self, parameters: Any, start: Any, noise: Any, given: dict[str, Any], name: str
    ) -> Any:
        """Mean of e + log q over the draws; parameters: shift and log-scale relative to the start, (2, …)."""
        shift, stretch = parameters
        z = start.loc + start.scale * (shift + jnp.exp(stretch) * noise)
        energies = jax.vmap(lambda z: self.energy(**given, **{name: z}))(z)
        return energies.mean() - stretch.sum()

    def _descend(self, loss: Callable[[Any], Any], parameters: Any) -> Any:
        import optax

        optimizer = optax.adam(optax.cosine_decay_schedule(self.learning_rate, self.n_steps, 0.1))

        def step(both, _):
            parameters, state = both
            updates, state = optimizer.update(jax.grad(loss)(parameters), state)
            return (optax.apply_updates(parameters, updates), state), None

        (parameters, _), _ = jax.lax.scan(step, (parameters, optimizer.init(parameters)), length=self.n_steps)
        return parameters


def _balanced_noise(key: Any, n: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """Standard normal draws with mean 0 and variance 1 in every coordinate.

    With these the terms of the ELBO that are quadratic in one coordinate have no error.
    """
    half = jax.random.normal(key, (max(1, n // 2), *shape), dtype)
    half = half / jnp.sqrt(jnp.mean(half**2, axis=0))
    return jnp.concatenate([half, -half])


def _normal_base(q: Any) -> Any:
    """The normal distribution of independent coordinates inside q; raise for any other q."""
    from numpyro.distributions import Independent, Normal

    base = q.base_dist if isinstance(q, Independent) else q
    if not isinstance(base, Normal):
        raise Unsuitable(
            f"RefinedEncoder needs an encoder with independent normal coordinates, not "
            f"{type(base).__name__}. Use nn.Encoder."
        )
    return base
