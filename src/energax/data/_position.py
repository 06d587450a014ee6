"""Positions in a text, for error messages."""

from __future__ import annotations


def position(text: str, offset: int, source: str) -> str:
    """The position of a character, such as `asia.bif, line 3, column 7`; both count from one.

    >>> position("ab\\ncd", 4, "text")
    'text, line 2, column 2'
    """
    offset = max(offset, 0)  # the text is not copied: it may be large
    line, begin = text.count("\n", 0, offset) + 1, text.rfind("\n", 0, offset)
    return f"{source}, line {line}, column {min(offset, len(text)) - begin}"
