"""Generates jobs whose runtimes the scheduler knows, for properties of reservations and expected starts."""

from hypothesis import strategies as st

from spillover.core.records.tasks import asked_by
from spillover.model.cluster import Billing, Price
from spillover.model.job import Shape, TaskGroup, largest_first
from spillover.model.policy import Choice, PolicySet
from spillover.model.resources import Resources
from spillover.model.units import SECOND
from spillover.sim.setting import Fleet, Rent, Setting
from spillover.sim.shapes import Shapes
from spillover.sim.trace import Own, TraceJob

NODE = Resources(4000, 8, 2)
"""A machine; some of the jobs are larger."""


@st.composite
def job_lists(draw: st.DrawFn, *, exact: bool = True) -> list[TraceJob]:
    """Jobs, some larger than one machine; without `exact`, some end before they are expected to."""
    submits = sorted(draw(st.lists(st.integers(0, 60), min_size=1, max_size=25)))
    return [
        TraceJob(
            str(number),
            submit * SECOND,
            (runtime := draw(st.integers(1, 40)) * SECOND),
            gpus=draw(st.sampled_from([0, 0, 1, 2])),
            cpus=draw(st.sampled_from([1000, 2000, 4000, 8000])),
            memory=draw(st.sampled_from([0, 1, 4, 8])),
            estimate=runtime if exact else runtime + draw(st.sampled_from([0, 0, 10, 60])) * SECOND,
            user=draw(st.sampled_from(["ada", "bob"])),
        )
        for number, submit in enumerate(submits)
    ]


@st.composite
def gang_lists(draw: st.DrawFn, *, exact: bool = True, elastic: bool = True) -> list[TraceJob]:
    """Jobs of one task, gangs, gangs of elastic size and gangs with groups; without `exact` as in `job_lists`."""
    submits = sorted(draw(st.lists(st.integers(0, 40), min_size=1, max_size=15)))
    return [
        TraceJob(
            str(number),
            submit * SECOND,
            (runtime := draw(st.integers(1, 40)) * SECOND),
            estimate=runtime if exact else runtime + draw(st.sampled_from([0, 0, 10, 60])) * SECOND,
            project=draw(st.sampled_from(["ours", "theirs"])),
            own=Own(draw(_SHAPES if elastic else _FIXED)),
        )
        for number, submit in enumerate(submits)
    ]


_ASKED = st.builds(
    Resources, st.sampled_from([1000, 2000, 3000]), st.sampled_from([0, 4]), st.sampled_from([0, 0, 1])
)


@st.composite
def _groups(draw: st.DrawFn) -> Shape:
    groups = tuple([TaskGroup(name, draw(st.integers(1, 2)), draw(_ASKED)) for name in ("leader", "worker")])
    first = min([group.resources for group in groups], key=largest_first)
    return Shape(first, tasks=sum(group.tasks for group in groups), groups=groups)


_FIXED = st.one_of(
    st.builds(Shape, _ASKED),
    st.builds(Shape, _ASKED, tasks=st.integers(2, 3)),
    _groups(),
)
_SHAPES = st.one_of(_FIXED, st.builds(Shape, _ASKED, tasks=st.integers(1, 2), most=st.integers(3, 6)))


def shape_of(job: TraceJob, where: Setting) -> Shape:
    """Return what a job asks for on these machines."""
    return Shapes(where.fleet).of(job) if job.own is None else job.own.shape


def tasks_to_place(shape: Shape) -> list[Resources]:
    """Return what each task asks for, in the order in which tasks get a place; of elastic size, the fewest."""
    return [
        asked
        for _, part in shape.parts
        for asked in [*[part.resources] * (part.tasks - 1), part.rest or part.resources]
    ]


def held_by_rank(shape: Shape, tasks: int) -> list[Resources]:
    """Return what each task of so many holds, by rank."""
    sized = shape.sized(tasks) if shape.most else shape
    return [asked_by(sized, rank) for rank in range(tasks)]


def on_machines(
    count: int, backfill: Choice, place: str = "first_fit", *, node: Resources = NODE, order: str = "fifo"
) -> Setting:
    """Return so many owned machines, where nothing is ever rented."""
    return Setting(
        Fleet(count, node),
        Rent(Price(), Billing()),
        PolicySet(order=Choice(order), backfill=backfill, wait=Choice("never"), place=Choice(place)),
    )
