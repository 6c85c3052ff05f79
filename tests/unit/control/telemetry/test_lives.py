"""The life of a job as spans: what ends is told at once, with the same ids whoever tells it."""

import pytest
from msgspec.structs import replace

from spillover.control.telemetry.lives import JobSpans
from spillover.control.telemetry.spans import Span, SpanStatus, Tracer
from spillover.core.proposals import Act, Outcome, Submit, Submitted
from spillover.model.ids import JobId
from spillover.model.job import Retry
from spillover.model.tracing import attempt_span, span_of, trace_of
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import JobBuilder, a_job
from spillover.testing.world import OWNED, World

GIVEN = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Watched:
    """A world whose events become spans, a few at a time."""

    def __init__(self, share: float | None = 1.0) -> None:
        self.world = World(load, clusters=(replace(OWNED, gangs=True),))
        self.tracer = Tracer(share)
        self.spans = JobSpans(self.tracer)
        self._seen = 0

    def told(self) -> list[Span]:
        """Return the spans that ended since the last look."""
        events = self.world.events[self._seen :]
        self._seen = len(self.world.events)
        return self.spans.follow(self.world.state, events)

    def submit(self, job: JobBuilder, traceparent: str = "") -> JobId:
        """Submit a job within a trace."""
        reply = self.world.propose(Submit((replace(job.build(), traceparent=traceparent),), "ada"))
        assert isinstance(reply, Submitted)
        return reply.jobs[0]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def times(spans: list[Span], start: int) -> list[tuple[str, float, float]]:
    return [(each.name, (each.start - start) / SECOND, (each.end - start) / SECOND) for each in spans]


def test_a_job_is_a_trace_of_waiting_preparing_and_running(watched: Watched) -> None:
    world = watched.world
    start = world.now
    job = watched.submit(a_job("train").project("vision"))
    world.wait(seconds=5)
    assert watched.told() == [], "it still waits"
    world.agent("n1")
    assert times(watched.told(), start) == [("queued", 0, 5)]
    world.wait(seconds=2)
    world.start(job)
    world.wait(seconds=10)
    world.finish(job)
    found = watched.told()
    assert times(found, start) == [
        ("attempt 1", 5, 17),
        ("preparing", 5, 7),
        ("running", 7, 17),
        ("train", 0, 17),
    ]
    attempt, preparing, running, whole = found
    assert {each.trace for each in found} == {trace_of(job)}
    assert (whole.span, whole.parent, attempt.parent) == (span_of(job), "", whole.span)
    assert preparing.parent == running.parent == attempt.span == attempt_span(job, 1)
    assert whole.status is SpanStatus.OK
    assert whole.whole
    assert whole.attributes == {
        "spillover.job.id": job,
        "spillover.job.name": "train",
        "spillover.user": "ada",
        "spillover.project": "vision",
        "spillover.queue": "default",
        "spillover.state": "SUCCEEDED",
        "spillover.attempts": 1,
        "spillover.cost": 0.0,
        "spillover.cluster": "onprem",
        "spillover.node": "n1",
        "spillover.exit_code": 0,
        "spillover.cpu_seconds": 1.0,
        "spillover.peak_memory": 2**20,
    }
    assert attempt.attributes["spillover.placed.reason"] == str(world.job(job).phase.placed)  # type: ignore[union-attr]


