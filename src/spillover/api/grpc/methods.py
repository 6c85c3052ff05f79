"""What all gRPC services have in common: how a method is made, what its message may be, and which status a refusal has.

Messages come as bytes and are decoded here, once they are known to be within bounds: a message of many empty parts takes a hundred
times as long as one of its size should, and nothing else is done meanwhile, not even in a thread.
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
"""Bytes of any message."""
_LENGTHS: Final = {1: 8, 5: 4}
"""Bytes of a value, by the wire types that have always as many."""


class MethodBounds(NamedTuple):
    """How large a message may be."""

    size: int
    """Bytes."""
    fields: int
    """Fields at its top level, each element of a list counted."""


SMALL: Final = MethodBounds(64 << 10, 1_000)
"""For what says little."""


def method(kind: Any, behaviour: Any, request: Any, bounds: MethodBounds) -> Any:
    """A method for a server: `kind` says which side streams, `request` is the message that it takes."""

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
    """A method that takes its message as bytes."""
    return kind(
        behaviour,
        request_deserializer=_as_it_is,
        response_serializer=lambda reply: reply.SerializeToString(),
    )


def _as_it_is(raw: bytes) -> bytes:
    return raw


def decoded(request: Any, raw: bytes, bounds: MethodBounds) -> Any:
    """A message of some type; raises CommandError for what is none, or too large for one."""
    name = request.DESCRIPTOR.name
    if len(raw) > bounds.size:
        told = f"a {name} of {len(raw)} bytes is too large; the most is {bounds.size}"
        raise CommandError(ErrorKind.TOO_LARGE, told)
    try:
        if len(raw) > 2 * bounds.fields:  # a field has two bytes at the least
            for count, _ in enumerate(fields(raw), 1):
                if count > bounds.fields:
                    raise CommandError(
                        ErrorKind.TOO_LARGE,
                        f"a {name} has at most {bounds.fields} fields and elements of lists",
                    )
        return request.FromString(raw)
    except DecodeError:
        raise CommandError(ErrorKind.INVALID, f"the request is no {name}") from None


def fields(raw: bytes) -> Iterator[tuple[int, int, int]]:
    """Number, beginning and end of each field of an encoded message; raises DecodeError where it is none."""
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
    """A number of the wire format, and where it ends."""
    value = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DecodeError("ends in the middle of a number")
