"""A server on a backup: no lease of it is one that was granted after the backup, and what runs goes on."""

from msgspec import structs

from spillover.core.events import EpochStarted, Lease, LeaseMoved, MachinesWanted
from spillover.core.pool_proposals import OpenPool
from spillover.core.proposals import AskSteal, Outcome, StartEpoch, Yield, Yielded
from spillover.model.cluster import Billing, ClusterSpec, Price, Role
from spillover.model.ids import ClusterName, JobId, NodeKey, NodeName
from spillover.model.job import Retry
from spillover.model.policy import Choice, PolicySet
from spillover.model.pools import JoinTerms, Offer, Pool, machine_id, machine_number
from spillover.model.resources import Resources
from spillover.model.units import HOUR
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LATER = 1_800_000_000
GANGS = structs.replace(OWNED, gangs=True)


def restored(w: World, epoch: int = LATER) -> None:
    facts = w.state.facts
    w.propose(StartEpoch(epoch, facts.clusters, facts.policies, restored=True))


def test_leases_of_running_jobs_stay_valid() -> None:
    w = World(load, clusters=(GANGS,))
    w.agent("n1")
    (job,) = w.submit(a_job("train"))
    w.start(job)
    lease = w.job(job).lease
    restored(w)
    assert w.agent("n1", held=(lease,)) == (lease,)
    w.finish(job)
    assert w.state_of(job) == "SUCCEEDED"


def test_no_later_lease_is_one_that_the_backup_does_not_know() -> None:
    w = World(load, clusters=(GANGS,))
    jobs = w.submit(a_job("one"), a_job("gang").tasks(2), a_job("sweep").array(1, 2))
    restored(w)
    unknown = Lease(jobs[0], 1, 1)
    assert w.agent("n1", cpus=8, held=(unknown, Lease(JobId("other"), 1, 1))) == ()
    leases = [w.job(job).lease for job in w.placed()]
    assert [(lease.attempt, lease.seq) for lease in leases] == [(1, LATER)] * 4
    w.finish(jobs[0], outcome=Outcome.LOST)
    assert w.job(jobs[0]).seq > LATER


def test_a_job_that_runs_again_gets_a_lease_above_all_of_then() -> None:
    w = World(load, clusters=(GANGS,))
    w.agent("n1")
    (job,) = w.submit(a_job("train").terms(retry=Retry(lost=1)))
    w.start(job)
    restored(w)
    w.agent("n1")  # it ended there, and the agent does not hold it any more
    lease = w.job(job).lease
    assert (lease.attempt, lease.seq) == (2, LATER)


def test_an_ordinary_start_changes_nothing_about_leases() -> None:
    w = World(load, clusters=(GANGS,))
    facts = w.state.facts
    (job,) = w.submit(a_job("train"))
    w.propose(StartEpoch(7, facts.clusters, facts.policies))
    w.agent("n1")
    assert w.job(job).lease.seq == 1
    assert [str(event) for event in w.happened(EpochStarted)] == ["epoch 1 started", "epoch 7 started"]


def test_a_second_restore_is_above_the_first() -> None:
    w = World(load, clusters=(GANGS,))
    (job,) = w.submit(a_job("train"))
    restored(w)
    restored(w, LATER + 60)
    w.agent("n1")
    assert w.job(job).lease.seq == LATER + 60


def test_a_lease_that_moves_is_above_all_of_then() -> None:
    w = World(load, PolicySet(wait=Choice("never")))
    w.agent("victim", queue=8)
    w.submit(a_job("warm"))
    w.start("warm")
    w.finish("warm", ran=0.001)
    w.submit(a_job("a"), a_job("b"))
    w.start("a")
    before = w.job("b").lease
    restored(w)
    w.agent("victim", queue=8, held=(w.job("a").lease, before))
    w.agent("thief", queue=8)
    w.propose(AskSteal(OWNED.name, NodeName("victim"), before, NodeName("thief")))
    w.propose(Yielded(NodeKey("onprem/victim"), before, Yield.RELEASED))
    (moved,) = w.happened(LeaseMoved)
    assert (moved.before, moved.seq) == (1, LATER)
    assert w.job("b").lease.seq == LATER


def test_no_later_machine_has_the_number_of_one_that_the_backup_does_not_know() -> None:
    cloud, offer = ClusterName("cloud"), Offer("small", Resources(4000, 2**40), 1_000_000, "a")
    pool = Pool("process", (offer,), max=8)
    spec = ClusterSpec(cloud, "agents", Role.RENTED, Price(), Billing(step=HOUR), gangs=True, pool=pool)
    w = World(load, PolicySet(wait=Choice("zero")), (spec,))
    w.propose(OpenPool(cloud, b"key", JoinTerms("localhost:1")))
    w.submit(a_job("before"))
    restored(w)
    w.submit(a_job("after").cpus(4))
    first, later = [each.wishes[0].machine for each in w.happened(MachinesWanted)]
    assert (first, later) == (machine_id(cloud, 1), machine_id(cloud, LATER + 1))
    assert machine_number(later) == LATER + 1
    restored(w, LATER)
    assert w.state.facts.machines == LATER + 1, "it never decreases"
