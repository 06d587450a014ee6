"""`NaiveBayes`, for tables of mixed columns."""

from __future__ import annotations

import math
from typing import Any, Self

import equinox as eqx
import numpy as np

from ..._util.arrays import asarray
from ...energies import Bernoullis, Categoricals, Diagonal, Gaussians, Poissons, Product
from ...errors import BadInput, check_memory
from ...mixture import Mixture
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG
from .._common.table import check_no_empty_column, mask_missing
from .column_kinds import (
    KIND_NAMES,
    KINDS,
    column_kinds,
    drop_impossible,
    encode,
    find_strings,
    is_missing,
    known_values,
    replace_columns,
)
from .generative import GenerativeClassifier, labelled_statistics, maximise


class NaiveBayes(GenerativeClassifier):
    """Naive Bayes for mixed columns: p(y | x) ∝ p(y) Π_j p(x_j | y), columns independent given the class.

    A column is normal, Bernoulli, categorical or Poisson given the class. NaN marks a missing value, whose
    factor is left out, in learning and in prediction. A category that did not occur in learning is missing,
    and so is a value that its column cannot have, such as 2 among 0 and 1, if the kind was not given but
    found.
    Learning is one pass over the rows, and `partial_fit` on pieces gives the result of `fit` on all rows.

    Args:
        kinds: the kinds of the columns: "gaussian", "bernoulli", "categorical" or "count" for all of them, a
            list with one for each, or a dict from numbers or names of columns. "auto" finds them: strings
            and pandas categories are categorical, columns of 0 and 1 Bernoulli, other columns of whole
            numbers from 0 on counts (Poisson), all others normal.
        alpha: the smoothing. It is added to the counts of ones and of zeros, and to that of every category,
            in every class; counts have a row of this weight with the mean of the column in every class.
        var_smoothing: this part of the largest variance of a normal column is added to all variances.
        fit_prior: whether the probabilities of the classes are their frequencies; else they are equal.
        priors: the probabilities of the classes, in the order of `classes_`, instead.

    Attributes:
        classes_: the labels, sorted.
        class_count_, class_prior_: the weight of the rows, and the probability, of every class.
        kinds_: the kind of every column.
        categories_: the values of the categorical columns, by column number.
        theta_, var_: means and variances of the normal columns, (n_classes, n normal columns).
        epsilon_: the number that was added to the variances.
        energy_: the fitted model over x and z, the class, for functions such as `energax.posterior`.
            Categories are numbers in it, the positions in `categories_`.

    With columns of one kind the probabilities are those of scikit-learn's `GaussianNB`, `BernoulliNB` and
    `CategoricalNB`. Hand and Yu (2001), Idiot's Bayes: not so stupid after all?

    >>> X = np.array([["red", 1.0], ["red", 1.2], ["blue", 3.0], [None, 3.1]], dtype=object)
    >>> model = NaiveBayes().fit(X, ["a", "a", "b", "b"])
    >>> model.kinds_
    ['categorical', 'gaussian']
    >>> model.predict(np.array([["red", np.nan], [None, 3.3]], dtype=object)).tolist()
    ['a', 'b']
    """

    _sparse = True
    _statistics: Any
    _settings = {
        **GenerativeClassifier._settings,
        "kinds": KINDS,
        "alpha": FINITE_NOT_NEGATIVE,
        "var_smoothing": FINITE_NOT_NEGATIVE,
        "fit_prior": FLAG,
    }

    def __init__(
        self,
        kinds: Any = "auto",
        *,
        alpha: float = 1.0,
        var_smoothing: float = 1e-9,
        fit_prior: bool = True,
        priors: Any = None,
    ):
        self.kinds = kinds
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.fit_prior = fit_prior
        self.priors = priors

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    # -- learning --------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the classifier in one pass.

        Args:
            X: a table (n_samples, n_features): an array, or a frame whose columns may have strings; NaN and
                None mark missing values.
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,).
        """
        return self._add_rows(X, y, sample_weight, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add these rows to those of earlier calls of `partial_fit` or `fit`.

        The kinds of the columns are found in the first call; new categories may occur in any.

        Args:
            X, y: rows and labels, as in `fit`.
            classes: all labels that will occur; required in the first call.
            sample_weight: the weights of the rows.
        """
        first = not hasattr(self, "energy_")
        return self._add_rows(X, y, sample_weight, classes, reset=first, partial=True)

    def _add_rows(self, X: Any, y: Any, sample_weight: Any, classes: Any = None, **options: Any) -> Self:
        reset = options["reset"]
        X = self._encode_strings(X, learn=True, reset=reset)
        X, index, weight = self._check_rows(X, y, sample_weight, classes, **options)
        if reset:
            check_no_empty_column(mask_missing(X))
            names = getattr(self, "feature_names_in_", None)
            strings = dict.fromkeys(self._string_columns)
            self.kinds_, self._found_kinds = column_kinds(self.kinds, X, names, strings)
        self._add_categories(X)
        drop_impossible(X, self.kinds_)  # raises: the kind of a column cannot change any more
        data = {**self._to_data(X), "z": index}
        with self._precision():
            self._centre = self._find_centre(X, index, None if reset else self._statistics["weight"])
            reference = self._reference()
            new = labelled_statistics(reference, data, weight)
            self._statistics = new if reset else self._add_statistics(self._statistics, new)
            self._set_energy(self._maximise(reference))
        return self

    def _find_centre(self, X: np.ndarray, index: np.ndarray, seen: np.ndarray | None) -> np.ndarray:
        """Return a value of every class and normal column: sums of squares about it lose no digits.

        Classes with rows in earlier calls keep theirs, since their statistics are about it.
        """
        first = np.zeros(len(self.classes_), int)
        first[index[::-1]] = np.arange(len(index))[::-1]
        columns = self._columns_of("gaussian")
        head, rows = X[:1024, columns], X[first][:, columns]
        known = ~np.isnan(head)
        typical = np.where(known, head, 0).sum(0) / np.maximum(known.sum(0), 1)
        centre = np.where(np.isnan(rows), typical, rows).astype(self.dtype_)
        return centre if seen is None else np.where(seen[:, None] > 0, self._centre, centre)

    def _reference(self) -> Mixture:
        """Return the model before learning: means at the centres, all else equal in every class."""
        k = len(self.classes_)
        full = lambda kind, value: asarray(np.full((k, len(self._columns_of(kind))), value, self.dtype_))
        parts: dict[str, Any] = {
            "gaussian": lambda: Gaussians(asarray(self._centre), Diagonal(full("gaussian", 1.0), floor=0.0)),
            "bernoulli": lambda: Bernoullis(full("bernoulli", 0.5), float(self.alpha)),
            "categorical": self._categoricals,
            "count": lambda: Poissons(full("count", 1.0)),
        }
        used = [kind for kind in KIND_NAMES if kind in self.kinds_]
        product = Product([parts[kind]() for kind in used], [self._columns_of(kind) for kind in used])
        return Mixture(product)

    def _categoricals(self) -> Categoricals:
        """Return equal probabilities of the categories of every column; those with few are padded with 0."""
        sizes = np.array([len(values) for values in self.categories_.values()])
        shape = (len(sizes), len(self.classes_), int(sizes.max()))
        check_memory("kinds", self.kinds, math.prod(shape), "the categories")
        exists = np.arange(shape[2]) < sizes[:, None, None]
        probs = np.broadcast_to(exists / sizes[:, None, None], shape).astype(self.dtype_)
        return Categoricals(asarray(probs), asarray((exists * float(self.alpha)).astype(self.dtype_)))

    def _add_statistics(self, old: Any, new: Any) -> Any:
        """Return the sum of statistics; new categories have counts of 0 in the old ones."""

        def add(old, new):
            short = [(0, b - a) for a, b in zip(old.shape, new.shape, strict=True)]
            return np.pad(old, short) + new

        parts = zip(old["parts"], new["parts"], strict=True)
        return {
            "weight": old["weight"] + new["weight"],
            "parts": tuple({name: add(a[name], b[name]) for name in a} for a, b in parts),
        }

    def _maximise(self, reference: Mixture) -> Mixture:
        """Return the model with the largest (smoothed) likelihood."""
        used = [kind for kind in KIND_NAMES if kind in self.kinds_]
        statistics = dict(zip(used, self._statistics["parts"], strict=True))
        components: Any = reference.components
        parts = dict(zip(statistics, components.parts, strict=True))
        if "count" in parts:
            sums = statistics["count"]
            rate = sums["events"].sum(0) / np.maximum(sums["seen"].sum(0), np.finfo(np.float64).tiny)
            prior = asarray((float(self.alpha) * rate).astype(self.dtype_))
            parts["count"] = Poissons(parts["count"].rates, prior, asarray(float(self.alpha), self.dtype_))
        model = Mixture(Product(tuple(parts.values()), components.columns))
        energy = maximise(model, self._statistics)
        if "gaussian" in parts:
            energy = self._smooth_variances(energy, statistics["gaussian"])
        self.class_count_ = self._statistics["weight"]
        self.class_prior_ = self._class_prior()
        return eqx.tree_at(lambda e: e.weights, energy, asarray(self.class_prior_.astype(self.dtype_)))

    def _class_prior(self) -> np.ndarray:
        given = self._given_priors()
        if given is not None:
            return given
        k = len(self.classes_)
        return self.class_count_ / self.class_count_.sum() if self.fit_prior else np.full(k, 1 / k)

    def _smooth_variances(self, energy: Any, statistics: Any) -> Any:
        """Return the model with `epsilon_` added to all variances, and set it."""
        largest = _column_variances(self._centre, statistics).max()
        self.epsilon_ = float(self.var_smoothing) * (float(largest) or 1.0)
        where = lambda e: e.components.parts[0].covariance.variance
        variance = np.asarray(where(energy)) + self.dtype_.type(self.epsilon_)
        limits, means = np.finfo(self.dtype_), np.asarray(energy.components.parts[0].means)
        constant = variance <= limits.tiny**0.5 + 2 * (limits.eps * means) ** 2  # the error of rounding
        if not self.var_smoothing and constant.any():
            k, j = np.argwhere(constant)[0]
            column, label = self._columns_of("gaussian")[j], self.classes_[k]
            found = f"0, but column {column} is constant in class {label!r}"
            raise BadInput("var_smoothing", found, "a number > 0", "Try 1e-9.")
        return eqx.tree_at(where, energy, asarray(variance))

    # -- columns ---------------------------------------------------------------------------

    def _columns_of(self, kind: str) -> list[int]:
        return [j for j, one in enumerate(self.kinds_) if one == kind]

    def _encode_strings(self, X: Any, *, learn: bool, reset: bool = False) -> Any:
        """Return X with strings as the numbers of their categories; with `learn`, new ones are added."""
        X = _as_objects(X)
        found = find_strings(X)
        if reset:
            self._string_columns = list(found)
            self.categories_ = {j: known_values(column) for j, column in found.items()}
        columns = {}
        for j in self._string_columns:
            column = found[j] if j in found else _missing_column(X, j)
            if column is None:
                return X  # not of a shape that scikit-learn accepts
            if learn and not reset:
                self.categories_ = {**self.categories_, j: _extend(self.categories_[j], known_values(column))}
            columns[j] = encode(column, self.categories_[j])
        return replace_columns(X, columns)

    def _add_categories(self, X: np.ndarray) -> None:
        """Set `categories_`: the values of all categorical columns so far."""
        found = {}
        for j in self._columns_of("categorical"):
            old = self.categories_.get(j, np.zeros(0, X.dtype))
            values = old if j in self._string_columns else _extend(old, known_values(X[:, j]))
            found[j] = values
        self.categories_ = found

    def _check_new_X(self, X: Any, **options: Any) -> np.ndarray:
        self._check_fitted()
        return super()._check_new_X(self._encode_strings(X, learn=False), **options)

    def _to_data(self, X: np.ndarray) -> dict[str, Any]:
        X = drop_impossible(X, self.kinds_, frozenset(self._found_kinds))
        numbers = [j for j in self.categories_ if j not in self._string_columns]
        if numbers:
            X = X.copy()
            for j in numbers:
                X[:, j] = encode(X[:, j], self.categories_[j])
        return {"x": mask_missing(X)}

    def predict_joint_log_proba(self, X: Any) -> np.ndarray:
        """Return log p(x, y) of every row and class, (n, k)."""
        return self._scores(X)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the model; return them, with the values of categories, and their labels.

        Args:
            n_samples: the number of rows; an array of objects if a column has strings.
            random_state: a seed or a `RandomState`.
        """
        rows, labels = super().sample(n_samples, random_state)
        rows = rows.astype(object) if self._string_columns else rows
        for j, values in self.categories_.items():
            rows[:, j] = values[rows[:, j].astype(int)]
        return rows, labels

    # -- attributes with scikit-learn's names --------------------------------------------------

    @property
    def _normals(self) -> Any:
        self._check_fitted()
        if "gaussian" not in self.kinds_:
            raise AttributeError("theta_ and var_: no column is normal")
        return self.energy_.components.parts[0]

    @property
    def theta_(self) -> np.ndarray:
        """The means of the normal columns, (n_classes, n normal columns)."""
        return np.asarray(self._normals.means)

    @property
    def var_(self) -> np.ndarray:
        """The variances of the normal columns, (n_classes, n normal columns)."""
        return np.asarray(self._normals.covariance.variance)


def _column_variances(centre: np.ndarray, statistics: Any) -> np.ndarray:
    """Return the variances of columns over all classes, (d,), from sums about centres (k, d)."""
    count = np.maximum(statistics["count"], np.finfo(np.float64).tiny)
    step = statistics["first"] / count
    means = centre + step
    within = statistics["scatter"] - count * step**2
    total = count.sum(0)
    overall = (count * means).sum(0) / total
    return np.maximum((within + count * (means - overall) ** 2).sum(0) / total, 0)


def _extend(old: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the old values, followed by those that are new."""
    return np.concatenate([old, values[~np.isin(values, old)]])


def _as_objects(X: Any) -> Any:
    """Return rows in a list, some of whose values are strings, as an array of objects; else X."""
    if not isinstance(X, list) or not X or not isinstance(X[0], list | tuple):
        return X
    if not any(isinstance(value, str) for row in X if isinstance(row, list | tuple) for value in row):
        return X
    same = all(isinstance(row, list | tuple) and len(row) == len(X[0]) for row in X)
    return np.array(X, dtype=object) if same else X


def _missing_column(X: Any, j: int) -> np.ndarray | None:
    """Return column j of X, which has no strings; raise if it has other values, None if there is none."""
    if hasattr(X, "iloc"):
        column = X.iloc[:, j] if j < X.shape[1] else None
    elif hasattr(X, "with_columns"):
        column = X[X.columns[j]] if j < X.shape[1] else None
    else:
        is_table = isinstance(X, np.ndarray) and X.ndim == 2 and j < X.shape[1]
        column = X[:, j] if is_table else None
    if column is None:
        return None
    values = np.asarray(column, object)
    other = [value for value in values.tolist() if not is_missing(value)]
    if other:
        raise BadInput("X", f"{other[0]!r} in column {j}", "strings or missing values, as in fit")
    return values
