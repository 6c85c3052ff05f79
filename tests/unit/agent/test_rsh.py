"""Remote shells between the tasks of a gang, on real sockets and processes."""

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from spillover.agent.rsh.calling import NoShell, Streams, call
from spillover.agent.rsh.frames import FrameKind, Unsigned, Wire
from spillover.agent.rsh.gang import NotInGang, OwnGang, ShellPeer, UnknownHost
from spillover.agent.rsh.serving import ShellService, serve
from tests.support.processes import free_ports

TOKEN = b"a secret of this one attempt"


def a_gang(ports: list[int], rank: int = 0, token: bytes = TOKEN) -> OwnGang:
    peers = [ShellPeer(number, f"n{number + 1}", "127.0.0.1", port) for number, port in enumerate(ports)]
    return OwnGang(rank, tuple(peers), token)


@contextlib.asynccontextmanager
async def serving(gang: OwnGang) -> AsyncIterator[ShellService]:
    """The service of one task."""
    service = ShellService(
        gang, {"PATH": os.environ["PATH"], "SPILL_NODE": "n2", "PMI_RANK": "1", "RANK": "1"}
    )
    await service.open()
    try:
        yield service
    finally:
        service.close()
        await until(lambda: not service.callers)  # so that no command outlives the test


class Files:
    """Standard streams as files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.given = b""

    async def run(self, gang: OwnGang, line: str, node: str = "n2") -> int:
        """Run a command on another node with these streams."""
        (self._folder / "given").write_bytes(self.given)
        with (
            (self._folder / "given").open("rb") as given,
            (self._folder / "out").open("wb") as out,
            (self._folder / "err").open("wb") as err,
        ):
            streams = Streams(given.fileno(), out.fileno(), err.fileno())
            return await call(gang, gang.find(node), line, streams)

    def read(self, name: str = "out") -> str:
        return (self._folder / name).read_text()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that a process does."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a file has no signal
            await asyncio.sleep(0.01)


# --- commands


async def test_a_command_runs_in_the_other_task_with_our_streams(files: Files) -> None:
    ports = free_ports(2)
    files.given = b"some input\n"
    async with serving(a_gang(ports, rank=1)):
        code = await files.run(a_gang(ports), 'cat; echo from $SPILL_NODE; echo "no" >&2; exit 7')
    assert (code, files.read(), files.read("err")) == (7, "some input\nfrom n2\n", "no\n")


async def test_what_tells_a_task_its_rank_is_not_passed_on(files: Files) -> None:
    ports = free_ports(2)
    async with serving(a_gang(ports, rank=1)):
        assert await files.run(a_gang(ports), "env | grep -c RANK; kill -9 $$") == 128 + 9
    assert files.read() == "0\n"


async def test_more_output_than_one_message_holds_arrives_whole(files: Files) -> None:
    ports = free_ports(2)
    async with serving(a_gang(ports, rank=1)):
        assert await files.run(a_gang(ports), "head -c 3000000 /dev/zero | tr '\\0' x") == 0
    assert files.read() == "x" * 3_000_000


async def test_a_command_ends_when_its_caller_is_gone(files: Files, tmp_path: Path) -> None:
    ports = free_ports(2)
    mark = tmp_path / "pid"
    async with serving(a_gang(ports, rank=1)):
        caller = asyncio.create_task(files.run(a_gang(ports), f"echo $$ > {mark}; exec sleep 600"))
        await until(lambda: mark.exists() and mark.read_text().strip())
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller
        pid = int(mark.read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())


async def test_the_others_end_when_the_leader_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tries must be so dense that one meets the leader, however short it lives.
    monkeypatch.setattr("spillover.agent.rsh.calling.PAUSE", 0.01)
    ports = free_ports(2)
    leader = a_gang(ports)
    environment = {"PATH": os.environ["PATH"]}
    async with asyncio.timeout(20):
        other = asyncio.create_task(serve(a_gang(ports, rank=1), environment, ["true"]))
        await asyncio.sleep(0.2)  # the other may start long before the leader
        assert await serve(leader, environment, ["sh", "-c", "sleep 0.3; exit 3"]) == 3
        assert await other == 0


async def test_a_script_for_slurm_has_the_rank_of_its_task(tmp_path: Path) -> None:
    ranks = {"SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURMD_NODENAME": "n1", "RANK": "0", "PMI_RANK": "0"}
    environment = {"PATH": os.environ["PATH"], "SPILL_SRUN": "/srun", **ranks}
    written = tmp_path / "env"
    async with asyncio.timeout(20):
        assert await serve(a_gang(free_ports(2)), environment, ["sh", "-c", f"env > {written}"]) == 0
    found = dict(line.split("=", 1) for line in written.read_text().splitlines())
    assert {name: found.get(name) for name in ranks} == {**ranks, "RANK": None, "PMI_RANK": None}


async def test_a_leader_without_its_command_ends_the_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.agent.rsh.calling.PAUSE", 0.001)
    ports = free_ports(2)
    async with asyncio.timeout(20):
        with pytest.raises(FileNotFoundError):
            await serve(a_gang(ports), {}, ["/nowhere/mpirun"])
        assert await serve(a_gang(ports, rank=1), {}, ["/nowhere/mpirun"]) == 0, "however late it starts"


async def test_who_served_a_command_does_not_wait_for_a_leader_that_is_gone(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.rsh.serving.STARTED", 0.0)
    ports = free_ports(2)
    async with asyncio.timeout(10), serving(a_gang(ports, rank=1)) as service:
        assert await files.run(a_gang(ports), "true") == 0
        await service.wait_for_leader()


def test_a_leader_that_ends_while_others_watch_it_says_nothing() -> None:
    said: list[object] = []

    async def end_while_watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
        ports = free_ports(2)
        service = ShellService(a_gang(ports), {})
        await service.open()
        watching = asyncio.create_task(ShellService(a_gang(ports, rank=1), {}).wait_for_leader())
        await until(lambda: service.callers)
        service.close()
        watching.cancel()

    asyncio.run(end_while_watched())
    assert not said


# --- who may


async def test_a_caller_without_the_secret_is_refused(files: Files, tmp_path: Path) -> None:
    ports = free_ports(2)
    ran = tmp_path / "ran"
    async with serving(a_gang(ports, rank=1)):
        with pytest.raises(NoShell, match="the task on n2 hung up; it has ended, or is of another attempt"):
            await files.run(a_gang(ports, token=b"another secret, as long"), f"touch {ran}")
    assert not ran.exists()


async def test_a_changed_repeated_or_returned_message_is_refused() -> None:
    """Each message is signed for its way and its place."""
    sent = _Sink()
    ours = Wire(asyncio.StreamReader(), sent, b"key", b"call", b"serve")  # type: ignore[arg-type]
    await ours.send(FrameKind.RUN, b"echo hello")
    whole = sent.getvalue()

    async def read(data: bytes, mine: bytes = b"serve", theirs: bytes = b"call", times: int = 1) -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        wire = Wire(reader, _Sink(), b"key", mine, theirs)  # type: ignore[arg-type]
        for _ in range(times):
            _, last = await wire.receive()
        return last

    assert await read(whole) == b"echo hello"
    for wrong in (
        whole.replace(b"hello", b"hullo"),
        b"\x02" + whole[1:],
        b"\x01\xff\xff\xff\xff" + whole[5:],
    ):
        with pytest.raises(Unsigned):
            await read(wrong)
    with pytest.raises(Unsigned):
        await read(whole + whole, times=2)
    with pytest.raises(Unsigned):
        await read(whole, b"call", b"serve")


class _Sink(io.BytesIO):
    """A writer into memory."""

    async def drain(self) -> None:
        pass


# --- what a task knows


def test_a_task_finds_the_others_by_node_or_address(tmp_path: Path) -> None:
    peers = tmp_path / "peers"
    peers.write_text("0 n1 10.0.0.1 4001\n1 n2 10.0.0.2 4002\n2 n2 10.0.0.2 4003\n")
    known = {"SPILL_TASK": "1", "SPILL_PEERS": str(peers), "SPILL_GANG_TOKEN": "00ff" * 8}
    gang = OwnGang.of(known)
    assert (gang.rank, gang.token) == (1, b"\x00\xff" * 8)
    assert gang.find("n2") == gang.find("10.0.0.2") == ShellPeer(1, "n2", "10.0.0.2", 4002)
    with pytest.raises(UnknownHost, match="'n3' is not a node of this job; its nodes are n1, n2"):
        gang.find("n3")
    for changed, said in (
        ({}, "SPILL_TASK is not set; remote shells work only inside a job with several tasks"),
        (known | {"SPILL_GANG_TOKEN": ""}, "SPILL_GANG_TOKEN is too short"),
        (known | {"SPILL_GANG_TOKEN": "xyz"}, "the environment of the task was changed"),
        (known | {"SPILL_PEERS": "/nope"}, "/nope: No such file or directory"),
    ):
        with pytest.raises(NotInGang, match=said):
            OwnGang.of(changed)


async def test_a_task_that_serves_nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spillover.agent.rsh.calling.PAUSE", 0.0)
    gang = a_gang(free_ports(2))
    with pytest.raises(
        NoShell, match="nothing serves remote shells on n2; its task must run `spill rsh --serve`"
    ):
        await call(gang, gang.find("n2"), "true")
