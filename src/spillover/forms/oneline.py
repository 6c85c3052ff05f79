"""Text that people write on one line, such as `wait=compute(0.1,max_queue=30)`, `64x8gpu,48cpu` or `lab=kubernetes:context=x,owned`.

Each of these grammars cuts a line into pieces by a few marks: commas that stand in no parentheses, `=`, `:`, `name(...)`. A piece knows where
it stands. So all grammars report what is wrong in one way: what it is, what to write, and at which character.
"""

from typing import NamedTuple, Self

from spillover.forms.problems import BadForm, Findings, FormProblem, Path, line_of, path_text, shown


class Piece(NamedTuple):
    """A part of a line."""

    text: str
    at: int = 0
    """Where it begins in the line, counted from 0."""

    def strip(self) -> Self:
        """The same without the spaces around it."""
        rest = self.text.lstrip()
        return self._replace(text=rest.rstrip(), at=self.at + len(self.text) - len(rest))

    def cut(self, start: int, end: int | None = None) -> "Piece":
        """A part of this piece."""
        return Piece(self.text[start:end], self.at + start)

    def pair(self, mark: str = "=", *, last: bool = False) -> "tuple[Piece, Piece | None]":
        """What stands before the first mark, or the last, and behind it; None if there is no mark."""
        end = self.text.rfind(mark) if last else self.text.find(mark)
        return (self, None) if end < 0 else (self.cut(0, end), self.cut(end + len(mark)))

    def split(self, mark: str = ",", most: int = -1) -> "list[Piece]":
        """The pieces between marks, wherever these stand; after `most` cuts the rest is one piece."""
        pieces, at = [], self.at
        for text in self.text.split(mark, most):
            pieces.append(Piece(text, at))
            at += len(text) + len(mark)
        return pieces

    def parts(self, mark: str = ",") -> "list[Piece]":
        """The pieces between marks that stand in no parentheses; one without its partner is a letter like any other."""
        ends = _partners(self.text)[0]
        pieces, start, at = [], 0, 0
        while at < len(self.text):
            if self.text[at] == mark:
                pieces.append(self.cut(start, at))
                start = at + 1
            at = ends.get(at, at) + 1
        return [*pieces, self.cut(start)]

    def words(self, mark: str = ",") -> "list[Piece]":
        """The parts that are not blank, without the spaces around them."""
        return [word for part in self.parts(mark) if (word := part.strip()).text]

    def call(self) -> "tuple[Piece, Piece | None] | None":
        """The name and what stands in the parentheses of `name(...)`, None for a name alone; None if it is neither."""
        start = self.text.find("(")
        if start < 0:
            return (self, None) if ")" not in self.text else None
        ends, alone = _partners(self.text)
        if alone is not None or ends[start] != len(self.text) - 1:
            return None
        return self.cut(0, start).strip(), self.cut(start + 1, -1)

    def alone(self) -> "Piece | None":
        """The first parenthesis that has no partner."""
        at = _partners(self.text)[1]
        return None if at is None else self.cut(at, at + 1)


class OneLine:
    """A line while it is read: its text, and what is wrong with it."""

    def __init__(self, text: str) -> None:
        self.whole = Piece(text)
        self.found = Findings()
        """Also for those who read values and know nothing of pieces: `mark` says where these are."""
        self._places: dict[Path, int] = {}
        """Where the value of each path begins."""
        self._exact: dict[int, int] = {}
        """Where the piece begins that a finding is about, by the number of the finding."""

    def mark(self, path: Path, piece: Piece) -> None:
        """Note where a value is written, so that problems with it have a place."""
        self._places[path] = piece.at

    def wrong(self, piece: Piece, message: str, path: Path = ()) -> None:
        """Note a problem with a piece."""
        if piece.strip().text != self.whole.text.strip():
            self._exact[len(self.found.found)] = piece.at
        self.found.add(path, message)

    def balanced(self) -> bool:
        """Whether each parenthesis has its partner; if not, that is noted."""
        lost = self.whole.alone()
        if lost is not None:
            self.wrong(lost, f"{shown(self.whole.text)} has parentheses that do not match")
        return lost is None

    def told(self) -> list[tuple[Path, str]]:
        """What is wrong, in the order in which it was found, each with its character."""
        return [
            (path, message + character(self._exact.get(number, line_of(path, self._places))))
            for number, (path, message) in enumerate(self.found.found)
        ]

    def check(self, source: str) -> None:
        """Raise BadForm if anything is wrong; `source` is what the line is called."""
        if self.found.found:
            raise BadForm(
                [FormProblem(source, None, path_text(path), message) for path, message in self.told()]
            )


def character(at: int | None) -> str:
    """What a message ends with to say where in a line something is wrong; nothing if it is the whole line."""
    return "" if at is None else f" (at character {at + 1})"


def _partners(text: str) -> tuple[dict[int, int], int | None]:
    """Where each parenthesis that opens is closed, and the first that has no partner."""
    ends: dict[int, int] = {}
    opened: list[int] = []
    stray: list[int] = []
    if "(" in text or ")" in text:  # most lines have none
        for at, letter in enumerate(text):
            if letter == "(":
                opened.append(at)
            elif letter == ")" and opened:
                ends[opened.pop()] = at
            elif letter == ")":
                stray.append(at)
    return ends, min((*opened[:1], *stray[:1]), default=None)
