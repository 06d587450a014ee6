"""The catalog: one row per public part, with its kind, requirements and reference.

Rows name parts without importing them, so the table is cheap to load; `Row.load` imports one. Inference methods given
by name and the contract tests read this table.

>>> row = find("EM")
>>> row.kind, row.path
('learner', 'energax.learn:EM')
>>> row.load().__name__
'EM'
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Literal

from .errors import BadInput

Kind = Literal[
    "energy", "objective", "learner", "inference", "sampler", "estimator", "option", "base", "result"
]


@dataclasses.dataclass(frozen=True)
class Row:
    """A public part of energax.

    An `option` is an argument of another part (a covariance, a gradient estimator), a `base` is a class to
    derive new parts from, and a `result` is a return type.
    """

    home: str  # the module of energax to import it from
    name: str
    kind: Kind
    summary: str
    needs: str = ""
    spaces: str = ""
    reference: str = ""

    @property
    def path(self) -> str:
        return f"energax.{self.home}:{self.name}"

    def load(self) -> Any:
        return part(self.path)


def part(path: str) -> Any:
    """The object at `module:name`, imported now."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def find(name: str) -> Row:
    """The row of this name (`EM`, or `learn.EM` if the name is ambiguous); raises `BadInput` if there is none."""
    found = [row for row in CATALOG if name in (row.name, f"{row.home}.{row.name}")]
    if len(found) == 1:
        return found[0]
    if found:
        both = " or ".join(f"{row.home}.{row.name}" for row in found)
        raise BadInput("name", f"{name!r}, the name of {len(found)} parts", both)
    import difflib

    near = difflib.get_close_matches(name, [row.name for row in CATALOG], n=3)
    hint = f"Did you mean {' or '.join(near)}?" if near else ""
    raise BadInput("name", repr(name), "the name of a part in the catalog", hint)


def of_kind(kind: Kind) -> tuple[Row, ...]:
    return tuple(row for row in CATALOG if row.kind == kind)


