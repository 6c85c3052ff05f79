"""Sends requests and runs operations for asyncio."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from spillover.client import transport
from spillover.client.asks import Ask
from spillover.client.blobs import Upload
from spillover.client.errors import SpillError
from spillover.client.face import Behind, Face
from spillover.client.flows import PERSIST, Attempts, Following, ReadingFlow
from spillover.client.steps import ClientStep, Flow, Work

if TYPE_CHECKING:
    import httpx

    from spillover.client.watching import AsyncWatching

T = TypeVar("T")


class AsyncSender(Face):
    """Sends requests and runs operations."""

    async def close(self) -> None:
        """Close all connections."""
        if "_behind" in self.__dict__ and "watching" in self._behind.__dict__:
            self._behind.watching.close()
        if "_http" in self.__dict__:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T], attempts: Attempts | None = None) -> T:
        """Run an operation; with `attempts`, wait for a server that becomes unreachable after its first answer."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = await self._do(step, attempts)
                except BaseException as error:  # noqa: BLE001 - the operation decides what to do with it
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    async def _do(self, step: ClientStep[Any], attempts: Attempts | None) -> Any:
        """Do one step of an operation."""
        match step:
            case Ask():
                answer = await self._ask(step, attempts)
                if attempts is not None:
                    attempts.succeeded(PERSIST)
                return answer
            case Work():
                return await asyncio.to_thread(step.do)
            case ReadingFlow():
                async with aclosing(self._stream(step.flow)) as pieces:
                    async for piece in pieces:
                        await asyncio.to_thread(step.take, piece)
                return None
        raise TypeError(step)

    async def _ask(self, ask: Ask[T], attempts: Attempts | None = None) -> T:
        """Send a request until it is answered or retries are exhausted."""
        attempts = attempts or self._attempts()
        while True:
            try:
                return await self._once(ask)
            except SpillError as error:
                await asyncio.sleep(attempts.after(error, repeatable=ask.repeatable))
                self._place = self._place.again()

    async def _stream(self, flow: Following[T]) -> AsyncGenerator[T]:
        """Read streams to their end; resume a broken one."""
        attempts = self._attempts()
        while True:
            try:
                if (look := flow.look()) is not None:
                    flow.looked(await self._once(look))
                if flow.over:
                    return
                async with aclosing(self._chunks(flow.ask())) as chunks:
                    async for chunk in chunks:
                        attempts.succeeded(PERSIST)
                        for item in flow.take(chunk):
                            yield item
                flow.ended()
            except SpillError as error:
                flow.broke()
                await asyncio.sleep(attempts.after(error, repeatable=True))
                self._place = self._place.again()

    @cached_property
    def _behind(self) -> "Behind[AsyncWatching]":
        """What calls need."""
        from spillover.client.watching import AsyncWatching  # noqa: PLC0415 - only calls need it

        return Behind(self, self._run, self._attempts, AsyncWatching)

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """The connection pool, created on first use."""
        import httpx  # noqa: PLC0415 - slow to import, and only needed for requests

        return httpx.AsyncClient(**transport.settings(self._place, httpx.AsyncHTTPTransport))

    async def _once(self, ask: Ask[T]) -> T:
        """Send a request and read its answer."""
        with self._failures(ask):
            asked = transport.request(ask, self._place)
            if ask.upload is not None:
                asked["content"] = _pieces(ask.upload)
            response = await self._http.request(**asked)
        return transport.answer(ask, self._place, response.status_code, response.content)

    async def _chunks(self, ask: Ask[bytes]) -> AsyncGenerator[bytes]:
        """Yield the chunks of one answer; the first is empty and shows that the answer has begun."""
        with self._failures(ask):
            async with self._http.stream(**transport.request(ask, self._place)) as response:
                if response.status_code not in ask.good:
                    raise transport.refusal(ask, self._place, response.status_code, await response.aread())
                yield b""
                async for chunk in response.aiter_bytes():
                    yield chunk


async def _pieces(upload: Upload) -> AsyncIterator[bytes]:
    """Yield the content of an upload."""
    reading = upload.pieces()
    while (piece := await asyncio.to_thread(next, reading, None)) is not None:
        yield piece
