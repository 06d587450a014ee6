"""Settings and fixtures of all tests: the compilation cache, shared data, digits."""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The older code generator of XLA takes a third of the time to compile. Set XLA_FLAGS, empty or not, to test
# with the one that users have. XLA ends the process at a flag that it does not know, so only for versions
# that know this one.
if importlib.metadata.version("jaxlib").startswith(("0.9.", "0.10.")):
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false")

import hypothesis  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

from energax import programs  # noqa: E402

hypothesis.settings.register_profile(
    "energax", deadline=None, max_examples=15, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("energax")


#: Tests that run long enough to be compiled with all optimizations. The others run once, on little data.
RUNS_LONG = (
    "tests/evaluate",
    "tests/statistical/test_competition.py",
    "tests/statistical/test_digits.py",
    "tests/statistical/test_mixtures.py",
    "tests/statistical/test_structure.py",
    "tests/test_examples.py::test_four_principles",
    "tests/test_examples.py::test_tagging",
    "tests/test_examples.py::test_the_dishonest_casino",
)
#: Memory maps and bytes of a worker above which it drops its programs.
_MOST_MAPS, _MOST_BYTES = 25_000, 1.5e9
_PROCESS = pathlib.Path("/proc/self")
#: Whether something was compiled since the memory maps were last counted.
_compiled = {"since": False}


def _note_compilation(event: str, _seconds: float, **_more: object) -> None:
    _compiled["since"] |= event.endswith("backend_compile_duration")


jax.monitoring.register_event_duration_secs_listener(_note_compilation)


@pytest.fixture(autouse=True)
def compile_options(request: pytest.FixtureRequest):
    """Turn optimizations off where compiling is most of the work, and drop programs when there are many.

    The engine of a program depends on its calls in this test alone, not on those in others before it.
    """
    jax.config.update("jax_disable_most_optimizations", not request.node.nodeid.startswith(RUNS_LONG))
    programs.forget_calls()
    yield
    if not _PROCESS.exists():
        return
    pages = int((_PROCESS / "statm").read_text().split()[1])
    # To count 15 000 maps takes 15 ms, and most tests compile nothing.
    maps = (_PROCESS / "maps").read_bytes().count(b"\n") if _compiled["since"] else 0
    _compiled["since"] = False
    if maps > _MOST_MAPS or pages * os.sysconf("SC_PAGE_SIZE") > _MOST_BYTES:
        programs.clear()
        jax.clear_caches()
        gc.collect()
        if hasattr(ctypes.CDLL(None), "malloc_trim"):  # glibc keeps freed memory otherwise
            ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data with reference results; skips the test if it does not exist."""
    for candidate in (os.environ.get("ENERGAX_DATA"), ROOT.parent / "shared" / "data"):
        if candidate and pathlib.Path(candidate).is_dir():
            return pathlib.Path(candidate)
    pytest.skip("no shared data: set ENERGAX_DATA to their folder")


@pytest.fixture(scope="session")
def binary_digits() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits, binarised at > 0.5: the first 1400 rows for training, the rest for testing."""
    from sklearn.datasets import load_digits

    X = (load_digits().data / 16 > 0.5).astype(np.float32)
    return X[:1400], X[1400:]


@pytest.fixture(scope="session")
def grey_digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The same split in grey: X_train, y_train, X_test, y_test."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    X = (digits.data / 16).astype(np.float32)
    return X[:1400], digits.target[:1400], X[1400:], digits.target[1400:]


@pytest.fixture(scope="session")
def oracle():
    """The module `oracle`: energies that are tables, and brute force in NumPy."""
    import oracle

    return oracle


#: Folders and files that compile whole models and take minutes; `make test-fast` leaves them out.
COMPILES_MUCH = (
    "tests/energies/emissions/test_centroids.py",
    "tests/energies/sequence/test_hmm.py",
    "tests/energies/emissions/test_gaussian.py",
    "tests/energies/sequence/test_linear_gaussian",
    "tests/energies/graphical/test_linear_gaussian",
    "tests/energies/sequence/test_markov.py",
    "tests/energies/graphical/test_factor_graph.py",
    "tests/energies/language/test_ngram.py",
    "tests/estimators",
    "tests/evaluate/test_compare.py",
    "tests/fitting/test_mesh.py",
    "tests/fitting/test_resume.py",
    "tests/infer/graphical/test_approximate.py",
    "tests/infer/monte_carlo/test_annealed.py",
    "tests/infer/test_compositions.py",
    "tests/infer/test_functions.py",
    "tests/infer/monte_carlo/test_importance.py",
    "tests/algorithms/junction/test_tree.py",
    "tests/algorithms/chains/test_kalman.py",
    "tests/infer/optimise/test_lbfgs.py",
    "tests/algorithms/factors/test_loopy.py",
    "tests/algorithms/factors/test_mean_field.py",
    "tests/infer/graphical/test_networks.py",
    "tests/infer/test_oracles.py",
    "tests/algorithms/chains/test_hmm.py",
    "tests/learn/test_adversarial.py",
    "tests/learn/test_supervised.py",
    "tests/learn/test_contrastive_divergence.py",
    "tests/learn/test_em.py",
    "tests/learn/test_noise_contrastive.py",
    "tests/learn/test_score_matching.py",
    "tests/learn/test_variational.py",
    "tests/samplers/test_kernels.py",
    "tests/statistical",
    "tests/test_cli.py::test_columns_are_chosen_by_name_whatever_is_in_it",
    "tests/test_cli.py::test_the_unit_of_a_column_moves_the_score_by_its_logarithm",
    "tests/test_contracts.py",
    "tests/test_examples.py",
    "tests/test_tempering.py",
)


def pytest_collection_finish() -> None:
    """Leave the objects of all imports out of garbage collections, which take long otherwise."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(COMPILES_MUCH):
            item.add_marker(pytest.mark.slow)
