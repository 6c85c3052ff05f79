"""Steps that are to be short do a part of what there is to do, and the same comes of it as of one that does all."""

from collections.abc import Sequence

import pytest

from spillover.core.events import AnyEvent, Decided, JobPlaced, JobsAdmitted, WaitsExpired
from spillover.core.proposals import AgentGone, Forget, Proposal, SetPolicies, StartEpoch, Submit
from spillover.core.records.jobs import Ended
from spillover.deciding import engine
from spillover.deciding.cycle import cycle, placing
from spillover.deciding.engine import Engine
from spillover.deciding.queue import index as indexes
from spillover.deciding.queue.index import SchedulingIndex
from spillover.deciding.replay import Replay
from spillover.model.cluster import ClusterSpec, Role
from spillover.model.ids import ClusterName, NodeName
from spillover.model.policy import Choice, PolicySet
from spillover.model.units import HOUR, MINUTE, SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from tests.support.sameness import Checkpoints, said_by

HOURLY = PolicySet(wait=Choice("constant", {"wait": HOUR}))
LATER = PolicySet(order=Choice("priority"), wait=Choice("constant", {"wait": 2 * HOUR}))
ONPREM = ClusterName("onprem")
RENTED_TOO = ClusterSpec(ClusterName("other"), "agents", Role.RENTED)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few jobs are as many as a million."""
    monkeypatch.setattr(engine, "SLICE", 3)
    monkeypatch.setattr(cycle, "MOST_WAITS", 3)
    monkeypatch.setattr(placing, "MOST_PLACED", 3)


def a_world(jobs: int = 20, policies: PolicySet = HOURLY) -> World:
    w = World(load, policies)
    w.agent("n1", cpus=1)
    w.submit(*(a_job(f"job-{number}").priority(number % 3) for number in range(jobs)))
    return w


def shortly(w: World, *proposals: Proposal) -> list[list[AnyEvent]]:
    """What happens, step by step, until nothing is left to do."""
    steps: list[list[AnyEvent]] = []
    left: Sequence[Proposal] = proposals
    while True:
        step = w.engine.step(w.now, left, short=True)
        w.events += step.events
        steps.append(step.events)
        if not step.more:
            return steps
        left = ()


def is_ready(w: World) -> bool:
    return w.engine.is_ready


def board_says(index: SchedulingIndex) -> object:
    """All of a index that is kept up with events."""
    return (
        sorted(index.fresh),
        sorted(index.waits.patient),
        sorted({wait for wait in index.waits.heap if index.waits.job_of(wait) is not None}),
        sorted(set(index.alarms.heap)),
        {lane.kind: list(index.queue.jobs(lane)) for lane in index.queue.first},
        {lane.kind: list(index.due.jobs(lane)) for lane in index.due.first},
        {
            name: [(machine.name, machine.free, machine.ahead, machine.ready) for machine in cluster.machines]
            for name, cluster in index.capacity.items()
        },
    )


def test_new_policies_are_taken_in_some_jobs_at_a_time_and_lead_to_the_same() -> None:
    w, twin = a_world(), a_world()
    change = SetPolicies(LATER, "ada")
    steps = shortly(w, change)
    twin.step(change)
    assert len(steps) > 10
    assert said_by(w.state) == said_by(twin.state)
    assert board_says(w.engine.index) == board_says(twin.engine.index)
    for events in steps:
        admitted = [job for event in events if isinstance(event, JobsAdmitted) for job in event.jobs]
        assert len(admitted) <= 3


def test_what_happens_while_a_board_is_built_is_on_it() -> None:
    w = a_world()
    w.engine.step(w.now, [SetPolicies(LATER, "ada")], short=True)
    assert not is_ready(w)
    w.cancel("job-19")  # a step that does all at once
    assert is_ready(w)
    w.engine.step(w.now, [SetPolicies(HOURLY, "ada")], short=True)
    w.engine.step(w.now, [Submit((a_job("new").build(),), "ada")], short=True)
    w.engine.step(w.now, [AgentGone(ONPREM, NodeName("n1"), 1)], short=True)
    assert not is_ready(w)
    shortly(w)
    assert board_says(w.engine.index) == board_says(SchedulingIndex(w.state, w.engine.policies))


def test_nothing_is_decided_while_a_board_is_built() -> None:
    w = a_world()
    step = w.engine.step(w.now, [SetPolicies(LATER, "ada")], short=True)
    assert step.more
    assert w.engine.next_time() <= w.now
    assert not [event for event in step.events if isinstance(event, Decided)]


def test_an_engine_that_is_built_some_jobs_at_a_time_is_the_same() -> None:
    w = a_world()
    records = Checkpoints()
    records.write(w.state)
    built = Engine(records.load(), load, now=w.now, whole=False)
    assert not built.is_ready
    slices = 1
    while not built.build(4):
        slices += 1
    assert slices == 5
    assert board_says(built.index) == board_says(w.engine.index)


def test_a_plan_is_bounded_and_the_rest_follows_at_once() -> None:
    w = World(load, HOURLY)
    w.submit(*(a_job(f"job-{number}") for number in range(10)))
    w.agent("n1", cpus=10)
    assert all(w.where(f"job-{number}") == "onprem/n1" for number in range(10))
    counts, decided = [], False
    for event in w.events:
        if isinstance(event, Decided):
            counts.append(0)
            decided = True
        elif decided and isinstance(event, JobPlaced):
            counts[-1] += 1
    assert max(counts) == 3
    replay = Replay(load)
    assert all(replay.take(revision, event) for revision, event in enumerate(w.events, 1))


def test_waits_that_are_over_together_end_some_at_a_time() -> None:
    w = a_world()
    w.now += HOUR
    for events in shortly(w):
        assert sum(len(event.jobs) for event in events if isinstance(event, WaitsExpired)) <= 3
    assert all(job.due is not None for job in w.state.jobs.values() if job.id != "job-0")


def test_one_board_is_built_for_all_that_changes_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    w = a_world()
    built: list[SchedulingIndex] = []
    begin = indexes.SchedulingIndex._begin

    def counted(index: SchedulingIndex) -> None:
        built.append(index)
        begin(index)

    monkeypatch.setattr(indexes.SchedulingIndex, "_begin", counted)
    w.step(StartEpoch(2, (OWNED, RENTED, RENTED_TOO), LATER, ahead=SECOND), SetPolicies(HOURLY, "ada"))
    assert len(built) == 1


def test_agents_are_forgotten_without_another_board() -> None:
    w = World(load, HOURLY)
    for number in range(200):
        w.agent(f"n{number}", cpus=1)
    w.submit(*(a_job(f"job-{number}").expected(minutes=1) for number in range(5)))
    before = w.engine.index
    gone = [NodeName(f"n{number}") for number in range(20, 170)]
    for number, name in enumerate(gone, 21):
        w.step(AgentGone(ONPREM, name, number), Forget(ONPREM, name, "ada"))
    assert w.engine.index is before
    cluster = before.capacity[ONPREM]
    assert [machine.name for machine in cluster.machines] == [
        node.name for node in w.state.nodes.values() if node.cluster == ONPREM
    ]
    assert all(cluster.slots[machine.index] is machine for machine in cluster.machines)
    assert board_says(before) == board_says(SchedulingIndex(w.state, w.engine.policies))
    w.submit(*(a_job(f"more-{number}") for number in range(45)))
    assert all(w.where(f"more-{number}") for number in range(45))
    w.wait(seconds=MINUTE / SECOND)


def test_deadlines_that_pass_together_are_noticed_some_at_a_time() -> None:
    w = World(load, HOURLY)
    deadline = w.now + MINUTE
    w.submit(*(a_job(f"job-{number}").between(deadline=deadline) for number in range(10)))
    w.now = deadline
    for events in shortly(w):
        assert len(events) <= 3
    assert all(isinstance(w.job(f"job-{number}").phase, Ended) for number in range(10))
