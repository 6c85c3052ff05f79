"""Clusters as a command line says them: `onprem=kubernetes:context=kind-onprem,owned`."""

from collections.abc import Sequence
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
"""Prices of an hour, as a command line calls them."""
_LABEL: Final = "label."
_MOST_JOBS: Final = 10_000_000
_MANY: Final = 10
"""Digits that a number of jobs does not have."""
_KNOWN: Final = (*_ROLES, "region", "startup", "jobs", *_PRICES, f"{_LABEL}KEY")
_CALLED: Final = {field: key for key, field in _PRICES.items()}


def read_options(options: Sequence[str]) -> Clusters:
    """What all `--cluster` options say; raises BadForm with all that is wrong with them."""
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
                line.found.add(("name",), f"{shown(doc.name)} is the name of another cluster too")
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
    """One option as spill.yaml would have it, to be sent to a server; raises BadForm with what is wrong with its form."""
    line = OneLine(option)
    value = _value(line, load_kinds())
    if problems := _told(option, line):
        raise BadForm(problems)
    return value


def _told(option: str, line: OneLine) -> list[FormProblem]:
    """What is wrong with an option, each by the words of the command line."""
    return [
        FormProblem("", None, option, f"{_called(path[-1])}: {message}" if path else message)
        for path, message in line.told()
    ]


def _value(line: OneLine, kinds: Kinds) -> dict[str, Any]:
    """One option as spill.yaml would have it, without what is wrong with it; empty if nothing can be made of it."""
    name, rest = line.whole.pair()
    kind, words = rest.pair(":") if rest else (Piece(""), None)
    if not (name.text and kind.text):
        line.wrong(line.whole, f"write it as {FORM}, such as onprem=kubernetes:context=kind-onprem,owned")
        return {}
    value: dict[str, Any] = {"name": name.text, "kind": kind.text}
    line.mark(("kind",), kind)
    # Which options an unknown kind would have, nobody knows; that there is no such kind is told with its form.
    if kind.text not in kinds:
        return value
    own = _own(kinds[kind.text])
    told: dict[str, str] = {}
    for word in words.split() if words and words.text else ():
        key = word.pair()[0].text
        what = "role" if key in _ROLES else key
        if told.setdefault(what, word.text) != word.text:
            message = f"{shown(told[what])} and {shown(word.text)} cannot both be; leave one of them out"
            line.wrong(word, message)
        elif (wrong := _wrong(word, kind.text, own)) is not None:
            line.wrong(word, wrong)
        else:
            _put(value, word, line, own, section_of(kinds[kind.text]))
    if line.found.found and "role" not in value:
        value["role"] = "rented"  # its role may be what is wrong: a price is not to be blamed for that
    return value


def _own(kind: ClusterKind) -> dict[str, bool]:
    """Options of a kind: the fields of its section that are one word; whether each is one without a value."""
    if kind.section is None:
        return {}
    form = inspect.type_info(kind.form)
    fields = form.fields if isinstance(form, inspect.StructType) else ()
    kept = {each.encode_name: _bare(each.type) for each in fields}
    return {name: isinstance(each, inspect.BoolType) for name, each in kept.items() if each is not None}


def _bare(kind: inspect.Type) -> inspect.Type | None:
    """The type of one word, without what is said about it; None if a value has several."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return next((found for each in kind.types if (found := _bare(each)) is not None), None)
    simple = inspect.StrType | inspect.BoolType | inspect.LiteralType
    return kind if isinstance(kind, simple) else None


def _wrong(word: Piece, kind: str, own: dict[str, bool]) -> str | None:
    """What is wrong with one word after the kind; None if its form is right."""
    name, value = word.pair()
    key = name.text
    known = (*_KNOWN, *own)
    label = key.startswith(_LABEL) and key != _LABEL
    if not label and key not in known:
        return f"{shown(key)} is not an option of a cluster of kind {kind}{nearest(key, known)}"
    if key in _ROLES or own.get(key):
        return f"{key} takes no value; write it alone" if value else None
    if value is None:
        return f"{key} needs a value; write {key}=..."
    if key == "jobs" and not (
        value.text.isascii()
        and value.text.isdigit()
        and len(value.text) < _MANY
        and 0 < int(value.text) <= _MOST_JOBS
    ):
        return f"jobs: {shown(value.text)} is not a number of jobs; write 1 to {_MOST_JOBS}"
    return None


def _put(value: dict[str, Any], word: Piece, line: OneLine, own: dict[str, bool], section: str) -> None:
    """Note what a word says where spill.yaml has it."""
    name, right = word.pair()
    key, said = name.text, right.text if right else ""
    place: tuple[str, ...]
    meant: object
    if key in _ROLES:
        place, meant = ("role",), key
    elif key in _PRICES:
        place, meant = ("price", _PRICES[key]), said
    elif key == "jobs":
        place, meant = ("limits", "jobs"), int(said)
    elif key.startswith(_LABEL):
        place, meant = ("labels", key.removeprefix(_LABEL)), said
    elif key in {"region", "startup"}:
        place, meant = (key,), said
    else:
        place, meant = (section, key), True if own[key] else said
    line.mark(place, word)
    inside = value if len(place) == 1 else value.setdefault(place[0], {})
    inside[place[-1]] = meant


def _called(part: str | int) -> str:
    """A field of spill.yaml as a command line calls it."""
    return _CALLED.get(str(part), str(part))


def _doc(value: dict[str, Any], kinds: Kinds, found: Findings) -> ClusterDoc | None:
    """The cluster of an option; None with everything noted that is wrong with its form."""
    try:
        return msgspec.convert(value, kinds.cluster_doc)
    except msgspec.ValidationError:
        check(kinds.cluster_doc, value, found)
        return None
