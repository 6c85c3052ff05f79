"""The smallest changes that would let a waiting job start now, each decided by the scheduler itself."""

from collections.abc import Sequence

from msgspec.structs import replace

from spillover.deciding.counterfactual import Found, ends_before, search, try_start
from spillover.deciding.whatif import Assumption, OtherRequest, Snapshot
from spillover.model.budget import Budget, Of, Per
from spillover.model.ids import JobId
from spillover.model.policy import Choice, PolicySet
from spillover.model.queues import QueueLimits, QueueSpec
from spillover.model.resources import Resources
from spillover.model.units import HOUR, MINUTE
from spillover.policies.loading import load
from spillover.ports.blobs import GIB
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from tests.support.sameness import said_by


def changes_of(world: World, job: str) -> dict[str, Found]:
    """What would let a job start, by what changes. Nothing really changes."""
    before = said_by(world.state)
    looked = Snapshot(world.engine)
    found: list[Found] = []
    looking = search(looked, looked.state.jobs[JobId(job)], found)
    tries = 0
    try:
        asked: Sequence[Assumption] = next(looking)
        while True:
            tries += 1
            asked = looking.send(try_start(Snapshot(world.engine), world.now, JobId(job), asked))
    except StopIteration:
        pass
    assert tries <= 60
    assert said_by(world.state) == before
    assert all(each.before != each.after or not each.before for each in found)
    return {each.what: each for each in found}


def a_lab(
    *, budgets: tuple[Budget, ...] = (), queues: tuple[QueueSpec, ...] = (), **policies: Choice
) -> World:
    """One machine of our own."""
    chosen = replace(PolicySet(wait=Choice("never")), **policies)
    clusters = replace(OWNED, gangs=True), RENTED
    world = World(load, chosen, clusters, budgets=budgets, queues=queues)
    world.agent("n1", cpus=8, memory=32 * GIB, gpus=4)
    return world


def test_less_of_one_resource_is_the_largest_amount_with_which_it_starts() -> None:
    world = a_lab()
    world.submit(a_job("busy").cpus(3).memory(20 * GIB).gpus(1))
    world.submit(a_job("train").cpus(2).memory(16 * GIB).gpus(1))
    found = changes_of(world, "train")
    assert found.keys() == {"memory"}
    assert (found["memory"].before, found["memory"].after) == (16 * GIB, 12 * GIB)
    assert found["memory"].start.cluster == "onprem"
    more = Resources(2000, 12 * GIB + GIB // 2, 1)
    assert (
        try_start(Snapshot(world.engine), world.now, JobId("train"), [OtherRequest(JobId("train"), more)])
        is None
    )


def test_gpus_are_whole() -> None:
    world = a_lab()
    world.submit(a_job("busy").gpus(3))
    world.submit(a_job("train").gpus(4))
    found = changes_of(world, "train")
    assert (found["gpu"].before, found["gpu"].after) == (4, 1)


def test_where_no_single_resource_is_enough_all_become_smaller() -> None:
    world = a_lab()
    world.submit(a_job("busy").cpus(6).memory(24 * GIB))
    world.submit(a_job("train").cpus(4).memory(16 * GIB))
    found = changes_of(world, "train")
    assert found["size"].resources == Resources(2000, 8 * GIB)


def test_a_gang_could_have_fewer_tasks() -> None:
    world = a_lab()
    world.agent("n2", cpus=8)
    world.submit(a_job("busy").cpus(5))
    world.submit(a_job("gang").cpus(3).tasks(5))
    assert changes_of(world, "gang")["tasks"].after == 3


def test_a_shorter_job_fits_before_a_reservation() -> None:
    world = a_lab(backfill=Choice("easy"))
    world.submit(a_job("busy").cpus(6).terms(estimate=HOUR, walltime=HOUR))
    world.submit(a_job("wide").cpus(8).terms(estimate=HOUR, walltime=HOUR))
    world.submit(a_job("small").cpus(2).terms(walltime=2 * HOUR))
    found = changes_of(world, "small")
    assert found.keys() >= {"walltime"}
    assert 56 * MINUTE <= found["walltime"].after <= HOUR


def test_it_could_be_rented_at_once_or_run_anywhere() -> None:
    world = a_lab()
    world.agent("vm", cluster="cloud", cpus=16)
    world.submit(a_job("busy").cpus(8))
    world.submit(a_job("train").cpus(4))
    found = changes_of(world, "train")
    assert found["burst"].start.cluster == "cloud"


def test_a_higher_priority_puts_it_first() -> None:
    world = a_lab(order=Choice("priority"), backfill=Choice("strict"))
    world.submit(a_job("busy").cpus(5))
    world.submit(a_job("wide").cpus(8).priority(7))
    world.submit(a_job("small").cpus(2))
    found = changes_of(world, "small")
    assert (found["priority"].before, found["priority"].after) == (0, 8)


def test_a_held_job_could_be_released() -> None:
    world = a_lab()
    world.submit(a_job("train"))
    world.submit(a_job("held").held())
    assert changes_of(world, "held").keys() == {"hold"}


def test_a_budget_could_be_as_much_higher_as_it_lacks() -> None:
    world = a_lab(wait=Choice("zero"), budgets=(Budget(Of.PROJECT, "default", Per.DAY, 1000),))
    world.agent("vm", cluster="cloud", cpus=16)
    world.submit(a_job("busy").cpus(8))
    world.submit(a_job("train").cpus(4).terms(walltime=HOUR))
    found = changes_of(world, "train")
    assert found["budget"].about == "project default"
    assert found["budget"].after > found["budget"].before == 1000


def test_a_limit_of_its_queue_could_be_higher() -> None:
    world = a_lab(queues=(QueueSpec("default", default=True, total=QueueLimits(running=1)),))
    world.submit(a_job("busy").cpus(1))
    world.submit(a_job("train").cpus(1))
    found = changes_of(world, "train")
    assert (found["queue"].before, found["queue"].after, found["queue"].about) == (1, 2, "default jobs")


def test_only_where_nothing_else_helps_are_machines_proposed() -> None:
    world = a_lab()
    world.submit(a_job("busy").cpus(8))
    world.submit(a_job("train").cpus(1))
    assert changes_of(world, "train").keys() == {"machines"}


def test_an_array_counts_as_started_with_its_first_member() -> None:
    world = a_lab()
    world.submit(a_job("busy").cpus(6))
    world.submit(a_job("sweep").cpus(4).array(1, 10))
    assert changes_of(world, "sweep")["cpu"].after == 2000


def test_what_has_to_end_before_it_starts() -> None:
    world = a_lab()
    world.agent("n2", cpus=8)
    world.submit(a_job("short").cpus(4).terms(estimate=HOUR))
    world.submit(a_job("long").cpus(4).terms(estimate=10 * HOUR))
    world.submit(a_job("other").cpus(8).terms(estimate=20 * HOUR))
    world.submit(a_job("train").cpus(4).terms(estimate=HOUR))
    world.submit(a_job("wide").cpus(8).terms(estimate=HOUR))
    assert list(ends_before(Snapshot(world.engine), world.now, JobId("train"))) == ["short"]
    assert list(ends_before(Snapshot(world.engine), world.now, JobId("wide"))) == ["short", "long"]
