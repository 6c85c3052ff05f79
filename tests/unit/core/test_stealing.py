"""A lease that another agent wants: asked for, given up, refused, and whatever else may happen to it meanwhile."""

import pytest

from spillover.core.events import (
    AgentDraining,
    AnyEvent,
    Back,
    JobEnded,
    JobRequeued,
    JobState,
    Lease,
    LeaseMoved,
    StealAsked,
    StealRefused,
    Unmoved,
    Usage,
)
from spillover.core.proposals import (
    Act,
    AgentGone,
    AskSteal,
    Change,
    Done,
    Drain,
    Forget,
    HandBack,
    Outcome,
    Reclaim,
    Refusal,
    RefusalKind,
    Register,
    Reply,
    Result,
    Resume,
    Started,
    StartEpoch,
    Verdict,
    Yield,
    Yielded,
)
from spillover.core.rebuild import rebuild
from spillover.core.records.jobs import Placed
from spillover.core.records.nodes import Node
from spillover.model.ids import ClusterName, NodeKey, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LAB = ClusterName("onprem")
VICTIM, THIEF = NodeName("victim"), NodeName("thief")
HOLDER = NodeKey("onprem/victim")


class Place(World):
    """One busy agent of one CPU that was handed three jobs, `a`, `b` and `c`; the first one runs, and another agent is idle."""

    def __init__(self, queue: int = 8) -> None:
        super().__init__(load, PolicySet(wait=Choice("never")))
        self.agent("victim", queue=queue)
        self.submit(a_job("warm"))
        self.start("warm")
        self.finish("warm", ran=0.001)
        for name in "abc":
            self.submit(a_job(name))
        self.start("a")
        self.agent("thief", queue=queue)

    @property
    def victim(self) -> Node:
        return self.state.nodes["onprem/victim"]

    @property
    def thief(self) -> Node:
        return self.state.nodes["onprem/thief"]

    def ask(self, job: str, thief: NodeName = THIEF) -> Reply:
        return self.propose(AskSteal(LAB, VICTIM, self.job(job).lease, thief))

    def answers(self, lease: Lease, answer: Yield, node: NodeKey = HOLDER) -> list[AnyEvent]:
        before = len(self.events)
        assert self.propose(Yielded(node, lease, answer)) == Done()
        return self.events[before:]

    def wanted(self, job: str) -> NodeName | None:
        phase = self.job(job).phase
        return phase.thief if type(phase) is Placed else None

    def at(self, job: str) -> str:
        phase = self.job(job).phase
        return phase.node if isinstance(phase, Placed) else self.job(job).state


def a_place(queue: int = 8) -> Place:
    place = Place(queue)
    assert list(place.victim.ahead) == ["b", "c"]
    return place


def test_a_lease_that_is_wanted_stays_where_it_is() -> None:
    place = a_place()
    assert place.ask("c") == Done()
    assert place.events[-1] == StealAsked(place.job("c").id, place.now, LAB, VICTIM, THIEF, 1, 1)
    assert (place.at("c"), place.wanted("c")) == ("victim", THIEF)
    assert list(place.victim.ahead) == ["b", "c"]
    assert not place.thief.holding
    assert place.job("c").seq == 1


def test_a_lease_that_was_given_up_moves_with_its_room_and_both_counts() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    assert place.answers(lease, Yield.RELEASED) == [
        LeaseMoved(lease.job, place.now, LAB, VICTIM, THIEF, 1, 2, 1)
    ]
    assert (place.at("c"), place.wanted("c"), place.job("c").seq) == ("thief", None, 2)
    assert (place.victim.given, place.victim.taken) == (1, 0)
    assert (place.thief.given, place.thief.taken) == (0, 1)
    assert list(place.victim.ahead) == ["b"]
    assert place.thief.used == Resources(1000)
    assert place.victim.pace < SECOND, "what others took says nothing of its tasks"


def test_an_answer_that_is_repeated_or_late_changes_nothing() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    place.answers(lease, Yield.RELEASED)
    for answer in Yield:
        assert place.answers(lease, answer) == []
        assert place.answers(lease, answer, NodeKey("onprem/thief")) == []
    assert place.at("c") == "thief"


