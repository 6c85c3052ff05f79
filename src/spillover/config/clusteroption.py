"""Reads clusters from the command line: `onprem=kubernetes:context=kind-onprem,owned`. `pooloption.py` reads pools."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from spillover.clusters.kinds import Kinds, load_kinds, section_of
from spillover.config.clusters import Clusters, read_clusters
from spillover.config.pooloption import OFFER, POOL, POOL_OPTIONS, put_pool_word
from spillover.config.pools import name_providers
from spillover.forms.checking import check, nearest
from spillover.forms.oneline import OneLine, Piece
from spillover.forms.problems import BadForm, Findings, FormProblem, Path, shown
from spillover.forms.words import Word, meant, words_of
from spillover.model.cluster import AGENTS
from spillover.ports.kinds import ClusterKind
from spillover.wire.clusterfile import ClusterDoc

OPTION: Final = "--cluster"
FORM: Final = "NAME=KIND:OPTION,..."
_ROLES: Final = ("owned", "rented")
_PRICES: Final = {"cpu": "cpu_hour", "memory": "memory_gib_hour", "gpu": "gpu_hour"}
"""Hourly prices by their option names."""
_LABEL: Final = "label."
_MOST_JOBS: Final = 10_000_000
_MANY: Final = 10
"""A number of jobs has fewer digits; longer text is not converted."""
_KNOWN: Final = (*_ROLES, "region", "startup", "jobs", *_PRICES, f"{_LABEL}KEY")
_CALLED: Final = {field: key for key, field in _PRICES.items()} | {"offers": OFFER, "provider": POOL}
_SINGULAR: Final[dict[str | int, str]] = {"offers": OFFER}
"""Options of the command line for entries of a list."""


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
        FormProblem("", None, option, f"{_called(path)}: {message}" if path else message)
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
    pooled, whole = kind.text == AGENTS or bool(kinds[kind.text].kubeconfig), True
    pools = POOL_OPTIONS if pooled else ()
    for word in words.parts() if words and words.text else ():
        key = word.pair()[0].text
        what = "role" if key in _ROLES else word.text if key == OFFER else key
        if told.setdefault(what, word.text) != word.text:
            message = f"{shown(told[what])} and {shown(word.text)} exclude each other; remove one"
            line.wrong(word, message)
        elif key in pools:
            before = len(line.found.found)
            put_pool_word(value, word, line)
            whole = whole and len(line.found.found) == before
        elif (wrong := _wrong(word, kind.text, own, pools)) is not None:
            line.wrong(word, wrong)
        else:
            _put(value, word, line, own, section_of(kinds[kind.text]))
    if not whole:
        value.pop("pool")  # do not report what it lacks because of that
    if line.found.found and "role" not in value:
        value["role"] = "rented"  # the role may be the invalid part; do not report a price because of that
    return value


def _own(kind: ClusterKind) -> dict[str, Word]:
    """Return the options of a kind: the fields of its section that one word can set, by name."""
    return {} if kind.section is None else words_of(kind.form)


def _wrong(word: Piece, kind: str, own: dict[str, Word], pools: Sequence[str]) -> str | None:
    """Return what is wrong with one word after the kind; None if its form is valid."""
    name, value = word.pair()
    key = name.text
    known = tuple(dict.fromkeys((*_KNOWN, *own, *pools)))
    label = key.startswith(_LABEL) and key != _LABEL
    if not label and key not in known:
        return f"{shown(key)} is not an option of cluster kind {kind}{nearest(key, known)}"
    if key in _ROLES or own.get(key) is Word.FLAG:
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


def _put(value: dict[str, Any], word: Piece, line: OneLine, own: dict[str, Word], section: str) -> None:
    """Store the value of a word where spill.yaml has it."""
    name, right = word.pair()
    key, said = name.text, right.text if right else ""
    place: tuple[str, ...]
    what: object
    if key in _ROLES:
        place, what = ("role",), key
    elif key in own:
        place, what = (section, key), True if own[key] is Word.FLAG else meant(said, own[key])
    elif key in _PRICES:
        place, what = ("price", _PRICES[key]), said
    elif key == "jobs":
        place, what = ("limits", "jobs"), int(said)
    elif key.startswith(_LABEL):
        place, what = ("labels", key.removeprefix(_LABEL)), said
    else:
        place, what = (key,), said
    line.mark(place, word)
    inside = value if len(place) == 1 else value.setdefault(place[0], {})
    inside[place[-1]] = what


def _called(path: Path) -> str:
    """Return the option name of a field of spill.yaml."""
    if isinstance(path[-1], int):
        return f"{_SINGULAR.get(path[-2], path[-2])} {path[-1] + 1}"
    return _CALLED.get(path[-1], path[-1])


def _doc(value: dict[str, Any], kinds: Kinds, found: Findings) -> ClusterDoc | None:
    """Convert an option to a cluster; None and problems in `found` if its form is invalid."""
    try:
        return msgspec.convert(value, kinds.cluster_doc)
    except msgspec.ValidationError:
        check(kinds.cluster_doc, value, found)
        name_providers(found)
        return None
