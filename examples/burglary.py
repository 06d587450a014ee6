"""Pearl's burglary network: posterior, explaining away, and an intervention.

A burglary or an earthquake sets off an alarm, and two neighbours may call.
"""

from energax import argmin, plan, posterior, sample
from energax.energies import BayesianNetwork
from energax.graph import d_separated

NO_YES = ("no", "yes")


def alarm_story() -> BayesianNetwork:
    return BayesianNetwork(
        {
            "burglary": [0.999, 0.001],
            "earthquake": [0.998, 0.002],
            "alarm": (
                ("burglary", "earthquake"),
                [[[0.999, 0.001], [0.71, 0.29]], [[0.06, 0.94], [0.05, 0.95]]],
            ),
            "john": ("alarm", [[0.95, 0.05], [0.10, 0.90]]),
            "mary": ("alarm", [[0.99, 0.01], [0.30, 0.70]]),
        },
        states=dict.fromkeys(("burglary", "earthquake", "alarm", "john", "mary"), NO_YES),
    )


def main() -> dict[str, float]:
    net = alarm_story()
    both = {"john": "yes", "mary": "yes"}
    print(plan(posterior, net, both))

    called = posterior(net, both)
    print(f"both call:            p(burglary) = {called.marginals['burglary']['yes']:.4f}")
    print(f"                  log p(both call) = {called.log_evidence}")
    print(f"most probable states: { {k: NO_YES[int(v)] for k, v in argmin(net, both).items()} }")

    # Explaining away: independent causes become dependent once their effect is observed.
    rings = posterior(net, {"alarm": "yes"}).marginals["burglary"]["yes"]
    quake = posterior(net, {"alarm": "yes", "earthquake": "yes"}).marginals["burglary"]["yes"]
    print(f"alarm observed:       p(burglary) = {rings:.4f}")
    print(f"… and an earthquake:  p(burglary) = {quake:.4f}")
    print(d_separated(net.graph(), "burglary", "earthquake"))
    print(d_separated(net.graph(), "burglary", "earthquake", ["john"]))

    # Setting the alarm by intervention does not change the probability of a burglary.
    forced = posterior(net.do(alarm="yes")).marginals["burglary"]["yes"]
    print(f"do(alarm):            p(burglary) = {forced:.4f}")
    nights = sample(net, 10_000, key=0)
    print(f"in 10 000 nights the alarm rang {int((nights['alarm'] == 1).sum())} times")
    return {
        "burglary": float(called.marginals["burglary"]["yes"]),
        "rings": float(rings),
        "quake": float(quake),
        "forced": float(forced),
    }


if __name__ == "__main__":
    main()
