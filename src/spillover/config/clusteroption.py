"""Reads clusters from the command line: `onprem=kubernetes:context=kind-onprem,owned`."""

from collections.abc import Sequence
from enum import Enum, auto
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import inspect

from spillover.clusters.kinds import Kinds, load_kinds, section_of
from spillover.config.clusters import Clusters, read_clusters
from spillover.forms.checking import check, nearest
from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, Findings, FormProblem, shown
from spillover.ports.kinds import ClusterKind
from spillover.wire.configfile import ClusterDoc

OPTION: Final = "--cluster"
FORM: Final = "NAME=KIND:OPTION,..."
_ROLES: Final = ("owned", "rented")
_PRICES: Final = {"cpu": "cpu_hour", "memory": "memory_gib_hour", "gpu": "gpu_hour"}
"""Hourly prices by their option names."""
_LABEL: Final = "label."
_MOST_JOBS: Final = 10_000_000
_MANY: Final = 10
"""A number of jobs has fewer digits; longer text is not converted."""
_LONGEST: Final = 30
"""Most characters of a number among the options of a kind."""
_KNOWN: Final = (*_ROLES, "region", "startup", "jobs", *_PRICES, f"{_LABEL}KEY")
_CALLED: Final = {field: key for key, field in _PRICES.items()}


class _Own(Enum):
    """The value that an option of a kind takes on the command line."""

    FLAG = auto()
    """No value."""
    TEXT = auto()
    WHOLE = auto()
    NUMBER = auto()


def read_options(options: Sequence[str]) -> Clusters:
    """Read all `--cluster` options; raise BadForm with all problems."""
    kinds = load_kinds()
    problems: list[FormProblem] = []
    docs: list[ClusterDoc] = []
    names: dict[str, None] = {}
    for option in options:
        line = OneLine(option)
        value = _value(line, kinds)
        doc = _doc(value, kinds, line.found) if value else None
        if doc is not None:
            if doc.name in names:
                line.found.add(("name",), f"{shown(doc.name)} is already the name of another cluster")
            names[doc.name] = None
            docs.append(doc)
            meaning = Findings()
            read_clusters([doc], meaning, kinds)
            line.found.found += [(path[2:], message) for path, message in meaning.found]
        problems += _told(f"{OPTION} {option}", line)
    if problems:
        raise BadForm(problems)
    return read_clusters(docs, Findings(), kinds)


def read_option(option: str) -> dict[str, Any]:
    """Read an option as an entry of spill.yaml, to send to a server; raise BadForm with problems of its form."""
    line = OneLine(option)
    value = _value(line, load_kinds())
    if problems := _told(option, line):
        raise BadForm(problems)
    return value


def _told(option: str, line: OneLine) -> list[FormProblem]:
    """Return the problems of an option, in terms of the command line."""
    return [
        FormProblem("", None, option, f"{_called(path[-1])}: {message}" if path else message)
        for path, message in line.told()
    ]


def _value(line: OneLine, kinds: Kinds) -> dict[str, Any]:
    """Read an option as an entry of spill.yaml, without its invalid parts; empty if nothing is valid."""
    name, rest = line.whole.pair()
    kind, words = rest.pair(":") if rest else (Piece(""), None)
    if not (name.text and kind.text):
        line.wrong(
            line.whole, f"must have the form {FORM}, such as onprem=kubernetes:context=kind-onprem,owned"
        )
        return {}
    value: dict[str, Any] = {"name": name.text, "kind": kind.text}
    line.mark(("kind",), kind)
    # The options of an unknown kind are unknown. The check of the form reports the kind.
    if kind.text not in kinds:
        return value
    own = _own(kinds[kind.text])
    told: dict[str, str] = {}
    for word in words.split() if words and words.text else ():
        key = word.pair()[0].text
        what = "role" if key in _ROLES else key
        if told.setdefault(what, word.text) != word.text:
            message = f"{shown(told[what])} and {shown(word.text)} exclude each other; remove one"
            line.wrong(word, message)
        elif (wrong := _wrong(word, kind.text, own)) is not None:
            line.wrong(word, wrong)
        else:
            _put(value, word, line, own, section_of(kinds[kind.text]))
    if line.found.found and "role" not in value:
        value["role"] = "rented"  # the role may be the invalid part; do not report a price because of that
    return value


