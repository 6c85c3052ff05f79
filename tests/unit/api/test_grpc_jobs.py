"""The typed job of gRPC beside the job file: no field of one is missing in the other without a reason."""

import re
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from google.protobuf.duration_pb2 import Duration

from spillover.api.grpc.documents import document_of
from spillover.api.grpc.job_changes import CHANGES
from spillover.api.grpc.job_questions import QUESTIONS, _queue
from spillover.forms.jobs.reading import read_job
from spillover.forms.problems import BadForm
from spillover.wire import jobs_pb2 as pb
from spillover.wire.api import QueueAmounts, QueueView
from spillover.wire.api.server import QueueDefaultsView, QueueSizeView
from spillover.wire.endpoints import ENDPOINTS
from spillover.wire.jobfile import (
    AfterDoc,
    ContainerDoc,
    EnvironmentDoc,
    GroupDoc,
    InputDoc,
    Metadata,
    NotifyDoc,
    PythonDoc,
    ResourcesDoc,
    RetryDoc,
    SecretDoc,
    SpecDoc,
    SpreadDoc,
    StdinDoc,
    WhereDoc,
)

DOCS: Final = Path(__file__).parents[3] / "docs"
PICKLED: Final = "the Python client makes it of pickled objects, which no other language has"
FORMS: Final[list[tuple[type, Any, dict[str, str], dict[str, str]]]] = [
    (Metadata, pb.Job, {}, {}),
    (SpecDoc, pb.Job, {}, {}),
    (GroupDoc, pb.Group, {}, {}),
    (ResourcesDoc, pb.Resources, {}, {}),
    (WhereDoc, pb.Where, {}, {}),
    (SpreadDoc, pb.Spread, {}, {}),
    (RetryDoc, pb.Retry, {}, {}),
    (AfterDoc, pb.Dependency, {}, {}),
    (InputDoc, pb.Input, {"as": "to", "from": "from_job"}, {}),
    (StdinDoc, pb.Stdin, {}, {}),
    (SecretDoc, pb.SecretUse, {"as": "variable"}, {}),
    (NotifyDoc, pb.Notify, {}, {}),
    (
        EnvironmentDoc,
        pb.Job,
        {"name": "environment", "requirements": "requirements_file", "text": "requirements"},
        {},
    ),
    (
        ContainerDoc,
        pb.Container,
        {},
        {"manifest": "the server fills it in for a Kubernetes Job, which is a `document`"},
    ),
    (
        PythonDoc,
        pb.PythonCall,
        {},
        dict.fromkeys(["function", "arguments", "items", "first", "values"], PICKLED),
    ),
]
"""Each part of a job file with its message, fields that have another name there, and those that are missing, with the reason."""


@pytest.mark.parametrize(
    ("part", "message", "renamed", "missing"), FORMS, ids=lambda each: getattr(each, "__name__", "")
)
def test_the_typed_job_has_every_field_of_a_job_file(
    part: type, message: Any, renamed: dict[str, str], missing: dict[str, str]
) -> None:
    wanted = {field.encode_name for field in msgspec.structs.fields(part)}
    there = {field.name for field in message.DESCRIPTOR.fields}
    found = {name for name in wanted if renamed.get(name, name) in there}
    assert found | missing.keys() == wanted
    assert not found & missing.keys(), "it is there, so it needs no reason"


def test_every_part_of_a_job_file_is_compared() -> None:
    from spillover.wire import jobfile  # noqa: PLC0415 - all of its names

    known = {name for name, each in vars(jobfile).items() if name.endswith("Doc") and isinstance(each, type)}
    assert known - {part.__name__ for part, *_ in FORMS} == {"JobDoc", "WithinDoc"}


def test_all_fields_say_what_they_say_in_a_job_file() -> None:
    typed = pb.Job(
        name="all",
        container=pb.Container(image="x:1", command=["a", "b"]),
        burst="never",
        max_cost=0,
        data=5 << 30,
        where=pb.Where(role="owned", cluster=["onprem"], avoid=["cloud"], labels={"a": "b"}),
        constraints='{"properties": ["ssd"]}',
        retry=pb.Retry(exit=2, lost=0),
        on_cluster_failure="requeue",
        lost_after=Duration(seconds=600),
        grace=Duration(seconds=20),
        stdin=pb.Stdin(path="in.txt", digest="0" * 64, size=0),
        after=["first"],
        dependencies=[pb.Dependency(job="other", on="any"), pb.Dependency(job="third")],
        resources=pb.Resources(cpu=1, other={"example.com/fpga": 1}),
    )
    document = {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "all"},
        "spec": {
            "container": {"image": "x:1", "command": ["a", "b"]},
            "burst": "never",
            "max_cost": 0,
            "data": "5Gi",
            "where": {"role": "owned", "cluster": "onprem", "avoid": ["cloud"], "labels": {"a": "b"}},
            "constraints": {"properties": ["ssd"]},
            "retry": {"exit": 2, "lost": 0},
            "on_cluster_failure": "requeue",
            "lost_after": "10m",
            "grace": "20s",
            "stdin": {"path": "in.txt", "digest": "0" * 64, "size": 0},
            "after": ["first", {"job": "other", "on": "any"}, "third"],
            "resources": {"cpu": 1, "other": {"example.com/fpga": 1}},
        },
    }
    assert read_job(document_of(pb.NewJob(job=typed))) == read_job(document)