def test_what_the_old_owner_says_of_a_moved_lease_does_not_count() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    place.answers(lease, Yield.RELEASED)
    assert isinstance(place.propose(Started(HOLDER, lease, 0)), Refusal)
    result = Result(HOLDER, lease, Outcome.EXITED, 0, None, Usage(SECOND), 0)
    assert place.propose(result) is Verdict.FENCED
    place.propose(HandBack(HOLDER, (lease,)))
    place.propose(Reclaim(HOLDER, (lease,)))
    assert place.at("c") == "thief"
    place.start("c")
    place.finish("c")
    assert place.job("c").state is JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("answer", "why"), [(Yield.STARTED, Unmoved.STARTED), (Yield.UNKNOWN, Unmoved.UNKNOWN)]
)
def test_a_lease_that_is_not_given_up_stays_and_may_be_asked_for_again(answer: Yield, why: Unmoved) -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    assert place.answers(lease, answer) == [StealRefused(lease.job, place.now, why)]
    assert place.answers(lease, answer) == []
    assert (place.at("c"), place.wanted("c"), place.job("c").lease) == ("victim", None, lease)
    assert place.ask("c") == Done()


def test_a_lease_that_nobody_wanted_and_that_is_given_up_goes_back_to_the_queue() -> None:
    place = a_place()
    place.agent("thief", cpus=1)  # which has room that the job finds at once
    lease = place.job("c").lease
    events = place.answers(lease, Yield.RELEASED)
    assert isinstance(events[0], JobRequeued)
    assert events[0].why is Back.RELEASED


def test_one_lease_is_asked_for_once() -> None:
    place = a_place()
    place.agent("other", queue=1)
    assert place.ask("c") == Done()
    assert isinstance(place.ask("c"), Refusal)
    assert isinstance(place.ask("c", NodeName("other")), Refusal)


@pytest.mark.parametrize("thief", ["victim", "nobody", "far"])
def test_a_thief_is_another_agent_of_the_same_cluster(thief: str) -> None:
    place = a_place()
    place.agent("far", cluster="cloud", cpus=4)
    assert isinstance(place.ask("c", NodeName(thief)), Refusal)


def test_a_thief_has_room_and_what_the_job_needs() -> None:
    place = a_place()
    place.agent("small", cpus=0.5)
    assert isinstance(place.ask("c", NodeName("small")), Refusal)
    place.propose(Drain(LAB, THIEF))
    assert isinstance(place.ask("c"), Refusal)


def test_a_running_job_is_not_asked_for() -> None:
    place = a_place()
    assert isinstance(place.ask("a"), Refusal)


def test_a_job_that_is_being_stopped_is_not_asked_for_and_ends_where_it_is() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    place.propose(Change(Act.CANCEL, (place.job("b").id, place.job("c").id), "ada"))
    assert isinstance(place.ask("b"), Refusal)
    (ended,) = place.answers(lease, Yield.RELEASED)
    assert isinstance(ended, JobEnded)
    assert ended.state is JobState.CANCELLED


def test_a_thief_that_is_gone_or_full_by_then_gets_nothing() -> None:
    for happens in ("lost", "drained", "full"):
        place = a_place()
        place.ask("c")
        lease = place.job("c").lease
        if happens == "lost":
            place.propose(AgentGone(LAB, THIEF, place.thief.incarnation))
        elif happens == "drained":
            place.propose(Drain(LAB, THIEF))
        else:
            place.submit(a_job("new"))
            assert place.at("new") == "thief"
        events = place.answers(lease, Yield.RELEASED)
        assert isinstance(events[0], JobRequeued), happens
        assert events[0].seq == 2
        assert place.thief.taken == 0


def test_a_victim_that_registers_anew_keeps_what_it_names_unasked() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    kept = place.agent("victim", queue=8, held=(place.job("a").lease, lease))
    assert lease in kept
    assert StealRefused(lease.job, place.now, Unmoved.VOID) in place.events
    assert place.wanted("c") is None
    assert place.at("b") == "thief", "what it did not name went back to the queue"


def test_a_victim_that_registers_anew_without_it_has_given_it_up() -> None:
    place = a_place()
    place.ask("c")
    place.agent("victim", queue=8, held=(place.job("a").lease, place.job("b").lease))
    assert (place.at("c"), place.job("c").attempt, place.job("c").seq) == ("thief", 1, 3)


def test_a_lease_that_runs_out_while_it_is_wanted_is_lost_like_any_other() -> None:
    place = a_place()
    place.ask("c")
    lease = place.job("c").lease
    place.propose(Reclaim(HOLDER, (lease,)))
    assert place.job("c").attempt == 2
    assert place.answers(lease, Yield.RELEASED) == []


def test_a_start_that_is_told_before_the_answer_ends_the_question() -> None:
    place = a_place()
    place.ask("b")
    lease = place.job("b").lease
    place.finish("a", ran=0.001)
    place.start("b")
    assert place.answers(lease, Yield.STARTED) == []
    assert place.job("b").state is JobState.RUNNING


