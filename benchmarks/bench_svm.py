"""Support vector machines to the same tolerance as libsvm, which scikit-learn wraps."""

from __future__ import annotations

import numpy as np

from .case import Case

N, D = 5000, 20


def table(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import make_classification
    from sklearn.preprocessing import StandardScaler

    options = {"n_informative": 10, "n_redundant": 2, "class_sep": 0.8, "flip_y": 0.05}
    X, y = make_classification(n, D, random_state=0, **options)
    return StandardScaler().fit_transform(X), y


def cases() -> list[Case]:
    import sklearn.svm

    from energax.estimators import SVC, SVR

    X, y = table()
    target = X[:, 0] * X[:, 1] + np.sin(X[:, 2])

    def case(name, ours, theirs, y, largest, **settings):
        def quality(a, b):
            agree = np.abs(a.predict(X[:500]) - b.predict(X[:500])).mean()
            gap = f"violation {a.kkt_violation_:.1e}, duality gap {a.duality_gap_:.2g}"
            return f"{gap}, {len(a.support_)} and {len(b.support_)} support vectors, difference {agree:.1e}"

        fits = (lambda: ours(**settings).fit(X, y)), (lambda: theirs(**settings).fit(X, y))
        return Case(f"{name}, n = {N:,}, d = {D}", *fits, peer="libsvm", target=largest, quality=quality)

    return [
        case("SVC, RBF, C = 1", SVC, sklearn.svm.SVC, y, 1 / 1.2),
        case("SVC, RBF, C = 10", SVC, sklearn.svm.SVC, y, 1 / 1.2, C=10.0),
        case("SVC, RBF, C = 1, tol = 1e-6", SVC, sklearn.svm.SVC, y, 1 / 1.2, tol=1e-6),
        case("SVR, RBF, C = 1", SVR, sklearn.svm.SVR, target, 1.0),
    ]
