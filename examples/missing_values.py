"""Fit, score and impute rows with missing values."""

import numpy as np

from energax.estimators import GaussianMixture


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    centre = np.array([[0.0, 0.0, 0.0], [4.0, 4.0, -4.0]])[rng.integers(0, 2, 600)]
    mix = np.array([[1.0, 0.8, 0.3], [0.0, 0.6, 0.4], [0.0, 0.0, 0.5]])
    complete = centre + rng.normal(size=(600, 3)) @ mix
    holes = rng.random(complete.shape) < 0.3
    X = np.where(holes, np.nan, complete)

    model = GaussianMixture(2, random_state=0).fit(X)  # NaN is integrated out, not imputed
    filled = model.impute(X)
    by_mean = np.where(holes, np.nanmean(X, axis=0), X)
    error = {
        "column means": float(np.sqrt(np.mean((by_mean - complete)[holes] ** 2))),
        "the mixture": float(np.sqrt(np.mean((filled - complete)[holes] ** 2))),
    }
    print(f"{int(holes.sum())} of {holes.size} values are missing")
    for name, value in error.items():
        print(f"error of values imputed by {name}: {value:.2f}")
    print(f"mean log p of the observed values of a row: {model.log_prob(X).mean()!r}")
    return error


if __name__ == "__main__":
    main()
