"""Track a position by the Kalman filter and smoother, with noise and missing observations."""

import numpy as np

from energax.estimators import LinearGaussianChain


def drive(n: int, rng: np.random.Generator) -> np.ndarray:
    """A smooth path in the plane, one position per second, in metres."""
    heading = np.cumsum(0.08 * rng.normal(size=n)) + np.linspace(0, 2, n)
    speed = 12 + np.cumsum(0.2 * rng.normal(size=n))
    return np.cumsum(speed[:, None] * np.stack([np.cos(heading), np.sin(heading)], axis=1), axis=0)


def main() -> dict[str, float]:
    rng = np.random.default_rng(0)
    path = drive(320, rng)
    seen = path + 15 * rng.normal(size=path.shape)  # noise with a standard deviation of 15 m
    seen[120:135] = np.nan  # a tunnel
    seen[rng.random(320) < 0.1, 0] = np.nan  # sometimes one coordinate is missing
    past, future = slice(0, 300), slice(300, 320)

    # Positions and velocities; EM learns the noise of the velocity and of the observations.
    model = LinearGaussianChain.constant_velocity(2, max_iter=500, tol=1e-2).fit(seen[past])
    filtered, smoothed = model.filter(seen[past])[0], model.smooth(seen[past])[0]
    deviation = np.sqrt(np.diagonal(model.smooth(seen[past])[1], axis1=1, axis2=2))
    tunnel = slice(120, 135)
    off = lambda a, b: float(np.sqrt(np.nanmean(np.sum((a - b) ** 2, axis=-1))))
    found = {
        "observed": off(seen[past], path[past]),
        "filtered": off(filtered[:, :2], path[past]),
        "smoothed": off(smoothed[:, :2], path[past]),
        "smoothed in the tunnel": off(smoothed[tunnel, :2], path[tunnel]),
    }
    for name, error in found.items():
        print(f"error of positions, {name}: {error:.1f} m")
    print(f"learned observation noise: {np.sqrt(np.diag(model.emission_covariance_)).round(1)} m")

    within = np.abs(smoothed[:, :2] - path[past]) < 1.96 * deviation[:, :2]
    bands = model.forecast(seen[past], 20, level=0.95)
    ahead = (bands.lower < path[future]) & (path[future] < bands.upper)
    found["covered"], found["covered ahead"] = float(within.mean()), float(ahead.mean())
    print(
        f"true positions inside the 95 % bands: {found['covered']:.0%}; of the 20 s ahead {ahead.mean():.0%}"
    )
    print(f"log-likelihood {model.score(seen[past]):.1f} after {model.n_iter_} steps of EM")
    return found


if __name__ == "__main__":
    main()
