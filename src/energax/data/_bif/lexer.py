"""The tokens of a BIF text, each with its position."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import NoReturn

from ...errors import BadInput
from .._position import position

SKIP = r"(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*+"
_TOKEN = re.compile(rf'{SKIP}(?:"([^"]*)"|([(){{}};,|])|((?:[^\s,|;(){{}}"/]|/(?![/*]))+))?')
_PROPERTY = re.compile(r'((?:"[^"]*"|[^;"])*+);')


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A quoted name (string), an unquoted one (word), a bracket or separator (sign), or the end."""

    text: str
    kind: str
    start: int

    def is_sign(self, signs: str) -> bool:
        return self.kind == "sign" and self.text in signs

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text in words


class Scanner:
    """A position in a text, and methods that read from there and raise errors with the position."""

    def __init__(self, text: str, source: str):
        self.text, self.source, self.at = text, source, 0

    def fail(self, where: Token | int, expected: str, found: str | None = None) -> NoReturn:
        """Raise an error at a token or an offset."""
        if isinstance(where, Token):
            found = found or ("the end of the file" if where.kind == "end" else repr(where.text))
            where = where.start
        raise BadInput(position(self.text, where, self.source), found or "nothing", expected)

    def peek(self) -> Token:
        """The next token, which stays in the text."""
        return self._scan()[0]

    def take(self) -> Token:
        """The next token, which is consumed."""
        token, self.at = self._scan()
        return token

    def _scan(self) -> tuple[Token, int]:
        match = _TOKEN.match(self.text, self.at)
        assert match is not None  # every part of the pattern is optional
        group = match.lastindex
        if group:
            kind = ("string", "sign", "word")[group - 1]
            return Token(match[group], kind, match.start(group) - (group == 1)), match.end()
        end = match.end()
        if end < len(self.text):
            kind = "quote" if self.text[end] == '"' else "comment"
            self.fail(end, f"its end before the end of the file ({self._end()})", f"an open {kind}")
        return Token("", "end", end), end

    def _end(self) -> str:
        return f"line {self.text.count(chr(10)) + 1}"

    def sign(self, sign: str, followed_by: str = "") -> Token:
        """The next token, which must be this sign."""
        token = self.take()
        if not token.is_sign(sign):
            self.fail(token, f"{sign!r}{followed_by}")
        return token

    def skip(self, sign: str) -> bool:
        """Consume the next token if it is this sign; whether it was."""
        if self.peek().is_sign(sign):
            self.take()
            return True
        return False

    def name(self) -> tuple[str, int]:
        """The words up to the next sign as one name, which may be empty, and its offset."""
        start, words = self.peek().start, []
        while self.peek().kind in ("word", "string"):
            words.append(self.take().text)
        return " ".join(words), start

    def groups(self, close: str, what: str) -> tuple[list[list[Token]], list[int]]:
        """The words up to a closing sign, in groups separated by commas and bars, and the places of the bars.

        The place of a bar is the number of groups before it.
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
                self.fail(token, f"{what} or {close!r}")
        return [group for group in found if group], bars

    def property(self) -> str:
        """The text of a property, from after the word `property` up to the semicolon."""
        match = _PROPERTY.match(self.text, self.at)
        if match is None:
            self.fail(len(self.text), "';' after the property", "the end of the file")
        self.at = match.end()
        return match[1].strip()


def names_in(groups: list[list[Token]], fits: Callable[[list[str]], bool]) -> list[str] | None:
    """One name per word; if these do not fit, one per group, for unquoted names with blanks."""
    for names in ([t.text for g in groups for t in g], [" ".join(t.text for t in g) for g in groups]):
        if fits(names):
            return names
    return None
