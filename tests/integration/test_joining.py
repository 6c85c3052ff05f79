"""Rented machines join a real server over gRPC: by hand, message by message, and as a real agent process."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE, AgentsService, serve_agents
from spillover.api.grpc.entry import SESSION
from spillover.clusters.agents.hub import Hub
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.requests import AgentRequests
from spillover.control.requests.tokens import Tokens
from spillover.core.events import MachinesWanted, Wish
from spillover.core.pool_proposals import OpenPool, SeeGone
from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, MachineState, Offer, machine_id
from spillover.model.resources import Resources
from spillover.model.tokens import join_token
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.wire import agents_pb2 as pb
from spillover.wire.api import TokenRequest
from tests.support.agent_process import AgentProcess
from tests.support.inside import Inside, leading
from tests.support.waiting import until

CLUSTER = ClusterName("onprem")
M1, M2 = machine_id("onprem", 1), machine_id("onprem", 2)
KEY = b"the key of the pool"


class House:
    """A server with a pool, seen by its machines."""

    def __init__(self, control: Inside, tokens: Tokens, service: AgentsService) -> None:
        self.control = control
        self.tokens = tokens
        self.address = "127.0.0.1:0"
        self._service = service
        self._server: grpc.aio.Server
        self._channel: grpc.aio.Channel

    async def open(self) -> None:
        self._server, port = await serve_agents(self._service, self.address)
        self.address = f"127.0.0.1:{port}"
        self._channel = grpc.aio.insecure_channel(self.address)

    async def close(self) -> None:
        await self._channel.close(None)
        await self._server.stop(0)

    async def restart(self) -> None:
        """Let all connections end, and listen again."""
        await self.close()
        await self.open()

    @property
    def state(self) -> Any:
        return self.control.loop.state

    async def order(self, *machines: MachineId, join_within: int = 10 * MINUTE) -> None:
        await self.control.loop.propose(OpenPool(CLUSTER, KEY))
        now = self.control.loop.now()
        offer = Offer("small", Resources(4000, 2**40), 1_000_000)
        wishes = tuple([Wish(each, offer, now + join_within) for each in machines])
        self.control.loop.engine.apply(MachinesWanted(CLUSTER, now, wishes))

    async def call(self, method: str, request: Any, reply: Any, *metadata: Any) -> Any:
        stub: Any = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=reply.FromString,
        )
        return await stub(request, metadata=metadata, timeout=10)

    async def register(
        self, token: str, *, life: str = "one", number: int = 0, name: str = M1, cluster: str = CLUSTER
    ) -> pb.RegisterReply:
        request = pb.RegisterRequest(
            protocol=PROTOCOL,
            cluster=cluster,
            name=name,
            life=life,
            number=number,
            capacity=pb.Resources(cpu=1000, memory=2**40),
        )
        bearer = ("authorization", f"Bearer {token}")
        reply: pb.RegisterReply = await self.call("Register", request, pb.RegisterReply, bearer)
        return reply

    async def heartbeat(self, token: str, reply: pb.RegisterReply) -> pb.HeartbeatReply:
        request = pb.HeartbeatRequest(incarnation=reply.incarnation)
        shown = (("authorization", f"Bearer {token}"), (SESSION, reply.session))
        answer: pb.HeartbeatReply = await self.call("Heartbeat", request, pb.HeartbeatReply, *shown)
        return answer


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with leading() as control:
        hub, tokens = Hub(), Tokens("the-token-of-the-server", control.loop)
        sending = asyncio.create_task(LeaseSender(control.loop, hub, control.specs).run())
        requests = AgentRequests(control.loop, hub, DAY, SECOND // 5)
        service = AgentsService(
            requests, hub, tokens, lambda: control.loop.epoch, authority=lambda: b"authority"
        )
        house = House(control, tokens, service)
        await house.open()
        yield house
        await house.close()
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def denied(call: Any, code: grpc.StatusCode) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is code, refused.value.details()
    told = str(refused.value.details())
    assert "\n" not in told
    return told


async def test_a_join_token_is_exchanged_for_one_that_works_from_then_on(house: House) -> None:
    await house.order(M1)
    reply = await house.register(join_token(KEY, M1))
    assert reply.token.startswith("spt_")
    assert reply.authority == b"authority"
    assert house.state.machines[M1].state is MachineState.READY
    assert not (await house.heartbeat(reply.token, reply)).fenced
    again = await house.register(reply.token, life="after a restart")
    assert (again.token, again.authority) == ("", b"")
    (token,) = house.state.tokens.values()
    assert (token.node, token.cluster) == (M1, CLUSTER)


async def test_a_join_token_does_nothing_but_join(house: House) -> None:
    await house.order(M1)
    token = join_token(KEY, M1)
    reply = await house.register(token)
    told = await denied(house.heartbeat(token, reply), grpc.StatusCode.UNAUTHENTICATED)
    assert told == "the token is invalid"


async def test_a_lost_answer_does_not_lock_a_machine_out_and_a_second_machine_is_refused(
    house: House,
) -> None:
    await house.order(M1)
    token = join_token(KEY, M1)
    lost = await house.register(token, number=1)
    reply = await house.register(token, number=2)
    assert not (await house.heartbeat(reply.token, reply)).fenced
    await denied(house.heartbeat(lost.token, lost), grpc.StatusCode.UNAUTHENTICATED)
    told = await denied(house.register(token, life="other", number=1), grpc.StatusCode.INVALID_ARGUMENT)
    assert told == "the join token of machine onprem-1 was used already, and works once"
    assert not (await house.heartbeat(reply.token, reply)).fenced, "the first one goes on"


async def test_a_registration_that_arrives_late_does_not_end_the_token_of_a_later_one(house: House) -> None:
    await house.order(M1)
    token = join_token(KEY, M1)
    reply = await house.register(token, number=2)
    await denied(house.register(token, number=1), grpc.StatusCode.UNAVAILABLE)
    assert not (await house.heartbeat(reply.token, reply)).fenced


async def test_tokens_of_machines_are_for_their_own_name(house: House) -> None:
    await house.order(M1, M2)
    told = await denied(house.register(join_token(KEY, M1), name=M2), grpc.StatusCode.PERMISSION_DENIED)
    assert told == "this token is for agent 'onprem-1', not 'onprem-2'"
    await denied(house.register(join_token(KEY, M1), cluster="cloud"), grpc.StatusCode.PERMISSION_DENIED)
    reply = await house.register(join_token(KEY, M1))
    told = await denied(house.register(reply.token, name=M2), grpc.StatusCode.PERMISSION_DENIED)
    assert told == "this token is for agent 'onprem-1', not 'onprem-2'"


async def test_what_is_no_valid_join_token_is_refused(house: House) -> None:
    await house.order(M1)
    gone = machine_id("onprem", 9)
    for wrong in (
        join_token(b"other", M1),
        join_token(KEY, gone),
        f"{join_token(KEY, M1)}0",
        "spj_onprem-1_x",
    ):
        told = await denied(house.register(wrong), grpc.StatusCode.UNAUTHENTICATED)
        assert told == "the join token is invalid, or its machine is gone"
    await house.order(gone, join_within=0)
    told = await denied(house.register(join_token(KEY, gone), name=gone), grpc.StatusCode.INVALID_ARGUMENT)
    assert "the join token of machine onprem-9 has expired at" in told


async def test_other_agents_cannot_take_the_place_of_a_machine(house: House) -> None:
    await house.order(M1)
    other = (await house.tokens.create(TokenRequest("agent"), "ada")).token
    told = await denied(house.register(other), grpc.StatusCode.INVALID_ARGUMENT)
    assert "belongs to a rented machine" in told


async def test_the_session_of_a_machine_ends_with_the_machine(house: House) -> None:
    await house.order(M1)
    reply = await house.register(join_token(KEY, M1))
    await house.control.loop.propose(SeeGone(CLUSTER, M1))
    await denied(house.heartbeat(reply.token, reply), grpc.StatusCode.UNAUTHENTICATED)
    await denied(house.register(reply.token), grpc.StatusCode.UNAUTHENTICATED)


def joining(house: House, folder: Path, machine: MachineId = M1, **other: object) -> Path:
    path = folder / f"{machine}.json"
    given = {"server": house.address, "cluster": CLUSTER, "name": machine, "join_by": 2**62}
    path.write_text(json.dumps(given | {"token": join_token(KEY, machine)} | other))
    return path


class RentedAgent(AgentProcess):
    """A real agent that joins from a file."""

    def __init__(self, data: Path, join: Path, *words: str) -> None:
        super().__init__(data, name=M1)
        self._words = ["--data", str(data), "--join", str(join), "--cpu", "1", *words]


@pytest.fixture
async def agents() -> AsyncIterator[Callable[..., Any]]:
    made: list[RentedAgent] = []

    async def start(*arguments: Any) -> RentedAgent:
        agent = RentedAgent(*arguments)
        made.append(agent)
        await agent.start()
        return agent

    yield start
    for agent in made:
        await agent.stop()


def registered(house: House) -> int:
    node = house.state.agents.get(f"{CLUSTER}/{M1}")
    return 0 if node is None else node.incarnation


async def test_a_real_agent_joins_once_and_returns_with_its_own_token(
    house: House, agents: Callable[..., Any], tmp_path: Path
) -> None:
    await house.order(M1)
    path = joining(house, tmp_path)
    await agents(tmp_path / "first", path)
    await until(lambda: registered(house), "the first registration")
    (token,) = house.state.tokens
    path.unlink()
    await house.restart()
    await until(lambda: registered(house) > 1, "another registration")
    assert list(house.state.tokens) == [token], "it was not exchanged again"
    assert house.state.agents[f"{CLUSTER}/{M1}"].token == token
    secret = [text for text in _texts(tmp_path / "first") if "spt_" in text or "spj_" in text]
    assert secret == [], "tasks may be able to read what is there"


async def test_a_second_machine_with_the_same_file_says_why_it_cannot_join(
    house: House, agents: Callable[..., Any], tmp_path: Path
) -> None:
    await house.order(M1)
    path = joining(house, tmp_path)
    await agents(tmp_path / "first", path)
    await until(lambda: registered(house), "the first registration")
    second = await agents(tmp_path / "second", path)
    why = "not connected: the join token of machine onprem-1 was used already, and works once; retrying every 5 s"
    await until(lambda: why in second.said(), "a refusal")


OPENED = """
set -e
mount --make-rprivate /
if [ -n "$1" ]; then
    mount -t tmpfs -o mode=755 tmpfs "$2"
    mkdir -p "$2/${3#$1/}"
    mount --bind "$3" "$2/${3#$1/}"
    mount --rbind "$2" "$1"
