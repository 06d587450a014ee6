"""Words of a BIF text, one at a time, each with its place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import NoReturn

from ...errors import BadInput
from .._position import place

SKIP = r"(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*+"
_TOKEN = re.compile(rf'{SKIP}(?:"([^"]*)"|([(){{}};,|])|((?:[^\s,|;(){{}}"/]|/(?![/*]))+))?')
_PROPERTY = re.compile(r'((?:"[^"]*"|[^;"])*+);')


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A name in quotes (string), one without (word), a bracket or separator (sign), or the end."""

    text: str
    kind: str
    start: int

    def is_sign(self, signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text in words


class Scanner:
    """Where reading has come to in a text; raises errors that say where."""

    def __init__(self, text: str, source: str):
        self.text, self.source, self.at = text, source, 0

    def wrong(self, where: Token | int, expected: str, found: str | None = None) -> NoReturn:
        if isinstance(where, Token):
            found = found or ("the end of the file" if where.kind == "end" else repr(where.text))
            where = where.start
        raise BadInput(place(self.text, where, self.source), found or "nothing", expected)

    def peek(self) -> Token:
        return self._scan()[0]

    def take(self) -> Token:
        token, self.at = self._scan()
        return token

    def _scan(self) -> tuple[Token, int]:
        match = _TOKEN.match(self.text, self.at)
        assert match is not None  # every part of the pattern may be empty
        group = match.lastindex
        if group:
            kind = ("string", "sign", "word")[group - 1]
            return Token(match[group], kind, match.start(group) - (group == 1)), match.end()
        end = match.end()
        if end < len(self.text):
            opened = "quote" if self.text[end] == '"' else "comment"
            self.wrong(end, f"its end before the end of the file ({self._end()})", f"an open {opened}")
        return Token("", "end", end), end

    def _end(self) -> str:
        return f"line {self.text.count(chr(10)) + 1}"

    def sign(self, sign: str, what: str = "") -> Token:
        token = self.take()
        if not token.is_sign(sign):
            self.wrong(token, f"{sign!r}{what}")
        return token

    def maybe(self, sign: str) -> bool:
        if self.peek().is_sign(sign):
            self.take()
            return True
        return False

    def name(self) -> tuple[str, int]:
        """The words up to the next sign as one name (empty if there is none), and where it begins."""
        start, words = self.peek().start, []
        while self.peek().kind in ("word", "string"):
            words.append(self.take().text)
        return " ".join(words), start

    def groups(self, close: str, what: str) -> tuple[list[list[Token]], list[int]]:
        """The words up to a closing sign, in groups set apart by commas and bars, and the bars' places.

        A bar's place is the number of groups before it.
        """
        found: list[list[Token]] = [[]]
        bars = []
        while not (token := self.take()).is_sign(close):
            if token.kind in ("word", "string"):
                found[-1].append(token)
            elif token.is_sign(",|"):
                found.append([])
                if token.text == "|":
                    bars.append(sum(map(bool, found)))
            else:
                self.wrong(token, f"{what} or {close!r}")
        return [group for group in found if group], bars

    def property(self) -> str:
        """The free text of a property, after the word itself, up to the semicolon."""
        match = _PROPERTY.match(self.text, self.at)
        if match is None:
            self.wrong(len(self.text), "';' after the property", "the end of the file")
        self.at = match.end()
        return match[1].strip()


def names_in(groups: list[list[Token]], fits: Callable[[list[str]], bool]) -> list[str] | None:
    """One name a word; or, if that does not fit, one a group: unquoted names with blanks inside."""
    for names in ([t.text for g in groups for t in g], [" ".join(t.text for t in g) for g in groups]):
        if fits(names):
            return names
    return None
