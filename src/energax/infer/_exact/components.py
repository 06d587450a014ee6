"""Queries about the hidden component of every row, for energies that compute many rows at once.

Such an energy (a mixture, or the centres of k-means) has `log_posterior(rows)`, log p(x, z) of every row and
component up to a constant. Rows are validated arrays by name; results are NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ..._util.arrays import asarray
from ..._util.sizes import map_table
from ...programs import jit_to_numpy
from .._query import Query


def hides_component(query: Query) -> bool:
    """Return whether the only hidden variable of the query is the component."""
    energy = query.energy
    return energy.knows("log_posterior") and set(query.hidden) == {getattr(energy, "name", "z")}


def log_joint(energy: Any, rows: dict[str, Any]) -> np.ndarray:
    """Return log p(x, z), or −e(x, z), of every row and component, (n, k)."""
    return _map_rows(_log_joint, energy, rows)


def log_evidence(energy: Any, rows: dict[str, Any]) -> np.ndarray:
    """Return log p(x) of every row, (n,)."""
    return _map_rows(_log_evidence, energy, rows)


def responsibilities(energy: Any, rows: dict[str, Any], temperature: Any = 1.0) -> np.ndarray:
    """Return p(z | x) ∝ p(x, z)^(1/temperature) of every row and component, (n, k)."""
    return _map_rows(_responsibilities, energy, rows, temperature)


def nearest(energy: Any, rows: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the component of least energy, and that energy, of every row, (n,) each."""
    return _map_rows(_nearest, energy, rows)


def impute(energy: Any, rows: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the rows with missing values at their means given the observed ones, by name."""
    return _map_rows(_impute, energy, rows)


def draw(energy: Any, n: int, seed: int, purpose: int) -> dict[str, np.ndarray]:
    """Return n examples of the energy by name, as `sample` with the key of a seed and a purpose."""
    with jax.default_matmul_precision("highest"):
        return _draw(energy, n, np.uint32(seed), np.uint32(purpose))


def _map_rows(function: Callable[..., Any], energy: Any, rows: dict[str, Any], *arguments: Any) -> Any:
    # By default accelerators round the factors of float32 products to fewer bits.
    with jax.default_matmul_precision("highest"):
        return map_table(lambda chunk: function(energy, chunk, *arguments), rows)


# -- compiled functions of a chunk of rows -------------------------------------------------------


@jit_to_numpy
def _log_joint(energy, rows):
    return energy.log_posterior(_to_jax(rows))


@jit_to_numpy
def _log_evidence(energy, rows):
    return jax.nn.logsumexp(energy.log_posterior(_to_jax(rows)), axis=1)


@jit_to_numpy
def _responsibilities(energy, rows, temperature):
    return jax.nn.softmax(energy.log_posterior(_to_jax(rows)) / temperature, axis=1)


@jit_to_numpy
def _nearest(energy, rows):
    rows = _to_jax(rows)
    component = energy.nearest(**rows)
    # By plain differences: `nearest` compares distances that are shifted by a term of the row.
    return component, jax.vmap(lambda row, z: energy(**row, z=z))(rows, component)


@jit_to_numpy
def _draw(energy, n, seed, purpose):
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), purpose), n)
    return jax.vmap(energy.draw)(keys)


@jit_to_numpy
def _impute(energy, rows):
    return energy.impute(_to_jax(rows))


def _to_jax(rows: dict[str, Any]) -> dict[str, Any]:
    return jax.tree.map(asarray, rows)
