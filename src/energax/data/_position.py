"""Positions in a text, for error messages."""

from __future__ import annotations


def position(text: str, offset: int, source: str) -> str:
    """The position of a character, such as `asia.bif, line 3, column 7`; both count from one.

    >>> position("ab\\ncd", 4, "text")
    'text, line 2, column 2'
    """
    before = text[: max(offset, 0)]
    return f"{source}, line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
