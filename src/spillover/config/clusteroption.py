"""Clusters as a command line says them: `onprem=kubernetes:context=kind-onprem,owned`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spillover.config.clusters import Clusters, read_clusters
from spillover.forms.checking import check, nearest
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
        found = Findings()
        value = _value(option, found)
        doc = _doc(value, found) if value else None
        if doc is not None:
            if doc.name in names:
                found.add(("name",), f"{shown(doc.name)} is the name of another cluster too")
            names[doc.name] = None
            docs.append(doc)
            meaning = Findings()
            read_clusters([doc], meaning)
            found.found += [(path[2:], message) for path, message in meaning.found]
        problems += [
            Problem("", None, f"{OPTION} {option}", f"{_called(path[-1])}: {message}" if path else message)
            for path, message in found.found
        ]
    if problems:
        raise BadForm(problems)
    return read_clusters(docs, Findings())


def _value(option: str, found: Findings) -> dict[str, Any]:
    """One option as spill.yaml would have it, without what is wrong with it; empty if nothing can be made of it."""
    name, equals, rest = option.partition("=")
    kind, _, words = rest.partition(":")
    if not (name and equals and kind):
        found.add((), f"write it as {FORM}, such as onprem=kubernetes:context=kind-onprem,owned")
        return {}
    value: dict[str, Any] = {"name": name, "kind": kind}
    # Which options an unknown kind would have, nobody knows; that there is no such kind is told with its form.
    if kind not in _KINDS:
        return value
    told: dict[str, str] = {}
    for word in words.split(",") if words else ():
        key = word.partition("=")[0]
        what = "role" if key in _ROLES else key
        if told.setdefault(what, word) != word:
            found.add((), f"{shown(told[what])} and {shown(word)} cannot both be; leave one of them out")
        elif (wrong := _wrong(word, kind)) is not None:
            found.add((), wrong)
        else:
            _put(value, word)
    if found.found and "role" not in value:
        value["role"] = "rented"  # its role may be what is wrong: a price is not to be blamed for that
    return value


def _wrong(word: str, kind: str) -> str | None:
    """What is wrong with one word after the kind; None if its form is right."""
    key, equals, said = word.partition("=")
    known = (*_KNOWN, *_REACHED, "in_cluster") if kind == "kubernetes" else _KNOWN
    label = key.startswith(_LABEL) and key != _LABEL
    if not label and key not in known:
        return f"{shown(key)} is not an option of a cluster of kind {kind}{nearest(key, known)}"
    if key in _ALONE:
        return f"{key} takes no value; write it alone" if equals else None
    if not equals:
        return f"{key} needs a value; write {key}=..."
    if key == "jobs" and not (
        said.isascii() and said.isdigit() and len(said) < _MANY and 0 < int(said) <= _MOST_JOBS
    ):
        return f"jobs: {shown(said)} is not a number of jobs; write 1 to {_MOST_JOBS}"
    return None


def _put(value: dict[str, Any], word: str) -> None:
    """Note what a word says where spill.yaml has it."""
    key, _, said = word.partition("=")
    if key in _ROLES:
        value["role"] = key
    elif key in _PRICES:
        value.setdefault("price", {})[_PRICES[key]] = said
    elif key == "jobs":
        value["limits"] = {"jobs": int(said)}
    elif key.startswith(_LABEL):
        value.setdefault("labels", {})[key.removeprefix(_LABEL)] = said
    elif key in {"region", "startup"}:
        value[key] = said
    else:
        value.setdefault("kubernetes", {})[key] = said if key in _REACHED else True


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
