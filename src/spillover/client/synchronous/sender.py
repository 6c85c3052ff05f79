# Generated from client/asynchronous/sender.py by `make client`: change that one.
"""How the client for code that blocks carries operations out."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from spillover.client import transport
from spillover.client.asks import Ask
from spillover.client.blobs import Upload
from spillover.client.errors import SpillError
from spillover.client.face import Face
from spillover.client.flows import PERSIST, Attempts, Following, ReadingFlow
from spillover.client.steps import ClientStep, Flow, Work

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class Sender(Face):
    """Sends requests and waits for what comes back."""

    def close(self) -> None:
        """Close connections."""
        if "_http" in self.__dict__:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T], attempts: Attempts | None = None) -> T:
        """Carry an operation out; with `attempts`, a server that goes away once it has answered is waited for."""
        try:
            step = next(flow)
            while True:
                try:
                    answer = self._do(step, attempts)
                except BaseException as error:  # noqa: BLE001 - the operation says what becomes of it
                    step = flow.throw(error)
                else:
                    step = flow.send(answer)
        except StopIteration as end:
            returned: T = end.value
            return returned

    def _do(self, step: ClientStep[Any], attempts: Attempts | None) -> Any:
        """Do one step of an operation."""
        match step:
            case Ask():
                answer = self._ask(step, attempts)
                if attempts is not None:
                    attempts.succeeded(PERSIST)
                return answer
            case Work():
                return step.do()
            case ReadingFlow():
                with closing(self._stream(step.flow)) as pieces:
                    for piece in pieces:
                        step.take(piece)
                return None
        raise TypeError(step)

    def _ask(self, ask: Ask[T], attempts: Attempts | None = None) -> T:
        """Send a request until it is answered or patience is over."""
        attempts = attempts or self._attempts()
        while True:
            try:
                return self._once(ask)
            except SpillError as error:
                time.sleep(attempts.after(error, repeatable=ask.repeatable))
                self._place = self._place.again()

    def _stream(self, flow: Following[T]) -> Generator[T]:
        """Read streams to their end, taking one up again where it breaks off."""
        attempts = self._attempts()
        while True:
            try:
                if (look := flow.look()) is not None:
                    flow.looked(self._once(look))
                if flow.over:
                    return
                with closing(self._chunks(flow.ask())) as chunks:
                    for chunk in chunks:
                        attempts.succeeded(PERSIST)
                        yield from flow.take(chunk)
                flow.ended()
            except SpillError as error:
                flow.broke()
                time.sleep(attempts.after(error, repeatable=True))
                self._place = self._place.again()

    @cached_property
    def _http(self) -> "httpx.Client":
        """The connections, once they are needed."""
        import httpx  # noqa: PLC0415 - heavy, and not every import of the client sends something

        return httpx.Client(**transport.settings(self._place, httpx.HTTPTransport))

    def _once(self, ask: Ask[T]) -> T:
        """Send a request and read its answer."""
        with self._failures(ask):
            asked = transport.request(ask, self._place)
            if ask.upload is not None:
                asked["content"] = _pieces(ask.upload)
            response = self._http.request(**asked)
        return transport.answer(ask, self._place, response.status_code, response.content)

    def _chunks(self, ask: Ask[bytes]) -> Generator[bytes]:
        """The pieces of one answer; the first is empty and says that it has begun."""
        with self._failures(ask):
            with self._http.stream(**transport.request(ask, self._place)) as response:
                if response.status_code not in ask.good:
                    raise transport.refusal(ask, self._place, response.status_code, response.read())
                yield b""
                yield from response.iter_bytes()


def _pieces(upload: Upload) -> Iterator[bytes]:
    """All of an upload."""
    reading = upload.pieces()
    while (piece := next(reading, None)) is not None:
        yield piece
