"""What events say of themselves: none is left out, and it agrees with what they do."""

from typing import Any, get_args, get_type_hints

import pytest

from spillover.core.events import (
    AgentDraining,
    AnyEvent,
    BudgetsConfigured,
    Event,
    GangPlaced,
    JobEnded,
    JobHeld,
    JobReleased,
    JobsAdmitted,
    JobsArchived,
    JobStarted,
    JobState,
    JobStopping,
    JobSubmitted,
    MemberPlaced,
    MembersDropped,
    Stop,
    TasksBound,
    TokenCreated,
    TokenRevoked,
    Usage,
)
from spillover.core.transitions import JOB
from spillover.model.ids import ClusterName, JobId, NodeName
from spillover.model.job import Range, Shape, Terms
from spillover.model.reasons import CancelledBy, RoomOwned
from spillover.model.resources import Resources
from spillover.model.tokens import TokenRole

EVENTS: tuple[type[Event], ...] = get_args(AnyEvent)
A, B, C = JobId("aaaaaaaaaaaa"), JobId("bbbbbbbbbbbb"), JobId("cccccccccccc")
CLUSTER, N1, N2 = ClusterName("onprem"), NodeName("n1"), NodeName("n2")
MOVING = {kind for (state, kind), into in JOB.items() if into != {state}}


def tagged(base: type[Event]) -> set[type[Event]]:
    """All events that are written down."""
    found = {base} if base.__struct_config__.tag is not None else set()
    return found.union(*(tagged(each) for each in base.__subclasses__()))


def names_jobs(kind: type[Event]) -> bool:
    hints = get_type_hints(kind)
    return any(hints[field] in {JobId, tuple[JobId, ...]} for field in kind.__struct_fields__)


def test_every_event_is_one_of_any() -> None:
    assert tagged(Event) == set(EVENTS)


@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_has_a_sentence_for_people(kind: type[Event]) -> None:
    assert kind.__str__ is not Event.__str__


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_that_names_jobs_says_which_it_is_about(kind: type[Event]) -> None:
    assert (kind.about is not Event.about) == names_jobs(kind)


@pytest.mark.parametrize("kind", EVENTS)
def test_an_event_about_several_jobs_can_be_cut_down_to_some(kind: type[Event]) -> None:
    several = "jobs" in kind.__struct_fields__
    assert (kind.only is not Event.only) == several


@pytest.mark.parametrize("kind", sorted(MOVING, key=str))
def test_an_event_that_moves_a_job_says_where_to(kind: type[Event]) -> None:
    assert kind.reached is not Event.reached


@pytest.mark.parametrize("kind", EVENTS)
def test_what_is_hidden_is_a_field(kind: type[Event]) -> None:
    assert set(kind.hidden) <= set(kind.__struct_fields__)


def test_the_digest_of_a_token_is_hidden() -> None:
    assert TokenCreated("t", 1, "ada", TokenRole.ADMIN, b"secret").hidden == ("digest",)


def test_a_submission_says_its_project_and_whether_it_waits() -> None:
    shape, terms = Shape(Resources(1000)), Terms()
    ready = JobSubmitted(A, 5, "ada", "train", "vision", "default", 0, b"", shape, terms)
    later = JobSubmitted(A, 5, "ada", "train", "vision", "default", 0, b"", shape, terms, not_before=6)
    assert ready.of_project() == "vision"
    assert [each.state for event in (ready, later) for each in event.reached()] == ["QUEUED", "HELD"]


def test_a_member_that_is_placed_is_the_job() -> None:
    placed = MemberPlaced(A, 7, 5, CLUSTER, N1, 1, RoomOwned())
    assert placed.about() == (f"{A}.7",)
    (reached,) = placed.reached()
    assert (reached.job, reached.state, reached.cluster, reached.node) == (f"{A}.7", "PLACED", "onprem", "n1")
    assert placed.counted() == ("placed", "onprem")


