"""Parses YAML, and with it JSON, into plain values with their line numbers.

Builds values from the parser's events instead of its loader. So nesting and aliases are limited while reading (an alias
counts as all values that it repeats), only plain data can result, and scalars follow YAML 1.2: `on` is text, not true,
and `1:30` and times stay text.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from spillover.forms.problems import BadForm, FormProblem, Lines, Path, path_text, shown

MOST_BYTES: Final = 4 * 2**20
"""Most bytes of a file."""
MOST_NODES: Final = 1_000_000
"""Most values of a file."""
MOST_REPEATED: Final = 100_000
"""Most values of a file that come from aliases."""
MOST_DEPTH: Final = 64
"""Most levels of nesting."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TAB = re.compile(r" *\t")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class Document(Struct, frozen=True):
    """One document of a file."""

    value: object
    """Plain data: mappings with text keys, lists, text, numbers, booleans and None."""
    lines: Lines
    source: str
    problems: tuple[FormProblem, ...] = ()
    """Problems of its text; the value lacks these parts."""


class _Anchored(Struct):
    """A value that aliases may repeat."""

    value: object
    size: int
    """How many values it contains, with itself."""
    height: int
    """Levels of nesting inside it."""


class _Stop(Exception):
    """A problem that ends the reading of the whole file."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def read_documents(text: bytes | str, source: str, what: str = "a configuration") -> list[Document]:
    """Parse the documents of a file that are not empty; raise BadForm. `what` tells what an empty file should hold."""
    plain = _decoded(text, source)
    try:
        documents = list(_Reader(plain, source).documents())
    except _Stop as stop:
        documents = _read_as_json(plain, source)
        if not documents:
            raise BadForm([FormProblem(source, stop.line, "", str(stop))]) from None
    if not documents:
        raise BadForm([FormProblem(source, None, "", f"is empty; write {what}")])
    return documents


def _decoded(text: bytes | str, source: str) -> str:
    """Check size and encoding of a text; return it decoded."""
    try:
        data = text.encode() if isinstance(text, str) else bytes(text)
    except UnicodeEncodeError:
        raise BadForm([FormProblem(source, None, "", "is not UTF-8 text")]) from None
    if len(data) > MOST_BYTES:
        message = f"is larger than {MOST_BYTES // 2**20} MiB; split it into several files, or use an array"
        raise BadForm([FormProblem(source, None, "", message)])
    try:
        plain = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadForm([FormProblem(source, line, "", "is not UTF-8 text; save it as UTF-8")]) from None
    if (at := plain.find("\0")) >= 0:
        line = plain.count("\n", 0, at) + 1
        raise BadForm([FormProblem(source, line, "", "contains a NUL byte; this is not a text file")])
    return plain


def _read_as_json(text: str, source: str) -> list[Document]:
    """Parse JSON text that is not valid YAML, such as with tabs; return an empty list if it is not JSON either."""
    if not text.lstrip().startswith(("{", "[")):
        return []
    try:
        value = msgspec.json.decode(text)
        # The re-encoded text passes the same limits as any other. Its line numbers are not those of the file.
        written = _BEYOND_ASCII.sub(_escaped, msgspec.json.encode(value).decode())
        again = list(_Reader(written, source).documents())
    except (msgspec.DecodeError, RecursionError, _Stop):
        return []
    return [msgspec.structs.replace(document, lines={}) for document in again]


def _escaped(match: re.Match[str]) -> str:
    """Escape a character for a double-quoted YAML string."""
    return f"\\U{ord(match[0]):08x}"


class _Reader:
    """One pass over the parser's events."""

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.events: Iterator[Any] = self._parsed(text)
        self.nodes = 0
        self.repeated = 0
        self.lines: dict[Path, int] = {}
        self.anchors: dict[str, _Anchored | None] = {}
        self.problems: list[FormProblem] = []

    def documents(self) -> Iterator[Document]:
        """Yield each document that is not empty."""
        for event in self.events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            self.lines, self.anchors, self.problems = {}, {}, []
            value, _ = self._node(next(self.events), ())
            if value is not None or self.problems:
                yield Document(value, self.lines, self.source, tuple(self.problems))

    def _parsed(self, text: str) -> Iterator[Any]:
        """Yield the parser's events; raise _Stop for invalid YAML."""
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            # At the end of a text, the mark may be after the last line.
            line = min(mark.line, len(text.splitlines()) - 1) + 1 if mark else 1
            hint = (
                "; indent with spaces, not tabs" if mark and _TAB.match(text.splitlines()[line - 1]) else ""
            )
            raise _Stop(
                line, f"is not valid YAML: {_one_line(error.problem or error.context)}{hint}"
            ) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise _Stop(line, f"is not valid YAML: {_one_line(error.reason)}") from None
        except (yaml.YAMLError, ValueError, OverflowError) as error:  # such as an escape out of range
            raise _Stop(1, f"is not valid YAML: {_one_line(error)}") from None

    def _note(self, path: Path, message: str, line: int | None = None) -> None:
        """Record a problem that does not stop the reading; `line` defaults to that of the path."""
        self.problems.append(FormProblem(self.source, line or self.lines.get(path), path_text(path), message))

    def _node(self, event: Any, path: Path) -> tuple[object, int]:
        """Return the value that starts with an event, and its height."""
        line: int = event.start_mark.line + 1
        self.lines[path] = line
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise _Stop(line, f"contains more than {MOST_NODES:,} values")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path, line)
        if len(path) > MOST_DEPTH:
            raise _Stop(line, f"is nested deeper than {MOST_DEPTH} levels")
        before = self.nodes + self.repeated
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        value: object
        if isinstance(event, yaml.ScalarEvent):
            value, height = self._scalar(event, path), 0
        elif isinstance(event, yaml.SequenceStartEvent):
            value, height = self._sequence(path)
        else:
            value, height = self._mapping(path)
        if event.anchor is not None:
            size = self.nodes + self.repeated - before + 1
            self.anchors[event.anchor] = _Anchored(value, size, height)
        return value, height

    def _alias(self, event: Any, path: Path, line: int) -> tuple[object, int]:
        """Return the value of an alias, and count all of its values again."""
        name = shown(event.anchor)
        if event.anchor not in self.anchors:
            raise _Stop(line, f"uses the undefined alias {name}")
        anchored = self.anchors[event.anchor]
        if anchored is None:
            raise _Stop(line, f"uses the alias {name} inside its own definition")
        self.repeated += anchored.size
        if self.repeated > MOST_REPEATED:
            raise _Stop(line, f"expands aliases to more than {MOST_REPEATED:,} values")
        if len(path) + anchored.height > MOST_DEPTH:
            raise _Stop(line, f"is nested deeper than {MOST_DEPTH} levels")
        return anchored.value, anchored.height

    def _sequence(self, path: Path) -> tuple[list[object], int]:
        """Read a list up to its end."""
        items: list[object] = []
        deepest = 0
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            value, height = self._node(event, (*path, len(items)))
            items.append(value)
            deepest = max(deepest, height)
        return items, deepest + 1

    def _mapping(self, path: Path) -> tuple[dict[str, object], int]:
        """Read a mapping up to its end; report and leave out keys that are not text or occur twice."""
        items: dict[str, object] = {}
        deepest = 0
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = event.start_mark.line + 1
            key = self._key(event, path)
            if key is None:
                self._node(next(self.events), (*path, "?"))
                self.lines.pop((*path, "?"), None)
                continue
            place = (*path, key)
            if key in items:
                first = self.lines[place]
                where = f" in line {line}" if first == line else f", in lines {first} and {line}"
                self._note(place, f"is defined twice{where}; remove one", line)
            value, height = self._node(next(self.events), place)
            self.lines[place] = line
            items[key] = value
            deepest = max(deepest, height)
        return items, deepest + 1

    def _key(self, event: Any, path: Path) -> str | None:
        """Return a key; None if it is not text."""
        key, _ = self._node(event, (*path, "?"))
        line = self.lines.pop((*path, "?"))
        if isinstance(key, str) and key != "<<":
            return key
        if key == "<<":
            message = "merge keys (`<<`) are not supported; repeat the fields"
        elif isinstance(key, dict | list):
            message = "a mapping or list cannot be a key"
        else:
            message = f"the key {'null' if key is None else shown(key)} is not text; write it in quotes"
        self._note(path, message, line)
        return None

    def _scalar(self, event: Any, path: Path) -> object:
        """Return one scalar, by the rules of YAML 1.2 or by its tag."""
        text: str = event.value
        if event.tag is None or event.tag == "!":
            if event.implicit[0]:
                return self._plain(text, path)
            return self._text(text, path)
        kind = event.tag.removeprefix(_TAG)
        if kind == "str":
            return self._text(text, path)
        value = self._plain(text, path) if kind in {"int", "float", "bool", "null"} else text
        if value is text:
            self._note(path, f"the tag {shown(event.tag)} is not supported; write a plain value")
            return None
        return value

    def _plain(self, text: str, path: Path) -> object:
        """Return a value without quotes."""
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
                self._note(path, f"{shown(text)} is too large")
                return None
            return int(text)
        if _FLOAT.fullmatch(text):
            number = float(text) if len(text) <= 64 else float("inf")
            if number in {float("inf"), float("-inf")}:
                self._note(path, f"{shown(text)} is too large or too long")
                return None
            return number
        if _NOT_FINITE.fullmatch(text):
            self._note(path, f"{text} is not a finite number")
            return None
        return self._text(text, path)

    def _text(self, text: str, path: Path) -> object:
        """Return text that can be encoded as UTF-8."""
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            self._note(path, "contains half of a surrogate pair; write the whole character")
            return None
        return text


def _one_line(message: object) -> str:
    """Return a parser's message as one line."""
    return " ".join(str(message).split())[:200]
