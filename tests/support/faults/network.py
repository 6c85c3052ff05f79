"""A network between hosts: it delays, loses, repeats and reorders calls and their answers, and cuts streams.

What a call is, on both ends, is what gRPC makes of it: a deadline, an error with a code, a cancellation that may or may not
arrive. A stream keeps its order or breaks, as one over TCP does, and each end finds out in its own time.
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
"""Where agents find it."""
TOKEN: Final = "token"
NOTICED: Final = 20 * SECOND
"""Within this time an end of a broken stream finds out."""

LATE: Final = 5 * SECOND
"""What is under way for longer arrives after whoever sent it has given it up."""

Deliver = Callable[[], object]

_EOF: Final[Any] = grpc.aio.EOF  # type: ignore[attr-defined]  # the stubs do not know it


class Weather(Struct):
    """How messages fare between one host and all others."""

    latency: int = 5 * MILLISECOND
    """The most that a message takes in good weather."""
    drop: float = 0.0
    """The share of messages that are lost, on each way."""
    repeat: float = 0.0
    """The share of requests that arrive twice."""
    delay: int = 0
    """Nanoseconds that any message may take beyond its time."""
    cut_out: bool = False
    """Nothing leaves this host."""
    cut_in: bool = False
    """Nothing reaches it."""
    holds: bool = False
    """Whether what is sent through a cut arrives once it is mended; else it is lost."""


class Details(NamedTuple):
    """What a service is told of a call."""

    method: str
    invocation_metadata: Any


class Aborted(Exception):
    """A service refused a call."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class Context:
    """What a service sees of a call."""

    def __init__(self, metadata: Any, stream: "Stream | None" = None) -> None:
        self._metadata = tuple(metadata or ())
        self._stream = stream

    def invocation_metadata(self) -> Any:
        """What came along."""
        return self._metadata

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """Refuse."""
        raise Aborted(code, details)

    async def read(self) -> Any:
        """What came next on a stream both ways."""
        assert self._stream is not None
        return await self._stream.uplink.get()

    async def write(self, data: bytes) -> None:
        """Say something on it."""
        assert self._stream is not None
        self._stream.say(data)

    def peer(self) -> str:
        """Who calls."""
        return "virtual"


class Endpoint(Struct):
    """Services on a host."""

    host: Host
    handlers: tuple[Any, ...]
    """As they are given to a gRPC server."""

    def method(self, details: Details) -> Any:
        """The method of a path; None if there is none."""
        found = (handler.service(details) for handler in self.handlers)
        return next((method for method in found if method is not None), None)


class Network:
    """All hosts, who can be called on them, and the weather."""

    def __init__(self, universe: Universe, seed: str) -> None:
        self.universe = universe
        self.weather: dict[str, Weather] = {}
        """By the name of a host; the server's own is always fair."""
        self.endpoints: dict[str, Endpoint] = {}
        """By address."""
        self.met: Tally = Tally()
        """How messages fared."""
        self.heard: Callable[[Host, str, Any], None] = lambda *_: None
        """Told of the answer to a call, or a message of a stream, when it has come back: to whom, the path of the method, and it."""
        self._dice: dict[str, random.Random] = {}
        self._seed = seed
        self._held: dict[str, list[tuple[str, str, Deliver]]] = {}

    def dial(self, host: Host, address: str) -> "Channel":
        """A channel from a host to an address."""
        return Channel(self, host, address)

    def dice(self, name: str) -> random.Random:
        """Those that decide how messages of a host fare."""
        if name not in self._dice:
            self._dice[name] = random.Random(f"{self._seed}/{name}")
        return self._dice[name]

    def send(self, source: str, to: str, deliver: Deliver, *, request: bool = False) -> bool:
        """Let a message travel, perhaps; False if it surely never arrives."""
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
        """Let a message arrive after a while."""
        span = self.travel(source, to)
        self.met[Situation.LATE] += span > LATE
        self.universe.after(span, deliver)

    def travel(self, source: str, to: str) -> int:
        """How long a message takes."""
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
        """Let what was held by a cut go on its way, on which it is not lost any more: whoever sent it was told that it would arrive."""
        for source, to, deliver in self._held.pop(name, []):
            if self._is_cut(source, to):  # by another one
                self._held.setdefault(name, []).append((source, to, deliver))
            else:
                self._carry(source, to, deliver)

    def _is_cut(self, source: str, to: str) -> bool:
        out = source != SERVER and self.weather[source].cut_out
        return out or (to != SERVER and self.weather[to].cut_in)

    def callee(self, address: str) -> Host | None:
        """Who answers at an address now, if anybody does."""
        endpoint = self.endpoints.get(address)
        return endpoint.host if endpoint is not None and not endpoint.host.dead else None

    def name_of(self, address: str) -> str:
        """The host that an address is of."""
        return address.partition(":")[0]


