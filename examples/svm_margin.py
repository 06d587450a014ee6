"""Show the margin of a support vector machine, its support vectors, and what C and the kernel change."""

import sys

import numpy as np

from energax.estimators import SVC

SETTINGS = {
    "linear kernel, C = 0.05": {"kernel": "linear", "C": 0.05},
    "linear kernel, C = 10": {"kernel": "linear", "C": 10.0},
    "RBF kernel, C = 10": {"kernel": "rbf", "gamma": 0.3, "C": 10.0},
}
BLUE, ORANGE, INK, GREY = "#0072B2", "#D55E00", "#23272E", "#9AA3AF"


def clouds(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two classes of points in the plane, the second one bent around the first."""
    y = np.arange(n) % 2
    angle = rng.uniform(-1.7, 1.7, n)
    bent = np.stack([2.4 * np.cos(angle), 2.4 * np.sin(angle)], axis=1)
    X = np.where(y[:, None] == 1, bent, [-0.5, 0.0]) + 0.5 * rng.normal(size=(n, 2))
    return X, y


def draw(models: dict[str, SVC], X: np.ndarray, y: np.ndarray, path: str) -> None:
    """Plot the points, the boundary f = 0, the margin |f| = 1 and the support vectors of every model."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, panels = plt.subplots(1, 3, figsize=(11, 4.4), sharex=True, sharey=True, layout="constrained")
    low, high = X.min(0) - 0.4, X.max(0) + 0.4
    grid = np.stack(np.meshgrid(np.linspace(low[0], high[0], 160), np.linspace(low[1], high[1], 160)), -1)
    for ax, (name, model) in zip(panels, models.items(), strict=True):
        f = model.decision_function(grid.reshape(-1, 2)).reshape(grid.shape[:2])
        ax.contourf(*np.moveaxis(grid, -1, 0), f, levels=[-1, 1], colors=["#E8EBEF"])
        ax.contour(
            *np.moveaxis(grid, -1, 0),
            f,
            levels=[-1, 0, 1],
            colors=[BLUE, INK, ORANGE],
            linestyles=["dashed", "solid", "dashed"],
            linewidths=[1.2, 2, 1.2],
        )
        for label, colour, marker in ((0, BLUE, "o"), (1, ORANGE, "s")):
            ax.plot(*X[y == label].T, marker, color=colour, ms=4.5, mec="white", mew=0.6)
        support = model.support_vectors_
        ax.plot(*support.T, "o", mfc="none", mec=INK, ms=9, mew=0.9)
        ax.set_title(
            f"{name}\n{len(support)} support vectors, {model.n_at_bound_} at C", fontsize=11, color=INK
        )
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xlabel="x₁")
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(GREY)
        ax.tick_params(color=GREY, labelcolor="#5B6370", length=3)
    panels[0].set_ylabel("x₂", rotation=0)
    handles = [
        Line2D([], [], color=BLUE, marker="o", ls="", ms=5),
        Line2D([], [], color=ORANGE, marker="s", ls="", ms=5),
        Line2D([], [], color=INK, lw=2),
        Line2D([], [], color=GREY, ls="dashed"),
        Line2D([], [], mfc="none", mec=INK, marker="o", ls="", ms=9),
    ]
    names = ["class 0", "class 1", "boundary, f = 0", "margin, |f| = 1", "support vector"]
    figure.legend(handles, names, loc="outside lower center", ncols=5, frameon=False, labelcolor=INK)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(path: str | None = None) -> dict[str, dict[str, float]]:
    X, y = clouds(120, np.random.default_rng(1))
    models = {name: SVC(tol=1e-6, **settings).fit(X, y) for name, settings in SETTINGS.items()}
    found = {}
    for name, model in models.items():
        # In the space of the kernel the margin is 2 / ‖w‖ wide, and ‖w‖² = Σ c_i c_j k(s_i, s_j).
        f = model.decision_function(model.support_vectors_) - model.intercept_[0]
        width = 2 / np.sqrt(float(model.dual_coef_[0] @ f))
        found[name] = {
            "support vectors": int(model.n_support_.sum()),
            "width": width,
            "accuracy": model.score(X, y),
            "gap": model.duality_gap_,
        }
        print(
            f"{name}: margin {width:.2f} wide, {found[name]['support vectors']} support vectors "
            f"({model.n_at_bound_} at the bound), {found[name]['accuracy']:.0%} right, "
            f"duality gap {model.duality_gap_:.1e}"
        )
    if path is not None:
        draw(models, X, y, path)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:2])
