"""Estimators in pipelines and grid search, a score with its standard error, and saving without pickle."""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from energax.estimators import GaussianMixture, LinearClassifier


def main() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LinearClassifier(random_state=0))
    print(f"linear classifier on iris, training accuracy {pipeline.fit(X, y).score(X, y):.3f}")

    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(GaussianMixture(random_state=0), {"n_components": [1, 2, 3]}, cv=folds).fit(X)
    print(f"number of components by cross-validation: {search.best_params_['n_components']}")

    mixture = GaussianMixture(3, random_state=0).fit(X)
    print(f"mean log p of a row: {mixture.log_prob(X).mean()!r}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mixture.safetensors"
        mixture.save(path)
        again = GaussianMixture.load(path)
    print(f"loaded model is bit-identical: {np.array_equal(again.means_, mixture.means_)}")


if __name__ == "__main__":
    main()
