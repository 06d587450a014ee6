"""Kernel ridge regression: scikit-learn's answers, the Gaussian process behind it, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.kernel_ridge import KernelRidge as Peer

from energax import posterior
from energax.errors import BadInput, ConvergenceWarning
from energax.estimators import KernelRidge
from energax.kernels import RBF, Matern

GENERATOR = np.random.default_rng(0)
X, NEW = GENERATOR.normal(size=(40, 3)), GENERATOR.normal(size=(15, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2], 1)
WEIGHT = GENERATOR.integers(0, 4, 40).astype(float)
close = np.testing.assert_allclose


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["", "weighted"])
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": "linear"},
        {"kernel": "rbf"},
        {"kernel": "rbf", "gamma": 0.3, "alpha": 0.01},
        {"kernel": "poly", "degree": 2, "coef0": 0.5, "gamma": 0.1},
        {"kernel": "polynomial", "alpha": [0.5, 2.0]},
    ],
    ids=str,
)
def test_coefficients_and_predictions_are_those_of_scikit_learn(options, weight):
    ours, peer = KernelRidge(**options).fit(X, Y, weight), Peer(**options).fit(X, Y, weight)
    kept = slice(None) if weight is None else weight > 0
    close(ours.dual_coef_, peer.dual_coef_[kept], rtol=1e-6, atol=1e-9)
    close(ours.predict(NEW), peer.predict(NEW), rtol=1e-6, atol=1e-9)
    one = KernelRidge(**(options | {"alpha": 0.5})).fit(X, Y[:, 0], weight)
    assert one.predict(NEW).shape == (15,)


def test_it_is_the_posterior_mean_of_its_gaussian_process():
    model = KernelRidge(0.3, kernel=Matern(0.8, nu=2.5)).fit(X, Y[:, 0])
    mean = posterior(model.energy_, {"x": X, "y": Y[:, 0]}).mean["f"]
    close(model.predict(X), mean, rtol=1e-6, atol=1e-9)


def test_sparse_tables_and_float32():
    dense = KernelRidge(kernel="rbf").fit(X, Y)
    close(KernelRidge(kernel="rbf").fit(scipy.sparse.csr_array(X), Y).predict(NEW), dense.predict(NEW))
    single = KernelRidge(kernel="rbf").fit(X.astype(np.float32), Y).predict(NEW.astype(np.float32))
    assert single.dtype == np.float32
    close(single, dense.predict(NEW), rtol=1e-4, atol=1e-5)


def test_a_singular_matrix_gets_jitter_with_a_sentence():
    with pytest.warns(ConvergenceWarning, match="singular within rounding"):
        model = KernelRidge(0.0).fit(X, X[:, 0])
    close(model.predict(NEW), NEW[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, r"alpha: found -1\.0; expected a number >= 0, or one for each of 2 targets"),
        ({"alpha": [1.0, 1.0, 1.0]}, "alpha: found"),
        ({"kernel": "sigmoid"}, "kernel: found 'sigmoid'; expected one of 'linear', 'rbf'"),
        ({"kernel": RBF([1.0, 1.0])}, "kernel: found 2 length scales"),
        ({"gamma": 0.0}, "gamma: found"),
        ({"coef0": -1.0}, "coef0: found"),
    ],
)
def test_bad_settings_are_answered_by_a_sentence(options, message):
    with pytest.raises(BadInput, match=message):
        KernelRidge(**options).fit(X, Y)
