"""Normalising flows: the density of an invertible map of noise."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import NAME, NONE, WHOLE, check_arguments
from ..._util.arrays import asarray
from ..._util.methods import plain_method
from ...energy import Energy, enumerated_free_energy
from ...errors import BadInput, describe
from ...missing import is_masked
from ...nn import Bijection, FlowDistribution, flow_layers
from ...programs import jit
from ...spaces import Categorical, Real, Space

_CHECKED_DRAWS = 256
#: The share of draws that may lose half of their digits before a warning.
_MOST_LOST = 0.01


class Flow(Energy):
    """A normalising flow: e(x) = −log N(f(x); 0, I) − log|det ∂f/∂x|, with any bijection f; log Z = 0.

    log p(x) and draws are exact. With a context, p(x | y) has the bijection f(x; y). A real context is an
    input; a finite one enters as one-hot vectors and has the uniform distribution, so that the energy is an
    emission of a `HiddenChain` or the component energy of a `Mixture`.

    A flow also has the methods of a distribution of vectors, `sample(key)` and `log_prob(x)`: it is a family
    of `infer.VariationalGaussian`, and the prior of a `Decoder`.

    Args:
        bijection: f, a `Bijection` of `energax.nn`, of x as a vector.
        space: the space of x, `Real(…)`; a whole number d is ℝᵈ.
        context: the space of the context, `Real(…)` or `Categorical(k)`; a whole number m is ℝᵐ.
        context_name: the name of the context.

    Papamakarios, Nalisnick, Rezende, Mohamed and Lakshminarayanan (2021), Normalizing flows for
    probabilistic modeling and inference.

    >>> flow = Flow.random(2, key=0, n_layers=2)
    >>> x = flow.draw(jax.random.key(1))["x"]
    >>> x.shape, flow.log_partition(), bool(flow(x=x) == -flow.log_prob(x))
    ((2,), Array(0., dtype=float32), True)
    """

    bijection: Bijection
    space: Space = eqx.field(static=True)
    context: Space | None = eqx.field(static=True)
    context_name: str = eqx.field(static=True)

    normalised = True

    def __init__(
        self,
        bijection: Bijection,
        space: int | Space,
        context: int | Space | None = None,
        context_name: str = "y",
    ):
        if not isinstance(bijection, Bijection):
            raise BadInput(
                "bijection", describe(bijection), "a Bijection of energax.nn", "Try Flow.random(d, key=0)."
            )
        check_arguments(locals(), context_name=NAME)
        for name, value in (("space", space), ("context", context)):
            if value is not None and not isinstance(value, Space):
                WHOLE.check(name, value)
        self.bijection = bijection
        self.space = space if isinstance(space, Space) else Real(int(space))
        self.context = context if isinstance(context, Space | None) else Real(int(context))
        self.context_name = context_name
        if not isinstance(self.space, Real):
            raise BadInput("space", repr(self.space), "Real(…)", "Map the variable to ℝ first.")
        if not isinstance(self.context, Real | Categorical | None):
            raise BadInput("context", repr(self.context), "Real(…), Categorical(k) or None")
        if context_name == "x":
            raise BadInput("context_name", "'x', the variable of the flow", "another name")

    @classmethod
    def random(
        cls,
        space: int | Space,
        *,
        key: Any,
        context: int | Space | None = None,
        context_name: str = "y",
        **layers: Any,
    ) -> Flow:
        """A flow with `nn.flow_layers`.

        Args:
            space, context, context_name: as above.
            key: an int or a JAX key.
            layers: `n_layers`, `layer`, `transform`, `batch_norm`, `width`, `depth` and `activation`.
        """
        if not isinstance(space, Space):
            check_arguments(locals(), space=WHOLE)
        if not isinstance(context, Space):
            check_arguments(locals(), context=WHOLE | NONE)
        d = space.size if isinstance(space, Space) else int(space)
        context = context if isinstance(context, Space | None) else Real(int(context))
        made = flow_layers(d, key=key, n_context=_context_size(context), **layers)
        return cls(made, space, context, context_name)

    @property
    def spaces(self):
        return {"x": self.space} | ({} if self.context is None else {self.context_name: self.context})

    @property
    def inputs(self):  # type: ignore[override]
        """A real context; a finite one is a variable with the uniform distribution."""
        return frozenset({self.context_name}) if isinstance(self.context, Real) else frozenset()

    @plain_method
    def knows(self, what, names=None):
        only_context = names is not None and set(names) == set(self.spaces) - {"x"}
        if what == "free_energy":
            return only_context and self.context is not None
        if what == "conditional":
            return only_context
        if what == "draw":
            return names is None or "x" not in names
        return super().knows(what, names)

    def initialise(self, key, data, weight):
        """New weights, and normalisation layers fitted to the rows; a hidden context is drawn at random."""
        x = asarray(data["x"])
        context = None
        if self.context is not None:
            value = data.get(self.context_name)
            if value is None:
                value = jax.random.randint(key, (len(x), *self.context.shape), 0, self.context.k)
            context = jax.vmap(self._context_vector)(asarray(value))
        x = x.reshape(len(x), -1).astype(self._dtype)
        new = self.bijection.initialise(key, x, weight, context)
        return Flow(new, self.space, self.context, self.context_name)

    @property
    def _dtype(self) -> Any:
        return FlowDistribution(self.bijection, 1).dtype

    # -- the density -----------------------------------------------------------------------------

    def _context_vector(self, value: Any) -> Any:
        dtype = self._dtype
        if isinstance(self.context, Categorical):
            return jnp.ravel(jax.nn.one_hot(value, self.context.k, dtype=dtype))
        return jnp.ravel(asarray(value)).astype(dtype)

    def _distribution(self, given: Any) -> FlowDistribution:
        """p(x | context), over x as a vector."""
        context = None if self.context is None else self._context_vector(given[self.context_name])
        return FlowDistribution(self.bijection, max(1, self.space.size), context)

    @property
    def _log_n_contexts(self) -> Any:
        k = 1 if not isinstance(self.context, Categorical) else self.context.k
        size = 1 if k == 1 else max(1, self.context.size)  # type: ignore[union-attr]
        return asarray(size * math.log(k), self._dtype)

    def __call__(self, **variables):
        return -self._distribution(variables).log_prob(jnp.ravel(variables["x"]))

    def free_energy(self, **given):
        if (
            self.context is not None
            and set(given) == {self.context_name}
            and not any(map(is_masked, given.values()))
        ):
            return jnp.zeros((), self._dtype)
        return enumerated_free_energy(self, given)

    def log_partition(self):
        """0; the logarithm of the number of contexts if these are finite, since ∫ exp(−e) dx = 1 for each."""
        return self._log_n_contexts

    def conditional(self, name, **given):
        if name == "x" and self.space.ndim == 1:
            return self._distribution(given)
        return super().conditional(name, **given)

    def draw(self, key, **given):
        drawn: dict[str, Any] = {}
        choose, emit = jax.random.split(key)
        if isinstance(self.context, Categorical) and self.context_name not in given:
            values = jax.random.randint(choose, self.context.shape, 0, self.context.k)
            drawn[self.context_name] = values.astype(self.context.jax_dtype)
        x = self._distribution({**given, **drawn}).sample(emit)
        return {"x": x.reshape(self.space.shape), **drawn}

    # -- as a distribution of vectors: a variational family, a prior --------------------------------

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """Draw x as vectors, (*sample_shape, d); for a flow without a context."""
        return self._unconditional().sample(key, sample_shape)

    def log_prob(self, x: Any) -> Any:
        """Return log p of vectors x (…, d); for a flow without a context."""
        return self._unconditional().log_prob(x)

    def sample_and_log_prob(self, key: Any, sample_shape: tuple[int, ...] = ()) -> tuple[Any, Any]:
        """Draw vectors, and return log p of them from the same pass."""
        return self._unconditional().sample_and_log_prob(key, sample_shape)

    def _unconditional(self) -> FlowDistribution:
        if self.context is not None:
            raise BadInput(
                "flow",
                f"a flow of x given {self.context_name!r}",
                "one without a context",
                f"Give it a value: flow.conditional('x', {self.context_name}=…).",
            )
        return self._distribution({})

    @property
    def width(self) -> int:
        """The numbers that a decoder network gets."""
        return max(1, self.space.size)

    def embed(self, z: Any) -> Any:
        """The input of a decoder network: x as a vector."""
        return jnp.ravel(z)

    # -- failures made visible -------------------------------------------------------------------

    def draws_problem(self, values):
        rows = {k: np.asarray(v)[:_CHECKED_DRAWS] for k, v in values.items()}
        errors = inverse_errors(self, rows)
        limit = lost_digits_limit(rows["x"])
        share = float(np.mean(~(errors <= limit)))
        if share <= _MOST_LOST:
            return ""
        return (
            f"the inverse of the flow loses digits: for {share:.0%} of the draws, the error of f⁻¹(f(x)) is "
            f"above {limit:.1g} standard deviations. Use float64 parameters, fewer layers, or a regulariser"
        )


def _context_size(context: Space | None) -> int:
    if context is None:
        return 0
    return max(1, context.size) * (context.k if isinstance(context, Categorical) else 1)


def lost_digits_limit(x: np.ndarray) -> float:
    """The error, in standard deviations, at which half of the digits of the dtype of x are lost.

    >>> lost_digits_limit(np.zeros(1, np.float32)).__round__(5)
    0.00035
    """
    return float(np.finfo(x.dtype).eps ** 0.5)


def inverse_errors(flow: Flow, rows: dict[str, Any]) -> np.ndarray:
    """Return the error of f⁻¹(f(x)) of every row, (n,), as the larger of two.

    In x, it is in standard deviations of the coordinates, or, for a coordinate farther than that from 0, in
    units of its magnitude, by which it is rounded. In u = f(x) it is that of f(f⁻¹(u)), in the same units.
    """
    x, u, back, again = (np.asarray(a) for a in _round_trip(flow, rows))
    return np.maximum(_largest(back - x, x), _largest(again - u, u))


def _largest(error: np.ndarray, value: np.ndarray) -> np.ndarray:
    unit = np.maximum(np.std(value, axis=0, keepdims=True), np.abs(value))
    return np.max(np.abs(error) / np.where(unit > 0, unit, 1), axis=1)


@jit
def _round_trip(flow: Flow, rows: Any) -> Any:
    """Return x as vectors, u = f(x), f⁻¹(u), and f of that, of every row."""

    def row(row):
        context, x = flow._distribution(row).context, jnp.ravel(row["x"])
        u, _ = flow.bijection.forward(x, context)
        back, _ = flow.bijection.inverse(u, context)
        return x, u, back, flow.bijection.forward(back, context)[0]

    return jax.vmap(row)(jax.tree.map(asarray, rows))
