"""Prefetched leases that wait too long, or whose jobs can be rented sooner, are asked back: a decision like any other."""

import pytest

from spillover.core.events import LeasesRevoked, Unmoved
from spillover.core.holding import STUCK
from spillover.core.proposals import AskSteal, Done, HandBack, Yield, Yielded
from spillover.core.records.jobs import Placed
from spillover.deciding.replay import Replay
from spillover.model.ids import JobId, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import MINUTE, SECOND
from spillover.policies.loading import load, load_surely
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, World

LATER = STUCK + SECOND
"""Nanoseconds after which a lease is surely asked back."""


class Lab(World):
    """An agent of one CPU whose tasks were short, so that it prefetches some."""

    def __init__(self, wait: Choice = Choice("never")) -> None:  # noqa: B008 - a value that never changes
        super().__init__(load, PolicySet(wait=wait))
        self.agent("busy", cpus=1, queue=4)
        self.submit(a_job("warm"))
        self.start("warm")
        self.finish("warm", ran=0.01)
        self.submit(a_job("long"), a_job("next"), a_job("last"))
        self.start("long")

    def passes(self, time: int) -> list[str]:
        """Let time pass; which jobs are asked back."""
        self.now += time
        before = len(self.events)
        self.step()
        asked = [event for event in self.events[before:] if isinstance(event, LeasesRevoked)]
        return [job for event in asked for job in event.jobs]

    def is_revoked(self, job: str) -> bool:
        phase = self.job(job).phase
        return isinstance(phase, Placed) and phase.revoked


def test_a_prefetched_lease_is_asked_back_when_room_does_not_come() -> None:
    lab = Lab()
    assert lab.passes(STUCK - SECOND) == []
    assert lab.passes(2 * SECOND) == ["next", "last"]
    assert lab.is_revoked("next")
    assert lab.passes(MINUTE) == [], "once"


def test_the_engine_wakes_up_for_it_by_itself() -> None:
    lab = Lab()
    due = lab.engine.next_time()
    assert lab.now + STUCK <= due <= lab.now + LATER
    assert lab.passes(due - lab.now) == ["next", "last"]


def test_a_lease_that_has_got_its_room_is_not_asked_back() -> None:
    lab = Lab()
    lab.finish("long", ran=0.01)
    assert lab.passes(LATER) == ["last"]


def test_a_lease_that_is_handed_back_is_placed_anew() -> None:
    lab = Lab()
    lab.passes(LATER)
    lab.agent("idle", cpus=1)
    lab.propose(HandBack(lab.job("next").phase.key, (lab.job("next").lease,)))  # type: ignore[union-attr]
    phase = lab.job("next").phase
    assert isinstance(phase, Placed)
    assert (phase.node, phase.revoked) == ("idle", False)


def test_a_task_that_has_started_meanwhile_runs_on() -> None:
    lab = Lab()
    lab.passes(LATER)
    lab.finish("long", ran=9)
    lab.start("next")
    assert lab.state_of("next") == "RUNNING"


def test_a_lease_that_another_agent_wants_is_asked_back_once_it_is_refused() -> None:
    lab = Lab()
    lease, busy = lab.job("last").lease, NodeName("busy")
    lab.agent("idle", cpus=1)
    lab.propose(AskSteal(OWNED.name, busy, lease, NodeName("idle")))
    assert lab.passes(LATER) == ["next"]
    lab.propose(Yielded(lab.job("last").phase.key, lease, Yield.UNKNOWN))  # type: ignore[union-attr]
    assert Unmoved.UNKNOWN in [getattr(event, "why", None) for event in lab.events]
    assert lab.passes(0) == [] or lab.is_revoked("last")
    assert lab.is_revoked("last")


def test_a_job_whose_wait_is_over_is_asked_back_once_rented_capacity_has_room() -> None:
    lab = Lab(Choice("constant", {"wait": SECOND}))
    assert lab.passes(SECOND) == [], "nothing could be rented"
    lab.agent("vm", cluster="cloud", cpus=4)
    assert lab.is_revoked("next")
    assert lab.is_revoked("last")


def test_a_reservation_on_one_rented_node_does_not_close_the_others() -> None:
    lab = Lab(Choice("constant", {"wait": SECOND}))
    lab.agent("c1", cluster="cloud", cpus=2)
    assert lab.reserve("down", "c1", after=0, lasting=3600, cluster="cloud") == Done()
    assert lab.passes(SECOND) == [], "all of it is reserved"
    lab.agent("c2", cluster="cloud", cpus=2)
    assert lab.is_revoked("next")
    assert lab.is_revoked("last")


@pytest.mark.parametrize("wait", [Choice("never"), Choice("constant", {"wait": SECOND})])
def test_a_replay_asks_for_the_same_leases(wait: Choice) -> None:
    lab = Lab(wait)
    lab.passes(SECOND)
    lab.agent("vm", cluster="cloud", cpus=4)
    lab.passes(LATER)
    assert any(isinstance(event, LeasesRevoked) for event in lab.events)
    replay = Replay(load_surely)
    for revision, event in enumerate(lab.events, 1):
        assert replay.take(revision, event), replay.difference
    replay.end(len(lab.events))
    assert replay.difference is None


def test_plans_of_a_journal_from_before_ask_for_none() -> None:
    lab = Lab()
    lab.engine.rules = 1
    assert lab.passes(LATER) == []
    lab.submit(a_job("more").cpus(9))
    assert not lab.is_revoked("next")
    assert JobId("more") in lab.state.jobs
