"""A jobspec of Flux as a job form."""

from copy import deepcopy
from typing import Any

import pytest

from spillover.forms.jobs.reading import BadForm, read_job, read_jobs, to_doc
from spillover.model.job import Argv
from spillover.model.resources import Resources
from spillover.model.topology import Topology
from spillover.model.units import SECOND

SPEC: dict[str, Any] = {
    "version": 1,
    "resources": [
        {
            "type": "node",
            "count": 4,
            "exclusive": True,
            "with": [
                {
                    "type": "slot",
                    "count": 2,
                    "label": "default",
                    "with": [{"type": "core", "count": 8}, {"type": "gpu", "count": 1}],
                }
            ],
        }
    ],
    "tasks": [{"command": ["train", "--fast"], "slot": "default", "count": {"per_slot": 1}}],
    "attributes": {
        "system": {"duration": 90.5, "cwd": "/work", "environment": {"A": "1"}, "job": {"name": "fit"}}
    },
}


def changed(*path: str | int, value: object) -> dict[str, Any]:
    """The same jobspec with one field changed."""
    spec = deepcopy(SPEC)
    at: Any = spec
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value
    return spec


def test_a_jobspec_is_a_gang_with_a_task_for_each_slot() -> None:
    form = read_job(SPEC)
    spec = form.spec
    assert spec.work == Argv(("train", "--fast"))
    assert (spec.name, spec.workdir, spec.env) == ("fit", "/work", {"A": "1"})
    assert (spec.shape.tasks, spec.shape.resources) == (8, Resources(8000, 0, 1))
    assert spec.shape.topology == Topology(spread="node", most=2, exact=True, exclusive=True)
    assert spec.terms.walltime == 181 * SECOND // 2
    assert read_job(to_doc(form)) == form


def test_a_socket_above_or_in_a_slot_gives_each_task_cores_of_one_socket() -> None:
    slot = {
        "type": "slot",
        "count": 2,
        "label": "default",
        "with": [{"type": "core", "count": 8}, {"type": "gpu"}],
    }
    above = [{"type": "node", "count": 2, "with": [{"type": "socket", "count": 2, "with": [slot]}]}]
    shape = read_job(changed("resources", value=above)).spec.shape
    assert (shape.tasks, shape.resources) == (8, Resources(8000, 0, 1))
    assert shape.topology == Topology(spread="node", most=4, exact=True, pin="socket")
    cores = {"type": "socket", "count": 1, "with": [{"type": "core", "count": 4}]}
    within = [{"type": "slot", "count": 1, "label": "default", "with": [cores]}]
    shape = read_job(changed("resources", value=within)).spec.shape
    assert (shape.resources, shape.topology) == (Resources(4000), Topology(pin="socket"))
    two = [{"type": "slot", "count": 1, "label": "default", "with": [cores | {"count": 2}]}]
    with pytest.raises(BadForm, match="a slot is in one socket; write 1"):
        read_job(changed("resources", value=two))


def test_constraints_of_a_jobspec_select_nodes() -> None:
    asked = {"and": [{"properties": ["ssd"]}, {"not": [{"hostlist": ["n[1-2]"]}]}]}
    form = read_job(changed("attributes", "system", "constraints", value=asked))
    assert to_doc(form)["spec"]["constraints"] == {
        "and": [{"properties": ["ssd"]}, {"not": [{"hostlist": ["n1", "n2"]}]}]
    }
    with pytest.raises(BadForm, match=r"attributes.system.constraints.ranks: is not supported"):
        read_job(changed("attributes", "system", "constraints", value={"ranks": ["0"]}))


def test_a_task_for_each_slot_may_be_counted_in_total() -> None:
    assert read_job(changed("tasks", 0, "count", value={"total": 8})) == read_job(SPEC)


def test_slots_without_nodes_may_be_anywhere() -> None:
    slot = {"type": "slot", "count": 3, "with": [{"type": "core", "count": 2}]}
    form = read_job(changed("resources", value=[slot]))
    assert (form.spec.shape.tasks, form.spec.shape.resources, form.spec.shape.topology) == (
        3,
        Resources(2000),
        None,
    )


def test_a_jobspec_may_be_a_yaml_file() -> None:
    text = (
        "version: 1\nresources: [{type: slot, count: 1, with: [{type: core, count: 1}]}]\n"
        "tasks: [{command: [hostname], slot: default, count: {per_slot: 1}}]\nattributes: {system: {duration: 0}}\n"
    )
    [form] = read_jobs(text, "job.yaml")
    assert form.spec.name == "hostname"


NODE = ("resources", 0)
SLOT = (*NODE, "with", 0)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("version",), 9, "version: 9 is not known; write version: 1"),
        (("version",), None, "version: is missing; write version: 1"),
        (
            ("tasks", 0, "slot"),
            "other",
            "tasks[0].slot: there is no slot 'other'; write the label of the slot, 'default'",
        ),
        (
            (*NODE, "count"),
            -4,
            "resources[0].count: -4 is not a count; write a whole number from 1 to 100000",
        ),
        ((*SLOT, "count"), {"min": 1}, "resources[0].with[0].count: a mapping is not a count"),
        ((*SLOT, "type"), "rack", "resources[0].with[0].type: 'rack' is not supported here; write a slot"),
        ((*SLOT, "with"), [], "resources[0].with[0].with: is empty; list what a slot has, such as a core"),
        (
            (*SLOT, "with", 0, "type"),
            "qubit",
            "resources[0].with[0].with[0].type: 'qubit' is not supported in a slot",
        ),
        (("resources",), [], "resources: must be a list of exactly one resource: a node or a slot"),
        (
            ("tasks", 0, "count"),
            {"total": 3},
            "tasks[0].count: is not supported: each slot runs one task; write per_slot: 1",
        ),
        (("tasks", 0, "command"), [], "tasks[0].command: is not a command; write a list of words"),
        (
            ("attributes", "system", "duration"),
            -1,
            "attributes.system.duration: -1 is not a number of seconds",
        ),
        (("attributes",), None, "attributes: must be a mapping with system"),
        (("extra",), 1, "extra: is not part of a jobspec; known: version, resources, tasks, attributes"),
        ((*NODE, "colour"), 1, "resources[0].colour: is not part of a resource; known: "),
    ],
)
def test_a_bad_jobspec_is_told_in_one_line(path: tuple[str | int, ...], value: object, said: str) -> None:
    with pytest.raises(BadForm) as refused:
        read_job(changed(*path, value=value))
    [line] = str(refused.value).splitlines()
    assert line.startswith(said)
