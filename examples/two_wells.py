"""A function with two wells: its critical points, their kinds, and the way over the pass between them.

Newton's method goes to critical points of any kind. From a grid of starts it finds two minima and the saddle
between them, and `curvature` says which is which. L-BFGS goes down only: its lowest end is the deeper well.
Gradient descent with the safe step 1 / L goes down into one well or the other, depending on the start.
"""

import sys

import jax.numpy as jnp
import numpy as np

import energax
from energax import curvature
from energax.infer import LBFGS


class TwoWells(energax.Energy):
    """e(x, y) = (x² − 1)² + x / 4 + (y − x / 2)²: wells near x = ±1; the left one is deeper."""

    @property
    def spaces(self):
        return {"x": energax.Real(2)}

    def __call__(self, *, x):
        return (x[0] ** 2 - 1) ** 2 + x[0] / 4 + (x[1] - x[0] / 2) ** 2


WELLS = TwoWells()


def height(x):
    return WELLS(x=x)


def newton(x: np.ndarray, steps: int = 50) -> np.ndarray:
    """Follow x ← x − H⁻¹ g, with steps of length 1 at most, until the gradient is small."""
    for _ in range(steps):
        here = curvature(height, x)
        if here.kind != "not critical":
            break
        step = np.linalg.solve(here.hessian, here.gradient)
        x = x - step / max(1.0, np.linalg.norm(step))
    return x


def descend(x: np.ndarray, steps: int = 150) -> np.ndarray:
    """The path of gradient descent with the step 1 / L, where L holds for all points of the region."""
    step = curvature(height, np.zeros(2), radius=2.0).safe_step
    path = [x]
    for _ in range(steps):
        path.append(path[-1] - step * curvature(height, path[-1]).gradient)
    return np.array(path)


def critical_points() -> list[tuple[np.ndarray, str]]:
    """(point, kind) of all that Newton's method finds from a grid of starts, by x."""
    found: list[tuple[np.ndarray, str]] = []
    for start in np.stack(np.meshgrid(np.linspace(-1.6, 1.6, 5), [-1.0, 0.2, 1.0]), -1).reshape(-1, 2):
        end = newton(start)
        if not any(np.allclose(end, point, atol=1e-4) for point, _ in found):
            found.append((end, curvature(height, end).kind))
    return sorted(found, key=lambda pair: pair[0][0])


def draw(points: list[tuple[np.ndarray, str]], paths: list[np.ndarray], file: str) -> None:
    import matplotlib.pyplot as plt

    figure, (top, cut) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(3, 2), layout="constrained")
    x, y = np.meshgrid(np.linspace(-1.9, 1.9, 200), np.linspace(-1.6, 1.6, 200))
    levels = [-0.25, -0.15, 0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.5, 2.2, 3.2, 4.5]
    values = np.asarray(height(jnp.stack([x, y])))
    shown = top.contourf(x, y, values, levels=levels, cmap="Blues_r", extend="both", alpha=0.7)
    top.contour(x, y, values, levels=levels, colors="white", linewidths=0.6, linestyles="solid")
    figure.colorbar(shown, ax=top, label="e(x, y)")
    for i, path in enumerate(paths):
        label = "gradient descent, step 1 / L" if i == 0 else None
        top.plot(*path.T, "-", color="#5F6570", linewidth=1.1, label=label)
        top.plot(*path[0], ".", color="#5F6570", markersize=6)
    marks = {"minimum": ("o", "#009E73"), "saddle": ("X", "#D55E00")}
    for kind, (marker, color) in marks.items():
        chosen = np.array([point for point, k in points if k == kind])
        top.plot(*chosen.T, marker, color=color, markersize=11, markeredgecolor="white", label=kind)
        heights = [float(height(p)) for p in chosen]
        cut.plot(chosen[:, 0], heights, marker, color=color, markersize=11, markeredgecolor="white", zorder=3)
    # At a saddle, f curves down along the eigenvector of the negative eigenvalue.
    saddle = next(point for point, kind in points if kind == "saddle")
    along = curvature(height, saddle).eigenvectors[:, 0]
    ends = saddle + np.outer([-0.45, 0.45], along)
    arrows = {"arrowstyle": "<->", "color": "#D55E00", "linewidth": 1.5}
    top.annotate("", ends[0], ends[1], arrowprops=arrows)
    top.plot([], [], color="#D55E00", linewidth=1.5, label="curving down")
    top.set(title="Critical points and paths of descent", xlabel="x", ylabel="y", aspect="equal")
    top.legend(loc="lower right", framealpha=0.9, fontsize="small")

    line = np.linspace(-1.6, 1.6, 200)
    cut.plot(line, np.asarray(height(jnp.stack([line, line / 2]))), color="#0072B2")
    for point, _ in points:
        local, width = curvature(height, point), np.linspace(-0.35, 0.35, 50)
        # The second-order model along the valley y = x / 2.
        bend = np.array([1, 0.5]) @ local.hessian @ np.array([1, 0.5])
        cut.plot(point[0] + width, local.value + bend * width**2 / 2, "--", color="#E69F00", linewidth=1.5)
    cut.plot([], [], "--", color="#E69F00", label="quadratic model from g and H")
    cut.set(title="Along the valley y = x / 2", xlabel="x", ylabel="e", ylim=(-0.4, 1.8))
    cut.legend(loc="upper center")
    for side in ("top", "right"):
        cut.spines[side].set_visible(False)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main(file: str | None = None) -> dict[str, float]:
    points = critical_points()
    for point, kind in points:
        here = curvature(height, point)
        low, high = here.eigenvalues
        where = f"({point[0]:+.3f}, {point[1]:+.3f})"
        print(f"{kind:8} at {where}, e = {here.value:+.3f}, eigenvalues {low:+.2f} and {high:+.2f}")
    lowest = energax.argmin(WELLS, {}, LBFGS(n_starts=8))["x"]
    print(f"the lowest of 8 runs of L-BFGS ends at ({lowest[0]:+.3f}, {lowest[1]:+.3f})")

    # With bounds that exclude the deeper well, the shallower one is the minimum.
    right = energax.constrained(height, np.array([1.0, 0.0]), bounds=(0, None))
    print(f"the best with x, y ≥ 0: ({right.x[0]:+.3f}, {right.x[1]:+.3f}). {right.status}")

    starts = np.array([[-1.6, 1.2], [-0.2, 1.3], [0.3, 1.3], [0.35, -0.85], [1.6, -0.8], [-0.9, -1.3]])
    paths = [descend(start) for start in starts]
    rises = max(float(np.diff([float(height(p)) for p in path]).max()) for path in paths)
    print(f"the largest rise of e in any step of descent: {rises:.1e}")
    kinds = [kind for _, kind in points]
    heights = [float(height(point)) for point, _ in points]
    if file:
        draw(points, paths, file)
        print(f"drawn in {file}")
    return {
        "minima": kinds.count("minimum"),
        "saddles": kinds.count("saddle"),
        "barrier": heights[1] - heights[0],
        "lowest": float(lowest[0]),
        "right": float(right.x[0]),
        "rises": rises,
    }


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "two_wells.png")
