"""The optional knowledge of an energy, one protocol per capability.

An energy has `spaces` and `__call__`. Every method below is optional; "Used by" names the parts of the
library that call it. `energy.knows(name)` says whether the class of the energy has its own method of this
name; a name that is not declared here raises an error, so that typos are found.

Rows are dicts of arrays by variable, with the rows on the first axis; partly missing values are `Masked`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

Rows = Mapping[str, Any]


# -- one example ---------------------------------------------------------------------------------------


class FreeEnergy(Protocol):
    def free_energy(self, **given: Any) -> Any:
        """F(given) = −log Σ_hidden exp(−e), in closed form for the names that the method takes.

        Used by: `energy.free_energy`, log Z, the objectives, Langevin, `infer.Exact`.
        """


class Conditional(Protocol):
    def conditional(self, name: str, **given: Any) -> Any:
        """p(name | given), a NumPyro distribution or one with its method names.

        Used by: Gibbs, `infer.Exact`, annealed importance sampling.
        """


class FreeEnergyBound(Protocol):
    def free_energy_bound(self, **given: Any) -> Any:
        """An upper bound of F(given) where F itself is intractable, by a variational distribution.

        Its gradient at the fixed distribution is the positive phase of learning.

        Used by: `ContrastiveDivergence`, `infer.VariationalBound`.
        """


class Propose(Protocol):
    def propose(self, key: Any, **given: Any) -> tuple[dict[str, Any], Any]:
        """Draws of some hidden variables from an approximation q of their posterior, and log q of the draws.

        F of the given values and the draws together is in closed form.

        Used by: `infer.VariationalBound`, `learn.UpDown`.
        """


class LogProposal(Protocol):
    def log_proposal(self, **values: Any) -> Any:
        """log q of the hidden variables among `values` given the others. Used by: `learn.UpDown`."""


class Undirected(Protocol):
    def undirected(self) -> tuple[Any, dict[str, str]]:
        """The energy of some variables at the top, and their names here by their names there.

        log Z is that of this part, and `draw` draws all other variables given these.

        Used by: `infer.TopDown`, `infer.VariationalBound`, `learn.UpDown`.
        """


class CoordinateLogits(Protocol):
    def coordinate_logits(self, name: str, i: Any, **values: Any) -> Any:
        """log p(coordinate i of `name` = v | all others) up to a constant for every value v, (k,).

        `values` has all variables. Used by: Gibbs, in place of the energies of all values.
        """


class LogPartition(Protocol):
    def log_partition(self) -> Any:
        """log Z, in closed form. Used by: `NegativeLogLikelihood`, `log_prob`, `EM`, mixtures."""


class Draw(Protocol):
    def draw(self, key: Any, **given: Any) -> dict[str, Any]:
        """One exact draw of all variables that are not given, and of missing coordinates.

        Used by: `infer.Ancestral`, `Importance` (as a proposal), `EnergyNoise`.
        """


class DrawsProblem(Protocol):
    def draws_problem(self, values: Rows) -> str:
        """Why draws of all variables, as rows, cannot be trusted, in one clause; empty if they can.

        For draws whose arithmetic may lose digits, such as an inverted network. Used by: `infer.Ancestral`.
        """


class Score(Protocol):
    def score(self, name: str = "x", **given: Any) -> Any:
        """∇ log p(name | …) at the values in `given`. Used by: Langevin, `ScoreMatching`."""


class Argmin(Protocol):
    def argmin(self, **given: Any) -> dict[str, Any]:
        """The hidden variables of lowest energy. Used by: `infer.Exact`."""


class ScoreHessian(Protocol):
    def score_hessian(self, batch: Any, pairs: Any) -> Any:
        """Σ_n Σ_{a<b} c_nab (J_a − J_b)ᵀ(J_a − J_b), where J = ∂scores/∂θ, for scores that are linear in θ.

        pairs: a function from rows and weights to c >= 0, (n, k(k − 1)/2), in the order of `np.triu_indices`.
        Rows and columns of the result are all parameters, in the order of the leaves. A loss of differences
        of scores has such a Hessian.

        Used by: `CrossEntropy.hessian`.
        """


class Multiply(Protocol):
    def multiply(self, factor: Any) -> Any:
        """factor · e as an energy of the same class, for a number factor > 0.

        Used by: `Tempered`, and through it annealed importance sampling.
        """


class StartingPoint(Protocol):
    def starting_point(self) -> dict[str, Any]:
        """Values of all variables from which a search may start.

        Used by: `Laplace`, `VariationalGaussian`, `SGLD`, `SGHMC`.
        """


class Subsample(Protocol):
    def subsample(self, key: Any, n: int) -> Any:
        """The energy of a random minibatch of `n` rows, with the mean of the energy of all rows.

        Used by: `SGLD`, `SGHMC`.
        """


class RelaxedEnergy(Protocol):
    def relaxed_energy(self, **values: Any) -> Any:
        """The energy at soft one-hot vectors of a categorical variable. Used by: `learn.GumbelSoftmax`."""


class WithEncoder(Protocol):
    def with_encoder(self, encoder: Any) -> Any:
        """The energy whose prior uses this encoder, if it needs one. Used by: `learn.ELBO`."""


class Reconstructs(Protocol):
    """An energy that is the loss of reconstructing x from a code. Used by: `learn.Reconstruction`."""

    def reconstruction_energy(self, x: Any, seen: Any) -> Any:
        """The energy of x reconstructed from the code of `seen`, one example each."""

    def encode(self, x: Any) -> Any:
        """The code of one example, (k,)."""


class HiddenMeans(Protocol):
    def hidden_means(self, x: Any) -> Any:
        """E[z | x] as a vector; of categories, which have no mean, the probabilities of all values.

        Used by: `nn.HiddenMeans`.
        """


class Inference(Protocol):
    def inference(self, task: str) -> str | None:
        """The name of the inference method that suits this family of energies, or None.

        Used by: `infer` without `method=`.
        """


# -- energies over (x, z): components and emissions, stacked along z -----------------------------------


class Energies(Protocol):
    def energies(self, **given: Any) -> Any:
        """The energy of one example for every z, (k,). Used by: `Mixture`."""


class RowEnergies(Protocol):
    def row_energies(self, **rows: Any) -> Any:
        """The energies of many rows for every z, (n, k). Used by: `Mixture`, `HiddenChain`, `Product`."""


class EncodeRows(Protocol):
    def encode_rows(self, *, x: Any) -> tuple[Any, Any] | None:
        """(energies of all m possible rows, (m, k); the index of every row of x), or None if m is large.

        Used by: `HiddenChain`.
        """


class ImputeGiven(Protocol):
    def impute_given(self, data: Rows, posterior: Any) -> dict[str, Any]:
        """The rows, missing values at their means given p(z | row), (n, k).

        Used by: `Mixture.impute`, `ForwardBackward`.
        """


class FitNearest(Protocol):
    def fit_nearest(self, data: Rows, weight: Any) -> Any:
        """The same component means, all else fitted to the rows nearest to each. Used by: `Mixtures`."""


# -- learning from many rows at once -------------------------------------------------------------------


class LogPosterior(Protocol):
    def log_posterior(self, data: Rows) -> Any:
        """log p(row, z) for every row and every z, (n, k). Used by: `EM`, the mixture estimators."""


class MStep(Protocol):
    """The M-step of EM in closed form. Used by: `EM`."""

    def statistics(self, data: Rows, posterior: Any) -> Any:
        """Sums over rows of sufficient statistics; `posterior`, (n, k), holds the weights of the rows."""

    def maximise(self, statistics: Any, trainable: Any = None) -> Any:
        """The energy with the parameters that maximise the expected log-likelihood.

        `trainable` is a tree of bools; a parameter that is False keeps its value. An energy whose `maximise`
        does not take it is learned by EM only if nothing is frozen.
        """


class LabelledStatistics(Protocol):
    def labelled_statistics(self, data: Rows, label: Any, weight: Any) -> Any:
        """The `statistics` of rows whose z is known, (n,): each has its weight for it, and 0 for all others.

        Used by: the classifiers whose classes are the components of a mixture.
        """


class KernelDual(Protocol):
    """The dual of a kernel expansion: one coefficient for every row. Used by: `SMO`."""

    def dual_kernel(self, data: Rows) -> tuple[Any, Any, Any]:
        """(a function from indices to rows of the kernel matrix, one to their block, its diagonal)."""

    def dual_problem(self, data: Rows, bound: Any) -> Any:
        """Targets and bounds of all variables (`algorithms.optimise.smo.BoxDual`); `bound`, (n,), is C.

        The arrays are (c, n), or (p, c, n) for p problems over the same rows.
        """

    def with_dual(self, data: Rows, variables: Any, intercept: Any) -> Any:
        """The energy with these rows as support vectors, and the coefficients of the dual variables."""


class LabelledEnergies(Protocol):
    def labelled_energies(self, label: Any, **rows: Any) -> Any:
        """The energies of many rows, each for its own z, (n,). Used by: `Mixture`."""


class Recenter(Protocol):
    def recenter(self, statistics: Any, reference: Any) -> Any:
        """Statistics that were taken about the parameters of `reference`, as if taken about these.

        Used by: `EM(decay=)`. Without it statistics do not depend on the parameters.
        """


class Expectations(Protocol):
    def expectations(self, data: Rows, temperature: Any) -> tuple[Any, Any]:
        """(the posterior that `statistics` takes, the objective of every row).

        For hidden variables with a structure (a chain, a network). Used by: `EM`, before `log_posterior`.
        """


class ExpectedEnergy(Protocol):
    def expected_energy(self, data: Rows, posterior: Any) -> Any:
        """Σ over rows of E[e(x, z)] under the posterior of `expectations`, each row with its weight in it.

        Used by: `EM` with an M-step by descent.
        """


class ExpectedStatistics(Protocol):
    def expected_statistics(self, data: Rows, weight: Any, temperature: Any) -> tuple[Any, Any] | None:
        """(weighted statistics, weighted objective) of all rows without a posterior of every row, or None.

        Used by: `EM`, first of all.
        """


class Initialise(Protocol):
    def initialise(self, key: Any, data: Rows, weight: Any) -> Any:
        """The energy with random parameters to start from. Used by: `fit(n_init=)`."""


class Impute(Protocol):
    def impute(self, data: Rows) -> dict[str, Any]:
        """The rows, missing values at their means given the observed ones. Used by: the estimators."""


# -- structure: used by the methods for families of energies -------------------------------------------


class FactorTables(Protocol):
    def tables(self) -> Any:
        """The log-tables of all factors (`algorithms.factors.tables.Tables`).

        Used by: message passing, variable elimination, loopy belief propagation, mean field, AIS.
        """


class TableFile(Protocol):
    def to_tables(self) -> Any:
        """The network as plain tables with names, to be written. Used by: `data.write_bif`, `write_uai`."""


class AncestralDraw(Protocol):
    def ancestral_draw(self, key: Any, given: Rows) -> tuple[dict[str, Any], Any]:
        """One draw of a Bayesian network from parents to children, with some variables fixed.

        Returns the values of all variables, and Σ log p(given variable | its parents).

        Used by: `LikelihoodWeighting`.
        """


class ConditionalGaussianNetwork(Protocol):
    """A Bayesian network with finite and linear-Gaussian variables. Used by: `ConditionalGaussian`."""

    def conditional_gaussian(self) -> Any:
        """Its tables and equations (`algorithms.gaussian.conditional.ConditionalGaussianModel`)."""

    def finite_part(self) -> Any:
        """The network of its finite variables alone; None if there are none."""


class HiddenMarkov(Protocol):
    """A hidden Markov chain. Used by: `ForwardBackward`, the HMM estimators.

    Properties `observed_name` and `state_name` name its two variables. The methods below and `draw`,
    `conditional` take values under these names.
    """

    def logs(self) -> tuple[Any, Any]:
        """(log of the first state's probabilities, (k,); log of the transitions, (k, k))."""

    def log_likelihoods(self, **rows: Any) -> Any:
        """log p(x_t | z_t) of many sequences, (n, steps, k); −∞ for states that the given ones exclude."""

    def draw_states(self, key: Any, **given: Any) -> Any:
        """A path of states given some variables; of `length` steps if nothing is given."""

    def coded_likelihoods(self, **rows: Any) -> Any:
        """The same as `CodedLikelihoods` where few rows are distinct, else as an array."""


class LinearGaussianStates(Protocol):
    """A linear-Gaussian state-space model. Used by: `infer.Kalman`, `LinearGaussianChain`.

    Properties `observed_name` and `state_name` name its two variables; sequences are given under the first.
    """

    def smooth(self, **given: Any) -> Any:
        """Means and covariances of every state given the whole sequence."""

    def complete(self, *, smoothed: Any = None, **given: Any) -> tuple[Any, Any]:
        """Means and covariances of a partly missing sequence."""


PROTOCOLS: tuple[type, ...] = tuple(
    thing for thing in list(vars().values()) if isinstance(thing, type) and Protocol in thing.__bases__
)
#: The method names that `Energy.knows` takes, each with its protocol.
KNOWLEDGE: dict[str, type] = {
    name: protocol for protocol in PROTOCOLS for name in vars(protocol) if not name.startswith("_")
}
