"""Reads the columns of a trace that say where the tasks of a job must be: in one rack, on whole nodes, on own cores."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from spillover.forms.problems import BadForm, FormProblem, shown
from spillover.model.ids import NAME_RULE, is_name
from spillover.model.topology import NODE, Topology
from spillover.sim.setting import Fleet
from spillover.sim.trace import TraceJob
from spillover.sim.traces.rows import Wrong

PREFER: Final = "prefer:"
"""Prefix of a level that is a wish."""
PINS: Final = ("core", "numa", "socket")
COLUMNS: Final = ("within", "spread", "exclusive", "pin", "gpu_link")


class Places:
    """The columns of one table that say where tasks must be."""

    def __init__(self, at: Mapping[str, int]) -> None:
        self._columns = tuple([(name, at[name]) for name in COLUMNS if name in at])
        self.given = bool(self._columns)
        """Whether the table has such columns."""
        self._known: dict[tuple[str, ...], Topology | None] = {}

    def of(self, row: Sequence[str]) -> Topology | None:
        """Return where the tasks of a job must be; None is anywhere. Raise Wrong if a value is not valid."""
        values = tuple([row[position].strip() for _, position in self._columns])
        if values not in self._known:
            found = Topology()
            for (name, _), text in zip(self._columns, values, strict=True):
                found = _with(found, name, text) if text else found
            self._known[values] = None if found == Topology() else found
        return self._known[values]

    def problems(self, row: Sequence[str]) -> list[tuple[str, str]]:
        """Return all problems with these columns of a row."""
        found: list[tuple[str, str]] = []
        for name, position in self._columns:
            try:
                _with(Topology(), name, row[position].strip())
            except Wrong as error:
                found.append((name, str(error)))
        return found


def _with(topology: Topology, name: str, text: str) -> Topology:
    """Return a topology with the value of one column."""
    match name:
        case "within":
            level = text.removeprefix(PREFER)
            return replace(topology, within=_name(level), preferred=level != text)
        case "spread":
            return replace(topology, spread=_name(text))
        case "exclusive":
            if text not in {"", NODE}:
                raise Wrong(f"{shown(text)} is not valid; write {NODE}, or leave it blank")
            return replace(topology, exclusive=bool(text))
        case "pin":
            if text not in {"", *PINS}:
                raise Wrong(f"{shown(text)} is not valid; write {', '.join(PINS)}, or leave it blank")
            return replace(topology, pin=text)
        case _:
            return replace(topology, link=_name(text))


def _name(text: str) -> str:
    if text and not is_name(text):
        raise Wrong(f"{shown(text)} is not a name: {NAME_RULE}")
    return text


def bound_to_nodes(topology: Topology) -> bool:
    """Return whether a job cares which nodes it gets, so that it cannot run on simulated rented capacity."""
    return bool(topology.spread or topology.exclusive or topology.asks_inside)


def check_levels(source: str, jobs: Sequence[TraceJob], fleet: Fleet) -> None:
    """Raise BadForm if a job names a level that the machines do not have."""
    known = (*[level.name for level in fleet.levels], NODE)
    problems: dict[tuple[str, str], str] = {}
    for job in jobs:
        if (topology := job.topology) is None:
            continue
        for column, level in (("within", topology.within), ("spread", topology.spread)):
            if level and level not in known:
                problems.setdefault((column, level), job.id)
    advice = f"--owned has {', '.join(known)}" + (
        "" if fleet.machines else "; for others, give a graph (--owned cluster.json)"
    )
    found = [
        FormProblem(source, None, column, f"there is no level {shown(level)} (first in job {job}); {advice}")
        for (column, level), job in problems.items()
    ]
    if found:
        raise BadForm(found)
