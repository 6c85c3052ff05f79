"""Simulates a network between hosts: delays, loses, repeats and reorders calls and answers, and breaks streams.

Both ends of a call behave as in gRPC: deadlines, errors with codes, cancellations that may or may not arrive. A stream
keeps its order or breaks, as over TCP, and each end notices in its own time.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple, Self

import grpc
from msgspec import Struct

from spillover.model.units import SECOND
from tests.support.faults.hosts import MILLISECOND, Host, Universe
from tests.support.faults.situations import Situation, Tally

SERVER: Final = "server"
ADDRESS: Final = f"{SERVER}:1"
"""Address of the server."""
TOKEN: Final = "token"
NOTICED: Final = 20 * SECOND
"""Time within which each end of a broken stream notices."""

LATE: Final = 5 * SECOND
"""Messages that take longer arrive after the sender has given up."""

Deliver = Callable[[], object]

_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs


class Weather(Struct):
    """Quality of the connection between one host and all others."""

    latency: int = 5 * MILLISECOND
    """Longest time that a message takes normally."""
    drop: float = 0.0
    """Share of messages that are lost, in each direction."""
    repeat: float = 0.0
    """Share of requests that arrive twice."""
    delay: int = 0
    """Nanoseconds by which a message may be late."""
    cut_out: bool = False
    """Whether nothing leaves this host."""
    cut_in: bool = False
    """Whether nothing reaches this host."""
    holds: bool = False
    """Whether messages sent during a cut arrive after it; else they are lost."""


class Details(NamedTuple):
    """What a service learns about a call."""

    method: str
    invocation_metadata: Any


class Aborted(Exception):
    """A service refused a call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Context:
    """A call, as a service sees it."""

    def __init__(self, metadata: Any, stream: "Stream | None" = None) -> None:
        self._metadata = tuple(metadata or ())
        self._stream = stream

    def invocation_metadata(self) -> Any:
        """Return the metadata of the call."""
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """Refuse the call."""
        raise Aborted(code, details)

    async def read(self) -> Any:
        """Return the next message of the caller, on a bidirectional stream."""
        assert self._stream is not None
        return await self._stream.uplink.get()

    async def write(self, data: bytes) -> None:
        """Send a message on the stream."""
        assert self._stream is not None
        self._stream.say(data)

    def peer(self) -> str:
        """Return the address of the caller."""
        return "virtual"


class Endpoint(Struct):
    """The services of a host."""

    host: Host
    handlers: tuple[Any, ...]
    """Handlers as for a gRPC server."""

    def method(self, details: Details) -> Any:
        """Return the method of a path; None if there is none."""
        found = (handler.service(details) for handler in self.handlers)
        return next((method for method in found if method is not None), None)


