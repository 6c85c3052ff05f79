"""What is free on machines, and what candidates know of it, as machines come, change and fill up."""

from msgspec.structs import replace

from spillover.core.records.nodes import Node
from spillover.deciding.capacity.candidates import Candidates
from spillover.deciding.capacity.cluster import Capacity
from spillover.deciding.capacity.future import Future, Group, HeldCapacity, grouped
from spillover.deciding.capacity.machine import Machine
from spillover.deciding.forecast.ends import End, reserve
from spillover.deciding.forecast.starts import Outlook, Waiter, latecomers
from spillover.deciding.protocols import Route
from spillover.model.ids import JobId, NodeName, task_key
from spillover.model.job import Shape
from spillover.model.policy import PolicySet
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.model.where import Where
from spillover.policies.loading import load
from spillover.policies.place import FirstFit
from spillover.testing.world import OWNED

ROUTE: Route = load(PolicySet()).route


def a_node(name: str, *, cpu: int = 1000, offers: tuple[str, ...] = (), queue: int = 2) -> Node:
    return Node(OWNED.name, NodeName(name), 1, Resources(cpu, 0, 0), offers, {}, queue, pace=1)


def a_cluster(*nodes: Node) -> Capacity:
    watched = any(node.foreign is not None for node in nodes)
    cluster = Capacity(replace(OWNED, kind="kubernetes") if watched else OWNED, SECOND)
    for node in nodes:
        cluster.refresh(node)
    return cluster


def ahead(candidates: Candidates) -> str | None:
    """Whose queue is next."""
    found = candidates.ahead(ROUTE, 0)
    return None if found is None else found.name


def machine(cluster: Capacity, name: str) -> Machine:
    return cluster.by_name[NodeName(name)]


def test_a_queue_that_is_full_is_passed_over_until_a_trial_is_undone() -> None:
    cluster = a_cluster(a_node("one", queue=1), a_node("two", queue=1))
    candidates = Candidates(cluster, Shape(Resources(1000, 0, 0)))
    assert ahead(candidates) == "one"
    before = machine(cluster, "one").before
    cluster.take_ahead(machine(cluster, "one"))
    assert ahead(candidates) == "two"
    cluster.take_ahead(machine(cluster, "two"))
    assert ahead(candidates) is None
    cluster.set(machine(cluster, "one"), before)
    assert ahead(candidates) == "one"


def test_a_machine_that_joins_leaves_or_changes_is_seen() -> None:
    first = a_node("one")
    cluster = a_cluster(first)
    plain, with_gpu = (
        Candidates(cluster, Shape(Resources(1000, 0, 0))),
        Candidates(cluster, Shape(Resources(), ("gpu:a100",))),
    )
    assert (ahead(plain), ahead(with_gpu)) == ("one", None)
    second = a_node("two", offers=("gpu:a100",))
    cluster.refresh(second)
    assert (ahead(plain), ahead(with_gpu)) == ("one", "two")
    cluster.refresh(replace(first, status="draining"))
    assert ahead(plain) == "two"
    cluster.refresh(replace(second, capacity=Resources(500, 0, 0), offers=(), incarnation=2))
    assert ahead(plain) is None


def test_a_queue_that_empties_takes_leases_again() -> None:
    node = a_node("one", queue=1)
    cluster = a_cluster(node)
    candidates = Candidates(cluster, Shape(Resources(1000, 0, 0)))
    full = replace(node, ahead={JobId("job"): Resources(1000, 0, 0)})
    cluster.refresh(full)
    assert ahead(candidates) is None
    cluster.refresh(node)
    assert ahead(candidates) == "one"


def a_foreign_node(name: str, capacity: Resources, *, tasks: int = -1) -> Node:
    """Of an external cluster."""
    return Node(OWNED.name, NodeName(name), 1, capacity, (), {}, 0, foreign=Resources(), tasks=tasks)


def holding(node: Node, job: str, held: Resources) -> Node:
    node.used = node.used + held
    node.holding[task_key(JobId(job), 1)] = held
    return node


def an_end(at: int, number: int, cluster: Capacity, held: Resources) -> End:
    """Of a job on the node `one`."""
    parts = (HeldCapacity(cluster, machine(cluster, "one"), cluster.layout.held(held, 1)),)
    return End(at, number, JobId(f"j{number}"), 0, parts, grouped(parts))


def test_a_gang_is_not_promised_two_places_on_a_node_that_takes_one_task() -> None:
    one_cpu = Resources(1000, 0, 0)
    node = holding(a_foreign_node("one", Resources(8000, 0, 0), tasks=1), "running", one_cpu)
    cluster = a_cluster(node)
    ends = [(SECOND, an_end(SECOND, 0, cluster, one_cpu))]
    assert reserve(Shape(one_cpu, tasks=2), [cluster], ends, FirstFit()) is None
    found = reserve(Shape(one_cpu), [cluster], ends, FirstFit())
    assert found is not None
    assert found.at == SECOND


