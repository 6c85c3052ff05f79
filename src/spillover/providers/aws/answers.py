"""What errors of EC2 mean for an order.

The code of an error decides, never its words. An error that says nothing of the order leaves it unknown: repeating the
same token is safe, and giving up a machine that exists is not.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from spillover.model.bounds import plain
from spillover.model.pools import RefusalCause
from spillover.ports.provider import Created, NotNow, Refused, Unknown

MISMATCH: Final = "IdempotentParameterMismatch"
"""The token was used with other parameters: the options of the pool changed between two tries."""
TERMINATED: Final = "IdempotentInstanceTerminated"
"""The machine of this token is gone."""
DRY_RUN: Final = "DryRunOperation"
"""A trial would have succeeded."""
NO_SUCH: Final = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")

_CAPACITY: Final = frozenset(
    (
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientCapacityOnHost",
        "InsufficientCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientVolumeCapacity",
        "InsufficientFreeAddressesInSubnet",
        "ReservationCapacityExceeded",
        "UnfulfillableCapacity",
        "SpotMaxPriceTooLow",
        "Unsupported",  # this type, in this zone
    )
)
_QUOTA: Final = frozenset(
    ("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded", "QuotaExceeded")
)
"""Besides codes that end in LimitExceeded."""
_AUTH: Final = frozenset(
    (
        "UnauthorizedOperation",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
        "InvalidClientTokenId",
        "InvalidAccessKeyId",
        "UnrecognizedClientException",
        "MissingAuthenticationToken",
        "IncompleteSignature",
        "SignatureDoesNotMatch",
        "AccessDenied",
        "AccessDeniedException",
        "OptInRequired",
        "PendingVerification",
        "Blocked",
        "AccountDisabled",
    )
)
_SLOWER: Final = frozenset(
    (
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "EC2ThrottledException",
        "TooManyRequestsException",
        "BandwidthLimitExceeded",
        "SlowDown",
    )
)


class NotSent(Exception):
    """The request was surely not sent; the message says why."""


class NoAnswer(Exception):
    """The request was sent, or may have been; the message says why there is no answer."""


class NoAccess(Exception):
    """There are no usable credentials; the message says which, and where they are looked for."""


class Said(Exception):
    """EC2 answered with an error."""

    def __init__(self, code: str, message: str, status: int = 400, after: float = 0.0) -> None:
        self.code = code
        self.status = status
        """Of HTTP."""
        self.after = after
        """Seconds that it asks to wait; 0 if it does not say."""
        # What it says of missing permissions goes on with a thousand characters of an encoded message.
        clear = message.partition("Encoded authorization failure message")[0]
        super().__init__(plain(" ".join(f"{code}: {clear}".split())[:400]).strip())

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> "Said":
        """Read the error of an answer."""
        error, meta = answer.get("Error", {}), answer.get("ResponseMetadata", {})
        code = str(error.get("Code") or "")
        after = str(meta.get("HTTPHeaders", {}).get("retry-after", ""))
        return cls(
            code.removeprefix("Client.").removeprefix("Server."),
            str(error.get("Message") or ""),
            int(meta.get("HTTPStatusCode", 0) or 0),
            float(after) if after.isascii() and after.isdigit() and len(after) < 4 else 0.0,
        )

    @property
    def cause(self) -> RefusalCause | None:
        """Why an order is refused; None if the error refuses none."""
        if self.code in _CAPACITY:
            return RefusalCause.CAPACITY
        if self.code in _AUTH:
            return RefusalCause.AUTH
        if self.slower:
            return None
        if self.code in _QUOTA or self.code.endswith("LimitExceeded"):
            return RefusalCause.QUOTA
        # A number is not a code of EC2: a proxy answered. A request that took too long says nothing of its content.
        foreign = not self.code or self.code.isdigit() or self.code.startswith("RequestTimeout")
        return RefusalCause.INVALID if 400 <= self.status < 500 and not foreign else None

    @property
    def slower(self) -> bool:
        """Whether it asks for fewer requests."""
        return self.code in _SLOWER or self.status == HTTPStatus.TOO_MANY_REQUESTS


Failure = NotSent | NoAnswer | NoAccess | Said
"""What calls raise."""
FAILURES: Final = (NotSent, NoAnswer, NoAccess, Said)


def answer_to(failure: Failure) -> Created:
    """Return what a failed order means."""
    if isinstance(failure, NotSent):
        return NotNow(str(failure))
    if isinstance(failure, NoAccess):
        return Refused(RefusalCause.AUTH, str(failure))
    if isinstance(failure, NoAnswer):
        return Unknown(str(failure))
    if (cause := failure.cause) is not None:
        return Refused(cause, str(failure))
    return NotNow(str(failure), failure.after) if failure.slower else Unknown(str(failure))
