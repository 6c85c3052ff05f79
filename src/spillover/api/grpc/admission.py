"""Checks the caller of a gRPC call before the server receives its message.

gRPC passes a call to its method only after it has received and decoded the whole message, from anybody who can connect.
The metadata of a call arrive first. So the server refuses unauthorized callers by their metadata, and never requests
their message, which may be large.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, Protocol, TypeAlias

import grpc

from spillover.api.faults import logged_fault

Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
Behaviour: TypeAlias = Callable[[Any, Any], Awaitable[NoReturn]]


class Service(Protocol):
    """A gRPC service, and who may call its methods."""

    @property
    def name(self) -> str:
        """The name, with its package."""
        ...

    def handler(self) -> Any:
        """Return all methods, for a server."""
        ...

    def admit(self, method: str, metadata: Metadata) -> None:
        """Raise unless the sender of these metadata may call a method."""
        ...

    async def refuse(self, context: Any, error: Exception) -> NoReturn:
        """End a call with the error that `admit` raised."""
        ...


class Admission(grpc.aio.ServerInterceptor):  # type: ignore[type-arg] # not subscriptable at run time
    """Checks callers before the methods of some services."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services: Mapping[str, Service] = {service.name: service for service in services}
        self._known: dict[str, tuple[Service, str, Any]] = {}
        """Service, name and handler of each known method, by path. The usual call costs one lookup."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        """Return the handler of a call, or one that refuses it."""
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
        except Exception as error:  # noqa: BLE001 - any error refuses the call
            # A stream handler that reads nothing ends without the message, whatever the method takes.
            return grpc.stream_stream_rpc_method_handler(_refusing(service, error))
        return guarded


def _guarded(handler: Any, path: str) -> Any:
    """Wrap a handler so that an error costs one call, and the caller gets the id under which it was logged."""

    async def one(request: Any, context: Any) -> Any:
        try:
            return await behaviour(request, context)
        except grpc.aio.BaseError:  # an ordinary refusal
            raise
        except Exception as error:  # noqa: BLE001 - callers must not see a traceback
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
        ("stream_stream", one),  # the only one reads and writes through its context
    ):
        behaviour = getattr(handler, way)
        if behaviour is not None:
            return handler._replace(**{way: guard})
    raise TypeError(f"{path} has no handler")


def _refusing(service: Service, error: Exception) -> Behaviour:
    async def refuse(_: Any, context: Any) -> NoReturn:
        await service.refuse(context, error)

    return refuse