class Network:
    """All hosts, their services, and the quality of their connections."""

    def __init__(self, universe: Universe, seed: str) -> None:
        self.universe = universe
        self.weather: dict[str, Weather] = {}
        """By name of the host; the server's own connection is always good."""
        self.endpoints: dict[str, Endpoint] = {}
        """By address."""
        self.met: Tally = Tally()
        """The situations that messages met."""
        self.heard: Callable[[Host, str, Any], None] = lambda *_: None
        """Called when an answer or a message of a stream arrives, with the receiver, the path and the message."""
        self._dice: dict[str, random.Random] = {}
        self._seed = seed
        self._held: dict[str, list[tuple[str, str, Deliver]]] = {}

    def dial(self, host: Host, address: str) -> "Channel":
        """Open a channel from a host to an address."""
        return Channel(self, host, address)

    def dice(self, name: str) -> random.Random:
        """Return the random generator for messages of a host."""
        if name not in self._dice:
            self._dice[name] = random.Random(f"{self._seed}/{name}")
        return self._dice[name]

    def send(self, source: str, to: str, deliver: Deliver, *, request: bool = False) -> bool:
        """Send a message, which may be lost; return False if it never arrives."""
        name = source if source != SERVER else to
        dice, weathers = self.dice(name), [self.weather[each] for each in (source, to) if each != SERVER]
        if self._is_cut(source, to):
            if any(weather.holds for weather in weathers):
                self._held.setdefault(name, []).append((source, to, deliver))
                self.met[Situation.HELD] += 1
                return True
            self.met[Situation.LOST] += 1
            return False
        if any(weather.drop and dice.random() < weather.drop for weather in weathers):
            self.met[Situation.LOST] += 1
            return False
        copies = 1
        if request and any(weather.repeat and dice.random() < weather.repeat for weather in weathers):
            copies = 2
            self.met[Situation.REPEATED] += 1
        for _ in range(copies):
            self._carry(source, to, deliver)
        return True

    def _carry(self, source: str, to: str, deliver: Deliver) -> None:
        """Deliver a message after its travel time."""
        span = self.travel(source, to)
        self.met[Situation.LATE] += span > LATE
        self.universe.after(span, deliver)

    def travel(self, source: str, to: str) -> int:
        """Draw how long a message takes."""
        dice = self.dice(source if source != SERVER else to)
        span = 0
        for each in (source, to):
            if each != SERVER:
                weather = self.weather[each]
                span += int(dice.random() * weather.latency)
                if weather.delay and dice.random() < 0.3:
                    span += int(dice.random() * weather.delay)
        return span

    def mend(self, name: str) -> None:
        """Deliver the messages that a cut held back; they cannot get lost any more, because `send` returned True."""
        for source, to, deliver in self._held.pop(name, []):
            if self._is_cut(source, to):  # by another fault
                self._held.setdefault(name, []).append((source, to, deliver))
            else:
                self._carry(source, to, deliver)

    def _is_cut(self, source: str, to: str) -> bool:
        out = source != SERVER and self.weather[source].cut_out
        return out or (to != SERVER and self.weather[to].cut_in)

    def callee(self, address: str) -> Host | None:
        """Return the host that answers at an address now; None if none does."""
        endpoint = self.endpoints.get(address)
        return endpoint.host if endpoint is not None and not endpoint.host.dead else None

    def name_of(self, address: str) -> str:
        """Return the host of an address."""
        return address.partition(":")[0]


