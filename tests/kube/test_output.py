"""What jobs of several pods wrote on a real cluster, and what is left of that when the pods are gone."""

from collections.abc import Iterator

import pytest

from spillover.client import SpillError
from tests.support.kube import Cluster
from tests.support.kube.serving import PATIENCE, Serving, a_job
from tests.support.processes import wait_until


@pytest.fixture(scope="module")
def served(onprem: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that keeps output, and deletes what ended at once."""
    names = onprem.add_nodes(2, cpu="4")
    soon = {"kubernetes": {"keep": "0s"}}
    folder = tmp_path_factory.mktemp("output")
    with Serving(folder, {"onprem": (onprem, soon)}, agents={"keep_output": True}) as serving:
        yield serving
    onprem.remove_nodes(names)


def written(served: Serving, job: str, task: int = 0, *, stderr: bool = False) -> bytes:
    return b"".join(served.client.logs(job, task=task, stderr=stderr))


def test_each_pod_of_a_job_has_output_of_its_own(served: Serving, onprem: Cluster) -> None:
    onprem.write_log("said by a pod")
    pods = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    [job] = served.submit(a_job(spec=pods, runs_for="forever"))
    served.running(job)
    wait_until(
        lambda: all(written(served, job, task) == b"said by a pod\n" for task in (0, 1)),
        "output of both pods",
        PATIENCE,
        every=0.1,
    )
    with pytest.raises(SpillError, match="has 2 tasks, 0 to 1"):
        written(served, job, 2)
    served.client.cancel(job)


def test_of_several_pods_all_output_is_kept(served: Serving, onprem: Cluster) -> None:
    onprem.write_log("kept")
    pods = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    ended = served.run(a_job(spec=pods, runs_for="100ms"))
    served.await_gone("onprem", ended.id)
    assert written(served, ended.id) == b"kept\n"
    assert written(served, ended.id, stderr=True) == b""
    assert written(served, ended.id, 1) == b"kept\n"
    said = served.server.spill("logs", ended.id)
    assert sorted(said.stdout.splitlines()) == ["[0] kept", "[1] kept"]


def test_each_pod_of_a_gang_has_an_exit_code_and_times_of_its_own(served: Serving) -> None:
    pods = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    ended = served.run(a_job(spec=pods, exit_code="3", runs_for="2s"))
    assert (ended.state, ended.exit_code) == ("FAILED", 3)
    tasks = served.job(ended.id).tasks or []
    assert [task.rank for task in tasks] == [0, 1, 2]
    assert {task.state for task in tasks} <= {"FAILED", "CANCELLED"}
    assert all(task.exit_code == 3 for task in tasks if task.state == "FAILED")
    assert all(task.started_at and task.finished_at and task.node for task in tasks)
    shown = served.server.spill("show", ended.id)
    assert shown.returncode == 0
    assert shown.stdout.count("FAILED") >= 2


def test_pods_without_indexes_are_tasks_too(served: Serving, onprem: Cluster) -> None:
    onprem.write_log("loose")
    ended = served.run(a_job(spec={"completions": 2, "parallelism": 2}, runs_for="1s"))
    tasks = served.job(ended.id).tasks or []
    assert [(task.rank, task.state, task.exit_code) for task in tasks] == [
        (0, "SUCCEEDED", 0),
        (1, "SUCCEEDED", 0),
    ]
    assert [written(served, ended.id, task) for task in (0, 1)] == [b"loose\n"] * 2
