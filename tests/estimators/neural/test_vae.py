"""VAE: the lower bound, both likelihoods, missing values, saving and pickling."""

from __future__ import annotations

import pickle

import numpy as np
import optax
import pytest
from quick import evaluate

import energax
from energax import fit
from energax.energies import Gaussian
from energax.errors import BadInput
from energax.estimators import VAE
from energax.infer import Enumeration, log_prob
from energax.learn import ELBO, EM, ContrastiveDivergence, Descent, NegativeLogLikelihood

pytestmark = pytest.mark.filterwarnings("ignore:Importance")  # warns that bounds of few draws are loose

RNG = np.random.default_rng(0)
_Z = RNG.normal(size=(400, 1))
LINE = (
    np.c_[_Z, -_Z, 0.5 * _Z] * [1.0, 10.0, 100.0] + RNG.normal(size=(400, 3)) * [0.3, 3.0, 30.0] + [0, 50, -7]
)


@pytest.fixture(scope="module")
def line():
    return VAE(1, (), max_iter=150, learning_rate=0.01, random_state=0).fit(LINE)


def test_a_linear_gaussian_is_learned_to_its_likelihood(line):
    """Factor analysis with one factor: the likelihood of the true model has a closed form."""
    from scipy.stats import multivariate_normal

    load, noise = np.array([1.0, -10.0, 50.0]), np.array([0.3, 3.0, 30.0])
    truth = multivariate_normal([0, 50, -7], np.outer(load, load) + np.diag(noise**2)).logpdf(LINE).mean()
    found = line.log_prob(LINE)
    assert found.kind == "lower bound"
    assert (
        truth - 0.1 < found.mean().value < truth + 0.15
    )  # on the training rows it may exceed the truth a little


def test_transform_and_inverse_transform(line):
    z = line.transform(LINE)
    assert z.shape == (400, 1) and z.dtype == np.float32
    back = line.inverse_transform(z)
    assert np.corrcoef(back[:, 1], LINE[:, 1])[0, 1] > 0.9
    assert abs(np.corrcoef(z[:, 0], _Z[:, 0])[0, 1]) > 0.9
    for bad in (z[:, 0], np.zeros((2, 3)), [[np.nan]], np.zeros((0, 1))):
        with pytest.raises(BadInput, match="X: found"):
            line.inverse_transform(bad)


def test_draws_have_the_moments_of_the_data(line):
    drawn = line.sample(2000)
    assert np.abs((drawn.mean(0) - LINE.mean(0)) / LINE.std(0)).max() < 0.2
    assert np.abs(drawn.std(0) / LINE.std(0) - 1).max() < 0.2


def test_missing_values_are_imputed_from_the_others(line):
    rows = LINE.copy()
    rows[:, 1] = np.nan
    filled = line.impute(rows)
    assert np.array_equal(filled[:, [0, 2]], LINE[:, [0, 2]])
    assert np.sqrt(np.mean((filled[:, 1] - LINE[:, 1]) ** 2)) < 0.75 * LINE[:, 1].std()
    assert np.isfinite(line.score_samples(rows)).all()


def test_fit_with_missing_values():
    rows = np.where(RNG.random(LINE.shape) < 0.2, np.nan, LINE)
    model = VAE(1, (16,), max_iter=100, learning_rate=0.01, random_state=0).fit(rows)
    filled = model.impute(rows)
    missing = np.isnan(rows)
    error = ((filled - LINE) / LINE.std(0))[missing]
    assert np.sqrt(np.mean(error**2)) < 0.85  # the mean of each column would have 1


def test_digits(binary_digits):
    X, X_test = binary_digits
    model = VAE(8, (64,), max_iter=50, learning_rate=5e-3, random_state=0).fit(X)
    found = model.log_prob(X_test).mean()
    assert found.kind == "lower bound" and -19.6 < found.value < -16
    more = model.set_params(n_importance=2000).log_prob(X_test).mean()
    assert more.value > found.value - 0.02  # the bound rises with the number of draws


def test_the_bound_is_below_the_truth():
    """log p(x) of a decoder with one latent dimension, by integration on a grid."""
    from energax.energies import Decoder, UniformChoices

    X = (RNG.random((60, 5)) < 0.5).astype(np.float32)
    model = VAE(1, (8,), max_iter=5, n_importance=20, random_state=0).fit(X)
    truth = Decoder(model.energy_.network, UniformChoices(1), model.energy_.likelihood)
    assert log_prob(truth, {"x": X}, Enumeration()).kind == "exact"
    # The same decoder, with its latent dimension integrated on a fine grid.
    grid = np.linspace(-8, 8, 2001).astype(np.float32)
    import jax

    energies = jax.vmap(lambda x: jax.vmap(lambda z: model.energy_(x=x, z=z[None]))(grid))
    joint = -np.asarray(evaluate(lambda: energies(X)))
    from scipy.special import logsumexp

    exact = logsumexp(np.asarray(joint, float), axis=1) + np.log(grid[1] - grid[0])
    bound = model.log_prob(X)
    assert bound.value.mean() <= exact.mean() + 3 * bound.mean().stderr / np.sqrt(20)
    assert bound.value.mean() > exact.mean() - 0.1


