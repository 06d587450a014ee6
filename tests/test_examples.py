"""Run every example, and every block of Python in the README and in CONTRIBUTING."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import sys
import types

import numpy as np
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
def test_mixture_of_flows(tmp_path):
    """Of two flows, fewer draws lie where the density is 0 than of one, which cannot tear space apart."""
    found = load(ROOT / "examples" / "mixture_of_flows.py").main(str(tmp_path / "flows.png"))
    assert (tmp_path / "flows.png").stat().st_size > 10_000
    assert found["agreement"] > 0.99 and found["mixture of two flows"] < 0.5 * found["one flow"]


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


@pytest.mark.slow
def test_dreaming_digits(capsys, tmp_path):
    """Both directions tuned: the bound is above the exact score of the RBM at the bottom."""
    found = load(ROOT / "examples" / "dreaming_digits.py").main(str(tmp_path / "dreams.png"))
    assert (tmp_path / "dreams.png").stat().st_size > 10_000
    assert found["network after up-down"] > found["bottom RBM"] + 0.2 > -18.9


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


def test_gaussian_process(capsys, tmp_path):
    found = load(ROOT / "examples" / "gaussian_process.py").main(str(tmp_path / "draws.png"))
    assert found["evidence, learned"] > found["evidence"]
    assert found["largest error between the data"] < 4 * found["deviation between the data"]
    assert found["deviation far from them"] > 0.8  # that of the prior is 1
    assert (tmp_path / "draws.png").stat().st_size > 10_000


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


def test_two_wells(capsys, tmp_path):
    """The roots of 4 x (x² − 1) + 1/4 = 0 are −1.0300, 0.0630 and 0.9670."""
    picture = tmp_path / "wells.png"
    found = load(ROOT / "examples" / "two_wells.py").main(str(picture))
    assert found["minima"] == 2 and found["saddles"] == 1 and picture.stat().st_size > 10_000
    left, middle, right = np.sort(np.roots([4, 0, -4, 0.25]))
    assert found["lowest"] == pytest.approx(left, abs=1e-3) and found["right"] == pytest.approx(
        right, abs=1e-5
    )
    e = lambda x: (x**2 - 1) ** 2 + x / 4
    assert found["barrier"] == pytest.approx(e(middle) - e(left), abs=1e-6)
    assert found["rises"] <= 0  # the step 1 / L never goes up


@pytest.mark.slow
def test_adversarial_digits(capsys, tmp_path):
    found = load(ROOT / "examples" / "adversarial_digits.py").main(tmp_path / "digit.png")
    assert min(found["plain"][0], found["adversarial"][0]) > 0.95  # without an attack
    assert found["adversarial"][3] > found["plain"][3] + 0.4  # changes of 0.15
    assert (tmp_path / "digit.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_latent_plane(capsys, tmp_path):
    found = load(ROOT / "examples" / "latent_plane.py").main(str(tmp_path / "plane.png"))
    assert found["error"] < 0.85 * found["error of the mean"] and 0 < found["gap"] < 5
    assert (tmp_path / "plane.png").stat().st_size > 10_000


@pytest.mark.slow
def test_svm_margin(capsys, tmp_path):
    found = load(ROOT / "examples" / "svm_margin.py").main(str(tmp_path / "margin.png"))
    soft, hard, bent = found.values()
    assert soft["width"] > 1.5 * hard["width"] and soft["support vectors"] > hard["support vectors"]
    assert bent["accuracy"] > hard["accuracy"] and max(f["gap"] for f in found.values()) < 1e-3
    assert (tmp_path / "margin.png").stat().st_size > 10_000


def test_gradient_estimators(capsys, tmp_path):
    """All reach −1.5 without bias; 33 means are within 4.2 standard errors with probability 0.999."""
    picture = tmp_path / "gradients.png"
    found = load(ROOT / "examples" / "gradient_estimators.py").main(str(picture))
    none, estimated, others, best, paths = (found[name]["deviation"] for name in found)
    assert none > estimated > others > best > paths
    # Var = (a² / 16) (m⁴ + 18 m² + 15 − 2 b (m² + 3) + b² − 4 m²) for a baseline b, with m = 3.
    assert none == pytest.approx(np.sqrt(222 / 4), rel=0.05) and best == pytest.approx(
        np.sqrt(78 / 4), rel=0.05
    )
    # Var[dz²/dθ] = (2a)² Var[z] / 16 for the path: 1 at every θ.
    assert paths == pytest.approx(1.0, rel=0.05)
    for each in found.values():
        assert each["bias"] < 4.2 and each["end"] == pytest.approx(-1.5, abs=0.03)
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_eight_schools(capsys, tmp_path):
    """P(log τ < −2) against quadrature: centred draws miss the neck, others are within 4.2 errors."""
    picture = tmp_path / "schools.png"
    found = load(ROOT / "examples" / "eight_schools.py").main(str(picture))
    centred, free, exact = found["centred"], found["non-centred"], found["exact"]["small"]
    assert centred["divergent"] > 20 and not centred["trusted"] and "diverged" in centred["warnings"][0]
    assert free["divergent"] == 0 and free["trusted"] and free["warnings"] == []
    error = np.sqrt(exact * (1 - exact) / free["effective"])
    assert abs(free["small"] - exact) < 4.2 * error and centred["small"] < 0.6 * exact
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_two_modes(capsys, tmp_path):
    picture = tmp_path / "modes.png"
    found = load(ROOT / "examples" / "two_modes.py").main(str(picture))
    walk, tempered = found["random walk"], found["parallel tempering"]
    assert set(walk["by chain"]) == {0.0, 1.0}  # no chain ever crosses
    assert "stay in different regions" in walk["warnings"][0] and tempered["warnings"] == []
    assert "ParallelTempering" in walk["warnings"][0]
    error = np.sqrt(0.65 * 0.35 / tempered["effective"])
    assert abs(tempered["right"] - 0.65) < 4.2 * error  # missed with probability 3e-5
    assert abs(found["log Z"]["value"]) < 4.2 * found["log Z"]["error"] < 0.2
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_bayesian_network(capsys, tmp_path):
    """NUTS widens away from the data, the mean-field Gaussian does not; fits differ little near the data."""
    picture = tmp_path / "network.png"
    found = load(ROOT / "examples" / "bayesian_network.py").main(str(picture))
    nuts, gaussian, fits = found.values()
    assert nuts["R-hat"] < 1.02 and nuts["covered"] > 0.95 > 0.5 > fits["covered"]
    assert nuts["outside"] > 5 * nuts["inside"] and nuts["outside"] > 4 * gaussian["outside"]
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_coal_mining(capsys, tmp_path):
    """Every year that matters against the exact sum: 2 · 14 frequencies, missed with probability 1e-3."""
    picture, module = tmp_path / "coal.png", load(ROOT / "examples" / "coal_mining.py")
    assert len(module.COUNTS) == 112 and module.COUNTS.sum() == 191
    found = module.main(str(picture))
    exact = found.pop("exact")["p"]
    assert set(found) == {"NUTS", "compound"} and module.FIRST + exact.argmax() == 1891
    for each in found.values():
        many = exact > 2e-3
        error = np.sqrt(exact * (1 - exact) / each["effective"])
        assert each["trusted"] and (np.abs(each["p"] - exact)[many] < 4.2 * error[many]).all()
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_parameter_posteriors(capsys, tmp_path):
    """Slopes against the sum over a grid, within 4.2 standard errors; means of the others agree by method."""
    picture, module = tmp_path / "posteriors.png", load(ROOT / "examples" / "parameter_posteriors.py")
    rows = module.logistic_regression().rows
    module.RNG = np.random.default_rng(0)
    found = module.main(str(picture))
    slope, bias = np.meshgrid(np.linspace(-1, 5, 301), np.linspace(-4, 4, 301), indexing="ij")
    logits = slope[..., None] * rows["x"][:, 0] + bias[..., None]
    log_p = (rows["y"] * logits - np.logaddexp(0, logits)).sum(-1) - (slope**2 + bias**2) / 8
    p = np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum()
    mean = (p * slope).sum()
    deviation = np.sqrt((p * slope**2).sum() - mean**2)
    logistic = found["logistic regression"]
    nuts, sgld, laplace, variational, _ = logistic.values()
    for one, bias in ((nuts, 0), (sgld, 0.1), (variational, 0.02), (laplace, 0.3)):
        off = abs(one["values"].mean() - mean) / deviation
        assert off < bias + 4.2 / np.sqrt(one["effective"]), (off, one["effective"])
    assert all(not one["warnings"] for one in (nuts, laplace, variational))
    for name in ("mixture", "hidden Markov chain", "network"):
        nuts, sgld, laplace, variational, refits = found[name].values()
        assert "chains disagree" in nuts["warnings"][0]  # about the order of components, states or units
        assert nuts["R-hat"] < 1.05  # and agree about what does not depend on it
        if name == "network":  # SGLD has not mixed, and says so; Laplace is far off
            assert "chains disagree" in sgld["warnings"][0]
        near = (sgld, laplace, variational, refits) if name != "network" else (variational,)
        for one in near:
            assert abs(one["values"].mean() - nuts["values"].mean()) < nuts["values"].std()
    assert all(0.05 < one["check"] < 0.95 for each in found.values() for one in each.values())
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_neural_band(capsys, tmp_path):
    """The curve is known to the noise of 20 points near them, and four times less well elsewhere."""
    picture = tmp_path / "band.png"
    found = load(ROOT / "examples" / "neural_band.py").main(str(picture))
    nuts, ensemble = found.values()
    assert nuts["R-hat"] < 1.05 and 0.93 < nuts["covered"] < 0.99 and nuts["gap"] == 1
    assert nuts["near"] < 0.15 / np.sqrt(5) and nuts["far"] > 4 * nuts["near"]
    assert ensemble["far"] < 0.7 * nuts["far"]
    assert picture.stat().st_size > 10_000


@pytest.mark.slow
def test_rare_events(capsys, tmp_path):
    """All within 4.2 standard errors of quadrature; the optimal proposal has only those of its cells."""
    picture = tmp_path / "events.png"
    found = load(ROOT / "examples" / "rare_events.py").main(str(picture))
    truth = found.pop("truth")["value"]
    plain, shifted, adapted, optimal = (found[name]["draws"] for name in found)
    assert plain > 1000 * shifted and shifted > 10 * adapted and adapted > 1000 * optimal
    assert found.pop("optimal")["value"] == pytest.approx(truth, rel=1e-3)
    for each in found.values():
        assert abs(each["value"] - truth) < 4.2 * each["stderr"]
    assert picture.stat().st_size > 10_000
