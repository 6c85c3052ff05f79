"""Members of an array that wait for those with their indexes of another one."""

from itertools import pairwise, product

from msgspec.structs import replace

from spillover.core.apply import apply
from spillover.core.events import JobEnded, JobState, MembersDropped, MembersFreed
from spillover.core.proposals import Act, Dependency, Done, Outcome, Refusal, Submit
from spillover.core.records.jobs import Members, Placed, Running
from spillover.core.state import State
from spillover.model.ids import JobId
from spillover.model.job import AfterMembers, On, Range
from spillover.model.policy import Choice, PolicySet
from spillover.model.reasons import DependencyFailed, DependencySucceeded
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World
from tests.support.sameness import Checkpoints, said_by


def world(cpus: int = 8) -> World:
    w = World(load, PolicySet(wait=Choice("never")))
    w.agent("n1", cpus=cpus)
    return w


def both(size: int = 4, *, cpus: int = 8, on: On = On.SUCCESS, most: int = 0) -> World:
    w = world(cpus)
    w.submit(
        a_job("a").array(1, size),
        a_job("b").array(1, size).at_a_time(most).after("a", on, same=True),
    )
    return w


def placed(w: World, array: str) -> list[int]:
    return sorted(
        int(job.id.partition(".")[2])
        for job in w.state.jobs.values()
        if job.id.startswith(f"{array}.") and isinstance(job.phase, Placed | Running)
    )


def members(w: World, array: str) -> Members:
    found = w.job(array).extra.members
    assert found is not None
    return found


def test_a_member_starts_when_the_one_with_its_index_has_succeeded() -> None:
    w = both()
    assert w.state_of("b") is JobState.HELD
    w.finish("a.3")
    assert placed(w, "b") == [3]
    assert members(w, "b").after == (AfterMembers(JobId("a"), On.SUCCESS, (Range(1, 2), Range(4, 4))),)
    w.finish("a.1")
    assert placed(w, "b") == [1, 3]
    for member in ("a.2", "a.4", "b.1", "b.2", "b.3", "b.4"):
        w.finish(member)
    assert w.state_of("b") is JobState.SUCCEEDED
    assert not w.state.member_waiters


def test_a_member_never_starts_if_the_one_with_its_index_failed() -> None:
    w = both()
    w.finish("a.2", 1)
    (dropped,) = w.happened(MembersDropped)
    assert dropped.members == (Range(2, 2),)
    assert dropped.why == DependencyFailed(JobId("a.2"))
    for member in ("a.1", "a.3", "a.4", "b.1", "b.3", "b.4"):
        w.finish(member)
    assert w.state_of("a") is JobState.FAILED
    assert w.state_of("b") is JobState.CANCELLED
    assert members(w, "b").ended == {JobState.SUCCEEDED: 3, JobState.CANCELLED: 1}


def test_the_array_ends_if_all_its_members_can_never_start() -> None:
    w = both(2)
    w.submit(a_job("c").after("b"))
    w.finish("a.1", 1)
    w.finish("a.2", 1)
    assert w.state_of("b") is JobState.CANCELLED
    assert w.state_of("c") is JobState.CANCELLED


def test_members_may_wait_for_a_failure_or_for_any_end() -> None:
    w = both(on=On.FAILURE)
    w.finish("a.1", 1)
    w.finish("a.2")
    assert placed(w, "b") == [1]
    (dropped,) = w.happened(MembersDropped)
    assert dropped.why == DependencySucceeded(JobId("a.2"))
    w = both(on=On.ANY)
    w.finish("a.1", 1)
    w.finish("a.2")
    assert placed(w, "b") == [1, 2]


def test_a_failure_follows_the_members_of_a_chain() -> None:
    w = world()
    w.submit(
        a_job("a").array(1, 3),
        a_job("b").array(1, 3).after("a", same=True),
        a_job("c").array(1, 3).after("b", same=True),
    )
    w.finish("a.2", 1)
    assert [(each.array, each.members) for each in w.happened(MembersDropped)] == [
        ("b", (Range(2, 2),)),
        ("c", (Range(2, 2),)),
    ]
    w.finish("a.1")
    w.finish("b.1")
    assert placed(w, "c") == [1]


def test_a_member_waits_for_those_of_all_arrays() -> None:
    w = world()
    w.submit(
        a_job("a").array(1, 3),
        a_job("b").array(1, 3),
        a_job("c").array(1, 3).after("a", same=True).after("b", On.ANY, same=True),
    )
    w.finish("a.1")
    assert placed(w, "c") == []
    w.finish("b.1", 1)
    assert placed(w, "c") == [1]
    w.finish("b.2")
    w.finish("a.2", 1)
    assert placed(w, "c") == [1]
    assert [each.members for each in w.happened(MembersDropped)] == [(Range(2, 2),)]


def test_members_wait_for_a_whole_job_too() -> None:
    w = world()
    w.submit(a_job("a").array(1, 2), a_job("x"), a_job("b").array(1, 2).after("a", same=True).after("x"))
    w.finish("a.1")
    assert placed(w, "b") == []
    w.finish("x")
    assert placed(w, "b") == [1]
    w.finish("a.2")
    assert placed(w, "b") == [1, 2]


def test_members_of_other_indexes_wait_for_none() -> None:
    w = world()
    w.submit(a_job("a").array(1, 4), a_job("b").array(3, 4).after("a", same=True))
    w.finish("a.1")
    assert placed(w, "b") == []
    w.finish("a.3")
    assert placed(w, "b") == [3]


