"""`BernoulliRBM`: a restricted Boltzmann machine for binary data."""

from __future__ import annotations

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import (
    IMPUTED_ROWS,
    LISTED_NUMBERS,
    call_rows,
    map_chunks,
    map_table,
    pad_rows,
    pad_size,
)
from ...energies import RBM
from ...errors import BadInput
from ...estimate import Estimate
from ...infer import MCMC
from ...infer import sample as draw
from ...learn import ContrastiveDivergence, check_phases
from ...missing import is_masked, mask_of
from ...programs import jit
from ...samplers import Gibbs
from .._base import Density, Transformer
from .._common.settings import ANY_NUMBER, COMMON, LEARNING_RATE, NONE, WHOLE
from .._common.sklearn_errors import reword_warnings
from .._common.table import binarize, check_no_empty_column, check_unit_interval, mask_missing

_SWEEPS = 200  # of the chains that impute or draw rows
_CHAINS = 4  # per row, since a single chain may stay in one mode
_MOST_STATES = 2**12  # of the hidden units, to sum over for every row


class BernoulliRBM(Transformer, Density):
    """Restricted Boltzmann machine with binary visible and hidden units.

    p(x, z) ∝ exp(xᵀWz + bᵀx + cᵀz). Arguments, methods and attributes have the names of scikit-learn's
    `BernoulliRBM`. It is fitted by contrastive divergence with one sweep and Adam by default; any learner of
    energax may be used. log p(x) is exact while one of the layers has at most 20 units; else log Z is
    estimated by annealed importance sampling, and `log_prob` gives the standard error. `fit` warns if weights
    explode, or if persistent chains do not follow the data. NaN marks a missing value. Values between 0 and 1
    are probabilities of a one: learning and `transform` take them in place of x, as scikit-learn's do; they
    have no log p(x).

    Args:
        n_components: the number of hidden units.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        n_iter: the number of epochs.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        binarize: values above this threshold are 1, others 0; None takes values from 0 to 1 as they are.
        learner: a learner of energax.learn, such as `Descent(NegativeLogLikelihood())`, or an objective,
            which is minimised by Adam.

    Attributes:
        components_: Wᵀ, (n_components, n_features).
        intercept_visible_, intercept_hidden_: b and c.
        history_: the objective of every epoch.
        energy_: the fitted model, for functions such as `energax.posterior`.
        fit_: details of the fit.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> rbm = BernoulliRBM(2, learning_rate=0.1, n_iter=100, random_state=0).fit(X)
    >>> round(rbm.score(X), 1)                                # the maximum: −log 2
    -0.7
    """

    _allow_nan = True
    _sparse = True
    _settings = {
        **COMMON,
        "n_components": WHOLE,
        "learning_rate": LEARNING_RATE,
        "batch_size": WHOLE,
        "n_iter": WHOLE,
        "binarize": ANY_NUMBER | NONE,
    }

    def __init__(
        self,
        n_components: int = 256,
        *,
        learning_rate: float = 0.01,
        batch_size: int = 100,
        n_iter: int = 50,
        verbose: int | bool = 0,
        random_state: Any = None,
        binarize: float | None = None,
        learner: Any = None,
    ):
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.n_iter = n_iter
        self.verbose = verbose
        self.random_state = random_state
        self.binarize = binarize
        self.learner = learner

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Args:
            X: zeros and ones, or probabilities of ones, (n_samples, n_features); NaN marks a missing value.
            y: ignored.
            sample_weight: the weights of the rows, (n_samples,).
        """
        X = self._check_X(X, reset=True)
        X, weight = self._drop_zero_weight(X, sample_weight)
        self.random_state_ = self._generator()
        with self._precision(), reword_warnings():
            data, learner = self._to_data(X), self._learner()
            check_no_empty_column(data["x"])
            self._learn(
                RBM.random(X.shape[1], self.n_components, key=self._key()),
                data,
                learner,
                weights=weight,
                validated=True,
                epochs=self.n_iter,
                batch_size=self.batch_size,
                initialise=True,
            )
            check_phases(self.fit_, data, learner, weights=weight)
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Run one epoch over these rows, continuing from earlier calls."""
        first = not hasattr(self, "energy_")
        X = self._check_X(X, reset=first)
        X, weight = self._drop_zero_weight(X, sample_weight)
        if first:
            self.random_state_ = self._generator()
        with self._precision():
            start = RBM.random(X.shape[1], self.n_components, key=self._key()) if first else self.energy_
            learner = self._continue(self._learner())
            self._learn_more(start, self._to_data(X), learner, weights=weight, initialise=first)
        return self

    def _largest_arrays(self, n: int, d: int) -> dict[str, tuple[int, str]]:
        rows = min(int(self.batch_size), n)
        return {"n_components": (int(self.n_components) * (d + rows), "weights and hidden units")}

    def _learner(self) -> Any:
        return self._make_learner(lambda: ContrastiveDivergence(), self._adam)

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        self._check_settings("binarize")  # it may have been set after `fit`
        X = check_unit_interval(X) if self.binarize is None else binarize(X, self.binarize)
        return {"x": mask_missing(X)}

    # -- hidden units ------------------------------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """Return the probability p(z = 1 | x) of every hidden unit, (n_samples, n_components)."""
        data = self._to_data(self._check_new_X(X))
        with self._precision():
            if is_masked(data["x"]):
                return self._posterior_means(data, self._key(3))[1]
            return map_table(lambda x: _hidden_means(self.energy_, x), data["x"])

    def _posterior_means(self, data: Any, key: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return (E[x], E[z]) given observed values: exactly if there are few hidden states, else by MCMC."""
        if 2**self._n_features_out <= _MOST_STATES:
            n, rows = len(data["x"].value), pad_rows(data)
            return jax.tree.map(lambda means: np.asarray(means)[:n], _enumerate_means(self.energy_, rows))
        # Chunks of rows, which have random numbers of their own by the number of the first one.
        rows = {**data, "row": np.arange(len(data["x"].value))}
        size = call_rows(len(rows["row"]), IMPUTED_ROWS.value)
        return map_chunks(lambda rows: _gibbs_means(self.energy_, rows, key), rows, size)

    def gibbs(self, v: Any) -> np.ndarray:
        """Return the rows v after one sweep of Gibbs sampling, with new random numbers in every call."""
        X = self._check_new_X(v)
        with self._precision():
            key = jax.random.key(self.random_state_.randint(2**31 - 1))
            rows = pad_rows(self._to_data(X))
            if is_masked(rows["x"]):
                raise BadInput("v", "missing values (NaN)", "complete rows", "Call impute(X) first.")
            return np.asarray(_sweep(self.energy_, rows, key))[: len(X)].astype(X.dtype)

    # -- rows --------------------------------------------------------------------------------

    def _log_prob(self, X: np.ndarray) -> Estimate:
        self._check_settings("binarize")
        return super()._log_prob(binarize(X, self.binarize))  # raises if a value is neither 0 nor 1

    def impute(self, X: Any) -> np.ndarray:
        """Return X with each missing value replaced by the more probable one given the observed values."""
        X = self._check_new_X(X)
        data = self._to_data(X)
        if not is_masked(data["x"]):
            return X.copy()
        with self._precision():
            on = self._posterior_means(data, self._key(4))[0] > 0.5
        return np.where(np.isnan(X), on, X).astype(X.dtype)

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Draw rows from the model: exactly if there are few hidden states, else by Gibbs sampling."""
        n = self._check_n_samples(n_samples)
        if pad_size(n) * 2**self._n_features_out > LISTED_NUMBERS.value:
            return super().sample(n)
        with self._precision():
            hidden = draw(self.energy_.over("x"), pad_size(n), key=self._key(2))["z"]
            rows = _draw_visible(self.energy_, hidden, jax.random.split(self._key(5), len(hidden)))
            return np.asarray(rows)[:n].astype(self.dtype_)

    def _sample_method(self, n: int) -> Any:
        return MCMC(Gibbs(), n_chains=n, warmup=_SWEEPS)

    # -- attributes with scikit-learn's names ----------------------------------------------------

    @property
    def components_(self) -> np.ndarray:
        """Wᵀ, (n_components, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.weight).T

    @property
    def intercept_visible_(self) -> np.ndarray:
        """b, (n_features,)."""
        self._check_fitted()
        return np.asarray(self.energy_.bias)

    @property
    def intercept_hidden_(self) -> np.ndarray:
        """c, (n_components,)."""
        self._check_fitted()
        return np.asarray(self.energy_.hidden_bias)


@jit
def _hidden_means(energy: RBM, x: Any) -> Any:
    return jax.vmap(lambda row: energy.conditional("z", x=row).mean)(asarray(x))


@jit
def _draw_visible(energy: RBM, z: Any, keys: Any) -> Any:
    return jax.vmap(lambda z, key: energy.conditional("x", z=z).sample(key))(asarray(z), keys)


@jit
def _sweep(energy: RBM, rows: Any, key: Any) -> Any:
    return Gibbs().advance(energy, rows, 1, key)["x"]


@jit
def _enumerate_means(energy: RBM, rows: Any) -> tuple[Any, Any]:
    """Return (E[x], E[z]) given observed values, by sums over all z; E[x] is valid for missing ones only."""
    states = energy.spaces["z"].values().astype(energy.bias.dtype)
    visible = jax.vmap(lambda z: energy.conditional("x", z=z).mean)(states)

    def one(row):
        probability = jax.nn.softmax(-jax.vmap(lambda z: energy(x=row, z=z))(states))
        return probability @ visible, probability @ states

    return jax.lax.map(one, jax.tree.map(asarray, rows["x"]))


@jit
def _gibbs_means(energy: RBM, rows: Any, key: Any) -> tuple[Any, Any]:
    """Return the same as averages of p(x | z) and p(z | x) along a few Gibbs chains per row."""
    sampler, n, key = Gibbs(), len(rows["row"]), jax.random.fold_in(key, rows["row"][0])
    rows = {"x": jax.tree.map(lambda a: jnp.tile(a, (_CHAINS, 1)), rows["x"])}
    observed = mask_of(rows["x"])
    start = sampler.complete(energy, rows, _SWEEPS, key)["x"]
    visible = jax.vmap(lambda z: energy.conditional("x", z=z).mean)
    hidden = jax.vmap(lambda x: energy.conditional("z", x=x).mean)

    def sweep(i, carry):
        x, on, units = carry
        clamped = {"x": observed, "z": None}
        state = sampler.advance(energy, {"x": x}, 1, jax.random.fold_in(key, i), clamped)
        return state["x"], on + visible(state["z"]), units + hidden(state["x"])

    zero = jnp.zeros_like(hidden(start))
    _, on, units = jax.lax.fori_loop(0, _SWEEPS, sweep, (start, jnp.zeros_like(start), zero))
    average = lambda total: total.reshape(_CHAINS, n, -1).sum(0) / (_CHAINS * _SWEEPS)
    return average(on), average(units)
