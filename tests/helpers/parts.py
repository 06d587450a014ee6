"""One small example of every part of the catalog, for tests/test_contracts.py.

A new part of the catalog needs one entry in the table of its kind. All else is derived from the part.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from quick import evaluate

import energax
from energax import Mixture, bayes, energies, estimators, infer, kernels, learn, nn, samplers
from energax.catalog import Row
from energax.errors import EnergaxError
from energax.parameters import trainable_leaves
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


# -- the tables: one small example of every part, by the name of the part ---------------------------

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
    "BoltzmannMachine": lambda: energies.BoltzmannMachine.random(3, 2, key=KEY, scale=1.0),
    "DeepBoltzmannMachine": lambda: energies.DeepBoltzmannMachine.random((3, 2, 2), key=KEY, scale=1.0),
    "DeepBeliefNetwork": lambda: energies.DeepBeliefNetwork.random((3, 2, 2), key=KEY, scale=1.0),
    "ClassRBM": lambda: energies.ClassRBM.random(4, 3, 2, key=KEY, scale=1.0),
    "ConditionalRBM": lambda: energies.ConditionalRBM.random(2, 4, 3, key=KEY, scale=1.0),
    "Linear": lambda: energies.Linear(jax.random.normal(jax.random.key(0), (3, 2)), jnp.zeros(3)),
    "Scorer": lambda: energies.Scorer(
        eqx.nn.Sequential([eqx.nn.Dropout(0.5, inference=True), nn.BatchNorm(2), _mlp(2, 3)]), 2, 3
    ),
    "SupportVectorClassifier": lambda: energies.SupportVectorClassifier(
        kernels.RBF(2.0),
        jax.random.normal(jax.random.key(0), (20, 2)),
        jax.random.normal(jax.random.key(1), (1, 20)),
        jnp.zeros(1),
    ),
    "SupportVectorRegressor": lambda: energies.SupportVectorRegressor(
        kernels.RBF(2.0),
        jax.random.normal(jax.random.key(0), (20, 2)),
        jax.random.normal(jax.random.key(1), (20,)),
        jnp.zeros(()),
    ),
    "LinearModel": lambda: energies.LinearModel(
        _float32([1.0, -2.0]), jnp.zeros(()), energies.StudentT(4.0, jnp.ones(()))
    ),
    "BayesianLinear": lambda: energies.BayesianLinear(jnp.ones(2), jnp.array(4.0), length=4),
    "GaussianProcess": lambda: energies.GaussianProcess(
        2.0 * kernels.RBF([0.5, 2.0]), 0.1, n_features=2, length=3
    ),
    "NeuralRegressor": lambda: energies.NeuralRegressor(_mlp(2, "scalar"), 2),
    "LogisticProcess": lambda: energies.LogisticProcess(2.0 * kernels.RBF(), n_features=2, length=3),
    "SoftmaxProcess": lambda: energies.SoftmaxProcess(2.0 * kernels.RBF(), 3, n_features=2, length=3),
    "Decoder": lambda: energies.Decoder(_mlp(2, 4), 2),
    "Autoencoder": lambda: energies.Autoencoder.random(3, 2, key=1, width=5),
    "ConditionalDecoder": lambda: energies.ConditionalDecoder(_mlp(5, 4), 2, energax.Categorical(3)),
    "NeuralEnergy": lambda: energies.NeuralEnergy.random(2, key=1, width=5),
    "Flow": lambda: energies.Flow.random(2, key=1, n_layers=2, width=5, depth=1),
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
CONJUGATE = {
    "BetaBernoulli": lambda: energax.conjugate.BetaBernoulli(_float32([1.0, 2.0]), _float32([3.0, 0.5])),
    "DirichletCategorical": lambda: energax.conjugate.DirichletCategorical(_float32([1.0, 2.0, 0.5])),
    "GammaPoisson": lambda: energax.conjugate.GammaPoisson(_float32([1.0, 2.0]), _float32([3.0, 0.5])),
    "NormalInverseGamma": lambda: energax.conjugate.NormalInverseGamma(
        _float32([0.0, 1.0]), _float32([1.0, 2.0]), _float32([2.0, 1.5]), _float32([1.0, 0.5])
    ),
    "NormalInverseWishart": lambda: energax.conjugate.NormalInverseWishart(
        jnp.zeros(2), jnp.array(1.0), jnp.array(4.0), jnp.eye(2)
    ),
}
ENERGIES |= CONJUGATE
OBJECTIVES = {
    "Perceptron": ("Linear", lambda e, d: learn.Perceptron()),
    "Margin": ("Linear", lambda e, d: learn.Margin()),
    "CrossEntropy": ("Linear", lambda e, d: learn.CrossEntropy()),
    "NegativeLogLikelihood": ("RBM", lambda e, d: learn.NegativeLogLikelihood()),
    "PseudoLikelihood": ("MarkovField", lambda e, d: learn.PseudoLikelihood()),
    "ELBO": ("Decoder", lambda e, d: learn.ELBO(nn.Encoder.random(4, 2, key=1, width=5), samples=2)),
    "ContrastiveDivergence": ("RBM", lambda e, d: learn.ContrastiveDivergence(k=2)),
    "UpDown": ("DeepBeliefNetwork", lambda e, d: learn.UpDown()),
    "NoiseContrastive": ("RBM", lambda e, d: learn.NoiseContrastive.matched(e, d, k=3)),
    "ScoreMatching": ("NeuralEnergy", lambda e, d: learn.ScoreMatching()),
    "Adversarial": (
        "NeuralEnergy",
        lambda e, d: learn.Adversarial(nn.Generator.random(2, 2, key=1, width=5)),
    ),
    "AdversarialTraining": (
        "Linear",
        lambda e, d: learn.AdversarialTraining(learn.CrossEntropy(), learn.FastGradientSign(0.1)),
    ),
    "Reconstruction": (
        "Autoencoder",
        lambda e, d: learn.Reconstruction(
            learn.MaskingNoise(0.3), sparsity=learn.Sparsity(0.1), contraction=0.1
        ),
    ),
    "InputNoise": ("Linear", lambda e, d: learn.InputNoise(learn.CrossEntropy(), 0.1)),
    "Dropout": ("Scorer", lambda e, d: learn.Dropout(learn.CrossEntropy())),
    "BatchStatistics": ("Scorer", lambda e, d: learn.BatchStatistics(learn.CrossEntropy())),
}
LEARNERS = {
    "Descent": ("RBM", lambda: learn.Descent(learn.NegativeLogLikelihood())),
    "EM": ("Mixture", lambda: learn.EM()),
    "SMO": ("SupportVectorClassifier", lambda: learn.SMO()),
    "Newton": ("LinearModel", lambda: learn.Newton(learn.NegativeLogLikelihood())),
    "Proximal": ("LinearModel", lambda: learn.Proximal(learn.NegativeLogLikelihood(), 0.01)),
}


@dataclasses.dataclass(frozen=True)
class InferenceExample:
    """A query that the method supports, and one that it rejects."""

    energy: str
    method: Callable[[], Any]
    query: Callable[[Any, Any, Any], Any]  # (energy, given, method) → an array
    rejected: str  # an energy
    rejected_query: Callable[[Any, Any, Any], Any]
    message: str  # of the error


_log_prob = lambda energy, given, method: energax.log_prob(energy, given, method, key=KEY).value
_log_partition = lambda energy, given, method: energax.log_partition(energy, method, key=KEY).value
_posterior = lambda energy, given, method: energax.posterior(energy, given, method, key=KEY)
_argmin = lambda energy, given, method: energax.argmin(energy, given, method)
_sample = lambda energy, given, method: energax.sample(energy, 6, method=method, key=KEY)["x"]


def _fair_coins():
    return Mixture(energies.Bernoullis(jnp.full((2, 3), 0.5)))


INFERENCES = {
    "Exact": InferenceExample(
        "Mixture", infer.Exact, _log_prob, "RBM", _log_prob, r"Exact needs log Z.*Use Enumeration\(\)"
    ),
    "Enumeration": InferenceExample(
        "RBM",
        infer.Enumeration,
        _log_prob,
        "NeuralEnergy",
        lambda e, d, m: energax.argmin(e, {}, m),
        r"Enumeration cannot enumerate the values of 'x'.*Use LBFGS\(\)",
    ),
    "MessagePassing": InferenceExample(
        "MarkovField",
        infer.MessagePassing,
        _log_prob,
        "RBM",
        _log_partition,
        r"MessagePassing needs tables.*Use Enumeration\(\)",
    ),
    "VariableElimination": InferenceExample(
        "MarkovField",
        infer.VariableElimination,
        lambda e, d, m: _posterior(e, d, m).joint("y"),
        "RBM",
        _posterior,
        r"VariableElimination needs tables.*Use Exact\(\)",
    ),
    "BeliefPropagation": InferenceExample(
        "MarkovField",
        infer.BeliefPropagation,
        lambda e, d, m: _posterior(e, d, m).marginals["y"],
        "RBM",
        _posterior,
        r"BeliefPropagation needs tables.*Use Exact\(\)",
    ),
    "MeanField": InferenceExample(
        "MarkovField",
        infer.MeanField,
        lambda e, d, m: _posterior(e, d, m).marginals["y"],
        "RBM",
        _posterior,
        r"MeanField needs tables.*Use Exact\(\)",
    ),
    "AnnealedImportance": InferenceExample(
        "MarkovField",
        lambda: infer.AnnealedImportance(16, 10),
        _log_partition,
        "Poissons",
        _log_partition,
        r"AnnealedImportance .*",
    ),
    "TemperedSMC": InferenceExample(
        "RBM",
        lambda: infer.TemperedSMC(n_particles=8, n_runs=4, n_moves=1),
        _log_partition,
        "RBM",
        lambda e, d, m: energax.sample(e, 6, {"x": np.zeros(4)}, m, key=KEY),
        r"TemperedSMC draws all variables.*Use Exact\(\)",
    ),
    "ThermodynamicIntegration": InferenceExample(
        "RBM",
        lambda: infer.ThermodynamicIntegration(n_temperatures=5, n_chains=2, n_draws=100),
        _log_partition,
        "RBM",
        lambda e, d, m: energax.sample(e, 6, method=m, key=KEY),
        r"ThermodynamicIntegration does not implement sample.*Use Enumeration\(\)",
    ),
    "BridgeSampling": InferenceExample(
        "NeuralEnergy",
        lambda: infer.BridgeSampling(n_draws=200, n_chains=2, warmup=100),
        _log_partition,
        "RBM",
        _log_partition,
        r"BridgeSampling needs real variables.*Use Enumeration\(\)",
    ),
    "LikelihoodWeighting": InferenceExample(
        "BayesianNetwork",
        lambda: infer.LikelihoodWeighting(100),
        lambda e, d, m: _posterior(e, d, m).weights,
        "RBM",
        _posterior,
        r"LikelihoodWeighting needs a Bayesian network.*Use Exact\(\)",
    ),
    "ConditionalGaussian": InferenceExample(
        "BayesianNetwork with reals",
        infer.ConditionalGaussian,
        _log_prob,
        "RBM",
        _log_partition,
        r"ConditionalGaussian .*Use Enumeration\(\)",
    ),
    "ForwardBackward": InferenceExample(
        "HiddenChain",
        infer.ForwardBackward,
        lambda e, d, m: _posterior(e, d, m).marginals["z"],
        "RBM",
        _posterior,
        r"ForwardBackward .*Use Exact\(\)",
    ),
    "Kalman": InferenceExample(
        "LinearGaussianSSM",
        infer.Kalman,
        lambda e, d, m: _posterior(e, d, m).mean["z"],
        "RBM",
        _posterior,
        r"Kalman is for linear-Gaussian chains.*Use Exact\(\)",
    ),
    "LBFGS": InferenceExample(
        "NeuralEnergy",
        infer.LBFGS,
        lambda e, d, m: energax.argmin(e, {}, m, key=KEY)["x"],
        "RBM",
        _argmin,
        r"LBFGS needs a real hidden variable.*Use Exact\(\)",
    ),
    "Laplace": InferenceExample(
        "NeuralEnergy",
        infer.Laplace,
        lambda e, d, m: energax.posterior(e, {}, m).mean["x"],
        "RBM",
        _posterior,
        r"Laplace needs real hidden variables, but \['z'\] are not.*Use Exact\(\)",
    ),
    "VariationalGaussian": InferenceExample(
        "NeuralEnergy",
        lambda: infer.VariationalGaussian("full-rank"),
        lambda e, d, m: energax.posterior(e, {}, m).mean["x"],
        "RBM",
        _posterior,
        r"VariationalGaussian needs real hidden variables, but \['z'\] are not.*Use Exact\(\)",
    ),
    "Importance": InferenceExample(
        "Decoder",
        lambda: infer.Importance(n_samples=20),
        _log_prob,
        "RBM",
        _log_partition,
        r"Importance needs a proposal=.*Use Enumeration\(\)",
    ),
    "VariationalBound": InferenceExample(
        "DeepBoltzmannMachine",
        infer.VariationalBound,
        _log_prob,
        "RBM",
        _log_prob,
        r"VariationalBound needs `free_energy_bound`.*Use Enumeration\(\)",
    ),
    "TopDown": InferenceExample(
        "DeepBeliefNetwork",
        infer.TopDown,
        _sample,
        "RBM",
        _sample,
        r"TopDown needs an undirected part.*Use Enumeration\(\)",
    ),
    "Rejection": InferenceExample(
        "Mixture",
        lambda: infer.Rejection(_fair_coins()),
        _sample,
        "NeuralEnergy",
        _sample,
        r"Rejection cannot use the proposal Mixture.*Use NUTS\(\)",
    ),
    "InverseTransform": InferenceExample(
        "Mixture",
        infer.InverseTransform,
        lambda e, d, m: energax.sample(e, 6, d, m, key=KEY)["z"].astype(np.float32),
        "NeuralEnergy",
        _sample,
        r"InverseTransform needs one variable that is one number.*Use NUTS\(\)",
    ),
    "GumbelMax": InferenceExample(
        "RBM",
        infer.GumbelMax,
        _sample,
        "NeuralEnergy",
        _sample,
        r"GumbelMax needs finite variables.*Use NUTS\(\)",
    ),
    "Ancestral": InferenceExample(
        "Mixture",
        infer.Ancestral,
        _sample,
        "RBM",
        _sample,
        r"Ancestral needs exact draws.*Use Enumeration\(\)",
    ),
    "FiniteFirst": InferenceExample(
        "Gaussians",
        infer.FiniteFirst,
        _sample,
        "RBM",
        _sample,
        r"FiniteFirst needs finite hidden variables and others.*Use Enumeration\(\)",
    ),
    "MCMC": InferenceExample(
        "RBM",
        lambda: infer.MCMC(samplers.Gibbs(), n_chains=2, warmup=5),
        _sample,
        "NeuralEnergy",
        _sample,
        r"Gibbs does not fit.*conditional of 'x'.*Use NUTS\(\)",
    ),
}


def _add_noise(key, state):
    return {k: v + jax.random.normal(key, v.shape, v.dtype) for k, v in state.items()}


SAMPLERS = {
    "Gibbs": ("RBM", samplers.Gibbs),
    "NUTS": ("NeuralEnergy", lambda: samplers.NUTS(max_doublings=3)),
    "HMC": ("NeuralEnergy", lambda: samplers.HMC(n_steps=2)),
    "MALA": ("NeuralEnergy", samplers.MALA),
    "MetropolisHastings": ("NeuralEnergy", lambda: samplers.MetropolisHastings(_add_noise)),
    "RandomWalk": ("RBM", samplers.RandomWalk),
    "EllipticalSlice": ("NeuralEnergy", lambda: samplers.EllipticalSlice(jnp.ones(2))),
    "Compound": ("RBM", lambda: samplers.Compound({"x": samplers.Gibbs(), "z": samplers.RandomWalk()})),
    "ParallelTempering": ("RBM", lambda: samplers.ParallelTempering(samplers.Gibbs(), n_temperatures=3)),
    "Langevin": ("NeuralEnergy", lambda: samplers.Langevin(step_size=0.05)),
    "SGLD": ("NeuralEnergy", lambda: samplers.SGLD(0.05, decay=0.3)),
    "SGHMC": ("NeuralEnergy", lambda: samplers.SGHMC(0.05)),
}
OPTIONS = {
    "learn.Exact": learn.Exact,
    "learn.Sliced": learn.Sliced,
    "learn.Denoising": learn.Denoising,
    "learn.Reparameterised": learn.Reparameterised,
    "learn.ScoreFunction": learn.ScoreFunction,
    "learn.GumbelSoftmax": learn.GumbelSoftmax,
    "learn.StraightThrough": learn.StraightThrough,
    "learn.LeaveOneOut": learn.LeaveOneOut,
    "learn.OptimalBaseline": learn.OptimalBaseline,
    "learn.LearnedBaseline": lambda: learn.LearnedBaseline(jnp.zeros(())),
    "learn.ConstantBaseline": lambda: learn.ConstantBaseline(1.0),
    "learn.GaussianNoise": learn.GaussianNoise,
    "learn.MaskingNoise": learn.MaskingNoise,
    "learn.Sparsity": lambda: learn.Sparsity(0.1, target=0.05),
    "learn.FastGradientSign": lambda: learn.FastGradientSign(0.1),
    "learn.ProjectedGradient": lambda: learn.ProjectedGradient(0.1, steps=2),
    "energies.BinaryUnits": energies.BinaryUnits,
    "energies.SoftmaxUnits": lambda: energies.SoftmaxUnits(3),
    "energies.GaussianUnits": lambda: energies.GaussianUnits(jnp.ones(2)),
    "energies.RectifiedUnits": lambda: energies.RectifiedUnits(4),
    "energies.Recognition": lambda: energies.Recognition(jnp.zeros((3, 2)), jnp.zeros(2)),
    "energies.Full": lambda: energies.Full(jnp.stack([jnp.eye(2)] * 2)),
    "energies.Tied": lambda: energies.Tied(jnp.eye(2)),
    "energies.Diagonal": lambda: energies.Diagonal(jnp.ones((2, 2))),
    "energies.Spherical": lambda: energies.Spherical(jnp.ones(2)),
    "energies.Bernoulli": energies.Bernoulli,
    "energies.Gaussian": lambda: energies.Gaussian(jnp.ones(2)),
    "energies.EpsilonInsensitive": energies.EpsilonInsensitive,
    "energies.StudentT": lambda: energies.StudentT(4.0, jnp.ones(())),
    "energies.Poisson": energies.Poisson,
    "energies.Gamma": lambda: energies.Gamma(2.0),
    "energies.Categorical": lambda: energies.Categorical(3),
    "energies.DiscretisedLogistic": lambda: energies.DiscretisedLogistic(16, jnp.full(2, 0.1)),
    "energies.MixtureLikelihood": lambda: energies.MixtureLikelihood(energies.Gaussian(0.5), 3),
    "energies.Columns": lambda: energies.Columns([(energies.Gaussian(), [0, 2]), (energies.Poisson(), [1])]),
    "energies.EnergyPrior": lambda: energies.EnergyPrior(Mixture(ENERGIES["Gaussians"]())),
    "energies.LadderPrior": lambda: energies.LadderPrior.random((2, 1), key=0, width=4),
    "energies.PseudoInputs": lambda: energies.PseudoInputs(jnp.eye(4), 2),
    "infer.RefinedEncoder": lambda: infer.RefinedEncoder(
        nn.Encoder.random(4, 2, key=1, width=5), ENERGIES["Decoder"]()
    ),
    "energies.StandardNormal": lambda: energies.StandardNormal(2),
    "energies.UniformChoices": lambda: energies.UniformChoices(3, 2),
    "energies.TiedWithin": lambda: energies.TiedWithin(jnp.stack([jnp.eye(2)] * 2)),
    "energies.NormalPrior": energies.NormalPrior,
    "energies.AddK": energies.AddK,
    "energies.LinearGaussian": lambda: energies.LinearGaussian("x", ("y",), _float32([0.5])),
    "energies.Katz": energies.Katz,
    "energies.KneserNey": energies.KneserNey,
    "bayes.Bayes": lambda: bayes.Bayes(beta=0.5, loss=learn.CrossEntropy()),
    "infer.AdaptiveMixture": lambda: infer.AdaptiveMixture(2, df=None),
    "infer.Exceeds": lambda: infer.Exceeds(ENERGIES["RBM"](), 1.5),
    "kernels.RBF": lambda: kernels.RBF([0.5, 2.0]),
    "kernels.Matern": lambda: kernels.Matern(0.5, nu=2.5),
    "kernels.RationalQuadratic": kernels.RationalQuadratic,
    "kernels.Periodic": kernels.Periodic,
    "kernels.Linear": kernels.Linear,
    "kernels.Polynomial": lambda: kernels.Polynomial(2),
    "kernels.Constant": kernels.Constant,
    "kernels.White": kernels.White,
    "kernels.Sum": lambda: kernels.RBF() + kernels.White(0.1),
    "kernels.Product": lambda: 2.0 * kernels.RBF(),
}
_DEEP = {"hidden_layer_sizes": (3, 2), "n_iter": 3, "n_iter_pretrain": 2}
ESTIMATORS = {
    "LinearClassifier": {"max_iter": 20, "tol": 1.0},
    "SVC": {"probability": True},
    "SVR": {},
    "LogisticRegression": {"max_iter": 20},
    "MLPClassifier": {"hidden_layer_sizes": (4,), "max_iter": 3, "tol": None},
    "MLPRegressor": {"hidden_layer_sizes": (4,), "max_iter": 3, "tol": None},
    "LinearRegression": {},
    "Ridge": {},
    "Lasso": {"alpha": 0.1},
    "PoissonRegressor": {},
    "BayesianRidge": {},
    "ARDRegression": {},
    "BasisExpansion": {"basis": "gaussian", "n_basis": 4},
    "NaiveBayes": {},
    "LinearDiscriminantAnalysis": {},
    "QuadraticDiscriminantAnalysis": {},
    "GaussianProcessRegressor": {"alpha": 0.1},
    "GaussianProcessClassifier": {},
    "KernelRidge": {},
    "KMeans": {"n_clusters": 2},
    "GaussianMixture": {"n_components": 2, "tol": 0.1},
    "BernoulliMixture": {"n_components": 2, "tol": 0.1},
    "BernoulliRBM": {"n_components": 2, "n_iter": 3},
    "BoltzmannMachine": {"n_components": 1, "n_iter": 3},
    "DeepBoltzmannMachine": {**_DEEP, "n_importance": 10},
    "DeepBeliefNetwork": {**_DEEP, "n_importance": 10},
    "VAE": {"n_components": 1, "hidden_layer_sizes": (4,), "max_iter": 3, "n_importance": 10},
    "Flow": {"n_layers": 2, "width": 4, "depth": 1, "max_iter": 3},
    "ConditionalVAE": {"n_components": 1, "hidden_layer_sizes": (4,), "max_iter": 3, "n_importance": 10},
    "VaDE": {
        "n_clusters": 2,
        "n_components": 1,
        "hidden_layer_sizes": (4,),
        "pretrain_iter": 2,
        "max_iter": 3,
        "n_importance": 10,
    },
    "Autoencoder": {"n_components": 1, "hidden_layer_sizes": (4,), "max_iter": 3},
    "DenoisingAutoencoder": {"n_components": 5, "max_iter": 3},
    "SparseAutoencoder": {"n_components": 5, "max_iter": 3},
    "EnergyModel": {"hidden_layer_sizes": (4,), "max_iter": 3, "n_importance": 64},
}


# -- derived from the parts ------------------------------------------------------------------------


def takes_tables(row: Row) -> bool:
    """Whether an estimator is fitted to a table of numbers: not to texts, and not to sequences."""
    cls = row.load()
    return (
        cls().__sklearn_tags__().input_tags.two_d_array
        and "lengths" not in inspect.signature(cls.fit).parameters
    )


def takes_binary(name):
    """Whether an estimator is for zeros and ones, so that other tables raise."""
    return name.startswith("Bernoulli") or name in (
        "BoltzmannMachine",
        "DeepBoltzmannMachine",
        "DeepBeliefNetwork",
    )


def make_estimator(name, seed):
    """The small estimator of the table; a random one with this seed."""
    cls = getattr(estimators, name)
    random = {"random_state": seed} if "random_state" in inspect.signature(cls).parameters else {}
    return cls(**ESTIMATORS[name], **random)


def needs_y(model):
    return model.__sklearn_tags__().target_tags.required


def fit_estimator(name, X, y):
    """The small estimator of the table, fitted."""
    model = make_estimator(name, 3)
    return model.fit(X, y) if needs_y(model) else model.fit(X)


def output_of(model, X):
    """The main output of an estimator for some rows."""
    methods = ("predict_proba", "score_samples", "transform", "predict")
    return getattr(model, next(name for name in methods if hasattr(model, name)))(X)


def find_learner(energy):
    """A learner that supports the energy; None for one without trainable parameters."""
    if not any(jax.tree.leaves(trainable_leaves(energy))):
        return None
    candidates = [learn.EM] if energy.has_m_step else []
    candidates += [
        lambda: learn.Descent(learn.CrossEntropy()),
        lambda: learn.Descent(learn.NegativeLogLikelihood()),
    ]
    candidates += [lambda: learn.Descent(learn.ScoreMatching())]
    candidates += [lambda: learn.Descent(learn.ELBO(_encoder(energy)))]
    for build in candidates:
        try:
            learner = build()
            learner.check(energy, observed(energy))
        except EnergaxError:
            continue
        return learner
    raise AssertionError(f"no learner supports {type(energy).__name__}")


def _encoder(energy):
    if "y" in energy.spaces:
        sizes = energy.spaces["x"].size, energy.spaces["z"].size
        return nn.ConditionalEncoder.random(*sizes, energy.spaces["y"], key=1, width=5)
    return nn.Encoder.random(energy.spaces["x"].size, energy.spaces["z"].size, key=1, width=5)


def in_dtype(tree, dtype):
    return jax.tree.map(lambda a: a.astype(dtype) if eqx.is_inexact_array(a) else a, tree)


def rows_of(energy, names=None, n=N):
    """Some valid rows of every variable."""

    def draw(i, space):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(KEY), i), n)
        return jax.vmap(lambda key: random_value(space, key))(keys)

    spaces = energy.spaces
    wanted = [(i, name) for i, name in enumerate(spaces) if names is None or name in names]
    return evaluate(lambda: {name: draw(i, spaces[name]) for i, name in wanted})


def row_of(rows, i):
    return jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[i]), rows)


def observed(energy):
    """Rows of the variables that a learner gets: all but z, or z1, z2, …"""
    return rows_of(energy, [name for name in energy.spaces if not name.startswith("z")])