def test_an_array_waits_only_for_members_that_have_not_ended_at_its_submission() -> None:
    w = world()
    w.submit(a_job("a").array(1, 4))
    w.finish("a.1")
    w.finish("a.2", 1)
    w.submit(a_job("b").array(1, 4).after("a", same=True))
    assert placed(w, "b") == [1]
    assert members(w, "b").ended == {JobState.CANCELLED: 1}
    assert members(w, "b").blocked == (Range(3, 4),)


def test_an_array_that_follows_an_ended_one_starts_what_can_start() -> None:
    w = world()
    w.submit(a_job("a").array(1, 3))
    w.finish("a.1")
    w.finish("a.2", 1)
    w.finish("a.3")
    w.submit(a_job("b").array(1, 3).after("a", same=True), a_job("c").array(2, 2).after("a", same=True))
    assert placed(w, "b") == [1, 3]
    assert w.state_of("c") is JobState.CANCELLED


def test_what_the_archive_says_of_ended_members_counts() -> None:
    w = world()
    w.submit(a_job("a").array(1, 1))
    w.cancel("a.1")
    w.finish("a.1", outcome=Outcome.STOPPED)
    new = a_job("b").array(1, 4).build()
    gone = Dependency(JobId("old"), On.SUCCESS, False, True, (Range(1, 4),), (Range(1, 2),))
    w.propose(Submit((replace(new, after=(gone,)),), "ada"))
    assert placed(w, "b") == [1, 2]
    assert members(w, "b").ended == {JobState.CANCELLED: 2}


def test_pending_members_that_are_cancelled_take_others_with_them() -> None:
    w = both(4, cpus=1)
    assert w.act(Act.CANCEL, "a.3") == Done()
    assert members(w, "b").ended == {JobState.CANCELLED: 1}
    w.cancel("a")
    assert members(w, "b").blocked == (Range(1, 1),)  # a.1 runs and is being stopped
    w.finish("a.1", outcome=Outcome.STOPPED)
    assert w.state_of("b") is JobState.CANCELLED


def test_both_arrays_can_be_cancelled_at_once() -> None:
    w = both(4, cpus=1)
    assert w.act(Act.CANCEL, "a", "b") == Done()
    w.finish("a.1", outcome=Outcome.STOPPED)
    assert w.state_of("b") is JobState.CANCELLED
    assert members(w, "b").ended == {JobState.CANCELLED: 4}


def test_members_that_wait_can_be_held_and_cancelled() -> None:
    w = both()
    assert w.act(Act.HOLD, "b") == Done()
    w.finish("a.1")
    assert placed(w, "b") == []
    assert w.act(Act.RELEASE, "b") == Done()
    assert placed(w, "b") == [1]
    assert w.act(Act.CANCEL, "b.2") == Done()
    w.finish("a.2")
    assert placed(w, "b") == [1]
    assert isinstance(w.act(Act.RELEASE, "b"), Refusal)


def test_the_throttle_holds_for_members_that_may_start() -> None:
    w = both(4, most=1)
    for index in (1, 2, 3):
        w.finish(f"a.{index}")
    assert placed(w, "b") == [1]
    w.finish("b.1")
    assert placed(w, "b") == [2]
    w.finish("b.2")
    w.finish("b.3")
    assert w.state_of("b") is JobState.HELD
    w.finish("a.4")
    assert placed(w, "b") == [4]


def test_a_lost_member_that_runs_again_keeps_the_other_waiting() -> None:
    w = both()
    w.start("a.1")
    w.finish("a.1", outcome=Outcome.LOST)
    assert placed(w, "b") == []
    w.finish("a.1")
    assert placed(w, "b") == [1]


def test_a_failure_goes_through_a_long_chain_of_arrays() -> None:
    w = world()
    names = ["a" + "".join(word) for word in product("abcdefgh", repeat=3)]
    chain = [a_job(name).array(1, 2).after(before, same=True) for before, name in pairwise(names)]
    w.submit(a_job(names[0]).array(1, 2), *chain)
    w.finish(f"{names[0]}.1", exit_code=1)
    for name in names[1::100]:
        assert members(w, name).ended == {JobState.CANCELLED: 1}
    w.finish(f"{names[0]}.2", exit_code=1)
    assert {w.state_of(name) for name in names[1:]} == {JobState.CANCELLED}


def test_what_waits_survives_a_checkpoint_and_a_replay() -> None:
    w = both(6)
    w.finish("a.2", 1)
    w.finish("a.4")
    checkpoints = Checkpoints()
    checkpoints.write(w.state)
    assert said_by(checkpoints.load()) == said_by(w.state)
    state = State()
    for event in w.events:
        apply(state, event)
    assert said_by(state) == said_by(w.state)


def test_a_million_members_stay_a_few_ranges() -> None:
    w = World(load, PolicySet(wait=Choice("never"), order=Choice("priority")))
    w.agent("n1", cpus=16)
    second = a_job("b").array(1, 1_000_000).after("a", same=True).priority(1)
    w.submit(a_job("a").array(1, 1_000_000), second)
    for index in range(1, 201):
        failed = index % 50 == 0
        w.finish(f"a.{index}", int(failed))
        if not failed:
            assert placed(w, "b") == [index]
            w.finish(f"b.{index}")
    assert members(w, "b").after == (AfterMembers(JobId("a"), On.SUCCESS, (Range(201, 1_000_000),)),)
    assert len(members(w, "a").pending) == 1
    assert members(w, "b").pending == ()
    assert len(list(w.happened(MembersFreed))) == 196
    assert len(list(w.happened(JobEnded))) == 200 + 196
