"""A Job and its pod are heard of over two streams, each in order and as late as it likes, and from those who ask: what is told is
true all the same.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from spillover.clusters.kubernetes.mirror import Mirror
from spillover.clusters.kubernetes.objects import Job, Pod
from spillover.core.proposals import Outcome
from spillover.ports.driver import Ending, Stage
from spillover.testing.kubernetes import (
    LEASE,
    NAMESPACE,
    OWNER,
    a_condition,
    a_container,
    a_job,
    a_node,
    a_pod,
    at,
    ended,
)

T = TypeVar("T", Job, Pod)

WORKS = a_container(running={"startedAt": at(1)})


class Moment(Struct, frozen=True):
    """How things are after a change; None is not there."""

    job: Job | None
    pod: Pod | None


def story(code: int | None, removal: str) -> list[Moment]:
    """What really happens: an attempt that ends with a code, or does not, and is removed in some way, or is not."""
    bound, runs = a_pod(), a_pod("Running", WORKS)
    told = [Moment(None, None), Moment(a_job(), None), Moment(a_job(), bound), Moment(a_job(), runs)]
    job = a_job()
    if code is not None:
        over = a_pod("Succeeded" if code == 0 else "Failed", a_container(terminated=ended(code)))
        job = a_job(a_condition("Complete" if code == 0 else "Failed", "BackoffLimitExceeded"))
        told += [Moment(a_job(), over), Moment(job, over)]
    pod = told[-1].pod
    if removal == "job first":
        told += [Moment(None, pod), Moment(None, None)]
    elif removal == "pod first":
        told += [Moment(job, None), Moment(None, None)]
    return told


class Telling:
    """Two streams of one story, and a mirror that hears them."""

    def __init__(self, code: int | None, moments: list[Moment]) -> None:
        self.code = code
        self.moments = [
            Moment(_at(moment.job, version), _at(moment.pod, version))
            for version, moment in enumerate(moments, 1)
        ]
        self.now = self.jobs = self.pods = 0
        """Where the story is, and how far each stream has told it."""
        self.mirror = Mirror(OWNER, NAMESPACE)
        self.mirror.list_nodes([a_node()], 1)
        self.mirror.list_pods([], 1)
        self.mirror.list_jobs([], 1)
        self.mirror.take()
        self.ending: Ending | None = None
        self.ended = False
        """Whether an end was told of what is there."""
        self.answers: list[Callable[[], None]] = []
        self.seen = self.gone = False
        self.heard = False
        """Whether the end of the pod was told in time: of one that was deleted while nobody listened it is not."""

    @property
    def truth(self) -> Moment:
        return self.moments[self.now]

    def go_on(self) -> None:
        self.now = min(self.now + 1, len(self.moments) - 1)

    def hear_job(self) -> None:
        if self.jobs < self.now:
            before, after = self.moments[self.jobs].job, self.moments[self.jobs + 1].job
            self.jobs += 1
            if after is not None:
                self.mirror.put_job(after)
            elif before is not None:
                self.mirror.drop_job(before)

    def hear_pod(self) -> None:
        if self.pods < self.now:
            before, after = self.moments[self.pods].pod, self.moments[self.pods + 1].pod
            self.pods += 1
            if after is not None:
                self.heard |= after.is_over and not self.ended
                self.mirror.put_pod(after)
            elif before is not None:
                self.mirror.drop_pod(before)

    def list_jobs(self) -> None:
        self.jobs = self.now
        self.mirror.list_jobs([self.truth.job] if self.truth.job else [], self.now + 1)

    def list_pods(self) -> None:
        self.pods = self.now
        self.mirror.list_pods(self._pods_now(), self.now + 1)

    def settle(self) -> None:
        for lease in self.mirror.doubts():
            self.mirror.settle(lease, self.truth.job, self._pods_now(), self.now + 1)

    def ask(self) -> None:
        """Ask for what is in doubt; the answer is on its way while the streams go on."""
        self.answers += [
            partial(self.mirror.settle, lease, self.truth.job, self._pods_now(), self.now + 1)
            for lease in self.mirror.doubts()
        ]

    def find(self) -> None:
        """Somebody who wants to make the Job is told that it is there."""
        if self.truth.job is not None:
            self.mirror.made_job(self.truth.job)

    def seek(self) -> None:
        """The same, with an answer that is on its way."""
        if self.truth.job is not None:
            self.answers.append(partial(self.mirror.made_job, self.truth.job))

    def answer(self) -> None:
        """All answers come that are on their way."""
        answers, self.answers = self.answers, []
        for each in answers:
            each()

    def _pods_now(self) -> list[Pod]:
        pod = self.truth.pod
        self.heard |= pod is not None and pod.is_over and not self.ended
        return [] if pod is None else [pod]

    def take(self) -> None:
        changes = self.mirror.take()
        for seen in changes.attempts:
            self.seen, self.gone = True, False
            if seen.ending is not None:
                assert seen.stage is Stage.ENDED
                self._check(seen.ending)
                self.ending, self.ended = seen.ending, True
            assert seen.ending is not None or seen.going or not self.ended, "what has ended runs again"
        if LEASE in changes.gone:
            assert self.truth == Moment(None, None), "something is there that was taken for gone"
            # Of what is gone nothing is kept, should a late stream tell of its Job once more.
            self.gone, self.heard, self.ended = True, False, False

    def _check(self, ending: Ending) -> None:
        """How it ended is told as it was, or as lost if nobody could know by then."""
        assert self.code is not None
        if self.heard or self.code == 0:
            assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, self.code)
        else:
            assert ending.outcome is Outcome.LOST


def _at(thing: T | None, version: int) -> T | None:
    """The same at another version."""
    if thing is None:
        return None
    return replace(thing, metadata=replace(thing.metadata, resource_version=str(version)))


CODES = st.sampled_from([None, 0, 3])
REMOVALS = st.sampled_from(["", "job first", "pod first"])
FEW = st.integers(0, 6)
ELSE = ["settle", "ask", "find", "seek", "answer", "list_jobs", "list_pods", "nothing"]
STEPS = st.tuples(FEW, FEW, FEW, st.sampled_from(ELSE))
"""How far the story goes on, how much of it each stream tells, and what else happens."""


@settings(max_examples=1000)
@given(CODES, REMOVALS, st.lists(STEPS, max_size=6))
@example(
    3, "pod first", [(5, 0, 2, "list_pods"), (5, 0, 2, "settle")]
)  # its Job is heard of once all is gone
@example(3, "", [(5, 0, 5, "find"), (0, 1, 0, "nothing")])  # its Job is found over, and then heard of
@example(3, "pod first", [(6, 6, 0, "settle"), (0, 0, 2, "nothing")])  # its pod is heard of once it is gone
def test_however_late_streams_are_nothing_untrue_is_told(
    code: int | None, removal: str, steps: list[tuple[int, int, int, str]]
) -> None:
    telling = Telling(code, story(code, removal))
    for moments, jobs, pods, then in steps:
        for _ in range(moments):
            telling.go_on()
        for _ in range(jobs):
            telling.hear_job()
        for _ in range(pods):
            telling.hear_pod()
        if then != "nothing":
            getattr(telling, then)()
        telling.take()
    for _ in telling.moments:
        telling.go_on()
    telling.answer()
    for _ in telling.moments:
        telling.hear_job()
        telling.hear_pod()
        telling.settle()
        telling.take()
    if telling.seen or telling.gone:
        assert telling.gone == bool(removal)
    if code is not None and not removal:
        assert telling.ending is not None
