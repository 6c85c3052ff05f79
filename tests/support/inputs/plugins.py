"""Odd answers of installed policies: numbers of any size, values of any type, and errors, on every axis."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.deciding.protocols import Policies
from spillover.model.policy import AXES, Choice, PolicySet
from spillover.model.units import FOREVER, HOUR
from spillover.policies.loading import load_surely
from tests.support.inputs.canary import Canary
from tests.support.inputs.serving import NOISY, LiveServer
from tests.support.inputs.source import Source, with_server

RIGHT, RAISES, EXITS, DEEP = "right", "raises", "exits", "recurses"
"""What a policy does instead of giving one of the answers below."""
ANSWERS: Final[Mapping[str, Any]] = {
    "none": None,
    "nan": float("nan"),
    "infinity": float("inf"),
    "negative": -5,
    "huge": 10**30,
    "beyond 64 bits": 2**64,
    "a fraction": 2.5,
    "true": True,
    "text": "text",
    "empty": "",
    "a list": [],
    "a tuple": (1, "a"),
    "nested": ((((),),),),
    "bytes": b"x",
    "an object": object(),
    "a type": int,
    "a set": {1, 2},
}
_answers = st.lists(
    st.sampled_from([RIGHT, RIGHT, RIGHT, RAISES, EXITS, DEEP, *sorted(ANSWERS)]), min_size=1, max_size=4
)


class _Moody:
    """A policy for any axis; deterministic, because a replay must give the same plans."""

    def __init__(self, answers: str) -> None:
        self._answers = answers.split(",")
        self.strict = self._answers[0] != RIGHT
        self.reservations = ANSWERS.get(self._answers[0], 0)

    def key(self, job: Any) -> Any:
        """See Order."""
        return self._answer(job.number, job.priority)

    def wait(self, case: Any) -> Any:
        """See Wait."""
        return self._answer(case.expected // HOUR, FOREVER)

    def score(self, cpu: int, memory: int, gpu: int, *_: Any) -> Any:
        """See Place."""
        return self._answer(cpu // 1000 + gpu, memory)

    def pick(self, queues: Sequence[Any], agents: int, seed: int) -> Any:
        """See Route."""
        return self._answer(seed + agents, queues[0])

    def most(self, case: Any) -> Any:
        """See Size."""
        return self._answer(case.free, case.shape.tasks)

    def _answer(self, number: int, right: Any) -> Any:
        answer = self._answers[number % len(self._answers)]
        if answer == RIGHT:
            return right
        if answer == RAISES:
            raise ValueError("not today\n\0" * 50)
        if answer == EXITS:
            raise SystemExit(3)
        if answer == DEEP:
            return self._answer(number, right)
        return ANSWERS[answer]


def _load(chosen: PolicySet) -> Policies:
    return load_surely(chosen, {f"{axis}.moody": _Moody for axis in AXES})


async def _play(server: LiveServer) -> None:
    jobs = [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {
                "run": "true",
                "where": {"cluster": [NOISY]},
                "estimate": f"{hours}h",
                "priority": hours,
            },
        }
        for hours in range(1, 7)
    ]
    async with Canary(server.grpc, server.token, NOISY, "n1"):
        for some in (jobs[:1], jobs[1:]):
            async with (
                server.session() as session,
                session.post(f"{server.url}/v1/jobs", json={"jobs": some}) as reply,
            ):
                server.jobs += (await reply.json())["jobs"]
            await server.check()


async def play(story: Mapping[str, Sequence[str]]) -> None:
    """See Source."""
    server = LiveServer(load=_load)
    chosen = {axis: Choice("moody", {"answers": ",".join(answers)}) for axis, answers in story.items()}
    server.config = replace(server.config, policies=replace(server.config.policies, **chosen))
    await with_server(partial(_play), server)


PLUGINS: Final = Source("plugins", st.fixed_dictionaries({}, optional=dict.fromkeys(AXES, _answers)), play)
