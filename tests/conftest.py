"""Settings and fixtures of all tests: optimizations of XLA, shared data, digits, slow tests."""

from __future__ import annotations

import gc
import os
import pathlib

import hypothesis
import jax
import numpy as np
import pytest

from energax import programs

ROOT = pathlib.Path(__file__).resolve().parents[1]

hypothesis.settings.register_profile(
    "energax", deadline=None, max_examples=15, derandomize=True, print_blob=True
)
hypothesis.settings.load_profile("energax")


#: Tests that run long enough to be compiled with all optimizations. The others run once, on little data.
RUNS_LONG = (
    "tests/evaluate",
    "tests/nn/test_convolution.py::test_a_convolutional_classifier",
    "tests/statistical/test_competition.py",
    "tests/statistical/test_boltzmann.py",
    "tests/statistical/test_digits.py",
    "tests/statistical/test_mixtures.py",
    "tests/statistical/test_structure.py",
    "tests/test_examples.py::test_four_principles",
    "tests/test_examples.py::test_tagging",
    "tests/test_examples.py::test_the_dishonest_casino",
)


@pytest.fixture(autouse=True)
def compile_options(request: pytest.FixtureRequest):
    """Turn optimizations off where compiling is most of the work.

    The engine of a program depends on its calls in this test alone, not on those in others before it.
    """
    jax.config.update("jax_disable_most_optimizations", not request.node.nodeid.startswith(RUNS_LONG))
    programs.forget_calls()


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

#: Tests in those files that take a second at most, and run in `make test-fast` too: for every topic some that
#: compare with enumeration or a closed form.
QUICK = (
    "tests/algorithms/chains/test_hmm.py::test_k_best_paths_are_the_first_of_all_paths",
    "tests/algorithms/chains/test_hmm.py::test_one_sequence_equals_all_paths[1-2-False",
    "tests/algorithms/chains/test_kalman.py::test_filter_and_smoother_are_the_joint_normal_conditioned",
    "tests/algorithms/chains/test_kalman.py::test_simulated_sequences_have_the_moments_of_the_model",
    "tests/algorithms/chains/test_kalman.py::test_the_forecast_is_the_joint_normal_conditioned",
    "tests/algorithms/factors/test_loopy.py::test_weak_cycles_are_nearly_exact_and_strong",
    "tests/algorithms/factors/test_mean_field.py::test_mean_field_is_exact_for_independent_variables",
    "tests/algorithms/junction/test_tree.py::test_draws_have_the_joint_distribution",
    "tests/algorithms/junction/test_tree.py::test_rows_of_evidence_are_one_program",
    "tests/algorithms/junction/test_tree.py::test_strong_evidence_that_disagrees_is_not_lost",
    "tests/energies/emissions/test_centroids.py::test_missing_coordinates_are_dropped",
    "tests/energies/emissions/test_centroids.py::test_single_moves_end_where_no_single_move_helps",
    "tests/energies/emissions/test_centroids.py::test_soft_k_means_is_a_fixed_point_of_its_equation",
    "tests/energies/emissions/test_gaussian.py::test_imputed_values_are_posterior_means",
    "tests/energies/emissions/test_gaussian.py::test_known_labels_are_a_posterior_of_ones[Spherical-True]",
    "tests/energies/emissions/test_gaussian.py::test_known_labels_are_a_posterior_of_ones[Full-True]",
    "tests/energies/emissions/test_gaussian.py::test_missing_coordinates_are_integrated_out",
    "tests/energies/emissions/test_gaussian.py::test_recentred_statistics_are_those_about_the_new_means",
    "tests/energies/emissions/test_gaussian.py::test_statistics_of_missing_parts_are_conditional_moments",
    "tests/energies/emissions/test_gaussian.py::test_the_step_of_em_is_a_stationary_point_of_its_bound",
    "tests/energies/graphical/test_factor_graph.py::test_do_removes_the_association_by_a_common_cause",
    "tests/energies/graphical/test_factor_graph.py::test_front_door_adjustment_equals_do",
    "tests/energies/graphical/test_factor_graph.py::test_states_by_name_rows_missing_entries_and_soft",
    "tests/energies/graphical/test_linear_gaussian.py::test_every_query_equals_the_joint[6-1-1-0.6]",
    "tests/energies/graphical/test_linear_gaussian_learning.py::test_complete_rows_give_least_squares",
    "tests/energies/language/test_ngram.py::test_a_weight_of_two_is_a_sentence_twice_and_of_zero_none",
    "tests/energies/language/test_ngram.py::test_katz",
    "tests/energies/language/test_ngram.py::test_kneser_ney",
    "tests/energies/language/test_ngram.py::test_maximum_likelihood_and_add_k_are_ratios_of_counts",
    "tests/energies/sequence/test_hmm.py::test_at_any_temperature_ragged_rows_are_each_as_if_alone[0.5]",
    "tests/energies/sequence/test_markov.py::test_em_counts_sequences_of_differing_lengths_in_one_step",
    "tests/energies/sequence/test_markov.py::test_expected_counts_of_missing_states_are_those_of_all_paths",
    "tests/energies/sequence/test_markov.py::test_missing_states_are_summed_out_wherever_they_are",
    "tests/energies/sequence/test_markov.py::test_states_with_names",
    "tests/energies/sequence/test_markov.py::test_the_analysis_speaks_of_the_chain",
    "tests/energies/sequence/test_markov.py::test_the_rest_of_a_path_is_drawn_given_what_is_seen",
    "tests/infer/graphical/test_approximate.py::test_belief_propagation_is_exact_on_a_tree",
    "tests/infer/graphical/test_approximate.py::test_likelihood_weighting_within_its_error",
    "tests/infer/test_compositions.py::test_coordinates_side_by_side_are_one_table",
    "tests/infer/test_functions.py::test_holes_are_filled_in_chunks",
    "tests/learn/test_adversarial.py::test_padding_counts_for_nothing",
    "tests/learn/test_adversarial.py::test_the_discrepancy_by_hand",
    "tests/learn/test_noise_contrastive.py::test_matched_noise_in_other_spaces_is_a_density_near_the_data",
    "tests/learn/test_score_matching.py::test_sliced_is_exact_where_the_jacobian_is_diagonal",
    "tests/learn/test_score_matching.py::test_weights_repeat_rows",
    "tests/learn/test_variational.py::test_at_the_posterior_the_bound_is_the_evidence_without_noise",
    "tests/learn/test_variational.py::test_terms_are_named_and_weights_count",
    "tests/samplers/test_kernels.py::test_a_known_score_is_carried_through_the_bijection",
    "tests/samplers/test_kernels.py::test_the_rest_of_a_correlated_normal",
    "tests/test_tempering.py::test_a_gaussian_machine_at_another_temperature",
    "tests/test_tempering.py::test_missing_values_are_not_summed_out_at_the_wrong_temperature",
)


def pytest_collection_finish() -> None:
    """Leave the objects of all imports out of garbage collections, which take long otherwise."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(COMPILES_MUCH) and not item.nodeid.startswith(QUICK):
            item.add_marker(pytest.mark.slow)
