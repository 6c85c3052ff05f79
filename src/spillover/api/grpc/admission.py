"""Who calls is looked at before anything of what they send is received.

gRPC hands a call to its method when the whole message has come and was decoded, for anybody who can connect. The metadata of a call
come first. So whoever may not call is refused by them: the message, which may be large, is never asked for.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
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

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """The handler of a call, or one that refuses it."""
        _, name, method = handler_call_details.method.split("/", 2)
        service = self._services.get(name)
        if service is not None:
            try:
                service.admit(method, handler_call_details.invocation_metadata or ())
            except Exception as error:  # noqa: BLE001 - whatever it is, the call goes no further
                # A stream in name: one that reads nothing ends without its message, whatever the method takes.
                return grpc.stream_stream_rpc_method_handler(_refusing(service, error))
        handler = await continuation(handler_call_details)
        return _guarded(handler, handler_call_details.method) if handler is not None else None


def _guarded(handler: Any, method: str) -> Any:
    """A handler whose faults cost one call, and are told under the name that they have in the log."""

    @asynccontextmanager
    async def guard(context: Any) -> AsyncIterator[None]:
        try:
            yield
        except grpc.aio.BaseError:  # it was refused
            raise
        except Exception as error:  # noqa: BLE001 - nobody sees a traceback
            told = logged_fault("call failed", error, method=method)
            await context.abort(grpc.StatusCode.INTERNAL, told)

    async def one(request: Any, context: Any) -> Any:
        async with guard(context):
            return await (handler.unary_unary or handler.stream_unary)(request, context)

    async def many(request: Any, context: Any) -> AsyncIterator[Any]:
        async with guard(context), aclosing(handler.unary_stream(request, context)) as replies:
            async for reply in replies:
                yield reply

    if handler.unary_stream is not None:
        return handler._replace(unary_stream=many)
    return handler._replace(**{"unary_unary" if handler.unary_unary else "stream_unary": one})


def _refusing(service: Service, error: Exception) -> Behaviour:
    async def refuse(_: Any, context: Any) -> NoReturn:
        await service.refuse(context, error)

    return refuse