class Channel:
    """What a gRPC channel is to its user."""

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
        """Whether somebody is there."""
        there = self.network.callee(self.address) is not None
        return grpc.ChannelConnectivity.READY if there else grpc.ChannelConnectivity.CONNECTING

    async def close(self, grace: float | None = None) -> None:
        """Hang up."""
        for stream in self.streams:
            stream.hang_up()

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        """A call with one answer."""

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
        """A call with many answers."""

        def call(request: Any, metadata: Any = None, timeout: float | None = None) -> "Stream":
            stream = Stream(self, path, metadata, request_serializer(request), response_deserializer)
            self.streams.append(stream)
            return stream

        return call

    def stream_stream(self, path: str, request_serializer: Any, response_deserializer: Any) -> Any:
        """A call that goes on both ways."""

        def call(metadata: Any = None) -> "Stream":
            stream = Stream(self, path, metadata, None, response_deserializer, request_serializer)
            self.streams.append(stream)
            return stream

        return call

    def stream_unary(self, *_: Any, **__: Any) -> Any:
        """Nobody reads output here."""
        raise NotImplementedError

    @property
    def peer(self) -> str:
        """The name of the other end."""
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
        """It reached the other end, if there is one."""
        endpoint = self._network.endpoints.get(self._channel.address)
        if endpoint is None or endpoint.host.dead:
            self._reply(failed(grpc.StatusCode.UNAVAILABLE, "connection refused"))
        elif endpoint.host is not self._callee and (self._callee is not None or self._host.dead):
            # A connection outlives neither of its ends: what it carried is lost with it.
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
        """Nobody waits any more: the other end is told so, perhaps."""
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
    """Answers, one after another, until either end finds that it is over; perhaps with messages the other way too."""

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
        """None if only the other end speaks."""
        self.uplink: asyncio.Queue[bytes] = asyncio.Queue()
        """What the other end has been told and not read yet."""
        self._written = self._read = 0
        self._unread: dict[int, bytes] = {}
        """Messages to the other end that overtook another, or the beginning of the stream."""
        self._endpoint: Endpoint | None = None
        """Where the stream has arrived."""
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self._serving: asyncio.Task[Any] | None = None
        self._said = self._heard = 0
        self._early: dict[int, Any] = {}
        """Messages that overtook another, and wait for it."""
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
        """The next message, or that there will be none."""
        came = await self._came.get()
        if isinstance(came, grpc.aio.AioRpcError):
            raise came
        return _EOF if came is None else self._decode(came)

    async def write(self, message: Any) -> None:
        """Say something; a lost message breaks the stream."""
        if self._broken:
            return
        self._written += 1
        number, data = self._written, self._encode(message)
        if not self._network.send(self._host.name, self._channel.peer, lambda: self._hear(number, data)):
            self._break()

    def _hear(self, number: int, data: bytes) -> None:
        """Let the other end have messages in their order."""
        self._unread[number] = data
        while self._endpoint is not None and self._read + 1 in self._unread:
            self._read += 1
            said = self._unread.pop(self._read)
            if not self._endpoint.host.dead:
                self._endpoint.host.call_soon(self.uplink.put_nowait, said)

    def cancel(self) -> None:
        """This end wants no more of it."""
        self.hang_up()

    def hang_up(self) -> None:
        """This end has left; the other end finds out now or later."""
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
        """Send one message; a lost one breaks the stream."""
        if self._broken:
            return
        self._said += 1
        number = self._said
        if not self._network.send(self._channel.peer, self._host.name, lambda: self._receive(number, what)):
            self._break()

    def _receive(self, number: int, what: Any) -> None:
        """Have messages in their order."""
        self._early[number] = what
        while self._heard + 1 in self._early:
            self._heard += 1
            self._deliver(self._early.pop(self._heard))

    def _deliver(self, what: Any) -> None:
        if not self._host.dead:
            self._network.heard(self._host, self._details.method, what)
            self._host.call_soon(self._came.put_nowait, what)

    def _break(self) -> None:
        """The connection is gone, and neither end knows yet."""
        self._broken = True
        error = failed(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        self._network.universe.after(self._sometime(), lambda: self._deliver(error))
        self._network.universe.after(self._sometime(), self._cancel)

    def _end(self, error: Any) -> None:
        """The other end died, and its kernel says so, if that can be heard."""
        self._broken = True
        if not self._network.send(self._channel.peer, self._host.name, lambda: self._deliver(error)):
            self._network.universe.after(self._sometime(), lambda: self._deliver(error))

    def _sometime(self) -> int:
        return int(self._network.dice(self._host.name).random() * NOTICED)

    def _cancel(self) -> None:
        if self._serving is not None and not self._serving.get_loop().is_closed():
            self._serving.cancel()


def failed(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """A call that failed, as its caller is told."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details, "")
