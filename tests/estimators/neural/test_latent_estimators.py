"""Options of VAE, VaDE, ConditionalVAE and the autoencoders, on data whose answer is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone

from energax import Mixture
from energax.energies import (
    Bernoulli,
    Categorical,
    Columns,
    Decoder,
    EnergyPrior,
    Gaussian,
    Gaussians,
    LadderPrior,
    MixtureLikelihood,
    Poisson,
    StandardNormal,
    StudentT,
)
from energax.errors import BadInput
from energax.estimators import (
    VAE,
    Autoencoder,
    ConditionalVAE,
    DenoisingAutoencoder,
    SparseAutoencoder,
    VaDE,
)
from energax.estimators._base import ConvergenceWarning
from energax.estimators._neural.latent_rows import posterior_means
from energax.estimators._neural.vae_networks import output_layers
from energax.missing import Masked
from energax.nn import Encoder

pytestmark = pytest.mark.filterwarnings("ignore:Importance")  # warns that bounds of few draws are loose

RNG = np.random.default_rng(0)
_Z = RNG.normal(size=(400, 1))
LINE = (_Z @ [[1.0, -1.0, 0.5]] + 0.3 * RNG.normal(size=(400, 3))).astype(np.float32)
QUICK = {"max_iter": 60, "learning_rate": 0.01, "random_state": 0}


# -- VAE -----------------------------------------------------------------------------------------------------


def test_a_collapse_is_seen_in_the_history_and_warned_of():
    """With a large beta no hidden variable depends on x, and the history shows when that happened."""
    with pytest.warns(ConvergenceWarning, match="posterior has collapsed"):
        model = VAE(2, (8,), beta=50.0, **QUICK).fit(LINE)
    assert model.active_units_ == 0 and model.history_["active units"][-1] == 0
    healthy = VAE(2, (8,), **QUICK).fit(LINE)
    assert healthy.active_units_ >= 1 and healthy.history_["active units"][-1] >= 1
    assert np.isclose(
        healthy.history_["objective"], sum(healthy.history_[k] for k in ("energy", "negative entropy"))
    ).all()


def test_the_gap_is_the_difference_of_two_bounds_and_refining_tightens_it():
    model = VAE(1, (), n_importance=400, **QUICK).fit(LINE)
    gap = model.bound_gap(LINE[:50])
    refined = model.set_params(n_refine=40).bound_gap(LINE[:50])
    assert (gap.value >= 0).all() and refined.value.mean() < gap.value.mean()
    assert np.isfinite(model.log_prob(LINE[:5]).value).all()


@pytest.mark.parametrize(
    "prior",
    [
        "pseudo-inputs",
        EnergyPrior(Mixture(Gaussians(jnp.array([[-1.0], [1.0]]), jnp.ones((2, 1, 1))))),
    ],
    ids=["pseudo-inputs", "mixture"],
)
def test_a_linear_gaussian_is_learned_with_any_prior(prior):
    """The likelihood of the true model: a bound may exceed it on training rows by a little only."""
    load = np.array([1.0, -1.0, 0.5])
    truth = multivariate_normal(np.zeros(3), np.outer(load, load) + 0.09 * np.eye(3)).logpdf(LINE).mean()
    model = VAE(1, (), prior=prior, beta_warmup=5, **(QUICK | {"max_iter": 150})).fit(LINE)
    assert truth - 0.2 < model.score(LINE) < truth + 0.1
    assert model.sample(3).shape == (3, 3)
    first = model.history_["objective"][0]
    model.partial_fit(LINE)
    assert model.history_["objective"][-1] < first


def test_clones_share_immutable_modules_and_can_be_saved(tmp_path):
    """A deep copy of a compiled function, such as jax.nn.silu, has no name to save."""
    prior = LadderPrior.random((1, 1), key=0)
    original = VAE(2, (4,), prior=prior, n_importance=20, **(QUICK | {"max_iter": 1}))
    model = clone(original).set_params(max_iter=2).fit(LINE)
    assert model.prior is prior and original.max_iter == 1
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(VAE.load(tmp_path / "model").transform(LINE), model.transform(LINE))


def test_columns_of_mixed_kinds_are_fitted_with_missing_values():
    group = RNG.integers(0, 2, 300)
    X = np.c_[4.0 * group + RNG.normal(size=300), group * 2, RNG.normal(size=300)]
    X[:60, 1] = np.nan
    likelihood = Columns([(Gaussian(jnp.ones(2)), [0, 2]), (Categorical(3), [1])])
    model = VAE(2, (16,), likelihood=likelihood, **(QUICK | {"max_iter": 100})).fit(X)
    filled = model.impute(X)[:60, 1]
    right = np.abs(filled - 2 * group[:60]) < 1
    assert right.mean() > 0.85  # 0.5 by chance; 0.98 with the best boundary
    drawn = model.sample(200)
    assert set(np.unique(drawn[:, 1])) <= {0, 1, 2}
    with pytest.raises(BadInput, match="whole numbers from 0 to 2"):
        model.score_samples([[0.0, 5.0, 0.0]])


@pytest.mark.parametrize(
    ("likelihood", "expected"),
    [
        # Poisson and Gaussian columns in an order of their own, beside a coin: 1, log 3, 0.
        (Columns([(Poisson(), [1]), (Bernoulli(), [2]), (Gaussian(1.0), [0])]), [np.log(3), 0, 1e3]),
        # Logits of the components, then their outputs; categories have neither mean nor unit.
        (Columns([(Categorical(2), [2]), (MixtureLikelihood(Poisson(), 2), [1]), (StudentT(), [0])]),
         [0, 0, 0, 0, np.log(3), np.log(3), 1e3]),
    ],
    ids=["one-output", "several-outputs"],
)  # fmt: skip
def test_outputs_of_zero_are_the_means_of_columns_of_mixed_kinds(likelihood, expected):
    """Else counts near 50 would start at a rate of e⁵⁰, and a column near 1000 would never be reached."""
    shift, scale = jnp.array([1e3, 3.0, 0.4]), jnp.array([7.0, 2.0, 0.5])
    (layer,) = output_layers(likelihood, shift, scale)
    np.testing.assert_allclose(layer(jnp.zeros(len(expected))), expected, rtol=1e-6)
    x = RNG.normal(size=(60, 3)) * [5, 0, 0] + [1e3, 0, 0]
    x[:, 1:] = np.c_[RNG.poisson(50, 60), RNG.integers(0, 2, 60)]
    model = VAE(1, (4,), likelihood=likelihood, n_importance=20, **(QUICK | {"max_iter": 2})).fit(x)
    assert np.isfinite(model.history_["objective"]).all() and model.history_["objective"][0] < 100


def test_draws_of_a_class_keep_the_digits_of_large_columns():
    """Seconds since 1970 are 128 apart in float32."""
    X = 1.7e9 + 10 * RNG.normal(size=(60, 1))
    model = ConditionalVAE(1, (4,), **(QUICK | {"max_iter": 2})).fit(X, np.arange(60) % 2)
    drawn = model.sample(np.zeros(200, int))
    assert 5 < drawn.std() < 20 and abs(drawn.mean() - 1.7e9) < 5


def test_a_class_of_weight_zero_is_never_predicted():
    y = np.arange(60) % 3
    model = ConditionalVAE(1, (4,), n_importance=5, **(QUICK | {"max_iter": 2}))
    model.fit(LINE[:60], y, sample_weight=(y < 2).astype(float))
    assert (model.predict_proba(LINE[:60])[:, 2] == 0).all()


def test_bad_settings():
    with pytest.raises(BadInput, match=r"beta_warmup.*2 with samples=3.*several samples"):
        VAE(2, (4,), samples=3, beta_warmup=2).fit(LINE)
    with pytest.raises(BadInput, match="n_components=2"):
        VAE(2, (4,), prior=StandardNormal(3)).fit(LINE)
    with pytest.raises(BadInput, match="several samples"):
        VAE(2, (4,), samples=2, beta=0.5).fit(LINE)
    with pytest.raises(BadInput, match="n_clusters"):
        VaDE(500, 1, (4,)).fit(LINE)
    with pytest.raises(BadInput, match="code_activation"):
        SparseAutoencoder(4, target=0.1).fit(LINE)
    with pytest.raises(BadInput, match="corruption_level"):
        DenoisingAutoencoder(4, corruption_level=2.0).fit(LINE)
    with pytest.raises(BadInput, match="zeros and ones"):
        Autoencoder(1, (), likelihood="bernoulli").fit(LINE)


# -- classes and clusters ------------------------------------------------------------------------------------


def test_a_class_is_drawn_and_recognised():
    """Two lines that cross: their classes have the same mean, and differ by the sign of a correlation."""
    y = np.arange(400) % 2
    z, sign = RNG.normal(size=400), np.where(y == 1, 1.0, -1.0)
    X = np.c_[z, sign * z] + 0.1 * RNG.normal(size=(400, 2))
    names = np.array(["falls", "rises"])[y]
    model = ConditionalVAE(1, (16,), **(QUICK | {"max_iter": 150})).fit(X, names)
    assert model.score(X, names) > 0.88  # the best rule: 0.95
    for label, expected in (("rises", 1), ("falls", -1)):
        drawn = model.sample([label] * 500)
        assert expected * np.corrcoef(drawn.T)[0, 1] > 0.9
    partly = X.copy()
    partly[:, 0] = np.nan
    assert np.abs(model.predict_proba(partly) - 0.5).mean() < 0.15  # one column says nothing
    with pytest.raises(BadInput, match="the label 'x'"):
        model.sample(["x"])


def test_weights_of_rows_are_those_of_classes_and_clusters():
    """Rows of the second half have weight 3: the class is noise, the clusters are far apart."""
    rng = np.random.default_rng(0)
    second = np.arange(200) % 2 == 1
    weights = np.where(second, 3.0, 1.0)
    X = rng.normal(size=(200, 2)).astype(np.float32)
    model = ConditionalVAE(1, (4,), n_importance=20, **(QUICK | {"max_iter": 5}))
    model.fit(X, second, sample_weight=weights)
    np.testing.assert_allclose(model.class_prior_, [0.25, 0.75])
    assert abs(model.predict_proba(X)[:, 1].mean() - 0.75) < 0.1
    X[:, 0] += 12 * second
    clusters = VaDE(2, 1, (8,), pretrain_iter=30, n_importance=20, **(QUICK | {"max_iter": 1}))
    clusters.fit(X, sample_weight=weights)
    assert abs(clusters.cluster_weights_.max() - 0.75) < 0.05


@pytest.mark.filterwarnings("ignore:VaDE")
def test_the_best_of_several_starts_is_kept(monkeypatch):
    losses, finish = [], VaDE._finish
    record = lambda self, data: (losses.append(self.fit_.loss), finish(self, data))
    monkeypatch.setattr(VaDE, "_finish", record)
    model = VaDE(2, 1, (4,), pretrain_iter=2, n_init=3, n_importance=5, **(QUICK | {"max_iter": 2})).fit(LINE)
    assert len(set(losses)) == 3 and model.fit_.loss == min(losses)


def test_imputed_means_do_not_depend_on_the_encoder():
    """x₁ = z + noise, x₂ = z: E[x₂ | x₁ = 1] = 0.8, for a proposal N(2, 1), and 0.92 without its density."""
    energy = Decoder(_twice, 1, Gaussian(0.5))
    encoder = Encoder(_shifted)
    rows = Masked(np.tile(np.float32([1, 0]), (200, 1)), np.tile([True, False], (200, 1)))
    found = posterior_means(energy, encoder, rows, jax.random.key(0), 4)
    assert abs(found[:, 1].mean() - 0.8) < 0.03  # 0.004 by chance, and a bias of 100 draws


def _twice(z):
    return jnp.concatenate([z, z])


def _shifted(x):
    return jnp.array([2.0, 0.5413])  # softplus⁻¹(1)


# -- autoencoders ------------------------------------------------------------------------------------------


def test_an_autoencoder_reconstructs_and_finds_rows_unlike_the_others():
    model = Autoencoder(1, (), **(QUICK | {"max_iter": 150})).fit(LINE)
    assert abs(np.corrcoef(model.transform(LINE)[:, 0], _Z[:, 0])[0, 1]) > 0.95
    back = model.inverse_transform(model.transform(LINE))
    np.testing.assert_allclose(back, model.reconstruct(LINE), rtol=1e-4, atol=1e-4)
    units = (model.reconstruct(LINE) - LINE) / model.scale_
    np.testing.assert_allclose(
        model.reconstruction_error(LINE), 0.5 * (units**2).sum(1), rtol=1e-3, atol=1e-4
    )
    off_the_line = np.array([[2.0, 2.0, -2.0]])
    assert model.reconstruction_error(off_the_line)[0] > model.reconstruction_error(LINE).max()


def test_contraction_and_targets_do_what_they_say():
    loose, tight = (Autoencoder(2, (), contraction=c, **QUICK).fit(LINE) for c in (0.0, 1.0))
    step = LINE + np.float32(0.01)
    slope = lambda m: np.abs(m.transform(step) - m.transform(LINE)).mean()
    assert slope(tight) < 0.7 * slope(loose)
    options = {"code_activation": "logistic", "sparsity": 3.0, "target": 0.1} | QUICK | {"max_iter": 150}
    sparse = SparseAutoencoder(8, **options).fit(LINE)
    assert np.abs(sparse.transform(LINE).mean(0) - 0.1).max() < 0.06
