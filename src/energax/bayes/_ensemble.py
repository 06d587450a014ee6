"""Ensembles of fits, as draws of parameters: from random starts, and of bootstrapped rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._util.keys import as_key, fold_in, numpy_generator
from ..errors import check_instance, check_whole_number
from ..fitting import Fit, fit
from ..samplers import Draws
from ._parameter_energy import ParameterEnergy


def deep_ensemble(energy: ParameterEnergy, learner: Any, n: int, *, key: Any, **options: Any) -> Draws:
    """Return the parameters of `n` fits from random starts, as draws for `predictive`.

    They are not draws of the posterior: they show how much the data leave open between good fits.

    Args:
        energy: the energy over θ, of `Bayes`; its model, data and weights are fitted. Its prior is not used.
        learner: a learner, such as `Descent(CrossEntropy(), optax.adam(0.01))`.
        n: the number of fits.
        key: an int or a JAX key.
        options: of `fit`, such as `epochs` and `batch_size`.

    Lakshminarayanan, Pritzel and Blundell (2017), Simple and scalable predictive uncertainty estimation using
    deep ensembles.
    """
    _check(energy, n)
    keys = [fold_in(as_key(key), i) for i in range(n)]
    fits = [
        fit(
            energy.model,
            energy.data,
            learner,
            key=k,
            weights=_weights(energy),
            initialise=True,
            **_with_frozen(energy, options),
        )
        for k in keys
    ]
    return _as_draws(energy, fits, f"deep ensemble of {n} fits")


def bagging(energy: ParameterEnergy, learner: Any, n: int, *, key: Any, **options: Any) -> Draws:
    """Return the parameters of `n` fits to bootstrapped rows, as draws for `predictive`.

    Every fit weights the rows by how often they occur in a bootstrap sample, times their own weight.

    Args:
        energy: the energy over θ, of `Bayes`; its model, data and weights are fitted. Its prior is not used.
        learner: a learner, such as `EM()`.
        n: the number of fits.
        key: an int or a JAX key.
        options: of `fit`, such as `epochs` and `batch_size`.

    Breiman (1996), Bagging predictors; Efron (1979), Bootstrap methods.

    >>> import jax.numpy as jnp
    >>> from energax import Bayes, Mixture
    >>> from energax.energies import Bernoullis
    >>> from energax.learn import EM
    >>> coin = Bayes()(Mixture(Bernoullis(jnp.array([[0.5]]))), {"x": np.array([[0.0], [1.0], [1.0], [1.0]])})
    >>> draws = bagging(coin, EM(), 20, key=0, epochs=3)
    >>> draws["components.probs"].shape, draws.method
    ((20, 1, 1), 'bagging of 20 fits')
    """
    _check(energy, n)
    key, weight = as_key(key), _weights(energy)
    generator = numpy_generator(key)
    fits = []
    for i in range(n):
        counts = generator.multinomial(len(weight), np.full(len(weight), 1 / len(weight)))
        fits.append(
            fit(
                energy.model,
                energy.data,
                learner,
                key=fold_in(key, i),
                weights=weight * counts,
                **_with_frozen(energy, options),
            )
        )
    return _as_draws(energy, fits, f"bagging of {n} fits")


def _check(energy: Any, n: Any) -> None:
    check_instance("energy", energy, ParameterEnergy, "the energy of Bayes(prior)(model, data)")
    check_whole_number("n", n)


def _weights(energy: ParameterEnergy) -> np.ndarray:
    return np.asarray(energy.weight)


def _with_frozen(energy: ParameterEnergy, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `fit`, with the parameters frozen that are no variables of the energy."""
    return {"freeze": energy.frozen or None, **options}


def _as_draws(energy: ParameterEnergy, fits: list[Fit], method: str) -> Draws:
    points = [energy.read(found.energy) for found in fits]
    values = {name: np.stack([np.asarray(p[name]) for p in points])[None] for name in energy.names}
    return Draws(values, method=method, exact=True, caveat="of separate fits, not of a posterior")
