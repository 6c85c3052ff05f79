"""Odd messages from agents: every message and field of the protocol, from registered agents and strangers."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import grpc
from hypothesis import strategies as st

from spillover.api.grpc.agent_checks import PROTOCOL
from spillover.api.grpc.agents import SERVICE
from spillover.api.grpc.entry import SESSION
from spillover.wire import agents_pb2 as pb
from tests.support.inputs.odd import Values, fields_of, filled, odd_bytes, odd_text, odd_unsigned
from tests.support.inputs.serving import NOISY, Broken, LiveServer
from tests.support.inputs.source import Source, with_server

LIMIT: Final = 30.0
"""Seconds that a call may take."""
LISTENS: Final = 0.05
"""Seconds for which to listen on a stream."""
DATA: Final = b"what a task made"
DIGEST: Final = hashlib.sha256(DATA).hexdigest()
MINE, OTHERS, READ = "$mine", "$others", "$read"
"""Placeholders for the registration of the agent, that of another one, and a request for output."""
LEASE: Final = "$lease"
"""Placeholder for one of the agent's leases, by index."""
WORK: Final[Sequence[Mapping[str, Any]]] = (
    {"run": "true"},
    {"run": "true", "walltime": "1h", "retry": {"exit": 2}},
    {"run": "true", "array": "1-3"},
    {"python": {"call": "os:getpid"}},
    {"run": "true", "outputs": ["out"]},
    {"run": "true", "resources": {"cpu": 8}},
)
"""Jobs for the agent, of which the last has to wait."""

_usual = st.integers(0, 3).map(bool)
_FAILED: Final = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL}
"""Status codes of a handler that raised an error."""
_HUNG_UP: Final = "Internal error from Core"
"""Message of the gRPC client if the server ended the stream before a message was sent."""
_UNARY: Final = {
    "Register": pb.RegisterRequest,
    "Heartbeat": pb.HeartbeatRequest,
    "Report": pb.ReportRequest,
    "GetTasks": pb.TasksRequest,
    "GetSecrets": pb.SecretsRequest,
}
_STREAMS: Final = {"Listen": pb.ListenRequest, "GetBlob": pb.BlobRequest}
_STREAMED: Final = {"Output": pb.OutputChunk, "PutBlob": pb.BlobPiece}
_BOTH_WAYS: Final = {"Session": pb.HeartbeatRequest, "Join": pb.HeartbeatRequest}
_WHO: Final = (*["agent"] * 7, "other", "sessionless", "stranger")


def _mostly(usual: Any, odd: Values) -> Values:
    return _usual.flatmap(lambda is_usual: st.just(usual) if is_usual else odd)


_own = st.builds(lambda number: {LEASE: number}, st.integers(0, 6))
_lease = st.one_of(
    _own,
    _own,
    _own,
    st.builds(
        lambda number, fields: {LEASE: number, **fields},
        st.integers(0, 6),
        fields_of(pb.Lease.DESCRIPTOR, {}),
    ),
    fields_of(pb.Lease.DESCRIPTOR, {}),
)
_incarnation = _mostly(MINE, st.one_of(st.just(OTHERS), odd_unsigned[64]))
_SPECIAL: Final = {
    "Lease": _lease,
    "ReportRequest.incarnation": _incarnation,
    "HeartbeatRequest.incarnation": _incarnation,
    "ListenRequest.incarnation": _incarnation,
    "OutputChunk.incarnation": _incarnation,
    "OutputChunk.id": _mostly(READ, odd_unsigned[64]),
    "BlobRequest.digest": _mostly(DIGEST, odd_text),
    "BlobPiece.digest": _mostly(DIGEST, odd_text),
    "BlobPiece.data": st.one_of(st.just(DATA), odd_bytes),
    "TaskResult.outputs": _mostly(DIGEST, odd_text),
    "TaskResult.outcome": _mostly(0, st.integers(0, 9)),
    "RegisterRequest.protocol": _mostly(PROTOCOL, odd_unsigned[32]),
    "RegisterRequest.cluster": _mostly(NOISY, odd_text),
    "RegisterRequest.name": _mostly("n1", st.one_of(st.sampled_from(["n2", "canary-1"]), odd_text)),
    "RegisterRequest.epoch": _mostly(0, odd_unsigned[64]),
    "RegisterRequest.capacity": st.one_of(
        st.just({"cpu": 4000, "memory": 2**40}), fields_of(pb.Resources.DESCRIPTOR, {})
    ),
}
_REQUIRED: Final[Mapping[str, Mapping[str, Any]]] = {
    "Register": {
        "protocol": PROTOCOL,
        "cluster": NOISY,
        "name": "n1",
        "capacity": {"cpu": 6000, "memory": 2**40},
        "offers": ["python"],
        "queue": 2,
    },
    "Heartbeat": {"incarnation": MINE},
    "Report": {"incarnation": MINE},
    "Listen": {"incarnation": MINE},
    "Output": {"incarnation": MINE, "id": READ},
    "Session": {"incarnation": MINE},
    "Join": {"incarnation": MINE},
}
"""Fields that a message has unless its story overrides them; without them, nearly all messages are refused alike."""