def test_every_attempt_and_every_wait_has_a_span(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    job = watched.submit(a_job("train").terms(retry=Retry(exit=1)))
    world.start(job)
    world.wait(seconds=3)
    world.finish(job, 1)
    world.wait(seconds=4)
    world.start(job)
    world.wait(seconds=5)
    world.finish(job, 7)
    found = watched.told()
    names = [each.name for each in found]
    assert names.count("running") == 2
    first, second = (next(each for each in found if each.name == f"attempt {number}") for number in (1, 2))
    assert first.attributes["spillover.requeued"] == "exit"
    assert second.attributes["spillover.exit_code"] == 7
    whole = found[-1]
    assert (whole.status, whole.message) == (SpanStatus.ERROR, str(world.job(job).phase.why))  # type: ignore[union-attr]
    assert whole.attributes["spillover.reason"] == "exited"
    assert len({each.span for each in found}) == len(found)


def test_a_held_job_says_how_long_it_was_held(watched: Watched) -> None:
    world = watched.world
    start = world.now
    job = watched.submit(a_job("train").held())
    world.wait(seconds=5)
    world.act(Act.RELEASE, job)
    world.wait(seconds=1)
    world.act(Act.HOLD, job)
    world.wait(seconds=2)
    world.act(Act.RELEASE, job)
    world.wait(seconds=3)
    world.cancel(job)
    found = watched.told()
    assert times(found, start) == [
        ("held", 0, 5),
        ("queued", 5, 6),
        ("held", 6, 8),
        ("queued", 8, 11),
        ("train", 0, 11),
    ]
    assert found[-1].status is SpanStatus.UNSET, "somebody did not want it; that is no error"
    assert found[-1].attributes["spillover.attempts"] == 0


def test_an_attempt_that_never_started_is_not_the_one_that_tasks_continue(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    job = watched.submit(a_job("train"))
    world.wait(seconds=1)
    world.hand_back(job)
    world.wait(seconds=1)
    world.start(job)
    world.finish(job)
    tries = [each for each in watched.told() if each.name == "attempt 1"]
    assert len({each.span for each in tries}) == 2
    assert tries[-1].span == attempt_span(job, 1)


def test_tasks_of_a_gang_are_spans_of_their_attempt(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    world.agent("n2")
    job = watched.submit(a_job("mpi").tasks(2))
    world.start(job)
    world.wait(seconds=4)
    world.finish_task(job, 0)
    world.wait(seconds=6)
    world.finish_task(job, 1)
    found = watched.told()
    tasks = {each.name: each for each in found if each.name.startswith("task")}
    assert {name: (each.end - each.start) / SECOND for name, each in tasks.items()} == {
        "task 0": 4,
        "task 1": 10,
    }
    assert {each.parent for each in tasks.values()} == {attempt_span(job, 1)}
    assert sorted(str(each.attributes["spillover.node"]) for each in tasks.values()) == ["n1", "n2"]
    assert found[-1].attributes["spillover.tasks"] == 2


def test_a_member_has_a_trace_of_its_own_that_links_to_its_array(watched: Watched) -> None:
    world = watched.world
    world.agent("n1", cpus=2)
    array = watched.submit(a_job("sweep").array(1, 2))
    for index in (1, 2):
        world.start(f"{array}.{index}")
        world.finish(f"{array}.{index}")
    whole = [each for each in watched.told() if each.whole]
    assert [each.attributes["spillover.job.id"] for each in whole] == [f"{array}.1", f"{array}.2", array]
    assert len({each.trace for each in whole}) == 3
    assert whole[0].links == ((trace_of(array), span_of(array)),)
    assert whole[2].attributes["spillover.members"] == 2


def test_a_trace_that_a_submitter_began_holds_everything(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    array = watched.submit(a_job("sweep").array(1, 1), GIVEN)
    member = JobId(f"{array}.1")
    assert watched.tracer.traceparent(world.state, member, 1) == (
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{attempt_span(member, 1)}-01"
    )
    world.start(member)
    world.finish(member)
    found = watched.told()
    assert {each.trace for each in found} == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    one, whole = (each for each in found if each.whole)
    assert (one.parent, whole.parent) == (span_of(array), "00f067aa0ba902b7")
    assert one.links == ()


def test_what_a_submitter_does_not_record_is_not_exported_and_says_so_to_tasks(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    job = watched.submit(a_job("train"), f"{GIVEN[:-1]}0")
    assert watched.tracer.traceparent(world.state, job, 1).endswith("-00")
    world.start(job)
    world.finish(job)
    assert watched.told() == []


def test_of_a_share_all_or_nothing_of_a_job_is_exported() -> None:
    watched = Watched(0.5)
    world = watched.world
    world.agent("n1")
    jobs = [watched.submit(a_job(f"job{number}")) for number in range(30)]
    for job in jobs:
        world.start(job)
        world.finish(job)
    found = watched.told()
    whole = {each.trace for each in found if each.whole}
    assert 0 < len(whole) < 30
    assert {each.trace for each in found} == whole


def test_without_an_endpoint_tasks_get_only_what_the_submitter_gave() -> None:
    watched = Watched(None)
    plain, given = watched.submit(a_job("plain")), watched.submit(a_job("given"), GIVEN)
    assert watched.tracer.traceparent(watched.world.state, plain, 1) == ""
    assert watched.tracer.traceparent(watched.world.state, given, 1) == GIVEN


def test_a_server_that_was_restarted_goes_on_with_running_jobs(watched: Watched) -> None:
    world = watched.world
    start = world.now
    world.agent("n1", cpus=4)
    world.agent("n2", cpus=4)
    waits = watched.submit(a_job("waits").cpus(64))
    job, gang = watched.submit(a_job("train")), watched.submit(a_job("mpi").tasks(2))
    world.wait(seconds=2)
    world.start(job)
    world.start(gang)
    watched.told()
    watched.spans = JobSpans(watched.tracer)
    watched.spans.begin(world.state)
    world.wait(seconds=2)
    world.finish(job)
    assert times(watched.told(), start) == [
        ("attempt 1", 0, 4),
        ("preparing", 0, 2),
        ("running", 2, 4),
        ("train", 0, 4),
    ]
    world.finish(gang)
    assert sorted(each.name for each in watched.told() if "task" in each.name) == ["task 0", "task 1"]
    world.cancel(waits)
    assert times(watched.told(), start) == [("queued", 0, 4), ("waits", 0, 4)]


def test_spans_do_not_depend_on_how_far_ahead_the_state_is() -> None:
    early, late = Watched(), Watched()
    stories: list[list[Span]] = [[], []]
    for each, story, eager in ((early, stories[0], True), (late, stories[1], False)):
        world = each.world
        world.agent("n1", cpus=2)
        world.agent("n2", cpus=2)
        jobs = [
            each.submit(a_job("train").terms(retry=Retry(exit=1))),
            each.submit(a_job("sweep").array(1, 3)),
            each.submit(a_job("mpi").tasks(2)),
            each.submit(a_job("held").held()),
        ]
        for step in range(12):
            world.wait(seconds=1)
            for job in list(world.placed()):
                world.start(job)
                world.wait(seconds=1)
                world.finish(job, 1 if step == 0 and job == jobs[0] else 0)
                if eager:
                    story.extend(each.told())
        world.cancel(jobs[3])
        story.extend(each.told())
    assert stories[0] == stories[1]
    assert stories[0]


def test_a_stop_is_told_within_its_attempt(watched: Watched) -> None:
    world = watched.world
    world.agent("n1")
    job = watched.submit(a_job("train"))
    world.start(job)
    world.wait(seconds=2)
    world.cancel(job)
    world.finish(job, outcome=Outcome.STOPPED)
    attempt = next(each for each in watched.told() if each.name == "attempt 1")
    assert [each.name for each in attempt.events] == ["stop requested by ada (cancel)"]


def test_a_task_that_was_too_short_for_a_report_of_its_start_ran_all_the_same(watched: Watched) -> None:
    world = watched.world
    start = world.now
    world.agent("n1")
    job = watched.submit(a_job("train").terms(retry=Retry(exit=1)))
    world.wait(seconds=3)
    world.finish(job, 1, ran=1)
    world.wait(seconds=2)
    world.finish(job, ran=2)
    found = watched.told()
    runs = times([each for each in found if each.name == "running"], start)
    assert runs == [("running", 3, 5)], "nobody knows when the first began"
    assert {each.span for each in found} >= {attempt_span(job, 1), attempt_span(job, 2)}