# One row per line, whatever its length.
# fmt: off
CATALOG: tuple[Row, ...] = (
    # energies
    Row("mixture", "Mixture", "energy", "p(x, z) = π_z p(x | z), of any component energies", "components over (x, z), or a list", "those of the components and Categorical(k)", "Pearson (1894)"),
    Row("energies", "Gaussians", "energy", "k normal densities, stacked, chosen by z", "a covariance", "x: Real(d), z: Categorical(k)", "McLachlan and Peel (2000)"),
    Row("energies", "Bernoullis", "energy", "k products of Bernoulli distributions, stacked, chosen by z", "", "x: Binary(d), z: Categorical(k)", "Lazarsfeld and Henry (1968)"),
    Row("energies", "Centroids", "energy", "k centers: squared distance to the one chosen by z", "", "x: Real(d), z: Categorical(k)", "Lloyd (1982)"),
    Row("energies", "RBM", "energy", "binary visible and hidden units, connected pairwise", "", "x: Binary(d), z: Binary(h)", "Smolensky (1986)"),
    Row("energies", "GaussianRBM", "energy", "real visible and binary hidden units", "", "x: Real(d), z: Binary(h)", "Welling, Rosen-Zvi and Hinton (2005)"),
    Row("energies", "BoltzmannMachine", "energy", "binary units with connections between all of them", "", "x: Binary(d), z: Binary(h)", "Ackley, Hinton and Sejnowski (1985)"),
    Row("energies", "DeepBoltzmannMachine", "energy", "layers of binary units, each connected with its neighbours", "", "x: Binary(d), z1, z2, …: Binary", "Salakhutdinov and Hinton (2009)"),
    Row("energies", "DeepBeliefNetwork", "energy", "an RBM over the last two layers, directed layers below", "RBMs", "x: of the first RBM, z1, z2, …: of the others", "Hinton, Osindero and Teh (2006)"),
    Row("energies", "ClassRBM", "energy", "an RBM over x with a label y", "an RBM", "x, z: of the RBM, y: Categorical(k)", "Larochelle and Bengio (2008)"),
    Row("energies", "ConditionalRBM", "energy", "an RBM whose biases depend on inputs", "an RBM", "u: Real(n), x, z: of the RBM", "Taylor, Hinton and Roweis (2007)"),
    Row("energies", "Linear", "energy", "−(xᵀW + b)_y: a linear score for every class", "", "x: Real(d), y: Categorical(k)", "Crammer and Singer (2001)"),
    Row("energies", "Scorer", "energy", "−f(x)_y, f any network", "a network", "x: Real(d), y: Categorical(k)", "LeCun et al. (2006)"),
    Row("energies", "GaussianProcess", "energy", "½ fᵀK⁻¹f + ½ log|2πK| − log N(y; f, σ²I), one example is a data set", "a kernel", "x: Sequence(Real(d)); y, f: Sequence(Real())", "Rasmussen and Williams (2006)"),
    Row("energies", "SupportVectorClassifier", "energy", "−score_y(x), from kernel values with support vectors", "a kernel", "x: Real(d), y: Categorical(k)", "Cortes and Vapnik (1995)"),
    Row("energies", "SupportVectorRegressor", "energy", "C max(0, |y − f(x)| − ε), f from kernel values with support vectors", "a kernel", "x: Real(d), y: Real()", "Drucker et al. (1997)"),
    Row("energies", "LinearModel", "energy", "−log p(y | wᵀx + b): a generalised linear model", "a likelihood", "x: Real(d), y: of the likelihood", "Nelder and Wedderburn (1972)"),
    Row("energies", "BayesianLinear", "energy", "linear regression of a whole data set, with its weights as a variable", "", "x: Sequence(Real(d)), y: Sequence(Real()), w: Real(d)", "MacKay (1992)"),
    Row("energies", "NeuralRegressor", "energy", "−log p(y | f(x)), f any network", "a network, a likelihood", "x: Real(d), y: of the likelihood", "Bishop (1994)"),
    Row("energies", "LogisticProcess", "energy", "½ fᵀK⁻¹f + ½ log|2πK| − Σ log σ(±f), a Gaussian process of two classes", "a kernel", "x: Sequence(Real(d)); y: Sequence(Binary()); f: Sequence(Real())", "Rasmussen and Williams (2006)"),
    Row("energies", "SoftmaxProcess", "energy", "Σ_c (½ f_cᵀK⁻¹f_c + ½ log|2πK|) − Σ log softmax(f)[y], a Gaussian process of k classes", "a kernel", "x: Sequence(Real(d)); y: Sequence(Categorical(k)); f: Sequence(Real(k))", "Williams and Barber (1998)"),
    Row("energies", "Decoder", "energy", "−log p(z) − log p(x | f(z))", "a network, a likelihood, a prior", "x: of the likelihood, z: of the prior", "Kingma and Welling (2014)"),
    Row("energies", "Autoencoder", "energy", "−log p(x | g(f(x))), the loss of reconstruction", "two networks", "x: of the likelihood", "Rumelhart, Hinton and Williams (1986)"),
    Row("energies", "ConditionalDecoder", "energy", "−log p(z) − log p(x | f(z, y)), given y", "a network, a likelihood, a prior", "x: of the likelihood, z: of the prior, y: any", "Sohn, Lee and Yan (2015)"),
    Row("energies", "NeuralEnergy", "energy", "f(x), any network with one output", "a network", "x: Real(d)", "LeCun et al. (2006)"),
    Row("energies", "Flow", "energy", "−log N(f(x); 0, I) − log|det ∂f/∂x|, f any invertible network", "a bijection", "x: Real(d); y: Real(m) or Categorical(k)", "Rezende and Mohamed (2015); Papamakarios et al. (2021)"),
    Row("energies", "MarkovChain", "energy", "−log π(x₁) − Σ log A[x, x′]: each state depends on the one before", "", "x: Sequence(Categorical(k))", "Markov (1906)"),
    Row("energies", "HiddenChain", "energy", "−log π(z₁) − Σ log A[z, z′] − Σ log p(x | z): hidden states with emissions", "an emission", "z: Sequence(Categorical(k)), x: Sequence of the emission", "Rabiner (1989)"),
    Row("energies", "Categoricals", "energy", "k tables of symbols, stacked, chosen by z", "", "x: Categorical(m), z: Categorical(k)", "Rabiner (1989)"),
    Row("energies", "Poissons", "energy", "k products of Poisson counts, stacked, chosen by z", "", "x: Count(d), z: Categorical(k)", "Zucchini, MacDonald and Langrock (2016)"),
    Row("energies", "Mixtures", "energy", "k mixtures of Gaussians, stacked, chosen by z", "covariances", "x: Real(d), z: Categorical(k)", "Gauvain and Lee (1994)"),
    Row("energies", "Product", "energy", "emissions of several kinds, each for some columns of x", "emissions", "x: mixed columns, z: Categorical(k)", "Zucchini, MacDonald and Langrock (2016)"),
    Row("energies", "LinearGaussianSSM", "energy", "−log p(z₁) − Σ log p(z′ | z) p(x | z), linear and Gaussian", "", "z: Sequence(Real(k)), x: Sequence(Real(d))", "Kalman (1960); Shumway and Stoffer (1982)"),
    Row("energies", "NGram", "energy", "−log p(x) of a text, each word given the n − 1 words before it", "counts and a smoothing", "x: Sequence(Categorical(v))", "Chen and Goodman (1999)"),
    Row("energies", "BayesianNetwork", "energy", "−Σ log p(x_v | x_parents): every variable given its parents", "", "named Categorical variables", "Pearl (1988)"),
    Row("energies", "MarkovField", "energy", "−Σ log φ_c(x_c): tables over cliques of an undirected graph", "", "named Categorical variables", "Besag (1974)"),
    Row("energies", "FactorGraph", "energy", "Σ e_f(x_f): a sum of small energies", "factors", "finite", "Kschischang, Frey and Loeliger (2001)"),
    Row("energies", "Factor", "energy", "−log φ(x): one table over a few named variables", "", "named Categorical variables", "Kschischang, Frey and Loeliger (2001)"),
    Row("energies", "ConditionalTable", "energy", "−log p(child | parents): one table of a Bayesian network", "", "named Categorical variables", "Pearl (1988)"),
    Row("energies", "LinearGaussian", "option", "−log N(x; b + wᵀparents, σ²): one real node of a Bayesian network", "", "named Real variables", "Lauritzen (1992)"),
    Row("conjugate", "BetaBernoulli", "energy", "a probability with a beta prior, and a binary observation", "", "p: Interval(0, 1), x: Binary", "Bayes (1763)"),
    Row("conjugate", "DirichletCategorical", "energy", "probabilities with a Dirichlet prior, and an observation of one of k values", "", "p: Simplex(k), x: Categorical(k)", "Minka (2012)"),
    Row("conjugate", "GammaPoisson", "energy", "a rate with a gamma prior, and an observed count", "", "rate: Positive, x: Count", "Greenwood and Yule (1920)"),
    Row("conjugate", "NormalInverseGamma", "energy", "mean and variance of a normal observation", "", "mean: Real, variance: Positive, x: Real", "Raiffa and Schlaifer (1961)"),
    Row("conjugate", "NormalInverseWishart", "energy", "mean and covariance of a normal vector", "", "mean: Real(d), covariance: PositiveDefinite(d), x: Real(d)", "Gelman et al. (2013)"),
    Row("conjugate", "ConjugatePair", "base", "a prior and a likelihood whose posterior is of the family of the prior"),
    # objectives
    Row("learn", "Perceptron", "objective", "the correct class must score best", "a finite target", "y: finite", "Rosenblatt (1958)"),
    Row("learn", "Margin", "objective", "the correct class must score best by a margin", "a finite target", "y: finite", "Crammer and Singer (2001)"),
    Row("learn", "CrossEntropy", "objective", "−log p(y | x) at an inverse temperature", "a finite target", "y: finite", "Bridle (1990)"),
    Row("learn", "NegativeLogLikelihood", "objective", "mean F(x) + log Z, with an optional prior", "log_partition", "any", "Fisher (1922)"),
    Row("learn", "PseudoLikelihood", "objective", "each coordinate given all others, without log Z", "complete rows", "finite", "Besag (1975)"),
    Row("learn", "ELBO", "objective", "a lower bound of log p(x) by an encoder; importance-weighted with several samples", "an encoder", "z: real or finite", "Kingma and Welling (2014); Burda, Grosse and Salakhutdinov (2016)"),
    Row("learn", "ContrastiveDivergence", "objective", "mean F(data) − mean F(samples of a short or persistent chain)", "a sampler", "those of the sampler", "Hinton (2002); Tieleman (2008)"),
    Row("learn", "UpDown", "objective", "wake and sleep phases, with contrastive divergence at the top", "propose, log_proposal and undirected", "a DeepBeliefNetwork", "Hinton, Osindero and Teh (2006)"),
    Row("learn", "NoiseContrastive", "objective", "classify data against noise, with log Z as a parameter", "a noise distribution", "x: any", "Gutmann and Hyvärinen (2012)"),
    Row("learn", "ScoreMatching", "objective", "match the gradient of log p, without log Z", "a gradient in x", "x: Real(d)", "Hyvärinen (2005)"),
    Row("learn", "Adversarial", "objective", "a generator draws the negative phase, with a discrepancy as regulariser", "a generator", "x: Real(d)", "Kim and Bengio (2016)"),
    Row("learn", "AdversarialTraining", "objective", "any objective on inputs that an attack has changed", "an objective and an attack", "x: Real(d), y: any", "Goodfellow, Shlens and Szegedy (2015); Madry et al. (2018)"),
    Row("learn", "Reconstruction", "objective", "the loss of reconstructing x from its code: denoising, sparse or contractive", "an energy that reconstructs", "x: any", "Vincent et al. (2010); Rifai et al. (2011)"),
    Row("learn", "InputNoise", "objective", "any objective on inputs with noise", "an objective", "x: Real(d)", "Bishop (1995)"),
    Row("learn", "Dropout", "objective", "any objective with the dropout layers of a network turned on", "an objective, layers equinox.nn.Dropout", "any", "Srivastava et al. (2014)"),
    Row("learn", "BatchStatistics", "objective", "any objective with the statistics of the batch in the batch normalisation of networks and flows", "an objective, layers nn.BatchNorm or nn.InvertibleBatchNorm", "any", "Ioffe and Szegedy (2015)"),
    # learners
    Row("learn", "Descent", "learner", "any Optax optimizer on any objective, in unconstrained coordinates", "an objective", "any", "Robbins and Monro (1951)"),
    Row("learn", "EM", "learner", "expectation maximisation: soft, hard, tempered, minibatch", "statistics and maximise, or log_partition", "z: finite", "Dempster, Laird and Rubin (1977)"),
    Row("learn", "SMO", "learner", "sequential minimal optimisation of the dual of support vector machines", "a kernel expansion, all rows", "x: Real(d)", "Platt (1998); Fan, Chen and Lin (2005)"),
    Row("learn", "Newton", "learner", "Newton's method with a line search; proximal with an L1 penalty", "a smooth objective, few parameters", "any", "Nocedal and Wright (2006)"),
    Row("learn", "Proximal", "learner", "accelerated proximal gradients: an objective plus an L1 penalty", "a smooth objective", "any", "Beck and Teboulle (2009)"),
    # options of objectives
    Row("learn", "Exact", "option", "score matching with the exact Jacobian trace", "", "x: Real(d), d small", "Hyvärinen (2005)"),
    Row("learn", "Sliced", "option", "score matching along random directions", "", "x: Real(d)", "Song et al. (2020)"),
    Row("learn", "Denoising", "option", "score matching of noisy data, without a Jacobian", "", "x: Real(d)", "Vincent (2011)"),
    Row("learn", "Reparameterised", "option", "reparameterised gradient", "", "z: Real(d)", "Kingma and Welling (2014)"),
    Row("learn", "ScoreFunction", "option", "score-function gradient with a baseline", "", "z: any", "Williams (1992)"),
    Row("learn", "StraightThrough", "option", "discrete draws with the gradient of a relaxation", "", "z: finite", "Bengio, Léonard and Courville (2013); Jang, Gu and Poole (2017)"),
    Row("learn", "LeaveOneOut", "option", "a baseline: the mean of the other draws", "", "", "Kool, van Hoof and Welling (2019)"),
    Row("learn", "OptimalBaseline", "option", "the baseline of least variance for each parameter", "", "", "Greensmith, Bartlett and Baxter (2004)"),
    Row("learn", "LearnedBaseline", "option", "a baseline that is trained with the distribution", "", "", "Mnih and Gregor (2014)"),
    Row("learn", "ConstantBaseline", "option", "a baseline that is one number", "", "", "Williams (1992)"),
    Row("learn", "GumbelSoftmax", "option", "continuous relaxation of a categorical variable", "", "z: finite", "Jang, Gu and Poole (2017)"),
    Row("learn", "GaussianNoise", "option", "a corruption of inputs: normal noise", "", "x: Real(d)", ""),
    Row("learn", "MaskingNoise", "option", "a corruption of inputs: coordinates set to 0", "", "x: any", "Vincent et al. (2008)"),
    Row("learn", "Sparsity", "option", "a penalty on codes: absolute values, or the divergence from a mean activation", "", "", "Lee, Ekanadham and Ng (2008)"),
    Row("learn", "FastGradientSign", "option", "an attack: one step along the signs of the gradient", "", "x: Real(d)", "Goodfellow, Shlens and Szegedy (2015)"),
    Row("learn", "ProjectedGradient", "option", "an attack: gradient steps within a ball", "", "x: Real(d)", "Madry et al. (2018)"),
    # inferences
    Row("infer", "Exact", "inference", "closed forms of the energy", "free_energy, conditional, log_partition or argmin", "any", ""),
    Row("infer", "Enumeration", "inference", "sums and minima over all values", "at most 2²⁰ values", "finite", ""),
    Row("infer", "MessagePassing", "inference", "sum-product and max-product on a junction tree", "tables, and a width that fits", "finite", "Lauritzen and Spiegelhalter (1988)"),
    Row("infer", "ForwardBackward", "inference", "posterior states, best paths and draws of a hidden Markov chain", "a HiddenChain", "z: Sequence(Categorical(k))", "Baum et al. (1970); Viterbi (1967)"),
    Row("infer", "Kalman", "inference", "filtered and smoothed states of a linear-Gaussian chain", "a LinearGaussianSSM", "real sequences", "Kalman (1960); Rauch, Tung and Striebel (1965)"),
    Row("infer", "VariableElimination", "inference", "sums pushed into the product, for one query at a time", "tables", "finite", "Zhang and Poole (1996)"),
    Row("infer", "BeliefPropagation", "inference", "sum-product messages on a graph with loops, damped", "tables", "finite", "Pearl (1988); Murphy, Weiss and Jordan (1999)"),
    Row("infer", "MeanField", "inference", "the best product of independent variables; a lower bound of log Z", "tables", "finite", "Saul, Jaakkola and Jordan (1996)"),
    Row("infer", "AnnealedImportance", "inference", "log Z by annealing chains from a fitted base to the model, and back", "tables, or moves of a sampler", "finite and real", "Neal (2001); Salakhutdinov and Murray (2008)"),
    Row("infer", "TemperedSMC", "inference", "draws and log Z by particles from a fitted base to the model", "moves of a sampler", "finite and real", "Del Moral, Doucet and Jasra (2006)"),
    Row("infer", "ThermodynamicIntegration", "inference", "log Z as an integral of mean energies over temperatures", "moves of a sampler", "finite and real", "Gelman and Meng (1998); Friel, Hurn and Wyse (2014)"),
    Row("infer", "BridgeSampling", "inference", "log Z by a bridge between draws and a fitted distribution", "a gradient", "real", "Meng and Wong (1996)"),
    Row("infer", "LikelihoodWeighting", "inference", "ancestral draws weighted by the evidence", "a BayesianNetwork", "finite", "Fung and Chang (1990)"),
    Row("infer", "ConditionalGaussian", "inference", "exact inference in networks with linear-Gaussian nodes", "a BayesianNetwork with real nodes", "finite and real", "Lauritzen (1992)"),
    Row("infer", "LBFGS", "inference", "the minimum of the energy over real variables, by gradients", "a gradient", "real", "Liu and Nocedal (1989)"),
    Row("infer", "Laplace", "inference", "the Gaussian with the mode and the curvature of the posterior", "two derivatives", "real", "Laplace (1774); Tierney and Kadane (1986)"),
    Row("infer", "VariationalGaussian", "inference", "the Gaussian of highest ELBO in unconstrained coordinates, or a flow", "a gradient", "real", "Kucukelbir et al. (2017); Giordano, Ingram and Broderick (2024)"),
    Row("infer", "VariationalBound", "inference", "a lower bound of log p(x) by the energy's own approximation of z", "free_energy_bound or propose", "any", "Salakhutdinov and Murray (2008)"),
    Row("infer", "Importance", "inference", "posteriors, expectations, log p(x) and log Z by weighted draws", "a proposal", "any", "Kahn and Marshall (1953)"),
    Row("infer", "Rejection", "inference", "independent draws by proposals under an envelope", "a proposal", "any", "von Neumann (1951)"),
    Row("infer", "InverseTransform", "inference", "draws and log Z of one number by its distribution function", "`__call__` or `conditional`", "one number", "Devroye (1986); Fritsch and Carlson (1980)"),
    Row("infer", "GumbelMax", "inference", "draws as the lowest energy after adding Gumbel noise", "`__call__`", "finite", "Gumbel (1954)"),
    Row("infer", "FiniteFirst", "inference", "exact draws of finite variables, then of the others given them", "free_energy or conditional", "finite and others", ""),
    Row("infer", "Ancestral", "inference", "independent exact draws", "draw", "any", ""),
    Row("infer", "TopDown", "inference", "draws of an undirected top, then exact draws of all else", "undirected and draw", "any", "Hinton, Osindero and Teh (2006)"),
    Row("infer", "MCMC", "inference", "draws by Markov chains, with diagnostics", "a sampler", "those of the sampler", "Vehtari et al. (2021)"),
    # samplers
    Row("samplers", "Gibbs", "sampler", "each variable in turn from its conditional", "conditional, or finite variables", "finite; real with conditional", "Geman and Geman (1984)"),
    Row("samplers", "NUTS", "sampler", "trajectories that end where they turn back, tuned in the warm-up", "a gradient", "real; finite ones summed out", "Hoffman and Gelman (2014)"),
    Row("samplers", "HMC", "sampler", "trajectories of a random number of steps, tuned in the warm-up", "a gradient", "real; finite ones summed out", "Duane et al. (1987); Neal (2011)"),
    Row("samplers", "MALA", "sampler", "a gradient step plus noise with rejection, tuned in the warm-up", "a gradient", "real; finite ones summed out", "Roberts and Tweedie (1996)"),
    Row("samplers", "Langevin", "sampler", "a gradient step plus noise, with or without rejection", "a gradient", "real", "Roberts and Tweedie (1996)"),
    Row("samplers", "MetropolisHastings", "sampler", "moves of any proposal, accepted or rejected", "a proposal", "any", "Metropolis et al. (1953); Hastings (1970)"),
    Row("samplers", "RandomWalk", "sampler", "normal steps in ℝⁿ and random changes of discrete variables", "`__call__`", "any", "Roberts, Gelman and Gilks (1997)"),
    Row("samplers", "EllipticalSlice", "sampler", "draws on ellipses through a draw of a Gaussian prior", "a Gaussian prior", "real", "Murray, Adams and MacKay (2010)"),
    Row("samplers", "Compound", "sampler", "a sampler for each group of variables, in turn", "samplers of its groups", "any", "Tierney (1994)"),
    Row("samplers", "ParallelTempering", "sampler", "replicas at higher temperatures that exchange states", "a sampler", "those of the sampler", "Geyer (1991); Syed et al. (2022)"),
    Row("samplers", "SGLD", "sampler", "gradient steps with noise on minibatches, without rejection", "a gradient; minibatches of a Bayes energy", "real", "Welling and Teh (2011)"),
    Row("samplers", "SGHMC", "sampler", "SGLD with a momentum and friction", "a gradient; minibatches of a Bayes energy", "real", "Chen, Fox and Guestrin (2014)"),
    # options of energies
    Row("energies", "BinaryUnits", "option", "units of an RBM with values 0 and 1", "", "Binary(d)", "Smolensky (1986)"),
    Row("energies", "SoftmaxUnits", "option", "units of an RBM with one of k values", "", "Categorical(k, d)", "Salakhutdinov, Mnih and Hinton (2007)"),
    Row("energies", "GaussianUnits", "option", "real units of an RBM", "", "Real(d)", "Welling, Rosen-Zvi and Hinton (2004)"),
    Row("energies", "RectifiedUnits", "option", "units of an RBM that count active copies with shifted biases", "", "Categorical(n + 1, d)", "Nair and Hinton (2010)"),
    Row("energies", "Recognition", "option", "recognition weights of a directed layer", "", "", "Hinton, Osindero and Teh (2006)"),
    Row("energies", "Full", "option", "one covariance matrix per component", "", "Real(d)", ""),
    Row("energies", "Tied", "option", "one covariance matrix for all components", "", "Real(d)", ""),
    Row("energies", "Diagonal", "option", "one variance per component and column", "", "Real(d)", ""),
    Row("energies", "Spherical", "option", "one variance per component", "", "Real(d)", ""),
    Row("energies", "Bernoulli", "option", "Bernoulli likelihood, from logits", "", "Binary(d)", ""),
    Row("energies", "Gaussian", "option", "Gaussian likelihood, from means, with learned scales", "", "Real(d)", ""),
    Row("energies", "EpsilonInsensitive", "option", "likelihood that is flat within ε and exponential beyond", "", "Real(d)", "Pontil, Mukherjee and Girosi (2000)"),
    Row("energies", "StudentT", "option", "Student-t likelihood, from centres, robust to outliers", "", "Real(d)", "Lange, Little and Taylor (1989)"),
    Row("energies", "Poisson", "option", "Poisson likelihood, from logarithms of means", "", "Count(d)", ""),
    Row("energies", "Gamma", "option", "gamma likelihood, from logarithms of means", "", "Positive(d)", ""),
    Row("energies", "Categorical", "option", "categorical likelihood, from k logits per column", "", "Categorical(k, d)", ""),
    Row("energies", "DiscretisedLogistic", "option", "a logistic density summed over grey values", "", "Categorical(k, d)", "Salimans et al. (2017)"),
    Row("energies", "MixtureLikelihood", "option", "a mixture of k likelihoods for every column", "a likelihood", "that of the likelihood", "Bishop (1994)"),
    Row("energies", "Columns", "option", "likelihoods of different kinds, each for some columns", "likelihoods", "mixed columns", "Nazábal et al. (2020)"),
    Row("energies", "EnergyPrior", "option", "the prior of a hidden variable is any normalised energy: a mixture, a flow", "an energy", "Real(d)", "Jiang et al. (2017)"),
    Row("energies", "LadderPrior", "option", "the prior is a ladder of hidden layers, each given the one above", "", "Real(d)", "Sønderby et al. (2016)"),
    Row("energies", "PseudoInputs", "option", "the prior is the mean of the encoder over learned inputs (VampPrior)", "an encoder", "Real(d)", "Tomczak and Welling (2018)"),
    Row("infer", "RefinedEncoder", "option", "an encoder improved by gradient steps on the bound of every row", "an encoder and an energy", "z: Real(d)", "Kim et al. (2018)"),
    Row("energies", "StandardNormal", "option", "prior N(0, I) of a real hidden variable", "", "Real(d)", ""),
    Row("energies", "UniformChoices", "option", "uniform prior of categorical hidden variables", "", "Categorical(k, d)", ""),
    Row("energies", "TiedWithin", "option", "one covariance per state, shared by its mixture components", "", "Real(d)", ""),
    Row("energies", "NormalPrior", "option", "a prior on means and covariances", "", "Real(d)", "Gauvain and Lee (1994)"),
    Row("energies", "AddK", "option", "add k to every count; k = 0 is maximum likelihood", "", "words", "Lidstone (1920)"),
    Row("energies", "Katz", "option", "discount rare counts and back off to shorter contexts", "", "words", "Katz (1987)"),
    Row("energies", "KneserNey", "option", "absolute discounting with continuation counts", "", "words", "Chen and Goodman (1999)"),
    # posteriors over parameters
    Row("bayes", "Bayes", "option", "turns an energy and data into an energy over its parameters", "a prior", "real parameters", "Bissiri, Holmes and Walker (2016)"),
    # kernels
    Row("kernels", "RBF", "option", "exp(−½ ‖(x − y) / ℓ‖²), with one length scale or one per column", "", "Real(d)", ""),
    Row("kernels", "Matern", "option", "the Matérn kernel with ν = ½, 3/2 or 5/2", "", "Real(d)", "Matérn (1960)"),
    Row("kernels", "RationalQuadratic", "option", "a mixture of RBF kernels of many length scales", "", "Real(d)", ""),
    Row("kernels", "Periodic", "option", "an RBF kernel on circles, for periodic functions", "", "Real(d)", "MacKay (1998)"),
    Row("kernels", "Linear", "option", "Σ v_i x_i y_i, the kernel of linear functions", "", "Real(d)", ""),
    Row("kernels", "Polynomial", "option", "(γ xᵀy + c)^p, the kernel of polynomials", "", "Real(d)", ""),
    Row("kernels", "Constant", "option", "a constant, the variance of an offset", "", "Real(d)", ""),
    Row("kernels", "White", "option", "independent noise of every observation", "", "Real(d)", ""),
    Row("kernels", "Sum", "option", "k1 + k2, written so", "", "Real(d)", ""),
    Row("kernels", "Product", "option", "k1 · k2, written k1 * k2", "", "Real(d)", "Schur (1911)"),
    # estimators
    Row("estimators", "LinearClassifier", "estimator", "a linear classifier by cross-entropy, margin or perceptron", "", "X real, y labels", "Crammer and Singer (2001)"),
    Row("estimators", "SVC", "estimator", "support vector classifier with any kernel, and a certificate", "", "X real, y labels", "Cortes and Vapnik (1995)"),
    Row("estimators", "SVR", "estimator", "support vector regression with any kernel, and a certificate", "", "X real, y real", "Drucker et al. (1997)"),
    Row("estimators", "LogisticRegression", "estimator", "logistic regression by Newton, L-BFGS or proximal steps, with Wald intervals", "", "X real, y labels", "McCullagh and Nelder (1989)"),
    Row("estimators", "MLPClassifier", "estimator", "a network classifier", "", "X real, y labels", "Rumelhart, Hinton and Williams (1986)"),
    Row("estimators", "MLPRegressor", "estimator", "a network regressor", "", "X real, y real", "Rumelhart, Hinton and Williams (1986)"),
    Row("estimators", "LinearRegression", "estimator", "linear regression by least squares, or robust with Student-t noise", "", "X real, y real", "Legendre (1805); Lange, Little and Taylor (1989)"),
    Row("estimators", "Ridge", "estimator", "linear regression with a penalty on squared weights", "", "X real, y real", "Hoerl and Kennard (1970)"),
    Row("estimators", "Lasso", "estimator", "linear regression with an L1 penalty, or the elastic net", "", "X real, y real", "Tibshirani (1996); Zou and Hastie (2005)"),
    Row("estimators", "PoissonRegressor", "estimator", "a generalised linear model of counts", "", "X real, y counts", "Nelder and Wedderburn (1972)"),
    Row("estimators", "BayesianRidge", "estimator", "Bayesian linear regression, precisions by the evidence", "", "X real, y real", "MacKay (1992)"),
    Row("estimators", "ARDRegression", "estimator", "Bayesian linear regression with one precision for every weight", "", "X real, y real", "Tipping (2001)"),
    Row("estimators", "BasisExpansion", "estimator", "basis functions of every column, in front of linear models", "", "X real", "Bishop (2006)"),
    Row("estimators", "NaiveBayes", "estimator", "columns independent given the class: normal, Bernoulli, categorical or Poisson", "", "X mixed, NaN allowed, y labels", "Hand and Yu (2001)"),
    Row("estimators", "LinearDiscriminantAnalysis", "estimator", "a Gaussian per class, with one covariance for all; directions that separate classes", "", "X real, NaN allowed, y labels", "Fisher (1936)"),
    Row("estimators", "QuadraticDiscriminantAnalysis", "estimator", "a Gaussian per class, each with its own covariance", "", "X real, NaN allowed, y labels", "Friedman (1989)"),
    Row("estimators", "GaussianProcessRegressor", "estimator", "regression by a Gaussian process, hyperparameters by maximum evidence", "", "X real, y real", "Rasmussen and Williams (2006)"),
    Row("estimators", "GaussianProcessClassifier", "estimator", "classification by Gaussian processes, by Laplace's method", "", "X real, y labels", "Williams and Barber (1998)"),
    Row("estimators", "KernelRidge", "estimator", "ridge regression in the space of a kernel, in the dual", "", "X real, y real", "Saunders, Gammerman and Vovk (1998)"),
    Row("estimators", "KMeans", "estimator", "k centers by hard EM, or soft at a temperature", "", "X real", "Lloyd (1982); Arthur and Vassilvitskii (2007)"),
    Row("estimators", "GaussianMixture", "estimator", "k Gaussians by EM; missing values are integrated out", "", "X real, NaN allowed", "Dempster, Laird and Rubin (1977)"),
    Row("estimators", "BernoulliMixture", "estimator", "k products of Bernoulli distributions by EM; missing values are summed out", "", "X binary, NaN allowed", "Lazarsfeld and Henry (1968)"),
    Row("estimators", "BernoulliRBM", "estimator", "a restricted Boltzmann machine", "", "X binary, NaN allowed", "Hinton (2002)"),
    Row("estimators", "BoltzmannMachine", "estimator", "couplings of binary columns, by pseudo-likelihood or contrastive divergence", "", "X binary", "Ackley, Hinton and Sejnowski (1985)"),
    Row("estimators", "DeepBoltzmannMachine", "estimator", "layers of binary units, learned together", "", "X binary", "Salakhutdinov and Hinton (2009)"),
    Row("estimators", "DeepBeliefNetwork", "estimator", "greedy layers of RBMs, tuned by the up-down algorithm", "", "X binary", "Hinton, Osindero and Teh (2006)"),
    Row("estimators", "VAE", "estimator", "a variational autoencoder", "", "X binary or real, NaN allowed", "Kingma and Welling (2014)"),
    Row("estimators", "Flow", "estimator", "density of real columns by a normalising flow, exact", "complete rows", "real", "Durkan et al. (2019); Papamakarios, Pavlakou and Murray (2017)"),
    Row("estimators", "ConditionalVAE", "estimator", "a variational autoencoder given the class, and the class by Bayes' rule", "", "X binary or real, NaN allowed, y labels", "Sohn, Lee and Yan (2015)"),
    Row("estimators", "VaDE", "estimator", "clusters of a mixture in the latent space of an autoencoder", "", "X binary or real, NaN allowed", "Jiang et al. (2017)"),
    Row("estimators", "Autoencoder", "estimator", "codes from which a network reconstructs the rows; contractive as an option", "", "X binary or real", "Rumelhart, Hinton and Williams (1986)"),
    Row("estimators", "DenoisingAutoencoder", "estimator", "codes of corrupted rows that reconstruct the rows without noise", "", "X binary or real", "Vincent et al. (2010)"),
    Row("estimators", "SparseAutoencoder", "estimator", "codes of which few entries are active", "", "X binary or real", "Lee, Ekanadham and Ng (2008)"),
    Row("estimators", "EnergyModel", "estimator", "a neural energy on ℝᵈ", "", "X real", "Gutmann and Hyvärinen (2012)"),
    Row("estimators", "CategoricalHMM", "estimator", "a hidden Markov model with categorical emissions", "", "X sequences of symbols, NaN allowed", "Rabiner (1989)"),
    Row("estimators", "GaussianHMM", "estimator", "a hidden Markov model with Gaussian emissions", "", "X real sequences, NaN allowed", "Rabiner (1989)"),
    Row("estimators", "GMMHMM", "estimator", "a hidden Markov model with Gaussian-mixture emissions", "", "X real sequences, NaN allowed", "Gauvain and Lee (1994)"),
    Row("estimators", "PoissonHMM", "estimator", "a hidden Markov model with Poisson emissions", "", "X sequences of counts, NaN allowed", "Zucchini, MacDonald and Langrock (2016)"),
    Row("estimators", "LinearGaussianChain", "estimator", "a linear-Gaussian state-space model: filter, smooth, forecast", "", "X real sequences, NaN allowed", "Kalman (1960); Shumway and Stoffer (1982)"),
    Row("estimators", "NGramModel", "estimator", "a language model of words or characters with smoothed counts", "", "X texts", "Chen and Goodman (1999)"),
    # base classes and results
    Row("bayes", "ParameterEnergy", "result", "−log p(θ) + β Σ loss(θ), an energy over the parameters of a model"),
    Row("bayes", "Predictive", "result", "a model averaged over draws of its parameters"),
    Row("bayes", "PredictiveCheck", "result", "a statistic of the data and of replicated data"),
    Row("bayes", "NumPyroEnergy", "result", "−log p(latent, observed) of a NumPyro model"),
    Row("learn", "Objective", "base", "a scalar whose gradient in θ is the update of a learning principle"),
    Row("infer", "AdaptiveMixture", "option", "a proposal of Importance that is moved to its target", "a gradient or draws", "real", "Rubinstein and Kroese (2004); Cappé et al. (2008)"),
    Row("infer", "Exceeds", "option", "the event that a function reaches a threshold"),
    Row("infer", "Method", "base", "one way to answer queries of an energy"),
    Row("samplers", "StochasticGradient", "base", "samplers that follow the gradient of random minibatches"),
    Row("samplers", "Sampler", "base", "a Markov kernel of one chain"),
    Row("kernels", "Kernel", "base", "a positive semi-definite function of two points"),
    Row("energies", "Units", "base", "the units of a layer of an RBM"),
    Row("energies", "Covariance", "base", "the covariances of k normal densities"),
    Row("energies", "Emission", "base", "p(x | z) for every z, stacked"),
    Row("learn", "GradientEstimator", "base", "an estimator of the gradient of an expectation"),
    Row("learn", "Baseline", "base", "what is subtracted from f in the score-function gradient"),
    Row("learn", "Attack", "base", "a change of an input that makes its label less probable"),
    Row("energies", "Likelihood", "base", "p(x | outputs of a network), coordinate by coordinate"),
    Row("energies", "Regressor", "base", "p(y | x) from one output and a likelihood"),
    Row("energies", "Network", "base", "a sum of small energies over finite variables"),
    Row("energies", "Smoothing", "base", "how probability is reserved for unseen words"),
    Row("infer", "Plan", "result", "the method of a query and its cost"),
    Row("infer", "Cost", "result", "operations and memory of a plan"),
    Row("infer", "Minimum", "result", "the hidden variables of lowest energy"),
    Row("infer", "Posterior", "result", "the distribution of hidden variables given observed ones"),
    Row("optimum", "ConstrainedMinimum", "result", "a minimum under constraints, with multipliers and a checked certificate", reference="Karush (1939); Kuhn and Tucker (1951)"),
    Row("optimum", "Curvature", "result", "gradient and Hessian at a point: kind of critical point, condition number, steps"),
    Row("optimum", "Whitening", "result", "a linear map to covariance I and its inverse", reference="Kessy, Lewin and Strimmer (2018)"),
    Row("samplers", "Draws", "result", "draws by chain, with diagnostics"),
)
# fmt: on
