"""Members that wait for those of another array, beside single jobs that wait for single jobs."""

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.events import JobState
from spillover.core.proposals import Act, Done
from spillover.core.records.jobs import Placed, Running
from spillover.model import ranges
from spillover.model.ids import JobId, member_id
from spillover.model.job import On
from spillover.model.policy import Choice, PolicySet
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import World

SIZE = 5
NAMES = ("a", "b", "c")

indexes = st.tuples(st.integers(1, SIZE), st.integers(1, SIZE)).map(sorted)
waits = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(On), max_size=2)
acts = st.tuples(
    st.sampled_from(["submit", "finish", "finish", "fail", "cancel", "hold", "release"]),
    st.sampled_from(NAMES),
    st.integers(1, SIZE),
)


def roomy() -> World:
    w = World(load, PolicySet(wait=Choice("never")))
    w.agent("n1", cpus=1000)
    return w


class Beside:
    """The same arrays twice: as arrays, and as one job for each member."""

    def __init__(self, shapes: dict[str, tuple[list[int], dict[str, On]]]) -> None:
        self.shapes = shapes
        self.arrays, self.plain = roomy(), roomy()
        self.there: list[str] = []

    def submit(self, name: str) -> None:
        """Submit an array; it waits for those that were submitted before it and have all of its members."""
        if name in self.there:
            return
        (first, last), wanted = self.shapes[name]
        after = {
            other: on
            for other, on in wanted.items()
            if other in self.there and self.shapes[other][0][0] <= first and last <= self.shapes[other][0][1]
        }
        array = a_job(name).array(first, last)
        for other, on in after.items():
            array = array.after(other, on, same=True)
        self.arrays.submit(array)
        for index in range(first, last + 1):
            one = a_job(f"{name}-{index}")
            for other, on in after.items():
                one = one.after(f"{other}-{index}", on)
            self.plain.submit(one)
        self.there.append(name)

    def state(self, name: str, index: int) -> tuple[str, str]:
        """What became of a member, in each of the two ways."""
        array = self.arrays.job(name).extra.members
        assert array is not None
        job = self.arrays.state.jobs.get(member_id(JobId(name), index))
        if job is not None:
            found = str(job.state)
        else:
            found = "HELD" if ranges.contains(array.unplaced, index) else "CANCELLED"
        return found, str(self.plain.state_of(f"{name}-{index}"))

    def members(self) -> list[tuple[str, int]]:
        return [
            (name, index)
            for name in self.there
            for index in range(self.shapes[name][0][0], self.shapes[name][0][1] + 1)
        ]

    def act(self, what: str, name: str, index: int) -> None:
        if what == "submit":
            self.submit(name)
        if (name, index) not in self.members():
            return
        one, single = f"{name}.{index}", f"{name}-{index}"
        match what:
            case "finish" | "fail":
                job = self.plain.job(single)
                if isinstance(job.phase, Placed | Running) and job.phase.stopping is None:
                    self.arrays.finish(one, int(what == "fail"))
                    self.plain.finish(single, int(what == "fail"))
            case "cancel":
                if self.plain.state_of(single) in {JobState.HELD, JobState.QUEUED}:
                    assert self.arrays.act(Act.CANCEL, one) == Done()
                    assert self.plain.act(Act.CANCEL, single) == Done()
            case "hold" | "release":
                act = Act(what)
                done = self.arrays.act(act, name)
                for each in range(self.shapes[name][0][0], self.shapes[name][0][1] + 1):
                    if done == Done() and self.plain.state_of(f"{name}-{each}") is JobState.HELD:
                        self.plain.act(act, f"{name}-{each}")
            case _:
                pass


@given(
    st.fixed_dictionaries({name: st.tuples(indexes, waits) for name in NAMES}), st.lists(acts, max_size=40)
)
def test_members_start_and_end_as_single_jobs_would(
    shapes: dict[str, tuple[list[int], dict[str, On]]], told: list[tuple[str, str, int]]
) -> None:
    both = Beside(shapes)
    for name in NAMES[:2]:
        both.submit(name)
    for what, name, index in told:
        both.act(what, name, index)
        for member in both.members():
            arrays, plain = both.state(*member)
            assert arrays == plain, (member, what, name, index)
