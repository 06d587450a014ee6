"""Product emissions: columns of different kinds, each group with its own emission."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..._util.arguments import check_each, instance, whole
from ..._util.arrays import asarray
from ...distributions import ColumnsDistribution
from ...energy import Energy
from ...errors import BadInput
from ...missing import Masked, is_masked, value_of
from ...parameters import m_step, recenter
from ...spaces import Categorical, Real
from .base import Emission


class Product(Emission):
    """Groups of columns, independent given z: e(x, z) = Σ_p e_p(x[columns_p], z).

    x is a vector of real numbers; a part over symbols or counts reads its columns as whole numbers.

    Args:
        parts: emissions over the same k values of z.
        columns: the indices of the columns of each part; by default the parts follow one another.

    >>> from energax.energies import Gaussians
    >>> from energax.energies._emissions.categorical import Categoricals
    >>> normal = Gaussians([[0.0], [2.0]], jnp.ones((2, 1, 1)))
    >>> both = Product((normal, Categoricals([[0.9, 0.1], [0.1, 0.9]])))
    >>> both.energies(x=jnp.array([0.0, 1.0])).tolist()
    [3.2215..., 3.024...]
    """

    parts: tuple[Any, ...]
    columns: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def __init__(self, parts: Rows[Any], columns: Rows[Rows[int]] | None = None):
        emission = instance(Energy, "an emission of energax.energies")
        parts = check_each("parts", parts, emission, "emissions")
        if not parts:
            raise BadInput("parts", "none", "at least one emission")
        widths = [max(1, part.spaces["x"].size) for part in parts]
        if columns is None:
            ends = [sum(widths[: i + 1]) for i in range(len(widths))]
            columns = [range(end - width, end) for end, width in zip(ends, widths, strict=True)]
        listed = lambda each: list(each) if isinstance(each, range | np.ndarray) else each
        entries = [listed(each) for each in columns] if isinstance(columns, list | tuple) else columns
        entries = check_each("columns", entries, instance((list, tuple), "a list"), "columns of every part")
        indices = tuple(check_each("columns", each, whole(0), "indices of columns") for each in entries)
        if [len(c) for c in indices] != widths:
            raise BadInput("columns", f"{columns}", f"{widths} columns for the {len(parts)} parts")
        if sorted(c for each in columns for c in each) != list(range(sum(widths))):
            raise BadInput("columns", f"{columns}", f"each of 0 to {sum(widths) - 1} once")
        states = {part.spaces["z"] for part in parts}
        if len(states) > 1:
            raise BadInput("parts", f"z in {sorted(map(repr, states))}", "the same values of z in all")
        for i, part in enumerate(parts):
            if not part.normalised or not part.knows("row_energies"):
                raise BadInput(f"parts[{i}]", type(part).__name__, "an emission: p(x | z), normalised")
        self.parts, self.columns = parts, indices

    @property
    def spaces(self):
        return {"x": Real(sum(map(len, self.columns))), "z": Categorical(self.parts[0].spaces["z"].k)}

    def _each(self, x: Any) -> list[Any]:
        """The columns of x of every part, in its shape and type."""
        return [
            _read_columns(part.spaces["x"], x, columns)
            for part, columns in zip(self.parts, self.columns, strict=True)
        ]

    def row_energies(self, *, x):
        return sum(part.row_energies(x=v) for part, v in zip(self.parts, self._each(x), strict=True))

    def emit(self, key, z):
        keys = jax.random.split(key, len(self.parts))
        dtype = self._dtype
        draws = [p.draw(k, z=z)["x"] for p, k in zip(self.parts, keys, strict=True)]
        return jnp.concatenate([jnp.ravel(v).astype(dtype) for v in draws])[self._order]

    def state_distribution(self, z):
        shapes = tuple(part.spaces["x"].shape for part in self.parts)
        return ColumnsDistribution(tuple(p.state_distribution(z) for p in self.parts), self.columns, shapes)

    def impute_given(self, data, posterior):
        """x with missing values replaced, each by the rule of its part, (n, d)."""
        x = data["x"]
        if not is_masked(x):
            return {"x": x}
        each = zip(self.parts, self._each(x), strict=True)
        rows = [part.impute_given({"x": v}, posterior)["x"].reshape(len(posterior), -1) for part, v in each]
        rows = jnp.concatenate([asarray(value_of(v)).astype(self._dtype) for v in rows], axis=1)
        return {"x": rows[:, self._order]}

    @property
    def _order(self) -> Any:
        """The places of the columns of x in the parts, one after another."""
        return jnp.argsort(jnp.array([c for each in self.columns for c in each]))

    # -- EM ------------------------------------------------------------------------------

    @property
    def has_m_step(self) -> bool:
        return all(part.has_m_step for part in self.parts)

    def statistics(self, data, posterior):
        each = zip(self.parts, self._each(data["x"]), strict=True)
        return tuple(part.statistics({"x": v}, posterior) for part, v in each)

    def labelled_statistics(self, data, label, weight):
        each = zip(self.parts, self._each(data["x"]), strict=True)
        return tuple(part.labelled_statistics({"x": v}, label, weight) for part, v in each)

    def maximise(self, statistics, trainable=None):
        of_parts = (None,) * len(self.parts) if trainable is None else trainable.parts
        each = zip(self.parts, statistics, of_parts, strict=True)
        return Product(tuple(m_step(p, s, t) for p, s, t in each), self.columns)

    def recenter(self, statistics, reference):
        each = zip(self.parts, statistics, reference.parts, strict=True)
        return tuple(recenter(part, s, r) for part, s, r in each)

    def initialise(self, key, data, weight):
        keys = jax.random.split(key, len(self.parts))
        each = zip(self.parts, self._each(data["x"]), keys, strict=True)
        return Product(tuple(p.initialise(k, {"x": v}, weight) for p, v, k in each), self.columns)


def _read_columns(space: Any, x: Any, columns: tuple[int, ...]) -> Any:
    """Some columns of x in the shape and the type of a space."""
    first, last = columns[0], columns[-1]
    are_adjacent = columns == tuple(range(first, last + 1))

    def select(a):
        # A slice is not copied; looking up columns is a copy.
        rows = asarray(a)[..., first : last + 1] if are_adjacent else jnp.take(a, jnp.array(columns), axis=-1)
        return rows.reshape(*rows.shape[:-1], *space.shape)

    value = select(value_of(x))
    value = value if jnp.issubdtype(jnp.dtype(space.dtype), jnp.floating) else value.astype(jnp.int32)
    return Masked(value, select(x.observed)) if is_masked(x) else value
