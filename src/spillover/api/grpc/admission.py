"""Who calls is looked at before anything of what they send is received.

gRPC hands a call to its method when the whole message has come and was decoded, for anybody who can connect. The metadata of a call
come first. So whoever may not call is refused by them: the message, which may be large, is never asked for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, Protocol, TypeAlias

import grpc

from spillover.api.faults import logged_fault

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
Behaviour: TypeAlias = Callable[[Any, Any], Awaitable[NoReturn]]


class Service(Protocol):
    """Some methods, and who may call them."""

    @property
    def name(self) -> str:
        """With its package."""
        ...

    def handler(self) -> Any:
        """All methods, for a server."""
        ...

    def admit(self, method: str, metadata: Metadata) -> None:
        """Raise unless whoever sends these metadata may call a method."""
        ...

    async def refuse(self, context: Any, error: Exception) -> NoReturn:
        """End a call with what `admit` raised."""
        ...


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # which it does not take when it runs
    """Stands before the methods of some services."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services: Mapping[str, Service] = {service.name: service for service in services}
        self._known: dict[str, tuple[Service, str, Any]] = {}
        """Service, name and handler of each method that is there, by its path: the usual call costs one lookup."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """The handler of a call, or one that refuses it."""
        path = handler_call_details.method
        known = self._known.get(path)
        if known is None:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            _, name, method = path.split("/", 2)
            known = self._known[path] = self._services[name], method, _guarded(handler, path)
        service, method, guarded = known
        try:
            service.admit(method, handler_call_details.invocation_metadata or ())
        except Exception as error:  # noqa: BLE001 - whatever it is, the call goes no further
            # A stream in name: one that reads nothing ends without its message, whatever the method takes.
            return grpc.stream_stream_rpc_method_handler(_refusing(service, error))
        return guarded


def _guarded(handler: Any, path: str) -> Any:
    """A handler whose faults cost one call, and are told under the name that they have in the log."""

    async def one(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except grpc.aio.BaseError:  # it was refused
            raise
        except Exception as error:  # noqa: BLE001 - nobody sees a traceback
            await fail(context, error)

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async with aclosing(behaviour(request, context)) as replies:
                async for reply in replies:
                    yield reply
        except grpc.aio.BaseError:
            raise
        except Exception as error:  # noqa: BLE001 - likewise
            await fail(context, error)

    async def fail(context: Any, error: Exception) -> None:
        await context.abort(grpc.StatusCode.INTERNAL, logged_fault("call failed", error, method=path))

    for way, guard in (
        ("unary_unary", one),
        ("unary_stream", many),
        ("stream_unary", one),
        ("stream_stream", one),  # the one that there is reads and writes by its context
    ):
        behaviour = getattr(handler, way)
        if behaviour is not None:
            return handler._replace(**{way: guard})
    raise TypeError(f"{path} has no behaviour")


def _refusing(service: Service, error: Exception) -> Behaviour:
    async def refuse(_: Any, context: Any) -> NoReturn:
        await service.refuse(context, error)

    return refuse