def _fields(method: str, kind: Any) -> Values:
    return fields_of(kind.DESCRIPTOR, _SPECIAL).map(lambda fields: {**_REQUIRED.get(method, {}), **fields})


def _introductions() -> Values:
    """The first message of a stream that registers."""
    return _fields("Register", pb.RegisterRequest).map(lambda fields: {"introduction": fields})


def _messages() -> Values:
    """A message: its sender, its method, and its fields or arbitrary bytes."""
    calls = [
        st.tuples(st.sampled_from(_WHO), st.just(method), _fields(method, kind))
        for method, kind in {**_UNARY, **_STREAMS}.items()
    ]
    calls += [
        st.tuples(st.sampled_from(_WHO), st.just(method), st.lists(_fields(method, kind), max_size=4))
        for method, kind in _STREAMED.items()
    ]
    beats = st.lists(_fields("Session", pb.HeartbeatRequest), max_size=3)
    calls += [
        st.tuples(st.sampled_from(_WHO), st.just("Session"), beats),
        st.tuples(
            st.sampled_from(_WHO),
            st.just("Join"),
            st.builds(lambda first, more: [first, *more], _introductions(), beats),
        ),
    ]
    raw = st.tuples(st.just("agent"), st.sampled_from([*_UNARY, *_STREAMS, *_BOTH_WAYS]), odd_bytes)
    reports = calls[2]  # task reports can cause the most harm
    return st.one_of(*calls, reports, reports, reports, reports, raw)


