"""scikit-learn's refusals and warnings as ours, which say what to do."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.exceptions import ConvergenceWarning as _SklearnConvergenceWarning
from sklearn.exceptions import NotFittedError as _SklearnNotFitted

from ... import errors
from ...errors import BadInput

#: Words of scikit-learn's refusals, and what is true of them: (the argument that is wrong, what was
#: expected of it, what to do); "" leaves what the door says. The first that fits counts.
_FITTED_WITH = ("X", "the columns that the model was fitted with")
_ENCODE = ("", "", "Encode the strings as numbers first, for example by OneHotEncoder.")
_REMEDIES = {
    "feature names should match": (*_FITTED_WITH, "Give them under the same names, in the same order."),
    " features, but ": (*_FITTED_WITH, "Give all of them, in the same order."),
    "y contains NaN": ("y", "labels without missing values", "Leave out the rows that have no label."),
    "y contains infinity": ("y", "finite labels", "Leave out those rows."),
    "inconsistent numbers of samples": ("y", "as many labels as rows", "Give each row of X one label."),
    "could not be broadcast": ("", "as many labels as rows", "Give each row of X one label."),
    "y should be a 1d array": ("y", "one label for each row: shape (n,)", ""),
    "X contains NaN": ("X", "", "Impute the missing values, or use GaussianMixture, which sums them out."),
    "X contains infinity": ("X", "", "Remove or clip those rows."),
    "Complex": ("", "", "Give real and imaginary parts as columns of their own."),
    "Sparse": ("", "", "Call X.toarray() first."),
    "could not convert": _ENCODE,
    "incompatible with": _ENCODE,
}


def rollback_on_error(method: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` or `partial_fit` that, refused or diverged, leaves what was learned before as it was."""

    @functools.wraps(method)
    def learn(self: Any, *arguments: Any, **keywords: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *arguments, **keywords)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return learn


class ConvergenceWarning(errors.ConvergenceWarning, _SklearnConvergenceWarning):
    """energax's warning that is also scikit-learn's, so that filters for either catch it."""


class NotFitted(errors.NotFitted, _SklearnNotFitted):
    """energax's error that is also scikit-learn's."""


@contextlib.contextmanager
def translate_sklearn_errors(argument: str, expected: str) -> Iterator[None]:
    """scikit-learn's refusals as ours: the argument, what was found, what was expected, what to do."""
    try:
        yield
    except BadInput:
        raise
    except ValueError as error:
        found = " ".join(str(error).split()).rstrip(".")
        # Less its advice on other libraries' models, and less the whole table.
        found = found.partition(" does not accept missing values")[0].partition(" [[")[0]
        found = found.rpartition(". ")[0] if " contains NaN. " in found else found
        known = next((known for words, known in _REMEDIES.items() if words in found), ("", "", ""))
        raise BadInput(known[0] or argument, found, known[1] or expected, known[2]) from None
