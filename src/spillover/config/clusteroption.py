"""Clusters as a command line says them: `onprem=kubernetes:context=kind-onprem,owned`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spillover.config.clusters import Clusters, read_clusters
from spillover.forms.checking import check, nearest
from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, Findings, Problem, shown
from spillover.wire.configfile import ClusterDoc

OPTION: Final = "--cluster"
FORM: Final = "NAME=KIND:OPTION,..."
_ROLES: Final = ("owned", "rented")
_PRICES: Final = {"cpu": "cpu_hour", "memory": "memory_gib_hour", "gpu": "gpu_hour"}
"""Prices of an hour, as a command line calls them."""
_REACHED: Final = (
    "kubeconfig",
    "context",
    "namespace",
    "image",
    "bind_within",
    "start_within",
    "shun_for",
    "keep",
    "failed_after",
)
_LABEL: Final = "label."
_MOST_JOBS: Final = 10_000_000
_MANY: Final = 10
"""Digits that a number of jobs does not have."""
_KINDS: Final = ("agents", "kubernetes")
_ALONE: Final = (*_ROLES, "in_cluster")
"""Options that are words without a value."""
_KNOWN: Final = (*_ROLES, "region", "startup", "jobs", *_PRICES, f"{_LABEL}KEY")
_CALLED: Final = {field: key for key, field in _PRICES.items()}


def read_options(options: Sequence[str]) -> Clusters:
    """What all `--cluster` options say; raises BadForm with all that is wrong with them."""
    problems: list[Problem] = []
    docs: list[ClusterDoc] = []
    names: dict[str, None] = {}
    for option in options:
        line = OneLine(option)
        value = _value(line)
        doc = _doc(value, line.found) if value else None
        if doc is not None:
            if doc.name in names:
                line.found.add(("name",), f"{shown(doc.name)} is the name of another cluster too")
            names[doc.name] = None
            docs.append(doc)
            meaning = Findings()
            read_clusters([doc], meaning)
            line.found.found += [(path[2:], message) for path, message in meaning.found]
        problems += [
            Problem("", None, f"{OPTION} {option}", f"{_called(path[-1])}: {message}" if path else message)
            for path, message in line.told()
        ]
    if problems:
        raise BadForm(problems)
    return read_clusters(docs, Findings())


def _value(line: OneLine) -> dict[str, Any]:
    """One option as spill.yaml would have it, without what is wrong with it; empty if nothing can be made of it."""
    name, rest = line.whole.pair()
    kind, words = rest.pair(":") if rest else (Piece(""), None)
    if not (name.text and kind.text):
        line.wrong(line.whole, f"write it as {FORM}, such as onprem=kubernetes:context=kind-onprem,owned")
        return {}
    value: dict[str, Any] = {"name": name.text, "kind": kind.text}
    line.mark(("kind",), kind)
    # Which options an unknown kind would have, nobody knows; that there is no such kind is told with its form.
    if kind.text not in _KINDS:
        return value
    told: dict[str, str] = {}
    for word in words.split() if words and words.text else ():
        key = word.pair()[0].text
        what = "role" if key in _ROLES else key
        if told.setdefault(what, word.text) != word.text:
            message = f"{shown(told[what])} and {shown(word.text)} cannot both be; leave one of them out"
            line.wrong(word, message)
        elif (wrong := _wrong(word, kind.text)) is not None:
            line.wrong(word, wrong)
        else:
            _put(value, word, line)
    if line.found.found and "role" not in value:
        value["role"] = "rented"  # its role may be what is wrong: a price is not to be blamed for that
    return value


def _wrong(word: Piece, kind: str) -> str | None:
    """What is wrong with one word after the kind; None if its form is right."""
    name, value = word.pair()
    key = name.text
    known = (*_KNOWN, *_REACHED, "in_cluster") if kind == "kubernetes" else _KNOWN
    label = key.startswith(_LABEL) and key != _LABEL
    if not label and key not in known:
        return f"{shown(key)} is not an option of a cluster of kind {kind}{nearest(key, known)}"
    if key in _ALONE:
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


def _put(value: dict[str, Any], word: Piece, line: OneLine) -> None:
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
        place, meant = ("kubernetes", key), said if key in _REACHED else True
    line.mark(place, word)
    inside = value if len(place) == 1 else value.setdefault(place[0], {})
    inside[place[-1]] = meant


def _called(part: str | int) -> str:
    """A field of spill.yaml as a command line calls it."""
    return _CALLED.get(str(part), str(part))


def _doc(value: dict[str, Any], found: Findings) -> ClusterDoc | None:
    """The cluster of an option; None with everything noted that is wrong with its form."""
    try:
        return msgspec.convert(value, ClusterDoc)
    except msgspec.ValidationError:
        check(ClusterDoc, value, found)
        return None