def test_saved_and_pickled_models_give_the_same_results(line, tmp_path):
    line.save(tmp_path / "m")
    for back in (VAE.load(tmp_path / "m"), energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(line))):
        assert repr(back) == repr(line)
        assert np.array_equal(back.transform(LINE), line.transform(LINE))
        assert np.array_equal(back.score_samples(LINE[:20]), line.score_samples(LINE[:20]))
        assert np.array_equal(back.sample(3), line.sample(3))


def test_partial_fit():
    model = VAE(1, (16,), learning_rate=0.01, random_state=0).partial_fit(LINE)
    first = model.history_["objective"][-1]
    for _ in range(15):
        model.partial_fit(LINE)
    assert model.history_["objective"][-1] < first and model.n_batches_seen_ == 16
    # With step size 0, only the noise differs between calls.
    model.set_params(learning_rate=0.0)
    still = [model.partial_fit(LINE).history_["objective"][-1] for _ in range(3)]
    assert len(set(still)) == 3


def test_a_second_fit_chooses_the_likelihood_again():
    """The likelihood that "auto" chose for one table does not affect another fit, successful or failed."""
    X = (RNG.random((60, 3)) < 0.5).astype(np.float32)
    model = VAE(1, (4,), max_iter=1, random_state=0).fit(X)
    model.fit(LINE[:60])
    assert isinstance(model.energy_.likelihood, Gaussian)
    model.fit(X)
    with pytest.raises(BadInput, match="zeros and ones"):
        model.score_samples(LINE[:60])
    encoder = model.encoder_
    with pytest.raises(BadInput, match="zeros and ones"):
        model.set_params(likelihood="bernoulli").fit(LINE[:60])
    assert model.encoder_ is encoder  # a failed fit changes neither encoder nor decoder


def test_weight_decay_does_not_change_the_scaling():
    """With a given likelihood, shift and scale are fixed layers, not parameters."""
    model = VAE(1, (4,), likelihood=Gaussian(1.0), max_iter=1, random_state=0).fit(LINE)
    assert np.array_equal(model.scale_, np.ones(3))
    learner = Descent(ELBO(model.encoder_), optax.adamw(1e-2, weight_decay=1.0))
    decayed = fit(model.energy_, {"x": LINE.astype(np.float32)}, learner, epochs=2, key=0)
    for layer in (decayed.energy.network.layers[-1], decayed.partner.network.layers[0]):
        np.testing.assert_allclose(layer.shift, LINE.mean(0), rtol=1e-5)
        np.testing.assert_allclose(layer.scale, LINE.std(0), rtol=1e-5)


def test_the_density_has_the_units_of_the_columns(line):
    """log p of c x is log p of x − d log |c|, where d counts the observed columns."""
    scale = np.array([1e3, 1e-3, 2.0])
    rows = LINE.copy()
    rows[::2, 1] = np.nan
    other = VAE(**line.get_params()).fit(LINE * scale)
    units = (~np.isnan(rows)) @ np.log(scale)
    np.testing.assert_allclose(other.score_samples(rows * scale), line.score_samples(rows) - units, atol=0.02)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("validation_fraction", "x"),
        ("validation_fraction", 0.0),
        ("validation_fraction", 1),
        ("n_iter_no_change", 0),
    ],
)
def test_errors_of_early_stopping_name_the_argument(setting, value):
    with pytest.raises(BadInput, match=f"{setting}: found"):
        VAE(1, (4,), early_stopping=True, **{setting: value}).fit(LINE)


@pytest.mark.parametrize(
    "learner", [EM(), ContrastiveDivergence(), Descent(NegativeLogLikelihood()), ELBO(None)], ids=repr
)
def test_a_learner_without_an_encoder_is_rejected(learner):
    vae = VAE(2, (4,), learner=learner)
    with pytest.raises(BadInput, match=r"trains no encoder.*Descent\(ELBO\(encoder\)"):
        vae.fit(np.eye(4))
    assert not hasattr(vae, "encoder_") and not hasattr(vae, "energy_")