class Channel:
    """A simulated gRPC channel."""

    def __init__(self, network: Network, host: Host, address: str) -> None:
        self.network = network
        self.host = host
        self.address = address
        self.streams: list[Stream] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self) -> grpc.ChannelConnectivity:
        """Return whether the other end is there."""
        there = self.network.callee(self.address) is not None
        return grpc.ChannelConnectivity.READY if there else grpc.ChannelConnectivity.CONNECTING

    async def close(self, grace: float | None = None) -> None:
        """Close all streams."""
        for stream in self.streams:
            stream.hang_up()

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        """Return a call with one answer."""

        async def call(request: Any, metadata: Any = None, timeout: float | None = None) -> Any:  # noqa: ASYNC109
            asked = _Call(self, path, metadata, request_serializer(request))
            try:
                async with asyncio.timeout(timeout):
                    return response_deserializer(await asked.answer)
            except TimeoutError:
                raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
            finally:
                asked.give_up()

        return call

    def unary_stream(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        """Return a call with many answers."""

        def call(request: Any, metadata: Any = None, timeout: float | None = None) -> "Stream":
            stream = Stream(self, path, metadata, request_serializer(request), response_deserializer)
            self.streams.append(stream)
            return stream

        return call

    def stream_stream(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        """Return a bidirectional call."""

        def call(metadata: Any = None) -> "Stream":
            stream = Stream(self, path, metadata, None, response_deserializer, request_serializer)
            self.streams.append(stream)
            return stream

        return call

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        """Not supported: nobody reads output here."""
        raise NotImplementedError

    @property
    def peer(self) -> str:
        """Return the name of the other end."""
        return self.network.name_of(self.address)


class _Call:
    """One request under way."""

    def __init__(self, channel: Channel, path: str, metadata: Any, data: bytes) -> None:
        self._channel = channel
        self._network, self._host = channel.network, channel.host
        self._details, self._data = Details(path, metadata), data
        self.answer: asyncio.Future[bytes] = channel.host.create_future()
        self._serving: list[asyncio.Task[Any]] = []
        self._callee = self._network.callee(channel.address)
        if not self._host.dead:
            self._network.send(self._host.name, channel.peer, self._arrive, request=True)

    def _arrive(self) -> None:
        """Deliver the request to the other end, if it exists."""
        endpoint = self._network.endpoints.get(self._channel.address)
        if endpoint is None or endpoint.host.dead:
            self._reply(failed(grpc.StatusCode.UNAVAILABLE, "connection refused"))
        elif endpoint.host is not self._callee and (self._callee is not None or self._host.dead):
            # A connection ends with either end, and so does everything on it.
            self._reply(failed(grpc.StatusCode.UNAVAILABLE, "the connection was reset"))
        else:
            self._serving.append(endpoint.host.create_task(self._serve(endpoint)))

    async def _serve(self, endpoint: Endpoint) -> None:
        method = endpoint.method(self._details)
        if method is None:
            self._reply(failed(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
            return
        try:
            reply = await method.unary_unary(
                method.request_deserializer(self._data), Context(self._details.invocation_metadata)
            )
        except Aborted as error:
            self._reply(failed(error.code, error.details))
        except asyncio.CancelledError:
            if endpoint.host.dead:
                self._reply(failed(grpc.StatusCode.UNAVAILABLE, "the connection was reset"))
            raise
        else:
            self._reply(method.response_serializer(reply))

    def _reply(self, answer: Any) -> None:
        self._network.send(self._channel.peer, self._host.name, lambda: self._come_back(answer))

    def _come_back(self, answer: Any) -> None:
        if self._host.dead or self.answer.done():
            return
        self._network.heard(self._host, self._details.method, answer)
        if isinstance(answer, grpc.aio.AioRpcError):
            self.answer.set_exception(answer)
            self.answer.exception()
        else:
            self.answer.set_result(answer)

    def give_up(self) -> None:
        """Cancel the call; the cancellation may reach the other end."""
        if self.answer.done() and not self.answer.cancelled():
            return
        self.answer.cancel()
        if not self._host.dead:
            self._network.send(self._host.name, self._channel.peer, self._cancel)

    def _cancel(self) -> None:
        for task in self._serving:
            if not task.get_loop().is_closed():
                task.cancel()


class Stream:
    """A stream of answers until either end notices its end; possibly with messages in the other direction."""

    def __init__(
        self,
        channel: Channel,
        path: str,
        metadata: Any,
        data: bytes | None,
        decode: Any,
        encode: Any = None,
    ) -> None:
        self._channel = channel
        self._network, self._host = channel.network, channel.host
        self._details, self._data, self._decode = Details(path, metadata), data, decode
        self._encode = encode
        """None if only the other end sends."""
        self.uplink: asyncio.Queue[bytes] = asyncio.Queue()
        """Messages that the other end has received but not read."""
        self._written = self._read = 0
        self._unread: dict[int, bytes] = {}
        """Messages to the other end that arrived before earlier ones, or before the stream."""
        self._endpoint: Endpoint | None = None
        """Where the stream has arrived."""
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self._serving: asyncio.Task[Any] | None = None
        self._said = self._heard = 0
        self._early: dict[int, Any] = {}
        """Messages that arrived before earlier ones."""
        self._broken = False
        if not self._network.send(self._host.name, channel.peer, self._arrive):
            self._break()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while True:
            came = await self._came.get()
            if came is None:
                return
            if isinstance(came, grpc.aio.AioRpcError):
                raise came
            yield self._decode(came)

    async def read(self) -> Any:
        """Return the next message, or EOF."""
        came = await self._came.get()
        if isinstance(came, grpc.aio.AioRpcError):
            raise came
        return _EOF if came is None else self._decode(came)

    async def write(self, message: Any) -> None:
        """Send a message; if it is lost, the stream breaks."""
        if self._broken:
            return
        self._written += 1
        number, data = self._written, self._encode(message)
        if not self._network.send(self._host.name, self._channel.peer, lambda: self._hear(number, data)):
            self._break()

    def _hear(self, number: int, data: bytes) -> None:
        """Deliver messages to the other end in order."""
        self._unread[number] = data
        while self._endpoint is not None and self._read + 1 in self._unread:
            self._read += 1
            said = self._unread.pop(self._read)
            if not self._endpoint.host.dead:
                self._endpoint.host.call_soon(self.uplink.put_nowait, said)

    def cancel(self) -> None:
        """Cancel the stream from this end."""
        self.hang_up()

    def hang_up(self) -> None:
        """Leave the stream; the other end notices now or later."""
        if not self._broken:
            self._broken = True
            if not self._network.send(self._host.name, self._channel.peer, self._cancel):
                self._network.universe.after(self._sometime(), self._cancel)

    def _arrive(self) -> None:
        endpoint = self._network.endpoints.get(self._channel.address)
        if endpoint is None or endpoint.host.dead:
            self.say(failed(grpc.StatusCode.UNAVAILABLE, "connection refused"))
        elif not self._broken:
            self._serving = endpoint.host.create_task(self._serve(endpoint))
            self._endpoint = endpoint
            if (first := self._unread.pop(1, None)) is not None:
                self._hear(1, first)

    async def _serve(self, endpoint: Endpoint) -> None:
        method = endpoint.method(self._details)
        if method is None:
            self.say(failed(grpc.StatusCode.UNIMPLEMENTED, "Method not found!"))
            return
        context = Context(self._details.invocation_metadata, self)
        try:
            if self._data is None:
                await method.stream_stream(None, context)
            else:
                async for message in method.unary_stream(method.request_deserializer(self._data), context):
                    self.say(method.response_serializer(message))
        except Aborted as error:
            self.say(failed(error.code, error.details))
        except asyncio.CancelledError:
            if endpoint.host.dead and not self._broken:
                self._end(failed(grpc.StatusCode.UNAVAILABLE, "the connection was reset"))
            raise
        else:
            self.say(None)

    def say(self, what: Any) -> None:
        """Send one message; if it is lost, the stream breaks."""
        if self._broken:
            return
        self._said += 1
        number = self._said
        if not self._network.send(self._channel.peer, self._host.name, lambda: self._receive(number, what)):
            self._break()

    def _receive(self, number: int, what: Any) -> None:
        """Deliver messages to this end in order."""
        self._early[number] = what
        while self._heard + 1 in self._early:
            self._heard += 1
            self._deliver(self._early.pop(self._heard))

    def _deliver(self, what: Any) -> None:
        if not self._host.dead:
            self._network.heard(self._host, self._details.method, what)
            self._host.call_soon(self._came.put_nowait, what)

    def _break(self) -> None:
        """Break the connection; neither end knows yet."""
        self._broken = True
        error = failed(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        self._network.universe.after(self._sometime(), lambda: self._deliver(error))
        self._network.universe.after(self._sometime(), self._cancel)

    def _end(self, error: Any) -> None:
        """End the stream because the other end died; its kernel reports it if the network works."""
        self._broken = True
        if not self._network.send(self._channel.peer, self._host.name, lambda: self._deliver(error)):
            self._network.universe.after(self._sometime(), lambda: self._deliver(error))

    def _sometime(self) -> int:
        return int(self._network.dice(self._host.name).random() * NOTICED)

    def _cancel(self) -> None:
        if self._serving is not None and not self._serving.get_loop().is_closed():
            self._serving.cancel()


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Return the error of a failed call."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, "")