@pytest.mark.parametrize(
    ("typed", "spec"),
    [
        (
            pb.Job(python=pb.PythonCall(call="m:f", args='[1, {"a": 2.5}]'), image="python:3.12"),
            {"python": {"call": "m:f", "args": [1, {"a": 2.5}]}, "environment": {"image": "python:3.12"}},
        ),
        (pb.Job(run="bash", terminal=True), {"run": "bash", "terminal": True}),
        (
            pb.Job(run="x", stdout="x.out", open_mode="append"),
            {"run": "x", "stdout": "x.out", "open_mode": "append"},
        ),
        (
            pb.Job(run="x", requirements="numpy\n"),
            {"run": "x", "environment": {"requirements": "requirements.txt", "text": "numpy\n"}},
        ),
        (
            pb.Job(run="x", requirements="lock", requirements_file="pylock.toml"),
            {"run": "x", "environment": {"requirements": "pylock.toml", "text": "lock"}},
        ),
        (pb.Job(run="x", environment="ml"), {"run": "x", "environment": {"name": "ml"}}),
        (
            pb.Job(groups=[pb.Group(name="a", tasks=2, container=pb.Container(image="x"))]),
            {"groups": [{"name": "a", "tasks": 2, "container": {"image": "x"}}]},
        ),
    ],
)
def test_fields_that_go_together_say_what_they_say_in_a_job_file(typed: pb.Job, spec: dict[str, Any]) -> None:
    document = {"apiVersion": "spillover/v1", "kind": "Job", "spec": spec}
    assert read_job(document_of(pb.NewJob(job=typed))) == read_job(document)


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (pb.Job(run="x", constraints="{"), "spec.constraints"),
        (pb.Job(python=pb.PythonCall(call="m:f", args="1,")), "spec.python.args"),
        (pb.Job(run="x", burst="often"), "spec.burst"),
        (pb.Job(run="x", max_cost=-1), "spec.max_cost"),
        (pb.Job(run="x", where=pb.Where(role="mine")), "spec.where.role"),
        (pb.Job(run="x", retry=pb.Retry(exit=5000)), "spec.retry.exit"),
        (pb.Job(run="x", dependencies=[pb.Dependency(job="a", on="maybe")]), "spec.after[0]"),
    ],
)
def test_a_field_that_is_wrong_is_named_as_in_a_job_file(typed: pb.Job, path: str) -> None:
    with pytest.raises(BadForm) as bad:
        read_job(document_of(pb.NewJob(job=typed)))
    assert bad.value.problems[0].path.startswith(path)


def test_a_queue_is_told_with_its_limits() -> None:
    limits = QueueAmounts(5, 2.5, None, 0, None)
    view = QueueView(
        *("night", "slow", False, 1, 2, limits, limits, limits, 60.0),
        *(
            QueueSizeView(None, None, None, None),
            3,
            ["vision"],
            [],
            ["onprem"],
            QueueDefaultsView(None, None, None, None, None, 0, "auto", None),
        ),
    )
    queue = _queue(view)
    assert (queue.name, queue.walltime.seconds, list(queue.projects)) == ("night", 60, ["vision"])
    assert (queue.limits.running, queue.limits.HasField("memory"), queue.limits.HasField("gpu")) == (
        5,
        False,
        True,
    )


def test_the_docs_say_what_each_operation_of_http_is_over_grpc() -> None:
    text = (DOCS / "grpc.md").read_text()
    service = pb.DESCRIPTOR.services_by_name["Jobs"]
    methods = {method.name for method in service.methods}
    assert methods == {
        "SubmitJob",
        "GetJobStatus",
        "ForecastJobs",
        "WatchJobs",
        "ReadOutput",
        *QUESTIONS,
        *CHANGES,
    }
    rows = re.findall(r"^\| (`[A-Z].*?) \| ", text.split("## Authentication")[0], re.MULTILINE)
    assert {method for row in rows for method in re.findall(r"`(\w+)`", row)} == methods
    section = text.split("## What HTTP has besides")[1].split("\n## ")[0]
    only = {
        path
        for row in re.findall(r"^\| (`.*?) \| .+ \|$", section, re.MULTILINE)
        for path in re.findall(r"`(.+?)`", row)
    }
    both = {
        "submit",
        "show",
        "act",
        "forecast",
        "list_jobs",
        "why",
        "wait",
        "results",
        "results_of_jobs",
        "logs",
        "patch",
        "rerun",
        "queues",
        "usage",
    }
    clusters = {"clusters", "add_cluster", "act_on_clusters", "configure"}
    assert only == {
        f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS if endpoint.name not in both | clusters
    }
