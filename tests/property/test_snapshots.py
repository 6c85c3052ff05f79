"""A snapshot decides as the live engine would, and nothing that is done to one of the two is seen by the other."""

import threading
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.core.events import AnyEvent, Decided
from spillover.core.proposals import Proposal
from spillover.core.state import State
from spillover.deciding.engine import Engine
from spillover.deciding.whatif import Snapshot
from tests.support.sameness import indexed_by, said_by
from tests.support.scheduling_stories import Story, WilderStory

STEPS = 60
AHEAD = 8
"""Steps that a snapshot goes, or the live engine."""


def book_of(state: State) -> dict[str, Any]:
    """All that a state says, but for finding jobs by name, which a snapshot does not."""
    said = said_by(state)
    del said["found"]
    return said


def machines_of(engine: Engine) -> object:
    """What is free on all machines."""
    return {
        (cluster.name, machine.name): (machine.ready, machine.ahead, *machine.free)
        for cluster in engine.index.capacity.values()
        for machine in cluster.machines
    }


def without_digests(event: AnyEvent) -> AnyEvent:
    """A snapshot writes nothing, and so spares them."""
    return replace(event, policy=b"", plan=b"") if type(event) is Decided else event


def everything_of(engine: Engine) -> object:
    return book_of(engine.state), indexed_by(engine.index), machines_of(engine)


def ahead_of(story: Story) -> list[tuple[int, list[Proposal]]]:
    """What could happen next, several times, as things are now."""
    happens, now = [], story.world.now
    for _ in range(AHEAD):
        proposals = story.next()
        happens.append((story.world.now, proposals))
    story.world.now = now
    return happens


def carry_out(engine: Engine, happens: list[tuple[int, list[Proposal]]]) -> list[AnyEvent]:
    return [event for now, proposals in happens for event in engine.step(now, proposals).events]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [Story, WilderStory])
def test_a_snapshot_decides_as_the_live_engine_would(kind: type[Story], seed: int) -> None:
    story = kind(seed)
    world = story.world
    for _ in range(STEPS):
        snapshot, proposals = Snapshot(world.engine), story.next()
        tried = snapshot.step(world.now, proposals).events
        assert tried == [without_digests(event) for event in world.step(*proposals).events]
        assert book_of(snapshot.state) == book_of(world.state)
        assert machines_of(snapshot) == machines_of(world.engine)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [Story, WilderStory])
def test_what_a_snapshot_decides_is_not_seen_by_the_live_engine(kind: type[Story], seed: int) -> None:
    story = kind(seed)
    world = story.world
    for _ in range(STEPS // 4):
        before = everything_of(world.engine)
        carry_out(Snapshot(world.engine), ahead_of(story))
        assert everything_of(world.engine) == before
        world.step(*story.next())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [Story, WilderStory])
def test_a_detached_snapshot_does_not_see_what_the_live_engine_decides(kind: type[Story], seed: int) -> None:
    story = kind(seed)
    world = story.world
    for _ in range(STEPS // 4):
        happens = ahead_of(story)
        expected = carry_out(Snapshot(world.engine), happens)
        untouched, snapshot, lock = Snapshot(world.engine), Snapshot(world.engine), threading.RLock()
        before = everything_of(world.engine)
        untouched.detach(lock)
        snapshot.detach(lock)
        for _ in range(3):
            world.step(*story.next())
        assert everything_of(untouched) == before
        assert carry_out(snapshot, happens) == expected
        for each in (untouched, snapshot):
            each.release()
        assert type(world.state.jobs) is dict


@pytest.mark.parametrize("seed", range(3))
def test_a_snapshot_may_be_used_by_another_thread_while_the_live_engine_goes_on(seed: int) -> None:
    story = WilderStory(seed)
    world = story.world
    for _ in range(STEPS // 4):
        happens = ahead_of(story)
        expected = carry_out(Snapshot(world.engine), happens)
        snapshot, found = Snapshot(world.engine), list[AnyEvent]()
        snapshot.detach(threading.RLock())
        thread = threading.Thread(target=lambda: found.extend(carry_out(snapshot, happens)))  # noqa: B023 - it is joined
        thread.start()
        for _ in range(3):
            world.step(*story.next())
        thread.join()
        snapshot.release()
        assert found == expected
