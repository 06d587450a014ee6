"""Errors and warnings of scikit-learn, translated to those of energax."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sklearn.exceptions import ConvergenceWarning as _SklearnConvergenceWarning
from sklearn.exceptions import NotFittedError as _SklearnNotFitted

from ... import errors
from ...errors import BadInput

_FITTED_WITH = ("X", "the columns that the model was fitted with")
_ENCODE = ("", "", "Encode the strings as numbers first, for example with OneHotEncoder.")
#: Part of a message of scikit-learn → (argument, expected, remedy) of ours. "" keeps the caller's text. The
#: first match is used.
_TRANSLATIONS = {
    "feature names should match": (*_FITTED_WITH, "Pass them with the same names, in the same order."),
    " features, but ": (*_FITTED_WITH, "Pass all of them, in the same order."),
    "y contains NaN": ("y", "labels without missing values", "Leave out the rows without a label."),
    "y contains infinity": ("y", "finite labels", "Leave out those rows."),
    "inconsistent numbers of samples": ("y", "as many labels as rows", "Pass one label per row of X."),
    "could not be broadcast": ("", "as many labels as rows", "Pass one label per row of X."),
    "y should be a 1d array": ("y", "one label for each row: shape (n_samples,)", ""),
    "X contains NaN": ("X", "", "Impute the missing values, or use GaussianMixture, which allows them."),
    "X contains infinity": ("X", "", "Remove or clip those rows."),
    "Complex": ("", "", "Pass real and imaginary parts as separate columns."),
    "Sparse": ("", "", "Call X.toarray() first."),
    "could not convert": _ENCODE,
    "incompatible with": _ENCODE,
}


class ConvergenceWarning(errors.ConvergenceWarning, _SklearnConvergenceWarning):
    """A `ConvergenceWarning` of both energax and scikit-learn, so that filters for either apply."""


class NotFitted(errors.NotFitted, _SklearnNotFitted):
    """An error of both energax and scikit-learn."""


@contextlib.contextmanager
def translate_sklearn_errors(argument: str, expected: str) -> Iterator[None]:
    """Raise a `BadInput` with a remedy in place of scikit-learn's `ValueError`."""
    try:
        yield
    except BadInput:
        raise
    except ValueError as error:
        found = " ".join(str(error).split()).rstrip(".")
        # Without the printed table, and without advice about models of other libraries.
        found = found.partition(" does not accept missing values")[0].partition(" [[")[0]
        found = found.rpartition(". ")[0] if " contains NaN. " in found else found
        ours = next((ours for words, ours in _TRANSLATIONS.items() if words in found), ("", "", ""))
        raise BadInput(ours[0] or argument, found, ours[1] or expected, ours[2]) from None
