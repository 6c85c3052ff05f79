"""What cannot be decided or encoded: nothing of it happens, it costs one proposal, alarm or job, and it is tried again."""

from collections.abc import Callable
from typing import Any

import pytest

from spillover.core import decide
from spillover.core.events import (
    AnyEvent,
    JobEnded,
    JobPlaced,
    JobsAdmitted,
    JobState,
    JobStopping,
    Usage,
    WaitsExpired,
)
from spillover.core.proposals import (
    Done,
    Outcome,
    Refusal,
    RefusalKind,
    Result,
    Started,
    Submit,
    Verdict,
    unusable,
)
from spillover.core.records.jobs import Queued
from spillover.deciding import engine, whatif
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.placing import Placer
from spillover.deciding.engine import CYCLE, MOST_ASIDE
from spillover.deciding.whatif import Snapshot, try_jobs
from spillover.model.ids import NodeKey
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from spillover.wire.journal import decode_event, encode_event


class Written(World):
    """A world whose events are encoded, and some cannot be."""

    def __init__(self, policies: PolicySet | None = None) -> None:
        self.unwritable: Callable[[AnyEvent], bool] = lambda _: False
        super().__init__(load, policies)
        self.engine._encode = self._encode
        self.encoded: list[bytes] = []

    def _encode(self, event: AnyEvent) -> bytes:
        if self.unwritable(event):
            raise OverflowError("too large")
        return encode_event(event)

    def step(self, *proposals: Any) -> Any:
        """See World."""
        step = super().step(*proposals)
        if hasattr(self, "encoded"):
            assert [decode_event(each) for each in step.encoded] == step.events
            self.encoded += step.encoded
        return step

    def place(self, job: str) -> Result:
        """What an agent says of a job that ended well."""
        return Result(NodeKey("onprem/n1"), self.job(job).lease, Outcome.EXITED, 0, None, Usage(1), 0)


@pytest.fixture
def world() -> Written:
    world = Written()
    world.agent("n1", cpus=4)
    return world


def test_a_proposal_whose_events_cannot_be_encoded_is_refused_and_the_others_are_not(world: Written) -> None:
    world.submit(a_job("a"), a_job("b"), a_job("c"))
    told = [world.place(job) for job in "abc"]
    world.unwritable = lambda event: isinstance(event, JobEnded) and event.job == "b"
    step = world.step(*told)
    assert step.replies[0] is Verdict.ACCEPTED
    assert step.replies[2] is Verdict.ACCEPTED
    refusal = step.replies[1]
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.message) == (
        RefusalKind.INTERNAL,
        "internal error (OverflowError: too large); nothing was changed; see the log of the server",
    )
    assert [job.id for job in world.state.jobs.values() if job.state is JobState.PLACED] == ["b"]
    (failure,) = step.failures
    assert (failure.what, failure.subject) == ("Result", "b")
    world.unwritable = lambda _: False
    assert world.propose(unusable(told[1], refusal.message)) is Verdict.ACCEPTED
    assert world.state_of("b") is JobState.FAILED


