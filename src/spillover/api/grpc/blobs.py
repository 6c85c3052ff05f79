"""Sends agents the blobs that tasks need, and receives those that tasks made."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from spillover.model.files import DIGEST_RULE, is_digest
from spillover.ports.blobs import BlobError, Blobs, Differs, NoBlob, NoSpace, TooLarge
from spillover.wire import agents_pb2 as pb

PATIENCE: Final = 60.0
"""Seconds that the next piece of a blob may take."""


class Stalled(BlobError):
    """The sender stopped before the end. Nothing was stored."""


_CODES: Final[dict[type[BlobError], grpc.StatusCode]] = {
    NoBlob: grpc.StatusCode.NOT_FOUND,
    Differs: grpc.StatusCode.INVALID_ARGUMENT,
    TooLarge: grpc.StatusCode.OUT_OF_RANGE,
    NoSpace: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Stalled: grpc.StatusCode.DEADLINE_EXCEEDED,
}


async def send_blob(blobs: Blobs, request: pb.BlobRequest, context: Any) -> AsyncIterator[pb.BlobPiece]:
    """Yield a blob from an offset on."""
    try:
        async for piece in blobs.get(_checked(request.digest), request.offset):
            yield pb.BlobPiece(data=piece)
    except BlobError as error:
        await context.abort(_code(error), str(error))


async def take_blob(blobs: Blobs, pieces: AsyncIterator[pb.BlobPiece], context: Any) -> pb.BlobReply:
    """Store a blob that its first piece names; answer early if it exists already."""
    try:
        first = await _next(pieces) or pb.BlobPiece()
        await blobs.put(_checked(first.digest), _data(first, pieces))
    except BlobError as error:
        await context.abort(_code(error), str(error))
    return pb.BlobReply()


async def _data(first: pb.BlobPiece, rest: AsyncIterator[pb.BlobPiece]) -> AsyncIterator[bytes]:
    """Yield the bytes of all pieces."""
    piece: pb.BlobPiece | None = first
    while piece is not None:
        yield piece.data
        piece = await _next(rest)


async def _next(pieces: AsyncIterator[pb.BlobPiece]) -> pb.BlobPiece | None:
    """Return the next piece; None after the last."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await anext(pieces, None)
    except TimeoutError:
        raise Stalled(f"the upload stalled for {PATIENCE:g} s; send the blob again") from None


def _checked(digest: str) -> str:
    """Return a digest; raise Differs if it is not one."""
    if not is_digest(digest):
        raise Differs(f"the name of a blob is {DIGEST_RULE}")
    return digest


def _code(error: BlobError) -> grpc.StatusCode:
    return _CODES.get(type(error), grpc.StatusCode.UNAVAILABLE)
