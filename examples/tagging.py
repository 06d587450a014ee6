"""Part-of-speech tagging by a hidden Markov chain: tags are states, words are emissions.

Needs the tagged sample of the Penn Treebank (NLTK's `treebank.zip`), whose folder is given by the
environment variable ENERGAX_DATA or lies beside the repository.
"""

import os
import re
import zipfile
from pathlib import Path

import numpy as np

from energax.data import Vocabulary
from energax.estimators import CategoricalHMM

N_TRAIN = 3000
SMOOTHING = 0.1


def find_data() -> Path | None:
    """The zip file, or None if it is not found."""
    beside = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    path = Path(os.environ.get("ENERGAX_DATA", beside)) / "pos-tagging" / "treebank.zip"
    return path if path.is_file() else None


def tagged_sentences(path: Path) -> list[list[tuple[str, str]]]:
    """[(word, tag), …] of every sentence: the leaves of the parsed trees, in the order of the files."""
    sentences = []
    with zipfile.ZipFile(path) as archive:
        for name in sorted(n for n in archive.namelist() if re.search(r"combined/wsj_\d+\.mrg$", n)):
            sentences += [
                re.findall(r"\(([^\s()]+) ([^\s()]+)\)", tree) for tree in trees(archive.read(name))
            ]
    return [[(word, tag) for tag, word in leaves] for leaves in sentences]


def trees(text: bytes) -> list[str]:
    """The pieces between balanced outer parentheses."""
    found, depth, start = [], 0, 0
    decoded = text.decode("latin-1")
    for place, sign in enumerate(decoded):
        if sign == "(":
            start, depth = (place if depth == 0 else start), depth + 1
        elif sign == ")":
            depth -= 1
            if depth == 0:
                found.append(decoded[start : place + 1])
    return found


def main() -> dict[str, float]:
    path = find_data()
    if path is None:
        print("The treebank sample was not found: set ENERGAX_DATA to the folder of the data.")
        return {}
    sentences = tagged_sentences(path)
    train, test = sentences[:N_TRAIN], sentences[N_TRAIN:]
    # Words that occur once are mapped to the unknown word, so that its emission is learned.
    words = Vocabulary.build([[w for w, _ in s] for s in train], min_count=2)
    tags = sorted({tag for s in sentences for _, tag in s})
    number = {tag: i for i, tag in enumerate(tags)}

    def encode(part):
        X = np.concatenate([words.encode([w for w, _ in s]) for s in part])[:, None]
        return X, [len(s) for s in part], np.array([number[t] for s in part for _, t in s])

    X, lengths, states = encode(train)
    alpha = 1 + SMOOTHING  # a Dirichlet prior whose mode is a count with SMOOTHING added
    model = CategoricalHMM(
        len(tags), alpha, alpha, emissionprob_prior=alpha, n_features=words.n_predicted, n_iter=1
    ).fit(X, lengths, states=states)
    X, lengths, truth = encode(test)
    found = {"accuracy": float((model.predict(X, lengths) == truth).mean()), "tokens": len(truth)}
    print(
        f"{len(train)} training sentences, {len(test)} test sentences, {len(tags)} tags, {len(words)} words"
    )
    print(f"accuracy: {found['accuracy']:.4f} of {found['tokens']} words")
    return found


if __name__ == "__main__":
    main()