def test_members_that_are_dropped_are_told_of_by_their_array() -> None:
    dropped = MembersDropped(A, 5, (Range(3, 9),), JobState.CANCELLED, "ada")
    assert dropped.of_members
    assert not JobStarted(A, 5, 1, 1).of_members
    assert dropped.about() == (A,)
    assert dropped.reached()[0].members == (Range(3, 9),)


def test_a_gang_is_where_its_first_task_is() -> None:
    (reached,) = GangPlaced(A, 5, CLUSTER, (N2, N1), 1, 1, RoomOwned()).reached()
    assert reached.node == "n2"


def test_what_is_left_of_an_event_fits_together() -> None:
    admitted = JobsAdmitted((A, B, C), (1, 2, 3))
    assert admitted.only({A, C}) == JobsAdmitted((A, C), (1, 3))
    bound = TasksBound(CLUSTER, 5, (A, B), ((N1,), (N2, N1)), running=(B,))
    assert bound.only({A}) == TasksBound(CLUSTER, 5, (A,), ((N1,),))
    assert bound.only({B}) == TasksBound(CLUSTER, 5, (B,), ((N2, N1),), running=(B,))
    assert [(each.job, each.state, each.node) for each in bound.reached()] == [
        (A, "PLACED", "n1"),
        (B, "RUNNING", "n2"),
    ]
    assert JobsArchived((A, B)).only({B}) == JobsArchived((B,))


def test_a_hold_that_ends_while_the_job_waits_for_something_else_names_no_person() -> None:
    assert str(JobHeld(A, 1, "ada")) == "held by ada"
    assert str(JobHeld(A, 1, "")) == "hold ended; still waits for its time or for other jobs"
    assert str(JobHeld(A, 1, "", "bob")).startswith("hold ended by bob; still waits")


@pytest.mark.parametrize("kind", [kind for kind in EVENTS if "who" in kind.__struct_fields__])
def test_every_event_that_names_a_person_says_that_the_person_caused_it(kind: type[Event]) -> None:
    blank: dict[str, Any] = dict.fromkeys(kind.__struct_fields__)
    event = kind(**blank | {"who": "ada"} | ({"why": Stop.CANCEL} if kind is JobStopping else {}))
    assert event.caused_by() == "ada"


def test_events_say_who_caused_them() -> None:
    shape, terms = Shape(Resources(1000)), Terms()
    submitted = JobSubmitted(A, 5, "ada", "train", "vision", "default", 0, b"", shape, terms)
    cancelled = JobEnded(A, 5, JobState.CANCELLED, 1, 0, None, None, None, 0, Usage(), CancelledBy("bob"))
    held, freed = JobHeld(A, 5, "ada"), JobHeld(A, 5, "", "bob")
    found = [event.caused_by() for event in (submitted, cancelled, held, freed)]
    assert found == ["ada", "bob", "ada", "bob"]


def test_what_the_server_does_by_itself_is_caused_by_nobody() -> None:
    stops = [JobStopping(A, 5, why, "spillover").caused_by() for why in (Stop.WALLTIME, Stop.DEADLINE)]
    freed = JobReleased(A, 5, "spillover").caused_by()
    drained = AgentDraining(CLUSTER, N1, 5, "the pool").caused_by()
    started = JobStarted(A, 5, 1, 1).caused_by()
    succeeded = JobEnded(A, 5, JobState.SUCCEEDED, 1, 0, 3, 0, None, 0, Usage()).caused_by()
    assert [*stops, freed, drained, started, succeeded, BudgetsConfigured(()).caused_by()] == [""] * 7


def test_nobody_hides_behind_the_name_of_the_server() -> None:
    """What only people do is theirs, whatever they call themselves."""
    events = [JobStopping(A, 5, Stop.CANCEL, "spillover"), TokenRevoked("t", 5, "spillover")]
    assert [event.caused_by() for event in events] == ["spillover"] * 2
