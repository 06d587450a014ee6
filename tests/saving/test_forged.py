"""Files that are damaged or forged: `load` raises `BadFile`, and takes little memory before."""

from __future__ import annotations

import copy
import json
import random
import struct
import sys
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save as to_safetensors

import energax
from energax import Estimate
from energax._util import storage
from energax.energies import RBM
from energax.errors import BadFile, BadInput
from energax.spaces import Categorical, Interval, Sequence

MOST_BYTES = 100e6


def everything() -> dict[str, Any]:
    """One value of every kind that a file can hold."""
    return {
        "energy": RBM.random(4, 3, key=0),
        "key": jax.random.key(3),
        "brain": jnp.arange(4, dtype=jnp.bfloat16),
        "strings": np.array([["ab", "c"]]),
        "objects": np.array([1, "b", None], dtype=object),
        "complex": 1 + 2j,
        "dtypes": [np.dtype("float32"), np.float64],
        "random": np.random.RandomState(0),
        "spaces": (Categorical(3, 2), Interval(0, 1, 2), Sequence(Categorical(2), 5)),
        "scalars": (np.float32(0.5), np.int64(3)),
        "names": frozenset({1, 2}),
        "function": jnp.tanh,
        "class": RBM,
        "estimate": Estimate(1.0, 0.5, "estimate", "importance"),
        "model": energax.estimators.KMeans(3),
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "file"
    energax.save(everything(), path)
    energax.load(path)  # imports and compiles what loading needs
    return path.read_bytes()


def forge(path, text: str, arrays: dict[str, np.ndarray] | None = None, **header: str) -> None:
    """A file of this document with a digest that fits."""
    arrays = arrays or {}
    digest = storage._digest(arrays, text)
    known = {"format": "energax", "version": "1", "document": text, "digest": digest}
    path.write_bytes(to_safetensors(arrays, metadata=known | header))


def outcome(path) -> str:
    """`loaded` or `refused`; raises if anything but `BadFile` comes out, or if memory grows."""
    tracemalloc.start()
    try:
        energax.load(path)
        message = None
    except BadFile as error:
        message = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_BYTES, f"{peak / 1e6:.0f} MB"
    if message is None:
        return "loaded"
    assert str(path) in message and len(message) < 2000
    return "refused"


def places(node: Any, at: tuple = ()) -> list[tuple]:
    """The paths to all values within a JSON document."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [at, *(place for key, value in inner for place in places(value, (*at, key)))]


def replaced(document: Any, at: tuple, value: Any) -> Any:
    if not at:
        return value
    document = copy.deepcopy(document)
    node = document
    for key in at[:-1]:
        node = node[key]
    node[at[-1]] = value
    return document


def value_at(document: Any, at: tuple) -> Any:
    for key in at:
        document = document[key]
    return document


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"$": "list", "items": [value]}
    return value


HOSTILE: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, float("nan"), "", "²", "\0", "\ud800", "energax", "O", "V1000000000",
    "<U125000000", "(1000,1000,1000)f8", "m8[s]", [], {}, [[]], [2**62, 2**62], [-1], {"$": "list"},
    {"$": []},
    {"$": "tuple", "items": 3}, {"$": "dict", "items": [[[], 1]]}, {"$": "jax", "array": []}, nested(60),
    {"$": "strings", "dtype": "<U125000000", "shape": [1], "items": ["a"]},
    {"$": "strings", "dtype": "V500000000", "shape": [1], "items": ["a"]},
    {"$": "objects", "dtype": "S500000000", "shape": [1], "items": ["a"]},
    {"$": "space", "class": "energax.energies:RBM", "items": {"$": "tuple", "items": [1]}},
    {"$": "space", "class": "equinox.nn:Linear", "items": {"$": "tuple", "items": [20000, 20000]}},
    {"$": "object", "class": "energax.energies:RBM", "fields": []},
    {"$": "object", "class": "energax.estimators:KMeans", "fields": {"__class__": 1}},
    {"$": "name", "name": "energax.a\0b:C"}, {"$": "name", "name": "energax..:C"},
    {"$": "name", "name": "energax.\ud800:C"}, {"$": "name", "name": "optax.\ud800:C"},
    {"$": "name", "name": 3},
    {"$": "complex", "parts": [10**400]}, {"$": "dtype", "name": [["a"]], "type": True},
]  # fmt: skip


def test_documents_with_values_of_wrong_kinds(whole, tmp_path):
    """One or two values of a valid document are replaced; the digest is that of the new document."""
    path = tmp_path / "file"
    path.write_bytes(whole)
    arrays, document = storage.read(path)
    everywhere, chance = places(document), random.Random(0)
    found = []
    for _ in range(300):
        forged = document
        for _ in range(chance.choice([1, 1, 2])):
            at = chance.choice(places(forged))
            elsewhere = value_at(document, chance.choice(everywhere))
            forged = replaced(forged, at, chance.choice([elsewhere, *HOSTILE]))
        forge(path, json.dumps(forged), arrays)
        found.append(outcome(path))
    assert found.count("refused") > 100, "the replaced values must matter"


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: ascii(value)[:40])
def test_every_hostile_value_as_document_and_as_root(value, tmp_path):
    path = tmp_path / "file"
    for document in (value, {"kind": "object", "root": value}, {"kind": value, "root": 1}):
        forge(path, json.dumps(document))
        outcome(path)


def test_bytes_that_are_flipped_and_files_that_are_cut(whole, tmp_path):
    path, chance = tmp_path / "file", random.Random(1)
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 3, 30])):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        assert outcome(path) == "refused" or bytes(data) == whole
    for _ in range(50):
        path.write_bytes(whole[: chance.randrange(len(whole))])
        assert outcome(path) == "refused"


def test_headers_of_safetensors_with_values_of_wrong_kinds(whole, tmp_path):
    """Shapes, dtypes, offsets and texts of the header, of which the digest knows nothing."""
    path, chance = tmp_path / "file", random.Random(2)
    (length,) = struct.unpack("<Q", whole[:8])
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]
    wrong = [
        *HOSTILE[:24],
        "BF16",
        "F8_E4M3",
        "F8_E5M2",
        "C64",
        "I64",
        [0, 2**62],
        [2**40] * 3,
        [1] * 70,
        [0, 0],
    ]
    for _ in range(150):
        at = chance.choice(places(header)[1:])
        text = json.dumps(replaced(header, at, chance.choice(wrong))).encode()
        claimed = chance.choice([len(text), len(text), len(text), 2**63, len(text) + 10**6, 99_999_999])
        path.write_bytes(struct.pack("<Q", claimed) + text + data)
        outcome(path)


@pytest.mark.parametrize("version", ["²", "١", "-1", "1.0", "", "9" * 5000])
def test_a_version_that_is_not_a_number(version, tmp_path):
    forge(tmp_path / "file", '{"kind": "object", "root": 1}', version=version)
    with pytest.raises(BadFile, match="format version"):
        energax.load(tmp_path / "file")


@pytest.mark.parametrize(
    "text", ["[]", "1", "null", '"a"', "", "{", "[" * 10**5, '{"a":' * 10**5, "9" * 5000]
)
def test_a_document_that_is_not_one(text, tmp_path):
    forge(tmp_path / "file", text)
    with pytest.raises(BadFile, match="document is damaged"):
        energax.load(tmp_path / "file")


def test_nesting_deeper_than_python_allows(tmp_path):
    text = '{"$":"list","items":[' * 490 + "]}" * 490
    forge(tmp_path / "file", '{"kind":"object","root":' + text + "}")
    with pytest.raises(BadFile, match="RecursionError"):
        energax.load(tmp_path / "file")
    deep: list = []
    deep.append(deep)
    with pytest.raises(BadInput, match="nested too deeply"):
        energax.save(deep, tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_strings_that_claim_memory(tmp_path):
    """One array, or many that are small each; what `save` writes is always read."""
    one = {"$": "strings", "dtype": "<U4000000", "shape": [1], "items": ["a"]}
    for node in ({**one, "dtype": "<U125000000"}, {"$": "list", "items": [one] * 50}):
        forge(tmp_path / "file", json.dumps({"kind": "object", "root": node}))
        assert outcome(tmp_path / "file") == "refused"
    wide = np.array(["a", "b"] * 1000, "<U1000")
    energax.save(wide, tmp_path / "wide")
    back = energax.load(tmp_path / "wide")
    assert back.dtype == wide.dtype and (back == wide).all()
    with pytest.raises(BadInput, match="astype"):
        energax.save(np.zeros(20_000, "<U2000"), tmp_path / "wider")


def test_a_random_state_that_would_read_other_memory(tmp_path):
    energax.save(np.random.RandomState(0), tmp_path / "file")
    arrays, document = storage.read(tmp_path / "file")
    for position in (625, 10**9, -5):
        document["root"]["state"]["items"][2] = position
        storage.write(tmp_path / "file", arrays, document)
        with pytest.raises(BadFile, match="RandomState"):
            energax.load(tmp_path / "file")


def test_a_foreign_file_is_refused_before_its_arrays_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(to_safetensors({"a": np.zeros(2**24)}, metadata={"format": "pt"}))
    tracemalloc.start()
    with pytest.raises(BadFile, match="did not write"):
        energax.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10e6


@pytest.mark.parametrize("package", ["energax_evil", "energaxevil", "optax_evil", "equinox.nn_evil"])
def test_a_package_whose_name_begins_like_an_allowed_one(package, tmp_path, monkeypatch):
    """The first dotted part of a name is compared as a whole; the package is not even imported."""
    first = package.split(".")[0]
    if "." not in package:
        (tmp_path / first).mkdir()
        source = "import dataclasses\n@dataclasses.dataclass\nclass Evil:\n    x: int = 0\n"
        (tmp_path / first / "__init__.py").write_text("")
        (tmp_path / first / "module.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path))
    for node in ({"$": "object", "class": f"{package}.module:Evil", "fields": {"x": 1}},
                 {"$": "name", "name": f"{package}.module:Evil"}):  # fmt: skip
        forge(tmp_path / "file", json.dumps({"kind": "object", "root": node}))
        with pytest.raises(BadFile, match="not part of energax"):
            energax.load(tmp_path / "file")
    assert f"{package}.module" not in sys.modules


def test_values_that_were_lost_or_could_not_be_read_again(tmp_path):
    """Object arrays of equal arrays, complex numbers of 128 bits; records and bytes are refused."""
    thing = np.empty(2, object)
    thing[:] = [np.arange(3), np.arange(3)]
    energax.save(
        {"arrays": thing, "wide": np.array([[1 + 2j, 3.0]]), "one": np.complex128(2j)}, tmp_path / "a"
    )
    back = energax.load(tmp_path / "a")
    assert all((a == b).all() for a, b in zip(back["arrays"], thing, strict=True))
    assert back["wide"].tolist() == [[1 + 2j, 3.0]] and back["wide"].shape == (1, 2)
    assert back["one"] == 2j and type(back["one"]) is np.complex128
    for wrong in (np.zeros(2, [("a", "f4")]), np.bytes_(b"abc")):
        with pytest.raises(BadInput, match="dtype"):
            energax.save(wrong, tmp_path / "b")