def test_who_waits_for_the_only_fpga_starts_when_it_is_free_and_not_when_a_cpu_is() -> None:
    fpga = Resources(1000, 0, 0, (("example.com/fpga", 1),))
    cpu, capacity = Resources(1000, 0, 0), Resources(2000, 0, 0, fpga.other)
    node = holding(holding(a_foreign_node("one", capacity), "plain", cpu), "accelerated", fpga)
    cluster = a_cluster(node)
    ends = [an_end(SECOND, 0, cluster, cpu), an_end(HOUR, 1, cluster, fpga)]
    waiter = Waiter(
        JobId("waits"), Shape(fpga), SECOND, known=True, arrived=0, latest=HOUR, many=1, rentable=True
    )
    outlook = Outlook(0, 0, [waiter], {}, ends, {cluster.name: cluster}, FirstFit(), strict=False)
    assert [late.job for late in latecomers(outlook, {waiter.job: MINUTE}, 10)] == ["waits"]
    assert latecomers(outlook, {waiter.job: 2 * HOUR}, 10) == []


def test_a_gang_is_not_expected_on_a_cluster_that_it_does_not_ask_for() -> None:
    cluster = a_cluster(a_node("one"), a_node("two"))
    gang = Shape(Resources(1000), tasks=2)
    assert sum(Future().fitting(cluster, gang).values()) == 2
    assert not Future().fitting(cluster, replace(gang, where=Where(clusters=("elsewhere",))))
    assert not Future().fitting(cluster, replace(gang, needs=("gpu:a100",)))


def test_gangs_of_any_size_are_expected_in_the_same_places_but_not_where_only_single_tasks_run() -> None:
    old = a_node("old", cpu=2000)
    old.gangs = False
    cluster = a_cluster(a_node("new", cpu=2000), old)
    future, shapes = Future([cluster]), [Shape(Resources(1000), tasks=tasks) for tasks in (1, 2, 4)]

    def expected() -> list[dict[str, int]]:
        found = [future.fitting(cluster, shape) for shape in shapes]
        return [{each.name: many for each, many in fitting.items()} for fitting in found]

    assert expected() == [{"new": 2, "old": 2}, {"new": 2}, {"new": 2}]
    future.take([Group(cluster, (machine(cluster, "new"),), cluster.layout.held(Resources(1000), 1))])
    assert expected() == [{"new": 1, "old": 2}, {"new": 1}, {"new": 1}]


def test_jobs_that_are_undecided_after_so_many_ends_are_not_late_and_the_others_are() -> None:
    cluster = a_cluster(holding(a_foreign_node("one", Resources(1000)), "running", Resources(1000)))
    ends = [an_end(minutes * MINUTE, minutes, cluster, Resources()) for minutes in (1, 2, 3, 4)]
    waiters = [
        Waiter(
            JobId(name),
            Shape(Resources(1000)),
            SECOND,
            known=True,
            arrived=0,
            latest=HOUR,
            many=1,
            rentable=True,
        )
        for name in ("soon", "last", "later")
    ]
    outlook = Outlook(0, 0, waiters, {}, ends, {cluster.name: cluster}, FirstFit(), strict=False)
    limits = {JobId("soon"): MINUTE, JobId("last"): 3 * MINUTE, JobId("later"): 3 * MINUTE + 1}
    assert [late.job for late in latecomers(outlook, limits, 3)] == ["soon", "last"]
    assert [late.job for late in latecomers(outlook, limits, 4)] == ["soon", "last", "later"]
    limits[JobId("later")] = HOUR
    assert [late.job for late in latecomers(outlook, limits, 4)] == ["soon", "last"]
    assert [late.job for late in latecomers(outlook, limits, 5)] == ["soon", "last", "later"]


def test_nothing_starts_later_on_a_node_that_others_use_more_of_than_it_has() -> None:
    node = a_foreign_node("one", Resources(1000, 0, 0))
    node.foreign = Resources(1500, 0, 0)
    cluster, asks_for_nothing, future = a_cluster(node), Shape(Resources()), Future()
    one = machine(cluster, "one")
    assert not cluster.fits(asks_for_nothing)
    assert not future.fits(one, asks_for_nothing, cluster.layout.wants(asks_for_nothing.resources))
    future.release([Group(cluster, (one,), cluster.layout.held(Resources(500, 0, 0), 1))])
    assert future.fits(one, asks_for_nothing, cluster.layout.wants(asks_for_nothing.resources))


def test_a_resource_that_a_machine_brings_is_found_by_those_who_asked_before_it_came() -> None:
    cluster = a_cluster(a_foreign_node("one", Resources(2000, 0, 0)))
    wanted = Candidates(cluster, Shape(Resources(1000, 0, 0, (("example.com/fpga", 1),))))
    assert wanted.best(FirstFit()) is None
    cluster.refresh(a_foreign_node("two", Resources(2000, 0, 0, (("example.com/fpga", 1),))))
    found = wanted.best(FirstFit())
    assert found is not None
    assert (found.name, found.amount("example.com/fpga"), found.amount("example.com/other")) == ("two", 1, 0)
