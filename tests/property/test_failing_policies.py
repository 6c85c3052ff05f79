"""Whatever policies of one's own raise or answer: the book stays right, and its journal replayed gives the same plans and the same state."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from spillover.core.apply import apply
from spillover.core.events import AnyEvent, Decided
from spillover.core.proposals import Act, DisablePolicy, SetPolicies
from spillover.core.records.jobs import Job
from spillover.core.state import State
from spillover.deciding.cycle import cycle
from spillover.deciding.cycle.plan import digest_of
from spillover.deciding.engine import Engine
from spillover.deciding.protocols import Case, MachineView, Queue, SizeCase
from spillover.deciding.queue.index import SchedulingIndex
from spillover.model.job import Shape
from spillover.model.policy import AXES, Choice, PolicySet, choice_of
from spillover.model.units import SECOND
from spillover.policies.loading import load
from spillover.testing.builders import a_job
from spillover.testing.world import OWNED, RENTED, World
from spillover.wire.journal import decode_event, encode_event
from tests.support.sameness import Checkpoints, said_by
from tests.support.tiers import examples

ODD: list[Any] = [None, float("nan"), -5, "text", 2.5, (1, "a"), [], object(), 10**30, True]


class Moody:
    """Answers, fails or gives nonsense: always the same for the same arguments."""

    def __init__(self, mood: int = 0) -> None:
        self._mood = mood
        self.strict = mood % 5 == 4

    def key(self, job: Job) -> Any:
        return self._answer(job.number + job.priority, job.priority)

    def wait(self, case: Case) -> Any:
        return self._answer(case.expected // SECOND + case.shape.resources.cpu // 500, 4 * SECOND)

    def score(self, machine: MachineView, shape: Shape) -> Any:
        return self._answer(machine.cpu // 1000 + shape.resources.cpu // 1000, -machine.cpu)

    def pick(self, queues: Sequence[Queue], agents: int, seed: int) -> Any:
        return self._answer(seed + agents, queues[-1])

    def most(self, case: SizeCase) -> Any:
        return self._answer(case.free + len(case.others), case.shape.tasks)

    def _answer(self, number: int, right: Any) -> Any:
        match (number * 7 + self._mood) % 4:
            case 0:
                raise ValueError("not today")
            case 1:
                return ODD[(number + self._mood) % len(ODD)]
            case _:
                return right


MOODY = {f"{axis}.moody": Moody for axis in AXES}
loading = partial(load, more=MOODY)


def choices(axis: str) -> st.SearchStrategy[Choice]:
    moody = st.builds(lambda mood: Choice("moody", {"mood": mood}), st.integers(0, 11))
    capped = st.builds(lambda mood: Choice("moody", {"mood": mood, "max_queue": 2}), st.integers(0, 11))
    usual = choice_of(PolicySet(wait=Choice("constant", {"wait": 3 * SECOND})), axis)
    return st.one_of(moody, capped if axis == "wait" else moody, st.just(usual))


policy_sets = st.builds(
    PolicySet,
    order=choices("order"),
    backfill=choices("backfill"),
    wait=choices("wait"),
    place=choices("place"),
    route=choices("route"),
    size=choices("size"),
    depth=st.sampled_from([1, 2, 1000]),
)
steps = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 3), st.integers(0, 40)),
    st.tuples(st.just("finish"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 3, 5, 60]), st.just(0)),
    st.tuples(st.just("hold"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("disable"), st.sampled_from(range(len(AXES))), st.just(0)),
    st.tuples(st.just("set"), st.integers(0, 11), st.sampled_from(range(len(AXES)))),
)


def live(world: World, what: str, number: int, other: int, name: str) -> None:
    """One thing that happens."""
    match what:
        case "submit":
            job = a_job(name).cpus(number).terms(estimate=(1 + other) * SECOND).priority(other % 3)
            if other % 7 == 1:
                job = job.tasks(1, most=3)
            world.submit(job.array(1, number) if other % 7 == 0 else job)
        case "finish" if placed := world.placed():
            world.finish(placed[number % len(placed)])
        case "wait":
            world.wait(seconds=number)
        case "hold" if waiting := [job.id for job in world.state.jobs.values() if job.state == "QUEUED"]:
            world.act(Act.HOLD, waiting[number % len(waiting)])
            world.act(Act.RELEASE, waiting[number % len(waiting)])
        case "disable":
            world.propose(DisablePolicy(AXES[number], "moody", SECOND))
        case "set":
            axis = AXES[other]
            chosen = structs.replace(world.state.facts.policies, **{axis: Choice("moody", {"mood": number})})
            world.propose(SetPolicies(chosen, "ada"))
        case _:
            pass


def replayed(events: list[AnyEvent]) -> Engine:
    """An engine that took in a journal, and made every plan of it again."""
    engine = Engine(State(), loading)
    for stored in [encode_event(event) for event in events]:
        event = decode_event(stored)
        if isinstance(event, Decided):
            index = SchedulingIndex(engine.state, engine.policies)
            plan = cycle.run(engine.state, index, engine.policies, event.now, event.seed).plan
            assert plan.digest() == event.plan
            assert digest_of(engine.policies.chosen) == event.policy
        engine.apply(event)
    return engine


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(policies=policy_sets, story=st.lists(steps, max_size=25))
def test_the_book_stays_right_and_replays_to_the_same_plans(
    policies: PolicySet, story: list[tuple[str, int, int]]
) -> None:
    world = World(
        loading, policies, (structs.replace(OWNED, gangs=True), structs.replace(RENTED, gangs=True))
    )
    world.agent("n1", cpus=2, queue=2)
    world.agent("n2", cpus=3, queue=2)
    world.agent("v1", cpus=2, cluster="cloud")
    checkpoints = Checkpoints()
    for at, (what, number, other) in enumerate(story):
        live(world, what, number, other, f"j{'abcdefghijklmnopqrstuvwxyz'[at]}")
        if at % 7 == 3:
            checkpoints.write(world.state)
    checkpoints.write(world.state)
    assert said_by(replayed(world.events).state) == said_by(world.state)
    assert said_by(checkpoints.load()) == said_by(world.state)
    bare = State()
    for event in world.events:
        apply(bare, event)
    assert said_by(bare) == said_by(world.state)