def _own(kind: ClusterKind) -> dict[str, _Own]:
    """Return the options of a kind: the fields of its section that one word can set, by name."""
    if kind.section is None:
        return {}
    form = inspect.type_info(kind.form)
    fields = form.fields if isinstance(form, inspect.StructType) else ()
    kept = {each.encode_name: _taken(each.type) for each in fields}
    return {name: each for name, each in kept.items() if each is not None}


def _taken(kind: inspect.Type) -> _Own | None:
    """Return what one word can mean for a field of this type; None if a value needs several words."""
    types = _bare(kind)
    if any(isinstance(each, inspect.StrType | inspect.LiteralType) for each in types):
        return _Own.TEXT
    order = ((inspect.BoolType, _Own.FLAG), (inspect.FloatType, _Own.NUMBER), (inspect.IntType, _Own.WHOLE))
    return next((own for each, own in order if any(isinstance(one, each) for one in types)), None)


def _bare(kind: inspect.Type) -> list[inspect.Type]:
    """Return all types that a value may have, without their metadata."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return [found for each in kind.types for found in _bare(each)]
    return [kind]


def _meant(said: str, own: _Own) -> object:
    """Return the value of a word; text that is not a number stays text, and the form of the kind refuses it."""
    if own is _Own.FLAG:
        return True
    if own is _Own.TEXT or len(said) > _LONGEST or "_" in said:
        return said
    try:
        number: float = int(said) if own is _Own.WHOLE else float(said)
    except ValueError:
        return said
    return number if isfinite(number) else said


def _wrong(word: Piece, kind: str, own: dict[str, _Own]) -> str | None:
    """Return what is wrong with one word after the kind; None if its form is valid."""
    name, value = word.pair()
    key = name.text
    known = tuple(dict.fromkeys((*_KNOWN, *own)))
    label = key.startswith(_LABEL) and key != _LABEL
    if not label and key not in known:
        return f"{shown(key)} is not an option of cluster kind {kind}{nearest(key, known)}"
    if key in _ROLES or own.get(key) is _Own.FLAG:
        return f"{key} takes no value" if value else None
    if value is None:
        return f"{key} needs a value: {key}=..."
    if (
        key == "jobs"
        and key not in own
        and not (
            value.text.isascii()
            and value.text.isdigit()
            and len(value.text) < _MANY
            and 0 < int(value.text) <= _MOST_JOBS
        )
    ):
        return f"jobs: {shown(value.text)} is not a number of jobs; write 1 to {_MOST_JOBS}"
    return None


def _put(value: dict[str, Any], word: Piece, line: OneLine, own: dict[str, _Own], section: str) -> None:
    """Store the value of a word where spill.yaml has it."""
    name, right = word.pair()
    key, said = name.text, right.text if right else ""
    place: tuple[str, ...]
    meant: object
    if key in _ROLES:
        place, meant = ("role",), key
    elif key in own:
        place, meant = (section, key), _meant(said, own[key])
    elif key in _PRICES:
        place, meant = ("price", _PRICES[key]), said
    elif key == "jobs":
        place, meant = ("limits", "jobs"), int(said)
    elif key.startswith(_LABEL):
        place, meant = ("labels", key.removeprefix(_LABEL)), said
    else:
        place, meant = (key,), said
    line.mark(place, word)
    inside = value if len(place) == 1 else value.setdefault(place[0], {})
    inside[place[-1]] = meant


def _called(part: str | int) -> str:
    """Return the option name of a field of spill.yaml."""
    return _CALLED.get(str(part), str(part))


def _doc(value: dict[str, Any], kinds: Kinds, found: Findings) -> ClusterDoc | None:
    """Convert an option to a cluster; None and problems in `found` if its form is invalid."""
    try:
        return msgspec.convert(value, kinds.cluster_doc)
    except msgspec.ValidationError:
        check(kinds.cluster_doc, value, found)
        return None
