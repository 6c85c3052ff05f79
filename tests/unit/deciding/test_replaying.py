"""A journal leads to the plans that it stored; one that was tampered with does not."""

import importlib.util
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from spillover.core.events import (
    AgentRegistered,
    AnyEvent,
    CostHeld,
    Decided,
    GangPlaced,
    JobEnded,
    JobPlaced,
    JobsAdmitted,
    JobSubmitted,
    MachinesDraining,
    MachinesEnding,
    MemberPlaced,
    WaitsExpired,
)
from spillover.deciding.replay import Replay, describe
from spillover.model.ids import JobId, NodeName
from spillover.model.resources import Resources
from spillover.model.units import FOREVER, SECOND
from spillover.policies.loading import load, load_surely
from spillover.wire.journal import decode_event

FOLDER = Path(__file__).parent.parent.parent / "fixtures" / "journals"
GOLDEN = sorted(FOLDER.glob("*.msgpack"))
OF_MACHINES = (MachinesDraining, MachinesEnding)
OF_A_PLAN = (CostHeld, Decided, GangPlaced, JobPlaced, JobsAdmitted, MemberPlaced, WaitsExpired)


def replayed(events: list[AnyEvent]) -> Replay:
    """All events, up to the first that does not follow from those before it."""
    replay = Replay(load_surely)
    for revision, event in enumerate(events, 1):
        if not replay.take(revision, event):
            break
    replay.end(len(events))
    return replay


@cache
def golden(path: Path) -> list[AnyEvent]:
    """The events of one release."""
    return [decode_event(event) for event in msgspec.msgpack.decode(path.read_bytes(), type=list[bytes])]


def lived() -> list[AnyEvent]:
    """A life with every kind of event, as this version decides."""
    spec = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    events: list[AnyEvent] = module.live().events
    return events


@pytest.fixture(scope="module")
def life() -> list[AnyEvent]:
    return lived()


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_journals_of_every_release_lead_to_the_plans_that_they_stored(path: Path) -> None:
    events = golden(path)
    replay = replayed(events)
    assert replay.difference is None
    assert replay.plans == sum(type(event) is Decided for event in events) > 10
    assert replay.events == len(events)


def test_a_life_leads_to_the_plans_that_it_stored(life: list[AnyEvent]) -> None:
    replay = replayed(life)
    assert replay.difference is None
    assert replay.plans == sum(type(event) is Decided for event in life) > 10


def test_any_part_of_a_plan_that_is_missing_is_seen(life: list[AnyEvent]) -> None:
    for at, event in enumerate(life):
        if isinstance(event, OF_A_PLAN):
            difference = replayed([*life[:at], *life[at + 1 :]]).difference
            assert difference is not None, event
            # People and providers drain and end machines too. So where a plan does nothing else, the next plan shows
            # that one is missing.
            later = [number for number, each in enumerate(life[at + 1 :], at + 1) if type(each) is Decided]
            only_machines = type(event) is Decided and isinstance(life[at + 1], OF_MACHINES)
            assert difference.revision <= (later[0] + 1 if only_machines else at + 2)


def test_any_two_parts_of_a_plan_that_change_places_are_seen(life: list[AnyEvent]) -> None:
    for at, (one, other) in enumerate(pairwise(life)):
        if isinstance(one, OF_A_PLAN) and isinstance(other, OF_A_PLAN):
            difference = replayed([*life[:at], other, one, *life[at + 2 :]]).difference
            assert difference is not None, (one, other)
            assert difference.revision <= at + 3


def test_any_digest_that_is_another_is_seen(life: list[AnyEvent]) -> None:
    for at, event in enumerate(life):
        if type(event) is Decided:
            for other in (
                structs.replace(event, plan=bytes(16)),
                structs.replace(event, policy=bytes(16)),
                structs.replace(event, seed=event.seed + 1),
                structs.replace(event, now=event.now + 1),
            ):
                difference = replayed([*life[:at], other, *life[at + 1 :]]).difference
                assert difference is not None
                assert difference.revision == at + 1


def test_a_place_that_is_another_is_told_with_both_plans(life: list[AnyEvent]) -> None:
    at, event = next((at, event) for at, event in enumerate(life) if isinstance(event, JobPlaced))
    moved = structs.replace(event, node=NodeName("elsewhere"))
    difference = replayed([*life[:at], moved, *life[at + 1 :]]).difference
    assert difference is not None
    assert difference.revision == at + 1
    assert difference.what == "job_placed is not part of the plan before it"
    assert difference.at == event.at
    assert f"{event.job} on {event.cluster}/elsewhere (room_owned)" in difference.stored
    assert f"{event.job} on {event.cluster}/{event.node} (room_owned)" in difference.found


def test_facts_that_plans_rest_on_are_seen_when_they_change(life: list[AnyEvent]) -> None:
    at, agent = next((at, event) for at, event in enumerate(life) if isinstance(event, AgentRegistered))
    small = structs.replace(agent, capacity=Resources(1))
    assert replayed([*life[:at], small, *life[at + 1 :]]).difference is not None
    assert replayed([*life[:at], *life[at + 1 :]]).difference is not None
    at, job = next((at, event) for at, event in enumerate(life) if isinstance(event, JobSubmitted))
    big = structs.replace(job, shape=structs.replace(job.shape, resources=Resources(10**6)))
    difference = replayed([*life[:at], big, *life[at + 1 :]]).difference
    assert difference is not None
    assert difference.what == "the plan differs"


def test_an_event_that_cannot_have_happened_is_told(life: list[AnyEvent]) -> None:
    at, ended = next((at, event) for at, event in enumerate(life) if isinstance(event, JobEnded))
    twice = [*life[: at + 1], ended, *life[at + 1 :]]
    difference = replayed(twice).difference
    assert difference is not None
    assert difference.revision == at + 2
    assert difference.what.startswith("job_ended is not possible here: ")


def test_a_journal_that_ends_within_a_plan_is_told(life: list[AnyEvent]) -> None:
    at = next(at for at, event in enumerate(life) if type(event) is Decided)
    difference = replayed(life[: at + 1]).difference
    assert difference is not None
    assert difference.what == "the journal ends in the middle of a plan"


def test_what_cannot_be_read_is_told() -> None:
    replay = Replay(load)
    replay.refuse(1, "it is truncated")
    assert replay.difference is not None
    assert replay.difference.what == "cannot be read: it is truncated"


def test_parts_of_a_plan_are_told_in_words() -> None:
    pay = CostHeld(JobId("a"), 0, 460_000, None, ())
    assert describe(pay) == "hold 0.46 for a"
    assert describe(structs.replace(pay, amount=12_345_600)) == "hold 12.3456 for a"
    assert describe(structs.replace(pay, limit=90 * SECOND)) == "hold 0.46 for a, which may run 1m30s"
    waits = JobsAdmitted((JobId("a"), JobId("b")), (1_800_000_000 * SECOND, FOREVER))
    assert describe(waits) == "wait: a until 2027-01-15T08:00:00.000000Z, b"
    assert describe(waits, SECOND) == "wait: a until 2027-01-15T08:00:01.000000Z, b"
