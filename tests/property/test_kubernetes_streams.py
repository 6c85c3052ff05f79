"""A Job and its pods are heard of over two streams, each in order and as late as it likes, and from those who ask: what is told is
true all the same.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from spillover.clusters.kubernetes.api.objects import KubeJob, Pod
from spillover.clusters.kubernetes.mirror import Mirror
from spillover.core.events import Lease
from spillover.core.proposals import Outcome
from spillover.ports.driver import Ending, Stage
from tests.support.kubernetes import (
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
    when,
)
from tests.support.tiers import examples

T = TypeVar("T", KubeJob, Pod)

FIRST, LAST = "first", "last"
"""Pods of an attempt that is retried; of another there is the last alone."""
EARLY = 9
"""With which code the first of two pods ended."""


class Moment(Struct, frozen=True):
    """How things are after a change."""

    job: KubeJob | None
    """None if there is none."""
    pods: tuple[Pod, ...] = ()


def story(code: int | None, removal: str, *, retried: bool) -> list[Moment]:
    """What really happens: an attempt that ends with a code, or does not, and is removed in some way, or is not.

    One that is retried has a pod that failed before the one that it ends with.
    """
    told = [Moment(None), Moment(a_job())]
    before: tuple[Pod, ...] = ()
    if retried:
        failed = a_pod("Failed", a_container(terminated=ended(EARLY, 1, 3)), name=FIRST)
        before = (failed,)
        told += [Moment(a_job(), (_running(FIRST, 0),)), Moment(a_job(), before)]
    bound, runs = a_pod(name=LAST, made=4), _running(LAST, 4)
    job = a_job(failed=len(before))
    told += [Moment(job, before), Moment(job, (*before, bound)), Moment(job, (*before, runs))]
    if code is not None:
        end = a_container(terminated=ended(code, 5, 9))
        over = (*before, a_pod("Failed" if code else "Succeeded", end, name=LAST, made=4))
        told.append(Moment(job, over))
        why = a_condition("Failed" if code else "Complete", "BackoffLimitExceeded")
        job = a_job(why, succeeded=int(not code), failed=len(before) + bool(code))
        told.append(Moment(job, over))
    pods = told[-1].pods
    if removal == "job first":
        told += [Moment(None, pods), Moment(None)]
    elif removal == "pod first":
        told += [Moment(job), Moment(None)]
    return told


def _running(name: str, made: float) -> Pod:
    return a_pod("Running", a_container(running={"startedAt": at(made + 1)}), name=name, made=made)


class Telling:
    """Two streams of one story, and a mirror that hears them."""

    def __init__(self, code: int | None, moments: list[Moment]) -> None:
        self.code = code
        self.moments = [
            Moment(
                _at(moment.job, version) if moment.job is not None else None,
                tuple([_at(pod, version) for pod in moment.pods]),
            )
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
        self.heard: set[str] = set()
        """Pods whose end was told in time: that of one that was deleted while nobody listened is not."""

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
            before, after = self.moments[self.pods].pods, self.moments[self.pods + 1].pods
            self.pods += 1
            self._hear(after)
            for pod in after:
                self.mirror.put_pod(pod)
            for pod in before:
                if pod.metadata.name not in {each.metadata.name for each in after}:
                    self.mirror.drop_pod(pod)

    def list_jobs(self) -> None:
        self.jobs = self.now
        self.mirror.list_jobs([self.truth.job] if self.truth.job else [], self.now + 1)

    def list_pods(self) -> None:
        self.pods = self.now
        self._hear(self.truth.pods)
        self.mirror.list_pods(self.truth.pods, self.now + 1)

    def settle(self) -> None:
        for lease in self.mirror.doubts():
            self._settle(lease, self.truth, self.now + 1)

    def ask(self) -> None:
        """Ask for what is in doubt; the answer is on its way while the streams go on."""
        self.answers += [
            partial(self._settle, lease, self.truth, self.now + 1) for lease in self.mirror.doubts()
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

    def _settle(self, lease: Lease, then: Moment, version: int) -> None:
        self._hear(then.pods)
        self.mirror.settle(lease, then.job, then.pods, version)

    def _hear(self, pods: tuple[Pod, ...]) -> None:
        if not self.ended:
            self.heard |= {pod.metadata.name for pod in pods if pod.is_over}

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
            assert self.truth == Moment(None), "something is there that was taken for gone"
            # Of what is gone nothing is kept, should a late stream tell of its Job once more.
            self.gone, self.heard, self.ended = True, set(), False

    def _check(self, ending: Ending) -> None:
        """How it ended is told as it was, or as lost if nobody could know by then."""
        assert self.code is not None
        assert self.heard >= {pod.metadata.name for pod in self.truth.pods}, "more can be known of it"
        if self.code == 0 or self.heard:
            code = EARLY if self.code and FIRST in self.heard else self.code
            assert (ending.outcome, ending.exit_code) == (Outcome.EXITED, code)
        else:
            assert ending.outcome is Outcome.LOST
        if LAST in self.heard:
            assert ending.finished == when(9)


def _at(thing: T, version: int) -> T:
    """The same at another version."""
    return replace(thing, metadata=replace(thing.metadata, resource_version=str(version)))


CODES = st.sampled_from([None, 0, 3])
REMOVALS = st.sampled_from(["", "job first", "pod first"])
FEW = st.integers(0, 8)
ELSE = ["settle", "ask", "find", "seek", "answer", "list_jobs", "list_pods", "nothing"]
STEPS = st.tuples(FEW, FEW, FEW, st.sampled_from(ELSE))
"""How far the story goes on, how much of it each stream tells, and what else happens."""


@settings(max_examples=examples(1000))
@given(CODES, REMOVALS, st.booleans(), st.lists(STEPS, max_size=6))
@example(
    3, "pod first", False, [(6, 0, 3, "list_pods"), (6, 0, 2, "settle")]
)  # its Job is heard of once all is gone
@example(3, "", False, [(6, 0, 6, "find"), (0, 1, 0, "nothing")])  # its Job is found over, and then heard of
@example(
    3, "pod first", False, [(7, 7, 0, "settle"), (0, 0, 3, "nothing")]
)  # its pod is heard of once it is gone
@example(0, "job first", False, [(7, 7, 0, "settle")])  # its pod is not heard of when its Job is gone
@example(
    None, "job first", True, [(1, 0, 0, "nothing"), (6, 7, 0, "ask"), (1, 0, 0, "list_pods")]
)  # its pods are gone when an answer comes that has them
@example(
    0, "job first", True, [(3, 3, 1, "nothing"), (7, 5, 1, "settle"), (0, 0, 5, "nothing")]
)  # a pod that is gone is heard of before the end is told
@example(0, "", True, [(8, 8, 3, "nothing")])  # of its pods but one was heard when its Job is over
def test_however_late_streams_are_nothing_untrue_is_told(
    code: int | None, removal: str, retried: bool, steps: list[tuple[int, int, int, str]]
) -> None:
    telling = Telling(code, story(code, removal, retried=retried))
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
