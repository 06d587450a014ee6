"""One small example of every part of the catalog: what the contracts are tried on.

A part that is new in the catalog needs one entry in a table here, and gets all of tests/test_contracts.py.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import energax
from energax import Mixture, energies, infer, learn, nn, samplers
from energax.samplers._sampler import random_value

KEY = 7
N = 6


def _mlp(n_in, n_out):
    return nn.mlp(n_in, n_out, key=jax.random.key(1), width=5)


def _float32(values):
    return np.asarray(values, np.float32)


def mixed_network():
    size = energies.LinearGaussian(
        "x", (), bias=_float32([0.0, 3.0]), variance=_float32([1, 1]), given=("z",)
    )
    return energies.BayesianNetwork({"z": _float32([0.8, 0.2]), "x": size})


# -- the tables: one small example of every part ---------------------------------------------------

ENERGIES = {
    "Mixture": lambda: Mixture(energies.Bernoullis(jnp.array([[0.2, 0.7, 0.4], [0.9, 0.5, 0.1]]))),
    "Gaussians": lambda: energies.Gaussians(
        jnp.array([[0.0, 1.0], [2.0, -1.0]]), jnp.stack([jnp.eye(2)] * 2)
    ),
    "Bernoullis": lambda: energies.Bernoullis(jnp.array([[0.2, 0.7], [0.9, 0.5]])),
    "Centroids": lambda: energies.Centroids(jnp.array([[0.0, 1.0], [2.0, -1.0]])),
    "RBM": lambda: energies.RBM.random(4, 3, key=KEY, scale=1.0),
    "GaussianRBM": lambda: energies.GaussianRBM(
        jax.random.normal(jax.random.key(0), (2, 3)), jnp.ones(2), jnp.zeros(3), jnp.full(2, 0.5)
    ),
    "Linear": lambda: energies.Linear(jax.random.normal(jax.random.key(0), (3, 2)), jnp.zeros(3)),
    "Scorer": lambda: energies.Scorer(_mlp(2, 3), 2, 3),
    "Decoder": lambda: energies.Decoder(_mlp(2, 4), 2),
    "NeuralEnergy": lambda: energies.NeuralEnergy.random(2, key=1, width=5),
    "BayesianNetwork": lambda: energies.BayesianNetwork(
        {"x": _float32([0.8, 0.2]), "y": ("x", _float32([[0.9, 0.1], [0.2, 0.8]]))}
    ),
    "MarkovField": lambda: energies.MarkovField({("x", "y"): _float32([[2.0, 1.0], [1.0, 3.0]])}),
    "FactorGraph": lambda: energies.FactorGraph(
        [energies.Factor(("x", "y"), _float32([[2.0, 1.0], [1.0, 3.0]]))]
    ),
    "Factor": lambda: energies.Factor(("x", "y"), _float32([[2.0, 1.0], [1.0, 3.0]])),
    "ConditionalTable": lambda: energies.ConditionalTable("y", ("x",), _float32([[0.9, 0.1], [0.2, 0.8]])),
    "MarkovChain": lambda: energies.MarkovChain([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]], length=4),
    "Categoricals": lambda: energies.Categoricals(_float32([[0.2, 0.8], [0.9, 0.1]])),
    "Poissons": lambda: energies.Poissons(_float32([[1.0, 2.0], [4.0, 0.5]])),
    "Mixtures": lambda: energies.Mixtures(
        energies.Gaussians(jnp.arange(4.0)[:, None], jnp.ones((4, 1, 1))), _float32([[0.5, 0.5], [0.9, 0.1]])
    ),
    "Product": lambda: energies.Product(
        (
            energies.Gaussians(jnp.array([[0.0], [2.0]]), jnp.ones((2, 1, 1))),
            energies.Categoricals(_float32([[0.9, 0.1], [0.1, 0.9]])),
        )
    ),
    "HiddenChain": lambda: energies.HiddenChain(
        _float32([0.5, 0.5]),
        _float32([[0.7, 0.3], [0.3, 0.7]]),
        energies.Gaussians(jnp.array([[0.0], [2.0]]), jnp.ones((2, 1, 1))),
        length=4,
    ),
    "LinearGaussianSSM": lambda: energies.LinearGaussianSSM(
        0.5 * jnp.eye(2), jnp.ones((3, 2)), jnp.eye(2), jnp.eye(3), length=4
    ),
    "NGram": lambda: energies.NGram.from_sequences(
        [[0, 1, 1, 2], [2, 1, 0]], 4, order=2, smoothing=energies.AddK(0.5), length=4
    ),
}
OBJECTIVES = {
    "Perceptron": ("Linear", lambda e, d: learn.Perceptron()),
    "Margin": ("Linear", lambda e, d: learn.Margin()),
    "CrossEntropy": ("Linear", lambda e, d: learn.CrossEntropy()),
    "NegativeLogLikelihood": ("RBM", lambda e, d: learn.NegativeLogLikelihood()),
    "PseudoLikelihood": ("MarkovField", lambda e, d: learn.PseudoLikelihood()),
    "ELBO": ("Decoder", lambda e, d: learn.ELBO(nn.Encoder.random(4, 2, key=1, width=5), samples=2)),
    "ContrastiveDivergence": ("RBM", lambda e, d: learn.ContrastiveDivergence(k=2)),
    "NoiseContrastive": ("RBM", lambda e, d: learn.NoiseContrastive.matched(e, d, k=3)),
    "ScoreMatching": ("NeuralEnergy", lambda e, d: learn.ScoreMatching()),
    "Adversarial": (
        "NeuralEnergy",
        lambda e, d: learn.Adversarial(nn.Generator.random(2, 2, key=1, width=5)),
    ),
}
# What learns each energy: so that a refusal is of the data and not of the learner.
FITS = {
    **dict.fromkeys(
        (
            "Mixture",
            "Gaussians",
            "Bernoullis",
            "Centroids",
            "MarkovChain",
            "LinearGaussianSSM",
            "Categoricals",
            "Poissons",
            "Mixtures",
            "Product",
            "HiddenChain",
        ),
        lambda: learn.EM(),
    ),
    **dict.fromkeys(
        ("RBM", "BayesianNetwork", "MarkovField", "FactorGraph", "Factor", "ConditionalTable"),
        lambda: learn.Descent(learn.NegativeLogLikelihood()),
    ),
    "GaussianRBM": lambda: learn.Descent(learn.ContrastiveDivergence()),
    "Linear": lambda: learn.Descent(learn.CrossEntropy()),
    "Scorer": lambda: learn.Descent(learn.CrossEntropy()),
    "Decoder": lambda: learn.Descent(learn.ELBO(nn.Encoder.random(4, 2, key=1, width=5))),
    "NeuralEnergy": lambda: learn.Descent(learn.ScoreMatching()),
}
LEARNERS = {
    "Descent": ("RBM", lambda: learn.Descent(learn.NegativeLogLikelihood())),
    "EM": ("Mixture", lambda: learn.EM()),
}
INFERENCES = {
    "Exact": ("Mixture", infer.Exact, lambda e, d, m: energax.log_prob(e, d, m, key=KEY).value),
    "Enumeration": ("RBM", infer.Enumeration, lambda e, d, m: energax.log_prob(e, d, m, key=KEY).value),
    "MessagePassing": (
        "MarkovField",
        infer.MessagePassing,
        lambda e, d, m: energax.log_prob(e, d, m, key=KEY).value,
    ),
    "VariableElimination": (
        "MarkovField",
        infer.VariableElimination,
        lambda e, d, m: energax.posterior(e, d, m).joint("y"),
    ),
    "BeliefPropagation": (
        "MarkovField",
        infer.BeliefPropagation,
        lambda e, d, m: energax.posterior(e, d, m).marginals["y"],
    ),
    "MeanField": (
        "MarkovField",
        infer.MeanField,
        lambda e, d, m: energax.posterior(e, d, m, key=KEY).marginals["y"],
    ),
    "AnnealedImportance": (
        "MarkovField",
        lambda: infer.AnnealedImportance(16, 10),
        lambda e, d, m: energax.log_partition(e, m, key=KEY).value,
    ),
    "LikelihoodWeighting": (
        "BayesianNetwork",
        lambda: infer.LikelihoodWeighting(100),
        lambda e, d, m: energax.posterior(e, d, m, key=KEY)._shares()[0],
    ),
    "ConditionalGaussian": (
        "BayesianNetwork with reals",
        infer.ConditionalGaussian,
        lambda e, d, m: energax.log_prob(e, d, m).value,
    ),
    "ForwardBackward": (
        "HiddenChain",
        infer.ForwardBackward,
        lambda e, d, m: energax.posterior(e, d, m).marginals["z"],
    ),
    "Kalman": ("LinearGaussianSSM", infer.Kalman, lambda e, d, m: energax.posterior(e, d, m).mean["z"]),
    "LBFGS": ("NeuralEnergy", infer.LBFGS, lambda e, d, m: energax.argmin(e, {}, m, key=KEY)["x"]),
    "Importance": (
        "Decoder",
        lambda: infer.Importance(n_samples=20),
        lambda e, d, m: energax.log_prob(e, d, m, key=KEY).value,
    ),
    "Ancestral": ("Mixture", infer.Ancestral, lambda e, d, m: energax.sample(e, 5, method=m, key=KEY)["x"]),
    "MCMC": (
        "RBM",
        lambda: infer.MCMC(samplers.Gibbs(), n_chains=2, warmup=5),
        lambda e, d, m: energax.sample(e, 6, method=m, key=KEY)["x"],
    ),
}
# A question that makes sense, but not for this method, and what it says to that.
REFUSED = {
    "Exact": ("RBM", lambda e, x, m: energax.log_prob(e, x, m), r"Exact needs log Z.*Use Enumeration\(\)"),
    "Enumeration": (
        "NeuralEnergy",
        lambda e, x, m: energax.argmin(e, {}, m),
        r"Enumeration cannot list the values of 'x'.*Use LBFGS\(\)",
    ),
    "MessagePassing": (
        "RBM",
        lambda e, x, m: energax.log_partition(e, m),
        r"MessagePassing needs tables.*Use Enumeration\(\)",
    ),
    **{
        name: (
            "RBM",
            lambda e, x, m: energax.posterior(e, x, m, key=0),
            rf"{name} needs {what}.*Use Exact\(\)",
        )
        for name, what in {
            "BeliefPropagation": "tables",
            "VariableElimination": "tables",
            "MeanField": "tables",
            "LikelihoodWeighting": "a Bayesian network",
        }.items()
    },
    "AnnealedImportance": (
        "GaussianRBM",
        lambda e, x, m: energax.log_partition(e, m, key=0),
        r"starts where all values are equally probable, .*'x' in Real.*Use Enumeration\(\)",
    ),
    "ConditionalGaussian": (
        "RBM",
        lambda e, x, m: energax.log_partition(e, m),
        r"ConditionalGaussian .*Use Enumeration\(\)",
    ),
    "ForwardBackward": (
        "RBM",
        lambda e, x, m: energax.posterior(e, x, m),
        r"ForwardBackward .*Use Exact\(\)",
    ),
    "Kalman": (
        "RBM",
        lambda e, x, m: energax.posterior(e, x, m),
        r"Kalman is for linear-Gaussian chains.*Use Exact\(\)",
    ),
    "LBFGS": (
        "RBM",
        lambda e, x, m: energax.argmin(e, x, m),
        r"LBFGS needs a real hidden variable.*Use Exact\(\)",
    ),
    "Importance": (
        "RBM",
        lambda e, x, m: energax.log_partition(e, m, key=0),
        r"Importance needs a proposal=.*Use Enumeration\(\)",
    ),
    "Ancestral": (
        "RBM",
        lambda e, x, m: energax.sample(e, 3, method=m, key=0),
        r"Ancestral needs exact draws.*Use Enumeration\(\)",
    ),
    "MCMC": (
        "NeuralEnergy",
        lambda e, x, m: energax.sample(e, 3, method=m, key=0),
        r"Gibbs does not fit.*conditional of 'x'.*Use Langevin\(\)",
    ),
}
SAMPLERS = {
    "Gibbs": ("RBM", samplers.Gibbs),
    "Langevin": ("NeuralEnergy", lambda: samplers.Langevin(step_size=0.05)),
}
OPTIONS = {
    "learn.Exact": learn.Exact,
    "learn.Sliced": learn.Sliced,
    "learn.Denoising": learn.Denoising,
    "learn.Reparameterised": learn.Reparameterised,
    "learn.ScoreFunction": learn.ScoreFunction,
    "learn.GumbelSoftmax": learn.GumbelSoftmax,
    "energies.Full": lambda: energies.Full(jnp.stack([jnp.eye(2)] * 2)),
    "energies.Tied": lambda: energies.Tied(jnp.eye(2)),
    "energies.Diagonal": lambda: energies.Diagonal(jnp.ones((2, 2))),
    "energies.Spherical": lambda: energies.Spherical(jnp.ones(2)),
    "energies.Bernoulli": energies.Bernoulli,
    "energies.Gaussian": lambda: energies.Gaussian(jnp.ones(2)),
    "energies.StandardNormal": lambda: energies.StandardNormal(2),
    "energies.UniformChoices": lambda: energies.UniformChoices(3, 2),
    "energies.TiedWithin": lambda: energies.TiedWithin(jnp.stack([jnp.eye(2)] * 2)),
    "energies.NormalPrior": energies.NormalPrior,
    "energies.AddK": energies.AddK,
    "energies.LinearGaussian": lambda: energies.LinearGaussian("x", ("y",), _float32([0.5])),
    "energies.Katz": energies.Katz,
    "energies.KneserNey": energies.KneserNey,
}
ESTIMATORS = {
    "LinearClassifier": {"max_iter": 20, "tol": 1.0},
    "MLPClassifier": {"hidden_layer_sizes": (4,), "max_iter": 3, "tol": None},
    "KMeans": {"n_clusters": 2},
    "GaussianMixture": {"n_components": 2, "tol": 0.1},
    "BernoulliMixture": {"n_components": 2, "tol": 0.1},
    "BernoulliRBM": {"n_components": 2, "n_iter": 3},
    "VAE": {"n_components": 1, "hidden_layer_sizes": (4,), "max_iter": 3, "n_importance": 10},
    "EnergyModel": {"hidden_layer_sizes": (4,), "max_iter": 3, "n_importance": 64},
}
#: What is no table of numbers is fitted and refused in tests of its own.
NOT_TABLES = {"CategoricalHMM", "GMMHMM", "GaussianHMM", "LinearGaussianChain", "NGramModel", "PoissonHMM"}
#: Counted, not learned by a learner.
COUNTED = {"NGram"}


def in_dtype(tree, dtype):
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)


def rows_of(energy, names=None, n=N):
    """Some legal rows of every variable."""
    out = {}
    for i, (name, space) in enumerate(energy.spaces.items()):
        if names is None or name in names:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(KEY), i), n)
            out[name] = jnp.stack([random_value(space, k) for k in keys])
    return out


def observed(energy):
    """Rows of what a learner sees: everything but z."""
    return rows_of(energy, [name for name in energy.spaces if name != "z"])
