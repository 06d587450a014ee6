"""Warnings of estimators are those of the line that called the library."""

import warnings

import numpy as np
import pytest

from energax.errors import ConvergenceWarning
from energax.estimators import BernoulliRBM, GaussianMixture, KMeans

RNG = np.random.default_rng(0)
PAIRS = np.repeat([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], 30, axis=0)

CALLS = {
    "fit": lambda: GaussianMixture(3, max_iter=1, random_state=0).fit(RNG.normal(size=(90, 2))),
    "fit_predict": lambda: KMeans(3, random_state=0).fit_predict(np.repeat([[0.0], [1.0]], 5, axis=0)),
    "inside of contexts": lambda: BernoulliRBM(2, learning_rate=8.0, random_state=0).fit(PAIRS),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_warning_names_the_file_of_the_caller(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    found = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
    assert found and {w.filename for w in found} == {__file__}
