"""The models that `compare` fits, and how it builds each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from ..catalog import part

Data = Literal["binary", "real"]


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """One way to build an estimator for `compare`.

    `parameters` is a function of the training rows, called only when the model is fitted, so that
    whatever it needs is loaded no earlier.
    """

    estimator: str
    name: str
    label: str  # at most 19 signs, so that the table is whole at 80 columns
    data: Data
    parameters: Callable[[Any], dict[str, Any]]
    missing: bool = False  # whether missing values are summed out


def _rbm(objective: Callable[[Any], Any], n_iter: int) -> Callable[[Any], dict[str, Any]]:
    """Twelve hidden units, so that log Z stays exact and cheap, and a step that ends at zero."""

    def parameters(X: Any) -> dict[str, Any]:
        steps = n_iter * -(-len(X) // 100)
        schedule = part("optax:cosine_decay_schedule")(1e-2, steps)
        learner = part("energax.learn:Descent")(objective(X), part("optax:adam")(schedule))
        return {"n_components": 12, "batch_size": 100, "n_iter": n_iter, "learner": learner}

    return parameters


def _likelihood(X: Any) -> Any:
    return part("energax.learn:NegativeLogLikelihood")()


def _divergence(**settings: Any) -> Callable[[Any], Any]:
    return lambda X: part("energax.learn:ContrastiveDivergence")(**settings)


def _noise(X: Any) -> Any:
    shape_only = part("energax.energies:RBM").random(X.shape[1], 1, key=0)
    return part("energax.learn:NoiseContrastive").matched(shape_only, {"x": X}, k=20)


def _of(**settings: Any) -> Callable[[Any], dict[str, Any]]:
    return lambda X: dict(settings)


def _mixture(kind: str) -> ModelSpec:
    settings = _of(n_components=8, covariance_type=kind, n_init=3)
    return ModelSpec("GaussianMixture", f"gmm-{kind}", f"GMM 8, {kind}", "real", settings, missing=True)


_PCD = _rbm(_divergence(persistent=True), 300)

# fmt: off
MODEL_SPECS: tuple[ModelSpec, ...] = (
    ModelSpec("GaussianMixture", "gaussian", "one Gaussian", "real", _of(n_components=1), missing=True),
    *map(_mixture, ("full", "tied", "diag", "spherical")),
    ModelSpec("BernoulliMixture", "bernoulli", "independent bits", "binary", _of(n_components=1), missing=True),
    ModelSpec("BernoulliMixture", "bernoulli-mixture-10", "mixture of 10", "binary", _of(n_components=10), missing=True),
    ModelSpec("BernoulliMixture", "bernoulli-mixture-50", "mixture of 50", "binary", _of(n_components=50), missing=True),
    ModelSpec("BernoulliRBM", "rbm-likelihood", "RBM 12, likelihood", "binary", _rbm(_likelihood, 300)),
    ModelSpec("BernoulliRBM", "rbm-cd", "RBM 12, CD-1", "binary", _rbm(_divergence(), 300), missing=True),
    ModelSpec("BernoulliRBM", "rbm-pcd", "RBM 12, PCD", "binary", _PCD, missing=True),
    ModelSpec("BernoulliRBM", "rbm-nce", "RBM 12, NCE", "binary", _rbm(_noise, 300)),
    ModelSpec("VAE", "vae-1", "VAE 8, 1 sample", "binary", _of(samples=1, likelihood="bernoulli"), missing=True),
    ModelSpec("VAE", "vae-10", "VAE 8, 10 samples", "binary", _of(samples=10, likelihood="bernoulli"), missing=True),
    ModelSpec("VAE", "vae-gaussian", "VAE 2, Gaussian", "real", _of(n_components=2, likelihood="gaussian"), missing=True),
    ModelSpec("EnergyModel", "energy-model", "neural energy", "real", _of()),
)
# fmt: on
