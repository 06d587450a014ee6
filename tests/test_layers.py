"""Imports point up the list of layers and never down; files stay small enough to read."""

from __future__ import annotations

import ast
import pathlib

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src" / "energax"

#: From the ground up. A module may import from its own layer and from those before it.
LAYERS = (
    ("errors", "_version", "_util", "catalog"),
    ("missing", "vocabulary"),
    ("spaces",),
    ("finite", "estimate", "batch"),
    ("graph", "algorithms"),
    ("energy", "parameters"),
    ("compose", "mixture", "tempering"),
    ("fitting",),
    ("samplers",),
    ("infer",),
    ("learn",),
    ("nn",),
    ("energies",),
    ("saving",),
    ("estimators",),
    ("data",),
    ("plot",),
    ("evaluate",),
    ("caching", "cli", "__main__"),
)
DEPTH = {name: i for i, names in enumerate(LAYERS) for name in names}
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: pathlib.Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: pathlib.Path) -> list[tuple[str, int]]:
    """(room, line) of every energax import that runs, wherever in the file it stands."""
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
        found += [(n.split(".")[1], node.lineno) for n in names if n.startswith("energax.")]
    return found


#: `energy.py` hands its operators to `compose.py`, which builds on it: the one circle, closed at call time.
ALLOWED = {("energy", "compose"), ("energy", "tempering")}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_up(path):
    here = room(path)
    if here == "__init__":
        return  # the public names, loaded when first used
    assert here in DEPTH, f"{here} has no place in the list of layers: add it to tests/test_layers.py"
    for other, line in imported_rooms(path):
        assert other in DEPTH, f"{path.name}:{line} imports the unknown room {other}"
        fine = DEPTH[other] <= DEPTH[here] or (here, other) in ALLOWED
        assert fine, f"{path.name}:{line}: {here} imports {other}, which stands below it"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_is_one_idea(path):
    assert len(path.read_text().splitlines()) <= 430, "a file over about 400 lines is two ideas"


def test_the_reader_of_imports_sees_a_lazy_relative_import(tmp_path, monkeypatch):
    """The check itself: it must notice what it exists to forbid."""
    monkeypatch.setattr(__import__("sys").modules[__name__], "SOURCE", tmp_path)
    bad = tmp_path / "learn" / "_bad.py"
    bad.parent.mkdir()
    bad.write_text(
        "def f():\n    from ..estimators import KMeans\n    import energax.cli\n    from . import _x\n"
    )
    assert imported_rooms(bad) == [("estimators", 2), ("cli", 3), ("learn", 4)]
