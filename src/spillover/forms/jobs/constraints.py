"""Reads which nodes a job asks for, in the form of Flux (its RFC 31), as rules for nodes.

`and`, `or` and `not` combine `properties` and `hostlist`. The result is a list of alternatives, as in the node affinity
of Kubernetes, so that the scheduler needs one kind of rule only.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from math import prod
from typing import Any, Final, TypeAlias

from spillover.forms.problems import Findings, Path, shown
from spillover.model.where import NODE_NAME, PROPERTY, NodeTerm, Requirement, Rules

MOST_TERMS: Final = 256
"""Most alternatives of one job. Each node is compared with all of them."""
MOST_HOSTS: Final = 10_000
"""Most names of hosts of one job."""
MOST_TEXT: Final = 4096
"""Most characters of one list of hosts. Longer lists are written as several texts."""
MOST_BRACKETS: Final = 4
"""Most brackets in one list of hosts."""
MOST_DEPTH: Final = 20
OPERATORS: Final = ("properties", "hostlist", "and", "or", "not")
_BRACKETS: Final = re.compile(r"\[([0-9,-]+)\]")
_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_WORD: Final = re.compile(r"[A-Za-z0-9:._/=-]{1,100}")
_HOST: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")

Term: TypeAlias = tuple[Requirement, ...]
"""Requirements that must all hold."""


def read_constraints(value: object, path: Path, found: Findings) -> Rules | None:
    """Read constraints on nodes; None if there are none, or if a problem was added to `found`."""
    before = len(found.found)
    terms = _Reader(found).read(value, path, negated=False)
    if len(found.found) > before:
        return None
    return Rules(affinity=tuple([NodeTerm((), term) for term in terms])) if () not in terms else None


class _Reader:
    """Turns nested constraints into alternatives, and collects problems."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._hosts_read = 0
        """Names of hosts so far."""

    def read(self, value: object, path: Path, *, negated: bool, depth: int = 0) -> list[Term]:
        """Return the alternatives of a constraint, or of its opposite."""
        if value == {}:
            return [()]
        if not isinstance(value, dict) or len(value) != 1 or depth > MOST_DEPTH:
            known = ", ".join(OPERATORS)
            self._found.add(path, f"{shown(value)} is not a constraint; write exactly one of {known}")
            return [()]
        ((operator, values),) = value.items()
        path = (*path, str(operator))
        if operator not in OPERATORS:
            told = f"is not supported; write one of {', '.join(OPERATORS)}"
            self._found.add(path, told)
            return [()]
        if not isinstance(values, list) or not values:
            self._found.add(path, "must be a list with at least one entry")
            return [()]
        each: list[list[Term]]
        match operator:
            case "properties":
                each = [
                    [(self._property(word, (*path, at), negated=negated),)] for at, word in enumerate(values)
                ]
            case "hostlist":
                hosts = tuple(sorted(dict.fromkeys(self._hosts(values, path))))
                return [(Requirement(NODE_NAME, "NotIn" if negated else "In", hosts),)]
            case _:
                negated ^= operator == "not"
                each = [
                    self.read(one, (*path, at), negated=negated, depth=depth + 1)
                    for at, one in enumerate(values)
                ]
        return self._combined(each, path, alternatives=(operator == "or") != negated)

    def _combined(self, each: Sequence[list[Term]], path: Path, *, alternatives: bool) -> list[Term]:
        """Return the terms of which one must hold if one, or all, of these must hold."""
        sizes = [len(one) for one in each]
        if (sum(sizes) if alternatives else prod(sizes)) > MOST_TERMS:
            self._found.add(path, f"has more than {MOST_TERMS} alternatives when written out; write fewer")
            return [()]
        terms = chain(*each) if alternatives else [_joined(parts) for parts in product(*each)]
        return list(dict.fromkeys(terms))

    def _property(self, word: object, path: Path, *, negated: bool) -> Requirement:
        """Read one property; `^` before it means that a node must not have it."""
        text = word if isinstance(word, str) else ""
        name = text.removeprefix("^")
        if not _WORD.fullmatch(name):
            self._found.add(
                path, f"{shown(word)} is not a property; write 1 to 100 letters, digits or : . _ / = -"
            )
        lacks = (name != text) != negated
        return Requirement(PROPERTY, "NotIn" if lacks else "In", (name,))

    def _hosts(self, values: Sequence[Any], path: Path) -> Iterator[str]:
        """Yield the names of a list of hosts."""
        for at, text in enumerate(values):
            short = isinstance(text, str) and len(text) <= MOST_TEXT and text.count("[") <= MOST_BRACKETS
            for host in _expand(text) if short else [""]:
                self._hosts_read += 1
                if self._hosts_read > MOST_HOSTS:
                    self._found.add(path, f"names more than {MOST_HOSTS:,} hosts; use a property instead")
                    return
                if not _HOST.fullmatch(host):
                    told = f"{shown(text)} is not a list of hosts; write names such as n1 or n[1-4,7]"
                    self._found.add((*path, at), told)
                    break
                yield host


def _expand(text: str) -> Iterator[str]:
    """Yield the names that a list such as `n[1-3],login` stands for; an empty name where it makes no sense."""
    for part in re.split(r",(?![^\[]*\])", text):
        brackets = _BRACKETS.search(part)
        if brackets is None:
            yield part
            continue
        before, after = part[: brackets.start()], part[brackets.end() :]
        for span in brackets.group(1).split(","):
            ends = _SPAN.fullmatch(span)
            if ends is None or (ends[2] is not None and int(ends[2]) < int(ends[1])):
                yield ""
                return
            for number in range(int(ends[1]), int(ends[2] or ends[1]) + 1):
                yield from _expand(f"{before}{number:0{len(ends[1])}}{after}")


def _joined(parts: Iterable[Term]) -> Term:
    """Return one term in which all of these hold."""
    return tuple(dict.fromkeys([each for part in parts for each in part]))


def constraints_doc(rules: Rules) -> dict[str, Any]:
    """Return rules for nodes as a user would write them."""
    terms = [_all_of([_written(each) for each in term.fields]) for term in rules.affinity or ()]
    return terms[0] if len(terms) == 1 else {"or": terms}


def _all_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {"and": parts}


def _written(wanted: Requirement) -> dict[str, Any]:
    """Return one requirement as a constraint."""
    lacks = wanted.operator == "NotIn"
    if wanted.key == PROPERTY:
        return {"properties": [f"^{wanted.values[0]}" if lacks else wanted.values[0]]}
    hosts = {"hostlist": list(wanted.values)}
    return {"not": [hosts]} if lacks else hosts
