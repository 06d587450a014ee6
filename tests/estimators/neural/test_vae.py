"""The VAE recipe: a bound that is one, both likelihoods, missing values, both ways to keep it."""

from __future__ import annotations

import pickle

import numpy as np
import optax
import pytest

import energax
from energax import fit
from energax.energies import Gaussian
from energax.errors import BadInput
from energax.estimators import VAE
from energax.infer import Enumeration, log_prob
from energax.learn import ELBO, EM, ContrastiveDivergence, Descent, NegativeLogLikelihood

pytestmark = pytest.mark.filterwarnings("ignore:Importance")  # bounds of few draws are loose, and say so

RNG = np.random.default_rng(0)
_Z = RNG.normal(size=(400, 1))
LINE = (
    np.c_[_Z, -_Z, 0.5 * _Z] * [1.0, 10.0, 100.0] + RNG.normal(size=(400, 3)) * [0.3, 3.0, 30.0] + [0, 50, -7]
)


@pytest.fixture(scope="module")
def line():
    return VAE(1, (), max_iter=150, learning_rate=0.01, random_state=0).fit(LINE)


def test_a_linear_gaussian_is_learned_to_its_likelihood(line):
    """Factor analysis with one factor: the likelihood of the true model is known in closed form."""
    from scipy.stats import multivariate_normal

    load, noise = np.array([1.0, -10.0, 50.0]), np.array([0.3, 3.0, 30.0])
    truth = multivariate_normal([0, 50, -7], np.outer(load, load) + np.diag(noise**2)).logpdf(LINE).mean()
    found = line.log_prob(LINE)
    assert found.kind == "lower bound"
    assert (
        truth - 0.1 < found.mean().value < truth + 0.15
    )  # fitted on these rows, it may exceed the truth a little


def test_there_and_back(line):
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


def test_missing_values_are_filled_from_the_others(line):
    holes = LINE.copy()
    holes[:, 1] = np.nan
    filled = line.impute(holes)
    assert np.array_equal(filled[:, [0, 2]], LINE[:, [0, 2]])
    assert np.sqrt(np.mean((filled[:, 1] - LINE[:, 1]) ** 2)) < 0.75 * LINE[:, 1].std()
    assert np.isfinite(line.score_samples(holes)).all()


def test_learning_with_holes():
    holes = np.where(RNG.random(LINE.shape) < 0.2, np.nan, LINE)
    model = VAE(1, (16,), max_iter=100, learning_rate=0.01, random_state=0).fit(holes)
    filled = model.impute(holes)
    missing = np.isnan(holes)
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
    """A decoder with two hidden pairs of coins, small enough to enumerate, says what log p(x) is."""
    from energax.energies import Decoder, UniformChoices

    X = (RNG.random((60, 5)) < 0.5).astype(np.float32)
    model = VAE(1, (8,), max_iter=5, n_importance=20, random_state=0).fit(X)
    truth = Decoder(model.energy_.network, UniformChoices(1), model.energy_.likelihood)
    assert log_prob(truth, {"x": X}, Enumeration()).kind == "exact"
    # The same decoder with its one hidden number integrated on a fine grid.
    grid = np.linspace(-8, 8, 2001).astype(np.float32)
    import jax

    joint = -jax.vmap(lambda x: jax.vmap(lambda z: model.energy_(x=x, z=z[None]))(grid))(X)
    from scipy.special import logsumexp

    exact = logsumexp(np.asarray(joint, float), axis=1) + np.log(grid[1] - grid[0])
    bound = model.log_prob(X)
    assert bound.value.mean() <= exact.mean() + 3 * bound.mean().stderr / np.sqrt(20)
    assert bound.value.mean() > exact.mean() - 0.1


def test_kept_by_either_way_it_says_the_same(line, tmp_path):
    line.save(tmp_path / "m")
    for back in (VAE.load(tmp_path / "m"), energax.load(tmp_path / "m"), pickle.loads(pickle.dumps(line))):
        assert repr(back) == repr(line)
        assert np.array_equal(back.transform(LINE), line.transform(LINE))
        assert np.array_equal(back.score_samples(LINE[:20]), line.score_samples(LINE[:20]))
        assert np.array_equal(back.sample(3), line.sample(3))


def test_passes():
    model = VAE(1, (16,), learning_rate=0.01, random_state=0).partial_fit(LINE)
    first = model.history_["objective"][-1]
    for _ in range(15):
        model.partial_fit(LINE)
    assert model.history_["objective"][-1] < first and model.n_batches_seen_ == 16
    # A model that stands still sees the same rows with other noise at every pass.
    model.set_params(learning_rate=0.0)
    still = [model.partial_fit(LINE).history_["objective"][-1] for _ in range(3)]
    assert len(set(still)) == 3


def test_a_second_fit_looks_at_its_own_rows():
    """The likelihood that "auto" found once says nothing about other rows, fitted or refused."""
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
    assert model.encoder_ is encoder  # a refused fit leaves encoder and decoder together


def test_weight_decay_leaves_the_units_of_the_columns():
    """A given likelihood has its columns as they are: shift and scale are fixed layers, no parameters."""
    model = VAE(1, (4,), likelihood=Gaussian(1.0), max_iter=1, random_state=0).fit(LINE)
    assert np.array_equal(model.scale_, np.ones(3))
    learner = Descent(ELBO(model.encoder_), optax.adamw(1e-2, weight_decay=1.0))
    decayed = fit(model.energy_, {"x": LINE.astype(np.float32)}, learner, epochs=2, key=0)
    for layer in (decayed.energy.network.layers[-1], decayed.partner.network.layers[0]):
        np.testing.assert_allclose(layer.shift, LINE.mean(0), rtol=1e-5)
        np.testing.assert_allclose(layer.scale, LINE.std(0), rtol=1e-5)


def test_the_density_is_in_the_units_of_the_columns(line):
    """log p of c x is log p of x − d log |c|; a missing column has no density to rescale."""
    scale = np.array([1e3, 1e-3, 2.0])
    holes = LINE.copy()
    holes[::2, 1] = np.nan
    other = VAE(**line.get_params()).fit(LINE * scale)
    units = (~np.isnan(holes)) @ np.log(scale)
    np.testing.assert_allclose(
        other.score_samples(holes * scale), line.score_samples(holes) - units, atol=0.02
    )


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("validation_fraction", "x"),
        ("validation_fraction", 0.0),
        ("validation_fraction", 1),
        ("n_iter_no_change", 0),
    ],
)
def test_early_stopping_is_refused_by_its_own_names(setting, value):
    with pytest.raises(BadInput, match=f"{setting}: found"):
        VAE(1, (4,), early_stopping=True, **{setting: value}).fit(LINE)


@pytest.mark.parametrize(
    "learner", [EM(), ContrastiveDivergence(), Descent(NegativeLogLikelihood()), ELBO(None)], ids=repr
)
def test_a_learner_without_an_encoder_is_refused_at_the_door(learner):
    vae = VAE(2, (4,), learner=learner)
    with pytest.raises(BadInput, match=r"trains no encoder.*Descent\(ELBO\(encoder\)"):
        vae.fit(np.eye(4))
    assert not hasattr(vae, "encoder_") and not hasattr(vae, "energy_")
