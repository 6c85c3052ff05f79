"""What all gRPC services have in common: how a method is made, and which status a refusal has."""

from typing import Any, Final

import grpc

from spillover.ports.commands import Kind

CODES: Final = {
    Kind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Kind.AMBIGUOUS: grpc.StatusCode.FAILED_PRECONDITION,
    Kind.CONFLICT: grpc.StatusCode.FAILED_PRECONDITION,
    Kind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Kind.NOT_LEADER: grpc.StatusCode.UNAVAILABLE,
    Kind.FORBIDDEN: grpc.StatusCode.PERMISSION_DENIED,
    Kind.LIMITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Kind.TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Kind.INTERNAL: grpc.StatusCode.INTERNAL,
}


def method(kind: Any, behaviour: Any, request: Any) -> Any:
    """A method for a server: `kind` says which side streams, `request` is the message that it takes."""
    return kind(
        behaviour,
        request_deserializer=request.FromString,
        response_serializer=lambda reply: reply.SerializeToString(),
    )
