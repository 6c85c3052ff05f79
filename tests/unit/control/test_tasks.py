"""Tasks of gangs, as people see them and as the archive keeps them."""

import msgspec
from msgspec import structs

from spillover.cli.printing.listing import place
from spillover.control.controllers.archiving import finished_of
from spillover.control.views import tasks
from spillover.control.views.jobs import finished_view, job_view
from spillover.control.views.tasks import task_view, tasks_of
from spillover.core.events import JobState, Outcome
from spillover.core.records.tasks import gang_on
from spillover.model.ids import NodeName
from spillover.model.inside import Domain, Granted, Inside
from spillover.model.job import Retry
from spillover.model.topology import Topology
from spillover.policies.loading import load
from spillover.stores.rows import finished_from, finished_row
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World


def a_gang() -> World:
    w = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    w.agent("n1", cpus=2)
    w.agent("n2", cpus=2)
    w.submit(a_job("g").tasks(3).terms(retry=Retry(0, 0)))
    return w


def test_tasks_are_told_as_they_are() -> None:
    w = a_gang()
    w.start("g", 1)
    told = tasks_of(w.job("g"))
    assert told.counts == {"PLACED": 2, "RUNNING": 1}
    views = [task_view(task, w.job("g").shape) for task in told.tasks]
    assert [(each.rank, each.node, each.state) for each in views] == [
        (0, "n1", "PLACED"),
        (1, "n1", "RUNNING"),
        (2, "n2", "PLACED"),
    ]
    assert views[1].started_at is not None
    assert (views[1].finished_at, views[1].ran_s, views[1].exit_code) == (None, None, None)


def test_a_list_says_on_how_many_nodes_a_gang_is() -> None:
    w = a_gang()
    view = job_view(w.engine, w.job("g"))
    assert (view.node, view.nodes, place(view)) == ("n1", 2, "onprem/n1 and 1 more")


def test_the_archive_knows_on_how_many_nodes_a_gang_was() -> None:
    w = a_gang()
    w.start("g")
    w.finish("g")
    row = finished_of(w.job("g"))
    assert row is not None
    view = finished_view(row, 1)
    assert (view.node, view.nodes, place(view)) == ("n1", 2, "onprem/n1 and 1 more")
    before = structs.replace(
        row, tasks=msgspec.msgpack.encode([{}, []])
    )  # of a server that did not record it
    assert finished_view(before, 1).nodes == 0


def test_a_job_with_one_task_has_no_rows() -> None:
    w = a_gang()
    w.finish("g")
    w.submit(a_job("a"))
    assert tasks_of(w.job("a")) == tasks.ShownTasks({}, [])
    w.finish("a")
    row = finished_of(w.job("a"))
    assert row is not None
    assert row.tasks is None
    assert tasks_of(row) == tasks.ShownTasks({}, [])


def test_the_archive_keeps_how_each_task_ended() -> None:
    w = a_gang()
    w.start("g")
    w.finish_task("g", 2, 7, ran=3)
    w.finish_task("g", 0, ran=4)
    w.finish_task("g", 1, outcome=Outcome.STOPPED)
    row = finished_of(w.job("g"))
    assert row is not None
    told = tasks_of(finished_from(finished_row(row)))
    assert told == tasks_of(w.job("g"))
    assert told.counts == {"SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 1}
    failed = task_view(told.tasks[2], row.shape)
    assert (failed.node, failed.state, failed.exit_code, failed.ran_s) == ("n2", "FAILED", 7, 3.0)
    assert failed.peak_memory == 2**20


def test_of_a_wide_gang_those_that_did_not_succeed_are_shown_first() -> None:
    w = a_gang()
    job = w.job("g")
    gang = gang_on([NodeName("n1")] * 5000)
    gang.tasks = [structs.replace(task, state=JobState.SUCCEEDED) for task in gang.tasks]
    gang.tasks[4321] = structs.replace(gang.tasks[4321], state=JobState.FAILED)
    job.extra.gang = gang
    told = tasks_of(job)
    assert told.counts == {"SUCCEEDED": 4999, "FAILED": 1}
    assert [task.rank for task in told.tasks] == [*range(tasks.MOST_SHOWN - 1), 4321]


def test_tasks_of_groups_have_their_group_and_their_number_there() -> None:
    w = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    w.agent("n1", cpus=8)
    w.submit(a_job("g").cpus(1).group("leader").cpus(2).group("worker", 2))
    shape = w.job("g").shape
    views = [task_view(task, shape) for task in tasks_of(w.job("g")).tasks]
    assert [(view.group, view.group_task) for view in views] == [("leader", 0), ("worker", 0), ("worker", 1)]


def test_the_archive_keeps_which_cores_and_gpus_tasks_had() -> None:
    w = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    inside = Inside((Domain(0, ("0-3",), ("0", "1")),), ("0", "1"))
    w.agent("n1", cpus=4, gpus=2, inside=inside)
    w.submit(a_job("one").cpus(2).gpus(1).together(Topology(pin="core")))
    assert tasks_of(w.job("one")).own(0) == Granted("0-1", ("0",))
    w.finish("one")
    w.submit(a_job("two").cpus(2).gpus(1).tasks(2).together(Topology(pin="core")))
    w.finish("two")
    for name, granted in (("one", ["0-1"]), ("two", ["0-1", "2-3"])):
        row = finished_of(w.job(name))
        assert row is not None
        told = tasks_of(finished_from(finished_row(row)))
        assert [told.own(at).cpus for at in range(len(granted))] == granted
    told = tasks_of(w.job("two"))
    view = task_view(told.tasks[1], w.job("two").shape, told.own(1))
    assert (view.cpus, view.gpus) == ("2-3", ["1"])
