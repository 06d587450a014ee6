"""Run every example, and every block of Python in the README and in CONTRIBUTING."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def load(path: pathlib.Path):
    spec = importlib.util.spec_from_file_location(f"examples_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def blocks(path: pathlib.Path) -> list[tuple[int, str]]:
    """(line, code) of every block of Python."""
    text = path.read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)
    return [(text[: match.start(1)].count("\n"), match.group(1)) for match in found]


def run_blocks(path: pathlib.Path) -> dict:
    """All blocks, one after the other, with the line numbers of the document."""
    module = types.ModuleType(f"document_{path.stem.lower()}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for line, code in blocks(path):
        exec(compile("\n" * line + code, str(path), "exec", dont_inherit=True), vars(module))
    return vars(module)


def test_there_are_examples_and_each_says_what_it_shows():
    assert len(EXAMPLES) >= 3
    for path in EXAMPLES:
        assert path.read_text().startswith('"""'), path.name


def test_the_skeletons_of_contributing_run():
    names = run_blocks(ROOT / "CONTRIBUTING.md")
    assert {"Chain", "RatioMatching", "ForwardSum", "Flip", "ChainEstimator"} <= set(names)


def test_the_code_of_the_readme_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(blocks(ROOT / "README.md")) >= 2
    run_blocks(ROOT / "README.md")


def test_the_readme_names_every_estimator():
    from energax.catalog import of_kind

    text = (ROOT / "README.md").read_text()
    assert [row.name for row in of_kind("estimator") if f"`{row.name}`" not in text] == []


def test_the_walks_of_the_design_name_files_that_exist_and_each_once():
    text = (ROOT / "docs" / "design.md").read_text()
    section = text[text.index("## Four walks") : text.index("## The energy")]
    walks = re.split(r"^### ", section, flags=re.M)[1:]
    assert len(walks) == 4
    for walk in walks:
        files = re.findall(r"^\d+\. `([\w/.]+)`", walk, re.M)
        assert len(files) > 3 and len(set(files)) == len(files), walk.splitlines()[0]
        missing = [f for f in files if not (ROOT / "src" / "energax" / f).is_file()]
        assert not missing, missing


def test_missing_values(capsys):
    error = load(ROOT / "examples" / "missing_values.py").main()
    assert error["the mixture"] < 0.5 * error["column means"]


@pytest.mark.slow
def test_estimators(capsys):
    load(ROOT / "examples" / "estimators.py").main()
    assert "bit-identical: True" in capsys.readouterr().out


@pytest.mark.slow
def test_four_principles(capsys):
    found = load(ROOT / "examples" / "four_principles.py").main()
    floors = {
        "exact likelihood": -18.9,
        "contrastive divergence": -19.1,
        "persistent chains": -19.5,
        "noise contrastive": -19.8,
    }
    assert abs(found.pop("error of log Z")) < 0.3  # as learned, against the sum over all 4096 hidden states
    assert set(found) == set(floors)
    for name, floor in floors.items():
        assert found[name] >= floor, name


def test_the_readme_shows_the_example_as_it_is():
    """The page on four principles is the file, not a memory of it."""
    code = (ROOT / "examples" / "four_principles.py").read_text()
    shown = next(block for _, block in blocks(ROOT / "README.md") if "class Machine" in block)
    for line in shown.splitlines():
        assert line.strip() in code, f"not in examples/four_principles.py: {line}"


def test_bayesian_curve_fitting(capsys, tmp_path):
    found = load(ROOT / "examples" / "bayesian_curve_fitting.py").main(str(tmp_path / "curve.png"))
    assert found["1"] > found["3"] > found["8"] > found["30"] > 0.2  # never below the noise
    assert found["covered"] > 0.9 and found["noise"] == pytest.approx(0.2, rel=0.25)


def test_the_story_of_the_alarm(capsys):
    """Russell and Norvig print 0.284 for both calls; the rest by hand from the tables."""
    found = load(ROOT / "examples" / "burglary.py").main()
    assert found["burglary"] == pytest.approx(0.2841718, abs=1e-6)
    assert found["rings"] == pytest.approx(0.3735512, abs=1e-6)
    assert found["quake"] == pytest.approx(0.00095 / (0.00095 + 0.28971), abs=1e-6)  # explained away
    assert found["forced"] == pytest.approx(0.001, abs=1e-12)


def test_association_is_not_intervention(capsys):
    found = load(ROOT / "examples" / "causes.py").main()
    seen, within, done = found["confounder"]
    assert seen == pytest.approx(0.36, abs=1e-9) and abs(within) < 1e-9 and abs(done) < 1e-9
    seen, within, done = found["chain"]
    assert seen == pytest.approx(0.36) and done == pytest.approx(0.36) and abs(within) < 1e-9
    seen, within, done = found["collider"]
    assert abs(seen) < 1e-9 and abs(done) < 1e-9 and within < -0.3  # explaining away


@pytest.mark.slow
def test_tracking(capsys):
    found = load(ROOT / "examples" / "tracking.py").main()
    assert found["smoothed"] < found["filtered"] < found["observed"]
    assert found["covered"] > 0.9


@pytest.mark.slow
def test_the_dishonest_casino(capsys):
    found = load(ROOT / "examples" / "casino.py").main()
    assert (
        found["viterbi"] > 0.8 and found["posterior"] >= found["viterbi"]
    )  # the posterior errs least, by step
    assert found["gain"] > 0 and 0.4 < found["six"] < 0.6


@pytest.mark.slow
def test_tagging(capsys, shared_data):
    """NLTK's tagger with the same smoothing has 0.8988 right."""
    assert load(ROOT / "examples" / "tagging.py").main()["accuracy"] >= 0.8988


@pytest.mark.slow
def test_svm_margin(capsys, tmp_path):
    found = load(ROOT / "examples" / "svm_margin.py").main(str(tmp_path / "margin.png"))
    soft, hard, bent = found.values()
    assert soft["width"] > 1.5 * hard["width"] and soft["support vectors"] > hard["support vectors"]
    assert bent["accuracy"] > hard["accuracy"] and max(f["gap"] for f in found.values()) < 1e-3
    assert (tmp_path / "margin.png").stat().st_size > 10_000


@pytest.mark.slow
def test_adversarial_digits(capsys, tmp_path):
    found = load(ROOT / "examples" / "adversarial_digits.py").main(tmp_path / "digit.png")
    assert min(found["plain"][0], found["adversarial"][0]) > 0.95  # without an attack
    assert found["adversarial"][3] > found["plain"][3] + 0.4  # changes of 0.15
    assert (tmp_path / "digit.png").stat().st_size > 10_000
