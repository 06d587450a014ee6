"""The models that `compare` fits, and how it builds each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal

from ..catalog import find, part
from ..data._table import check_known_name, join_names
from ..errors import BadInput

Data = Literal["binary", "real"]
_KINDS = {"binary": "zeros and ones", "real": "real numbers"}


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """One model of `compare`: an estimator and how it is built.

    `parameters` is a function of the training rows. It is called when the model is fitted, so its imports
    happen no earlier.
    """

    estimator: str  # its name in the catalog
    name: str
    label: str  # at most 19 characters, so that the table fits into 80 columns
    data: Data
    parameters: Callable[[Any], dict[str, Any]]
    missing: bool = False  # whether missing values are summed out

    def build(self, train: Any, seed: int) -> Any:
        """The estimator, not fitted."""
        return find(self.estimator).load()(**self.parameters(train), random_state=seed)

    def unsupported_reason(self, data: str, has_missing: bool) -> str:
        """A clause that says why the model does not fit such data, or ""."""
        if self.data != data:
            return f"for {_KINDS[self.data]}, and the data are {_KINDS[data]}"
        return "not for rows with missing values" if has_missing and not self.missing else ""


def _rbm(objective: Callable[[Any], Any], n_iter: int) -> Callable[[Any], dict[str, Any]]:
    """12 hidden units, for which log Z is exact and cheap, and a step size that decays to zero."""

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


def model_specs() -> tuple[ModelSpec, ...]:
    """Every model that `compare` can fit."""
    return MODEL_SPECS


def select(models: str | Iterable[str] | None, data: str) -> list[ModelSpec]:
    """The models of these names; all that fit the data by default.

    A name of a family (`rbm`, `GaussianMixture`) selects those of its members that fit the data.
    """
    everything = model_specs()
    if models is None:
        return [spec for spec in everything if spec.data == data]
    words = [models] if isinstance(models, str) else models
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    if not names:
        raise BadInput("models", "no name", "at least one model")
    selected: list[ModelSpec] = []
    for name in names:
        exact = [spec for spec in everything if spec.name == name.lower()]
        family = [s for s in everything if name.lower() in (s.estimator.lower(), s.name.split("-")[0])]
        found = exact or [spec for spec in family if spec.data == data] or family
        if not found:
            known = [spec.name for spec in everything]
            check_known_name("models", name, known, "a model", "`energax models` lists")
        selected += [spec for spec in found if spec not in selected]
    return selected


def check_any_supported(specs: list[ModelSpec], data: str, has_missing: bool) -> None:
    """Raise unless at least one of the models fits the data."""
    reasons: dict[str, list[str]] = {}
    for spec in specs:
        reasons.setdefault(spec.unsupported_reason(data, has_missing), []).append(spec.name)
    if "" in reasons:
        return
    found = " and ".join(f"{join_names(names, 6)} ({reason})" for reason, names in reasons.items())
    others = [s.name for s in model_specs() if not s.unsupported_reason(data, has_missing)]
    raise BadInput("models", found, f"at least one that suits: {join_names(others)}")
