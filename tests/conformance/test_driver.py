"""The suite for drivers, on the driver of examples/clusters; and the mistakes that it finds."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from spillover.core.events import Lease
from spillover.model.resources import Resources
from spillover.ports.cluster import Start
from spillover.ports.driver import Answer, Changes
from spillover.testing.driver_suite import CLUSTER, DriverSuite, OpenDriver, an_opening
from spillover_subprocesses import Subprocesses, SubprocessesForm, SubprocessesKind


class TestSubprocesses(DriverSuite):
    """As somebody would write it who brings that kind."""

    survives = False

    @pytest.fixture
    def open_driver(self, tmp_path: Path) -> OpenDriver:
        return lambda: SubprocessesKind().open(SubprocessesForm(), an_opening(tmp_path))


class Repeating(Subprocesses):
    async def start(self, start: Start) -> Answer:
        self._attempts.pop(start.lease, None)
        return await super().start(start)


class Unlisted(Subprocesses):
    def take(self) -> Changes:
        return replace(super().take(), whole=False, nodes=(), attempts=())


class Deaf(Subprocesses):
    async def stop(self, lease: Lease, grace: int) -> None:
        """Forget to."""


class Forgetful(Subprocesses):
    async def stop(self, lease: Lease, grace: int) -> None:
        await super().stop(lease, grace)
        self._changed.clear()


class Silent(Subprocesses):
    def _tell(self, lease: Lease) -> None:
        self._changed[lease] = None


class Empty(Subprocesses):
    async def output(
        self, lease: Lease, task: int, offset: int, *, follow: bool
    ) -> AsyncGenerator[bytes, None]:
        if lease in self._attempts:
            async for piece in super().output(lease, task, offset, follow=follow):
                yield piece


class Impatient(Subprocesses):
    def output(self, lease: Lease, task: int, offset: int, *, follow: bool) -> AsyncGenerator[bytes, None]:
        return super().output(lease, task, offset, follow=False)


class Brief(DriverSuite):
    survives = False
    patience = 2.0


SUITE = Brief()


@pytest.mark.parametrize(
    ("driver", "test"),
    [
        (Repeating, SUITE.test_the_same_lease_is_made_once),
        (Unlisted, SUITE.test_it_lists_nodes_that_take_tasks_once_it_runs),
        (Deaf, SUITE.test_a_stopped_attempt_is_gone_and_can_be_stopped_again),
        (Forgetful, SUITE.test_an_ended_attempt_stays_until_it_is_deleted),
        (Silent, SUITE.test_an_attempt_ends_with_its_exit_code),
        (Empty, SUITE.test_an_unknown_attempt_has_no_output),
        (Impatient, SUITE.test_output_is_read_from_a_byte_on_and_followed_to_its_end),
    ],
)
def test_a_driver_with_a_mistake_fails(
    tmp_path: Path, driver: type[Subprocesses], test: Callable[[OpenDriver], None]
) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test(lambda: driver(CLUSTER, Resources(1000), tmp_path))
