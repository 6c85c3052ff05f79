"""Reads how many tasks a job has: a number, a range, or groups of unlike tasks."""

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from spillover.forms.jobs.where import check_inside
from spillover.forms.jobs.work import check_env, work_of
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, read_cpu, read_memory, read_other
from spillover.model.admission import GROUPS, PIN
from spillover.model.job import Argv, GroupWork, PythonCall, Shape, Shell, TaskGroup, Work, largest_first
from spillover.model.resources import Resources
from spillover.wire.jobfile import GroupDoc, ResourcesDoc, SpecDoc

MOST_TASKS: Final = 100_000
"""Most tasks of one job."""
_RANGE: Final = re.compile(r"([0-9]{1,9})\.\.([0-9]{1,9})", re.ASCII)


class Grouped(Struct, frozen=True):
    """The groups of a job, as far as they are valid."""

    groups: tuple[TaskGroup, ...]
    works: tuple[GroupWork, ...]
    """By position in `groups`."""
    needs: tuple[str, ...]
    """Words that a machine must offer because of what groups run."""

    def shaped(self, shape: Shape) -> Shape:
        """Add the groups to the shape of a job."""
        first = min([group.resources for group in self.groups], key=largest_first, default=shape.resources)
        tasks = sum(group.tasks for group in self.groups)
        inside = [PIN] if any(group.pin or group.link for group in self.groups) else []
        runs = tuple(sorted({*shape.runs, *_runs_of([one.work for one in self.works]), *inside, GROUPS}))
        return replace(shape, resources=first, tasks=tasks, groups=self.groups, runs=runs)


def read_tasks(doc: SpecDoc, found: Findings) -> tuple[int, int]:
    """Return the least number of tasks, and the most if it is a range; otherwise 0."""
    if isinstance(doc.tasks, int):
        return doc.tasks, 0
    path = ("spec", "tasks")
    match = _RANGE.fullmatch(doc.tasks.strip())
    if match is None:
        found.add(path, f"{shown(doc.tasks)} is not a number of tasks; write 4, or a range such as 2..8")
        return 1, 0
    least, most = int(match[1]), int(match[2])
    if not 1 <= least <= most <= MOST_TASKS:
        told = f"write the smaller number first, such as 2..8, and numbers from 1 to {MOST_TASKS}"
        found.add(path, f"{shown(doc.tasks)} is not a range of tasks; {told}")
        return 1, 0
    return least, most if most > least else 0


def read_resources(asked: ResourcesDoc, path: Path, found: Findings) -> Resources:
    """Return the resources of one task."""
    cpu = read_cpu(asked.cpu, (*path, "cpu"), found, 0 if asked.gpu else 1)
    memory = 0 if asked.memory is None else read_memory(asked.memory, (*path, "memory"), found)
    other = read_other(asked.other, (*path, "other"), found) if asked.other else ()
    return Resources(cpu or 0, memory or 0, asked.gpu, other)


def read_groups(doc: SpecDoc, found: Findings) -> Grouped:
    """Read the groups of a job."""
    groups: list[TaskGroup] = []
    works: list[GroupWork] = []
    needs: dict[str, None] = {}
    seen: dict[str, None] = {}
    _check_alone(doc, found)
    for at, group in enumerate(doc.groups or ()):
        path: Path = ("spec", "groups", at)
        check_name(group.name, (*path, "name"), found)
        if group.name in seen:
            found.add((*path, "name"), f"{shown(group.name)} is the name of another group; write another one")
        seen[group.name] = None
        work, implied = work_of(group, found, path)
        if group.container is not None and group.container.manifest is not None:
            found.add((*path, "container", "manifest"), "is only allowed for a whole job; remove it")
        check_env(group.env, found, (*path, "env"))
        each = read_resources(group.resources, (*path, "resources"), found)
        pin, link = _read_inside(doc, group, each, path, found)
        groups.append(TaskGroup(group.name, group.tasks, each, pin, link))
        if work is not None:
            works.append(GroupWork(work, group.env))
        needs |= dict.fromkeys(implied)
    if sum(group.tasks for group in groups) > MOST_TASKS:
        found.add(("spec", "groups"), f"have more than {MOST_TASKS} tasks together; write fewer")
    return Grouped(tuple(groups), tuple(works), tuple(sorted(needs)))


def _read_inside(
    doc: SpecDoc, group: GroupDoc, asked: Resources, path: Path, found: Findings
) -> tuple[str, str]:
    """Return what the tasks of a group ask for inside of machines: what the group says, or the job for all groups."""
    for field, of_all, own in (("pin", doc.pin, group.pin), ("gpu_link", doc.gpu_link, group.gpu_link)):
        if of_all is not None and own is not None:
            found.add((*path, field), "is also set for the whole job; keep one of the two")
    if group.gpu_link is not None:
        check_name(group.gpu_link, (*path, "gpu_link"), found)
    check_inside(group.pin or "", group.gpu_link or "", asked, path, found)
    check_inside(doc.pin or "", doc.gpu_link or "", asked, ("spec",), found, group.name)
    return group.pin or doc.pin or "", group.gpu_link or doc.gpu_link or ""


def _check_alone(doc: SpecDoc, found: Findings) -> None:
    """Add a problem for everything that groups say instead of the job."""
    if not doc.groups:
        found.add(("spec", "groups"), "is empty; add a group, or remove it")
    instead = {
        "run": doc.run,
        "command": doc.command,
        "python": doc.python,
        "container": doc.container,
        "tasks": None if doc.tasks == 1 else doc.tasks,
        "resources": None if doc.resources == ResourcesDoc() else doc.resources,
    }
    for name, value in instead.items():
        if value is not None:
            found.add(("spec", name), f"is not allowed with `groups`; write `{name}` in each group")
    if doc.array is not None:
        found.add(("spec", "array"), "is not allowed with `groups`; submit one job for each")


def _runs_of(works: list[Work]) -> list[str]:
    """Return what a cluster must be able to run."""
    found = []
    if any(isinstance(work, Shell | Argv) for work in works):
        found.append("command")
    if any(isinstance(work, PythonCall) for work in works):
        found.append("python")
    return found
