"""Job files with several tasks: a number, a range, or groups of unlike tasks."""

from typing import Any

import pytest

from spillover.forms.jobs.reading import JobForm, read_job
from spillover.forms.jobs.writing import to_doc
from spillover.forms.problems import BadForm
from spillover.model.job import Argv, Container, GroupWork, PythonCall, Shell, TaskGroup
from spillover.model.resources import Resources
from spillover.model.topology import Topology

LEADER = {"name": "leader", "run": "lead"}
WORKER = {
    "name": "worker",
    "tasks": 4,
    "resources": {"cpu": 2, "gpu": 1},
    "command": ["work"],
    "env": {"A": "1"},
}


def document(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": spec}


def read(**spec: Any) -> JobForm:
    return read_job(document(**spec))


def problems(**spec: Any) -> list[str]:
    """What is wrong with a job file, one line each."""
    with pytest.raises(BadForm) as refused:
        read(**spec)
    return [f"{problem.path}: {problem.message}" for problem in refused.value.problems]


def test_groups_have_tasks_resources_and_work_of_their_own() -> None:
    spec = read(groups=[LEADER, WORKER], env={"B": "2"}).spec
    assert spec.shape.groups == (
        TaskGroup("leader", 1, Resources(1000)),
        TaskGroup("worker", 4, Resources(2000, 0, 1)),
    )
    assert spec.groups == (GroupWork(Shell("lead")), GroupWork(Argv(("work",)), {"A": "1"}))
    assert (spec.shape.tasks, spec.shape.resources, spec.work) == (5, Resources(2000, 0, 1), Shell("lead"))
    assert (spec.name, spec.env, spec.shape.runs) == ("lead", {"B": "2"}, ("command", "groups"))


def test_groups_ask_for_cores_and_links_of_their_own() -> None:
    linked = {**WORKER, "resources": {"cpu": 2, "gpu": 2}, "pin": "socket", "gpu_link": "nvlink"}
    shape = read(groups=[LEADER, linked]).spec.shape
    assert [(group.pin, group.link) for group in shape.groups] == [("", ""), ("socket", "nvlink")]
    assert shape.topology is None
    assert "pin" in shape.runs, "only agents can do it"
    assert [part.topology for _, part in shape.parts] == [Topology(pin="socket", link="nvlink"), None]


def test_a_pin_of_the_job_holds_for_all_groups() -> None:
    shape = read(groups=[LEADER, WORKER], pin="core", within="rack").spec.shape
    assert [group.pin for group in shape.groups] == ["core", "core"]
    assert shape.topology == Topology(within="rack")
    assert {part.topology for _, part in shape.parts} == {Topology(within="rack", pin="core")}


def test_a_job_needs_what_any_of_its_groups_runs() -> None:
    call = {"name": "call", "python": {"call": "os:getpid"}}
    image = {"name": "image", "container": {"image": "busybox"}}
    spec = read(groups=[call, image], needs=["ssd"]).spec
    assert spec.shape.needs == ("container", "python", "ssd")
    assert spec.shape.runs == ("groups", "python")
    assert [type(group.work) for group in spec.groups] == [PythonCall, Container]


@pytest.mark.parametrize(
    "spec",
    [
        {"groups": [LEADER, WORKER], "within": "rack", "on_task_success": "end"},
        {"groups": [{"name": "call", "python": {"call": "os:getpid"}}, WORKER], "inputs": []},
        {"groups": [LEADER, {**WORKER, "pin": "socket"}], "exclusive": "node"},
        {"groups": [LEADER, {**WORKER, "resources": {"cpu": 2, "gpu": 2}, "gpu_link": "nvlink"}]},
        {"run": "x", "tasks": "2..8"},
        {"run": "x", "tasks": "1..2", "spread": "node"},
    ],
)
def test_a_job_reads_the_same_after_it_was_written(spec: dict[str, Any]) -> None:
    once = read(**spec)
    assert read_job(to_doc(once)).spec == once.spec


def test_a_range_is_the_least_and_the_most_number_of_tasks() -> None:
    def sizes(tasks: int | str) -> tuple[int, int]:
        shape = read(run="x", tasks=tasks).spec.shape
        return shape.tasks, shape.most

    assert sizes("2..8") == (2, 8)
    assert sizes("1..2") == (1, 2)
    assert sizes("4..4") == sizes(4) == (4, 0)


@pytest.mark.parametrize("tasks", ["8..2", "0..4", "1..100001"])
def test_a_range_that_is_none_is_refused(tasks: str) -> None:
    told = "write the smaller number first, such as 2..8, and numbers from 1 to 100000"
    assert problems(run="x", tasks=tasks) == [f"spec.tasks: '{tasks}' is not a range of tasks; {told}"]


@pytest.mark.parametrize("tasks", ["4", "2-8", "..8", "2..", "many", "-1..4", "2...8"])
def test_text_that_is_no_range_is_refused(tasks: str) -> None:
    told = f"spec.tasks: '{tasks}' is not a number of tasks; write 4, or a range such as 2..8"
    assert problems(run="x", tasks=tasks) == [told]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"groups": []}, ["spec.groups: is empty; add a group, or remove it"]),
        (
            {"groups": [LEADER, LEADER]},
            ["spec.groups[1].name: 'leader' is the name of another group; write another one"],
        ),
        (
            {"groups": [{"name": "idle"}]},
            ["spec.groups[0]: has nothing to run; add `run`, `command`, `python` or `container`"],
        ),
        (
            {"groups": [{**LEADER, "command": ["x"]}]},
            ["spec.groups[0].command: `run` and `command` exclude each other; keep one"],
        ),
        ({"groups": [{**LEADER, "tasks": 0}]}, ["spec.groups[0].tasks: 0 is too small; the minimum is 1"]),
        ({"groups": [{**LEADER, "tasks": -3}]}, ["spec.groups[0].tasks: -3 is too small; the minimum is 1"]),
        (
            {"groups": [{**LEADER, "resources": {"cpu": -1}}]},
            ["spec.groups[0].resources.cpu: -1 is not a number of CPUs; write 2, 1.5 or 500m"],
        ),
        (
            {"groups": [{**LEADER, "env": {"A=": ""}}]},
            [
                "spec.groups[0].env['A=']: 'A=' is not a valid variable name; write it without `=` and spaces",
            ],
        ),
        (
            {"groups": [{**LEADER, "resources": {"cpu": 1.5}, "pin": "core"}]},
            ["spec.groups[0].pin: needs whole CPUs, and a task requests 1.5; request 1 or more"],
        ),
        (
            {"groups": [LEADER, {**WORKER, "gpu_link": "nvlink"}]},
            [
                "spec.groups[1].gpu_link: needs at least 2 GPUs, and a task requests 1; request more, or remove it",
            ],
        ),
        (
            {"groups": [LEADER, {**WORKER, "resources": {"gpu": 2}}], "gpu_link": "nvlink"},
            [
                (
                    "spec.gpu_link: needs at least 2 GPUs in each group, and a task of 'leader' requests 0; "
                    "write `gpu_link` in the groups that have them"
                ),
            ],
        ),
        (
            {"groups": [{**LEADER, "resources": {"cpu": 0.5}}, WORKER], "pin": "core"},
            [
                (
                    "spec.pin: needs whole CPUs in each group, and a task of 'leader' requests 0.5; "
                    "write `pin` in the groups that have them"
                ),
            ],
        ),
        (
            {"groups": [LEADER, {**WORKER, "pin": "core"}], "pin": "socket"},
            ["spec.groups[1].pin: is also set for the whole job; keep one of the two"],
        ),
        (
            {"groups": [{**LEADER, "pin": "rack"}]},
            ["spec.groups[0].pin: 'rack' must be core, numa or socket"],
        ),
        (
            {"groups": [LEADER], "run": "x", "tasks": 3, "resources": {"cpu": 2}, "array": "1-3"},
            [
                "spec.run: is not allowed with `groups`; write `run` in each group",
                "spec.tasks: is not allowed with `groups`; write `tasks` in each group",
                "spec.resources: is not allowed with `groups`; write `resources` in each group",
                "spec.array: is not allowed with `groups`; submit one job for each",
            ],
        ),
        (
            {"groups": [{**LEADER, "tasks": 60_000}, {**WORKER, "tasks": 60_000}]},
            ["spec.groups: have more than 100000 tasks together; write fewer"],
        ),
        (
            {"groups": [LEADER, WORKER], "within": "node", "exclusive": "node"},
            ["spec.exclusive: is not possible for `groups` within one node; remove one of the two"],
        ),
        (
            {"run": "x", "tasks": "2..8", "spread": {"over": "node", "most": 2, "exact": True}},
            ["spec.spread.exact: needs a fixed number of tasks that are alike; remove it"],
        ),
        (
            {"groups": [{**LEADER, "container": {"image": "x", "manifest": {}}, "run": None}]},
            ["spec.groups[0].container.manifest: is only allowed for a whole job; remove it"],
        ),
    ],
)
def test_groups_that_make_no_sense_are_refused(spec: dict[str, Any], told: list[str]) -> None:
    assert problems(**spec) == told


def test_groups_may_say_where_their_tasks_are_together() -> None:
    topology = read(groups=[LEADER, WORKER], within="rack", spread="node").spec.shape.topology
    assert topology == Topology("rack", spread="node")


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"run": "x", "tasks": 2}, "restart needs `retry.exit`, the number of restarts; set it to 1 or more"),
        (
            {"groups": [LEADER, {"name": "call", "python": {"call": "os:getpid"}}], "retry": {"exit": 1}},
            "restart works with `run` and `command` only",
        ),
        (
            {"run": "x", "retry": {"exit": 1}},
            "is for jobs with several tasks; set `tasks`, or remove it",
        ),
    ],
)
def test_tasks_start_again_only_where_they_can(spec: dict[str, Any], told: str) -> None:
    assert problems(**spec, on_task_failure="restart") == [f"spec.on_task_failure: {told}"]
