"""Where in a text something stands, for errors."""

from __future__ import annotations


def place(text: str, offset: int, source: str) -> str:
    """The place of a character, as in `asia.bif, line 3, column 7` (both counted from one).

    >>> place("ab\\ncd", 4, "text")
    'text, line 2, column 2'
    """
    before = text[: max(offset, 0)]
    return f"{source}, line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
