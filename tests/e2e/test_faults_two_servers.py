"""Two servers on one set of data: a leader that was stopped and wakes up cannot write, on SQLite and on PostgreSQL."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spillover.client import Client, SpillError
from spillover.core.events import EpochStarted, JobEnded, JobSubmitted
from spillover.stores.store import TERM
from tests.support.postgresql import PostgresqlServer
from tests.support.processes import ServerProcess, read_journal, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where both servers keep their data."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    postgresql = PostgresqlServer()
    yield asyncio.run(postgresql.fresh())
    postgresql.stop()


def a_client(server: ServerProcess) -> Client:
    """A client of this server, whoever leads."""
    return Client(server=server.url, token=(server.data / "token").read_text().strip())


def test_a_stopped_leader_is_replaced_and_cannot_write_when_it_wakes(
    servers: Callable[..., ServerProcess], tmp_path: Path, store: str
) -> None:
    first = servers(folder=tmp_path / "one", store=store, data=tmp_path / "data").up()
    second = servers("--standby", folder=tmp_path / "two", store=store, data=tmp_path / "data")
    second.launch()
    wait_until(lambda: "standing by" in second.last_words(), "standing by")
    with a_client(first) as client:
        [before] = client.submit(run="true", key="before")
        client.wait(before, timeout=20)
    old = a_client(first)
    with old:
        old.server()
        first.pause()
        second.await_ready(TERM + 15)
        with a_client(second) as client:
            [after] = client.submit(run="true", key="after")
            assert client.wait(after, timeout=20)[0].state == "SUCCEEDED"
            assert client.job(before).state == "SUCCEEDED"
            first.resume()
            with pytest.raises(SpillError):
                old.submit(run="true", key="too late")
            assert first.await_end() == 2
            last = first.last_words().strip().splitlines()[-1]
            assert last == "spill: another server took over; this one stopped"
            assert "Traceback" not in first.last_words()
            [again] = client.submit(run="true", key="later")
            assert client.wait(again, timeout=20)[0].state == "SUCCEEDED"
    assert len(second.agents()) == 1, "the agent serves the new leader, and goes with it"
    assert second.stop() == 0
    events = read_journal(tmp_path / "data", store)
    began = [event.epoch for event in events if isinstance(event, EpochStarted)]
    assert began == [1, 2]
    keys = [event.key for event in events if isinstance(event, JobSubmitted)]
    assert keys == ["before", "after", "later"]
    ends = [event.job for event in events if isinstance(event, JobEnded)]
    assert ends == [before, after, again]


def test_a_leader_that_is_stopped_for_longer_than_its_term_goes_on_if_nobody_took_over(
    servers: Callable[..., ServerProcess],
) -> None:
    server = servers().up()
    with server.client(patience=10) as client:
        [job] = client.submit(run="true")
        client.wait(job, timeout=20)
        server.pause()
        with pytest.raises(TimeoutError):
            asyncio.run(asyncio.wait_for(asyncio.Event().wait(), TERM + 1))
        server.resume()
        [job] = client.submit(run="true", key="awake")
        assert client.wait(job, timeout=20)[0].state == "SUCCEEDED"
    assert server.stop() == 0
    began = [event.epoch for event in read_journal(server.data) if isinstance(event, EpochStarted)]
    assert began == [1]


def test_a_standby_takes_over_at_once_when_the_leader_is_killed_or_stops(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    first = servers(folder=tmp_path / "one", data=tmp_path / "data").up()
    second = servers("--standby", folder=tmp_path / "two", data=tmp_path / "data")
    second.launch()
    wait_until(lambda: "standing by" in second.last_words(), "standing by")
    with first.client() as client:
        [job] = client.submit(run="sleep 2; exit 5")
        wait_until(lambda: client.job(job).state == "RUNNING", "running")
    first.kill()
    second.await_ready(5)
    with second.client() as client:
        [view] = client.wait(job, timeout=20)
        assert (view.exit_code, view.attempt) == (5, 1)
    first.launch("--standby")
    wait_until(lambda: first.last_words().count("standing by") == 1, "standing by")
    assert second.stop() == 0
    first.await_ready(5)
