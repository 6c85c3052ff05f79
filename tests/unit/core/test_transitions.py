from typing import Literal, get_args, get_origin

import msgspec
import pytest

from spillover.core.apply import apply
from spillover.core.events import AnyEvent, Event, JobState, SpotPriced, TaskEnd
from spillover.core.proposals import Act, Outcome
from spillover.core.records.jobs import Ended, Placed, Running
from spillover.core.transitions import (
    CLUSTER,
    JOB,
    TERMINAL,
    Impossible,
    agent_figure,
    cluster_figure,
    figure,
    life_figure,
    machine_figure,
    node_figure,
)
from spillover.model.cluster import ClusterHealth
from spillover.model.job import Retry
from spillover.model.policy import Choice, PolicySet
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from spillover.wire.journal import decode_event, encode_event

LIFE = tuple({event for _, event in JOB})


def example(kind: type[Event]) -> AnyEvent:
    """An event of a type, made of the smallest values that its fields take."""
    fields: list[object] = []
    for field in msgspec.structs.fields(kind):
        if field.name == "job" or (field.name == "array" and "tuple" not in str(field.type)):
            fields.append("job")
        elif field.name == "jobs":
            fields.append(["job"])
        elif "tuple[tuple" in str(field.type).replace("typing.", "").lower():
            fields.append([["x"]] if kind is not SpotPriced else [["x", 1]])
        else:
            fields.append(smallest(field.type))
    event: AnyEvent = msgspec.convert([kind.__struct_config__.tag, *fields], AnyEvent)
    return event


def smallest(kind: object) -> object:
    text = str(kind)
    for start, value in (
        ("<class 'int'>", 1),
        ("<class 'bool'>", True),
        ("<class 'str'>", "x"),
        ("<class 'bytes'>", b"x"),
        ("dict", {}),
        ("tuple", []),
    ):
        if text.startswith(start):
            return value
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if "JobId" in text or "Name" in text or "MachineId" in text:
        return "x"
    if kind is TaskEnd:
        return [1, 1, JobState.FAILED]
    if hasattr(kind, "__members__"):
        return next(iter(kind)).value  # type: ignore[call-overload]
    if "None" in text and "Reason" not in text:
        return None
    if "reasons." in text:
        return {"code": "fresh"}
    if "job.Shape" in text:
        return [[1000, 1, 0]]
    if "pools.Offer" in text:
        return ["x", [1000, 1, 0], 1]
    if "PolicySet" in text:
        return {}
    if "ClusterSpec" in text:
        return {"name": "x", "kind": "agents", "role": "owned"}
    return []


def world_with(state: JobState) -> World:
    w = World(load, PolicySet(wait=Choice("never")))
    w.submit(a_job("job").terms(retry=Retry(0, 0)))
    if state is JobState.HELD:
        w.act(Act.HOLD, "job")
    elif state is JobState.CANCELLED:
        w.cancel("job")
    elif state is not JobState.QUEUED:
        w.agent("n1")
    if state is JobState.RUNNING:
        w.start("job")
    if state in {JobState.SUCCEEDED, JobState.FAILED}:
        w.finish("job", int(state is JobState.FAILED))
    if state is JobState.TIMED_OUT:
        w.finish("job", outcome=Outcome.WALLTIME)
    assert w.state_of("job") is state
    return w


@pytest.mark.parametrize("state", JobState)
@pytest.mark.parametrize("kind", sorted(LIFE, key=str), ids=lambda kind: kind.__name__)
def test_an_event_that_no_state_allows_is_impossible_and_tells_the_story(
    state: JobState, kind: type[Event]
) -> None:
    if (state, kind) in JOB:
        return
    w = world_with(state)
    with pytest.raises(Impossible, match=rf"{kind.__name__} on Job\(id='job'"):
        apply(w.state, example(kind))


@pytest.mark.parametrize("kind", AnyEvent.__args__, ids=lambda kind: kind.__name__)
def test_every_event_is_read_back_as_it_was_written(kind: type[Event]) -> None:
    event = example(kind)
    assert type(event) is kind
    assert decode_event(encode_event(event)) == event


def test_the_figure_shows_every_state_and_every_row() -> None:
    drawn = figure()
    for state in JobState:
        assert f" {state}" in drawn
        assert (f"    {state} --> [*]" in drawn) == (state in TERMINAL)
    for (state, event), following in JOB.items():
        for target in following:
            assert f"    {state} --> {target}: {event.__name__}\n" in drawn
    assert "ready --> lost: AgentLost" in agent_figure()
    assert "ready --> closed: NodesSeen (not ready)" in node_figure()
    assert "degraded --> failed: ClusterChanged" in cluster_figure()
    assert "requested --> ready: ClusterOpened (agents)" in life_figure()
    assert "wanted --> booting: MachineMade" in machine_figure()


def test_a_cluster_that_failed_is_ready_only_when_it_has_come_back() -> None:
    assert set(CLUSTER) == set(ClusterHealth)
    assert all(
        ClusterHealth.FAILED in following
        for health, following in CLUSTER.items()
        if health is not ClusterHealth.FAILED
    )
    assert (
        ClusterHealth.DEGRADED not in CLUSTER[ClusterHealth.CLEARING]
    )  # or nobody would know that it has to be cleared
    assert not any(ClusterHealth.UNOBSERVED in following for following in CLUSTER.values())


def test_terminal_states_have_no_row() -> None:
    assert not [row for row in JOB if row[0] in TERMINAL]


def test_a_job_that_ended_remembers_where_it_ran() -> None:
    w = world_with(JobState.RUNNING)
    assert isinstance(w.job("job").phase, Running)
    w.finish("job")
    phase = w.job("job").phase
    assert isinstance(phase, Ended)
    assert (phase.cluster, phase.node) == ("onprem", "n1")
    assert not isinstance(phase, Placed)