class _Noise:
    """An agent that may send anything."""

    def __init__(self, server: LiveServer) -> None:
        self._server = server
        self._channel = grpc.aio.insecure_channel(server.grpc)
        self._token = (("authorization", f"Bearer {server.token}"),)
        self._sessions: dict[str, tuple[int, bytes]] = {}
        self._leases: list[pb.Lease] = []
        self._read = 1

    async def begin(self) -> None:
        """Register two agents and give them jobs."""
        for who, name in (("agent", "n1"), ("other", "n2")):
            await self.say(who, "Register", {**_REQUIRED["Register"], "name": name, "life": who, "number": 1})
        documents = [
            {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"where": {"cluster": [NOISY]}, **spec}}
            for spec in WORK
        ]
        async with (
            self._server.session() as session,
            session.post(f"{self._server.url}/v1/jobs", json={"jobs": documents}) as reply,
        ):
            said = await reply.json()
            if "jobs" not in said:
                raise Broken(f"jobs are refused: {said}")
            self._server.jobs += said["jobs"]
        await self.say("agent", "Listen", {"incarnation": MINE})

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def say(self, who: str, method: str, fields: Any) -> None:
        """Send a message; raise Broken if the answer shows that a handler failed."""
        try:
            async with asyncio.timeout(LIMIT):
                await self._say(who, method, fields)
        except grpc.aio.AioRpcError as error:
            if error.code() in _FAILED and error.details() != _HUNG_UP and not isinstance(fields, bytes):
                raise Broken(f"{method} is answered {error.code().name}: {error.details()}") from error
        except TimeoutError:
            raise Broken(f"{method} is not answered") from None

    async def _say(self, who: str, method: str, fields: Any) -> None:
        metadata = self._metadata(who)
        path = f"/{SERVICE}/{method}"
        if method in _STREAMED:
            pieces = [self._made(_STREAMED[method](), each) for each in fields]
            call = self._channel.stream_unary(path, _bytes_of, None)
            await call(_each(pieces), metadata=metadata)
            return
        if method in _BOTH_WAYS:
            parts = [fields] if isinstance(fields, bytes) else fields
            said = [
                part if isinstance(part, bytes) else self._made(_BOTH_WAYS[method](), part) for part in parts
            ]
            stream = self._channel.stream_stream(path, _bytes_of, None)
            await self._attend(who, stream(_each(said), metadata=metadata))
            return
        kind = {**_UNARY, **_STREAMS}[method]
        request = fields if isinstance(fields, bytes) else self._made(kind(), fields)
        if method in _UNARY:
            reply = await self._channel.unary_unary(path, _bytes_of, None)(request, metadata=metadata)
            if method == "Register" and who in {"agent", "other"}:
                told = pb.RegisterReply.FromString(reply)
                self._sessions[who] = (told.incarnation, told.session)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTENS):
                async for message in self._channel.unary_stream(path, _bytes_of, None)(
                    request, metadata=metadata
                ):
                    self._hear(method, message)

    async def _attend(self, who: str, stream: Any) -> None:
        """Listen for a while on a bidirectional stream."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTENS):
                async for message in stream:
                    self._hear("Listen", message)
                    welcome = pb.FromServer.FromString(message).welcome
                    if welcome.session and who in {"agent", "other"}:
                        self._sessions[who] = (welcome.incarnation, welcome.session)

    def _hear(self, method: str, message: bytes) -> None:
        if method == "Listen":
            told = pb.FromServer.FromString(message)
            self._leases += [grant.lease for grant in told.grants]
            self._read = max([self._read, *(read.id for read in told.reads)])

    def _metadata(self, who: str) -> Any:
        if who == "stranger":
            return (("authorization", "Bearer wrong"),)
        if who == "sessionless" or who not in self._sessions:
            return self._token
        return (*self._token, (SESSION, self._sessions[who][1]))

    def _made(self, message: Any, fields: Any) -> Any:
        return filled(message, self._meant(fields))

    def _meant(self, value: Any) -> Any:
        """Replace the placeholders of a story by real values."""
        if isinstance(value, dict):
            parts = {name: self._meant(part) for name, part in value.items() if name != LEASE}
            if LEASE in value and self._leases:
                lease = self._leases[value[LEASE] % len(self._leases)]
                return {
                    "job": lease.job,
                    "attempt": lease.attempt,
                    "seq": lease.seq,
                    "task": lease.task,
                } | parts
            return parts
        if isinstance(value, list):
            return [self._meant(part) for part in value]
        if value in {MINE, OTHERS} if isinstance(value, str) else False:
            return self._sessions.get("agent" if value == MINE else "other", (0, b""))[0]
        return self._read if value == READ else value


async def _each(messages: Sequence[Any]) -> AsyncIterator[Any]:
    for message in messages:
        yield message


def _bytes_of(message: Any) -> bytes:
    return bytes(message if isinstance(message, bytes) else message.SerializeToString())


async def _play(story: Sequence[tuple[str, str, Any]], server: LiveServer) -> None:
    noise = _Noise(server)
    try:
        await noise.begin()
        for who, method, fields in story:
            await noise.say(who, method, fields)
            await server.check()
    finally:
        await noise.close()


async def play(story: Sequence[tuple[str, str, Any]]) -> None:
    """See Source."""
    await with_server(partial(_play, story), LiveServer())


AGENTS: Final = Source("agents", st.lists(_messages(), min_size=1, max_size=8), play)
