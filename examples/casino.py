"""The dishonest casino: decode and learn a hidden Markov chain with two states.

Durbin, Eddy, Krogh and Mitchison (1998): the casino switches between a fair die and one that shows a six
half of the time. The states are decoded by the Viterbi path and by the posterior, and then learned.
"""

import numpy as np

from energax.estimators import CategoricalHMM

FAIR, LOADED = 0, 1


def casino() -> CategoricalHMM:
    model = CategoricalHMM(2)
    model.startprob_ = np.array([0.5, 0.5])
    model.transmat_ = np.array([[0.95, 0.05], [0.10, 0.90]])
    model.emissionprob_ = np.array([np.full(6, 1 / 6), [0.1, 0.1, 0.1, 0.1, 0.1, 0.5]])
    return model


def strip(states: np.ndarray) -> str:
    return "".join("FL"[s] for s in states)


def main() -> dict[str, float]:
    model = casino()
    rolls, truth = model.sample(2000, random_state=1)
    log_prob, path = model.decode(rolls)
    loaded = model.predict_proba(rolls)[:, LOADED]
    print("rolls    ", "".join(str(r + 1) for r in rolls[:60, 0].astype(int)))
    print("die      ", strip(truth[:60]))
    print("viterbi  ", strip(path[:60]))
    print("posterior", strip((loaded[:60] > 0.5).astype(int)))
    found = {
        "viterbi": float((path == truth).mean()),
        "posterior": float(((loaded > 0.5) == truth).mean()),
        "log p(path)": log_prob,
    }
    print(f"correct by Viterbi {found['viterbi']:.1%}, by the posterior {found['posterior']:.1%}")

    # Learn the parameters from the rolls: 20 starts in parallel, the best is kept.
    learned = CategoricalHMM(2, n_features=6, n_iter=500, tol=1e-3, n_init=20, random_state=0).fit(rolls)
    crooked = int(np.argmax(learned.emissionprob_[:, 5]))
    found["six"] = float(learned.emissionprob_[crooked, 5])
    found["gain"] = learned.score(rolls) - model.score(rolls)
    print(f"learned: the loaded die shows a six with {found['six']:.2f} (true value 0.50),")
    stays = learned.transmat_[crooked, crooked]
    print(f"and stays {stays:.2f} (0.90); {found['gain']:+.1f} nats against the truth")
    return found


if __name__ == "__main__":
    main()
