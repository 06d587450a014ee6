"""Modules import only from lower layers; files are short; optional methods have declared names."""

from __future__ import annotations

import ast
import functools
import pathlib

import pytest

from energax.protocols import KNOWLEDGE

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src" / "energax"

#: From the lowest to the highest. A module may import from its own layer and from lower ones.
LAYERS = (
    ("errors", "_version", "_util", "caching", "catalog", "programs", "protocols"),
    ("missing", "vocabulary"),
    ("spaces",),
    ("finite", "estimate", "batch", "batch_statistics", "distributions"),
    ("graph", "algorithms", "kernels", "information"),
    ("energy", "parameters"),
    ("optimum",),
    ("compose", "mixture", "tempering", "conjugate"),
    ("fitting",),
    ("samplers",),
    ("infer",),
    ("learn",),
    ("bayes",),
    ("nn",),
    ("energies",),
    ("saving",),
    ("estimators",),
    ("data",),
    ("plot",),
    ("evaluate",),
    ("cli", "__main__"),
)
DEPTH = {name: i for i, names in enumerate(LAYERS) for name in names}
FILES = sorted(SOURCE.rglob("*.py"))


#: Not forbidden by the layers, but by design: an energy gives the name of its method, and `infer` finds it.
FORBIDDEN = {("energies", "infer")}


def package_of(path: pathlib.Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


#: Packages that may import private modules of another; all others use public names.
SHARED = {("estimators", "energies"), ("estimators", "infer"), ("evaluate", "data")}


@functools.cache
def imported_modules(path: pathlib.Path) -> list[tuple[str, int]]:
    """(module, line) of every import from energax that runs, also inside functions."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    package = ("energax", *path.relative_to(SOURCE).parts[:-1])
    found = []
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module or "").split(".")) if node.module else base
            names = [".".join(module)]
            if module == ("energax",):
                names = [f"energax.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(n, node.lineno) for n in names if n.startswith("energax.")]
    return found


def imported_packages(path: pathlib.Path) -> list[tuple[str, int]]:
    return [(name.split(".")[1], line) for name, line in imported_modules(path)]


#: The operators of `energy.py` import `compose.py`, which imports it: the one cycle, resolved at call time.
ALLOWED = {("energy", "compose"), ("energy", "tempering")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_come_from_lower_layers(path):
    here = package_of(path)
    if here == "__init__":
        return  # the public names, loaded when first used
    assert here in DEPTH, f"{here} is in no layer: add it to LAYERS in tests/test_layers.py"
    for other, line in imported_packages(path):
        assert other in DEPTH, f"{path.name}:{line} imports the unknown package {other}"
        allowed = DEPTH[other] <= DEPTH[here] or (here, other) in ALLOWED
        assert allowed, f"{path.name}:{line}: {here} imports {other}, which is in a higher layer"
        assert (here, other) not in FORBIDDEN, f"{path.name}:{line}: {here} must not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_private_modules_of_other_packages_are_not_imported(path):
    here = package_of(path)
    for name, line in imported_modules(path):
        _, other, *rest = name.split(".")
        private = other != here and any(part.startswith("_") for part in rest) and other != "_util"
        assert not private or (here, other) in SHARED, f"{path.name}:{line} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_has_at_most_400_lines(path):
    assert len(path.read_text().splitlines()) <= 400, "split the file by topic"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_knows_is_called_with_the_name_of_a_protocol_method(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "knows":
            name = node.args[0]
            if isinstance(name, ast.Constant):
                assert name.value in KNOWLEDGE, f"{path.name}:{node.lineno}: knows({name.value!r})"


def test_a_lazy_relative_import_is_found(tmp_path, monkeypatch):
    """The check itself: it must notice what it exists to forbid."""
    monkeypatch.setattr(__import__("sys").modules[__name__], "SOURCE", tmp_path)
    bad = tmp_path / "learn" / "_bad.py"
    bad.parent.mkdir()
    bad.write_text(
        "def f():\n    from ..estimators import KMeans\n    import energax.cli\n    from . import _x\n"
    )
    assert imported_packages(bad) == [("estimators", 2), ("cli", 3), ("learn", 4)]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_only_the_bounded_cache_holds_compiled_code(path):
    if package_of(path) == "programs":
        return
    found = [
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and f"{node.value.id}.{node.attr}" in ("jax.jit", "eqx.filter_jit", "jax.pmap")
    ]
    assert not found, f"use energax.programs.jit, whose programs are freed: {found}"
