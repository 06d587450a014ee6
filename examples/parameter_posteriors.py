"""One posterior, many methods: four models over whose parameters NUTS, SGLD, Laplace, … all draw.

`Bayes(prior)(model, rows)` is an energy over the parameters of any model: here a logistic regression, a
mixture, a hidden Markov chain and a small network. NUTS, SGLD, Laplace's method and a variational Gaussian
read the same energy, and bagging or an ensemble of fits gives further draws. All of them become predictions
in the same way.

Components, hidden states and hidden units can be exchanged. Chains may then settle in different orders, and
R̂ of the parameters is of no use. `Predictive.apply` evaluates what does not depend on the order: sorted
means, or a value of the network. Predictions do not depend on it either. Refits use no prior. Laplace's
method may be far off for a network, whose posterior is far from a Gaussian in the weights.

Gelman et al. (2013), Bayesian data analysis; Betancourt (2017), Identifying Bayesian mixture models. `python
examples/parameter_posteriors.py posteriors.png` also draws the picture.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpyro.distributions import Dirichlet, InverseGamma, Normal, Wishart

import energax
from energax import Mixture
from energax.bayes import bagging, deep_ensemble
from energax.energies import (
    Bernoulli,
    Diagonal,
    Gaussian,
    Gaussians,
    HiddenChain,
    LinearModel,
    NeuralRegressor,
)
from energax.errors import ConvergenceWarning
from energax.infer import Laplace, VariationalGaussian
from energax.learn import EM, Descent, NegativeLogLikelihood
from energax.samplers import NUTS, SGLD, Draws

RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """A model with data, a prior, and a number that does not depend on the order of its parts."""

    model: energax.Energy
    rows: dict[str, np.ndarray]
    new: dict[str, np.ndarray]  # rows for the score
    prior: Any
    sgld: SGLD
    refit: Callable[..., Draws]
    number: Callable[[Any], Any]
    name: str
    truth: float
    statistic: Callable[[dict], Any]  # of a predictive check


def split(rows: dict[str, np.ndarray], n: int) -> tuple[dict, dict]:
    return {k: v[:n] for k, v in rows.items()}, {k: v[n:] for k, v in rows.items()}


def logistic_regression() -> Case:
    x = RNG.normal(size=(400, 1)).astype(np.float32)
    y = (RNG.uniform(size=400) < 1 / (1 + np.exp(-(1.5 * x[:, 0] - 0.5)))).astype(int)
    rows, new = split({"x": x, "y": y}, 150)
    model = LinearModel(jnp.zeros(1), jnp.zeros(()), Bernoulli())
    newton = lambda over, key: bagging(over, adam(0.1), 20, key=key, epochs=100)
    slope = lambda model: model.weight[0]
    return Case(
        model, rows, new, Normal(0.0, 2.0), SGLD(1e-3, batch_size=50), newton, slope, "slope", 1.5, count
    )


def mixture() -> Case:
    x = np.concatenate([RNG.normal(-2, 1, 160), RNG.normal(1.5, 1, 240)])[:, None].astype(np.float32)
    rows, new = split({"x": RNG.permutation(x)}, 150)
    model = Mixture(Gaussians(jnp.array([[-1.0], [1.0]]), Diagonal(jnp.ones((2, 1)))))
    prior = {
        "weights": Dirichlet(jnp.ones(2)),
        "components.means": Normal(0.0, 5.0),
        "components.covariance": InverseGamma(2.0, 1.0),
    }
    refit = lambda over, key: bagging(over, EM(), 30, key=key, epochs=50)
    smaller = lambda model: model.components.means.min()
    return Case(
        model, rows, new, prior, SGLD(1e-3, batch_size=50), refit, smaller, "smaller mean", -2.0, spread
    )


def hidden_chain() -> Case:
    state, x = 0, []
    for _ in range(50 * 6):
        state = state if RNG.uniform() < 0.9 else 1 - state
        x.append(2.0 * state + 0.7 * RNG.normal())
    rows, new = split({"x": np.array(x, np.float32).reshape(50, 6, 1)}, 25)
    emission = Gaussians(jnp.array([[0.3], [1.5]]), jnp.full((2, 1, 1), 0.5))
    model = HiddenChain(jnp.full(2, 0.5), jnp.array([[0.8, 0.2], [0.2, 0.8]]), emission, length=6)
    prior = {
        "initial": Dirichlet(jnp.ones(2)),
        "transition": Dirichlet(jnp.full(2, 2.0)),
        "emission.means": Normal(0.0, 3.0),
        "emission.covariance": Wishart(3.0, jnp.eye(1)),
    }
    refit = lambda over, key: bagging(over, EM(), 30, key=key, epochs=50)
    larger = lambda model: model.emission.means.max()
    return Case(model, rows, new, prior, SGLD(5e-4, batch_size=10), refit, larger, "larger mean", 2.0, jumps)


def network() -> Case:
    x = RNG.uniform(-2, 2, (100, 1)).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + 0.3 * RNG.normal(size=100)).astype(np.float32)
    rows, new = split({"x": x, "y": y}, 40)
    model = NeuralRegressor.random(1, key=0, width=4, activation=jax.nn.tanh, likelihood=Gaussian(0.3))
    refit = lambda over, key: deep_ensemble(over, adam(0.02), 10, key=key, epochs=500)
    value = lambda model: model.predict(x=jnp.array([1.0]))
    truth = float(np.sin(2.0))
    return Case(
        model, rows, new, Normal(0.0, 1.5), SGLD(1e-4, batch_size=20), refit, value, "f(1)", truth, largest
    )


def adam(rate: float) -> Descent:
    return Descent(NegativeLogLikelihood(), optax.adam(rate))


def count(data: dict) -> Any:
    return data["y"].mean()


def spread(data: dict) -> Any:
    return data["x"].std()


def jumps(data: dict) -> Any:
    return np.abs(np.diff(data["x"], axis=1)).mean()


def largest(data: dict) -> Any:
    return data["y"].max()


CASES = {
    "logistic regression": logistic_regression,
    "mixture": mixture,
    "hidden Markov chain": hidden_chain,
    "network": network,
}


def read(case: Case, n: int = 1000) -> dict[str, dict[str, Any]]:
    """Results of every method by its name: the number in every draw, scores, checks and warnings."""
    over = energax.Bayes(case.prior)(case.model, case.rows)
    ways = {
        "NUTS": lambda: energax.sample(over, n, method=NUTS(max_doublings=7), key=0, warmup=400),
        "SGLD": lambda: energax.sample(over, n, method=case.sgld, key=0, warmup=1000, thin=20),
        "Laplace": lambda: energax.sample(over, n, method=Laplace(), key=0),
        "variational": lambda: energax.sample(over, n, method=VariationalGaussian("full-rank"), key=0),
        "refits": lambda: case.refit(over, 0),
    }
    found = {}
    for name, way in ways.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            draws = way()
        predicted = energax.predictive(over, draws)
        values = predicted.apply(case.number)
        chains = Draws({"": values.reshape(draws.n_chains, -1)}, method=name, exact=draws.exact)
        found[name] = {
            "values": values,
            "R-hat": 1.0 if draws.exact else float(chains.rhat[0]),
            "effective": float(chains.ess[0]),
            "score": float(predicted.log_prob(case.new).value.mean()),
            "check": float(predicted.check(case.statistic, key=0, n=200).p_value),
            "warnings": [str(w.message) for w in caught],
        }
    return found


def draw(found: dict[str, dict], cases: dict[str, Case], path: str) -> None:
    """One panel for each model: intervals of its number by every method, and the scores."""
    import matplotlib.pyplot as plt

    ink, soft, line, blue, orange = "#23272E", "#5B6370", "#9AA3AF", "#0072B2", "#D55E00"
    figure, panels = plt.subplots(2, 2, figsize=(12, 6.2), layout="constrained")
    for ax, (name, case) in zip(panels.flat, cases.items(), strict=True):
        results = found[name]
        for i, one in enumerate(results.values()):
            low, left, middle, right, high = np.quantile(one["values"], (0.05, 0.25, 0.5, 0.75, 0.95))
            color = orange if one["warnings"] else blue
            ax.plot([low, high], [i, i], color=color, lw=1.4, solid_capstyle="butt")
            ax.plot([left, right], [i, i], color=color, lw=4, solid_capstyle="butt")
            ax.plot(middle, i, "o", color=color, ms=6, mec="white", mew=0.8)
            score = {"transform": ax.get_yaxis_transform(), "va": "center", "ha": "right", "fontsize": 9}
            ax.text(1.1, i, f"{one['score']:.3f}".replace("-", "−"), color=soft, **score)
        ax.axvline(case.truth, color=ink, lw=1.2, ls=(0, (4, 3)), zorder=0)
        ax.set_yticks(range(len(results)), list(results))
        ax.set_ylim(len(results) - 0.5, -0.5)
        ax.text(1.1, -0.75, "log p(new)", color=soft, **{**score, "va": "bottom"})
        ax.set_title(name[0].upper() + name[1:], loc="left", fontsize=11, color=ink)
        ax.set_xlabel(case.name, color=ink)
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.spines["bottom"].set_color(line)
        ax.tick_params(color=line, labelcolor=ink, labelsize=9)
        ax.tick_params(axis="y", length=0)
    keys = [
        plt.Line2D(
            [], [], color=blue, marker="o", mec="white", lw=3, label="median, 50 % and 90 % of the draws"
        ),
        plt.Line2D(
            [], [], color=orange, marker="o", mec="white", lw=3, label="the same, of draws with a warning"
        ),
        plt.Line2D([], [], color=ink, lw=1.2, ls=(0, (4, 3)), label="true value"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3, frameon=False, labelcolor=ink)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, dict]:
    cases = {name: build() for name, build in CASES.items()}
    out = {}
    for name, case in cases.items():
        print(f"{name}: {case.name}, truly {case.truth:.2f}; log p of a new row; p-value of a check")
        out[name] = read(case)
        for method, one in out[name].items():
            values = one["values"]
            numbers = f"{values.mean():6.2f} ± {values.std():.2f} {one['score']:8.3f} {one['check']:5.2f}"
            print(f"  {method:12}{numbers}  {(one['warnings'] or [''])[0][:90]}")
    if path is not None:
        draw(out, cases, path)
    return out


if __name__ == "__main__":
    main(*sys.argv[1:2])
