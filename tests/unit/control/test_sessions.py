"""Sessions with jobs that do not run: refused with the state of the job."""

import pytest

from spillover.core.proposals import Act, Change
from spillover.model.ids import JobId
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import SessionRequest
from tests.support.inside import form
from tests.support.served import Served, served


async def refused(server: Served, job: str) -> CommandError:
    with pytest.raises(CommandError) as caught:
        await server.commands.open_session(job, SessionRequest("exec", command=["true"]), "ada")
    assert caught.value.kind is ErrorKind.CONFLICT
    return caught.value


async def test_a_job_that_does_not_run_is_refused_with_its_state() -> None:
    async with served() as server:
        (job,) = await server.commands.submit([form("train")], "ada")
        assert (await refused(server, job)).message == f"{job} does not run: it is QUEUED"
        await server.control.propose(Change(Act.CANCEL, (JobId(job),), "ada"))
        assert (await refused(server, job)).message == f"{job} does not run: it is CANCELLED"
        await server.control.archive()
        assert (await refused(server, job)).message == f"{job} does not run: it is CANCELLED"
