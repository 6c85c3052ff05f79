"""A machine that its provider takes back: its tasks return to the queue at no cost to their retries."""

import pytest
from msgspec import structs

from spillover.core.events import AgentDraining, Back, JobRequeued, JobState, JobStopping, Stop
from spillover.core.proposals import Act, AgentGone, Done, Interrupt, Outcome, Reclaim, Refusal
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.model.job import Retry
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB, N1 = ClusterName("onprem"), NodeName("n1")
TAKEN = Interrupt(LAB, N1, 10**19)


def a_world() -> World:
    w = World(load, clusters=(structs.replace(OWNED, gangs=True),))
    w.agent("n1")
    return w


def requeues(w: World) -> list[tuple[Back, int]]:
    return [(event.why, event.attempt) for event in w.happened(JobRequeued)]


@pytest.mark.parametrize(
    ("outcome", "code"), [(Outcome.STOPPED, None), (Outcome.EXITED, 143), (Outcome.LOST, None)]
)
def test_an_interrupted_task_uses_none_of_its_retries(outcome: Outcome, code: int | None) -> None:
    w = a_world()
    w.submit(a_job("a").terms(retry=Retry(0, 0)))
    w.start("a")
    assert w.propose(TAKEN) == Done()
    assert [event.why for event in w.happened(JobStopping)] == [Stop.INTERRUPT]
    w.finish("a", code or 0, outcome=outcome)
    assert requeues(w) == [(Back.INTERRUPTED, 2)]
    job = w.job("a")
    assert (w.state_of("a"), job.lost, job.exits, job.extra.interrupted) == (JobState.QUEUED, 0, 0, 1)


def test_a_task_that_succeeds_before_its_machine_goes_has_succeeded() -> None:
    w = a_world()
    w.submit(a_job("a"))
    w.start("a")
    w.propose(TAKEN)
    w.finish("a")
    assert w.state_of("a") is JobState.SUCCEEDED


def test_a_machine_that_goes_without_a_word_after_its_notice_uses_no_retry_either() -> None:
    w = a_world()
    w.submit(a_job("a").terms(retry=Retry(0, 0)))
    w.start("a")
    w.propose(TAKEN)
    w.propose(Reclaim(NodeKey("onprem/n1"), (w.job("a").lease,)))
    w.propose(AgentGone(LAB, N1, w.state.agents["onprem/n1"].incarnation))
    assert requeues(w) == [(Back.INTERRUPTED, 2)]


@pytest.mark.parametrize("way", ["stopped", "handed back"])
def test_what_had_not_begun_keeps_its_attempt_and_was_not_interrupted(way: str) -> None:
    w = a_world()
    w.submit(a_job("a"))
    w.propose(TAKEN)
    if way == "stopped":
        w.finish("a", outcome=Outcome.STOPPED, ran=0)
    else:
        w.hand_back("a")
    assert requeues(w) == [(Back.RELEASED, 1)]
    assert w.job("a").extra.interrupted == 0


def test_a_machine_that_is_taken_back_gets_nothing_more_and_is_told_once() -> None:
    w = a_world()
    w.submit(a_job("a"))
    w.start("a")
    for _ in range(2):
        assert w.propose(TAKEN) == Done()
    assert len(list(w.happened(JobStopping))) == 1
    assert len(list(w.happened(AgentDraining))) == 1
    w.finish("a", outcome=Outcome.STOPPED)
    assert w.state_of("a") is JobState.QUEUED, "there is no other machine"
    w.agent("n2")
    assert w.where("a") == "onprem/n2"
    assert isinstance(w.propose(Interrupt(LAB, NodeName("x"), 0)), Refusal)


def test_a_person_can_still_cancel_what_is_interrupted() -> None:
    w = a_world()
    w.submit(a_job("a"))
    w.start("a")
    w.propose(TAKEN)
    w.act(Act.CANCEL, "a")
    w.finish("a", outcome=Outcome.STOPPED)
    assert w.state_of("a") is JobState.CANCELLED


def test_a_gang_is_interrupted_as_a_whole() -> None:
    w = a_world()
    w.agent("n2")
    w.submit(a_job("a").tasks(2))
    w.start("a", 0, 1)
    w.propose(TAKEN)
    assert w.job("a").phase.stopping is Stop.INTERRUPT  # type: ignore[union-attr]
    w.finish_task("a", 0, outcome=Outcome.STOPPED)
    w.finish_task("a", 1, outcome=Outcome.STOPPED)
    assert requeues(w) == [(Back.INTERRUPTED, 2)]
    assert w.job("a").extra.interrupted == 1
