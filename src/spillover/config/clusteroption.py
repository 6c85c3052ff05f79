"""Clusters as a command line says them: `onprem=kubernetes:context=kind-onprem,owned`."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spillover.config.clusters import Clusters, read_clusters
from spillover.forms.checking import check
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
_MANY: Final = 10
"""Digits that a number of jobs does not have."""
_KNOWN: Final = (*_ROLES, "region", "startup", "jobs", *_PRICES, f"{_LABEL}KEY")


def read_options(options: Sequence[str]) -> Clusters:
    """What all `--cluster` options say; raises BadForm with all that is wrong with them."""
    problems: list[Problem] = []
    docs: list[ClusterDoc] = []
    names: dict[str, None] = {}
    for option in options:
        found = Findings()
        value = _value(option, found)
        doc = _doc(value, found) if not found.found else None
        if doc is not None:
            if doc.name in names:
                found.add(("name",), f"{shown(doc.name)} is the name of another cluster too")
            names[doc.name] = None
            docs.append(doc)
            meaning = Findings()
            read_clusters([doc], meaning)
            found.found += [(path[2:], message) for path, message in meaning.found]
        problems += [
            Problem("", None, f"{OPTION} {option}", f"{path[-1]}: {message}" if path else message)
            for path, message in found.found
        ]
    if problems:
        raise BadForm(problems)
    return read_clusters(docs, Findings())


def _value(option: str, found: Findings) -> dict[str, Any]:
    """One option as spill.yaml would have it."""
    name, equals, rest = option.partition("=")
    kind, _, words = rest.partition(":")
    if not (name and equals and kind):
        found.add((), f"write it as {FORM}, such as onprem=kubernetes:context=kind-onprem,owned")
        return {}
    value: dict[str, Any] = {"name": name, "kind": kind}
    told: dict[str, str] = {}
    for word in words.split(",") if words else ():
        key, equals, said = word.partition("=")
        what = "role" if key in _ROLES else key
        if told.setdefault(what, word) != word:
            found.add((), f"{shown(told[what])} and {shown(word)} cannot both be; leave one of them out")
        elif key in _ROLES and not equals:
            value["role"] = key
        elif key in _PRICES and equals:
            value.setdefault("price", {})[_PRICES[key]] = said
        elif key in {"region", "startup"} and equals:
            value[key] = said
        elif key == "jobs" and said.isascii() and said.isdigit() and len(said) < _MANY:
            value["limits"] = {"jobs": int(said)}
        elif key.startswith(_LABEL) and key != _LABEL and equals:
            value.setdefault("labels", {})[key.removeprefix(_LABEL)] = said
        elif kind == "kubernetes" and key in _REACHED and equals:
            value.setdefault("kubernetes", {})[key] = said
        elif kind == "kubernetes" and word == "in_cluster":
            value.setdefault("kubernetes", {})[word] = True
        else:
            known = (*_KNOWN, *_REACHED, "in_cluster") if kind == "kubernetes" else _KNOWN
            found.add(
                (), f"{shown(word)} is not an option of a cluster of kind {kind}; known: {', '.join(known)}"
            )
    return value


def _doc(value: dict[str, Any], found: Findings) -> ClusterDoc | None:
    """The cluster of an option; None with everything noted that is wrong with its form."""
    try:
        return msgspec.convert(value, ClusterDoc)
    except msgspec.ValidationError:
        check(ClusterDoc, value, found)
        return None
