"""Short tasks are handed on ahead of their turn, and had back from behind a long one."""

import pytest

from spillover.agent.leases.chains import AHEAD, MOST, MOST_KNOWN, PATIENCE
from spillover.agent.leases.state import AgentState
from spillover.agent.leases.values import (
    Exit,
    Grant,
    Instruction,
    Recall,
    Renewal,
    Signal,
    StartTask,
    Task,
    Welcome,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome
from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.job import Argv, PythonCall, Shell, Work
from spillover.model.resources import Resources
from spillover.model.units import SECOND

CALL = Task(PythonCall(function="f"), Resources(1000))
OTHER = Task(PythonCall(function="f"), Resources(500))
SHELL = Task(Shell("true"), Resources(1000))


def a_lease(job: str) -> Lease:
    return Lease(JobId(job), 1, 1)


class Life:
    """An agent of two CPUs."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.state = AgentState(Resources(2000))
        self.state.register(self.now)
        self.state.registered(self.now, self.now, Welcome(1, 1, frozenset(), 2 * SECOND, 30 * SECOND))

    def granted(self, *jobs: str, task: Task = CALL) -> list[Instruction]:
        return self.state.granted(self.now, 1, 1, [Grant(a_lease(job), task) for job in jobs])

    def ended(self, job: str, ran: int = 1000) -> list[Instruction]:
        self.now += 1
        return self.state.ended(self.now, a_lease(job), Exit(self.now, code=0, usage=Usage(ran)))

    def knows_the_pace(self, ran: int = 1000, task: Task = CALL) -> None:
        self.granted("first", task=task)
        self.ended("first", ran)


def slots(instructions: list[Instruction]) -> dict[str, int]:
    return {each.lease.job: each.slot for each in instructions if isinstance(each, StartTask)}


def test_before_the_pace_of_a_function_is_known_each_call_waits_for_room() -> None:
    life = Life()
    assert len(slots(life.granted("a", "b", "c"))) == 2
    assert list(life.state.waiting) == [a_lease("c")]


def test_short_calls_are_spread_evenly_behind_those_that_have_room() -> None:
    life = Life()
    life.knows_the_pace()
    given = slots(life.granted(*"abcdef"))
    assert given["a"] != given["b"]
    assert [given[job] for job in "cdef"].count(given["a"]) == 2
    assert life.state.room.free == Resources()
    assert not life.state.waiting


def test_no_more_are_handed_ahead_than_are_over_within_a_moment() -> None:
    life = Life()
    life.knows_the_pace(ran=SECOND // 100)
    assert len(slots(life.granted(*[f"j{n}" for n in range(20)]))) == 4
    short = Life()
    short.knows_the_pace()
    assert len(slots(short.granted(*[f"j{n}" for n in range(500)]))) == 2 * MOST


def test_a_long_function_is_never_handed_ahead() -> None:
    life = Life()
    life.knows_the_pace(ran=10 * SECOND)
    assert len(slots(life.granted("a", "b", "c"))) == 2


def test_room_is_free_once_the_last_of_a_slot_ended() -> None:
    life = Life()
    life.knows_the_pace()
    life.granted("a", "b", "c", "d")
    life.ended("a")
    life.ended("b")
    assert life.state.room.free == Resources()
    life.ended("c")
    assert life.state.room.free == Resources(1000)
    life.ended("d")
    assert life.state.room.free == Resources(2000)


def test_calls_of_other_needs_and_other_work_wait_for_room_of_their_own() -> None:
    life = Life()
    life.knows_the_pace()
    life.granted("a", "b")
    assert slots(life.granted("c", task=OTHER)) == {}
    assert slots(life.granted("d", task=SHELL)) == {}
    assert list(life.state.waiting) == [a_lease("c"), a_lease("d")]


def test_calls_behind_a_long_one_are_had_back_and_go_where_there_is_room() -> None:
    life = Life()
    life.knows_the_pace()
    given = slots(life.granted(*"abcdef"))
    behind = [job for job in "cdef" if given[job] == given["a"]]
    for job in "bcdef":
        if given[job] == given["b"]:
            life.ended(job)
    assert life.state.wake() == 1000 * SECOND + 1 + PATIENCE
    life.now += PATIENCE
    recalled = [each.lease.job for each in life.state.tick(life.now) if isinstance(each, Recall)]
    assert recalled == behind
    again = life.state.returned(life.now, [a_lease(job) for job in behind])
    assert set(slots(again)) == set(behind)
    assert given["a"] not in slots(again).values()
    assert set(life.state.running) == {a_lease(job) for job in ["a", *behind]}


def test_a_call_that_moves_on_keeps_those_behind_it() -> None:
    life = Life()
    life.knows_the_pace()
    life.granted(*"abcdef")
    life.now += PATIENCE - 10
    life.ended("a")
    life.ended("b")
    life.now += 20
    assert not any(isinstance(each, Recall) for each in life.state.tick(life.now))


def test_one_that_is_stopped_before_it_began_is_a_result_and_not_started_again() -> None:
    life = Life()
    life.knows_the_pace()
    life.granted(*"abc")
    out = life.state.renewed(life.now, life.now, Renewal(1, stops=((a_lease("c"), False),)))
    assert out == [Signal(a_lease("c"), kill=False)]
    assert slots(life.state.returned(life.now, [a_lease("c")])) == {}
    assert life.state.results[a_lease("c")].outcome is Outcome.STOPPED
    assert a_lease("c") not in life.state.running


def test_what_comes_back_to_an_agent_that_leaves_is_handed_back() -> None:
    life = Life()
    life.knows_the_pace()
    life.granted(*"abc")
    life.state.leave(life.now)
    life.state.running[a_lease("c")].cause = None
    life.state.returned(life.now, [a_lease("c")])
    assert not life.state.waiting
    report, _ = life.state.report(life.now)
    assert report is not None
    assert a_lease("c") in report.released


def test_a_value_comes_with_its_result() -> None:
    life = Life()
    life.granted("a")
    end = Exit(life.now, code=0, usage=Usage(5), value=b"v", value_digest="d")
    life.state.ended(life.now, a_lease("a"), end)
    result = life.state.results[a_lease("a")]
    assert (result.value, result.value_digest) == (b"v", "d")


@pytest.mark.parametrize("work", [Shell("true"), Argv(("true",))])
def test_short_commands_share_room_once_their_pace_is_known(work: Work) -> None:
    task = Task(work, Resources(1000))
    life = Life()
    assert slots(life.granted(*"ab", task=task)) == {"a": -1, "b": -1}
    life.ended("a")
    life.ended("b")
    given = slots(life.granted(*"cdefgh", task=task))
    assert sorted(given.values()) == [1, 1, 1, 2, 2, 2]
    assert life.state.room.free == Resources()


def test_nothing_is_put_behind_a_command_that_takes_long() -> None:
    life = Life()
    life.knows_the_pace(ran=AHEAD, task=SHELL)
    assert slots(life.granted(*"abc", task=SHELL)) == {"a": -1, "b": -1}


def test_a_command_in_another_folder_is_other_work() -> None:
    life = Life()
    life.knows_the_pace(task=SHELL)
    elsewhere = Task(Shell("true"), Resources(1000), workdir="/tmp")
    assert slots(life.granted(*"abc", task=elsewhere)) == {"a": -1, "b": -1}


def test_a_command_with_files_has_room_of_its_own() -> None:
    life = Life()
    life.knows_the_pace(task=SHELL)
    life.granted(*"ab", task=SHELL)
    for files in (
        Task(Shell("true"), Resources(1000), inputs=(File("x", "0" * 64, 1),)),
        Task(Shell("true"), Resources(1000), outputs=("y",)),
    ):
        assert slots(life.granted(f"with{files.outputs}", task=files)) == {}


def test_a_command_whose_time_nobody_took_teaches_nothing() -> None:
    life = Life()
    life.knows_the_pace(ran=0, task=SHELL)
    assert slots(life.granted(*"abc", task=SHELL)) == {"a": -1, "b": -1}


def test_the_pace_of_only_so_much_work_is_remembered() -> None:
    life = Life()
    life.knows_the_pace(task=SHELL)
    for number in range(MOST_KNOWN):
        life.granted(f"j{number}", task=Task(Shell(f"true {number}"), Resources(1000)))
        life.ended(f"j{number}")
    assert slots(life.granted("again", task=SHELL)) == {"again": -1}


def test_when_a_nursery_dies_what_had_not_begun_in_it_is_not_lost() -> None:
    life = Life()
    life.knows_the_pace(task=SHELL)
    life.granted(*"abcd", task=SHELL)
    for job in "ab":
        assert not life.state.ended(life.now, a_lease(job), Exit(life.now, lost=True))
    again = life.state.returned(life.now, [a_lease("c"), a_lease("d")])
    assert set(slots(again)) == {"c", "d"}
    assert {lease.job for lease, result in life.state.results.items() if result.outcome is Outcome.LOST} == {
        *"ab"
    }
    assert set(life.state.running) == {a_lease("c"), a_lease("d")}
    assert life.state.room.free == Resources()
