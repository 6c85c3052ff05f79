"""Odd wall clocks: set ahead and back, by milliseconds and by decades, while jobs run."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from hypothesis import strategies as st

from spillover.model.units import DAY, HOUR, MINUTE, SECOND
from tests.support.inputs.canary import Canary
from tests.support.inputs.serving import NOISY, Broken, LiveServer
from tests.support.inputs.source import Source, with_server

YEAR: Final = 365 * DAY
_SPANS: Final = (SECOND // 1000, SECOND, 5 * SECOND, 6 * SECOND, MINUTE, HOUR, DAY, 31 * DAY, YEAR, 40 * YEAR)
_WORK: Final = ({"run": "true", "walltime": "1h"}, {"run": "true", "not_before": "2060-01-01T00:00:00Z"})


class WallClock:
    """The clocks of the machine, with an offset of the wall clock."""

    def __init__(self) -> None:
        self.ahead = 0
        """Nanoseconds."""

    def wall(self) -> int:
        """See Clock."""
        return max(0, time.time_ns() + self.ahead)

    def monotonic(self) -> int:
        """See Clock."""
        return time.monotonic_ns()


class _Busy(Canary):
    """An agent that starts its tasks and does not end them."""

    async def _run(self, leases: Any) -> None:
        await self.begin(leases)


async def _play(story: Sequence[tuple[str, int]], clock: WallClock, server: LiveServer) -> None:
    documents = [
        {
            "apiVersion": "spillover/v1",
            "kind": "Job",
            "spec": {"where": {"cluster": [NOISY]}, "burst": "always", **spec},
        }
        for spec in _WORK
    ]
    async with _Busy(server.grpc, server.token, NOISY, "n1") as busy:
        async with (
            server.session() as session,
            session.post(f"{server.url}/v1/jobs", json={"jobs": documents}) as reply,
        ):
            server.jobs += (await reply.json())["jobs"]
        await busy.begun.wait()
        for what, span in story:
            clock.ahead += span if what == "ahead" else -span
            await server.check()
            await _runs(server)


async def _runs(server: LiveServer) -> None:
    """Raise Broken if a change of the clock has ended a job that has just started."""
    async with server.session() as session, session.get(f"{server.url}/v1/jobs/{server.jobs[0]}") as reply:
        state = (await reply.json()).get("state")
    if state != "RUNNING":
        raise Broken(f"a job that has run for a moment of its hour is {state}")


async def play(story: Sequence[tuple[str, int]]) -> None:
    """See Source."""
    clock = WallClock()
    await with_server(partial(_play, story, clock), LiveServer(clock=clock))


CLOCKS: Final = Source(
    "clocks",
    st.lists(
        st.tuples(
            st.sampled_from(["ahead", "back"]), st.one_of(st.sampled_from(_SPANS), st.integers(0, 40 * YEAR))
        ),
        min_size=1,
        max_size=6,
    ),
    play,
)
