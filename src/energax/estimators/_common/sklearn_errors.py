"""Errors and warnings of scikit-learn, translated to those of energax."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from sklearn.exceptions import ConvergenceWarning as _SklearnConvergenceWarning
from sklearn.exceptions import NotFittedError as _SklearnNotFitted

from ... import errors
from ...errors import BadInput
from .columns import ENCODE

_FITTED_WITH = ("X", "the columns that the model was fitted with")
_ENCODE = ("", "", ENCODE)
_UNKNOWN = ("", "", "")
#: Modules whose functions are between a warning and the line of the user.
_BETWEEN = {__name__.partition(".")[0], "contextlib"}
_RESHAPE = "Reshape your data: one column by X.reshape(-1, 1), one row by X.reshape(1, -1)."
#: Part of a message of scikit-learn → (argument, expected, remedy) of ours. "" keeps the caller's text. The
#: first match is used.
_TRANSLATIONS = {
    " features, but ": (*_FITTED_WITH, "Pass all of them, in the same order."),
    "y contains NaN": ("y", "labels without missing values", "Leave out the rows without a label."),
    "y contains infinity": ("y", "finite labels", "Leave out those rows."),
    "inconsistent numbers of samples": ("y", "as many labels as rows", "Pass one label per row of X."),
    "could not be broadcast": ("", "as many labels as rows", "Pass one label per row of X."),
    "y should be a 1d array": ("y", "one label for each row: shape (n_samples,)", ""),
    "X contains NaN": ("X", "", "Impute the missing values first."),
    "X contains infinity": ("X", "", "Remove or clip those rows."),
    "Expected 2D array": ("", "", _RESHAPE),
    "inhomogeneous": ("", "", "Pass rows of equal length."),
    "Complex": ("", "", "Pass real and imaginary parts as separate columns."),
    "Sparse": ("", "", "Call X.toarray() first."),
    "could not convert": _ENCODE,
    "incompatible with": _ENCODE,
}


class ConvergenceWarning(errors.ConvergenceWarning, _SklearnConvergenceWarning):
    """A `ConvergenceWarning` of both energax and scikit-learn, so that filters for either apply."""


def warn_user(message: Any, category: type[Warning] = ConvergenceWarning) -> None:
    """Warn as of the line that called this package, however many of its functions are between."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


class NotFitted(errors.NotFitted, _SklearnNotFitted):
    """An error of both energax and scikit-learn."""


@contextlib.contextmanager
def reword_warnings(remedy: str | None = None) -> Iterator[None]:
    """Make convergence warnings those of estimators.

    A remedy replaces their last sentence, which may name arguments of functions that the caller did not call.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for warning in caught:
        text: Any = warning.message
        if issubclass(warning.category, errors.ConvergenceWarning):
            known = str(text)
            known = known if remedy is None else f"{known.rstrip('.').rpartition('. ')[0]}. {remedy}"
            text = ConvergenceWarning(known)
        warn_user(text, warning.category)


class BadType(BadInput, TypeError):
    """A `BadInput` that is a `TypeError` too, as scikit-learn's own error is."""


@contextlib.contextmanager
def translate_sklearn_errors(
    argument: str,
    expected: str,
    explain: Callable[[], tuple[str, str] | None] = lambda: None,
    remedies: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Raise a `BadInput` with a remedy in place of an error of scikit-learn's validation.

    Args:
        argument: the argument that is validated.
        expected: its valid values, in words.
        explain: called after an error about values that are not numbers; returns what was found, and a
            remedy, or None.
        remedies: the remedy of an error whose message has these words, instead of the usual one.
    """
    try:
        yield
    except BadInput:
        raise
    except (ValueError, TypeError, OverflowError) as error:
        if "feature names should match" in str(error):
            # Its lines, one per name, are kept.
            remedy = f"{str(error).strip()}\nPass them with the same names, in the same order."
            raise BadInput(_FITTED_WITH[0], "columns with other names", _FITTED_WITH[1], remedy) from None
        found = " ".join(str(error).split()).rstrip(".")
        # Without the printed table, and without advice about models of other libraries.
        found = found.partition(" does not accept missing values")[0].partition(" [[")[0]
        found = found.partition(" instead: array=")[0].partition(". Use '.toarray()'")[0]
        found = found.rpartition(". ")[0] if " contains NaN. " in found else found
        ours = next((ours for words, ours in _TRANSLATIONS.items() if words in found), _UNKNOWN)
        explained = explain() if ours in (_UNKNOWN, _ENCODE) else None
        kind = BadType if isinstance(error, TypeError) else BadInput
        if explained is not None:
            argument, ours = argument.partition(",")[0], ("", "", explained[1])
            found = f"{explained[0]} ({found})" if kind is BadType else explained[0]
        remedy = next((own for words, own in remedies.items() if words in found), ours[2])
        raise kind(ours[0] or argument, found, ours[1] or expected, remedy) from None
