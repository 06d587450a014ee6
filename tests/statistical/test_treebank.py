"""Language models of the Penn Treebank reach the perplexities that are published for it."""

from __future__ import annotations

import time
import zipfile

import pytest

from energax.energies._language.ngram_smoothing import Katz
from energax.estimators._language.ngram import NGramModel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def treebank(shared_data):
    path = shared_data / "ptb" / "ptb.zip"
    if not path.is_file():
        pytest.skip("the Penn Treebank is not here")
    with zipfile.ZipFile(path) as file:
        return {
            part: file.read(f"ptb.{part}.txt").decode().splitlines() for part in ("train", "valid", "test")
        }


#: Test perplexities: of Kneser–Ney as recomputed from these files, of Katz (counts to 7 discounted, longer
#: n-grams seen once dropped) as Mikolov (2012), Statistical language models based on neural networks,
#: table 4.1, prints them with one decimal.
KNOWN = [
    (5, "kneser-ney", "test", 141.186, 1e-3),
    (5, "kneser-ney", "valid", 148.008, 1e-3),
    (3, "kneser-ney", "test", 148.281, 1e-3),
    (5, "kneser-ney-1", "test", 143.512, 1e-3),
    (3, "kneser-ney-1", "test", 150.602, 1e-3),
    (3, Katz(7, cutoff=1), "test", 165.2, 0.05),
    (5, Katz(7, cutoff=1), "test", 162.3, 0.05),
]


@pytest.mark.parametrize(("order", "smoothing", "part", "known", "within"), KNOWN)
def test_perplexity(treebank, order, smoothing, part, known, within):
    began = time.perf_counter()
    model = NGramModel(order, smoothing).fit(treebank["train"])
    found = model.perplexity(treebank[part])
    assert found == pytest.approx(known, abs=within)
    assert model.vocabulary_.n_predicted == 10_000
    assert time.perf_counter() - began < 12
