"""The vocabulary of language models: words and their ids."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import BadFile, BadInput

_FORMAT = "energax vocabulary"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Words and their ids: the id of a word is its place.

    The begin marker is a context and never predicted, so it is the last word: a language model has
    `n_predicted` outputs, and the next id is the begin marker. A vocabulary without an unknown word
    is closed: `encode` raises for words that are not in it.

    Args:
        words: all words, each once, with the markers.
        unknown: the word that replaces all others; None for a closed vocabulary.
        begin, end: the markers of a sentence; None for none.

    >>> v = Vocabulary.build(["the cat sat".split(), "the dog sat".split()], min_count=2)
    >>> v.words
    ('<unk>', '</s>', 'sat', 'the', '<s>')
    >>> v.encode("the bird sat".split()).tolist(), v.decode([3, 0, 2])
    ([3, 0, 2], ['the', '<unk>', 'sat'])
    """

    words: tuple[str, ...]
    unknown: str | None = "<unk>"
    begin: str | None = "<s>"
    end: str | None = "</s>"

    def __post_init__(self) -> None:
        words = tuple(self.words)
        object.__setattr__(self, "words", words)
        invalid = next((w for w in words if not isinstance(w, str)), None)
        if invalid is not None or not words:
            raise BadInput("words", f"{invalid!r}" if words else "none", "at least one word, each a str")
        if len(set(words)) < len(words):
            repeated = next(w for w, n in Counter(words).items() if n > 1)
            raise BadInput("words", f"{repeated!r} more than once", "every word once")
        for name in ("unknown", "begin", "end"):
            marker = getattr(self, name)
            if marker is not None and marker not in self.ids:
                raise BadInput(name, f"{marker!r}, not among the words", f"one of the words, or {name}=None")
        if self.begin is not None and words[-1] != self.begin:
            raise BadInput(
                "begin", f"{self.begin!r} at place {self.ids[self.begin]}", "the last of the words"
            )

    @classmethod
    def build(
        cls,
        sequences: Iterable[Iterable[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
        unknown: str | None = "<unk>",
        begin: str | None = "<s>",
        end: str | None = "</s>",
    ) -> Vocabulary:
        """Make a vocabulary of the words of a text: markers, then words by frequency, ties alphabetically.

        Args:
            sequences: sequences of words.
            min_count: words that occur less often are unknown.
            max_size: the most words to keep, without the markers.
            unknown, begin, end: as in `Vocabulary`.
        """
        for name, value in (("min_count", min_count), ("max_size", max_size)):
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not (value is None and name == "max_size") and (not whole or value < 1):  # type: ignore[operator]
                raise BadInput(name, repr(value), "a whole number >= 1")
        counts: Counter[str] = Counter()
        for i, sequence in enumerate(sequences):
            if isinstance(sequence, str):
                raise BadInput(f"sequences[{i}]", "a string", "a list of words", "Try text.split().")
            counts.update(sequence)
        first = [m for m in (unknown, end) if m is not None]
        for marker in (*first, begin):
            counts.pop(marker, None)  # type: ignore[arg-type]
        invalid = next((w for w in counts if not isinstance(w, str)), None)
        if invalid is not None:
            raise BadInput(
                "sequences", f"the word {invalid!r} of type {type(invalid).__name__}", "words that are str"
            )
        kept = sorted((w for w, n in counts.items() if n >= min_count), key=lambda w: (-counts[w], w))
        if max_size is not None:
            kept = kept[:max_size]
        if unknown is None and len(kept) < len(counts):
            raise BadInput(
                "unknown", "None, with words left out", "a word that replaces them", "Try '<unk>'."
            )
        return cls((*first, *kept, *([] if begin is None else [begin])), unknown, begin, end)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of every word."""
        return {word: i for i, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.ids

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.words[:4])) + (", …" if len(self) > 4 else "")
        return f"Vocabulary({len(self)} words: {shown})"

    @property
    def n_predicted(self) -> int:
        """The number of words that a model may predict: all but the begin marker."""
        return len(self.words) - (self.begin is not None)

    def _id(self, marker: str | None) -> int | None:
        return None if marker is None else self.ids[marker]

    @property
    def unknown_id(self) -> int | None:
        return self._id(self.unknown)

    @property
    def begin_id(self) -> int | None:
        return self._id(self.begin)

    @property
    def end_id(self) -> int | None:
        return self._id(self.end)

    def encode(self, words: Iterable[str], *, begin: bool = False, end: bool = False) -> np.ndarray:
        """The ids of words, int32; `begin` and `end` add the markers."""
        words = words if isinstance(words, Sequence) else list(words)
        if isinstance(words, str):
            raise BadInput("words", "a string", "a list of words", "Try text.split(), or list(text).")
        get, other = self.ids.get, self.unknown_id
        found: list[Any] = [get(word, other) for word in words]
        if other is None and None in found:
            missing = words[found.index(None)]
            raise BadInput(
                "words",
                f"{missing!r}, not in the vocabulary",
                "words of the vocabulary",
                "Build it with an unknown word.",
            )
        for wanted, name, marker in ((begin, "begin", self.begin_id), (end, "end", self.end_id)):
            if wanted and marker is None:
                raise BadInput(name, "True", f"False: the vocabulary has no {name} marker")
        before, after = [self.begin_id] * begin, [self.end_id] * end
        return np.array([*before, *found, *after] if begin or end else found, np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of ids."""
        numbers = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
        if numbers.size and (
            numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= len(self)
        ):
            raise BadInput("ids", f"{numbers!r:.60}", f"whole numbers from 0 to {len(self) - 1}")
        return [self.words[int(i)] for i in numbers]

    # -- plain JSON ------------------------------------------------------------------------

    def save(self, path: str | os.PathLike) -> None:
        """Write the vocabulary as one JSON document, atomically."""
        document = {"format": _FORMAT, "version": 1, **dataclasses.asdict(self)}
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        try:
            temporary.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()

    @classmethod
    def load(cls, path: str | os.PathLike) -> Vocabulary:
        """Read a file that `save` wrote."""
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadFile(f"{path}: no such file. Check the path.") from None
        except (OSError, ValueError) as error:
            raise BadFile(
                f"{path}: truncated, or not JSON ({error}). Save it again from the source."
            ) from None
        if not isinstance(document, dict) or document.get("format") != _FORMAT:
            raise BadFile(f"{path}: a JSON file, but not a vocabulary of energax.")
        if document.get("version") != 1:
            raise BadFile(
                f"{path}: version {document.get('version')}; this version of energax reads 1. Update energax."
            )
        try:
            return cls(tuple(document["words"]), document["unknown"], document["begin"], document["end"])
        except (KeyError, TypeError, BadInput) as error:
            raise BadFile(
                f"{path}: an incomplete vocabulary ({error}). Save it again from the source."
            ) from None
