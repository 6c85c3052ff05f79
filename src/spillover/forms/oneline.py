"""Parses one-line notations: `wait=compute(0.1,max_queue=30)`, `64x8gpu,48cpu` or `lab=kubernetes:context=x,owned`.

Each of these grammars splits a line at a few separators: commas outside parentheses, `=`, `:`, `name(...)`. A piece
knows its position, so that all grammars report problems alike: what is wrong, what to write, and at which character.
"""

from typing import NamedTuple, Self

from spillover.forms.problems import BadForm, Findings, FormProblem, Path, line_of, path_text, shown


class Piece(NamedTuple):
    """A part of a line."""

    text: str
    at: int = 0
    """Index of its first character in the line."""

    def strip(self) -> Self:
        """Return the piece without surrounding spaces."""
        rest = self.text.lstrip()
        return self._replace(text=rest.rstrip(), at=self.at + len(self.text) - len(rest))

    def cut(self, start: int, end: int | None = None) -> "Piece":
        """Return a part of this piece."""
        return Piece(self.text[start:end], self.at + start)

    def pair(self, mark: str = "=", *, last: bool = False) -> "tuple[Piece, Piece | None]":
        """Split at the first separator, or the last; the second part is None if there is no separator."""
        end = self.text.rfind(mark) if last else self.text.find(mark)
        return (self, None) if end < 0 else (self.cut(0, end), self.cut(end + len(mark)))

    def split(self, mark: str = ",", most: int = -1) -> "list[Piece]":
        """Split at every separator; after `most` splits, the rest is one piece."""
        pieces, at = [], self.at
        for text in self.text.split(mark, most):
            pieces.append(Piece(text, at))
            at += len(text) + len(mark)
        return pieces

    def parts(self, mark: str = ",", pairs: str = "()") -> "list[Piece]":
        """Split at separators outside parentheses; an unbalanced parenthesis counts as an ordinary character.

        `pairs` names what counts as parentheses, such as `()[]{}`.
        """
        ends = _partners(self.text, pairs)[0]
        pieces, start, at = [], 0, 0
        while at < len(self.text):
            if self.text[at] == mark:
                pieces.append(self.cut(start, at))
                start = at + 1
            at = ends.get(at, at) + 1
        return [*pieces, self.cut(start)]

    def words(self, mark: str = ",", pairs: str = "()") -> "list[Piece]":
        """Return the parts that are not blank, without surrounding spaces."""
        return [word for part in self.parts(mark, pairs) if (word := part.strip()).text]

    def call(self) -> "tuple[Piece, Piece | None] | None":
        """Split `name(...)` into name and arguments; arguments are None for a bare name. None if it is neither."""
        start = self.text.find("(")
        if start < 0:
            return (self, None) if ")" not in self.text else None
        ends, alone = _partners(self.text)
        if alone is not None or ends[start] != len(self.text) - 1:
            return None
        return self.cut(0, start).strip(), self.cut(start + 1, -1)

    def alone(self) -> "Piece | None":
        """Return the first unbalanced parenthesis."""
        at = _partners(self.text)[1]
        return None if at is None else self.cut(at, at + 1)


class OneLine:
    """A line and the problems found in it."""

    def __init__(self, text: str) -> None:
        self.whole = Piece(text)
        self.found = Findings()
        """Also for readers of values that do not know pieces: `mark` gives their positions."""
        self._places: dict[Path, int] = {}
        """Start of each value, by its path."""
        self._exact: dict[int, int] = {}
        """Start of the piece that a problem is about, by the number of the problem."""

    def mark(self, path: Path, piece: Piece) -> None:
        """Record the position of a value for problems with it."""
        self._places[path] = piece.at

    def wrong(self, piece: Piece, message: str, path: Path = ()) -> None:
        """Add a problem with a piece."""
        if piece.strip().text != self.whole.text.strip():
            self._exact[len(self.found.found)] = piece.at
        self.found.add(path, message)

    def balanced(self) -> bool:
        """Return whether parentheses are balanced; add a problem if not."""
        lost = self.whole.alone()
        if lost is not None:
            self.wrong(lost, f"{shown(self.whole.text)} has unbalanced parentheses")
        return lost is None

    def told(self) -> list[tuple[Path, str]]:
        """Return the problems in the order in which they were found, each with its position."""
        return [
            (path, message + character(self._exact.get(number, line_of(path, self._places))))
            for number, (path, message) in enumerate(self.found.found)
        ]

    def check(self, source: str) -> None:
        """Raise BadForm if there are problems; `source` is the name of the line."""
        if self.found.found:
            raise BadForm(
                [FormProblem(source, None, path_text(path), message) for path, message in self.told()]
            )


def character(at: int | None) -> str:
    """Return the end of a message that names a position; empty for the whole line."""
    return "" if at is None else f" (at character {at + 1})"


def _partners(text: str, pairs: str = "()") -> tuple[dict[int, int], int | None]:
    """Return the closing parenthesis of each opening one, and the first unbalanced one."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    stray: list[int] = []
    if any(each in text for each in pairs):  # most lines have none
        begins, closes = pairs[::2], pairs[1::2]
        for at, letter in enumerate(text):
            if letter in begins:
                opened.append(at)
            elif letter in closes and opened and text[opened[-1]] == begins[closes.index(letter)]:
                ends[opened.pop()] = at
            elif letter in closes:
                stray.append(at)
    return ends, min((*opened[:1], *stray[:1]), default=None)
