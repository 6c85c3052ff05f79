"""Reads a jobspec of Flux, version 1 (its RFCs 14 and 25), as one of our jobs.

A slot becomes a task. Nodes above slots become `spread` over nodes, an exclusive node becomes `exclusive`, and a socket above
or in a slot becomes `pin`. The
result is a job file, so everything else is checked like one.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from spillover.forms.jobs.constraints import read_constraints
from spillover.forms.jobs.meaning import JobForm, understand
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import MOST_TIME
from spillover.model.units import SECOND
from spillover.wire.jobfile import Metadata, SpecDoc

VERSION: Final = 1
MOST_TASKS: Final = 100_000
_TOP: Final = ("version", "resources", "tasks", "attributes")
_RESOURCE: Final = ("type", "count", "with", "exclusive", "label", "unit")


def understand_jobspec(value: object, found: Findings, directory: str | None = None) -> JobForm | None:
    """Convert a jobspec to a job; None if a problem was added to `found`."""
    before = len(found.found)
    reader = _Reader(found)
    spec, meta = reader.read(value if isinstance(value, Mapping) else {})
    if len(found.found) > before:
        return None
    try:
        doc, named = msgspec.convert(spec, SpecDoc), msgspec.convert(meta, Metadata)
    except msgspec.ValidationError as error:
        found.add((), str(error))
        return None
    return understand(named, doc, found, directory)


class _Reader:
    """Reads the parts of one jobspec, and collects its problems."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._nodes: int | None = None
        """Number of nodes; None if it asks for slots anywhere."""
        self._exclusive = False
        self._pin = ""
        """The part of a node that holds each slot; empty is any."""
        self._label: object = None
        """The label of the slot; None if it has none."""

    def read(self, value: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the spec and the metadata of the job file."""
        for name in value:
            if name not in _TOP:
                self._found.add((str(name),), f"is not part of a jobspec; known: {', '.join(_TOP)}")
        version = value.get("version")
        if version != VERSION or isinstance(version, bool):
            told = "is missing" if version is None else f"{shown(version)} is not known"
            self._found.add(("version",), f"{told}; write version: {VERSION}")
        slots, each = self._resources(value.get("resources"))
        spec: dict[str, Any] = {"tasks": slots, "resources": each}
        if self._nodes is not None and slots > 1:
            spec["spread"] = {"over": "node", "most": slots // self._nodes, "exact": True}
        if self._exclusive:
            spec["exclusive"] = "node"
        if self._pin:
            spec["pin"] = self._pin
        spec |= self._command(value.get("tasks"), slots)
        more, meta = self._attributes(value.get("attributes"))
        return spec | more, meta

    def _resources(self, value: object) -> tuple[int, dict[str, Any]]:
        """Return the number of slots and what each has."""
        path: Path = ("resources",)
        vertex = self._only(value, path)
        if vertex is None:
            return 1, {}
        path = (*path, 0)
        if vertex.get("type") == "node":
            self._nodes = self._count(vertex, path)
            self._exclusive = self._flag(vertex, path)
            path = (*path, "with")
            inner = self._only(vertex.get("with"), path)
            if inner is None:
                return 1, {}
            vertex, path = inner, (*path, 0)
        sockets = 1
        if vertex.get("type") == "socket":
            sockets, self._pin = self._count(vertex, path), "socket"
            path = (*path, "with")
            inner = self._only(vertex.get("with"), path)
            if inner is None:
                return 1, {}
            vertex, path = inner, (*path, 0)
        if vertex.get("type") != "slot":
            told = f"{shown(vertex.get('type'))} is not supported here; write a slot, or a node or socket with one"
            self._found.add((*path, "type"), told)
            return 1, {}
        self._label = vertex.get("label")
        self._exclusive = (self._flag(vertex, path) and self._nodes is not None) or self._exclusive
        slots = self._count(vertex, path) * sockets * (self._nodes or 1)
        if slots > MOST_TASKS:
            self._found.add((*path, "count"), f"{slots} slots are too many; the maximum is {MOST_TASKS}")
        return slots, self._slot(vertex.get("with"), (*path, "with"))

    def _slot(self, value: object, path: Path) -> dict[str, Any]:
        """Return what one slot has, as resources of a task."""
        each: dict[str, Any] = {"cpu": 0}
        parts = value if isinstance(value, list) else []
        if len(parts) == 1 and isinstance(parts[0], Mapping) and parts[0].get("type") == "socket":
            here: Path = (*path, 0)
            self._check_fields(parts[0], here)
            if self._count(parts[0], here) > 1:
                self._found.add((*here, "count"), "is not supported: a slot is in one socket; write 1")
            self._pin = "socket"
            return self._slot(parts[0].get("with"), (*here, "with"))
        if not parts:
            self._found.add(path, "is empty; list what a slot has, such as a core")
        for at, part in enumerate(parts):
            here = (*path, at)
            if not isinstance(part, Mapping):
                self._found.add(here, f"{shown(part)} is not a resource; write type and count")
                continue
            self._check_fields(part, here)
            count = self._count(part, here)
            match part.get("type"):
                case "core":
                    each["cpu"] += count
                case "gpu":
                    each["gpu"] = each.get("gpu", 0) + count
                case "memory":
                    each["memory"] = f"{count}{_unit(part)}"
                case other:
                    told = f"{shown(other)} is not supported in a slot; write core, gpu or memory"
                    self._found.add((*here, "type"), told)
            if part.get("with"):
                self._found.add((*here, "with"), "is not supported inside a slot's resources; remove it")
        if not each["cpu"] and not each.get("gpu"):
            each["cpu"] = 1
        return each

    def _only(self, value: object, path: Path) -> Mapping[str, Any] | None:
        """Return the only resource of a list; add a problem if there is none, or more than one."""
        if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], Mapping):
            self._found.add(path, "must be a list of exactly one resource: a node or a slot")
            return None
        self._check_fields(value[0], (*path, 0))
        return value[0]

    def _check_fields(self, vertex: Mapping[str, Any], path: Path) -> None:
        for name in vertex:
            if name not in _RESOURCE:
                told = f"is not part of a resource; known: {', '.join(_RESOURCE)}"
                self._found.add((*path, str(name)), told)

    def _count(self, vertex: Mapping[str, Any], path: Path) -> int:
        """Return a count of 1 or more. Version 1 has no ranges."""
        count = vertex.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_TASKS:
            told = f"{shown(count)} is not a count; write a whole number from 1 to {MOST_TASKS}"
            self._found.add((*path, "count"), told)
            return 1
        return count

    def _flag(self, vertex: Mapping[str, Any], path: Path) -> bool:
        flag = vertex.get("exclusive", False)
        if not isinstance(flag, bool):
            self._found.add((*path, "exclusive"), f"{shown(flag)} is not true or false")
        return flag is True

    def _command(self, value: object, slots: int) -> dict[str, Any]:
        """Return the work of the job."""
        path: Path = ("tasks",)
        if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], Mapping):
            self._found.add(path, "must be a list of exactly one task")
            return {}
        task, path = value[0], (*path, 0)
        command, count = task.get("command"), task.get("count", {"per_slot": 1})
        words = [command] if isinstance(command, str) else command
        if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
            self._found.add((*path, "command"), "is not a command; write a list of words")
            return {}
        slot = task.get("slot", self._label)
        if self._label is not None and slot != self._label:
            told = f"there is no slot {shown(slot)}; write the label of the slot, {shown(self._label)}"
            self._found.add((*path, "slot"), told)
        if count not in ({"per_slot": 1}, {"total": slots}):
            self._found.add((*path, "count"), "is not supported: each slot runs one task; write per_slot: 1")
        return {"command": words}

    def _attributes(self, value: object) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return fields of the spec and of the metadata from `attributes.system`; other attributes are for others."""
        system = value.get("system", {}) if isinstance(value, Mapping) else None
        if not isinstance(system, Mapping):
            self._found.add(("attributes",), "must be a mapping with system")
            return {}, {}
        spec: dict[str, Any] = {}
        meta: dict[str, Any] = {}
        path: Path = ("attributes", "system")
        duration = system.get("duration", 0)
        if (
            isinstance(duration, bool)
            or not isinstance(duration, int | float)
            or not 0 <= duration <= MOST_TIME / SECOND
        ):
            self._found.add(
                (*path, "duration"), f"{shown(duration)} is not a number of seconds; write 0 or more"
            )
        elif duration:
            spec["walltime"] = f"{round(duration * 1000)}ms"
        if (folder := system.get("cwd")) is not None:
            spec["workdir"] = folder
        if (variables := system.get("environment")) is not None:
            spec["env"] = variables
        if (queue := system.get("queue")) is not None:
            spec["queue"] = queue
        job = system.get("job")
        if isinstance(job, Mapping) and job.get("name") is not None:
            meta["name"] = job["name"]
        asked = system.get("constraints", {})
        if read_constraints(asked, (*path, "constraints"), self._found) is not None:
            spec["constraints"] = asked
        return spec, meta


def _unit(part: Mapping[str, Any]) -> str:
    """Return the unit of an amount of memory as a job file writes it; bytes if there is none."""
    return str(part.get("unit") or "").removesuffix("B")