def test_a_proposal_whose_decider_raises_is_refused(world: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    world.submit(a_job("a"))
    monkeypatch.setitem(decide.DECIDERS, Started, broken)
    reply = world.propose(Started(NodeKey("onprem/n1"), world.job("a").lease, 0))
    assert isinstance(reply, Refusal)
    assert reply.kind is RefusalKind.INTERNAL
    monkeypatch.undo()
    assert world.propose(Started(NodeKey("onprem/n1"), world.job("a").lease, 0)) == Done()


def test_an_engine_that_writes_nothing_raises_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    world = World(load)
    monkeypatch.setitem(decide.DECIDERS, Started, broken)
    world.agent("n1")
    world.submit(a_job("a"))
    with pytest.raises(ZeroDivisionError):
        world.propose(Started(NodeKey("onprem/n1"), world.job("a").lease, 0))


def test_an_alarm_that_cannot_be_carried_out_rings_again_after_pauses_that_grow(world: Written) -> None:
    world.submit(a_job("long").terms(walltime=60 * SECOND), a_job("other").terms(walltime=60 * SECOND))
    world.start("long")
    world.start("other")
    world.unwritable = lambda event: isinstance(event, JobStopping) and event.job == "long"
    world.wait(seconds=120)
    stopped = [event.job for event in world.events if isinstance(event, JobStopping)]
    assert stopped == ["other"]
    (failed,) = world.engine.aside
    assert (failed.work, failed.subject) == ("walltime", "long")
    assert failed.tries in range(3, 6)
    assert failed.next_try == world.engine.next_time() > world.now
    world.unwritable = lambda _: False
    world.wait(seconds=300)
    assert [event.job for event in world.events if isinstance(event, JobStopping)] == ["other", "long"]
    assert not world.engine.aside


def placing(job: str) -> Callable[[AnyEvent], bool]:
    return lambda event: isinstance(event, JobPlaced) and event.job == job


def test_a_job_whose_placement_cannot_be_encoded_is_set_aside_and_the_others_are_placed(
    world: Written,
) -> None:
    world.unwritable = placing("b")
    world.submit(a_job("a"), a_job("b"), a_job("c"))
    assert [world.where(job) for job in "abc"] == ["onprem/n1", None, "onprem/n1"]
    (failed,) = world.engine.aside
    assert (failed.work, failed.subject, failed.reason) == (CYCLE, "b", "OverflowError: too large")
    world.submit(a_job("d"))
    assert world.where("d") == "onprem/n1"
    assert type(world.job("b").phase) is Queued
    world.wait(seconds=20)
    assert world.where("b") is None
    (failed,) = world.engine.aside
    assert failed.tries == 5
    world.unwritable = lambda _: False
    world.wait(seconds=60)
    assert world.where("b") == "onprem/n1"
    assert not world.engine.aside


def test_a_job_whose_wait_cannot_be_encoded_is_set_aside(world: Written) -> None:
    world.unwritable = lambda event: isinstance(event, JobsAdmitted) and "b" in event.jobs
    world.submit(a_job("big").cpus(4), a_job("a").cpus(4), a_job("b").cpus(4), a_job("c").cpus(4))
    assert [world.job(job).latest is None for job in "abc"] == [False, True, False]
    assert [each.subject for each in world.engine.aside] == ["b"]


def test_a_job_that_a_cycle_fails_on_is_set_aside(world: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Placer._place

    def broken(self: Placer, job: Any, *more: Any) -> bool:
        if job.id == "b":
            raise ZeroDivisionError
        return place(self, job, *more)

    monkeypatch.setattr(Placer, "_place", broken)
    world.submit(a_job("a"), a_job("b"), a_job("c"))
    assert [world.where(job) for job in "abc"] == ["onprem/n1", None, "onprem/n1"]
    assert [(each.work, each.subject) for each in world.engine.aside] == [(CYCLE, "b")]
    monkeypatch.undo()
    world.wait(seconds=2)
    assert world.where("b") == "onprem/n1"


def test_a_job_that_is_set_aside_can_be_cancelled(world: Written) -> None:
    world.unwritable = placing("b")
    world.submit(a_job("b"))
    world.cancel("b")
    assert world.state_of("b") is JobState.CANCELLED
    world.wait(seconds=2)
    assert not world.engine.aside


def test_when_it_cannot_be_told_which_job_is_wrong_no_cycle_is_run_for_a_while(
    world: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    run = cycle.run
    monkeypatch.setattr(cycle, "run", broken)
    reply = world.submit(a_job("a"))
    assert reply  # it is taken all the same
    assert [(each.work, each.subject) for each in world.engine.aside] == [(CYCLE, "")]
    world.wait(seconds=10)
    assert world.where("a") is None
    monkeypatch.setattr(cycle, "run", run)
    world.wait(seconds=10)
    assert world.where("a") == "onprem/n1"
    assert not world.engine.aside


def test_while_no_cycle_is_run_the_engine_does_not_ask_for_what_only_a_cycle_could_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Written(PolicySet(wait=Choice("constant", {"wait": 5 * SECOND})))
    world.agent("n1")
    world.submit(a_job("a").between(deadline=world.now + 60 * SECOND), a_job("b"))
    run = cycle.run

    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(cycle, "run", broken)
    world.wait(seconds=30)  # which fails if it asks for the same moment twice
    assert [(each.work, each.subject) for each in world.engine.aside] == [(CYCLE, "")]
    world.wait(seconds=35)
    assert [event.job for event in world.events if isinstance(event, JobStopping)] == ["a"]
    monkeypatch.setattr(cycle, "run", run)
    world.wait(seconds=300)
    assert not world.engine.aside
    assert world.job("b").due is not None


def test_a_lease_ahead_of_room_whose_wait_cannot_be_ended_is_set_aside() -> None:
    world = Written(PolicySet(wait=Choice("constant", {"wait": 5 * SECOND})))
    world.agent("n1", queue=2)
    world.submit(a_job("first"), a_job("a"), a_job("b"), a_job("c"))
    world.finish("first", ran=0.01)  # short tasks let an agent be given prefetched work
    assert [world.where(job) for job in "abc"] == ["onprem/n1"] * 3
    world.unwritable = lambda event: isinstance(event, WaitsExpired) and "b" in event.jobs
    world.wait(seconds=10)
    assert [(each.work, each.subject) for each in world.engine.aside] == [(CYCLE, "b")]
    assert [world.job(job).due is None for job in "bc"] == [True, False]
    world.unwritable = lambda _: False
    world.wait(seconds=60)
    assert world.job("b").due is not None
    assert not world.engine.aside


def test_when_many_jobs_fail_in_one_step_the_fault_is_not_theirs(world: Written) -> None:
    world.unwritable = lambda event: isinstance(event, JobPlaced)
    names = [f"j{at}" for at in range(MOST_ASIDE + 5)]
    world.submit(*[a_job(name).cpus(0.1) for name in names])
    assert [(each.work, each.subject) for each in world.engine.aside] == [(CYCLE, "")]
    world.unwritable = lambda _: False
    world.wait(seconds=5)
    assert {world.where(name) for name in names} == {"onprem/n1"}
    assert not world.engine.aside


def test_after_a_failure_a_long_queue_is_looked_at_anew_in_short_steps(
    world: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "SLICE", 3)
    world.unwritable = lambda event: isinstance(event, JobPlaced) and event.job == "j0"
    jobs = tuple(a_job(f"j{at}").cpus(0.1).build() for at in range(10))
    step = world.engine.step(world.now, [Submit(jobs, "ada")], short=True)
    assert [failure.subject for failure in step.failures] == ["j0"]
    assert (step.more, world.engine.is_ready) == (True, False)
    step = world.engine.step(world.now, short=True)
    assert (step.more, world.engine.is_ready) == (True, False)
    while step.more:
        step = world.engine.step(world.now, short=True)
    assert [world.where(f"j{at}") for at in range(10)] == [None, *["onprem/n1"] * 9]


def test_a_trial_that_fails_leaves_nothing_behind(world: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(whatif, "explain", broken)
    with pytest.raises(ZeroDivisionError):
        try_jobs(Snapshot(world.engine), world.now, Submit((a_job("a").build(),), "ada"))
    monkeypatch.undo()
    assert not world.state.jobs
    world.submit(a_job("b").cpus(4))
    assert world.where("b") == "onprem/n1"
