"""One energy, defined in ten lines, learned by four principles and compared by held-out log-likelihood."""

import jax
import jax.numpy as jnp
import optax
from jax import Array
from numpyro.distributions import Bernoulli

from energax import Binary, Energy, fit, log_partition, log_prob
from energax.data import digits
from energax.learn import ContrastiveDivergence, Descent, NegativeLogLikelihood, NoiseContrastive


class Machine(Energy):
    weight: Array
    bias: Array
    hidden_bias: Array

    @property
    def spaces(self):
        return {"x": Binary(self.bias.size), "z": Binary(self.hidden_bias.size)}

    def __call__(self, *, x, z):
        return -(x @ self.weight @ z) - x @ self.bias - z @ self.hidden_bias

    # The ten lines end here. The methods below are optional closed forms, which make it fast.

    def free_energy(self, *, x=None, z=None):
        if z is None:
            return -x @ self.bias - jax.nn.softplus(x @ self.weight + self.hidden_bias).sum()
        return -z @ self.hidden_bias - jax.nn.softplus(self.weight @ z + self.bias).sum()

    def conditional(self, name, *, x=None, z=None):
        field = x @ self.weight + self.hidden_bias if name == "z" else self.weight @ z + self.bias
        return Bernoulli(logits=field)


def main() -> dict[str, float]:
    pixels = digits().values
    train, test = {"x": pixels[:1400]}, {"x": pixels[1400:]}
    on = (train["x"].sum(0) + 0.5) / 1401
    weight = 0.01 * jax.random.normal(jax.random.key(0), (64, 12))
    machine = Machine(weight, jnp.log(on / (1 - on)), jnp.zeros(12))

    principles = {
        "exact likelihood": (NegativeLogLikelihood(), 0.01, 250),
        "contrastive divergence": (ContrastiveDivergence(k=1), 0.01, 250),
        "persistent chains": (ContrastiveDivergence(k=1, persistent=True), 0.01, 250),
        "noise contrastive": (NoiseContrastive.matched(machine, train, k=20), 0.02, 300),
    }
    found = {}
    print(f"{'principle':24}{'test nats per digit':>28}{'log Z':>10}{'seconds':>9}")
    for name, (objective, rate, epochs) in principles.items():
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, 14 * epochs))
        result = fit(machine, train, Descent(objective, optimizer), epochs=epochs, batch_size=100, key=0)
        score = log_prob(result.energy, test).mean()
        log_z = float(log_partition(result.energy))
        print(f"{name:24}{score!r:>28}{log_z:10.2f}{result.seconds:9.1f}")
        found[name] = float(score)
    print(f"\nlog Z learned by noise contrastive estimation: {float(result.partner):.2f}")
    return found | {"error of log Z": float(result.partner) - log_z}


if __name__ == "__main__":
    main()
