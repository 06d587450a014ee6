"""`Autoencoder`, `DenoisingAutoencoder` and `SparseAutoencoder`: codes that reconstruct the rows."""

from __future__ import annotations

from typing import Any

from ...errors import BadInput
from ...learn import GaussianNoise, MaskingNoise, Reconstruction, Sparsity
from .._common.settings import FINITE_NOT_NEGATIVE, FRACTION, NONE, one_of
from .autoencoder_base import AutoencoderBase


class Autoencoder(AutoencoderBase):
    """Autoencoder: a code of few numbers for every row, from which a decoder network reconstructs the row.

    Without hidden layers and with the identity as activations it finds the subspace of principal component
    analysis. Real columns are standardised first.

    Args:
        n_components: the length of the code.
        hidden_layer_sizes, activation: of the encoder and, in reverse order, of the decoder.
        code_activation: the activation of the code.
        tied_weights: whether the decoder has the transposed weights of the encoder.
        contraction: the weight of the squared slopes of the code, which makes it insensitive to small changes
            of a row (a contractive autoencoder).
        likelihood: "bernoulli" for zeros and ones, "gaussian" for real columns, "auto" to choose by X.
        learning_rate: the step size of Adam.
        batch_size: rows in a step.
        max_iter: the most epochs.
        early_stopping, validation_fraction, n_iter_no_change: hold out a fraction of the rows, stop when
            their loss has not improved for `n_iter_no_change` epochs, and keep the best networks.
        verbose: whether to show a progress bar.
        random_state: a seed or a `RandomState`.
        dtype: "float32" or "float64".
        learner: a learner or objective of energax.learn, such as `Reconstruction()`.

    Attributes:
        mean_, scale_: mean and standard deviation of every column, (n_features,); 0 and 1 for binary columns.
        energy_: the fitted model, over standardised columns.
        history_: the objective of every epoch.
        fit_: details of the fit.

    Rumelhart, Hinton and Williams (1986), Learning internal representations by error propagation; Rifai et
    al. (2011), Contractive auto-encoders.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1)) @ np.ones((1, 5))                  # five copies of one column
    >>> model = Autoencoder(1, (), max_iter=100, learning_rate=0.02, random_state=0).fit(X)
    >>> model.transform(X).shape, bool(np.abs(model.reconstruct(X) - X).mean() < 0.1)
    ((200, 1), True)
    """

    _settings = {**AutoencoderBase._settings, "contraction": FINITE_NOT_NEGATIVE}

    def __init__(
        self,
        n_components: int = 8,
        hidden_layer_sizes: Any = (256,),
        *,
        activation: Any = "tanh",
        code_activation: Any = "identity",
        tied_weights: bool = False,
        contraction: float = 0.0,
        likelihood: str = "auto",
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_components = n_components
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.code_activation = code_activation
        self.tied_weights = tied_weights
        self.contraction = contraction
        self.likelihood = likelihood
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def _objective(self):
        return Reconstruction(contraction=float(self.contraction))


class DenoisingAutoencoder(AutoencoderBase):
    """Denoising autoencoder: codes of corrupted rows, from which the rows without noise are reconstructed.

    The code may be longer than the row: to undo the noise, it must hold what the columns have in common.

    Args:
        n_components: the length of the code.
        corruption: "masking" sets columns to their mean (to 0 if they are binary), each with probability
            `corruption_level`; "gaussian" adds normal noise of this standard deviation to the standardised
            columns.
        corruption_level: see above.
        hidden_layer_sizes, activation, code_activation, tied_weights, likelihood, learning_rate, batch_size,
            max_iter, early_stopping, validation_fraction, n_iter_no_change, verbose, random_state, dtype,
            learner: as in `Autoencoder`.

    Attributes:
        mean_, scale_, energy_, history_, fit_: as in `Autoencoder`.

    Vincent et al. (2010), Stacked denoising autoencoders: learning useful representations in a deep network
    with a local denoising criterion.

    >>> import numpy as np
    >>> X = np.repeat(np.random.default_rng(0).integers(0, 2, (200, 2)), 4, axis=1)
    >>> model = DenoisingAutoencoder(16, max_iter=100, learning_rate=0.01, random_state=0).fit(X)
    >>> noisy = np.array([[1, 0, 1, 1, 0, 0, 0, 0]])                     # one of four equal columns is wrong
    >>> model.reconstruct(noisy).round().astype(int).tolist()
    [[1, 1, 1, 1, 0, 0, 0, 0]]
    """

    _settings = {
        **AutoencoderBase._settings,
        "corruption": one_of("masking", "gaussian"),
        "corruption_level": FINITE_NOT_NEGATIVE,
    }

    def __init__(
        self,
        n_components: int = 256,
        *,
        corruption: str = "masking",
        corruption_level: float = 0.5,
        hidden_layer_sizes: Any = (),
        activation: Any = "relu",
        code_activation: Any = "relu",
        tied_weights: bool = True,
        likelihood: str = "auto",
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_components = n_components
        self.corruption = corruption
        self.corruption_level = corruption_level
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.code_activation = code_activation
        self.tied_weights = tied_weights
        self.likelihood = likelihood
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def _objective(self):
        level = float(self.corruption_level)
        if self.corruption == "masking" and level > 1:
            raise BadInput("corruption_level", repr(level), "a probability, from 0 to 1, for masking")
        return Reconstruction(MaskingNoise(level) if self.corruption == "masking" else GaussianNoise(level))


class SparseAutoencoder(AutoencoderBase):
    """Sparse autoencoder: a long code of which few entries are active in each row.

    Args:
        n_components: the length of the code.
        sparsity: the weight of the penalty on the code.
        target: the mean activation that every entry should have, for `code_activation="logistic"`: the
            penalty is Σ_j KL(target ‖ mean activation of j). None penalises Σ_j |h_j|, for codes that can be
            0 such as those of "relu".
        hidden_layer_sizes, activation, code_activation, tied_weights, likelihood, learning_rate, batch_size,
            max_iter, early_stopping, validation_fraction, n_iter_no_change, verbose, random_state, dtype,
            learner: as in `Autoencoder`.

    Attributes:
        mean_, scale_, energy_, history_, fit_: as in `Autoencoder`.

    Ng (2011), Sparse autoencoder, lecture notes; Lee, Ekanadham and Ng (2008), Sparse deep belief net model
    for visual area V2.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 4))
    >>> settings = {"max_iter": 100, "random_state": 0}
    >>> codes = lambda s: SparseAutoencoder(16, sparsity=s, **settings).fit(X).transform(X)
    >>> weak, strong = codes(0.0), codes(0.3)
    >>> bool((strong > 0.01).mean() < (weak > 0.01).mean())
    True
    """

    _settings = {
        **AutoencoderBase._settings,
        "sparsity": FINITE_NOT_NEGATIVE,
        "target": FRACTION | NONE,
    }

    def __init__(
        self,
        n_components: int = 64,
        *,
        sparsity: float = 0.1,
        target: float | None = None,
        hidden_layer_sizes: Any = (),
        activation: Any = "relu",
        code_activation: Any = "relu",
        tied_weights: bool = False,
        likelihood: str = "auto",
        learning_rate: float = 2e-3,
        batch_size: int = 100,
        max_iter: int = 200,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 20,
        verbose: int | bool = 0,
        random_state: Any = None,
        dtype: str = "float32",
        learner: Any = None,
    ):
        self.n_components = n_components
        self.sparsity = sparsity
        self.target = target
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.code_activation = code_activation
        self.tied_weights = tied_weights
        self.likelihood = likelihood
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.verbose = verbose
        self.random_state = random_state
        self.dtype = dtype
        self.learner = learner

    def _objective(self):
        if self.target is not None and self.code_activation != "logistic":
            expected = "'logistic', whose values are in (0, 1), with target="
            raise BadInput("code_activation", repr(self.code_activation), expected)
        target = None if self.target is None else float(self.target)
        return Reconstruction(sparsity=Sparsity(float(self.sparsity), target))
