"""A server on a backup: no lease of it is one that was granted after the backup, and what runs goes on."""

from msgspec import structs

from spillover.core.events import EpochStarted, Lease
from spillover.core.proposals import Outcome, StartEpoch
from spillover.model.ids import JobId
from spillover.model.job import Retry
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
