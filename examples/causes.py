"""Association and causation in a confounder, a chain and a collider."""

from energax import posterior
from energax.energies import BayesianNetwork
from energax.graph import d_separated

RISES = [[0.8, 0.2], [0.2, 0.8]]
SHAPES = {
    "confounder  x ← c → y": BayesianNetwork({"c": [0.5, 0.5], "x": ("c", RISES), "y": ("c", RISES)}),
    "chain       x → c → y": BayesianNetwork({"x": [0.5, 0.5], "c": ("x", RISES), "y": ("c", RISES)}),
    "collider    x → c ← y": BayesianNetwork(
        {
            "x": [0.5, 0.5],
            "y": [0.5, 0.5],
            "c": (("x", "y"), [[[0.9, 0.1], [0.3, 0.7]], [[0.3, 0.7], [0.1, 0.9]]]),
        }
    ),
}


def difference(net: BayesianNetwork, **given: int) -> float:
    """p(y = 1 | x = 1, given) − p(y = 1 | x = 0, given)."""
    each = [posterior(net, {"x": x, **given}).marginals["y"][1] for x in (0, 1)]
    return float(each[1] - each[0])


def _3(number: float) -> str:
    return f"{round(number, 3) + 0.0:+.3f}"


def main() -> dict[str, tuple[float, float, float]]:
    found = {}
    print(f"{'':22} given x  given x, c   do(x)")
    for name, net in SHAPES.items():
        done = [posterior(net.do(x=x)).marginals["y"][1] for x in (0, 1)]
        found[name.split()[0]] = row = (difference(net), difference(net, c=1), float(done[1] - done[0]))
        print(f"{name:22} {_3(row[0])}     {_3(row[1])}     {_3(row[2])}")
    confounded = SHAPES["confounder  x ← c → y"]
    print(d_separated(confounded.graph(), "x", "y"))
    by_adjustment = confounded.effect("y", x=1, by="back-door")
    print(f"back-door adjustment from observational data: p(y | do(x = 1)) = {by_adjustment.round(3)}")
    return found


if __name__ == "__main__":
    main()
