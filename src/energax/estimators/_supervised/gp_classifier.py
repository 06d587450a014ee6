"""Classification by Gaussian processes."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ...energies import LogisticProcess, SoftmaxProcess
from ...energies._supervised import gp_laplace as laplace
from ...errors import BadInput, check_memory
from ...kernels import Kernel
from .._common.settings import FINITE_NOT_NEGATIVE, FLAG, NONE, RANDOM_STATE, WHOLE, Setting, one_of, whole
from .._common.sklearn_errors import translate_sklearn_errors, warn_user
from .._common.table import drop_zero_weight
from .base import check_labels
from .process import FREEZE, KERNEL, ProcessEstimator, check_theta


class GaussianProcessClassifier(ClassifierMixin, ProcessEstimator):
    """Classification by Gaussian processes: p(y = 1 | x) = E[σ(f(x))], f ~ GP(0, k), by Laplace's method.

    p(f | X, y) is replaced by the Gaussian with its mode, found by Newton's method, and its curvature there.
    The hyperparameters of the kernel maximise the evidence log p(y | X) of this approximation. It computes in
    float64, and answers in the dtype of X.

    Several classes are by default, as in scikit-learn, one process for each against all others, with its own
    hyperparameters, and probabilities that are normalised. multi_class="softmax" is one model of all classes,
    p(y = c | x) = E[softmax(f(x))_c], with a function f_c for each, the same kernel for all, and an evidence
    by which kernels can be compared. The mean is a sum over fixed points, within 4e-4 for 3 classes and 5e-3
    for 10, if the variance of f is below 50. Both take O(k n³) operations for n rows and k classes.

    Args:
        kernel: k, of `energax.kernels`; None for RBF with length scale 1, which is not learned.
        optimizer: "fmin_l_bfgs_b", or None to keep the hyperparameters.
        n_restarts_optimizer: random starts beside the given one.
        max_iter, tol: L-BFGS ends when the evidence changes relatively by less than `tol`.
        multi_class: "one_vs_rest" or "softmax". Two classes are always one process.
        freeze: names of hyperparameters that are not learned.
        random_state: of the random starts.

    Attributes:
        classes_: the labels.
        kernels_: the kernel of every model with the learned hyperparameters; one for two classes, and for
            "softmax".
        energies_: the `LogisticProcess` of every model, or the one `SoftmaxProcess`.
        log_marginal_likelihood_value_: log p(y | X); the mean over models if there are several.

    Williams and Barber (1998), Bayesian classification with Gaussian processes; Rasmussen and Williams
    (2006), Gaussian processes for machine learning, algorithms 3.1 to 3.4 and 5.1.

    >>> from energax.kernels import RBF
    >>> X = np.linspace(-3, 3, 30)[:, None]
    >>> model = GaussianProcessClassifier(1.0 * RBF()).fit(X, np.abs(X[:, 0]) > 1)
    >>> model.predict([[0.0], [2.5]]), bool(model.predict_proba([[0.0]])[0, 0] > 0.9)
    (array([False,  True]), True)
    """

    _settings: ClassVar[dict[str, Setting]] = {
        "kernel": KERNEL,
        "optimizer": one_of("fmin_l_bfgs_b") | NONE,
        "n_restarts_optimizer": whole(0),
        "max_iter": WHOLE,
        "tol": FINITE_NOT_NEGATIVE,
        "multi_class": one_of("one_vs_rest", "softmax"),
        "freeze": FREEZE | NONE,
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        kernel=None,
        *,
        optimizer="fmin_l_bfgs_b",
        n_restarts_optimizer=0,
        max_iter=200,
        tol=1e-9,
        multi_class="one_vs_rest",
        freeze=None,
        random_state=None,
    ):
        self.kernel = kernel
        self.optimizer = optimizer
        self.n_restarts_optimizer = n_restarts_optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.multi_class = multi_class
        self.freeze = freeze
        self.random_state = random_state

    def _largest_arrays(self, n, d):
        return {"kernel": (6 * n * n, "the kernel matrix of all pairs of rows, its factor and its inverse")}

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the processes.

        Args:
            X: a table (n_samples, n_features).
            y: the labels, numbers or strings, (n_samples,).
            sample_weight: the weights of the rows, (n_samples,): a row counts in the likelihood as often.
        """
        if y is None:
            name = type(self).__name__
            expected = f"labels: {name} requires y to be passed, but the target y is None"
            raise BadInput("y", "None", expected)
        X, y = self._check_X(X, reset=True, y=y)
        X = X.astype(np.float64)
        weight = self._check_weight(sample_weight, X)
        check_labels("y", y)
        with translate_sklearn_errors("y", "class labels"):
            check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            found = f"only one class, {self.classes_.tolist()[0]!r}"
            raise BadInput("y", found, "labels of at least 2 classes")
        X, index, weight = drop_zero_weight(X, index, weight=weight)
        self.X_train_ = X
        self._weight = np.ones(len(X)) if weight is None else weight.astype(np.float64)
        self._signs = self._signs_of_models(index)
        with self._precision():
            fits = [self._fit_one(sign) for sign in self._signs]
        self.kernels_ = tuple(kernel for kernel, _ in fits)
        self._modes = [mode for _, mode in fits]
        n, d = X.shape
        self.energies_ = tuple(
            LogisticProcess(kernel, d, n) if sign.ndim == 1 else SoftmaxProcess(kernel, len(sign), d, n)
            for kernel, sign in zip(self.kernels_, self._signs, strict=True)
        )
        self.energy_ = self.energies_[0]
        self.log_marginal_likelihood_value_ = float(np.mean([mode.log_evidence for _, mode in fits]))
        return self

    def _signs_of_models(self, index: np.ndarray) -> np.ndarray:
        """Return +1 for the class of a row and −1 for others, (models, n) or (1, k, n); check the memory."""
        n, k = len(index), len(self.classes_)
        is_softmax = k > 2 and self.multi_class == "softmax"
        kept = 2 * k + 2 if is_softmax else 1 if k == 2 else k
        factors = f"the kernel matrix of all rows and its factors for {k} classes"
        check_memory("multi_class", self.multi_class, (6 + kept) * n * n, factors)
        signs = np.where(np.arange(k)[:, None] == index, 1.0, -1.0)
        return signs[None] if is_softmax else signs[1:] if k == 2 else signs

    def _fit_one(self, sign: np.ndarray) -> tuple[Kernel, laplace.AnyMode]:
        """Return kernel and mode of the process of one class, +1, against the others, or of all, (k, n)."""
        X, weight = self.X_train_, self._weight
        of_kernel = lambda kernel: laplace.evidence_and_gradient(kernel, X, sign, weight)
        kernel = self._maximise_evidence(of_kernel, len(X))
        mode = laplace.fit_mode(kernel, X, sign, weight)
        if mode is None:
            remedy = "Scale the columns of X, or start from other hyperparameters."
            raise BadInput("kernel", f"{kernel!r}, whose matrix is not finite", "a finite matrix", remedy)
        if not mode.converged:
            warn_user(
                "GaussianProcessClassifier: Newton's method for the mode did not converge in 100 steps. "
                "Lower the variance of the kernel, or scale the columns of X."
            )
        return kernel, mode

    @property
    def kernel_(self) -> Kernel:  # type: ignore[override]
        """The kernel with the learned hyperparameters; of several models, that of the first class."""
        self._check_fitted()
        return self.kernels_[0]

    # -- predictions -------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class for every row, (m, n_classes)."""
        X = self._check_new_X(X).astype(np.float64)
        with self._precision():
            found = [
                laplace.class_probabilities(kernel, X, self.X_train_, mode)
                for kernel, mode in zip(self.kernels_, self._modes, strict=True)
            ]
        if len(found) == 1:
            return found[0].astype(self.dtype_)
        positive = np.stack([one[:, 1] for one in found], 1)
        total = positive.sum(1, keepdims=True)
        uniform = np.full_like(positive, 1 / positive.shape[1])
        return np.where(total > 0, positive / np.where(total > 0, total, 1), uniform).astype(self.dtype_)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, (m, n_classes)."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label for every row."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(1)]

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> Any:
        """Return Laplace's log p(y | X), and with `eval_gradient` its gradient in theta.

        Args:
            theta: the logarithms of the hyperparameters, in the order of `kernel_.theta`, the same for all
                models; None for those that were learned.
            eval_gradient: whether to return (value, gradient); of one model only: for two classes, or with
                multi_class="softmax".
            clone_kernel: ignored: kernels do not change.
        """
        self._check_fitted()
        FLAG.check("eval_gradient", eval_gradient)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        if eval_gradient and len(self.kernels_) > 1:
            expected = "two classes, or multi_class='softmax'"
            raise BadInput("eval_gradient", "True, for several classes", expected)
        kernels = (
            self.kernels_ if theta is None else [k.with_theta(check_theta(theta)) for k in self.kernels_]
        )
        with self._precision():
            pairs = zip(kernels, self._signs, strict=True)
            found = [laplace.evidence_and_gradient(k, self.X_train_, s, self._weight) for k, s in pairs]
        values = [(-np.inf, np.zeros(len(kernels[0].theta))) if one is None else one for one in found]
        return values[0] if eval_gradient else float(np.mean([value for value, _ in values]))