def test_the_mark_and_the_counts_outlive_a_restart() -> None:
    place = a_place()
    place.ask("b")
    place.ask("c")
    place.answers(place.job("b").lease, Yield.RELEASED)
    place.propose(Drain(LAB, VICTIM, "ada"))
    state = place.state
    records = [(kind, state.record(kind, key)) for kind, keys in state.dirty.items() for key in keys]
    again = rebuild([record for _, record in records if record is not None])
    assert again.jobs[place.job("c").id].phase == place.job("c").phase
    assert again.nodes["onprem/victim"] == place.victim
    assert again.nodes["onprem/thief"].taken == 1


# --- draining, resuming, forgetting


def test_an_agent_that_a_person_drained_stays_so_when_it_registers_anew() -> None:
    place = a_place()
    place.propose(Drain(LAB, THIEF, "ada"))
    place.agent("thief", queue=8)
    assert (place.thief.status, place.thief.drained) == ("draining", "ada")
    place.propose(StartEpoch(2, (OWNED,), PolicySet(wait=Choice("never"))))
    assert place.thief.status == "unobserved"
    place.agent("thief", queue=8)
    assert place.thief.status == "draining"
    place.propose(Resume(LAB, THIEF, "bob"))
    assert (place.thief.status, place.thief.drained) == ("ready", "")
    place.agent("thief", queue=8)
    assert place.thief.status == "ready"


def test_an_agent_that_was_told_to_stop_is_ready_when_it_comes_back() -> None:
    place = a_place()
    place.propose(Drain(LAB, THIEF))
    assert place.thief.status == "draining"
    assert place.events[-1] == AgentDraining(LAB, THIEF, place.now)
    place.agent("thief")
    assert place.thief.status == "ready"


def test_draining_twice_and_resuming_what_was_not_drained_is_nothing() -> None:
    place = a_place()
    place.propose(Drain(LAB, THIEF, "ada"))
    before = len(place.events)
    assert place.propose(Drain(LAB, THIEF, "bob")) == Done()
    assert place.propose(Resume(LAB, VICTIM, "bob")) == Done()
    assert len(place.events) == before


def test_a_lost_agent_can_be_drained_and_is_so_when_it_comes_back() -> None:
    place = a_place()
    place.propose(AgentGone(LAB, THIEF, place.thief.incarnation))
    place.propose(Drain(LAB, THIEF, "ada"))
    assert place.thief.status == "lost"
    place.agent("thief")
    assert place.thief.status == "draining"


def test_only_an_agent_that_is_not_there_and_holds_nothing_is_forgotten() -> None:
    place = a_place()
    refusal = place.propose(Forget(LAB, THIEF, "ada"))
    assert isinstance(refusal, Refusal)
    assert (refusal.kind, refusal.message) == (
        RefusalKind.CONFLICT,
        "agent thief is ready; stop it and wait until it is lost, then forget it",
    )
    for node in (place.thief, place.victim):
        place.propose(AgentGone(LAB, node.name, node.incarnation))
    assert place.propose(Forget(LAB, THIEF, "ada")) == Done()
    assert "onprem/thief" not in place.state.nodes
    refusal = place.propose(Forget(LAB, VICTIM, "ada"))
    assert isinstance(refusal, Refusal)
    assert "may still run 3 jobs; wait until their leases expire" in refusal.message
    assert isinstance(place.propose(Forget(LAB, THIEF, "ada")), Refusal)
    place.agent("thief", cpus=4)
    place.submit(a_job("d"))
    assert place.at("d") == "thief"


# --- an agent that comes back with less


def register(place: Place, queue: int, cpus: int = 1, waiting: tuple[Lease, ...] = ()) -> tuple[Lease, ...]:
    held = tuple(place.job(name).lease for name in "abc" if place.at(name) in {"victim", "RUNNING"})
    number = place.state.facts.incarnations + 1
    reply = place.propose(
        Register(LAB, VICTIM, number, Resources(cpus * 1000, 1), (), {}, queue, held, waiting=waiting)
    )
    keep: tuple[Lease, ...] = reply.keep  # type: ignore[union-attr]
    return keep


def test_a_smaller_queue_gives_back_what_it_has_no_room_for() -> None:
    place = a_place()
    waiting = place.job("b").lease, place.job("c").lease
    kept = register(place, 1, waiting=waiting)
    assert kept == (place.job("a").lease, place.job("b").lease)
    assert list(place.victim.ahead) == ["b"]
    assert place.at("c") == "thief"


def test_what_runs_there_already_is_not_given_back() -> None:
    place = a_place()
    kept = register(place, 0, waiting=())
    assert len(kept) == 3


def test_more_room_is_filled_before_the_queue_is_counted() -> None:
    place = a_place()
    waiting = place.job("b").lease, place.job("c").lease
    assert len(register(place, 1, cpus=2, waiting=waiting)) == 3
    assert list(place.victim.ahead) == ["c"]
