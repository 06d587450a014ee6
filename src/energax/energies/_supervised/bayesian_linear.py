"""Bayesian linear regression: an energy over the weights and the targets of a whole data set."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..._util.arguments import NONE, POSITIVE, WHOLE, check_arguments
from ..._util.arrays import asarray
from ..._util.linalg import cholesky, solve_lower
from ..._util.methods import plain_method
from ...energy import Energy
from ...errors import BadInput, as_numbers
from ...missing import is_masked, mask_of, value_of
from ...spaces import Positive, Real, Sequence, fixed, parameter


class BayesianLinear(Energy):
    """Bayesian linear regression: one example is a whole data set, with its weights w.

    e(x, y, w) = −Σ_i log N(y_i; wᵀ(x_i − c) + b, 1/β) − log N(w; m, Λ⁻¹), Λ = diag(α) + β G.

    x, (n, d), is an input; y, (n,), may have missing values, which are integrated out. Everything is a closed
    form, in O(n d²): `posterior(energy, {"x": X, "y": y})` is the normal distribution of w,
    `log_prob(energy, {"y": y}, given={"x": X})` the evidence, `energy.update(x=X, y=y)` the model whose prior
    is that posterior, and `posterior(energy.over("w"), {"x": X})` the predictive distribution of y. α and β
    are learned by maximising the evidence: `EM()`, or `Descent(NegativeLogLikelihood(), optimizer)`.

    Args:
        precision: α, the prior precision of every weight, (d,); or a number, the same for all. One for every
            weight is automatic relevance determination.
        noise_precision: β, a number.
        n_features: d, needed if α is a number.
        mean: m, (d,); None is 0.
        gram: G, (d, d), the products of the columns of rows that have been seen (`update`); None is 0.
        centre: c, (d,), subtracted from every row of x; None is 0.
        bias: b, a number; None is 0.
        length: n, if all data sets have the same number of rows; None for any.

    MacKay (1992), Bayesian interpolation; Bishop (2006), Pattern recognition and machine learning, ch. 3.

    >>> from energax import log_prob, posterior
    >>> energy = BayesianLinear(jnp.ones(1), jnp.array(1.0))
    >>> data = {"x": jnp.array([[1.0], [2.0]]), "y": jnp.array([1.0, 2.0])}
    >>> posterior(energy, data).mean["w"]                              # 5 / (5 + 1)
    array([0.8333333], dtype=float32)
    >>> log_prob(energy, {"y": data["y"]}, given={"x": data["x"]})
    -3.150 (exact)
    """

    precision: jax.Array = parameter(Positive())
    noise_precision: jax.Array = parameter(Positive())
    n_features: int = eqx.field(static=True)
    mean: Any = fixed(default=None)
    gram: Any = fixed(default=None)
    centre: Any = fixed(default=None)
    bias: Any = fixed(default=None)
    length: int | None = eqx.field(static=True, default=None)

    inputs = frozenset({"x"})
    marginalises = frozenset({"y"})

    def __init__(
        self,
        precision: Any,
        noise_precision: Any,
        n_features: int | None = None,
        *,
        mean: Any = None,
        gram: Any = None,
        centre: Any = None,
        bias: Any = None,
        length: int | None = None,
    ):
        precision = as_numbers("precision", precision, "a number > 0, or one per weight")
        noise_precision = as_numbers("noise_precision", noise_precision, "a number > 0")
        for name, value in (("mean", mean), ("gram", gram), ("centre", centre), ("bias", bias)):
            if value is not None:
                as_numbers(name, value, "an array of numbers")
        check_arguments(locals(), n_features=WHOLE | NONE, length=WHOLE | NONE)
        for name, value in (("precision", precision), ("noise_precision", noise_precision)):
            POSITIVE.check(name, value)
        self.precision, self.noise_precision = asarray(precision), asarray(noise_precision)
        self.mean, self.gram, self.centre, self.bias = mean, gram, centre, bias
        self.length = length
        if n_features is None and jnp.ndim(precision) != 1:
            found = f"precision of shape {jnp.shape(precision)}"
            raise BadInput("n_features", f"None, and {found}", "the number of weights")
        self.n_features = jnp.shape(precision)[0] if n_features is None else int(n_features)
        d, shape = self.n_features, jnp.shape
        wrong = shape(self.precision) not in ((), (d,)) or shape(self.noise_precision) != ()
        for value, expected in ((mean, (d,)), (gram, (d, d)), (centre, (d,)), (bias, ())):
            wrong |= value is not None and shape(value) != expected
        if wrong:
            shapes = {k: shape(v) for k, v in vars(self).items() if eqx.is_array(v)}
            raise BadInput("precision, noise_precision, …", f"shapes {shapes}", f"(d,) with d = {d}, and ()")

    @property
    def spaces(self):
        d, length = self.n_features, self.length
        return {"x": Sequence(Real(d), length), "y": Sequence(Real(), length), "w": Real(d)}

    # -- the prior, and the data as residuals from it ----------------------------------------------

    @property
    def _prior_mean(self):
        return jnp.zeros(self.n_features, self.precision.dtype) if self.mean is None else self.mean

    @property
    def _prior_precision(self):
        alpha = jnp.broadcast_to(self.precision, (self.n_features,))
        matrix = jnp.diag(alpha)
        return matrix if self.gram is None else matrix + self.noise_precision * self.gram

    def _inputs(self, x):
        x = asarray(x).astype(self.precision.dtype)
        return x if self.centre is None else x - self.centre

    def _outputs(self, columns, w):
        return columns @ w if self.bias is None else columns @ w + self.bias

    def _observed_rows(self, x, y):
        """(columns, residuals from the prior mean, number of rows); those of missing y are 0."""
        columns = self._inputs(x)
        residual = asarray(value_of(y)).astype(columns.dtype) - self._outputs(columns, self._prior_mean)
        if not is_masked(y):
            return columns, residual, jnp.asarray(residual.size, residual.dtype)
        seen = mask_of(y)
        n = seen.sum().astype(residual.dtype)
        return jnp.where(seen[:, None], columns, 0), jnp.where(seen, residual, 0), n

    def _solve(self, x, y):
        """(columns, residuals, n, the change of the mean, L with LLᵀ = the posterior precision)."""
        columns, residual, n = self._observed_rows(x, y)
        beta = self.noise_precision
        factor = cholesky(self._prior_precision + beta * columns.T @ columns)
        change = _solve_factor(factor, beta * (columns.T @ residual))
        return columns, residual, n, change, factor

    # -- the energy and its closed forms -------------------------------------------------------------

    def __call__(self, *, x, y, w):
        columns, residual, n = self._observed_rows(x, y)
        error = residual - columns @ (w - self._prior_mean)
        return self._noise_energy(error, n) + self._weight_energy(w)

    def _noise_energy(self, error, n):
        beta = self.noise_precision
        return 0.5 * beta * error @ error - 0.5 * n * (jnp.log(beta) - jnp.log(2 * jnp.pi))

    def _weight_energy(self, w):
        """−log N(w; m, Λ⁻¹)."""
        return 0.5 * self._weight_square(w - self._prior_mean) - 0.5 * self._log_det_prior + self._constant

    def _weight_square(self, change):
        """changeᵀ Λ change, as a sum of squares."""
        square = jnp.sum(self.precision * change**2)
        if self.gram is not None:
            square += self.noise_precision * change @ self.gram @ change
        return square

    @property
    def _constant(self):
        return 0.5 * self.n_features * jnp.log(2 * jnp.pi)

    @property
    def _log_det_prior(self):
        if self.gram is None:
            return jnp.sum(jnp.log(jnp.broadcast_to(self.precision, (self.n_features,))))
        return _log_det(cholesky(self._prior_precision))

    def free_energy(self, *, x, y=None, w=None):
        """−log p(y | x), the evidence; −log p(w); or 0 of x alone."""
        if y is None:
            zero = jnp.zeros((), self.precision.dtype)
            return zero if w is None else self._weight_energy(w)
        columns, residual, n, change, factor = self._solve(x, y)
        # At the mode; a difference of squares would lose digits where the fit is good.
        least = self._noise_energy(residual - columns @ change, n) + 0.5 * self._weight_square(change)
        return least + 0.5 * _log_det(factor) - 0.5 * self._log_det_prior

    @plain_method
    def knows(self, what, names=None):
        if what in ("conditional", "draw", "argmin"):
            return names is not None and "x" in names
        return super().knows(what, names)

    def conditional(self, name, **given):
        """p(w | x, y), p(w), p(y | x, w), or the predictive p(y | x), jointly for all rows of x."""
        from numpyro.distributions import LowRankMultivariateNormal, MultivariateNormal, Normal

        if name == "w" and set(given) == {"x", "y"}:
            *_, change, factor = self._solve(**given)
            return MultivariateNormal(self._prior_mean + change, scale_tril=_inverse_transpose(factor))
        factor = cholesky(self._prior_precision)
        if name == "w" and set(given) == {"x"}:
            return MultivariateNormal(self._prior_mean, scale_tril=_inverse_transpose(factor))
        if name != "y" or not {"x"} <= set(given) <= {"x", "w"}:
            raise BadInput("conditional", f"{name!r} given {sorted(given)}", "'w' or 'y', given 'x'")
        columns = self._inputs(given["x"])
        if "w" in given:
            return Normal(self._outputs(columns, given["w"]), self.noise_precision**-0.5).to_event(1)
        spread = solve_lower(factor, columns.T).T
        variance = jnp.full(len(columns), 1 / self.noise_precision)
        return LowRankMultivariateNormal(self._outputs(columns, self._prior_mean), spread, variance)

    def argmin(self, *, x, y=None, w=None):
        """The mean of what is not given, which is the mode of a normal distribution."""
        found = {}
        if w is None:
            w = self._prior_mean if y is None else self._prior_mean + self._solve(x, y)[3]
            found["w"] = w
        if y is None or is_masked(y):
            outputs = self._outputs(self._inputs(x), w)
            found["y"] = outputs if y is None else y.fill(outputs)
        return found

    def draw(self, key, *, x, y=None, w=None):
        """Draw w, y and the missing values of y, given the rest."""
        first, second = jax.random.split(key)
        drawn = {}
        if w is None:
            w = drawn["w"] = self.conditional("w", x=x, **({} if y is None else {"y": y})).sample(first)
        if y is None or is_masked(y):
            rows = self.conditional("y", x=x, w=w).sample(second)
            drawn["y"] = rows if y is None else y.fill(rows)
        return drawn

    def impute(self, data):
        """The data sets, missing values of y at their means given the observed ones."""
        return jax.vmap(lambda **row: {**row, **_only_y(self.argmin(**row))})(**data)

    def update(self, *, x, y) -> BayesianLinear:
        """The model whose prior is the posterior of this one: more rows may follow."""
        columns, _, _, change, _ = self._solve(x, y)
        gram = columns.T @ columns if self.gram is None else self.gram + columns.T @ columns
        given = {"centre": self.centre, "bias": self.bias, "length": self.length}
        alpha, beta, d = self.precision, self.noise_precision, self.n_features
        return BayesianLinear(alpha, beta, d, mean=self._prior_mean + change, gram=gram, **given)

    def predict(self, *, x) -> Any:
        """E[y | x] for one row of inputs, (d,). For the variance too, see `conditional`."""
        return self._outputs(self._inputs(x), self._prior_mean)

    # -- EM over the weights ---------------------------------------------------------------------------

    def expectations(self, data, temperature):
        """E[(w_j − m_j)²] and the expected squared error of every data set, and its log evidence.

        There is no temperature: w is integrated out in closed form.
        """

        def one(**row):
            columns, residual, n, change, factor = self._solve(row["x"], row["y"])
            spread = _inverse_transpose(factor)
            error = residual - columns @ change
            squares = error @ error + jnp.sum((columns @ spread) ** 2)
            weights = change**2 + jnp.sum(spread**2, axis=1)
            return (weights, squares, n, jnp.ones_like(n)), -self.free_energy(**row)

        return jax.vmap(one)(**data)

    def statistics(self, data, posterior):
        return jax.tree.map(lambda a: a.sum(0), posterior)

    def maximise(self, statistics, trainable=None):
        weights, squares, n, sets = statistics
        alpha = sets / (weights if self.precision.ndim else weights.mean())
        best = {"precision": alpha, "noise_precision": n / squares}
        for name, value in best.items():
            if trainable is None or getattr(trainable, name):
                self = eqx.tree_at(lambda m, name=name: getattr(m, name), self, value)
        return self

    @property
    def has_m_step(self):
        """Not after `update`: the prior depends on β then, and the M-step is not a closed form."""
        return self.gram is None


def _only_y(found: dict[str, Any]) -> dict[str, Any]:
    return {"y": found["y"]} if "y" in found else {}


def _log_det(factor: Any) -> Any:
    return 2 * jnp.sum(jnp.log(jnp.diagonal(factor)))


def _solve_factor(factor: Any, right: Any) -> Any:
    """A⁻¹ right, where A = LLᵀ."""
    return jax.scipy.linalg.cho_solve((factor, True), right)


def _inverse_transpose(factor: Any) -> Any:
    """A lower T with TTᵀ = (LLᵀ)⁻¹: the Cholesky factor of the covariance."""
    inverse = solve_lower(factor, jnp.eye(len(factor), dtype=factor.dtype))
    return cholesky(inverse.T @ inverse)
