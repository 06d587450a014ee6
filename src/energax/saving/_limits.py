"""How much memory the document of a file may claim."""

from __future__ import annotations

from collections.abc import Sequence

_PER_CHARACTER = 32  # bytes of an array of strings for each character of its text
_FREE = 2**26  # bytes for wide arrays of short strings, all of a file together


class StringLimit:
    """A count of the memory that arrays of strings take beyond their text.

    All strings of a NumPy array take as much memory as its dtype says, so a few bytes of a forged file could
    claim gigabytes. `Writer` counts in the same way, so that every file that is written can be read.
    """

    def __init__(self) -> None:
        self.left = _FREE

    def allows(self, itemsize: int, items: Sequence[str]) -> bool:
        """Count an array; False if the file claims too much with it.

        >>> StringLimit().allows(400, ["a", "b"]), StringLimit().allows(500_000_000, ["a"])
        (True, False)
        """
        claimed = itemsize * len(items)
        self.left -= max(0, claimed - _PER_CHARACTER * (len(items) + sum(map(len, items))))
        return self.left >= 0
