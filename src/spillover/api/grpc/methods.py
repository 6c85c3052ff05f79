"""Provides what all gRPC services share: creating methods, bounds of messages, and statuses of refusals.

Messages arrive as bytes and are decoded here, after a check of their bounds. Decoding a message of many empty parts
takes a hundred times as long as its size suggests, and blocks everything else meanwhile, even from a thread.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import DecodeError

from spillover.ports.commands import CommandError, ErrorKind

CODES: Final = {
    ErrorKind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.UNKNOWN: grpc.StatusCode.NOT_FOUND,
    ErrorKind.AMBIGUOUS: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorKind.NOT_LEADER: grpc.StatusCode.UNAVAILABLE,
    ErrorKind.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    ErrorKind.LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorKind.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorKind.INTERNAL: grpc.StatusCode.INTERNAL,
}
MOST_MESSAGE: Final = 64 << 20
"""Most bytes of any message."""
_LENGTHS: Final = {1: 8, 5: 4}
"""Bytes of a value, for wire types of fixed length."""


class MethodBounds(NamedTuple):
    """Bounds of a message."""

    size: int
    """Most bytes."""
    fields: int
    """Most fields at the top level. Each element of a list counts."""


SMALL: Final = MethodBounds(64 << 10, 1_000)
"""Bounds of short messages."""


def method(kind: Any, behaviour: Any, request: Any, bounds: MethodBounds) -> Any:
    """Create a method for a server. `kind` says which side streams, and `request` is the type of its message."""

    async def read(raw: bytes, context: Any) -> Any:
        try:
            return decoded(request, raw, bounds)
        except CommandError as error:
            await context.abort(CODES[error.kind], error.message)

    async def one(raw: bytes, context: Any) -> Any:
        return await behaviour(await read(raw, context), context)

    async def answers(raw: bytes, context: Any) -> AsyncIterator[Any]:
        async with aclosing(behaviour(await read(raw, context), context)) as replies:
            async for reply in replies:
                yield reply

    async def many(raws: AsyncIterator[bytes], context: Any) -> Any:
        return await behaviour(messages(raws, context), context)

    async def messages(raws: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        async for raw in raws:
            yield await read(raw, context)

    ways = {
        grpc.unary_unary_rpc_method_handler: one,
        grpc.unary_stream_rpc_method_handler: answers,
        grpc.stream_unary_rpc_method_handler: many,
    }
    return raw_method(kind, ways[kind])


def raw_method(kind: Any, behaviour: Any) -> Any:
    """Create a method that takes its message as bytes."""
    return kind(
        behaviour,
        request_deserializer=_as_it_is,
        response_serializer=lambda reply: reply.SerializeToString(),
    )


def _as_it_is(raw: bytes) -> bytes:
    return raw


def decoded(request: Any, raw: bytes, bounds: MethodBounds) -> Any:
    """Decode a message; raise CommandError if it is invalid or too large."""
    name = request.DESCRIPTOR.name
    if len(raw) > bounds.size:
        told = f"a {name} of {len(raw)} bytes is too large; the maximum is {bounds.size}"
        raise CommandError(ErrorKind.TOO_LARGE, told)
    try:
        if len(raw) > 2 * bounds.fields:  # a field has at least two bytes
            for count, _ in enumerate(fields(raw), 1):
                if count > bounds.fields:
                    raise CommandError(
                        ErrorKind.TOO_LARGE,
                        f"a {name} has at most {bounds.fields} fields and elements of lists",
                    )
        return request.FromString(raw)
    except DecodeError:
        raise CommandError(ErrorKind.INVALID, f"the request is not a valid {name}") from None


def fields(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field of an encoded message; raise DecodeError if it is invalid."""
    at, size = 0, len(raw)
    while at < size:
        tag, at = _varint(raw, at)
        kind = tag & 7
        start = at
        if kind == 0:
            _, at = _varint(raw, at)
        elif kind == 2:
            length, start = _varint(raw, at)
            at = start + length
        elif kind in _LENGTHS:
            at += _LENGTHS[kind]
        else:
            raise DecodeError("not a field")
        if at > size:
            raise DecodeError("ends in the middle of a field")
        yield tag >> 3, start, at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Decode a varint; return it and where it ends."""
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("ends in the middle of a number")