fi
shift 3
exec "$@"
"""
"""Runs a program in a mount namespace in which other users can reach the interpreter in the home folder of root."""


class AgentAsUser(RentedAgent):
    """A real agent that root starts for another user."""

    def __init__(self, data: Path, join: Path) -> None:
        super().__init__(data, join, "--user", "nobody")
        self._data = data

    async def start(self) -> None:
        base = Path(sys.base_prefix)
        closed = next((each for each in reversed(base.parents) if not each.stat().st_mode & 0o001), None)
        over = self._data.parent / "over"
        over.mkdir(exist_ok=True)
        words = [str(each) for each in (closed or "", over, base, sys.executable)]
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *(
                    "unshare",
                    "-m",
                    "bash",
                    "-c",
                    OPENED,
                    "bash",
                    *words,
                    "-m",
                    "spillover.agent",
                    *self._words,
                ),
                stderr=log,
                # Without iptables: its rules would be those of this machine.
                env=os.environ | {"PATH": "/usr/bin:/bin"},
            )


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can pass through, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="spillover-"))
    folder.chmod(0o755)
    (folder / "data").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


def _unshares() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


@pytest.mark.skipif(not _unshares(), reason="needs root and mount namespaces")
async def test_an_agent_of_another_user_returns_with_its_token_after_it_was_killed(
    house: House, open_folder: Path
) -> None:
    await house.order(M1)
    data = open_folder / "data"
    async with AgentAsUser(data, joining(house, open_folder)) as agent:
        await until(lambda: registered(house), "the first registration")
        assert psutil.Process(agent.pid).uids().real == 65534
        await until((data / "joined.json").exists, "the token being kept")
        (token,) = house.state.tokens
        assert stat.S_IMODE((data / "joined.json").stat().st_mode) == 0o600
        assert (data / "agents" / M1).stat().st_uid == 65534
        assert "tasks may reach the metadata service of this machine: iptables" in agent.said()
        await agent.kill()
        await agent.start()
        await until(lambda: registered(house) > 1, "another registration")
        assert list(house.state.tokens) == [token]


def _texts(folder: Path) -> list[str]:
    """Return the content of all files below a folder."""
    return [
        path.read_bytes().decode(errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    ]
