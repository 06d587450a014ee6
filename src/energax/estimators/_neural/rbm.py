"""The restricted Boltzmann machine as a recipe."""

from __future__ import annotations

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ...energies import RBM
from ...errors import BadInput
from ...infer import MCMC
from ...infer import sample as draw
from ...learn import ContrastiveDivergence
from ...missing import is_masked, mask_of
from ...samplers import Gibbs
from .._base import Density, Transformer
from .._common.table import bucket, bucketed, check_no_empty_column, with_mask, zeros_and_ones

_SWEEPS = 200  # of the chains that fill in, or draw, rows
_CHAINS = 4  # of every row, since one may stay where it began
_MOST_STATES = 2**12  # of the hidden units, to sum over for every row
_MOST_LISTED = 2**24  # hidden states times rows, for exact draws


class BernoulliRBM(Transformer, Density):
    """A binary restricted Boltzmann machine, e(x, z) = −xᵀWz − bᵀx − cᵀz.

    The names are those of scikit-learn's; the learner is any (by default contrastive
    divergence with one sweep, by Adam). log p(x) is exact while there are at most 20 units in
    one of the layers; else log Z is estimated by annealed importance sampling, and `log_prob` tells
    how well. NaN marks a pixel that is not known, in `fit` and everywhere after.

    Args:
        n_components: hidden units.
        learning_rate, batch_size, n_iter: of the default learner; passes over the data.
        binarize: values above it count as 1, the others as 0; None takes only zeros and ones.
        learner: an energax learner, or an objective for Adam: `Descent(NegativeLogLikelihood())`.

    >>> X = np.tile([[1, 0, 1, 0], [0, 1, 0, 1]], (50, 1))
    >>> rbm = BernoulliRBM(2, learning_rate=0.1, n_iter=100, random_state=0).fit(X)
    >>> round(rbm.score(X), 1)                                # the best there is: −log 2
    -0.7
    """

    _allow_nan = True
    _sparse = True

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
        """Learn from rows of zeros and ones."""
        self._check_counts("n_components", "batch_size", "n_iter")
        X = self._check_X(X, reset=True)
        X, weight = self._counted(X, sample_weight)
        self.random_state_ = self._generator()
        with self._precision():
            data = self._given(X)
            check_no_empty_column(data["x"])
            self._learn(
                RBM.random(X.shape[1], self.n_components, key=self._key()),
                data,
                self._learner(),
                weights=weight,
                epochs=self.n_iter,
                batch_size=self.batch_size,
                initialise=True,
            )
        self.n_batches_seen_ = 0
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """One pass over these rows, going on from where the last one ended."""
        first = not hasattr(self, "energy_")
        self._check_counts("n_components", "batch_size")
        X = self._check_X(X, reset=first)
        X, weight = self._counted(X, sample_weight)
        if first:
            self.random_state_ = self._generator()
        with self._precision():
            start = RBM.random(X.shape[1], self.n_components, key=self._key()) if first else self.energy_
            learner = self._continue(self._learner())
            self._learn_more(start, self._given(X), learner, weights=weight, initialise=first)
        return self

    def _learner(self) -> Any:
        return self._chosen_learner(lambda: ContrastiveDivergence(), self._adam)

    def _given(self, X: np.ndarray) -> dict[str, Any]:
        return {"x": with_mask(zeros_and_ones(X, self.binarize))}

    # -- the hidden units ------------------------------------------------------------------

    def transform(self, X: Any) -> np.ndarray:
        """p(z = 1 | x) of every row and hidden unit."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            rows = bucketed(self._given(X))
            if is_masked(rows["x"]):
                return self._means(rows, self._key(3))[1][: len(X)]
            return np.asarray(_hidden_means(self.energy_, rows["x"]))[: len(X)]

    def _means(self, rows: Any, key: Any) -> tuple[np.ndarray, np.ndarray]:
        """(E[x], E[z]) given the known pixels: exactly while hidden states can be listed, else by chains."""
        listed = 2**self.n_components <= _MOST_STATES
        found = _listed_means(self.energy_, rows) if listed else _chain_means(self.energy_, rows, key)
        return np.asarray(found[0]), np.asarray(found[1])

    def gibbs(self, v: Any) -> np.ndarray:
        """The rows after one sweep of Gibbs sampling; a new one at every call, as in scikit-learn."""
        self._check_fitted()
        X = self._check_X(v, reset=False)
        with self._precision():
            key = jax.random.key(self.random_state_.randint(2**31 - 1))
            rows = bucketed(self._given(X))
            if is_masked(rows["x"]):
                raise BadInput("v", "missing values (NaN)", "complete rows", "Call impute(X) first.")
            return np.asarray(_sweep(self.energy_, rows, key))[: len(X)].astype(X.dtype)

    # -- rows --------------------------------------------------------------------------------

    def impute(self, X: Any) -> np.ndarray:
        """X with each missing pixel at its more probable value given the known ones."""
        self._check_fitted()
        X = self._check_X(X, reset=False)
        with self._precision():
            rows = bucketed(self._given(X))
            if not is_masked(rows["x"]):
                return X.copy()
            on = self._means(rows, self._key(4))[0][: len(X)] > 0.5
        return np.where(np.isnan(X), on, X).astype(X.dtype)

    def sample(self, n_samples: int = 1) -> np.ndarray:
        """Rows drawn from the model: exactly while hidden states can be listed, else by Gibbs chains."""
        n = self._check_n_samples(n_samples)
        if bucket(n) * 2**self.n_components > _MOST_LISTED:
            return super().sample(n)
        with self._precision():
            hidden = draw(self.energy_.over("x"), bucket(n), key=self._key(2))["z"]
            rows = _visible_draws(self.energy_, hidden, jax.random.split(self._key(5), len(hidden)))
            return np.asarray(rows)[:n].astype(self.dtype_)

    def _sampler(self, n: int) -> Any:
        return MCMC(Gibbs(), n_chains=n, warmup=_SWEEPS)

    # -- scikit-learn's names for θ --------------------------------------------------------

    @property
    def components_(self) -> np.ndarray:
        """Wᵀ, (n_components, n_features)."""
        self._check_fitted()
        return np.asarray(self.energy_.weight).T

    @property
    def intercept_visible_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.bias)

    @property
    def intercept_hidden_(self) -> np.ndarray:
        self._check_fitted()
        return np.asarray(self.energy_.hidden_bias)


@eqx.filter_jit
def _hidden_means(energy: RBM, x: Any) -> Any:
    return jax.vmap(lambda row: energy.conditional("z", x=row).mean)(jnp.asarray(x))


@eqx.filter_jit
def _visible_draws(energy: RBM, z: Any, keys: Any) -> Any:
    return jax.vmap(lambda z, key: energy.conditional("x", z=z).sample(key))(jnp.asarray(z), keys)


@eqx.filter_jit
def _sweep(energy: RBM, rows: Any, key: Any) -> Any:
    return Gibbs().advance(energy, rows, 1, key)["x"]


@eqx.filter_jit
def _listed_means(energy: RBM, rows: Any) -> tuple[Any, Any]:
    """(E[x], E[z]) given what is known of x, as sums over all z; a known pixel may be anything in E[x]."""
    states = energy.spaces["z"].values().astype(energy.bias.dtype)
    visible = jax.vmap(lambda z: energy.conditional("x", z=z).mean)(states)

    def one(row):
        share = jax.nn.softmax(-jax.vmap(lambda z: energy(x=row, z=z))(states))
        return share @ visible, share @ states

    return jax.lax.map(one, jax.tree.map(jnp.asarray, rows["x"]))


@eqx.filter_jit
def _chain_means(energy: RBM, rows: Any, key: Any) -> tuple[Any, Any]:
    """The same as means of p(x | z) and p(z | x) along a few chains a row."""
    sampler, n = Gibbs(), len(rows["x"].observed)
    rows = jax.tree.map(lambda a: jnp.tile(a, (_CHAINS, 1)), rows)
    seen = mask_of(rows["x"])
    start = sampler.complete(energy, rows, _SWEEPS, key)["x"]
    visible = jax.vmap(lambda z: energy.conditional("x", z=z).mean)
    hidden = jax.vmap(lambda x: energy.conditional("z", x=x).mean)

    def sweep(i, carry):
        x, on, units = carry
        state = sampler.advance(energy, {"x": x}, 1, jax.random.fold_in(key, i), {"x": seen, "z": None})
        return state["x"], on + visible(state["z"]), units + hidden(state["x"])

    zero = jnp.zeros_like(hidden(start))
    _, on, units = jax.lax.fori_loop(0, _SWEEPS, sweep, (start, jnp.zeros_like(start), zero))
    of_rows = lambda total: total.reshape(_CHAINS, n, -1).sum(0) / (_CHAINS * _SWEEPS)
    return of_rows(on), of_rows(units)
